"""`--source msr` on a fake kernel: obstacles at the start, and registers restored after every kind
of end."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attempts import up_to_three_attempts
from capabilities import needs_fuse
from command import Line, lines, read_some, run_in_process, started_process
from cpu_models import SKYLAKE_SP
from fakekernel.client import FakeKernel
from journals import entries_left
from nightly import cases_by_day, nightly_case
from priority import raised_priority
from waiting import MAX_WAIT_S

from perfprobe import wire
from perfprobe.cpu import identity
from perfprobe.errors import Unavailable
from perfprobe.programming import counter_plan, journal, source
from perfprobe.programming.programmer import Programmer
from perfprobe.programming.source import open_msr
from perftop.model.delta import MAX_HZ, MAX_IPC

pytestmark = [needs_fuse, pytest.mark.usefixtures("run_dir")]

ENABLE, GLOBAL = 0x53003C, 0x38F


def stat(kernel: FakeKernel, *more: str) -> subprocess.CompletedProcess[str]:
    return run_in_process("stat", "--json", "--source", "msr", "--sysroot", str(kernel.root), *more)


def refusal(kernel: FakeKernel) -> str:
    """The line with which the source refuses to open; it must have written no register."""
    with pytest.raises(Unavailable) as raised:
        open_msr(kernel.root, 10**8, None)
    text = str(raised.value)
    assert (kernel.writes(), text.count("\n")) == ([], 0)
    return text


# --- obstacles ------------------------------------------------------------------------------------


def missing_counters(result: subprocess.CompletedProcess[str]) -> dict[str, Line]:
    assert result.returncode == 0, result.stderr
    (hello,) = lines(result.stdout, "hello")
    return {m["what"]: m for m in hello["missing"]}


@pytest.mark.parametrize(("registers", "expected"), [
    ([[0x187, ENABLE]], "MSR 187H = 53003CH, enabled in MSR 38FH"),
    ([[0x38D, 0x030]], "MSR 38DH = 30H"),
    ([[0x38D, 0x0B0], [GLOBAL, 0]], "fixed counter 1 interrupts"),
])  # fmt: skip
def test_counters_in_use_are_left_alone(
    tmp_path: Path, registers: list[list[int]], expected: str
) -> None:
    spec = [[cpu, *pair] for cpu in range(4) for pair in registers]
    with FakeKernel(tmp_path / "root", registers=spec) as kernel:
        text = refusal(kernel)
        assert expected in text
        assert "(MSR 392H = " in text, "PERF_GLOBAL_INUSE"
        assert "nmi_watchdog" in text


@up_to_three_attempts
def test_one_cpu_in_use_leaves_the_others(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "root", registers=[[2, 0x186, ENABLE]]) as kernel:
        result = stat(kernel, "-n", "2", "-i", "200ms")
        assert missing_counters(result)["cycles"]["cpus"] == [2]
        rows = [row for interval in lines(result.stdout, "interval") for row in interval["cpus"]]
        assert {row["cpu"] for row in rows if row["ipc"] is not None} == {0, 1, 3}
        assert {w["cpu"] for w in kernel.writes()} == {0, 1, 3}
        assert kernel.changed() == {}


def test_leftover_selects_are_not_in_use_and_are_restored(tmp_path: Path) -> None:
    """A select without its global bit, and global bits without a select."""
    stale = [[cpu, reg, v] for cpu in range(4) for reg, v in ((0x186, ENABLE), (GLOBAL, 2))]
    with FakeKernel(tmp_path / "root", registers=[*stale, [1, 0x38D, 0x30]]) as kernel:
        result = stat(kernel, "-n", "1", "-i", "100ms")
        assert "cycles" not in missing_counters(result)
        assert kernel.changed() == {}
        assert [kernel.peek(1, reg) for reg in (0x186, 0x38D, GLOBAL)] == [ENABLE, 0x30, 2]


@pytest.mark.parametrize("policy", cases_by_day(["drop", "eperm"], ["drop"]))
@up_to_three_attempts
def test_ineffective_writes_are_reported(tmp_path: Path, run_dir: Path, policy: str) -> None:
    with raised_priority(), FakeKernel(tmp_path / "root", writes=policy) as kernel:
        offset = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
        result = stat(kernel, "-n", "5", "-i", "300ms")
        lost = missing_counters(result)
        reason = {"drop": "writes are dropped", "eperm": "msr.allow_writes"}[policy]
        for key in ("instructions", "kernel_cycles", "one_thread"):
            assert reason in lost[key]["why"]
        off, hz = [], []
        for interval in lines(result.stdout, "interval"):
            end, row = interval["time"] - offset, interval["cpus"][0]
            cores = kernel.truth(end - interval["elapsed_s"], end)["cores"]
            (true,) = (lp for core in cores for lp in core["lps"] if lp["cpu"] == 0)
            assert row["ipc"] is None
            if row["util"] is not None:  # a thread that wakes up late disturbs one interval
                off.append(row["util"] - true["util"])
                hz.append(row["busy_hz"])
        assert len(off) >= 3
        assert statistics.median(off) == pytest.approx(0, abs=0.05)
        assert statistics.median(hz) == pytest.approx(3.7e9, rel=0.02)
        assert {w["result"] for w in kernel.writes()} <= {"dropped", "EPERM"}
        assert entries_left(kernel.root) == []


@pytest.mark.parametrize(("spec", "expected"), [
    ({"msr": False}, "modprobe msr"),
    ({"open_error": "EPERM"}, "needs root (CAP_SYS_RAWIO)"),
    ({"reads": "zero"}, "returns 0 for all registers"),
    ({"override": {"version": 0}}, "CPUID.0AH says that this CPU has no counters"),
])  # fmt: skip
def test_an_unreadable_register_is_refused_with_its_reason(
    tmp_path: Path, spec: dict[str, Any], expected: str
) -> None:
    with FakeKernel(tmp_path / "root", **spec) as kernel:
        assert expected in refusal(kernel)


# --- every kind of end ----------------------------------------------------------------------------


@contextlib.contextmanager
def probe(kernel: FakeKernel) -> Iterator[tuple[subprocess.Popen[bytes], list[wire.Message]]]:
    """Yields a streaming probe that has programmed the counters, and its first messages."""
    command = ("stream", "--source", "msr", "--sysroot", str(kernel.root))
    with started_process(*command, program="perfprobe") as process:
        decoder = wire.Decoder()
        results: list[wire.Message] = []
        while not any(isinstance(message, wire.Frame) for message in results):
            results += decoder.feed(read_some(process))
        assert kernel.changed()
        yield process, results


def end_by_sigterm(process: subprocess.Popen[bytes]) -> None:
    process.terminate()


def close_reader(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    process.stdout.close()


def close_stdin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.close()


@pytest.mark.parametrize("end", [end_by_sigterm, close_reader, nightly_case(close_stdin)])
def test_the_probe_restores_registers(
    fake: FakeKernel, run_dir: Path, end: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    with probe(fake) as (process, _):
        end(process)
        assert process.wait(MAX_WAIT_S) == 0
        assert fake.changed() == {}
    assert entries_left(fake.root) == []


def test_registers_are_restored_after_a_kill_and_restart(fake: FakeKernel, run_dir: Path) -> None:
    boot = identity.boot_id(fake.root)
    with probe(fake) as (process, _):
        busy = stat(fake, "-n", "1")
        assert (busy.returncode, busy.stdout) == (3, "")
        assert f"another perftop (pid {process.pid})" in busy.stderr
        assert journal.stale_entry(run_dir, boot, fake.root) is None
        process.kill()
    changed = fake.changed()
    assert set(changed) == {0, 1, 2, 3}
    entry = journal.stale_entry(run_dir, boot, fake.root)
    assert entry is not None
    assert entry.pid == process.pid
    results = {r: (c.before, c.written) for r, c in entry.cpus[3].items() if c.before != c.written}
    assert results == changed[3]
    with probe(fake) as (again, messages):
        (note,) = [message for message in messages if isinstance(message, wire.Note)]
        assert note.kind == "warning"
        assert f"perftop (pid {process.pid}, killed)" in note.data["text"]
        assert note.data["text"].startswith("restored")
        again.terminate()
        again.wait(MAX_WAIT_S)
    assert fake.changed() == {}
    assert journal.stale_entry(run_dir, boot, fake.root) is None


def set_online(kernel: FakeKernel, process: subprocess.Popen[bytes], cpu: int, state: bool) -> None:
    """Changes the state of the CPU, and waits for the probe's note."""
    kernel.ask("online", cpu=cpu, online=state)
    data = b""
    while b"hotplug" not in data:
        data = data[-16:] + read_some(process)


