"""The views by name."""

from __future__ import annotations

from perftop.tui.core_page.core_page import CorePage
from perftop.tui.episodes.episode_list import Episodes
from perftop.tui.heat.heat_map import HeatMap
from perftop.tui.neighbours.neighbour_view import Neighbours
from perftop.tui.overview.core_grid import CoreGrid
from perftop.tui.shared.canvas import Canvas
from perftop.tui.table.table import Table
from perftop.tui.timeline.timeline import Past

VIEWS: dict[str, type[Canvas]] = {
    "overview": CoreGrid,
    "heat": HeatMap,
    "time": Past,
    "table": Table,
    "episodes": Episodes,
    "neighbours": Neighbours,
    "core": CorePage,
}
