"""The rows of views: the place of each core in the topology, headings, and names. This module has
no measured values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perftop.base.arrays import Ints
from perftop.session.session import Session

ORDERS = ("topology", "CPU number", "worst first")


@dataclass(frozen=True, slots=True)
class Place:
    """A row: a physical core, or a CPU if no CPU has a sibling."""

    package: int | None
    l3: int | None
    core: int | None
    type: str | None
    cpus: tuple[int, ...]
    core_index: int
    """Position of the core in the session's lists."""
    rows: tuple[int, ...]
    """Positions of the row's CPUs."""


@dataclass(frozen=True, slots=True)
class PlaceLine:
    """The content of a line of a view: a row, the heading of a package or L3, a folded package, the
    offline CPUs, or the memory traffic of a package."""

    kind: Literal["row", "package", "folded", "l3", "off", "memory"]
    row: int = -1
    """Index of the row; for a heading, the index of the first row below it."""
    part: int = 0
    """Index of the line within its row, if rows are several lines tall."""


class Places:
    """All rows of one topology."""

    def __init__(self, session: Session, mask: frozenset[int] | None = None) -> None:
        """`mask`: positions of CPUs; a core has a row if one of its CPUs is in the mask. None:
        every core has a row."""
        cores = session.cores
        places = [_core_place(session, core) for core in session.shown_cores()]
        self.places = [p for p in places if mask is None or not mask.isdisjoint(p.rows)]
        self.shown = frozenset(session.shown)
        """Positions of the CPUs that the user asked for; the probe may read their siblings as
        well."""
        self.pairs = any(len(core) > 1 for core in cores)
        """Whether some core has more than one CPU, in which case each row is a core."""
        known_rows = {row for place in self.places for row in place.rows}
        strays = [row for row in session.shown if row not in known_rows and not session.online[row]]
        self.offline_cpus = [session.topology[row].cpu for row in strays if mask is None]
        """Numbers of the offline CPUs whose core is unknown."""
        self.cpus = [_cpus(place) for place in self.places]
        self.row_of_cpu = {cpu: i for i, place in enumerate(self.places) for cpu in place.cpus}
        """The index of each CPU's row, by number of the CPU."""
        # Made from all cores, so that columns and names stay the same under every filter.
        self.threads = max((len(place.cpus) for place in places), default=1)
        self.packages = len({place.package for place in places})
        self.cpus_width = index_ranges(map(_cpus, places), 4)
        self.groups: dict[tuple[int | None, int | None], list[int]] = {}
        """Indices of rows by package and L3, in the order of their first CPU."""
        for i, place in enumerate(self.places):
            self.groups.setdefault((place.package, place.l3), []).append(i)
        self._packages: dict[int | None, tuple[list[int], Ints, Ints]] = {}
        self._short_names = [
            _name(place) if self.pairs else str(place.cpus[0]) for place in self.places
        ]
        self._long_names = [
            f"{place.package}:{name}" if self.pairs else name
            for place, name in zip(self.places, self._short_names, strict=True)
        ]

    def lines(self, height: int = 1, fold: Collection[int | None] = ()) -> list[PlaceLine]:
        """Returns the lines in the order of the topology, with headings. Each row has `height`
        lines; each package in `fold` is a single line."""
        lines: list[PlaceLine] = []
        packages = list(dict.fromkeys(package for package, _ in self.groups))
        headings = self.pairs or len(packages) > 1 or len(self.groups) > 1
        for package in packages:
            caches = {key: rows for key, rows in self.groups.items() if key[0] == package}
            first = next(iter(caches.values()))[0]
            if package in fold:
                lines.append(PlaceLine("folded", first))
                continue
            if headings:
                lines.append(PlaceLine("package", first))
            for rows in caches.values():
                if len(caches) > 1:
                    lines.append(PlaceLine("l3", rows[0]))
                lines += [PlaceLine("row", row, part) for row in rows for part in range(height)]
        return [*lines, PlaceLine("off")] if self.offline_cpus else lines

    def of_package(self, package: int | None) -> tuple[list[int], Ints, Ints]:
        """Returns the rows of a package, the positions of its CPUs that the user asked for, and the
        position of the core of each of these CPUs."""
        if package not in self._packages:
            rows = [row for (p, _), rows in self.groups.items() if p == package for row in rows]
            places = [self.places[row] for row in rows]
            cpus = [(cpu, place.core_index) for place in places for cpu in place.rows]
            shown = np.array([pair for pair in cpus if pair[0] in self.shown], np.intp)
            self._packages[package] = rows, *shown.reshape(-1, 2).T
        return self._packages[package]

    def names(self, order: str) -> Sequence[str]:
        """Returns the name of each row: the core's number, preceded by its package if no heading
        names the package; without SMT, the CPU's number."""
        return self._short_names if order == "topology" or self.packages == 1 else self._long_names

    def name(self, row: int, order: str) -> str:
        return self.names(order)[row]


def _name(place: Place) -> str:
    return "-" if place.core is None else str(place.core)


def _cpus(place: Place) -> str:
    return ",".join(map(str, place.cpus))


def _core_place(session: Session, core_index: int) -> Place:
    cpus = session.cores[core_index]
    rows = [session.position[cpu] for cpu in cpus]
    topology_rows = [session.topology[row] for row in rows]
    first = next((row for row in topology_rows if row.core is not None), topology_rows[0])
    return Place(
        first.package, first.l3, first.core, first.type, tuple(cpus), core_index, tuple(rows)
    )


def package_name(package: int | None) -> str:
    return f"package {'?' if package is None else package}"


def index_ranges(names: Iterable[str], min_width: int) -> int:
    """Returns the length of the longest name in cells, at least `min_width`."""
    return max([min_width, *map(len, names)])
