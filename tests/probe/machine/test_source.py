"""The source of this machine on a tree of files; the values must arrive exactly."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import frame_rows
import pytest
import trees
from waiting import whenever_due

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.errors import Unavailable
from perfprobe.machine.source import Machine
from perfprobe.native import tsc_rate
from perfprobe.native.sampler import Sampler
from perfprobe.opening import open_os
from perftop.session.session import Session

SAMPLE_NS = 10_000_000


class TreeMachine:
    """Two cores of one thread, whose files the test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        trees.write_machine(root, 2)
        for cpu in (0, 1):
            for state, name in enumerate(("POLL", "C1", "C6")):
                trees.put(root, f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/name", f"{name}\n")
            self.idle(cpu, 5, 10**9, 10**12)
        self.stat([100] * 8, [200] * 8)

    def idle(self, cpu: int, *us: int) -> None:
        for state, time_us in enumerate(us):
            path = f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/time"
            file = self.root / path
            if file.exists():  # in place, because the source keeps it open
                with file.open("r+") as f:
                    f.write(f"{time_us}\n")
            else:
                trees.put(self.root, path, f"{time_us}\n")

    def stat(self, *cpus: list[int]) -> None:
        lines = [f"cpu{i} {' '.join(map(str, row))} 0 0\n" for i, row in enumerate(cpus)]
        text = "cpu  " + " ".join(["9"] * 10) + "\n" + "".join(lines) + "intr 5 0\n"
        (self.root / "proc").mkdir(exist_ok=True)
        file = self.root / "proc/stat"
        with file.open("r+" if file.exists() else "w") as f:
            f.write(text)


@pytest.fixture
def machine(tmp_path: Path) -> TreeMachine:
    return TreeMachine(tmp_path)


def drive(
    source: Machine, session: Session, until: Callable[[], bool], what: str, whole: int = 0
) -> None:
    """Polls until the condition holds and `whole` new frames have arrived in which all CPUs were
    read: on a busy machine some frames lack a CPU, and earlier frames may still arrive."""
    begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    for messages in whenever_due(source.due_s, source.poll, what):
        for message in messages:
            decoder = wire.Decoder()  # messages are encoded and decoded, as for the app
            data = wire.encode(source.hello) + wire.encode(message)
            _, arrived = decoder.feed(data)
            session.apply(arrived)
            if isinstance(arrived, wire.Frame) and arrived.time_ns > begun_ns:
                whole -= frame_rows.is_whole(source.hello, arrived)
        if whole <= 0 and until():
            return


def frames(source: Machine, session: Session, n: int) -> None:
    """Polls until the session has `n` more frames. All CPUs must have a row in them, unless some
    CPUs are not selected."""
    goal = session.frames + n
    whole = n if source.hello.selected is None else 0
    drive(source, session, lambda: session.frames >= goal, f"{n} frames", whole)


def frame_later_than(session: Session, than_ns: int) -> bool:
    return session.now_ns >= than_ns


def has_values(result: Callable[[], list[float]], expected_values: list[float]) -> bool:
    return result() == expected_values


def increments(session: Session, key: str) -> list[float]:
    column = session.counters.columns[key]
    table = session.run.span.delta.tables[column.block].increments
    result: list[float] = table[:, column.index : column.index + column.counter.columns].sum(1)
    return [round(float(x), 6) for x in result]


def test_values_of_files_arrive_to_the_tick(machine: TreeMachine) -> None:
    source = open_os(machine.root, SAMPLE_NS, None)
    session = Session(source.hello)
    frames(source, session, 2)
    machine.idle(0, 5, 10**9 + 3_000, 10**12 + 4_000)
    machine.idle(1, 505, 10**9, 10**12)
    machine.stat([101, 100, 100, 102, 100, 100, 100, 103], [200] * 8)
    frames(source, session, 3)
    source.close()
    assert increments(session, "idle_s") == [0.007, 0]
    assert increments(session, "poll_s") == [0, 0.0005]
    assert increments(session, "stat_user_s") == [0.01, 0]
    assert increments(session, "stat_idle_s") == [0.02, 0]
    assert increments(session, "stat_steal_s") == [0.03, 0]
    hello = source.hello
    assert hello.stamp == "raw"  # under a sysroot, neither RDTSC nor CPUID is used
    assert (hello.tsc, hello.tsc_hz) == (None, None)
    idle = next(c for b in hello.blocks for c in b.counters if c.key == "idle_s")
    assert idle.parts == ["state1", "state2"]


def test_a_machine_without_spare_descriptors_is_not_opened(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it could not read later which CPUs are online. Two descriptors are too few."""
    plain, spare, limit = os.eventfd, itertools.count(1), 2

    def limited(value: int) -> int:
        if next(spare) > limit:
            raise OSError(errno.EMFILE, "Too many open files")
        return plain(value)

    directory = Path("/proc/self/fd")
    before = len([*directory.iterdir()])
    monkeypatch.setattr(os, "eventfd", limited)
    with pytest.raises(OSError, match="Too many"):
        open_os(machine.root, SAMPLE_NS, None)
    spare, limit = itertools.count(1), 3
    open_os(machine.root, SAMPLE_NS, None).close()
    monkeypatch.undo()
    assert len([*directory.iterdir()]) == before


def test_utilisation_is_the_time_that_is_not_idle(machine: TreeMachine) -> None:
    """Utilisation is elapsed time minus idle, polling and steal, with or without a sysroot."""
    source = open_os(machine.root, SAMPLE_NS, None)
    session = Session(source.hello)
    frames(source, session, 2)
    session.take_interval()

    def polled_and_idle_s() -> list[float]:
        return [increments(session, key)[0] for key in ("poll_s", "idle_s")]

    for step in range(1, 11):
        until_ns = session.now_ns + 10**8
        drive(source, session, partial(frame_later_than, session, until_ns), "0.1 s")
        machine.idle(0, 5 + 10_000 * step, 10**9 + 20_000 * step, 10**12)
        want = [round(0.01 * step, 6), round(0.02 * step, 6)]
        drive(source, session, partial(has_values, polled_and_idle_s, want), "both are read")
    interval = session.take_interval()
    source.close()
    elapsed = interval.elapsed_s
    assert interval.values["util"][0] == pytest.approx(1 - 0.30 / elapsed, rel=0.05)
    assert interval.values["idle"][0] == pytest.approx(0.20 / elapsed, rel=0.15)
    assert interval.values["util"][1] == 1.0


def test_a_cpu_goes_offline_and_online(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_os(machine.root, SAMPLE_NS, None)
    session = Session(source.hello)
    heads: list[list[int]] = []
    poll = source.poll

    def watched() -> list[wire.Frame | wire.Note]:
        result = poll()
        for message in result:
            if isinstance(message, wire.Frame):
                words = memoryview(message.blocks["cpu"].head).cast("Q")
                heads.append([words[row * wire.HEAD + 4] for row in (0, 1)])
        return result

    monkeypatch.setattr(source, "poll", watched)
    frames(source, session, 2)
    trees.put(machine.root, f"{trees.CPU}/online", "0\n")
    drive(source, session, lambda: not session.online[1], "CPU 1 is off")
    frames(source, session, 2)
    machine.idle(1, 0, 5, 5)  # the counter restarts from 0
    seen = len(heads)  # one poll may return the note and later frames
    trees.put(machine.root, f"{trees.CPU}/online", "0-1\n")
    drive(source, session, lambda: bool(session.online[1]), "CPU 1 is on")
    restarted = wire.ROW_SAMPLED | wire.ROW_REBASED
    drive(
        source,
        session,
        lambda: any(head[1] & restarted == restarted for head in heads[seen:]),
        "CPU 1 is read, and counts restarted",
    )
    machine.idle(1, 0, 2_005, 5)
    before = increments(session, "idle_s")
    drive(source, session, lambda: increments(session, "idle_s") != before, "it is idle")
    source.close()
    assert before == [0, 0]
    assert increments(session, "idle_s") == [0, 0.002]
    assert session.run.span.suspect_count == 0
    assert [e.kind for e in session.ended] == ["offline", "online"]


def test_a_cpu_that_went_offline_and_online_between_reads_is_reopened(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its counters would not advance, because the kernel has closed them. Its files
    appear again shortly afterwards."""
    read = Mock(wraps=topology.read_cpus, side_effect=chain([DEFAULT, []], repeat(DEFAULT)))
    monkeypatch.setattr(topology, "read_cpus", read)
    events: Iterator[set[int]] = chain([{1}], repeat(set()))
    with contextlib.closing(open_os(machine.root, SAMPLE_NS, None)) as source:
        session = Session(source.hello)
        frames(source, session, 2)
        open_cpu = Mock(wraps=source._row_readers.open)
        monkeypatch.setattr(source._row_readers, "open", open_cpu)
        monkeypatch.setattr(source._offline_events, "read_offline", lambda _: next(events))
        ended = lambda: [e.kind for e in session.ended] == ["offline", "online"]  # noqa: E731
        drive(source, session, ended, "both episodes", whole=2)
    open_cpu.assert_called_once_with(1)
    assert session.online.tolist() == [True, True]
    assert session.run.span.suspect_count == 0


def test_a_cpu_without_readable_files_is_retried(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a CPU appear shortly after its number."""
    with contextlib.closing(open_os(machine.root, SAMPLE_NS, None)) as source:
        session = Session(source.hello)
        trees.put(machine.root, f"{trees.CPU}/online", "0\n")
        drive(source, session, lambda: not session.online[1], "CPU 1 is off")
        looks = chain([[], ValueError("half written")], repeat(DEFAULT))
        read = Mock(wraps=topology.read_cpus, side_effect=looks)
        monkeypatch.setattr(topology, "read_cpus", read)
        trees.put(machine.root, f"{trees.CPU}/online", "0-1\n")
        drive(source, session, lambda: bool(session.online[1]), "CPU 1 is on")
    assert read.call_count == 3


def test_unpinnable_cpus_are_known_once_all_threads_have_tried(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {0: [errno.EINPROGRESS, 0], 1: [errno.EINPROGRESS, errno.EINPROGRESS, errno.EINVAL]}
    with contextlib.closing(open_os(machine.root, SAMPLE_NS, None)) as source:
        monkeypatch.setattr(
            source._sampler, "stats", lambda cpu: Mock(pin_errno=results[cpu].pop(0)), raising=True
        )
        monkeypatch.setattr(source, "_is_this_machine", True)
        assert source._unpinned_cpus() == [1]


def test_every_later_frame_reports_a_suspend(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_ns = 7_000_000_000  # ns of an earlier suspension since boot
    monkeypatch.setattr(tsc_rate, "suspended_ns", lambda: before_ns)
    source = open_os(machine.root, SAMPLE_NS, None)
    try:
        results = []
        for slept_ns in (0, 999_999, 1_000_000, 5_000_000_300):
            monkeypatch.setattr(tsc_rate, "suspended_ns", lambda ns=slept_ns: before_ns + ns)
            polled = iter(lambda: [m for m in source.poll() if isinstance(m, wire.Frame)], None)
            results.append(next(result for result in polled if result)[0].records.get("asleep_ns"))
    finally:
        source.close()
    assert results == [None, None, 1_000_000, 5_000_000_300]


@pytest.mark.parametrize("delayed_read", range(4))
def test_a_pause_between_the_reads_of_two_clocks_is_no_suspension(
    delayed_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load, marks once said that the machine was suspended for 0.0 s."""
    delays_ns = {delayed_read: 20_000_000}
    times_ns = itertools.accumulate(100 + delays_ns.get(i, 0) for i in itertools.count())

    def read(clock: int) -> int:
        return next(times_ns) + (5_000_000_000 if clock == time.CLOCK_BOOTTIME else 0)

    monkeypatch.setattr(time, "clock_gettime_ns", read)
    assert abs(tsc_rate.suspended_ns() - 5_000_000_000) < 1000


def test_garbled_files_invalidate_only_their_column(machine: TreeMachine) -> None:
    (machine.root / f"{trees.CPU}/cpu0/cpuidle/state1/time").write_text("zzz\n", encoding="ascii")
    (machine.root / f"{trees.CPU}/cpu1/cpuidle/state2/time").unlink()
    (machine.root / "proc/stat").write_bytes(b"cpu 1\ncpu0 1 x\ncpu1 5 5 5 5 5 5 5 5 5 5\n\xff\n")
    source = open_os(machine.root, SAMPLE_NS, None)
    session = Session(source.hello)
    frames(source, session, 3)
    values = session.take_interval().values
    source.close()
    assert str(values["idle"].tolist()) == "[nan, nan]"
    assert str(values["steal"].tolist()) == "[nan, 0.0]"
    assert str(values["poll"].tolist()) == "[0.0, 0.0]"


def test_without_cpuidle_proc_stat_is_used(machine: TreeMachine, tmp_path: Path) -> None:
    for cpu in (0, 1):
        for state in range(3):
            for name in ("name", "time"):
                (tmp_path / f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/{name}").unlink()
            (tmp_path / f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}").rmdir()
    source = open_os(tmp_path, SAMPLE_NS, None)
    session = Session(source.hello)
    source.close()
    origin = session.evaluator.origin("util") or ""
    assert origin.startswith("1 - /proc/stat idle - steal")
    assert "idle_s" in {m.what for m in source.hello.missing}


def test_only_requested_counters_are_read(machine: TreeMachine) -> None:
    source = open_os(machine.root, SAMPLE_NS, "core1")
    session = Session(source.hello)
    frames(source, session, 3)
    source.close()
    values = session.take_interval().values
    assert source.hello.selected == [1]
    assert str(values["poll"].tolist()) == "[nan, 0.0]"


def test_an_unclosed_source_is_not_freed(machine: TreeMachine) -> None:
    """The threads of an unclosed source continue to read slots and write rows."""
    kept = weakref.ref(open_os(machine.root, SAMPLE_NS, None))
    gc.collect()
    source = kept()
    assert source is not None
    source.close()
    source.close()
    del source
    gc.collect()
    assert kept() is None


def test_an_empty_tree_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no CPUs can be found under"):
        open_os(tmp_path, SAMPLE_NS, None)


@pytest.mark.parametrize(("sample_ms", "cpus", "first_ms"), [
    (10, 2, 10), (100, 2, 26), (208, 2, 26), (1000, 2, 125), (100, 1, 25.5),
])  # fmt: skip
def test_the_first_round_is_early_but_after_the_start_of_all_threads(
    machine: TreeMachine,
    monkeypatch: pytest.MonkeyPatch,
    sample_ms: int,
    cpus: int,
    first_ms: float,
) -> None:
    made = Mock(wraps=Sampler)
    monkeypatch.setattr("perfprobe.machine.source.Sampler", made)
    open_os(machine.root, sample_ms * 1_000_000, "0" if cpus == 1 else None).close()
    assert made.call_args.kwargs["first_delay_ns"] == first_ms * 1_000_000


def test_a_failed_open_leaves_no_threads_or_files(
    machine: TreeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads would write to memory that has been freed."""

    def count_threads_and_files() -> list[int]:
        return [len(list(Path("/proc/self", of).iterdir())) for of in ("task", "fd")]

    def fails(_: TreeMachine, *__: object) -> None:
        assert count_threads_and_files()[0] > before[0], "there are threads by now"
        raise OSError(errno.EMFILE, "no")

    before = count_threads_and_files()
    monkeypatch.setattr(Machine, "_make_hello", fails)
    with pytest.raises(OSError, match="no"):
        open_os(machine.root, SAMPLE_NS, None)
    assert count_threads_and_files() == before
