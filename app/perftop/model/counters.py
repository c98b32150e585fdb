"""The counters of one stream (`Counters`) and its cores (`Cores`).

`Counters` finds each counter in its block, and computes increments and rates. A `Delta` contains
the increments of all counters over one span, in base units, and the length of the span in stamp
ticks. Deltas can be added: an interval is the sum of its samples.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.delta import PERF_TIMES, Delta, DeltaLayout, Doubt, perf_time_columns
from perftop.model.differences import Differences

KEYS_BY_SCOPE: dict[wire.Scope, frozenset[str]] = {
    "core": frozenset({
        "neither_s", "lp0_s", "lp1_s", "both_s", "core_c3", "core_c6", "core_c7", "core_thermal",
        "core_throttles", "core_power_limits", "core_throttled_s", "energy_core_j",
    }),
    "package": frozenset({
        "package_thermal", "package_throttles", "package_power_limits", "package_throttled_s",
        "limit_reasons", "plr_reasons", "power_throttled_s", "energy_j", "energy_ram_j",
        "memory_read_bytes", "memory_write_bytes", "power_limit_w", "power_limit2_w",
        "temperature_c", "ceiling_hz", "e_ceiling_hz", "turbo_disabled", "pstate_limit",
        "tdp_base_hz", "hsmp_limits", "hsmp_limit_times", "hsmp_prochot", "pcu_ticks",
        "pcu_transition", "pcu_os", "pcu_power", "pcu_vr", "pcu_thermal", "pcu_current",
        "pcu_prochot_internal", "pcu_prochot_external", "pcu_avx256", "pcu_avx512", "uncore_hz",
        "uncore_max_hz", "kvm_users", "memory_clock",
    }),
    "machine": frozenset({
        "turbo_off", "max_perf_pct", "pressure_cpu_s", "pressure_io_s", "pressure_memory_s",
        "load_1", "load_5", "load_15", "interrupts", "context_switches", "probe_cpu_s",
    }),
}  # fmt: skip
"""Keys of the counters that exist once per core, per package or per machine, as listed in the
docstring of `perfprobe.wire`. All other counters exist once per CPU."""
MIN_COUNTED_SHARE = 0.99
"""Minimum share of a span in which perf counts without multiplexing. The missing 1 % allows for the
time before the first count."""
_SCOPES = {key: scope for scope, keys in KEYS_BY_SCOPE.items() for key in keys}


def rename_misplaced(hello: wire.Hello) -> wire.Hello:
    """Renames counters that hello lists in a block of the wrong scope, so that no formula uses
    them: their number of rows is wrong. Frames keep their values."""
    blocks = []
    for block in hello.blocks:
        counters = [
            counter
            if _SCOPES.get(counter.key, "cpu") == block.scope
            else replace(counter, key=f"{block.scope} {counter.key}")
            for counter in block.counters
        ]
        blocks.append(replace(block, counters=counters))
    return replace(hello, blocks=blocks)


def aliased_counters(hello: wire.Hello) -> dict[str, wire.Counter]:
    """Returns the CPU counters that hello also lists under an alias (`aliases`), by alias."""
    counters = {c.key: c for block in hello.blocks if block.scope == "cpu" for c in block.counters}
    return {
        name: replace(counters[key], key=name)
        for name, key in hello.aliases.items()
        if key in counters and name not in counters
    }


@dataclass(frozen=True, slots=True)
class BlockCounter:
    """A counter, its block, and the index of its first column in that block."""

    counter: wire.Counter
    block: str
    scope: wire.Scope
    index: int


class Counters:
    """The counters of one stream, with methods that compute their increments and rates."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.columns: dict[str, BlockCounter] = {}
        for block in hello.blocks:
            for first, counter in wire.with_columns(block.counters):
                column = BlockCounter(counter, block.name, block.scope, first)
                self.columns.setdefault(counter.key, column)
        for name, counter in aliased_counters(hello).items():
            column = self.columns[hello.aliases[name]]
            self.columns.setdefault(name, replace(column, counter=counter))
        rate = hello.tsc_hz.hz if hello.tsc_hz else float("nan")
        self.stamp_hz = 1e9 if hello.stamp == "raw" else rate
        """Stamp ticks per second."""
        counts_tsc = hello.stamp == "tsc" or "tsc" in self.columns
        self.has_tsc = counts_tsc and hello.tsc_hz is not None
        """Whether the stream measures time in TSC ticks at a known rate."""
        self._times = {block.name: perf_time_columns(block) for block in hello.blocks}
        only_cpus = [b.counters for b in hello.blocks if b.scope == "cpu"]
        without_guests = [m.cpus for m in hello.missing if m.what == "guests"]
        self.without_guests: Bools = np.zeros(len(hello.topology), bool)
        """Mask of the CPUs on which perf does not count while a guest runs."""
        for i, row in enumerate(hello.topology):
            self.without_guests[i] = any(cpus is None or row.cpu in cpus for cpus in without_guests)
        self._package = packages(hello)
        self.keys = tuple(dict.fromkeys(c.key for counters in only_cpus for c in counters))
        """Keys of the CPU counters. Only CPU counters can be suspect."""
        self.multiplexed = frozenset(
            key
            for key, column in self.columns.items()
            if column.counter.origin.startswith("perf") and self._times[column.block] is not None
        )
        """Keys of the counters that perf may multiplex, in blocks with counting times."""
        self.key_indexes = {key: index for index, key in enumerate(self.keys)}
        self.key_indexes |= {n: self.key_indexes[hello.aliases[n]] for n in aliased_counters(hello)}
        self._layout = DeltaLayout(hello)
        main_blocks = {key: column.block for key, column in self.columns.items()}
        self.differences = Differences(
            hello, self._layout, self.stamp_hz, main_blocks, self.key_indexes
        )

    def copy(self) -> Counters:
        """Returns a copy with its own state."""
        copied = copy.copy(self)
        copied.differences = self.differences.copy()
        return copied

    def tsc_ticks(self, delta: Delta, block: str = "cpu") -> Floats:
        """Returns the TSC ticks between the two reads of each CPU, from the counter `tsc` if the
        stream has it, else from the time stamps."""
        column = self.columns.get("tsc")
        if column is None:
            return delta.tables[block].ticks
        return delta.tables[column.block].increments[..., column.index]

    def value_indexes(self, column: BlockCounter) -> tuple[Ints, Ints]:
        """Returns, for each row of the counter's block, two indexes into a Delta: of its ticks, and
        of the counter's first column."""
        return self._layout.delta_indexes(column.block, column.index)

    def empty_delta(self, *samples: int) -> Delta:
        """Returns a Delta of zeros. `samples`: the number of samples; without it, the Delta is a
        sum that has no axis of samples."""
        sums = np.zeros((*samples, self._layout.rows + self._layout.values))
        widths = np.zeros((*samples, self._layout.rows))
        codes = np.zeros((*samples, len(self.hello.topology), len(self.keys)), np.uint8)
        return Delta(self._layout, sums, widths, codes, self.keys, np.zeros(samples, int))

    def blank_doubted(self, delta: Delta) -> None:
        """Sets the increments of suspect counters to NaN."""
        if not np.count_nonzero(delta.doubts):
            return
        # A read whose time stamps ran backwards is already excluded from all differences.
        is_doubted = (delta.doubts != 0) & (delta.doubts != Doubt.BACKWARDS)
        for index, key in enumerate(self.keys):
            column, rows = self.columns[key], is_doubted[..., index]
            last = column.index + column.counter.columns
            delta.tables[column.block].increments[..., column.index : last][rows] = np.nan

    def steps(self, frames: Sequence[wire.Frame]) -> Delta:
        """Returns each counter's increment since the previous read of its row, for each frame."""
        delta = self.empty_delta(len(frames))
        self.differences.steps(frames, delta)
        return delta

    def increments(self, delta: Delta, key: str) -> Floats | None:
        """Returns a counter's increment by row of its block, summed over its columns; None if the
        stream does not have the counter."""
        column = self.columns.get(key)
        if column is None:
            return None
        increments = delta.tables[column.block].increments
        first, width = column.index, column.counter.columns
        if width == 1:
            return increments[..., first]
        columns = np.ascontiguousarray(increments[..., first : first + width])
        return np.asarray(columns.sum(axis=-1))

    def rates(self, delta: Delta, key: str) -> Floats | None:
        """Returns a counter's rate per second, or a gauge's mean, by row of its block; NaN where
        the row was not read. None if the stream does not have the counter."""
        column, increments = self.columns.get(key), self.increments(delta, key)
        if column is None or increments is None:
            return None
        ticks = delta.tables[column.block].ticks
        span = ticks if column.counter.kind == "gauge" else ticks / self.stamp_hz
        unknown = np.full(increments.shape, np.nan)
        rates: Floats = np.divide(increments, span, out=unknown, where=span > 0)
        return rates

    def is_counted(self, key: str) -> Bools:
        """Returns a mask of the CPUs that have this counter."""
        column, rows = self.columns.get(key), self.hello.topology
        if column is None or column.counter.cpus is None:
            return np.full(len(rows), column is not None)
        return np.isin(np.array([row.cpu for row in rows]), column.counter.cpus)

    def counted_share(self, delta: Delta, key: str = PERF_TIMES[0]) -> Floats | None:
        """Returns, for each CPU, the share of the time in which perf counted the counter's block;
        None if unknown. Below 1, perf multiplexed the counters, and the counts are estimates."""
        column = self.columns.get(key)
        times = None if column is None else self._times[column.block]
        if column is None or times is None:
            return None
        increments = delta.tables[column.block].increments
        enabled, running = (increments[..., index] for index in times)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = running / enabled
        return share

    def is_estimated(self, delta: Delta, key: str) -> Bools:
        """Returns a mask of the CPUs on which the count is an estimate, because perf multiplexed
        the counter or did not count guests. Checks do not rely on estimates."""
        share = self.counted_share(delta, key) if key in self.multiplexed else None
        if share is None:
            return np.zeros(1, bool)
        return np.asarray((share < MIN_COUNTED_SHARE) | self.leaves_out_guests(delta))

    def leaves_out_guests(self, delta: Delta) -> Bools:
        """Returns a mask of the CPUs on which a guest may have run without being counted."""
        users = self.rates(delta, "kvm_users")
        if users is None:
            return self.without_guests
        idle: Bools = with_extra_column(users, np.nan)[..., self._package] == 0
        return self.without_guests & ~idle

    def was_not_counted(self, delta: Delta, key: str) -> Bools:
        """Returns a mask of the CPUs whose count is unknown because the kernel never scheduled the
        counter's multiplexed group, not because the count is suspect."""
        increments = self.increments(delta, key)
        if increments is None or key not in self.multiplexed:
            return np.zeros(1, bool)
        return np.asarray(np.isnan(increments) & (delta.doubts[..., self.key_indexes[key]] == 0))

    def is_partly_counted(self, delta: Delta, key: str) -> Bools:
        """Returns a mask of the CPUs on which the count covers only part of the span: its group was
        never scheduled, or guests were not counted. The kernel's idle time can replace it."""
        was_missed = self.was_not_counted(delta, key)
        if key not in self.multiplexed:
            return was_missed
        return np.asarray(was_missed | self.leaves_out_guests(delta))


