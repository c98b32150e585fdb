"""SMIs: counted by all CPUs at once, but not read at once."""

from __future__ import annotations

import made
import numpy as np
import pytest
from paced import S, Stepped

from perftop.detect.engine import GAP_NS
from perftop.detect.smis import QUIET_NS, Smis
from perftop.model.sample_reader import SampleReader

PAUSE = QUIET_NS // S
SMI = made.counter("smi", "1", bits=32)


class Walk(Stepped):
    def __init__(self) -> None:
        super().__init__()
        self.smis = Smis(SampleReader(made.hello([made.REF, SMI], cores=2)), self.detector)

    def go(self, count: float | list[float], *, samples: int = 1, ns: int = S,
           spans: list[int] | None = None) -> Walk:  # fmt: skip
        """`spans`: samples that each CPU's row covers; 0: not read."""
        for _ in range(samples):
            moved = np.broadcast_to(np.array(count, float), 4)
            span_ns = np.array(spans or [1] * 4) * float(ns)
            self.ended += self.smis.step(moved, span_ns, *self.step_of(ns))
        return self


def test_it_lasts_from_the_first_to_the_last_and_is_as_deep_as_they_are_many() -> None:
    walk = Walk().go(0, samples=3).go(3).go(0, samples=4).go(2).go(0, samples=PAUSE)
    assert walk.spans() == [(3, 9)]
    (episode,) = walk.ended
    assert (episode.depth, episode.cpus) == (5, [0, 1, 2, 3])
    assert episode.evidence == {"SMIs_per_s": 8.3}
    assert walk.detector.running == []


def test_after_a_second_without_one_the_next_is_another() -> None:
    walk = Walk().go(1).go(0, samples=PAUSE - 1).go(1).go(0, samples=PAUSE).go(1)
    assert walk.spans() == [(0, PAUSE + 1), (2 * PAUSE + 1, None)]
    assert [e.depth for e in (*walk.ended, *walk.detector.running)] == [2, 1]


def test_a_cpu_that_was_not_read_for_a_while_has_no_smis_of_its_own() -> None:
    walk = Walk().go([1, 1, 1, 0], spans=[1, 1, 1, 0]).go(0, samples=6, spans=[1, 1, 1, 0])
    walk.go([0, 0, 0, 1], spans=[1, 1, 1, 8])
    assert walk.spans() == [(0, None)]
    assert walk.detector.running[0].cpus == [0, 1, 2, 3]
    assert walk.detector.running[0].depth == 1
    assert walk.go(0, samples=3).spans() == [(0, 1)]
    assert walk.go([0, 0, 0, 1], spans=[1, 1, 1, 12]).spans() == [(0, 1)]


def test_where_no_cpu_was_read_for_a_while_it_may_have_begun_since() -> None:
    assert Walk().go(0).go(0, samples=4, spans=[0] * 4).go(1, spans=[5] * 4).spans() == [(1, None)]


@pytest.mark.parametrize("ns", [GAP_NS + S, -S])
def test_a_gap_and_a_jump_of_time_end_it_before_and_count_nothing(ns: int) -> None:
    walk = Walk().go(0).go(2, samples=2).go(50, ns=ns)
    assert walk.spans() == [(1, 3)]
    assert walk.ended[0].depth == 4


def test_a_column_that_is_not_known_counts_nothing() -> None:
    assert Walk().go(float("nan"), samples=3).spans() == []
