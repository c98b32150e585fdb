"""Parses a time that a user types into a moment that history keeps."""

from __future__ import annotations

import re
import time

from perftop.base.format import when
from perftop.session.interval import Interval
from perftop.session.session import Session

HINT = "12:03:05, 12:03, -30s or -2m"
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,9})?))?")
_SPAN = re.compile(r"([+-])([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)?")
_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def moment(text: str, shown_ns: int, first_ns: int, last_ns: int) -> int:
    """Unix ns. A time of day is the latest one until the newest sample, a span counts from what is
    shown, in seconds if it has no unit. ValueError: one line for the user."""
    text = text.strip()
    if match := _SPAN.fullmatch(text):
        sign, number, unit = match.groups()
        span_ns = round(float(number) * _NS[unit or "s"])
        found = end = shown_ns + span_ns if sign == "+" else shown_ns - span_ns
    elif match := _CLOCK.fullmatch(text):
        found, end = _of_day(match, last_ns)
    else:
        raise ValueError(f"no time: {HINT}")
    if end < first_ns or found > last_ns:
        raise ValueError(f"history holds {when(first_ns / 1e9)} to {when(last_ns / 1e9)}")
    return max(found, first_ns)


def _of_day(match: re.Match[str], last_ns: int) -> tuple[int, int]:
    """First and last of what it may mean: 12:03 is a whole minute."""
    hour, minute, second = int(match[1]), int(match[2]), float(match[3] or 0)
    if hour > 23 or minute > 59 or second >= 60:
        raise ValueError(f"not a time of day: {HINT}")
    day = time.localtime(last_ns // 10**9)
    for ago in (0, 1):
        date = (day.tm_year, day.tm_mon, day.tm_mday - ago)
        whole = time.mktime((*date, hour, minute, 0, 0, 0, -1))
        found = int(whole) * 10**9 + round(second * 1e9)
        if found <= last_ns:
            break
    return found, found + _NS["s" if match[3] else "m"] - 1


def typed(
    text: str, session: Session, interval: Interval, reach_ns: tuple[int, int] | None = None
) -> int:
    """Raw ns; seen from `interval`. `reach_ns`: from where to where one can go, if not only in what
    the session keeps. ValueError: one line for the user."""
    history = session.history
    if reach_ns is None and history is not None and history.first_ns is not None:
        reach_ns = history.first_ns, history.last_ns or history.first_ns
    if reach_ns is None:
        raise ValueError("no history is kept")
    ahead_ns = session.hello.wall_ns - session.hello.raw_ns
    known = interval.time_ns, *reach_ns
    return moment(text, *(raw_ns + ahead_ns for raw_ns in known)) - ahead_ns
