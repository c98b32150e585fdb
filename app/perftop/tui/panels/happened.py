"""The panel "what happened": episodes. Running episodes come first and are red; ended episodes
follow, the newest first.

Episodes of one kind and cause that run at the same time, or that began together, share a line. The
worst running episodes have their cause and evidence below them if there is room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perftop.base.format import length, time_of_day
from perftop.draw.columns import Run, fit
from perftop.draw.strips import fit_runs, foreign
from perftop.model.episode import Episode
from perftop.output.sentences import cause, evidence, group, grouped, losers, sentence
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.panel import INDENT, MIN_HEIGHT_FOR_HEADINGS, PanelLine, title, wrapped
from perftop.tui.shared import episode_style
from perftop.tui.shared.choice import Choice

_CLOCK = 8
"""Width of a time of day, in cells."""
_LABEL = 10
"""Width of the labels "cause" and "evidence", in cells."""
_MIN_WIDTH_FOR_EVIDENCE = 48
_MAX_ENDED = 64
"""Maximum number of ended episodes that are read, the newest; no panel has as many lines."""
_TOGETHER_NS = 1_000_000_000
"""Maximum time between the starts of ended episodes of one cause that share a line, in ns."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The episodes at the end of an interval, in groups; each group has one line."""

    running: list[list[Episode]]
    """Groups of running episodes, the costliest first."""
    ended: list[list[Episode]]
    """Groups of ended episodes, the newest first."""
    count: int
    """Number of all episodes so far; each group counts as one episode, and older episodes are not
    grouped."""


def lines(
    session: Session, interval: Interval, choice: Choice, size: int, height: int  # noqa: ARG001
) -> list[PanelLine]:  # fmt: skip
    groups = grouped_at(session, interval)
    lasted = length(max(0, interval.time_ns - session.hello.raw_ns))
    rest = f"{groups.count} in {lasted}" if groups.count else "nothing yet"
    found: list[PanelLine] = [(title("what happened", rest, size), None)]
    if height >= MIN_HEIGHT_FOR_HEADINGS and groups.count:
        heading = fit(" " * INDENT + f"{'since':<{_CLOCK}}  what", size - 8)
        found.append(([(heading + "how long"[: max(0, size)], "dim")], None))
    room = max(0, height - len(found))
    running = groups.running[:room]
    spare = room - len(running) - min(len(groups.ended), room // 2)
    for alike in running:
        found.append((_line(session, interval, alike, size, running=True), alike[0]))
        if size >= _MIN_WIDTH_FOR_EVIDENCE and spare > 0:
            why = because(alike[0], size, spare)
            spare -= len(why)
            found += [(runs, alike[0]) for runs in why]
    for alike in groups.ended[: max(0, height - len(found))]:
        found.append((_line(session, interval, alike, size, running=False), alike[0]))
    return found


def grouped_at(session: Session, interval: Interval) -> Groups:
    """Returns the groups of episodes that run at the end of the interval, and of episodes that have
    ended by then."""
    now_ns = interval.time_ns
    ended, marks = session.ended, session.marks
    forgotten = session.log.since(1 << 62)[1] - len(ended) if session.log.recording is None else 0
    over = bisect_right(ended, now_ns, key=lambda e: e.end_ns or 0)
    named = bisect_right(marks, now_ns, key=lambda e: e.start_ns)
    past = ended[max(0, over - _MAX_ENDED) : over] + marks[max(0, named - _MAX_ENDED) : named]
    past.sort(key=lambda e: -e.start_ns)
    running, gone = grouped(session.episodes(now_ns, now_ns)), _together(past)
    older = forgotten + over + named - len(past)
    return Groups(running, gone, len(running) + len(gone) + older)


def _together(newest: Iterable[Episode]) -> list[list[Episode]]:
    """Returns groups of episodes that have one cause and began together. `newest`: the episodes,
    the newest first."""
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


def _line(
    session: Session, interval: Interval, alike: Sequence[Episode], size: int, *, running: bool
) -> list[Run]:
    """Returns the line of a group: marker, start, description and length. The line is red while the
    episodes run, grey once they have ended."""
    first = min(alike, key=lambda e: e.start_ns)
    style = episode_style.severity(first) if running else "dim"
    ends_ns = [interval.time_ns if running or e.end_ns is None else e.end_ns for e in alike]
    lasted_ns = max(ends_ns) - first.start_ns
    lasted = length(lasted_ns) if lasted_ns > 0 else ""
    gap = "  " if size >= _MIN_WIDTH_FOR_EVIDENCE else " "
    room = size - INDENT - _CLOCK - 2 * len(gap) - len(lasted)
    return [
        (f"{episode_style.sign(first)} ", style),
        (f"{time_of_day(session.unix(first.start_ns)):<{_CLOCK}}{gap}", style),
        *(_what(session, interval, alike, room, running=running) if room > 0 else ()),
        (f"{gap}{lasted}", style),
    ]


def _what(
    session: Session, interval: Interval, alike: Sequence[Episode], room: int, *, running: bool
) -> list[Run]:
    """Returns a sentence on a group of episodes, in exactly `room` cells."""
    wrong = episode_style.wrong(alike[0])
    if running:
        names = losers(session, alike, interval.tasks)
        parts = sentence(session.topology, alike, names, most=room)
        style = "bright" if wrong else "text"
    else:
        parts = episode_style.ended_sentence(session, alike, room)
        style = "text" if wrong else "dim"
    red = "alarm" if running and wrong else style
    runs = [(foreign(part.text), red if part.role == "lost" else style) for part in parts]
    return fit_runs(runs, room, style)


def because(
    episode: Episode, size: int, height: int, indent: int = INDENT + _CLOCK + 2
) -> list[list[Run]]:
    """Returns the cause and the evidence of an episode in at most `height` lines of `size` cells,
    each with a label before it. An ellipsis shows that the evidence was cut."""
    why = cause(episode.kind, episode.cause)
    if why and episode.confidence != "unknown":
        why = f"{why}, {episode.confidence}"
    text = evidence(episode.cause, episode.evidence)
    room = max(1, size - indent - _LABEL)
    pieces = [("cause", why)] if why and episode.cause != "unknown" else []
    rest = wrapped(foreign(text), room) if text else []
    left = max(0, height - len(pieces))
    if len(rest) > left > 0:
        rest[left - 1] = fit(f"{rest[left - 1]} ·…", room)
    pieces += [("" if i else "evidence", piece) for i, piece in enumerate(rest[:left])]
    return [
        [(f"{'':{indent}}{name:<{_LABEL}}", "dim"), (text, "text")]
        for name, text in pieces[:height]
    ]
