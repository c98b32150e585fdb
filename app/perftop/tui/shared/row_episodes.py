"""Episodes by row: the marker of a row, the numbers that episodes make worse there, and the loss.

Lists by CPU are made again only when an episode begins, grows or ends. So the cost of a refresh
depends on the number of visible rows, not on the number of CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from perftop.base.arrays import Bools
from perftop.base.text import rough
from perftop.model.kinds import KINDS, Episode, Host, kind_of
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared import episode_style
from perftop.tui.shared.sheet import MIN_AWAKE_UTIL

OF_CPU = frozenset({"neighbour", *(key for key, kind in KINDS.items() if kind.of_cpu)})
"""Kinds of episodes that affect single CPUs; the other kinds can affect a whole package."""
MIN_LOST_HZ = 5e6
"""Minimum loss of clock that counts as a loss, in Hz; the SIMD level of a CPU may cost nothing."""


def lowered_number(episode: Episode) -> str:
    """Returns the key of the number that the episode makes worse; '' if there is none."""
    kind = kind_of(episode)
    if kind.depth == "hz" and (episode.depth or 0.0) < MIN_LOST_HZ:
        return ""
    return kind.lowers


def loser(cpus: Sequence[int], episodes: Iterable[Episode], key: str) -> int | None:
    """Returns the index of the first of these CPUs whose number `key` is made worse by these
    episodes; None if there is no such CPU."""
    hit = {cpu for episode in episodes if lowered_number(episode) == key for cpu in episode.cpus}
    return next((i for i, cpu in enumerate(cpus) if cpu in hit), None)


@dataclass(frozen=True, slots=True)
class RowEpisode:
    """The episodes that run on the CPUs of a row."""

    episode: Episode
    """The worst episode; if several CPUs tie, the episode on the first of them."""
    row: int
    """Position of the first of the row's CPUs on which that episode runs."""
    victim: bool
    """Whether the episode affects these CPUs themselves, rather than their whole package."""
    lost: frozenset[tuple[int, str]]
    """Pairs of the position of a CPU and the key of a number that an episode makes worse there."""
    shared: frozenset[str]
    """Keys of the numbers that an episode makes worse in the whole package; the line of the package
    shows them."""

    @property
    def sign(self) -> str:
        return episode_style.sign(self.episode)

    @property
    def key(self) -> str:
        """The style of the marker. An alarm that affects the whole package is plain here, because
        the line of the package is red."""
        severity = episode_style.severity(self.episode)
        return "text" if severity == "alarm" and not self.victim else severity


