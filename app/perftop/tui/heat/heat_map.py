"""The heat map: one cell a core, halves of a cell for siblings, grouped by L3 and package."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from perftop.base.text import ranges
from perftop.draw import strips, theme
from perftop.draw.strips import Run
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.heat import cells, layout
from perftop.tui.heat.layout import HeatLayout, Part
from perftop.tui.heat.lines import foot, heading, legend, title
from perftop.tui.heat.values import Heat, HeatReader
from perftop.tui.panels.below import Paneled
from perftop.tui.shared.keys import bindings

HEADS, FOOT = 2, 1
_NOTHING = HeatLayout(layout.Cell(1, 1, 0, halves=True), [])


class HeatMap(Paneled):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("heat")]
    HINTS: ClassVar[tuple[str, ...]] = ("metric", "heat_worst", "open", "units")

    _reader: HeatReader
    _heat: Heat | None = None
    _plan = _NOTHING
    _asked = False
    """Whether the core that differs most was asked for, and there is none."""
    _packages: list[int | None]
    _cpus: list[tuple[int, ...]]
    """Positions of the CPUs, by row."""
    _row: dict[int, int]
    """Row by position of the core in the session's lists."""
    _shades: cells.Shades
    _marks: cells.Marks

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        changed = self.settle(session, interval)
        if changed:
            self._reader = HeatReader(session)
            # The old plan indexes other places, and there may be no size for a new one yet.
            self._plan, self._row, self.count = _NOTHING, {}, 0
        self._heat = self._reader.read(session, interval, self.choice, self._heat)
        if changed or not self.count:
            self.lay_out()
            return
        self._tell()
        self.paint()

    def _tell(self) -> None:
        """Prepare what cells and the lines around them are drawn from."""
        heat, places, ascii_ = self._heat, self.places, self.choice.ascii
        cell = self._plan.cell
        assert heat is not None
        numbers = heat.numbers() if cell.wide == cells.NUMBER else []
        inks = theme.letters(self.app.theme)
        self._shades = cells.Shades(heat.levels, numbers, heat.field.of_core, inks, ascii_)
        far = [found.core for found in heat.outliers if found.far]
        doubtful = [row for row, place in enumerate(places.places)
                    if any(heat.doubted[at] for at in place.rows)]  # fmt: skip
        self._marks = cells.marks(
            [self._row[core] for core in far if core in self._row], doubtful,
            self._troubled(heat), self._chosen(),
        )  # fmt: skip
        self.heads = [] if self.bare else [
            title(heat, self.width),
            legend(heat, places, cell, self.width, asked=self._asked, ascii_=ascii_),
        ]  # fmt: skip
        room = 0 if self.bare else self.size.height - len(self.heads) - FOOT - self.count
        self.feet = [*self.panels(room), (self._numbers(), "chosen")]

    def target(self, x: int, y: int) -> Episode | int | None:
        return super().target(x, y - FOOT)  # the last one is of the map itself

    def _troubled(self, heat: Heat) -> dict[int, Run]:
        """Signs of episodes by row; what befalls a whole package has its sign in the heading."""
        if not heat.troubles:
            return {}
        every = ((i, heat.troubles.of(place.rows)) for i, place in enumerate(self.places.places))
        return {
            i: (trouble.sign, trouble.key) for i, trouble in every if trouble and trouble.victim
        }

    def _numbers(self) -> list[Run]:
        """Last line: numbers of the selected core; empty if none is shown."""
        chosen = self._chosen()
        if chosen is None or self._heat is None:
            return []
        return foot(self.session, self.interval, self.places, chosen, self._heat,
                              self.size.width)  # fmt: skip

    # --- lines

    def build(self) -> None:
        places = self.places
        self._cpus = [place.rows for place in places.places]
        self._row = {place.at: row for row, place in enumerate(places.places)}
        packages, self._packages = layout.packages(self.session, places)
        names = [places.name(i, "topology") for i in range(len(places.places))]
        strays = 1 if places.strays else 0
        height = self.size.height - FOOT - strays - (0 if self.bare else HEADS)
        self._plan = layout.plan(packages, self._packages, names, places.threads, self.width,
                                   height, ascii_=self.choice.ascii)  # fmt: skip
        if strays:
            off = f" off   CPUs {ranges(places.strays)}"
            self._plan.lines.append([Part(0, len(off), label=off)])
        if not places.places:
            words = " no CPU matches the filter"
            self._plan.lines.append([Part(0, len(words), label=words)])
        self.count = len(self._plan.lines)
        self._tell()
        self.redraw()
        self.show_cursor()

    def line(self, y: int) -> strips.Line:
        runs: list[Run] = []
        x = 0
        for part in self._plan.lines[y]:
            runs.append((" " * (part.x - x), "text"))
            runs += self._part(part)
            x = part.x + part.width
        return runs, "calm"

    def _part(self, part: Part) -> list[Run]:
        if part.cells:
            return cells.cells(part.cells, part.line, self._plan.cell, self._cpus,
                                   self._shades, self._marks)  # fmt: skip
        if part.package < 0:
            return [(part.label, "dim")]
        assert self._heat is not None
        package = self._packages[part.package]
        return heading(self.interval, self.places, package, self._heat, part.width)

    # --- the cursor

    def _chosen(self) -> int | None:
        """Row of the selected core; None if it is not shown."""
        cpu = self.choice.cpu
        return next((i for i, p in enumerate(self.places.places) if p.cpus[0] == cpu), None)

    def _choose(self, row: int) -> None:
        self.choice.cpu = self.places.places[row].cpus[0]
        self.chosen()

    def chosen(self) -> None:
        self._asked = False
        self._tell()
        self.show_cursor()
        self.paint()

    def show_cursor(self) -> None:
        """Scroll to the selected core, with the heading right above it."""
        chosen = self._chosen()
        if chosen in self._plan.spots:
            first = last = self._plan.spots[chosen][1]
            last += self._plan.cell.high - 1
            if first and not any(part.cells for part in self._plan.lines[first - 1]):
                first -= 1
            self.reveal(first, last)

    def action_cell(self, dx: int, dy: int) -> None:
        """Select the next cell on this line, or the nearest on the next line that has cells."""
        spots, chosen = self._plan.spots, self._chosen()
        if chosen not in spots:
            return
        x, y = spots[chosen]
        if dx:
            beside = [(abs(sx - x), row) for row, (sx, sy) in spots.items()
                      if sy == y and (sx - x) * dx > 0]  # fmt: skip
            if beside:
                self._choose(min(beside)[1])
            return
        lines = {sy for _, sy in spots.values() if (sy - y) * dy > 0}
        if lines:
            self._nearest(x, min(lines, key=lambda line: abs(line - y)))

    def action_page(self, by: int) -> None:
        spots, chosen = self._plan.spots, self._chosen()
        if chosen in spots:
            x, y = spots[chosen]
            lines = {sy for _, sy in spots.values()}
            there = y + by * max(1, self.height - 1)
            self._nearest(x, min(lines, key=lambda line: abs(line - there)))

    def _nearest(self, x: int, y: int) -> None:
        on = [(abs(sx - x), row) for row, (sx, sy) in self._plan.spots.items() if sy == y]
        self._choose(min(on)[1])

    def action_end(self, to: int) -> None:
        rows = list(self._plan.spots)
        if rows:
            self._choose(rows[0] if to < 0 else rows[-1])

    def action_worst(self) -> None:
        """Select the core that differs most; when repeated, the next one."""
        outliers = [one for one in self._heat.outliers if one.far] if self._heat else []
        found = [self._row[one.core] for one in outliers if one.core in self._row]
        self._asked = not found
        if found:
            chosen = self._chosen()
            after = found.index(chosen) + 1 if chosen in found else 0
            self._choose(found[after % len(found)])
        else:
            self._tell()
            self.paint()

    def on_click(self, event: events.Click) -> None:
        if self.pick(event):
            return
        y = self.at(event.y)
        if y is None:
            return
        for part in self._plan.lines[y]:
            i = (event.x - part.x) // (self._plan.cell.wide + 1)
            if part.cells and 0 <= i < len(part.cells):
                self._choose(part.cells[i])
                if event.chain == 2:
                    self.post_message(self.Opened())
