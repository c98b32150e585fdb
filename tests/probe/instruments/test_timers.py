"""`perfprobe timers`: the evaluation of samples, the machine code that takes them, and the answer
on this machine."""

from __future__ import annotations

import dataclasses
import errno
import io
import itertools
import json
import os
import random
import re
import statistics
import time
from collections import Counter
from contextlib import ExitStack, redirect_stdout
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from attempts import up_to_three_attempts
from c_programs import listing
from cpu_models import FakeCpuid
from hypothesis import example, given
from hypothesis import strategies as st

from perfprobe.__main__ import main
from perfprobe._native import lib
from perfprobe.cpu import cpuid, identity, topology
from perfprobe.errors import Unavailable
from perfprobe.instruments import disturbance, timers
from perfprobe.instruments.measurement import (
    HISTOGRAM_TAIL,
    RepeatedMean,
    common_step,
    describe_spread,
    histogram,
    trimmed_mean,
)
from perfprobe.instruments.timers import METHODS, Method
from perfprobe.native import affinity
from perfprobe.perf.perf_events import RefusedError
from perfprobe.registers import msr
from perfprobe.wire import Cpu, Identity, Rate

samples = st.lists(st.integers(1, 10**6), min_size=1, max_size=300)


# --- statistics -----------------------------------------------------------------------------------


