"""The lines above the view: the machine and the cost of watching it, one line for what is wrong,
the machine's numbers and its SMT states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from textual import events

from perftop.draw import theme
from perftop.draw.strips import Line, Run
from perftop.tui.frame import alert, header, heights, machine_line, tiles
from perftop.tui.frame.status import Status
from perftop.tui.shared.canvas import PageWidget

if TYPE_CHECKING:
    from perftop.session.interval import Interval
    from perftop.session.session import Session


class Top(PageWidget):
    def __init__(self, *, ascii_: bool, episodes: str, id: str) -> None:  # noqa: A002
        """`episodes`: name of the key that lists all episodes."""
        super().__init__(id=id, ascii_=ascii_)
        self._episodes = episodes
        self._session: Session | None = None
        self._interval: Interval | None = None
        self._past: tuple[Session, tiles.Past] | None = None
        """The session that was shown last, with what its tiles keep."""
        self._status = Status(0)
        self._told: Mapping[str, float] = {}
        """What tiles show."""
        self._columns: Sequence[tiles.Column] = ()
        """The tiles that have their past below them."""
        self._plan: Sequence[heights.Line] = ()

    def show(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        self._session, self._interval, self._status = session, interval, status
        self.update()

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - it sets its height
        session, interval, status = self._session, self._interval, self._status
        told = alert.line(session, interval, status, width, self._episodes)
        tiled = session is not None and tiles.serve(session)
        self._plan = heights.head(
            self.screen.size.height, width, tiles=tiled,
            strip=session is None or machine_line.has_states(session),
            alerted=bool(told.runs) or interval is None,
        )  # fmt: skip
        if self.styles.height is None or self.styles.height.value != len(self._plan):
            self.styles.height = len(self._plan)
        self._told = {}
        if tiled and session is not None and interval is not None:
            self._told = tiles.values(session, interval)
        self._columns = tiles.columns(self._told, width) if "past" in self._plan else ()
        pasts = self._pasts(width)
        # The header and the alert line keep their colours when the rest turns grey.
        usual: theme.Mood = "calm" if status.failed is None else "stale"
        return [
            told if name == "alert"
            else (self._runs(name, width), "calm") if name == "header"
            else (next(pasts) if name == "past" else self._runs(name, width), usual)
            for name in self._plan
        ]  # fmt: skip

    def _runs(self, name: heights.Line, width: int) -> list[Run]:
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
        return tiles.wide(self._columns) if self._columns else tiles.numbers(self._told, width)

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
        """The alert line leads to all episodes."""
        y = event.get_content_offset(self)
        if y is not None and self._plan[y.y : y.y + 1] == ("alert",) and self._lines[y.y][0]:
            await self.run_action("screen.view('episodes')")
