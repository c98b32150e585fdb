"""Traffic to memory, counted by the controllers of a package. They are a counter's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from perfprobe.cpu import topology
from perfprobe.frozen import replace
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.memory_controllers import KEYS, Controller, absent, controllers
from perfprobe.kernel.perf_events import LEADER, Kernel, trouble
from perfprobe.sources.perf.groups import Bundle, Groups
from perfprobe.wire import Counter, Cpu, Missing

MOST = 64
"""Columns that the mask of one group reaches, from its first."""


def part(root: Path, rows: Sequence[Cpu], read: Sequence[Cpu], kernel: Kernel) -> Groups:
    """Bytes by package. Without counters it says what is missing and why."""
    found = controllers(root)
    online, reading = {row.cpu for row in rows if row.online}, {row.cpu for row in read}
    packages = [group for group in topology.packages(rows) if not online.isdisjoint(group)]
    places = [_places(found, group) for group in packages]
    wrong = absent(root) if not found else _unlike(found, places) or _refused(found, kernel, root)
    if wrong is not None:
        lost = [Missing(key, wrong.why, wrong.fix) for key in KEYS]
        return Groups(kernel, "package", [], lambda _: [], missing=lost)
    each = max(len(events) for one in found for events in one.events)
    count = each * max(map(len, places))
    counters = [
        Counter(
            key,
            f"memory {what}",
            "B",
            f"perf {found[0].pmu.name.rstrip('_0123456789')}",
            scale=found[0].scale,
            columns=count,
            parts=[f"controller {i}" for i in range(count)] if count > 1 else [],
        )
        for key, what in zip(KEYS, ("read", "written"), strict=True)
    ]
    members = {cpu: group for group in packages for cpu in reading.intersection(group)}

    def bundles(cpu: int) -> list[Bundle]:
        place = _places(found, members[cpu]) if cpu in members else []
        return _bundles(place, each, count) if len(place) * each <= count else []

    return Groups(kernel, "package", counters, bundles)


Place = list[tuple[Controller, int]]
"""The controllers of a package, each with the CPU to ask; one that has several dies stands there
once a die."""


def _places(found: Iterable[Controller], package: Sequence[int]) -> Place:
    mine = set(package)
    return [(one, cpu) for one in found for cpu in sorted(mine & (one.pmu.cpus_now or set()))]


def _bundles(place: Place, each: int, count: int) -> list[Bundle]:
    """A group for each controller, its reads and its writes."""
    found = []
    for number, (one, cpu) in enumerate(place):
        columns = [
            (replace(event, key=f"{event.key} {i}"), side * count + number * each + i)
            for side, events in enumerate(one.events)
            for i, event in enumerate(events)
        ]
        found.append(Bundle(cpu, columns))
    return found


# --- why not --------------------------------------------------------------------------------------


def _unlike(found: Sequence[Controller], places: Sequence[Place]) -> Trouble | None:
    """Why the counts of packages cannot be told side by side."""
    if len({one.scale for one in found}) > 1:
        return Trouble("its memory controllers count in different units")
    numbers = {len(place) for place in places}
    if len(numbers) > 1 or 0 in numbers:
        return Trouble("packages have different numbers of memory controllers")
    if max(numbers) * max(len(one.events[0]) for one in found) >= MOST:
        return Trouble(f"a package has more than {MOST - 1} memory channels")
    return None


def _refused(found: Sequence[Controller], kernel: Kernel, root: Path) -> Trouble | None:
    """Why an event cannot be opened; all are tried, since a sum without one would be too small."""
    for one in found:
        for event in (event for events in one.events for event in events):
            try:
                kernel.close(kernel.open(event, min(one.pmu.cpus or {0}), LEADER, host_only=False))
            except OSError as error:
                return trouble(error, root)
    return None
