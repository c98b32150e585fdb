"""The trail of what each sample showed, for pictures of time at the resolution of sampling.

Of each metric its numerator and denominator, so that any span of time is a sum of each and one
division; of each core the seconds in its SMT states and its ceiling. 0 where nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Floats, Ints, Singles
from perftop.model.cores import Cores
from perftop.model.counters import BlockCounter, Counters
from perftop.model.sample_reader import Sample, SampleBatch, StackedSamples
from perftop.model.smt import STATES

Times = Ints

WEIGHT = len(STATES)
CEILING = WEIGHT + 1
"""Columns of a core, behind the seconds in its states: seconds in which these are known; Hz."""


@frozen
class Shared:
    """A counter of packages or of L3s, and the rows of its block that are kept."""

    column: BlockCounter
    rows: Ints

    def of(self, moved: Floats) -> Floats:
        """How far it moved, by sample and row; `moved` is by sample, row and column of its
        block."""
        first = self.column.first
        mine = np.ascontiguousarray(moved[..., first : first + self.column.counter.columns])
        return np.asarray(mine.sum(axis=2))


class Trail:
    """Some samples in a row, as long as there is room."""

    def __init__(
        self, metrics: Sequence[int], machine: Sequence[BlockCounter], counters: Counters,
        cores: Cores, shared: Sequence[Shared], room: int,
    ) -> None:  # fmt: skip
        """`metrics`: those that are kept, as positions in the registry; `machine`: counters of the
        whole machine that are kept; `shared`: those of packages and L3s."""
        self._metrics, self._stamp_hz = np.array(metrics, int), counters.stamp_hz
        cpus = len(counters.hello.topology)
        self.cores = cores
        self.room = room
        self.count = 0
        self._waiting: list[Sample] = []
        """The newest samples, which are not written yet."""
        self._ends = np.zeros(room, np.int64)
        self._parts: Singles = np.zeros((2, len(metrics), room, cpus), np.float32)
        self._of_shared, self._first_shared = shared, len(machine)
        kept = [*(Shared(column, np.zeros(1, int)) for column in machine), *shared]
        places = [[part[each.rows] for part in counters.places(each.column)] for each in kept]
        places.append([np.zeros(0, int)] * 2)
        self._ticks, self._moved = map(np.concatenate, zip(*places, strict=True))
        self._machine: Singles = np.zeros((2, len(self._ticks), room), np.float32)
        """Counters of the whole machine, and behind them the rows of packages and L3s."""
        # One more than there are cores: position -1 is a core of which nothing is known.
        self._cores: Singles = np.zeros((room, len(cores.lists) + 1, CEILING + 1), np.float32)

    @property
    def nbytes(self) -> int:
        kept = self._ends, self._parts, self._machine, self._cores
        return sum(array.nbytes for array in kept)

    @property
    def ends(self) -> Times:
        """Raw ns of the end of each sample."""
        return self._ends[: self.count]

    def parts(self, metrics: Sequence[int], samples: slice) -> Singles:
        """Numerators and denominators, (2, metrics, samples, CPUs), of those kept at these
        places."""
        self.settle()
        return self._parts[:, metrics, samples]

    def of_machine(self, counters: Sequence[int], samples: slice) -> Singles:
        """(samples, 2, counters): how far the counters kept at these places moved, and in how many
        ticks."""
        self.settle()
        return self._machine[:, counters, samples].transpose(2, 0, 1)

    def of_shared(self, first: int, last: int, samples: slice) -> Singles:
        """(samples, 2, rows): the same of these rows of packages and L3s, which are counted one
        counter after the other."""
        self.settle()
        rows = slice(self._first_shared + first, self._first_shared + last)
        return self._machine[:, rows, samples].transpose(2, 0, 1)

    def of_cores(self, asked: Sequence[Sequence[int]], samples: slice) -> Singles:
        """(samples, cores, CEILING + 1) for cores given as lists of CPUs."""
        self.settle()
        return self._cores[samples, self.cores.find(asked)]

    def add(self, end_ns: int, sample: Sample) -> None:
        self._ends[self.count] = end_ns
        self.count += 1
        self._waiting.append(sample)

    def settle(self) -> None:
        """Write the samples that were added, which costs little more than to write one."""
        if not self._waiting:
            return
        here = slice(self.count - len(self._waiting), self.count)
        samples, self._waiting = StackedSamples(self._waiting), []
        with np.errstate(over="ignore", invalid="ignore"):
            top, bottom = (
                self._kept(part).swapaxes(0, 1)
                for part in (
                    samples.part(lambda among: among.values.top),
                    samples.part(lambda among: among.values.bottom),
                )
            )
            self._settle_machine(samples, here)
            known = np.isfinite(top) & np.isfinite(bottom)
            _write(self._parts[0, :, here], top, known)
            _write(self._parts[1, :, here], bottom, known)
            states = samples.part(lambda among: among.split.states)
            ceiling = samples.part(lambda among: among.ceilings.hz)
            known = np.isfinite(states[..., 0])
            ticks = samples.part(lambda among: among.delta.tables["cpu"].ticks)
            weight = self.cores.most(ticks / self._stamp_hz)
            cores = self._cores[here, :-1]
            _write(cores[..., :WEIGHT], states * weight[..., None], known[..., None])
            _write(cores[..., WEIGHT], weight, known)
            _write(cores[..., CEILING], ceiling, np.isfinite(ceiling))

    def _kept(self, part: Floats) -> Floats:
        """The metrics that are kept of (samples, metrics, CPUs); mostly all are."""
        every = len(self._metrics) == part.shape[1]
        return part if every else part.take(self._metrics, axis=1)

    def _settle_machine(self, samples: StackedSamples, here: slice) -> None:
        moved = samples.part(lambda among: among.delta.at(self._moved))
        ticks = samples.part(lambda among: among.delta.at(self._ticks))
        last = self._first_shared
        for shared in self._of_shared:
            first, last = last, last + len(shared.rows)
            if shared.column.counter.columns > 1:
                every = samples.part(partial(_of_block, shared.column.block))
                moved[:, first:last] = shared.of(every[:, shared.rows])
        known = (np.isfinite(moved) & (ticks > 0)).T
        _write(self._machine[0, :, here], moved.T, known)
        _write(self._machine[1, :, here], ticks.T, known)


def _of_block(block: str, among: SampleBatch) -> Floats:
    """What moved there, by sample, row and column."""
    return among.delta.tables[block].moved


def _write(to: Singles, values: Floats, known: Bools) -> None:
    if np.count_nonzero(known) == known.size:
        to[...] = values
    else:
        np.copyto(to, values, where=known, casting="same_kind")
