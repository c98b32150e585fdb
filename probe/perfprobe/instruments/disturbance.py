"""Reads conditions of a machine that make measurements vary, such as turbo and other load, and
reports those that disturbed a measurement on a CPU, with their effect: other tasks, interrupts,
stolen time, and conditions that change the CPU's clock. `doctor` lists the conditions as readiness
items."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfprobe.cpu import cpu_sets, files, identity
from perfprobe.cpu.files import CPU_DIRECTORY
from perfprobe.kernel import access, clues
from perfprobe.kernel.cgroups import Quotas
from perfprobe.kernel.interrupts import STAT_FIELDS, parse_table, parse_ticks
from perfprobe.polled.proc_counts import TICK_S

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


# --- what disturbed a measurement -----------------------------------------------------------------

MAX_BYTES = 1 << 24
"""Maximum number of bytes read from /proc/stat and /proc/interrupts. The latter has a line for
each interrupt vector, with 11 bytes for each CPU."""
MAX_INTERRUPT_NAMES = 3
"""Maximum number of interrupt sources that a report names. It also has the sum over all sources."""
MIN_BUSY_SHARE = 0.02
"""Share of time above which an SMT sibling counts as busy; timers of the kernel use less."""

IDLE_FIELDS = (STAT_FIELDS.index("idle"), STAT_FIELDS.index("iowait"))
STEAL_FIELDS = (STAT_FIELDS.index("steal"),)
BUSY_FIELDS = tuple(set(range(len(STAT_FIELDS))) - set(IDLE_FIELDS))
Ticks = Mapping[int, Sequence[int]]
"""By CPU: cumulative ticks (of TICK_S seconds) in /proc/stat, in the order of STAT_FIELDS."""


Disturbance = dict[str, str]
"""A disturbance in the JSON output: "what" (its source), "found", and "matters" (its effect)."""


@dataclass(frozen=True, slots=True)
class CpuCounts:
    """Cumulative counts that show disturbances of the calling thread and of one CPU."""

    switches: int
    """Involuntary context switches of the calling thread."""
    interrupts: dict[str, int]
    """The CPU's interrupts by source; empty where the kernel does not count them."""
    ticks: Ticks
    idle_s: float | None = None
    """The CPU's idle time in s, with a resolution of 1 us; None without a cpuidle driver."""


def read_counts(cpu: int, root: Path = Path("/")) -> CpuCounts:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    text = files.read_head(f"{root}/proc/interrupts", MAX_BYTES)
    return CpuCounts(
        usage.ru_nivcsw, parse_interrupts(text, cpu), read_ticks(root), _idle_s(root, cpu)
    )


def read_ticks(root: Path = Path("/")) -> Ticks:
    return parse_ticks(files.read_head(f"{root}/proc/stat", MAX_BYTES))


def parse_interrupts(text: str, cpu: int) -> dict[str, int]:
    """Returns a CPU's interrupts in the text of /proc/interrupts, by device or kind."""
    table, counts = parse_table(text), dict[str, int]()
    for label, count in table.counts(cpu).items():
        words = table.description(label).split()
        if words and count.strip().isdecimal():
            name = " ".join(words) if label.isalpha() else words[-1]
            counts[name] = counts.get(name, 0) + int(count)
    return counts


def _idle_s(root: Path, cpu: int) -> float | None:
    """Returns the CPU's idle time in s; None without cpuidle files. The kernel adds the time in an
    idle state when the CPU leaves the state, so the sum is complete if the CPU itself reads it."""
    times = [files.read_number(f"{path}/time") for path in clues.idle_state_paths(root, cpu)]
    known_times = [time for time in times if time is not None]
    return sum(known_times) / 1e6 if known_times else None


# --- differences between two readings -------------------------------------------------------------


def seconds_of_ticks(before: Ticks, after: Ticks, cpu: int, fields: Sequence[int]) -> float | None:
    """Returns a CPU's seconds in these fields of /proc/stat; None if it does not list the CPU."""
    first, last = before.get(cpu), after.get(cpu)
    if first is None or last is None:
        return None
    return sum(last[i] - first[i] for i in fields) * TICK_S


def share_of_ticks(before: Ticks, after: Ticks, cpu: int, fields: Sequence[int]) -> float | None:
    """Returns a CPU's share of time in these fields of /proc/stat; None if unknown."""
    part = seconds_of_ticks(before, after, cpu, fields)
    total_s = seconds_of_ticks(before, after, cpu, range(len(STAT_FIELDS)))
    return part / total_s if part is not None and total_s is not None and total_s > 0 else None


