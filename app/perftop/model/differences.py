"""From raw frames to differences. Wraps, gaps, restarts and rewrites are handled only here.

A row that was not read adds nothing: its ticks are 0, and its next difference covers that time too.
An interrupted read counts as not read. A column that could not be read is NaN. A difference that
cannot be true is left out, and the reason is kept as a doubt.

If perf has more events than there are counters, it multiplexes them. A block with the two columns
of PERF_TIMES shows for how long each group was counted; its other columns whose origin begins with
"perf" are scaled up to the whole span, and are unknown if they were not counted at all.

Arrays are (frames, rows) or (frames, values), with the rows and values of all blocks one after
another. A single frame is a batch of one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints, Words
from perftop.model.delta import Delta, Doubt, Gaps, Place, Places

if TYPE_CHECKING:
    from perftop.base.arrays import Bools, Floats, Ints, Words

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


USELESS = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE | wire.ROW_OFFLINE)
PLAIN = np.uint64(wire.ROW_SAMPLED)
HEAD_BYTES = 8 * wire.HEAD
WORD = 64
"""Columns whose validity one word has."""

Hold = Callable[[Bools, Bools, Words], Bools]
"""From known, sampled and flags of one frame's rows of a block: those that must wait for the next
frame."""


@dataclass
class Readings:
    """What the frames say; all is 0 in the rows of a block that a frame does not have."""

    head: Words
    valid: Bools
    values: Words
    some: Bools
    """Rows with a valid value, and all rows that a frame has of block `cpu`."""
    there: Bools
    """Rows of the blocks that each frame has."""
    width: Floats
    """Stamp ticks that each read took."""
    flags: Words
    plain: bool
    """Every row that is there was read, and nothing is odd about it, as it mostly is."""

    def flagged(self, bit: int) -> Bools:
        found: Bools = self.flags & np.uint64(bit) != 0
        return found

    @cached_property
    def sampled(self) -> Bools:
        return self.there if self.plain else self.flagged(wire.ROW_SAMPLED)

    def skew_ns(self, places: Places) -> Ints:
        """Time between the first and the last wake-up of the reads of each frame, the longest of
        all blocks of CPU scope."""
        late, longest = self.head[..., 2].copy(), np.zeros(len(self.head), np.int64)
        sampled = self.sampled
        for place in places.of_cpus:
            mine = late[:, place.rows]
            read = sampled[:, place.rows]
            if self.plain or np.count_nonzero(read) == read.size:
                skew = np.maximum.reduce(mine, axis=1) - np.minimum.reduce(mine, axis=1)
            else:
                last = np.where(read, mine, 0).max(axis=1)
                first = np.minimum(np.where(read, mine, last[:, None]).min(axis=1), last)
                skew = last - first
            longest = np.maximum(longest, skew.view(np.int64))
        return longest


def heads(data: wire.Bytes, rows: int) -> wire.Bytes:
    """The heads of all rows of a block; where there is one for all of them, it is repeated."""
    return bytes(data) * rows if len(data) == HEAD_BYTES else data


class Unpacker:
    """Makes readings of frames. What is the same in batch after batch is kept: which blocks come
    with which frames, and which values are valid."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._blocks = [(place.block.name, _nothing(place)) for place in places.each]
        """The blocks, and what stands for each in a frame that does not have it."""
        bits, first = [], 0
        for place in places.each:
            bits.append(first + _bits(place.block, place.count))
            first += WORD * place.block.valid_words * place.count
        self._bits: Ints = np.concatenate(bits)
        """The bit of each value among those of all validity words."""
        self._there: tuple[bytes, Bools, Words] | None = None
        self._valid: tuple[bytes, bytes, Bools, Bools] | None = None

    def unpack(self, frames: Sequence[wire.Frame]) -> Readings:
        count, places = len(frames), self._places
        each = [
            frame.blocks.get(name, nothing) for frame in frames for name, nothing in self._blocks
        ]
        there = bytes([name in frame.blocks for frame in frames for name, _ in self._blocks])
        head = b"".join([rows.head for rows in each])
        if len(head) != HEAD_BYTES * places.rows * count:  # one head for all rows of some blocks
            sizes = [place.count for place in places.each] * count
            head = b"".join([heads(rows.head, n) for rows, n in zip(each, sizes, strict=True)])
        heading = np.frombuffer(head, "<u8").reshape(count, places.rows, wire.HEAD)
        moved = np.frombuffer(b"".join([rows.values for rows in each]), "<u8")
        moved = moved.reshape(count, places.values)
        known, plain = self._presence(there, count)
        told, some = self._validity(there, b"".join([rows.valid for rows in each]), known)
        width = (heading[..., 1] - heading[..., 0]).astype(np.float64)
        flags = heading[..., 4].copy()
        odd = np.count_nonzero(flags != plain)
        return Readings(heading, told, moved, some, known, width, flags, not odd)

    def _presence(self, there: bytes, count: int) -> tuple[Bools, Words]:
        """(frames, rows) which rows are there, and the flags of those that were read as they
        should."""
        if self._there is None or self._there[0] != there:
            each = np.frombuffer(there, bool).reshape(count, -1)
            rows: Bools = np.repeat(each, [place.count for place in self._places.each], axis=1)
            self._there = there, rows, np.where(rows, PLAIN, np.uint64(0))
        return self._there[1:]

    def _validity(self, there: bytes, words: bytes, known: Bools) -> tuple[Bools, Bools]:
        """(frames, values) which are valid, and (frames, rows) which rows have some."""
        if self._valid is None or self._valid[:2] != (there, words):
            packed = np.frombuffer(words, np.uint8).reshape(len(known), -1)
            bits = np.unpackbits(packed, axis=1, bitorder="little").view(bool)
            valid: Bools = bits[:, self._bits]
            some = self._places.any(valid)
            if (stamps := self._places.stamps) is not None:
                some[:, stamps] = known[:, stamps]
            self._valid = there, words, valid, some
        return self._valid[2:]