@given(samples)
@example([n * n for n in range(1, 100)])
def test_the_spread_of_samples_agrees_with_statistics(values: list[int]) -> None:
    result = describe_spread(Counter(values))
    kept = sorted(values)[len(values) // 20 : len(values) - len(values) // 20]
    assert result.count == len(values)
    assert result.least == min(values)
    assert result.median == statistics.median(values)
    assert result.mean == pytest.approx(statistics.fmean(kept))
    assert result.sigma == pytest.approx(statistics.pstdev(kept), abs=1e-6)
    assert result.mean_all == pytest.approx(statistics.fmean(values))
    assert trimmed_mean(values) == pytest.approx(result.mean)


@given(samples, st.sampled_from([None, 2.0, 24.5]))
def test_a_histogram_loses_no_sample(values: list[int], grid: float | None) -> None:
    result = histogram(Counter(values), grid)
    assert sum(result.counts) + result.outlier_count == len(values)
    assert result.outlier_count <= HISTOGRAM_TAIL * len(values)
    assert result.first == min(values)
    assert result.counts[0] > 0
    assert len(result.counts) <= 24
    end = result.first + result.width * len(result.counts)
    assert result.outlier_count == sum(value >= end for value in values)


def test_a_histogram_has_no_gaps_from_the_clock_step() -> None:
    """The clock advances by two ticks: bins of three ticks would be full and half full in turn."""
    result = histogram(Counter(range(20, 80, 2)), 2.0)
    assert set(result.counts[:-1]) == {2}
    assert result.width == 4
    assert set(histogram(Counter(range(20, 40, 2)), 2.0).counts) == {1}
    assert [histogram(Counter(range(n))).width for n in (24, 25, 48, 49)] == [1, 2, 2, 3]


def test_a_hundredth_of_the_samples_may_be_beyond_the_histogram() -> None:
    for far, beyond in ((2, 2), (3, 0)):
        result = histogram(Counter([*range(200 - far), *[10**6] * far]))
        assert result.outlier_count == beyond


def readings(grid: float, count: int = 2000, most: int = 40) -> list[int]:
    """Returns differences of readings of a clock that advances in steps of `grid`."""
    generator = random.Random(3)
    clocks = [0]
    for _ in range(count):
        clocks.append(clocks[-1] + generator.randint(1, most))
    rounded = [floor(clock * grid) for clock in clocks]
    return [b - a for a, b in pairwise(rounded)]


@pytest.mark.parametrize("grid", [1.0, 2.0, 4.0, 10.0, 23.0, 24.5, 21.6, 92 / 25 * 7])
def test_the_step_of_a_clock_is_found(grid: float) -> None:
    assert common_step(readings(grid)) == pytest.approx(grid, rel=0.01)


def test_a_step_is_found_if_no_difference_is_a_single_step() -> None:
    assert common_step([d for d in readings(3.4) if d > 9]) == pytest.approx(3.4, rel=0.001)


def test_random_differences_have_no_step() -> None:
    assert common_step([]) is None
    assert common_step([0, 25, 25, 50, 75]) is None
    assert common_step([45, 46, 47, 48, 49, 60, 61]) == 1.0
    generator = random.Random(5)
    for _ in range(50):
        assert common_step(generator.sample(range(20, 90), 25)) == 1.0


# --- the instructions -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the mnemonics of timers.c, compiled like the package."""
    text = listing("timers.c", tmp_path_factory.mktemp("code"))
    result = re.findall(r"^ +[0-9a-f]+:\t(\S+)", text, re.MULTILINE)
    assert len(result) > 100
    return result


def test_every_stamp_has_the_instructions_of_its_name(code: list[str]) -> None:
    """One stamp precedes the loop and eight are in it, without a waiting instruction or branch
    between them."""
    stamps = 9
    assert code.count("rdtscp") == 2 * stamps
    assert code.count("cpuid") == stamps
    assert code.count("mfence") == stamps
    text = " ".join(code)
    assert text.count("mfence lfence rdtsc ") == stamps
    assert text.count("rdtscp lfence ") == stamps
    assert text.count("cpuid rdtsc ") == stamps
    plain = [i for i, name in enumerate(code) if name == "rdtsc" and code[i - 1] != "lfence"]
    assert len(plain) == 2 * stamps  # those of RDTSC alone, and of CPUID with RDTSC


def test_stamps_follow_each_other_without_a_jump(code: list[str]) -> None:
    """Each of the six kinds has eight stamps in a row between two jumps."""
    rows = []
    for name in code:
        if name[0] == "j" or name == "ret":
            rows.append(0)
        elif rows:
            rows[-1] += name in {"rdtsc", "rdtscp"}
    assert sum(row >= 8 for row in rows) == 6


# --- a method -------------------------------------------------------------------------------------


def run_of(calls: int, kind: int, answers: Any = "ticks") -> timers.MethodRun:
    """Returns a run of 100 samples of 180 ticks and one sample of 10 000 times that."""
    run = timers.MethodRun(Method("m", kind, None, answers, calls))
    run.sample_ticks = Counter({180: 99, 1_800_000: 1})
    run.pass_means = [RepeatedMean(180.0, 2.0, 50, is_stable=True)] * 2
    return run


def test_the_cost_of_a_call_excludes_its_stamps() -> None:
    bracket = RepeatedMean(20.0, 1.2, 100, is_stable=True)
    row = timers._cost_row(run_of(8, lib.PP_TIMER_CLOCK), bracket, 2e9, 2.0)
    assert (row["least_ticks"], row["median_ticks"], row["mean_ticks"]) == (20.0, 20.0, 20.0)
    assert (row["mean_ns"], row["error_ticks"], row["error_ns"]) == (10.0, 0.5036, 0.2518)
    assert (row["sigma_ticks"], row["far"], row["samples"]) == (0.0, 0.01, 100)
    assert row["mean_all_ticks"] == (0.99 * 180 + 0.01 * 1_800_000 - 20) / 8
    drawn = row["histogram"]
    assert (drawn["first_ticks"], drawn["counts"], drawn["beyond"]) == (20.0, [99], 1)


def test_a_step_is_in_ns_and_has_its_origin() -> None:
    rate = Rate(2e9, "so", 0.0)
    result = timers.Measurement(run_of(1, lib.PP_TIMER_NOTHING), [], rate, rate)
    clock_run = run_of(8, lib.PP_TIMER_CLOCK, "ns")
    assert timers._step_report(clock_run, False, result)["step_from"] == "clock_getres"
    clock_run.clock_steps.update([10, 20, 30, 70])
    assert timers._step_report(clock_run, False, result) == {
        "step_ns": 10.0,
        "step_from": "its answers",
    }
    stamps = run_of(1, lib.PP_TIMER_RDTSC)
    assert timers._step_report(stamps, True, result) == {"step_ns": None, "step_from": "the TSC's"}
    stamps.sample_ticks.update([22, 24, 26, 28])
    result.method_runs.append(stamps)
    assert timers._step_report(stamps, True, result)["step_ns"] == 1.0  # 2 ticks of 2 GHz
    count = timers._step_report(run_of(1, lib.PP_TIMER_SYSCALL, "count"), False, result)
    assert set(count) == {"step_from"}


def test_answers_of_a_clock_have_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by 40 ns, read every 10 ns."""
    answers = itertools.count(0, 10)

    class SteppedClock:
        def pp_timer_run(self, _timer: Any, size: int, ticks: Any, values: Any) -> int:
            for i in range(size):
                ticks[i], values[i] = 20, next(answers) // 40 * 40
            return 0

    monkeypatch.setattr(timers, "lib", SteppedClock())
    monkeypatch.setattr(timers, "WARM_UP_S", 0)
    clock_run = timers.MethodRun(Method("clock", lib.PP_TIMER_CLOCK, None, "ns"))
    timers._measure(clock_run)
    assert {*clock_run.clock_steps} == {0, 40}
    assert {*clock_run.sample_ticks} == {20}


def test_an_answer_has_the_rates_costs_and_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamps before and after a sample take 20 ticks of a TSC of 2 GHz."""
    rate, hello = Rate(2e9, "long", 1e-6), Rate(2.1e9, "short", 1e-4)
    empty, clock_run = run_of(1, lib.PP_TIMER_NOTHING), run_of(8, lib.PP_TIMER_SYSCALL, "count")
    empty.pass_means = [RepeatedMean(20.0, 1.2, 50, is_stable=True)] * 2
    result = timers.Measurement(empty, [clock_run], hello, rate)
    offset = timers.Offset(2, 0, 5, 4.0, 1.0, 2.0, 0.5)
    rows = [Cpu(n, True, siblings=[0, 1]) for n in (0, 1)]
    monkeypatch.setattr(topology, "require_cpus", lambda: rows)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(affinity, "cpuid_leaves", lambda _: cpuid.read_no_leaf)
    monkeypatch.setattr(identity, "machine_names", lambda: {"host": "h"})
    monkeypatch.setattr(identity, "clocksource", lambda: "tsc")
    monkeypatch.setattr(identity, "read_identity", Identity)
    monkeypatch.setattr(timers, "measure_methods", lambda *_: result)
    offsets = {((0, 1, 2), 1.0, 2e9): [offset]}
    monkeypatch.setattr(
        timers, "measure_offsets", lambda cpus, *given: offsets[(tuple(cpus), *given)]
    )
    monkeypatch.setattr(timers, "MAX_CPUS", 3)
    monkeypatch.setattr(disturbance, "read_counts", lambda cpu: cpu)
    monkeypatch.setattr(disturbance, "disturbances_during", lambda *given: [*given])
    monkeypatch.setattr(time, "monotonic", iter([10.0, 12.3456]).__next__)
    answer = timers.measure(1)
    methods = answer.pop("methods")
    assert answer == {
        "host": "h", "cpu": 1, "cpu_why": "asked for",
        "tsc": {
            "hz": 2e9, "origin": "long", "error": 1e-6,
            "note": "CLOCK_MONOTONIC_RAW is derived from this TSC: this is the rate that the "
            "kernel assumes",
            "hello": {"hz": 2.1e9, "origin": "short", "error": 1e-4}, "said": [],
            "invariant": None, "clocksource": "tsc", "step_ticks": None,
            "step_why": "too few different readings",
        },
        "trimmed": 0.05, "far": 10, "epsilon": 0.001, "confidence": 0.95, "bracket_ticks": 20.0,
        "offsets": [dataclasses.asdict(offset)], "offsets_left_out": 0,
        "disturbances": [1, [0], 1, 1], "elapsed_s": 2.346,
    }  # fmt: skip
    (row,) = methods
    assert (row["usable"], row["calls"], row["mean_ticks"], row["mean_ns"]) == (True, 8, 20.0, 10.0)


# --- obstacles ------------------------------------------------------------------------------------


def test_a_method_that_fails_during_a_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Method("good", lib.PP_TIMER_RDTSC, None), Method("MSR", lib.PP_TIMER_MSR, None)]
    monkeypatch.setattr(timers, "PASSES", 1)
    cpu = min(os.sched_getaffinity(0))
    # MSR fails, because it has no descriptor.
    result = timers.measure_methods(cpu, affinity.cpuid_leaves(cpu), wanted)
    good, bad = result.method_runs
    assert good.problem is None
    assert bad.problem is not None
    assert bad.problem.why == "it failed while it ran: Input/output error"
    row = timers._method_row(bad, result, affinity.cpuid_leaves(cpu))
    assert set(row) == set(timers.TIMER_KEYS)
    assert (row["usable"], row["mean_ticks"]) == (False, None)


