"""The time axis: the times of cells, episodes, and the values of bins."""

from __future__ import annotations

import calendar
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synth import hello

from perftop.base.arrays import Floats
from perftop.draw import theme
from perftop.model.kinds import Episode
from perftop.session.history import Times
from perftop.session.session import Session
from perftop.tui.shared import time_axis
from perftop.tui.shared.episode_style import severity_style

S = 1_000_000_000
WALL_S = 1_700_000_040
"""Unix time of raw 0: 22:14:00."""


def unix_time(raw_ns: int) -> float:
    return WALL_S + raw_ns / 1e9


def axis_at(now_s: int) -> time_axis.Axis:
    return time_axis.fit_axis(now_s * S, 60.0, 60, -1000 * S)


@given(st.floats(1.0, 60.0), st.integers(40, 240))
def test_a_short_history_fills_the_axis(past_s: float, room: int) -> None:
    now_ns = 500 * S
    first_ns = now_ns - round(past_s * S)
    a = time_axis.fit_axis(now_ns, 60.0, room, first_ns)
    assert a.start_ns <= first_ns
    assert a.columns - a.bin_at(first_ns) > 0.45 * room


def test_a_time_at_the_end_of_the_axis_is_beyond_it() -> None:
    """The time belongs to the next bin, which arrives with the next sample."""
    a = axis_at(60)
    before = Episode("offline", [0], 60 * S - 1)
    mark = Episode("mark", [], 60 * S, 60 * S, evidence={"label": "now"})
    assert (a.episode_cells(before), a.episode_cells(mark)) == ((range(59, 60), True), None)
    assert time_axis.tick_line(a, [mark], (), marks=[mark]) == time_axis.tick_line(a, [], ())


@pytest.mark.parametrize(("first_s", "blank"), [
    (None, 0), (-5, 0), (60, 0), (61, 0), (65, 4), (99, 38), (200, 40),
])  # fmt: skip
def test_cells_before_the_history_are_blank(first_s: int | None, blank: int) -> None:
    """The axis begins at 60 s. The first sample, at `first_s`, ends its bin."""
    first_ns = None if first_s is None else first_s * S
    a = time_axis.Axis(100 * S, S, 40, 100 * S, first_ns)
    assert a.blank_cells == blank
    drawn = "".join(char for char, _ in time_axis.axis_rule(a, ()))
    assert drawn == " " * blank + theme.RULE * (40 - blank)


# --- clock times


def _ticks(a: time_axis.Axis) -> dict[int, int]:
    """Unix times by cell, as printed, on the day of raw 0."""
    results = {}
    day = time.gmtime(WALL_S)
    for at, text in time_axis.ticks(a, unix_time):
        parts = [*map(int, text.split(":")), 0][:3]
        results[at] = calendar.timegm((day.tm_year, day.tm_mon, day.tm_mday, *parts))
    return results


@given(
    st.integers(0, 3600 * S),
    st.sampled_from([5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0]),
    st.integers(20, 240),
)
def test_a_tick_is_at_its_time(now_ns: int, window_s: float, room: int) -> None:
    a = time_axis.fit_axis(now_ns, window_s, room)
    result = _ticks(a)
    for at, moment_s in result.items():
        since_ns = (moment_s - WALL_S) * S - a.start_ns
        if abs(since_ns) < 12 * 3600 * S:  # the times are on the same day
            assert since_ns // a.bin_ns == at
    apart = [b - a for a, b in pairwise(sorted(result))]
    assert not apart or max(apart) - min(apart) <= 1


# --- episodes


def drop(start_s: int, end_s: float | None = None, kind: str = "turbo-drop") -> Episode:
    return Episode(kind, [0], start_s * S, None if end_s is None else round(end_s * S))


@pytest.mark.parametrize(("kind", "style"), [
    ("turbo-drop", "alarm"), ("suspect", "warn"), ("ramp", "text"), ("never heard of", "text"),
])  # fmt: skip
def test_the_style_of_an_episode_shows_its_severity(kind: str, style: str) -> None:
    assert severity_style(drop(1, kind=kind)) == style


