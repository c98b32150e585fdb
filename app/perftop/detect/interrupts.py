"""Detects CPUs that interrupts and softirqs take from their tasks.

The probe records such CPUs about once a second, with the lines and kinds whose counts rose most.
The counts do not show times, so the kind with the highest product of count and usual cost is named.
The work of ksoftirqd is a task that others wait for, and is left out here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from perftop.base.arrays import first_true
from perftop.base.text import safe_text
from perftop.detect.engine import (
    DetectorInput,
    RecordEpisode,
    RecordEpisodes,
    RunningEpisodes,
    has_task_records,
)
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader
from perftop.model.tasks import TaskSnapshot

START, END = 0.05, 0.03
"""Shares of a CPU's time, at which an episode starts and below which it ends."""
MIN_TASKS_SHARE = 0.1
"""Share of the time that tasks must run on a CPU to lose something ..."""
FULL_SHARE, MIN_TASKS_IF_FULL = 0.9, 0.01
"""Share of the time from which a CPU is full: a task there may get next to nothing, and loses."""
MIN_BUSY_SHARE = 0.5
"""... and share that they and the interrupts must take together."""
SOFTIRQ_COSTS = {"NET_RX": 5.0, "NET_TX": 3.0, "BLOCK": 2.0, "TASKLET": 2.0, "IRQ_POLL": 2.0}
"""Typical cost of one softirq of each kind, relative to the cost of a timer softirq."""
MIN_RAISED_RATIO = 0.1
"""Minimum number of interrupts of a line per softirq for the line to be reported as the source of
the softirqs. A driver that polls causes few interrupts."""
MAX_NAME = 40
USUAL_LINES = re.compile(
    "local timer|rescheduling|function call|irq work|performance mon|non-maskable"
)
"""Beginnings of the names of lines that count on each busy CPU, and cost little."""


class _Cpu(NamedTuple):
    """How a CPU spent its time, as shares, and the line or kind that took most, with its count."""

    tasks: float
    irq: float
    softirq: float
    line: tuple[str, int] | None
    kind: tuple[str, int] | None


class InterruptStorms:
    """Detects storms of interrupts, separately on each CPU."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self.is_available = True
        self._position = reader.position
        self._storms = RecordEpisodes(reader, episodes, "interrupt", START, END)

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        return first_true(batch.cached(has_task_records), first, last)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        if "tasks" not in data.records:
            return []
        is_whole = self._storms.note_record(data.time_ns)
        for cpu, spent in _cpus(data.records).items() if is_whole else ():
            taken = spent.irq + spent.softirq
            least_tasks = MIN_TASKS_SHARE if spent.tasks + taken < FULL_SHARE else MIN_TASKS_IF_FULL
            is_lost = spent.tasks + taken >= MIN_BUSY_SHARE and spent.tasks >= least_tasks
            if is_lost and cpu in self._position:
                cause = "irq" if spent.irq > spent.softirq else "softirq"
                storm = self._storms.add(cpu, cause, taken * self._storms.span_s)
                if storm is not None:
                    storm.episode.cpus = [cpu]
                    storm.episode.depth = storm.lost_s / storm.span_s
                    _describe(storm, spent, self._storms.span_s)
        return self._storms.close()


def _describe(storm: RecordEpisode, spent: _Cpu, span_s: float) -> None:
    """Records the line or softirq that took most time. The first one recorded is kept."""
    cause, evidence = storm.episode.cause, storm.episode.evidence
    named = spent.line if cause == "irq" else spent.kind
    if named is not None and evidence.setdefault("line", named[0]) == named[0]:
        sums = storm.counts
        sums["came"] = sums.get("came", 0) + named[1]
        sums["counted_s"] = sums.get("counted_s", 0) + span_s
        evidence["came_per_s"] = round(sums["came"] / sums["counted_s"])
    if (
        cause == "softirq"
        and spent.kind is not None
        and spent.line is not None
        and spent.line[1] >= MIN_RAISED_RATIO * spent.kind[1]
    ):
        evidence.setdefault("raised_by", spent.line[0])


def _cpus(records: Mapping[str, object]) -> dict[int, _Cpu]:
    """Returns the valid entries of a record, which is untrusted, by CPU."""
    record = records.get("interrupts")
    snapshot = TaskSnapshot.from_records(records) or TaskSnapshot()
    cpus = {}
    for cpu, entry in record.items() if isinstance(record, dict) else ():
        match entry:
            case [
                int() | float() as tasks,
                int() | float() as irq,
                int() | float() as softirq,
                list() as lines,
                list() as kinds,
            ] if re.fullmatch("[0-9]{1,6}", cpu):
                daemon = [ran.share for ran in snapshot.tasks_on(str(cpu))
                          if ran.comm == f"ksoftirqd/{cpu}"]  # fmt: skip
                softirq = max(0.0, _share(softirq) - sum(daemon))
                line = _costliest(lines)
                cpus[int(cpu)] = _Cpu(_share(tasks), _share(irq), softirq, line, _costliest(kinds))
    return cpus


def _share(value: float) -> float:
    return min(1.0, value) if value > 0 else 0.0  # a NaN is 0


def _costliest(named: list[object]) -> tuple[str, int] | None:
    """Returns the name with the highest count times its cost."""
    counts = {}
    for entry in named:
        match entry:
            case [str() as name, int() as count] if 0 < count < 1 << 62 and not USUAL_LINES.match(
                name
            ):
                counts[safe_text(name, MAX_NAME)] = count
    if not counts:
        return None
    name = max(counts, key=lambda name: counts[name] * SOFTIRQ_COSTS.get(name, 1.0))
    return name, counts[name]
