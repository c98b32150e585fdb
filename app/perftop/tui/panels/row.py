"""A row of panels side by side, and what a click on it means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from perfprobe.frozen import frozen
from perftop.draw.strips import Run
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import happened, losses, selected, who
from perftop.tui.panels.panel import beside, divided, panel_at
from perftop.tui.shared.choice import Choice

Kind = Literal["who", "happened", "selected", "losses"]


@frozen
class PanelRow:
    """Panels on a screen of `width` cells; `kinds` have widths in proportion to `shares`."""

    kinds: tuple[Kind, ...]
    shares: tuple[int, ...]
    width: int
    height: int

    @property
    def widths(self) -> list[int]:
        return divided(self.width, self.shares)

    def lines(self, session: Session, interval: Interval, choice: Choice) -> list[list[Run]]:
        made: dict[Kind, Callable[[Session, Interval, int, int], list[list[Run]]]] = {
            "who": who.lines, "happened": happened.lines, "losses": losses.lines,
            "selected": partial(selected.lines, cpu=choice.cpu, units=choice.units),
        }  # fmt: skip
        found = [
            made[kind](session, interval, size, self.height)
            for kind, size in zip(self.kinds, self.widths, strict=True)
        ]
        return beside(found)

    def target(self, session: Session, interval: Interval, x: int, y: int) -> Episode | int | None:
        """What stands at column `x` of line `y`: an episode, or a task or a loss by its CPU."""
        at = panel_at(x, self.widths)
        if at is None or not 0 <= y < self.height:
            return None
        match self.kinds[at]:
            case "who":
                return who.cpus(session, interval, self.height)[y]
            case "happened":
                return happened.episodes(session, interval, self.widths[at], self.height)[y]
            case "losses":
                return losses.cpus(session, interval, self.height)[y]
            case "selected":
                return None
