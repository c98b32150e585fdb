"""The panel "what happened": episodes, those that run first and red, then the newest.

Episodes of one kind and cause that run together, or that began together, are one line. The worst
running ones have their cause and evidence below them where there is room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from perfprobe.frozen import frozen
from perftop.base.format import length, time_of_day
from perftop.draw.strips import Run, fit, foreign
from perftop.model.episode import Episode
from perftop.output.sentences import (
    STOLEN,
    cause,
    evidence,
    group,
    grouped,
    losers,
    lost,
    sentence,
    where_briefly,
)
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.panel import INDENT, LOW, sized, title, wrapped
from perftop.tui.shared import episode_style, past_sentences

Told = tuple[list[Run], Episode | None]
"""A line, and the episode that it belongs to."""

_CLOCK = 8
"""Cells of a time of day."""
_LABEL = 10
"""Cells of "cause" and "evidence"."""
_EVIDENCE = 48
"""Minimum width for causes and evidence."""
_LOOKED = 64
"""Ended episodes looked at, the newest: more than any panel has lines."""
_TOGETHER_NS = 1_000_000_000
"""Ended episodes of one cause whose starts are no further apart are one line."""


@frozen
class Known:
    """What is known at the end of an interval; groups are told in one line each."""

    running: list[list[Episode]]
    """The costliest group first."""
    over: list[list[Episode]]
    """The newest group first."""
    count: int
    """Number of all so far: of lines, and of older episodes that nobody has grouped."""


def lines(session: Session, interval: Interval, width: int, height: int) -> list[list[Run]]:
    """The panel, exactly `width` cells by `height` lines."""
    return sized([line for line, _ in _told(session, interval, width, height)], width, height)


def episodes(session: Session, interval: Interval, width: int, height: int) -> list[Episode | None]:
    """By line of the panel, the episode that is told there; None where there is none."""
    found = [episode for _, episode in _told(session, interval, width, height)]
    return (found + [None] * height)[:height]


def known(session: Session, interval: Interval) -> Known:
    """What runs at the end of the interval, and what is over by then."""
    now_ns = interval.time_ns
    ended, marks = session.ended, session.marks
    forgotten = session.episodes_since(1 << 62)[1] - len(ended) if session.file is None else 0
    over = bisect_right(ended, now_ns, key=lambda e: e.end_ns or 0)
    named = bisect_right(marks, now_ns, key=lambda e: e.start_ns)
    running = session.episodes(now_ns, now_ns)
    past = ended[max(0, over - _LOOKED) : over] + marks[max(0, named - _LOOKED) : named]
    past.sort(key=lambda e: -e.start_ns)
    told, gone = grouped(running), _together(past)
    older = forgotten + over + named - len(past)
    return Known(told, gone, len(told) + len(gone) + older)


def _together(newest: Iterable[Episode]) -> list[list[Episode]]:
    """Groups of episodes, sorted by their start, that have one cause and began together."""
    found: list[list[Episode]] = []
    last: dict[tuple[str, str], list[Episode]] = {}
    for episode in newest:
        key = group(episode)
        alike = last.get(key) if episode.kind != "mark" else None
        if alike is not None and alike[-1].start_ns - episode.start_ns <= _TOGETHER_NS:
            alike.append(episode)
        else:
            last[key] = [episode]
            found.append(last[key])
    return found


def _told(session: Session, interval: Interval, width: int, height: int) -> list[Told]:
    here = known(session, interval)
    lasted = length(max(0, interval.time_ns - session.hello.raw_ns))
    rest = f"{here.count} in {lasted}" if here.count else "nothing yet"
    found: list[Told] = [(title("what happened", rest, width), None)]
    if height >= LOW and here.count:
        found.append((_heading(width), None))
    room = max(0, height - len(found))
    shown = here.running[:room]
    spare = room - len(shown) - min(len(here.over), room // 2)
    for alike in shown:
        found.append((_line(session, interval, alike, width, going=True), alike[0]))
        if width >= _EVIDENCE and spare > 0:
            why = [(line, alike[0]) for line in because(alike[0], width, spare)]
            spare -= len(why)
            found += why
    over = here.over[: max(0, height - len(found))]
    found += [(_line(session, interval, each, width, going=False), each[0]) for each in over]
    return found


def _heading(width: int) -> list[Run]:
    left = " " * INDENT + f"{'since':<{_CLOCK}}  what"
    return [(fit(left, width - 8) + "how long"[: max(0, width)], "dim")]


def _line(
    session: Session, interval: Interval, alike: Sequence[Episode], width: int, *, going: bool
) -> list[Run]:
    """Sign, since when, what and how long; red while it runs, grey once it is over."""
    first = min(alike, key=lambda e: e.start_ns)
    key = episode_style.severity(first) if going else "dim"
    ends_ns = [interval.time_ns if going or e.end_ns is None else e.end_ns for e in alike]
    lasted_ns = max(ends_ns) - first.start_ns
    lasted = length(lasted_ns) if lasted_ns > 0 else ""
    gap = "  " if width >= _EVIDENCE else " "
    room = width - INDENT - _CLOCK - 2 * len(gap) - len(lasted)
    return [
        (f"{episode_style.sign(first)} ", key),
        (f"{time_of_day(session.unix(first.start_ns)):<{_CLOCK}}{gap}", key),
        *_sentence(session, interval, alike, room, going=going),
        (f"{gap}{lasted}", key),
    ]


def _sentence(
    session: Session, interval: Interval, alike: Sequence[Episode], room: int, *, going: bool
) -> list[Run]:
    """What happened in exactly `room` cells: as a sentence, or in a few words if it is too long."""
    if room <= 0:
        return []
    if not going:
        parts = past_sentences.over(session, alike, room)
        plain = "text" if episode_style.wrong(alike[0]) else "dim"
    else:
        names = losers(session, alike, interval.tasks)
        parts = sentence(session.topology, alike, names, most=room)
        plain = "bright" if episode_style.wrong(alike[0]) else "text"
    red = "alarm" if going and episode_style.wrong(alike[0]) else plain
    runs = [(foreign(part.text), red if part.role == "lost" else plain) for part in parts]
    size = sum(len(part) for part, _ in runs)
    if size <= room:
        return [*runs, (" " * (room - size), "text")]
    return [(fit(_brief(session, alike, room), room), plain)]


def _brief(session: Session, alike: Sequence[Episode], room: int) -> str:
    """Kind, loss and place, as much as fits into `room` cells."""
    worst = max(alike, key=lambda e: e.depth or 0.0)
    if worst.kind == "mark":
        return foreign(str(worst.evidence.get("label", "")))
    cpus = {cpu for episode in alike for cpu in episode.cpus}
    place = where_briefly(session.topology, cpus, worst.cpus[0] if worst.cpus else None)
    kind = STOLEN[0] if group(worst) == STOLEN else worst.kind
    loss = lost(worst)
    much = f"{kind} {loss}" if loss else kind
    tries = (f"{much}, {place}", f"{loss} lost, {place}" if loss else "", f"{kind}, {place}", much)
    return foreign(next((text for text in tries if 0 < len(text) <= room), kind))


def because(
    episode: Episode, width: int, most: int, indent: int = INDENT + _CLOCK + 2
) -> list[list[Run]]:
    """Cause and evidence in at most `most` lines of `width` cells, each with its name before it; a
    cut of the evidence is marked."""
    why = cause(episode.kind, episode.cause)
    if why and episode.confidence != "unknown":
        why = f"{why}, {episode.confidence}"
    told = evidence(episode.cause, episode.evidence)
    before = " " * indent
    room = max(1, width - indent - _LABEL)
    pieces = [("cause", why)] if why and episode.cause != "unknown" else []
    rest = wrapped(foreign(told), room) if told else []
    left = max(0, most - len(pieces))
    if len(rest) > left > 0:
        rest[left - 1] = fit(f"{rest[left - 1]} ·…", room)
    pieces += [("" if i else "evidence", piece) for i, piece in enumerate(rest[:left])]
    return [[(f"{before}{name:<{_LABEL}}", "dim"), (text, "text")] for name, text in pieces[:most]]
