"""Measures the cost of a sample, with read and wake-up separate, in this machine's lanes with
several kinds of slots.

The reference is a thread that only sleeps to the same deadlines.

Run by hand: python tests/bench/bench_sampling.py
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.machine import source
from perfprobe.machine.parts import Part, RowReaders
from perfprobe.native import tsc_rate
from perfprobe.native.sampler import Sampler, lay_out
from perfprobe.wire import Cpu

SAMPLES = 150


def run(hz: int, parts: Sequence[Part], rows: Sequence[Cpu]) -> tuple[float, float, float]:
    """Returns the CPU time of a sample, the median time of a read, and the median lateness, all in
    us."""
    reading = RowReaders(parts, rows)
    places, words = lay_out(reading.blocks())
    reading.set_offsets({place.block.name: place for place in places})
    widths, late = [], []
    with Sampler(10**9 // hz, words) as sampler:
        for row in rows:
            sampler.attach(row.cpu, reading.open(row.cpu))
        tsc_us = tsc_rate.calibrate().hz / 1e6
        for _ in range(SAMPLES):
            while sampler.drain() is None:
                time.sleep(max(0, sampler.due_s() - time.monotonic()))
            frame = sampler.frame.cast("Q")
            for n in range(len(rows)):
                before, after, lateness = frame[n * wire.HEAD : n * wire.HEAD + 3]
                widths.append((after - before) / tsc_us)
                late.append(lateness / 1000)
        stats = [sampler.stats(row.cpu) for row in rows]
    samples = sum(s.samples for s in stats)
    cost = sum(s.cpu_ns for s in stats) / samples / 1000
    for part in parts:
        part.close()
    return cost, statistics.median(widths), statistics.median(late)


if __name__ == "__main__":
    root = Path("/")
    rows = [row for row in topology.read_cpus(root) if row.cpu in os.sched_getaffinity(0)]
    print(f"{'':28}{'CPU us a sample':>18}{'wake-up':>10}{'read':>8}{'late':>8}{'ratio':>8}")
    for hz in (10, 100):
        reference = 0.0
        for name, parts in (("nothing", []), ("the os source", source.os_parts(root, rows))):
            cost, read, late = run(hz, parts, rows)
            reference = reference or cost
            print(
                f"{hz} Hz, {name:20}{cost:>18.1f}{cost - read:>10.1f}{read:>8.2f}{late:>8.1f}"
                f"{cost / reference:>8.2f}"
            )
