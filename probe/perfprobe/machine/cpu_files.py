"""Counters in files below a CPU's directory in /sys: times in idle states, clocks from cpufreq,
thermal throttling. They can be read without privileges.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfprobe._native import lib
from perfprobe.cpu import files, identity
from perfprobe.kernel import clues
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Cpu, Missing, Rate, Scope, Step, Turbo


class CpuFiles:
    """A part (see machine/parts.py) whose columns are read from files below the CPU's directory."""

    def __init__(
        self, root: Path, counters: list[Counter], names: list[str], scope: Scope = "cpu"
    ) -> None:
        self.scope = scope
        self.counters = counters
        self.missing: list[Missing] = []
        self._base = f"{root}/{files.CPU_DIRECTORY}"
        self._names = names
        self._fds: dict[int, list[int]] = {}

    def open(self, cpu: int) -> list[Slot]:
        slots = []
        for column, name in enumerate(self._names):
            with contextlib.suppress(OSError):
                fd = files.open_file(f"{self._base}/cpu{cpu}/{name}")
                slots.append(Slot(lib.PP_FILE, column, fd))
        self._fds.setdefault(cpu, []).extend(slot.fd for slot in slots)
        return slots

    def close_cpu(self, cpu: int) -> None:
        for fd in self._fds.pop(cpu, []):
            os.close(fd)

    def close(self) -> None:
        for cpu in list(self._fds):
            self.close_cpu(cpu)


def cpuidle_part(root: Path, rows: Sequence[Cpu]) -> CpuFiles:
    """Returns the part with the time in each idle state, from cpuidle. The reading thread is pinned
    to the CPU. Its wake-up has ended the idle state, so the kernel has added the time."""
    # The directory names of the idle states that halt and of the state that polls, on the CPU with
    # the most states (CPUs of hybrids differ).
    idle, poll = list[str](), list[str]()
    has_one_type = all(row.type == rows[0].type for row in rows)
    for row in rows:
        names: dict[bool, list[str]] = {False: [], True: []}
        for path in clues.idle_state_paths(root, row.cpu):
            names[files.read_word(f"{path}/name") == "POLL"].append(Path(path).name)
        if len(names[False]) > len(idle):
            idle, poll = names[False], names[True]
        if has_one_type and row.online:
            break
    counters = [
        Counter(key, name, "s", "cpuidle", scale=1e-6, columns=len(states), parts=states)
        for key, name, states in (
            ("idle_s", "idle, by state", idle),
            ("poll_s", "idle but polling", poll),
        )
        if states
    ]
    part = CpuFiles(root, counters, [f"cpuidle/{state}/time" for state in (*idle, *poll)])
    if not idle:
        reason = "no cpuidle driver here: idle times are those of /proc/stat, with 10 ms resolution"
        part.missing.append(Missing("idle_s", reason))
    return part


# --- cpufreq --------------------------------------------------------------------------------------

MAX_READ_NS = 500_000
"""Maximum time of a read in ns. On some models a read interrupts the core and takes longer."""
CPUFREQ_COUNTERS = {
    "scaling_cur_freq": Counter(
        "cpufreq_hz", "clock, by cpufreq", "Hz", "cpufreq", "gauge", scale=1e3
    ),
    "scaling_max_freq": Counter(
        "max_hz", "highest clock that policy allows", "Hz", "cpufreq", "gauge", scale=1e3
    ),
}


def cpufreq_part(root: Path, rows: Sequence[Cpu]) -> CpuFiles:
    """Returns the part with those cpufreq files that can be read in MAX_READ_NS."""
    counters, missing = {}, []
    cpu = next((row.cpu for row in rows if row.online), 0)
    for name, counter in CPUFREQ_COUNTERS.items():
        text, took_ns = "", []
        for _ in range(3):
            start_ns = time.monotonic_ns()
            text = files.read_text(f"{root}/{files.CPU_DIRECTORY}/cpu{cpu}/cpufreq/{name}")
            took_ns.append(time.monotonic_ns() - start_ns)
        if not text:
            reason = "no cpufreq driver (usual in a guest): no clock from the system"
            missing.append(Missing(counter.key, reason))
        elif min(took_ns) > MAX_READ_NS:
            reason = f"a read of {name} takes {min(took_ns) // 1000} µs: too slow to repeat"
            missing.append(Missing(counter.key, reason))
        else:
            counters[f"cpufreq/{name}"] = counter
    part = CpuFiles(root, list(counters.values()), list(counters))
    part.missing += missing
    return part


