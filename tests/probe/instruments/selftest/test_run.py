"""The verdicts of selftest on counters that are right, wrong, dead, noisy, absent or disturbed, on
a simulated machine whose true counts are known from its work. The machine has its own clock: a
tick of the TSC is a nanosecond."""

from __future__ import annotations

import dataclasses
import json
import os
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import synth
from nightly import cases_by_day

from perfprobe import wire
from perfprobe.__main__ import main as perfprobe
from perfprobe.errors import Unavailable
from perfprobe.instruments.selftest import cpu_checks, instruments, load, run
from perfprobe.instruments.selftest.load import LoopRun, PatternRuns, WorkSpan
from perfprobe.instruments.selftest.run import StopRequested
from perfprobe.instruments.selftest.verdict import Outcome
from perfprobe.wire import Counter, Cpu, Frame, Hello, Missing, Multiplier, Note, Rate
from perftop.cli import main as perftop

SAMPLE = 20_000_000
HZ = 1_000_000_000
CALL = 700, 900
"""Instructions and cycles of a system call on the simulated machine."""
KEYS = ("instructions", "kernel_instructions", "cycles", "kernel_cycles", "ref", "aperf", "mperf",
        "msr_tsc")  # fmt: skip
SECONDS = ("idle_s", "busy_s", "stat_idle_s", "stat_user_s", "both_s", "lp0_s", "lp1_s",
           "neither_s")  # fmt: skip
WAITING = "stat_iowait_s"
SIBLING_TICKS = "one_thread", "any_thread", "distributed"
"""Keys of the counts of cycles in which only this thread was awake; in which any thread was awake;
and in which this thread was awake, where cycles of two awake threads count half."""
LATENCY = 3
START = 2.0**40 - 1e6
"""Start value: counters of 40 bits wrap in the middle of the first loop."""
Truth = dict[str, float]


