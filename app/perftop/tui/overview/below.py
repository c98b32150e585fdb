"""What stands below the rows where there is room: who runs, what happened, the selected core."""

from __future__ import annotations

from perftop.draw.strips import Run
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import happened, selected, who
from perftop.tui.panels.panel import beside, divided
from perftop.tui.shared.choice import Choice

LEAST = 4
"""Minimum lines of panels: a title and three lines."""
THREE = 200
"""Width from which there are three panels."""


def panels(
    session: Session, interval: Interval, choice: Choice, width: int, height: int
) -> list[list[Run]]:
    """`height` lines of panels side by side."""
    shares = [5, 6, 4] if width >= THREE else [5, 4]
    sizes = divided(width, shares)
    found = [
        who.lines(session, interval, sizes[0], height),
        happened.lines(session, interval, sizes[1], height),
    ]
    if len(shares) > 2:
        chosen = selected.lines(
            session, interval, sizes[2], height, cpu=choice.cpu, units=choice.units
        )
        found.append(chosen)
    return beside(found, sizes)
