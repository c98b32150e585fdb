"""Comparisons between counters that should agree, and the TSC as a counter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sampling
import synth
from fakes import with_suspect_counter
from sampling import samples
from synth import counter

from perfprobe import wire
from perftop.detect.engine import cycles_and_time
from perftop.model.delta import Doubt
from perftop.model.evaluation import Values
from perftop.model.numbers import INDEX, METRICS
from perftop.model.plausibility import SLOT_KEYS, _event_bounds
from perftop.model.sample_reader import Sample, SampleReader
from perftop.output import stat_lines
from perftop.session.session import Session
from perftop.session.values import suspect_rows

TICKS = int(synth.TSC_HZ / 10)
KEYS = "ref", "cycles", "aperf", "mperf"


def samples_with_ratios(ratios: list[list[float]], batch_size: int) -> list[Sample]:
    """Returns samples of two siblings. `ratios`: the ratio of cycles to APERF by sample and CPU; 0:
    idle."""
    hello = synth.hello([counter(key) for key in KEYS])
    reader, sums = SampleReader(hello), np.zeros((len(KEYS), 2))
    frames = [synth.frame(hello, 0, {key: [0, 0] for key in KEYS})]
    for seq, shares in enumerate(ratios, 1):
        runs = TICKS / 2 * np.array([share > 0 for share in shares])
        sums += np.array([runs, 1.5 * runs * shares, 1.5 * runs, runs])
        values = {key: [int(v) for v in row] for key, row in zip(KEYS, sums, strict=True)}
        frames.append(synth.frame(hello, seq, values))
    batches = (frames[i : i + batch_size] for i in range(0, len(frames), batch_size))
    return [sample for some in batches for sample in samples(reader, some)]


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_a_clock_is_compared_after_both_counters_agreed_once(batch_size: int) -> None:
    """The second CPU runs only later, and then agrees."""
    steps = [[1.0, 0.0], [1.2, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.2], [1.0, 1.0], [1.0, 1.2]]
    results = [sample.delta.suspect_counters for sample in samples_with_ratios(steps, batch_size)]
    unlike = {("cycles", Doubt.UNLIKE)}
    doubted = [sorted(row for row, why in result.items() if why == unlike) for result in results]
    # A doubt of several samples ends one sample after its cause.
    assert doubted == [[], [0], [0], [], [], [], [1]]


def test_a_thread_with_unknown_cycles_does_not_add_its_time() -> None:
    hello = synth.hello()
    reader = SampleReader(hello)
    for seq in range(2):
        work = seq * TICKS // 2
        results: synth.Values = {
            "ref": [work, work],
            "cycles": [work, None],
            "instructions": [work, work],
        }
        frame = synth.frame(hello, seq, results)
        result = samples(reader, [frame])
    (sample,) = result
    cycles, run_s = sample.get(cycles_and_time)
    assert (cycles.tolist(), run_s.tolist()) == ([TICKS // 2], [0.05])


FULL_SLOTS = dict.fromkeys(SLOT_KEYS, 1.0) | {"slots": 4.0}
UNITS = {"instructions": "instructions", "kernel_instructions": "instructions", "busy_s": "s"}


@pytest.mark.parametrize("samples_per_step", [1, 20])
@pytest.mark.parametrize(("first", "second", "doubt"), [
    ({}, {"ref": 1.011}, ("ref", Doubt.FAST)), ({}, {"ref": 1.009}, None),
    ({}, {"cycles": 0.5, "instructions": 8.17}, ("instructions", Doubt.IPC)),
    ({}, {"cycles": 0.5, "instructions": 8.15}, None),
    ({}, {"cycles": 0.5, "kernel_cycles": 0.516}, ("kernel_cycles", Doubt.ABOVE)),
    ({}, {"cycles": 0.5, "kernel_cycles": 0.514}, None),
    ({}, {"instructions": 0.5, "kernel_instructions": 0.516}, ("kernel_instructions", Doubt.ABOVE)),
    ({}, {"instructions": 0.5, "kernel_instructions": 0.514}, None),
    ({}, FULL_SLOTS | {"topdown_backend": 1.091}, ("topdown_retiring", Doubt.SLOTS)),
    ({}, FULL_SLOTS | {"topdown_backend": 1.089}, None),
    ({}, FULL_SLOTS | {"topdown_backend": 0.909}, ("topdown_backend", Doubt.SLOTS)),
    ({"cycles": 0.5, "aperf": 0.5}, {"cycles": 0.541, "aperf": 0.5}, ("cycles", Doubt.UNLIKE)),
    ({"cycles": 0.5, "aperf": 0.5}, {"cycles": 0.539, "aperf": 0.5}, None),
    ({"cycles": 3.0, "aperf": 3.0}, {"cycles": 3.063, "aperf": 3.0}, ("cycles", Doubt.UNLIKE)),
    ({"cycles": 3.0, "aperf": 3.0}, {"cycles": 3.06, "aperf": 3.0}, None),
    # the first sample decides whether both have ever agreed
    ({"cycles": 0.11, "aperf": 0.11}, {"cycles": 0.6, "aperf": 0.5}, ("cycles", Doubt.UNLIKE)),
    ({"cycles": 0.09, "aperf": 0.09}, {"cycles": 0.6, "aperf": 0.5}, None),
    ({"cycles": 0.509, "aperf": 0.5}, {"cycles": 0.6, "aperf": 0.5}, ("cycles", Doubt.UNLIKE)),
    ({"cycles": 0.511, "aperf": 0.5}, {"cycles": 0.6, "aperf": 0.5}, None),
    ({"ref": 0.5, "mperf": 0.5}, {"ref": 0.45, "mperf": 0.5}, ("ref", Doubt.UNLIKE)),
])  # fmt: skip
def test_two_counts_may_differ_up_to_their_tolerance(
    first: dict[str, float], second: dict[str, float], doubt: tuple[str, Doubt] | None,
    samples_per_step: int,
) -> None:  # fmt: skip
    """Counts are relative to the TSC. Tolerances do not depend on the length of a sample."""
    found = doubts_of({**dict.fromkeys(second, 0.0), **first}, second, samples=samples_per_step)
    assert found == set() if doubt is None else doubt in found


@pytest.mark.parametrize("samples", [1, 20])
@pytest.mark.parametrize(("counts", "ticks", "seconds", "key"), [
    (["ref", "cycles"], {"ref": 11_000}, 0, "cycles"), (["ref", "cycles"], {"ref": 9000}, 0, ""),
    (["ref", "cycles"], {"cycles": 11_000}, 0, "ref"),
    (["cycles", "instructions"], {"cycles": 11_000}, 0, "instructions"),
    (["cycles", "kernel_cycles"], {"cycles": 11_000}, 0, "kernel_cycles"),
    (["ref", "busy_s"], {}, 0.021, "ref"), (["ref", "busy_s"], {}, 0.019, ""),
])  # fmt: skip
def test_a_counter_that_stands_still_is_suspect_after_some_work(
    counts: list[str], ticks: dict[str, int], seconds: float, key: str, samples: int
) -> None:
    """A witness counts 5 us, or the kernel 20 ms, in a sample of any length."""
    work = dict.fromkeys(counts, 0.0) | {k: n / TICKS / samples for k, n in ticks.items()}
    if "busy_s" in counts:
        work["busy_s"] = 10 * seconds / samples
    assert doubts_of(work, samples=samples) == ({(key, Doubt.STILL)} if key else set())


def doubts_of(*steps: dict[str, float], samples: int = 1) -> set[tuple[str, Doubt]]:
    """Returns the doubts about CPU 0 after the last step. Each step is one sample of 100 ms times
    `samples`, in which its counters advance at these rates."""
    counters = [
        counter(key, UNITS.get(key, "cycles"), bits=64, scale=1e-9 if key == "busy_s" else 1)
        for key in steps[0]
    ]
    hello = synth.hello(counters, threads=1)
    reader, sums, result = SampleReader(hello), dict.fromkeys(steps[0], 0.0), list[Sample]()
    for number, step in enumerate([dict.fromkeys(steps[0], 0.0), *steps]):
        for key, rate in step.items():
            sums[key] += samples * rate * (synth.SAMPLE_NS if key == "busy_s" else TICKS)
        values = {key: [round(value)] for key, value in sums.items()}
        result += sampling.samples(reader, [synth.frame(hello, number * samples, values)])
    return result[-1].delta.suspect_counters.get(0, set())


STAT = [counter(f"stat_{name}_s", "s", scale=0.01) for name in ("idle", "iowait", "steal")]


@pytest.mark.parametrize(("busy_ns", "idle_ticks", "late_s", "suspect"), [
    (0, 0, 0.0, True),  # the CPU is idle by its transitions, and busy by /proc/stat
    (100_000_000, 10, 0.0, True),
    (0, 10, 0.0, False),
    (100_000_000, 0, 0.0, False),
    (60_000_000, 8, 0.0, False),  # the CPU works for a short time between two ticks
    (0, 10, 0.1, False),  # /proc/stat was read so late that the spans differ
])  # fmt: skip
def test_idle_transitions_are_compared_with_proc_stat(
    busy_ns: int, idle_ticks: int, late_s: float, *, suspect: bool
) -> None:
    hello = synth.hello([counter("busy_s", "s", scale=1e-9)], stat=STAT)
    reader = SampleReader(hello)
    for seq in range(3):
        values = {key: [0, 0] for key in ("stat_iowait_s", "stat_steal_s")}
        values["busy_s"] = [seq * busy_ns, seq * 50_000_000]
        values["stat_idle_s"] = [seq * idle_ticks, seq * 5]
        frame, stat_s = synth.frame(hello, seq, values), seq / 10 + late_s * (seq == 2)
        later = synth.frame(hello, seq, values, stamps=[int(stat_s * synth.TSC_HZ)] * 2)
        blocks = frame.blocks | {"stat": later.blocks["stat"]}
        result = samples(reader, [dataclasses.replace(frame, blocks=blocks)])
    (sample,) = result
    assert sample.delta.suspect_counters == ({0: {("busy_s", Doubt.IDLE)}} if suspect else {})
    assert np.isnan(sample.values["util"]).tolist() == [suspect, False]


def test_a_group_has_the_value_of_its_known_cpus() -> None:
    top, bottom = np.ones((2, len(METRICS), 3))
    top[INDEX["ipc"]], bottom[INDEX["ipc"]] = [3, np.nan, 1], [1, 1, np.nan]
    assert Values(top, bottom).mean("ipc", [0, 1, 2]) == 3


# --- the TSC as a counter, if stamps are of another clock


TSC = synth.counter("tsc", bits=64)
COUNTERS = [TSC, synth.REF, synth.CYCLES, synth.INSTRUCTIONS, synth.ONE_THREAD]
RAW_NS = 100_000_000


def session(*, tsc: bool, ahead: tuple[int, int] = (0, 0)) -> Session:
    """Two samples: lp0 runs for 0.6 of the time, lp1 for 0.3, and both for 0.2. Stamps are in ns;
    the CPUs' TSCs may differ, and each read is a little late."""
    counters = COUNTERS if tsc else COUNTERS[1:]
    greeting = synth.hello(
        counters,
        stamp="raw",
        multipliers=[wire.Multiplier("one_thread", 84, "made")],
        smt_methods=["one-thread"],
    )
    result = Session(greeting)
    for i in (0, 1):
        span = i * TICKS
        values = {
            "tsc": [5 + ahead[0] + span, 5 + ahead[1] + span],
            "ref": [int(0.6 * span), int(0.3 * span)],
            "cycles": [int(0.9 * span), int(0.6 * span)],
            "instructions": [span, span],
            "one_thread": [int(0.4 * span / 84), int(0.1 * span / 84)],
        }
        result.apply(synth.frame(greeting, i, values, stamps=[i * RAW_NS + 7, i * RAW_NS + 9]))
    return result


