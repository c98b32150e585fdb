"""Counters of cores and packages from their PMUs: residency in C-states, energy, and what the power
control unit does to the clock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from perfprobe.cpu import identity, power_unit_events, topology
from perfprobe.frozen import frozen
from perfprobe.kernel import perf_pmus
from perfprobe.kernel.perf_events import LEADER, Event, Kernel, trouble
from perfprobe.kernel.perf_pmus import Pmu
from perfprobe.sources.perf.groups import Bundle, Groups
from perfprobe.wire import Counter, Cpu, Missing, Scope


@frozen
class Kind:
    pmu: str
    scope: Scope
    unit: str
    events: dict[str, str]
    """Key by the event's name in sysfs."""
    counters: int | None = None
    """Number of events that it can count at once; None: each event has its own counter."""


# C-state counters tick with the TSC.
KINDS = (
    Kind("cstate_core", "core", "1", {f"c{n}-residency": f"core_c{n}" for n in (1, 3, 6, 7)}),
    Kind(
        "cstate_pkg",
        "package",
        "1",
        {f"c{n}-residency": f"package_c{n}" for n in (2, 3, 6, 7, 8, 9, 10)},
    ),
    Kind(
        "power",
        "package",
        "J",
        {
            "energy-pkg": "energy_j",
            "energy-cores": "energy_cores_j",
            "energy-ram": "energy_ram_j",
            "energy-gpu": "energy_gpu_j",
            "energy-psys": "energy_psys_j",
        },
    ),
    Kind("power_core", "core", "J", {"energy-core": "energy_core_j"}),
)
PCU = Kind("uncore_pcu", "package", "1", {}, counters=power_unit_events.COUNTERS)


def parts(root: Path, rows: Sequence[Cpu], read: Sequence[Cpu], kernel: Kernel) -> list[Groups]:
    """A part for each PMU that exists. Absent PMUs are not reported as missing."""
    found = []
    for kind in (*KINDS, PCU):
        pmu = perf_pmus.find(root, kind.pmu)
        if pmu is not None and read:
            wanted = _power_control(root, pmu) if kind is PCU else _listed(kind, pmu)
            if wanted:
                found.append(_part(kind, pmu, wanted, rows, read, kernel))
    return found


def _listed(kind: Kind, pmu: Pmu) -> dict[str, Event]:
    """Events by name, as far as the PMU lists them: it lists those that the model has."""
    configs = {name: perf_pmus.config(pmu, name) for name in kind.events}
    return {
        name: Event(kind.events[name], pmu.type, config, core=False)
        for name, config in configs.items()
        if config is not None
    }


def _power_control(root: Path, pmu: Pmu) -> dict[str, Event]:
    """Events by name. The PMU lists none, so raw codes are used."""
    who = identity.identity(root)
    codes = power_unit_events.events(who.vendor, who.family, who.model)
    configs = {key: perf_pmus.placed_term(pmu, "event", code) for key, code in codes.items()}
    return {
        key.replace("_", " "): Event(key, pmu.type, config, core=False)
        for key, config in configs.items()
        if config is not None
    }


def _part(
    kind: Kind,
    pmu: Pmu,
    wanted: dict[str, Event],
    rows: Sequence[Cpu],
    read: Sequence[Cpu],
    kernel: Kernel,
) -> Groups:
    groups = topology.cores(rows) if kind.scope == "core" else topology.packages(rows)
    dies = _dies(kind, pmu, groups)
    events, missing = _openable(wanted, kernel, dies(read[0].cpu)[0])
    if kind.counters is not None:
        events, short = _fitting(events, kind.counters)
        missing += short
    width = max((len(dies(row.cpu)) for row in read), default=1)
    counters = [
        Counter(
            event.key,
            name.replace("-", " "),
            kind.unit,
            f"perf {kind.pmu}",
            scale=perf_pmus.scale(pmu, name),
            columns=width,
            parts=[f"die {i}" for i in range(width)] if width > 1 else [],
        )
        for name, event in events.items()
    ]

    def bundles(cpu: int) -> list[Bundle]:
        return [
            Bundle(die, [(event, n * width + i) for n, event in enumerate(events.values())])
            for i, die in enumerate(dies(cpu)[:width])
        ]

    return Groups(kernel, kind.scope, counters, bundles, missing=missing)


def _dies(kind: Kind, pmu: Pmu, groups: list[list[int]]) -> Callable[[int], list[int]]:
    """Returns a function from a CPU to the CPUs that must be asked for its whole core or package.
    The PMU names them, several for a package of several dies; otherwise it is the CPU itself."""
    members = {cpu: group for group in groups for cpu in group}

    def dies(cpu: int) -> list[int]:
        named = pmu.cpus_now or frozenset()
        chosen = [member for member in members.get(cpu, [cpu]) if member in named]
        return chosen[:1] if chosen and kind.scope == "core" else chosen or [cpu]

    return dies


def _openable(
    wanted: dict[str, Event], kernel: Kernel, cpu: int
) -> tuple[dict[str, Event], list[Missing]]:
    """The events that may be opened, by name, and what is missing."""
    events: dict[str, Event] = {}
    missing: list[Missing] = []
    for name, event in wanted.items():
        try:
            fd = kernel.open(event, cpu, LEADER, host_only=False)
        except OSError as error:
            found = trouble(error)
            missing.append(Missing(event.key, found.why, found.fix))
            continue
        with contextlib.suppress(OSError):
            kernel.close(fd)
        events[name] = event
    return events, missing


def _fitting(events: dict[str, Event], counters: int) -> tuple[dict[str, Event], list[Missing]]:
    """As many events as there are counters; with more the kernel would rotate them."""
    names = list(events)
    why = f"its unit has {counters} counters, and events that tell more have them"
    missing = [Missing(events[name].key, why) for name in names[counters:]]
    return {name: events[name] for name in names[:counters]}, missing
