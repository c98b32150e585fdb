"""A fleet of machines, with its order, totals and episodes, and a fleet read from a Prometheus
server that scrapes the exporter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, nan

import numpy as np

from perftop.model.kinds import severity_rank
from perftop.session.fleet_machine import (
    PAST_S,
    UNKNOWN_NUMBERS,
    Machine,
    MachineEpisode,
    Numbers,
    lost_share,
    mean_numbers,
)

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
        by_cause: dict[tuple[str, str], list[MachineEpisode]] = {}
        for machine in self.machines.values():
            for episode in machine.running:
                if episode.kind not in UNLISTED_KINDS:
                    by_cause.setdefault(episode.group, []).append(episode)
        shared_episodes = [e for group in by_cause.values() for e in self._shared_episodes(group)]
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
        ended_episodes: dict[tuple[str, str], list[MachineEpisode]] = {}
        for machine in self.machines.values():
            for episode in machine.ended:
                if episode.kind not in UNLISTED_KINDS:
                    ended_episodes.setdefault(episode.group, []).append(episode)
        shared_episodes = self.running()
        for episodes in ended_episodes.values():
            episodes.sort(key=lambda episode: episode.start)
            simultaneous: list[MachineEpisode] = []
            for episode in episodes:
                if simultaneous and episode.start - simultaneous[0].start > MAX_START_DISTANCE_S:
                    shared_episodes += self._shared_episodes(simultaneous)
                    simultaneous = []
                simultaneous.append(episode)
            shared_episodes += self._shared_episodes(simultaneous)
        shared_episodes.sort(key=lambda h: -h.start)
        return shared_episodes[:max_episodes]


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


# --- A fleet from a Prometheus server that scrapes the exporter: the queries, and the machines,
# histories and episodes in the answers.

NUMBER_LABEL, INSTANCE = "perftop_number", "instance"
"""Labels of a series in an answer: the name of the number, and the machine."""
MAX_MACHINES = 10_000
MAX_POINTS = 100_000
"""Maximum number of points in the histories of all machines together."""
EPISODES_SPAN_S, EPISODE_STEPS = 1800.0, 120
"""Time in s for which episodes are queried, and its number of steps."""
MIN_RUNNING_SHARE = 0.05
"""Minimum share of a window for which a listed episode must run."""
LOOKBACK = "1h"
"""Time, in PromQL, for which a machine is listed as silent after the server stops scraping it."""
_SHARES = {"busy": "busy", "involuntary": "involuntary_halt", "steal": "steal"}
_HISTORY_KEYS = ("busy", "involuntary", "steal", "clock_hz", "ceiling_hz", "below")

Answers = Iterable[tuple[dict[str, str], Sequence[tuple[float, float]]]]
"""Series of a Prometheus answer, each with its labels and points (time in s, value)."""


class FleetQueries:
    """PromQL queries. Each query is for all machines at once, so that answers are small and all
    values in an answer are from the same moment."""

    def __init__(self, match: str, window_s: float) -> None:
        """`match`: label matchers, with or without braces. `window_s`: time in s for rates."""
        self._match = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
        self._window = f"{max(1, round(window_s))}s"

    def numbers(self) -> str:
        queries = self._numbers() | {
            "power_w": self._sum_query("energy_joules_total"),
            "power_limit_w": f"sum by ({INSTANCE}) ({self._selector('power_limit_watts')})",
            "suspects": f"sum by ({INSTANCE}) (increase({self._selector('suspect_samples_total')}"
            f"[{self._window}]))",
            "age": f"time() - max by ({INSTANCE}) (timestamp({self._selector('series')}))",
            "known": f"max by ({INSTANCE})"
            f" (last_over_time({self._selector('series')}[{LOOKBACK}]))",
        }
        smt = self._rate_query("smt_seconds_total")
        per_machine = f"on ({INSTANCE}) group_left sum by ({INSTANCE}) ({smt})"
        states = f"sum by ({INSTANCE}, state) ({smt}) / {per_machine}"
        named_states = f'label_replace({states}, "{NUMBER_LABEL}", "$1", "state", "(.*)")'
        return f"{_join_queries(queries)} or {named_states}"

    def history(self) -> str:
        numbers = self._numbers()
        return _join_queries({key: numbers[key] for key in _HISTORY_KEYS})

    def episodes(self) -> str:
        """Returns the query for the share of the window in which each kind and cause ran."""
        rate = self._rate_query("episode_seconds_total")
        return f"max by ({INSTANCE}, kind, cause) ({rate}) > {MIN_RUNNING_SHARE}"

    def _numbers(self) -> dict[str, str]:
        cpu_seconds = self._sum_query("cpu_seconds_total")
        queries = {
            key: self._sum_query("cpu_seconds_total", f'mode="{mode}"') + f" / {cpu_seconds}"
            for key, mode in _SHARES.items()
        }
        cycles = self._sum_query("cycles_total", 'ring="all"')
        tsc_hz = f"max by ({INSTANCE}) ({self._selector('tsc_hertz')})"
        queries["clock_hz"] = f"{cycles} / {self._sum_query('reference_cycles_total')} * {tsc_hz}"
        queries["ceiling_hz"] = f"avg by ({INSTANCE}) ({self._selector('ceiling_hertz')})"
        rate = self._rate_query("below_ceiling_seconds_total")
        below_ceiling = f"sum by ({INSTANCE}, package) ({rate})"
        queries["below"] = f"clamp_max(max by ({INSTANCE}) ({below_ceiling}), 1)"
        return queries

    def _selector(self, family: str, *matchers: str) -> str:
        return f"perftop_{family}{{{','.join(part for part in (self._match, *matchers) if part)}}}"

    def _rate_query(self, family: str, *matchers: str) -> str:
        return f"rate({self._selector(family, *matchers)}[{self._window}])"

    def _sum_query(self, family: str, *matchers: str) -> str:
        return f"sum by ({INSTANCE}) ({self._rate_query(family, *matchers)})"


def _join_queries(queries: dict[str, str]) -> str:
    """Joins expressions into one query. In the answer, a label names the number of each series."""
    return " or ".join(
        f'label_replace({query}, "{NUMBER_LABEL}", "{key}", "", "")'
        for key, query in queries.items()
    )


def scraped_fleet(answers: Answers, now: float, previous_machines: Mapping[str, Machine]) -> Fleet:
    """Returns the fleet in the answers to `FleetQueries.numbers`. `now`: Unix time of the viewer,
    or of a past moment. `previous_machines`: the machines in the previous answers. Machines that
    the server no longer scrapes have been silent since their last numbers."""
    numbers_by_machine: dict[str, dict[str, float]] = {}
    for labels, points in answers:
        if points and (name := labels.get(INSTANCE, "")):
            numbers_by_machine.setdefault(name, {})[labels.get(NUMBER_LABEL, "")] = points[-1][1]
    machines = []
    for name, answer in list(numbers_by_machine.items())[:MAX_MACHINES]:
        machine = Machine(name, ("live", "--host", _host_name(name)))
        machines.append(machine)
        if "age" in answer:
            numbers = {key: answer.get(key, nan) for key in UNKNOWN_NUMBERS}
            numbers["lost"] = lost_share(numbers)
            machine.set_numbers(now - answer["age"], numbers, round(answer.get("suspects", 0.0)))
        else:
            previous = previous_machines.get(name)
            machine.silent_since = now if previous is None else previous.silent_since
            machine.fall_silent(now, "target down, or not scraped")
    return Fleet(machines)


def _host_name(instance: str) -> str:
    """Returns the host name in an `instance` label, without the port."""
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def fill_histories(fleet: Fleet, answers: Answers, offset_s: float) -> None:
    """Adds the answers to `FleetQueries.history` to the machines' histories. `offset_s`: the
    viewer's time minus the server's."""
    numbers_by_time: dict[str, dict[float, dict[str, float]]] = {}
    for labels, points in answers:
        name, key = labels.get(INSTANCE, ""), labels.get(NUMBER_LABEL, "")
        if name in fleet.machines and key in UNKNOWN_NUMBERS:
            for time, value in points:
                numbers_by_time.setdefault(name, {}).setdefault(time, {})[key] = value
    for name, times in numbers_by_time.items():
        history = fleet.machines[name].history
        for time in sorted(times):
            numbers = dict(UNKNOWN_NUMBERS) | times[time]
            history.add(time + offset_s, lost_share(numbers))


def fill_episodes(fleet: Fleet, answers: Answers, end: float, step: float, offset_s: float) -> None:
    """Adds the episodes in the answers to `FleetQueries.episodes` to the fleet. `end`: the server's
    time of the newest step, in which episodes are still running. `step`: seconds between points.
    `offset_s`: the viewer's time minus the server's."""
    for labels, points in answers:
        machine = fleet.machines.get(labels.get(INSTANCE, ""))
        if machine is None:
            continue
        times = np.array([time for time, _ in points])
        gaps = np.flatnonzero(np.diff(times) > 1.5 * step) + 1
        for run in np.split(times, gaps) if points else ():
            first, last = float(run[0]), float(run[-1])
            is_running = last >= end - step / 2 and machine.is_answering
            kind, cause = labels.get("kind", ""), labels.get("cause", "unknown")
            episode = MachineEpisode(machine.name, kind, cause, first + offset_s, None, share=1.0)
            if not is_running:
                episode.end = min(last + step, end) + offset_s
            (machine.running if is_running else machine.ended).append(episode)


def history_step_s(machines: int, update_s: float) -> float:
    """Returns the seconds between two points of a queried history, at least `update_s`. With more
    machines, each has fewer points."""
    points = max(10, MAX_POINTS // max(1, machines * len(_HISTORY_KEYS)))
    return max(update_s, PAST_S / points, 1.0)


def newest_time(answers: Answers) -> float:
    """Returns the newest time in an answer, by the server's clock; NaN if the answer is empty."""
    return max((points[-1][0] for _, points in answers if points), default=nan)
