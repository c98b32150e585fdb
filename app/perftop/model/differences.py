"""From raw frames to differences. Wraps, gaps, restarts and rewrites are handled only here.

A row that was not read adds nothing: its ticks are 0, and the next difference covers its time too;
an interrupted read counts as none. A column that could not be read is NaN. A sample that cannot be
true is left out and its reason is kept.

If perf has more events than there are counters, it multiplexes them. A block with the two columns
of TIMES tells for how long each group was counted; its other columns whose origin begins with
"perf" are scaled up to the whole span, and are unknown if they were not counted at all.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Words
from perftop.model.block_places import Places
from perftop.model.counter_limits import Limits
from perftop.model.delta import Delta
from perftop.model.doubt import Doubt
from perftop.model.readings import USELESS, Baseline, Readings, Unpacker

WIDE_S, WIDE = 1e-3, 4
"""Seconds, and times the width of the next read: a first read that took longer than both was
interrupted between its stamp and its values, so no difference is taken with it. The probe holds
later reads against the widths of those before them, and flags them."""


class Differences:
    """Takes differences between the frames of one stream, and has the state needed for it."""

    def __init__(self, hello: wire.Hello, places: Places, stamp_hz: float,
                 home: Mapping[str, str], key_at: Mapping[str, int]) -> None:  # fmt: skip
        """`home`: the block of each counter, where its key stands in several; `key_at`: places of
        the counters that can be doubted."""
        self._places, self._stamp_hz = places, stamp_hz
        self._unpacker = Unpacker(places)
        self._limits = Limits([(place.block, place.count) for place in places.each])
        self._baseline = Baseline.none(places)
        core = {cpu: i for i, group in enumerate(hello.cores) for cpu in group}
        self._core_of = np.array([core.get(row.cpu, -1) for row in hello.topology], int)
        self._cores = len(hello.cores)
        position = {row.cpu: at for at, row in enumerate(hello.topology)}
        leader = {cpu: position[group[0]] for group in hello.cores for cpu in group}
        self._leader = np.array([leader.get(row.cpu, position[row.cpu]) for row in hello.topology])
        """Position of the first CPU of the same core, by position of the CPU."""
        per_column = {
            place.block.name: [c.key for c in place.block.counters for _ in range(c.columns)]
            for place in places.of_cpus
        }
        self._keys = {
            name: np.array([key_at[key] for key in keys], int) for name, keys in per_column.items()
        }
        """By block of CPU scope, the place of each column among what can be doubted ..."""
        self._home = {
            name: np.array([home[key] == name for key in keys], bool)
            for name, keys in per_column.items()
        }
        """... and the mask of the columns whose key is not another block's: only times of perf
        stand in several."""
        self._asleep_ns = 0
        self._doubtful = 0
        """Number of further frames that may hold rows from before the machine slept."""

    def copy(self) -> Differences:
        """A copy whose state changes independently."""
        twin = copy.copy(self)
        twin._baseline = self._baseline.copy()  # noqa: SLF001
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes of the state that a copy does not share."""
        return self._baseline.nbytes

    def forget(self, cpu_row: int) -> None:
        """Drop the baseline of a CPU that went offline; its counters may restart."""
        for place in self._places.of_cpus:
            self._baseline.known[place.rows][cpu_row] = False

    def steps(self, frames: Sequence[wire.Frame], delta: Delta) -> None:
        """Write what moved since each row was last read into an empty delta with a leading axis of
        frames."""
        drop = [self._wakes(frame) for frame in frames]
        now = self._unpacker.unpack(frames)
        read = self._read(now)
        before = self._baseline.take(now, read, drop, self._held, self._places)
        self._take(now, self._usable(now, read, before), before, delta)

    def _wakes(self, frame: wire.Frame) -> bool:
        """Whether all baselines must go before this frame: after a suspend the counters may have
        been reset, and what they counted meanwhile measures nothing."""
        slept_ns = asleep_ns(frame)
        if slept_ns != self._asleep_ns:
            self._asleep_ns, self._doubtful = slept_ns, 2
        self._doubtful, wakes = max(0, self._doubtful - 1), self._doubtful > 0
        return wakes

    def _read(self, now: Readings) -> Bools:
        """The rows that can be used for a difference. Widens the reads of block `cpu` by the
        distance between siblings."""
        sampled = now.sampled
        read: Bools = sampled & now.some  # a CPU that is off has no line in /proc/stat
        if not now.plain:
            read &= now.flags & USELESS == 0
        if (rows := self._places.stamps) is not None:
            stamps = now.head[:, rows, 0]
            distance = np.abs((stamps - stamps.take(self._leader, axis=1)).view(np.int64))
            if not now.plain:
                mine = sampled[:, rows]
                distance = np.where(mine & mine[:, self._leader], distance, 0)
            now.width[:, rows] += distance
        return read

    def _held(self, known: Bools, sampled: Bools, flags: Words) -> Bools:
        """Rows to leave out because a sibling's read was interrupted or is missing. The next
        difference of all siblings then covers the same span, as the states of the core require."""
        wide = flags & np.uint64(wire.ROW_WIDE) != 0
        absent = ~sampled & known & (flags & np.uint64(wire.ROW_OFFLINE) == 0)
        waits = np.zeros(self._cores + 1, bool)
        waits[self._core_of[wide | absent]] = True
        waits[-1] = False  # CPUs of no known core
        held: Bools = waits[self._core_of]
        return held

    def _usable(self, now: Readings, read: Bools, before: Baseline) -> Bools:
        """The rows of which there is a difference."""
        usable = read & before.known
        if not now.plain:
            usable &= ~now.flagged(wire.ROW_REBASED)
        if (rows := self._places.stamps) is not None and np.count_nonzero(before.first[:, rows]):
            long = before.width[:, rows] > WIDE * now.width[:, rows] + WIDE_S * self._stamp_hz
            usable[:, rows] &= ~(before.first[:, rows] & long)
        return usable

    def _take(self, now: Readings, usable: Bools, before: Baseline, delta: Delta) -> None:
        places, limits = self._places, self._limits
        stamps = now.head[..., 0]
        ticks = (stamps - before.stamp).astype(np.float64)
        backwards = usable & ((stamps < before.stamp) | (now.head[..., 1] < stamps))
        both = now.valid & before.valid
        moved = limits.moved(before.values, now.values, ticks, places.row_of)
        wrong = limits.wrong(moved, places.spread(ticks / self._stamp_hz)) & both
        good = usable & ~backwards
        some_wrong = bool(np.count_nonzero(wrong))
        if some_wrong:  # where no single counter can be doubted, a row is left out
            good &= places.cpu_rows | ~places.any(wrong)
        moved, width = limits.scaled(moved), before.width + now.width
        known = both & ~wrong if some_wrong else both
        if np.count_nonzero(known) < known.size:
            np.copyto(moved, np.nan, where=~known)
        if np.count_nonzero(good) < good.size:
            np.copyto(moved, 0.0, where=~places.spread(good))
            ticks, width = np.where(good, ticks, 0.0), np.where(good, width, 0.0)
        delta.write(ticks, moved, width)
        delta.skew_ns = now.skew_ns(places)
        if some_wrong or np.count_nonzero(backwards):
            self._doubt(backwards, wrong & places.spread(good), delta)

    def _doubt(self, backwards: Bools, wrong: Bools, delta: Delta) -> None:
        for place in self._places.of_cpus:
            keys, home = self._keys[place.block.name], self._home[place.block.name]
            sample, row = np.nonzero(backwards[:, place.rows])
            delta.doubts[sample[:, None], row[:, None], keys] = Doubt.BACKWARDS
            mine = wrong[:, place.values].reshape(len(wrong), place.count, len(home)) & home
            sample, row, column = np.nonzero(mine)
            delta.doubts[sample, row, keys[column]] = Doubt.JUMPED


def asleep_ns(frame: wire.Frame) -> int:
    """Nanoseconds that the machine was suspended from hello to this frame; 0 if the untrusted
    record is not valid."""
    found = frame.records.get("asleep_ns")
    return found if type(found) is int and 0 <= found < wire.LATEST_NS else 0
