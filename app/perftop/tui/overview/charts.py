"""The overview of a small machine: a history chart for each CPU or core, as wide as the screen.

`Charts.read` makes the lines of one moment. `Charts.rows` maps lines to cores, so that a cursor can
move over the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from perftop.base.format import GHZ, ClockUnit
from perftop.draw import theme
from perftop.draw.charts import Look
from perftop.draw.columns import Run
from perftop.draw.strips import merged, width
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview import chart_numbers
from perftop.tui.overview.chart_cells import ChartDrawer, ColumnHistory, UnitCharts
from perftop.tui.overview.chart_numbers import (
    AXIS,
    BLOCK,
    RIGHT,
    WIDE_BLOCK,
    Moment,
    Unit,
    UnitValues,
    lost,
    units,
)
from perftop.tui.shared import time_axis
from perftop.tui.shared.places import Places, package_name
from perftop.tui.shared.time_axis import Axis

_GAP = 4
"""Cells between the chart of states and the chart of the clock, and after the numbers of the
clock."""
_STATES: tuple[Sequence[Run], ...] = (
    (("above ", "dim"), ("lp0", "lp0"), ("  below ", "dim"), ("lp1", "lp1"),
     ("  round the middle ", "dim"), ("both", "both"), ("  dots ", "dim"), ("neither", "text")),
    (("above ", "dim"), ("lp0", "lp0"), ("  below ", "dim"), ("lp1", "lp1"),
     ("  middle ", "dim"), ("both", "both")),
    (("lp0", "lp0"), (" / ", "dim"), ("lp1", "lp1"), ("  ", "dim"), ("both", "both")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChartOptions:
    """The user's options for the charts."""

    look: Look
    window_s: float
    clock: ClockUnit = GHZ
    cpu: int | None = None


class Charts:
    def __init__(self, session: Session, places: Places) -> None:
        self._session, self._places = session, places
        self.counted = bool(session.evaluator.chosen["busy_hz"])
        self._page: _Page | None = None
        self._drawer: ChartDrawer | None = None
        self._order: Sequence[int] = ()
        self._units: list[Unit] = []
        self.lines: list[list[Run]] = []
        self.rows: list[int | None] = []
        """For each line, the index of its place; None if the line belongs to no core."""

    def fit(self, height: int, width: int) -> bool:
        """Chooses the layout for a size; returns whether one fits."""
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
        """Number of lines left below the charts."""
        return self._page.plan.panels if self._page else 0

    def read(
        self, session: Session, interval: Interval, order: Sequence[int], options: ChartOptions
    ) -> None:
        """Makes the lines for this interval. `order`: the indices of places, from the top."""
        page = self._page
        assert page is not None
        if self._drawer is None or order != self._order:
            self._order = order
            self._units = units(session, self._places, order, counted=self.counted)
            self._drawer = ChartDrawer(session, self._units, counted=self.counted)
        past = self._drawer.past
        past.read(interval, page.columns, options.window_s)
        episodes = time_axis.episodes(past.axis, session)
        drawn = self._drawer.draw(episodes, page.plan.rows, page.rate_rows, options.look)
        moment = Moment(session, interval, self._units, options.clock)
        numbers = [
            moment.numbers(unit, chosen=options.cpu in self._places.places[unit.at].cpus)
            for unit in self._units
        ]
        picture = _Picture(page, past, episodes, session, options, moment, self._units)
        self.lines, self.rows = picture.made(drawn, numbers)


class _Page:
    """The layout of the charts on the screen."""

    def __init__(self, plan: Plan, width: int, *, counted: bool) -> None:
        self.plan, self.width, self.counted = plan, width, counted
        self.block = WIDE_BLOCK if plan.rows == 2 else BLOCK
        if plan.kind == "titled":
            self.block = AXIS
        self.rates = counted and width >= MIN_WIDTH_FOR_RATES
        room = width - self.block - (1 if not counted else RIGHT + _GAP)
        if self.rates:
            self.wide = (room - RIGHT - _GAP + 2) // 4
        else:
            self.wide = room // 3
        self.columns = 2 * self.wide if counted else room
        self.scale: list[Run] = [(f"{m} ", "faint") for m in chart_numbers.scale(plan.rows)]
        """Scale marks to the left of a chart with a title, by row."""
        self.rate_rows = 0
        if self.rates:
            self.rate_rows = plan.rows - 1 if plan.rows > 2 else plan.rows


