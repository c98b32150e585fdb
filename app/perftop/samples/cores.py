"""Where the cores of a stream are: which CPUs they have, in which packages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints


def packages(hello: wire.Hello) -> Ints:
    """By position of the CPU, the number of its package; -1: not known."""
    package = {cpu: i for i, group in enumerate(hello.packages) for cpu in group}
    return np.array([package.get(row.cpu, -1) for row in hello.topology], np.int64)


class Cores:
    """The cores while they stay the same; all arrays by position of the core."""

    def __init__(self, hello: wire.Hello, lists: list[list[int]]) -> None:
        self.lists = lists
        self._of = {cpu: i for i, core in enumerate(lists) for cpu in core}
        position = {row.cpu: i for i, row in enumerate(hello.topology)}
        width = max(map(len, lists), default=1)
        rows = [[position[cpu] for cpu in core] for core in lists]
        padded = np.array([row + [-1] * (width - len(row)) for row in rows], int)
        self.rows: Ints = padded.reshape(len(lists), width)
        """(cores, threads) positions of CPUs; -1: there are not so many."""
        self.package: Ints = packages(hello)[self.rows[:, 0]]
        """-1: not known."""
        types = [hello.topology[at].type for at in self.rows[:, 0]]
        kinds = [*zip(self.package.tolist(), types, strict=True)]
        number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        self.group: Ints = np.array([number[kind] for kind in kinds], int)
        """Cores of one package and type: these share a ceiling and a budget."""
        told = {tuple(core): row for row, core in enumerate(hello.cores)}
        self.told: Ints = np.array([told.get(tuple(core), -1) for core in lists], int)
        """Rows of blocks that are by core; -1: hello knew no such core."""
        self.of_cpu: Ints = np.full(len(hello.topology), -1)
        """By position of the CPU, that of its core; -1: it is in none."""
        for i, row in enumerate(rows):
            self.of_cpu[row] = i

    def threads(self, values: Floats, none: float) -> Floats:
        """(cores, threads) of what is by CPU."""
        return np.asarray(np.append(values, none)[self.rows])

    def total(self, values: Floats) -> Floats:
        """Of what its threads have together; what is not known counts for nothing."""
        return np.asarray(self.threads(np.where(np.isfinite(values), values, 0.0), 0.0).sum(axis=1))

    def most(self, values: Floats) -> Floats:
        """What the thread has that has most; NaN: of none it is known."""
        return np.asarray(np.fmax.reduce(self.threads(values, np.nan), axis=1))

    def cpus(self, members: Bools) -> list[int]:
        return sorted(cpu for i in np.flatnonzero(members) for cpu in self.lists[i])

    def of(self, cpus: list[int]) -> Bools:
        """The cores that have one of these CPUs."""
        wanted = {*cpus}
        return np.array([not wanted.isdisjoint(core) for core in self.lists], bool)

    def find(self, asked: Sequence[Sequence[int]]) -> list[int]:
        """Where each of these is, be it that a sibling of it was not known yet; -1: nowhere."""
        return [next((self._of[cpu] for cpu in core if cpu in self._of), -1) for core in asked]