def test_metrics_and_states_are_computed_with_a_tsc_counter() -> None:
    result = session(tsc=True, ahead=(0, 10**12))
    interval = result.take_interval()
    assert interval.suspect_counters == {}
    assert list(interval.values["util"]) == pytest.approx([0.6, 0.3])
    assert list(interval.values["halt"]) == pytest.approx([0.4, 0.7])
    assert list(interval.values["busy_hz"]) == pytest.approx([1.5 * synth.TSC_HZ, 2 * synth.TSC_HZ])
    assert list(interval.values["net_hz"]) == pytest.approx(
        [0.9 * synth.TSC_HZ, 0.6 * synth.TSC_HZ]
    )
    assert interval.split.shares(0) == pytest.approx(
        {"neither": 0.3, "lp0": 0.4, "lp1": 0.1, "both": 0.2}, abs=1e-6
    )
    (row, _) = stat_lines.interval_line(result, interval)["cpus"]
    assert row["counts"]["tsc"] == TICKS
    marked = with_suspect_counter(interval, 1, "tsc")
    assert suspect_rows("util", result, marked).tolist() == [False, True]


def test_a_tsc_without_a_frequency_is_not_used() -> None:
    greeting = synth.hello(COUNTERS, stamp="raw", tsc_hz=None)
    assert not Session(greeting).counters.has_tsc
    assert Session(dataclasses.replace(greeting, tsc_hz=wire.Rate(2e9, "made"))).counters.has_tsc