def test_methods_of_a_cpu_that_went_offline_are_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OfflineLibrary:
        def pp_timer_run(self, *_: object) -> int:
            return -errno.EXDEV

    monkeypatch.setattr(timers, "lib", OfflineLibrary())
    cpu = min(os.sched_getaffinity(0))
    with pytest.raises(Unavailable, match="the CPU went offline meanwhile"):
        timers.measure_methods(cpu, affinity.cpuid_leaves(cpu))


def test_amd_needs_a_serializing_lfence() -> None:
    def amd_guarantees(always: int) -> dict[str, str | None]:
        def leaves(leaf: int, subleaf: int = 0, /) -> tuple[int, int, int, int]:
            name = (0x80000021, 0x68747541, 0x444D4163, 0x69746E65)  # AuthenticAMD
            return name if leaf in {0, 0x80000000} else (always << 2, 0, 0, 0)

        return {method.name: timers.ordering_guarantees(method, leaves) for method in METHODS}

    assert "if LFENCE serialises" in str(amd_guarantees(0)["lfence;rdtsc"])
    assert (
        amd_guarantees(1)["lfence;rdtsc"]
        == "earlier instructions are done; later ones may start before it"
    )
    assert amd_guarantees(0)["rdtsc"] == amd_guarantees(1)["rdtsc"]


