"""How far a counter moved between two readings, and how far it can have moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfprobe import wire
from perfprobe.frozen import frozen

if TYPE_CHECKING:
    from perftop.base.arrays import Bools, Floats, Ints, Words

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


@frozen
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
