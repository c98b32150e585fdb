"""When episodes of shares and of losses start and end, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rate_streams import S, SteppedDetector

from perftop.detect.engine import ShareEpisodes
from perftop.detect.losses import NeighbourLosses, blamed_tasks
from perftop.model.confidence import TaskOnCpu
from perftop.model.tasks import Task

NAN = float("nan")
START, END = 0.2, 0.1
NAMES = [[0, 3], [1, 4], [2, 5]]


class SteppedShares(SteppedDetector):
    """Detects shares at three positions, two of which are in one group."""

    def __init__(self, *, min_samples: int = 1, pause: int = 0) -> None:
        super().__init__()
        self.episodes = ShareEpisodes(
            self.detector, "made", START, END, S, min_samples=min_samples, pause_ns=pause * S
        )

    def advance(
        self,
        shares: float | Sequence[float],
        *,
        samples: int = 1,
        ns: int = S,
        weights: float | Sequence[float] = 1.0,
        names: Sequence[list[int]] = NAMES,
    ) -> SteppedShares:
        for _ in range(samples):
            share, weight = (
                np.broadcast_to(np.array(v, float), len(names)) for v in (shares, weights)
            )
            groups = np.array([0, 0, 1])[: len(names)]
            times = self.step_of(ns)
            self.ended += self.episodes.step(share, weight, groups, names, *times, [weight * 7])
        return self


FIRST_ONLY = [0.5, 0, 0]


def test_positions_of_a_group_that_begin_within_a_sample_are_one_episode() -> None:
    detector = SteppedShares().advance([0.5, 0, 0.5]).advance(0.5)
    assert sorted(e.cpus for e in detector.running) == [[0, 1, 3, 4], [2, 5]]
    assert [
        e.cpus
        for e in SteppedShares().advance(FIRST_ONLY, samples=3).advance([0.5, 0.5, 0]).running
    ] == [[0, 3], [1, 4]]


@pytest.mark.parametrize("later_samples", [1, 2])
def test_first_and_last_samples_do_not_count_for_the_depth(later_samples: int) -> None:
    """The first and the last sample may be only partly inside the episode. A short episode has no
    other samples."""
    detector = (
        SteppedShares(min_samples=later_samples)
        .advance([0.25, 0, 0])
        .advance(FIRST_ONLY, samples=4)
        .advance([0.2, 0, 0])
        .advance(0)
    )
    assert detector.spans() == [(0, 6)]
    assert detector.ended[0].depth == pytest.approx(0.5)
    assert SteppedShares().advance([0.25, 0, 0]).advance(FIRST_ONLY).running[
        0
    ].depth == pytest.approx(0.375)
    assert SteppedShares().advance([0.25, 0, 0]).running[0].depth == pytest.approx(0.25)


def test_depth_and_sums_are_weighted() -> None:
    detector = SteppedShares().advance([0.2, 0.8, 0], weights=[3, 1, 1], samples=4)
    assert detector.running[0].depth == pytest.approx(0.35)
    (episode,) = detector.episodes.running
    assert episode.sums[2] == pytest.approx(7 * episode.sums[1])


def test_a_single_sample_does_not_begin_an_episode_that_requires_two() -> None:
    detector = (
        SteppedShares(min_samples=2).advance(0).advance(FIRST_ONLY).advance(0).advance(FIRST_ONLY)
    )
    assert detector.spans() == []
    assert not detector.episodes.is_quiet
    assert detector.advance(FIRST_ONLY).spans() == [
        (3, None)
    ]  # the episode starts with the first sample
    detector = SteppedShares(min_samples=2).advance(FIRST_ONLY).advance(0)
    assert detector.episodes.is_quiet


def test_a_position_whose_episode_ended_begins_a_new_one() -> None:
    detector = (
        SteppedShares(min_samples=2)
        .advance([0.5, 0.5, 0], samples=2)
        .advance([0, NAN, 0])
        .advance([0, 0.5, 0])
    )
    assert detector.spans() == [(0, 2)]
    assert detector.advance([0, 0.5, 0]).spans() == [(0, 2), (3, None)]


def test_an_alternating_share_is_one_episode_as_deep_as_its_mean() -> None:
    detector = SteppedShares(pause=3)
    for _ in range(20):
        detector.advance(FIRST_ONLY, samples=2).advance(0, samples=2)
    assert detector.spans() == [(0, None)]
    assert detector.running[0].depth == pytest.approx(0.25, abs=0.01)
    assert detector.advance(0).spans() == [(0, 78)]
    assert detector.advance(FIRST_ONLY).spans() == [(0, 78), (81, None)]


def test_unknown_samples_neither_interrupt_nor_count() -> None:
    assert SteppedShares(min_samples=2).advance(FIRST_ONLY).advance(NAN, samples=3).spans() == []
    assert SteppedShares(min_samples=2).advance(FIRST_ONLY).advance(NAN, samples=3).advance(
        FIRST_ONLY
    ).spans() == [(0, None)]
    gone = 5_000_000_000 // S
    assert (
        SteppedShares(min_samples=2)
        .advance(FIRST_ONLY)
        .advance(NAN, samples=gone)
        .advance(FIRST_ONLY)
        .spans()
        == []
    )


@pytest.mark.parametrize("unknown_shares", [{"shares": NAN}, {"shares": 0.0, "weights": 0.0}])
def test_an_episode_without_data_ends_at_its_last_sample(unknown_shares: dict[str, Any]) -> None:
    detector = (
        SteppedShares()
        .advance(FIRST_ONLY, samples=2)
        .advance(**unknown_shares, samples=5_000_000_000 // S)
    )
    assert detector.spans() == [(0, None)]
    assert detector.advance(**unknown_shares).spans() == [(0, 2)]


def test_an_episode_keeps_its_cpus_when_positions_change() -> None:
    detector = SteppedShares().advance([0, 0.5, 0], samples=2)
    detector.advance([0.5, 0, 0], names=[[1, 4], [0, 3], [2, 5]])
    assert detector.spans() == [(0, None)]
    assert detector.running[0].cpus == [1, 4]


# --- losses, in steps of 100 ms


SAMPLE_NS = 100_000_000
LOSS_START, LOSS_END = 0.1, 0.05


class SteppedLosses(SteppedDetector):
    """Losses by position, where each position is a CPU, and ended episodes."""

    def __init__(self, groups: Sequence[int] = (0,), min_share: float = 0.0) -> None:
        super().__init__()
        self.losses = NeighbourLosses(self.detector, "made", np.array(groups), SAMPLE_NS,
                             start=LOSS_START, end=LOSS_END, min_loss=min_share)  # fmt: skip
        self.names = [[cpu] for cpu in range(len(groups))]

    def step(self, *shares: float, times: int = 1, weight: float = 1.0, proven: bool = True,
             may_begin: bool = True, span_ns: int = SAMPLE_NS) -> None:  # fmt: skip
        n = len(self.names)
        for _ in range(times):
            self.ended += self.losses.step(
                np.array(shares), np.full(n, weight), np.full(n, may_begin), *self.step_of(span_ns)
            )
            self.losses.begin(np.full(n, proven), self.names, self.now_ns)


def test_a_long_loss_spans_all_its_samples() -> None:
    steps = SteppedLosses()
    steps.step(0.0, times=3)
    steps.step(0.3)
    assert steps.running == []
    steps.step(0.2)
    (result,) = steps.running
    assert (result.kind, result.cause, result.cpus) == ("neighbour", "made", [0])
    assert result.start_ns == 3 * SAMPLE_NS
    steps.step(0.0, times=20)
    assert steps.ended == [result]
    assert result.end_ns == 5 * SAMPLE_NS
    assert result.depth == pytest.approx(0.25)
    assert steps.running == []


def test_a_smaller_loss_or_a_short_pause_does_not_end_an_episode() -> None:
    steps = SteppedLosses()
    steps.step(0.3, times=2)
    steps.step(0.06, times=30)
    steps.step(0.0, times=2)
    steps.step(0.3)
    assert steps.ended == []
    assert len(steps.running) == 1
    steps.step(0.0, times=5)
    assert steps.ended[0].end_ns == 35 * SAMPLE_NS


def test_single_ticks_are_not_a_loss() -> None:
    """A tick of 10 ms in every second sample is 5 %, which is below the start threshold."""
    steps = SteppedLosses(min_share=0.03)
    for _ in range(100):
        steps.step(0.1, weight=0.1)
        steps.step(0.0, weight=0.1)
    assert steps.running == []
    for _ in range(2):
        steps.step(0.2, weight=0.1)
        steps.step(0.1, weight=0.1)
    (result,) = steps.running
    assert result.start_ns >= 199 * SAMPLE_NS


def test_cpus_of_a_group_that_begin_together_are_one_episode() -> None:
    steps = SteppedLosses(groups=[0, 0, 0, 1])
    steps.step(0.3, 0.0, 0.0, 0.3)
    steps.step(0.3, 0.3, 0.0, 0.3)
    steps.step(0.3, 0.3, 0.0, 0.3, times=20)
    steps.step(0.3, 0.3, 0.3, 0.3, times=2)
    assert [e.cpus for e in steps.running] == [[0, 1], [3], [2]]
    steps.step(0.0, 0.3, 0.3, 0.3, times=20)
    assert [e.cpus for e in steps.running] == [[0, 1], [3], [2]]
    steps.step(0.0, 0.0, 0.3, 0.3, times=20)
    assert [e.cpus for e in steps.ended] == [[0, 1]]
    assert steps.ended[0].end_ns == 44 * SAMPLE_NS
    assert steps.ended[0].depth == pytest.approx(0.3)


def test_a_cpu_that_loses_again_rejoins_its_episode() -> None:
    steps = SteppedLosses(groups=[0, 0])
    steps.step(0.3, 0.3, times=3)
    steps.step(0.0, 0.3, times=20)
    steps.step(0.5, 0.3, times=10)
    assert [e.cpus for e in steps.running] == [[0, 1]]
    assert steps.running[0].depth == pytest.approx((13 * 0.3 + 33 * 0.3 + 10 * 0.2) / 46)


def test_other_tasks_and_the_job_are_separate_episodes() -> None:
    results = [(Task(pid, "cc1", 0.1), 0) for pid in (1, 2, 3, 2)]
    assert blamed_tasks(results, {2}) == {
        "who": [TaskOnCpu(1, "cc1", 0), TaskOnCpu(3, "cc1", 0)],
        "self": [TaskOnCpu(2, "cc1", 0)] * 2,
    }  # fmt: skip
    assert blamed_tasks(results, {1, 2, 3}).keys() == {"self"}
