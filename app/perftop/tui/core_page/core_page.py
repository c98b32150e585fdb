"""The page of one core: clock, SMT states, utilisation and halts over a common time axis, the
numbers of both siblings beside them, and notes about episodes and unknown numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from perftop.base.format import duration
from perftop.draw import strips
from perftop.draw.columns import Run
from perftop.model.memory import TRAFFIC_KEYS
from perftop.model.numbers import PER_KI
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.core_page import numbers
from perftop.tui.core_page.charts import L3_TRAFFIC, Charts, CoreHistory, Scales, shared_rows
from perftop.tui.core_page.layout import L3, TRAFFIC, Known, Page, page
from perftop.tui.core_page.numbers import above, notes
from perftop.tui.shared import time_axis
from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.keys import bindings, caption
from perftop.tui.shared.order import arranged
from perftop.tui.shared.places import Place


class CorePage(Canvas):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("core")]
    HINTS: ClassVar[tuple[str, ...]] = ("back", "core_down", "wider", "units")

    _laid: tuple[Place, Page] | None = None
    """The core for which lines are laid out, and its layout; None if there is no core to show."""
    _seen_who = False
    _keys: Mapping[str, str]
    _track: CoreHistory | None = None
    _scales: Scales | None = None
    _lines: Sequence[list[Run]] = ()

    # --- lines from an interval

    def show(self, session: Session, interval: Interval) -> None:
        changed = self.settle(session, interval)
        who = self._seen_who or bool(interval.tasks)
        changed |= who != self._seen_who
        self._seen_who = who
        if changed or self._laid is None or self.choice.cpu not in self._laid[0].cpus:
            self.lay_out()
            return
        self._draw()
        self.paint()

    def line(self, y: int) -> strips.Line:
        return self._lines[y], "calm"

    # --- lines

    def build(self) -> None:
        chosen = self.choice.cpu
        place = next((place for place in self.places.places if chosen in place.cpus), None)
        self._track = self._scales = None
        if place is None:
            self._laid = None
            self._lines = [[(" no CPU matches the filter", "dim")]]
        else:
            of_core = known(self.session, place, who=self._seen_who)
            self._laid = place, page(of_core, self.size.width, self.size.height)
            self._keys = self._captions()
            self._draw()
        self.count = len(self._lines)
        self.redraw()

    def _draw(self) -> None:
        """Makes all lines, because each of them may change over time."""
        assert self._laid is not None
        (place, page_), choice = self._laid, self.choice
        session, interval = self.session, self.interval
        columns, first_ns = page_.columns, session.past.first_ns
        time = time_axis.fitted(interval.time_ns, choice.window_s, columns, first_ns)
        moment = numbers.moment(session, interval, place, page_, choice.units, time.start_ns)
        self._track = self._track or CoreHistory(session, place)
        self._scales = self._scales or Scales()
        self._track.move_to(time)
        drawn = Charts(moment, time, self._track, self._scales, choice.ascii, self.look)
        self._lines = lines(drawn, duration(choice.window_s), self._keys, self.size.width)

    def _captions(self) -> Mapping[str, str]:
        """Returns the captions of the keys that go back and zoom, as bound by the user."""
        active = self.screen.active_bindings.items()
        keys = {bound.binding.id: caption(key) for key, bound in reversed(list(active))}
        zoom = [keys[name] for name in ("narrower", "wider") if name in keys]
        return {"back": keys.get("back", ""), "window": " ".join(zoom)}

    # --- moving to another core

    def action_neighbour(self, by: int) -> None:
        """Moves to the core that is `by` cores away, in the row order of other views."""
        if self._laid is None:
            return
        places = self.places.places
        rows = arranged(self.places, self.choice, self.session, self.interval)
        cpus = [places[row].cpus[0] for row in rows]
        at = cpus.index(self._laid[0].cpus[0]) + by
        self.choice.cpu = cpus[max(0, min(len(cpus) - 1, at))]
        self.lay_out()


def lines(charts: Charts, window: str, keys: Mapping[str, str], width: int) -> list[list[Run]]:
    moment = charts.moment
    return [
        *above(moment, window, keys, width),
        *charts.panels(),
        *charts.foot(),
        *notes(moment, width, moment.page.notes),
    ]


def known(session: Session, place: Place, *, who: bool) -> Known:
    evaluator = session.evaluator
    served = [key for key in evaluator.chosen if any(evaluator.serves(key, r) for r in place.rows)]
    return Known(
        threads=len(place.cpus),
        metrics=frozenset(served),
        states="util" in served,
        virtual=session.hello.virtualisation is not None,
        who=who,
        shared=_shared(session, place),
        events=tuple(
            key for key in evaluator.registry.events if key in served and not key.endswith(PER_KI)
        ),
    )


def _shared(session: Session, place: Place) -> tuple[str, ...]:
    """Returns the panels of the memory traffic that is counted for this core's package and L3."""
    columns, (package, l3) = session.counters.columns, shared_rows(session, place)
    found = [TRAFFIC] if package is not None and columns.keys() >= {*TRAFFIC_KEYS} else []
    return (*found, *([L3] if l3 is not None and L3_TRAFFIC in columns else []))