def test_a_cpu_without_rdtscp_is_not_timed_by_it() -> None:
    has_it = FakeCpuid({0x80000000: (0x80000001, 0, 0, 0), 0x80000001: (0, 0, 0, 1 << 27)})
    assert timers.open_resource("rdtscp", 0, has_it, ExitStack()) == (None, {})
    with pytest.raises(RefusedError):
        timers.open_resource("rdtscp", 0, cpuid.read_no_leaf, ExitStack())


def test_a_register_that_cannot_be_read_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    registers = MagicMock(fd=7)
    registers.__enter__.return_value = registers
    monkeypatch.setattr(msr, "Registers", lambda *_: registers)
    note = f"{msr.register_name(msr.TSC)}, the TSC"
    opened = timers.open_resource("msr", 0, cpuid.read_no_leaf, ExitStack())
    assert opened == (note, {"fd": 7, "arg": msr.TSC})
    registers.read.side_effect = msr.MsrError("the read is refused", "no time", "modprobe msr")
    with pytest.raises(RefusedError) as refused:
        timers.open_resource("msr", 0, cpuid.read_no_leaf, ExitStack())
    assert (refused.value.problem.why, refused.value.problem.fix) == (
        "the read is refused", "modprobe msr",
    )  # fmt: skip


@pytest.mark.parametrize(("source", "guarantee"), [
    ("tsc", "earlier instructions are done, later ones may start before it: "),
    ("hpet", "not known of the clock source hpet"), (None, "not known of the clock source ?"),
])  # fmt: skip
def test_the_order_of_a_clock_depends_on_its_source(
    source: str | None, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "clocksource", lambda: source)
    for method in METHODS:
        expected = guarantee if method.name.startswith("MONOTONIC") else method.guarantees
        if method.name != "MONOTONIC_COARSE":
            text = timers.ordering_guarantees(method, cpuid.read_no_leaf)
            assert str(text).startswith(str(expected)), method.name


