"""False suspicions: an hour of every simulated scenario, in none of which a counter is taken or
dead, and the recordings of tests/data. A line a stream; each doubted sample is a fault.

Run by hand: python tests/bench/calm_hours.py [SECONDS] [CPUS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from perfprobe import wire
from perfprobe.sources.sim.machine import SCENARIOS
from perfprobe.sources.sim.source import open_sim
from perftop.model.delta import Doubt
from perftop.recording.file import open_source
from perftop.session.session import MAX_BATCH, Session

SAMPLE_NS = 100_000_000
DATA = Path(__file__).parent.parent / "data"


def simulated(
    scenario: str, cpus: int, seconds: float
) -> tuple[wire.Hello, Iterator[wire.Message]]:
    source = open_sim(f"sim:{scenario},cpus={cpus},speed=max", SAMPLE_NS)

    def messages() -> Iterator[wire.Message]:
        frames = 0
        while frames < seconds * 1e9 / SAMPLE_NS:
            for message in source.poll():
                frames += isinstance(message, wire.Frame)
                yield message
        source.close()

    return source.hello, messages()


def doubts(hello: wire.Hello, messages: Iterator[wire.Message]) -> tuple[int, Counter[str]]:
    """Samples of CPUs, and how often each counter was doubted, with the reason."""
    session, found = Session(hello), Counter[str]()
    seen = 0
    while batch := list(islice(messages, MAX_BATCH)):
        for message in session.play(batch):
            seen += isinstance(message, wire.Frame) * len(hello.topology)
        for told in session.take().suspect.values():
            found.update(f"{key} {Doubt(why).name.lower()}" for key, why in told)
    return seen, found


def report(name: str, hello: wire.Hello, messages: Iterator[wire.Message]) -> None:
    seen, found = doubts(hello, messages)
    told = ", ".join(f"{what}: {count}" for what, count in found.most_common()) or "none"
    print(f"{name:16} {seen:>10} samples of CPUs  doubted: {told}", flush=True)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    cpus = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    for scenario in SCENARIOS:
        report(scenario, *simulated(scenario, cpus, seconds))
    for name in ("platinum-8160", "recording-1"):
        with open_source(DATA / name) as source:
            report(name, source.hello, iter(source.messages()))