def test_a_reference_faster_than_the_tsc_is_suspect() -> None:
    greeting = synth.hello(COUNTERS, stamp="raw")
    result = Session(greeting)
    for i in (0, 1):
        values = {"tsc": [i * TICKS] * 2, "ref": [i * 2 * TICKS, 0], "cycles": [i * TICKS, 0],
                  "instructions": [i * TICKS, 0], "one_thread": [0, 0]}  # fmt: skip
        result.apply(synth.frame(greeting, i, values, stamps=[i * RAW_NS] * 2))
    assert result.take_interval().suspect_counters[0] == {("ref", Doubt.FAST)}


@pytest.mark.parametrize(("key", "low", "high"), [
    ("distributed", [0.1, 0.25], [0.2, 0.5]), ("one_thread", [0.0, 0.3], [0.2, 0.5]),
    ("any_thread", [0.5], [0.7]),
])  # fmt: skip
def test_the_share_of_an_event_is_bounded_by_the_unhalted_shares(
    key: str, low: list[float], high: list[float]
) -> None:
    """Two siblings run for 20 and 50 % of the time, together or not."""
    bounds = _event_bounds(key, np.array([[[0.2], [0.5]]]))
    assert [bound[0, :, 0].tolist() for bound in bounds] == [
        pytest.approx(low), pytest.approx(high),
    ]  # fmt: skip


