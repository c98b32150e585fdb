"""The user's choices, which all views of a screen share, so that the selected core and the filter
are the same in every view; and the rows of views, which follow from the topology and the filter. A
position is the index of a CPU or core in the lists of the session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from perftop.base.arrays import Ints
from perftop.base.text import Units
from perftop.session.selection import Filter, parse
from perftop.session.session import Session
from perftop.tui.shared.keys import key_captions

if TYPE_CHECKING:
    from perftop.session.interval import Interval
    from perftop.tui.shared.verdict import Verdict

WINDOWS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Selectable spans of time axes, in seconds."""


Grouping = Literal["task", "job", "cgroup"]
GROUPINGS: tuple[Grouping, ...] = ("task", "job", "cgroup")


@dataclass(slots=True)
class Choices:
    order: str = "topology"
    """One of "topology", "CPU number", "worst first" and "task", or the key of a number."""
    reverse: bool = False
    cpu: int | None = None
    """The first CPU of the selected core, which stays selected when rows are sorted."""
    metric: str = "util"
    """Key of the metric that the heat map and the time view show."""
    units: Units = "GHz"
    grouping: Grouping = "task"
    """Whether tasks are listed and coloured by their name, by their job (unit, container, pod), or
    by their control group."""
    window_s: float = 60.0
    columns: tuple[str, ...] = ()
    """Keys of the table's columns, in display order; empty: all columns."""
    filter: Filter | None = None
    mask: frozenset[int] | None = None
    """Positions of the CPUs that currently match the filter; None if there is no filter."""
    pinned_ns: int | None = None
    """Monotonic time in ns at which time axes end while paused, so that charts do not move; None:
    at the shown moment."""
    cursor_ns: int | None = None
    """Monotonic time in ns of the cursor in charts; None while the newest numbers are shown."""
    range_ns: tuple[int, int] | None = None
    """Monotonic times in ns of the ends of the selected range; None if there is none."""
    held_range: tuple[Interval, Verdict | None] | None = None
    """The interval held for comparison (range B), and the verdict on it; None if none is held."""
    tour_notes: list[int] = field(default_factory=list)
    """Indexes, in `canvas.TOUR_NOTES`, of the notes for a new user that are still to be shown."""
    captions: Mapping[str, str] = field(default_factory=partial(key_captions, {}))
    """Displayed names of keys, by id of the key."""
    is_stale: bool = False
    """Whether the stream has ended, so that the shown numbers are no longer updated."""
    ascii: bool = False
    _mask_source: tuple[Filter, Session, Sequence[object]] | None = None
    """The filter, session and topology from which the mask was made."""

    @property
    def is_comparing(self) -> bool:
        """Whether the selected range differs from the held range."""
        ranges = self.ranges_ns
        return self.range_ns is not None and "B" in ranges and ranges["B"] != self.range_ns

    @property
    def ranges_ns(self) -> dict[str, tuple[int, int]]:
        """Ends (monotonic ns) of the held range (key "B") and of the selected one ("A")."""
        ranges = {}
        if self.held_range is not None:
            end_ns = self.held_range[0].time_ns
            ranges["B"] = end_ns - round(self.held_range[0].elapsed_s * 1e9), end_ns
        if self.range_ns is not None and self.range_ns != ranges.get("B"):
            ranges["A"] = self.range_ns
        return ranges

    def set_filter(self, text: str, cpu: int | None) -> None:
        """Sets the filter to this text, and selects the core of this CPU. If the text is not a
        valid filter, raises FilterError and changes nothing."""
        self.filter = parse(text)
        self.cpu = cpu
        self.mask = self._mask_source = None  # a new mask makes views check the selected core again

    def update_mask(self, session: Session | None, interval: Interval | None) -> None:
        """Computes the mask if it may have changed. An equal mask does not replace the old object,
        because views compare masks by identity."""
        if session is None or self.filter is None:
            self.mask = self._mask_source = None
            return
        source = self.filter, session, list(session.topology)
        if self.filter.is_steady and source == self._mask_source:
            return
        self._mask_source = source
        mask = frozenset(self.filter.cpus(session, interval).nonzero()[0].tolist())
        if mask != self.mask:
            self.mask = mask

    def match_text(self, session: Session | None) -> str:
        """Returns how many CPUs match the filter, as text of a fixed width, or that none does."""
        if session is None or self.mask is None:
            return ""
        count, total = len(self.mask.intersection(session.shown)), len(session.shown)
        return f"{count:>{len(str(total))}} of {total} CPUs" if count else "no CPU matches"


