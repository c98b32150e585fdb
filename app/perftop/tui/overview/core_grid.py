"""The overview's grid: one line a core, grouped by package and L3."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import isnan, nan
from typing import ClassVar, Literal

from perftop.base.format import GHZ, clock_unit
from perftop.draw import charts
from perftop.samples.metrics import METRICS
from perftop.session.history import edges
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.headings import heading
from perftop.tui.overview.layout import known, layout, titles
from perftop.tui.overview.lines import Picture, row
from perftop.tui.shared import canvas
from perftop.tui.shared.cursor import Cursor
from perftop.tui.shared.order import arranged
from perftop.tui.shared.places import Line, Places
from perftop.tui.shared.sheet import (
    Reader,
)

TALLEST = 12
"""Maximum lines of a CPU; CPUs are this tall only where few are shown."""


class Recent:
    """Utilisation in the last `bins` spans, each as long as an interval, oldest first, as cells of
    a graph that is `high` lines high."""

    def __init__(self, session: Session, interval: Interval, bins: int, high: int) -> None:
        sample_ns = session.hello.sample_ns
        span_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
        self._history, self._high = session.history, high
        self._edges = edges(interval.time_ns, span_ns, bins)
        self._unknown = bytes(2 * bins)
        self._known: dict[int, bytes] = {}

    def fetch(self, rows: Iterable[int]) -> None:
        """Look up these CPUs (by position) together, which costs little more than one alone."""
        wanted = [row for row in rows if row not in self._known]
        if self._history is None or not wanted:
            return
        found = charts.history_cells(self._history.field("util", wanted, self._edges).T, self._high)
        size = found.itemsize * found.shape[1]
        data = found.tobytes()
        self._known.update(
            (row, data[at : at + size])
            for row, at in zip(wanted, range(0, len(data), size), strict=True)
        )

    def of(self, row: int) -> bytes:
        if row not in self._known:
            self.fetch([row])
        return self._known.get(row, self._unknown)


class CoreGrid(Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "order", "fold")

    _picture: Picture | None = None
    _reader: Reader | None = None
    _session: Session | None = None
    _lines: list[Line]
    _seen_who = _seen_steal = False
    _interval: Interval | None = None
    _fold: Fold = "needed"

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        """Show this interval: the newest, or one of the past."""
        if self.settle(session) or self._reader is None:
            self._begin(session)
        assert self._reader is not None
        sheet = self._reader.read(interval)
        self._interval = interval
        changed = self._notice(session, interval)
        if self._picture is None:
            self._picture = Picture(self.places, sheet, [])
            self._picture.ascii_ = self.choice.ascii
            changed = True
        self._picture.sheet = sheet
        if changed:
            self.lay_out()
            return
        if self.choice.order not in {"topology", "CPU number"}:
            self._arrange()
        self._recall()
        self.paint()

    def _sight(self) -> list[int]:
        """The rows in sight."""
        top = self.top
        lines = self._lines[top : top + self.height]
        return [line.row for line in lines if line.kind == "row"]

    def _recall(self) -> None:
        """Load the numbers of the rows in sight, and their history if a column shows it."""
        picture, session, interval = self._picture, self._session, self._interval
        assert picture is not None
        picture.sheet.fetch(self._sight())
        wide = max((c.width for c in picture.columns if c.key == "history"), default=0)
        if not wide or session is None or interval is None:
            picture.recent = None
            return
        recent = Recent(session, interval, wide, picture.high)
        picture.recent = recent.of
        places = self.places.places
        recent.fetch([row for i in self._sight() for row in places[i].rows])

    def _begin(self, session: Session) -> None:
        self._session = session
        self._reader = Reader(session, self.places)
        self._picture = None
        self._lines, self.count = [], 0  # the old lines index other places

    def _notice(self, session: Session, interval: Interval) -> bool:
        """Add the columns of tasks and steal once they have data, and keep them; True if one
        was added."""
        who = self._seen_who or bool(interval.tasks)
        steal = self._seen_steal or session.hello.virtualisation is not None
        least = METRICS["steal"].stands_out / 10
        if not steal and bool((interval.values["steal"] >= least).any()):
            share = interval.values.over("steal", session.shown)
            steal = not isnan(share) and share >= least
        changed = (who, steal) != (self._seen_who, self._seen_steal)
        self._seen_who, self._seen_steal = who, steal
        return changed

    # --- lines

    def lay_out(self) -> None:
        picture = self._picture
        if picture is None or self._session is None or not self.size.width:
            return
        base = self._session.hello.base_hz
        unit = clock_unit(self.choice.units, nan if base is None else base.hz)
        picture.clock = GHZ if isnan(unit.per_hz) else unit  # no base clock is known
        can = known(self._session, picture.places, who=self._seen_who, steal=self._seen_steal)
        can = replace(can, clock=picture.clock.name)
        picture.columns = layout(can, self.width - 1)
        self.heads = [] if self.bare else [[(" " + titles(picture.columns), "dim")]]
        self._arrange()
        self._recall()
        self.redraw()
        self.show_cursor()

    def _arrange(self) -> None:
        assert self._picture is not None
        places = self._picture.places
        tall = 1
        if not places.pairs and places.places:
            tall = max(1, min(TALLEST, (self.size.height - 2) // len(places.places)))
        picture = self._picture
        picture.tall, picture.order = tall, self.choice.order
        room = self.size.height - len(self.heads)
        if self.choice.order == "topology" and not self.choice.reverse:
            self._lines = folded(places, tall, room, self._fold, self.choice.cpu, bare=self.bare)
        else:
            assert self._session is not None
            assert self._interval is not None
            order = arranged(places, self.choice, self._session, self._interval)
            self._lines = [Line("row", row, part) for row in order for part in range(tall)]
        self.count = len(self._lines)

    def chosen(self) -> None:
        """Arrange the lines again, as the cursor may have moved into a folded package."""
        if self._fold == "needed":
            self._arrange()
        super().chosen()

    def action_fold(self) -> None:
        self._fold = FOLDS[(FOLDS.index(self._fold) + 1) % len(FOLDS)]
        self.lay_out()

    def line(self, y: int) -> canvas.Line:
        picture, line = self._picture, self._lines[y]
        assert picture is not None
        chosen = self.cpu(y) == self.choice.cpu
        if line.kind != "row":
            runs = heading(picture, line, self.width, chosen=chosen)
            return runs, "chosen" if chosen else "calm"
        runs = row(picture, line.row, line.part, chosen=chosen)
        return runs, "chosen" if chosen else "calm"

    def cpu(self, y: int) -> int | None:
        """First CPU of the line's core; a folded package stands for the selected core if that is
        in it, else for its first one. None for headings."""
        line, places = self._lines[y], self.places.places
        if line.kind == "row":
            return places[line.row].cpus[0]
        if line.kind != "folded":
            return None
        cpus = [places[row].cpus[0] for row in self.places.of_package(places[line.row].package)]
        return self.choice.cpu if self.choice.cpu in cpus else cpus[0]

    def choose(self, y: int, towards: int = 1) -> None:
        """Moving up into a folded package selects its last core."""
        if not self.count:
            return
        line = self._lines[max(0, min(self.count - 1, y))]
        super().choose(y, towards)
        if line.kind == "folded" and towards < 0 and self._fold == "needed":
            rows = self.places.of_package(self.places.places[line.row].package)
            self.choice.cpu = self.places.places[rows[-1]].cpus[0]
            self.chosen()


Fold = Literal["needed", "never", "always"]
FOLDS: tuple[Fold, ...] = ("needed", "never", "always")


def folded(
    places: Places, tall: int, room: int, fold: Fold, cpu: int | None, *, bare: bool
) -> list[Line]:
    """Lines by topology. If `fold` is "needed" and they exceed `room`, packages without `cpu` are
    folded, except those that still fit. `bare`: rows only, no headings."""
    lines = places.lines(tall)
    if bare:
        return [line for line in lines if line.kind == "row"]
    packages = list(dict.fromkeys(place.package for place in places.places))
    if len(packages) < 2 or fold == "never" or (fold == "needed" and len(lines) <= room):
        return lines
    if fold == "always":
        return places.lines(tall, packages)
    here = next((place.package for place in places.places if cpu in place.cpus), packages[0])
    shut = [package for package in packages if package != here]
    for package in tuple(shut):  # unfold what still fits
        fewer = [other for other in shut if other != package]
        if len(places.lines(tall, fewer)) <= room:
            shut = fewer
    return places.lines(tall, shut)
