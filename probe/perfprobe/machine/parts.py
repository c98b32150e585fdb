"""Parts of a machine, and which CPU's thread reads which rows of the frame.

A part has counters of one scope (cpu, core or package) and opens them for a CPU. Opening returns
slots: the reads that the CPU's sampling thread repeats in each sample. If several parts have the
same counter, that of the first part is read, so parts are listed in the order of preference.

The thread of each CPU reads the CPU's own rows; that of the first online CPU of a core or package
also reads the row of the core or package. If that CPU goes offline, another CPU takes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.kernel.access import Problem
from perfprobe.native import sampler
from perfprobe.native.sampler import RowPlan, Slot
from perfprobe.wire import Counter, Cpu, Missing, Scope, with_columns


class Part(Protocol):
    """Counters of one scope, and how to open them for a CPU."""

    @property
    def scope(self) -> Scope: ...
    @property
    def counters(self) -> Sequence[Counter]: ...
    @property
    def missing(self) -> Sequence[Missing]: ...

    def open(self, cpu: int) -> list[Slot]:
        """Returns the slots for a CPU's thread; columns are relative to the part's first column. A
        counter that the CPU lacks has no slot, so its column stays invalid."""

    def close_cpu(self, cpu: int) -> None:
        """Releases what `open` acquired for this CPU; called after the CPU's thread has ended."""

    def close(self) -> None:
        """Releases all resources; called after all threads have ended."""


def drop_served_keys(missing: Iterable[Missing], counters: Iterable[Counter]) -> list[Missing]:
    """Returns `missing` without keys that one of the counters provides on all CPUs."""
    keys_on_all_cpus = {counter.key for counter in counters if counter.cpus is None}
    return [item for item in missing if item.what not in keys_on_all_cpus]


def restrict_to_cpus(counter: Counter, cpus: Sequence[int], cpu_count: int) -> Counter:
    """Returns the counter, restricted to these CPUs unless they are all of the machine."""
    return counter if len(cpus) == cpu_count else replace(counter, cpus=[*cpus])


def join_missing(
    missing_counters: Iterable[tuple[int, str, Problem]], cpu_count: int
) -> list[Missing]:
    """Joins missing counters (CPU, key, reason) with the same key and reason into one entry with
    its CPUs; without CPUs, if they are all `cpu_count` CPUs of the machine."""
    cpus: dict[tuple[str, Problem], list[int]] = {}
    for cpu, key, reason in missing_counters:
        cpus.setdefault((key, reason), []).append(cpu)
    return [
        Missing(key, reason.why, reason.fix, None if len(cpu_list) == cpu_count else cpu_list)
        for (key, reason), cpu_list in cpus.items()
    ]


# --- which CPU reads which rows -------------------------------------------------------------------

SHARED_SCOPES: tuple[Scope, ...] = ("core", "package")