def test_a_cpu_goes_offline_and_returns(fake: FakeKernel, run_dir: Path) -> None:
    with probe(fake) as (process, _):
        ours = fake.regs()[3]
        set_online(fake, process, 3, state=False)
        for register, (before, _) in ours.items():  # firmware has reset the CPU
            fake.poke(3, register, before)
        fake.poke(3, 0x189, 0x42)
        set_online(fake, process, 3, state=True)
        assert fake.regs()[3] == ours
        process.terminate()
        assert process.wait(MAX_WAIT_S) == 0
    assert fake.changed() == {}
    assert entries_left(fake.root) == []


def test_registers_may_survive_an_offline_cpu(fake: FakeKernel) -> None:
    """The registers still have the values of perftop, so no other program uses them."""
    plan = counter_plan.make_plan(SKYLAKE_SP, any_thread=False)
    assert plan
    programmer = Programmer(fake.root, identity.boot_id(fake.root))
    programmer.begin(dict.fromkeys(range(4), plan), range(4))
    ours = fake.changed()
    programmer.close_cpu(3)
    assert programmer.device(3) is not None
    assert (programmer.notes, fake.changed()) == ([], ours)
    programmer.close_cpu(1)
    fake.poke(1, 0x186, 0x42)  # the CPU was reset, or another program has used the counter
    assert programmer.device(1) is not None
    fake.poke(2, 0x189, ENABLE | 1)  # a fourth counter, which we do not use
    programmer.close_cpu(2)
    fake.poke(2, GLOBAL, 8)
    assert programmer.device(2) is None
    (note,) = programmer.notes
    assert note.startswith("CPU 2 came back, but its counters are not programmed: CPU 2's counters")
    assert "in use: MSR 189H" in note
    assert counter_plan.IN_USE_FIX in note
    programmer.end()
    assert programmer.unrestored == ""
    assert fake.changed() == {1: {0x186: (0, 0x42)}}


