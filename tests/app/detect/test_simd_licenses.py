"""SIMD levels without a drop, from simulated counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import synth
from rate_streams import RateStream, S

from perftop.detect import turbo_drops

KIND = "license"
TSC = synth.TSC_HZ
HZ = 3.0e9
LEVELS = [synth.counter("license_1"), synth.counter("license_2")]


def busy_cores(ceiling_hz: float | None = HZ) -> RateStream:
    """Two cores whose first threads are always busy, at their ceiling of 3 GHz."""
    package = [] if ceiling_hz is None else [synth.CEILING]
    machine = RateStream(KIND, [synth.REF, synth.CYCLES, *LEVELS], package=package)
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


def test_the_threshold_to_continue_is_lower_than_the_one_to_begin() -> None:
    assert with_level_1(busy_cores(), 0.098).spans() == []
    machine = with_level_1(with_level_1(busy_cores(), 0.102), 0.052)
    assert machine.spans() == [(4, None)]
    assert with_level_1(machine, 0.048).spans() == [(4, 12)]


def test_a_single_sample_is_not_an_episode() -> None:
    assert with_level_1(with_level_1(busy_cores(), samples=1), 0).spans() == []


def test_depth_is_the_distance_of_the_clock_to_its_ceiling() -> None:
    machine = with_level_1(busy_cores(), cycles=[2.9e9, HZ, 0, 0])
    assert machine.session.detector.running == machine.running  # not a drop
    assert machine.running[0].depth == pytest.approx(0.1e9)
    assert machine.running[0].evidence["busy_hz"] == 2_900_000_000


def test_without_a_ceiling_the_depth_is_unknown() -> None:
    assert with_level_1(busy_cores(None)).running[0].depth is None


def test_the_level_of_most_code_is_reported() -> None:
    machine = with_level_1(busy_cores(), 0.3, license_2=[0.6 * HZ, 0, 0, 0])
    assert machine.running[0].evidence["simd"] == pytest.approx((2, 0.6))


def test_a_turbo_drop_caused_by_a_license_replaces_it() -> None:
    machine = with_level_1(with_level_1(busy_cores()), cycles=[0.8 * HZ, HZ, 0, 0])
    assert machine.spans() == [(4, 8)]
    kinds = [(e.kind, e.cause, e.start_ns // S) for e in machine.session.detector.running]
    assert kinds == [("turbo-drop", "license", 8)]
    assert with_level_1(machine, cycles=[HZ, HZ, 0, 0]).spans() == [(4, 8), (12, None)]


def test_no_episode_exists_without_license_counters() -> None:
    machine = RateStream(KIND, [synth.REF, synth.CYCLES], package=[synth.CEILING])
    assert machine.advance(5, ref=TSC, cycles=HZ, ceiling_hz=HZ).spans() == []
