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
NAMES = [[0, 3], [1, 4], [2, 5]]


class SteppedShares(SteppedDetector):
    """Detects shares at three positions, two of which are in one group."""

    def __init__(self, *, min_samples: int = 1) -> None:
        super().__init__()
        self.episodes = ShareEpisodes(
            self.detector, "made", 0.2, 0.1, S, min_samples=min_samples, pause_ns=0
        )

    def advance(
        self, shares: float | Sequence[float], *, samples: int = 1, names: list[list[int]] = NAMES
    ) -> SteppedShares:
        for _ in range(samples):
            share, weight = np.broadcast_to(np.array(shares, float), 3), np.ones(3)
            groups, times = np.array([0, 0, 1]), self.step_of(S)
            self.ended += self.episodes.step(share, weight, groups, names, *times, [weight])
        return self


FIRST_ONLY = [0.5, 0, 0]


def two_samples() -> SteppedShares:
    """Detects episodes of at least two samples, the first of which was just seen."""
    return SteppedShares(min_samples=2).advance(FIRST_ONLY)


def test_positions_of_a_group_that_begin_within_a_sample_are_one_episode() -> None:
    together = SteppedShares().advance([0.5, 0, 0.5]).advance(0.5)
    assert sorted(e.cpus for e in together.running) == [[0, 1, 3, 4], [2, 5]]
    apart = SteppedShares().advance(FIRST_ONLY, samples=3).advance([0.5, 0.5, 0])
    assert [e.cpus for e in apart.running] == [[0, 3], [1, 4]]


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
    short = SteppedShares().advance([0.25, 0, 0])
    assert short.running[0].depth == pytest.approx(0.25)
    assert short.advance(FIRST_ONLY).running[0].depth == pytest.approx(0.375)


def test_a_single_sample_does_not_begin_an_episode_that_requires_two() -> None:
    detector = two_samples()
    quiet = [detector.advance(shares).episodes.is_quiet for shares in ([0, 0, 0], FIRST_ONLY)]
    assert (detector.spans(), quiet) == ([], [True, False])
    assert detector.advance(FIRST_ONLY).spans() == [(2, None)], "it starts with the first sample"


def test_unknown_samples_neither_interrupt_nor_count() -> None:
    detector = two_samples().advance(NAN, samples=3)
    assert detector.spans() == []
    assert detector.advance(FIRST_ONLY).spans() == [(0, None)]
    gone = 5_000_000_000 // S
    assert two_samples().advance(NAN, samples=gone).advance(FIRST_ONLY).spans() == []


def test_an_episode_keeps_its_cpus_when_positions_change() -> None:
    detector = SteppedShares().advance([0, 0.5, 0], samples=2)
    detector.advance([0.5, 0, 0], names=[[1, 4], [0, 3], [2, 5]])
    assert detector.spans() == [(0, None)]
    assert detector.running[0].cpus == [1, 4]


# --- losses


class SteppedLosses(SteppedDetector):
    """Detects losses of CPUs of one group, each sample of which has little weight."""

    def __init__(self, cpus: int = 1) -> None:
        super().__init__()
        self.losses = NeighbourLosses(
            self.detector, "made", np.zeros(cpus, int), S, start=0.1, end=0.05, min_loss=0.03
        )

    def step(self, *shares: float, samples: int = 1) -> None:
        cpus = range(len(shares))
        yes, weight = np.ones(len(shares), bool), np.full(len(shares), 0.1)
        for _ in range(samples):
            self.ended += self.losses.step(np.array(shares), weight, yes, *self.step_of())
            self.losses.begin(yes, [[cpu] for cpu in cpus], self.now_ns)


def test_single_ticks_are_not_a_loss() -> None:
    """A tick of 10 ms in every second sample is 5 %, which is below the start threshold."""
    steps = SteppedLosses()
    for share in (0.1, 0.0) * 100:
        steps.step(share)
    assert steps.running == []
    for share in (0.2, 0.1) * 2:
        steps.step(share)
    (result,) = steps.running
    assert result.start_ns >= 199 * S


def test_a_cpu_that_loses_again_rejoins_its_episode() -> None:
    steps = SteppedLosses(cpus=2)
    steps.step(0.3, 0.3, samples=4)
    steps.step(0.0, 0.3, samples=20)
    steps.step(0.5, 0.3, samples=10)
    assert [e.cpus for e in steps.running] == [[0, 1]]
    assert steps.running[0].depth == pytest.approx((14 * 0.3 + 34 * 0.3 + 10 * 0.2) / 48)


def test_other_tasks_and_the_job_are_separate_episodes() -> None:
    results = [(Task(pid, "cc1", 0.1), 0) for pid in (1, 2, 3, 2)]
    assert blamed_tasks(results, {2}) == {
        "who": [TaskOnCpu(1, "cc1", 0), TaskOnCpu(3, "cc1", 0)],
        "self": [TaskOnCpu(2, "cc1", 0)] * 2,
    }  # fmt: skip
    assert blamed_tasks(results, {1, 2, 3}).keys() == {"self"}
