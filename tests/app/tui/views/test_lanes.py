"""The cells of lanes, and marks in them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw.strips import text
from perftop.session.values import BY_KEY
from perftop.tui.shared import time_axis
from perftop.tui.shared.places import Place
from perftop.tui.views import lanes

S = 1_000_000_000
UTIL = BY_KEY["util"]


class Written:
    """A history in which each sample has a value of its own; some of it is not known."""

    begin_ns: int | None = None

    def field(self, _: str, rows: Sequence[int], edges: Any) -> Any:
        ends = edges[1:, None] // 10**8 * 7 + np.array(rows)[None] * 3
        values = ends % 101 / 100
        return np.where(ends % 11 == 0, np.nan, values)


PLACES = [Place(0, 0, i, None, (i, i + 3), i, (2 * i, 2 * i + 1)) for i in range(3)]


def _lanes(now_ns: int, room: int, window_s: float = 60.0) -> lanes.Lanes:
    session: Any = SimpleNamespace(past=Written())
    at = time_axis.fitted(now_ns, window_s, room)
    return lanes.Lanes(session, UTIL, at, PLACES, ascii_=False)


@given(st.integers(600, 9000), st.integers(5, 90))
def test_rows_read_one_by_one_are_as_those_read_together(now: int, room: int) -> None:
    together, apart = _lanes(now * 10**8, room), _lanes(now * 10**8, room)
    together.read([0, 2])
    for row in (2, 0):
        apart.read([row])
    for row in (0, 2):
        np.testing.assert_array_equal(apart.values[row], together.values[row])


def test_marks_take_the_place_of_cells_and_nothing_else_moves() -> None:
    runs = [("aaaa", "x"), ("bb", "y")]
    assert lanes.marked(runs, {}) == runs
    marks = {0: ("▼", "alarm"), 3: ("│", "text"), 5: ("▼", "alarm")}
    found = lanes.marked(runs, marks)
    assert text(found) == "▼aa│b▼"
    assert found == [("▼", "alarm"), ("aa", "x"), ("│", "text"), ("b", "y"), ("▼", "alarm")]
