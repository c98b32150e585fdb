"""What this user may read on this machine, why not the rest, and which conditions make benchmarks
vary: the checks and the readiness items of `doctor`.

No check changes anything. Fixes must work for a Python program: capabilities on a script have no
effect, so none of them is setcap.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfprobe.cpu import cpu_sets, files, identity, topology
from perfprobe.cpu.files import CPUS
from perfprobe.kernel import access, idle_trace, settings
from perfprobe.kernel.idle_trace import IdleTrace
from perfprobe.perf import perf_pmus, uncore
from perfprobe.polled import procstat
from perfprobe.programming import journal
from perfprobe.registers import msr

COUNTED = "clock, IPC, kernel share, halts, exact SMT states"

State = Literal["usable", "limited", "not usable"]


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    state: State
    why: str
    lost: str | None = None
    """What perftop cannot show without it."""
    fix: str | None = None


def checks(root: Path = Path("/")) -> list[Check]:
    """All checks, the most important first."""
    return [
        _cpus(root),
        *_proc(root),
        _perf(root),
        _memory(root),
        _msr(root),
        _traced(root),
        _idle(root),
        _cpufreq(root),
        _tasks(root),
        _watchdog(root),
        _clock(root),
    ]


def _cpus(root: Path) -> Check:
    rows = topology.read(root)
    online = {row.cpu for row in rows if row.online}
    what = "CPUs"
    if root != Path("/"):
        return Check(what, "usable", f"{len(online)} on, as the files below {root} say")
    allowed = access.own_status(root, "Cpus_allowed_list")
    ours = set(cpu_sets.parse(allowed[0])) if allowed else os.sched_getaffinity(0)
    outside = sorted(online - ours)
    if outside:
        return Check(
            what,
            "limited",
            f"CPUs {cpu_sets.format(outside)} are outside perftop's CPU set",
            "their own counters and idle times; /proc/stat serves in steps of 10 ms",
            "start perftop outside the container or cpuset",
        )
    return Check(what, "usable", f"{len(online)} on, all of them may be read by a pinned thread")


def _proc(root: Path) -> Iterator[Check]:
    """Only where it is missing, as in a chroot: all else rests on it."""
    try:
        (root / "proc/stat").open("rb").close()
    except OSError as error:
        why = f"/proc/stat cannot be read: {error.strerror}"
        lost = "utilisation, steal, tasks, waits; what this machine is, and whether it is a guest"
        yield Check("/proc", "not usable", why, lost, procstat.mount(root))


def _perf(root: Path) -> Check:
    what = "perf counters"
    core = [pmu.name for pmu in perf_pmus.cores(root)]
    if not core:
        trouble = access.no_pmu(root)
        return Check(what, "not usable", trouble.why, COUNTED, trouble.fix)
    said = f"core PMU {', '.join(core)}"
    refused = access.perf_refused(root)
    if refused is not None:
        return Check(what, "not usable", refused.why, COUNTED, refused.fix)
    if access.capable(root, access.CAP_PERFMON, access.CAP_SYS_ADMIN):
        return Check(what, "usable", f"{said}; CAP_PERFMON")
    level = files.number(f"{root}/proc/sys/kernel/perf_event_paranoid")
    if access.is_seccomp_filtered(root):
        why = f"{said}; a container's seccomp filter may still refuse it"
        fix = "allow perf_event_open in the container's seccomp profile"
        return Check(what, "limited", why, COUNTED, fix)
    return Check(what, "usable", f"{said}; perf_event_paranoid {level}")


def _memory(root: Path) -> Check:
    what, lost = "memory bandwidth", "traffic to memory, neighbours that take it"
    found = uncore.controllers(root)
    trouble = access.perf_refused(root) if found else uncore.absent(root)
    if trouble is not None:
        return Check(what, "not usable", trouble.why, lost, trouble.fix)
    first, last = found[0].pmu.name, found[-1].pmu.name
    return Check(what, "usable", f"PMU {first}" + (f" to {last}" if last != first else ""))


def _msr(root: Path) -> Check:
    what = "MSRs"
    lost = "temperature, limit reasons, turbo ratios, C-state residency; --source msr"
    left = [
        entry
        for directory in journal.directories()
        for entry in journal.stale(directory, identity.boot_id(root), root)
    ]
    if left:
        pids = ", ".join(str(entry.pid) for entry in left)
        why = f"a killed perftop (pid {pids}) has left counters programmed: {left[0].path} knows"
        return Check(what, "limited", why, lost, "the next perftop --source msr restores them")
    there = (root / f"dev/cpu/{n}/msr" for n in files.numbered(f"{root}/dev/cpu", ""))
    first = next((path for path in there if path.exists()), None)
    if first is None:
        guest = identity.virtualisation(root)
        fix = "sudo modprobe msr" if guest is None else None
        where = " in this guest" if guest else ""
        return Check(what, "not usable", f"no /dev/cpu/N/msr{where}", lost, fix)
    try:
        os.close(msr.open_device(root, int(first.parent.name), os.O_RDONLY))
    except OSError as error:
        why = f"{first}: {error.strerror}; needs root and CAP_SYS_RAWIO"
        return Check(what, "not usable", why, lost, access.as_root(root, "CAP_SYS_RAWIO"))
    writes = files.word(f"{root}/sys/module/msr/parameters/allow_writes")
    lockdown = files.text(f"{root}/sys/kernel/security/lockdown") or "[none]"
    blocked = []
    if writes == "off":
        blocked.append("msr.allow_writes is off")
    if "[none]" not in lockdown:
        blocked.append("the kernel is locked down")
    if blocked:
        why = f"readable, not writable: {' and '.join(blocked)}"
        return Check(what, "limited", why, "--source msr", None)
    return Check(what, "usable", "readable")


def _traced(root: Path) -> Check:
    what = "idle transitions"
    lost = "exact busy times; SMT states of cores without counters are bounds only"
    if root != Path("/"):
        return Check(what, "not usable", "not below a sysroot", lost)
    try:
        IdleTrace({min(os.sched_getaffinity(0)): (0, 0)}, settle=False).close()
    except OSError as error:
        trouble = idle_trace.trouble(error)
        return Check(what, "not usable", trouble.why, lost, trouble.fix)
    return Check(what, "usable", "counted in the kernel by eBPF on cpu_idle")


def _idle(root: Path) -> Check:
    driver = files.word(f"{root}/{files.CPUS}/cpuidle/current_driver")
    if driver in {"", "none"}:
        why = "no cpuidle driver here"
        return Check("idle states", "limited", why, "idle times finer than /proc/stat's 10 ms")
    return Check("idle states", "usable", f"cpuidle driver {driver}")


def _cpufreq(root: Path) -> Check:
    at = f"{root}/{files.CPUS}/cpu0/cpufreq"
    driver = files.word(f"{at}/scaling_driver")
    if not driver:
        why = "no cpufreq driver (usual in a guest)"
        return Check("cpufreq", "not usable", why, "the system's own idea of clocks and limits")
    governor = settings.governor(root, 0) or "unknown"
    return Check("cpufreq", "usable", f"driver {driver}, governor {governor}")


def _tasks(root: Path) -> Check:
    what, lost = "tasks", "who runs on a CPU"
    if next(root.glob("proc/[0-9]*"), None) is None:
        return Check(what, "not usable", f"no process in {root / 'proc'}", lost)
    hidden = access.hidden_tasks(root)
    if hidden is not None:
        return Check(what, "limited", hidden.why, f"{lost}, if it is one of these", hidden.fix)
    return Check(what, "usable", "every process shows in /proc")


def _watchdog(root: Path) -> Check:
    what = "NMI watchdog"
    if files.number(f"{root}/proc/sys/kernel/nmi_watchdog") == 1:
        return Check(
            what,
            "limited",
            "on: it holds one counter of every CPU",
            "kernel instructions or the SMT event, where counters are few",
            "sudo sysctl kernel.nmi_watchdog=0",
        )
    return Check(what, "usable", "off: it holds no counter")


def _clock(root: Path) -> Check:
    source = identity.clocksource(root) or "unknown"
    invariant = {"constant_tsc", "nonstop_tsc"} <= set(identity.flags(root) or ())
    text = f"clocksource {source}; TSC {'invariant' if invariant else 'not known to be invariant'}"
    if not invariant:
        return Check("clock", "limited", text, "trust in shares over changes of the clock")
    return Check("clock", "usable", text)


# --- readiness for benchmarks ---------------------------------------------------------------------

DEFAULT_SLACK_NS = 50_000
BUSY = 0.1
"""Load per CPU; quiet systems stay below it."""

Readiness = Literal["ready", "matters", "unknown"]


@dataclass(frozen=True, slots=True)
class Item:
    what: str
    state: Readiness
    now: str
    effect: str | None = None
    """The effect on measurements."""
    change: str | None = None
    """How the user can change it."""


def items(root: Path = Path("/")) -> list[Item]:
    """All items, the most important first."""
    return [
        _hypervisor(root),
        _governor(root),
        _turbo(root),
        _smt(root),
        _load(root),
        _isolated(root),
        _watchdog_readiness(root),
        _slack(root),
    ]


def _hypervisor(root: Path) -> Item:
    guest = identity.virtualisation(root)
    if guest is None:
        return Item("hypervisor", "ready", "none")
    return Item(
        "hypervisor", "matters", "a guest" if guest == "hypervisor" else guest,
        "time may be stolen; the host sets clock and siblings: watch steal, repeat runs",
        "a dedicated or metal instance, virtual CPUs pinned by the host",
    )  # fmt: skip


def _governor(root: Path) -> Item:
    numbers = files.numbered(f"{root}/{CPUS}", "cpu")
    found: dict[str, list[int]] = {}
    for cpu in numbers:
        if name := settings.governor(root, cpu):
            found.setdefault(name, []).append(cpu)
    if not found:
        return Item("governor", "unknown", _unsaid(root))
    if set(found) == {"performance"}:
        return Item("governor", "ready", "performance")
    text = ", ".join(found)
    if len(found) > 1:
        text = ", ".join(f"{name} on CPUs {cpu_sets.format(cpus)}" for name, cpus in found.items())
    return Item(
        "governor", "matters", text,
        "the clock follows the load, or is held low: short runs are slow at first",
        f"echo performance | sudo tee /{CPUS}/cpu*/cpufreq/scaling_governor",
    )  # fmt: skip


def _unsaid(root: Path) -> str:
    guest = identity.virtualisation(root) is not None
    return "the host decides" if guest else "the kernel does not say"


def _turbo(root: Path) -> Item:
    on = settings.turbo_on(root)
    if on is None:
        return Item("turbo", "unknown", _unsaid(root))
    if not on:
        return Item("turbo", "ready", "off: only heat and limits of power lower the clock")
    by_hand = (
        f"echo 1 | sudo tee /{CPUS}/intel_pstate/no_turbo"
        if files.number(f"{root}/{CPUS}/intel_pstate/no_turbo") is not None
        else f"echo 0 | sudo tee /{CPUS}/cpufreq/boost"
    )
    return Item(
        "turbo", "matters", "on",
        "the clock depends on active cores, heat and power: say in results that it is on",
        by_hand,
    )  # fmt: skip


def _smt(root: Path) -> Item:
    active = files.number(f"{root}/{CPUS}/smt/active")
    if active is None:
        return Item("SMT", "unknown", "the kernel does not say")
    if active == 0:
        if identity.virtualisation(root) is None:
            return Item("SMT", "ready", "off")
        return Item("SMT", "unknown", "off as this guest sees it; its CPUs may still share cores")
    return Item(
        "SMT", "matters", "on",
        "a task on a core's other thread uses its units too, and slows yours",
        f"echo off | sudo tee /{CPUS}/smt/control; or leave every second thread idle",
    )  # fmt: skip


def _load(root: Path) -> Item:
    words = (files.text(f"{root}/proc/loadavg") or "").split()
    online = files.cpus(f"{root}/{CPUS}/online")
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return Item("other load", "unknown", "/proc/loadavg cannot be read")
    if not online:
        return Item("other load", "unknown", "the number of online CPUs cannot be read")
    now = f"a load of {load:g} on {len(online)} CPUs in the last minute"
    if load < BUSY * len(online):
        return Item("other load", "ready", now)
    return Item(
        "other load", "matters", now, "siblings, caches, memory and turbo are shared with it",
        "perftop shows who it is; end it, or pin it elsewhere",
    )  # fmt: skip


def _isolated(root: Path) -> Item:
    sets = {
        name: files.cpus(f"{root}/{CPUS}/{file}")
        for name, file in (("isolcpus", "isolated"), ("nohz_full", "nohz_full"))
    }
    found = [f"{name} {cpu_sets.format(cpus)}" for name, cpus in sets.items() if cpus]
    if sets["isolcpus"]:
        return Item(
            "isolated CPUs", "ready", ", ".join(found),
            "only pinned tasks and the kernel's own run there: pin the benchmark",
        )  # fmt: skip
    if found:
        return Item(
            "isolated CPUs", "matters", ", ".join(found),
            "no tick where one task runs alone, but other tasks may run there too",
            "boot with isolcpus=LIST as well",
        )  # fmt: skip
    return Item(
        "isolated CPUs", "matters", "none",
        "the tick and other tasks may disturb every CPU",
        "boot with isolcpus=LIST nohz_full=LIST; or repeat, and take the least disturbed run",
    )  # fmt: skip


def _watchdog_readiness(root: Path) -> Item:
    state = files.number(f"{root}/proc/sys/kernel/nmi_watchdog")
    if state is None:
        return Item("NMI watchdog", "unknown", "this kernel has none, or does not say")
    if state == 0:
        return Item("NMI watchdog", "ready", "off")
    return Item(
        "NMI watchdog", "matters", "on",
        "it interrupts now and then, and mostly holds a counter of every CPU",
        "sudo sysctl kernel.nmi_watchdog=0",
    )  # fmt: skip


def _slack(root: Path) -> Item:
    """This process's timer slack, which a benchmark from the same shell inherits too."""
    slack = files.number(f"{root}/proc/self/timerslack_ns")
    if slack is None:
        return Item("timer slack", "unknown", "/proc/self/timerslack_ns cannot be read")
    now = f"{slack / 1000:g} µs"
    if slack < DEFAULT_SLACK_NS:
        return Item("timer slack", "ready", now)
    return Item(
        "timer slack", "matters", now, "a sleep may end that much later than asked for",
        "echo 1 | sudo tee /proc/PID/timerslack_ns, or prctl(PR_SET_TIMERSLACK, 1)",
    )  # fmt: skip
