"""All episodes found in what a simulated machine counts, against those that its script has."""

from __future__ import annotations

from typing import Any

import pytest
from nights import by_day
from truths import PLAYED_S, SECOND, SMALL, cores, found, scripted

from perfprobe import wire
from perftop.model.episode import Episode, TaskOnCpu

NIGHTLY = pytest.mark.nightly
SCENARIOS = [
    "steady", "idle", "jitter", "smt-mix", "hybrid", "hotplug", "warmup", "turbo-drop", "license",
    "throttle", "halts", "neighbour", "memory", "guest", "demo",
]  # fmt: skip
RUNS = [
    (SMALL, SECOND // 10, PLAYED_S),
    ("cpus=64,packages=2,seed=77", SECOND // 10, 58.0),
    (SMALL, SECOND // 10, 58.0),
    ("cpus=4,packages=1,seed=4", SECOND, 298.0),
    ("cpus=64,packages=2,seed=9", SECOND, 97.0),
]
"""Machine, sample and seconds, at the end of which no script has an edge."""
DAILY = RUNS[0], RUNS[4]
"""A small machine sampled often and a large one sampled seldom; the others are for the night, as
are large ones on which nothing is to be found, or the same as on the small ones."""
ONCE = {"steady", "idle", "jitter", "smt-mix", "warmup", "hotplug", "license", "halts",
        "guest", "demo"}  # fmt: skip
CASES = [
    pytest.param(
        f"{scenario},{run[0]}",
        *run[1:],
        marks=[] if run in DAILY[: 1 + (scenario not in ONCE)] else NIGHTLY,
    )
    for scenario in SCENARIOS
    for run in RUNS
    if scenario != "hybrid" or "packages=1" in run[0]
]
BY_CORE = {"turbo-drop", "license"}
"""Kinds that are told of whole cores."""
LOOSE = {"turbo-drop": 0.05, "neighbour": 0.05}
"""How far a depth may be off; 2 % where it is not said."""
INFERRED = {"involuntary-halt", "memory"}
"""Kinds, and causes of neighbours."""
LATE = 1.01
"""Samples. One that is to end where something begins may end just after."""
ELSEWHERE = {"ramp": {"warmup", "demo"}, "suspect": {"jitter"}}
"""Kinds that this cannot hold against the script, and where they may be: ramps have a test of their
own, and siblings that are read 3 ms apart cannot be believed."""


def near(ns: int, raw_ns: int, at_s: float, sample_ns: int) -> bool:
    return abs(ns - raw_ns - at_s * SECOND) <= LATE * sample_ns


def check(episode: Episode, true: dict[str, Any], raw_ns: int, sample_ns: int) -> None:
    assert episode.cause == (true["cause"] or episode.cause)
    inferred = not INFERRED.isdisjoint({true["kind"], true["cause"]})
    assert episode.confidence == ("inferred" if inferred else "measured")
    if true["depth"] is not None:
        assert episode.depth == pytest.approx(true["depth"], rel=LOOSE.get(true["kind"], 0.02))
    assert (episode.end_ns is None) == (true["end"] is None)
    if episode.end_ns is not None:
        assert near(episode.end_ns, raw_ns, true["end"], sample_ns)


def told_of(hello: wire.Hello, true: dict[str, Any]) -> list[int]:
    if true["kind"] not in BY_CORE:
        return sorted(true["cpus"])
    return sorted(cpu for i in cores(hello, true["cpus"]) for cpu in hello.cores[i])


@pytest.mark.parametrize(("spec", "sample_ns", "seconds"), CASES)
def test_all_that_is_scripted_is_found_within_a_sample_and_nothing_else(
    spec: str, sample_ns: int, seconds: float
) -> None:
    session, episodes = found(spec, sample_ns, seconds)
    scenario, raw_ns = spec.partition(",")[0], session.hello.raw_ns
    left = [e for e in episodes if scenario not in ELSEWHERE.get(e.kind, ())]
    for true in scripted(spec, seconds):
        if scenario in ELSEWHERE.get(true["kind"], ()):
            continue
        mine = [e for e in left if e.kind == true["kind"]
                and near(e.start_ns, raw_ns, true["start"], sample_ns)]  # fmt: skip
        left = [e for e in left if not any(e is one for one in mine)]
        assert sorted(cpu for e in mine for cpu in e.cpus) == told_of(session.hello, true), true
        for episode in mine:
            check(episode, true, raw_ns, sample_ns)
    assert left == []


@pytest.mark.parametrize(("machine", "sample_ns", "seconds"), DAILY)
def test_other_tasks_are_named(machine: str, sample_ns: int, seconds: float) -> None:
    session, episodes = found(f"neighbour,{machine}", sample_ns, seconds)
    siblings = [e for e in episodes if e.kind == "neighbour" and e.cause == "sibling"]
    assert siblings
    for episode in siblings:
        other = episode.cpus[0] + len(session.hello.topology) // 2
        assert TaskOnCpu(4000 + other, "stream", other) in episode.evidence["who"]


@pytest.mark.parametrize("seconds", [300.0, pytest.param(3600.0, marks=NIGHTLY)])
@pytest.mark.parametrize("scenario", by_day(["steady", "idle", "jitter"], ["jitter"]))
def test_a_long_time_in_which_nothing_happens(scenario: str, seconds: float) -> None:
    _, episodes = found(f"{scenario},cpus=8", SECOND, seconds)
    assert episodes == []
