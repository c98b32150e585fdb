"""Reads conditions of a machine that make measurements vary, such as turbo and other load. `doctor`
lists them as readiness items; other commands list those that may have disturbed a measurement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfprobe.cpu import cpu_sets, files, identity
from perfprobe.cpu.files import CPU_DIRECTORY
from perfprobe.kernel import access, clues
from perfprobe.kernel.cgroups import Quotas

WATCHDOG_OFF_COMMAND = "sudo sysctl kernel.nmi_watchdog=0"
DEFAULT_SLACK_NS = 50_000  # the kernel's default timer slack
MAX_QUIET_LOAD = 0.1
"""Maximum load average per CPU of a quiet system."""

Readiness = Literal["ready", "matters", "unknown"]


@dataclass(frozen=True, slots=True)
class ConditionItem:
    """A condition of the machine, and whether it matters for measurements."""

    what: str
    state: Readiness
    now: str
    """The current state, in words."""
    effect: str | None = None
    change: str | None = None
    value: str = ""
    """The current state as a word that `doctor --check` compares; '' if unknown."""


def hypervisor_item(root: Path) -> ConditionItem:
    guest = identity.virtualisation(root)
    if guest is None:
        return ConditionItem("hypervisor", "ready", "none", value="none")
    return ConditionItem(
        "hypervisor", "matters", "a VM" if guest == "hypervisor" else guest,
        "the hypervisor may take time, and the host sets the clock: check steal, repeat runs",
        "a dedicated or metal instance, virtual CPUs pinned by the host", value="guest",
    )  # fmt: skip


def governor_item(root: Path, cpus: Iterable[int] | None = None) -> ConditionItem:
    """Returns the condition "governor" of `cpus` (None: of all CPUs)."""
    numbers = files.numbered_entries(f"{root}/{CPU_DIRECTORY}", "cpu") if cpus is None else cpus
    cpus_by_governor: dict[str, list[int]] = {}
    for cpu in numbers:
        if name := clues.governor(root, cpu):
            cpus_by_governor.setdefault(name, []).append(cpu)
    if not cpus_by_governor:
        return ConditionItem("governor", "unknown", _why_unknown(root))
    if set(cpus_by_governor) == {"performance"}:
        return ConditionItem("governor", "ready", "performance", value="performance")
    text = ", ".join(cpus_by_governor)
    if len(cpus_by_governor) > 1:
        text = ", ".join(
            f"{name} on CPUs {cpu_sets.format(cpus)}" for name, cpus in cpus_by_governor.items()
        )
    return ConditionItem(
        "governor", "matters", text,
        "the clock follows the load, or is held low: short runs are slow at first",
        f"echo performance | sudo tee /{CPU_DIRECTORY}/cpu*/cpufreq/scaling_governor",
        ",".join(cpus_by_governor),
    )  # fmt: skip


def _why_unknown(root: Path) -> str:
    guest = identity.virtualisation(root) is not None
    return "set by the host" if guest else "not reported by the kernel"


def turbo_item(root: Path) -> ConditionItem:
    is_on = clues.is_turbo_on(root)
    if is_on is None:
        return ConditionItem("turbo", "unknown", _why_unknown(root))
    if not is_on:
        state_text = "off: only heat and power limits lower the clock"
        return ConditionItem("turbo", "ready", state_text, value="off")
    by_hand = f"echo 0 | sudo tee /{CPU_DIRECTORY}/cpufreq/boost"
    if files.read_number(f"{root}/{CPU_DIRECTORY}/intel_pstate/no_turbo") is not None:
        by_hand = f"echo 1 | sudo tee /{CPU_DIRECTORY}/intel_pstate/no_turbo"
    return ConditionItem(
        "turbo", "matters", "on",
        "the clock depends on active cores, heat and power: report turbo with your results",
        by_hand, "on",
    )  # fmt: skip


def _smt_item(root: Path) -> ConditionItem:
    active = files.read_number(f"{root}/{CPU_DIRECTORY}/smt/active")
    if active is None:
        return ConditionItem("SMT", "unknown", "not reported by the kernel")
    if active == 0:
        if identity.virtualisation(root) is None:
            return ConditionItem("SMT", "ready", "off", value="off")
        return ConditionItem(
            "SMT", "unknown", "off as this guest sees it; its CPUs may still share cores"
        )
    return ConditionItem(
        "SMT", "matters", "on",
        "a task on a core's other thread uses its units too, and slows yours",
        f"echo off | sudo tee /{CPU_DIRECTORY}/smt/control; or leave every second thread idle",
        "on",
    )  # fmt: skip


def _load_item(root: Path) -> ConditionItem:
    words = files.read_text(f"{root}/proc/loadavg").split()
    online = files.read_cpu_list(f"{root}/{CPU_DIRECTORY}/online")
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return ConditionItem("other load", "unknown", "/proc/loadavg cannot be read")
    if not online:
        return ConditionItem("other load", "unknown", "the number of online CPUs cannot be read")
    now = f"a load of {load:g} on {len(online)} CPUs in the last minute"
    if load < MAX_QUIET_LOAD * len(online):
        return ConditionItem("other load", "ready", now, value="idle")
    return ConditionItem(
        "other load", "matters", now, "siblings, caches, memory and turbo are shared with it",
        "find it with perftop, then stop it or pin it elsewhere", "busy",
    )  # fmt: skip


def _isolated_cpus_item(root: Path) -> ConditionItem:
    sets = {
        name: files.read_cpu_list(f"{root}/{CPU_DIRECTORY}/{file}")
        for name, file in (("isolcpus", "isolated"), ("nohz_full", "nohz_full"))
    }
    set_texts = [f"{name} {cpu_sets.format(cpus)}" for name, cpus in sets.items() if cpus]
    if sets["isolcpus"]:
        return ConditionItem(
            "isolated CPUs", "ready", ", ".join(set_texts),
            "only pinned tasks and the kernel's own run there: pin the benchmark",
            value=cpu_sets.format(sets["isolcpus"]),
        )  # fmt: skip
    if set_texts:
        return ConditionItem(
            "isolated CPUs", "matters", ", ".join(set_texts),
            "no tick where one task runs alone, but other tasks may run there too",
            "boot with isolcpus=LIST as well", "none",
        )  # fmt: skip
    return ConditionItem(
        "isolated CPUs", "matters", "none",
        "the tick and other tasks may disturb every CPU",
        "boot with isolcpus=LIST nohz_full=LIST; or repeat, and take the least disturbed run",
        "none",
    )  # fmt: skip


def nmi_watchdog_item(root: Path) -> ConditionItem:
    state = files.read_number(f"{root}/proc/sys/kernel/nmi_watchdog")
    if state is None:
        return ConditionItem("NMI watchdog", "unknown", "not reported by this kernel")
    if state == 0:
        return ConditionItem("NMI watchdog", "ready", "off", value="off")
    return ConditionItem(
        "NMI watchdog", "matters", "on",
        "it interrupts every CPU now and then, and usually uses one hardware counter of each",
        WATCHDOG_OFF_COMMAND, "on",
    )  # fmt: skip


def _timer_slack_item(root: Path) -> ConditionItem:
    """Returns the condition "timer slack": the time by which the kernel may delay timers of this
    process. A benchmark that is started from the same shell has the same slack."""
    slack_ns = files.read_number(f"{root}/proc/self/timerslack_ns")
    if slack_ns is None:
        return ConditionItem("timer slack", "unknown", "/proc/self/timerslack_ns cannot be read")
    state_text = f"{slack_ns / 1000:g} µs"
    if slack_ns < DEFAULT_SLACK_NS:
        return ConditionItem("timer slack", "ready", state_text, value=state_text)
    return ConditionItem(
        "timer slack", "matters", state_text, "a sleep may end this much later",
        "echo 1 | sudo tee /proc/PID/timerslack_ns, or prctl(PR_SET_TIMERSLACK, 1)", state_text,
    )  # fmt: skip


def _quota_item(root: Path) -> ConditionItem:
    """Returns the condition "CPU quota" of this process. A benchmark that is started from the same
    shell has the same quota."""
    pid = files.read_text(f"{root}/proc/self/stat").split(" ", 1)[0]
    if not pid.isdecimal():
        return ConditionItem("CPU quota", "unknown", "/proc/self/stat cannot be read")
    usages, _ = Quotas(root).read_usages([int(pid)])
    limits = {group: float(usage[0]) for group, usage in usages.items()}
    if not limits:
        return ConditionItem("CPU quota", "ready", "none", value="none")
    group = min(limits, key=lambda name: limits[name])
    cpus = f"{limits[group]:.3g}"
    return ConditionItem(
        "CPU quota", "matters", f"{cpus} CPUs, of the control group {group}",
        "once it is used up, all tasks of the group are stopped until the next period",
        "a higher quota: the pod's limits.cpu, docker --cpus, systemd's CPUQuota=", cpus,
    )  # fmt: skip


def _cpu_mask_item(root: Path) -> ConditionItem:
    allowed = access.allowed_cpus(root)
    online = set(files.read_cpu_list(f"{root}/{CPU_DIRECTORY}/online"))
    if not allowed or not online:
        return ConditionItem("CPU mask", "unknown", "/proc/self/status cannot be read")
    if online <= allowed:
        return ConditionItem(
            "CPU mask", "ready", f"none: all {len(online)} CPUs may be used", value="none"
        )
    usable = allowed & online
    state_text = f"{len(usable)} of {len(online)} CPUs: {cpu_sets.format(usable)}"
    return ConditionItem(
        "CPU mask", "matters", state_text,
        "if there are more threads than these CPUs, they wait for each other",
        "taskset, the cpuset of the container, or --cpus-per-task of the Slurm job",
        cpu_sets.format(usable),
    )  # fmt: skip


def _clock_source_item(root: Path) -> ConditionItem:
    name = identity.clocksource(root)
    if name is None:
        return ConditionItem("clock source", "unknown", "not reported by the kernel")
    if name not in clues.SLOW_CLOCKS:
        return ConditionItem("clock source", "ready", name, value=name)
    return ConditionItem(
        "clock source", "matters", name,
        "each read of the time takes a microsecond or more, in the kernel",
        "boot with clocksource=tsc tsc=reliable, if the TSC can be trusted", name,
    )  # fmt: skip


CONDITIONS = (
    hypervisor_item, governor_item, turbo_item, _smt_item, _quota_item, _cpu_mask_item, _load_item,
    _isolated_cpus_item, nmi_watchdog_item, _timer_slack_item, _clock_source_item,
)  # fmt: skip
"""Functions that read the conditions, the most important condition first."""


def condition_items(root: Path = Path("/")) -> list[ConditionItem]:
    return [condition(root) for condition in CONDITIONS]
