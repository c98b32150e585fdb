"""Ceilings from tables and counts of active cores, compared by enumeration; caps."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import increments
import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from increments import BASE, ORIGIN, cpufreq, in_ghz, turbo_table

from perfprobe import wire
from perfprobe.wire import Block
from perftop.model.kinds import CLOCK_CAPS
from perftop.model.sample_reader import SampleReader
from perftop.model.turbo import MAX_STEPS, Ceilings, Turbo, hull_corners, valid_tables

# The table of a Xeon Platinum 8160: groups of cores, 24 in all.
XEON = [(2, 37), (4, 35), (8, 34), (12, 34), (16, 31), (20, 29), (24, 28)]
SLEEP = synth.counter("core_c6")


def turbo(
    result: Sequence[wire.Turbo], cores: int = 24, threads: int = 1, *, sleep: bool = True,
    **changes: Any,
) -> Turbo:  # fmt: skip
    hello = synth.hello(
        [synth.REF, synth.CYCLES], cores=cores, threads=threads,
        core=[SLEEP] if sleep else [], turbo=list(result), **{"base_hz": BASE, **changes},
    )  # fmt: skip
    reader = SampleReader(hello)
    assert reader.turbo.origin == next((t.origin for t in result if t.origin == ORIGIN), None)
    return reader.turbo


def ceilings(
    turbo: Turbo, util: Sequence[float], awake: Sequence[float] | None = None, **movements: Any
) -> Ceilings:
    """`awake`: the share of the time, by core, outside deep sleep."""
    if awake is not None:
        movements["core_c6"] = (1 - np.asarray(awake)) * synth.TSC_HZ
    delta = increments.delta(turbo._counters, movements)
    return turbo.ceilings(delta, np.asarray(util, float), np.ones(len(util), bool))


@pytest.mark.parametrize(("active", "expected_hz"), [
    (1, 3.7), (2, 3.7), (3, 3.5), (8, 3.4), (12, 3.4), (13, 3.1), (20, 2.9), (24, 2.8),
])  # fmt: skip
def test_the_table_gives_the_ceiling_of_always_active_cores(
    active: int, expected_hz: float
) -> None:
    on = [1.0] * active + [0.0] * (24 - active)
    for result in (
        ceilings(turbo([turbo_table(XEON)]), on, on),
        ceilings(turbo([turbo_table(XEON)], sleep=False), on),
    ):
        assert set(in_ghz(result.low_hz)) == set(in_ghz(result.high_hz)) == {expected_hz}
        assert np.array_equal(result.hz, result.low_hz)


TWO_STEPS = turbo_table([(1, 40), (2, 30)])
FOUR_RUN = [1.0] * 4 + [0.0] * 20
BIG, SMALL = (turbo_table([(1, 50), (2, 45)], cpus=[0, 1]),
              turbo_table([(1, 38), (2, 35)], cpus=[2, 3]))  # fmt: skip
FAVOURED = [turbo_table([(1, 37), (2, 35)]), cpufreq(40, cpus=[0]), cpufreq(37, cpus=[1])]
SLOWER = [turbo_table([(1, 53), (4, 50)]), cpufreq(53, cpus=[0, 1]), cpufreq(51, cpus=[2]),
          cpufreq(25, cpus=[3])]  # fmt: skip
"""The two cores without a maximum of 5.3 GHz cannot reach the one of their table."""
CEILINGS: dict[str, tuple[Any, ...]] = {
    "only deep sleep makes a core inactive": ([turbo_table(XEON)], {}, FOUR_RUN, [1] * 24, [2.8]),
    "cores in deep sleep": ([turbo_table(XEON)], {}, FOUR_RUN, FOUR_RUN, [3.5]),
    # one thread runs only while all cores are active; while its sibling runs, that is unknown
    "siblings are weighted by their running time": (
        [turbo_table([(1, 40), (4, 30)])], {"cores": 4, "threads": 2},
        [1.0] * 4 + [0.01, 0, 0, 0], [1] * 4, [3.0] * 4, [3.0] * 4),
    "a core without data may be active": (
        [TWO_STEPS], {"cores": 2}, [1, float("nan")], [1, float("nan")], [3.0], [4.0]),
    "a core without data and sleep": (
        [TWO_STEPS], {"cores": 2, "sleep": False}, [1, float("nan")], None, [3.0], [4.0]),
    "a core that did not run was asleep": (
        [turbo_table([(1, 40), (2, 35), (3, 30)])], {"cores": 3, "sleep": False},
        [1, float("nan"), 0], None, [3.5], [4.0]),
    "a core is awake from MIN_ACTIVE_SHARE on": (
        [TWO_STEPS], {"cores": 2}, [1, 0], [1, 0.0011], [3.999]),
    "shorter wake-ups do not count": ([TWO_STEPS], {"cores": 2}, [1, 0], [1, 0.0009], [4.0]),
    "active cores are counted by package": (
        [TWO_STEPS], {"cores": 4, "packages": [[0, 1], [2, 3]]}, [1, 1, 1, 0], [1, 1, 1, 0],
        [3.0, 3.0, 4.0, 4.0]),
    "core types have their own tables": (
        [BIG, SMALL], {"cores": 4}, [1, 0, 1, 1], [1, 0, 1, 1], [5.0, 5.0, 3.5, 3.5]),
    "favoured cores may exceed their table": (
        FAVOURED, {"cores": 2}, [1, 1], [1, 1], [3.5, 3.5], [4.0, 3.5]),
    "other cores have their own maximum": (
        SLOWER, {"cores": 4}, [1, 0, 0, 0], [1, 0, 0, 0], [5.3, 5.3, 5.1, 2.5]),
    "all cores beside favoured ones": (
        SLOWER, {"cores": 4}, [1] * 4, [1] * 4, [5.0, 5.0, 5.0, 2.5], [5.0, 5.0, 5.0, 2.5]),
}  # fmt: skip
"""Tables, arguments of `turbo`, use, shares outside deep sleep, and the lower and upper bounds of
the first cores in GHz."""


@pytest.mark.parametrize("case", CEILINGS.values(), ids=CEILINGS)
def test_ceilings_follow_from_tables_and_active_cores(case: tuple[Any, ...]) -> None:
    tables, arguments, util, awake, low, *high = case
    result = ceilings(turbo(tables, **arguments), util, awake)
    assert in_ghz(result.low_hz)[: len(low)] == low
    for bound in high:
        assert in_ghz(result.high_hz)[: len(bound)] == bound


@pytest.mark.parametrize(("kind", "model", "awake"), [
    ("P", 0x97, 0.2), ("E", 0x97, 0.5), ("L", 0xAA, 0.5), (None, 0xBE, 0.5), (None, 0x5E, 0.2),
])  # fmt: skip
def test_c6_of_small_cores_includes_their_c7(kind: str | None, model: int, awake: float) -> None:
    plain = synth.hello(
        [synth.REF, synth.CYCLES], cores=2, threads=1, core=[SLEEP, synth.counter("core_c7")],
        turbo=[turbo_table([(1, 40), (2, 30)])], base_hz=BASE,
    )  # fmt: skip
    rows = [dataclasses.replace(row, type=kind) for row in plain.topology]
    identity = wire.Identity("GenuineIntel", 6, model)
    result = SampleReader(dataclasses.replace(plain, topology=rows, identity=identity)).turbo
    slept = {"core_c6": [0.0, 0.5 * synth.TSC_HZ], "core_c7": [0.0, 0.3 * synth.TSC_HZ]}
    low = ceilings(result, [1.0, awake], **slept).low_hz
    assert low[0] == pytest.approx(4e9 - awake * 1e9)


def test_wake_ups_of_idle_cores_lower_the_ceiling_by_their_duration() -> None:
    """If all idle cores are awake together for 0.3 % of the time, the ceiling is 2.8 GHz then, and
    3.4 GHz otherwise."""
    awake = [1.0] * 8 + [0.003] * 16
    result = ceilings(turbo([turbo_table(XEON)]), awake, awake)
    assert 3.4e9 - 0.003 * 16 * 0.1e9 < result.low_hz[0] <= 3.4e9 * 0.997 + 2.8e9 * 0.003
    assert result.high_hz[0] == pytest.approx(3.4e9)


def schedules(cores: int, slots: int) -> st.SearchStrategy[np.ndarray]:
    rows = st.lists(st.booleans(), min_size=slots, max_size=slots)
    return st.lists(rows, min_size=cores, max_size=cores).map(np.array)


@given(
    schedules(5, 8), st.lists(st.integers(8, 40), min_size=1, max_size=5, unique=True), st.data()
)
def test_the_range_contains_the_ceiling_of_any_schedule(
    active: np.ndarray, ratios: list[int], data: st.DataObject
) -> None:
    """For each of eight time slots, the reference counts how many of five cores were active, and
    which ran."""
    steps = list(zip(itertools.count(1), sorted(ratios, reverse=True), strict=False))
    ran = active & np.array(data.draw(schedules(5, 8)))
    allowed = np.array([0.0, *(steps[min(n, len(steps)) - 1][1] * 1e8 for n in range(1, 6))])
    by_slot = allowed[active.sum(axis=0)]
    result = ceilings(turbo([turbo_table(steps)], cores=5), ran.mean(axis=1), active.mean(axis=1))
    for core in np.flatnonzero(ran.any(axis=1)):
        mean = by_slot[ran[core]].mean()
        assert result.low_hz[core] <= mean * (1 + 1e-9)
        assert result.high_hz[core] >= mean * (1 - 1e-9)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=6), st.data())
def test_hulls_enclose_all_steps(grows: list[tuple[int, int]], data: st.DataObject) -> None:
    widths, falls = zip(*grows, strict=True)
    cores, ratios = (
        itertools.accumulate(widths),
        (80 - fall for fall in itertools.accumulate(falls)),
    )
    ((steps,), _) = valid_tables([turbo_table(list(zip(cores, ratios, strict=True)))], [0])
    least = data.draw(st.integers(1, 20))
    most = data.draw(st.integers(least, 40))
    counts = range(least, most + 1)
    exact = [steps.hz_at(n) for n in counts]
    below, above = hull_corners(steps, least, most)
    assert (np.interp(counts, *below) <= np.array(exact) + 1).all()
    assert (np.interp(counts, *above) >= np.array(exact) - 1).all()
    for sign, corners in ((1, below), (-1, above)):
        assert [corners[1][0], corners[1][-1]] == [exact[0], exact[-1]]
        assert corners[1] == [steps.hz_at(int(n)) for n in corners[0]], "they touch it"
        bends = np.diff(sign * np.interp(counts, *corners), 2)
        assert (bends >= -1).all(), "one is convex, the other concave"


def test_offline_cores_are_not_active() -> None:
    model = turbo([turbo_table([(1, 40), (2, 30)])], cores=2)
    delta = increments.delta(model._counters, {"core_c6": [0.0, float("nan")]})
    result = model.ceilings(delta, np.array([1.0, np.nan]), np.array([True, False]))
    assert in_ghz(result.low_hz[:1]) == [4.0]


def test_a_cpu_uses_the_first_table_that_includes_it() -> None:
    (first, second), _ = valid_tables(
        [turbo_table([(1, 40)], cpus=[0, 1]), turbo_table([(1, 20)], cpus=[1]),
         turbo_table([(1, 30)])], range(4)
    )  # fmt: skip
    assert (first.cpus.tolist(), second.cpus.tolist()) == ([1, 1, 0, 0], [0, 0, 1, 1])


def test_without_a_table_or_a_bound_there_is_no_ceiling() -> None:
    assert turbo([turbo_table([(1, 37)])]).has_ceilings
    assert turbo([cpufreq(38)]).has_ceilings
    none = turbo([], cores=2)
    assert not none.has_ceilings
    result = ceilings(none, [1, 1], [1, 1])
    assert np.isnan([result.low_hz, result.high_hz, result.hz]).all()


def test_cpufreq_gives_an_upper_bound_only() -> None:
    model = turbo([cpufreq(38)], cores=2)
    result = ceilings(model, [1, 1], [1, 1])
    assert (in_ghz(result.low_hz), in_ghz(result.high_hz)) == ([2.1, 2.1], [3.8, 3.8])
    assert np.isnan(result.hz).all()
    assert not model.cpus.any()
    unknown = ceilings(turbo([cpufreq(38)], cores=2, base_hz=None), [1, 1], [1, 1])
    assert np.isnan(unknown.low_hz).all()
    assert in_ghz(unknown.high_hz) == [3.8, 3.8]


def test_no_ceiling_exceeds_the_limit_of_all_cores() -> None:
    """Firmware limits a CPU whose table goes up to 3.9 GHz. The exact ceiling of a package is also
    that of its best core."""
    model = turbo([turbo_table([(1, 39), (2, 35)]), cpufreq(36)], cores=2)
    result = ceilings(model, [1, 0], [1, 0])
    assert in_ghz(result.low_hz) == in_ghz(result.high_hz) == in_ghz(result.hz) == [3.6, 3.6]
    assert in_ghz(ceilings(model, [1, 1], [1, 1]).low_hz) == [3.5, 3.5]
    exact = wire.Counter("ceiling_hz", "ceiling", "Hz", "made", kind="gauge")
    greeting = synth.hello(cores=2, threads=1, turbo=[cpufreq(40, cpus=[0]), cpufreq(33, cpus=[1])])
    greeting.blocks.append(Block("package", "package", [exact]))
    assert in_ghz(ceilings(SampleReader(greeting).turbo, [1, 1], ceiling_hz=3.8e9).hz) == [3.8, 3.3]


def test_the_base_clock_of_one_core_type_is_not_used_for_all() -> None:
    greeting = synth.hello(cores=2, threads=1, turbo=[cpufreq(38)], base_hz=BASE)
    rows = [
        dataclasses.replace(r, type=kind) for r, kind in zip(greeting.topology, "PE", strict=True)
    ]
    reader = SampleReader(dataclasses.replace(greeting, topology=rows))
    assert np.isnan(ceilings(reader.turbo, [1, 1]).low_hz).all()


@pytest.mark.parametrize("nonsense", [
    [], [(1, 30), (2, 31)], [(2, 31), (1, 30)], [(0, 30)], [(1, float("nan"))], [(1, 0)], [(1, -5)],
    [(1, 30), (1, 29)], [(1, 1e9)], [(65_537, 30)], [(1, 100.1)],
    [(n, 30) for n in range(1, MAX_STEPS + 2)],
])  # fmt: skip
def test_an_invalid_table_is_ignored(nonsense: list[tuple[int, float]]) -> None:
    steps, bounds = valid_tables([turbo_table(nonsense)], [0, 1])
    assert steps == []
    assert np.isnan(bounds).all()
    steps, _ = valid_tables([turbo_table(nonsense), turbo_table([(1, 30)])], [0, 1])
    assert len(steps) == 1


def test_a_table_may_have_any_length() -> None:
    (steps,), _ = valid_tables([turbo_table([(65_536, 100)])], [0])
    assert steps.hz_at(70_000) == 10e9
    (steps,), _ = valid_tables([turbo_table([(n, 30) for n in range(1, MAX_STEPS + 1)])], [0])
    assert len(steps.hz) == MAX_STEPS
    tables, _ = valid_tables([turbo_table([(1, 30)], cpus=[n]) for n in range(257)], range(257))
    assert len(tables) == 256


def test_exact_ceilings_replace_tables() -> None:
    exact = wire.Counter("ceiling_hz", "ceiling", "Hz", "made", kind="gauge")
    greeting = synth.hello(cores=2, threads=1, turbo=[turbo_table(XEON)])
    greeting.blocks.append(Block("package", "package", [exact]))
    result = ceilings(SampleReader(greeting).turbo, [1, 1], ceiling_hz=3.3e9)
    assert in_ghz(result.low_hz) == in_ghz(result.high_hz) == in_ghz(result.hz) == [3.3, 3.3]


# --- caps


def caps_of_interval(*more: wire.Turbo, **movements: Any) -> list[tuple[float, str]]:
    keys = "max_hz", "turbo_disabled", "tdp_base_hz", "turbo_off", "max_perf_pct"
    gauges = {key: synth.gauge(key) for key in keys if key in movements}
    hello = synth.hello(
        [synth.REF, *(gauges[k] for k in keys[:1] if k in gauges)], cores=2, threads=2,
        turbo=[turbo_table([(1, 40), (2, 30)]), *more], base_hz=BASE,
    )  # fmt: skip
    for name, places in (("package", keys[1:3]), ("machine", keys[3:])):
        found_gauges = [gauges[key] for key in places if key in gauges]
        if found_gauges:
            hello.blocks.append(Block(name, name, found_gauges))  # type: ignore[arg-type]
    model = SampleReader(hello).turbo
    delta, samples = increments.delta(model._counters, movements), model._counters.empty_delta(2)
    samples._sums[1] = delta._sums  # the first sample is unknown
    result, series = model.clock_caps(delta), model.clock_caps(samples)
    assert series[1].hz.tolist() == result.hz.tolist()
    assert series[1].cap_index.tolist() == result.cap_index.tolist()
    assert series[0].hz.tolist() == [float("inf")] * 2
    names = [
        [*CLOCK_CAPS][by] if hz < np.inf else ""
        for hz, by in zip(result.hz, result.cap_index, strict=True)
    ]
    return list(zip(in_ghz(result.hz), names, strict=True))


def test_caps_name_the_setting_behind_them() -> None:
    none = [(float("inf"), "")] * 2
    assert (
        caps_of_interval()
        == caps_of_interval(turbo_off=0, turbo_disabled=0, max_perf_pct=100)
        == none
    )
    assert caps_of_interval(max_hz=float("nan"), turbo_off=float("nan")) == none
    assert caps_of_interval(max_hz=0.0) == none
    assert caps_of_interval(max_hz=[2e9, 3e9, 1e9, 1e9]) == [
        (2.0, "scaling_max_freq"), (3.0, "scaling_max_freq"),
    ]  # fmt: skip
    assert (
        caps_of_interval(turbo_off=1)
        == caps_of_interval(turbo_disabled=1)
        == [(2.1, "turbo off")] * 2
    )
    assert caps_of_interval(turbo_disabled=0, tdp_base_hz=1.6e9) == none, (
        "turbo goes beyond any base clock"
    )
    assert (
        caps_of_interval(turbo_disabled=1, tdp_base_hz=1.6e9)
        == [(1.6, "turbo off, config-TDP")] * 2
    )
    assert caps_of_interval(max_perf_pct=50) == [(2.0, "max_perf_pct")] * 2
    favoured, slow = cpufreq(46, cpus=[0, 2]), cpufreq(30, cpus=[1, 3])
    percent = "max_perf_pct"
    assert caps_of_interval(favoured, slow, max_perf_pct=50) == [(2.3, percent), (2.0, percent)]
    assert caps_of_interval(max_perf_pct=60, max_hz=2.2e9, turbo_off=1) == [(2.1, "turbo off")] * 2


@pytest.mark.parametrize(("gauge", "on", "off", "cap"), [
    ("turbo_off", 0.5, 0.49, (2.1, "turbo off")), ("turbo_disabled", 0.5, 0.49, (2.1, "turbo off")),
    ("max_perf_pct", 99.0, 100.0, (3.96, "max_perf_pct")),
])  # fmt: skip
def test_a_switch_counts_if_it_was_on_for_half_of_the_time(
    gauge: str, on: float, off: float, cap: tuple[float, str]
) -> None:
    assert caps_of_interval(**{gauge: on}) == [cap] * 2
    assert caps_of_interval(**{gauge: off}) == [(float("inf"), "")] * 2


@pytest.mark.parametrize("scope", ["cpu", "core", "package", "machine"])
def test_counters_of_an_invalid_scope_are_ignored(scope: wire.Scope) -> None:
    keys = "ceiling_hz", "max_hz", "turbo_disabled", "turbo_off", "max_perf_pct", "base_hz"
    hello = synth.hello(
        cores=2, threads=2, packages=[[0, 2], [1, 3]], turbo=[turbo_table([(1, 40)])], base_hz=BASE
    )
    block = Block("odd", scope, [*map(synth.gauge, keys), synth.counter("core_c6")])
    reader = SampleReader(dataclasses.replace(hello, blocks=[*hello.blocks, block]))
    known = reader.counters.columns.keys() & {*keys, "core_c6"}
    delta = increments.delta(reader.counters, dict.fromkeys(known, 1.0))
    reader.turbo.ceilings(delta, np.ones(4), np.ones(4, bool))
    caps = reader.turbo.clock_caps(delta)
    named = {
        [*CLOCK_CAPS][by] for hz, by in zip(caps.hz, caps.cap_index, strict=True) if hz < np.inf
    }
    assert named == {
        "cpu": {"scaling_max_freq"}, "core": set(), "package": {"turbo off"},
        "machine": {"max_perf_pct"},
    }[scope]  # fmt: skip
