"""Conditions of a machine that make measurements vary, such as turbo and other load; `doctor` lists
them as readiness items. Also reports what disturbed a measurement on a CPU, with its effect: other
tasks, interrupts, stolen time, and conditions that change the CPU's clock."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
class State:
    """The current state of a condition, and whether it matters for measurements."""

    state: Readiness
    now: str
    """The current state, in words."""
    effect: str | None = None
    change: str | None = None
    value: str = ""
    """The current state as a word that `doctor --check` compares; '' if unknown."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the machine. `effect` and `change` are what it does to measurements while it
    matters, and what would change it, unless `read` returns other texts."""

    read: Callable[[Path], State]
    effect: str = ""
    change: str = ""
    lasting_effect: str = ""
    """The effect on the whole of a short measurement; '': none, or not reported."""

    def state(self, root: Path) -> State:
        result = self.read(root)
        if result.state != "matters":
            return result
        effect, change = result.effect or self.effect, result.change or self.change
        return replace(result, effect=effect, change=change)


def _read_hypervisor(root: Path) -> State:
    guest = identity.virtualisation(root)
    if guest is None:
        return State("ready", "none", value="none")
    return State("matters", "a VM" if guest == "hypervisor" else guest, value="guest")


def _read_governor(root: Path, cpus: Iterable[int] | None = None) -> State:
    """Reads the governors of `cpus` (None: of all CPUs)."""
    numbers = files.numbered_entries(f"{root}/{CPU_DIRECTORY}", "cpu") if cpus is None else cpus
    cpus_by_governor: dict[str, list[int]] = {}
    for cpu in numbers:
        if name := clues.governor(root, cpu):
            cpus_by_governor.setdefault(name, []).append(cpu)
    if not cpus_by_governor:
        return State("unknown", _why_unknown(root))
    if set(cpus_by_governor) == {"performance"}:
        return State("ready", "performance", value="performance")
    texts = [*cpus_by_governor]
    if len(texts) > 1:
        texts = [
            f"{name} on CPUs {cpu_sets.format(cpus)}" for name, cpus in cpus_by_governor.items()
        ]
    return State("matters", ", ".join(texts), value=",".join(cpus_by_governor))


def _why_unknown(root: Path) -> str:
    guest = identity.virtualisation(root) is not None
    return "set by the host" if guest else "not reported by the kernel"


def _read_turbo(root: Path) -> State:
    is_on = clues.is_turbo_on(root)
    if is_on is None:
        return State("unknown", _why_unknown(root))
    if not is_on:
        return State("ready", "off: only heat and power limits lower the clock", value="off")
    by_hand = f"echo 0 | sudo tee /{CPU_DIRECTORY}/cpufreq/boost"
    if files.read_number(f"{root}/{CPU_DIRECTORY}/intel_pstate/no_turbo") is not None:
        by_hand = f"echo 1 | sudo tee /{CPU_DIRECTORY}/intel_pstate/no_turbo"
    return State("matters", "on", change=by_hand, value="on")


def _read_smt(root: Path) -> State:
    active = files.read_number(f"{root}/{CPU_DIRECTORY}/smt/active")
    if active is None:
        return State("unknown", "not reported by the kernel")
    if active == 0 and identity.virtualisation(root) is None:
        return State("ready", "off", value="off")
    if active == 0:
        return State("unknown", "off as this guest sees it; its CPUs may still share cores")
    return State("matters", "on", value="on")


def _read_load(root: Path) -> State:
    words = files.read_text(f"{root}/proc/loadavg").split()
    online = files.read_cpu_list(f"{root}/{CPU_DIRECTORY}/online")
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return State("unknown", "/proc/loadavg cannot be read")
    if not online:
        return State("unknown", "the number of online CPUs cannot be read")
    now = f"a load of {load:g} on {len(online)} CPUs in the last minute"
    if load < MAX_QUIET_LOAD * len(online):
        return State("ready", now, value="idle")
    return State("matters", now, value="busy")


def _read_isolated_cpus(root: Path) -> State:
    isolated, tickless = (
        cpu_sets.format(files.read_cpu_list(f"{root}/{CPU_DIRECTORY}/{file}"))
        for file in ("isolated", "nohz_full")
    )
    texts = [f"isolcpus {isolated}"] if isolated else []
    texts += [f"nohz_full {tickless}"] if tickless else []
    if isolated:
        effect = "only pinned tasks and the kernel's own run there: pin the benchmark"
        return State("ready", ", ".join(texts), effect, value=isolated)
    if tickless:
        effect = "no tick where one task runs alone, but other tasks may run there too"
        change = "boot with isolcpus=LIST as well"
        return State("matters", ", ".join(texts), effect, change, "none")
    return State("matters", "none", value="none")


def _read_nmi_watchdog(root: Path) -> State:
    state = files.read_number(f"{root}/proc/sys/kernel/nmi_watchdog")
    if state is None:
        return State("unknown", "not reported by this kernel")
    return State("matters", "on", value="on") if state else State("ready", "off", value="off")


def _read_timer_slack(root: Path) -> State:
    """Reads the time by which the kernel may delay timers of this process. A benchmark that is
    started from the same shell has the same slack."""
    slack_ns = files.read_number(f"{root}/proc/self/timerslack_ns")
    if slack_ns is None:
        return State("unknown", "/proc/self/timerslack_ns cannot be read")
    text = f"{slack_ns / 1000:g} µs"
    return State("ready" if slack_ns < DEFAULT_SLACK_NS else "matters", text, value=text)


def _read_quota(root: Path) -> State:
    """Reads the CPU quota of this process. A benchmark that is started from the same shell has the
    same quota."""
    pid = files.read_text(f"{root}/proc/self/stat").split(" ", 1)[0]
    if not pid.isdecimal():
        return State("unknown", "/proc/self/stat cannot be read")
    usages, _ = Quotas(root).read_usages([int(pid)])
    if not usages:
        return State("ready", "none", value="none")
    group = min(usages, key=lambda name: usages[name][0])
    cpus = f"{usages[group][0]:.3g}"
    return State("matters", f"{cpus} CPUs, of the control group {group}", value=cpus)


def _read_cpu_mask(root: Path) -> State:
    allowed = access.allowed_cpus(root)
    online = set(files.read_cpu_list(f"{root}/{CPU_DIRECTORY}/online"))
    if not allowed or not online:
        return State("unknown", "/proc/self/status cannot be read")
    if online <= allowed:
        return State("ready", f"none: all {len(online)} CPUs may be used", value="none")
    usable = cpu_sets.format(allowed & online)
    text = f"{len(allowed & online)} of {len(online)} CPUs: {usable}"
    return State("matters", text, value=usable)


def _read_clock_source(root: Path) -> State:
    name = identity.clocksource(root)
    if name is None:
        return State("unknown", "not reported by the kernel")
    return State("matters" if name in clues.SLOW_CLOCKS else "ready", name, value=name)


CONDITIONS = {
    "hypervisor": Condition(
        _read_hypervisor,
        "the hypervisor may take time, and the host sets the clock: check steal, repeat runs",
        "a dedicated or metal instance, virtual CPUs pinned by the host",
        "CPUID, and most reads of MSRs, leave the guest",
    ),
    "governor": Condition(
        _read_governor,
        "the clock follows the load, or is held low: short runs are slow at first",
        f"echo performance | sudo tee /{CPU_DIRECTORY}/cpu*/cpufreq/scaling_governor",
        "the core's clock follows the load, or is held low; costs change with it",
    ),
    "turbo": Condition(
        _read_turbo,
        "the clock depends on active cores, heat and power: report turbo with your results",
        lasting_effect="the core's clock depends on what the other cores do",
    ),
    "SMT": Condition(
        _read_smt,
        "a task on a core's other thread uses its units too, and slows yours",
        f"echo off | sudo tee /{CPU_DIRECTORY}/smt/control; or leave every second thread idle",
    ),
    "CPU quota": Condition(
        _read_quota,
        "once it is used up, all tasks of the group are stopped until the next period",
        "a higher quota: the pod's limits.cpu, docker --cpus, systemd's CPUQuota=",
    ),
    "CPU mask": Condition(
        _read_cpu_mask,
        "if there are more threads than these CPUs, they wait for each other",
        "taskset, the cpuset of the container, or --cpus-per-task of the Slurm job",
    ),
    "other load": Condition(
        _read_load,
        "siblings, caches, memory and turbo are shared with it",
        "find it with perftop, then stop it or pin it elsewhere",
    ),
    "isolated CPUs": Condition(
        _read_isolated_cpus,
        "the tick and other tasks may disturb every CPU",
        "boot with isolcpus=LIST nohz_full=LIST; or repeat, and take the least disturbed run",
    ),
    "NMI watchdog": Condition(
        _read_nmi_watchdog,
        "it interrupts every CPU now and then, and usually uses one hardware counter of each",
        WATCHDOG_OFF_COMMAND,
    ),
    "timer slack": Condition(
        _read_timer_slack,
        "a sleep may end this much later",
        "echo 1 | sudo tee /proc/PID/timerslack_ns, or prctl(PR_SET_TIMERSLACK, 1)",
    ),
    "clock source": Condition(
        _read_clock_source,
        "each read of the time takes a microsecond or more, in the kernel",
        "boot with clocksource=tsc tsc=reliable, if the TSC can be trusted",
    ),
}
"""Conditions by name, the most important first."""


def condition_states(root: Path = Path("/")) -> dict[str, State]:
    return {name: condition.state(root) for name, condition in CONDITIONS.items()}


# --- what disturbed a measurement -----------------------------------------------------------------

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
    switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    interrupts = parse_interrupts(
        files.read_head(f"{root}/proc/interrupts", files.MAX_LARGE_BYTES), cpu
    )
    ticks = read_ticks(root)
    # The kernel adds the time in an idle state when the CPU leaves the state, so the sum is
    # complete if the CPU itself reads it.
    times = [files.read_number(f"{path}/time") for path in clues.idle_state_paths(root, cpu)]
    known_times = [time for time in times if time is not None]
    idle_s = sum(known_times) / 1e6 if known_times else None
    return CpuCounts(switches, interrupts, ticks, idle_s)


def read_ticks(root: Path = Path("/")) -> Ticks:
    return parse_ticks(files.read_head(f"{root}/proc/stat", files.MAX_LARGE_BYTES))


def parse_interrupts(text: str, cpu: int) -> dict[str, int]:
    """Returns a CPU's interrupts in the text of /proc/interrupts, by device or kind."""
    table, counts = parse_table(text), dict[str, int]()
    for label, count in table.counts(cpu).items():
        words = table.description(label).split()
        if words and count.strip().isdecimal():
            name = " ".join(words) if label.isalpha() else words[-1]
            counts[name] = counts.get(name, 0) + int(count)
    return counts


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

    def lasting(name: str, now: State) -> Iterator[Disturbance]:
        if now.state == "matters":
            yield _disturbance(name, now.now, CONDITIONS[name].lasting_effect)

    return [
        *lasting("governor", _read_governor(root, [cpu])),
        *lasting("turbo", _read_turbo(root)),
        *_disturbances(cpu, siblings, before, after),
        *lasting("hypervisor", _read_hypervisor(root)),
    ]


def _disturbance(source: str, amount: str, effect: str) -> Disturbance:
    return {"what": source, "found": amount, "matters": effect}


def _disturbances(
    cpu: int, siblings: Sequence[int], before: CpuCounts, after: CpuCounts
) -> Iterator[Disturbance]:
    """Yields busy siblings, interrupts, switches to other tasks, and stolen time."""
    for sibling in siblings:
        idle_share = share_of_ticks(before.ticks, after.ticks, sibling, IDLE_FIELDS)
        if idle_share is not None and 1 - idle_share > MIN_BUSY_SHARE:
            result = f"{100 * (1 - idle_share):.0f} % busy"
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
