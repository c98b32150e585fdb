"""The rows of views: one for each core, with its place in the topology, its name, and headings.
They contain no measured values. A position is the index of a CPU or core in the session's lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perftop.base.arrays import Ints
from perftop.session.session import Session

CpuLists = Sequence[Sequence[int]]
ORDERS = ("topology", "CPU number", "worst first")
MIN_NAME_WIDTH = 4
"""Minimum width of a column of names, in cells: the width of its heading."""


@dataclass(frozen=True, slots=True)
class Core:
    """A row of a view: a physical core, or a CPU if no CPU has a sibling."""

    package: int | None
    l3: int | None
    core: int | None
    type: str | None
    cpus: tuple[int, ...]
    core_position: int
    positions: tuple[int, ...]
    """Positions of the row's CPUs in the session's lists."""

    @property
    def cpu_list(self) -> str:
        return ",".join(map(str, self.cpus))


@dataclass(frozen=True, slots=True)
class ViewLine:
    """A line of a view: a row, a heading, a folded package, or the offline CPUs."""

    kind: Literal["row", "package", "folded", "l3", "off"]
    row: int = -1
    """Index of the row; for a heading, the index of the first row below it."""


class Cores:
    def __init__(
        self, session: Session, mask: frozenset[int] | None = None, lists: CpuLists | None = None
    ) -> None:
        """`mask`: positions of CPUs; a core has a row if one of its CPUs is in the mask. None:
        every core has a row. `lists`: the CPUs of each core; None: those of the session."""
        lists = session.cores if lists is None else lists
        cores = list[Core]()
        for core_position, cpus in enumerate(lists):
            positions = tuple(session.position[cpu] for cpu in cpus)
            rows = [session.topology[position] for position in positions]
            first = next((row for row in rows if row.core is not None), rows[0])
            place = first.package, first.l3, first.core, first.type
            cores.append(Core(*place, tuple(cpus), core_position, positions))
        selected = frozenset(session.selected)
        cores = [core for core in cores if not selected.isdisjoint(core.positions)]
        self.rows = [c for c in cores if mask is None or not mask.isdisjoint(c.positions)]
        self.shown_positions = selected
        """Positions of the CPUs that the user asked for; the probe may also read siblings."""
        self.has_pairs = any(len(cpus) > 1 for cpus in lists)
        """Whether a core has several CPUs. If so, each row is a core."""
        known_rows = {row for core in self.rows for row in core.positions}
        unknown_rows = [row for row in session.selected if row not in known_rows]
        offline_rows = [row for row in unknown_rows if mask is None and not session.online[row]]
        self.offline_cpus = [session.topology[row].cpu for row in offline_rows]
        """Numbers of the offline CPUs whose core is unknown."""
        self.cpu_lists = [core.cpu_list for core in self.rows]
        self.row_of_cpu = {cpu: i for i, core in enumerate(self.rows) for cpu in core.cpus}
        """The index of each CPU's row, by number of the CPU."""
        # Computed from all cores, so that a filter does not change columns or names.
        self.max_threads = max((len(core.cpus) for core in cores), default=1)
        self.package_count = len({core.package for core in cores})
        self.cpus_width = width_of_names(core.cpu_list for core in cores)
        self.rows_by_group: dict[tuple[int | None, int | None], list[int]] = {}
        """Indices of rows by package and L3, in the order of their first CPU."""
        for i, core in enumerate(self.rows):
            self.rows_by_group.setdefault((core.package, core.l3), []).append(i)
        self.cpu_positions = np.zeros((len(self.rows), self.max_threads), np.intp)
        """Positions of the CPUs, by row and sibling."""
        self.has_thread = np.zeros(self.cpu_positions.shape, bool)
        for i, core in enumerate(self.rows):
            self.cpu_positions[i, : len(core.positions)] = core.positions
            self.has_thread[i, : len(core.positions)] = True
        self.core_positions = np.array([core.core_position for core in self.rows], np.intp)
        self.has_ceiling = session.reader.turbo.cpus[self.cpu_positions[:, 0]]
        self._packages: dict[int | None, tuple[list[int], Ints, Ints]] = {}
        numbers = [core.core if self.has_pairs else core.cpus[0] for core in self.rows]
        self._short_names = ["-" if number is None else str(number) for number in numbers]
        packages = [f"{core.package}:" * self.has_pairs for core in self.rows]
        self._long_names = [*map("".join, zip(packages, self._short_names, strict=True))]

    def view_lines(self, fold: Collection[int | None] = ()) -> list[ViewLine]:
        """Returns lines by topology, with headings. `fold`: packages that are one line each."""
        lines: list[ViewLine] = []
        packages = list(dict.fromkeys(package for package, _ in self.rows_by_group))
        headings = self.has_pairs or len(packages) > 1 or len(self.rows_by_group) > 1
        for package in packages:
            caches = {key: rows for key, rows in self.rows_by_group.items() if key[0] == package}
            first = next(iter(caches.values()))[0]
            if package in fold:
                lines.append(ViewLine("folded", first))
                continue
            if headings:
                lines.append(ViewLine("package", first))
            for rows in caches.values():
                if len(caches) > 1:
                    lines.append(ViewLine("l3", rows[0]))
                lines += [ViewLine("row", row) for row in rows]
        return [*lines, ViewLine("off")] if self.offline_cpus else lines

    def package_rows(self, package: int | None) -> tuple[list[int], Ints, Ints]:
        """Returns the rows of a package, the positions of its CPUs that the user asked for, and the
        position of the core of each of these CPUs."""
        if package not in self._packages:
            groups = [rows for (p, _), rows in self.rows_by_group.items() if p == package]
            rows = [row for group in groups for row in group]
            cores = [self.rows[row] for row in rows]
            cpus = [(cpu, core.core_position) for core in cores for cpu in core.positions]
            pairs = np.array([pair for pair in cpus if pair[0] in self.shown_positions], np.intp)
            self._packages[package] = rows, *pairs.reshape(-1, 2).T
        return self._packages[package]

    def names(self, order: str) -> Sequence[str]:
        """Returns core or CPU numbers by row, after their package if no heading names it."""
        is_short = order == "topology" or self.package_count == 1
        return self._short_names if is_short else self._long_names

    def name(self, row: int, order: str) -> str:
        return self.names(order)[row]


def package_name(package: int | None) -> str:
    return f"package {'?' if package is None else package}"


def width_of_names(names: Iterable[str]) -> int:
    """Returns the width of a column of these names, in cells."""
    return max([MIN_NAME_WIDTH, *map(len, names)])