class Quantities(dict[str, Floats]):
    """Inputs of formulas over a span, by CPU: increments of counters by key, and elapsed time."""

    def __init__(self, counters: Counters, delta: Delta, base_hz: float) -> None:
        self._counters, self._delta = counters, delta
        self.base_hz = base_hz
        rate = counters.hello.tsc_hz
        self.tsc_hz = rate.hz if rate else float("nan")
        self._seconds: dict[str, Floats] = {}
        """Elapsed seconds by block."""

    def __missing__(self, key: str) -> Floats:
        increments = self._counters.increments(self._delta, key)
        assert increments is not None, key
        self[key] = increments
        return increments

    @cached_property
    def tsc_s(self) -> Floats:
        """Seconds between the two reads of each CPU, by the TSC."""
        return self._counters.tsc_ticks(self._delta) / self.tsc_hz

    @cached_property
    def ref_s(self) -> Floats:
        """Seconds for which each CPU was unhalted: reference cycles divided by the TSC rate."""
        return self["ref"] / self.tsc_hz

    def share(self, key: str) -> Floats:
        """Returns a counter of seconds as a share of the elapsed time."""
        return self[key] / self.seconds(key)

    def seconds(self, key: str) -> Floats:
        """Returns the elapsed seconds between the reads of the counter's block."""
        block = self._counters.columns[key].block
        elapsed = self._seconds.get(block)
        if elapsed is None:
            elapsed = self._delta.tables[block].ticks / self._counters.stamp_hz
            self._seconds[block] = elapsed
        return elapsed


