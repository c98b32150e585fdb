"""Throttling and SIMD levels, from simulated counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import synth
from rate_streams import IDLE, NS, STEAL, RateStream, S

from perftop.detect import turbo_drops

KIND = "throttle"
TSC = synth.TSC_HZ
HZ = 3.0e9
PAUSE = 400_000_000 // S
REASONS = synth.flags("limit_reasons", "PROCHOT", "thermal", "PL1")
PACKAGE = synth.flags("package_thermal", "thermal", "PROCHOT", "power limit")
CRITICAL = synth.flags("package_thermal", "thermal", "critical temperature")
CORE = synth.flags("core_thermal", "thermal", "PROCHOT", "power limit")
MODULATION = synth.counter("modulation", "1", kind="gauge")
CPU = [synth.REF, synth.CYCLES, IDLE, STEAL]


def busy_stream(*cpu: Any, **more: Any) -> RateStream:
    """Two cores of two threads that are always busy, at their ceiling of 3 GHz."""
    package = [synth.CEILING, *more.pop("package", ())]
    machine = RateStream(KIND, [*CPU, *cpu], package=package, **more)
    return machine.advance(4, ref=TSC, cycles=HZ, ceiling_hz=HZ)


def rates_while_halted(share: float) -> dict[str, Any]:
    return {"ref": (1 - share) * TSC, "cycles": (1 - share) * HZ}


def test_the_status_gives_the_length_and_the_cost_gives_the_depth() -> None:
    machine = busy_stream(package=[REASONS]).advance(
        5, limit_reasons=[0, 0.9, 0], **rates_while_halted(0.25)
    )
    machine.advance(PAUSE, limit_reasons=[0, 0, 0], **rates_while_halted(0))
    assert machine.spans() == [(4, 9)]
    (episode,) = machine.ended
    assert episode.cpus == [0, 1, 2, 3]
    assert (episode.cause, episode.confidence) == ("thermal", "measured")
    assert episode.depth == pytest.approx(0.25, rel=1e-3)
    assert episode.evidence == {"thermal_status_share": 0.9}


def test_the_threshold_to_continue_is_lower_than_the_one_to_begin() -> None:
    assert busy_stream(package=[REASONS]).advance(5, limit_reasons=[0, 0.09, 0]).spans() == []
    machine = busy_stream(package=[REASONS]).advance(3, limit_reasons=[0, 0.1, 0])
    assert machine.advance(3, limit_reasons=[0, 0.05, 0]).spans() == [(4, None)]
    assert machine.advance(PAUSE, limit_reasons=[0, 0.04, 0]).spans() == [(4, 10)]


def test_the_status_is_unknown_without_polls() -> None:
    machine = busy_stream(package=[REASONS]).advance(4, limit_reasons=[0, 1, 0])
    machine.advance(4, limit_reasons_polls=0)
    assert machine.spans() == [(4, None)]
    machine.advance(PAUSE, limit_reasons=[0, 0, 0], limit_reasons_polls=100)
    assert machine.spans() == [(4, 12)]


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
    machine = busy_stream(**{scope: [counter]}).advance(4, **results)
    assert [(e.cause, e.cpus) for e in machine.running] == ([(cause, cpus)] if cause else [])


@pytest.mark.parametrize(("register", "depth"), [
    (0b11110, 0.125), (0b11100, 0.25), (0b10010, 0.875), (0b01110, None), (0b10000, None),
    (0b11111, 0.0625), (0b10001, 0.9375),  # the duty cycle is in sixteenths if CPUID reports that
])  # fmt: skip
def test_the_register_gives_the_depth_of_modulation_without_other_data(
    register: int, depth: float | None
) -> None:
    machine = RateStream(KIND, [synth.CYCLES, MODULATION]).advance(
        6, cycles=HZ, modulation=[0, register, 0, 0]
    )
    results = [(e.cause, e.cpus, e.depth) for e in machine.running]
    assert results == ([] if depth is None else [("modulation", [1, 3], depth)])
    for episode in machine.running:
        duty = {"duty_by_register_19AH_share": 1 - (depth or 0)}
        assert episode.evidence == {"modulation_status_share": 1} | duty


def test_edges_of_a_drop_are_not_a_throttle() -> None:
    """An edge lasts a fifth of a sample: too short for a drop, but long enough for polls to see the
    thermal flag."""
    machine = busy_stream(package=[REASONS]).advance(1, limit_reasons=[0, 0.2, 0], cycles=0.96 * HZ)
    machine.advance(3, limit_reasons=[0, 1, 0], cycles=0.8 * HZ)
    machine.advance(1, limit_reasons=[0, 0.2, 0], cycles=0.98 * HZ)
    machine.advance(3, limit_reasons=[0, 0, 0], cycles=HZ)
    assert machine.spans() == []
    assert [e.kind for e in machine.session.ended] == ["turbo-drop"]


@pytest.mark.parametrize(("power", "cpus"), [(0, []), (1, [[1, 3]])])
def test_a_drop_by_heat_accounts_for_the_status_of_its_package(
    power: float, cpus: list[list[int]]
) -> None:
    """A drop by another limit only accounts for that of its own cores."""
    machine = busy_stream(package=[REASONS]).advance(
        4, limit_reasons=[0, 0.9, power], cycles=[0.8 * HZ, HZ, 0.8 * HZ, HZ]
    )
    drops = [e.cause for e in machine.session.detector.running if e.kind == "turbo-drop"]
    assert drops == ["power-pl1" if power else "thermal"]
    assert [episode.cpus for episode in machine.running] == cpus


def test_simultaneous_causes_are_separate_episodes() -> None:
    level = synth.counter("license_1")
    machine = busy_stream(level, package=[REASONS]).advance(
        4, limit_reasons=[0, 1, 0], **rates_while_halted(0.05)
    )
    machine.advance(4, license_1=[0.5 * HZ, 0, 0, 0]).advance(4, limit_reasons=[0, 0, 0])
    everything = [*machine.session.ended, *machine.session.detector.running]
    results = {(e.kind, e.cause): (e.start_ns // S, (e.end_ns or 0) // S) for e in everything}
    assert results == {
        ("throttle", "thermal"): (4, 12),
        # the cause that was active for most of the time
        ("involuntary-halt", "modulation"): (4, 0),
        ("license", "level"): (8, 0),
    }


KERNEL_COUNTERS = [
    synth.counter(f"{scope}_throttled_s", "s", scale=NS) for scope in ("package", "core")
]


def test_throttle_time_counted_by_the_kernel_is_an_episode_of_that_length() -> None:
    machine = (
        busy_stream(core=[KERNEL_COUNTERS[1]]).advance(20).advance(1, core_throttled_s=[0, 12.0])
    )
    assert machine.spans() == [(13, 25)]
    (episode,) = machine.advance(3, core_throttled_s=0).ended
    assert (episode.cpus, episode.cause, episode.depth) == ([1, 3], "thermal", None)
    assert episode.evidence == {"throttled_s": 1.2, "told_by": "kernel"}


def test_kernel_counts_add_no_throttle_during_a_drop_or_a_status() -> None:
    machine = (
        busy_stream(core=[KERNEL_COUNTERS[1]])
        .advance(5, cycles=[0.8 * HZ, HZ] * 2)
        .advance(5, cycles=HZ)
    )
    assert [e.cpus for e in machine.advance(1, core_throttled_s=10.0).ended] == [[1, 3]]
    machine = busy_stream(core=[KERNEL_COUNTERS[1]], package=[REASONS]).advance(
        5, limit_reasons=[0, 1, 0]
    )
    assert machine.advance(1, core_throttled_s=5.0).spans() == [(4, None)]


@pytest.mark.parametrize(("throttled_s", "cpus"), [(0.6, [[1, 3]]), (0.59, [[0, 2], [1, 3]])])
def test_kernel_counts_of_the_end_of_a_drop_belong_to_it(
    throttled_s: float, cpus: list[list[int]]
) -> None:
    """The throttling starts with the end of the drop, or just after it."""
    machine = busy_stream(core=[KERNEL_COUNTERS[1]]).advance(5, cycles=[0.8 * HZ, HZ] * 2)
    machine.advance(5, cycles=HZ).advance(1, core_throttled_s=10 * throttled_s)
    assert [episode.cpus for episode in machine.ended] == cpus


def test_the_depth_is_unknown_without_standstill_and_modulation() -> None:
    machine = RateStream(KIND, [synth.CYCLES], package=[REASONS]).advance(
        4, cycles=HZ, limit_reasons=[0, 1, 0]
    )
    assert [episode.depth for episode in machine.running] == [None]


# --- SIMD levels without a drop


LICENSE = "license"
LEVELS = [synth.counter("license_1"), synth.counter("license_2")]


def busy_cores(ceiling_hz: float | None = HZ) -> RateStream:
    """Two cores whose first threads are always busy, at their ceiling of 3 GHz."""
    package = [] if ceiling_hz is None else [synth.CEILING]
    machine = RateStream(LICENSE, [synth.REF, synth.CYCLES, *LEVELS], package=package)
    return machine.advance(4, ref=[TSC, TSC, 0, 0], cycles=[HZ, HZ, 0, 0], ceiling_hz=ceiling_hz)


def with_level_1(
    machine: RateStream, share: float = 1.0, samples: int = 4, **rates: Any
) -> RateStream:
    """Plays samples in which the first core spends this share of its cycles at level 1."""
    return machine.advance(samples, license_1=[share * HZ, 0, 0, 0], **rates)


def test_a_license_lasts_as_long_as_wide_code() -> None:
    machine = with_level_1(with_level_1(busy_cores()), 0)
    assert machine.spans() == [(4, 8)]
    (episode,) = machine.ended
    assert episode.cpus == [0, 2]
    assert (episode.cause, episode.confidence, episode.depth) == ("level", "measured", 0.0)
    assert episode.evidence["simd"] == (1, 1.0)


def test_a_level_from_scaled_counts_is_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turbo_drops, "scaled_cores", lambda *_: np.array([True, False]))
    assert with_level_1(busy_cores()).running[0].confidence == "inferred"


def test_all_threads_report_the_counts_of_their_core() -> None:
    """Even a halted thread reports the counts of its core. They are not added up (Intel's metrics
    halve the sum)."""
    machine = busy_cores().advance(4, license_1=[0.5 * HZ, 0, 0.5 * HZ, 0])
    assert machine.running[0].evidence["simd"] == pytest.approx((1, 0.5))
    assert busy_cores().advance(4, license_1=[0.07 * HZ, 0, 0.07 * HZ, 0]).spans() == []
    both = busy_cores().advance(4, cycles=HZ, ref=TSC, license_1=[0.5 * HZ, 0, 0.5 * HZ, 0])
    assert both.running[0].evidence["simd"] == pytest.approx((1, 0.5))


def test_the_threshold_to_continue_a_license_is_lower_than_the_one_to_begin() -> None:
    assert with_level_1(busy_cores(), 0.098).spans() == []
    machine = with_level_1(with_level_1(busy_cores(), 0.102), 0.052)
    assert machine.spans() == [(4, None)]
    assert with_level_1(machine, 0.048).spans() == [(4, 12)]


def test_depth_is_the_distance_of_the_clock_to_its_ceiling() -> None:
    machine = with_level_1(busy_cores(), cycles=[2.9e9, HZ, 0, 0])
    assert machine.session.detector.running == machine.running  # not a drop
    assert machine.running[0].depth == pytest.approx(0.1e9)
    assert machine.running[0].evidence["busy_hz"] == 2_900_000_000


@pytest.mark.parametrize(("hz", "depth"), [(0.9899 * HZ, 0.0101 * HZ), (0.9901 * HZ, 0.0)])
def test_a_distance_of_less_than_a_hundredth_is_none(hz: float, depth: float) -> None:
    (episode,) = with_level_1(busy_cores(), cycles=[hz, HZ, 0, 0]).running
    assert episode.depth == pytest.approx(depth, rel=1e-3)


def test_a_turbo_drop_caused_by_a_license_replaces_it() -> None:
    machine = with_level_1(with_level_1(busy_cores()), cycles=[0.8 * HZ, HZ, 0, 0])
    assert machine.spans() == [(4, 8)]
    kinds = [(e.kind, e.cause, e.start_ns // S) for e in machine.session.detector.running]
    assert kinds == [("turbo-drop", "license", 8)]
    assert with_level_1(machine, cycles=[HZ, HZ, 0, 0]).spans() == [(4, 8), (12, None)]