class _Picture:
    """Makes the lines for one moment."""

    def __init__(
        self, page: _Page, past: ColumnHistory, episodes: list[Episode], session: Session,
        options: ChartOptions, moment: Moment, units: list[Unit],
    ) -> None:  # fmt: skip
        self.page, self.episodes, self.session, self.options = page, episodes, session, options
        self.moment, self.units = moment, units
        self.axis, self.dots = past.axis, past.dots

    def made(
        self, drawn: list[UnitCharts], numbers: list[UnitValues]
    ) -> tuple[list[list[Run]], list[int | None]]:
        """Returns the lines, and for each line the index of its place or None."""
        plan = self.page.plan
        lines: list[list[Run]] = []
        rows: list[int | None] = []
        package: object = self
        for i, (unit, one, values) in enumerate(zip(self.units, drawn, numbers, strict=True)):
            if plan.headings and (i == 0 or (unit.package != package and self._grouped())):
                lines.append(self._heading(unit.package, first=i == 0))
                rows.append(None)
            package = unit.package
            of = self._titled(values, one) if plan.kind == "titled" else self._beside(values, one)
            last = i == len(self.units) - 1
            of += self._axes(unit, last=last)
            lines += of
            rows += [unit.at] * len(of)
            if not last:
                lines += [[]] * plan.gap
                rows += [None] * plan.gap
        return lines, rows

    def _grouped(self) -> bool:
        """Returns whether the units are grouped by package."""
        packages = [unit.package for unit in self.units]
        changes = sum(a != b for a, b in pairwise(packages))
        return changes < len(set(packages))

    def _titled(self, values: UnitValues, one: UnitCharts) -> list[list[Run]]:
        colour, page = self.options.look == "colour", self.page
        bar: Run = (chart_numbers.BAR, "key") if values.chosen else (" ", "text")
        return [
            chart_numbers.title(values, page.width - 1, colour=colour),
            *([bar, mark, *area] for mark, area in zip(page.scale, one.area, strict=True)),
        ]

    def _beside(self, values: UnitValues, one: UnitCharts) -> list[list[Run]]:
        page = self.page
        rows = page.plan.rows
        left = chart_numbers.block(values, rows)
        if not page.counted:
            return [[*block, *area] for block, area in zip(left, one.area, strict=True)]
        gap: Run = (" " * _GAP, "text")
        right = chart_numbers.beside_clock(values, one.low_hz, rows, ipc=not page.rates)
        lines = [
            [*block, *area, gap, *clock, *numbers]
            for block, area, clock, numbers in zip(left, one.area, one.clock, right, strict=True)
        ]
        if page.rates:
            rate: list[list[Run]] = [*one.rate]
            if len(rate) < rows:
                rate = [chart_numbers.over_rate(values, page.wide), *rate]
            behind = chart_numbers.beside_rate(values, rows)
            for line, area, numbers in zip(lines, rate, behind, strict=True):
                line += [(gap[0][1:], "text"), *area, *numbers]
        return lines

    def _heading(self, package: int | None, *, first: bool) -> list[Run]:
        """Returns the heading of a package: its name, and for the first package the legend of the
        charts below."""
        page = self.page
        sign = self.moment.package_sign(package, self.units)
        left = merged([(" ", "text"), sign, (f" {package_name(package)}", "bright")], page.block)
        if not first:
            return [*left, (theme.RULE * (page.width - page.block - 1), "rule")]
        if not page.counted:
            return [*left, *self._account_legend()]
        pair = any(unit.pair for unit in self.units)
        area = self._legend() if pair else self._account_legend()
        unit = self.options.clock.name
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
        signs = theme.USER, theme.USER if self.options.look == "colour" else theme.KERNEL
        found: list[Run] = [(signs[0], "user-9"), (" user   ", "dim"),
                            (signs[1], "kernel-9"), (" kernel", "dim")]  # fmt: skip
        if self.session.hello.virtualisation is not None:
            found += [("   ", "text"), (theme.STEAL, "over"), (" steal, from above", "dim")]
        return found

    def _axes(self, unit: Unit, *, last: bool) -> list[list[Run]]:
        """Returns the axis below a unit's charts, if it has one, and the line of times below the
        last axis."""
        page, plan = self.page, self.page.plan
        if not (last or plan.axes):
            return []
        cpus = {*unit.cpus} if plan.axes else {c for one in self.units for c in one.cpus}
        own = [e for e in self.episodes if not cpus.isdisjoint(e.cpus)]
        parts = [(self.axis, own)]
        if page.counted:
            names = ("clock", "IPC") if page.rates else ("clock",)
            sorted_ = {name: [e for e in own if lost(e) == name] for name in names}
            rest = [e for e in own if lost(e) not in names]
            parts = [(self.axis, rest), *((self.dots, sorted_[name]) for name in names)]
        lines = [self._side_by_side(parts, inside=not plan.times)]
        if last and plan.times:
            lines.append(self._side_by_side([(axis, None) for axis, _ in parts]))
        return lines

    def _side_by_side(
        self, parts: Sequence[tuple[Axis, list[Episode] | None]], *, inside: bool = False
    ) -> list[Run]:
        """Returns the axes below charts side by side. For a part whose episodes are None, the times
        are written instead of the axis."""
        runs: list[Run] = [(" " * self.page.block, "text")]
        for i, (axis, episodes) in enumerate(parts):
            if i:
                gap = _GAP if i == 1 else RIGHT + _GAP - 1
                runs.append((" " * gap, "text"))
            unix = self.session.unix
            if episodes is None:
                runs += time_axis.times(axis, unix)
            else:
                runs += time_axis.ticked(axis, episodes, unix, inside=inside)
        return runs


