"""The overview of a small machine: a history chart for each CPU or core, as wide as the screen.

`read` makes the lines of one moment. Which line belongs to which core is known, so a cursor can go
over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfprobe.frozen import frozen
from perftop.base.format import GHZ, ClockUnit
from perftop.draw import theme
from perftop.draw.areas import Look
from perftop.draw.moving import Moving
from perftop.draw.strips import Run, merged, width
from perftop.samples.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview import chart_axis, chart_numbers
from perftop.tui.overview.chart_axis import Span
from perftop.tui.overview.chart_cells import Drawing, Drawn
from perftop.tui.overview.chart_numbers import AXIS, BLOCK, RIGHT, WIDE_BLOCK, Numbers
from perftop.tui.overview.chart_plan import COUNTED, Plan, plan
from perftop.tui.overview.chart_units import Moment, Unit, lost, units
from perftop.tui.shared.places import Places, package_name
from perftop.tui.shared.sheet import Sheet

_GAP = 4
"""Cells between the chart of states and that of the clock, and after the numbers of the clock."""
_TICKS = 16, 10
"""Minimum cells of a tick: below one chart, and below charts side by side."""
_STATES: tuple[Sequence[Run], ...] = (
    (("above ", "dim"), ("lp0", "lp0"), ("  below ", "dim"), ("lp1", "lp1"),
     ("  round the middle ", "dim"), ("both", "both"), ("  dots ", "dim"), ("neither", "text")),
    (("above ", "dim"), ("lp0", "lp0"), ("  below ", "dim"), ("lp1", "lp1"),
     ("  middle ", "dim"), ("both", "both")),
    (("lp0", "lp0"), (" / ", "dim"), ("lp1", "lp1"), ("  ", "dim"), ("both", "both")),
)  # fmt: skip


@frozen
class Wishes:
    """What the user has chosen of the charts' look."""

    look: Look
    window_s: float
    clock: ClockUnit = GHZ
    cpu: int | None = None


class Charts:
    def __init__(self, session: Session, places: Places) -> None:
        self._session, self._places = session, places
        self.counted = bool(session.evaluator.chosen["busy_hz"])
        self._page: _Page | None = None
        self._drawing: Drawing | None = None
        self._units: list[Unit] = []
        self.lines: list[list[Run]] = []
        self.rows: list[int | None] = []
        """By line, the index of its place; None where it belongs to no core."""

    def fit(self, height: int, width: int) -> bool:
        """Chooses the picture for a size; returns whether there is one."""
        session, places = self._session, self._places
        self._page = None
        if places.threads > 2 or not places.places or session.history is None:
            return False
        cores = [session.cores[at] for at in session.shown_cores()]
        charts = len(cores) if self.counted else sum(map(len, cores))
        found = plan(charts, height, width, packages=places.packages, beside=self.counted)
        if found is not None:
            self._page = _Page(found, width, counted=self.counted)
        return found is not None

    @property
    def below(self) -> int:
        """Lines that are left below the charts."""
        return self._page.plan.panels if self._page else 0

    def read(
        self, session: Session, interval: Interval, sheet: Sheet, order: Sequence[int],
        wishes: Wishes,
    ) -> None:  # fmt: skip
        """Makes the lines of this interval; `order`: the places from the top."""
        page = self._page
        assert page is not None
        found = units(self._places, order, counted=self.counted)
        if found != self._units or self._drawing is None:
            self._units = found
            self._drawing = Drawing(session, found, counted=self.counted)
        past = self._drawing.past
        past.read(interval, page.columns, wishes.window_s)
        episodes = session.episodes(past.span.start_ns, past.span.now_ns)
        drawn = self._drawing.draw(episodes, page.plan.rows, page.rate_rows, wishes.look)
        moment = Moment(session, interval, self._places, sheet, found, wishes.clock)
        cores = [self._places.places[unit.at].cpus for unit in found]
        numbers = [
            moment.numbers(unit, chosen=wishes.cpu in core)
            for unit, core in zip(found, cores, strict=True)
        ]
        picture = _Picture(page, past.span, past.dots, episodes, session, wishes, moment, found)
        self.lines, self.rows = picture.made(drawn, numbers)


class _Page:
    """Where the charts stand."""

    def __init__(self, plan: Plan, width: int, *, counted: bool) -> None:
        self.plan, self.width, self.counted = plan, width, counted
        self.block = WIDE_BLOCK if plan.rows == 2 else BLOCK
        if plan.kind == "titled":
            self.block = AXIS
        self.rates = counted and width >= COUNTED
        room = width - self.block - (1 if not counted else RIGHT + _GAP)
        if self.rates:
            self.wide = (room - RIGHT - _GAP + 2) // 4
        else:
            self.wide = room // 3
        self.columns = 2 * self.wide if counted else room
        self.rate_rows = 0
        if self.rates:
            self.rate_rows = plan.rows - 1 if plan.rows > 2 else plan.rows


