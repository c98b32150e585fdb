"""Reports interrupts and softirqs that use a noticeable share of a CPU's time, from /proc.

/proc/stat has the time that each CPU spent in them, in ticks. /proc/interrupts and /proc/softirqs
are read only while a CPU spends at least MIN_SHARE of its time in them: on a large machine the
kernel needs milliseconds to print /proc/interrupts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfprobe.cpu import files
from perfprobe.kernel.task_files import TICK_NS

MIN_SHARE = 0.03
"""Minimum share of a CPU's time in interrupts and softirqs for which they are recorded."""
MAX_LINES = 4
"""Maximum number of lines of /proc/interrupts, and of the kinds of softirqs, that are recorded for
a CPU. The most frequent are recorded."""
MAX_NAME = 40
MAX_STAT_BYTES, MAX_LINES_BYTES = 1 << 18, 1 << 22
_CPU_LINE = re.compile(
    r"^cpu(\d{1,5}) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", re.MULTILINE | re.ASCII
)
_ACTION = re.compile(r"(?:.*\b(?:edge|level|fasteoi|Edge|Level)\s+)?(.*)")

Counts = dict[str, list[int]]
"""Counts of each line or kind, in the order of the CPUs in the file."""


class Interrupts:
    def __init__(self, root: Path, now_ns: Callable[[], int]) -> None:
        self._proc, self._now_ns = f"{root}/proc", now_ns
        self._stat = files.OpenFile(f"{root}/proc/stat")
        self._at_ns = 0
        self._ticks: dict[int, tuple[int, ...]] = {}
        """By CPU, as last read: ticks in tasks, idle, in interrupts, in softirqs and, as a part of
        those in tasks, in the kernel."""
        self.kernel_shares: dict[int, float] = {}
        """By CPU: share of the time between the last two reads that tasks were in the kernel."""
        self._last: dict[str, tuple[list[int], Counts]] = {}
        """By file: the CPUs of its columns and its counts, as last read; empty while no CPU shows
        the symptom."""

    def record(self) -> dict[str, Any]:
        """Returns the record of the time since the last call; empty at the first call, and if no
        CPU spent MIN_SHARE of that time in interrupts and softirqs."""
        before, before_ns = self._ticks, self._at_ns
        text = self._stat.read(MAX_STAT_BYTES)
        self._at_ns = self._now_ns()
        self._ticks = {}
        for cpu, *fields in _CPU_LINE.findall(text):
            user, nice, system, idle, iowait, irq, softirq = map(int, fields)
            self._ticks[int(cpu)] = (
                user + nice + system, idle + iowait, irq, softirq, system,
            )  # fmt: skip
        span_ns = self._at_ns - before_ns
        shares = {
            cpu: [
                round(min(1.0, max(0, now - last) * TICK_NS / span_ns), 4)
                for now, last in zip(ticks, before[cpu], strict=True)
            ]
            for cpu, ticks in self._ticks.items()
            if cpu in before and span_ns > 0
        }
        self.kernel_shares = {cpu: share[4] for cpu, share in shares.items()}
        busy = {cpu: s for cpu, s in shares.items() if s[2] + s[3] >= MIN_SHARE}
        if not busy:
            self._last.clear()
            return {}
        names = [self._newest(name, busy) for name in ("interrupts", "softirqs")]
        return {
            str(cpu): [worked, irq, softirq, names[0].get(cpu, []), names[1].get(cpu, [])]
            for cpu, (worked, _, irq, softirq, _) in busy.items()
        }

    def close(self) -> None:
        self._stat.close()

    def _newest(self, name: str, cpus: Collection[int]) -> dict[int, list[tuple[str, int]]]:
        """Returns for each CPU the lines of a file whose counts rose most since the last read, with
        the increase; empty if the previous call did not read the file."""
        text = files.read_text(f"{self._proc}/{name}", MAX_LINES_BYTES)
        heads, counts = parse_counts(text)
        last_heads, last = self._last.get(name, ([], {}))
        self._last[name] = heads, counts
        if heads != last_heads:
            return {}
        return {cpu: largest_rises(counts, last, heads.index(cpu)) for cpu in cpus if cpu in heads}


def parse_counts(text: str) -> tuple[list[int], Counts]:
    """Parses /proc/interrupts or /proc/softirqs: returns the CPU of each column, and the counts by
    name. The name of a numbered interrupt has its number first: "36 eth0-rx-1"."""
    head, *lines = text.splitlines() or [""]
    cpus = [int(word[3:]) for word in head.split() if re.fullmatch("CPU[0-9]{1,5}", word)]
    counts: Counts = {}
    for line in lines:
        label, _, rest = line.partition(":")
        words = rest.split(None, len(cpus))
        if len(words) < len(cpus) or not all(word.isdigit() for word in words[: len(cpus)]):
            continue
        label, what = label.strip(), words[len(cpus)].strip() if len(words) > len(cpus) else ""
        if label.isdigit():
            match = _ACTION.fullmatch(what)
            name = f"{label} {match[1] if match else what}"
        else:
            name = what.lower() or label
        counts[name.strip()[:MAX_NAME]] = [int(word) for word in words[: len(cpus)]]
    return cpus, counts


def largest_rises(
    counts: Mapping[str, Sequence[int]], last: Counts, column: int
) -> list[tuple[str, int]]:
    """Returns the names whose counts in a column rose most, with the increase."""
    risen = {name: now[column] - last[name][column] for name, now in counts.items() if name in last}
    names = sorted((name for name in risen if risen[name] > 0), key=lambda name: -risen[name])
    return [(name, risen[name]) for name in names[:MAX_LINES]]
