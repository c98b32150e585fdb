"""What history costs: filling it, looking at it, and how long it reaches back, at 2 to 1024 CPUs.

Run by hand: python tests/bench/bench_history.py [seconds of a 64-CPU run to watch memory over]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import timing
from simulated import SAMPLE_NS, messages, polled

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim
from perftop.session.history import MAX_BYTES, History, Message, edges
from perftop.session.session import Session

FRAMES = 320
BINS = 150


def filled(hello: wire.Hello, found: Sequence[Message]) -> tuple[Session, History]:
    history = History(hello)
    session = Session(hello, history)
    for message in found:
        session.apply(message)
    return session, history


def filling(cpus: int) -> list[tuple[str, float, float]]:
    """The mean of the cheaper half, and of all. Reference: making a sample of the frame, which is
    done without history too."""
    hello, found = messages(f"sim:smt-mix,cpus={cpus}", FRAMES)
    session = Session(hello)
    history, reader = History(hello), session.reader
    costs: list[list[int]] = [[], [], []]
    for message in found:
        assert isinstance(message, wire.Frame)
        start = time.process_time_ns()
        history.room(reader)
        history.keep(message, reader)
        kept = time.process_time_ns()
        sample = next(reader.samples([message]))
        sampled = time.process_time_ns()
        history.trace(sample)
        ends = start, kept, sampled, time.process_time_ns()
        for cost, since, until in zip((0, 2, 1), ends[:-1], ends[1:], strict=True):
            costs[cost].append(until - since)
    keep, trace, reference = (sum(sorted(c)[: FRAMES // 2]) / (FRAMES // 2) / 1e3 for c in costs)
    mean = (sum(costs[0]) + sum(costs[1])) / FRAMES / 1e3
    return [
        (f"pack a frame, {cpus} CPUs", keep, reference),
        (f"trace a sample, {cpus} CPUs", trace, reference),
        (f"both, mean with new chunks, {cpus} CPUs", mean, reference),
    ]


def asking(cpus: int) -> list[tuple[str, float, float]]:
    """Reference: applying one frame."""
    hello, found = messages(f"sim:smt-mix,cpus={cpus}", FRAMES)
    session, history = filled(hello, found)
    plain = Session(hello)
    start = time.process_time_ns()
    for message in found:
        plain.apply(message)
    reference = (time.process_time_ns() - start) / len(found) / 1e3
    last_ns = history.last_ns or 0
    rows = range(min(cpus, 256))
    fine = edges(last_ns, SAMPLE_NS, BINS)
    coarse = edges(last_ns, 10 * SAMPLE_NS, BINS)
    cores = session.cores[:128]
    repeat = 10
    return [
        (f"field, {BINS} bins of a sample, {len(rows)} rows",
         timing.best_us(lambda: history.field("util", rows, fine), repeat), reference),
        (f"field, bins of 10 samples, {len(rows)} rows",
         timing.best_us(lambda: history.field("util", rows, coarse), repeat), reference),
        (f"states, {BINS} bins, {len(cores)} cores",
         timing.best_us(lambda: history.states(cores, fine), repeat), reference),
        (f"a moment, 5 samples, {cpus} CPUs",
         timing.best_us(lambda: session.interval_at(last_ns - 10**9, 5 * SAMPLE_NS), 1), reference),
    ]  # fmt: skip


def reach(cpus: int) -> None:
    hello, found = messages(f"sim:smt-mix,cpus={cpus}", FRAMES)
    _, history = filled(hello, found)
    per_frame = history.bytes / history.times().size
    raw = sum(len(m) for c in history._chunks for m in c.messages) / FRAMES
    seconds = MAX_BYTES / per_frame * SAMPLE_NS / 1e9
    print(f"{cpus:>6} CPUs {per_frame:>10.0f} B a sample, of which packed {raw:>8.0f} B"
          f"{seconds / 60:>10.1f} min of 100 ms")  # fmt: skip


def run(seconds: float) -> None:
    """A long run, and the memory of the process while it lasts."""
    source = open_sim("sim:smt-mix,cpus=64,speed=max", SAMPLE_NS)
    history = History(source.hello)
    session = Session(source.hello, history)
    step = max(1.0, seconds / 12)
    told = 0.0
    for message in polled(source):
        session.apply(message)
        if session.span_ns >= 500_000_000:
            session.take()
        if (done := (session.now_ns - source.hello.raw_ns) / 1e9) >= told:
            told += step
            rss = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            held_mb, held_min = history.bytes / 1e6, len(history.times()) * SAMPLE_NS / 60e9
            print(f"{done:>8.0f} s  RSS {rss / 1e6:>6.1f} MB  history {held_mb:>6.1f} MB"
                  f" {held_min:>6.1f} min", flush=True)  # fmt: skip
        if done >= seconds:
            break


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(float(sys.argv[1]))
        sys.exit()
    sizes = (2, 64, 256, 1024)
    timing.table("filling", [row for n in sizes for row in filling(n)])
    timing.table("asking", [row for n in sizes for row in asking(n)])
    for n in sizes:
        reach(n)
