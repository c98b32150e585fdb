"""The losses of a stream over time, by package and cause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.model.confidence import COUNTED_QUANTITIES
from perftop.model.delta import distinct
from perftop.model.kinds import NEIGHBOURS

K = TypeVar("K")
KINDS_BY_LOSS: dict[str, tuple[str, ...]] = {
    "involuntary": ("throttle", "involuntary-halt"),
    "clock": ("turbo-drop", "throttle", "license", "ramp"),
}
"""For each measured part of the loss, the kinds of episodes that can be its cause, in order of
priority."""
MEASURED_KINDS = frozenset(kind for kinds in KINDS_BY_LOSS.values() for kind in kinds)
_ESTIMATED_CAUSES = NEIGHBOURS.keys() | {
    cause for kind, cause in COUNTED_QUANTITIES if kind not in MEASURED_KINDS and cause != "-"
}
"""Causes of losses that are only estimated. A hypervisor also lowers clocks; most of its losses are
steal. A ramp and a mark, which loses nothing, both have the cause -."""
HISTORY_NS, HISTORY_STEP_NS = 600_000_000_000, 1_000_000_000
"""Length and step of the history of losses, in ns."""
MAX_RECORDING_SUMS = 1 << 14
"""Maximum number of sums for a recording: 4.5 hours in steps of HISTORY_STEP_NS, about 10 MB. The
steps are doubled for a longer recording."""
MAX_CORRECTED_SUMS = 60
"""Number of newest sums that a late cause may change. No cause is found later; the limit keeps the
cost of a sum that falls again and again independent of the length of a recording."""


def history_edges(end_ns: int, parts: int) -> Ints:
    """Returns the edges in ns of equal parts of the last ten minutes before `end_ns`."""
    return end_ns - HISTORY_NS + np.arange(parts + 1) * HISTORY_NS // parts


def sums_step_ns(span_ns: int) -> int:
    """Returns the time in ns between two sums for a recording that has lasted for `span_ns`."""
    step_ns = HISTORY_STEP_NS
    while span_ns > MAX_RECORDING_SUMS * step_ns:
        step_ns *= 2
    return step_ns


def without_moved_losses(
    rises_s: Mapping[K, Floats], measured_causes: Collection[K]
) -> dict[K, Floats]:
    """Returns the rise of the sum of losses to each cause, at least 0. If an episode that was
    detected late now explains a measured loss, these seconds have moved from one sum to another:
    they are subtracted from the rises of the other measured losses. An estimated loss falls if it
    was smaller than it seemed."""
    no_rise = 0.0 * next(iter(rises_s.values()), np.zeros(1))
    measured = [rises_s[cause] for cause in measured_causes]
    risen_s = sum((rise_s.clip(0) for rise_s in measured), no_rise)
    left_s = sum(measured, no_rise).clip(0)
    part = np.divide(left_s, risen_s, out=np.ones_like(risen_s), where=risen_s > 0)
    return {
        cause: rise_s.clip(0) * (part if cause in measured_causes else 1.0)
        for cause, rise_s in rises_s.items()
    }


class LossHistory:
    """Losses as sums from a stream's start: one for each HISTORY_STEP_NS, and the latest."""

    def __init__(self, packages: Sequence[int | None], *, is_whole: bool = False) -> None:
        """`packages`: the package of each CPU. `is_whole`: keeps the losses of a whole recording,
        not only of the last ten minutes."""
        self._names = list(dict.fromkeys(packages))
        self._groups = np.array([self._names.index(package) for package in packages], np.int64)
        self._is_whole, self._step_ns = is_whole, HISTORY_STEP_NS
        self._sums: list[tuple[int, Floats, dict[str, Floats]]] = []
        """For each step: its monotonic time in ns, the seconds that tasks had wanted by then, by
        package, and the seconds that they had lost, by cause and package."""

    @property
    def newest(self) -> tuple[int, Floats, dict[str, Floats]]:
        """The time of the newest sums, with the arguments of `add` for it."""
        return self._sums[-1]

    def add_losses(
        self, start_ns: int, now_ns: int, wanted_s: Floats,
        by_cause: Mapping[tuple[str, str], Floats],
    ) -> None:  # fmt: skip
        """Adds the seconds that tasks wanted, by CPU, and those that they lost, by kind and cause,
        between the stream's start and this moment."""

        def by_package(seconds: Floats) -> Floats:
            return np.asarray(np.bincount(self._groups, seconds, len(self._names)), float)

        lost_s: dict[str, Floats] = {}
        for (_, cause), seconds in by_cause.items():
            lost_s[cause] = lost_s.get(cause, 0.0) + by_package(seconds).clip(0)
        self.add(start_ns, now_ns, by_package(wanted_s), lost_s)

    def add(self, start_ns: int, now_ns: int, wanted_s: Floats, lost_s: dict[str, Floats]) -> None:
        """Adds these seconds by package instead of by CPU."""
        if not self._sums:
            self._sums.append((start_ns, np.zeros(len(self._names)), {}))
        if len(self._sums) > 1 and now_ns - self._sums[-2][0] <= self._step_ns:
            self._sums.pop()
        self._move_losses(lost_s)
        self._sums.append((now_ns, wanted_s, lost_s))
        if not self._is_whole:
            del self._sums[: -HISTORY_NS // HISTORY_STEP_NS]
        elif len(self._sums) > MAX_RECORDING_SUMS:
            del self._sums[1:-1:2]
            self._step_ns *= 2

    def _move_losses(self, lost_s: Mapping[str, Floats]) -> None:
        """Corrects earlier sums that are greater than the new ones, because an episode that was
        detected late is now the cause of an earlier loss."""
        count, zeros = len(self._sums), np.zeros(len(self._names))
        for index in reversed(range(max(1, count - MAX_CORRECTED_SUMS), count)):
            time_ns, wanted_s, earlier_s = self._sums[index]
            causes = {**earlier_s, **lost_s}
            rises_s = {c: lost_s.get(c, zeros) - earlier_s.get(c, zeros) for c in causes}
            if all((rise_s >= 0).all() for rise_s in rises_s.values()):
                return
            new_rises_s = without_moved_losses(rises_s, rises_s.keys() - _ESTIMATED_CAUSES)
            sums_s = {cause: lost_s.get(cause, zeros) - s for cause, s in new_rises_s.items()}
            self._sums[index] = time_ns, wanted_s, sums_s

    def between(
        self, edges_ns: Ints, *packages: int | None
    ) -> tuple[Floats, Floats, dict[str, Floats]]:
        """Returns the seconds between adjacent edges (monotonic ns) for which losses are known, and
        the seconds that tasks wanted then, and lost by cause. `packages`: only these."""
        chosen = [self._names.index(package) for package in packages or self._names]
        first = bisect_left(self._sums, int(edges_ns[0]), key=itemgetter(0)) - 1
        last = bisect_right(self._sums, int(edges_ns[-1]), key=itemgetter(0)) + 1
        sums = self._sums[max(0, first) : last]
        sums = sums or [(0, np.zeros(len(self._names)), dict[str, Floats]())]
        # Only the sums next to an edge are read, because each verdict has hundreds.
        after = np.searchsorted([time_ns for time_ns, *_ in sums], edges_ns)
        beside = distinct(np.concatenate([after - 1, after]).clip(0, len(sums) - 1))
        times_ns, wanted_s, lost_s = zip(*(sums[index] for index in beside), strict=True)

        def between(seconds: Iterable[Floats]) -> Floats:
            series = [float(by_package[chosen].sum()) for by_package in seconds]
            return np.diff(np.interp(edges_ns, times_ns, series))

        by_cause = {
            cause: between(lost.get(cause, 0.0 * wanted_s[0]) for lost in lost_s).clip(0)
            for cause in dict.fromkeys(cause for lost in lost_s for cause in lost)
        }
        known_s = np.diff(np.interp(edges_ns, times_ns, times_ns)) / 1e9
        return known_s, between(wanted_s), by_cause

    def shares(self, edges_ns: Ints, *packages: int | None) -> Floats:
        """Returns the lost share of the wanted seconds between adjacent edges; NaN if unknown."""
        _, wanted_s, by_cause = self.between(edges_ns, *packages)
        lost_s = sum(by_cause.values(), 0.0 * wanted_s)
        return np.where(wanted_s > 0, lost_s / np.maximum(wanted_s, 1e-9), np.nan).clip(0, 1)
