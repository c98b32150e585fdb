"""Which CPU's thread reads which rows. Every CPU reads its own; the first online CPU of a core or
package also reads the row of its core or package. If it goes offline another CPU takes over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.frozen import replace
from perfprobe.native import frame_layout
from perfprobe.native.sampler import RowPlan
from perfprobe.sources.os.parts import Part
from perfprobe.wire import Counter, Cpu, Scope

SHARED: tuple[Scope, ...] = ("core", "package")


class Reading:
    def __init__(
        self, parts: Sequence[Part], rows: Sequence[Cpu], chosen: Sequence[Part] = ()
    ) -> None:
        """`chosen` are parts of scope cpu, each with a block of its own."""
        self._parts = parts
        self._chosen = {f"events.{i}": part for i, part in enumerate(chosen, 1)}
        self._places: Mapping[str, frame_layout.Place] = {}
        self._row = {row.cpu: i for i, row in enumerate(rows)}
        self._groups = {"core": topology.cores(rows), "package": topology.packages(rows)}
        self._carriers: dict[Scope, dict[int, int]] = {scope: {} for scope in SHARED}
        """The CPU that reads each row of a core or package."""
        self._plans: dict[int, list[RowPlan]] = {}

    def blocks(self) -> list[tuple[wire.Block, int]]:
        """The blocks and their numbers of rows; cores and packages only if there are counters."""
        found = [(wire.Block("cpu", "cpu", self._counters("cpu")), len(self._row))]
        for name, part in self._chosen.items():
            found.append((wire.Block(name, "cpu", [*part.counters]), len(self._row)))
        return found + [
            (wire.Block(scope, scope, counters), len(self._groups[scope]))
            for scope in SHARED
            if (counters := self._counters(scope))
        ]

    def place(self, places: Mapping[str, frame_layout.Place]) -> None:
        self._places = places

    def open(self, cpu: int) -> list[RowPlan]:
        """All rows that the CPU's thread must read."""
        row = self._row[cpu]
        self._plans[cpu] = [self._plan("cpu", row, cpu)]
        for name, part in self._chosen.items():
            self._plans[cpu].append(self._places[name].plan(row, part.open(cpu)))
        return self._with_shared(cpu)

    def shut(self, cpu: int) -> list[tuple[int, list[RowPlan]]]:
        """The CPU's thread has ended. Returns the CPUs whose threads must be restarted, with their
        rows: they take over the shared rows of this one."""
        for part in (*self._parts, *self._chosen.values()):
            part.shut(cpu)
        self._plans.pop(cpu, None)
        heirs: dict[int, None] = {}
        for scope in SHARED:
            for row, carrier in list(self._carriers[scope].items()):
                if carrier == cpu:
                    del self._carriers[scope][row]
                    left = (c for c in self._groups[scope][row] if c in self._plans)
                    heirs |= dict.fromkeys(list(left)[:1])
        return [(heir, self._with_shared(heir)) for heir in heirs]

    def unread(self, wanted: Iterable[int]) -> list[int]:
        """Offsets, in words of the frame, of the heads of rows whose wanted CPUs are all off."""
        gone = [cpu for cpu in wanted if cpu not in self._plans]
        own = ("cpu", *self._chosen)
        heads = [self._head(name, self._row[cpu]) for name in own for cpu in gone]
        for scope in SHARED:
            if gone and scope in self._places:
                for row, group in enumerate(self._groups[scope]):
                    if row not in self._carriers[scope] and not set(group).isdisjoint(gone):
                        heads.append(self._head(scope, row))
        return heads

    def _counters(self, scope: Scope) -> list[Counter]:
        return [c for part in self._parts if part.scope == scope for c in part.counters]

    def _head(self, name: str, row: int) -> int:
        return self._places[name].head + row * wire.HEAD

    def _with_shared(self, cpu: int) -> list[RowPlan]:
        """The CPU's plans, extended by those of its core and package if no CPU reads them."""
        for scope in SHARED:
            if scope not in self._places:
                continue
            for row, group in enumerate(self._groups[scope]):
                if cpu in group and row not in self._carriers[scope]:
                    self._carriers[scope][row] = cpu
                    self._plans[cpu].append(self._plan(scope, row, cpu))
        return self._plans[cpu]

    def _plan(self, scope: Scope, row: int, cpu: int) -> RowPlan:
        slots = []
        first = 0
        for part in self._parts:
            if part.scope == scope:
                own = part.open(cpu)
                slots += [replace(slot, column=slot.column + first) for slot in own]
                first += sum(counter.columns for counter in part.counters)
        return self._places[scope].plan(row, slots)