@pytest.mark.nightly
def test_a_cpu_offline_at_the_end_stays_in_the_journal(fake: FakeKernel, run_dir: Path) -> None:
    with probe(fake) as (process, _):
        set_online(fake, process, 3, state=False)
        process.terminate()
        assert process.wait(MAX_WAIT_S) == 1
    assert set(fake.changed()) == {3}
    entry = journal.stale_entry(run_dir, identity.boot_id(fake.root), fake.root)
    assert entry is not None
    assert set(entry.cpus) == {3}
    # CPU 3 is still offline, so it remains in the journal
    with probe(fake) as (process, messages):
        (note,) = [message for message in messages if isinstance(message, wire.Note)]
        assert note.data["text"].startswith("registers that perftop")
        set_online(fake, process, 3, state=True)
        process.terminate()
        process.wait(MAX_WAIT_S)
    assert fake.changed() == {}
    assert entries_left(fake.root) == []


def test_an_exception_restores_registers(fake: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        assert fake.changed()
        raise RuntimeError("in the middle")

    monkeypatch.setattr(source, "Machine", broken)
    with pytest.raises(RuntimeError, match="in the middle"):
        open_msr(fake.root, 10**8, None)
    assert fake.changed() == {}
    assert fake.writes()


def test_another_program_takes_counters_over(fake: FakeKernel) -> None:
    """The taken counters are suspect, no value is huge, and the registers of the other program are
    not overwritten.

    Each value that they set is far below the previous one, so a jump is detected however late the
    counter is set or read."""
    command = ("stat", "--json", "--source", "msr", "--sysroot", str(fake.root))
    values = itertools.count(1 << 47, -(1 << 40))
    with started_process(*command, "-i", "200ms", "-n", "10") as process:
        assert process.stdout
        text = read_some(process)
        fake.poke(0, 0x30A, next(values))
        fake.poke(1, 0x38D, 0x300)
        fake.poke(2, 0x186, 0x4300C0)
        while more := process.stdout.read(1 << 16):
            text += more
            # Repeated, because an interrupted read shows no jump.
            fake.poke(0, 0x30A, next(values))
    intervals = lines(text.decode(), "interval")
    rows = [row for line in intervals for row in line["cpus"]]
    assert any(row["suspect"] for row in rows if row["cpu"] == 0)
    *_, last = intervals
    assert last["cpus"][1]["ipc"] is None  # a taken counter is no longer valid
    assert any(row["ipc"] is not None for row in rows[len(rows) // 2 :] if row["cpu"] == 3)
    assert all(row["util"] is None or 0 <= row["util"] <= 1 for row in rows)
    # If the reads of a sample are delayed, their times differ and a number may be wrong.
    for key, usual, most in (("busy_hz", 4e9, MAX_HZ), ("ipc", 3, MAX_IPC)):
        results = [row[key] for row in rows if row[key] is not None]
        assert statistics.median(results) < usual
        assert max(results) < most
    assert fake.changed() == {2: {0x186: (0, 0x4300C0)}}