def test_an_episode_that_ended_retroactively_is_drawn() -> None:
    """The episode ended because it had not been seen for 5 s."""
    session = Session(hello())
    seen, given_up, old = drop(30, 41), drop(20, 36.5), drop(10, 20)
    session.ended.extend([old, seen, given_up])
    session.detector.running.append(now := drop(90))
    assert time_axis.visible_episodes(axis_at(100), session) == [now, seen]


def test_an_end_on_an_edge_belongs_to_the_earlier_bin_and_a_start_to_the_later() -> None:
    """An example is a CPU that goes offline at the time of the newest sample."""
    a = time_axis.Axis(100 * S, S, 40, 100 * S)
    assert a.episode_cells(Episode("offline", [0], 100 * S)) is None
    assert a.episode_cells(Episode("offline", [0], 100 * S - 1)) == (range(39, 40), True)
    assert a.episode_cells(Episode("offline", [0], 0, 64 * S)) == (range(4), False)


@pytest.mark.parametrize(("at_s", "step_s", "drawn"), [
    (0.5, 0.1, "0.5 s"), (20, 5, "20 s"), (-1800, 600, "-30:00"), (7200, 7200, "2:00:00"),
])  # fmt: skip
def test_relative_times_on_a_long_axis_have_hours_and_minutes(
    at_s: float, step_s: float, drawn: str
) -> None:
    assert time_axis.relative_time(round(at_s * S), round(step_s * S)) == drawn


# --- values of bins


class EdgeHistory:
    """A history in which the values of each bin are its edges."""

    begin_ns = 500_000

    def __init__(self) -> None:
        self.looked_up = 0
        self.bins = time_axis.BinValues(self.edges)

    def edges(self, _: object, edges: Times) -> Floats:
        self.looked_up += len(edges) - 1
        return np.stack([edges[:-1], edges[1:]], axis=1).astype(float)

    def read(self, now_ns: int, bins: int = 8, bin_ns: int = 1000) -> int:
        """Returns the number of bins that were read; checks the values of all bins."""
        self.looked_up = 0
        axis = time_axis.Axis(-(-now_ns // bin_ns) * bin_ns, bin_ns, bins, now_ns)
        new_bins = self.bins.update(self, axis)  # type: ignore[arg-type]
        edges = axis.edges
        assert edges[-1] == now_ns
        assert self.bins.values.tolist() == np.stack([edges[:-1], edges[1:]], axis=1).tolist()
        assert new_bins == self.looked_up
        return new_bins


def test_only_the_newest_bins_are_read() -> None:
    history = EdgeHistory()
    moments = 20_000, 20_400, 20_900, 21_000, 21_000, 24_200, 25_000
    assert [history.read(now_ns) for now_ns in moments] == [8, 1, 1, 1, 0, 4, 1]


@pytest.mark.parametrize("now_ns", [20_399, 12_000, 28_001, 99_000])
def test_all_bins_are_read_for_earlier_and_much_later_times(now_ns: int) -> None:
    history = EdgeHistory()
    history.read(20_400)
    assert history.read(now_ns) == 8


def test_all_bins_are_read_if_they_or_the_start_of_the_history_changed() -> None:
    history = EdgeHistory()
    history.read(20_400)
    assert history.read(20_400, bins=5) == 5
    assert history.read(20_400, bins=5, bin_ns=2000) == 5
    history.begin_ns = 600_000  # the oldest part was dropped, but bins still show it
    assert history.read(20_500, bins=5, bin_ns=2000) == 1
    history.begin_ns = 100_000
    assert history.read(20_500, bins=5, bin_ns=2000) == 5


@pytest.mark.parametrize(("has_clock", "first_s", "text"), [
    (True, 1800, "13:00"), (False, 0, "0:00"),
])  # fmt: skip
def test_round_times_are_those_of_the_local_clock_or_of_the_axis(
    monkeypatch: pytest.MonkeyPatch, first_s: int, text: str, *, has_clock: bool
) -> None:
    """Local time is 5 h 30 min ahead of UTC. The axis begins at 7:00 UTC on a day that no other
    test shows, because offsets are cached."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "IST-5:30")
        time.tzset()
        unix_s = (lambda ns: 361_111 * 3600 + ns / 1e9) if has_clock else None
        moment = next(time_axis.round_times(0, 3600 * 10**9, unix_s))
    time.tzset()
    assert moment == (first_s * 10**9, text)
