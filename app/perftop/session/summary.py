"""Minimum, maximum, percentiles and mean SMT states over the samples of a run, in bounded
memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Floats, Ints, Singles
from perftop.model.cores import Cores
from perftop.model.delta import add_samples
from perftop.model.evaluation import STATIC, Values
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleBatch, StackedSamples
from perftop.model.smt import METHODS, STATES, Split

MAX_BYTES = 16 << 20
"""Maximum size of the kept samples, in bytes. When it is reached, every second sample is dropped,
and only every second one is kept from then on. The choice is even, so percentiles stay unbiased;
minimum and maximum are of all samples."""
MIN_ROWS = 512
"""Minimum number of samples for which there is room: after a drop there are still a dozen samples
below the fifth percentile. With more than 256 CPUs they need more than MAX_BYTES: 64 MB at 1024
CPUs."""
MOVED_ROWS = 256
"""Number of samples that are moved at once when others are dropped."""
LIVE_BYTES = 4 << 20
"""Maximum size in bytes of the kept samples if there is a history too, with any number of CPUs."""
MAX_WAITING, MAX_WAITING_BYTES = 32, 1 << 16
"""Maximum number of samples, and bytes of their metrics, that wait to be counted together."""
UNREAD_BYTES = 1 << 16
"""Maximum size in bytes of the kept samples if percentiles are never read."""


class Distribution:
    """The distribution over samples of each metric of each CPU and each state of each core. After
    `finish`, the minimum, percentiles and the maximum of each are known."""

    def __init__(
        self, shown: list[int], max_bytes: int = MAX_BYTES, least_rows: int = MIN_ROWS
    ) -> None:
        """`least_rows` must be at least 2."""
        self._shown = np.array(shown, int)
        self._max_bytes, self._least_rows = max_bytes, least_rows
        self._kept = np.empty((0, 0), np.float32)
        """Room for samples, one in each row; `_count` rows are used. A row takes memory only when
        it is written."""
        self._count = 0
        self._stride = 1
        self._seen = 0
        self._low, self._high = np.zeros((2, 0))
        self._series: dict[str, Floats] = {}
        """min, p5 and max of all columns, as computed by `finish`."""
        self._cpus = 0
        self._states, self._weights = np.zeros((2, 0, len(STATES)))
        """(cores, states): sums over the samples in which a state is known."""
        self._how: Ints | None = None
        """Codes of the methods of the last sample, by core."""
        self._methods: list[dict[str, None]] = []
        """All methods used for each core, in the order of their first use."""
        self._waiting = StackedSamples()
        self._registry = STATIC
        self._cores: Cores
        """The cores of the waiting samples."""

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to, but without, `last`."""
        if self._waiting.count and batch.cores is not self._cores:
            self.settle()
        self._waiting.add(batch, first, last)
        self._cores, self._registry = batch.cores, batch.values.registry
        count, size = self._waiting.count, batch.values.all[0].nbytes
        if count >= MAX_WAITING or count * size >= MAX_WAITING_BYTES:
            self.settle()

    def settle(self) -> None:
        """Count the waiting samples; counting many costs little more than counting one."""
        if not self._waiting.count:
            return
        samples, self._waiting = self._waiting, StackedSamples()
        every = Values(
            samples.part(lambda batch: batch.values.top),
            samples.part(lambda batch: batch.values.bottom),
            samples.part(lambda batch: batch.values.all),
            self._registry,
        )
        states = samples.part(lambda batch: batch.split.states)
        count, self._cpus = len(states), every.all.shape[-1]
        everyone = every.group(self._shown)
        flat = every.all.reshape(count, -1), states.reshape(count, -1)
        rows = np.concatenate([everyone, *flat], axis=1)
        if rows.shape[1] != len(self._low):
            # These are the first samples, or cores were regrouped, so that older samples are of
            # other cores.
            self._low, self._high = rows[0], rows[0]
            room = max(self._max_bytes // (4 * rows.shape[1]), self._least_rows)
            self._kept, self._count = np.empty((room, rows.shape[1]), np.float32), 0
            self._seen, self._stride = 0, 1
            self._states, self._weights = np.zeros((2, *states.shape[1:]))
            self._how, self._methods = None, [{} for _ in states[0]]
        # Seconds of each core that a sample covers.
        weights = self._cores.most(every.bottom[:, INDEX["util"]])
        self._sum(samples, states, weights)
        self._low = np.fmin(self._low, np.fmin.reduce(rows, axis=0))
        self._high = np.fmax(self._high, np.fmax.reduce(rows, axis=0))
        self._keep(rows)

    def _keep(self, rows: Floats) -> None:
        """Keeps every sample whose number is a multiple of the stride."""
        while len(rows):
            chosen = rows[-self._seen % self._stride :: self._stride]
            room = len(self._kept) - self._count
            if len(chosen) <= room:
                self._kept[self._count : self._count + len(chosen)] = chosen
                self._count += len(chosen)
                self._seen += len(rows)
                return
            used = -self._seen % self._stride + room * self._stride
            self._kept[self._count :] = chosen[:room]
            self._count += room
            self._seen += used
            rows = rows[used:]
            self._thin()

    def _thin(self) -> None:
        """Drop every second row, piece by piece: numpy copies overlapping arrays, and the memory of
        a large copy would not be freed."""
        self._count = (self._count + 1) // 2
        self._stride *= 2
        for at in range(0, self._count, MOVED_ROWS):
            end = min(at + MOVED_ROWS, self._count)
            self._kept[at:end] = self._kept[2 * at : 2 * end : 2]

    def _sum(self, samples: StackedSamples, states: Floats, weights: Floats) -> None:
        known = np.isfinite(states) & np.isfinite(weights)[..., None]
        times = np.where(known, weights[..., None], 0.0)
        with np.errstate(invalid="ignore"):
            sums = np.where(known, states * times, 0.0)
        self._states = add_samples(self._states, sums)
        self._weights = add_samples(self._weights, np.broadcast_to(times, sums.shape))
        how = samples.part(lambda batch: batch.split.how)
        if self._how is not None and (how == self._how).all():
            return
        for codes in how:
            if self._how is None or not np.array_equal(codes, self._how):
                self._how = codes.copy()
                for methods, code in zip(self._methods, codes.tolist(), strict=True):
                    if (method := METHODS[code]) is not None:
                        methods[method] = None

    def finish(self) -> Distribution:
        """Compute the values that the methods below return, from all samples so far."""
        self.settle()
        # float32 may round below the true minimum
        p5 = np.fmax(_p5(self._kept[: self._count]), self._low)
        self._series = {"min": self._low, "p5": p5, "max": self._high}
        return self

    def machine(self, key: str) -> dict[str, float]:
        return self._at(self._registry.index[key])

    def percentiles(self, key: str, shares: Sequence[float]) -> list[float]:
        """Percentiles of a metric of the machine over the samples; NaN if there are none."""
        known = self._known(key)
        if not len(known):
            return [float("nan")] * len(shares)
        return [float(np.percentile(known, 100 * share)) for share in shares]

    def samples(self, key: str, most: int) -> list[float]:
        """At most `most` values of a metric of the machine, chosen evenly from the samples."""
        known = self._known(key)
        step = max(1, -(-len(known) // most))
        return [float(value) for value in known[::step]]

    def _known(self, key: str) -> Singles:
        """The known values of a metric of the machine."""
        if not self._kept.shape[1]:
            return np.zeros(0, np.float32)
        column = self._kept[: self._count, self._registry.index[key]]
        return column[np.isfinite(column)]

    def cpu(self, key: str, row: int) -> dict[str, float]:
        return self._at(self._column(key) + row)

    def group(self, key: str, rows: list[int]) -> dict[str, float]:
        """Minimum, p5 and maximum of a metric over all samples of these CPUs."""
        columns = [self._column(key) + row for row in rows]
        if not columns or columns[-1] >= self._kept.shape[1]:
            return self._at(len(self._series["min"]))
        known = self._kept[: self._count, columns]
        known = known[np.isfinite(known)]
        low, high = (self._series[name][columns] for name in ("min", "max"))
        p5 = float(_p5(known[:, None])[0]) if len(known) else float("nan")
        least = float(np.fmin.reduce(low))
        return {"min": least, "p5": max(p5, least), "max": float(np.fmax.reduce(high))}

    def split(self, split: Split, core: int) -> tuple[str | None, dict[str, float]]:
        """A core's method and the means of its states; `split` is of the whole run. If a sibling
        was offline for part of the run, the states cannot be computed from sums of counters. The
        means over the samples are returned then, in which a lone thread is lp0. NaN where only
        bounds were known."""
        method, means = split.method[core], split.shares(core)
        methods = self._methods[core] if core < len(self._methods) else []
        paired = [name for name in methods if name != "single"]
        if paired and len(paired) < len(methods):
            method = paired[-1]
            means = dict.fromkeys(STATES, np.nan)
        if core < len(self._states) and np.isnan(means["neither"]) and "bounds" not in paired:
            with np.errstate(invalid="ignore"):
                means = dict(
                    zip(STATES, (self._states / self._weights)[core].tolist(), strict=True)
                )
        return method, means

    def core(self, state: str, core: int) -> dict[str, float]:
        first = len(self._registry.index) * (1 + self._cpus)
        return self._at(first + core * len(STATES) + STATES.index(state))

    def _column(self, key: str) -> int:
        """Column of the first CPU's values of a metric."""
        return len(self._registry.index) + self._registry.index[key] * self._cpus

    def _at(self, i: int) -> dict[str, float]:
        return {
            name: float(series[i]) if i < len(series) else float("nan")
            for name, series in self._series.items()
        }


def _p5(table: Singles) -> Floats:
    """The fifth percentile of each column, interpolated; NaN for a column without values. Same
    result as np.nanpercentile, which computes one column at a time."""
    ordered = np.sort(table, axis=0)  # NaN is sorted last
    place = 0.05 * (np.maximum((~np.isnan(table)).sum(axis=0), 1) - 1)
    below, columns = place.astype(int), np.arange(table.shape[1])
    low, high = (ordered[at, columns] for at in (below, np.ceil(place).astype(int)))
    share = place - below
    step = np.subtract(high, low, dtype=np.float64)
    p5: Floats = np.where(share < 0.5, low + step * share, high - step * (1 - share))
    return p5
