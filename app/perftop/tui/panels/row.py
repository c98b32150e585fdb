"""Panels side by side: "who runs" or "who loses to whom", "what happened", and the selected core. A
view fills spare lines at the bottom of the screen with panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Literal

from perftop.draw.columns import Run
from perftop.draw.strips import BLANK, Line, merged
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import happened, pairs, selected, tasks
from perftop.tui.panels.panel import MIN_HEIGHT, PanelLine, Target
from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.choice import Choice

Kind = Literal["who", "happened", "selected", "losses"]
PANELS: dict[Kind, Callable[[Session, Interval, Choice, int, int], list[PanelLine]]] = {
    "who": tasks.lines, "happened": happened.lines, "selected": selected.lines,
    "losses": pairs.lines,
}  # fmt: skip
GAP = 3
"""Cells between two panels."""
MARGIN = 1
"""Cells to the left and to the right of a row of panels."""
MIN_WIDTH_OF_THREE = 200
"""Minimum width of the screen for three panels."""
_SHARES = {2: (5, 4), 3: (5, 6, 4)}
"""Relative widths of the panels, by the number of panels."""


@dataclass
class PanelRow:
    """Panels side by side on a screen of `width` cells. Their widths are proportional to
    `shares`."""

    kinds: tuple[Kind, ...]
    shares: tuple[int, ...]
    width: int
    height: int
    _targets: list[tuple[range, list[Target]]] = field(default_factory=list)
    """For each panel, its columns on the screen and the targets of its lines, as last drawn."""

    def lines(self, session: Session, interval: Interval, choice: Choice) -> list[list[Run]]:
        room = max(0, self.width - 2 * MARGIN - GAP * (len(self.shares) - 1))
        ends = [0, *(room * so_far // sum(self.shares) for so_far in accumulate(self.shares))]
        lines: list[list[Run]] = [[] for _ in range(self.height)]
        self._targets = []
        x = MARGIN
        for i, kind in enumerate(self.kinds):
            size = ends[i + 1] - ends[i]
            panel = PANELS[kind](session, interval, choice, size, self.height)[: self.height]
            drawn = [merged(runs, size) for runs, _ in panel]
            drawn += [[(" " * size, "text")]] * (self.height - len(panel))
            panel += [([], None)] * (self.height - len(panel))
            for line, runs in zip(lines, drawn, strict=True):
                line += [(" " * (GAP if i else MARGIN), "text"), *runs]
            self._targets.append((range(x, x + size), [target for _, target in panel]))
            x += size + GAP
        return [[*line, (" " * MARGIN, "text")] for line in lines]

    def target(self, x: int, y: int) -> Target:
        """Returns the target at column `x` of line `y`; None if there is none."""
        if 0 <= y < self.height:
            for cells, targets in self._targets:
                if x in cells:
                    return targets[y]
        return None


class Paneled(Canvas):
    """A view with panels below its lines. A subclass provides `begin`, which is called when the
    machine or the filter has changed, and `read`, which sets `heads`, `count` and `feet` from the
    interval."""

    OWN_PANEL: ClassVar[Kind | None] = None
    """The kind of panel that would only repeat the content of the view; it is left out."""
    _drawn: PanelRow | None = None

    def show(self, session: Session, interval: Interval) -> None:
        if self.settle(session, interval):
            self.begin(session)
            self.lay_out()
            return
        self.read()
        self.paint()

    def begin(self, session: Session) -> None:
        """Prepares for another machine or filter; the view may have no size yet."""

    def read(self) -> None:
        """Makes the lines from the current interval."""

    def build(self) -> None:
        self.read()
        self.redraw()

    @property
    def spare(self) -> int:
        """Number of lines left below the scrolling lines; negative if these do not fit, 0 on a
        bare screen."""
        return 0 if self.bare else self.size.height - len(self.heads) - max(1, self.count)

    def panels(self, room: int, gap: int = 1) -> list[Line]:
        """Returns `room` lines with panels; the first `gap` lines are blank. All lines are blank if
        there is no room for panels."""
        height = room - gap
        if height < MIN_HEIGHT:
            self._drawn = None
            return [BLANK] * room
        width = self.size.width
        first: Kind = "who"
        # In a row with few lines, losses, if any, replace the tasks.
        if self.OWN_PANEL != "losses" and height < 2 * MIN_HEIGHT:
            first = "losses" if pairs.any_pair(self.session, self.interval) else "who"
        every: tuple[Kind, ...] = (first, "happened", "selected")
        count = 2 if width < MIN_WIDTH_OF_THREE or self.OWN_PANEL else 3
        kinds = tuple(kind for kind in every if kind != self.OWN_PANEL)[:count]
        return [BLANK] * gap + self.drawn(PanelRow(kinds, _SHARES[len(kinds)], width, height))

    def drawn(self, row: PanelRow) -> list[Line]:
        """Returns the lines of these panels. Clicks are looked up in these panels from now on."""
        self._drawn = row
        return [(line, "calm") for line in row.lines(self.session, self.interval, self.choice)]

    def target(self, x: int, y: int) -> Target:
        row = self._drawn
        if row is None or not 0 < y <= row.height:
            return None
        return row.target(x, row.height - y)
