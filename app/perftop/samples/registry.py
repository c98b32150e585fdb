"""The metrics of one stream: those of METRICS, then two for each event that was chosen there. So a
position in METRICS is the same position in every stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfprobe import wire
from perftop.base.text import printable
from perftop.samples.metrics import METRICS, Metric, Variant

EVENT = "e."
"""Start of the keys of chosen events."""
PER_KI = "/ki"
"""End of the keys of events per thousand instructions."""
COUNTS = frozenset({"1", "events", "cycles", "instructions"})
"""Units of what is counted without a measure."""


class Registry:
    """Metrics by key and by position, and the ends that their values are clipped to."""

    def __init__(self, counters: tuple[wire.Counter, ...] = ()) -> None:
        """`counters`: the chosen events of a stream."""
        self.events = {metric.key: metric for c in counters for metric in _of_event(c)}
        self.counters = tuple(counter.key for counter in counters)
        """Keys of the chosen events."""
        self.metrics: dict[str, Metric] = METRICS | self.events
        self.index = {key: i for i, key in enumerate(self.metrics)}
        self.low = np.array([metric.low for metric in self.metrics.values()])
        self.high = np.array([metric.high for metric in self.metrics.values()])
        self.added = np.array([metric.added for metric in self.metrics.values()])


STATIC = Registry()


def of_hello(hello: wire.Hello) -> Registry:
    found = {
        counter.key: counter
        for block in hello.blocks
        if block.scope == "cpu"
        for counter in block.counters
        if counter.key.startswith(EVENT) and counter.kind == "counter"
    }
    return Registry(tuple(found.values())) if found else STATIC


def _of_event(counter: wire.Counter) -> Iterator[Metric]:
    key = counter.key
    label = printable(key.removeprefix(EVENT))
    about = printable(counter.name) or label
    yield Metric(
        key, label, "1/s" if counter.unit in COUNTS else f"{printable(counter.unit)}/s",
        f"{about[:1].upper()}{about[1:]}, per second.",
        (Variant((key,), "count / time", lambda q: q[key], lambda q: q.seconds(key)),),
        added=True,
    )  # fmt: skip
    yield Metric(
        key + PER_KI, label + PER_KI, "1",
        f"{about[:1].upper()}{about[1:]}, per thousand instructions.",
        (Variant((key, "instructions"), "1000 count / instructions",
                 lambda q: 1000.0 * q[key], lambda q: q["instructions"]),),
        digits=2, of_running=True,
    )  # fmt: skip
