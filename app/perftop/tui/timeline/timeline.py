"""The time view: one metric of every CPU over time, newest at the right edge.

If all CPUs fit, each has a line, or several in which height also shows the value; else siblings
share a line as the halves of its cells.
"""

from __future__ import annotations

from math import isnan, nan
from typing import ClassVar

from perftop.base.format import ClockUnit, duration, rate_unit, time_of_day
from perftop.base.text import ranges
from perftop.draw import strips, theme
from perftop.draw.heat_ramp import ramp
from perftop.draw.strips import QUIET, Run, fit, number, shed
from perftop.model.episode import Episode
from perftop.model.numbers import Number
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import doubted, shown
from perftop.tui.panels.below import Paneled
from perftop.tui.shared import time_axis
from perftop.tui.shared.cursor import Cursor
from perftop.tui.shared.fields import chosen_field, clock_of, unit_in
from perftop.tui.shared.order import arranged
from perftop.tui.shared.places import Line, package_name
from perftop.tui.timeline import traffic
from perftop.tui.timeline.lanes import Lanes, marked
from perftop.tui.timeline.layout import NUMBER, LaneLine, TimelineLayout, label, planned, titles

HEADS = 2
TALL = 24
"""Lines from which clock times have a line of their own, below the axis."""


class Past(Paneled, Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("metric", "open", "narrower", "wider", "order")

    _field: Number
    _unit: ClockUnit
    _others: list[str]
    """Names of the fields that the metric key shows next, in order."""
    _plan: TimelineLayout
    _headed: bool
    """Packages have headings."""
    _memory: dict[int | None, list[Run]]
    """The line of each package on its traffic to memory."""
    _row_of: dict[int, int]
    """Index of the row, by CPU."""
    _axis: time_axis.Axis
    _left: int
    _right: int
    """`_left`: cells of labels, plus those that whole samples leave over; `_right`: of numbers."""
    _lanes: Lanes | None = None
    _now: list[float]
    """Values in the interval, by position of the CPU."""
    _doubted: list[bool]
    """Whether a counter of that value is doubted, likewise."""
    _of_package: dict[int | None, list[Episode]]
    _of_cpu: dict[int, list[Episode]]
    """Episodes in sight; one that affects most of a package appears once, in its heading."""

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        if self.settle(session, interval) or self._lanes is None:
            self.count, self._lanes = 0, None  # nothing to draw until there is a size
            self.lay_out()
            return
        if self.choice.order not in {"topology", "CPU number"}:
            self._arrange(session)
        self._look(session)
        self.paint()

    def build(self) -> None:
        session = self.session
        self._field, self._others = chosen_field(session, self.choice.metric)
        time_of_day = clock_of(session, self.choice.units, known=True)
        self._unit = unit_in(self._field, time_of_day)
        self._lanes = None
        self._arrange(session)
        self._look(session)
        self.redraw()
        self.show_cursor()

    def _arrange(self, session: Session) -> None:
        choice, places = self.choice, self.places
        if choice.order == "topology" and not choice.reverse:
            lines = places.lines()
        else:
            lines = [Line("row", row) for row in arranged(places, choice, session, self.interval)]
        if self.bare:
            lines = [line for line in lines if line.kind == "row"]
        self._headed = any(line.kind == "package" for line in lines)
        feet = 2 if self.size.height >= TALL else 1
        more = traffic.count(session, self.size.height)
        if self._headed and traffic.under_packages(session, self.size.height):
            more, headed = 0, lines
            lines = []
            for line in headed:
                lines += [line, *[Line("memory", line.row)] * (line.kind == "package")]
        room = self.size.height - (0 if self.bare else HEADS + more + feet)
        of_core = self._field.of_core
        self._plan = planned(
            places, lines, room, choice.order, of_core=of_core, ascii_=choice.ascii
        )
        self.count = len(self._plan.slots)
        self._row_of = {cpu: i for i, place in enumerate(places.places) for cpu in place.cpus}

    def _look(self, session: Session) -> None:
        """Look up the values up to the interval's end."""
        plan, interval, choice = self._plan, self.interval, self.choice
        self._right = plan.right if self.width > plan.label + plan.right else 0  # all or none
        room = max(1, self.width - plan.label - self._right)
        first_ns = session.past.first_ns
        self._axis = time_axis.fitted(interval.time_ns, choice.window_s, room, first_ns)
        self._left = plan.label + room - self._axis.width
        places = self.places.places
        lanes = Lanes(session, self._field, self._axis, places, ascii_=choice.ascii)
        now = shown(self._field, session, interval)
        lanes.settle(self._in_sight(), now[session.shown], self._lanes)
        if self._field.rate:
            self._unit = rate_unit(lanes.scale.high)
        self._lanes, self._now = lanes, now.tolist()
        self._doubted = doubted(self._field.key, session, interval).tolist()
        self._share_out(time_axis.episodes(self._axis, session))
        bare = self.bare or not self._right
        above = self._traffic(session)
        self.heads = [] if bare else [*self._heads(), *above]
        self.feet = [] if bare else self._feet(session)

    def _in_sight(self) -> list[int]:
        slots = self._plan.slots[self.top : self.top + self.size.height]
        return list(dict.fromkeys(slot.line.row for slot in slots if slot.line.kind == "row"))

    def _share_out(self, episodes: list[Episode]) -> None:
        """Assign every episode to the heading of a package or to the rows of its CPUs."""
        places, row_of = self.places, self._row_of
        self._of_package, self._of_cpu = {}, {}
        for episode in episodes:
            rows = {row_of[cpu] for cpu in episode.cpus if cpu in row_of}
            for package in {places.places[row].package for row in rows}:
                hit = {row for row in rows if places.places[row].package == package}
                if self._headed and 1 < len(hit) > len(places.of_package(package)) / 2:
                    self._of_package.setdefault(package, []).append(episode)
                    rows -= hit
            for cpu in episode.cpus:
                if row_of.get(cpu) in rows:
                    self._of_cpu.setdefault(cpu, []).append(episode)

    # --- lines that stay

    def _heads(self) -> list[list[Run]]:
        plan, of_core = self._plan, self._field.of_core
        names = (
            ("now",) if plan.each else ("lp0", "lp1") if self.places.threads == 2 else ("", "now")
        )
        return [
            self._legend(),
            [
                (fit(titles(plan, self.places, of_core=of_core), self._left), "dim"),
                (" " * self._axis.width, "text"),
                ("".join(f"{name:>{NUMBER}}" for name in names), "dim"),
            ],
        ]

    def _traffic(self, session: Session) -> list[list[Run]]:
        """Looks up what packages move from and to memory; returns the lines that stand above all
        rows, as no heading is there for them."""
        self._memory, height = {}, self.size.height
        if not traffic.count(session, height):
            return []
        under = self._headed and traffic.under_packages(session, height)
        found = traffic.lines(
            session, self.interval, self._axis, self._left, self._right, named=not under,
            ascii_=self.choice.ascii,
        )  # fmt: skip
        self._memory = dict(found)
        return [] if under else [line for _, line in found]

    def _feet(self, session: Session) -> list[strips.Line]:
        """The time axis, which stays in sight below the rows."""
        axis, shown = self._axis, self.interval
        inside = self.size.height < TALL
        rule = time_axis.history(
            axis, time_axis.episodes(axis, session), shown.time_ns, session.past.first_ns,
            session.unix, marks=session.marks, inside=inside,
        )  # fmt: skip
        left: Run = (" " * self._left, "text")
        now: Run = (f"{time_of_day(shown.time):>{self._right - 1}}", "text")
        if inside:
            return [([left, *rule, now], "calm"), *self._fill(1)]
        times: Run = (time_axis.times(axis, session.unix), "dim")
        lines: list[strips.Line] = [([left, *rule], "calm"), ([left, times, now], "calm")]
        return lines + self._fill(len(lines))

    def _fill(self, axis: int) -> list[strips.Line]:
        """What fills the screen below the rows and the `axis` lines of the axis."""
        return self.panels(self.size.height - len(self.heads) - axis - max(1, self.count))

    def _legend(self) -> list[Run]:
        assert self._lanes is not None
        name, per, digits = self._unit
        digits = 0 if self._field.unit == "ratio" else digits
        scale = self._lanes.scale
        low, high = (f"{end * per:.{digits}f}" for end in (scale.low, scale.high))
        ends: list[Run] = [(f"{low} ", "dim"), *ramp(ascii_=self.choice.ascii),
                           (f" {high} {name}".rstrip(), "dim")]  # fmt: skip
        if self._plan.tall > 1:  # height shows the value, not colour
            ends = [("from ", "dim"), (low, "text"), (" to ", "dim"),
                    (f"{high} {name}".rstrip(), "text")]  # fmt: skip
        pieces: list[tuple[int, list[Run]]] = [
            (0, [("time ", "bright"), ("· ", "faint"), (self._field.words, "text")]),
            (1, ends),
            (2, [("window ", "dim"), (duration(self.choice.window_s), "text"),
                 (", each cell ", "dim"), (duration(round(self._axis.bin_ns / 1e9, 3)), "text")]),
        ]  # fmt: skip
        if not self._plan.each and self.places.threads == 2:
            pieces.append((3, [(f"{theme.LP0} lp0 {theme.LP1} lp1", "dim")]))
        if self._others:
            pieces.append((4, [("next: ", "faint"), (" · ".join(self._others[:4]), "dim")]))
        return [(" ", "text"), *shed(pieces, self.width - 1, 3)]

    # --- lines that scroll

    def cpu(self, y: int) -> int | None:
        line = self._plan.slots[y].line
        return self.places.places[line.row].cpus[0] if line.kind == "row" else None

    def show_cursor(self) -> None:
        """Scroll so that all lines of the selected core are in sight."""
        super().show_cursor()
        first = last = self._at()
        while last + 1 < self.count and self.cpu(last + 1) == self.choice.cpu:
            last += 1
        self.reveal(first, last)

    def line(self, y: int) -> strips.Line:
        slot = self._plan.slots[y]
        if slot.line.kind == "off":
            return [(f" off   CPUs {ranges(self.places.strays)}", "dim")], "calm"
        if slot.line.kind == "memory":
            return self._memory[self.places.places[slot.line.row].package], "calm"
        if slot.line.kind != "row":
            return self._heading(slot.line), "calm"
        chosen = self.cpu(y) == self.choice.cpu
        return self._row(slot, chosen=chosen), "chosen" if chosen else "calm"

    def _heading(self, line: Line) -> list[Run]:
        """Present value of a package or an L3, and the episodes of a whole package over time."""
        place = self.places.places[line.row]
        if line.kind == "l3":
            rows = self.places.groups[place.package, place.l3]
            name: Run = (fit(f"   L3 {place.l3}", self._left), "dim")
            strip: list[Run] = [(" " * self._axis.width, "text")]
        else:
            rows = self.places.of_package(place.package)
            name = (fit(f" {package_name(place.package)}", self._left), "bright")
            told = self._of_package.get(place.package, [])
            strip = time_axis.rule(self._axis, told, self.interval.time_ns)
        _, per, digits = self._unit
        value = self._mean([cpu for row in rows for cpu in self.places.places[row].rows])
        mean = "" if self._plan.each else f"{'mean':>{NUMBER}}"
        right = [(mean, "dim"), number(value * per, digits, NUMBER)] if self._right else []
        return [name, *strip, *right]

    def _mean(self, cpus: list[int]) -> float:
        """The field's value for these CPUs (by position) together; NaN if none is known."""
        if not self._field.of_core:
            return self.interval.values.over(self._field.key, cpus)
        there = [self._now[cpu] for cpu in cpus if not isnan(self._now[cpu])]
        return sum(there) / len(there) if there else nan

    def _row(self, slot: LaneLine, *, chosen: bool) -> list[Run]:
        plan, lanes, row = self._plan, self._lanes, slot.line.row
        assert lanes is not None
        if row not in lanes:
            lanes.fetch([*self._in_sight(), row])
        of_core, first = self._field.of_core, chosen and slot.line.part == 0
        if plan.tall == 1:
            strip = lanes.flat(row, slot.lanes)
        else:
            high = plan.tall - (plan.tall > 2)  # an empty line below sets tall ones apart
            graph = lanes.tall(row, slot.lanes[0], high)
            strip = graph[slot.below] if slot.below < high else [(" " * self._axis.width, "text")]
        name = label(plan, slot, self.places, self.choice.order, of_core=of_core)
        runs: list[Run] = [
            (theme.CHOSEN, "mark") if first else (" ", "text"),
            (fit(name, self._left - 1), "dim"),
        ]
        if slot.below or not self._right:
            return [*runs, *strip]
        cpus = self.places.places[row].cpus
        mine = cpus if of_core else [cpus[lane] for lane in slot.lanes]
        told = [e for cpu in mine for e in self._of_cpu.get(cpu, [])]
        signs = time_axis.begins(self._axis, told, self.interval.time_ns)
        return [*runs, *marked(strip, signs), *self._numbers(slot), self._goes_on(told)]

    def _numbers(self, slot: LaneLine) -> list[Run]:
        place, interval = self.places.places[slot.line.row], self.interval
        _, per, digits = self._unit
        runs: list[Run] = []
        for lane in slot.lanes:
            row = place.rows[lane]
            value = self._now[row]
            if not interval.online[row] and isnan(value):
                runs.append((f"{'off':>{NUMBER}}", "dim"))
            elif interval.resting[row] and self._field.of_running:
                runs.append(strips.at_rest(NUMBER))
            else:
                quiet = self._field.unit == "ratio" and value < QUIET
                told = number(value * per, digits, NUMBER, "dim" if quiet else "text")
                runs.append(strips.doubted(told) if self._doubted[row] else told)
        runs.append((" " * NUMBER * (self._plan.numbers - len(slot.lanes)), "text"))
        return runs

    def _goes_on(self, episodes: list[Episode]) -> Run:
        """Sign of the worst episode still running at the right edge; a blank if there is none."""
        for episode in reversed(time_axis.mildest_first(episodes)):
            seen = time_axis.cells(self._axis, episode, self.interval.time_ns)
            if seen is not None and seen[0].stop == self._axis.width:
                sign, key = time_axis.mark(episode, self.interval.time_ns)
                return f" {sign}", key
        return "  ", "text"
