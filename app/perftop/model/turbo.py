"""The clock that turbo allows a core, and lower clock limits that users and programs set.

A clock is a mean over the time in which a CPU ran. With n active cores, turbo allows the clock
f(n). So the mean of the allowed clock is between the greatest convex function below f and the least
concave function above f, both at the mean of n. The active time of each core bounds this mean of n,
in whatever order the cores were active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.counters import Cores, Counters, with_extra_column
from perftop.model.delta import MAX_HZ, Delta, distinct
from perftop.model.kinds import CLOCK_CAPS

CEILING_GAUGES = ("ceiling_hz", "e_ceiling_hz")
"""Counters of a package's exact ceiling. Hybrid CPUs have one for each core type; its list of CPUs
shows which cores have that type."""
DEEP_IDLE_COUNTERS = ("core_c3", "core_c6", "core_c7")
"""Counters of the idle states in which a core does not count as active. In C1, it does."""
SMALL_CORE_TYPES, SMALL_CORE_MODELS = {"E", "L"}, {("GenuineIntel", 6, 0xBE)}
"""Core types and CPU models whose C6 counter includes C7 (turbostat: "cc6 and deeper", by
CPUID.1AH): the small cores of hybrids, and Alder Lake-N, which has only small cores."""
MIN_ACTIVE_SHARE = 0.001
"""Minimum share of the span for which a core must be active to count as active. A smaller share is
read skew and does not change a mean."""


@dataclass(slots=True)
class Ceilings:
    """Mean turbo ceilings in Hz over a span, by core; with a leading axis, over each of several
    samples. NaN where unknown."""

    low_hz: Floats
    """Lower bound of the ceiling, to compare clocks with; without a table, the base clock."""
    high_hz: Floats
    hz: Floats
    """`low_hz` where it is a turbo clock, NaN elsewhere."""

    def __getitem__(self, samples: int | slice) -> Ceilings:
        return Ceilings(self.low_hz[samples], self.high_hz[samples], self.hz[samples])


@dataclass(slots=True)
class ClockCaps:
    """The lowest clock limit that a user or program set, by core; with a leading axis, in each of
    several samples."""

    hz: Floats  # infinite: no limit
    cap_index: Ints  # index in kinds.CLOCK_CAPS

    def __getitem__(self, sample: int) -> ClockCaps:
        return ClockCaps(self.hz[sample], self.cap_index[sample])


class Turbo:
    def __init__(self, counters: Counters, cores: Cores) -> None:
        self._counters, hello = counters, counters.hello
        position = {row.cpu: i for i, row in enumerate(hello.topology)}
        self._tables, self._bounds = valid_tables(hello.turbo, list(position))
        self._gauges = [column for key in CEILING_GAUGES if (column := counters.columns.get(key))]
        sleeps = (counters.columns.get(key) for key in DEEP_IDLE_COUNTERS)
        self._sleep_counters = [column for column in sleeps if column is not None]
        identity = hello.identity
        is_small_model = (identity.vendor, identity.family, identity.model) in SMALL_CORE_MODELS
        is_small = [is_small_model or row.type in SMALL_CORE_TYPES for row in hello.topology]
        self._is_small_core = np.array(is_small, bool)
        masks = [np.zeros(len(position), bool), *(table.cpus for table in self._tables)]
        masks += [counters.is_counted(column.counter.key) for column in self._gauges]
        self.cpus: Bools = np.any(masks, axis=0)
        """Mask of the CPUs whose turbo ceiling is known."""
        self.has_ceilings = bool(self.cpus.any() or np.isfinite(self._bounds).any())
        self.regroup(cores)

    @property
    def origin(self) -> str | None:
        names = [column.counter.origin for column in self._gauges]
        names += [table.origin for table in self._tables]
        return ", ".join(dict.fromkeys(names)) or None

    def regroup(self, cores: Cores) -> None:
        """Replaces the core list after hotplug."""
        self._cores, first, package = cores, cores.rows[:, 0], cores.package
        self._fastest = cores.max_of_threads(self._bounds)
        self._has_upper_bounds = bool(np.isfinite(self._fastest).any())
        self._has_ceiling = self.cpus[first]
        self._domains: list[tuple[TurboTable, Ints]] = []
        """Each turbo table, with the cores of one package that share it. The number of active cores
        among them determines the clock."""
        self._favoured = np.full(len(first), np.nan)
        for table in self._tables:
            is_listed = table.cpus[first] & (package >= 0)
            for number in distinct(package[is_listed]):
                members = np.flatnonzero(is_listed & (package == number))
                self._domains.append((table, members))
            higher = is_listed & (self._fastest > table.hz[0])  # favoured cores exceed the table
            self._favoured[higher] = self._fastest[higher]
        self._exact = []
        for column in self._gauges:
            is_listed = self._counters.is_counted(column.counter.key)[first] & (package >= 0)
            self._exact.append((column.counter.key, np.flatnonzero(is_listed), package[is_listed]))

    def ceilings(self, delta: Delta, util: Floats, online: Bools) -> Ceilings:
        """Returns the ceilings. `util`: the share of the span for which each CPU ran."""
        low, high = np.full((2, *util.shape[:-1], len(self._has_ceiling)), np.nan)
        if not self.has_ceilings:
            return Ceilings(low, high, low)
        if self._has_upper_bounds:
            # With more active cores the ceiling is unknown, but it is at least the base clock.
            low[...], high[...] = np.minimum(self._base_clocks(delta), self._fastest), self._fastest
        if self._domains:
            run = self._cores.threads(np.where(online, util, 0.0), 0.0)
            core_online = self._cores.sum_of_threads(online.astype(float)) > 0
            min_active, max_active = self._active_shares(delta, run, core_online)
            runs = np.maximum(np.where(np.isnan(run), 0.0, run), MIN_ACTIVE_SHARE)
            lowest, highest = np.full((2, *runs.shape), np.nan)
            for table, cores in self._domains:
                for sample in np.ndindex(runs.shape[:-2]):
                    index = (*sample, cores)
                    active = min_active[index], max_active[index]
                    lowest[index], highest[index] = _ceiling_range(table, runs[index], *active)
            # means over the running time of the threads; NaN for cores without a table
            total = runs.sum(axis=-1)
            lowest, highest = ((hz * runs).sum(axis=-1) / total for hz in (lowest, highest))
            is_known = np.isfinite(lowest)
            low = np.where(is_known, lowest, low)
            high = np.fmax(np.where(is_known, highest, high), self._favoured)
        for key, rows, indexes in self._exact:
            exact = self._gauge_means(key, "package", delta).take(indexes, axis=-1)
            low[..., rows] = high[..., rows] = exact
        # A table describes the best core. Slower cores, and cores that firmware limits, never reach
        # its clocks.
        if self._has_upper_bounds:
            low, high = (np.where(hz > self._fastest, self._fastest, hz) for hz in (low, high))
        return Ceilings(low, high, np.where(self._has_ceiling, low, np.nan))

    def _base_clocks(self, delta: Delta) -> Floats:
        """Returns the base clock of each core. Hybrids need one for each CPU, because the machine's
        base clock does not apply to all core types."""
        counters = self._counters
        if "base_hz" in counters.columns:
            return self._max_clocks("base_hz", delta)
        types = {row.type for row in counters.hello.topology}
        rate = counters.hello.base_hz
        hz = rate.hz if rate is not None and len(types) == 1 else np.nan
        return np.full(len(self._has_ceiling), hz)

    def _max_clocks(self, key: str, delta: Delta) -> Floats:
        """Returns a gauge's maximum over each core's CPUs: the core runs at the highest requested
        clock.
        """
        return self._cores.max_of_threads(self._gauge_means(key, "cpu", delta)[..., :-1])

    def _gauge_means(self, key: str, scope: wire.Scope, delta: Delta) -> Floats:
        """Returns the mean of a gauge by row; NaN where unknown. An extra NaN at the end is
        selected by index -1 (an unknown row)."""
        means = self._counters.rates(delta, key)
        if means is None:
            return np.full(self._counters.hello.rows(scope) + 1, np.nan)
        return with_extra_column(means, np.nan)

    def _active_shares(
        self, delta: Delta, run: Floats, core_online: Bools
    ) -> tuple[Floats, Floats]:
        """Returns the lower and upper bounds of the share of the span for which each core was
        active. Without counters of deep sleep, a core that did not run is assumed to have slept."""
        if self._sleep_counters:
            counters = self._counters
            tsc_hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
            sleep_share: Floats | float = 0.0
            keys = {column.counter.key for column in self._sleep_counters}
            for column in self._sleep_counters:
                table = delta.tables[column.block]
                with np.errstate(divide="ignore", invalid="ignore"):
                    seconds = table.ticks / counters.stamp_hz
                    share = table.increments[..., column.index] / tsc_hz / seconds
                by_core = with_extra_column(share, np.nan)[..., self._cores.block_row]
                if column.counter.key == "core_c7" and "core_c6" in keys:
                    by_core = np.where(self._is_small_core[self._cores.rows[:, 0]], 0.0, by_core)
                sleep_share = sleep_share + by_core
            share = np.asarray(1 - sleep_share)
            is_known = np.isfinite(share)
            share = np.maximum(share, 0.0)
            min_active, max_active = np.where(is_known, share, 0.0), np.where(is_known, share, 1.0)
        else:
            longest_run = np.fmax.reduce(run, axis=-1)
            min_active = np.where(np.isnan(longest_run), 0.0, longest_run)
            max_active = np.where((run > 0).any(axis=-1) | np.isnan(run).any(axis=-1), 1.0, 0.0)
        return np.where(core_online, min_active, 0.0), np.where(core_online, max_active, 0.0)

    def clock_caps(self, delta: Delta) -> ClockCaps:
        """Returns the lowest clock limit that a user or program set, by core. A switch, such as
        "turbo off", counts if it was on for most of the span."""
        package = self._cores.package
        turbo_is_off = self._gauge_means("turbo_off", "machine", delta)[..., :1] >= 0.5
        disabled = self._gauge_means("turbo_disabled", "package", delta)[..., package] >= 0.5
        configured_hz = self._gauge_means("tdp_base_hz", "package", delta)[..., package]
        percent = self._gauge_means("max_perf_pct", "machine", delta)[..., :1]
        share = np.where(percent < 100, percent / 100, np.nan)
        top_hz = self._fastest.copy()  # maximum clock with no other core active; NaN if unknown
        for table, cores in self._domains:
            top_hz[cores] = np.fmax(top_hz[cores], table.hz[0])
        by_cap = {
            "scaling_max_freq": self._max_clocks("max_hz", delta),
            "turbo off": np.where(turbo_is_off | disabled, self._base_clocks(delta), np.nan),
            "turbo off, config-TDP": np.where(turbo_is_off | disabled, configured_hz, np.nan),
            "max_perf_pct": share * top_hz,
        }
        shape = *delta.doubts.shape[:-2], len(package)
        limits = np.array([np.broadcast_to(by_cap[cap], shape) for cap in CLOCK_CAPS])
        limits[~(limits > 0)] = np.inf
        return ClockCaps(limits.min(axis=0), limits.argmin(axis=0))


def _ceiling_range(
    table: TurboTable, runs: Floats, min_active: Floats, max_active: Floats
) -> tuple[Floats, Floats]:
    """Returns the low and high ceiling during the running time of each thread, (cores, threads).
    `min_active`, `max_active`: bounds of the share of the span for which each core was active."""
    always_active = max(1, int((min_active >= 1 - MIN_ACTIVE_SHARE).sum()))
    ever_active = max(always_active, int((max_active > MIN_ACTIVE_SHARE).sum()))
    if always_active == ever_active:
        constant = np.full(runs.shape, table.hz_at(always_active))
        return constant, constant
    low_corners, high_corners = hull_corners(table, always_active, ever_active)
    mean_together = _overlap_sums(max_active, runs) / runs
    mean_alone = len(min_active) - _overlap_sums(1 - min_active, runs) / runs
    return np.interp(mean_together, *low_corners), np.interp(mean_alone, *high_corners)


def _overlap_sums(shares: Floats, runs: Floats) -> Floats:
    """Returns, for each share in `runs`, an upper bound of its overlap with all of `shares`."""
    sorted_shares = np.sort(shares)
    counts_below = np.searchsorted(sorted_shares, runs)
    sums = np.concatenate([[0.0], np.cumsum(sorted_shares)])
    return np.asarray(sums[counts_below] + runs * (len(sorted_shares) - counts_below))


MAX_TABLES, MAX_STEPS, MAX_CORES = 256, 64, 1 << 16
"""Maximum number of tables, of steps in a table, and of cores in a step, because hello is
untrusted. No known table has more than 18 steps, but each core may have its own table."""
UPPER_BOUND_ORIGIN = "cpufreq"
"""Prefix of the origin of turbo tables that only give a maximum clock, without the number of cores
that can reach it. Such a clock is an upper bound."""
Points = list[tuple[float, float]]
Corners = tuple[list[float], list[float]]
"""Corners of a polygonal chain: ascending numbers of active cores, and clocks in Hz."""


@dataclass(frozen=True, slots=True, eq=False)
class TurboTable:
    """A turbo table. Its clocks never rise with the number of active cores."""

    cores: Ints  # maximum number of active cores of each step; more cores get the last step's clock
    hz: Floats
    cpus: Bools  # mask of the CPUs with this table
    origin: str = ""

    def hz_at(self, active: int) -> float:
        return float(self.hz[min(int(np.searchsorted(self.cores, active)), len(self.hz) - 1)])


@lru_cache(maxsize=1024)
def hull_corners(table: TurboTable, min_active: int, max_active: int) -> tuple[Corners, Corners]:
    """Returns the corners of the greatest convex function that is nowhere above the table, and of
    the least concave function that is nowhere below it, from `min_active` to `max_active` cores."""
    ends = [c for c in table.cores.tolist() if min_active <= c < max_active]
    numbers = dict.fromkeys([min_active, *(c + 1 for c in ends), max_active])
    below = lower_hull([(n, table.hz_at(n)) for n in numbers])
    numbers = dict.fromkeys([min_active, *ends, max_active])
    above = lower_hull([(n, -table.hz_at(n)) for n in numbers])
    corners_below = [n for n, _ in below], [hz for _, hz in below]
    return corners_below, ([n for n, _ in above], [-hz for _, hz in above])


def lower_hull(points: Points) -> Points:
    """Returns the lower convex hull of points that are sorted by x."""
    hull: Points = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x1) < (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def valid_tables(
    turbos: Sequence[wire.Turbo], cpus: Sequence[int]
) -> tuple[list[TurboTable], Floats]:
    """Returns the valid tables, and each CPU's upper bound of the clock in Hz from tables of origin
    `cpufreq`, NaN where unknown. If several tables list a CPU, it belongs to the first one."""
    numbers = np.array(cpus)
    free, bounds = np.ones(len(numbers), bool), np.full(len(numbers), np.nan)
    tables = []
    for turbo in turbos[:MAX_TABLES]:
        steps = turbo.steps
        is_valid = 0 < len(steps) <= MAX_STEPS
        is_valid &= all(a.cores < b.cores and a.hz >= b.hz for a, b in pairwise(steps))
        is_valid &= all(0 < s.cores <= MAX_CORES and 0 < s.hz <= MAX_HZ for s in steps)
        if not is_valid:
            continue
        is_listed = np.isin(numbers, turbo.cpus) if turbo.cpus is not None else np.ones_like(free)
        if turbo.origin.startswith(UPPER_BOUND_ORIGIN):
            bounds[is_listed] = np.fmax(bounds[is_listed], steps[0].hz)
        elif (is_listed & free).any():
            cores, hz = zip(*((step.cores, step.hz) for step in steps), strict=True)
            arrays = np.array(cores, int), np.array(hz, float)
            tables.append(TurboTable(*arrays, is_listed & free, turbo.origin))
            free &= ~is_listed
    return tables, bounds
