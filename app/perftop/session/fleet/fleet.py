"""A fleet of machines: their order, their totals, and their episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, nan

from perftop.model.episode import rank
from perftop.session.fleet.machine import FIELDS, Machine, MachineEpisode, Numbers, mean_numbers

MIN_SHARED_MACHINES = 3
"""Minimum number of machines with the same cause for their episodes to become one shared
episode."""
TOGETHER_S = 30.0
"""Ended episodes of one cause that started within this time, in s, become one shared episode."""
ORDERS = ("lost", "name", "busy", "clock_hz", "below", "both", "involuntary", "steal", "power_w",
          "episodes", "suspects", "age")  # fmt: skip
_RISING = frozenset({"name", "clock_hz"})
"""Orders in which the lowest value is first."""
_WORDS = ("silent", "suspect", "episode")
"""Words in a filter for states of machines."""


@dataclass(frozen=True)
class SharedEpisode:
    """Episodes with the same cause on one machine or on several."""

    kind: str
    cause: str
    machines: tuple[str, ...]
    start: float
    end: float | None
    depth: float | None
    """The greatest depth of the episodes."""
    least: float | None
    """The smallest depth of the episodes."""
    lost: float
    """Sum of the lost shares of the machines whose main cause this is."""


@dataclass(frozen=True)
class RowChoice:
    """Order and filter of the rows."""

    order: str = "lost"
    reverse: bool = False
    filter: str = ""


class Fleet:
    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = {machine.name: machine for machine in machines}

    def add(self, machine: Machine) -> None:
        self.machines[machine.name] = machine

    @property
    def answering(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.answers]

    @property
    def silent(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if not machine.answers]

    def totals(self) -> Numbers:
        """The numbers of the fleet: means over the machines, but sums for power."""
        answering = self.answering
        sums = dict(mean_numbers([machine.numbers for machine in answering]))
        for key in ("power_w", "power_limit_w"):
            known_values = [v for m in answering if isfinite(v := m.numbers[key])]
            sums[key] = sum(known_values) if known_values else nan
        return sums

    def rows(self, choice: RowChoice, now: float) -> list[Machine]:
        """The machines that match the filter, sorted: those that do not answer first, then the
        worst."""
        matching = [m for m in self.machines.values() if matches(m, choice.filter)]
        silent_machines = sorted(
            (m for m in matching if not m.answers), key=lambda m: natural(m.name)
        )
        answering = [m for m in matching if m.answers]
        answering.sort(key=lambda machine: natural(machine.name))
        falls = (choice.order not in _RISING) != choice.reverse
        if choice.order == "name":
            return [*silent_machines, *(answering if not falls else reversed(answering))]
        ordered_values = [(value(m, choice.order, now), m) for m in answering]
        ordered_values.sort(
            key=lambda pair: (not isfinite(pair[0]), -pair[0] if falls else pair[0])
        )
        return [*silent_machines, *(machine for _, machine in ordered_values)]

    def running(self) -> list[SharedEpisode]:
        """Running episodes, the costliest first; a cause that several machines share is listed
        once."""
        groups: dict[tuple[str, str], list[MachineEpisode]] = {}
        for machine in self.machines.values():
            for episode in machine.running:
                if episode.wrong:
                    groups.setdefault(episode.group, []).append(episode)
        shared_episodes = [
            shared_episode
            for episodes in groups.values()
            for shared_episode in self._shared_episodes(episodes)
        ]
        shared_episodes.sort(key=lambda h: (-round(h.lost, 2), rank(h.kind), h.start))
        return shared_episodes

    def _shared_episodes(self, episodes: Sequence[MachineEpisode]) -> list[SharedEpisode]:
        """Merges episodes of one cause into one shared episode, or into one for each machine if
        there are only few machines."""
        names = dict.fromkeys(episode.machine for episode in episodes)
        if len(names) >= MIN_SHARED_MACHINES:
            return [self._merge(episodes)]
        return [self._merge([e for e in episodes if e.machine == name]) for name in names]

    def _merge(self, episodes: Sequence[MachineEpisode]) -> SharedEpisode:
        kind, cause = episodes[0].group
        names = tuple(sorted({episode.machine for episode in episodes}, key=natural))
        depths = [episode.depth for episode in episodes if episode.depth is not None]
        ends = [episode.end for episode in episodes]
        lost = sum(
            value
            for name in names
            if (machine := self.machines.get(name)) is not None
            and machine.cause == (kind, cause)
            and isfinite(value := machine.numbers["lost"])
        )
        return SharedEpisode(
            kind, cause, names, min(episode.start for episode in episodes),
            None if None in ends else max(end for end in ends if end is not None),
            max(depths, default=None), min(depths, default=None), lost,
        )  # fmt: skip

    def happened(self, max_episodes: int) -> list[SharedEpisode]:
        """Running and ended episodes, the newest start first. Episodes with the same cause that
        started together are listed once."""
        ended_episodes: dict[tuple[str, str], list[MachineEpisode]] = {}
        for machine in self.machines.values():
            for episode in machine.ended:
                if episode.wrong:
                    ended_episodes.setdefault(episode.group, []).append(episode)
        shared_episodes = self.running()
        for episodes in ended_episodes.values():
            episodes.sort(key=lambda episode: episode.start)
            simultaneous: list[MachineEpisode] = []
            for episode in episodes:
                if simultaneous and episode.start - simultaneous[0].start > TOGETHER_S:
                    shared_episodes += self._shared_episodes(simultaneous)
                    simultaneous = []
                simultaneous.append(episode)
            shared_episodes += self._shared_episodes(simultaneous)
        shared_episodes.sort(key=lambda h: -h.start)
        return shared_episodes[:max_episodes]

    def below(self, cells: int, now: float, span_s: float) -> list[float]:
        """Number of machines with a turbo drop in each of `cells` parts of the last `span_s`."""
        step, counts = span_s / cells, [0.0] * cells
        for machine in self.machines.values():
            hit: set[int] = set()
            for episode in (*machine.running, *machine.ended):
                if (
                    episode.kind in {"turbo-drop", "throttle"}
                    and (episode.end or now) > now - span_s
                ):
                    first = int((episode.start - now + span_s) / step)
                    last_cell = int(((episode.end or now) - now + span_s) / step)
                    hit.update(range(max(0, first), min(cells - 1, last_cell) + 1))
            for cell in hit:
                counts[cell] += 1
        return counts


def value(machine: Machine, order: str, now: float) -> float:
    """The value by which a machine is sorted."""
    if order == "episodes":
        return float(sum(episode.wrong for episode in machine.running))
    if order == "suspects":
        return float(machine.suspects)
    if order == "age":
        return float(int(now - machine.updated))
    return machine.rank(order) if order in FIELDS else nan


@lru_cache(maxsize=8192)
def natural(name: str) -> tuple[object, ...]:
    """Sort key that puts n9 before n10. Texts and numbers alternate in it, so any two keys can be
    compared."""
    parts: list[object] = []
    text, number = "", ""
    for sign in name:
        if sign.isascii() and sign.isdigit():
            number += sign
        else:
            if number:
                parts += [text, int(number[:18])]
                text, number = "", ""
            text += sign
    return (*parts, text, int(number[:18] or 0))


def matches(machine: Machine, words: str) -> bool:
    """Whether all words of the filter occur in the machine's name, model, causes or state."""
    running_text = " ".join(f"{e.kind} {e.cause}" for e in machine.running)
    flags = (not machine.answers, bool(machine.suspects), bool(running_text))
    state = " ".join(word for word, is_so in zip(_WORDS, flags, strict=True) if is_so)
    text = f"{machine.name} {machine.model} {running_text} {state}".lower()
    return all(word in text for word in words.lower().split())


def racks(machines: Sequence[Machine]) -> dict[str, list[Machine]]:
    """The machines, grouped by the part of the name before the last number, in natural order; if no
    name has such a part, all machines form one group."""
    groups: dict[str, list[Machine]] = {}
    for machine in sorted(machines, key=lambda m: natural(m.name)):
        stem = machine.name.partition("@")[2] or machine.name
        stem = stem.partition(".")[0].rstrip("0123456789")
        inner = stem.rstrip("abcdefghijklmnopqrstuvwxyz-_")  # k07n of k07n12: rack 7, node 12
        rack = inner if inner[-1:].isdigit() else stem.rstrip("-_")
        groups.setdefault(rack or machine.name, []).append(machine)
    return groups
