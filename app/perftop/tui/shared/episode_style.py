"""Episodes as all views show them: markers, styles, sentences and groups. Also the worst episode
and the loss of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite, nan

import numpy as np

from perftop.base.text import long_duration, time_of_day
from perftop.draw.columns import Run
from perftop.draw.strips import fit_runs, safe_cells
from perftop.model import kinds
from perftop.model.confidence import Hypervisor
from perftop.model.kinds import KINDS, STEAL_CAUSE, Episode, KindAndCause, kind_of
from perftop.output.sentences import (
    MAX_SENTENCE,
    SentencePart,
    group_key,
    sentence,
    total_cost,
    victims,
)
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.cores import Cores

_MAX_SENTENCES = 256
"""Maximum number of cached sentences of a session; no screen shows that many."""
_SentenceCache = dict[tuple[int, ...], tuple[list[Episode], list[SentencePart]]]
"""Sentences by maximum length and episode ids. Stored episodes keep their ids from being reused."""


def severity_key(episode: Episode) -> tuple[int, int]:
    """Returns a sort key: the worst kind first, then the oldest episode."""
    return kinds.severity_rank(episode.kind), episode.start_ns


def is_loss(episode: KindAndCause) -> bool:
    return kind_of(episode).is_wrong


def severity_style(episode: KindAndCause, *, has_ended: bool = False) -> str:
    """Returns the style for the severity of the episode, without alarm or warning after its end."""
    if has_ended:
        return "over" if is_loss(episode) else "dim"
    return "alarm" if is_loss(episode) else "warn" if episode.kind == "suspect" else "text"


def marker(episode: KindAndCause) -> str:
    return kind_of(episode).marker


def marker_run(episode: Episode | None, shown_ns: int | None = None) -> Run:
    """Returns the marker in a style that shows whether the episode had ended by `shown_ns`."""
    if episode is None:
        return " ", "text"
    has_ended = shown_ns is not None and episode.end_ns is not None and episode.end_ns <= shown_ns
    return marker(episode), severity_style(episode, has_ended=has_ended)


def sentence_runs(
    session: Session,
    episodes: Sequence[Episode],
    size: int,
    names: Sequence[str] | None,
    styles: tuple[str, str],
) -> list[Run]:
    """Returns the sentence about a group of episodes in exactly `size` cells. `names`: the tasks
    that lose in running episodes; None for ended ones. `styles`: style keys of the loss, and of the
    other text."""
    if names is None:
        parts = ended_sentence(session, episodes, size)
    else:
        parts = sentence(session.topology, episodes, names, max_length=size)
    runs = [(safe_cells(part.text), styles[part.role != "lost"]) for part in parts]
    return fit_runs(runs, size, styles[1])


CLOCK_WIDTH = 8
MIN_WIDTH_FOR_EVIDENCE = 48
"""Minimum width in cells of a panel with wide gaps, and with the evidence of running episodes."""
MAX_START_GAP_NS = 1_000_000_000
"""Maximum time in ns between the starts of two ended episodes of one cause that share a line."""


def group_line(
    session: Session, interval: Interval, group: Sequence[Episode], size: int
) -> list[Run]:
    """Returns the line of a group: marker, start, description and length; red during episodes.
    In the past, a line describes the whole episode, which may have gone on since then: its evidence
    can name tasks that started later."""
    now_ns, first, loses = interval.time_ns, min(group, key=lambda e: e.start_ns), is_loss(group[0])
    is_running = any(is_running_at(e, now_ns) for e in group)
    is_present = is_running and not session.is_past(interval)
    style = severity_style(first) if is_running else "dim"
    end_ns = max(now_ns if is_present else e.end_ns or session.until_ns for e in group)
    duration = long_duration(end_ns - first.start_ns) if end_ns > first.start_ns else ""
    starts_ns = [e.start_ns for e in group]
    if not is_running and max(starts_ns) - min(starts_ns) > MAX_START_GAP_NS:
        duration = f"{len({ns // MAX_START_GAP_NS for ns in starts_ns})} times"
    gap = "  " if size >= MIN_WIDTH_FOR_EVIDENCE else " "
    room = size - 2 - CLOCK_WIDTH - 2 * len(gap) - len(duration)
    text: list[Run] = []
    if room > 0:
        names = victims(session, group, interval.tasks) if is_present else None
        text_style = ("text", "bright")[is_running] if loses else ("dim", "text")[is_running]
        styles = "alarm" if is_running and loses else text_style, text_style
        text = sentence_runs(session, group, room, names, styles)
    start = f"{time_of_day(session.unix_s(first.start_ns)):<{CLOCK_WIDTH}}{gap}"
    return [(f"{marker(first)} {start}", style), *text, (f"{gap}{duration}", style)]


def ended_sentence(
    session: Session, episodes: Sequence[Episode], max_cells: int = MAX_SENTENCE
) -> list[SentencePart]:
    """Returns a sentence about ended episodes, cached, because it is drawn at each refresh."""
    cache: _SentenceCache = session.caches["sentences"]
    key = (max_cells, *map(id, episodes))
    if key not in cache:
        if len(cache) >= _MAX_SENTENCES:
            cache.clear()
        parts = sentence(session.topology, episodes, past_tense=True, max_length=max_cells)
        cache[key] = [*episodes], parts
    return cache[key][1]


def is_running_at(episode: Episode, now_ns: int) -> bool:
    return episode.start_ns <= now_ns and (episode.end_ns is None or episode.end_ns > now_ns)


def episodes_during(session: Session, interval: Interval) -> list[Episode]:
    """Returns the running episodes if the interval is the newest one of a live session, else those
    that overlap the interval."""
    return overlapping_episodes(session, interval) if session.is_past(interval) else session.running


def overlapping_episodes(session: Session, interval: Interval) -> list[Episode]:
    since_ns = interval.time_ns - round(interval.elapsed_s * 1e9)
    return session.log.listed_in_range(since_ns, interval.time_ns)


_GAP_BY_KIND = {"license": "licence", "ramp": "ramp", "throttle": "heat"}
_GAP_BY_CAUSE = {"current": "power", "thermal": "heat", "prochot": "heat", "vr": "heat",
                 "hwp": "policy", "policy": "policy", "license": "licence"}  # fmt: skip


def gap_cause(kind: str, cause: str) -> str:
    """Returns the cause, one of `charts.GAP_CAUSES`, of a clock below its ceiling."""
    by_cause = "power" if cause.startswith("power") else "unknown"
    return _GAP_BY_KIND.get(kind) or _GAP_BY_CAUSE.get(cause, by_cause)


# --- groups of episodes


def group_episodes(episodes: Iterable[Episode]) -> list[list[Episode]]:
    """Returns the episodes in groups, the costliest first; each begins with its earliest one."""
    groups: dict[tuple[str, str], list[Episode]] = {}
    for episode in sorted(drop_duplicate_losses([*episodes]), key=severity_key):
        groups.setdefault(group_key(episode), []).append(episode)
    return sorted(groups.values(), key=lambda group: (-total_cost(group), severity_key(group[0])))


def drop_duplicate_losses(episodes: Sequence[Episode]) -> list[Episode]:
    """Returns these episodes without those whose lost time another episode also reports: steal that
    is a loss to the hypervisor, and halts that are throttling."""
    losses: dict[tuple[str, int], list[Episode]] = {}
    for episode in episodes:
        if episode.kind == "throttle" or episode.cause == STEAL_CAUSE[1]:
            for cpu in episode.cpus:
                losses.setdefault((episode.kind, cpu), []).append(episode)

    def covers(loss: Episode, episode: Episode) -> bool:
        """Returns whether the loss lasted for at least half of the episode; a running loss only
        covers a running episode."""
        if loss.end_ns is None or episode.end_ns is None:
            return loss.end_ns is episode.end_ns
        both_ns = min(loss.end_ns, episode.end_ns) - max(loss.start_ns, episode.start_ns)
        return 2 * both_ns >= max(1, episode.end_ns - episode.start_ns)

    unique_episodes = []
    for episode in episodes:
        # An episode of this kind reports the same loss.
        kind = "neighbour" if episode.kind == STEAL_CAUSE[0] else ""
        if (episode.kind, episode.cause) == ("involuntary-halt", "modulation"):
            kind = "throttle"
        if not kind or not all(
            any(covers(loss, episode) for loss in losses.get((kind, cpu), ()))
            for cpu in episode.cpus
        ):
            unique_episodes.append(episode)
    return unique_episodes


# --- episodes by row

MIN_AWAKE_UTIL = 0.1
"""Minimum busy share for a core's clock to be meaningful; with less, it mainly reflects sleep."""
PER_CPU_KINDS = frozenset({"neighbour", *(key for key, kind in KINDS.items() if kind.is_per_cpu)})
"""Kinds of episodes that affect single CPUs. Episodes of other kinds can affect a whole package."""
MIN_LOST_HZ = 5e6
"""Minimum drop of the clock in Hz that counts. Some SIMD licences do not lower the clock."""


