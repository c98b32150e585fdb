"""Who loses to whom: a pair of tasks for each CPU that loses time or IPC to a neighbour, and the
table of such pairs, for the panel and, with more columns, for the neighbour view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

from perftop.base.text import length, rough
from perftop.detect.losses import NEIGHBOUR
from perftop.draw import columns
from perftop.draw.columns import Cell, Column, Run, fit, fitted, total_width
from perftop.draw.strips import foreign
from perftop.model.kinds import CrowdedCpu, Episode, Host, TaskOnCpu
from perftop.model.tasks import WatchedJob
from perftop.output.sentences import evidence_json, evidence_piece
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.tasks import INDENT
from perftop.tui.shared import episode_style

NO_LOSS_TEXT = "No CPU is losing time to a neighbour"
MIN_WIDTH_FOR_WORDS = 72
"""Minimum width for words between the names, such as "takes 30 % from"."""
MIN_NAME_WIDTH, MAX_NAME_WIDTH = 12, 22
MIN_EVIDENCE_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair: a task on a CPU."""

    name: str
    """Name and pid of the task, without control characters; '' if unknown."""
    cpu: int | None = None
    """Number of the CPU; None: this side has no CPU of its own, like the hypervisor."""


@dataclass(frozen=True, slots=True)
class Pair:
    sign: str
    taker: Side
    loser: Side
    """The task on the CPU that loses."""
    cpu: int
    """Number of the CPU that loses; for a loss that has ended, the first of the CPUs."""
    lost: float
    """The share that the CPU loses, from 0 to 1; NaN if unknown."""
    ipc: float
    """IPC of the losing CPU; NaN if unknown, or if the CPU loses time instead of IPC."""
    alone: float
    """IPC of the losing CPU without the taker; NaN like `ipc`."""
    since_ns: int
    cause: str
    why: str
    """The evidence, without names and IPC, which have columns of their own."""
    inferred: bool
    lasted: str = ""
    """How long the loss lasted; '' if it has not ended."""


# --- pairs at a single point in time


def running_pairs(
    session: Session, interval: Interval, watched_job: WatchedJob, shown_rows: frozenset[int]
) -> list[Pair]:
    """Returns the pairs whose losing CPU has a position in `shown_rows`, the greatest loss first;
    of equal losses, the oldest first. `watched_job`: the job at the moment of the interval."""
    position = session.position
    pairs = [
        _pair(session, interval, watched_job, episode, cpu)
        for episode in _neighbour_episodes(session, interval)
        for cpu in episode.cpus
        if position.get(cpu) in shown_rows
    ]
    return sorted(pairs, key=lambda pair: (-round(pair.lost, 3), pair.since_ns, pair.cpu))


def ended_pairs(session: Session, interval: Interval, shown_rows: frozenset[int]) -> Iterator[Pair]:
    """Yields a pair for each episode that had ended by the end of the interval, the newest
    first."""
    losses = _neighbour_episodes(session, interval, ended=True)
    for episode in sorted(losses, key=lambda e: -e.start_ns):
        cpus = [cpu for cpu in episode.cpus if session.position.get(cpu) in shown_rows]
        if cpus:
            evidence = episode.evidence
            yield Pair(
                episode_style.sign(episode), _taker(evidence, cpus[0]),
                Side(f"CPU {cpus[0]}{_more_text(cpus)}"), cpus[0],
                nan if episode.depth is None else episode.depth,
                _float_or_nan(evidence.get("ipc")), _float_or_nan(evidence.get("ipc_alone")),
                episode.start_ns, episode.cause, _evidence_text(evidence),
                episode.confidence != "measured",
                length((episode.end_ns or 0) - episode.start_ns),
            )  # fmt: skip


def any_pair(session: Session, interval: Interval) -> bool:
    """Returns whether any CPU loses to a neighbour."""
    return any(True for _ in _neighbour_episodes(session, interval))


def _neighbour_episodes(
    session: Session, interval: Interval, *, ended: bool = False
) -> Iterator[Episode]:
    """Yields the neighbour episodes that ran at the end of the interval, or, if `ended` is set,
    those that had ended by then."""
    now_ns = interval.time_ns
    for episode in (*session.running, *session.ended):
        is_over = episode.end_ns is not None and episode.end_ns <= now_ns
        if episode.kind == NEIGHBOUR and episode.start_ns <= now_ns and is_over is ended:
            yield episode


def _pair(
    session: Session, interval: Interval, watched_job: WatchedJob, episode: Episode, cpu: int
) -> Pair:
    def task(cpu: int) -> str:
        activity = interval.snapshot.activity_on(str(cpu))
        return foreign(f"{activity[0].task.comm} {activity[0].task.pid}") if activity else ""

    share = session.neighbours.share(episode, cpu) if interval.seq else None
    lost_share = (nan if episode.depth is None else episode.depth) if share is None else share
    row, ipc, alone = session.position[cpu], nan, nan
    if episode.cause in {"sibling", "memory"}:
        ipc = float(interval.values["ipc"][row])
        alone = ipc_alone(session, interval, row) if episode.cause == "sibling" else nan
        alone = _float_or_nan(episode.evidence.get("ipc_alone")) if isnan(alone) else alone
    taker = _taker(episode.evidence, cpu)
    if episode.cause == "sibling":
        core_index = int(session.reader.cores.of_cpu[row])
        core = session.cores[core_index] if core_index >= 0 else []
        siblings = (Side(task(sibling), sibling) for sibling in core if sibling != cpu)
        taker = next((side for side in siblings if side.name), taker)
    threads = [thread for thread in watched_job.threads.values() if thread.cpu == cpu]
    loser = f"{len(threads)} threads" if len(threads) > 1 else task(cpu)
    if len(threads) == 1:
        loser = foreign(f"{threads[0].comm} {threads[0].tid}")
    return Pair(
        episode_style.sign(episode), taker, Side(loser, cpu), cpu, lost_share, ipc, alone,
        episode.start_ns, episode.cause, _evidence_text(episode.evidence),
        episode.confidence != "measured",
    )  # fmt: skip