class Machine(synth.Source):
    """Two CPUs of one core. `wrong` scales the value of a counter; `others` is the share of each
    CPU that another program takes, with 1.5 instructions per cycle."""

    def __init__(self, wrong: Truth | None = None, lacking: Sequence[str] = ()) -> None:
        self.wrong = wrong or {}
        self.others = 0.0
        self.rationed = 0.0
        self.frames: list[Frame] = []
        self.now = 0
        self.seq = 0
        counted = (*KEYS, *SECONDS, WAITING, *SIBLING_TICKS)
        self.truth: list[Truth] = [dict.fromkeys(counted, START) for _ in range(2)]
        self.tries = 0
        keys = [key for key in (*KEYS, *SIBLING_TICKS) if key not in lacking]
        cpu = [Counter(key, key, "", "made up", bits=40) for key in keys]
        cpu += [Counter(key, key, "s", "made up", scale=1e-9) for key in (*SECONDS[:4], WAITING)]
        core = [Counter(key, key, "s", "made up", scale=1e-9) for key in SECONDS[4:]]
        rows = [Cpu(n, True, 0, 0, 0, n, 0, 0, None, [0, 1]) for n in range(2)]
        self.hello = Hello(
            "0", "made up", "h", "6", 0, 0, SAMPLE, rows, [[0, 1]], [[0, 1]],
            [wire.Block("cpu", "cpu", cpu), wire.Block("core", "core", core)],
            boot_id="b", tsc_hz=Rate(HZ, "made up"),
            missing=[Missing(key, "never was", "buy one") for key in lacking],
        )  # fmt: skip

    # --- a source ---

    def due_s(self) -> float:
        """Advances time, because the caller is about to wait."""
        self.advance([], SAMPLE)
        return 0.0

    def poll(self) -> list[Frame | Note]:
        taken, self.frames = self.frames, []
        return list(taken)

    # --- time ---

    def advance(self, working_cpus: Sequence[int], ns: int, rates: Truth | None = None) -> None:
        """Advances the time by `ns` while some CPUs work; each sample in this time becomes a
        frame."""
        while ns:
            step = min(ns, SAMPLE - self.now % SAMPLE)
            for cpu in range(2):
                self._count(cpu, step, rates or {}, at_work=cpu in working_cpus)
            both = len(working_cpus) == 2
            alone = working_cpus[0] if len(working_cpus) == 1 else None
            state = "both_s" if both else "neither_s" if alone is None else f"lp{alone}_s"
            self.truth[0][state] += step
            for cpu in range(2):
                self.truth[cpu]["one_thread"] += step * (alone == cpu)
                self.truth[cpu]["any_thread"] += step * bool(working_cpus)
                self.truth[cpu]["distributed"] += step * (0.5 if both else alone == cpu)
            self.now += step
            ns -= step
            if self.now % SAMPLE == 0:
                self._frame()

    def _count(self, cpu: int, ns: int, rates: Truth, *, at_work: bool) -> None:
        truth, own = self.truth[cpu], float(at_work) * (1 - self.others - self.rationed)
        awake = max(float(at_work) * (1 - self.rationed), self.others)
        truth["busy_s"] += ns * awake
        truth["idle_s"] += ns * (1 - awake)
        truth["stat_idle_s"] += ns * (1 - awake) * 0.75
        truth[WAITING] += ns * (1 - awake) * 0.25
        truth["ref"] += ns * awake
        for key in KEYS[:4]:
            foreign = 0.0 if key.startswith("kernel") else 1.5e0 * self.others
            truth[key] += ns * (own * rates.get(key, 0.0) + foreign)
        truth["aperf"], truth["mperf"] = truth["cycles"], truth["ref"]
        truth["msr_tsc"] += ns
        truth["stat_user_s"] += ns * own

    def _frame(self) -> None:
        self.seq += 1
        blocks = {}
        for block, rows in zip(self.hello.blocks, (2, 1), strict=True):
            head = array("Q", [self.now, self.now, 0, 0, wire.ROW_SAMPLED] * rows)
            valid = array("Q", [(1 << block.columns) - 1] * rows)
            values = array("Q")
            for row in range(rows):
                for counter in block.counters:
                    output = self.truth[row][counter.key] * self.wrong.get(counter.key, 1.0)
                    values.append(round(output) % (1 << counter.bits))
            blocks[block.name] = wire.Rows(head.tobytes(), valid.tobytes(), values.tobytes())
        self.frames.append(Frame(self.seq, self.now, blocks))

    # --- loads of the simulated machine ---

    def span(self, begin: int, cpu: int) -> WorkSpan:
        own = round((self.now - begin) * (1 - self.others - self.rationed))
        return WorkSpan(begin, self.now, begin, self.now, own, cpu)

    def run(self, kind: int, rates: Truth, turn_ns: int) -> dict[int, LoopRun]:
        self.tries += 1
        marks, begin = [], self.now
        for _ in range(260):
            self.advance([0, 1], 100 * turn_ns, rates)
            marks.append(self.now)
        turns = round(100 * (1 - self.others - self.rationed))
        return {
            cpu: LoopRun(kind, turns, tuple(marks), self.span(begin, cpu), LATENCY)
            for cpu in range(2)
        }

    def patterns(self, _: object) -> PatternRuns:
        spans: dict[int, list[WorkSpan]] = {0: [], 1: []}
        begins = {0: 0, 1: 0}
        self.advance([], 60_000_000)
        for _ in range(load.PERIODS):
            for busy, ns in (([0], 20), ([0, 1], 20), ([1], 30), ([], 30)):
                for cpu in (0, 1):
                    if cpu in busy and not begins[cpu]:
                        begins[cpu] = self.now
                self.advance(busy, ns * 1_000_000)
                for cpu, last in ((0, [0, 1]), (1, [1])):
                    if busy == last:
                        spans[cpu].append(self.span(begins[cpu], cpu))
                        begins[cpu] = 0
        return PatternRuns(spans, dict.fromkeys((0, 1), 0.02 + self.others))


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], dict[str, Any]]:
    # Counters of packages are tested in test_instruments.
    monkeypatch.setattr(instruments, "COPY_S", 0.001)
    monkeypatch.setattr(instruments, "COPY_BYTES", 1 << 20)

    def test(machine: Machine) -> dict[str, Any]:
        free_count = load.loop_instructions(load.FREE_LOOP)
        imul, call = load.loop_instructions(load.IMUL_LOOP), load.loop_instructions(load.ENTER_LOOP)
        ns = 5000  # one turn of each loop, whatever the clock is
        free = {"instructions": free_count / ns, "cycles": 0.1}
        chain = {
            "instructions": imul / ns,
            "cycles": load.chain_instructions(load.IMUL_LOOP) * LATENCY / ns,
        }
        calls = {
            "instructions": (call + CALL[0]) / ns,
            "kernel_instructions": CALL[0] / ns,
            "cycles": (load.chain_instructions(load.ENTER_LOOP) * LATENCY + CALL[1]) / ns,
            "kernel_cycles": CALL[1] / ns,
        }
        rates = {load.FREE_LOOP: free, load.IMUL_LOOP: chain, load.ENTER_LOOP: calls}
        monkeypatch.setattr(load, "run_chains", lambda _, kind: machine.run(kind, rates[kind], ns))
        monkeypatch.setattr(load, "run_patterns", machine.patterns)
        for module in (run, instruments, load):
            monkeypatch.setattr(module, "read_instant", lambda: (machine.now, machine.now))
        monkeypatch.setattr(
            cpu_checks,
            "offset_outcomes",
            lambda *_: iter([(cpu_checks.OFFSET_CHECK, Outcome(1, 0, 0, 1))]),
        )
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        return run.run(machine)

    return test