# --- how many charts fit, and their height


MAX_CHARTS = 16
"""Maximum number of charts; a machine with more units is shown as rows instead."""
MAX_TITLED = 4
"""Maximum number of charts that have a title line each; if there are more, the numbers are beside
the charts."""
MIN_WIDTH = 60
"""Minimum width of a screen with charts, in cells."""
MIN_WIDTH_FOR_RATES = 112
"""Minimum width of a screen with an IPC chart beside the clock chart, in cells."""
_MIN_HEIGHT_FOR_GAPS, _MIN_HEIGHT_FOR_TIMES = 28, 22
"""Minimum heights in lines: for gaps between charts, and for a separate line of times."""
_CAPS = ((1, 12), (2, 10), (4, 6), (8, 4), (MAX_CHARTS, 2))
"""(charts, rows): the maximum rows of a chart if there are at most this many charts, before growth
with the height of the screen."""
_LOW_CAPS = ((1, 7), (2, 5), (4, 2))
"""Maximum rows of a chart, like _CAPS, on a screen with fewer lines than _MIN_HEIGHT_FOR_TIMES."""
_GROWTH_HEIGHT = 42
"""Number of lines beyond which charts grow with the screen."""
_GROWTH = 0.75
"""Share of the lines beyond _GROWTH_HEIGHT that charts get; the panels get the rest."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout of charts, axes and panels."""

    charts: int
    kind: Literal["titled", "beside"]
    rows: int
    """Lines of each chart."""
    gap: int
    """Blank lines between charts."""
    axes: bool
    """Whether each chart has its own axis; else there is one axis below the last chart."""
    times: bool
    """Whether times have a separate line; else they are written into the axis."""
    blank: int
    """Blank lines before the panels."""
    headings: int
    """Number of heading lines, which name packages; the first also has the legend."""
    panels: int
    """Number of lines left for the panels."""


def plan(charts: int, height: int, width: int, *, packages: int, beside: bool) -> Plan | None:
    """Returns the best layout for `charts` CPUs or cores; None if they do not fit. `beside`: the
    numbers are next to the charts, as for cores with counters, and each chart has an even number of
    rows."""
    if not 0 < charts <= MAX_CHARTS or width < MIN_WIDTH:
        return None
    beside = beside or charts > MAX_TITLED
    for rows in range(_cap(charts, height), 1, -1):
        if beside and rows % 2:
            continue
        for found in _styles(charts, rows, height, packages if beside else 0, beside=beside):
            least = 8 if found.gap else 5 if found.times else 4
            if found.panels >= least:
                return found
    return None


def _cap(charts: int, height: int) -> int:
    table = _LOW_CAPS if height < _MIN_HEIGHT_FOR_TIMES else _CAPS
    cap = next((rows for most, rows in table if charts <= most), 0)
    return cap + int(_GROWTH * max(0, height - _GROWTH_HEIGHT)) // charts


def _styles(charts: int, rows: int, height: int, headings: int, *, beside: bool) -> Iterator[Plan]:
    """Yields the layouts to try for charts of this many rows, the most spacious first."""
    kind: Literal["titled", "beside"] = "beside" if beside else "titled"
    each = rows if beside else 1 + rows
    for gap, axes, times, blank in ((1, not beside, True, 1), (0, False, True, 1),
                                    (0, False, False, 0)):  # fmt: skip
        if height < (_MIN_HEIGHT_FOR_GAPS if gap else _MIN_HEIGHT_FOR_TIMES if times else 0):
            continue
        used = headings + charts * each + (charts - 1) * gap
        used += (charts if axes else 1) + times + blank
        yield Plan(charts, kind, rows, gap, axes, times, blank, headings, height - used)