def _nothing(place: Place) -> wire.Rows:
    head, words = bytes(HEAD_BYTES * place.count), place.block.valid_words
    return wire.Rows(head, bytes(8 * words * place.count), bytes(8 * place.count * place.columns))


def _bits(block: wire.Block, rows: int) -> Ints:
    """The places of its valid bits among those of the validity words of all rows."""
    first = WORD * block.valid_words * np.arange(rows)[:, None]
    return np.asarray((first + np.arange(block.columns)).ravel())


@dataclass(slots=True)
class Baseline:
    """The latest reading of each row; with a leading axis, as before each of several frames."""

    stamp: Words
    width: Floats
    values: Words
    valid: Bools
    first: Bools
    """(rows) nothing was read before it."""
    known: Bools
    """(rows) there is a reading to take a difference with."""

    @classmethod
    def none(cls, places: Places) -> Baseline:
        n, values = places.rows, places.values
        return cls(
            np.zeros(n, np.uint64), np.zeros(n), np.zeros(values, np.uint64),
            np.zeros(values, bool), np.zeros(n, bool), np.zeros(n, bool),
        )  # fmt: skip

    def copy(self) -> Baseline:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return Baseline(*(part.copy() for part in parts))  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return sum(part.nbytes for part in parts)

    def take(
        self, now: Readings, read: Bools, drop: Sequence[bool], hold: Hold, places: Places
    ) -> Baseline:
        """What each frame is compared with; then the newest readings are the baseline. Clears
        rows of `read`, the rows that can be used, that `hold` leaves out. `drop`: by frame, whether
        all earlier readings must be forgotten before it."""
        known = self._known(now, read, drop, hold, places)
        of_rows, of_values = places.gaps(read)
        stamp, self.stamp = _earlier(self.stamp, now.head[..., 0].copy(), of_rows)
        width, self.width = _earlier(self.width, now.width, of_rows)
        first, self.first = _earlier(self.first, ~known, of_rows)
        values, self.values = _earlier(self.values, now.values, of_values)
        valid, self.valid = _earlier(self.valid, now.valid, of_values)
        return Baseline(stamp, width, values, valid, first, known)

    def _known(
        self, now: Readings, read: Bools, drop: Sequence[bool], hold: Hold, places: Places
    ) -> Bools:
        """(frames, rows) whether there is a reading before each frame."""
        if now.plain and not any(drop):
            if len(read) == 1:
                before: Bools = self.known[None]
                self.known = self.known | read[0]
                return before
            by_then = np.logical_or.accumulate(np.concatenate([self.known[None], read]))
            self.known = by_then[-1].copy()
            return np.asarray(by_then[:-1])
        offline, sampled = now.flagged(wire.ROW_OFFLINE), now.sampled
        calm = np.asarray(((sampled | ~now.there) & ~now.flagged(wire.ROW_WIDE)).all(axis=1))
        known = np.zeros(read.shape, bool)
        for i, befores in enumerate(known):
            if drop[i]:
                self.known = self.known & False
            befores[:] = self.known
            for place in () if calm[i] else places.of_cpus:
                rows = place.rows
                read[i, rows] &= ~hold(self.known[rows], sampled[i, rows], now.flags[i, rows])
            self.known = (self.known | read[i]) & ~offline[i]
        return known


def _earlier(old: np.ndarray, new: np.ndarray, gaps: Gaps | None) -> tuple[np.ndarray, np.ndarray]:
    """The latest reading before each frame, and after all of them. Neither may be changed: of a
    single frame as little as can be is copied."""
    if len(new) == 1:
        after = new[0]
        if gaps is not None:
            after = after.copy()
            after[gaps.missing] = old[gaps.missing]
        return old[None], after
    both = np.concatenate([old[None], new])
    if gaps is not None:
        gaps.fill(both)
    return both[:-1], both[-1].copy()


