"""The lines above the view: the machine and the cost of watching it, one line of alerts,
the machine's numbers and its SMT states."""

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
"""Heights in lines. Below TINY the keys go, below SHORT most of the head, below LOW the blank line
under it; from ROOMY on numbers may have their past, from AIRY on blocks are apart."""
MIN_PAST_WIDTH = 160
"""Columns from which numbers may have their past below them."""
MIN_TALL_PAST, PAST_LINES = 60, 3
"""Height from which the past has so many lines."""
Name = Literal["header", "alert", "numbers", "strip", "past", ""]
"""A line at the top of the screen; '': a blank one."""


def plan(height: int, width: int, *, strip: bool, tiles: bool, alerted: bool) -> Sequence[Name]:
    """The lines above the view, by the size of the screen. `strip`: there are SMT states to show;
    `tiles`: the numbers can have their past below them; `alerted`: the alert line has text."""
    if height < SHORT:  # only one of the two fits
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
        """`episodes`: name of the key that lists all episodes."""
        super().__init__(id=id, ascii_=ascii_)
        self._episodes = episodes
        self._session: Session | None = None
        self._interval: Interval | None = None
        self._past: tuple[Session, tiles.Past] | None = None
        """The session that was shown last, with the past of its tiles."""
        self._status = Status(0)
        self._values: Mapping[str, float] = {}
        """The numbers of the tiles."""
        self._columns: Sequence[tiles.Column] = ()
        """The tiles that have their past below them."""
        self._plan: Sequence[Name] = ()

    def show(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        self._session, self._interval, self._status = session, interval, status
        self.update()

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - it sets its height
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
        # The header and the alert line keep their colours when the rest turns grey.
        usual: theme.Mood = "calm" if status.failed is None else "stale"
        return [
            alert_line if name == "alert"
            else (self._runs(name, width), "calm") if name == "header"
            else (next(pasts) if name == "past" else self._runs(name, width), usual)
            for name in self._plan
        ]  # fmt: skip

    def _runs(self, name: Name, width: int) -> list[Run]:
        """A line that has the usual ground."""
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
        """The lines below the numbers, from the top."""
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
        """A click on the alert line shows all episodes."""
        y = event.get_content_offset(self)
        if y is not None and self._plan[y.y : y.y + 1] == ("alert",) and self._lines[y.y][0]:
            await self.run_action("screen.view('episodes')")
