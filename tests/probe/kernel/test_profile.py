"""Samples of the kernel's stack: what the kernel does, for which process and for how long."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from waiting import MAX_WAIT_S

from perfprobe.kernel.profile import (
    RING_BYTES,
    SAMPLE_RECORD,
    KernelProfile,
    KernelSamples,
    Symbols,
    parse_samples,
)

KALLSYMS = """\
ffffffff81000100 T entry_SYSCALL_64
ffffffff81000200 t do_syscall_64
ffffffff81000300 D jiffies
ffffffff81000400 t read_hpet
ffffffff81000500 T path_init.isra.0
ffffffff81000600 T _raw_spin_lock
ffffffff81000700 T native_queued_spin_lock_slowpath
ffffffff81000800 T _raw_spin_unlock_irqrestore
ffffffff81000900 t srso_return_thunk\t[mod]
ffffffff81000a00 T osq_lock_table_init
"""
CONTEXT = 2**64 - 128
PROGRAM = "import os\nwhile True: os.stat('/proc/self/exe')"


def symbols(path: Path, text: str) -> Symbols:
    path.write_text(text)
    return Symbols(os.open(path, os.O_RDONLY))


@pytest.mark.parametrize("read", [0, RING_BYTES - 8])
def test_records_are_those_between_the_ends_of_the_ring(read: int) -> None:
    """The kernel writes its end at byte 1024 of the first page; the reader's end is at 1032."""
    samples, pages = object.__new__(KernelSamples), bytearray(mmap.PAGESIZE + RING_BYTES)
    struct.pack_into("QQ", pages, 1024, read + 16, read)
    pages[mmap.PAGESIZE : mmap.PAGESIZE + 8], pages[-8:] = b"firstREC", b"lastRECS"
    pages[mmap.PAGESIZE + 8 : mmap.PAGESIZE + 16] = b"second##"
    samples._pages = pages  # type: ignore[assignment]
    assert samples.read_records() == (b"firstRECsecond##", b"lastRECSfirstREC")[read > 0]
    assert struct.unpack_from("QQ", pages, 1024) == (read + 16, read + 16)
    assert samples.read_records() == b""


@pytest.mark.parametrize(("offsets", "kind", "name"), [
    ((0x410, 0x200), "clock", "read_hpet"), ((0x250, 0x110), "entry", "do_syscall_64"),
    ((0x7FF, 0x610, 0x520), "lock", "path_init"), ((0x810, 0x520), "", "path_init"),
    ((0x910, 0x520), "mitigation", "srso_return_thunk"), ((0x520, 0x200), "", "path_init"),
    ((0x710, 0x610, 0x410), "clock", "read_hpet"),
    ((0xA10, 0x520), "", "osq_lock_table_init"),
    ((0x810,), "", "_raw_spin_unlock_irqrestore"), ((-0x100,), "", ""),
    ((0x310, 0x110), "entry", "do_syscall_64"), ((0x110,), "entry", "entry_SYSCALL_64"),
])  # fmt: skip
def test_a_stack_has_the_kind_and_function_of_its_work(
    tmp_path: Path, offsets: tuple[int, ...], kind: str, name: str
) -> None:
    stack = tuple(0xFFFFFFFF81000000 + offset for offset in offsets)
    assert symbols(tmp_path / "kallsyms", KALLSYMS).kind_and_function(stack) == (kind, name)


@pytest.mark.parametrize("text", ["", "0000000000000000 T _text\n0000000000000000 t read_hpet\n"])
def test_hidden_addresses_name_nothing(tmp_path: Path, text: str) -> None:
    with pytest.raises(PermissionError):
        symbols(tmp_path / "kallsyms", text)


def record(kind: int, *addresses: int, pid: int = 7) -> bytes:
    body = struct.pack(f"IIQ{len(addresses)}Q", pid, pid, len(addresses), *addresses)
    return struct.pack("IHH", kind, 0, 8 + len(body)) + body


