"""The units of a small machine, each with a chart: cores where clocks are counted, else CPUs. And
what is told of a unit in one interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan, nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.format import ClockUnit
from perftop.draw import theme
from perftop.draw.strips import Run, foreign
from perftop.model.episode import Episode
from perftop.model.numbers import INDEX
from perftop.model.smt import STATES
from perftop.session import values as columns
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import Numbers
from perftop.tui.panels.tasks import runners
from perftop.tui.shared import episode_style
from perftop.tui.shared.places import Places
from perftop.tui.shared.row_episodes import OF_CPU, loser, number
from perftop.tui.shared.sheet import AWAKE, DROP

_NAMES = {"busy_hz": "clock", "ipc": "IPC", "steal": "steal"}
"""Numbers that have charts."""
_KEYS = {"busy": "util", "user": "user", "kernel": "system", "steal": "steal"}
_READ = ("util", "busy_hz", "ipc", "user", "system", "steal", "idle")
"""Numbers of CPUs that are read."""
_AT = [INDEX[key] for key in _READ]


def lost(episode: Episode) -> str:
    """Name of the number that the episode makes worse; '' if no chart shows it."""
    return _NAMES.get(number(episode), "")


@frozen
class Unit:
    """What has one chart."""

    at: int
    """Index of its place."""
    core: int
    """Position of its core."""
    rows: tuple[int, ...]
    """Positions of its CPUs."""
    cpus: tuple[int, ...]
    package: int | None
    type: str | None
    ceiled: bool
    """Whether the ceiling of its clock can be known."""
    name: str

    @property
    def pair(self) -> bool:
        return len(self.rows) > 1


def units(
    session: Session, places: Places, order: Sequence[int], *, counted: bool
) -> list[Unit]:  # fmt: skip
    """A unit for each core, or for each CPU if nothing is counted, in the order of the places."""
    found, ceiled = [], session.reader.turbo.cpus
    for at in order:
        place = places.places[at]
        whole = [(place.rows, place.cpus)]
        each = [((row,), (cpu,)) for row, cpu in zip(place.rows, place.cpus, strict=True)]
        for rows, cpus in whole if counted else each:
            pair = len(rows) > 1
            name = f"core {places.name(at, 'CPU number')}" if pair else f"CPU {cpus[0]}"
            known = bool(ceiled[place.rows[0]])
            found.append(Unit(at, place.at, rows, cpus, place.package, place.type, known, name))
    return found


class Moment:
    """One interval, and what runs in it, for the units of a machine."""

    def __init__(
        self, session: Session, interval: Interval, units: Sequence[Unit], clock: ClockUnit
    ) -> None:
        self._session, self._interval, self._clock = session, interval, clock
        self._going = sorted(episode_style.during(session, interval), key=episode_style.rank)
        self._wide = [e for e in self._going if self._is_wide(e, units)]
        self._tasks = self._by_cpu()
        self._accounts = _accounts(session)
        self._doubted = bool(np.count_nonzero(interval.doubts))
        self._online = interval.online.tolist()
        rows = [row for unit in units for row in unit.rows]
        numbers = interval.values.all[_AT][:, rows].T.tolist()
        self._numbers = dict(zip(rows, numbers, strict=True))
        """By position of a CPU, those of _READ."""
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
        found = {}
        for unit in units:
            ranks = [busy_rank(*self._seen(row)) for row in unit.rows]
            found[unit.rows[0]] = unit.rows[ranks.index(max(ranks))]
        return found

    def _seen(self, row: int) -> Sequence[float]:
        """Utilisation and clock of a CPU; NaN while it is offline."""
        return self._numbers[row][:2] if self._online[row] else (nan, nan)

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
        going = self.going(unit)
        own = [e for e in going if e not in self._wide]
        worst = next((e for e in own if episode_style.wrong(e)), own[0] if own else None)
        shares = self._states(unit) if unit.pair else self._account(row)
        ceiling_hz = float(interval.ceiling_hz[unit.core]) if unit.ceiled else nan
        dropped = self._drops(unit, ceiling_hz) or "clock" in map(lost, going)
        lowers = next((e for e in own if lost(e) == "IPC"), None)
        lowered = None if lowers is None else loser(unit.cpus, own, "ipc")
        rated = row if lowered is None else unit.rows[lowered]
        util, hz, _ = self._running(row)
        *_, ipc = self._running(rated)
        tasks = sorted((it for cpu in unit.cpus for it in self._tasks.get(cpu, ())), reverse=True)
        return Numbers(
            unit.name, ",".join(map(str, unit.cpus)) if unit.pair else "",
            shares, frozenset(filter(None, map(lost, own))), self._unsure(unit, shares),
            _sign(worst), [name for _, name in tasks], hz, ceiling_hz,
            (theme.DROPPED, "alarm") if dropped else (" ", "text"),
            ipc, _sign(lowers), any(self._online[row] for row in unit.rows), self._off(unit),
            util < AWAKE, chosen, self._clock,
        )  # fmt: skip

    def _running(self, row: int) -> tuple[float, float, float]:
        """Utilisation of a CPU, and its clock and IPC unless it is at rest."""
        util, hz, ipc, *_ = self._numbers[row]
        return (util, nan, nan) if self._interval.resting[row] else (util, hz, ipc)

    def _drops(self, unit: Unit, ceiling_hz: float) -> bool:
        """Whether its clock is clearly below its ceiling, as `Sheet.dropped` has it."""
        seen = [self._seen(row) for row in unit.rows]
        _, hz = self._seen(self._busier[unit.rows[0]])
        return hz < ceiling_hz * (1 - DROP) and any(util >= AWAKE for util, _ in seen)

    def _off(self, unit: Unit) -> frozenset[str]:
        """Names of the threads of a pair that are offline."""
        gone = [f"lp{i}" for i, row in enumerate(unit.rows) if not self._online[row]]
        return frozenset(gone) if unit.pair else frozenset()

    def _states(self, unit: Unit) -> Mapping[str, float]:
        states = self._interval.split.states[unit.core].tolist()
        known = dict(zip(STATES, states, strict=True))
        return {name: known[name] for name in ("both", "lp0", "lp1", "neither")}

    def _account(self, row: int) -> Mapping[str, float]:
        known = dict(zip(_READ, self._numbers[row], strict=True))
        found = {name: known[key] for name, key in self._accounts.items()}
        steal = found.get("steal", 0.0)
        rest = max(0.0, 1 - found["busy"] - (0.0 if isnan(steal) else steal))
        found["idle"] = known["idle"] if self._session.evaluator.chosen["idle"] else rest
        return found

    def _unsure(self, unit: Unit, shares: Mapping[str, float]) -> frozenset[str]:
        if not self._doubted:  # mostly
            return frozenset()
        keys = {name: _KEYS.get(name, name) for name in shares if name != "idle"}
        return frozenset(
            name for name, key in keys.items()
            if columns.doubted(key, self._session, self._interval)[list(unit.rows)].any()
        )  # fmt: skip


def busy_rank(util: float, hz: float) -> float:
    """The highest is that of the busiest of some CPUs, as `sheet.busiest` has it of arrays."""
    return (-1.0 if isnan(util) else round(100 * util) / 100) + 0.001 * isfinite(hz)


def _accounts(session: Session) -> Mapping[str, str]:
    """Keys of what is told of a CPU's time, by name; a machine that is no guest has no steal."""
    chosen, steal = session.evaluator.chosen, session.hello.virtualisation is not None
    return {
        name: key for name, key in _KEYS.items()
        if name == "busy" or (chosen[key] and (steal or name != "steal"))
    }  # fmt: skip


def _sign(episode: Episode | None) -> Run:
    if episode is None:
        return " ", "text"
    return episode_style.sign(episode), episode_style.severity(episode)