# --- values in the hello --------------------------------------------------------------------------


def cpufreq_turbo(root: Path, rows: Sequence[Cpu]) -> tuple[list[Turbo], list[Missing]]:
    """Returns turbo tables with the highest clock of each CPU, one table for CPUs of the same
    clock; or the reason why there are none. cpufreq has only the clock with few active cores, so
    the tables are upper bounds."""
    if clues.is_turbo_on(root) is False:
        text = "turbo is off, and cpufreq then does not report the turbo clock"
        return [], [Missing("turbo_ceiling_hz", text)]
    cpus: dict[int, list[int]] = {}
    for cpu, path in _online_cpufreq_paths(root, rows):
        khz = files.read_number(f"{path}/cpuinfo_max_freq")
        if khz:
            cpus.setdefault(khz, []).append(cpu)
    first = next(_online_cpufreq_paths(root, rows), None)
    # The ACPI P-states in kHz; drivers that control the hardware without ACPI have none.
    pstates = files.read_text(f"{first[1]}/scaling_available_frequencies") if first else ""
    if cpus and str(max(cpus)) in pstates.split():
        text = (
            "cpufreq reports only the ACPI P-states, and turbo is faster than the fastest of them"
        )
        return [], [Missing("turbo_ceiling_hz", text)]
    origin = "cpufreq, cpuinfo_max_freq"
    is_uniform = len(cpus) == 1
    return [
        Turbo([Step(1, khz * 1e3)], origin, None if is_uniform else members)
        for khz, members in sorted(cpus.items(), reverse=True)
    ], []


def cpufreq_base_hz(root: Path, rows: Sequence[Cpu]) -> Rate | None:
    """Returns the guaranteed clock; None if unknown, or if it differs between CPUs."""
    paths = _online_cpufreq_paths(root, rows)
    values = {files.read_number(f"{path}/base_frequency") for _, path in paths}
    khz = values.pop() if len(values) == 1 else None
    return Rate(khz * 1e3, "cpufreq, base_frequency") if khz else None


def _online_cpufreq_paths(root: Path, rows: Sequence[Cpu]) -> Iterator[tuple[int, str]]:
    return (
        (row.cpu, f"{root}/{files.CPU_DIRECTORY}/cpu{row.cpu}/cpufreq")
        for row in rows
        if row.online
    )


# --- guests ---------------------------------------------------------------------------------------


def kvm_user_parts(root: Path) -> list[CpuFiles]:
    """Returns the part that shows whether a guest of KVM may run; none if KVM is not loaded as a
    module. The module's use count is the number of open files of VMs and virtual CPUs."""
    counter = Counter("kvm_users", "open files of KVM", "1", "/sys/module", "gauge")
    paths = [f"module/{module}/refcnt" for module in identity.KVM_MODULES]
    existing = [f"../../../../{path}" for path in paths if (root / "sys" / path).exists()]
    return [CpuFiles(root, [counter], existing[:1], "package")] if existing else []


# --- thermal interrupts ---------------------------------------------------------------------------
# A count increases when throttling starts; the time increases when throttling ends, by its whole
# length at once. The kernel checks once a second whether a hot CPU has cooled down.

ORIGIN = "thermal_throttle"
SCOPES: tuple[Scope, ...] = ("core", "package")
THROTTLE_COUNTERS = {
    scope: {
        f"{scope}_{file}": Counter(f"{scope}_{key}", f"{scope} {name}", unit, ORIGIN, scale=scale)
        for file, key, name, unit, scale in (
            ("throttle_total_time_ms", "throttled_s", "throttled", "s", 1e-3),
            ("throttle_count", "throttles", "throttles", "1", 1.0),
            ("power_limit_count", "power_limits", "power limit events", "1", 1.0),
        )
    }
    for scope in SCOPES
}
"""By scope: the counter of each file with counts of throttling."""


def throttle_parts(root: Path, rows: Sequence[Cpu]) -> list[CpuFiles]:
    """Returns a part for cores and one for packages, with those throttling counters whose file
    exists; empty if there are none."""
    cpu = next((row.cpu for row in rows if row.online), 0)
    base = root / files.CPU_DIRECTORY / f"cpu{cpu}"
    parts = []
    for scope, counters in THROTTLE_COUNTERS.items():
        existing = {
            f"{ORIGIN}/{name}": counter
            for name, counter in counters.items()
            if (base / ORIGIN / name).exists()
        }
        if existing:
            parts.append(CpuFiles(root, list(existing.values()), list(existing), scope))
    return parts
