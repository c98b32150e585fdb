"""The views of the monitor. Each is imported when it is first shown, so that the first numbers need
not wait for the others."""

from __future__ import annotations

from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.choice import Choice

NAMES = ("overview", "heat", "time", "table", "episodes", "neighbours", "core")


def view(name: str, choice: Choice) -> Canvas:
    """The view of this name, which is also its id."""
    made: type[Canvas]
    match name:
        case "overview":
            from perftop.tui.overview.overview import Overview as made  # noqa: N813
        case "heat":
            from perftop.tui.views.heat_map import HeatMap as made  # noqa: N813
        case "time":
            from perftop.tui.views.timeline import Timeline as made  # noqa: N813
        case "table":
            from perftop.tui.views.table import Table as made  # noqa: N813
        case "episodes":
            from perftop.tui.views.episodes import Episodes as made  # noqa: N813
        case "neighbours":
            from perftop.tui.views.neighbours import Neighbours as made  # noqa: N813
        case _:
            from perftop.tui.core_page.core_page import CorePage as made  # noqa: N813
    return made(choice, id=name)
