"""The panel "what happened": episodes, those that run first and red, then the newest.

The worst running episode has its cause and evidence below it where there is room.
"""

from __future__ import annotations

from heapq import nlargest
from itertools import islice

from perftop.base.times import clock, length
from perftop.draw.strips import Run, fit, foreign
from perftop.output.episode_words import cause, depth, evidence, where
from perftop.samples.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.panel import INDENT, LOW, sized, title
from perftop.tui.shared import episode_style

Told = tuple[list[Run], Episode | None]
"""A line, and the episode that it belongs to."""

_CLOCK, _LONG, _MUCH = 8, 8, 11
"""Cells of a time of day, of a length and of a depth."""
_WIDE = 48
"""Minimum width for the depth and for evidence."""
_LABEL = 10
"""Cells of "cause" and "evidence"."""
_LOOKED = 64
"""Ended episodes looked at, the newest: more than any panel has lines."""


def lines(session: Session, interval: Interval, width: int, height: int) -> list[list[Run]]:
    """The panel, exactly `width` cells by `height` lines."""
    told = _told(session, interval, width, height)
    return sized([line for line, _ in told], width, height)


def episodes(session: Session, interval: Interval, width: int, height: int) -> list[Episode | None]:
    """By line of the panel, the episode that is told there; None where there is none."""
    found = [episode for _, episode in _told(session, interval, width, height)]
    return (found + [None] * height)[:height]


def _told(session: Session, interval: Interval, width: int, height: int) -> list[Told]:
    running, over, count = _known(session, interval)
    lasted = length(max(0, interval.time_ns - session.hello.raw_ns)).removesuffix(" 00 s")
    rest = f"{count} in {lasted}" if count else "nothing yet"
    found: list[Told] = [(title("what happened", rest, width), None)]
    if height >= LOW and count:
        found.append((_heading(width), None))
    room = height - len(found)
    found += [(_line(session, interval, e, width, going=True), e) for e in running[:room]]
    spare = room - min(room, len(running)) - min(4, len(over))
    if running and width >= _WIDE and spare > 0:
        at = len(found) - min(room, len(running)) + 1
        found[at:at] = _because(running[0], width)[:spare]
    room = max(0, height - len(found))
    found += [(_line(session, interval, e, width, going=False), e) for e in over[:room]]
    return found


def _known(session: Session, interval: Interval) -> tuple[list[Episode], list[Episode], int]:
    """Episodes that run at the end of the interval, the worst first; the newest that are over by
    then; and the number of all."""
    now_ns = interval.time_ns
    live = now_ns >= session.now_ns
    ended = islice(reversed(session.ended), _LOOKED) if live else session.ended
    begun = [e for e in (*ended, *session.running) if e.start_ns <= now_ns]
    running = sorted((e for e in begun if episode_style.going(e, interval)),
                     key=episode_style.rank)  # fmt: skip
    past = [e for e in begun if not episode_style.going(e, interval)]
    past += [mark for mark in session.marks[-_LOOKED:] if mark.start_ns <= now_ns]
    if live:
        count = session.episodes_since(1 << 62)[1] + len(session.running) + len(session.marks)
    else:
        count = len(running) + len(past)
    return running, nlargest(_LOOKED, past, key=lambda e: e.start_ns), count


def _heading(width: int) -> list[Run]:
    much = f"{'how much':>{_MUCH}}  " if width >= _WIDE else ""
    right = f"{much}{'how long':>{_LONG}}"
    left = " " * INDENT + f"{'since':<{_CLOCK}}  what"
    return [(fit(left, width - len(right)) + right, "dim")]


def _line(
    session: Session, interval: Interval, episode: Episode, width: int, *, going: bool
) -> list[Run]:
    """Sign, since when, what, how much and how long; red while it runs, grey once it is over."""
    key = episode_style.severity(episode) if going else "dim"
    sign = (f"{episode_style.sign(episode)} ", key)
    since: Run = (f"{clock(session.unix(episode.start_ns)):<{_CLOCK}}", key)
    end_ns = episode.end_ns if episode.end_ns is not None and not going else interval.time_ns
    lasted = length(end_ns - episode.start_ns) if end_ns > episode.start_ns else ""
    much = f"{depth(episode.kind, episode.depth):>{_MUCH}}  " if width >= _WIDE else ""
    right = f"{much}{lasted:>{_LONG}}"
    gap = "  " if width >= _WIDE else " "
    room = width - INDENT - _CLOCK - len(gap) - len(right) - 1
    what = fit(_sentence(session, episode), room) if room > 0 else ""
    bold = "bright" if going and episode_style.wrong(episode) else "text" if going else "dim"
    return [sign, since, (gap, "text"), (what, bold), (" ", "text"), (right, key)]


def _sentence(session: Session, episode: Episode) -> str:
    if episode.kind == "mark":
        return foreign(episode.evidence.get("label", ""))
    return foreign(f"{episode.kind}, {where(session.topology, episode.cpus)}")


def _because(episode: Episode, width: int) -> list[Told]:
    """Cause and evidence, each with its name before it."""
    why = cause(episode.kind, episode.cause)
    if why and episode.confidence != "unknown":
        why = f"{why}, {episode.confidence}"
    found: list[Told] = []
    before = INDENT + _CLOCK + 2
    room = width - before - _LABEL
    for name, text in (("cause", why), ("evidence", evidence(episode.cause, episode.evidence))):
        if text and room > 0:
            shown = fit(foreign(text), room)
            found.append(([(" " * before + f"{name:<{_LABEL}}", "dim"), (shown, "text")], episode))
    return found
