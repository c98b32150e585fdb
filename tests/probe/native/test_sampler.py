"""The class Sampler, with real threads on this machine. No time is asserted; every wait is
bounded."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import whenever_due

import perfprobe.native.sampler
from perfprobe import wire
from perfprobe._native import lib
from perfprobe.native import tsc_rate
from perfprobe.native.batches import BatchSchedule, sample_count
from perfprobe.native.sampler import DrainedRound, RowPlan, Sampler, Slot

PERIOD_NS = 5_000_000
ROW = wire.HEAD + 1 + 2  # number of words in a row: the head, valid bits, two columns
NO_CPU = 5000


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "value"
    path.write_text("11 -22\n")
    with path.open("rb") as file:
        yield file.fileno()


def plan(row: int, *slots: Slot) -> RowPlan:
    at = row * ROW
    return RowPlan(at, at + wire.HEAD, 1, at + wire.HEAD + 1, slots)


def words(sampler: Sampler, row: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{ROW}Q", sampler.frame, 8 * row * ROW)


def flags(sampler: Sampler, row: int) -> int:
    return words(sampler, row)[4]


def drain(sampler: Sampler, until: Callable[[DrainedRound], bool] = lambda _: True) -> DrainedRound:
    """Drains like a caller, sleeping until `due`, up to the first round that `until` accepts."""
    for drained in whenever_due(sampler.due_s, sampler.drain, "such a round"):
        if drained is not None and until(drained):
            return drained
    raise AssertionError  # this is never reached, because the wait has raised


def test_rows_of_two_cpus_are_in_one_frame(fd: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    slots = Slot(lib.PP_FILE, 0, fd), Slot(lib.PP_FILE, 1, fd, 1)
    with Sampler(PERIOD_NS, 2 * ROW) as sampler:
        for row, cpu in enumerate(cpus):
            sampler.attach(cpu, [plan(row, *slots)])
        drained = drain(sampler, lambda d: d.delivered_cpus == len(cpus))
        assert drained.missing_lanes == 0
        assert drained.deadline_ns < time.monotonic_ns()
        for row, cpu in enumerate(cpus):
            before, after, late, lost, flag, valid, *values = words(sampler, row)
            assert before < after
            assert drained.deadline_ns + late < time.monotonic_ns()
            assert lost == sampler.stats(cpu).lost
            assert flag & ~wire.ROW_WIDE == wire.ROW_SAMPLED
            assert valid == 0b11
            assert values == [11, 2**64 - 22]
            assert sampler.stats(cpu).pin_errno == 0


@pytest.mark.parametrize(("stamp", "clock"), [
    ("tsc", lib.pp_stamp), ("raw", lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)),
])  # fmt: skip
def test_a_stamp_of_now_is_of_the_frames_clock(
    stamp: Literal["tsc", "raw"], clock: Callable[[], int]
) -> None:
    with Sampler(PERIOD_NS, ROW, stamp=stamp) as sampler:
        before, now, after = clock(), sampler.now(), clock()
    assert before <= now <= after


def test_no_frame_before_the_deadline(fd: int) -> None:
    with Sampler(3600 * 10**9, ROW, check_cpu=False) as sampler:
        sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
        assert sampler.due_s() > time.monotonic()
        assert sampler.drain() is None
        assert sampler.drain(force=True) is None


def test_a_late_lane_is_checked_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfprobe.native.sampler, "MAX_LANE_WAIT_NS", 10**12)
    with Sampler(3600 * 10**9, ROW, check_cpu=False, first_delay_ns=1) as sampler:
        with monkeypatch.context() as patch:
            patch.setattr(perfprobe.native.sampler, "check_result", lambda _: 1)  # one is pending
            before_s = time.monotonic()
            assert sampler.drain() is None
        assert sampler.due_s() >= before_s + perfprobe.native.sampler.RETRY_NS / 1e9


def test_a_row_of_a_nonexistent_cpu_is_unpinned(fd: int) -> None:
    for proof in (True, False):
        with Sampler(PERIOD_NS, ROW, check_cpu=proof) as sampler:
            sampler.attach(NO_CPU, [plan(0, Slot(lib.PP_FILE, 0, fd))])
            drain(sampler)
            assert sampler.stats(NO_CPU).pin_errno == errno.EINVAL
            elsewhere = wire.ROW_ELSEWHERE if proof else 0
            expected = wire.ROW_SAMPLED | wire.ROW_UNPINNED | elsewhere
            assert flags(sampler, 0) & ~wire.ROW_WIDE == expected
            assert words(sampler, 0)[wire.HEAD] == (0 if proof else 1)


def test_a_caller_that_sleeps_skips_and_counts(fd: int) -> None:
    with Sampler(PERIOD_NS, ROW, check_cpu=False, ring_rounds=4) as sampler:
        sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
        before = drain(sampler)
        late = sampler.late_rounds
        time.sleep(10 * PERIOD_NS / 1e9)
        after = drain(sampler)
        assert after.number - before.number >= 10
        assert sampler.late_rounds - late == after.number - before.number - 1
        assert words(sampler, 0)[3] == sampler.stats(0).lost > 0


class ScriptedLibrary:
    """The C library, with a clock that the test sets and a drain whose answers the test
    specifies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.pending = 0
        self.delivered = 0
        self.calls: list[tuple[int, bool]] = []  # number of the round and `force`, for each call
        monkeypatch.setattr(perfprobe.native.sampler, "lib", self)
        monkeypatch.setattr(perfprobe.native.sampler, "time", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def pp_drain(self, _s: Any, number: int, _frame: Any, force: bool, delivered: Any) -> int:
        self.calls.append((number, force))
        delivered[0] = self.delivered
        return self.pending


def test_late_lanes_are_awaited_and_then_skipped(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedLibrary(monkeypatch)
    with Sampler(10**9, ROW, check_cpu=False) as sampler:
        sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
        scripted.now_ns = deadline_ns = lib.pp_start_ns(sampler._sampler)
        scripted.pending, scripted.delivered = 1, 3
        assert sampler.drain() is None
        assert sampler.due_s() * 1e9 > scripted.now_ns
        scripted.now_ns += 50_000_000
        assert sampler.drain() is None
        scripted.now_ns += 60_000_000
        assert sampler.drain() == DrainedRound(0, deadline_ns, delivered_cpus=3, missing_lanes=1)
        assert scripted.calls == [(0, False), (0, False), (0, True)]
        assert sampler.due_s() * 1e9 > deadline_ns + 10**9
        scripted.now_ns = deadline_ns + 10**9
        assert sampler.drain() is None
        assert sampler.drain(force=True) == DrainedRound(1, deadline_ns + 10**9, 3, 1)


def test_a_round_missed_by_all_lanes_has_no_frame(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedLibrary(monkeypatch)
    with Sampler(10**9, ROW, check_cpu=False) as sampler:
        sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
        scripted.now_ns = lib.pp_start_ns(sampler._sampler) + 3 * 10**9
        assert sampler.drain() is None
        assert [number for number, _ in scripted.calls] == [0, 1, 2, 3]
        assert sampler.late_rounds == 4


@pytest.mark.parametrize(("stalled", "skipped"), [(3, 0), (4, 4)])
def test_rounds_of_full_rings_are_skipped(
    fd: int, monkeypatch: pytest.MonkeyPatch, stalled: int, skipped: int
) -> None:
    scripted = ScriptedLibrary(monkeypatch)
    scripted.delivered = 1
    with Sampler(10**9, ROW, check_cpu=False, ring_rounds=4) as sampler:
        sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
        scripted.now_ns = lib.pp_start_ns(sampler._sampler) + stalled * 10**9
        drained = sampler.drain()
    assert drained is not None
    assert (drained.number, sampler.late_rounds) == (skipped, skipped)


def test_a_span_that_was_rounded_down_has_all_its_samples() -> None:
    counts = {span: sample_count(span, 1000) for span in (984, 991, 1000, 1984, 1991)}
    assert counts == {984: 0, 991: 1, 1000: 1, 1984: 1, 1991: 2}


@pytest.mark.parametrize(("period_ns", "push_ns"), [(10**9, 10**6), (10**6, 250_000)])
def test_a_round_is_due_when_lanes_usually_have_pushed_it(period_ns: int, push_ns: int) -> None:
    with Sampler(period_ns, ROW) as sampler:
        due_ns = round(sampler.due_s() * 1e9) - lib.pp_start_ns(sampler._sampler)
        assert due_ns == pytest.approx(push_ns, abs=1000)
        last_due_ns = round(sampler.due_s(3) * 1e9) - lib.pp_start_ns(sampler._sampler)
        assert last_due_ns == pytest.approx(push_ns + 3 * period_ns, abs=1000)


def test_frames_without_lanes_continue() -> None:
    with Sampler(PERIOD_NS, ROW) as sampler:
        assert drain(sampler).delivered_cpus == 0
        assert sampler.late_rounds == 0


def test_errors_are_oserror(fd: int) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        Sampler(1, ROW)
    with Sampler(PERIOD_NS, ROW, check_cpu=False) as sampler:
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            sampler.attach(0, [plan(1, Slot(lib.PP_FILE, 0, fd))])
        with pytest.raises(FileNotFoundError):
            sampler.detach(0)
        sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
        with pytest.raises(FileExistsError):
            sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])


def test_a_closed_sampler_can_be_closed_again_but_not_used(fd: int) -> None:
    sampler = Sampler(PERIOD_NS, ROW, check_cpu=False)
    sampler.attach(0, [plan(0, Slot(lib.PP_FILE, 0, fd))])
    drain(sampler)
    before = bytes(sampler.frame)
    sampler.close()
    sampler.close()
    assert bytes(sampler.frame) == before
    for use in (sampler.drain, lambda: sampler.detach(0), lambda: sampler.stats(0)):
        with pytest.raises(ValueError, match="closed"):
            use()


# --- batches --------------------------------------------------------------------------------------


MS = 1_000_000


def batch_ends(batches: BatchSchedule, count: int, first: int = 0) -> list[int]:
    """Returns the rounds that end the next batches."""
    results = []
    for _ in range(count):
        first = batches.last_round(first)
        batches.mark_drained(first)
        results.append(first)
        first += 1
    return results


def test_without_a_pace_every_round_is_a_batch() -> None:
    assert batch_ends(BatchSchedule(100 * MS, 1000), 5) == [0, 1, 2, 3, 4]


def test_the_first_numbers_come_early_and_the_grid_begins_at_the_first_round() -> None:
    batches = BatchSchedule(100 * MS, 1000)
    batches.set_batch_length(500 * MS)
    assert batch_ends(batches, 5, first=3) == [3, 4, 8, 13, 18]


def test_a_new_pace_counts_from_the_last_round() -> None:
    batches = BatchSchedule(100 * MS, 1000)
    assert batch_ends(batches, 2) == [0, 1]
    batches.set_batch_length(500 * MS)
    assert batch_ends(batches, 2, first=2) == [6, 11]
    batches.set_batch_length(200 * MS)
    assert batch_ends(batches, 3, first=12) == [13, 15, 17]
    assert batches.last_round(25) == 25, "rounds that were missed do not move the grid"
    assert batches.last_round(26) == 27


@pytest.mark.parametrize(("period_ns", "frame_bytes", "rounds"), [
    (MS, 1, 256), (100 * MS, 1, 10), (10 * MS, 1 << 20, 4),
])  # fmt: skip
def test_a_batch_has_a_limited_length(period_ns: int, frame_bytes: int, rounds: int) -> None:
    """256 frames, a second, or 4 MiB."""
    assert BatchSchedule(period_ns, frame_bytes).max_rounds == rounds


def test_rounded_lengths_count_as_whole_multiples() -> None:
    batches = BatchSchedule(166_667_000, 1000)
    batches.set_batch_length(1_000_000_000)
    assert batch_ends(batches, 4) == [0, 1, 6, 12]


@given(
    period_ns=st.integers(MS, 3_600 * 1000 * MS),
    frame_bytes=st.integers(1, 1 << 24),
    paces=st.lists(st.integers(0, 10**12), max_size=5),
)
def test_a_batch_is_a_round_at_least_and_bounded(
    period_ns: int, frame_bytes: int, paces: list[int]
) -> None:
    batches = BatchSchedule(period_ns, frame_bytes)
    last = batch_ends(batches, 2)[-1]
    for batch_ns in paces:
        batches.set_batch_length(batch_ns)
        (end,) = batch_ends(batches, 1, first=last + 1)
        rounds, last = end - last, end
        assert rounds >= 1
        if rounds > 1:
            assert rounds <= 256
            assert rounds * period_ns <= min(10**9, batch_ns) + 0.02 * period_ns
            assert rounds * frame_bytes <= 4 << 20


# --- tsc rate -------------------------------------------------------------------------------------


@pytest.fixture
def sleep_of_calibration(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns how long calibration slept if no span was started before."""
    results: list[float] = []
    monkeypatch.setattr(time, "sleep", results.append)
    monkeypatch.setattr(tsc_rate, "_span_start", None)
    return results


def test_calibration_sleeps_only_for_the_rest_of_its_span(
    sleep_of_calibration: list[float],
) -> None:
    tsc_rate.calibrate(100.0)
    assert 90.0 < sleep_of_calibration[0] <= 100.0
    tsc_rate.start_span()
    end_ns = time.monotonic_ns() + 2_000_000
    while time.monotonic_ns() < end_ns:
        pass
    rate = tsc_rate.calibrate(0.001)
    assert sleep_of_calibration[1] == 0.0
    assert rate.error is not None
    assert 1e8 < rate.hz < 1e10


def test_half_of_each_bracket_is_error() -> None:
    rate = tsc_rate.rate_between((0, 1000, 20), (1_000_000_000, 2_001_000, 60))
    assert rate.origin == "counted against CLOCK_MONOTONIC_RAW for 1.0 s"
    assert (rate.hz, rate.error) == (2e6, 2e-5)


def test_an_early_start_counts_once(sleep_of_calibration: list[float]) -> None:
    tsc_rate.start_span()
    tsc_rate.calibrate(0.0)
    tsc_rate.calibrate(100.0)
    assert 90.0 < sleep_of_calibration[1] <= 100.0
