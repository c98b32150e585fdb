"""The views by name. Each comes into being when it is first looked at: those never asked for cost
nothing at the start."""

from __future__ import annotations

from perftop.widgets.canvas import Canvas
from perftop.widgets.choice import Choice


def make(name: str, choice: Choice) -> Canvas:
    if name == "overview":
        from perftop.widgets.grid import CoreGrid

        return CoreGrid(choice, id=name)
    if name == "heat":
        from perftop.widgets.heat import HeatMap

        return HeatMap(choice, id=name)
    if name == "time":
        from perftop.widgets.past import Past

        return Past(choice, id=name)
    if name == "table":
        from perftop.widgets.table import Table

        return Table(choice, id=name)
    if name == "episodes":
        from perftop.widgets.episodes import Episodes

        return Episodes(choice, id=name)
    if name == "neighbours":
        from perftop.widgets.neighbours import Neighbours

        return Neighbours(choice, id=name)
    if name == "core":
        from perftop.widgets.core import CorePage

        return CorePage(choice, id=name)
    raise ValueError(name)
