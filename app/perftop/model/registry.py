"""The metrics of one stream: those of METRICS, then two for each event that was chosen there, then
those that few CPUs can tell. So a position in METRICS is the same position in every stream.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfprobe import wire
from perftop.base.text import printable
from perftop.model.metrics import METRICS, Metric, Variant

EVENT = "e."
"""Start of the keys of chosen events."""
PER_KI = "/ki"
"""End of the keys of events per thousand instructions."""
COUNTS = frozenset({"1", "events", "cycles", "instructions"})
"""Units of what is counted without a measure."""


def _slots(key: str, label: str, text: str) -> Metric:
    return Metric(
        f"{key}_ratio", label, "ratio", text,
        (Variant((key, "slots"), f"{key} / slots", lambda q: q[key], lambda q: q["slots"]),),
        of_running=True, high=1.0,
    )  # fmt: skip


RARE: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        _slots("topdown_retiring", "retiring",
               "Share of issue slots whose work was of use. Fields of 8 bits: right to 0.4 %."),
        _slots("topdown_bad_speculation", "bad spec",
               "Share of issue slots lost to work that was thrown away."),
        _slots("topdown_frontend", "front end",
               "Share of issue slots for which no instruction was there."),
        _slots("topdown_backend", "back end",
               "Share of issue slots lost because memory or units were not ready."),
        _slots("topdown_heavy_operations", "heavy ops",
               "Share of issue slots that retired parts of long instructions."),
        _slots("topdown_branch_mispredicts", "mispredict",
               "Share of issue slots lost to branches that were predicted wrongly."),
        _slots("topdown_fetch_latency", "fetch lat",
               "Share of issue slots that waited for a fetch of instructions."),
        _slots("topdown_memory_bound", "mem bound",
               "Share of issue slots that waited for memory."),
        Metric(
            "smt_contention_ratio", "to sibling", "ratio",
            "Share of dispatch slots that went to the sibling while this thread had work for them.",
            (Variant(("smt_contention", "cycles"), "slots given to the sibling / slots of cycles",
                     lambda q: q["smt_contention"], lambda q: q["cycles"]),),
            title="slots to sibling", of_running=True, high=1.0,
        ),
    )
}  # fmt: skip
"""Metrics that few CPUs can tell; a stream without their counters does not have them."""


class Registry:
    """Metrics by key and by position, and the ends that their values are clipped to."""

    def __init__(
        self, counters: tuple[wire.Counter, ...] = (), keys: frozenset[str] = frozenset()
    ) -> None:
        """`counters`: the chosen events of a stream; `keys`: of all its counters."""
        self.events = {metric.key: metric for c in counters for metric in _of_event(c)}
        self.events |= {
            metric.key: metric for metric in RARE.values() if keys >= {*metric.variants[0].needs}
        }
        """Metrics that not every stream has."""
        self.counters = tuple(counter.key for counter in counters)
        """Keys of the chosen events."""
        self.metrics: dict[str, Metric] = METRICS | self.events
        self.index = {key: i for i, key in enumerate(self.metrics)}
        self.low = np.array([metric.low for metric in self.metrics.values()])
        self.high = np.array([metric.high for metric in self.metrics.values()])
        self.added = np.array([metric.added for metric in self.metrics.values()])


STATIC = Registry()


def of_hello(hello: wire.Hello) -> Registry:
    blocks = [block for block in hello.blocks if block.scope == "cpu"]
    every = {counter.key: counter for block in blocks for counter in block.counters}
    counters = [c for key, c in every.items() if key.startswith(EVENT) and c.kind == "counter"]
    if counters or any(key in every for key in ("slots", "smt_contention")):
        return Registry(tuple(counters), frozenset(every))
    return STATIC


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
