"""Where to go to see an episode: the moment at which the numbers show it, and from one episode
to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perftop.model.episode import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session


def reachable(session: Session, cpus: Iterable[int] | None = None) -> list[Episode]:
    """Episodes on some of these CPUs (None: on any) that can be shown, and marks."""
    wanted = None if cpus is None else set(cpus)
    return [
        episode
        for episode in (*session.ended, *session.running, *session.marks)
        if reaches(session, episode)
        and (wanted is None or not episode.cpus or not wanted.isdisjoint(episode.cpus))
    ]


def reaches(session: Session, episode: Episode) -> bool:
    """Whether the episode can be shown: history still has it, or a recording."""
    if session.file is not None:
        return True
    first_ns = session.history.first_ns if session.history is not None else None
    return first_ns is not None and (episode.end_ns is None or episode.end_ns >= first_ns)


def moment(session: Session, episode: Episode, interval: Interval) -> int:
    """Raw ns. An interval of as many samples as this one that ends there begins with the episode;
    of a short one it is the end."""
    sample_ns = session.hello.sample_ns
    samples = max(1, round(interval.elapsed_s * 1e9 / sample_ns))
    full_ns = episode.start_ns + samples * sample_ns + sample_ns // 2  # samples come a bit late
    return full_ns if episode.end_ns is None else min(full_ns, episode.end_ns)


def beside(
    session: Session, interval: Interval, episodes: Iterable[Episode], by: int
) -> int | None:
    """The moment of the next one after this interval, or for -1 of the last one before it; None:
    there is none."""
    if session.history is None:
        return None
    times = session.history.times()
    wanted = [moment(session, episode, interval) for episode in episodes]
    if not len(times) or not wanted:
        return None
    # As the samples fall: else one would come back to the moment that is shown already.
    at = (times.searchsorted(wanted, side="right") - 1).clip(0)
    found = times[at]
    there = found[found > interval.time_ns] if by > 0 else found[found < interval.time_ns]
    if not len(there):
        return None
    return int(there.min() if by > 0 else there.max())
