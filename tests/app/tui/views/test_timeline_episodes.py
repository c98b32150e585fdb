"""Episodes and marks in the time view: on the axis, in lanes, and below them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from time_view import View, many_cores, two_cores, viewing

from perftop.model.kinds import Episode
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.shared import time_axis
from perftop.tui.shared.choice import Place
from perftop.tui.views import timeline

S = 1_000_000_000


async def shown(view: View, *episodes: Episode) -> None:
    view.run.session.detector.running += [e for e in episodes if e.end_ns is None]
    view.run.session.ended.extend([e for e in episodes if e.end_ns is not None])
    await view.again()


async def test_an_episode_is_marked_on_the_axis_and_in_its_row() -> None:
    async with viewing(many_cores()) as view:
        await shown(view, Episode("involuntary-halt", [24], 14 * S // 10))
    index = view.feet[0].index("║")
    assert view.rows[1][index] == "║"
    assert view.rows[1].rstrip().endswith("98.0 ║")  # it still runs
    assert not any("║" in row for row in view.rows[2:])
    assert set(view.feet[0][index + 1 : view.past._chart_left + view.past._axis.cells]) == {"━"}


async def test_an_ended_episode_has_no_stroke_to_the_end() -> None:
    async with viewing(many_cores()) as view:
        await shown(view, Episode("involuntary-halt", [0], S // 2, S))
    assert view.feet[0].count("║") == 1
    assert view.rows[1].count("║") == 1
    assert not view.rows[1].rstrip().endswith("║")


async def test_panels_fill_the_room_below_the_axis() -> None:
    results: list[object] = []

    async with viewing(two_cores()) as view:
        await shown(view, Episode("involuntary-halt", [1], S // 2, S))
        past = view.past
        seen = view.seen()
        first = next(y for y, line in enumerate(seen) if "what happened" in line)
        at = next(y for y in range(first, len(seen)) if "║" in seen[y])
        results.append(past.target(seen[at].index("║"), past.size.height - at))
        results.extend((past.size.height - len(past.heads) - past.count, len(past.feet)))
    episode, room, feet = results
    assert isinstance(episode, Episode)
    assert episode.kind == "involuntary-halt"
    assert room == feet


async def test_an_episode_of_a_package_is_in_its_heading_once() -> None:
    async with viewing(many_cores()) as view:
        await shown(view, Episode("turbo-drop", list(range(48)), 14 * S // 10))
    assert [row.count("▼") for row in view.rows] == [1] + [0] * 24


async def test_rows_show_episodes_of_packages_without_headings() -> None:
    async with viewing(many_cores()) as view:
        view.past.choice.order = "CPU number"
        await shown(view, Episode("turbo-drop", list(range(48)), 14 * S // 10))
    assert [row.count("▼") for row in view.rows] == [2] * 24


# --- cells of lanes


UTIL = COLUMNS_BY_KEY["util"]


class Written:
    """A history with a different value in each sample, some of them unknown."""

    begin_ns: int | None = None

    def field(self, _: str, rows: Sequence[int], edges: Any) -> Any:
        ends = edges[1:, None] // 10**8 * 7 + np.array(rows)[None] * 3
        values = ends % 101 / 100
        return np.where(ends % 11 == 0, np.nan, values)


PLACES = [Place(0, 0, i, None, (i, i + 3), i, (2 * i, 2 * i + 1)) for i in range(3)]


def _lanes(now_ns: int, room: int, window_s: float = 60.0) -> timeline.Lanes:
    session: Any = SimpleNamespace(past=Written())
    at = time_axis.fit_axis(now_ns, window_s, room)
    return timeline.Lanes(session, UTIL, at, PLACES, ascii_=False)


@given(st.integers(600, 9000), st.integers(5, 90))
def test_rows_read_one_by_one_equal_those_read_together(now: int, room: int) -> None:
    together, apart = _lanes(now * 10**8, room), _lanes(now * 10**8, room)
    together.read([0, 2])
    for row in (2, 0):
        apart.read([row])
    for row in (0, 2):
        np.testing.assert_array_equal(apart.values[row], together.values[row])
