"""The counters of one stream: in which block each is, and what they say of a span of time.

A `Delta` holds, for every counter of hello, how much it moved on each row, in base units, and the
stamp ticks that this took. Deltas add up: an interval is the sum of its samples.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.delta import Delta, Doubt, Places
from perftop.model.differences import TIMES, Differences, times


@dataclass(frozen=True, slots=True)
class BlockCounter:
    """A counter, its block and its first column there."""

    counter: wire.Counter
    block: str
    first: int


class Counters:
    """What the counters of a stream say of a span, and the differences between its frames."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.columns: dict[str, BlockCounter] = {}
        for block in hello.blocks:
            for first, counter in wire.placed(block.counters):
                self.columns.setdefault(counter.key, BlockCounter(counter, block.name, first))
        rate = hello.tsc_hz.hz if hello.tsc_hz else float("nan")
        self.stamp_hz = 1e9 if hello.stamp == "raw" else rate
        """Ticks of the stamps in a second."""
        counted = hello.stamp == "tsc" or "tsc" in self.columns
        self.has_tsc = counted and hello.tsc_hz is not None
        """Elapsed time is known in TSC ticks, and so is their rate."""
        self._times = {block.name: times(block) for block in hello.blocks}
        of_cpus = [b.counters for b in hello.blocks if b.scope == "cpu"]
        self.keys = tuple(dict.fromkeys(c.key for counters in of_cpus for c in counters))
        """Counters of blocks of CPU scope; only these can be doubted."""
        self.key_at = {key: at for at, key in enumerate(self.keys)}
        self._places = Places(hello)
        self._narrow = {
            key: self._places.column(column.block, column.first)
            for key, column in self.columns.items()
            if column.counter.columns == 1
        }
        """Places in a Delta of the counters of one column."""
        home = {key: column.block for key, column in self.columns.items()}
        self._differences = Differences(hello, self._places, self.stamp_hz, home, self.key_at)

    def copy(self) -> Counters:
        """A copy whose state changes independently."""
        twin = copy.copy(self)
        twin._differences = self._differences.copy()  # noqa: SLF001
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes of the state that a copy does not share."""
        return self._differences.nbytes

    def tsc_ticks(self, delta: Delta, block: str = "cpu") -> Floats:
        """TSC ticks between the reads of each CPU: by the stamps, or by a counter where the stamps
        are of another clock."""
        column = self.columns.get("tsc")
        if column is None:
            return delta.tables[block].ticks
        return delta.tables[column.block].moved[..., column.first]

    def places(self, column: BlockCounter) -> tuple[Ints, Ints]:
        """By row of its block, where the ticks and the first column of a counter stand in a
        Delta."""
        return self._places.of(column.block, column.first)

    def nothing(self, *samples: int) -> Delta:
        """An empty span, to add samples to; with a number, as many of them."""
        sums = np.zeros((*samples, self._places.rows + self._places.values))
        widths = np.zeros((*samples, self._places.rows))
        codes = np.zeros((*samples, len(self.hello.topology), len(self.keys)), np.uint8)
        return Delta(self._places, sums, widths, codes, self.keys, np.zeros(samples, int))

    def disbelieve(self, delta: Delta) -> None:
        """Set doubted counters to NaN."""
        if not np.count_nonzero(delta.doubts):
            return
        # Of a read that went backwards nothing is in the differences.
        doubted = (delta.doubts != 0) & (delta.doubts != Doubt.BACKWARDS)
        for at, key in enumerate(self.keys):
            column, rows = self.columns[key], doubted[..., at]
            last = column.first + column.counter.columns
            delta.tables[column.block].moved[..., column.first : last][rows] = np.nan

    def without(self, delta: Delta, rows: Ints) -> Delta:
        """A copy in which the CPUs at these positions count as not read."""
        result = delta.copy()
        for block in self.hello.blocks:
            if block.scope == "cpu":
                result.tables[block.name].ticks[..., rows] = 0.0
                result.tables[block.name].moved[..., rows, :] = 0.0
        return result

    def steps(self, frames: Sequence[wire.Frame]) -> Delta:
        """What moved since each row was last read, with a leading axis of frames."""
        delta = self.nothing(len(frames))
        self._differences.steps(frames, delta)
        return delta

    def moved(self, delta: Delta, key: str) -> Floats | None:
        """How far a counter moved, summed over its columns, by row; None: there is no such
        counter."""
        if (place := self._narrow.get(key)) is not None:
            return delta.column(place)
        column = self.columns.get(key)
        if column is None:
            return None
        last = column.first + column.counter.columns
        each = np.ascontiguousarray(delta.tables[column.block].moved[..., column.first : last])
        return np.asarray(each.sum(axis=-1))

    def rates(self, delta: Delta, key: str) -> Floats | None:
        """A counter's movement per second, or a gauge's mean, by row of its block; NaN where it was
        not read. None: there is no such counter."""
        column, moved = self.columns.get(key), self.moved(delta, key)
        if column is None or moved is None:
            return None
        ticks = delta.tables[column.block].ticks
        span = ticks if column.counter.kind == "gauge" else ticks / self.stamp_hz
        unknown = np.full(moved.shape, np.nan)
        rates: Floats = np.divide(moved, span, out=unknown, where=span > 0)
        return rates

    def has(self, key: str) -> Bools:
        """Mask by position of the CPUs that have this counter."""
        column, rows = self.columns.get(key), self.hello.topology
        if column is None or column.counter.cpus is None:
            return np.full(len(rows), column is not None)
        return np.isin(np.array([row.cpu for row in rows]), column.counter.cpus)

    def counted(self, delta: Delta, key: str = TIMES[0]) -> Floats | None:
        """Share of the time in which perf counted the block of a counter, by position of the CPU;
        below 1 it multiplexed, and the counts are estimates. None: the stream does not tell."""
        column = self.columns.get(key)
        told = None if column is None else self._times[column.block]
        if column is None or told is None:
            return None
        enabled, running = (delta.tables[column.block].moved[..., at] for at in told)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = running / enabled
        return share

    def forget(self, cpu_row: int) -> None:
        """Drop the baseline of a CPU that went offline; its counters may restart."""
        self._differences.forget(cpu_row)


OF: dict[wire.Scope, frozenset[str]] = {
    "core": frozenset({
        "neither_s", "lp0_s", "lp1_s", "both_s", "core_c3", "core_c6", "core_c7", "core_thermal",
        "core_throttles", "core_power_limits", "core_throttled_s", "energy_core_j",
    }),
    "package": frozenset({
        "package_thermal", "package_throttles", "package_power_limits", "package_throttled_s",
        "limit_reasons", "plr_reasons", "power_throttled_s", "energy_j", "energy_ram_j",
        "memory_read_bytes", "memory_write_bytes", "power_limit_w", "power_limit2_w",
        "temperature_c", "ceiling_hz", "e_ceiling_hz", "turbo_disabled", "pstate_limit",
        "tdp_base_hz", "hsmp_limits", "hsmp_prochot", "pcu_ticks", "pcu_transition", "pcu_os",
        "pcu_power", "pcu_vr", "pcu_thermal", "pcu_current", "pcu_prochot_internal",
        "pcu_prochot_external", "pcu_avx256", "pcu_avx512",
    }),
    "machine": frozenset({
        "turbo_off", "max_perf_pct", "pressure_cpu_s", "pressure_io_s", "pressure_memory_s",
        "load_1", "load_5", "load_15", "interrupts", "context_switches", "probe_cpu_s",
    }),
}  # fmt: skip
_SCOPES = {key: scope for scope, keys in OF.items() for key in keys}


def placed(hello: wire.Hello) -> wire.Hello:
    """Hello in which a counter that stands in a block of another scope has a key that nothing asks
    for: it has too many rows, or too few. Its values keep their place in frames."""
    return replace(hello, blocks=[_placed(block) for block in hello.blocks])


def _placed(block: wire.Block) -> wire.Block:
    counters = [
        counter if _SCOPES.get(counter.key, "cpu") == block.scope
        else replace(counter, key=f"{block.scope} {counter.key}")
        for counter in block.counters
    ]  # fmt: skip
    return replace(block, counters=counters)


class Quantities:
    """Inputs of formulas over a span: how far each counter moved, by key and then by CPU, and
    elapsed time."""

    def __init__(self, counters: Counters, delta: Delta, base_hz: float) -> None:
        self._counters, self._delta = counters, delta
        self.base_hz = base_hz
        rate = counters.hello.tsc_hz
        self.tsc_hz = rate.hz if rate else float("nan")
        self._moved: dict[str, Floats] = {}
        self._seconds: dict[str, Floats] = {}
        """Elapsed seconds by block."""

    def __getitem__(self, key: str) -> Floats:
        moved = self._moved.get(key)
        if moved is None:
            moved = self._counters.moved(self._delta, key)
            assert moved is not None, key
            self._moved[key] = moved
        return moved

    @cached_property
    def tsc_s(self) -> Floats:
        """Seconds between the two reads of a row, by the TSC."""
        return self._counters.tsc_ticks(self._delta) / self.tsc_hz

    @cached_property
    def ref_s(self) -> Floats:
        """Seconds not halted; reference cycles count at the rate of the TSC."""
        return self["ref"] / self.tsc_hz

    def share(self, key: str) -> Floats:
        """A counter of seconds as a share of its own span."""
        return self[key] / self.seconds(key)

    def seconds(self, key: str) -> Floats:
        """Elapsed seconds of the span in which `key` was counted."""
        block = self._counters.columns[key].block
        elapsed = self._seconds.get(block)
        if elapsed is None:
            elapsed = self._delta.tables[block].ticks / self._counters.stamp_hz
            self._seconds[block] = elapsed
        return elapsed
