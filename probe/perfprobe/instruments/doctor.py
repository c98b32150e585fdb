"""The checks of `doctor`: which sources of counters this user can read on this machine, and why
others are denied.

No check changes anything. No fix is `setcap`: file capabilities have no effect on a Python program.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perfprobe.cpu import cpu_sets, files, identity, topology
from perfprobe.instruments import disturbance
from perfprobe.kernel import access, clues
from perfprobe.machine import idle
from perfprobe.machine.idle import IdleTrace
from perfprobe.perf import perf_pmus, uncore
from perfprobe.polled import proc_counts
from perfprobe.programming import journal
from perfprobe.registers import msr
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.wire import Missing

PERF_CHECK = "perf counters"
NUMBERS_FROM_PERF = "clock, IPC, kernel share, halts, exact SMT states"

Usability = Literal["usable", "limited", "not usable"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: whether something can be read, and why not."""

    what: str
    state: Usability
    why: str
    lost: str | None = None
    """The numbers that perftop cannot show if this check fails."""
    fix: str | None = None


def checks(root: Path = Path("/")) -> list[Check]:
    """Returns all checks, the most important first."""
    return [
        *_cpu_and_proc_checks(root),
        _perf_check(root),
        _memory_check(root),
        _msr_check(root),
        _trace_check(root),
        *_kernel_checks(root),
    ]


def _cpu_and_proc_checks(root: Path) -> Iterator[Check]:
    """Yields the check of CPUs, and a failed check if /proc, which most checks need, is not
    mounted."""
    rows = topology.read_cpus(root)
    online = {row.cpu for row in rows if row.online}
    name = "CPUs"
    if not online:
        yield Check(name, "not usable", f"none can be found under {root}", "all numbers")
    elif root != Path("/"):
        yield Check(name, "usable", f"{len(online)} online, according to the files under {root}")
    elif outside := sorted(online - (access.allowed_cpus(root) or os.sched_getaffinity(0))):
        reason = f"CPUs {cpu_sets.format(outside)} are outside perftop's CPU set"
        lost = "their own counters and idle times; /proc/stat is used, with a resolution of 10 ms"
        yield Check(name, "limited", reason, lost, "start perftop outside the container or cpuset")
    else:
        yield Check(name, "usable", f"{len(online)} online; perftop may run on all of them")
    try:
        (root / "proc/stat").open("rb").close()
    except OSError as error:
        reason = f"/proc/stat cannot be read: {error.strerror}"
        lost = "utilisation, steal, tasks, waits; what this machine is, and whether it is a guest"
        yield Check("/proc", "not usable", reason, lost, proc_counts.proc_mount_remedy(root))


def _perf_check(root: Path) -> Check:
    name = PERF_CHECK
    core = [pmu.name for pmu in perf_pmus.core_pmus(root)]
    if not core:
        problem = access.no_pmu_problem(root)
        return Check(name, "not usable", problem.why, NUMBERS_FROM_PERF, problem.fix)
    pmu_text = f"core PMU {', '.join(core)}"
    refused = access.perf_problem(root)
    if refused is not None:
        return Check(name, "not usable", refused.why, NUMBERS_FROM_PERF, refused.fix)
    if access.has_capability(root, access.CAP_PERFMON, access.CAP_SYS_ADMIN):
        return Check(name, "usable", f"{pmu_text}; CAP_PERFMON")
    level = files.read_number(f"{root}/proc/sys/kernel/perf_event_paranoid")
    if access.is_seccomp_filtered(root):
        reason = f"{pmu_text}; a container's seccomp filter may still refuse it"
        fix = "allow perf_event_open in the container's seccomp profile"
        return Check(name, "limited", reason, NUMBERS_FROM_PERF, fix)
    return Check(name, "usable", f"{pmu_text}; perf_event_paranoid {level}")


NEEDED_COUNTERS = {
    "clock": ({"cycles", "ref"}, {"aperf", "mperf"}),
    "IPC": ({"instructions", "cycles"},),
    "halts": ({"ref"},),
}
"""Sets of counters from which perftop computes each number; one complete set is enough."""


def perf_check_of_stream(check: Check, keys: Collection[str], missing: Sequence[Missing]) -> Check:
    """Returns the check of perf counters, updated from a stream that has the counters `keys` and
    lacks those in `missing`. Returns other checks unchanged."""
    if check.what != PERF_CHECK or check.state == "not usable":
        return check
    names = [name for name, sets in NEEDED_COUNTERS.items() if not any(s <= {*keys} for s in sets)]
    if not names:
        return replace(check, state="usable", lost=None, fix=None)
    needed_keys = {
        counter for name in names for counters in NEEDED_COUNTERS[name] for counter in counters
    }
    keys_by_reason: dict[tuple[str, str | None], list[str]] = {}
    for m in missing:
        if m.what in needed_keys and m.cpus is None:
            keys_by_reason.setdefault((m.why, m.fix), []).append(m.what)
    reasons = [f"{', '.join(names)}: {why}" for (why, _), names in keys_by_reason.items()]
    fixes = dict.fromkeys(fix for _, fix in keys_by_reason if fix is not None)
    state: Usability = "limited" if len(names) < len(NEEDED_COUNTERS) else "not usable"
    fix = "; ".join(fixes) or None if reasons else check.fix
    return Check(check.what, state, "; ".join([check.why, *reasons]), ", ".join(names), fix)