@dataclass(slots=True)
class _Picture:
    """The lines of one moment."""

    page: _Page
    span: Span
    dots: Span
    episodes: list[Episode]
    session: Session
    wishes: Wishes
    moment: Moment
    units: list[Unit]
    marks: list[tuple[int, str]] | None = None
    """Round times of the axes, which lie beside and below each other."""

    def made(
        self, drawn: list[Drawn], numbers: list[Numbers]
    ) -> tuple[list[list[Run]], list[int | None]]:
        """The lines, and the place that each belongs to."""
        plan = self.page.plan
        lines: list[list[Run]] = []
        rows: list[int | None] = []
        package: object = self
        for i, (unit, one, told) in enumerate(zip(self.units, drawn, numbers, strict=True)):
            if plan.headings and (i == 0 or (unit.package != package and self._grouped())):
                lines.append(self._heading(unit.package, first=i == 0))
                rows.append(None)
            package = unit.package
            of = self._titled(told, one) if plan.kind == "titled" else self._beside(told, one)
            last = i == len(self.units) - 1
            of += self._axes(unit, last=last)
            lines += of
            rows += [unit.at] * len(of)
            if not last:
                lines += [[]] * plan.gap
                rows += [None] * plan.gap
        return lines, rows

    def _grouped(self) -> bool:
        """Whether the units stand package by package."""
        packages = [unit.package for unit in self.units]
        changes = sum(a != b for a, b in pairwise(packages))
        return changes < len(set(packages))

    def _titled(self, told: Numbers, one: Drawn) -> list[list[Run]]:
        colour = self.wishes.look == "colour"
        found = [chart_numbers.title(told, self.page.width - 1, colour=colour)]
        bar: Run = (chart_numbers.BAR, "key") if told.chosen else (" ", "text")
        for mark, line in zip(chart_numbers.scale(self.page.plan.rows), one.area, strict=True):
            found.append(Moving([bar, (mark + " ", "faint")], line))
        return found

    def _beside(self, told: Numbers, one: Drawn) -> list[list[Run]]:
        page = self.page
        rows = page.plan.rows
        left = chart_numbers.block(told, rows)
        if not page.counted:
            return [Moving(mine, area) for mine, area in zip(left, one.area, strict=True)]
        gap: Run = (" " * _GAP, "text")
        right = chart_numbers.beside_clock(told, one.low_hz, rows, ipc=not page.rates)
        lines = [
            [*mine, *area, gap, *clock, *numbers]
            for mine, area, clock, numbers in zip(left, one.area, one.clock, right, strict=True)
        ]
        if page.rates:
            rate: list[list[Run]] = [*one.rate]
            if len(rate) < rows:
                rate = [chart_numbers.over_rate(told, page.wide), *rate]
            behind = chart_numbers.beside_rate(told, rows)
            for line, area, numbers in zip(lines, rate, behind, strict=True):
                line += [(gap[0][1:], "text"), *area, *numbers]
        return lines

    def _heading(self, package: int | None, *, first: bool) -> list[Run]:
        """Name of a package, and what the charts below show."""
        page = self.page
        sign = self.moment.package_sign(package, self.units)
        left = merged([(" ", "text"), sign, (f" {package_name(package)}", "bright")], page.block)
        if not first:
            return [*left, (theme.RULE * (page.width - page.block - 1), "rule")]
        if not page.counted:
            return [*left, *self._account_legend()]
        pair = any(unit.pair for unit in self.units)
        area = self._legend() if pair else self._account_legend()
        unit = self.wishes.clock.name
        words = f"clock under its ceiling, {unit}"
        if len(words) > page.wide + RIGHT:
            words = f"clock, {unit}"
        clock = merged([(words, "dim")], page.wide + RIGHT)
        runs = [*left, *merged(area, page.columns), (" " * _GAP, "text"), *clock]
        if page.rates:
            wordings = ("IPC of the busier or losing thread", "IPC of one thread")
            words = next((w for w in wordings if pair and len(w) <= page.wide), "IPC")
            runs += [(" " * (_GAP - 1), "text"), *merged([(words, "dim")], page.wide)]
        return runs

    def _legend(self) -> list[Run]:
        return next(([*wording] for wording in _STATES if width(wording) <= self.page.columns), [])

    def _account_legend(self) -> list[Run]:
        signs = theme.USER, theme.USER if self.wishes.look == "colour" else theme.KERNEL
        found: list[Run] = [(signs[0], "user-9"), (" user   ", "dim"),
                            (signs[1], "kernel-9"), (" kernel", "dim")]  # fmt: skip
        if self.session.hello.virtualisation is not None:
            found += [("   ", "text"), (theme.STEAL, "over"), (" steal, from above", "dim")]
        return found

    def _axes(self, unit: Unit, *, last: bool) -> list[list[Run]]:
        """The axis below a chart, and below the last the times."""
        page, plan = self.page, self.page.plan
        if not (last or plan.axes):
            return []
        room = _TICKS[page.counted]
        step = chart_axis.step(self.dots if page.counted else self.span, room)
        cpus = {*unit.cpus} if plan.axes else {c for one in self.units for c in one.cpus}
        mine = [e for e in self.episodes if not cpus.isdisjoint(e.cpus)]
        parts = [(self.span, mine)]
        if page.counted:
            names = ("clock", "IPC") if page.rates else ("clock",)
            sorted_ = {name: [e for e in mine if lost(e) == name] for name in names}
            rest = [e for e in mine if lost(e) not in names]
            parts = [(self.span, rest), *((self.dots, sorted_[name]) for name in names)]
        lines = [self._side_by_side(parts, step, inside=not plan.times)]
        if last and plan.times:
            lines.append(self._side_by_side([(span, None) for span, _ in parts], step))
        return lines

    def _side_by_side(
        self, parts: Sequence[tuple[Span, list[Episode] | None]], step: int, *, inside: bool = False
    ) -> list[Run]:
        """An axis below each chart of a line, or times where there are no episodes."""
        runs: list[Run] = [(" " * self.page.block, "text")]
        if self.marks is None:
            self.marks = chart_axis.ticks(self.span, step, self.session.unix)
        for i, (span, episodes) in enumerate(parts):
            if i:
                gap = _GAP if i == 1 else RIGHT + _GAP - 1
                runs.append((" " * gap, "text"))
            marks = chart_axis.in_cells(span, self.marks)
            if episodes is None:
                runs += chart_axis.times(span, marks)
            else:
                runs += chart_axis.rule(span, episodes, marks, inside=inside)
        return runs
