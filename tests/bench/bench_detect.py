"""What it costs to look at a sample for episodes, in all and detector by detector, at 2 to 1024
CPUs: where nothing happens, and in the scenarios that each detector is for.

Run by hand: python tests/bench/bench_detect.py [SCENARIO …]
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim
from perftop.detect.engine import DetectorInput
from perftop.session.session import Session

SAMPLE_NS = 100_000_000
SIZES = (2, 64, 256, 1024)
SCENARIOS = ("steady", "smt-mix", "turbo-drop", "throttle", "halts", "neighbour", "warmup")
SECONDS = 24


def watched(cpus: int, scenario: str) -> tuple[Counter[str], float, int]:
    """CPU ns by detector and of all the rest of taking a frame; how many samples that were."""
    source = open_sim(f"sim:{scenario},cpus={cpus},speed=max", SAMPLE_NS)
    session = Session(source.hello)
    spent: Counter[str] = Counter()
    for watcher in session._detection._detectors:
        _meter(watcher, spent)
    frames = 0
    taken = 0
    while frames < SECONDS * 10:
        for message in source.poll():
            start = time.process_time_ns()
            session.apply(message)
            taken += time.process_time_ns() - start
            frames += isinstance(message, wire.Frame)
    source.close()
    return spent, taken - sum(spent.values()), frames


def _meter(watcher: object, spent: Counter[str]) -> None:
    name, sample = type(watcher).__name__, watcher.sample  # type: ignore[attr-defined]

    def metered(seen: DetectorInput) -> object:
        start = time.process_time_ns()
        found = sample(seen)
        spent[name] += time.process_time_ns() - start
        return found

    watcher.sample = metered  # type: ignore[attr-defined]


def main(scenarios: tuple[str, ...]) -> None:
    print("us a sample; `rest` is all else that is done with a frame, the reference\n")
    for cpus in SIZES:
        for scenario in scenarios:
            spent, rest, frames = watched(cpus, scenario)
            total = sum(spent.values())
            each = "  ".join(f"{name} {ns / frames / 1e3:.0f}" for name, ns in spent.most_common())
            print(f"{cpus:>5} CPUs {scenario:11} detection {total / frames / 1e3:>6.0f}"
                  f"  rest {rest / frames / 1e3:>6.0f}  ratio {total / rest:.2f}   {each}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or SCENARIOS)