def by_counter(answer: dict[str, Any], verdict: str) -> set[str]:
    return {c["counter"] for c in answer["checks"] if c["verdict"] == verdict}


Tested = Callable[[Machine], dict[str, Any]]


def test_right_counters_are_trusted(tested: Tested) -> None:
    answer = tested(machine := Machine())
    assert {*KEYS, *SECONDS, *SIBLING_TICKS} <= by_counter(answer, "trusted")
    assert not by_counter(answer, "unusable") | by_counter(answer, "close")
    assert [c["disturbed"] for c in answer["checks"] if c["counter"] == "tsc"] == [[], []]
    assert answer["wrong"] == []
    names = [c["counter"] for c in answer["checks"]]
    # at work and at rest; the offset and the step of the TSC
    assert {name for name in names if names.count(name) == 2} == {"tsc", "ref", "busy_s", "idle_s"}
    assert machine.tries == 3  # each load ran once
    assert answer["unchecked"] == []
    assert {c["origin"] for c in answer["checks"] if c["counter"] != "tsc"} == {"made up"}
    assert {c["origin"] for c in answer["checks"] if c["counter"] == "tsc"} == {"RDTSC"}
    assert json.dumps(answer)


@pytest.mark.parametrize("flags", [0, wire.ROW_SAMPLED | wire.ROW_WIDE])
def test_reads_that_prove_nothing_are_left_out(tested: Tested, flags: int) -> None:
    """Every second read is disturbed, and would be far off."""
    machine = Machine()
    frame = machine._frame

    def with_gaps() -> None:
        frame()
        if machine.seq % 2 == 0:
            result = machine.frames.pop()
            for name, rows in result.blocks.items():
                head = array("Q", rows.head)
                head[4 :: wire.HEAD] = array("Q", [flags] * (len(head) // wire.HEAD))
                nothing = bytes(len(rows.values))
                result.blocks[name] = wire.Rows(head.tobytes(), rows.valid, nothing)
            machine.frames.append(result)

    machine._frame = with_gaps  # type: ignore[method-assign]
    assert {*KEYS, *SECONDS} <= by_counter(tested(machine), "trusted")
    assert machine.tries == 3  # no load ran again


@pytest.mark.parametrize("factor", cases_by_day([0.0, 0.5, 2.0], [0.5]))
@pytest.mark.parametrize(
    "key",
    ["instructions", "cycles", "ref", "aperf", "mperf", "msr_tsc", "idle_s", "busy_s",
     "stat_idle_s", "both_s", "lp1_s", "neither_s", *SIBLING_TICKS],
)  # fmt: skip
def test_dead_halved_and_doubled_counters_are_wrong(
    tested: Tested, key: str, factor: float
) -> None:
    answer = tested(Machine({key: factor}))
    assert key in answer["wrong"]
    assert key in by_counter(answer, "unusable")


def test_swapped_siblings_are_wrong(tested: Tested) -> None:
    """The sum of both threads' times is still all of the time."""
    machine = Machine()
    truth = machine.truth[0]

    class Swapped(dict[str, float]):
        def __getitem__(self, key: str) -> float:
            return truth.get({"lp0_s": "lp1_s", "lp1_s": "lp0_s"}.get(key, key), 0.0)

    frame = machine._frame

    def swapped() -> None:
        machine.truth[0], kept = Swapped(truth), machine.truth[0]
        frame()
        machine.truth[0] = kept

    machine._frame = swapped  # type: ignore[method-assign]
    assert tested(machine)["wrong"] == ["lp0_s", "lp1_s"]


@pytest.mark.parametrize("key", ["one_thread", "any_thread", "distributed"])
def test_ticks_are_compared_by_the_factor_that_fits_best(tested: Tested, key: str) -> None:
    """A tick of the event takes eight ticks of the TSC."""
    machine = Machine({key: 1 / 8})
    machine.hello.multipliers.extend(Multiplier(key, f, "made up") for f in (1.0, 8.0, 64.0))
    answer = tested(machine)
    assert {*SIBLING_TICKS} <= by_counter(answer, "trusted")
    assert answer["wrong"] == []


def test_an_absent_counter_is_reported_with_its_reason(tested: Tested) -> None:
    answer = tested(Machine(lacking=["cycles", "kernel_cycles"]))
    absent = [c for c in answer["checks"] if c["verdict"] == "not there"]
    assert [(c["counter"], c["why"], c["fix"]) for c in absent] == [
        ("cycles", "never was", "buy one"), ("kernel_cycles", "never was", "buy one")
    ]  # fmt: skip
    assert answer["wrong"] == []


def test_a_counter_of_some_cpus_only_is_judged_there(tested: Tested) -> None:
    machine = Machine({"instructions": 0.0})
    (block, core) = machine.hello.blocks
    counters = [
        dataclasses.replace(c, cpus=[1] if c.key == "cycles" else []) if c.key in KEYS[:3] else c
        for c in block.counters
    ]
    blocks = [dataclasses.replace(block, counters=counters), core]
    machine.hello = dataclasses.replace(machine.hello, blocks=blocks)
    checks = {c["counter"]: c for c in tested(machine)["checks"]}
    assert "instructions" not in checks
    assert checks["cycles"]["disturbed"] == []


@pytest.mark.parametrize(("retry_s", "tries"), [(600.0, 3), (-1.0, 1)])
def test_other_tasks_excuse_higher_but_not_lower_counts(
    tested: Tested, monkeypatch: pytest.MonkeyPatch, retry_s: float, tries: int
) -> None:
    monkeypatch.setattr(run, "MAX_RETRY_S", retry_s)
    machine = Machine()
    machine.others = 0.4
    answer = tested(machine)
    assert answer["wrong"] == []
    assert {"instructions", "cycles"} <= by_counter(answer, "disturbed")
    assert machine.tries == 3 * tries  # of three loops
    dead = Machine({"instructions": 0.0})
    dead.others = 0.4
    assert "instructions" in tested(dead)["wrong"]


def test_a_limit_on_cpu_time_is_not_a_counter_fault(tested: Tested) -> None:
    """The limit halts a CPU that should be busy, on any machine."""
    machine = Machine()
    machine.rationed = 0.3
    answer = tested(machine)
    assert answer["wrong"] == []
    assert {"ref", "idle_s", "busy_s"} <= by_counter(answer, "disturbed")
    for key in ("ref", "busy_s"):
        dead = Machine({key: 0.0})
        dead.rationed = 0.3
        assert key in tested(dead)["wrong"]


def test_one_quiet_try_is_enough(tested: Tested) -> None:
    machine = Machine()
    run = machine.run

    def noisy_first(*truth: Any) -> dict[int, LoopRun]:
        machine.others = 0.4 if machine.tries == 0 else 0.0
        return run(*truth)

    machine.run = noisy_first  # type: ignore[method-assign, assignment]
    answer = tested(machine)
    assert "instructions" in by_counter(answer, "trusted")
    assert not by_counter(answer, "disturbed")


def test_a_core_with_one_pattern_is_not_judged(tested: Tested) -> None:
    """The thread of the other CPU could not be pinned."""
    machine = Machine()
    patterns = machine.patterns
    machine.patterns = lambda given: dataclasses.replace(  # type: ignore[method-assign, assignment]
        patterns(given), spans={0: patterns(given).spans[0]}
    )
    answer = tested(machine)
    assert {"neither_s", "lp0_s", "lp1_s", "both_s"} <= by_counter(answer, "disturbed")
    assert answer["wrong"] == []


def test_selftest_stops_on_request(tested: Tested, monkeypatch: pytest.MonkeyPatch) -> None:
    tested(machine := Machine())
    with pytest.raises(StopRequested):
        run.run(machine, lambda: True)


@pytest.mark.parametrize(("online", "allowed"), [(True, {7}), (False, {0, 1})])
def test_only_cpus_that_can_run_it_are_tested(
    online: bool, allowed: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    machine = Machine()
    rows = [dataclasses.replace(row, online=online) for row in machine.hello.topology]
    machine.hello = dataclasses.replace(machine.hello, topology=rows)
    with pytest.raises(Unavailable, match="may not run on any CPU"):
        run.run(machine)


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "option"), [
    (perfprobe, ["--source", "sim"]), (perftop, ["--source", "sim:idle"]),
    (perfprobe, ["--sysroot", "/proc"]), (perfprobe, ["--source", "nonsense"]),
])  # fmt: skip
def test_a_refusal_is_one_line(
    program: Callable[[list[str]], int], option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(["selftest", *option]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
