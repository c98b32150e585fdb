"""Counters of cores and packages: residency in C-states and energy, by the PMUs that have them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfprobe import perfpmu, topology
from perfprobe.perfevent import LEADER, Event, Kernel, trouble
from perfprobe.perfpmu import Pmu
from perfprobe.sources.perfgroups import Bundle, Groups
from perfprobe.wire import Counter, Cpu, Missing, Scope


@dataclass(frozen=True, slots=True)
class Kind:
    pmu: str
    scope: Scope
    unit: str
    events: dict[str, str]
    """Key by the event's name in sysfs."""


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


def parts(root: Path, rows: Sequence[Cpu], read: Sequence[Cpu], kernel: Kernel) -> list[Groups]:
    """One for each PMU that is there; nothing is said of those that are not."""
    found = []
    for kind in KINDS:
        pmu = perfpmu.find(root, kind.pmu)
        if pmu is not None and read:
            found.append(_part(kind, pmu, rows, read, kernel))
    return found


def _part(kind: Kind, pmu: Pmu, rows: Sequence[Cpu], read: Sequence[Cpu], kernel: Kernel) -> Groups:
    groups = topology.cores(rows) if kind.scope == "core" else topology.packages(rows)
    dies = _dies(kind, pmu, groups)
    events, missing = _openable(kind, pmu, kernel, dies(read[0].cpu)[0])
    width = max((len(dies(row.cpu)) for row in read), default=1)
    counters = [
        Counter(
            event.key,
            name.replace("-", " "),
            kind.unit,
            f"perf {kind.pmu}",
            scale=perfpmu.scale(pmu, name),
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

    part = Groups(kernel, kind.scope, counters, bundles)
    part.missing = missing
    return part


def _dies(kind: Kind, pmu: Pmu, groups: list[list[int]]) -> Callable[[int], list[int]]:
    """Which CPUs to ask for all of a CPU's core or package: the PMU's own choice, of which there
    are several in a package of several dies. Without one, the CPU itself."""
    members = {cpu: group for group in groups for cpu in group}

    def dies(cpu: int) -> list[int]:
        chosen = [c for c in members.get(cpu, [cpu]) if pmu.cpus is not None and c in pmu.cpus]
        return chosen[:1] if chosen and kind.scope == "core" else chosen or [cpu]

    return dies


def _openable(
    kind: Kind, pmu: Pmu, kernel: Kernel, cpu: int
) -> tuple[dict[str, Event], list[Missing]]:
    """The events by name; the PMU lists those that the model has, and rights may lack."""
    events: dict[str, Event] = {}
    missing: list[Missing] = []
    for name, key in kind.events.items():
        config = perfpmu.config(pmu, name)
        if config is None:
            continue
        event = Event(key, pmu.type, config, core=False)
        try:
            fd = kernel.open(event, cpu, LEADER, host_only=False)
        except OSError as error:
            found = trouble(error)
            missing.append(Missing(key, found.why, found.fix))
            continue
        with contextlib.suppress(OSError):
            kernel.close(fd)
        events[name] = event
    return events, missing
