"""The counters of cores that perf counts, by CPU model, and those of the msr PMU; opens these and
the uncore PMUs.

Each CPU has two groups of events. The kernel may rotate the core's group with events of other
programs; `perf_running_s` is then less than `perf_enabled_s`, and counts whose origin begins with
"perf" must be scaled by enabled / running. The msr PMU's group is never rotated. It is separate so
that the core's group can be read by RDPMC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from perfprobe.cpu import cpuid, identity, model
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model import AMD
from perfprobe.cpu.model_terms import METHOD_EVENTS, Uarch
from perfprobe.kernel.access import Problem
from perfprobe.machine.parts import Part
from perfprobe.native import affinity
from perfprobe.perf import perf_pmus, uncore
from perfprobe.perf.groups import PerfPart, cpu_part
from perfprobe.perf.perf_events import (
    CYCLES,
    HARDWARE,
    INSTRUCTIONS,
    OPTIONAL_ROLES,
    REF_CYCLES,
    Event,
    Kernel,
    open_events,
)
from perfprobe.wire import Counter, Cpu, Missing, Multiplier, Rate

# Events of SIMD levels; core cycles that none of them counts are at level 0.
LICENSES = {
    "license_1": "core cycles at SIMD level 1",
    "license_2": "core cycles at SIMD level 2",
    "license_throttle": "core cycles throttled until a SIMD level is granted",
}
CORE_COUNTERS = (
    Counter("ref", "reference cycles, unhalted", "cycles", "perf"),
    Counter("cycles", "cycles, unhalted", "cycles", "perf"),
    Counter("instructions", "instructions", "instructions", "perf"),
    Counter("kernel_instructions", "instructions in the kernel", "instructions", "perf"),
    Counter("kernel_cycles", "cycles in the kernel", "cycles", "perf"),
    Counter("one_thread", "ticks with the sibling halted", "1", "perf"),
    Counter("any_thread", "ticks with any thread unhalted", "1", "perf"),
    Counter("distributed", "ticks shared out among threads", "1", "perf"),
    Counter("smt_contention", "dispatch slots given to the sibling", "cycles", "perf"),
    *(Counter(key, name, "cycles", "perf") for key, name in LICENSES.items()),
)
# The origin of these counters is not "perf", because their group is never rotated, so they need no
# scaling.
MSR_COUNTERS = (
    Counter("msr_tsc", "TSC, beside APERF and MPERF", "1", "msr PMU"),
    Counter("aperf", "APERF", "cycles", "msr PMU"),
    Counter("mperf", "MPERF", "cycles", "msr PMU"),
    Counter("smi", "SMIs", "1", "msr PMU"),
)


class EventPlanner:
    """Plans which events to open on each CPU, by the CPUID of one CPU of each core type."""

    def __init__(
        self,
        root: Path,
        rows: Sequence[Cpu],
        read_leaves: Callable[[int], Leaves] = affinity.cpuid_leaves,
        method: str | None = None,
    ) -> None:
        """`read_leaves` returns a CPU's CPUID leaves; `method` is the user's SMT method."""
        self._root = root
        self.pmus = perf_pmus.core_pmus(root)
        self._has_smt = any(len(row.siblings) > 1 or not row.online for row in rows)
        self._types: dict[str | None, tuple[Uarch, Leaves]] = {}
        cpu_identity = identity.read_identity(root)
        for row in rows:
            if row.online and row.type not in self._types:
                leaves = read_leaves(row.cpu)
                uarch = model.select_uarch(cpu_identity, leaves, row.type, method)
                self._types[row.type] = uarch, leaves
        self._msr = perf_pmus.find_pmu(root, "msr")

    def core_events(self, row: Cpu) -> list[Event]:
        """Returns the events for the core's group of a CPU, in the order of CORE_COUNTERS.
        Alternatives for one key are adjacent."""
        pmu = perf_pmus.find_core_pmu(self.pmus, row.cpu)
        if pmu is None or row.type not in self._types:
            return []
        uarch, leaves = self._types[row.type]
        extended = pmu.extended_type
        events = [Event("ref", HARDWARE, extended | REF_CYCLES)]
        raw_ref = uarch.events.get("ref")
        # AMD's raw code for "ref"; kernels before 6.10 do not use it for the generic event
        if raw_ref is not None and raw_ref.code:
            events.append(Event("ref", pmu.type, raw_ref.config))
        events += [
            Event("cycles", HARDWARE, extended | CYCLES),
            Event("instructions", HARDWARE, extended | INSTRUCTIONS),
            Event("kernel_instructions", HARDWARE, extended | INSTRUCTIONS, kernel_only=True),
            Event("kernel_cycles", HARDWARE, extended | CYCLES, kernel_only=True),
        ]
        if self._has_smt and uarch.threads_per_core != 1:
            events += smt_events(uarch, leaves, pmu.type)
            if uarch.slots_per_cycle is not None and (event := uarch.events.get("smt_contention")):
                events.append(Event("smt_contention", pmu.type, event.config))
        levels = ((key, uarch.license_events.get(key)) for key in LICENSES)
        return events + [Event(key, pmu.type, e.config) for key, e in levels if e is not None]

    def counters(self) -> list[Counter]:
        """Returns CORE_COUNTERS; smt_contention is scaled by the dispatch slots per cycle."""
        slots = next(filter(None, (u.slots_per_cycle for u, _ in self._types.values())), None)
        scales = {} if slots is None else {"smt_contention": 1 / slots}
        return [replace(c, scale=scales.get(c.key, c.scale)) for c in CORE_COUNTERS]

    def msr_events(self, _row: Cpu) -> list[Event]:
        """Returns the events of the msr PMU's group; empty if it has only the TSC."""
        if self._msr is None:
            return []
        names = {"msr_tsc": "tsc", "aperf": "aperf", "mperf": "mperf", "smi": "smi"}
        configs = {key: perf_pmus.event_config(self._msr, name) for key, name in names.items()}
        events = [
            Event(key, self._msr.type, config, is_core=False)
            for key, config in configs.items()
            if config is not None
        ]
        return events if any(event.key != "msr_tsc" for event in events) else []

    # --- values in the hello ---------------------------------------------------------------------

    def multipliers(self, keys: set[str], tsc_hz: float | None) -> list[Multiplier]:
        """Returns the multiplier candidates for the counters with these keys."""
        candidates: list[Multiplier] = []
        for uarch, leaves in self._types.values():
            candidates += model.multiplier_candidates(uarch, leaves, None, tsc_hz)
        return [multiplier for multiplier in candidates if multiplier.counter in keys]

    def base_hz(self, tsc_hz: Rate | None) -> Rate | None:
        """Returns the base frequency, at which MPERF counts; None if unknown."""
        for uarch, leaves in self._types.values():
            if uarch.vendor in AMD and tsc_hz is not None:
                return Rate(tsc_hz.hz, "that of the TSC: both count at the P0 rate", tsc_hz.error)
            if rates := model.base_rate_candidates(uarch, leaves, None):
                return rates[0]
        return None


