"""Streams of simulated machines, and the counters in their frames. Consecutive tests of the same
machine share one simulation; they must not change its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any

import frame_rows
import numpy as np

from perfprobe.sources.sim import scenarios as scripts
from perfprobe.sources.sim.machine import Ints, SimMachine, parse_spec
from perfprobe.sources.sim.schedule import Schedule, ScheduleCursor
from perfprobe.sources.sim.source import SimSource
from perfprobe.wire import Frame, Hello, Note

SAMPLE_NS = 100_000_000
Timed = Frame | Note


@lru_cache(8)
def messages(
    spec: str, count: int, sample_ns: int = SAMPLE_NS, **asked: Any
) -> tuple[Hello, Sequence[Timed]]:
    """The hello and the next `count` messages; `asked` are further arguments of SimSource."""
    source = SimSource(f"{spec},speed=max", sample_ns, **asked)
    return source.hello, [*islice(poll_all(source), count)]


@lru_cache(8)
def messages_lasting(
    spec: str, seconds: float, sample_ns: int = SAMPLE_NS, **asked: Any
) -> tuple[Hello, Sequence[Timed]]:
    """The hello, and the messages of `seconds` seconds."""
    source = SimSource(f"{spec},speed=max", sample_ns, **asked)
    end_ns = source.hello.raw_ns + int(seconds * 1e9)
    return source.hello, [*takewhile(lambda message: message.time_ns <= end_ns, poll_all(source))]


def poll_all(source: SimSource) -> Iterator[Timed]:
    while True:
        yield from source.poll()


def run(
    spec: str, seconds: float, sample_ns: int = SAMPLE_NS, **asked: Any
) -> tuple[Hello, list[Frame], list[Note]]:
    """Returns the hello, the frames and the notes of `seconds` simulated seconds."""
    hello, result = messages_lasting(spec, seconds, sample_ns, **asked)
    frames = [message for message in result if isinstance(message, Frame)]
    return hello, frames, [message for message in result if isinstance(message, Note)]


def head(frame: Frame, block: str = "cpu") -> Any:
    return frame_rows.head(frame.blocks[block])


def column(hello: Hello, frames: list[Frame], key: str) -> Any:
    """Returns the raw values of one counter: axes (frame, row)."""
    return np.stack([frame_rows.raw_values(hello, frame.blocks, key)[:, 0] for frame in frames])


def deltas(hello: Hello, frames: list[Frame], key: str) -> Any:
    """Returns the differences to the first frame, at the width of the counter."""
    counter = frame_rows.find_counter(hello, key)[2]
    raw = column(hello, frames, key)
    steps = (raw[1:] - raw[:-1]) & np.uint64(2**counter.bits - 1)
    return np.concatenate((np.zeros((1, raw.shape[1]), np.int64), steps.astype(np.int64))).cumsum(0)


def valid(hello: Hello, frame: Frame, key: str) -> Any:
    return frame_rows.valid_mask(hello, frame.blocks, key)[:, 0]


def make_schedule(text: str) -> Schedule:
    spec = parse_spec(text)
    machine = SimMachine.from_spec(spec)
    return Schedule(machine, scripts.make_script(spec.scenario, machine), spec.seed)


def amounts_between(schedule: Schedule, t0: int, t1: int) -> Ints:
    """Returns the integrals of a schedule over [t0, t1) ns; axes (Row, slot)."""
    cursor = ScheduleCursor(schedule)
    before = cursor.totals_until(t0)
    return cursor.totals_until(t1) - before


def bin_edges(end_ns: int, bin_ns: int, bins: int) -> np.ndarray:
    """Edges of bins in ns, which are multiples of `bin_ns`; the last bin contains `end_ns`."""
    last = -(-end_ns // bin_ns)
    return np.arange(last - bins, last + 1, dtype=np.int64) * bin_ns
