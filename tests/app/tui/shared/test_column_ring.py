"""The ring of columns: the same values as if all were looked up, of which few are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perftop.base.arrays import Floats
from perftop.session.history import edges
from perftop.session.history_chunk import Times
from perftop.tui.shared.column_ring import Ring

BIN_NS, BINS = 1000, 8


class Told:
    """A past in which each bin's value follows from its edges, so what is held can be told."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.ring = Ring({"spans": self.spans})
        self.history: Any = SimpleNamespace(begin_ns=500)

    def spans(self, _: object, at: Times) -> Floats:
        self.asked.append(len(at) - 1)
        return np.stack([at[:-1], at[1:]], axis=1).astype(float)

    def read(self, now_ns: int, bins: int = BINS, bin_ns: int = BIN_NS) -> int:
        """How many bins were looked up; checks the values of all."""
        self.asked.clear()
        end_ns = -(-now_ns // bin_ns) * bin_ns
        fresh = self.ring.read(self.history, end_ns, bin_ns, bins, now_ns)
        at = edges(end_ns, bin_ns, bins)
        at[-1] = now_ns
        assert self.ring["spans"].tolist() == np.stack([at[:-1], at[1:]], axis=1).tolist()
        assert fresh == sum(self.asked)
        return fresh


def test_only_the_newest_bins_are_looked_up() -> None:
    shown = Told()
    counts = [shown.read(now) for now in (20_000, 20_400, 20_900, 21_000, 21_000, 24_200, 25_000)]
    assert counts == [BINS, 1, 1, 1, 0, 4, 1]


@pytest.mark.parametrize("now_ns", [20_399, 12_000, 28_001, 99_000])
def test_going_back_or_far_ahead_looks_all_up(now_ns: int) -> None:
    shown = Told()
    shown.read(20_400)
    assert shown.read(now_ns) == BINS


def test_so_do_other_bins_and_an_older_past() -> None:
    shown = Told()
    shown.read(20_400)
    assert shown.read(20_400, bins=5) == 5
    assert shown.read(20_400, bins=5, bin_ns=2 * BIN_NS) == 5
    shown.history.begin_ns = 600  # its oldest part is gone, which the bins still show
    assert shown.read(20_500, bins=5, bin_ns=2 * BIN_NS) == 1
    shown.history.begin_ns = 100
    assert shown.read(20_500, bins=5, bin_ns=2 * BIN_NS) == 5
