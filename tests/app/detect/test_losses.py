"""When a loss begins and ends, in steps of 100 ms made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from paced import Stepped

from perftop.detect.losses import NeighbourLosses, blamed_tasks
from perftop.model.episode import TaskOnCpu
from perftop.model.tasks import Task

SAMPLE_NS = 100_000_000
START, END = 0.1, 0.05
UNKNOWN = float("nan")


class Steps(Stepped):
    """Losses of some positions, each of which is a CPU; what has ended."""

    def __init__(self, groups: Sequence[int] = (0,), least: float = 0.0) -> None:
        super().__init__()
        self.losses = NeighbourLosses(self.detector, "made", np.array(groups), SAMPLE_NS,
                             start=START, end=END, least=least)  # fmt: skip
        self.names = [[cpu] for cpu in range(len(groups))]

    def step(self, *shares: float, times: int = 1, weight: float = 1.0, proven: bool = True,
             may_begin: bool = True, span_ns: int = SAMPLE_NS) -> None:  # fmt: skip
        n = len(self.names)
        for _ in range(times):
            self.ended += self.losses.step(
                np.array(shares), np.full(n, weight), np.full(n, may_begin), *self.step_of(span_ns)
            )
            self.losses.begin(np.full(n, proven), self.names, self.now_ns)


def test_one_sample_is_no_loss() -> None:
    steps = Steps()
    steps.step(0.0, times=3)
    steps.step(0.9)
    steps.step(0.0, times=20)
    assert steps.running == []
    assert steps.ended == []


def test_a_lasting_loss_spans_all_its_samples() -> None:
    steps = Steps()
    steps.step(0.0, times=3)
    steps.step(0.3)
    assert steps.running == []
    steps.step(0.2)
    (found,) = steps.running
    assert (found.kind, found.cause, found.cpus) == ("neighbour", "made", [0])
    assert found.start_ns == 3 * SAMPLE_NS
    steps.step(0.0, times=20)
    assert steps.ended == [found]
    assert found.end_ns == 5 * SAMPLE_NS
    assert found.depth == pytest.approx(0.25)
    assert steps.running == []


def test_depth_weighs_samples() -> None:
    steps = Steps()
    steps.step(0.4, weight=3.0)
    steps.step(0.2, weight=1.0)
    assert steps.running[0].depth == pytest.approx(0.35)


def test_a_smaller_loss_or_a_short_pause_does_not_end_an_episode() -> None:
    steps = Steps()
    steps.step(0.3, times=2)
    steps.step(0.06, times=30)
    steps.step(0.0, times=2)
    steps.step(0.3)
    assert steps.ended == []
    assert len(steps.running) == 1
    steps.step(0.0, times=5)
    assert steps.ended[0].end_ns == 35 * SAMPLE_NS


def test_single_ticks_are_no_loss() -> None:
    """A tick of 10 ms in each second sample is 5 %: less than START, however high each is."""
    steps = Steps(least=0.03)
    for _ in range(100):
        steps.step(0.1, weight=0.1)
        steps.step(0.0, weight=0.1)
    assert steps.running == []
    for _ in range(2):
        steps.step(0.2, weight=0.1)
        steps.step(0.1, weight=0.1)
    (found,) = steps.running
    assert found.start_ns >= 199 * SAMPLE_NS


def test_a_loss_begins_when_it_is_proven() -> None:
    steps = Steps()
    steps.step(0.3, times=15, proven=False)
    assert steps.running == []
    steps.step(0.3)
    assert steps.running[0].start_ns == 0


def test_a_loss_may_continue_where_it_may_not_begin() -> None:
    steps = Steps()
    steps.step(0.3, times=5, may_begin=False)
    assert steps.running == []
    steps.step(0.3, times=2)
    steps.step(0.3, times=5, may_begin=False)
    assert len(steps.running) == 1


def test_cpus_of_a_group_that_begin_together_are_one_episode() -> None:
    steps = Steps(groups=[0, 0, 0, 1])
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
    steps = Steps(groups=[0, 0])
    steps.step(0.3, 0.3, times=3)
    steps.step(0.0, 0.3, times=20)
    steps.step(0.5, 0.3, times=10)
    assert [e.cpus for e in steps.running] == [[0, 1]]
    assert steps.running[0].depth == pytest.approx((13 * 0.3 + 33 * 0.3 + 10 * 0.2) / 46)


def test_a_long_time_without_data_ends_an_episode_at_its_last_sample() -> None:
    steps = Steps()
    steps.step(0.3, times=3)
    steps.step(UNKNOWN, times=50)
    assert len(steps.running) == 1
    steps.step(UNKNOWN)
    assert steps.ended[0].end_ns == 3 * SAMPLE_NS


def test_a_gap_in_the_stream_ends_an_episode_at_its_last_sample() -> None:
    steps = Steps()
    steps.step(0.3, times=3)
    steps.step(0.3, span_ns=3_600_000_000_000)
    assert steps.ended[0].end_ns == 3 * SAMPLE_NS
    assert steps.running == []


def test_other_tasks_are_separated_from_the_job() -> None:
    found = [(Task(pid, "cc1", 0.1), 0) for pid in (1, 2, 3, 2)]
    assert blamed_tasks(found, {2}) == {
        "who": [TaskOnCpu(1, "cc1", 0), TaskOnCpu(3, "cc1", 0)],
        "self": [TaskOnCpu(2, "cc1", 0)] * 2,
    }  # fmt: skip
    assert blamed_tasks(found, {1, 2, 3}).keys() == {"self"}
