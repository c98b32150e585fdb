"""A fleet of machines, with its order, totals and episodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, nan

from perftop.model.kinds import severity_rank
from perftop.session.fleet_machine import (
    Machine,
    MachineEpisode,
    Numbers,
    mean_numbers,
)
from perftop.session.losses import CauseKey

MIN_SHARED_MACHINES = 3
"""Minimum number of machines with episodes of the same cause that form a shared episode."""
MAX_START_DISTANCE_S = 30.0
"""Maximum time in s between the starts of ended episodes that form a shared episode."""
UNLISTED_KINDS = frozenset({"ramp", "online"})
"""Kinds of episodes that no list of a fleet's episodes contains: they are frequent, or good
news."""
ORDERS = "lost", "name", "busy", "clock_hz", "age"
_RISING_ORDERS = frozenset({"name", "clock_hz"})
"""Orders in which the lowest value comes first."""


@dataclass(frozen=True)
class SharedEpisode:
    """Episodes with the same cause on one or several machines."""

    kind: str
    cause: str
    machines: tuple[str, ...]
    start: float
    end: float | None
    """Unix time in s; None while one of the episodes is running."""
    depth: float | None
    min_depth: float | None
    lost: float
    """Sum of the shares that the machines now lose to this cause, where known."""


@dataclass(frozen=True)
class TableSelection:
    """The order and the filter of a table of machines."""

    order: str = "lost"
    reverse: bool = False
    filter: str = ""


class Fleet:
    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = {machine.name: machine for machine in machines}

    @property
    def answering_machines(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_answering]

    @property
    def silent_machines(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if not machine.is_answering]

    def totals(self) -> Numbers:
        """Returns the numbers of the fleet: sums of power, means over machines of other numbers."""
        answering = self.answering_machines
        sums = dict(mean_numbers([machine.numbers for machine in answering]))
        for key in ("power_w", "power_limit_w"):
            known_values = [v for m in answering if isfinite(v := m.numbers[key])]
            sums[key] = sum(known_values) if known_values else nan
        return sums

    def rows(self, selection: TableSelection, now: float) -> list[Machine]:
        """Returns the machines that match the filter: first those that do not answer, then the
        others in the chosen order."""
        matching = [m for m in self.machines.values() if matches(m, selection.filter)]
        matching.sort(key=lambda m: natural_sort_key(m.name))
        silent_machines = [m for m in matching if not m.is_answering]
        answering = [m for m in matching if m.is_answering]
        falls = (selection.order not in _RISING_ORDERS) != selection.reverse
        if selection.order == "name":
            return [*silent_machines, *(answering if not falls else reversed(answering))]

        def sort_key(machine: Machine) -> tuple[bool, float]:
            number = machine.numbers.get(selection.order, now - machine.updated_at)
            return not isfinite(number), -number if falls else number

        return [*silent_machines, *sorted(answering, key=sort_key)]

    def running(self) -> list[SharedEpisode]:
        """Returns running episodes, costliest first. Episodes of a shared cause are merged."""
        groups = _listed_groups(e for machine in self.machines.values() for e in machine.running)
        shared_episodes = [e for group in groups for e in self._shared_episodes(group)]
        shared_episodes.sort(key=lambda h: (-round(h.lost, 2), severity_rank(h.kind), h.start))
        return shared_episodes

    def _shared_episodes(self, episodes: Sequence[MachineEpisode]) -> list[SharedEpisode]:
        """Merges episodes of one cause: on many machines into one, else one for each machine."""
        names = dict.fromkeys(episode.machine for episode in episodes)
        if len(names) >= MIN_SHARED_MACHINES:
            return [self._merge(episodes)]
        return [self._merge([e for e in episodes if e.machine == name]) for name in names]

    def _merge(self, episodes: Sequence[MachineEpisode]) -> SharedEpisode:
        kind, cause = episodes[0].group
        names = tuple(sorted({episode.machine for episode in episodes}, key=natural_sort_key))
        depths = [episode.depth for episode in episodes if episode.depth is not None]
        ends = [episode.end for episode in episodes]
        machines = (self.machines[name] for name in names if name in self.machines)
        losses = (m.lost_to((kind, cause)) for m in machines)
        lost_sum = sum(share for share in losses if isfinite(share))
        start = min(episode.start for episode in episodes)
        end = None if None in ends else max(end for end in ends if end is not None)
        highest, lowest = max(depths, default=None), min(depths, default=None)
        return SharedEpisode(kind, cause, names, start, end, highest, lowest, lost_sum)

    def newest_episodes(self, max_episodes: int) -> list[SharedEpisode]:
        """Returns the running and the ended episodes, newest start first. Episodes with the same
        cause that started together are merged."""
        groups = _listed_groups(e for machine in self.machines.values() for e in machine.ended)
        shared_episodes = self.running()
        for group in groups:
            simultaneous: list[MachineEpisode] = []
            for episode in sorted(group, key=lambda episode: episode.start):
                if simultaneous and episode.start - simultaneous[0].start > MAX_START_DISTANCE_S:
                    shared_episodes += self._shared_episodes(simultaneous)
                    simultaneous = []
                simultaneous.append(episode)
            shared_episodes += self._shared_episodes(simultaneous)
        shared_episodes.sort(key=lambda h: -h.start)
        return shared_episodes[:max_episodes]


def _listed_groups(episodes: Iterable[MachineEpisode]) -> Iterable[Sequence[MachineEpisode]]:
    groups: dict[CauseKey, list[MachineEpisode]] = {}
    for episode in episodes:
        if episode.kind not in UNLISTED_KINDS:
            groups.setdefault(episode.group, []).append(episode)
    return groups.values()


@lru_cache(maxsize=8192)
def natural_sort_key(name: str) -> tuple[object, ...]:
    """Returns a sort key of alternating texts and numbers, which puts n9 before n10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts))


def matches(machine: Machine, words: str) -> bool:
    """Returns whether a machine's name, model, causes and state contain all words of the filter."""
    running_text = " ".join(f"{e.kind} {e.cause}" for e in machine.running)
    states = {"silent": not machine.is_answering, "suspect": machine.suspect_count,
              "episode": running_text}  # fmt: skip
    state = " ".join(word for word, is_so in states.items() if is_so)
    text = f"{machine.name} {machine.model} {running_text} {state}".lower()
    return all(word in text for word in words.lower().split())


def racks(machines: Sequence[Machine]) -> dict[str, list[Machine]]:
    """Returns the machines by rack, in natural order. The rack is the part of the name before its
    last number. If no name has such a part, all machines form one group."""
    machines_by_rack: dict[str, list[Machine]] = {}
    for machine in sorted(machines, key=lambda m: natural_sort_key(m.name)):
        stem = machine.name.partition("@")[2] or machine.name
        stem = stem.partition(".")[0].rstrip("0123456789")
        rack_name = stem.rstrip("abcdefghijklmnopqrstuvwxyz-_")  # k07n of k07n12: rack 7, node 12
        rack = rack_name if rack_name[-1:].isdigit() else stem.rstrip("-_")
        machines_by_rack.setdefault(rack or machine.name, []).append(machine)
    return machines_by_rack
