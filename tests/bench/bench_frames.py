"""Measures the cost of a frame: encoding, decoding, differences and metrics, at 2 to 1024 CPUs.

Run by hand: python tests/bench/bench_frames.py
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import msgpack

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import timing
from simulated import run

from perfprobe import wire
from perftop.session.session import Session


def without_records(frame: wire.Frame) -> wire.Frame:
    """Returns the frame with counters only, because the record of tasks has a cost of its own."""
    return dataclasses.replace(frame, records={})


def codec(cpus: int) -> list[tuple[str, float, float]]:
    hello, (frame, *_), _ = run(f"smt-mix,cpus={cpus}", 0)
    frame = without_records(frame)
    data = wire.encode(frame)
    decoder = wire.Decoder()
    list(decoder.feed(wire.encode(hello)))
    plain = b"".join(bytes(part) for r in frame.blocks.values() for part in (r.head, r.values))
    repeat = 2000 if cpus < 256 else 300
    packed = msgpack.packb(plain)
    return [
        (
            f"encode, {cpus} CPUs, {len(data)} bytes (one bin)",
            timing.best_us(lambda: wire.encode(frame), repeat),
            timing.best_us(lambda: msgpack.packb(plain), repeat),
        ),
        (
            f"decode, {cpus} CPUs (one bin)",
            timing.best_us(lambda: list(decoder.feed(data)), repeat),
            timing.best_us(lambda: msgpack.unpackb(packed), repeat),
        ),
    ]


def model(cpus: int) -> list[tuple[str, float, float]]:
    """Measures the metrics of a frame; the reference is one subtraction of the same arrays."""
    hello, result, _ = run(f"smt-mix,cpus={cpus}", 6)
    session = Session(hello)
    reader = Session(hello).counters
    queue = iter(result * 1000)

    def apply() -> None:
        session.now_ns = 0
        session.apply(next(queue))

    def subtract() -> None:
        reader.steps(result[:1])

    repeat = 40
    mine, reference = timing.best_us(apply, repeat), timing.best_us(subtract, repeat)
    taken = timing.best_us(session.take_interval, repeat)
    return [
        (f"apply a frame, {cpus} CPUs (differences alone)", mine, reference),
        (f"take an interval, {cpus} CPUs", taken, reference),
    ]


if __name__ == "__main__":
    sizes = (2, 64, 256, 1024)
    timing.table("wire", [row for n in sizes for row in codec(n)])
    timing.table("model", [row for n in sizes for row in model(n)])
