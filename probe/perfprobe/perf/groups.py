"""Parts (see machine/parts.py) whose counters are read as groups of perf events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from perfprobe._native import lib
from perfprobe.kernel.access import Problem
from perfprobe.machine.parts import join_missing, restrict_to_cpus
from perfprobe.native.sampler import Slot
from perfprobe.perf.perf_events import Event, Group, Kernel, OpenedEvents, open_group
from perfprobe.wire import Counter, Cpu, Missing, Scope

GroupPlan = tuple[int, Sequence[tuple[Event, int]]]
"""A group to open: its CPU, and its events with their columns (after those of times)."""
PlanGroups = Callable[[int], Sequence[GroupPlan]]
"""Returns the groups that must be opened for the part on a CPU that reads it."""


class PerfPart:
    """A part with counters of one scope, read as groups of perf events."""

    def __init__(
        self,
        kernel: Kernel,
        scope: Scope,
        counters: list[Counter],
        plan_groups: PlanGroups,
        *,
        timed: bool = False,
        mapped: bool = True,
        open_groups: Mapping[int, Group] | None = None,
        missing: Iterable[Missing] = (),
    ) -> None:
        """`open_groups`: groups that are already open, by the CPU that reads them; this part closes
        them. With `timed`, the first columns are TIME_COUNTERS. `mapped` allows RDPMC."""
        self.scope = scope
        self.counters = counters
        self.missing = [*missing]
        self._kernel = kernel
        self._plan_groups = plan_groups
        self._timed, self._mapped = timed, mapped
        self._ready_groups = dict(open_groups or {})
        self._open_groups: dict[int, list[Group]] = {}

    def open(self, cpu: int) -> list[Slot]:
        groups: list[tuple[int, Group]] = []
        """The first column of each group, and the group."""
        if (ready_group := self._ready_groups.pop(cpu, None)) is not None:
            groups.append((0, ready_group))
        for group_cpu, planned in () if groups else self._plan_groups(cpu):
            column_of = dict(planned)  # some of the events may be refused now
            opened = open_group(
                self._kernel, [*column_of], group_cpu, timed=self._timed, mapped=self._mapped
            )
            if opened.group is not None:
                columns = [column_of[event] for event in opened.events]
                first = 0 if self._timed else columns[0]  # the columns of times come first
                opened.group.set_columns([column - first for column in columns])
                groups.append((first, opened.group))
        self._open_groups[cpu] = [group for _, group in groups]
        return [Slot(lib.PP_PERF, first, -1, g.address, g.columns) for first, g in groups]

    def close_cpu(self, cpu: int) -> None:
        for group in self._open_groups.pop(cpu, []):
            group.close()

    def close(self) -> None:
        for cpu in list(self._open_groups):
            self.close_cpu(cpu)
        for group in self._ready_groups.values():
            group.close()
        self._ready_groups.clear()


TIME_COUNTERS = (
    Counter("perf_enabled_s", "time its group was to count", "s", "perf", scale=1e-9),
    Counter("perf_running_s", "time it was on the counters", "s", "perf", scale=1e-9),
)


def cpu_part(
    kernel: Kernel,
    rows: Sequence[Cpu],
    planned_events: Mapping[int, Sequence[Event]],
    opened: Mapping[int, OpenedEvents],
    table: Sequence[Counter],
    *,
    timed: bool,
    mapped: bool = True,
    absent: Iterable[tuple[int, str, Problem]] = (),
) -> PerfPart:
    """Creates a part with counters of CPUs from open groups. `planned_events`: those of each CPU.
    `table`: the counters. `absent`: CPU, key and reason of each missing counter. An
    offline CPU is assumed to have the counters of an open CPU with the same planned events."""
    opened_by_events: dict[tuple[Event, ...], OpenedEvents] = {}
    for cpu, result in opened.items():
        opened_by_events.setdefault(tuple(planned_events[cpu]), result)

    def events(cpu: int) -> list[Event]:
        result = opened.get(cpu) or opened_by_events.get(tuple(planned_events[cpu]))
        return [] if result is None else result.events

    def restrict(counter: Counter, keys: set[str]) -> Counter:
        """Returns the counter, restricted to the CPUs on which one of these keys is counted."""
        cpus = [r.cpu for r in rows if not keys.isdisjoint(event.key for event in events(r.cpu))]
        return restrict_to_cpus(counter, cpus, len(rows))

    def plan_groups(cpu: int) -> list[GroupPlan]:
        columns_by_event = [(event, column[event.key]) for event in events(cpu)]
        return [(cpu, columns_by_event)] if columns_by_event else []

    column = {counter.key: i for i, counter in enumerate(table)}
    times = TIME_COUNTERS if timed and table else ()
    counters = [
        *(restrict(counter, set(column)) for counter in times),
        *(restrict(counter, {counter.key}) for counter in table),
    ]
    open_groups = {cpu: result.group for cpu, result in opened.items() if result.group is not None}
    for cpu, group in open_groups.items():
        group.set_columns([column[event.key] for event in opened[cpu].events])
    return PerfPart(
        kernel,
        "cpu",
        counters,
        plan_groups,
        timed=timed,
        mapped=mapped,
        open_groups=open_groups,
        missing=join_missing(absent, len(opened)),
    )