def lowered_number(episode: Episode) -> str:
    """Returns the key of the number that the episode makes worse; '' if there is none."""
    kind = kind_of(episode)
    if kind.depth == "hz" and (episode.depth or 0.0) < MIN_LOST_HZ:
        return ""
    return kind.worsened_key


def find_losing_index(cpus: Sequence[int], episodes: Iterable[Episode]) -> int | None:
    """Returns the index of the first of these CPUs whose IPC an episode lowers, or None."""
    losing = {cpu for e in episodes if lowered_number(e) == "ipc" for cpu in e.cpus}
    return next((i for i, cpu in enumerate(cpus) if cpu in losing), None)


@dataclass(frozen=True, slots=True)
class RowEpisode:
    """The episodes that run on the CPUs of a row."""

    episode: Episode
    """The worst episode; if several CPUs have equally bad ones, the first CPU's."""
    position: int
    """Position of the first of the row's CPUs on which that episode runs."""
    is_victim: bool
    """Whether the row itself is affected, rather than only its package."""
    lowered_numbers: frozenset[tuple[int, str]]
    """The numbers that an episode makes worse, as pairs of a CPU's position and a key."""
    package_wide_keys: frozenset[str]
    """Keys of the numbers that an episode makes worse in the whole package."""

    @property
    def marker(self) -> str:
        return marker(self.episode)

    @property
    def style(self) -> str:
        """The style of the marker; plain for the whole package, whose own line is red."""
        style = severity_style(self.episode)
        return "text" if style == "alarm" and not self.is_victim else style


