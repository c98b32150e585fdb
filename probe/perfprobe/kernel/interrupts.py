"""Reports interrupts and softirqs that use a noticeable share of a CPU's time, from /proc.
/proc/stat has each CPU's time in interrupts and softirqs, in ticks. /proc/interrupts and
/proc/softirqs are read only while some CPU spends MIN_INTERRUPT_SHARE of its time in them, because
on a large machine the kernel needs milliseconds to print /proc/interrupts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfprobe.cpu import files
from perfprobe.kernel.task_files import TICK_NS

MIN_INTERRUPT_SHARE = 0.03
"""A CPU's interrupts and softirqs are recorded if they use at least this share of its time."""
MAX_LINES = 4
"""Maximum number of interrupts, and of kinds of softirqs, recorded for a CPU."""
COLUMN_WIDTH = 11
"""Width in characters of a CPU's column in /proc/interrupts and /proc/softirqs."""
MAX_NAME_CHARS = 40
STAT_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Names of the first numbers in a CPU's line of /proc/stat, which are ticks."""
_CPU_LINE = re.compile(
    r"^cpu(\d{1,5})" + r" (\d{1,18})" * len(STAT_FIELDS), re.MULTILINE | re.ASCII
)
_ACTION = re.compile(r"(?:.*\b(?:edge|level|fasteoi|Edge|Level)\s+)?(.*)")


class Interrupts:
    def __init__(self, root: Path, now_ns: Callable[[], int]) -> None:
        self._proc, self._now_ns = f"{root}/proc", now_ns
        self._stat = files.OpenFile(f"{root}/proc/stat", files.MAX_LARGE_BYTES)
        self._read_ns = 0
        self._last_ticks: dict[int, tuple[int, ...]] = {}
        """By CPU, ticks at the last read: in tasks, idle, in interrupts, in softirqs, and in tasks
        in the kernel (a part of the first)."""
        self.kernel_shares: dict[int, float] = {}
        """By CPU: share of time for which tasks were in the kernel, between the last two reads."""
        self._last_tables: dict[str, InterruptTable] = {}
        """By name of the file: its last content. Empty while no CPU spends MIN_INTERRUPT_SHARE of
        its time in interrupts and softirqs."""

    def record(self) -> dict[str, Any]:
        """Returns the "interrupts" record of a frame for the time since the last call; empty at the
        first call, and if no CPU spent MIN_INTERRUPT_SHARE of that time in them."""
        last_ticks, before_ns = self._last_ticks, self._read_ns
        text = self._stat.read()
        self._read_ns = self._now_ns()
        self._last_ticks = {}
        for cpu, (user, nice, system, idle, iowait, irq, softirq, _) in parse_ticks(text).items():
            self._last_ticks[cpu] = (user + nice + system, idle + iowait, irq, softirq, system)
        span_ns = self._read_ns - before_ns
        shares = {
            cpu: [
                round(min(1.0, max(0, now - last) * TICK_NS / span_ns), 4)
                for now, last in zip(ticks, last_ticks[cpu], strict=True)
            ]
            for cpu, ticks in self._last_ticks.items()
            if cpu in last_ticks and span_ns > 0
        }
        self.kernel_shares = {cpu: share[4] for cpu, share in shares.items()}
        busy = {cpu: s for cpu, s in shares.items() if s[2] + s[3] >= MIN_INTERRUPT_SHARE}
        if not busy:
            self._last_tables.clear()
            return {}
        rises: list[dict[int, list[tuple[str, int]]]] = []
        for name in ("interrupts", "softirqs"):
            table = parse_table(files.read_text(f"{self._proc}/{name}", files.MAX_LARGE_BYTES))
            last = self._last_tables.get(name, table)
            if last.cpus != table.cpus:
                last = table  # the counts cannot be compared, so nothing rose
            self._last_tables[name] = table
            rises.append({cpu: table.largest_rises(last, cpu) for cpu in busy})
        return {
            str(cpu): [tasks_share, irq, softirq, *(rise[cpu] for rise in rises)]
            for cpu, (tasks_share, _, irq, softirq, _) in busy.items()
        }

    def close(self) -> None:
        self._stat.close()


def parse_ticks(text: str) -> dict[int, tuple[int, ...]]:
    """Returns the ticks of each CPU in the text of /proc/stat, in the order of STAT_FIELDS."""
    return {int(cpu): tuple(map(int, ticks)) for cpu, *ticks in _CPU_LINE.findall(text)}


@dataclass(frozen=True, slots=True)
class InterruptTable:
    """/proc/interrupts or /proc/softirqs: a line for each interrupt, a column of fixed width for
    each CPU. It has a megabyte on a large machine, so columns are parsed only on request."""

    cpus: list[int]
    """The CPU of each column."""
    lines: dict[str, str]
    """By label at the start of a line: the rest of the line, with counts and a description."""

    def counts(self, cpu: int) -> dict[str, str]:
        """Returns, by label, a CPU's count as text; empty if the file has no such CPU."""
        if cpu not in self.cpus:
            return {}
        first = COLUMN_WIDTH * self.cpus.index(cpu)
        column = slice(first, first + COLUMN_WIDTH)
        return {label: line[column] for label, line in self.lines.items()}

    def description(self, label: str) -> str:
        return self.lines[label][COLUMN_WIDTH * len(self.cpus) :].strip()

    def largest_rises(self, last: InterruptTable, cpu: int) -> list[tuple[str, int]]:
        """Returns a CPU's interrupts whose counts rose most since `last`, and their increases."""
        last_counts, rises = last.counts(cpu), {}
        for label, count in self.counts(cpu).items():
            last_count = last_counts.get(label, "")
            if count != last_count and count.strip().isdecimal() and last_count.strip().isdecimal():
                rises[label] = int(count) - int(last_count)
        labels = sorted(
            (label for label in rises if rises[label] > 0), key=lambda label: -rises[label]
        )
        return [(self.name(label), rises[label]) for label in labels[:MAX_LINES]]

    def name(self, label: str) -> str:
        """Returns an interrupt's name, after its number if it has one: "36 eth0-rx-1"."""
        description = self.description(label)
        if label.isdecimal():
            match = _ACTION.fullmatch(description)
            description = f"{label} {match[1] if match else description}"
        else:
            description = description.lower() or label
        return description.strip()[:MAX_NAME_CHARS]


def parse_table(text: str) -> InterruptTable:
    head, *lines = text.splitlines() or [""]
    cpus = [int(word[3:]) for word in head.split() if re.fullmatch("CPU[0-9]{1,5}", word)]
    parts = (line.partition(":") for line in lines)
    min_length = COLUMN_WIDTH * len(cpus)  # the lines ERR and MIS have one count for all CPUs
    rows = {label.strip(): rest for label, _, rest in parts if len(rest) >= min_length > 0}
    return InterruptTable(cpus, rows)
