"""Steal: ticks of 10 ms that come one by one, step by step."""

from __future__ import annotations

import made
import numpy as np
import pytest
from paced import S, Stepped

from perftop.detect.engine import GAP_NS
from perftop.detect.steals import Steals
from perftop.model.sample_reader import SampleReader

NAN = float("nan")


class Walk(Stepped):
    """So many ticks on the first CPU in each sample, none on the other three."""

    def __init__(self) -> None:
        super().__init__()
        self.steals = Steals(SampleReader(made.hello(cores=2)), self.detector)

    def go(self, *ticks: float, others: float = 0, ns: int = S) -> Walk:
        for n in ticks:
            stolen_s = np.array([n, *[others] * 3]) * 0.01
            self.ended += self.steals.step(stolen_s, *self.step_of(ns))
        return self


@pytest.mark.parametrize(("ticks", "spans"), [
    ([0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0], [(1, 5)]),
    ([0, 2, 2], [(1, None)]),  # told in its second sample, from the first
    ([0, 3], [(1, None)]),
    ([0, 1, 1, 1, 0], [(1, None)]),
    ([0, 1, 0, 1, 0, 1, 0, 1], [(1, None)]),  # a twentieth
])  # fmt: skip
def test_ticks_that_follow_each_other_are_one_episode(
    ticks: list[float], spans: list[tuple[int, int | None]]
) -> None:
    assert Walk().go(*ticks).spans() == spans


@pytest.mark.parametrize("ticks", [
    [1], [2], [1, 1], [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1], [1, 0, 0, 1, 0, 0, 1, 0, 0, 1],
])  # fmt: skip
def test_single_ticks_are_none(ticks: list[float]) -> None:
    assert Walk().go(*ticks, *[0] * 10).spans() == []


def test_what_came_too_seldom_before_is_no_part_of_it() -> None:
    assert Walk().go(1, 0, 0, 0, 1, 0, 0, 0, 4, 4).spans() == [(8, None)]


def test_its_depth_is_the_share_of_the_samples_that_lie_within_it() -> None:
    walk = Walk().go(0, 1, 4, 4, 4, 4, 1, *[0] * 8)
    assert walk.spans() == [(1, 7)]
    (episode,) = walk.ended
    assert episode.depth == pytest.approx(0.4)
    assert episode.cpus == [0]
    assert (episode.cause, episode.confidence) == ("hypervisor", "measured")
    assert episode.evidence["ticks"] == 18


def test_a_low_share_is_as_deep_as_it_is_between_ticks() -> None:
    (episode,) = Walk().go(*[1, 0] * 20).detector.running
    assert episode.depth == pytest.approx(0.05)


def test_a_pause_shorter_than_a_tick_may_need_does_not_end_it() -> None:
    walk = Walk().go(3, 3, 0, 0, 0, 1)
    assert walk.spans() == [(0, None)]
    assert walk.go(*[0] * 6).spans() == [(0, 6)]


def test_cpus_that_are_robbed_together_are_one_episode() -> None:
    (episode,) = Walk().go(2, 2, 2, others=2).detector.running
    assert episode.cpus == [0, 1, 2, 3]
    assert episode.evidence["ticks"] == 24


def test_a_gap_in_the_stream_and_a_jump_of_time_end_it_before() -> None:
    assert Walk().go(2, 2, 2).go(2, ns=GAP_NS + S).spans() == [(0, 3)]
    assert Walk().go(2, 2, 2).go(2, ns=-S).spans() == [(0, 3)]


def test_a_late_frame_with_all_its_ticks_changes_nothing() -> None:
    walk = Walk().go(2, 2).go(20, ns=10 * S).go(2)
    assert walk.spans() == [(0, None)]
    assert walk.detector.running[0].depth == pytest.approx(0.2)


def test_a_cpu_that_is_gone_ends_it_when_it_was_last_robbed() -> None:
    walk = Walk().go(2, 2, 2).go(*[NAN] * (GAP_NS // S))
    assert walk.spans() == [(0, None)]
    assert walk.go(NAN).spans() == [(0, 3)]
