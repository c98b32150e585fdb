"""The operating system's own account: files below a CPU's directory, and idle states. It needs no
privileges."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from perfprobe._native import lib
from perfprobe.cpu import files
from perfprobe.kernel import access, perf_pmus
from perfprobe.kernel.access import Trouble
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Cpu, Missing, Scope


class Files:
    """A part whose columns are numbers in files below the CPU's directory."""

    def __init__(
        self, root: Path, counters: list[Counter], names: list[str], scope: Scope = "cpu"
    ) -> None:
        self.scope = scope
        self.counters = counters
        self.missing: list[Missing] = []
        self._base = f"{root}/{files.CPUS}"
        self._names = names
        self._fds: dict[int, list[int]] = {}
        """By CPU."""

    def open(self, cpu: int) -> list[Slot]:
        slots = []
        for column, name in enumerate(self._names):
            with contextlib.suppress(OSError):
                path = f"{self._base}/cpu{cpu}/{name}"
                slots.append(Slot(lib.PP_FILE, column, os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
        self._fds.setdefault(cpu, []).extend(slot.fd for slot in slots)
        return slots

    def shut(self, cpu: int) -> None:
        for fd in self._fds.pop(cpu, []):
            os.close(fd)

    def close(self) -> None:
        for cpu in list(self._fds):
            self.shut(cpu)


def idle_times(root: Path, rows: Sequence[Cpu]) -> Files:
    """Time in each idle state, by cpuidle. The CPU's own pinned thread reads it: its wake-up ends
    the idle period, so the kernel has accounted for it when the thread reads."""
    idle, poll = _idle_states(root, rows)
    counters = [
        Counter(key, name, "s", "cpuidle", scale=1e-6, columns=len(states), parts=states)
        for key, name, states in (
            ("idle_s", "idle, by state", idle),
            ("poll_s", "idle but polling", poll),
        )
        if states
    ]
    part = Files(root, counters, [f"cpuidle/{state}/time" for state in (*idle, *poll)])
    if not idle:
        why = "no cpuidle driver here: idle times are those of /proc/stat, in steps of 10 ms"
        part.missing.append(Missing("idle_s", why))
    return part


def _idle_states(root: Path, rows: Sequence[Cpu]) -> tuple[list[str], list[str]]:
    """Directories of the idle states that halt, and of the one that polls, on the CPU with the most
    states (hybrids differ)."""
    best: tuple[list[str], list[str]] = ([], [])
    alike = all(row.type == rows[0].type for row in rows)
    for row in rows:
        base = f"{root}/{files.CPUS}/cpu{row.cpu}/cpuidle"
        idle: list[str] = []
        poll: list[str] = []
        for number in files.numbered(base, "state"):
            name = files.word(f"{base}/state{number}/name")
            (poll if name == "POLL" else idle).append(f"state{number}")
        if len(idle) > len(best[0]):
            best = (idle, poll)
        if alike and row.online:
            break
    return best


def no_counters(root: Path) -> Trouble:
    """Why this source has no cycles, instructions and reference cycles."""
    if perf_pmus.cores(root):
        return Trouble("the os source does not read the core's counters", "--source perf")
    return access.no_pmu(root)