# --- The rows of views: where each core is in the topology, headings, and names. Rows have no
# measured values.

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
    """Position of the core in the session's lists."""
    positions: tuple[int, ...]
    """Positions of the row's CPUs in the session's lists."""


@dataclass(frozen=True, slots=True)
class ViewLine:
    """The content of a line of a view: a row, the heading of a package or L3, a folded package, or
    the offline CPUs."""

    kind: Literal["row", "package", "folded", "l3", "off"]
    row: int = -1
    """Index of the row; for a heading, the index of the first row below it."""


class Cores:
    """All rows of the views of one topology."""

    def __init__(self, session: Session, mask: frozenset[int] | None = None) -> None:
        """`mask`: positions of CPUs; a core has a row if one of its CPUs is in the mask. None:
        every core has a row."""
        cores = [_core_at(session, position) for position in session.shown_cores()]
        self.rows = [p for p in cores if mask is None or not mask.isdisjoint(p.positions)]
        self.shown_positions = frozenset(session.shown)
        """Positions of the CPUs that the user asked for; the probe may also read siblings."""
        self.has_pairs = any(len(cpus) > 1 for cpus in session.cores)
        """Whether some core has more than one CPU, in which case each row is a core."""
        known_rows = {row for core in self.rows for row in core.positions}
        offline_rows = [
            row for row in session.shown if row not in known_rows and not session.online[row]
        ]
        self.offline_cpus = [session.topology[row].cpu for row in offline_rows if mask is None]
        """Numbers of the offline CPUs whose core is unknown."""
        self.cpu_lists = [_cpu_list(core) for core in self.rows]
        self.row_of_cpu = {cpu: i for i, core in enumerate(self.rows) for cpu in core.cpus}
        """The index of each CPU's row, by number of the CPU."""
        # Made from all cores, so that columns and names stay the same under every filter.
        self.max_threads = max((len(core.cpus) for core in cores), default=1)
        self.package_count = len({core.package for core in cores})
        self.cpus_width = width_of_names(map(_cpu_list, cores))
        self.rows_by_group: dict[tuple[int | None, int | None], list[int]] = {}
        """Indices of rows by package and L3, in the order of their first CPU."""
        for i, core in enumerate(self.rows):
            self.rows_by_group.setdefault((core.package, core.l3), []).append(i)
        self._packages: dict[int | None, tuple[list[int], Ints, Ints]] = {}
        self._short_names = [
            _core_number_text(core) if self.has_pairs else str(core.cpus[0]) for core in self.rows
        ]
        self._long_names = [
            f"{core.package}:{name}" if self.has_pairs else name
            for core, name in zip(self.rows, self._short_names, strict=True)
        ]

    def view_lines(self, fold: Collection[int | None] = ()) -> list[ViewLine]:
        """Returns the lines in the order of the topology, with headings. Each package in `fold` is
        a single line."""
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
            shown = np.array([pair for pair in cpus if pair[0] in self.shown_positions], np.intp)
            self._packages[package] = rows, *shown.reshape(-1, 2).T
        return self._packages[package]

    def names(self, order: str) -> Sequence[str]:
        """Returns the name of each row: the core's number, preceded by its package if no heading
        names the package; without SMT, the CPU's number."""
        is_short = order == "topology" or self.package_count == 1
        return self._short_names if is_short else self._long_names

    def name(self, row: int, order: str) -> str:
        return self.names(order)[row]


def _core_number_text(core: Core) -> str:
    return "-" if core.core is None else str(core.core)


def _cpu_list(core: Core) -> str:
    return ",".join(map(str, core.cpus))


def _core_at(session: Session, core_index: int) -> Core:
    cpus = session.cores[core_index]
    rows = [session.position[cpu] for cpu in cpus]
    topology_rows = [session.topology[row] for row in rows]
    first = next((row for row in topology_rows if row.core is not None), topology_rows[0])
    return Core(
        first.package, first.l3, first.core, first.type, tuple(cpus), core_index, tuple(rows)
    )


def package_name(package: int | None) -> str:
    return f"package {'?' if package is None else package}"


def width_of_names(names: Iterable[str]) -> int:
    """Returns the width of a column of these names, in cells."""
    return max([MIN_NAME_WIDTH, *map(len, names)])
