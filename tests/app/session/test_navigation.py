"""Navigation to episodes and to times that a user types."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from fakes import Machine, session_of_core
from hypothesis import given
from hypothesis import strategies as st
from sessions import session_of
from synth import SAMPLE_NS

from perftop.model.kinds import Episode
from perftop.session import selection
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.selection import parse_moment
from perftop.session.session import Session

SessionAndInterval = tuple[Session, Interval]


@pytest.fixture
def live_session() -> SessionAndInterval:
    """A session of 5 s, shown at its end, with episodes from 1 to 4 s."""
    session, interval = session_of_core(Machine(cores=2, ceiling_hz=3.0e9))
    session.ended.extend([episode(20, 32, 1), episode(10, 11, 0), episode(30, 30, 3)])
    session.detector.running.append(episode(48, None, 0))
    return session, interval


def episode(start: int, end: int | None, cpu: int) -> Episode:
    """Returns an episode; start and end are in samples."""
    end_ns = None if end is None else end * SAMPLE_NS
    return Episode("steal", [cpu], start * SAMPLE_NS, end_ns)


def visited_times(
    start: SessionAndInterval, episodes: list[Episode], direction: int
) -> list[float]:
    """Returns the visited times in order, in samples."""
    session, interval = start
    results: list[float] = []
    while True:
        moment = selection.nearest_moment(session, interval, episodes, direction)
        if moment is None:
            return results
        results.append(moment / SAMPLE_NS)
        past = session.interval_at(moment, 5 * SAMPLE_NS)
        assert past is not None
        interval = past


def test_each_moment_is_visited_once_in_both_directions(live_session: SessionAndInterval) -> None:
    session, _ = live_session
    episodes = selection.reachable_episodes(session)
    assert visited_times(live_session, episodes, 1) == []  # the newest moment is shown
    back = visited_times(live_session, episodes, -1)
    assert back == [30, 25, 11]
    first = session.interval_at(SAMPLE_NS * 2, SAMPLE_NS)
    assert first is not None
    assert visited_times((session, first), episodes, 1) == [11, 25, 30, 50]


@pytest.mark.parametrize(("start", "end"), [(20, 32), (10, 11), (30, 30), (20, 24), (44, None)])
def test_the_shown_interval_covers_the_episode(
    live_session: SessionAndInterval, start: int, end: int | None
) -> None:
    session, interval = live_session
    moment = selection.episode_moment(session, shown_episode := episode(start, end, 0), interval)
    shown = session.interval_at(moment, 5 * SAMPLE_NS)
    assert shown is not None
    since_ns = shown.time_ns - round(shown.elapsed_s * 1e9)
    assert since_ns <= shown_episode.start_ns <= shown.time_ns
    if end is None or end - start >= 5:
        assert since_ns == shown_episode.start_ns  # the whole interval is shown
    else:
        assert shown.time_ns == shown_episode.end_ns


def test_only_episodes_of_the_selected_cpus_are_visited(live_session: SessionAndInterval) -> None:
    session, _ = live_session
    assert visited_times(live_session, selection.reachable_episodes(session, [1, 3]), -1) == [
        30,
        25,
    ]
    assert visited_times(live_session, selection.reachable_episodes(session, [2]), -1) == []


def test_moments_dropped_from_history_are_not_visited() -> None:
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    session = Session(machine.hello, History(machine.hello, 200_000))
    session_of(session, [machine.frame(seq) for seq in range(500)])
    assert session.history is not None
    first = (session.history.first_ns or 0) // SAMPLE_NS
    assert first > 30
    session.ended.extend([episode(10, first - 1, 0), episode(20, first, 0)])
    session.ended.append(episode(first + 5, first + 9, 0))
    episodes = selection.reachable_episodes(session)
    assert episodes == session.ended[1:]
    assert visited_times((session, session.take_interval()), episodes, -1) == [first + 9, first]
    assert selection.reachable_episodes(Session(machine.hello)) == []


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


S = 10**9
NOON = int(time.mktime((2024, 3, 15, 12, 0, 0, 0, 0, -1))) * S


def unix_time(hour: int, minute: int, second: float = 0, day: int = 15) -> int:
    return int(time.mktime((2024, 3, day, hour, minute, 0, 0, 0, -1))) * S + round(second * S)


@pytest.mark.parametrize(("text", "expected_time"), [
    ("11:58:30", (11, 58, 30)), ("11:58", (11, 58)), (" 11:58:30.5 ", (11, 58, 30.5)),
    ("-30s", (11, 58, 30)), ("-30", (11, 58, 30)), ("-1m", (11, 58)), ("+500ms", (11, 59, 0.5)),
    ("+1m", (12, 0)), ("-0.01h", (11, 58, 24)), ("11:50", (11, 50, 20)), ("12:00", (12, 0)),
    ("11:50:20", (11, 50, 20.25)),
])  # fmt: skip
def test_times_are_parsed(text: str, expected_time: tuple[float, ...]) -> None:
    first = unix_time(11, 50, 20.25 if text == "11:50:20" else 20)
    hour, minute, *second = expected_time
    assert parse_moment(text, unix_time(11, 59), first, unix_time(12, 0)) == unix_time(
        int(hour), int(minute), sum(second)
    )


@pytest.mark.parametrize(("text", "message"), [
    ("", "12:03:05"), ("noon", "12:03:05"), ("-", "-30s"), ("12:", "12:03:05"), ("30s", "-30s"),
    ("25:00", "time of day"), ("11:60", "time of day"), ("11:58:60", "time of day"),
    ("12:01", "11:50:20.0 to 12:00:00.0"), ("-20m", "11:50:20.0"), ("+2m", "12:00:00.0"),
    ("11:49", "11:50:20.0"), ("11:50:19", "11:50:20.0"), ("-3x", "-30s"),
])  # fmt: skip
def test_invalid_times_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_moment(text, unix_time(11, 59), unix_time(11, 50, 20), unix_time(12, 0))


def test_a_time_of_day_may_be_that_of_yesterday() -> None:
    night = unix_time(23, 50), unix_time(0, 10, day=16)
    assert parse_moment("23:55", unix_time(0, 5, day=16), *night) == unix_time(23, 55)
    assert parse_moment("0:05", unix_time(23, 55), *night) == unix_time(0, 5, day=16)


@pytest.mark.usefixtures("berlin")
def test_clock_changes_at_night_are_handled() -> None:
    first = int(time.mktime((2024, 3, 31, 1, 30, 0, 0, 0, -1))) * S
    last = first + 3600 * S  # 3:30, since 2:30 did not exist
    assert parse_moment("3:15", last, first, last) == last - 15 * 60 * S
    assert parse_moment("1:45", last, first, last) == first + 15 * 60 * S


@given(st.text(max_size=20), st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_text_is_a_time_in_range_or_a_printable_error(text: str, a: int, b: int) -> None:
    first, last = NOON - max(a, b) * S, NOON
    try:
        result = parse_moment(text, NOON - min(a, b) * S, first, last)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert first <= result <= last
