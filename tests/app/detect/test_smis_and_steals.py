"""SMIs and steal, sample by sample: single counts and ticks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import synth
from fakes import Machine
from rate_streams import STEAL, RateStream, S, SteppedDetector, sample_with

from perftop.base.arrays import Floats
from perftop.detect.engine import RunningEpisodes
from perftop.detect.taken_time import Smis, Steals
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, SampleReader

PAUSE = 1_000_000_000 // S
SMI = synth.counter("smi", "1", bits=32)


class SmiSteps(SteppedDetector):
    def __init__(self) -> None:
        super().__init__()
        self.smis = Smis(SampleReader(synth.hello([synth.REF, SMI], cores=2)), self.detector)

    def advance(self, count: float | list[float], *, samples: int = 1, ns: int = S,
           spans: Sequence[float] = (1, 1, 1, 1)) -> SmiSteps:  # fmt: skip
        """`spans`: samples that the row of each CPU covers; 0: not read."""
        for _ in range(samples):
            moved = np.broadcast_to(np.array(count, float), 4)
            span_ns = np.array(spans) * float(ns)
            self.ended += self.smis.step(moved, span_ns, *self.next_step(ns))
        return self


def test_an_episode_spans_its_smis_and_counts_them() -> None:
    detector = (
        SmiSteps()
        .advance(0, samples=3)
        .advance(3)
        .advance(0, samples=4)
        .advance(2)
        .advance(0, samples=PAUSE)
    )
    assert detector.spans() == [(3, 9)]
    (episode,) = detector.ended
    assert (episode.depth, episode.cpus) == (5, [0, 1, 2, 3])
    assert episode.evidence == {"SMIs_per_s": 8.3}
    assert detector.detector.running == []


def test_an_smi_after_more_than_a_second_is_another_episode() -> None:
    detector = (
        SmiSteps()
        .advance(1)
        .advance(0, samples=PAUSE - 1)
        .advance(1)
        .advance(0, samples=PAUSE)
        .advance(1)
    )
    assert detector.spans() == [(0, PAUSE + 1), (2 * PAUSE + 1, None)]
    assert [e.depth for e in (*detector.ended, *detector.detector.running)] == [2, 1]


def test_a_cpu_that_was_not_read_has_no_smis_of_its_own() -> None:
    detector = (
        SmiSteps()
        .advance([1, 1, 1, 0], spans=[1, 1, 1, 0])
        .advance(0, samples=6, spans=[1, 1, 1, 0])
    )
    detector.advance([0, 0, 0, 1], spans=[1, 1, 1, 8])
    assert detector.spans() == [(0, None)]
    assert detector.detector.running[0].cpus == [0, 1, 2, 3]
    assert detector.detector.running[0].depth == 1
    assert detector.advance(0, samples=3).spans() == [(0, 1)]
    assert detector.advance([0, 0, 0, 1], spans=[1, 1, 1, 12]).spans() == [(0, 1)]


def test_the_start_after_unread_samples_is_the_earliest_possible() -> None:
    assert SmiSteps().advance(0).advance(0, samples=4, spans=[0] * 4).advance(
        1, spans=[5] * 4
    ).spans() == [(1, None)]


@pytest.mark.parametrize(("span", "start"), [(1.5, 4), (1.75, 2.5)])
def test_only_a_count_over_much_more_than_the_sample_starts_earlier(
    span: float, start: float
) -> None:
    """The row of the first CPU covers `span` samples."""
    detector = SmiSteps().advance(0, ns=2 * S, samples=2)
    detector.advance([1, 0, 0, 0], ns=2 * S, spans=[span, 1, 1, 1])
    assert detector.spans() == [(start, None)]
    assert detector.running[0].cpus == [0], "only this CPU counted one"


@pytest.mark.parametrize("ns", [S // 2, 2 * S])
def test_smis_are_counted_per_second(ns: int) -> None:
    detector = SmiSteps().advance(0, ns=ns).advance(3, samples=2, ns=ns)
    (episode,) = detector.running
    assert (episode.depth, episode.evidence) == (6, {"SMIs_per_s": 3e9 / ns})


@pytest.mark.parametrize(("ns", "spans"), [
    (5_000_000_000, [(1, 53)]), (0, [(1, 3)]),
])  # fmt: skip
def test_a_long_sample_without_an_smi_is_a_pause(
    ns: int, spans: list[tuple[int, int | None]]
) -> None:
    assert (
        SmiSteps()
        .advance(0)
        .advance(2, samples=2)
        .advance(1, ns=ns)
        .advance(0, samples=PAUSE)
        .spans()
        == spans
    )


@pytest.mark.parametrize("ns", [5_000_000_000 + S, -S])
def test_gaps_and_clock_jumps_end_an_episode_and_are_not_counted(ns: int) -> None:
    detector = SmiSteps().advance(0).advance(2, samples=2).advance(50, ns=ns)
    assert detector.spans() == [(1, 3)]
    assert detector.ended[0].depth == 4


def test_unknown_columns_are_not_counted() -> None:
    assert SmiSteps().advance(float("nan"), samples=3).spans() == []


def test_smis_and_ticks_of_a_stream_start_and_end_episodes() -> None:
    """While there are none, the detectors skip samples."""
    smis = RateStream("smi", [synth.REF, SMI]).advance(20, ref=synth.TSC_HZ)
    smis.advance(2, smi=20).advance(PAUSE, smi=0).advance(PAUSE)
    assert smis.spans() == [(20, 22)]
    steals = RateStream("steal", [synth.REF, STEAL]).advance(20, ref=synth.TSC_HZ)
    steals.advance(2, stat_steal_s=0.4).advance(PAUSE, stat_steal_s=0)
    assert steals.spans() == [(20, 22)]


# --- steal, in ticks of 10 ms


def steal_sample(stolen_s: Floats, since_ns: int, time_ns: int) -> Sample:
    values = SimpleNamespace(numerators={INDEX["steal"]: stolen_s})
    return sample_with({}, values=values, since_ns=since_ns, time_ns=time_ns)


class StealSteps(SteppedDetector):
    """Adds a number of ticks to the first CPU in each sample, and none to the other three."""

    def __init__(self) -> None:
        super().__init__()
        self.steals = Steals(SampleReader(synth.hello(cores=2)), self.detector)

    def advance(self, *ticks: float, others: float = 0, ns: int = S) -> StealSteps:
        for n in ticks:
            stolen_s = np.array([n, *[others] * 3]) * 0.01
            self.ended += self.steals.process(steal_sample(stolen_s, *self.next_step(ns)))
        return self


@pytest.mark.parametrize(("ticks", "spans"), [
    ([0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0], [(1, 5)]),
    # the episode is reported in its second sample, but starts with the first
    ([0, 2, 2], [(1, None)]),
    ([0, 3], [(1, None)]),
    ([0, 1, 1, 1, 0], [(1, None)]),
    ([0, 1, 0, 1, 0, 1, 0, 1], [(1, None)]),  # the share is a twentieth
    ([1, 0, 0, 0, 1, 0, 0, 0, 4, 4], [(8, None)]),  # earlier sparse ticks are not part of it
    ([0, 2.5], [(1, None)]), ([0, 2.4], []), ([0, 1.5, 1.5], [(1, None)]),
    ([0, 2.4, 0.5], [(1, None)]), ([0, 2.4, 0.49, 0.49], []),  # less than half a tick is none
    ([0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1], []),  # a thirtieth
    ([0, 4, 0, 0, 0, 0, 1], [(1, None)]),  # a fiftieth continues it
    ([0, 4, 0, 0, 0, 0, 0], [(1, None)]), ([0, 4, 0, 0, 0, 0, 0, 0], [(1, 2)]),
    ([0, 4, 0, 0, 0, 0, 0, 1], [(1, 2)]), ([0, 4, 0, 0, 0, 0, 0, 2], [(1, None)]),
    ([0, 4, 0, 0, 0, 0, 0, 0, 2], [(1, 2)]),
])  # fmt: skip
def test_consecutive_ticks_are_one_episode(
    ticks: list[float], spans: list[tuple[int, int | None]]
) -> None:
    assert StealSteps().advance(*ticks).spans() == spans


@pytest.mark.parametrize(("ticks", "spans"), [
    ([0, 1, 0, 1, 0, 1, 0, 1], [(1, None)]),  # a tick in exactly a quarter of a second
    ([0, 1, 1, 0, 0, 1, 1], []), ([0, 3], [(1, None)]),
])  # fmt: skip
def test_ticks_in_longer_samples_are_compared_with_their_time(
    ticks: list[float], spans: list[tuple[int, int | None]]
) -> None:
    found = StealSteps().advance(*ticks, ns=125_000_000).spans()
    assert found == [(1.25 * start, end) for start, end in spans]


@pytest.mark.parametrize("ns", [S, 2 * S])
def test_ticks_of_all_cpus_are_one_episode(ns: int) -> None:
    (episode,) = StealSteps().advance(0, ns=ns).advance(4, 4, others=3, ns=ns).running
    assert (episode.cpus, episode.start_ns) == ([0, 1, 2, 3], ns)
    assert episode.depth == pytest.approx((2 * 4 + 2 * 3 * 3) * 0.01 / (4 * 2 * ns / 1e9))
    assert episode.evidence == {"ticks": 26, "tick_s": 0.01}


def test_depth_is_the_share_of_the_samples_within_the_episode() -> None:
    detector = StealSteps().advance(0, 1, 4, 4, 4, 4, 1, *[0] * 8)
    assert detector.spans() == [(1, 7)]
    (episode,) = detector.ended
    assert episode.depth == pytest.approx(0.4)
    assert episode.cpus == [0]
    assert (episode.cause, episode.confidence) == ("hypervisor", "measured")
    assert episode.evidence["ticks"] == 18


@pytest.mark.parametrize(("share", "evidence"), [(0.005, {"usual_share": 0.005}), (0.0049, {})])
def test_a_usual_share_is_reported_from_half_a_per_cent_on(
    share: float, evidence: dict[str, float]
) -> None:
    detector = StealSteps().advance(0)
    detector.steals._usual_share[0] = share
    (episode,) = detector.advance(5).running
    assert episode.evidence == evidence | {"ticks": 5, "tick_s": 0.01}


def test_a_low_share_is_averaged_over_the_pauses_between_ticks() -> None:
    (episode,) = StealSteps().advance(*[1, 0] * 20).detector.running
    assert episode.depth == pytest.approx(0.05)


@pytest.mark.parametrize("usual_share", [0.0, 0.03])
def test_only_steal_above_the_usual_is_an_episode(usual_share: float) -> None:
    """A host takes this share in random ticks, and 25 % in the last 3 s of each of 20 minutes. With
    a share of 3 %, ticks are close together by chance a thousand times an hour."""
    rng, detector = np.random.default_rng(1), RunningEpisodes()
    steals = Steals(SampleReader(Machine(cores=1, threads=1).hello), detector)
    episodes = list[Episode]()
    for sample in range(600 * 20):
        share = 0.25 if sample % 600 >= 570 else usual_share
        stolen_s = np.array([0.01 * rng.poisson(10 * share)])
        episodes += steals.process(steal_sample(stolen_s, sample * S, (sample + 1) * S))
    episodes += detector.running
    starts = [episode.start_ns // S for episode in episodes]
    assert len({start // 600 for start in starts if start % 600 >= 560}) >= 18
    assert sum(start % 600 < 560 for start in starts) <= (5 if usual_share else 0)
    if usual_share:
        assert any("usual_share" in episode.evidence for episode in episodes)
