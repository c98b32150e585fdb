"""Streams of simulated machines, and what stands in their frames."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import read_rows

from perfprobe.sources import Source
from perfprobe.sources.sim import scenarios as scripts
from perfprobe.sources.sim.hello import Select
from perfprobe.sources.sim.machine import Machine
from perfprobe.sources.sim.schedule import Schedule
from perfprobe.sources.sim.source import open_sim
from perfprobe.sources.sim.spec import parse
from perfprobe.wire import Frame, Hello, Note

SAMPLE = 100_000_000
Ran = tuple[Hello, list[Frame], list[Note]]


@lru_cache(8)
def run(text: str, seconds: float, sample_ns: int = SAMPLE) -> Ran:
    """Hello, frames and notes of so many simulated seconds. Tests in a row that ask for the same
    share them."""
    return run_selected(text, seconds, None, sample_ns)


def run_selected(text: str, seconds: float, select: Select, sample_ns: int = SAMPLE) -> Ran:
    source: Source = open_sim(f"sim:{text},speed=max", sample_ns, select)
    frames: list[Frame] = []
    notes: list[Note] = []
    while len(frames) * sample_ns <= seconds * 1e9:
        for message in source.poll():
            if isinstance(message, Frame):
                frames.append(message)
            else:
                notes.append(message)
    source.close()
    assert source.poll() == []
    return source.hello, frames[: int(seconds * 1e9 / sample_ns) + 1], notes


def head(frame: Frame, block: str = "cpu") -> Any:
    return read_rows.head(frame.blocks[block])


def column(hello: Hello, frames: list[Frame], key: str) -> Any:
    """Raw values of one counter: axes (frame, row)."""
    return np.stack([read_rows.raw(hello, frame.blocks, key)[:, 0] for frame in frames])


def deltas(hello: Hello, frames: list[Frame], key: str) -> Any:
    """Since the first frame, at the width of the counter."""
    counter = read_rows.place(hello, key)[2]
    raw = column(hello, frames, key)
    steps = (raw[1:] - raw[:-1]) & np.uint64(2**counter.bits - 1)
    return np.concatenate((np.zeros((1, raw.shape[1]), np.int64), steps.astype(np.int64))).cumsum(0)


def valid(hello: Hello, frame: Frame, key: str) -> Any:
    return read_rows.valid(hello, frame.blocks, key)[:, 0]


def schedule_of(text: str) -> Schedule:
    spec = parse(text)
    machine = Machine.of(spec)
    return Schedule(machine, scripts.build(spec.scenario, machine), spec.seed)