MAX_HZ = 10e9
"""Faster than any clock; a cycle counter that moved more was rewritten, it did not wrap."""
MAX_IPC = 16.0
MAX_EVENTS = 1000 * MAX_HZ
"""Most of any event in a second: counters of queues add up what is in them in each cycle."""
TIME_SLACK_S = 0.05
"""How far a counter of seconds may run ahead of its span: it has ticks of 10 ms, and an idle period
is added to it at once."""

UNLIMITED = 1e30
"""No limit; finite, so that its product with 0 seconds is 0."""

MOST = {"cycles": MAX_HZ, "instructions": MAX_HZ * MAX_IPC, "events": MAX_EVENTS, "s": 1.0}
"""The most of a unit in a second."""

TIMES = ("perf_enabled_s", "perf_running_s")
Blocks = Sequence[tuple[wire.Block, int]]
"""Blocks with the number of rows of each."""


class Limits:
    """How to take differences and how large they can be, for each value of some blocks, one block
    behind the other."""

    def __init__(self, blocks: Blocks) -> None:
        self._scale: Floats = _each(blocks, lambda c, _: c.scale, float)
        self._mask: Words = _each(blocks, lambda c, _: (1 << c.bits) - 1, np.uint64)
        self._gauges: Ints = np.flatnonzero(_each(blocks, lambda c, _: c.kind == "gauge", bool))
        full = _each(blocks, lambda c, _: c.bits == 64 and c.kind != "gauge", bool)
        self._limit: Floats = _each(blocks, _limit, float)
        slack: Floats = _each(blocks, lambda c, _: TIME_SLACK_S if c.unit == "s" else 1e6, float)
        self._slack = slack
        self._least = np.where(full, -slack, -np.inf)
        """The kernel's sums may step back a little, so they are signed."""
        self._turning = [*_turning(blocks)]

    def moved(self, old: Words, new: Words, ticks: Floats, row_of: Ints) -> Floats:
        """Differences in base units (gauges: value times ticks), modulo the width of each counter,
        so that a wrap needs no special case. `ticks`: of each row; `row_of`: the row of each
        value."""
        steps = new - old
        steps &= self._mask
        plain = steps.view(np.int64).astype(np.float64)
        if len(at := self._gauges):  # signed, and weighted with time
            plain[:, at] = new[:, at].view(np.int64).astype(np.float64) * ticks[:, row_of[at]]
        plain *= self._scale
        return plain

    def scaled(self, moved: Floats) -> Floats:
        """The differences, scaled up to the whole span where perf multiplexed the counters."""
        for block in self._turning:
            mine = moved[:, block.values].reshape(-1, block.rows, len(block.columns))
            enabled, running = (mine[..., at, None] for at in block.times)
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.where(running > 0, enabled / running, np.nan)
            mine[:] = np.where(block.columns, mine * factor, mine)
        return moved

    def wrong(self, moved: Floats, seconds: Floats) -> Bools:
        """Mask of differences that cannot be true: somebody wrote the counter, or the read cannot
        be trusted. `seconds`: of each value; they are changed."""
        seconds *= self._limit
        seconds += self._slack
        result: Bools = moved > seconds
        if not np.minimum.reduce(moved, axis=None, initial=0.0) >= 0:
            result |= moved < self._least
        for block in self._turning:  # what is scaled by wrong times is wrong
            mine = result[:, block.values].reshape(-1, block.rows, len(block.columns))
            mine |= block.columns & mine[..., block.times].any(axis=-1, keepdims=True)
        return result


def _each(
    blocks: Blocks, of: Callable[[wire.Counter, wire.Scope], object], kind: type
) -> np.ndarray:
    """What is said of the counter of each value, and of the scope of its block."""
    return np.concatenate([
        np.tile(np.array([of(c, block.scope) for c in _columns(block)], kind), rows)
        for block, rows in blocks
    ])  # fmt: skip


def _limit(counter: wire.Counter, scope: wire.Scope) -> float:
    """The most that it can move in a second."""
    if counter.kind != "counter" or scope != "cpu":
        return UNLIMITED
    return MOST.get(counter.unit, UNLIMITED)


@dataclass(frozen=True, slots=True)
class _Turning:
    """A block whose counters take turns."""

    values: slice
    rows: int
    columns: Bools
    """Mask of those that are scaled up."""
    times: tuple[int, int]
    """The columns of both times of perf."""


def _turning(blocks: Blocks) -> Iterator[_Turning]:
    first = 0
    for block, rows in blocks:
        last = first + rows * block.columns
        if (at := times(block)) is not None:
            per_column = _columns(block)
            scaled = [c.origin.startswith("perf") and c.key not in TIMES for c in per_column]
            yield _Turning(slice(first, last), rows, np.array(scaled, bool), at)
        first = last


def _columns(block: wire.Block) -> list[wire.Counter]:
    """The counter of each column."""
    return [c for c in block.counters for _ in range(c.columns)]


def times(block: wire.Block) -> tuple[int, int] | None:
    """The columns of both times of perf; None: the block does not have both."""
    keys = [c.key for c in _columns(block)]
    enabled, running = TIMES
    both = enabled in keys and running in keys
    return (keys.index(enabled), keys.index(running)) if both else None