def _memory_check(root: Path) -> Check:
    name, lost = "memory bandwidth", "memory traffic, and neighbours that saturate memory"
    controllers = uncore.memory_controllers(root)
    problem = access.perf_problem(root) if controllers else uncore.missing_controller_problem(root)
    if problem is not None:
        return Check(name, "not usable", problem.why, lost, problem.fix)
    first, last = controllers[0].pmu.name, controllers[-1].pmu.name
    return Check(name, "usable", f"PMU {first}" + (f" to {last}" if last != first else ""))


def _msr_check(root: Path) -> Check:
    name = "MSRs"
    lost = "temperature, limit reasons, turbo ratios, C-state residency; --source msr"
    boot = identity.boot_id(root)
    entries = (journal.stale_entry(path, boot, root) for path in journal.directories())
    if stale := [entry for entry in entries if entry is not None]:
        pids = ", ".join(str(entry.pid) for entry in stale)
        reason = (
            f"a killed perftop (pid {pids}) left counters programmed (saved in {stale[0].path})"
        )
        return Check(name, "limited", reason, lost, "the next perftop --source msr restores them")
    numbers = files.numbered_entries(f"{root}/dev/cpu", "")
    cpu = next((n for n in numbers if (root / f"dev/cpu/{n}/msr").exists()), 0)
    try:
        Registers(root, cpu).close()
    except MsrError as error:
        return Check(name, "not usable", error.cause, lost, error.fix)
    if (refusal := msr.write_problem(root)) is not None:
        reason = f"readable, not writable: {refusal.why}"
        return Check(name, "limited", reason, "--source msr", refusal.fix)
    return Check(name, "usable", "readable")


def _trace_check(root: Path) -> Check:
    name = "idle transitions"
    lost = "exact busy times; SMT states of cores without counters are bounds only"
    if root != Path("/"):
        return Check(name, "not usable", "not with --sysroot", lost)
    try:
        IdleTrace({min(os.sched_getaffinity(0)): (0, 0)}, learn=False).close()
    except OSError as error:
        problem = idle.trace_problem(error)
        return Check(name, "not usable", problem.why, lost, problem.fix)
    return Check(name, "usable", "counted in the kernel by eBPF on cpu_idle")


def _kernel_checks(root: Path) -> Iterator[Check]:
    """Yields the checks of cpuidle, cpufreq, tasks, the NMI watchdog, and the clock."""
    driver = files.read_word(f"{root}/{files.CPU_DIRECTORY}/cpuidle/current_driver")
    if driver in {"", "none"}:
        reason = "no cpuidle driver here"
        yield Check("idle states", "limited", reason, "idle times finer than /proc/stat's 10 ms")
    else:
        yield Check("idle states", "usable", f"cpuidle driver {driver}")
    driver = files.read_word(f"{root}/{files.CPU_DIRECTORY}/cpu0/cpufreq/scaling_driver")
    if not driver:
        reason = "no cpufreq driver (usual in a guest)"
        yield Check("cpufreq", "not usable", reason, "clocks and limits reported by the kernel")
    else:
        governor = clues.governor(root, 0) or "unknown"
        yield Check("cpufreq", "usable", f"driver {driver}, governor {governor}")
    lost = "which tasks run on a CPU"
    if next(root.glob("proc/[0-9]*"), None) is None:
        yield Check("tasks", "not usable", f"no process in {root / 'proc'}", lost)
    elif (hidden := access.hidden_tasks_problem(root)) is not None:
        lost = f"{lost}, where they are hidden"
        yield Check("tasks", "limited", hidden.why, lost, hidden.fix)
    else:
        yield Check("tasks", "usable", "all processes are visible in /proc")
    if disturbance.CONDITIONS["NMI watchdog"].state(root).state == "matters":
        reason = "on: it uses one counter of every CPU"
        lost = "kernel instructions or the SMT event, where counters are few"
        fix = disturbance.WATCHDOG_OFF_COMMAND
        yield Check("NMI watchdog", "limited", reason, lost, fix)
    else:
        yield Check("NMI watchdog", "usable", "off: it uses no counter")
    source = identity.clocksource(root) or "unknown"
    if {"constant_tsc", "nonstop_tsc"} <= set(identity.cpu_flags(root) or ()):
        yield Check("clock", "usable", f"clocksource {source}; TSC invariant")
    else:
        text = f"clocksource {source}; TSC not known to be invariant"
        yield Check("clock", "limited", text, "reliable shares while the clock changes")