class RowEpisodes:
    """The episodes in one interval, by CPU and package."""

    def __init__(self, session: Session, interval: Interval) -> None:
        self.session, self.interval = session, interval
        self.running = sorted(episodes_during(session, interval), key=severity_key)
        """The episodes in the interval, the worst first."""
        self._by_row: dict[int, list[Episode]] = {}
        self._by_package: dict[int | None, list[Episode]] = {}
        """The harmful episodes on the CPUs of each package, the worst first."""
        self._package_wide = set[tuple[str, int | None]]()
        """Pairs of a kind and a package, if episodes of the kind affect at least half of the
        package's busy CPUs."""
        packages = [row.package for row in session.topology] if self.running else []
        rows_by_kind: dict[str, set[int]] = {}
        for episode in self.running:
            rows = [session.position[cpu] for cpu in episode.cpus if cpu in session.position]
            for row in rows:
                self._by_row.setdefault(row, []).append(episode)
            if is_loss(episode):
                for package in {packages[row] for row in rows}:
                    self._by_package.setdefault(package, []).append(episode)
                if episode.kind not in PER_CPU_KINDS:
                    rows_by_kind.setdefault(episode.kind, set()).update(rows)
        if rows_by_kind:
            awake_rows = np.flatnonzero(interval.values["util"] >= MIN_AWAKE_UTIL).tolist()
            awake_counts = Counter(packages[row] for row in awake_rows)
            for kind, affected in rows_by_kind.items():
                hits = Counter(packages[row] for row in affected.intersection(awake_rows))
                for package, count in hits.items():
                    if count > 1 and 2 * count >= awake_counts[package]:
                        self._package_wide.add((kind, package))

    @property
    def ipc_alone(self) -> float:
        """The highest IPC that an affected CPU had while its sibling was idle; 0 if unknown."""
        episodes = chain.from_iterable(self._by_package.values())
        return max((e.evidence.get("ipc_alone", 0.0) for e in episodes), default=0.0)

    def __bool__(self) -> bool:
        return bool(self._by_row)

    def worst_on(self, positions: Iterable[int]) -> RowEpisode | None:
        """Returns the worst episode on the CPUs at these positions; None if there is none. A loss
        that does not affect the whole package precedes other episodes."""
        row_pairs = [(episode, row) for row in positions for episode in self._by_row.get(row, ())]
        if not row_pairs:
            return None
        losing_pairs = [
            (e, row) for e, row in row_pairs if is_loss(e) and not self.is_package_wide(e, row)
        ]
        episode, row = min(losing_pairs or row_pairs, key=lambda pair: severity_key(pair[0]))
        lowered = frozenset((row, key) for e, row in losing_pairs if (key := lowered_number(e)))
        package_wide = frozenset(
            lowered_number(e) for e, r in row_pairs if self.is_package_wide(e, r)
        )
        return RowEpisode(episode, row, bool(losing_pairs), lowered, package_wide)

    def is_package_wide(self, episode: Episode, position: int) -> bool:
        """Returns whether the episode affects the whole package of the CPU at this position."""
        return (episode.kind, self.session.topology[position].package) in self._package_wide

    def package_episodes(self, package: int | None) -> tuple[list[Episode], list[Episode]]:
        """Returns a package's losses, the worst first, and those that affect all of it."""
        episodes = self._by_package.get(package, [])
        return episodes, [e for e in episodes if (e.kind, package) in self._package_wide]

    def worst_by_row(self, cores: Cores) -> dict[int, RowEpisode]:
        """Returns, by row, the worst episode of each row on which one runs."""
        topology, row_of_cpu = self.session.topology, cores.row_of_cpu
        rows = {row_of_cpu.get(topology[position].cpu, -1) for position in self._by_row} - {-1}
        episodes = {row: self.worst_on(cores.rows[row].positions) for row in sorted(rows)}
        return {row: episode for row, episode in episodes.items() if episode is not None}

    def lost_share(self, row_episode: RowEpisode) -> float:
        """Returns the share of time, clock or IPC that the row's worst episode costs; NaN if
        unknown."""
        episode, session = row_episode.episode, self.session
        if not lowered_number(episode) or episode.depth is None:
            return nan
        if episode.kind == "neighbour" and self.interval.seq:
            share = session.neighbours.share(episode, session.topology[row_episode.position].cpu)
            return episode.depth if share is None else share
        if kind_of(episode).depth == "hz":
            core = self.interval.cores.core_by_cpu[row_episode.position]
            ceiling_hz = float(self.interval.ceiling_hz[core]) if core >= 0 else nan
            return episode.depth / ceiling_hz if isfinite(ceiling_hz) else nan
        return episode.depth

    def culprit_name(self, row_episode: RowEpisode, tasks: dict[int, str]) -> str:
        """Returns the task or hypervisor that takes CPU time or IPC in a steal or neighbour
        episode; '' for other kinds. `tasks`: names of tasks by position of the CPU."""
        episode = row_episode.episode
        if episode.kind == "steal":
            return "hypervisor"
        if episode.kind != "neighbour":
            return ""
        if episode.cause == "sibling":
            losing = row_episode.position
            return " ".join(name for row, name in tasks.items() if row != losing and name)
        who_tasks = episode.evidence.get("who")
        if isinstance(who_tasks, Hypervisor):
            return "hypervisor"
        cpu = self.session.topology[row_episode.position].cpu
        all_culprits = list(who_tasks or ())
        culprits = [
            task for task in all_culprits if getattr(task, "cpu", None) == cpu
        ] or all_culprits
        return " ".join(f"{task.comm} {task.pid}" for task in culprits[:1] if hasattr(task, "comm"))
