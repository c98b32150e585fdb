"""Reports disturbances that were observed during a measurement on a CPU, with their effect: other
tasks, interrupts, stolen time, and conditions that change the CPU's clock."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfprobe.cpu import files
from perfprobe.instruments import conditions
from perfprobe.instruments.conditions import ConditionItem
from perfprobe.kernel import clues
from perfprobe.kernel.interrupts import STAT_FIELDS, parse_table, parse_ticks
from perfprobe.polled.proc_counts import TICK_S

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


# --- reading --------------------------------------------------------------------------------------


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
    lasting = (conditions.governor_item(root, [cpu]), conditions.turbo_item(root))
    return [
        *_lasting_conditions(*lasting),
        *_disturbances(cpu, siblings, before, after),
        *_lasting_conditions(conditions.hypervisor_item(root)),
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
