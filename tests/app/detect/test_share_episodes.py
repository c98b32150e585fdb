"""Spells of a share, step by step, of shares made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from paced import S, Stepped

from perftop.detect.engine import GAP_NS, ShareEpisodes

NAN = float("nan")
START, END = 0.2, 0.1
NAMES = [[0, 3], [1, 4], [2, 5]]


class Walk(Stepped):
    """Three positions: two of one group, one of another."""

    def __init__(self, *, after: int = 1, pause: int = 0) -> None:
        super().__init__()
        self.spells = ShareEpisodes(
            self.detector, "made", START, END, S, after=after, pause_ns=pause * S
        )

    def go(
        self,
        shares: float | Sequence[float],
        *,
        samples: int = 1,
        ns: int = S,
        weights: float | Sequence[float] = 1.0,
        names: Sequence[list[int]] = NAMES,
    ) -> Walk:
        for _ in range(samples):
            share, weight = (
                np.broadcast_to(np.array(v, float), len(names)) for v in (shares, weights)
            )
            groups = np.array([0, 0, 1])[: len(names)]
            times = self.step_of(ns)
            self.ended += self.spells.step(share, weight, groups, names, *times, [weight * 7])
        return self


ONE = [0.5, 0, 0]


def test_an_episode_lasts_from_the_first_to_the_last_sample_that_shows_it() -> None:
    walk = Walk().go(0, samples=2).go(ONE, samples=3).go(0)
    assert walk.spans() == [(2, 5)]
    assert (walk.ended[0].kind, walk.ended[0].cpus) == ("made", [0, 3])
    assert walk.running == []


def test_the_threshold_to_continue_is_below_that_to_begin() -> None:
    between = [0.15, 0, 0]
    assert Walk().go(between, samples=3).spans() == []
    assert Walk().go(ONE).go(between, samples=3).go([0.05, 0, 0]).spans() == [(0, 4)]


def test_positions_of_a_group_that_begin_in_one_sample_or_the_next_are_one_episode() -> None:
    walk = Walk().go([0.5, 0, 0.5]).go(0.5)
    assert sorted(e.cpus for e in walk.running) == [[0, 1, 3, 4], [2, 5]]
    assert [e.cpus for e in Walk().go(ONE, samples=3).go([0.5, 0.5, 0]).running] == [[0, 3], [1, 4]]


@pytest.mark.parametrize("after", [1, 2])
def test_samples_at_its_ends_do_not_count_for_its_depth(after: int) -> None:
    """They may lie half outside; of one as short as that there is nothing better."""
    walk = Walk(after=after).go([0.25, 0, 0]).go(ONE, samples=4).go([0.2, 0, 0]).go(0)
    assert walk.spans() == [(0, 6)]
    assert walk.ended[0].depth == pytest.approx(0.5)
    assert Walk().go([0.25, 0, 0]).go(ONE).running[0].depth == pytest.approx(0.375)
    assert Walk().go([0.25, 0, 0]).running[0].depth == pytest.approx(0.25)


def test_depth_and_what_else_is_summed_up_go_by_weight() -> None:
    walk = Walk().go([0.2, 0.8, 0], weights=[3, 1, 1], samples=4)
    assert walk.running[0].depth == pytest.approx(0.35)
    (spell,) = walk.spells.running
    assert spell.sums[2] == pytest.approx(7 * spell.sums[1])


def test_with_two_samples_asked_for_one_alone_is_nothing() -> None:
    walk = Walk(after=2).go(0).go(ONE).go(0).go(ONE)
    assert walk.spans() == []
    assert not walk.spells.quiet
    assert walk.go(ONE).spans() == [(3, None)]  # it began with the first of them
    walk = Walk(after=2).go(ONE).go(0)
    assert walk.spells.quiet


def test_a_position_of_an_ended_episode_begins_a_new_one() -> None:
    walk = Walk(after=2).go([0.5, 0.5, 0], samples=2).go([0, NAN, 0]).go([0, 0.5, 0])
    assert walk.spans() == [(0, 2)]
    assert walk.go([0, 0.5, 0]).spans() == [(0, 2), (3, None)]


def test_a_share_that_goes_to_and_fro_is_one_that_is_as_deep_as_its_mean() -> None:
    walk = Walk(pause=3)
    for _ in range(20):
        walk.go(ONE, samples=2).go(0, samples=2)
    assert walk.spans() == [(0, None)]
    assert walk.running[0].depth == pytest.approx(0.25, abs=0.01)
    assert walk.go(0).spans() == [(0, 78)]
    assert walk.go(ONE).spans() == [(0, 78), (81, None)]


def test_an_episode_that_vanishes_in_a_pause_ends_at_the_start_of_the_pause() -> None:
    assert Walk(pause=3).go(ONE, samples=2).go(0).go(ONE, ns=-S).spans() == [(0, 2)]
    walk = Walk(pause=3).go(ONE, samples=2).go(0).go(NAN, samples=GAP_NS // S + 1)
    assert walk.spans() == [(0, 2)]


def test_samples_that_know_nothing_neither_break_a_row_nor_make_one() -> None:
    assert Walk(after=2).go(ONE).go(NAN, samples=3).spans() == []
    assert Walk(after=2).go(ONE).go(NAN, samples=3).go(ONE).spans() == [(0, None)]
    gone = GAP_NS // S
    assert Walk(after=2).go(ONE).go(NAN, samples=gone).go(ONE).spans() == []


@pytest.mark.parametrize("nothing", [{"shares": NAN}, {"shares": 0.0, "weights": 0.0}])
def test_an_unseen_episode_ends_at_its_last_sample(
    nothing: dict[str, Any],
) -> None:
    walk = Walk().go(ONE, samples=2).go(**nothing, samples=GAP_NS // S)
    assert walk.spans() == [(0, None)]
    assert walk.go(**nothing).spans() == [(0, 2)]


@pytest.mark.parametrize("ns", [GAP_NS + S, -S, 0])
def test_a_gap_in_the_stream_ends_it_before(ns: int) -> None:
    walk = Walk().go(ONE, samples=2).go(ONE, ns=ns)
    assert walk.spans() == [(0, 2)]
    assert walk.running == []
    assert Walk(after=2).go(ONE).go(ONE, ns=ns).spans() == []


def test_an_episode_stays_with_its_cpus_when_positions_change() -> None:
    walk = Walk().go([0, 0.5, 0], samples=2)
    walk.go([0.5, 0, 0], names=[[1, 4], [0, 3], [2, 5]])
    assert walk.spans() == [(0, None)]
    assert walk.running[0].cpus == [1, 4]
