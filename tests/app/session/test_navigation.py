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
from perftop.session.selection import parse_moment
from perftop.session.session import Session


@pytest.fixture
def live_session() -> Session:
    """A session of 5 s, with episodes from 1 to 4 s."""
    session, _ = session_of_core(Machine(cores=2, ceiling_hz=3.0e9))
    session.ended.extend([episode(20, 32, 1), episode(10, 11, 0), episode(30, 30, 3)])
    session.detector.running.append(episode(48, None, 0))
    return session


def episode(start: float, end: float | None, cpu: int, kind: str = "steal") -> Episode:
    """Returns an episode; start and end are in samples."""
    start_ns, end_ns = round(start * SAMPLE_NS), None if end is None else round(end * SAMPLE_NS)
    return Episode(kind, [cpu], start_ns, end_ns)


def visited_ranges(
    session: Session, shown: int, episodes: list[Episode], direction: int
) -> list[tuple[int, int]]:
    """Returns the visited ranges in order, in samples. `shown`: the sample shown at first."""
    ranges, shown_ns = list[tuple[int, int]](), shown * SAMPLE_NS
    while (
        ends_ns := selection.nearest_episode(session, shown_ns, episodes, direction)
    ) is not None:
        first_ns, last_ns = ends_ns
        ranges.append((first_ns // SAMPLE_NS, last_ns // SAMPLE_NS))
        shown_ns = first_ns
        if last_ns > first_ns:
            interval = session.interval_at(last_ns, last_ns - first_ns)
            assert interval is not None
            shown_ns = interval.time_ns - round(interval.elapsed_s * 1e9)
    return ranges


def test_each_episode_is_visited_once_in_both_directions(live_session: Session) -> None:
    episodes = selection.reachable_episodes(live_session)
    assert visited_ranges(live_session, 50, episodes, 1) == []  # the newest moment is shown
    expected = [(10, 11), (20, 32), (30, 31), (48, 50)]
    assert visited_ranges(live_session, 50, episodes, -1) == expected[::-1]
    assert visited_ranges(live_session, 2, episodes, 1) == expected


@pytest.mark.parametrize(("start", "end", "kind", "expected"), [
    (20, 32, "steal", (20, 32)), (20.4, 31.6, "steal", (20, 32)), (30, 30, "steal", (30, 31)),
    (44, None, "steal", (44, 50)), (50, None, "steal", (49, 50)), (-9, 3, "steal", (0, 3)),
    (30, 30, "mark", (30, 30)), (30.4, 30.4, "mark", (30, 30)),
])  # fmt: skip
def test_the_range_of_an_episode_is_all_samples_in_which_it_ran(
    live_session: Session, start: float, end: float | None, kind: str, expected: tuple[int, int]
) -> None:
    times, shown_episode = live_session.past.times(), episode(start, end, 0, kind)
    ends_ns = selection.episode_range(live_session, shown_episode, times)
    first_sample = times[0] // SAMPLE_NS
    assert tuple(ns // SAMPLE_NS for ns in ends_ns) == tuple(max(first_sample, n) for n in expected)
    assert selection.episode_range(live_session, shown_episode, times[:1]) == (*times[:1],) * 2


def test_of_a_long_episode_the_part_that_can_be_read_quickly_is_shown(
    live_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, long_episode = live_session.past.times(), episode(10, 48, 0)
    monkeypatch.setattr(selection, "MAX_SHOWN_EPISODE_NS", 20 * SAMPLE_NS)
    ends_ns = selection.episode_range(live_session, long_episode, times)
    assert ends_ns == (10 * SAMPLE_NS, 30 * SAMPLE_NS)
    monkeypatch.setattr(selection, "MAX_REREAD_VALUES", 5 * len(live_session.topology))
    ends_ns = selection.episode_range(live_session, long_episode, times)
    assert ends_ns == (10 * SAMPLE_NS, 15 * SAMPLE_NS)


def test_only_episodes_of_the_selected_cpus_are_visited(live_session: Session) -> None:
    for cpus, expected in (([1, 3], [(30, 31), (20, 32)]), ([2], [])):
        episodes = selection.reachable_episodes(live_session, cpus)
        assert visited_ranges(live_session, 50, episodes, -1) == expected


def test_episodes_dropped_from_history_are_not_visited() -> None:
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    session = Session(machine.hello, History(machine.hello, 200_000))
    session_of(session, [machine.frame(seq) for seq in range(500)])
    first = (session.past.first_ns or 0) // SAMPLE_NS
    assert first > 30
    session.ended.extend([episode(10, first - 1, 0), episode(20, first, 0)])
    session.ended.append(episode(first + 5, first + 9, 0))
    episodes = selection.reachable_episodes(session)
    assert episodes == session.ended[1:]
    expected = [(first + 5, first + 9), (first, first + 1)]
    assert visited_ranges(session, 499, episodes, -1) == expected
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
    ("11:50:20", (11, 50, 20.25)), ("-520s", (11, 50, 20)), ("11:59", (11, 59)),
])  # fmt: skip
def test_times_are_parsed(text: str, expected_time: tuple[float, ...]) -> None:
    first = unix_time(11, 50, 20.25 if text == "11:50:20" else 20)
    hour, minute, *second = expected_time
    assert parse_moment(text, unix_time(11, 59), first, unix_time(12, 0)) == unix_time(
        int(hour), int(minute), sum(second)
    )


@pytest.mark.parametrize(("text", "message"), [
    ("", "12:03:05"), ("noon", "12:03:05"), ("-", "-30s"), ("12:", "12:03:05"), ("30s", "-30s"),
    ("24:00", "time of day"), ("11:60", "time of day"), ("11:58:60", "time of day"),
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
