"""Events of the user's choice on general counters: which bits select them, and what cannot be
counted this way. Each has a counter for itself all the time, so a group is always together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfprobe.cpu import cpu_sets, cpuid, event_counters
from perfprobe.cpu.model import INTEL
from perfprobe.errors import Unavailable, Usage
from perfprobe.frozen import frozen
from perfprobe.kernel import event_names
from perfprobe.kernel.event_catalogue import HARDWARE_EVENTS, Catalogue, Chosen, listed_code
from perfprobe.kernel.event_terms import Code
from perfprobe.kernel.perf_events import HARDWARE, Event
from perfprobe.kernel.perf_pmus import Pmu, core_of
from perfprobe.registers.counter_draft import ALL_RINGS, MOST_GENERAL, OS, USR, General, usable
from perfprobe.registers.counter_plan import Plan
from perfprobe.sources.msr.kinds import Kind

OTHER_CORES = "cores of this type have no such event"
PERF = "--source perf counts it"
FEWER = "fewer events, or --source perf, where they take turns"

EVENT, EDGE, ANY, INVERT, LEAST = 0xFFFF, 1 << 18, 1 << 21, 1 << 23, 0xFF << 24
AMD_EVENT = 0xF << 32
"""Bits of a select: event and umask, then edge, AnyThread, inversion and the least number of a
cycle; on AMD the upper part of the event (Linux asm/perf_event.h)."""


@frozen
class Wanted:
    """What was asked for, and the core PMUs by which it is encoded."""

    events: Sequence[Chosen]
    pmus: Sequence[Pmu]

    @property
    def by_key(self) -> dict[str, Chosen]:
        return {chosen.asked.key: chosen for chosen in self.events}


NOTHING = Wanted((), ())


def find(root: Path, text: str) -> Wanted:
    """The events of a list. Raises ValueError for names that nobody knows, or that no counter of a
    core counts, and Unavailable where the kernel has no core PMU."""
    catalogue = Catalogue(root, installed=root == Path("/"))
    events = [catalogue.find(asked) for group in event_names.parse(text) for asked in group]
    for chosen in events:
        name = chosen.asked.name
        if chosen.trouble is not None:
            mend = f"; {chosen.trouble.fix}" if chosen.trouble.fix else ""
            raise Unavailable(f"-e {name}: {chosen.trouble.why}{mend}")
        if not any(event.core for event in chosen.events.values()):
            raise Usage(f"-e {name}: no counter of a core counts it; {PERF}")
    return Wanted(events, catalogue.cores)


def generals(wanted: Wanted, kind: Kind) -> list[General]:
    """What CPUs of this kind are to count; without events that they do not have. Raises ValueError
    for an event that cannot be programmed."""
    pmu = core_of(wanted.pmus, kind.online[0])
    each = ((chosen, chosen.on(pmu)) for chosen in wanted.events)
    return [general(chosen, event, kind, pmu) for chosen, event in each if event and pmu]


def general(chosen: Chosen, event: Event, kind: Kind, pmu: Pmu) -> General:
    """What a general counter of this kind of CPU is to count. Raises ValueError if none can."""
    name = f"-e {chosen.asked.name}"
    code = _code(event, pmu)
    if code is None:
        raise Usage(f"{name}: only the kernel knows its code; write the code, or {PERF}")
    if code != Code(code.config):
        raise Usage(f"{name}: it needs a second register beside its counter; {PERF}")
    intel = kind.uarch.vendor == INTEL
    free = EVENT | EDGE | INVERT | LEAST | (0 if intel else AMD_EVENT)
    free |= ANY if intel and cpuid.anythread(kind.leaves) else 0
    if code.config & ~free:
        raise Usage(f"{name}: bits {code.config & ~free:#x} of its code stay 0 here; {PERF}")
    number, umask = code.config & 0xFF | code.config >> 24 & 0xF00, code.config >> 8 & 0xFF
    if intel and number == 0:
        raise Usage(f"{name}: no general counter counts event 00H; {PERF}")
    counters = event_counters.counters(kind.uarch.restrictions or (), number, umask)
    if not counters:
        raise Usage(f"{name}: one counter alone cannot count it on this model; {PERF}")
    rings = OS if event.kernel else USR if event.user else ALL_RINGS
    return General(chosen.asked.key, code.config, rings, counters)


def _code(event: Event, pmu: Pmu) -> Code | None:
    """The words by which a core PMU is programmed; None: only the kernel knows them."""
    if event.type == pmu.type:
        return Code(event.config, event.config1, event.config2)
    number = event.config & 0xFFFFFFFF  # above it stands the PMU of a hybrid
    generic = (known for known in HARDWARE_EVENTS if known.config == number)
    name = next((known.name for known in generic), "") if event.type == HARDWARE else ""
    return listed_code(pmu, name) if name else None


def check(wanted: Wanted, events: Sequence[General], plan: Plan) -> None:
    """Raises Unavailable for the first of the events for which no counter was left."""
    lost = next((event for event in events if event.key in plan.short), None)
    if lost is None:
        return
    own = len(plan.selects) - sum(counted.key in wanted.by_key for counted in plan.counted)
    why = f"perftop's own take {own} of {plan.budget.gp} general ones"
    why += f", counter {numbers(plan.budget.lent)} is left to TSX" if plan.budget.lent else ""
    few = not all(lost.counters >> n & 1 for n in usable(plan.budget))
    why += f", and only {numbers(lost.counters)} can count it" if few else ""
    name = wanted.by_key[lost.key].asked.name
    raise Unavailable(f"-e {name}: no counter is left for it: {why}; {FEWER}")


def numbers(counters: int) -> str:
    """Numbers of counters, from bits."""
    return cpu_sets.format([n for n in range(MOST_GENERAL) if counters >> n & 1])


def unchecked(wanted: Wanted, kinds: Sequence[Kind]) -> list[str]:
    """A warning for models whose events may need certain counters that are not known."""
    names = [kind.uarch.name for kind in kinds if kind.uarch.restrictions is None]
    text = (
        f"which counters can count an event is not known for {', '.join(dict.fromkeys(names))}: "
        "where one of -e stands at 0, --source perf tells"
    )
    return [text] if wanted.events and names else []
