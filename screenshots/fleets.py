"""Simulated fleets for the pictures: racks of nodes with one story each, always the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from perftop.session.fleet import Fleet
from perftop.session.fleet_machine import (
    UNKNOWN_NUMBERS,
    Machine,
    MachineEpisode,
    Numbers,
    lost_share,
)

NOW = 1_700_000_065.0
"""The moment of the pictures, in Unix seconds."""
PAST_S = 600
MODEL = "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz"


@dataclass(frozen=True, slots=True)
class Story:
    """The fault of a machine: kind and cause of an episode, its start, and its cost."""

    kind: str = ""
    cause: str = ""
    since_s: float = 0.0
    slow: float = 0.0
    """Share by which its clock is below the ceiling."""
    involuntary: float = 0.0002
    steal: float = 0.0


LIMITED = Story("turbo-drop", "power-pl1", 671, 0.24)
HOT = Story("turbo-drop", "thermal", 226, 0.34, 0.043)
MODULATED = Story("involuntary-halt", "modulation", 325, 0.02, 0.21)
STOLEN = Story("steal", "hypervisor", 45, steal=0.11)
SIBLING = Story("neighbour", "sibling", 4)
CALM = Story()


class Made:
    """A source of the app that never changes."""

    problem = shown_time_text = ""
    shown_time_s = NOW

    def __init__(self, fleet: Fleet, origin: str, facts: Sequence[str] = ()) -> None:
        self.fleet, self.origin, self._facts = fleet, origin, facts
        self.update_s = 15.0 if origin.startswith("prometheus") else 1.0

    def cost_texts(self) -> Sequence[str]:
        return self._facts

    async def run(self) -> None:
        """Sends nothing."""

    def move_in_time(self, _: int) -> bool:
        return False

    def toggle_pause(self) -> None:
        """Does nothing, because the fleet never changes."""


def _numbers(rng: random.Random, story: Story, load: float, *, guest: bool) -> Numbers:
    busy = min(0.999, max(0.01, rng.gauss(load, 0.01)))
    found = dict(UNKNOWN_NUMBERS) | {"busy": busy, "steal": max(0.0, rng.gauss(story.steal, 0.004))}
    if story.steal == 0:
        found["steal"] = 0.0
    if not guest:
        ceiling = 3.1e9 if load > 0.7 else 3.3e9
        slow = story.slow * (0.5 + 0.5 * load) if story.slow else 0.003
        clock = ceiling * (1 - max(0.0, rng.gauss(slow, 0.004)))
        both = busy * 0.62
        watts = 205 if story.cause == "power-pl1" else 250
        found |= {
            "clock_hz": clock, "ceiling_hz": ceiling, "both": both, "lp0": 0.27 * busy,
            "lp1": 0.06 * busy, "neither": 1 - both - 0.33 * busy, "power_limit_w": watts,
            "below": load if story.slow > 0.05 else max(0, rng.gauss(0.004, 0.002)),
            "involuntary": max(0.0, rng.gauss(story.involuntary, 0.0003)),
            "power_w": watts * (0.99 if story.slow > 0.1 else 0.55 + 0.38 * busy),
        }  # fmt: skip
    return found | {"lost": lost_share(found)}


def machine(name: str, story: Story, *, load: float = 0.97, guest: bool = False) -> Machine:
    node = Machine(name, ("live", "--host", name))
    rng = random.Random(name)  # noqa: S311 - the same each time
    node.model, node.cpu_count, node.core_count = MODEL, 64, 32
    node.version, node.tasks, node.probe_share = "1.4", "lmp × 63.4 CPUs", 0.0003
    if guest:
        node.model, node.cpu_count, node.core_count = "AMD EPYC 7763", 4, 4
        node.clock_missing_text, node.tasks = "no PMU in this guest", "cc1plus × 3.4 CPUs"
    for second in range(PAST_S, -1, -5):
        part = story if second < story.since_s else CALM
        share = load if second % 150 else load * 0.8
        time, numbers = NOW - second - rng.random() * 0.8, _numbers(rng, part, share, guest=guest)
        if second > 10:
            node.history.add(time, numbers["lost"])
        else:
            node.add_numbers(time, numbers)
    if story.kind:
        start = NOW - story.since_s - rng.random() * 8
        depth = story.slow * 3.1e9 if story.kind == "turbo-drop" else max(
            story.involuntary, story.steal, 0.3 * (story is SIBLING))  # fmt: skip
        node.running = [MachineEpisode(name, story.kind, story.cause, start, None, depth, 1.0)]
    return node


def _gone(name: str, since_s: float) -> Machine:
    node = machine(name, LIMITED)
    node.silent_since = NOW - since_s
    while node.history.times[-1] > node.silent_since:
        node.history.times.pop()
        node.history.points.pop()
    node.fall_silent(NOW, f"{name}: connection: timed out", NOW + 24)
    return node


def small() -> Fleet:
    """Twelve machines: eight nodes of one rack, two database hosts, two guests."""
    nodes = [machine(f"node{i:02}", LIMITED if i in {3, 4, 5, 6} else CALM) for i in range(1, 8)]
    nodes[0] = machine("node01", HOT)
    others = [
        _gone("node08", 153),
        machine("db1", SIBLING, load=0.62),
        machine("db2", CALM, load=0.4),
        machine("ci-1", STOLEN, load=0.86, guest=True),
        machine("ci-2", CALM, load=0.31, guest=True),
    ]
    ended = MachineEpisode("node07", "turbo-drop", "current", NOW - 190, NOW - 187, 3e8, 0.5)
    nodes[6].ended.append(ended)
    return Fleet([*nodes, *others])


def many() -> Fleet:
    """Four hundred machines in twenty racks."""
    return racks(20, 20)


def racks(count: int, each: int) -> Fleet:
    """Racks of nodes: a power limit on two of them, heat on one machine, halts in a third rack."""
    machines: list[Machine] = []
    for rack in range(1, count + 1):
        for node in range(1, each + 1):
            name = f"k{rack:02}n{node:02}"
            story, load = CALM, 0.97
            if rack in {7, 8} and node <= 16:
                story, load = LIMITED, 0.98 if node % 5 else 0.55
            elif (rack, node) == (6, 3):
                story = HOT
            elif rack == 15 and node <= 9:
                story = MODULATED
            elif rack == 2 and node in {6, 7}:
                story = STOLEN
            elif (rack, node) in {(5, 9), (10, 17), (19, 2)}:
                story = SIBLING
            elif rack == 13 and node in {5, 6, 7, 8}:
                machines.append(_gone(name, 140))
                continue
            machines.append(machine(name, story, load=load))
    return Fleet(machines)
