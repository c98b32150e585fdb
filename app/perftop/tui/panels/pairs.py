"""Who takes from whom: a pair for each CPU that loses to a neighbour. All text that comes from
outside is made safe to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from typing import Any

from perfprobe.frozen import frozen
from perftop.base.format import length
from perftop.detect.losses import NEIGHBOUR
from perftop.draw.strips import foreign
from perftop.model.episode import CrowdedCpu, Episode, Host, TaskOnCpu
from perftop.model.tasks import WatchedJob
from perftop.output.sentences import evidence_json, evidence_piece
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared import episode_style


@frozen
class Side:
    """One of a pair: a task on a CPU."""

    name: str
    """Name and number of the task; '' if nobody told."""
    cpu: int | None = None
    """None: it is on no CPU of its own, as the hypervisor."""


@frozen
class Pair:
    sign: str
    taker: Side
    loser: Side
    """The task on the CPU that loses."""
    cpu: int
    """The CPU that loses; of a loss that is over, the first of them."""
    lost: float
    """Share lost, 0 to 1; NaN if unknown."""
    ipc: float
    """IPC of that CPU, and what it is without the other; NaN if unknown or of another cause."""
    alone: float
    since_ns: int
    cause: str
    why: str
    """Evidence without names and IPC."""
    inferred: bool
    lasted: str = ""
    """How long the loss lasted; '' if it has not ended."""


class Pairs:
    """Those of one moment. `watching`: the watched job at that moment."""

    def __init__(self, session: Session, interval: Interval, watched_job: WatchedJob) -> None:
        self._session, self._interval, self._watching = session, interval, watched_job
        self._sibling = {cpu: core for core in session.cores for cpu in core}

    def running(self, shown: frozenset[int]) -> list[Pair]:
        """Pairs on these positions of CPUs, the greatest loss first; of equal ones the oldest."""
        position = self._session.position
        found = [
            self._pair(episode, cpu)
            for episode in self.episodes()
            for cpu in episode.cpus
            if position.get(cpu) in shown
        ]
        return sorted(found, key=lambda one: (-round(one.lost, 3), one.since_ns, one.cpu))

    def over(self, shown: frozenset[int]) -> Iterator[Pair]:
        """Losses that had ended by then, one for each episode, the newest first."""
        for episode in sorted(self.episodes(ended=True), key=lambda e: -e.start_ns):
            cpus = [cpu for cpu in episode.cpus if self._session.position.get(cpu) in shown]
            if cpus:
                yield self._past(episode, cpus)

    def episodes(self, *, ended: bool = False) -> Iterator[Episode]:
        """Neighbour episodes that ran at that moment, or that had ended by then."""
        now_ns = self._interval.time_ns
        for episode in (*self._session.running, *self._session.ended):
            over = episode.end_ns is not None and episode.end_ns <= now_ns
            if episode.kind == NEIGHBOUR and episode.start_ns <= now_ns and over is ended:
                yield episode

    def _pair(self, episode: Episode, cpu: int) -> Pair:
        session, interval = self._session, self._interval
        share = session.neighbours.share(episode, cpu) if interval.seq else None
        lost = (nan if episode.depth is None else episode.depth) if share is None else share
        ipc = alone = nan
        if episode.cause == "sibling":
            row = session.position[cpu]
            ipc, alone = float(interval.values["ipc"][row]), ipc_alone(session, interval, row)
            alone = _number(episode.evidence.get("ipc_alone")) if isnan(alone) else alone
        elif episode.cause == "memory":
            ipc = float(interval.values["ipc"][session.position[cpu]])
            alone = _number(episode.evidence.get("ipc_alone"))
        return Pair(
            episode_style.sign(episode), self._taker(episode, cpu), Side(self._runs(cpu), cpu),
            cpu, lost, ipc, alone, episode.start_ns, episode.cause, _rest(episode.evidence),
            episode.confidence != "measured",
        )  # fmt: skip

    def _past(self, episode: Episode, cpus: Sequence[int]) -> Pair:
        evidence, end_ns = episode.evidence, episode.end_ns or 0
        more = f" (+{len(cpus) - 1})" if len(cpus) > 1 else ""
        return Pair(
            episode_style.sign(episode), _named(evidence, cpus[0]), Side(f"CPU {cpus[0]}{more}"),
            cpus[0], nan if episode.depth is None else episode.depth,
            _number(evidence.get("ipc")), _number(evidence.get("ipc_alone")), episode.start_ns,
            episode.cause, _rest(evidence), episode.confidence != "measured",
            length(end_ns - episode.start_ns),
        )  # fmt: skip

    def _taker(self, episode: Episode, cpu: int) -> Side:
        if episode.cause == "sibling":
            others = [other for other in self._sibling.get(cpu, []) if other != cpu]
            for other in others:
                if name := self._task(other):
                    return Side(name, other)
        return _named(episode.evidence, cpu)

    def _runs(self, cpu: int) -> str:
        """The watched job's threads on this CPU; without any, the interval's task there."""
        mine = [thread for thread in self._watching.threads.values() if thread.cpu == cpu]
        if len(mine) > 1:
            return f"{len(mine)} threads"
        return foreign(f"{mine[0].comm} {mine[0].tid}") if mine else self._task(cpu)

    def _task(self, cpu: int) -> str:
        ran = self._interval.look.on(str(cpu))
        return foreign(f"{ran[0].task.comm} {ran[0].task.pid}") if ran else ""


def ipc_alone(session: Session, interval: Interval, row: int) -> float:
    """IPC of the CPU at this position without its sibling; NaN if unknown, as it is of the past."""
    return session.neighbours.siblings.alone(row) if interval.seq else nan


def _named(evidence: Mapping[str, Any], cpu: int) -> Side:
    """Who takes, as the evidence names it: the one on this CPU, else the first."""
    who, own = evidence.get("who"), evidence.get("self")
    if isinstance(who, Host):
        return Side("hypervisor")
    found = [one for one in who or own or () if isinstance(one, TaskOnCpu | CrowdedCpu)]
    mine = [one for one in found if one.cpu == cpu] or found
    if not mine:
        return Side("")
    more = f" (+{len(mine) - 1})" if len(mine) > 1 else ""
    first = mine[0]
    if isinstance(first, CrowdedCpu):
        return Side(f"itself: {first.threads} threads", first.cpu)
    return Side(foreign(f"{first.comm} {first.pid}{more}"), first.cpu)


def _rest(evidence: Mapping[str, Any]) -> str:
    """Evidence without names and IPC, which have columns of their own."""
    plain = {"who", "self", "ipc", "ipc_alone"}
    rest = {key: value for key, value in evidence.items() if key not in plain}
    return foreign(
        " · ".join(evidence_piece(key, value) for key, value in evidence_json(rest).items())
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else nan
