"""IdleTrace on the real kernel: tests that all of the kernel's transitions arrive. The effect of a
transition is tested exactly in tests/native/test_idle.c.

Other load on the machine only makes CPUs busier. So lower bounds from the tasks' own clocks always
hold; upper bounds hold only if /proc/stat shows no other load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import up_to_three_attempts
from nightly import cases_by_day
from roots import TESTS
from traced import (
    BUSY,
    CLAMPED_NS,
    CORE_UNKNOWN,
    ENTRIES,
    busy_ns,
    read_values,
    row_word,
    smt_times,
)
from waiting import MAX_WAIT_S, WaitError, at_intervals, wait_for

from perfprobe.machine.idle import STATES, IdleTrace

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("_may_trace")]

NS = 1_000_000_000
TICK_NS = NS // os.sysconf("SC_CLK_TCK")
PERIOD_NS, SHIFT_NS = 100_000_000, 20_000_000
# different patterns, to detect swapped CPUs; the expected shares of the states are .4 .2 .3 .1
ON_NS = 30_000_000, 40_000_000
LEAD_NS = 3 * NS // 10  # time in ns for the tasks to start
LOAD_NS = 8 * NS // 10
POINTS = 0.02  # tolerance of the load test, as a share
PUSH_NS = 15_000  # maximum mean duration of an interrupt that ends idling
QUIET = 0.1  # maximum share of a CPU that other tasks may use

TASK = """
import json, os, sys, time
cpu, start, period, on, end = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
spans = []
while start < end:
    time.sleep(max(0, (start - time.monotonic_ns()) / 1e9))
    begun = now = time.monotonic_ns()
    while now < start + on:
        now = time.monotonic_ns()
    spans.append((begun, now))
    start += period
print(json.dumps(spans))
"""
Spans = list[tuple[int, int]]
BUSY_PROGRAM = f"""
import json, os, sys, time
sys.path.append({str(TESTS / "support")!r})
from traced import CORE_UNKNOWN, row_word, smt_times
from perfprobe.machine.idle import IdleTrace
cpu = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, [cpu])
with IdleTrace(dict([(cpu, (0, 0))])) as trace:
    before, start = smt_times(trace, 0), time.monotonic_ns()
    while time.monotonic_ns() < start + 200_000_000:
        pass
    after, end = smt_times(trace, 0), time.monotonic_ns()
    print(json.dumps([after[1] - before[1], after[0] - before[0],
                      row_word(trace, cpu + 2, CORE_UNKNOWN), end - start]))
"""


@pytest.fixture(autouse=True)
def _affinity() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    assert os.sched_getaffinity(0) == before


@pytest.fixture
def two_cpus() -> tuple[int, int]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    return cpus[0], cpus[1]


def wait_idle(trace: IdleTrace, cpu: int) -> None:
    """Waits until the CPU has gone idle; skips the test if other tasks keep it busy all the
    time."""
    before = idle_ticks(cpu)
    try:
        wait_for(lambda: row_word(trace, 1 + cpu, ENTRIES), f"CPU {cpu} goes idle", 5)
    except WaitError as error:
        assert idle_ticks(cpu) <= before + 1, "idle, and not traced"
        pytest.skip(str(error))


def idle_ticks(cpu: int) -> int:
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{cpu}":
            return int(fields[3]) + int(fields[4])
    raise AssertionError(cpu)


def covered_ns(spans: Spans, start: int, end: int) -> Spans:
    return [(max(a, start), min(b, end)) for a, b in spans if b > start and a < end]


def expected(first: Spans, second: Spans, start: int, end: int) -> list[float]:
    """Returns the shares of neither, lp0, lp1 and both, computed from the tasks' own clocks."""
    first, second = covered_ns(first, start, end), covered_ns(second, start, end)
    on0, on1 = (sum(b - a for a, b in spans) for spans in (first, second))
    both = sum(max(0, min(b, d) - max(a, c)) for a, b in first for c, d in second)
    length = end - start
    parts = (length - on0 - on1 + both, on0 - both, on1 - both, both)
    return [part / length for part in parts]


