"""The metrics of one stream: which variant serves which CPU, and the values over a span."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.metrics import (
    INDEX,
    METRICS,
    STATIC,
    Metric,
    Quantities,
    Registry,
    Variant,
    of_hello,
)


class Evaluator:
    """The metrics, bound to the counters of one stream."""

    def __init__(self, counters: Counters) -> None:
        hello = counters.hello
        self._counters = counters
        self._base_hz = hello.base_hz.hz if hello.base_hz else float("nan")
        self._cpus = len(hello.topology)
        self.chosen: dict[str, list[tuple[Variant, Bools]]] = {}
        """The variants of each metric with the CPUs that each serves (a mask by position)."""
        self.registry = of_hello(hello)
        self.metrics = self.registry.metrics
        """All metrics of this stream."""
        for metric in self.metrics.values():
            self.chosen[metric.key] = self._choose(metric)
        nobody = np.zeros(self._cpus, bool)
        self._masks: dict[str, Bools] = {
            key: np.asarray(np.any([nobody, *(mask for _, mask in chosen)], axis=0))
            for key, chosen in self.chosen.items()
        }
        self._formulas = [
            (
                self.registry.index[key],
                variant.numerator,
                variant.denominator,
                None if mask.all() else mask,
            )
            for key, chosen in self.chosen.items()
            for variant, mask in chosen
            if variant.numerator is not None and variant.denominator is not None
        ]

    def _choose(self, metric: Metric) -> list[tuple[Variant, Bools]]:
        left = np.ones(self._cpus, bool)
        chosen = []
        for variant in metric.variants:
            if variant.needs_tsc and not self._counters.has_tsc:
                continue
            mask = left.copy()
            for key in variant.needs:
                mask &= self._counters.has(key)
            if mask.any():
                chosen.append((variant, mask))
                left &= ~mask
        return chosen

    def origin(self, key: str) -> str | None:
        """The formulas and counters of a metric on this stream; None if it is not available."""
        parts = [f"{v.origin} ({self._sources(v.needs)})" for v, _ in self.chosen[key]]
        return " | ".join(parts) or None

    def _sources(self, needs: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(self._counters.columns[k].counter.origin for k in needs))

    def serves(self, key: str, row: int) -> bool:
        """This CPU has the counters for the metric."""
        return bool(self.mask(key)[row])

    def mask(self, key: str) -> Bools:
        """The CPUs that have the counters for the metric, by position."""
        return self._masks[key]

    def needs(self, key: str) -> set[str]:
        """Counters that the metric uses on any CPU of this stream."""
        keys = self.metrics[key].made_of or (key,)
        variants = [variant for one in keys for variant, _ in self.chosen[one]]
        return {need for variant in variants for need in variant.needs}

    def lacking(self, key: str) -> str | None:
        """The first missing counter of a metric that no CPU has; None if some CPU has the
        metric."""
        if self.chosen[key]:
            return None
        needs = self.metrics[key].variants[0].needs
        return next((k for k in needs if k not in self._counters.columns), "tsc")

    def evaluate(self, delta: Delta) -> Values:
        """All metrics over a span, or over each of several samples."""
        q = Quantities(self._counters, delta, self._base_hz)
        samples = delta.doubts.shape[:-2]
        top, bottom = np.full((2, *samples, len(self.metrics), self._cpus), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            for i, numerator, denominator, mask in self._formulas:
                if mask is None:
                    top[..., i, :] = numerator(q)
                    bottom[..., i, :] = denominator(q)
                else:
                    top[..., i, mask] = numerator(q)[..., mask]
                    bottom[..., i, mask] = denominator(q)[..., mask]
        return Values(top, bottom, registry=self.registry)


class Values:
    """Metrics over one span, by CPU, and over any group of CPUs; or, with a leading axis, over each
    of several samples."""

    def __init__(
        self, top: Floats, bottom: Floats, values: Floats | None = None,
        registry: Registry = STATIC,
    ) -> None:  # fmt: skip
        self.registry = registry
        self.top, self.bottom = top, bottom
        """Numerators and denominators, (metrics, CPUs), in the order of the registry."""
        if values is None:
            values = ratio(top, bottom, registry.low[:, None], registry.high[:, None])
        self.all = values

    def __getitem__(self, key: str) -> Floats:
        """Values of a metric by position of the CPU; NaN where unknown, also where nothing ran."""
        return self.all[..., self.registry.index[key], :]

    def of(self, samples: int | slice) -> Values:
        """One sample of several, or some of them. Their arrays are shared."""
        parts = self.top[samples], self.bottom[samples], self.all[samples]
        return Values(*parts, registry=self.registry)

    def over(self, key: str, rows: list[int] | slice) -> float:
        """One value for a group of CPUs, from those of them where it is known."""
        return float(self.group(rows)[self.registry.index[key]])

    def group(
        self, rows: list[int] | slice | Ints, metrics: list[int] | slice = slice(None)
    ) -> Floats:
        """Metrics for a group of CPUs: all, or those at two or more places in the registry. One
        alone would be added up in another order, to another last digit."""
        top, bottom = (part[..., metrics, :][..., rows] for part in (self.top, self.bottom))
        known = np.isfinite(top) & np.isfinite(bottom)
        if np.count_nonzero(known) < known.size:
            top, bottom = (np.where(known, part, 0.0) for part in (top, bottom))
        total, base = np.add.reduce(top, axis=-1), np.add.reduce(bottom, axis=-1)
        if self.registry.events:
            many = np.where(self.registry.added[metrics], known.sum(axis=-1), 1)
            base = base / np.maximum(many, 1)
        return ratio(total, base, self.registry.low[metrics], self.registry.high[metrics])


def ratio(top: Floats, bottom: Floats, low: Floats | float, high: Floats | float) -> Floats:
    values = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=values, where=bottom > 0)
    np.maximum(values, low, out=values)
    np.minimum(values, high, out=values)
    return values


LOST_RATIO = "lost_ratio"
LOSS_PARTS = "steal", "involuntary", "clock"
WORKS = 0.5
"""Minimum share of a sample that a CPU wants. One that wants less has time to spare, and its clock
follows what it needs."""
_SOURCE = {"steal": "steal", "involuntary": "involuntary", "clock": "busy_hz"}
"""The metric that each part rests on."""


class Lost(NamedTuple):
    """Seconds by position of the CPU, or, with a leading axis, of each of several samples. 0 for
    CPUs that do not work, NaN where a counter failed."""

    wanted_s: Floats
    parts_s: Floats
    """(PARTS, CPUs). Involuntary halts are a difference of two clocks: a single sample may be a
    little below 0."""


class Reckoner:
    """What can be told of each CPU of a stream."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._served: dict[str, Bools] = {
            part: evaluator.mask(key) for part, key in _SOURCE.items()
        }
        self._some = {part: bool(mask.any()) for part, mask in self._served.items()}
        """Whether any CPU can tell each part."""

    def reckon(self, values: Values, ceiling_hz: Floats) -> Lost:
        """`ceiling_hz`: by position of the CPU, the minimum that turbo allows it; NaN: not
        known."""
        span_s = values.bottom[..., INDEX["util"], :]
        poll = values["poll"]
        spare = values["idle"] + np.where(np.isnan(poll), 0.0, poll)
        wanted = np.minimum(np.maximum(1 - spare, 0.0), 1.0)
        works = wanted >= WORKS
        parts = np.zeros((*wanted.shape[:-1], len(LOSS_PARTS), wanted.shape[-1]))
        steal, halted, clock = (parts[..., at, :] for at in range(len(LOSS_PARTS)))
        served = self._served  # a CPU that can never tell a part keeps its 0
        np.minimum(values["steal"], wanted, out=steal, where=served["steal"])
        left = wanted - steal
        if self._some["involuntary"]:
            most = np.maximum(_unclipped(values, "involuntary"), -wanted)
            most = np.minimum(most, wanted)
            np.minimum(most, left, out=halted, where=served["involuntary"])
        if self._some["clock"]:
            below = np.maximum(1 - values["busy_hz"] / ceiling_hz, 0.0)
            told = served["clock"] & ~np.isnan(ceiling_hz)
            np.minimum(below, 1.0, out=clock, where=told)
        clock *= left - np.maximum(halted, 0.0)
        parts *= span_s[..., None, :]
        np.copyto(parts, 0.0, where=~works[..., None, :])
        return Lost(np.where(works, wanted * span_s, 0.0), parts)

    def told(self, ceiling_hz: Floats) -> dict[str, Bools]:
        """Masks of the CPUs that can tell each part."""
        return self._served | {"clock": self._served["clock"] & np.isfinite(ceiling_hz)}