def smt_events(uarch: Uarch, leaves: Leaves, pmu_type: int) -> list[Event]:
    """Returns alternatives for the SMT event as raw events, best first. An event with AnyThread is
    left out if CPUID shows that the bit has no effect, because the kernel does not check that."""
    return [
        Event(key, pmu_type, event.config, role="smt")
        for method in uarch.smt_methods
        if (key := METHOD_EVENTS.get(method)) and (event := uarch.events.get(key))
        if not event.any_thread or cpuid.has_working_any_thread(leaves)
    ]


def smt_methods(keys: set[str]) -> list[str]:
    """Returns the methods of measuring the SMT states by these counters, best first."""
    return [*(name for name, key in METHOD_EVENTS.items() if key in keys), "bounds"]


# --- opening the parts ----------------------------------------------------------------------------

ESSENTIAL_KEYS = ("ref", "cycles")
HOST_ONLY = Problem("only the host's own time is counted, so that guests with a PMU can start")


def open_parts(
    kernel: Kernel,
    rows: Sequence[Cpu],
    planner: EventPlanner,
    *,
    online: Sequence[Cpu],
    other_group: Callable[[int], Sequence[Event]] | None = None,
) -> list[Part]:
    """Opens the parts of cores, of the msr PMU, of memory controllers, and of each other PMU, on
    the CPUs `online`. The first three always exist, and have the reasons for missing counters.
    Every counter of a core is tried, and used only if it counts.

    `other_group` returns the events of another group that will be counted on a CPU at the same
    time. The cores' part is then pinned, so that it does not take turns with that group, and leaves
    counters for it."""

    def plan(row: Cpu) -> list[Event]:
        events = planner.core_events(row)
        if other_group is None:
            return events
        # Any of the events may become the leader of the group, which must be pinned.
        return [replace(e, pinned=True) for e in events if e.key not in OPTIONAL_ROLES]

    core = _part(
        kernel, rows, online, plan, planner.counters(), timed=True, other_group=other_group
    )
    if not planner.pmus:
        keys = (counter.key for counter in CORE_COUNTERS[:5])
        core.missing = perf_pmus.no_counters_problem(kernel.root).missing(*keys)
    msr_part = _part(kernel, rows, online, planner.msr_events, MSR_COUNTERS, timed=False)
    controllers = uncore.memory_part(kernel, rows, online)
    return [core, msr_part, controllers, *uncore.uncore_parts(kernel, rows, online)]


def no_clock_problem(parts: Sequence[Part]) -> Missing | None:
    """Returns why no CPU counts reference cycles or cycles; None if some CPU does."""
    core = parts[0]
    if any(counter.key in ESSENTIAL_KEYS for counter in core.counters):
        return None
    fallback = Missing("ref", "no CPU could be read")
    return next((m for key in ESSENTIAL_KEYS for m in core.missing if m.what == key), fallback)


def _part(
    kernel: Kernel,
    rows: Sequence[Cpu],
    online: Sequence[Cpu],
    plan: Callable[[Cpu], list[Event]],
    table: Sequence[Counter],
    *,
    timed: bool,
    other_group: Callable[[int], Sequence[Event]] | None = None,
) -> PerfPart:
    """Opens the part with the planned events on all CPUs in `online`, without events that do not
    count. `table`: counters of all events that a plan may contain."""
    planned_events = {row.cpu: plan(row) for row in rows}
    other = None if other_group is None else {row.cpu: other_group(row.cpu) for row in online}
    online_events = {row.cpu: planned_events[row.cpu] for row in online}
    opened = open_events(kernel, online_events, timed=timed, with_trial=True, other_group=other)
    counting = {event.key for opened_events in opened.values() for event in opened_events.events}
    counters = [counter for counter in table if counter.key in counting]
    # Guests of KVM can only run if its module is loaded.
    root = kernel.root
    may_run = (root / "sys/module/kvm").exists() or not identity.may_run_guests(root)
    absent: list[tuple[int, str, Problem]] = []
    for cpu, opened_events in opened.items():
        absent += [(cpu, key, problem) for key, problem in opened_events.missing.items()]
        if opened_events.host_only and may_run:
            absent.append((cpu, "guests", HOST_ONLY))
    return cpu_part(kernel, rows, planned_events, opened, counters, timed=timed, absent=absent)