class Load:
    """Two tasks, one on each CPU, observed by three traces with different core maps at once."""

    def __init__(self, cpus: tuple[int, int]) -> None:
        a, b = cpus
        with (
            IdleTrace({a: (0, 0), b: (0, 1)}) as plain,
            IdleTrace({a: (0, 1), b: (0, 0)}) as swapped,
            IdleTrace({a: (0, 0), b: (1, 0)}) as single,
        ):
            begin = time.monotonic_ns() + LEAD_NS
            starts = begin, begin + SHIFT_NS
            tasks = [
                subprocess.Popen(
                    [
                        *(sys.executable, "-ISc", TASK),
                        *map(str, (cpu, start, PERIOD_NS, on, begin + LOAD_NS)),
                    ],
                    stdout=subprocess.PIPE,
                )
                for cpu, start, on in zip(cpus, starts, ON_NS, strict=True)
            ]
            time.sleep(max(0.0, (begin - time.monotonic_ns()) / NS))
            stat = [idle_ticks(cpu) for cpu in cpus]
            first_ns = time.monotonic_ns()
            before = [smt_times(t, 0) for t in (plain, swapped, single)]
            self.start = time.monotonic_ns()
            time.sleep(max(0.0, (begin + LOAD_NS - time.monotonic_ns()) / NS))
            last_ns = time.monotonic_ns()
            after = [smt_times(t, 0) for t in (plain, swapped, single)]
            self.end = time.monotonic_ns()
            idle = [TICK_NS * (idle_ticks(cpu) - s) for cpu, s in zip(cpus, stat, strict=True)]
            spans = [json.loads(task.communicate(timeout=MAX_WAIT_S)[0]) for task in tasks]
        self.length = self.end - self.start
        self.apart = (self.start - first_ns + self.end - last_ns) / self.length
        """Share of the time in which the traces were read one after the other."""
        self.shares = [
            [(b - a) / self.length for a, b in zip(x, y, strict=True)]
            for y, x in zip(after, before, strict=True)
        ]
        self.expected = expected(spans[0], spans[1], self.start, self.end)
        _, lp0, lp1, both = self.expected
        on = (lp0 + both, lp1 + both)
        self.foreign = sum(max(0.0, 1 - i / self.length - o) for i, o in zip(idle, on, strict=True))


def test_a_known_load_has_its_four_states(two_cpus: tuple[int, int]) -> None:
    load = Load(two_cpus)
    if load.foreign >= QUIET:
        load = Load(two_cpus)
    check_siblings(load)
    neither, lp0, lp1, both = load.shares[0]
    want, points = load.expected, POINTS + load.apart
    assert neither <= want[0] + points
    assert both >= want[3] - points
    assert lp0 + both >= want[1] + want[3] - points
    assert lp1 + both >= want[2] + want[3] - points
    if load.foreign >= QUIET:
        pytest.skip(f"other load took {load.foreign:.0%} of a CPU: only one side was checked")
    assert load.shares[0] == pytest.approx(want, abs=points + load.foreign)


def check_siblings(load: Load) -> None:
    """Swapped siblings swap the states, and a core of one thread has no second LP."""
    (_, lp0, _, both), swapped, single = load.shares
    close = 0.001 + load.apart
    assert [swapped[i] for i in (0, 2, 1, 3)] == pytest.approx(load.shares[0], abs=close)
    assert single == pytest.approx([1 - lp0 - both, lp0 + both, 0, 0], abs=close)
    assert single[2:] == [0, 0]


def test_the_four_states_and_the_unknown_add_up_to_all_time(two_cpus: tuple[int, int]) -> None:
    a, b = two_cpus
    before = time.monotonic_ns()
    with IdleTrace({a: (7, 0), b: (7, 1)}) as trace:
        opened = time.monotonic_ns()
        for _ in at_intervals(50, 0.005):
            start, states, end = time.monotonic_ns(), smt_times(trace, 7), time.monotonic_ns()
            total = sum(states) + row_word(trace, 1 + max(two_cpus) + 1 + 7, CORE_UNKNOWN)
            # The kernel's fast clock may differ from ours by nanoseconds, hence 1 µs.
            assert start - opened - 1000 <= total <= end - before + 1000


@up_to_three_attempts
def test_times_of_a_core_and_its_cpus_agree(two_cpus: tuple[int, int]) -> None:
    """The sum of a CPU is counted separately from its core's; the core is read between two reads of
    the CPU."""
    a, b = two_cpus
    busy = [(BUSY, cpu) for cpu in two_cpus]
    slots = [*busy, *((kind, 0) for kind in STATES.values()), *busy]
    with IdleTrace({a: (0, 0), b: (0, 1)}) as trace:
        for cpu in two_cpus:
            wait_idle(trace, cpu)
        base, unknown_row = read_values(trace, *slots), max(two_cpus) + 2
        unknown = row_word(trace, unknown_row, CORE_UNKNOWN)
        slack = 100_000  # tolerance in ns, because the values are not read at once
        for _ in at_intervals(100, 0.005):
            values = read_values(trace, *slots)
            low0, low1, _, lp0, lp1, both, high0, high1 = (
                (n or 0) - (at or 0) for n, at in zip(values, base, strict=True)
            )
            margin = slack + sum(row_word(trace, 1 + cpu, CLAMPED_NS) for cpu in two_cpus)
            assert low0 - margin <= lp0 + both <= high0 + margin
            assert low1 - margin <= lp1 + both <= high1 + margin
            assert None not in values
            assert row_word(trace, unknown_row, CORE_UNKNOWN) == unknown, "no update was given up"