@pytest.mark.parametrize("samples_per_step", [1, 20])
@pytest.mark.parametrize(("key", "counts", "doubt"), [
    ("one_thread", (0.511, 0.2), Doubt.OUTSIDE), ("one_thread", (0.509, 0.2), None),
    ("one_thread", (0.289, 0.0), Doubt.OUTSIDE), ("one_thread", (0.291, 0.0), None),
    ("one_thread", (0.4, 0.121), Doubt.APART), ("one_thread", (0.4, 0.119), None),
    ("any_thread", (0.711, 0.7), Doubt.OUTSIDE), ("any_thread", (0.709, 0.7), None),
    ("any_thread", (0.489, 0.5), Doubt.OUTSIDE), ("any_thread", (0.491, 0.5), None),
    ("any_thread", (0.6, 0.621), Doubt.APART), ("any_thread", (0.6, 0.619), None),
    ("distributed", (0.511, 0.15), Doubt.OUTSIDE), ("distributed", (0.509, 0.15), None),
    ("distributed", (0.239, 0.25), Doubt.OUTSIDE), ("distributed", (0.3, 0.179), Doubt.APART),
    ("distributed", (0.3, 0.181), None), ("any_thread", (0.0, 0.0), Doubt.STILL),
    ("distributed", (0.0, 0.2), Doubt.STILL), ("one_thread", (0.0, 0.0), Doubt.STILL),
])  # fmt: skip
def test_counts_of_siblings_may_differ_up_to_their_tolerance(
    key: str, counts: tuple[float, float], doubt: Doubt | None, samples_per_step: int
) -> None:
    """Two siblings run for 50 and 20 % of the time."""
    assert sibling_doubts(key, (0.5, 0.2), counts, samples_per_step) == doubt