def ipc_alone(session: Session, interval: Interval, row: int) -> float:
    """Returns the IPC of the CPU at this position without its sibling; NaN if unknown, or
    if the interval is in the past."""
    return session.neighbours.siblings.alone(row) if interval.seq else nan


def _taker(evidence: Mapping[str, Any], cpu: int) -> Side:
    """Returns the taker that the evidence names: the taker on this CPU, else the first taker."""
    who_tasks, own_tasks = evidence.get("who"), evidence.get("self")
    if isinstance(who_tasks, Host):
        return Side("hypervisor")
    takers = [
        task for task in who_tasks or own_tasks or () if isinstance(task, TaskOnCpu | CrowdedCpu)
    ]
    takers = [task for task in takers if task.cpu == cpu] or takers
    if not takers:
        return Side("")
    first = takers[0]
    if isinstance(first, CrowdedCpu):
        return Side(f"itself: {first.threads} threads", first.cpu)
    return Side(foreign(f"{first.comm} {first.pid}{_more_text(takers)}"), first.cpu)


def _more_text(items: Sequence[object]) -> str:
    return f" (+{len(items) - 1})" if len(items) > 1 else ""


def _evidence_text(evidence: Mapping[str, Any]) -> str:
    columns = {"who", "self", "ipc", "ipc_alone"}
    other_evidence = {key: value for key, value in evidence.items() if key not in columns}
    return foreign(
        " · ".join(
            evidence_piece(key, value) for key, value in evidence_json(other_evidence).items()
        )
    )


def _float_or_nan(value: object) -> float:
    return float(value) if isinstance(value, int | float) else nan


# --- lines


def pair_columns(width: int, *, since: bool) -> list[Column]:
    """Returns the columns that fit. Spare cells go to the names first, then to the evidence.
    `since`: includes the start, the cause and the evidence."""
    words = width >= MIN_WIDTH_FOR_WORDS

    def column(key: str, heading: str, size: int, rank: int = 0) -> Column:
        return Column(key, heading, size, left=True, gap=0, rank=rank)

    columns = fitted([
        column("sign", "", INDENT),
        column("taker", "who takes", MIN_NAME_WIDTH), column("taker cpu", "", 8, rank=1),
        *([column("takes", "lost", 12), column("from", "", 6)] if words else
          [column("lost", "lost", 6)]),
        column("loser", "who loses", MIN_NAME_WIDTH), column("loser cpu", "", 8, rank=1),
        column("ipc", "IPC", 22, rank=3),
        *([column("since", "since", 10, rank=2), column("cause", "cause", 12, rank=4)] if since
          else []),
    ], width)  # fmt: skip
    # Both columns of names are equally wide.
    name = min(MAX_NAME_WIDTH, MIN_NAME_WIDTH + max(0, width - total_width(columns)) // 2)
    columns = [replace(c, width=name) if c.key in {"taker", "loser"} else c for c in columns]
    spare_cells = width - total_width(columns)
    if since and spare_cells >= MIN_EVIDENCE_WIDTH:
        columns.append(column("why", "evidence", spare_cells))
    return columns


def pair_line(pair: Pair, shown: Sequence[Column], since: str) -> list[Run]:
    """Returns the line of a pair: the taker, the share, and the loser. The share is red while the
    loss lasts."""
    is_over = bool(pair.lasted)
    text, loser_style, bold = ("dim",) * 3 if is_over else ("text", "alarm", "bright")
    share = "" if isnan(pair.lost) else rough(pair.lost)
    reason_parts = [
        f"for {pair.lasted}" if is_over else "",
        "inferred" if pair.inferred else "",
        pair.why,
    ]
    ipc: list[Run] = [("IPC ", "dim"), (f"{pair.ipc:.2f}", text), (", alone ", "dim"),
                      (f"{pair.alone:.2f}", text)]  # fmt: skip
    cells: dict[str, Cell] = {
        "sign": (pair.sign, loser_style),
        "takes": [("took  " if is_over else "takes ", "dim"), (share, loser_style)],
        "lost": (share, loser_style),
        "from": ("from", "dim"),
        "ipc": [] if isnan(pair.ipc) or isnan(pair.alone) else ipc,
        "since": (since, "dim"),
        "cause": (pair.cause, text),
        "why": (" · ".join(filter(None, reason_parts)), "dim"),
    }
    names = {column.key: column.width - 1 for column in shown}
    for key, side, style in (("taker", pair.taker, text), ("loser", pair.loser, bold)):
        cells[key] = (fit(side.name, names[key]), style) if side.name else ("–", "faint")
        cells[f"{key} cpu"] = ("" if side.cpu is None else f"CPU {side.cpu}", "dim")
    return columns.line(shown, [cells[column.key] for column in shown])
