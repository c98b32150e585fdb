"""Groups of perf events that each have a block of their own: events that the user has chosen (-e),
and the issue slots of a core by Intel's PERF_METRICS. Groups that do not fit on the hardware
counters together take turns; each has the times for which it was enabled and counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from perfprobe.cpu import files
from perfprobe.errors import Unavailable, with_remedy
from perfprobe.kernel.access import Problem
from perfprobe.perf import event_names, perf_pmus
from perfprobe.perf.event_names import EventRequest
from perfprobe.perf.groups import PerfPart, cpu_part
from perfprobe.perf.perf_events import (
    COUNTED_KEYS,
    HARDWARE,
    Event,
    Kernel,
    OpenedEvents,
    group_fits,
    open_events,
    open_group,
    run_in_threads,
    run_trial,
)
from perfprobe.perf.perf_pmus import EVENT_UNIT, ChosenEvent, Pmu, find_core_pmu
from perfprobe.wire import Counter, Cpu, Missing

MAX_IN_GROUP = 16
GENERIC_EVENT = (1 << 32) - 1
"""Bits of a generic event's config that are its number; the others select a hybrid's PMU."""
TRIAL_NS = 20_000_000
"""Duration in ns of a trial count of a group; the kernel rotates groups after 4 ms."""
MIN_COUNTED_SHARE = 0.99
"""A group fits if it was on the counters for at least this share of a trial."""
NO_ROOM_PROBLEM = Problem(
    "no counter is left for it: perftop's own and other pinned events have them",
    "fewer events in braces, or --smt-method traced",
)
WATCHDOG_PROBLEM = Problem(
    "no counter is left for it: perftop's own events and the NMI watchdog have them",
    "sysctl kernel.nmi_watchdog=0, or --smt-method traced",
)
OTHER_CORES_PROBLEM = Problem("cores of this type have no such event")


def find_events(root: Path, text: str) -> list[list[ChosenEvent]]:
    """Returns the groups of events in the argument of -e. Raises ValueError for unknown names."""
    # Imported here, because only -e needs the catalogue.
    from perfprobe.perf.event_catalogue import Catalogue

    catalogue = Catalogue(root)
    return [[catalogue.find(name) for name in group] for group in event_names.parse_groups(text)]


def always_counted_key(group: Sequence[ChosenEvent]) -> str | None:
    """Returns the key of perftop's own counter for the only event of this group; None if perftop
    does not count the event, or if the group has several events."""
    events = [event for chosen in group for event in chosen.events.values()]
    keys = set()
    for event in events:
        is_generic = event.type == HARDWARE and event.kernel_only == event.user_only
        keys.add(COUNTED_KEYS.get(event.config & GENERIC_EVENT) if is_generic else None)
    return keys.pop() if len(group) == len(keys) == 1 else None


def always_counted_keys(
    chosen_groups: Sequence[Sequence[ChosenEvent]], counters: Iterable[Counter]
) -> dict[str, str]:
    """Returns, by key of a chosen event, the key of perftop's own counter for it, if any."""
    counted = {counter.key for counter in counters if counter.cpus is None}
    keys = ((group[0].request.key, always_counted_key(group)) for group in chosen_groups)
    return {
        key: known_key for key, known_key in keys if known_key in counted and known_key is not None
    }


def largest_group_finder(
    groups: Sequence[Sequence[ChosenEvent]], pmus: Sequence[Pmu]
) -> Callable[[int], list[Event]] | None:
    """Returns a function that returns the events of the largest group on a CPU; None if no group
    needs counters of a core."""
    if not any(e.is_core for group in groups for chosen in group for e in chosen.events.values()):
        return None

    def largest_group_on(cpu: int) -> list[Event]:
        pmu = find_core_pmu(pmus, cpu)
        events = (
            [event for c in group if (event := c.event_on(pmu)) and event.is_core]
            for group in groups
        )
        return max(events, key=len)

    return largest_group_on


def open_chosen(
    kernel: Kernel,
    rows: Sequence[Cpu],
    groups: Sequence[Sequence[ChosenEvent]],
    pmus: Sequence[Pmu],
    *,
    online: Sequence[Cpu],
    multiplex: bool = True,
) -> list[PerfPart]:
    """Opens a part for each group of chosen events on the CPUs `online`. Must be called after
    other counters are open, because those take precedence. With `multiplex`, groups may take turns.
    Raises Unavailable if an event does not fit without it, or if no event can be counted."""
    opener = GroupOpener(kernel, rows, online, pmus)
    parts = [
        opener.open_part(group) for group in opener.arrange_groups(groups, multiplex=multiplex)
    ]
    part_missing = [missing for part in parts for missing in part.missing]
    if not any(part.counters[0].cpus is None or part.counters[0].cpus for part in parts):
        why = next(iter(part_missing), Missing("events", "no CPU is read"))
        for part in parts:
            part.close()
        name = why.what.removeprefix(event_names.KEY_PREFIX)
        raise Unavailable(with_remedy(f"-e {name}: {why.why}", why.fix))
    return parts


