"""The past of what CPUs share: what the machine, its packages and its memory did, over bins of
time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import simulated
from made import SAMPLE_NS
from played import played

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.session.history import History, covering, edges
from perftop.session.history_chunk import Times
from perftop.session.interval import Interval
from perftop.session.session import Session


def kept(hello: wire.Hello, messages: Sequence[wire.Message]) -> Session:
    """A session with a history."""
    session = Session(hello, History(hello))
    played(session, messages)
    return session


def with_bins(
    cpus: int, samples: int, scenario: str, bins: int
) -> tuple[History, Times, list[Interval]]:
    """A history, the edges of its last bins of 2 s, and the intervals that end with each."""
    session = kept(*simulated.messages(f"sim:{scenario},cpus={cpus},seed=2", samples))
    end_ns, span_ns = session.now_ns, 20 * SAMPLE_NS
    ends = np.arange(end_ns - bins * span_ns, end_ns + 1, span_ns, dtype=np.int64)
    told = [session.at(at_ns, span_ns) for at_ns in ends[1:].tolist()]
    return session.past, ends, [interval for interval in told if interval is not None]


def test_what_tasks_wait_for_has_a_past() -> None:
    history, ends, told = with_bins(2, 200, "guest", 6)
    found = history.machine(["pressure_cpu"], ends)[:, 0]
    assert found.tolist() == pytest.approx([t.machine["pressure_cpu"] for t in told], abs=1e-4)
    assert found.min() > 0
    assert np.isnan(history.machine(["temperature_c"], ends)).all()


def test_what_packages_move_has_a_past() -> None:
    history, ends, told = with_bins(4, 120, "memory", 4)
    for key, name in (("memory_read_bytes", "memory_read_bytes_per_s"), ("energy_j", "power_w")):
        found = history.shared(key, ends)
        assert found[:, 0].tolist() == pytest.approx(
            [float(t.packages[name][0]) for t in told], rel=1e-3
        )
    assert history.shared("l3_memory_bytes", ends).shape == (4, 0)


def test_channels_of_a_memory_are_added_up() -> None:
    hello, messages = simulated.messages("sim:memory,cpus=4,seed=2", 60)
    block = next(b for b in hello.blocks if any(c.key == "memory_read_bytes" for c in b.counters))
    at = [c.key for c in block.counters].index("memory_read_bytes")
    read, write = block.counters[at : at + 2]
    assert write.key == "memory_write_bytes"
    wide = [*block.counters[:at], replace(read, columns=2), *block.counters[at + 2 :]]
    blocks = [replace(b, counters=wide) if b is block else b for b in hello.blocks]
    ends = edges(messages[-1].time_ns, SAMPLE_NS, 30)
    narrow, both = (kept(one, messages).past for one in (hello, replace(hello, blocks=blocks)))
    parts = [narrow.shared(key, ends) for key in ("memory_read_bytes", "memory_write_bytes")]
    assert both.shared("memory_read_bytes", ends) == pytest.approx(sum(parts), rel=1e-6)
    assert min(part.min() for part in parts) > 0


def test_a_rate_that_is_read_seldom_covers_the_bins_since_the_last_read() -> None:
    nan = np.nan
    rates = np.array([[nan], [5.0], [nan], [nan], [7.0], [nan]])
    read_s = np.array([[0.0], [1.0], [0.0], [0.0], [3.0], [0.0]])
    found = covering(rates, read_s, np.ones(6))[:, 0]
    assert np.array_equal(found, [nan, 5.0, 7.0, 7.0, 7.0, nan], equal_nan=True)
