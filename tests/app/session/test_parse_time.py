"""Times that a user types."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.session.navigation import parse_moment


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


def at(hour: int, minute: int, second: float = 0, day: int = 15) -> int:
    return int(time.mktime((2024, 3, day, hour, minute, 0, 0, 0, -1))) * S + round(second * S)


@pytest.mark.parametrize(
    ("text", "found"),
    [("11:58:30", (11, 58, 30)), ("11:58", (11, 58)), (" 11:58:30.5 ", (11, 58, 30.5)),
     ("-30s", (11, 58, 30)), ("-30", (11, 58, 30)), ("-1m", (11, 58)), ("+500ms", (11, 59, 0.5)),
     ("+1m", (12, 0)), ("-0.01h", (11, 58, 24)), ("11:50", (11, 50, 20)), ("12:00", (12, 0)),
     ("11:50:20", (11, 50, 20.25))],
)  # fmt: skip
def test_a_moment_is_read(text: str, found: tuple[float, ...]) -> None:
    first = at(11, 50, 20.25 if text == "11:50:20" else 20)
    hour, minute, *second = found
    assert parse_moment(text, at(11, 59), first, at(12, 0)) == at(
        int(hour), int(minute), sum(second)
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "12:03:05"), ("noon", "12:03:05"), ("-", "-30s"), ("12:", "12:03:05"), ("30s", "-30s"),
     ("25:00", "time of day"), ("11:60", "time of day"), ("11:58:60", "time of day"),
     ("12:01", "11:50:20.0 to 12:00:00.0"), ("-20m", "11:50:20.0"), ("+2m", "12:00:00.0"),
     ("11:49", "11:50:20.0"), ("11:50:19", "11:50:20.0"), ("-3x", "-30s")],
)  # fmt: skip
def test_what_is_no_moment_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_moment(text, at(11, 59), at(11, 50, 20), at(12, 0))


def test_a_time_of_day_may_be_yesterdays() -> None:
    night = at(23, 50), at(0, 10, day=16)
    assert parse_moment("23:55", at(0, 5, day=16), *night) == at(23, 55)
    assert parse_moment("0:05", at(23, 55), *night) == at(0, 5, day=16)


@pytest.mark.usefixtures("berlin")
def test_a_night_in_which_the_clock_is_changed() -> None:
    first = int(time.mktime((2024, 3, 31, 1, 30, 0, 0, 0, -1))) * S
    last = first + 3600 * S  # 3:30, for there was no 2
    assert parse_moment("3:15", last, first, last) == last - 15 * 60 * S
    assert parse_moment("1:45", last, first, last) == first + 15 * 60 * S


@given(st.text(max_size=20), st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_text_is_a_moment_that_is_kept_or_told_to_be_none(text: str, a: int, b: int) -> None:
    first, last = NOON - max(a, b) * S, NOON
    try:
        found = parse_moment(text, NOON - min(a, b) * S, first, last)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert first <= found <= last
