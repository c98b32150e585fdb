"""What the user has chosen; all views of a screen share it, so that a core stays selected and a
filter holds wherever one goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from perftop.session.filter import Filter

Units = Literal["GHz", "MHz", "base"]
UNITS: tuple[Units, ...] = ("GHz", "MHz", "base")
"""How clocks are told; `base`: as a multiple of the base clock."""
WINDOWS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Spans of time axes."""


@dataclass(slots=True)
class Sorting:
    order: str = "topology"
    """"topology", "CPU number", "worst first", or the key of a metric; of episodes their own."""
    reverse: bool = False


@dataclass(slots=True)
class Choice(Sorting):
    cpu: int | None = None
    """The first CPU of the selected core: it outlives sorts, resizes and regrouping."""
    metric: str = "util"
    """Key of the field that the heat map and the time view show."""
    units: Units = "GHz"
    window_s: float = 60.0
    columns: tuple[str, ...] = ()
    """Keys of the table's columns; empty: all."""
    filter: Filter | None = None
    mask: frozenset[int] | None = None
    """Positions of the CPUs that match the filter now; None: all."""
    stale: bool = False
    """The stream has ended: these are its last numbers."""
    ascii: bool = False