class RowEpisodes:
    """The episodes of one session in one interval, by CPU."""

    def __init__(self, session: Session) -> None:
        self._session = session
        packages = [row.package for row in session.topology]
        self._packages = list(dict.fromkeys(packages))
        self._package = np.array([self._packages.index(package) for package in packages], np.intp)
        self._episode_ids: tuple[tuple[int, int], ...] | None = None
        self._by_row: dict[int, list[Episode]] = {}
        self._masks: dict[str, Bools] = {}
        """By kind that can affect a whole package: the CPUs on which an episode of it runs."""
        self._by_package: list[list[Episode]] = []
        """By package: the harmful episodes on its CPUs, the worst first."""
        self._package_wide: dict[str, list[bool]] = {}
        """By kind and package: whether at least half of the busy CPUs of the package are
        affected."""
        self._interval: Interval

    def read(self, interval: Interval) -> None:
        """Reads the episodes of this interval, and finds those that affect whole packages."""
        self._interval = interval
        episodes = sorted(
            episode_style.episodes_during(self._session, interval), key=episode_style.rank
        )
        ids = tuple((id(episode), len(episode.cpus)) for episode in episodes)
        if ids != self._episode_ids:
            self._episode_ids = ids
            self._assign(episodes)
        if not self._masks:
            return
        is_awake, count = interval.values["util"] >= MIN_AWAKE_UTIL, len(self._packages)
        awake_counts = np.bincount(self._package[is_awake], minlength=count)
        for kind, mask in self._masks.items():
            hit = np.bincount(self._package[is_awake & mask], minlength=count)
            self._package_wide[kind] = ((hit > 1) & (2 * hit >= awake_counts)).tolist()

    def _assign(self, episodes: Sequence[Episode]) -> None:
        """Fills the lists by CPU and by package."""
        position, n = self._session.position, len(self._package)
        self._by_row, self._masks, self._package_wide = {}, {}, {}
        self._by_package = [[] for _ in self._packages]
        for episode in episodes:
            rows = [position[cpu] for cpu in episode.cpus if cpu in position]
            for row in rows:
                self._by_row.setdefault(row, []).append(episode)
            if episode_style.is_loss(episode):
                for package in set(self._package[rows].tolist()):
                    self._by_package[package].append(episode)
                if episode.kind not in OF_CPU:
                    self._masks.setdefault(episode.kind, np.zeros(n, bool))[rows] = True

    @property
    def ipc_alone(self) -> float:
        """The highest IPC that an affected CPU had without its neighbour; 0 if unknown."""
        shares = (
            e.evidence.get("ipc_alone", 0.0) for episodes in self._by_package for e in episodes
        )
        return max(shares, default=0.0)

    def __bool__(self) -> bool:
        return bool(self._by_row)

    def on_rows(self, rows: Iterable[int]) -> RowEpisode | None:
        """Returns the episodes on the CPUs at these positions; None if no episode runs there."""
        row_pairs = [(episode, row) for row in rows for episode in self._by_row.get(row, ())]
        if not row_pairs:
            return None
        losing_pairs = [
            (e, row)
            for e, row in row_pairs
            if episode_style.is_loss(e) and not self.is_package_wide(e, row)
        ]
        episode, row = min(losing_pairs or row_pairs, key=lambda pair: episode_style.rank(pair[0]))
        lowered = frozenset((row, key) for e, row in losing_pairs if (key := lowered_number(e)))
        package_wide = frozenset(
            lowered_number(e) for e, row in row_pairs if self.is_package_wide(e, row)
        )
        return RowEpisode(episode, row, bool(losing_pairs), lowered, package_wide)

    def is_package_wide(self, episode: Episode, row: int) -> bool:
        """Returns whether the episode affects the whole package of the CPU at this position."""
        packages = self._package_wide.get(episode.kind)
        return packages is not None and packages[self._package[row]]

    def on_package(self, package: int | None) -> tuple[list[Episode], list[Episode]]:
        """Returns the harmful episodes on the CPUs of a package, the worst first; and the subset of
        these that affects the whole package."""
        if not self._by_row:
            return [], []
        index = self._packages.index(package)
        episodes = self._by_package[index]
        return episodes, [
            e for e in episodes if (flags := self._package_wide.get(e.kind)) and flags[index]
        ]

    def count(self, rows: Iterable[Sequence[int]]) -> dict[str, int]:
        """Returns how many cores, given by the positions of their CPUs, are affected, by the cause
        (of neighbour episodes) or kind of their worst episode. Cores that are only affected by
        episodes of their whole package are not counted."""
        troubles = (self.on_rows(positions) for positions in rows) if self._by_row else ()
        victims = (
            row_episode.episode
            for row_episode in troubles
            if row_episode is not None and row_episode.victim
        )
        return Counter(e.cause if e.kind == "neighbour" else e.kind for e in victims)

    def share(self, trouble: RowEpisode) -> float:
        """Returns the share that the CPU has lost; NaN if unknown."""
        episode, session = trouble.episode, self._session
        if not lowered_number(episode) or episode.depth is None:
            return nan
        if episode.kind == "neighbour" and self._interval.seq:
            share = session.neighbours.share(episode, session.topology[trouble.row].cpu)
            return episode.depth if share is None else share
        if kind_of(episode).depth == "hz":
            core = session.reader.cores.of_cpu[trouble.row]
            ceiling_hz = float(self._interval.ceiling_hz[core]) if core >= 0 else nan
            return episode.depth / ceiling_hz if isfinite(ceiling_hz) else nan
        return episode.depth

    def lost(self, trouble: RowEpisode) -> str:
        """Returns the lost share as text; '' if unknown."""
        share = self.share(trouble) if trouble.victim else nan
        return f"−{rough(share)}" if isfinite(share) else ""

    def taker(self, trouble: RowEpisode, tasks: dict[int, str]) -> str:
        """Returns the name of the task or hypervisor that takes CPU time or IPC in a steal or
        neighbour episode; '' for other kinds. `tasks`: names of the tasks on the CPUs of the core,
        by position of the CPU."""
        episode = trouble.episode
        if episode.kind == "steal":
            return "hypervisor"
        if episode.kind != "neighbour":
            return ""
        if episode.cause == "sibling":
            return " ".join(name for row, name in tasks.items() if row != trouble.row and name)
        who_tasks = episode.evidence.get("who")
        if isinstance(who_tasks, Host):
            return "hypervisor"
        cpu = self._session.topology[trouble.row].cpu
        takers = [task for task in who_tasks or () if getattr(task, "cpu", None) == cpu] or list(
            who_tasks or ()
        )
        return " ".join(f"{task.comm} {task.pid}" for task in takers[:1] if hasattr(task, "comm"))
