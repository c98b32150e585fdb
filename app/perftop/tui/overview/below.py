"""What stands below the rows where there is room: who runs or who loses to whom, what happened, the
selected core."""

from __future__ import annotations

from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import losses
from perftop.tui.panels.panel import LEAST
from perftop.tui.panels.row import Kind, PanelRow

THREE = 200
"""Width from which there are three panels."""


def panels(session: Session, interval: Interval, width: int, height: int) -> PanelRow:
    """Panels side by side. Where losses are, they take the place of the tasks on a low row."""
    first: Kind = "losses" if height < 2 * LEAST and losses.any_pair(session, interval) else "who"
    if width >= THREE:
        return PanelRow((first, "happened", "selected"), (5, 6, 4), width, height)
    return PanelRow((first, "happened"), (5, 4), width, height)
