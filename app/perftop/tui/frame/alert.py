"""The alert line: a sentence on the worst running episode with its evidence, or a message. For a
minute after the last episode has ended, the line shows that episode in dim text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perftop.base import findings
from perftop.base.format import length, running
from perftop.draw import theme
from perftop.draw.columns import Run, fit
from perftop.draw.strips import foreign, width
from perftop.model.episode import rank
from perftop.output import sentences
from perftop.output.sentences import cost, grouped, pieces, where_briefly
from perftop.tui.frame.status import Status
from perftop.tui.shared import episode_style

if TYPE_CHECKING:
    from perftop.draw.theme import Mood
    from perftop.model.episode import Episode
    from perftop.session.interval import Interval, Tasks
    from perftop.session.session import Session

WARNING_NS = 10_000_000_000
"""How long a warning is shown, in ns."""
LAST_NS = 60_000_000_000
"""How long the last episode is shown after its end, in ns."""
MIN_SENTENCE = len("involuntary-halt")
"""Minimum characters for a sentence on the last episode; the name of any kind of episode fits,
without its CPUs and its loss."""


class AlertLine(NamedTuple):
    """The alert line and its mood, which sets its background; a harmful episode has a background of
    its own."""

    runs: list[Run]
    mood: Mood = "calm"


def line(
    session: Session | None, interval: Interval | None, status: Status, size: int,
    episodes: str = "5",
) -> AlertLine:  # fmt: skip
    """Returns the alert line. `episodes`: displayed name of the key that lists all episodes."""
    if status.failed is not None:
        return AlertLine(_failed(status, interval, size))
    if (link := status.link) is not None and link.down:
        when = f"next try in {link.next_s:.0f} s" if link.next_s else "trying again"
        return _message(f" {when} · {link.down}", "alarm", size)
    if status.notice:
        failed = status.recording == ""
        return _message(f" {status.notice}", "alarm" if failed else "text", size)
    if session is None:
        return AlertLine([])
    replay = status.replay
    if replay is not None and replay.over and replay.damage is not None:
        return _message(f" {theme.DROPPED} the recording is {replay.damage}", "alarm", size)
    past = status.paused is not None or replay is not None
    now_ns = interval.time_ns if interval is not None and past else session.now_ns
    # An episode's length is up to the end of the interval, so that it equals that in the panels.
    shown_ns = now_ns if interval is None else interval.time_ns
    groups = grouped(going_on(session, interval, status))
    if wrong := [alike for alike in groups if episode_style.wrong(alike[0])]:
        tasks = interval.tasks if interval is not None else {}
        return AlertLine(_running(session, wrong, tasks, shown_ns, size), "victim")
    if warning := _warning(session, now_ns):
        return _message(f" ! {warning}", "warn", size)
    suspect = bool(groups) and groups[0][0].kind == "suspect"
    if not suspect and (last := _last(session, now_ns)) is not None:
        return AlertLine(_ended(session, last, now_ns, size, episodes))
    return AlertLine(_harmless(session, groups[0], shown_ns, size) if groups else [])


def _message(text: str, style: str, size: int) -> AlertLine:
    text = foreign(text)
    return AlertLine([(fit(text, min(len(text), size)), style)])


def going_on(session: Session, interval: Interval | None, status: Status) -> list[Episode]:
    """Returns the episodes that run; while paused or in a recording, the episodes that overlap the
    shown interval."""
    if interval is None or (status.paused is None and status.replay is None):
        return session.running
    return episode_style.overlapping(session, interval)


def _last(session: Session, now_ns: int) -> Episode | None:
    """Returns the harmful episode that ended last, if it ended within LAST_NS before `now_ns`, else
    None. Of several that ended together, returns the costliest. `now_ns` may be in the past."""
    ended = [
        e
        for e in session.episodes(now_ns - LAST_NS, now_ns)
        if e.end_ns is not None and e.end_ns <= now_ns and episode_style.wrong(e)
    ]
    return max(ended, key=lambda e: (e.end_ns or 0, cost([e]), -rank(e.kind)), default=None)


def _failed(status: Status, interval: Interval | None, size: int) -> list[Run]:
    """Returns why the stream ended, followed by hints where there is room for them."""
    text, quits = foreign(status.failed or ""), " · q quits "
    newest = interval is not None and status.paused is None
    last = f" · these are the last numbers{quits}" if newest else quits
    room = size - 3 - len(text)
    end = next((end for end in (last, quits, "") if len(end) <= room), "")
    text = fit(text, min(len(text), max(8, size - 3)))
    return [(f" {theme.DROPPED} {text}", "alarm"), (end, "text")]


def _running(
    session: Session, groups: list[list[Episode]], tasks: Tasks, now_ns: int, size: int
) -> list[Run]:
    """Returns a sentence on the worst group of episodes, the pieces of its evidence that fit, and
    how many other groups run."""
    worst, others = groups[0], groups[1:]
    runs: list[Run] = [
        (theme.CHOSEN, "alarm"), (" ", "text"), (episode_style.sign(worst[0]), "alarm"),
        (" ", "text"),
    ]  # fmt: skip
    parts = sentences.sentence(
        session.topology, worst, sentences.losers(session, worst, tasks),
        when=sentences.lasting(session, worst, now_ns),
        most=min(size - width(runs), sentences.MAX_SENTENCE),
    )  # fmt: skip
    runs += [(foreign(p.text), "alarm" if p.role == "lost" else "bright") for p in parts]
    more = _more(session, others, size - width(runs)) if others else []
    room = size - width(runs) - width(more) - 1  # the right margin of one cell stays blank
    return [*runs, *_evidence(worst[0], sentences.text(parts), room, "text"), *more]


def _evidence(episode: Episode, sentence: str, room: int, key: str) -> list[Run]:
    """Returns the pieces of the episode's evidence that fit, without clocks that the sentence
    already states."""
    runs: list[Run] = []
    for piece in map(foreign, pieces(episode.cause, episode.evidence)):
        stated = piece.removeprefix("clock ") in sentence
        if not stated and width(runs) + 3 + len(piece) <= room:
            runs += [(" · ", "faint"), (piece, key)]
    return runs


def _more(session: Session, groups: list[list[Episode]], room: int) -> list[Run]:
    """Returns how many other groups of episodes run, and the worst of them if there is room."""
    next_ = groups[0][0]
    count, sign = len(groups), episode_style.sign(next_)
    place = where_briefly(session.topology, next_.cpus, next_.cpus[0] if next_.cpus else None)
    texts = f"{count} more: {sign} {place}", f"{count} more", f"+{count}"
    text = next((text for text in texts if 3 + len(text) <= room), "")
    return [(" · ", "faint"), (text, "alarm")] if text else []


def _harmless(session: Session, alike: list[Episode], now_ns: int, size: int) -> list[Run]:
    """Returns a sentence on a harmless episode, such as a CPU that is offline, and its evidence."""
    first = alike[0]
    when = sentences.lasting(session, alike, now_ns)
    parts = sentences.sentence(session.topology, alike, when=when, most=max(1, size - 4))
    text = f" {episode_style.sign(first)} {foreign(sentences.text(parts))}"
    style = episode_style.severity(first)
    evidence = _evidence(first, text, size - len(text), "dim")
    return [(text, style), *evidence]


def _ended(session: Session, last: Episode, now_ns: int, size: int, key: str) -> list[Run]:
    """Returns a text on the last episode: how long ago it ended, what it did and for how long."""
    end_ns = last.end_ns or 0
    ago = running(max(0, now_ns - end_ns) // 10**9)
    start = f" {episode_style.sign(last)} {ago} ago: "
    lasted, end = f" for {length(end_ns - last.start_ns)} (", ": all episodes)"
    room = size - len(f"{start}{lasted}{key}{end} ")
    if room < MIN_SENTENCE:
        return []
    parts = episode_style.ended_sentence(session, [last], min(room, sentences.MAX_SENTENCE))
    text = foreign(sentences.text(parts))
    if parts[0].role == "text" and not text[1:2].isupper():  # neither a name nor an abbreviation
        text = text[0].lower() + text[1:]
    return [(f"{start}{text}{lasted}", "dim"), (key, "key"), (end, "dim")]


def _warning(session: Session, now_ns: int) -> str:
    """Returns the probe's newest warning until it is WARNING_NS old, then a text on the counters
    that selftests since this boot found wrong; '' if they found none."""
    if session.warnings and 0 <= now_ns - session.warned_ns < WARNING_NS:
        return session.warnings[-1]
    return findings.verdict(session.hello.boot_id) or ""