def test_only_a_fence_after_the_stamp_delays_later_instructions() -> None:
    """An instruction before RDTSC does not order the instructions after it."""
    for method in METHODS:
        if "rdtsc" in method.name:
            held = method.name.endswith(";lfence")
            assert ("later ones wait" in str(method.guarantees)) == held, method.name
            assert held != bool(re.search("after later|later ones may", str(method.guarantees)))


# --- this machine ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(timers, "PASSES", 2)
        assert main(["timers", "--json", f"--cpu={max(os.sched_getaffinity(0))}"]) == 0
    result: dict[str, Any] = json.loads(printed.getvalue())
    return result


def test_every_method_is_listed(answer: dict[str, Any]) -> None:
    assert [row["name"] for row in answer["methods"]] == [method.name for method in METHODS]
    for row in answer["methods"]:
        assert set(row) == set(timers.TIMER_KEYS)
        assert (row["why"] is None) == row["usable"]
        if not row["usable"]:
            continue
        assert 0 <= row["least_ticks"] <= row["median_ticks"], row
        assert row["least_ticks"] <= row["mean_ticks"], row
        assert row["error_ticks"] > 0
        assert row["sigma_ticks"] >= 0
        drawn = row["histogram"]
        assert sum(drawn["counts"]) + drawn["beyond"] == row["samples"]
        assert row["mean_ns"] == pytest.approx(
            row["mean_ticks"] / answer["tsc"]["hz"] * 1e9, abs=1e-3
        )


def test_the_answer_states_why_this_cpu_was_measured(answer: dict[str, Any]) -> None:
    assert (answer["cpu"], answer["cpu_why"]) == (max(os.sched_getaffinity(0)), "asked for")


def test_costlier_methods_cost_more(answer: dict[str, Any]) -> None:
    """The minimum of very many samples does not depend on other load."""
    least = {row["name"]: row["least_ticks"] for row in answer["methods"] if row["usable"]}
    assert least["rdtsc"] <= least["lfence;rdtsc"] <= least["mfence;lfence;rdtsc"]
    assert least["MONOTONIC_COARSE"] < least["MONOTONIC"] < least["cpuid;rdtsc"]
    assert least["rdtsc"] < least["empty system call"]


@up_to_three_attempts
def test_tsc_rate_agrees_with_the_clock(answer: dict[str, Any]) -> None:
    """Compares the rate with a rough computation here."""
    ns, tsc = time.monotonic_ns(), lib.pp_stamp()
    time.sleep(0.2)
    ns, tsc = time.monotonic_ns() - ns, lib.pp_stamp() - tsc
    assert answer["tsc"]["hz"] == pytest.approx(tsc / ns * 1e9, rel=0.01)
    assert answer["tsc"]["hello"]["hz"] == pytest.approx(answer["tsc"]["hz"], rel=1e-3)
    assert 0 < answer["tsc"]["error"] < answer["tsc"]["hello"]["error"]
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if answer["tsc"]["invariant"] is not None:
        assert answer["tsc"]["invariant"] == ("nonstop_tsc" in text and "constant_tsc" in text)
