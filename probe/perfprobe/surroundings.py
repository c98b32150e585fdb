"""What else went on while a CPU was measured: the kernel's own counts, read before and after."""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfprobe import disturbance
from perfprobe.cpu import files
from perfprobe.sources.os import procstat
from perfprobe.sources.os.procstat import TICK_S

STAT_LIMIT = 1 << 24
"""Thousands of CPUs; /proc/interrupts has a column for each, some hundred times."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Cumulative. None: the kernel does not tell."""

    idle_s: float | None
    """Of the CPU itself."""
    steal_s: float | None
    interrupts: int | None
    siblings_idle_s: float | None
    """Of the other threads of its core together; None also where there are none."""
    switches: int
    """Involuntary, of the calling thread."""


def read(cpu: int, siblings: Sequence[int], root: Path = Path("/")) -> Counts:
    stat = procstat.ticks(files.head(f"{root}/proc/stat", STAT_LIMIT) or "")
    interrupts = disturbance.interrupts(
        files.head(f"{root}/proc/interrupts", STAT_LIMIT) or "", cpu
    )
    own = stat.get(cpu)
    idle = [_idle_s(stat.get(sibling)) for sibling in siblings]
    known = [seconds for seconds in idle if seconds is not None]
    exact = _cpuidle_s(root, cpu)
    return Counts(
        _idle_s(own) if exact is None else exact,
        sum(own[i] for i in procstat.STOLEN) * TICK_S if own else None,
        sum(interrupts.values()) if interrupts else None,
        sum(known) if known and len(known) == len(idle) else None,
        resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw,
    )


def _idle_s(ticks: Sequence[int] | None) -> float | None:
    return None if ticks is None else sum(ticks[i] for i in procstat.ASLEEP) * TICK_S


def _cpuidle_s(root: Path, cpu: int) -> float | None:
    """To the microsecond, unlike /proc/stat. A state's time is added when the CPU leaves it, which
    one that reads its own has done."""
    where = f"{root}/{files.CPUS}/cpu{cpu}/cpuidle"
    texts = [files.text(f"{where}/state{n}/time") for n in files.numbered(where, "state")]
    times = [text.strip() for text in texts if text is not None]
    if not times or not all(re.fullmatch("[0-9]{1,19}", text) for text in times):
        return None
    return sum(map(int, times)) / 1e6
