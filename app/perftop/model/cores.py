"""The cores of a stream: their CPUs and their packages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints


def packages(hello: wire.Hello) -> Ints:
    """Returns the number of each CPU's package, by position of the CPU; -1 where unknown."""
    package = {cpu: i for i, group in enumerate(hello.packages) for cpu in group}
    return np.array([package.get(row.cpu, -1) for row in hello.topology], np.int64)


def with_extra_column(values: Floats, fill: float) -> Floats:
    """Returns the values by row with `none` appended, which row -1 then selects."""
    output = np.empty((*values.shape[:-1], values.shape[-1] + 1))
    output[..., :-1], output[..., -1] = values, fill
    return output


class Cores:
    """The physical cores of a stream, until a hotplug changes them. Arrays are indexed by
    position of the core. Methods keep a leading axis of samples."""

    def __init__(self, hello: wire.Hello, lists: list[list[int]]) -> None:
        self.lists = lists
        self._core_of_cpu = {cpu: i for i, core in enumerate(lists) for cpu in core}
        position = {row.cpu: i for i, row in enumerate(hello.topology)}
        width = max(map(len, lists), default=1)
        rows = [[position[cpu] for cpu in core] for core in lists]
        padded_rows = np.array([row + [-1] * (width - len(row)) for row in rows], int)
        self.rows: Ints = padded_rows.reshape(len(lists), width)
        """(cores, threads): positions of the CPUs; -1 where the core has fewer threads."""
        self._by_thread: Ints = np.ascontiguousarray(self.rows.T)
        """`rows` as (threads, cores), because numpy is slow along a last axis of length two."""
        self.package: Ints = packages(hello)[self.rows[:, 0]]
        """Number of the core's package; -1 where unknown."""
        types = [hello.topology[first_row].type for first_row in self.rows[:, 0]]
        kinds = [*zip(self.package.tolist(), types, strict=True)]
        number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        self.group: Ints = np.array([number[kind] for kind in kinds], int)
        """Number of the core's group. The cores of a group have the same package and type, so they
        share a ceiling and a power budget."""
        row_of = {tuple(core): row for row, core in enumerate(hello.cores)}
        self.block_row: Ints = np.array([row_of.get(tuple(core), -1) for core in lists], int)
        """Row of the core in blocks of core scope; -1 if hello does not list this core."""
        self.of_cpu: Ints = np.full(len(hello.topology), -1)
        """Position of the core, by position of the CPU; -1 if the CPU is in no core."""
        self.alone: Bools = np.ones(len(hello.topology), bool)
        """Whether the CPU is the only thread of its core, by position of the CPU."""
        for i, row in enumerate(rows):
            self.of_cpu[row], self.alone[row] = i, len(row) == 1
        self._equal_threads = bool((self.rows >= 0).all())
        self._has_all_cpus = bool((self.of_cpu >= 0).all())
        """Whether every CPU belongs to a core."""

    def threads(self, values: Floats, fill: float) -> Floats:
        """Returns values by CPU as (cores, threads), with `fill` where a core has no such
        thread."""
        return np.asarray(with_extra_column(values, fill).take(self.rows, axis=-1))

    def by_cpu(self, values: Floats) -> Floats:
        """Returns values by core as values by CPU; NaN for a CPU in no core."""
        padded = values if self._has_all_cpus else with_extra_column(values, np.nan)
        return np.asarray(padded.take(self.of_cpu, axis=-1))

    def total(self, values: Floats) -> Floats:
        """Returns the sum over the threads of each core; unknown values count as 0."""
        is_known = np.isfinite(values)
        if np.count_nonzero(is_known) < is_known.size:
            values = np.where(is_known, values, 0.0)
        return np.asarray(np.add.reduce(self._threads_first(values, 0.0), axis=-2))

    def max_of_threads(self, values: Floats) -> Floats:
        """Returns the maximum over the threads of each core; NaN if the value of every thread is
        unknown."""
        return np.asarray(np.fmax.reduce(self._threads_first(values, np.nan), axis=-2))

    def _threads_first(self, values: Floats, fill: float) -> Floats:
        """Returns values by CPU as (threads, cores)."""
        padded = values if self._equal_threads else with_extra_column(values, fill)
        return padded.take(self._by_thread, axis=-1)

    def cpus(self, members: Bools) -> list[int]:
        return sorted(cpu for i in np.flatnonzero(members) for cpu in self.lists[i])

    def with_cpus(self, cpus: list[int]) -> Bools:
        """Returns a mask of the cores that contain at least one of these CPUs."""
        members = {*cpus}
        return np.array([not members.isdisjoint(core) for core in self.lists], bool)

    def find(self, lists: Sequence[Sequence[int]]) -> list[int]:
        """Returns the position of each of these cores, even if a sibling has been added since; -1
        where there is no such core."""
        return [
            next((self._core_of_cpu[cpu] for cpu in core if cpu in self._core_of_cpu), -1)
            for core in lists
        ]