class RowReaders:
    """Assigns the columns of the frame to the parts, and its rows to the threads of CPUs."""

    def __init__(
        self, parts: Sequence[Part], rows: Sequence[Cpu], chosen: Sequence[Part] = ()
    ) -> None:
        """`chosen`: parts with events that the user chose, each with its own block."""
        self._parts = parts
        self._counters: dict[Scope, list[Counter]] = {"cpu": [], "core": [], "package": []}
        """The counters of each scope's block, each from the first part that has it."""
        self._columns = [self._block_columns(part) for part in parts]
        """For each part, a map from its own columns to the columns of its block, without counters
        that an earlier part has. A slot must fill either only mapped columns or only others."""
        self._chosen = {f"events.{i}": part for i, part in enumerate(chosen, 1)}
        self._offsets: Mapping[str, sampler.BlockOffsets] = {}
        self._row_index = {row.cpu: i for i, row in enumerate(rows)}
        self._groups = {"core": topology.cores(rows), "package": topology.packages(rows)}
        self._reading_cpus: dict[Scope, dict[int, int]] = {scope: {} for scope in SHARED_SCOPES}
        """The CPU that reads each row of a core or package."""
        self._plans: dict[int, list[RowPlan]] = {}

    def blocks(self) -> list[tuple[wire.Block, int]]:
        """Returns the blocks that CPUs' threads read, with their numbers of rows; blocks of cores
        and packages only if they have counters."""
        blocks_with_rows = [(wire.Block("cpu", "cpu", self._counters["cpu"]), len(self._row_index))]
        for name, part in self._chosen.items():
            block = wire.Block(name, "cpu", [*part.counters])
            blocks_with_rows.append((block, len(self._row_index)))
        return blocks_with_rows + [
            (wire.Block(scope, scope, counters), len(self._groups[scope]))
            for scope in SHARED_SCOPES
            if (counters := self._counters[scope])
        ]

    def set_offsets(self, offsets: Mapping[str, sampler.BlockOffsets]) -> None:
        self._offsets = offsets

    def open(self, cpu: int) -> list[RowPlan]:
        """Opens all parts for a CPU, and returns the plans of all rows that its thread reads."""
        row = self._row_index[cpu]
        self._plans[cpu] = [self._open_row("cpu", row, cpu)]
        for name, part in self._chosen.items():
            self._plans[cpu].append(self._offsets[name].row_plan(row, part.open(cpu)))
        return self._plans_with_shared_rows(cpu)

    def close_cpu(self, cpu: int) -> list[tuple[int, list[RowPlan]]]:
        """Closes all parts for a CPU whose thread has ended. Returns the CPUs that take over its
        rows of core and package, with all their row plans; their threads must be restarted."""
        for part in (*self._parts, *self._chosen.values()):
            part.close_cpu(cpu)
        self._plans.pop(cpu, None)
        successors: dict[int, None] = {}
        for scope in SHARED_SCOPES:
            for row, reading_cpu in list(self._reading_cpus[scope].items()):
                if reading_cpu == cpu:
                    del self._reading_cpus[scope][row]
                    remaining_cpus = [c for c in self._groups[scope][row] if c in self._plans]
                    if successors.keys().isdisjoint(remaining_cpus):
                        successors |= dict.fromkeys(remaining_cpus[:1])
        return [(successor, self._plans_with_shared_rows(successor)) for successor in successors]

    def offline_head_offsets(self, cpus: Iterable[int]) -> list[int]:
        """Returns the offsets, in words of the frame, of the heads of rows that no thread reads:
        the rows of those of `cpus` that are offline, and of their cores and packages."""
        offline = [cpu for cpu in cpus if cpu not in self._plans]
        names = ("cpu", *self._chosen)
        heads = [self._head_offset(name, self._row_index[cpu]) for name in names for cpu in offline]
        for scope in SHARED_SCOPES:
            if offline and scope in self._offsets:
                for row, group in enumerate(self._groups[scope]):
                    if row not in self._reading_cpus[scope] and not set(group).isdisjoint(offline):
                        heads.append(self._head_offset(scope, row))
        return heads

    def _block_columns(self, part: Part) -> dict[int, int]:
        served_keys = {counter.key for block in self._counters.values() for counter in block}
        counters, columns = self._counters[part.scope], dict[int, int]()
        end = sum(counter.columns for counter in counters)
        for first, counter in with_columns(part.counters):
            if counter.key not in served_keys:
                counters.append(counter)
                for column in range(first, first + counter.columns):
                    columns[column] = end + len(columns)
        return columns

    def _head_offset(self, name: str, row: int) -> int:
        return self._offsets[name].heads + row * wire.HEAD

    def _plans_with_shared_rows(self, cpu: int) -> list[RowPlan]:
        """Returns the CPU's row plans, with its core's and package's rows if no CPU reads them."""
        for scope in SHARED_SCOPES:
            if scope not in self._offsets:
                continue
            for row, group in enumerate(self._groups[scope]):
                if cpu in group and row not in self._reading_cpus[scope]:
                    self._reading_cpus[scope][row] = cpu
                    self._plans[cpu].append(self._open_row(scope, row, cpu))
        return self._plans[cpu]

    def _open_row(self, scope: Scope, row: int, cpu: int) -> RowPlan:
        slots = [
            replace(slot, column=columns[slot.column])
            for part, columns in zip(self._parts, self._columns, strict=True)
            if part.scope == scope
            for slot in part.open(cpu)
            if slot.column in columns
        ]
        return self._offsets[scope].row_plan(row, slots)
