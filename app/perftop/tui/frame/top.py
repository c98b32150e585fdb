"""The lines above the view: the machine and the cost of monitoring it, the alert line, the
machine's numbers, and its SMT states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from textual import events

from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import Line
from perftop.tui.frame import alert, header, machine_line, tiles
from perftop.tui.frame.status import Status
from perftop.tui.shared.canvas import PageWidget

if TYPE_CHECKING:
    from perftop.session.interval import Interval
    from perftop.session.session import Session

TINY, SHORT, LOW, ROOMY, AIRY = 8, 12, 24, 40, 50
"""Heights of the screen in lines. Below TINY the line of keys is hidden, below SHORT most lines
above the view, and below LOW the blank line above the view. From ROOMY on, numbers may have their
history; from AIRY on, blank lines separate the blocks."""
MIN_PAST_WIDTH = 160
"""Minimum columns of the screen for the history below the numbers."""
MIN_TALL_PAST, PAST_LINES = 60, 3
"""Minimum height of the screen for a tall history, and the number of its lines."""
Name = Literal["header", "alert", "numbers", "strip", "past", ""]
"""A line above the view; '': a blank line."""


def plan(height: int, width: int, *, strip: bool, tiles: bool, alerted: bool) -> Sequence[Name]:
    """Returns the lines above the view for this size of the screen. `strip`: there are SMT states
    to show. `tiles`: the numbers can have their history below them. `alerted`: the alert line has
    text."""
    if height < SHORT:  # only one line fits below the header
        return "header", "alert" if alerted else "numbers"
    under: Sequence[Name] = ("strip",) if strip else ()
    if tiles and not strip and height >= ROOMY and width >= MIN_PAST_WIDTH:
        under = ["past"] * (PAST_LINES if height >= MIN_TALL_PAST else 1)
    if height >= AIRY:
        return "header", "", "alert", "", "numbers", *under, ""
    blank: Sequence[Name] = ("",) if height >= LOW else ()
    return "header", "alert", "numbers", *under, *blank


class Top(PageWidget):
    def __init__(self, *, ascii_: bool, episodes: str, id: str) -> None:  # noqa: A002
        """`episodes`: displayed name of the key that lists all episodes."""
        super().__init__(id=id, ascii_=ascii_)
        self._episodes = episodes
        self._session: Session | None = None
        self._interval: Interval | None = None
        self._past: tuple[Session, tiles.Past] | None = None
        """The session for which tiles had a history last, and the history of these tiles."""
        self._status = Status(0)
        self._values: Mapping[str, float] = {}
        """The numbers of the tiles."""
        self._columns: Sequence[tiles.Column] = ()
        """The tiles that have their history below them."""
        self._plan: Sequence[Name] = ()

    def show(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        self._session, self._interval, self._status = session, interval, status
        self.update()

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - sets its own height
        session, interval, status = self._session, self._interval, self._status
        alert_line = alert.line(session, interval, status, width, self._episodes)
        tiled = session is not None and tiles.serve(session)
        self._plan = plan(
            self.screen.size.height, width, tiles=tiled,
            strip=session is None or machine_line.has_states(session),
            alerted=bool(alert_line[0]) or interval is None,
        )  # fmt: skip
        if self.styles.height is None or self.styles.height.value != len(self._plan):
            self.styles.height = len(self._plan)
        self._values = {}
        if tiled and session is not None and interval is not None:
            self._values = tiles.values(session, interval)
        self._columns = tiles.columns(self._values, width) if "past" in self._plan else ()
        pasts = self._pasts(width)
        # The header and the alert line keep their colours when the other lines turn grey.
        usual: theme.Mood = "calm" if status.failed is None else "stale"
        return [
            alert_line if name == "alert"
            else (self._runs(name, width), "calm") if name == "header"
            else (next(pasts) if name == "past" else self._runs(name, width), usual)
            for name in self._plan
        ]  # fmt: skip

    def _runs(self, name: Name, width: int) -> list[Run]:
        """Returns a line other than the alert line and the history."""
        session, interval = self._session, self._interval
        if name == "header":
            return header.line(session, interval, self._status, width)
        if session is None or interval is None or not name:
            return []
        if name == "strip":
            return machine_line.strip(session, interval, width)
        if not tiles.serve(session):
            return machine_line.numbers(
                session, interval, alert.going_on(session, interval, self._status), width
            )
        return tiles.wide(self._columns) if self._columns else tiles.numbers(self._values, width)

    def _pasts(self, width: int) -> Iterator[list[Run]]:
        """Returns the lines of the history below the numbers, the top line first."""
        rows = self._plan.count("past")
        session, interval = self._session, self._interval
        if not rows or session is None or interval is None:
            return iter([[]] * rows)
        if self._past is None or self._past[0] is not session:
            self._past = session, tiles.Past(session)
        return iter(
            self._past[1].lines(self._columns, interval, self._status.interval_ns, width, rows)
        )

    async def on_click(self, event: events.Click) -> None:
        """Shows all episodes after a click on the alert line."""
        y = event.get_content_offset(self)
        if y is not None and self._plan[y.y : y.y + 1] == ("alert",) and self._lines[y.y][0]:
            await self.run_action("screen.view('episodes')")
