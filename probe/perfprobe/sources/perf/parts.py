"""Counters that perf counts: the cores' own, those of the msr PMU, and those of uncore PMUs.

Each CPU has two groups. The kernel may rotate the core's group with what others count; then
`perf_running_s` falls behind `perf_enabled_s`, and counts of its block whose origin begins with
"perf" must be scaled by the two. The msr PMU's group is never rotated. It is separate so that the
core's group can be read by RDPMC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from perfprobe.frozen import replace
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.perf_events import Event, Kernel, System
from perfprobe.kernel.perf_groups import OPTIONAL, Settled, settle
from perfprobe.sources.os import procfs
from perfprobe.sources.os.parts import Part, gathered, limited
from perfprobe.sources.perf import memory, uncore
from perfprobe.sources.perf.at_once import at_once
from perfprobe.sources.perf.groups import Groups, alone
from perfprobe.sources.perf.plan import CORE, MSR, Planner
from perfprobe.wire import Counter, Cpu, Missing

TIMES = (
    Counter("perf_enabled_s", "time its group was to count", "s", "perf", scale=1e-9),
    Counter("perf_running_s", "time it was on the counters", "s", "perf", scale=1e-9),
)
ESSENTIAL = ("ref", "cycles")
GUESTS = Trouble("only the host's own time is counted: guests have the PMU while they run")


def open_perf(
    root: Path,
    rows: Sequence[Cpu],
    planner: Planner | None = None,
    *,
    cpus: Iterable[int] | None = None,
    kernel: Kernel | None = None,
    pinned: bool = False,
) -> list[Part]:
    """The cores' part, the msr PMU's part, that of memory controllers, then one for each other PMU.
    The first three always exist and say what is missing and why. Every counter of a core was seen
    to count on the CPUs that have it.

    `cpus` are the CPUs to read. `pinned`: other events will be counted too, and must not take turns
    with those of the cores' part. `root` is for tests: perf events are never below a directory.
    """
    kernel = kernel or System()
    planner = planner or Planner(root, rows)
    wanted = {row.cpu for row in rows} if cpus is None else set(cpus)
    read = [row for row in rows if row.online and row.cpu in wanted]
    leading = _pinned(planner.core) if pinned else planner.core
    core = _Settling(kernel, root, rows, read, leading, timed=True).part(planner.counters())
    if not planner.pmus:
        none = procfs.no_counters(root)
        core.missing = [Missing(counter.key, none.why, none.fix) for counter in CORE[:5]]
    rest = _Settling(kernel, root, rows, read, planner.msr, timed=False).part(MSR)
    controllers = memory.part(root, rows, read, kernel)
    return [core, rest, controllers, *uncore.parts(root, rows, read, kernel)]


def blocker(parts: Sequence[Part]) -> Missing | None:
    """Why neither reference cycles nor cycles can be counted on any CPU; None if they can."""
    core = parts[0]
    if any(counter.key in ESSENTIAL for counter in core.counters):
        return None
    fallback = Missing("ref", "no CPU could be read")
    return next((m for key in ESSENTIAL for m in core.missing if m.what == key), fallback)


def _pinned(plan: Callable[[Cpu], list[Event]]) -> Callable[[Cpu], list[Event]]:
    """The plan without optional events. All are marked as pinned, since any may come to lead the
    group."""
    return lambda row: [replace(e, pinned=True) for e in plan(row) if e.key not in OPTIONAL]


class _Settling:
    """All CPUs with the groups that count on them."""

    def __init__(
        self,
        kernel: Kernel,
        root: Path,
        rows: Sequence[Cpu],
        read: Sequence[Cpu],
        plan: Callable[[Cpu], list[Event]],
        *,
        timed: bool,
    ) -> None:
        self._kernel, self._rows, self._timed = kernel, rows, timed
        wanted = {row.cpu: plan(row) for row in read}

        def one(cpu: int) -> Settled:
            return settle(kernel, wanted[cpu], cpu, timed=timed, root=root)

        self._settled = dict(zip(wanted, at_once(one, wanted), strict=True))

    def part(self, table: Sequence[Counter]) -> Groups:
        here = {event.key for found in self._settled.values() for event in found.events}
        counters = [self._on(counter) for counter in table if counter.key in here]
        column = {counter.key: i for i, counter in enumerate(counters)}
        ready = {}
        for cpu, found in self._settled.items():
            if found.group is not None:
                found.group.place([column[event.key] for event in found.events])
                ready[cpu] = found.group
        if counters and self._timed:
            counters = [*(self._on(time) for time in TIMES), *counters]
        bundles = alone(self._before, column)
        lost = gathered(self._lacking(), len(self._settled))
        return Groups(
            self._kernel, "cpu", counters, bundles, timed=self._timed, ready=ready, missing=lost
        )

    def _on(self, counter: Counter) -> Counter:
        """The counter with the CPUs that have it. An offline CPU is taken to have what others of
        its type have."""
        times = {time.key for time in TIMES}
        cpus = []
        for row in self._rows:
            found = self._of(row)
            if found is not None and found.group is not None:
                keys = times | {event.key for event in found.events}
                cpus += [row.cpu] if counter.key in keys else []
        return limited(counter, cpus, len(self._rows))

    def _of(self, row: Cpu) -> Settled | None:
        found = self._settled.get(row.cpu)
        if found is not None:
            return found
        alike = (self._settled.get(r.cpu) for r in self._rows if r.type == row.type)
        return next(filter(None, alike), None)

    def _before(self, cpu: int) -> list[Event]:
        """The events that a CPU which comes back had, or has like others of its type."""
        row = next(row for row in self._rows if row.cpu == cpu)
        found = self._of(row)
        return [] if found is None else found.events

    def _lacking(self) -> Iterator[tuple[int, str, Trouble]]:
        for cpu, found in self._settled.items():
            for key, trouble in found.missing.items():
                yield cpu, key, trouble
            if found.host_only:
                yield cpu, "guests", GUESTS
