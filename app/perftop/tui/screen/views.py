"""The views by name. Each comes into being when it is first looked at: those never asked for cost
nothing at the start."""

from __future__ import annotations

from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.choice import Choice


def make(name: str, choice: Choice) -> Canvas:
    if name == "overview":
        from perftop.tui.overview.core_grid import CoreGrid

        return CoreGrid(choice, id=name)
    if name == "heat":
        from perftop.tui.heat.heat_map import HeatMap

        return HeatMap(choice, id=name)
    if name == "time":
        from perftop.tui.timeline.timeline import Past

        return Past(choice, id=name)
    if name == "table":
        from perftop.tui.table.table import Table

        return Table(choice, id=name)
    if name == "episodes":
        from perftop.tui.episodes.episode_list import Episodes

        return Episodes(choice, id=name)
    if name == "neighbours":
        from perftop.tui.neighbours.neighbour_view import Neighbours

        return Neighbours(choice, id=name)
    if name == "core":
        from perftop.tui.core_page.core_page import CorePage

        return CorePage(choice, id=name)
    raise ValueError(name)
