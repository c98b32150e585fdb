"""Throttling that does not lower the clock, from simulated counters."""

from __future__ import annotations

from typing import Any

import pytest
import synth
from rate_streams import IDLE, NS, STEAL, RateStream, S

from perftop.detect.engine import PAUSE_NS
from perftop.detect.stops import END, START

KIND = "throttle"
TSC = synth.TSC_HZ
HZ = 3.0e9
PAUSE = PAUSE_NS // S
REASONS = synth.flags("limit_reasons", "PROCHOT", "thermal", "PL1")
PACKAGE = synth.flags("package_thermal", "thermal", "PROCHOT", "power limit")
CRITICAL = synth.flags("package_thermal", "thermal", "critical temperature")
CORE = synth.flags("core_thermal", "thermal", "PROCHOT", "power limit")
MODULATION = synth.counter("modulation", "1", kind="gauge")
CPU = [synth.REF, synth.CYCLES, IDLE, STEAL]


def busy_stream(*cpu: Any, **more: Any) -> RateStream:
    """Two cores of two threads that are always busy, at their ceiling of 3 GHz."""
    package = [synth.CEILING, *more.pop("package", ())]
    walk = RateStream(KIND, [*CPU, *cpu], package=package, **more)
    return walk.go(4, ref=TSC, cycles=HZ, ceiling_hz=HZ)


def rates_while_halted(share: float) -> dict[str, Any]:
    return {"ref": (1 - share) * TSC, "cycles": (1 - share) * HZ}


def test_the_status_gives_the_length_and_the_cost_gives_the_depth() -> None:
    walk = busy_stream(package=[REASONS]).go(
        5, limit_reasons=[0, 0.9, 0], **rates_while_halted(0.25)
    )
    walk.go(PAUSE, limit_reasons=[0, 0, 0], **rates_while_halted(0))
    assert walk.spans() == [(4, 9)]
    (episode,) = walk.ended
    assert episode.cpus == [0, 1, 2, 3]
    assert (episode.cause, episode.confidence) == ("thermal", "measured")
    assert episode.depth == pytest.approx(0.25, rel=1e-3)
    assert episode.evidence["thermal_status_share"] == 0.9


def test_the_threshold_to_continue_is_lower_than_the_one_to_begin() -> None:
    assert busy_stream(package=[REASONS]).go(5, limit_reasons=[0, 0.9 * START, 0]).spans() == []
    walk = busy_stream(package=[REASONS]).go(3, limit_reasons=[0, 1.5 * START, 0])
    assert walk.go(3, limit_reasons=[0, 1.2 * END, 0]).spans() == [(4, None)]
    assert walk.go(PAUSE, limit_reasons=[0, 0.5 * END, 0]).spans() == [(4, 10)]


def test_the_status_is_unknown_without_polls() -> None:
    walk = busy_stream(package=[REASONS]).go(4, limit_reasons=[0, 1, 0])
    walk.go(4, limit_reasons_polls=0)
    assert walk.spans() == [(4, None)]
    walk.go(PAUSE, limit_reasons=[0, 0, 0], limit_reasons_polls=100)
    assert walk.spans() == [(4, 12)]


def test_a_single_sample_is_not_an_episode() -> None:
    walk = busy_stream(package=[REASONS]).go(1, limit_reasons=[0, 1, 0])
    assert walk.go(3, limit_reasons=[0, 0, 0]).spans() == []


@pytest.mark.parametrize(("counter", "rates", "cause", "cpus"), [
    (REASONS, [1, 0.5, 0], "prochot", [0, 1, 2, 3]),
    (PACKAGE, [1, 0, 0], "thermal", [0, 1, 2, 3]),
    (CRITICAL, [0, 1], "thermal", [0, 1, 2, 3]),
    (CORE, [[0, 0, 0], [0.3, 0, 0]], "thermal", [1, 3]),
    (CORE, [[0, 0.3, 0], [0, 0, 0]], "prochot", [0, 2]),
    (REASONS, [0, 0, 1], None, []),  # another detector reports power limits
    (PACKAGE, [0, 0, 1], None, []),
])  # fmt: skip
def test_status_bits_name_the_cause_and_the_cpus(
    counter: Any, rates: list[Any], cause: str | None, cpus: list[int]
) -> None:
    results: dict[str, Any] = {counter.key: rates}
    scope = "core" if counter is CORE else "package"
    walk = busy_stream(**{scope: [counter]}).go(4, **results)
    assert [(e.cause, e.cpus) for e in walk.running] == ([(cause, cpus)] if cause else [])


@pytest.mark.parametrize(("register", "depth"), [
    (0b11110, 0.125), (0b11100, 0.25), (0b10010, 0.875), (0b01110, None), (0b10000, None),
    (0b11111, 0.0625), (0b10001, 0.9375),  # the duty cycle is in sixteenths if CPUID reports that
])  # fmt: skip
def test_the_register_gives_the_depth_of_modulation_without_other_data(
    register: int, depth: float | None
) -> None:
    walk = RateStream(KIND, [synth.CYCLES, MODULATION]).go(
        6, cycles=HZ, modulation=[0, register, 0, 0]
    )
    results = [(e.cause, e.cpus, e.depth) for e in walk.running]
    assert results == ([] if depth is None else [("modulation", [1, 3], depth)])
    for episode in walk.running:
        duty = {"duty_by_register_19AH_share": 1 - (depth or 0)}
        assert episode.evidence == {"modulation_status_share": 1} | duty