class GroupOpener:
    """Arranges chosen events in groups, and opens the groups on the CPUs `online`."""

    def __init__(
        self, kernel: Kernel, rows: Sequence[Cpu], online: Sequence[Cpu], pmus: Sequence[Pmu]
    ) -> None:
        self._kernel, self._rows, self._online = kernel, rows, online
        self._pmu_of_cpu = {row.cpu: find_core_pmu(pmus, row.cpu) for row in rows}

    # --- which events are counted together

    def arrange_groups(
        self, chosen_groups: Sequence[Sequence[ChosenEvent]], *, multiplex: bool
    ) -> list[Sequence[ChosenEvent]]:
        """Returns the groups to open. Groups in braces are kept. Single software events become one
        group, since they always count. Single events of cores become one group if it fits;
        otherwise each is a group, and the groups take turns. Without `multiplex`, raises
        Unavailable for the first group that does not fit together with the groups before it."""
        single_events = [group[0] for group in chosen_groups if len(group) == 1]
        software = [c for c in single_events if not any(e.is_core for e in c.events.values())]
        cores = [chosen for chosen in single_events if chosen not in software]
        braced_groups = [group for group in chosen_groups if len(group) > 1]
        hardware_groups = (
            [cores] if 1 < len(cores) <= MAX_IN_GROUP else [[chosen] for chosen in cores]
        )
        if len(hardware_groups) == 1 and not self._groups_fit([*braced_groups, *hardware_groups]):
            hardware_groups = [[chosen] for chosen in cores]
        for i in range(0 if multiplex else len(braced_groups) + len(hardware_groups)):
            groups = [*braced_groups, *hardware_groups][: i + 1]
            if not self._groups_fit(groups):
                names = ",".join(chosen.request.name for chosen in groups[-1])
                raise Unavailable(
                    f"-e {names}: no counter is left for it; without --no-multiplex "
                    "the events take turns"
                )
        software_groups = [
            software[i : i + MAX_IN_GROUP] for i in range(0, len(software), MAX_IN_GROUP)
        ]
        return [*software_groups, *braced_groups, *hardware_groups]

    def _groups_fit(self, groups: Sequence[Sequence[ChosenEvent]]) -> bool:
        """Returns whether all groups fit at the same time, by trials on one CPU of each PMU."""
        cpus: dict[str | None, int] = {}
        for row in self._online:
            pmu = self._pmu_of_cpu[row.cpu]
            cpus.setdefault(None if pmu is None else pmu.name, row.cpu)
        for cpu in cpus.values():
            with ExitStack() as stack:
                opened = [self.open_events(group, cpu).group for group in groups]
                open_groups = [group for group in opened if group is not None]
                for group in open_groups:
                    stack.callback(group.close)
                trials = [run_trial(self._kernel, group, cpu, TRIAL_NS) for group in open_groups]
                # A group that cannot be tried fits; one that cannot be opened does not.
                shares = [1.0 if trial is None else trial.counted_share for trial in trials]
                if None in opened or min(shares, default=1.0) < MIN_COUNTED_SHARE:
                    return False
        return True

    # --- opening the groups

    def open_part(self, group: Sequence[ChosenEvent]) -> PerfPart:
        planned_events = {row.cpu: self.events_on(group, row.cpu) for row in self._rows}
        online_events = {row.cpu: planned_events[row.cpu] for row in self._online}
        opened = open_events(self._kernel, online_events, timed=True, mapped=False)
        opened = dict(zip(opened, run_in_threads(self._drop_if_unfit, opened.items()), strict=True))
        absent = [
            (cpu, key, opened_events.missing.get(key) or chosen.problem or OTHER_CORES_PROBLEM)
            for cpu, opened_events in opened.items()
            for chosen in group
            if (key := chosen.request.key) not in {event.key for event in opened_events.events}
        ]
        counters = [
            Counter(
                chosen.request.key,
                chosen.description,
                chosen.unit,
                "perf " + next((pmu for pmu in chosen.events if pmu), "software"),
                scale=chosen.scale,
            )
            for chosen in group
        ]
        return cpu_part(
            self._kernel,
            self._rows,
            planned_events,
            opened,
            counters,
            timed=True,
            mapped=False,
            absent=absent,
        )

    def _drop_if_unfit(self, opened: tuple[int, OpenedEvents]) -> OpenedEvents:
        """Returns a CPU's opened events; if pinned events leave no counter for them, closes them
        and returns only the reason."""
        cpu, opened_events = opened
        if opened_events.group is None or not any(event.is_core for event in opened_events.events):
            return opened_events
        if group_fits(self._kernel, opened_events.events, cpu):
            return opened_events
        opened_events.group.close()
        has_watchdog = files.read_number(f"{self._kernel.root}/proc/sys/kernel/nmi_watchdog") == 1
        why = WATCHDOG_PROBLEM if has_watchdog else NO_ROOM_PROBLEM
        missing = {event.key: why for event in opened_events.events}
        return OpenedEvents(missing=opened_events.missing | missing)

    def open_events(self, group: Sequence[ChosenEvent], cpu: int) -> OpenedEvents:
        """Opens the group on one CPU, for a trial."""
        events = self.events_on(group, cpu)
        return open_group(self._kernel, events, cpu, timed=True, mapped=False)

    def events_on(self, group: Sequence[ChosenEvent], cpu: int) -> list[Event]:
        events = (chosen.event_on(self._pmu_of_cpu[cpu]) for chosen in group)
        return [event for event in events if event is not None]