# --- The cores of a stream, with their CPUs and packages.


def packages(hello: wire.Hello, topology: Sequence[wire.Cpu] = ()) -> Ints:
    """Returns the index of each CPU's package in `hello.packages`; -1 where unknown. `topology`:
    the present rows, if they differ from those of hello; the package of a CPU that was offline then
    is known only from these."""
    index_by_cpu = {cpu: i for i, group in enumerate(hello.packages) for cpu in group}
    index_by_package: dict[int | None, int] = {
        row.package: index_by_cpu[row.cpu] for row in hello.topology if row.cpu in index_by_cpu
    }
    index_by_package[None] = -1
    rows = topology or hello.topology
    indexes = [index_by_cpu.get(row.cpu, index_by_package.get(row.package, -1)) for row in rows]
    return np.array(indexes, np.int64)


def with_extra_column(values: Floats, fill: float) -> Floats:
    """Appends a column with the value `fill`, so that index -1 selects `fill`."""
    output = np.empty((*values.shape[:-1], values.shape[-1] + 1))
    output[..., :-1], output[..., -1] = values, fill
    return output


class Cores:
    """The physical cores of a stream. Hotplug replaces the object. Arrays are indexed by core.
    Arguments of methods may have a leading axis of samples."""

    def __init__(
        self, hello: wire.Hello, lists: list[list[int]], topology: Sequence[wire.Cpu] = ()
    ) -> None:
        """`lists`: the CPUs of each core. `topology`: the present rows, if they differ from those
        of hello."""
        self.lists = lists
        self._core_of_cpu = {cpu: i for i, core in enumerate(lists) for cpu in core}
        position = {row.cpu: i for i, row in enumerate(hello.topology)}
        width = max(map(len, lists), default=1)
        rows = [[position[cpu] for cpu in core] for core in lists]
        padded_rows = np.array([row + [-1] * (width - len(row)) for row in rows], int)
        self.rows: Ints = padded_rows.reshape(len(lists), width)
        """(cores, threads): each thread's index in `hello.topology`; -1 for missing threads."""
        self._by_thread: Ints = np.ascontiguousarray(self.rows.T)
        """The transpose of `rows`, because numpy is slow along a last axis of length two."""
        self.package_by_cpu = packages(hello, topology)
        """Index of each CPU's package; -1 where unknown."""
        self.package: Ints = self.package_by_cpu[self.rows[:, 0]]
        """Index of each core's package; -1 where unknown."""
        types = [(topology or hello.topology)[first_row].type for first_row in self.rows[:, 0]]
        kinds = [*zip(self.package.tolist(), types, strict=True)]
        number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        self.group: Ints = np.array([number[kind] for kind in kinds], int)
        """Index of each core's group. The cores of a group have the same package and core type, so
        they share a ceiling and a power budget."""
        row_of = {tuple(core): row for row, core in enumerate(hello.cores)}
        self.block_row: Ints = np.array([row_of.get(tuple(core), -1) for core in lists], int)
        """Row of each core in blocks of core scope; -1 if hello does not list the core."""
        self.core_by_cpu: Ints = np.full(len(hello.topology), -1)
        """Index in `lists` of each CPU's core; -1 if the CPU is in no core."""
        self.is_only_thread: Bools = np.ones(len(hello.topology), bool)
        """Mask of the CPUs that are the only thread of their core."""
        for i, row in enumerate(rows):
            self.core_by_cpu[row], self.is_only_thread[row] = i, len(row) == 1
        self._equal_threads = bool((self.rows >= 0).all())
        self._has_all_cpus = bool((self.core_by_cpu >= 0).all())

    def threads(self, values: Floats, fill: float) -> Floats:
        """Converts values by CPU to (cores, threads). `fill`: the value of missing threads."""
        return np.asarray(with_extra_column(values, fill).take(self.rows, axis=-1))

    def by_cpu(self, values: Floats) -> Floats:
        """Converts values by core to values by CPU; NaN for a CPU in no core."""
        padded = values if self._has_all_cpus else with_extra_column(values, np.nan)
        return np.asarray(padded.take(self.core_by_cpu, axis=-1))

    def sum_of_threads(self, values: Floats) -> Floats:
        """Returns the sum over the threads of each core; unknown values count as 0."""
        is_known = np.isfinite(values)
        if np.count_nonzero(is_known) < is_known.size:
            values = np.where(is_known, values, 0.0)
        return np.asarray(np.add.reduce(self._threads_first(values, 0.0), axis=-2))

    def max_of_threads(self, values: Floats) -> Floats:
        """Returns the maximum over the threads of each core; NaN if all values are unknown."""
        return np.asarray(np.fmax.reduce(self._threads_first(values, np.nan), axis=-2))

    def _threads_first(self, values: Floats, fill: float) -> Floats:
        """Converts values by CPU to (threads, cores)."""
        padded = values if self._equal_threads else with_extra_column(values, fill)
        return padded.take(self._by_thread, axis=-1)

    def cpus(self, members: Bools) -> list[int]:
        return sorted(cpu for i in np.flatnonzero(members) for cpu in self.lists[i])

    def contains_any(self, cpus: list[int]) -> Bools:
        """Returns a mask of the cores that contain at least one of these CPUs."""
        members = {*cpus}
        return np.array([not members.isdisjoint(core) for core in self.lists], bool)

    def core_indexes(self, lists: Sequence[Sequence[int]]) -> list[int]:
        """Returns the index in `self.lists` of each core, given by its CPUs; -1 for a core that
        does not exist. A core is found even if it has gained or lost a sibling."""
        core_of_cpu = self._core_of_cpu
        return [
            next((core_of_cpu[cpu] for cpu in core if cpu in core_of_cpu), -1) for core in lists
        ]
