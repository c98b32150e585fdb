"""The units of a small machine, each with a chart: cores where clocks are counted, else CPUs. And
what is told of a unit in one interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.format import ClockUnit
from perftop.draw import theme
from perftop.draw.strips import Run, foreign
from perftop.samples.episode import Episode
from perftop.samples.smt import STATES
from perftop.session import columns
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import Numbers
from perftop.tui.panels.who import runners
from perftop.tui.shared import episode_style
from perftop.tui.shared.places import Places
from perftop.tui.shared.sheet import AWAKE, Sheet, busiest
from perftop.tui.shared.trouble import OF_CPU, loser, number

_NAMES = {"busy_hz": "clock", "ipc": "IPC", "steal": "steal"}
"""Numbers that have charts."""
_KEYS = {"busy": "util", "user": "user", "kernel": "system", "steal": "steal"}


def lost(episode: Episode) -> str:
    """Name of the number that the episode makes worse; '' if no chart shows it."""
    return _NAMES.get(number(episode), "")


@frozen
class Unit:
    """What has one chart."""

    at: int
    """Index of its place."""
    rows: tuple[int, ...]
    """Positions of its CPUs."""
    cpus: tuple[int, ...]
    package: int | None
    type: str | None

    @property
    def pair(self) -> bool:
        return len(self.rows) > 1


def units(places: Places, order: Sequence[int], *, counted: bool) -> list[Unit]:
    """A unit for each core, or for each CPU if nothing is counted, in the order of the places."""
    found = []
    for at in order:
        place = places.places[at]
        if counted:
            found.append(Unit(at, place.rows, place.cpus, place.package, place.type))
            continue
        for row, cpu in zip(place.rows, place.cpus, strict=True):
            found.append(Unit(at, (row,), (cpu,), place.package, place.type))
    return found


class Moment:
    """One interval, and what runs in it, for the units of a machine."""

    def __init__(
        self, session: Session, interval: Interval, places: Places, sheet: Sheet,
        units: Sequence[Unit], clock: ClockUnit,
    ) -> None:  # fmt: skip
        self._session, self._interval, self._places = session, interval, places
        self._sheet, self._clock = sheet, clock
        self._going = sorted(episode_style.during(session, interval), key=episode_style.rank)
        self._wide = [e for e in self._going if self._is_wide(e, units)]
        self._tasks = self._by_cpu()
        self._steal = session.hello.virtualisation is not None
        self._busier = self._leads(units)
        """By the first CPU of a unit the one that had more to do, both as positions."""

    @staticmethod
    def _is_wide(episode: Episode, units: Sequence[Unit]) -> bool:
        """Whether the episode befalls most of a package and not single units: it is told once."""
        if episode.kind in OF_CPU:
            return False
        hit = [unit for unit in units if not {*unit.cpus}.isdisjoint(episode.cpus)]
        mine = {unit.package for unit in hit}
        return len(hit) > 1 and 2 * len(hit) >= sum(unit.package in mine for unit in units)

    def _by_cpu(self) -> dict[int, list[tuple[float, str]]]:
        found: dict[int, list[tuple[float, str]]] = {}
        for one in runners(self._session, self._interval):
            for cpu, share in one.shares.items():
                found.setdefault(cpu, []).append((share, foreign(f"{one.comm} {one.pid}")))
        return found

    def _leads(self, units: Sequence[Unit]) -> dict[int, int]:
        pairs = [unit.rows for unit in units if unit.pair]
        found = {unit.rows[0]: unit.rows[0] for unit in units}
        if pairs:
            rows, values = np.array(pairs), self._interval.values
            there = self._interval.online[rows]
            util, hz = (np.where(there, values[key][rows], nan) for key in ("util", "busy_hz"))
            leads = busiest(util, hz).tolist()
            found |= {pair[0]: pair[lead] for pair, lead in zip(pairs, leads, strict=True)}
        return found

    def going(self, unit: Unit) -> list[Episode]:
        """Episodes that run on the unit, the worst first."""
        return [e for e in self._going if not {*unit.cpus}.isdisjoint(e.cpus)]

    def package_sign(self, package: int | None, units: Sequence[Unit]) -> Run:
        """Sign of the worst episode that runs on most of a package."""
        cpus = {cpu for unit in units if unit.package == package for cpu in unit.cpus}
        mine = (e for e in self._wide if not cpus.isdisjoint(e.cpus))
        return next(((episode_style.sign(e), episode_style.severity(e)) for e in mine),
                    (" ", "text"))  # fmt: skip

    def numbers(self, unit: Unit, *, chosen: bool) -> Numbers:
        interval, row = self._interval, self._busier[unit.rows[0]]
        online = any(interval.online[row] for row in unit.rows)
        own = [e for e in self.going(unit) if e not in self._wide]
        worst = next((e for e in own if episode_style.wrong(e)), own[0] if own else None)
        names = frozenset(filter(None, map(lost, own)))
        shares = self._states(unit) if unit.pair else self._account(row)
        dropped = bool(self._sheet.dropped[unit.at]) or "clock" in map(lost, self.going(unit))
        lowers = next((e for e in own if lost(e) == "IPC"), None)
        lowered = loser(unit.cpus, own, "ipc")
        rated = row if lowered is None else unit.rows[lowered]
        hz, ipc = (
            nan if interval.resting[at] else float(interval.values[key][at])
            for key, at in (("busy_hz", row), ("ipc", rated))
        )
        tasks = sorted((it for cpu in unit.cpus for it in self._tasks.get(cpu, ())), reverse=True)
        return Numbers(
            self._name(unit), ",".join(map(str, unit.cpus)) if unit.pair else "",
            shares, names, self._unsure(unit, shares), _sign(worst),
            [name for _, name in tasks], hz,
            float(self._sheet.ceiling[unit.at]),
            (theme.DROPPED, "alarm") if dropped else (" ", "text"),
            ipc, _sign(lowers), online, self._off(unit),
            interval.values["util"][row] < AWAKE, chosen, self._clock,
        )  # fmt: skip

    def _off(self, unit: Unit) -> frozenset[str]:
        """Names of the threads of a pair that are offline."""
        online = self._interval.online
        gone = [f"lp{i}" for i, row in enumerate(unit.rows) if not online[row]]
        return frozenset(gone) if unit.pair else frozenset()

    def _name(self, unit: Unit) -> str:
        if not unit.pair:
            return f"CPU {unit.cpus[0]}"
        return f"core {self._places.name(unit.at, 'CPU number')}"

    def _states(self, unit: Unit) -> Mapping[str, float]:
        core = self._places.places[unit.at].at
        split = self._interval.split
        known = dict(zip(STATES, split.states[core].tolist(), strict=True))
        return {name: known[name] for name in ("both", "lp0", "lp1", "neither")}

    def _account(self, row: int) -> Mapping[str, float]:
        values, chosen = self._interval.values, self._session.evaluator.chosen
        names = [name for name, key in _KEYS.items() if chosen[key] or name == "busy"]
        if not self._steal and "steal" in names:
            names.remove("steal")
        found = {name: float(values[_KEYS[name]][row]) for name in names}
        steal = found.get("steal", 0.0)
        rest = max(0.0, 1 - found["busy"] - (0.0 if isnan(steal) else steal))
        found["idle"] = float(values["idle"][row]) if chosen["idle"] else rest
        return found

    def _unsure(self, unit: Unit, shares: Mapping[str, float]) -> frozenset[str]:
        if not np.count_nonzero(self._interval.doubts):  # mostly
            return frozenset()
        keys = {name: _KEYS.get(name, name) for name in shares if name != "idle"}
        return frozenset(
            name for name, key in keys.items()
            if columns.doubted(key, self._session, self._interval)[list(unit.rows)].any()
        )  # fmt: skip


def _sign(episode: Episode | None) -> Run:
    if episode is None:
        return " ", "text"
    return episode_style.sign(episode), episode_style.severity(episode)
