"""The lines above the view: the machine and the cost of monitoring it, the alert line, the
machine's numbers, and its SMT states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from textual import events

from perftop.base import files
from perftop.draw import theme
from perftop.draw.columns import Run, fit
from perftop.draw.strips import Line, join_with_gaps, safe_cells
from perftop.output import sentences
from perftop.output.evidence import evidence_pieces
from perftop.output.sentences import group_episodes
from perftop.tui.frame import machine
from perftop.tui.frame.header import Status, header_line
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import PageWidget, has_rows, note_line
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.verdict import (
    ASCII_SHAPES,
    SHAPES_WITHOUT_COLOUR,
    WARN,
    Verdict,
    loss_line,
    verdict_at,
    verdict_line,
)

if TYPE_CHECKING:
    from perftop.draw.theme import Mood
    from perftop.model.kinds import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session

MIN_HEIGHT_FOR_KEYS, MIN_HEIGHT_FOR_NUMBERS, MIN_HEIGHT_FOR_BLANK = 8, 12, 24
"""Minimum lines of the screen for the line of keys, for most lines above the view, and for a blank
line above the view."""
MIN_HEIGHT_FOR_HISTORY, MIN_HEIGHT_FOR_GAPS = 40, 50
"""Minimum lines of the screen for the history of numbers, and for blank lines between blocks."""
MIN_WIDTH_FOR_HISTORY = 160
"""Minimum columns of the screen for the history below the numbers."""
MIN_HEIGHT_FOR_TALL_HISTORY, TALL_HISTORY_LINES = 60, 3
"""Minimum height of the screen for a tall history, and the number of its lines."""
PartName = Literal["header", "alert", "loss", "numbers", "states", "history", ""]
"""A line above the view; '': a blank line."""


def top_plan(
    height: int, width: int, *, has_states: bool, has_tiles: bool, has_alert: bool
) -> Sequence[PartName]:
    """Returns the lines above the view for this size of the screen. `has_states`: there are SMT
    states to show. `has_tiles`: the numbers can have their history below them. `has_alert`: the
    alert line has text."""
    if height < MIN_HEIGHT_FOR_NUMBERS:  # only one line fits below the header
        return "header", "alert" if has_alert else "numbers"
    under: Sequence[PartName] = ()
    if has_states:
        under = ("states",)
    elif has_tiles and height >= MIN_HEIGHT_FOR_HISTORY and width >= MIN_WIDTH_FOR_HISTORY:
        under = ["history"] * (TALL_HISTORY_LINES if height >= MIN_HEIGHT_FOR_TALL_HISTORY else 1)
    if height >= MIN_HEIGHT_FOR_GAPS:
        return "header", "", "alert", "loss", "", "numbers", *under, ""
    if height >= MIN_HEIGHT_FOR_BLANK:
        return "header", "alert", "loss", "numbers", *under, ""
    return "header", "alert", "numbers", *under


class Top(PageWidget):
    def __init__(self, choice: Choice, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, ascii_=choice.ascii)
        self._choice, self._captions = choice, choice.captions
        self.verdict: Verdict | None = None
        """The shown verdict; None before the first numbers, and if none can be computed."""
        self._loss: tuple[object, Line] | None = None
        """The values from which the row below the verdict was made, followed by that row."""
        self._session: Session | None = None
        self._interval: Interval | None = None
        self._status = Status(0)
        self._history: tuple[Session, machine.TileHistory] | None = None
        """The session whose tiles were drawn last with a history, and that history."""
        self._plan: Sequence[PartName] = ()

    def show(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        self._session, self._interval, self._status = session, interval, status
        self.update()

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - sets its own height
        session, interval, status = self._session, self._interval, self._status
        verdict = None
        if session is not None and interval is not None:
            verdict = verdict_at(session, interval, is_range=status.is_range)
        self.verdict = verdict
        alert = alert_line(session, interval, status, width, verdict)
        tiled = session is not None and machine.shows_tiles(session)
        screen = self.screen.size
        self._plan = top_plan(
            screen.height, width, has_tiles=tiled,
            has_states=session is None or machine.has_states(session),
            has_alert=bool(alert[0]) or interval is None,
        )  # fmt: skip
        if self.styles.height is None or self.styles.height.value != len(self._plan):
            self.styles.height = len(self._plan)
        numbers: list[Run] = []
        states: list[Run] = []
        past: list[list[Run]] = [[]] * self._plan.count("history")
        if session is not None and interval is not None:
            if "states" in self._plan:
                states = machine.state_line(session, interval, width)
            if not tiled:
                running = running_episodes(session, interval, status)
                numbers = machine.number_line(session, interval, running, width)
            else:
                columns = machine.tile_columns(machine.machine_values(session, interval), width)
                numbers = machine.tile_line(columns)
                if past and (self._history is None or self._history[0] is not session):
                    self._history = session, machine.TileHistory(session)
                if past and self._history is not None:
                    past = self._history[1].lines(
                        columns, interval, status.interval_ns, width, len(past)
                    )
        # The header and the alert line keep their colours when the other lines turn grey.
        usual: Mood = "calm" if status.failed is None else "stale"
        loss: Line = ([], usual)
        if verdict is not None and "loss" in self._plan:
            basis = verdict, width, status.is_range, status.paused is None
            if self._loss is None or self._loss[0] != basis:
                shapes = SHAPES_WITHOUT_COLOUR if self.app.no_color else ""
                shapes = ASCII_SHAPES if self._ascii else shapes
                keys = [("try", "try")] if verdict.remedy else []
                if status.is_range:
                    keys = [("hold", "compare"), ("try", "copy range")]
                keys += [("pause", "live")] if status.paused is not None else []
                keys += [("report", "why")] if verdict.report is not None else []
                parts = [[(self._captions[key], "key"), (f" {word}", "dim")] for key, word in keys]
                loss = loss_line(verdict, width, join_with_gaps(parts, 3), shapes=shapes)
                self._loss = basis, loss
            loss = self._loss[1]
            if usual == "stale" or alert[1] != "victim":
                loss = loss[0], usual
        lines: dict[PartName, Line] = {
            "header": (header_line(session, interval, status, width), "calm"), "alert": alert,
            "loss": loss, "numbers": (numbers, usual), "states": (states, usual), "": ([], usual),
        }  # fmt: skip
        history = iter(past)
        page = [(next(history), usual) if name == "history" else lines[name] for name in self._plan]
        blank_rows = [y for y, name in enumerate(self._plan) if not name and y > 1]
        notes = [note for note in self._choice.notes[:1] if not note or not has_rows(screen)]
        if notes and interval is not None and blank_rows:
            page[blank_rows[0]] = note_line(self._choice, notes[0], 2, width, is_above=False)
        return page

    async def on_click(self, event: events.Click) -> None:
        """Shows all episodes after a click on the alert line, and the report after a click on the
        row below it."""
        y = event.get_content_offset(self)
        name = "" if y is None else next(iter(self._plan[y.y : y.y + 1]), "")
        if name == "loss":
            await self.run_action("screen.why")
        elif y is not None and name == "alert" and self._lines[y.y][0]:
            await self.run_action("screen.view('episodes')")


# --- the alert line: a message, or the verdict

WARNING_SHOWN_NS = 10_000_000_000
"""Time in ns for which a warning is shown."""


def alert_line(
    session: Session | None, interval: Interval | None, status: Status, size: int,
    verdict: Verdict | None = None,
) -> Line:  # fmt: skip
    """Returns a message, or the verdict. If episodes run that cost next to nothing, the worst of
    them is the sentence, and harmless ones are evidence."""
    if status.failed is not None:  # why the stream ended, and hints where there is room for them
        text, quits = safe_cells(status.failed), " · q quits "
        newest = interval is not None and status.paused is None
        hints = (f" · these are the last numbers{quits}" if newest else quits, quits, "")
        end = next((end for end in hints if len(end) <= size - 3 - len(text)), "")
        text = fit(text, min(len(text), max(8, size - 3)))
        return [(f" {theme.DROPPED} {text}", "alarm"), (end, "text")], "calm"
    if (link := status.link) is not None and link.broken_why:
        when = f"next try in {link.next_s:.0f} s" if link.next_s else "trying again"
        return _message_line(f" {when} · {link.broken_why}", "alarm", size)
    if status.notice:
        failed = status.recording == ""
        return _message_line(f" {status.notice}", "alarm" if failed else "text", size)
    if session is None:
        return [], "calm"
    replay = status.replay
    if replay is not None and replay.is_over and replay.damage is not None:
        return _message_line(f" {theme.DROPPED} the recording is {replay.damage}", "alarm", size)
    if verdict is not None and verdict.level:
        return verdict_line(verdict, size)
    # The probe's newest warning, then counters that selftests since this boot found wrong.
    now_ns = interval.time_ns if interval is not None and is_past(status) else session.now_ns
    is_recent = session.warnings and 0 <= now_ns - session.warned_ns < WARNING_SHOWN_NS
    warning = session.warnings[-1] if is_recent else files.findings_line(session.hello.boot_id)
    if warning:
        return _message_line(f" ! {warning}", "warn", size)
    if verdict is None or interval is None:
        return [], "calm"
    groups = group_episodes(running_episodes(session, interval, status))
    # An episode's length is up to the end of the interval, so that it equals that in the panels.
    texts = [_episode_text(session, group, interval) for group in groups]
    wrong = next((i for i, group in enumerate(groups) if episode_style.is_loss(group[0])), None)
    if wrong is not None:
        worst, text = groups[wrong][0], texts.pop(wrong)
        pieces = evidence_pieces(worst.cause, worst.evidence)
        verdict = replace(
            verdict, text=text, sign=episode_style.sign(worst), severity=WARN,
            pieces=tuple(p for p in pieces if p.removeprefix("clock ") not in text),
        )  # fmt: skip
        del groups[wrong]
    more = [f"{episode_style.sign(g[0])} {text}" for g, text in zip(groups, texts, strict=True)]
    return verdict_line(verdict, size, more)


def _message_line(text: str, style: str, size: int) -> Line:
    text = safe_cells(text)
    return [(fit(text, min(len(text), size)), style)], "calm"


def is_past(status: Status) -> bool:
    """Returns whether the shown moment is in the past or in a recording."""
    return status.paused is not None or status.replay is not None


def running_episodes(session: Session, interval: Interval | None, status: Status) -> list[Episode]:
    """Returns the episodes that run; while paused or in a recording, the episodes that overlap the
    shown interval."""
    if interval is None or not is_past(status):
        return session.running
    return episode_style.overlapping_episodes(session, interval)


def _episode_text(session: Session, group: list[Episode], interval: Interval) -> str:
    """Returns a sentence on episodes that cost next to nothing."""
    when = sentences.duration_phrase(session, group, interval.time_ns)
    names = sentences.losers(session, group, interval.tasks)
    max_length = sentences.MAX_SENTENCE
    return sentences.text(
        sentences.sentence(session.topology, group, names, when=when, max_length=max_length)
    )
