"""Loads with known counts. The length of each loop is tested by single steps in
tests/native/test_loops.c, and a second time here by its disassembly."""

from __future__ import annotations

import math
import os
import re
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from c_programs import listing

from perfprobe.errors import Unavailable
from perfprobe.instruments import disturbance
from perfprobe.instruments.selftest import load

KINDS = {
    load.FREE_LOOP: "test",
    load.ADD_LOOP: "add",
    load.IMUL_LOOP: "imul",
    load.ENTER_LOOP: "imul",
}


def loops(tmp_path: Path) -> list[Counter[str]]:
    """Returns the instructions of each loop, from the target of a backward jump to the jump, by
    function."""
    text = listing("loops.c", tmp_path)
    results: list[Counter[str]] = []
    section: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\s+(\w+)\s*([0-9a-f]*)", line)
        if match is None:
            section = []
            continue
        address, name, target = int(match[1], 16), match[2], match[3]
        section.append((address, name))
        if name == "jne" and target and int(target, 16) < address:
            results.append(Counter(n for at, n in section if at >= int(target, 16)))
    return results


def test_the_loops_have_the_stated_instructions(tmp_path: Path) -> None:
    result = loops(tmp_path)
    for kind, name in KINDS.items():
        body = Counter({name: load.chain_instructions(kind), "dec": 1, "jne": 1})
        if kind == load.ENTER_LOOP:
            body |= Counter({"mov": 1, "syscall": 1})
        assert body in result, name
        assert body.total() == load.loop_instructions(kind)


def test_a_run_is_marked_and_bounded() -> None:
    run = load.run_loop(load.ADD_LOOP, 1000, 20)
    assert (run.kind, run.turns_per_mark, len(run.mark_stamps)) == (load.ADD_LOOP, 1000, 20)
    assert list(run.mark_stamps) == sorted(run.mark_stamps)
    assert run.span.begin <= run.mark_stamps[0]
    assert run.mark_stamps[-1] <= run.span.end
    assert 0 <= run.span.lost_s <= run.span.length_s
    with pytest.raises(OSError, match="Invalid argument"):
        load.run_loop(99, 1, 1)


def test_a_run_is_long_enough_for_several_samples() -> None:
    (run,) = load.run_chains([min(os.sched_getaffinity(0))], load.ADD_LOOP).values()
    assert run.span.cpu_ns > 0.4 * load.MARKS_PER_RUN * load.MARK_INTERVAL_NS


@pytest.mark.parametrize(("ratio", "cycles"), [
    (3.0, 3), (2.93, 3), (3.07, 3), (3.09, None), (2.91, None), (4.0, 4),
])  # fmt: skip
def test_the_latency_of_a_chain_is_whole(
    ratio: float, cycles: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ADD takes 1000 ticks here. The loop is timed by its CPU time, 2 µs a turn."""
    runs: list[tuple[int, int, int]] = []

    def run_loop(kind: int, turns: int, marks: int) -> load.LoopRun:
        runs.append((kind, turns, marks))
        latency = ratio if kind == load.IMUL_LOOP else 1
        step = round(1000 * latency * turns * load.chain_instructions(kind))
        span = load.WorkSpan(0, 1, 0, 1, 2000 * turns * marks, 0)
        stamps = [i * step + 10**9 * (i > 5) for i in range(marks)]  # one interval is interrupted
        return load.LoopRun(kind, turns, tuple(stamps), span)

    monkeypatch.setattr(load, "run_loop", run_loop)
    assert load._run_chain(load.FREE_LOOP).cycles_per_instruction == cycles
    trials = [(load.ADD_LOOP, 300, 16)] * 3 + [(load.IMUL_LOOP, 100, 16)] * 3
    assert runs == [*trials, (load.FREE_LOOP, 500, 16), (load.FREE_LOOP, 250, 260)]


def test_the_threads_of_a_core_have_different_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    run_pinned = Mock(return_value={})
    monkeypatch.setattr(load, "run_pinned", run_pinned)
    load.run_patterns([[0, 4, 8], [5]])
    (work,) = run_pinned.call_args.args
    begin_ns = work[0].args[0]
    patterns = {cpu: (do.args[0] - begin_ns, do.args[2]) for cpu, do in work.items()}
    first, second = (0, 40_000_000), (20_000_000, 50_000_000)
    assert patterns == {0: first, 4: second, 8: first, 5: first}


def test_other_tasks_have_at_most_the_ticks_that_the_pattern_did_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 ticks of 10 ms are unexplained; the bound adds two ticks and two standard deviations."""
    span = load.WorkSpan(0, 1, 0, 1, 90_000_000, 0)
    ticks = iter([{0: [0] * 8, 1: [0] * 8}, {0: [20, 0, 5, 90, 0, 0, 0, 0], 1: [0] * 8}])
    monkeypatch.setattr(load, "run_pinned", lambda _: {0: [span], 1: [span], 2: [span]})
    monkeypatch.setattr(disturbance, "read_ticks", lambda: next(ticks))
    runs = load.run_patterns([[0, 1], [2]])
    assert runs.other_tasks_s == pytest.approx({0: 0.26, 1: 0.02, 2: math.inf})
    assert runs.is_conclusive([0], 1.3)
    assert not runs.is_conclusive([0], 1.29)
    assert not runs.is_conclusive([1, 2], 1e9)


def test_turns_between_unevenly_spaced_marks() -> None:
    marks = (100, 110, 130, 200, 1000, 1100)
    run = load.LoopRun(load.ADD_LOOP, 10, marks, load.WorkSpan(0, 1200, 0, 1200, 1200, 0))
    for stamp, passed in ((100, 0), (105, 5), (130, 20), (165, 25), (600, 35), (1050, 45)):
        assert run.turns_between(100, stamp) == passed
    assert run.turns_between(100, 1100) == 50
    assert run.turns_between(165, 1101) is run.turns_between(99, 165) is None


def test_patterns_run_on_the_requested_cpus() -> None:
    import time

    cpus = sorted(os.sched_getaffinity(0))[:2]
    before = os.sched_getaffinity(0)
    begin = time.monotonic_ns() + 20_000_000
    work = {cpu: partial(load.run_pattern, begin, 10_000_000, 2_000_000, 3) for cpu in cpus}
    work[4095] = partial(load.run_pattern, begin, 1, 1, 1)  # this CPU does not exist
    result = load.run_pinned(work)
    assert sorted(result) == cpus
    for cpu in cpus:
        assert [span.cpu for span in result[cpu]] == [cpu] * 3
        assert all(s.begin_ns >= begin + i * 10_000_000 for i, s in enumerate(result[cpu]))
        assert all(
            s.end_ns >= begin + i * 10_000_000 + 2_000_000 for i, s in enumerate(result[cpu])
        )
    assert os.sched_getaffinity(0) == before


def test_a_shortage_of_threads_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that were started do not wait for the others forever."""
    begun: list[threading.Thread] = []
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    cpu = min(os.sched_getaffinity(0))
    with pytest.raises(Unavailable, match="needs 2 threads, one for each CPU"):
        load.run_pinned({cpu: lambda: 1, cpu + 1: lambda: 2})
    assert not begun[0].is_alive()
