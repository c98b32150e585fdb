"""When episodes of shares and of losses start and end, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synth
from rate_streams import S, SteppedDetector

from perftop.detect.engine import PauseLimits, ShareEpisodes, busy_cpus
from perftop.detect.losses import NeighbourLosses, blamed_tasks
from perftop.model.confidence import TaskOnCpu
from perftop.model.sample_reader import SampleReader
from perftop.model.tasks import Task

NAN = float("nan")
READER = SampleReader(synth.hello())
NAMES = [[0, 3], [1, 4], [2, 5]]


class SteppedShares(SteppedDetector):
    """Detects shares at three positions, two of which are in one group."""

    def __init__(self, *, min_samples: int = 1, pause_samples: int = 0) -> None:
        super().__init__()
        self.episodes = ShareEpisodes(
            READER, self.detector, "made", 0.2, 0.1, min_samples=min_samples,
            pause_ns=pause_samples * S,
        )  # fmt: skip

    def advance(
        self, shares: float | Sequence[float], *, samples: int = 1,
        names: list[list[int]] = NAMES, weight: float = 1.0, ns: int = S,
    ) -> SteppedShares:  # fmt: skip
        for _ in range(samples):
            share, weights = np.broadcast_to(np.array(shares, float), 3), np.full(3, weight)
            groups, times = np.array([0, 0, 1]), self.next_step(ns)
            self.ended += self.episodes.step(share, weights, groups, names, *times, [weights])
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


@pytest.mark.parametrize(("shares", "spans"), [
    ((0.2, 0.0), [(0, 1)]), ((0.199, 0.0), []), ((0.3, 0.1, 0.1), [(0, None)]),
    ((0.3, 0.099), [(0, 1)]),
])  # fmt: skip
def test_an_episode_starts_and_continues_at_its_limits(
    shares: tuple[float, ...], spans: list[tuple[int, int | None]]
) -> None:
    detector = SteppedShares()
    for share in shares:
        detector.advance([share, 0, 0])
    assert detector.spans() == spans


@pytest.mark.parametrize(("pause_samples", "ended"), [(2, False), (3, True)])
def test_a_pause_of_its_full_length_ends_an_episode(pause_samples: int, *, ended: bool) -> None:
    """Samples of a shorter pause count for the depth."""
    detector = SteppedShares(pause_samples=3).advance(FIRST_ONLY, samples=4)
    detector.advance(0, samples=pause_samples).advance(FIRST_ONLY, samples=4)
    assert detector.spans() == ([(0, 4), (7, None)] if ended else [(0, None)])
    (running,) = detector.running
    assert running.depth == pytest.approx(0.5 if ended else 0.5 * 6 / 8)


@pytest.mark.parametrize(("unread_samples", "spans"), [
    (50, [(0, None)]), (51, [(0, 2)]),
])  # fmt: skip
def test_an_unread_position_ends_its_episode_after_the_longest_gap(
    unread_samples: int, spans: list[tuple[int, int | None]]
) -> None:
    detector = SteppedShares().advance(FIRST_ONLY, samples=2).advance(NAN, samples=unread_samples)
    assert detector.spans() == spans


@pytest.mark.parametrize(("ns", "spans"), [
    (5_000_000_000, [(0, None)]), (5_000_000_001, [(0, 2)]), (0, [(0, 2)]),
])  # fmt: skip
def test_a_gap_in_the_stream_ends_all_episodes(
    ns: int, spans: list[tuple[int, int | None]]
) -> None:
    detector = SteppedShares().advance(FIRST_ONLY, samples=2)
    assert detector.advance(FIRST_ONLY, ns=ns).spans() == spans


@pytest.mark.parametrize(("sample_ns", "gap_ns"), [
    (S, 5_000_000_000), (1_600_000_000, 5_000_000_000), (2_000_000_000, 6_000_000_000),
])  # fmt: skip
def test_the_longest_gap_is_at_least_three_samples(sample_ns: int, gap_ns: int) -> None:
    assert PauseLimits(sample_ns).gap_ns == gap_ns


def test_positions_without_weight_are_unknown() -> None:
    detector = SteppedShares().advance(FIRST_ONLY, weight=0.0)
    assert detector.spans() == []
    assert detector.advance(FIRST_ONLY).advance(0, weight=0.0).spans() == [(1, None)]


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


def test_a_cpu_is_busy_if_it_ran_or_was_stolen_for_half_of_the_time() -> None:
    """Without counters of steal, only its running time counts."""
    shares = {"util": [0.5, 0.49, 0.3, 0.3, NAN], "steal": [NAN, NAN, 0.2, 0.19, 0.9]}
    values = {key: np.array([row]) for key, row in shares.items()}
    batch: Any = SimpleNamespace(values=values, cached=lambda make: make(batch))
    assert busy_cpus(batch).tolist() == [[True, False, True, False, False]]


# --- losses


class SteppedLosses(SteppedDetector):
    """Detects losses of CPUs of one group, each sample of which has little weight."""

    def __init__(
        self, cpus: int = 1, *, groups: Sequence[int] = (), min_loss: float = 0.03
    ) -> None:
        super().__init__()
        self.losses = NeighbourLosses(
            READER, self.detector, "made", np.array(groups or [0] * cpus), 0.1, 0.05,
            min_loss=min_loss,
        )  # fmt: skip

    def step(
        self, *shares: float, samples: int = 1, ns: int = S, is_proven: bool = True,
        weight: float = 0.1,
    ) -> None:  # fmt: skip
        cpus = range(len(shares))
        yes, weights = np.ones(len(shares), bool), np.full(len(shares), weight)
        for _ in range(samples):
            self.ended += self.losses.step(np.array(shares), weights, yes, *self.next_step(ns))
            self.losses.begin(yes & is_proven, [[cpu] for cpu in cpus], self.now_ns)


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


@pytest.mark.parametrize(("shares", "spans"), [
    ((0.5, 0.5), [(0, None)]), ((0.5,), []),  # a single sample may contain a stray tick
    ((0.1, 0.1, 0.1), [(0, None)]), ((0.099, 0.099, 0.099, 0.099), []),
    ((0.15, 0.15), [(0, None)]), ((0.15, 0.149), []), ((0.15, 0.149, 0.15), [(0, None)]),
    ((0.5, 0.5, 0.05, 0.05, 0.05, 0.05), [(0, None)]),
    ((0.5, 0.5, 0.049, 0.049, 0.049), [(0, None)]),
    ((0.5, 0.5, 0.049, 0.049, 0.049, 0.049), [(0, 2)]),
    ((0.1, 0.05, 0.5, 0.5), [(2, None)]),  # before, less than the limit was lost
    ((0.5, NAN, 0.5), [(0, None)]), ((0.5, 0.5, NAN, NAN, NAN, NAN), [(0, None)]),
])  # fmt: skip
def test_a_loss_starts_and_ends_at_its_limits(
    shares: tuple[float, ...], spans: list[tuple[int, int | None]]
) -> None:
    steps = SteppedLosses()
    for share in shares:
        steps.step(share)
    assert steps.spans() == spans


@pytest.mark.parametrize("weight", [0.1, 0.5])
def test_the_minimum_loss_is_in_the_unit_of_the_weights(weight: float) -> None:
    steps = SteppedLosses(min_loss=0.2)
    steps.step(0.2, weight=weight, samples=9)
    assert steps.spans() == ([] if weight == 0.1 else [(0, None)])
    steps.step(0.2, weight=weight, samples=2)
    assert steps.spans() == [(0, None)]
    assert steps.losses.lost_share(0) == steps.running[0].depth == pytest.approx(0.2)


@pytest.mark.parametrize(("samples", "groups", "cpus"), [
    (0, (0, 0), [[0, 1]]), (1, (0, 0), [[0, 1]]), (2, (0, 0), [[0], [1]]), (0, (0, 1), [[0], [1]]),
])  # fmt: skip
def test_losses_that_start_within_a_sample_are_one_episode(
    samples: int, groups: tuple[int, int], cpus: list[list[int]]
) -> None:
    steps = SteppedLosses(cpus=2, groups=groups)
    steps.step(0.3, 0.0, samples=samples)
    steps.step(0.3, 0.3, samples=4)
    assert [e.cpus for e in steps.running] == cpus


def test_a_loss_is_reported_once_it_is_proven() -> None:
    """It starts with its first sample. A sample without the loss is not the time to report it."""
    steps = SteppedLosses()
    steps.step(0.3, samples=5, is_proven=False)
    steps.step(0.0)
    assert steps.spans() == []
    steps.step(0.3)
    assert steps.spans() == [(0, None)]
    assert steps.running[0].depth == pytest.approx(0.3 * 6 / 7)


@pytest.mark.parametrize(("ns", "spans"), [
    (5_000_000_000, [(0, None)]), (5_000_000_001, [(0, 3)]), (0, [(0, 3)]),
])  # fmt: skip
def test_a_gap_in_the_stream_ends_all_losses(ns: int, spans: list[tuple[int, int | None]]) -> None:
    steps = SteppedLosses()
    steps.step(0.3, samples=3)
    steps.step(0.3, ns=ns)
    assert steps.spans() == spans
    assert steps.losses.is_quiet == bool(steps.ended)


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
