"""Ramps, sample by sample, from handwritten clocks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import synth
from rate_streams import S, SteppedDetector, sample_with

from perftop.detect.engine import cycles_and_time
from perftop.detect.engine import util as util_of
from perftop.detect.ramps import Ramps
from perftop.model.confidence import evidence_text
from perftop.model.delta import median
from perftop.model.sample_reader import SampleReader

GHZ = 1e9
NAN = float("nan")
REST, HOLD = 1_000_000_000 // S, 500_000_000 // S
PerCore = float | Sequence[float]


class RampingCores(SteppedDetector):
    """Simulated cores."""

    def __init__(self, cores: int = 1, packages: int = 1) -> None:
        cpus = [list(range(p, 2 * cores, packages)) for p in range(packages)]
        hello = synth.hello(cores=cores, packages=cpus)
        super().__init__()
        self.ramps, self.cores = Ramps(SampleReader(hello)), cores

    def advance(
        self, ghz: PerCore = 3.0, *, util: PerCore = 1.0, samples: int = 1, ns: int = S,
        ceiling: float = NAN,
    ) -> RampingCores:  # fmt: skip
        for _ in range(samples):
            hz, use = (np.broadcast_to(np.asarray(v, float), self.cores) for v in (ghz, util))
            since_ns, time_ns = self.next_step(ns)
            parts = {util_of: use, cycles_and_time: (hz * GHZ, np.ones(self.cores))}
            ceilings = SimpleNamespace(hz=np.full(self.cores, ceiling))
            self.ended += self.ramps.process(sample_with(
                parts, since_ns=since_ns, time_ns=time_ns, cores=self.ramps._cores,
                ceilings=ceilings,
            ))  # fmt: skip
        return self

    def climbing(self) -> bool:
        return bool((self.ramps._woke >= 0).any())

    def sleep(self, samples: int = REST + 1) -> RampingCores:
        return self.advance(0.8, util=0.01, samples=samples)

    def climb(self, *ghz: float) -> RampingCores:
        for clock in ghz:
            self.advance(clock)
        return self.advance(ghz[-1], samples=HOLD)


def test_a_ramp_lasts_from_wake_up_to_the_steady_clock() -> None:
    machine = RampingCores().sleep(20).climb(1.2, 2.0, 2.8, 2.98, 3.0)
    (ramp,) = machine.ended
    assert (ramp.kind, ramp.cpus, ramp.cause) == ("ramp", [0, 1], "-")
    assert (ramp.start_ns / S, ramp.end_ns and ramp.end_ns / S) == (20, 23)
    assert ramp.depth == pytest.approx(1.8 * GHZ)
    assert ramp.evidence == {
        "first_hz": 1.2e9, "steady_hz": 3.0e9, "t90_s": 0.2, "t99_s": 0.3, "steady_s": 0.3,
        "resolution_s": 0.1,
    }  # fmt: skip
    assert evidence_text(ramp.cause, ramp.evidence) == (
        "from at most 1.20 GHz · to 3.00 GHz · 90 % within 200 ms · 99 % within 300 ms"
        " · steady within 300 ms · resolution 100 ms"
    )


def test_the_first_clock_is_measured_only_in_ramps_of_many_samples() -> None:
    """The clock rises within the first sample, so its mean is too low."""
    (few,) = RampingCores().sleep().climb(1.2, 1.8, 2.4, 3.0).ended
    (many,) = RampingCores().sleep().climb(1.2, 1.6, 2.0, 2.4, 3.0).ended
    assert (few.confidence, many.confidence) == ("inferred", "measured")


def test_a_ramp_starts_when_work_starts_within_its_first_sample() -> None:
    (ramp,) = RampingCores().sleep(20).advance(1.2, util=0.25).climb(2.0, 2.6, 3.0).ended
    assert ramp.start_ns / S == 20.75
    assert ramp.evidence["steady_s"] == pytest.approx(0.225)
    machine = (
        RampingCores()
        .sleep(20)
        .advance(1.2, util=0.4)
        .advance(2.0, util=0.8)
        .advance(samples=HOLD, util=0.8)
    )
    assert machine.ended[0].start_ns / S == 20.5


def test_drops_during_a_ramp_are_counted() -> None:
    (ramp,) = RampingCores().sleep().climb(1.2, 3.4, 2.8, 3.4, 2.9, 3.0).ended
    assert ramp.evidence["drops"] == 2
    assert (ramp.evidence["t90_s"], ramp.evidence["steady_s"]) == (0.1, 0.4)
    assert "drops" not in RampingCores().sleep().climb(1.2, 2.0, 1.95, 3.0).ended[0].evidence


@pytest.mark.parametrize(("second_ghz", "steady_s"), [(3.15, 0.1), (3.16, 0.2)])
def test_a_clock_is_steady_within_a_twentieth_of_the_last(
    second_ghz: float, steady_s: float
) -> None:
    (ramp,) = RampingCores().sleep().climb(1.2, second_ghz, 2.98, 3.0).ended
    assert ramp.evidence["steady_s"] == steady_s


@pytest.mark.parametrize(("first_ghz", "ramps"), [(0.945, 1), (0.955, 0), (1.5, 0)])
def test_a_small_gain_is_not_a_ramp(first_ghz: float, ramps: int) -> None:
    assert len(RampingCores().sleep().climb(3 * first_ghz, 3.0).ended) == ramps


@pytest.mark.parametrize(("steady_ghz", "ramps"), [(0.6, 0), (1.6, 0), (1.8, 1), (5.3, 1)])
def test_the_target_of_a_ramp_is_the_ceiling(steady_ghz: float, ramps: int) -> None:
    machine = RampingCores().sleep().advance(0.46, ceiling=5.3 * GHZ)
    machine.advance(steady_ghz, samples=HOLD + 1, ceiling=5.3 * GHZ)
    assert len(machine.ended) == ramps


def test_a_core_that_slept_for_less_than_a_second_has_no_ramp() -> None:
    assert (
        RampingCores().sleep().advance(3.0, samples=9).sleep(REST - 1).climb(1.2, 3.0).ended == []
    )
    assert (
        len(RampingCores().sleep().advance(3.0, samples=9).sleep(REST).climb(1.2, 3.0).ended) == 1
    )


@pytest.mark.parametrize(("steps", "ramps"), [(22, 1), (26, 0)])
def test_a_climb_of_more_than_ten_seconds_is_not_a_ramp(steps: int, ramps: int) -> None:
    """The clock rises by 6 % every 0.4 s."""
    machine = RampingCores().sleep()
    for step in range(steps):
        machine.advance(1.06**step, samples=4)
    machine.advance(1.06**steps, samples=HOLD)
    assert len(machine.ended) == ramps


@pytest.mark.parametrize(("util", "count"), [(0.1, 1), (0.09, 0)])
def test_a_core_wakes_up_for_a_tenth_of_a_sample(util: float, count: int) -> None:
    machine = RampingCores().sleep().advance(1.2, util=util)
    assert len(machine.ramps.unfinished_climbs()) == count
    for climb in machine.ramps.unfinished_climbs():
        assert (climb.cpus, climb.start_ns) == ([0, 1], (REST + 1) * S)


@pytest.mark.parametrize(("samples", "ramps"), [(HOLD - 1, 0), (HOLD, 1)])
def test_a_clock_must_be_steady_for_half_a_second(samples: int, ramps: int) -> None:
    machine = RampingCores().sleep().advance(1.2).advance(3.0)
    assert len(machine.advance(2.8, samples=samples).ended) == ramps


@pytest.mark.parametrize(("samples", "ramps"), [(2, 0), (3, 1)])
def test_a_clock_must_be_steady_for_three_long_samples(samples: int, ramps: int) -> None:
    machine = RampingCores().sleep().advance(1.2, ns=4 * S).advance(2.0, ns=4 * S)
    assert len(machine.advance(3.0, samples=samples, ns=4 * S).ended) == ramps


def test_a_core_that_falls_asleep_again_has_no_ramp() -> None:
    machine = RampingCores()
    for _ in range(5):
        machine.sleep().advance(1.2).advance(2.0).advance(samples=HOLD - 1).advance(util=0.09)
    assert machine.ended == []
    assert not machine.climbing()


@pytest.mark.parametrize(("util", "ramps"), [(0.51, 1), (0.49, 0)])
def test_an_almost_idle_core_has_no_ramp(util: float, ramps: int) -> None:
    machine = (
        RampingCores()
        .sleep()
        .advance(1.2, util=util)
        .advance(2.0, util=util)
        .advance(util=util, samples=HOLD)
    )
    assert len(machine.ended) == ramps


def test_cores_that_wake_together_are_one_ramp_that_names_the_slowest() -> None:
    machine = RampingCores(cores=4).sleep().advance([1.2, 1.2, 0.8, 1.2], util=[1, 1, 0.01, 0.02])
    machine.advance([2.0, 2.0, 0.8, 1.2], util=[1, 1, 0, 1]).advance(
        [3, 3, 0.8, 2], util=[1, 1, 0, 1]
    )
    for clock in (1.5, 2.5):
        machine.advance([3, clock, 0.8, 3], util=[1, 1, 0, 1])
    assert machine.ended == []
    machine.advance([3, 3, 0.8, 3], util=[1, 1, 0, 1], samples=HOLD)
    (ramp,) = machine.ended
    assert ramp.cpus == [0, 1, 3, 4, 5, 7]
    assert (ramp.evidence["steady_s"], ramp.evidence["slowest_s"]) == (0.2, 0.5)
    assert ramp.evidence["slowest_cpu"] == 1


def test_cores_of_two_packages_or_different_times_are_separate_ramps() -> None:
    machine = RampingCores(cores=4, packages=2).sleep().climb(1.2, 2.0, 3.0)
    assert [ramp.cpus for ramp in machine.ended] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    machine = RampingCores(cores=2).sleep().advance([1.2, 0.8], util=[1, 0], samples=2)
    machine.advance([3, 1.2], util=1, samples=3).climb(3.0)
    assert [ramp.cpus for ramp in machine.ended] == [[0, 2], [1, 3]]


def test_an_unread_sample_makes_times_less_certain() -> None:
    machine = RampingCores().sleep(20).advance(1.2).advance(NAN, util=NAN).climb(3.0)
    (ramp,) = machine.ended
    assert ramp.evidence["resolution_s"] == 0.2
    assert ramp.evidence["steady_s"] == 0.2
    machine = RampingCores().sleep(20).advance(NAN, util=NAN).advance(1.2, util=0.75).climb(3.0)
    assert machine.ended[0].start_ns / S == 20.5


def test_a_core_that_is_no_longer_read_is_not_assumed_steady() -> None:
    machine = RampingCores().sleep().advance(1.2).advance(3.0).advance(NAN, util=NAN, samples=50)
    assert machine.ended == []
    assert not machine.climbing()
    asleep = RampingCores().sleep().advance(NAN, util=NAN, samples=50)
    assert asleep.advance(1.2).advance(3.0, samples=20).ended == []  # the core may have been awake


def test_a_late_sample_counts_as_one_long_sample() -> None:
    (ramp,) = RampingCores().sleep(20).advance(0.8, util=0.01, ns=8 * S).climb(1.2, 2.0, 3.0).ended
    assert (ramp.start_ns / S, ramp.evidence["steady_s"]) == (28, 0.2)
    (ramp,) = RampingCores().sleep(20).advance(1.2).advance(2.0, ns=8 * S).climb(3.0).ended
    assert (ramp.evidence["steady_s"], ramp.evidence["resolution_s"]) == (0.9, 0.8)


@pytest.mark.parametrize("gap_ns", [5_000_000_000 + S, -S, 0])
def test_a_gap_in_the_stream_discards_a_ramp(gap_ns: int) -> None:
    machine = RampingCores().sleep().advance(1.2).advance(2.0, ns=gap_ns).advance(3.0, samples=20)
    assert machine.ended == []
    assert len(machine.sleep().climb(1.2, 3.0).ended) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
def test_the_median_is_that_of_numpy(count: int) -> None:
    values = np.random.default_rng(count).normal(3e9, 1e8, (count, 3))
    assert median(values).tolist() == np.median(values, axis=0).tolist()
