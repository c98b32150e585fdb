"""Counters that another program took over: a note reports them, and they are invalid until they are
returned."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import frame_rows
import pytest
from capabilities import needs_fuse
from fakekernel.client import FakeKernel
from journals import swept_directory
from nightly import cases_by_day, nightly_case
from waiting import whenever_due

from perfprobe import wire
from perfprobe.programming import source as msr_source
from perfprobe.programming.programmer import Programmer
from perfprobe.programming.source import MsrSource, open_msr

pytestmark = needs_fuse

SAMPLE_NS = 20_000_000
FIXED = ["cycles", "instructions", "ref"]
CPU = 2


def raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


PERIOD_S = 0.1


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a machine whose registers are checked every PERIOD_S."""
    monkeypatch.setattr(msr_source, "CHECK_PERIOD_NS", round(PERIOD_S * 1e9))
    with swept_directory(tmp_path / "root"):
        yield tmp_path / "root"


def invalid(hello: wire.Hello, frame: wire.Frame) -> set[tuple[int, str]] | None:
    """Returns CPU and key of the counters without a value in rows that were read; None if the CPU
    with the number CPU was not read."""
    flags = frame_rows.head(frame.blocks["cpu"])[CPU, 4]  # CPUs that were not read have /proc/stat
    return frame_rows.missing_values(hello, frame.blocks) if flags & wire.ROW_SAMPLED else None


def next_note(source: MsrSource, kind: str) -> tuple[wire.Note, set[tuple[int, str]]]:
    """Returns the note of this kind, and the invalid counters of the first frame due after it in
    which CPU was read. Earlier frames may have been read before the check of the registers."""
    note: wire.Note | None = None
    for messages in whenever_due(source.due_s, source.poll, f"a note {kind}, and a frame"):
        for message in messages:
            if isinstance(message, wire.Note) and message.kind in {"taken", "given-back"}:
                assert (message.kind, note) == (kind, None)
                note = message
            elif isinstance(message, wire.Frame) and note is not None:
                lost = invalid(source.hello, message)
                if lost is not None and message.time_ns >= note.time_ns:
                    return note, lost
    raise AssertionError


TAKEOVERS = [(0x38D, 0x222, FIXED), (0x187, 0, ["kernel_cycles"]), (0x38F, 0x50000000F, ["cycles"])]
"""Register, value, and the counters that it takes over; test_counter_plan.py has more."""


@pytest.mark.parametrize("stale", [nightly_case([]), [[CPU, 0x38F, 0], [CPU, 0x38D, 0x333]]])
def test_exactly_the_taken_counters_are_invalid(root: Path, stale: list[list[int]]) -> None:
    """`stale`: the registers had our values before the start, and nothing was enabled."""
    with (
        FakeKernel(root, registers=stale) as kernel,
        closing(open_msr(kernel.root, SAMPLE_NS, None)) as source,
    ):
        for register, value, keys in TAKEOVERS:
            ours = kernel.peek(CPU, register)
            before_ns = raw_ns()
            kernel.poke(CPU, register, value)
            note, lost = next_note(source, "taken")
            assert note.data["cpus"] == [CPU]
            assert note.data["counters"] == keys, hex(value)
            assert note.data["since_ns"] <= before_ns + 50_000_000 < note.time_ns + 50_000_000
            assert lost == {(CPU, key) for key in keys}, hex(value)
            kernel.poke(CPU, register, ours)
            note, lost = next_note(source, "given-back")
            assert (note.data, lost) == ({"cpus": [CPU], "counters": keys}, set()), hex(value)
        kernel.poke(CPU, 0x189, 0x4300C0)  # perftop does not use a fourth counter
        assert is_quiet(source)


def is_quiet(source: MsrSource) -> bool:
    """Returns whether no note arrives within two periods."""
    end = time.monotonic() + 2 * PERIOD_S
    for messages in whenever_due(source.due_s, source.poll, "the end of the time"):
        for message in messages:
            assert isinstance(message, wire.Frame), message
            assert not invalid(source.hello, message)
        if time.monotonic() > end:
            break
    return True


def test_one_takeover_is_one_note(root: Path) -> None:
    with FakeKernel(root) as kernel, closing(open_msr(kernel.root, SAMPLE_NS, None)) as source:
        for messages in whenever_due(source.due_s, source.poll, "a period"):
            if any(isinstance(message, wire.Frame) and message.seq > 10 for message in messages):
                break
        time.sleep(1.2 * PERIOD_S)  # all CPUs are due
        for cpu in (0, 1, 3):
            kernel.poke(cpu, 0x38D, 0x222)
        note, _ = next_note(source, "taken")
        assert note.data["cpus"] == [0, 1, 3]
        results = [m for m in source.poll() if isinstance(m, wire.Note)]
        assert [m.kind for m in results if m.kind != "warning"] == []


@pytest.mark.parametrize(
    "sample_ns", cases_by_day([2_000_000, 100_000_000, 3_000_000_000], [3_000_000_000])
)
def test_each_cpu_is_checked_once_in_a_period(
    root: Path, monkeypatch: pytest.MonkeyPatch, sample_ns: int
) -> None:
    checked_at: dict[int, list[float]] = {cpu: [] for cpu in range(4)}
    plain = Programmer.check

    def check(self: Programmer, cpu: int) -> object:
        checked_at[cpu].append(time.monotonic())
        return plain(self, cpu)

    monkeypatch.setattr(Programmer, "check", check)
    with FakeKernel(root) as kernel, closing(open_msr(kernel.root, sample_ns, None)) as source:
        start = last = time.monotonic()
        held_s = 0.0  # total time in s by which other programs delayed reads
        for _ in whenever_due(source.due_s, source.poll, "eight periods"):
            now = time.monotonic()
            held_s += max(0.0, now - last - PERIOD_S)
            last = now
            if now > start + 8 * PERIOD_S:
                break
        elapsed_s = last - start
    for times in checked_at.values():
        least = 0.8 * (elapsed_s - held_s) / PERIOD_S - 2
        assert least <= len(times) <= elapsed_s / PERIOD_S + 1