def changes_during(
    cpu: int, siblings: Sequence[int], before: CpuCounts, after: CpuCounts
) -> dict[str, float | None]:
    """Returns a CPU's idle and stolen seconds, interrupts and context switches between two
    readings, and the total idle seconds of `siblings`, the core's other CPUs; None if unknown."""
    idle = [
        seconds_of_ticks(before.ticks, after.ticks, sibling, IDLE_FIELDS) for sibling in siblings
    ]
    known_idle_s = [seconds for seconds in idle if seconds is not None]
    idle_s = seconds_of_ticks(before.ticks, after.ticks, cpu, IDLE_FIELDS)
    if before.idle_s is not None and after.idle_s is not None:
        idle_s = after.idle_s - before.idle_s
    interrupt_count = sum(after.interrupts.values()) - sum(before.interrupts.values())
    amounts = {
        "idle_s": idle_s,
        "steal_s": seconds_of_ticks(before.ticks, after.ticks, cpu, STEAL_FIELDS),
        "interrupts": interrupt_count if before.interrupts and after.interrupts else None,
        "siblings_idle_s": sum(known_idle_s)
        if known_idle_s and len(known_idle_s) == len(idle)
        else None,
        "switches": after.switches - before.switches,
    }
    return {key: None if value is None else round(value, 6) for key, value in amounts.items()}


def disturbances_during(
    cpu: int, siblings: Sequence[int], before: CpuCounts, after: CpuCounts, root: Path = Path("/")
) -> list[Disturbance]:
    """Returns the disturbances between two readings; `siblings` are the core's other CPUs."""
    lasting = (governor_item(root, [cpu]), turbo_item(root))
    return [
        *_lasting_conditions(*lasting),
        *_disturbances(cpu, siblings, before, after),
        *_lasting_conditions(hypervisor_item(root)),
    ]


LASTING_CONDITIONS = {
    "governor": "the core's clock follows the load, or is held low; costs change with it",
    "turbo": "the core's clock depends on what the other cores do",
    "hypervisor": "CPUID, and most reads of MSRs, leave the guest",
}
"""Conditions of the machine that affect a whole short measurement, and their effect."""


def _lasting_conditions(*items: ConditionItem) -> Iterator[Disturbance]:
    """Yields the conditions that matter, as disturbances of the whole measurement."""
    for item in items:
        if item.state == "matters":
            yield _disturbance(item.what, item.now, LASTING_CONDITIONS[item.what])


def _disturbance(what: str, found: str, matters: str) -> Disturbance:
    return {"what": what, "found": found, "matters": matters}


def _disturbances(
    cpu: int, siblings: Sequence[int], before: CpuCounts, after: CpuCounts
) -> Iterator[Disturbance]:
    """Yields busy siblings, interrupts, switches to other tasks, and stolen time."""
    for sibling in siblings:
        asleep = share_of_ticks(before.ticks, after.ticks, sibling, IDLE_FIELDS)
        if asleep is not None and 1 - asleep > MIN_BUSY_SHARE:
            result = f"{100 * (1 - asleep):.0f} % busy"
            yield _disturbance(f"SMT sibling CPU {sibling}", result, "it shares the core's units")
    counts = ((n - before.interrupts.get(name, 0), name) for name, n in after.interrupts.items())
    largest_counts = sorted((pair for pair in counts if pair[0] > 0), reverse=True)
    if largest_counts:
        source_names = ", ".join(f"{n} {name}" for n, name in largest_counts[:MAX_INTERRUPT_NAMES])
        text = f"{sum(n for n, _ in largest_counts)} on CPU {cpu}: {source_names}"
        effect = "a sample that contains one is longer; the mean leaves out the longest samples"
        yield _disturbance("interrupts", text, effect)
    if switches := after.switches - before.switches:
        times = "once" if switches == 1 else f"{switches} times"
        result = f"another task ran {times}"
        yield _disturbance("scheduler", result, "the caches are cold afterwards")
    if steal_share := share_of_ticks(before.ticks, after.ticks, cpu, STEAL_FIELDS):
        result = f"{100 * steal_share:.0f} % of CPU {cpu}"
        yield _disturbance("steal", result, "the hypervisor ran something else on it")
