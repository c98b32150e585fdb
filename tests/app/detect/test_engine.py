"""When episodes of shares and of losses start and end, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence

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


def test_other_tasks_and_the_job_are_separate_episodes() -> None:
    results = [(Task(pid, "cc1", 0.1), 0) for pid in (1, 2, 3, 2)]
    assert blamed_tasks(results, {2}) == {
        "who": [TaskOnCpu(1, "cc1", 0), TaskOnCpu(3, "cc1", 0)],
        "self": [TaskOnCpu(2, "cc1", 0)] * 2,
    }  # fmt: skip
    assert blamed_tasks(results, {1, 2, 3}).keys() == {"self"}