def cpuidle(cpu: int) -> tuple[int, int]:
    """Returns the ns in all states and the number of entries, according to cpuidle."""
    states = sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cpuidle").glob("state*"))
    if not states:
        pytest.skip("no cpuidle here")
    times = sum(int((s / "time").read_text()) for s in states)
    return 1000 * times, sum(int((s / "usage").read_text()) for s in states)


@up_to_three_attempts
def test_idle_time_agrees_with_cpuidle_and_proc_stat() -> None:
    """Both files are read on the measured CPU, which is then busy, so their times are complete."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    allowed = os.sched_getaffinity(0)

    def account(trace: IdleTrace, cpu: int) -> tuple[int, ...]:
        os.sched_setaffinity(0, {cpu})
        busy = busy_ns(trace, cpu)
        assert busy is not None
        now = time.monotonic_ns()
        return (
            now,
            now - busy,
            row_word(trace, 1 + cpu, ENTRIES),
            TICK_NS * idle_ticks(cpu),
            *cpuidle(cpu),
        )

    try:
        with IdleTrace({cpu: (cpu, 0) for cpu in cpus}) as trace:
            before = [account(trace, cpu) for cpu in cpus]
            os.sched_setaffinity(0, allowed)
            time.sleep(0.8)
            after = [account(trace, cpu) for cpu in cpus]
    finally:
        os.sched_setaffinity(0, allowed)
    for b, a in zip(before, after, strict=True):
        elapsed, idle, entries, ticks_ns, cpuidle_ns, usage = (
            y - x for x, y in zip(b, a, strict=True)
        )
        assert entries == pytest.approx(usage, abs=3, rel=0.01)
        assert idle == pytest.approx(cpuidle_ns, abs=0.01 * elapsed)
        # /proc/stat ends idle time at the interrupt that wakes the CPU, the others after it.
        slack = 2 * TICK_NS + 0.01 * elapsed + PUSH_NS * entries
        assert idle == pytest.approx(ticks_ns, abs=slack)


def test_an_always_busy_cpu_is_settled(two_cpus: tuple[int, int]) -> None:
    cpu, other = two_cpus
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        with IdleTrace({cpu: (0, 0), other: (0, 1)}, learn=False) as trace:
            unknown = busy_ns(trace, cpu)  # this thread has not slept since then
            trace.learn_states([cpu])
            first, second = read_values(trace, (BUSY, cpu), (BUSY, cpu))
            entries = row_word(trace, 1 + cpu, ENTRIES)
            trace.learn_states()
            assert os.sched_getaffinity(0) == {cpu}
    finally:
        os.sched_setaffinity(0, allowed)
    assert unknown is None or entries > 0
    assert first is not None
    assert second is not None
    assert second > first


@pytest.mark.parametrize("offset_s", cases_by_day([-3000, 3000], [3000]))
@up_to_three_attempts
def test_busy_time_is_right_in_a_time_namespace(offset_s: int) -> None:
    """The program reads the kernel's clock, which differs there from the clock of this process."""
    shifted = ["unshare", "--time", "--monotonic", str(offset_s)]
    if subprocess.run([*shifted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace can be made here")
    answer = subprocess.check_output([*shifted, sys.executable, "-c", BUSY_PROGRAM], text=True)
    busy_ns, idle_ns, unknown_ns, elapsed_ns = json.loads(answer)
    assert busy_ns + idle_ns == pytest.approx(elapsed_ns, abs=20_000_000)
    assert busy_ns > 0.8 * elapsed_ns
    assert unknown_ns < NS


def test_an_offline_mark_lasts_to_the_next_transition() -> None:
    with IdleTrace({0: (0, 0), 4095: (1, 0)}) as trace:
        assert read_values(trace, (BUSY, 4095), (STATES["neither_s"], 1)) == [None, None]
        trace.mark_offline(4095)
        for _ in at_intervals(2, 0.01):
            busy, neither = read_values(trace, (BUSY, 4095), (STATES["neither_s"], 1))
            assert busy == 0
        assert neither


def test_4096_cpus_can_be_traced() -> None:
    core_map = {cpu: (cpu // 2, cpu % 2) for cpu in range(4096)}
    with IdleTrace(core_map, learn=False) as trace:
        assert read_values(trace, (STATES["both_s"], 2047), (BUSY, 4095)) == [None, None]
        trace.learn_states([0])  # a CPU that other tasks keep busy has no transition
        assert busy_ns(trace, 0) is not None
