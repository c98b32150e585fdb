"""Episodes in the time view: on its axis, in its rows and below them."""

from __future__ import annotations

from time_view import View, look, many, two

from perftop.model.episode import Episode

S = 1_000_000_000


async def shown(view: View, *episodes: Episode) -> None:
    view.run.session.detector.running += [e for e in episodes if e.end_ns is None]
    view.run.session.ended.extend([e for e in episodes if e.end_ns is not None])
    await view.again()


async def test_an_episode_marks_axis_and_row_where_it_began() -> None:
    async with look(many()) as view:
        await shown(view, Episode("involuntary-halt", [24], 14 * S // 10))
    at = view.feet[0].index("║")
    assert view.rows[1][at] == "║"
    assert view.rows[1].rstrip().endswith("98.0 ║")  # and it goes on
    assert not any("║" in row for row in view.rows[2:])
    assert set(view.feet[0][at + 1 : view.past._left + view.past._axis.cells]) == {"━"}


async def test_an_ended_one_is_marked_too_but_goes_on_no_more() -> None:
    async with look(many()) as view:
        await shown(view, Episode("involuntary-halt", [0], S // 2, S))
    assert view.feet[0].count("║") == 1
    assert view.rows[1].count("║") == 1
    assert not view.rows[1].rstrip().endswith("║")


async def test_what_is_left_below_the_axis_shows_what_happened() -> None:
    found: list[object] = []

    async with look(two()) as view:
        await shown(view, Episode("involuntary-halt", [1], S // 2, S))
        past = view.past
        seen = view.seen()
        first = next(y for y, line in enumerate(seen) if "what happened" in line)
        at = next(y for y in range(first, len(seen)) if "║" in seen[y])
        found.append(past.target(seen[at].index("║"), past.size.height - at))
        found.extend((past.size.height - len(past.heads) - past.count, len(past.feet)))
    episode, room, feet = found
    assert isinstance(episode, Episode)
    assert episode.kind == "involuntary-halt"
    assert room == feet


async def test_what_befalls_a_package_is_shown_in_its_heading_once() -> None:
    async with look(many()) as view:
        await shown(view, Episode("turbo-drop", list(range(48)), 14 * S // 10))
    assert [row.count("▼") for row in view.rows] == [1] + [0] * 24


async def test_where_there_are_no_headings_rows_show_of_it() -> None:
    async with look(many()) as view:
        view.past.choice.order = "CPU number"
        await shown(view, Episode("turbo-drop", list(range(48)), 14 * S // 10))
    assert [row.count("▼") for row in view.rows] == [2] * 24