def test_samples_of_this_process_and_without_a_stack_are_left_out() -> None:
    profile, pid = KernelProfile(), 2**22 + 1  # above the highest PID, so it has no name
    records = record(SAMPLE_RECORD, CONTEXT, 5, pid=pid) + record(SAMPLE_RECORD, CONTEXT, pid=pid)
    records += record(SAMPLE_RECORD, CONTEXT, 5, pid=os.getpid())
    samples = Mock(period_ns=4_000_000, **{"read_records.return_value": records})
    try:
        profile._samples = {0: samples}
        assert profile.record({}, 10**9)["functions"] == [], "the names are not known yet"
        profile._symbols = Mock(**{"kind_and_function.return_value": ("lock", "f")})
        profile._samples = {0: samples}
        assert profile.record({}, 2 * 10**9) == {
            "span_ns": 10**9, "functions": [["lock", "f", pid, "", 4_000_000]],
        }  # fmt: skip
    finally:
        profile.close()


def test_records_of_other_kinds_and_of_wrong_sizes_are_skipped() -> None:
    lost = record(2, CONTEXT, 1)
    long = record(SAMPLE_RECORD, CONTEXT, 5, 6)
    text = lost + long + struct.pack("IHH", SAMPLE_RECORD, 0, 0) + record(SAMPLE_RECORD, CONTEXT, 9)
    assert [*parse_samples(text)] == [(7, (5, 6)), (7, (9,))]
    assert [*parse_samples(long[:-9])] == []
    assert [*parse_samples(lost + long[:-9])] == []


def test_a_cpu_that_is_seldom_in_the_kernel_is_not_sampled() -> None:
    profile = KernelProfile()
    profile._reader = reader = Mock(ident=None)
    started = []
    try:
        # MIN_KERNEL_SHARE is 0.15; one call with the symptom is not enough.
        for second, share in enumerate((0.9, 0.149, 0.15, 0.1, 0.15, 0.15)):
            assert profile.record({0: share}, second * 10**9) == {}
            started.append(reader.start.called)
    finally:
        profile.close()
    assert started == [False] * 5 + [True]


def test_all_sampled_cpus_have_the_same_period(monkeypatch: pytest.MonkeyPatch) -> None:
    class Samples:
        def __init__(self, _cpu: int, period_ns: int) -> None:
            self.period_ns = period_ns

        def close(self) -> None: ...

    monkeypatch.setattr("perfprobe.kernel.profile.KernelSamples", Samples)
    profile = KernelProfile()
    try:
        for cpus in (range(8), range(16), range(3)):
            profile._sample(cpus)
            periods = {samples.period_ns for samples in profile._samples.values()}
            assert len(profile._samples) == len(cpus)
            assert len(periods) == 1
    finally:
        profile.close()


def test_the_process_that_uses_the_kernel_is_named_with_its_time() -> None:
    cpu = max(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", PROGRAM]
    program, profile = subprocess.Popen(command), KernelProfile()
    seconds: dict[int, float] = {}
    end_s = time.monotonic() + MAX_WAIT_S
    try:
        while seconds.get(program.pid, 0.0) < 0.1 and time.monotonic() < end_s:
            record = profile.record({cpu: 0.9}, time.monotonic_ns())
            if profile._is_refused or (profile._kallsyms_fd < 0 and not profile._reader.is_alive()
                                       and profile._symbols is None):  # fmt: skip
                pytest.skip("the kernel may not be sampled here")
            for _, _, pid, _, ns in record.get("functions", ()):
                seconds[pid] = seconds.get(pid, 0.0) + ns / 1e9
            time.sleep(0.1)
        run_s = int(Path(f"/proc/{program.pid}/schedstat").read_text().split()[0]) / 1e9
    finally:
        program.kill()
        program.wait()
        profile.close()
    assert 0.1 <= seconds.get(program.pid, 0.0) <= run_s + 0.1