@pytest.mark.parametrize(("key", "runs", "doubt"), [
    ("any_thread", (5.5e-5, 0.0), Doubt.STILL), ("any_thread", (4.5e-5, 0.0), None),
    ("distributed", (5.5e-5, 0.0), Doubt.STILL), ("distributed", (4.5e-5, 0.0), None),
    ("one_thread", (0.5, 0.498), Doubt.STILL), ("one_thread", (0.5, 0.4995), None),
])  # fmt: skip
def test_an_event_stands_still_if_a_thread_ran_for_some_time(
    key: str, runs: tuple[float, float], doubt: Doubt | None
) -> None:
    assert sibling_doubts(key, runs, (0.0, 0.0)) == doubt


def sibling_doubts(
    key: str, runs: tuple[float, float], counts: tuple[float, float], samples_per_step: int = 1
) -> Doubt | None:
    """Returns the doubt about the event of CPU 0 after one sample with these shares of the time."""
    hello = synth.hello([synth.REF, counter(key)])
    reader = SampleReader(hello)
    for seq in (0, samples_per_step):
        values = {"ref": [round(seq * TICKS * share) for share in runs]}
        values[key] = [round(seq * TICKS * share) for share in counts]
        result = samples(reader, [synth.frame(hello, seq, values)])
    doubts = {
        doubt for of_key, doubt in result[0].delta.suspect_counters.get(0, ()) if of_key == key
    }
    return next(iter(doubts), None)


def test_the_factor_of_an_event_of_four_threads_is_learned() -> None:
    """any_thread counts once in 13 TSC ticks; the first candidate is wrong."""
    counters = [TSC, synth.REF, synth.counter("any_thread", "1", bits=40)]
    candidates = [wire.Multiplier("any_thread", k, "made") for k in (1.0, 13.0)]
    greeting = synth.hello(counters, threads=4, stamp="raw", multipliers=candidates)
    result = Session(greeting)
    for i in range(6):
        if i == 5:
            result.take_interval()
        values = {"tsc": [i * TICKS] * 4, "ref": [int(0.4 * i * TICKS)] * 4,
                  "any_thread": [int(0.9 * i * TICKS / 13)] * 4}  # fmt: skip
        result.apply(synth.frame(greeting, i, values, stamps=[i * RAW_NS] * 4))
    split = result.take_interval().split
    assert split.method == ["any-thread"]
    assert split.states[0, 0] == pytest.approx(0.1, abs=1e-6)


def multiplexed_session(share: float) -> Session:
    """Two siblings run together. Reference cycles, cycles and one_thread are counted for a part of
    the second sample only, in which the siblings are busier than on average."""
    perf = [
        wire.Counter(key, key, "cycles", "perf")
        for key in ("ref", "cycles", "instructions", "kernel_cycles", "one_thread")
    ]
    times = [
        wire.Counter(key, key, "s", "perf", scale=1e-9)
        for key in ("perf_enabled_s", "perf_running_s")
    ]
    result = Session(synth.hello([*times, *perf, counter("aperf"), counter("mperf")]))
    sums = dict.fromkeys([c.key for c in result.hello.blocks[0].counters], 0)
    for seq in range(3):
        values = {key: [value] * 2 for key, value in sums.items()}
        result.apply(synth.frame(result.hello, seq, values))
        busier = 1.3 if seq == 1 else 1.0
        counted = share if seq == 1 else 1.0
        for key, of in (("ref", 0.5), ("cycles", 0.75), ("instructions", 1), ("one_thread", 0.2)):
            sums[key] += int(busier * counted * of * TICKS)
        sums["kernel_cycles"] += 0 if seq == 1 else TICKS // 8
        for key, of in (("mperf", 0.5), ("aperf", 0.75)):
            sums[key] += int(of * TICKS)
        sums["perf_enabled_s"] += synth.SAMPLE_NS
        sums["perf_running_s"] += int(counted * synth.SAMPLE_NS)
    return result


def test_scaled_counts_are_not_compared_with_exact_ones() -> None:
    whole = {
        why
        for doubts in multiplexed_session(1.0).take_interval().suspect_counters.values()
        for why in doubts
    }
    assert {
        ("ref", Doubt.UNLIKE),
        ("cycles", Doubt.UNLIKE),
        ("kernel_cycles", Doubt.STILL),
    } <= whole
    interval = multiplexed_session(0.1).take_interval()
    assert interval.suspect_counters == {}
    assert interval.values["util"] == pytest.approx([0.575] * 2, rel=1e-4)
    assert np.isfinite(interval.split.states).all()
