"""A fleet read from a Prometheus server that scrapes the exporter: the queries, and the machines,
histories and episodes in the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan

from perftop.session.fleet.fleet import Fleet
from perftop.session.fleet.machine import (
    PAST_S,
    UNKNOWN_NUMBERS,
    Machine,
    MachineEpisode,
    lost_share,
)

NUMBER, BY = "perftop_number", "instance"
"""The label that names a number in an answer, and the label that names a machine."""
MAX_MACHINES = 10_000
MAX_POINTS = 100_000
"""Maximum number of points in the histories of all machines together; the more machines, the fewer
points each has."""
EPISODES_S, EPISODE_STEPS = 1800.0, 120
"""Span in s for which episodes are queried, and the number of steps in it."""
MIN_SHARE = 0.05
"""Minimum share of a window for an episode to count as running in it."""
LOOKBACK = "1h"
"""Time for which a machine is listed as silent after it is no longer scraped, in PromQL."""
_SHARES = {"busy": "busy", "involuntary": "involuntary_halt", "steal": "steal"}
_HISTORY_KEYS = ("busy", "involuntary", "steal", "clock_hz", "ceiling_hz", "below")
"""Numbers of which a history is queried."""

Answers = Iterable[tuple[dict[str, str], Sequence[tuple[float, float]]]]


class Questions:
    """PromQL queries, each for all machines at once, so that an answer is small and all its values
    are of one moment."""

    def __init__(self, match: str, window_s: float) -> None:
        """`match`: label matchers, with or without braces."""
        self._match = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
        self._window = f"{max(1, round(window_s))}s"

    def now(self) -> str:
        """The query for all numbers of all machines."""
        queries = self._numbers() | {
            "power_w": self._sum("energy_joules_total"),
            "power_limit_w": f"sum by ({BY}) ({self._selector('power_limit_watts')})",
            "suspects": f"sum by ({BY}) (increase({self._selector('suspect_samples_total')}"
            f"[{self._window}]))",
            "age": f"time() - max by ({BY}) (timestamp({self._selector('series')}))",
            "known": f"max by ({BY}) (last_over_time({self._selector('series')}[{LOOKBACK}]))",
        }
        smt = self._rate("smt_seconds_total")
        states = f"sum by ({BY}, state) ({smt}) / on ({BY}) group_left sum by ({BY}) ({smt})"
        named = f'label_replace({states}, "{NUMBER}", "$1", "state", "(.*)")'
        return f"{_join_queries(queries)} or {named}"

    def past(self) -> str:
        """The query for the numbers of which a history is kept."""
        numbers = self._numbers()
        return _join_queries({key: numbers[key] for key in _HISTORY_KEYS})

    def episodes(self) -> str:
        """The query for the share of the window in which episodes of each kind and cause were
        running."""
        rate = self._rate("episode_seconds_total")
        return f"max by ({BY}, kind, cause) ({rate}) > {MIN_SHARE}"

    def _numbers(self) -> dict[str, str]:
        cpu_seconds = self._sum("cpu_seconds_total")
        queries = {
            key: self._sum("cpu_seconds_total", f'mode="{mode}"') + f" / {cpu_seconds}"
            for key, mode in _SHARES.items()
        }
        cycles = self._sum("cycles_total", 'ring="all"')
        queries["clock_hz"] = (
            f"{cycles} / {self._sum('reference_cycles_total')}"
            f" * max by ({BY}) ({self._selector('tsc_hertz')})"
        )
        queries["ceiling_hz"] = f"avg by ({BY}) ({self._selector('ceiling_hertz')})"
        below_ceiling = f"sum by ({BY}, package) ({self._rate('below_ceiling_seconds_total')})"
        queries["below"] = f"clamp_max(max by ({BY}) ({below_ceiling}), 1)"
        return queries

    def _selector(self, family: str, *more: str) -> str:
        return f"perftop_{family}{{{','.join(part for part in (self._match, *more) if part)}}}"

    def _rate(self, family: str, *more: str) -> str:
        return f"rate({self._selector(family, *more)}[{self._window}])"

    def _sum(self, family: str, *more: str) -> str:
        return f"sum by ({BY}) ({self._rate(family, *more)})"


def _join_queries(queries: dict[str, str]) -> str:
    """Joins several expressions into one; a label of each series names its number."""
    return " or ".join(
        f'label_replace({query}, "{NUMBER}", "{key}", "", "")' for key, query in queries.items()
    )


def scraped_fleet(answers: Answers, now: float, previous_machines: Mapping[str, Machine]) -> Fleet:
    """The fleet in the answers to `Questions.now`. `now`: the viewer's time, or a past moment.
    Machines that the server no longer scrapes are silent, since the time in
    `previous_machines`."""
    by_machine: dict[str, dict[str, float]] = {}
    for labels, points in answers:
        if points and (name := labels.get(BY, "")):
            by_machine.setdefault(name, {})[labels.get(NUMBER, "")] = points[-1][1]
    machines = []
    for name, answer in list(by_machine.items())[:MAX_MACHINES]:
        machine = Machine(name, ("live", "--host", _host(name)))
        machines.append(machine)
        if "age" in answer:
            numbers = dict(UNKNOWN_NUMBERS) | {
                key: v for key, v in answer.items() if key in UNKNOWN_NUMBERS
            }
            numbers["lost"] = lost_share(numbers)
            machine.show(now - answer["age"], numbers, round(answer.get("suspects", 0.0)))
        else:
            machine.silent_since = (
                previous_machines[name].silent_since if name in previous_machines else now
            )
            machine.fall_silent(now, "target down, or not scraped")
    return Fleet(machines)


def _host(instance: str) -> str:
    """The host name in an `instance` label, without the port of the exporter."""
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def fill_past(fleet: Fleet, answers: Answers, shift_s: float) -> None:
    """Add the answers to `Questions.past` to the machines' histories. `shift_s`: difference between
    the viewer's time and the server's."""
    by_time: dict[str, dict[float, dict[str, float]]] = {}
    for labels, points in answers:
        name, key = labels.get(BY, ""), labels.get(NUMBER, "")
        if name in fleet.machines and key in UNKNOWN_NUMBERS:
            for time, value in points:
                by_time.setdefault(name, {}).setdefault(time, {})[key] = value
    for name, times in by_time.items():
        past = fleet.machines[name].past
        for time in sorted(times):
            numbers = dict(UNKNOWN_NUMBERS) | times[time]
            past.add(time + shift_s, numbers | {"lost": lost_share(numbers)})


def fill_episodes(fleet: Fleet, answers: Answers, end: float, step: float, shift_s: float) -> None:
    """Add the episodes in the answers to `Questions.episodes` to the fleet. `end`: the server's
    time of the newest step; an episode in that step is running."""
    for labels, points in answers:
        machine = fleet.machines.get(labels.get(BY, ""))
        if machine is None:
            continue
        for first, last in _runs([time for time, _ in points], step):
            is_running = last >= end - step / 2 and machine.answers
            episode = MachineEpisode(
                machine.name, labels.get("kind", ""), labels.get("cause", "unknown"),
                first + shift_s, None if is_running else min(last + step, end) + shift_s, share=1.0,
            )  # fmt: skip
            (machine.running if is_running else machine.ended).append(episode)


def _runs(times: Sequence[float], step: float) -> list[tuple[float, float]]:
    """First and last time of each run of consecutive steps."""
    runs: list[tuple[float, float]] = []
    for time in times:
        if runs and time - runs[-1][1] <= 1.5 * step:
            runs[-1] = (runs[-1][0], time)
        else:
            runs.append((time, time))
    return runs


def past_step(machines: int, every_s: float) -> float:
    """Seconds between two points of the history, for a number of machines."""
    points = max(10, MAX_POINTS // max(1, machines * len(_HISTORY_KEYS)))
    return max(every_s, PAST_S / points, 1.0)


def newest_time(answers: Answers) -> float:
    """The newest time in an answer, by the server's clock; NaN if the answer is empty."""
    return max((points[-1][0] for _, points in answers if points), default=nan)