def fill(values: Values, lost: Lost) -> None:
    """Writes the metric into values that lack it, 0 of 0 s where it is not known."""
    at = INDEX[LOST_RATIO]
    top, bottom = lost.parts_s.sum(axis=-2), lost.wanted_s
    unknown = ~(np.isfinite(top) & np.isfinite(bottom))
    if np.count_nonzero(unknown):
        top, bottom = np.where(unknown, 0.0, top), np.where(unknown, 0.0, bottom)
    values.top[..., at, :], values.bottom[..., at, :] = top, bottom
    values.all[..., at, :] = ratio(top, bottom, METRICS[LOST_RATIO].low, METRICS[LOST_RATIO].high)


def _unclipped(values: Values, key: str) -> Floats:
    """A metric without the limits of its range: clipping each sample would make a loss of noise."""
    top, bottom = values.top[..., INDEX[key], :], values.bottom[..., INDEX[key], :]
    unknown = np.full(top.shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=unknown, where=bottom > 0))


RESTS, WAKES = 0.01, 0.02
"""Busy share below which a CPU comes to rest, and from which on it is awake again. In between it
stays what it was, so that its numbers neither come nor go."""


def resting(util: Floats, before: Bools | None = None) -> Bools:
    """Mask of the CPUs at rest. `before`: the mask of the interval before; without it CPUs between
    both shares are awake. A CPU whose share is unknown is not at rest."""
    found: Bools = util < RESTS
    if before is not None and len(before) == len(util):
        found |= before & (util < WAKES)
    return np.asarray(found)
