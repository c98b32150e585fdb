"""The cells of lanes: what is new beside what was known, what is forgotten, and marks."""

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
from perftop.tui.timeline import lanes

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


@given(st.integers(600, 9000), st.lists(st.integers(-20, 900), max_size=6), st.integers(5, 90))
def test_what_is_new_is_added_to_what_was_known(start: int, steps: list[int], room: int) -> None:
    """Stepwise or at once: the same picture."""
    now, before, none = start, None, np.zeros(0)
    for step in [0, *steps]:
        now = max(600, now + step)
        fresh = _lanes(now * 10**8, room)
        fresh.settle([0, 2], none, before)
        whole = _lanes(now * 10**8, room)
        whole.settle([0, 2], none, None)
        for row in (0, 2):
            np.testing.assert_array_equal(fresh.values[row], whole.values[row])
        before = fresh


def test_what_history_forgets_goes_from_the_picture() -> None:
    first = _lanes(70 * S, 60)
    first.settle([0], np.zeros(0), None)
    later = _lanes(71 * S, 60)
    session: Any = later._session
    session.past.begin_ns = 30 * S
    later.settle([0], np.zeros(0), first)
    assert np.isnan(later.values[0][:, :19]).all()
    assert np.isfinite(later.values[0][:, 19:]).any()


def test_marks_take_the_place_of_cells_and_nothing_else_moves() -> None:
    runs = [("aaaa", "x"), ("bb", "y")]
    assert lanes.marked(runs, {}) == runs
    marks = {0: ("▼", "alarm"), 3: ("│", "text"), 5: ("▼", "alarm")}
    found = lanes.marked(runs, marks)
    assert text(found) == "▼aa│b▼"
    assert found == [("▼", "alarm"), ("aa", "x"), ("│", "text"), ("b", "y"), ("▼", "alarm")]