def test_depth_is_unknown_without_a_measure_of_cost() -> None:
    walk = RateStream(KIND, [synth.CYCLES], package=[REASONS])
    walk.go(4, cycles=HZ, limit_reasons=[0, 1, 0])
    assert [e.depth for e in walk.running] == [None]


def test_a_hot_package_with_a_clock_drop_is_not_a_throttle() -> None:
    walk = busy_stream(package=[REASONS]).go(4, limit_reasons=[0, 1, 0], cycles=0.8 * HZ)
    assert walk.spans() == []
    assert [e.cause for e in walk.session.detector.running] == ["thermal"]


def test_a_power_limited_package_that_is_hot_at_times_is_not_a_throttle() -> None:
    walk = busy_stream(package=[REASONS]).go(4, limit_reasons=[0, 0.5, 1], cycles=0.8 * HZ)
    assert walk.spans() == []
    assert [e.cause for e in walk.session.detector.running] == ["power-pl1"]


def test_idle_cores_are_not_a_throttle() -> None:
    rates: dict[str, Any] = {"ref": [TSC, 0, TSC, 0], "cycles": [0.8 * HZ, 0, 0.8 * HZ, 0]}
    walk = RateStream(KIND, CPU, package=[synth.CEILING, REASONS])
    walk.go(4, ref=[TSC, 0] * 2, cycles=[HZ, 0] * 2, idle_s=[0, 1] * 2, ceiling_hz=HZ)
    walk.go(4, limit_reasons=[0, 1, 0], **rates)
    assert walk.spans() == []
    assert [e.cpus for e in walk.session.detector.running] == [[0, 2]]


def test_a_drop_that_follows_replaces_the_throttle() -> None:
    walk = busy_stream(package=[REASONS]).go(4, limit_reasons=[0, 1, 0])
    walk.go(4, cycles=0.8 * HZ).go(4, cycles=HZ)
    assert walk.spans() == [(4, 8), (12, None)]


def test_edges_of_a_drop_are_not_a_throttle() -> None:
    """An edge lasts a fifth of a sample: too short for a drop, but long enough for polls to see the
    thermal flag."""
    walk = busy_stream(package=[REASONS]).go(1, limit_reasons=[0, 0.2, 0], cycles=0.96 * HZ)
    walk.go(3, limit_reasons=[0, 1, 0], cycles=0.8 * HZ)
    walk.go(1, limit_reasons=[0, 0.2, 0], cycles=0.98 * HZ)
    walk.go(3, limit_reasons=[0, 0, 0], cycles=HZ)
    assert walk.spans() == []
    assert [e.kind for e in walk.session.ended] == ["turbo-drop"]


def test_simultaneous_causes_are_separate_episodes() -> None:
    level = synth.counter("license_1")
    walk = busy_stream(level, package=[REASONS]).go(
        4, limit_reasons=[0, 1, 0], **rates_while_halted(0.05)
    )
    walk.go(4, license_1=[0.5 * HZ, 0, 0, 0]).go(4, limit_reasons=[0, 0, 0])
    everything = [*walk.session.ended, *walk.session.detector.running]
    results = {(e.kind, e.cause): (e.start_ns // S, (e.end_ns or 0) // S) for e in everything}
    assert results == {
        ("throttle", "thermal"): (4, 12),
        # the cause that was active for most of the time
        ("involuntary-halt", "modulation"): (4, 0),
        ("license", "level"): (8, 0),
    }


BOOKED = [synth.counter(f"{scope}_throttled_s", "s", scale=NS) for scope in ("package", "core")]


def test_throttle_time_counted_by_the_kernel_is_an_episode_of_that_length() -> None:
    walk = busy_stream(core=[BOOKED[1]]).go(20).go(1, core_throttled_s=[0, 12.0])
    assert walk.spans() == [(13, 25)]
    (episode,) = walk.go(3, core_throttled_s=0).ended
    assert (episode.cpus, episode.cause, episode.depth) == ([1, 3], "thermal", None)
    assert episode.evidence["throttled_s"] == 1.2


def test_a_package_and_its_cores_are_one_episode() -> None:
    walk = busy_stream(package=[BOOKED[0]], core=[BOOKED[1]])
    walk.go(20).go(1, package_throttled_s=10.0, core_throttled_s=12.0)
    assert [e.cpus for e in walk.ended] == [[0, 1, 2, 3]]


def test_kernel_counts_add_no_throttle_during_a_drop_or_a_status() -> None:
    walk = busy_stream(core=[BOOKED[1]]).go(5, cycles=[0.8 * HZ, HZ] * 2).go(5, cycles=HZ)
    assert [e.cpus for e in walk.go(1, core_throttled_s=10.0).ended] == [[1, 3]]
    walk = busy_stream(core=[BOOKED[1]], package=[REASONS]).go(5, limit_reasons=[0, 1, 0])
    assert walk.go(1, core_throttled_s=5.0).spans() == [(4, None)]
