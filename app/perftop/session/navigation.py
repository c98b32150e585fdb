"""Moments of history to jump to: those of episodes, and those that the user types."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perftop.base.text import clock_time

if TYPE_CHECKING:
    from perftop.model.kinds import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session

MOMENT_HINT = "12:03:05, 12:03, -30s or -2m"
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,9})?))?")
_SPAN = re.compile(r"([+-])([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)?")
_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def reachable_episodes(session: Session, cpus: Iterable[int] | None = None) -> list[Episode]:
    """Marks, and episodes on at least one of these CPUs (None: any CPU), that can be shown."""
    asked_cpus = None if cpus is None else set(cpus)
    return [
        episode for episode in (*session.ended, *session.running, *session.marks)
        if is_reachable(session, episode)
        and (asked_cpus is None or not episode.cpus or not asked_cpus.isdisjoint(episode.cpus))
    ]  # fmt: skip


def is_reachable(session: Session, episode: Episode) -> bool:
    """Whether the episode can be shown, because it is still in history or in a recording."""
    if session.log.recording is not None:
        return True
    first_ns = session.history.first_ns if session.history is not None else None
    return first_ns is not None and (episode.end_ns is None or episode.end_ns >= first_ns)


def moment_of(session: Session, episode: Episode, interval: Interval) -> int:
    """The moment in raw ns at which to show an episode. An interval with as many samples as
    `interval` that ends there begins with the episode; for a shorter episode the moment is its end.
    """
    sample_ns = session.hello.sample_ns
    samples = max(1, round(interval.elapsed_s * 1e9 / sample_ns))
    full_ns = episode.start_ns + samples * sample_ns + sample_ns // 2  # samples arrive a bit late
    return full_ns if episode.end_ns is None else min(full_ns, episode.end_ns)


def nearest_moment(
    session: Session, interval: Interval, episodes: Iterable[Episode], by: int
) -> int | None:
    """The moment of the next episode after this interval, or, if `by` is -1, of the last episode
    before it; None: there is none."""
    if session.history is None:
        return None
    times = session.history.times()
    starts = [moment_of(session, episode, interval) for episode in episodes]
    if not len(times) or not starts:
        return None
    # Use the ends of samples; otherwise navigation would return to the moment already shown.
    moments = times[(times.searchsorted(starts, side="right") - 1).clip(0)]
    is_beyond = moments > interval.time_ns if by > 0 else moments < interval.time_ns
    if not is_beyond.any():
        return None
    return int(moments[is_beyond].min() if by > 0 else moments[is_beyond].max())


def typed_moment(
    text: str, session: Session, interval: Interval, reach_ns: tuple[int, int] | None = None
) -> int:
    """The typed moment in raw ns, relative to `interval`. `reach_ns`: the range of possible
    moments; None: the session's history. ValueError: one line for the user."""
    history = session.history
    if reach_ns is None and history is not None and history.first_ns is not None:
        reach_ns = history.first_ns, history.last_ns or history.first_ns
    if reach_ns is None:
        raise ValueError("no history is kept")
    ahead_ns = session.hello.wall_ns - session.hello.raw_ns
    known_times = interval.time_ns, *reach_ns
    return parse_moment(text, *(raw_ns + ahead_ns for raw_ns in known_times)) - ahead_ns


def parse_moment(text: str, shown_ns: int, first_ns: int, last_ns: int) -> int:
    """The typed moment in Unix ns. A time of day means its latest occurrence before the newest
    sample. A span counts from the moment shown, in seconds if it has no unit. ValueError: one line
    for the user."""
    text = text.strip()
    if match := _SPAN.fullmatch(text):
        sign, number, unit = match.groups()
        span_ns = round(float(number) * _NS[unit or "s"])
        start = end = shown_ns + span_ns if sign == "+" else shown_ns - span_ns
    elif match := _CLOCK.fullmatch(text):
        hour, minute, second = int(match[1]), int(match[2]), float(match[3] or 0)
        if hour > 23 or minute > 59 or second >= 60:
            raise ValueError(f"invalid time of day (try {MOMENT_HINT})")
        day = time.localtime(last_ns // 10**9)
        for days_ago in (0, 1):
            date = (day.tm_year, day.tm_mon, day.tm_mday - days_ago)
            whole_s = time.mktime((*date, hour, minute, 0, 0, 0, -1))
            start = int(whole_s) * 10**9 + round(second * 1e9)
            if start <= last_ns:
                break
        end = start + _NS["s" if match[3] else "m"] - 1  # 12:03 is a whole minute
    else:
        raise ValueError(f"invalid time (try {MOMENT_HINT})")
    if end < first_ns or start > last_ns:
        raise ValueError(
            f"history holds {clock_time(first_ns / 1e9)} to {clock_time(last_ns / 1e9)}"
        )
    return max(start, first_ns)