# --- top-down -------------------------------------------------------------------------------------
# The event `slots` and its top-down parts are one group, which needs no general counter. `slots`
# must be the leader, otherwise the parts count zeros. The kernel resets the registers at each
# read(), so they must not be read by RDPMC. A part is a field of 8 bits, so each read has an error
# of up to 0.4 % of the slots since the previous read.

TOPDOWN_LEVEL_1 = {
    "slots": ("slots", "issue slots"),
    "topdown_retiring": ("topdown-retiring", "slots whose work retired"),
    "topdown_bad_speculation": ("topdown-bad-spec", "slots of discarded work"),
    "topdown_frontend": ("topdown-fe-bound", "slots without an instruction to issue"),
    "topdown_backend": ("topdown-be-bound", "slots in which the back end was full"),
}
TOPDOWN_LEVEL_2 = {
    "topdown_heavy_operations": ("topdown-heavy-ops", "retired slots of long instructions"),
    "topdown_branch_mispredicts": ("topdown-br-mispredict", "slots lost to mispredicted branches"),
    "topdown_fetch_latency": ("topdown-fetch-lat", "slots that waited for a fetch"),
    "topdown_memory_bound": ("topdown-mem-bound", "slots that waited for memory"),
}
"""Level 2 events: perf's name and a description, by key. CPUs from Sapphire Rapids on have them."""
NO_PERF_METRICS = "this CPU has no PERF_METRICS: Ice Lake and later Intel cores have"
TOPDOWN_KEY = "topdown_retiring_ratio"
"""Key under which hello reports why there are no top-down counters."""
SLOTS_PROBLEM = (
    "the counters of slots are there but do not add up: the hypervisor does not pass them on"
)
MAX_SLOTS_ERROR = 0.05
"""Maximum difference in a trial between the slots and their four parts, relative to the slots."""


def topdown_events(pmus: Iterable[Pmu]) -> list[ChosenEvent]:
    """Returns the events of the top-down group, the leader first; empty if no PMU lists them."""
    group: list[ChosenEvent] = []
    pmus_with_slots = [pmu for pmu in pmus if perf_pmus.event_config(pmu, "slots") is not None]
    for key, (name, text) in (TOPDOWN_LEVEL_1 | TOPDOWN_LEVEL_2).items():
        events: dict[str | None, Event] = {}
        for pmu in pmus_with_slots:
            if (config := perf_pmus.event_config(pmu, name)) is not None:
                events[pmu.name] = Event(key, pmu.type, config)
        if events:
            problem = Problem("cores of this type have no PERF_METRICS")
            request = EventRequest(name, key=key)
            group.append(ChosenEvent(request, text, EVENT_UNIT, 1.0, events, problem))
    keys = {chosen.request.key for chosen in group}
    return group if keys >= TOPDOWN_LEVEL_1.keys() else []


def open_topdown(
    kernel: Kernel, rows: Sequence[Cpu], pmus: Sequence[Pmu], *, online: Sequence[Cpu]
) -> tuple[list[PerfPart], list[Missing]]:
    """Opens the part with issue slots and top-down counters on the CPUs `online`. If this machine
    cannot count them, returns no part, and the reason."""
    group = topdown_events(pmus)
    if not group:
        return [], [Missing(TOPDOWN_KEY, NO_PERF_METRICS)] if pmus else []
    opener = GroupOpener(kernel, rows, online, pmus)
    cpu = next((row.cpu for row in online if opener.events_on(group, row.cpu)), None)
    problem = OTHER_CORES_PROBLEM if cpu is None else _slots_problem(opener, group, kernel, cpu)
    if problem is not None:
        return [], problem.missing(TOPDOWN_KEY)
    return [opener.open_part(group)], []


def _slots_problem(
    opener: GroupOpener, group: Sequence[ChosenEvent], kernel: Kernel, cpu: int
) -> Problem | None:
    """Returns why the top-down group cannot be counted as a whole on this CPU, or the fault in its
    counts, which are in the order of TOPDOWN_LEVEL_1; None if they add up."""
    opened = opener.open_events(group, cpu)
    with ExitStack() as stack:
        if opened.group is not None:
            stack.callback(opened.group.close)
        if opened.group is None or opened.missing:
            return next(iter(opened.missing.values()))
        trial = run_trial(kernel, opened.group, cpu, TRIAL_NS)
    if trial is None or not trial.counted_share:
        return None
    slots, parts = trial.counts[0], trial.counts[1 : len(TOPDOWN_LEVEL_1)]
    adds_up = slots > 0 and abs(sum(parts) - slots) <= MAX_SLOTS_ERROR * slots and min(parts) >= 0
    return None if adds_up else Problem(SLOTS_PROBLEM)
