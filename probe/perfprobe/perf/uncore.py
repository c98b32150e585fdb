"""Counters of cores and packages from uncore PMUs: residency in C-states, energy, limits of the
clock from the power control unit (PCU), and memory traffic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfprobe.cpu import files, identity, topology
from perfprobe.kernel.access import Problem
from perfprobe.perf import perf_pmus
from perfprobe.perf.groups import GroupPlan, PerfPart
from perfprobe.perf.perf_events import Event, Kernel, find_refusal
from perfprobe.perf.perf_pmus import Pmu
from perfprobe.wire import Counter, Cpu, Missing, Scope

# --- events of the power control unit of Xeons ----------------------------------------------------
# Source: Intel's uncore event lists. The PCU counts ticks of its clock (800 MHz or 1 GHz) for which
# a limit applies; count / `pcu_ticks` is the share of time.

PCU_COUNTERS = 4
"""Number of counters of a PCU. With more events, the kernel would rotate them every few ms, and
wake a CPU of each package each time."""
TICKS_KEY = "pcu_ticks"
EXTENSION_SET_BIT = 0x100
"""Bit of the event codes of the PCU's extension set, which some PMUs have as a ninth bit."""

_SANDY_BRIDGE_PCU = {
    TICKS_KEY: 0x00,
    "pcu_transition": EXTENSION_SET_BIT | 0x00,
    "pcu_power": 0x05,
    "pcu_thermal": 0x04,
    "pcu_current": 0x07,
    "pcu_prochot_external": 0x0A,
    "pcu_prochot_internal": 0x09,
    "pcu_vr": 0x32,
    "pcu_os": 0x06,
}
_IVY_BRIDGE_PCU = {**_SANDY_BRIDGE_PCU, "pcu_transition": 0x60}
_SKYLAKE_PCU = {
    TICKS_KEY: 0x00,
    "pcu_transition": 0x74,
    "pcu_power": 0x05,
    "pcu_thermal": 0x04,
    "pcu_prochot_external": 0x0A,
    "pcu_prochot_internal": 0x09,
    "pcu_vr": 0x42,
}
_HASWELL_PCU = {**_SKYLAKE_PCU, "pcu_os": 0x06}  # from Skylake on, this code selects another event
_ICE_LAKE_PCU = {**_SKYLAKE_PCU, "pcu_avx512": 0x4A, "pcu_avx256": 0x49}
# Sapphire Rapids: SIMD levels come before thermal limits, because its cores have no events for the
# levels, and thermal_throttle covers heat, too.
_SAPPHIRE_RAPIDS_PCU = {
    TICKS_KEY: 0x01,
    **{
        key: _ICE_LAKE_PCU[key]
        for key in ("pcu_transition", "pcu_power", "pcu_avx512", "pcu_thermal")
    },
    **{key: code for key, code in _ICE_LAKE_PCU.items() if key != TICKS_KEY},
}
_GRANITE_RAPIDS_PCU = {
    TICKS_KEY: 0x01,
    **{key: code for key, code in _SKYLAKE_PCU.items() if key not in {TICKS_KEY, "pcu_vr"}},
}

_PCU_CODES_BY_MODEL: Mapping[int, Mapping[str, int]] = {
    0x2D: _SANDY_BRIDGE_PCU,
    0x3E: _IVY_BRIDGE_PCU,
    **dict.fromkeys((0x3F, 0x4F, 0x56), _HASWELL_PCU),
    0x55: _SKYLAKE_PCU,
    **dict.fromkeys((0x6A, 0x6C), _ICE_LAKE_PCU),
    **dict.fromkeys((0x8F, 0xCF), _SAPPHIRE_RAPIDS_PCU),
    **dict.fromkeys((0xAD, 0xAE, 0xAF, 0xDD), _GRANITE_RAPIDS_PCU),
}


def pcu_codes(vendor: str, family: int | None, model: int | None) -> Mapping[str, int]:
    """Returns a model's event codes of the PCU by counter key, the most informative first."""
    if vendor != "GenuineIntel" or family != 6 or model is None:
        return {}
    return _PCU_CODES_BY_MODEL.get(model, {})


# --- PMUs of cores and packages -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UncoreKind:
    """A kind of uncore PMU, with the events that are counted on it."""

    pmu: str
    scope: Scope
    unit: str
    events: dict[str, str]
    """Counter keys by the event's name in sysfs."""
    max_events: int | None = None
    """Number of events that the PMU can count at once; None: each event has its own counter."""


# The unit of C-state counters is a tick of the TSC.
UNCORE_KINDS = (
    UncoreKind("cstate_core", "core", "1", {f"c{n}-residency": f"core_c{n}" for n in (1, 3, 6, 7)}),
    UncoreKind(
        "cstate_pkg",
        "package",
        "1",
        {f"c{n}-residency": f"package_c{n}" for n in (2, 3, 6, 7, 8, 9, 10)},
    ),
    UncoreKind(
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
    UncoreKind("power_core", "core", "J", {"energy-core": "energy_core_j"}),
)
PCU = UncoreKind("uncore_pcu", "package", "1", {}, max_events=PCU_COUNTERS)


def uncore_parts(kernel: Kernel, rows: Sequence[Cpu], online: Sequence[Cpu]) -> list[PerfPart]:
    """Returns a part for each uncore PMU here, except memory controllers."""
    root, parts = kernel.root, []
    for kind in (*UNCORE_KINDS, PCU):
        pmu = perf_pmus.find_pmu(root, kind.pmu)
        if pmu is None or not online:
            continue
        if kind is PCU:  # the PMU lists no events, so raw codes are used
            cpu_identity = identity.read_identity(root)
            codes = pcu_codes(cpu_identity.vendor, cpu_identity.family, cpu_identity.model)
            names = {key.replace("_", " "): key for key in codes}
            configs = {
                name: perf_pmus.shift_to_term(pmu, "event", codes[key])
                for name, key in names.items()
            }
        else:  # the PMU lists the events that the model has
            names = kind.events
            configs = {name: perf_pmus.event_config(pmu, name) for name in names}
        events = {
            name: Event(names[name], pmu.type, config, is_core=False)
            for name, config in configs.items()
            if config is not None
        }
        if events:
            parts.append(_part(kernel, kind, pmu, events, rows, online))
    return parts


def _part(
    kernel: Kernel,
    kind: UncoreKind,
    pmu: Pmu,
    events_by_name: dict[str, Event],
    rows: Sequence[Cpu],
    online: Sequence[Cpu],
) -> PerfPart:
    groups = topology.cores(rows) if kind.scope == "core" else topology.packages(rows)
    members = {cpu: group for group in groups for cpu in group}

    def die_cpus(cpu: int) -> list[int]:
        """Returns the CPUs on which to open the events of this CPU's core or package: one for each
        die of a package, as the PMU names them; the CPU itself if it names none."""
        reading_cpus = pmu.current_cpus or frozenset()
        chosen = [member for member in members.get(cpu, [cpu]) if member in reading_cpus]
        return chosen[:1] if chosen and kind.scope == "core" else chosen or [cpu]

    die = die_cpus(online[0].cpu)[0]
    refused = {name: find_refusal(kernel, event, die) for name, event in events_by_name.items()}
    events = {name: event for name, event in events_by_name.items() if refused[name] is None}
    missing: list[Missing] = []
    for name, refusal in refused.items():
        missing += refusal.missing(events_by_name[name].key) if refusal else []
    if kind.max_events is not None:  # with more events than counters, the kernel would rotate them
        reason = f"its unit has {kind.max_events} counters, and more informative events have them"
        names = list(events)
        missing += [Missing(events.pop(name).key, reason) for name in names[kind.max_events :]]
    width = max((len(die_cpus(row.cpu)) for row in online), default=1)
    counters = [
        Counter(
            event.key,
            name.replace("-", " "),
            kind.unit,
            f"perf {kind.pmu}",
            scale=perf_pmus.event_scale(pmu, name),
            columns=width,
            parts=[f"die {i}" for i in range(width)] if width > 1 else [],
        )
        for name, event in events.items()
    ]

    def plan_groups(cpu: int) -> list[GroupPlan]:
        return [
            (die, [(event, n * width + i) for n, event in enumerate(events.values())])
            for i, die in enumerate(die_cpus(cpu)[:width])
        ]

    return PerfPart(kernel, kind.scope, counters, plan_groups, missing=missing)


# --- memory controllers ---------------------------------------------------------------------------
# Intel's drivers list the events in sysfs; AMD's driver lists none, so the event codes are here.
# The `cpumask` of a controller's PMU has the CPU on which it is read; if the controllers of several
# packages share a PMU, one CPU of each package.

READ_KEY, WRITE_KEY = TRAFFIC_KEYS = ("memory_read_bytes", "memory_write_bytes")
NAMED_EVENTS = (
    (("cas_count_read",), ("cas_count_write",)),
    (
        ("cas_count_read_sch0", "cas_count_read_sch1"),
        ("cas_count_write_sch0", "cas_count_write_sch1"),
    ),
    (("data_reads",), ("data_writes",)),
    (("data_read",), ("data_write",)),
    (("read",), ("write",)),
)
"""Names of the events for reads and for writes in sysfs: of servers, of Granite Rapids (two
channels a controller), of clients, and of free-running counters of clients and of servers."""
CONTROLLER_STEMS = ("uncore_imc", "uncore_imc_free_running")
"""Names of controllers' PMUs without their numbers, in the order of preference."""
HBM_PMU = "uncore_hbm"
"""PMUs of the HBM of Xeon Max, which are not read: Linux's uncore_snbep.c has their events, but no
public source states the bytes of a count."""
HBM_PROBLEM = "memory traffic is that of DDR: the unit of the HBM counts is not public"
TRAFFIC_UNIT, TRAFFIC_UNIT_BYTES = "MiB", 1 << 20
"""The unit in which all of Intel's drivers state the traffic, and its size in bytes."""
LINE_BYTES = 64
CLOCK_KEY, CLOCK_EVENT = "memory_clock", "clockticks"
"""Key and event of a memory channel's clock, half its transfer rate; Intel servers list it."""
AMD_PMU, CAS_COMMANDS, RDWR_MASKS = "amd_umc", 0x0A, (1, 2)
"""AMD's memory controllers: PMU, event code of 64-byte accesses, masks of reads and writes."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A memory controller: its events for reads and for writes, and its clock."""

    pmu: Pmu
    events: tuple[tuple[Event, ...], tuple[Event, ...]]
    scale: float
    """Bytes per count."""
    clock_event: Event | None = None


def memory_controllers(root: Path) -> list[Controller]:
    """Returns the memory controllers of the first kind (Intel's, then AMD's) that has events for
    reads and for writes; empty if there are none."""
    for stem in (*CONTROLLER_STEMS, AMD_PMU):
        read = _raw_controller if stem == AMD_PMU else _named_controller
        controllers = [controller for pmu in _pmus(root, stem) if (controller := read(pmu))]
        if controllers:
            return controllers
    return []


def _pmus(root: Path, stem: str) -> Iterator[Pmu]:
    names = files.file_names(f"{root}/{perf_pmus.PMU_DIRECTORY}")
    number = re.compile(re.escape(stem) + "(?:_([0-9]{1,4}))?")
    matches = {name: match for name in names if (match := number.fullmatch(name))}
    for name in sorted(matches, key=lambda name: int(matches[name][1] or -1)):
        pmu = perf_pmus.find_pmu(root, name)
        if pmu is not None:
            yield pmu


def _named_controller(pmu: Pmu) -> Controller | None:
    for names in NAMED_EVENTS:
        codes = [[perf_pmus.event_config(pmu, name) for name in side] for side in names]
        all_names = [name for side in names for name in side]
        units = {perf_pmus.event_unit(pmu, name) for name in all_names}
        scale, *other_scales = {perf_pmus.event_scale(pmu, name) for name in all_names}
        if units != {TRAFFIC_UNIT} or other_scales or any(None in side for side in codes):
            continue
        reads, writes = (
            tuple(Event(key, pmu.type, config or 0, is_core=False) for config in side)
            for key, side in zip(TRAFFIC_KEYS, codes, strict=True)
        )
        config = perf_pmus.event_config(pmu, CLOCK_EVENT)
        is_server = names[0][0].startswith("cas_count") and config is not None
        clock = Event(CLOCK_KEY, pmu.type, config or 0, is_core=False) if is_server else None
        return Controller(pmu, (reads, writes), scale * TRAFFIC_UNIT_BYTES, clock)
    return None


def _raw_controller(pmu: Pmu) -> Controller | None:
    event = perf_pmus.shift_to_term(pmu, "event", CAS_COMMANDS)
    masks = [perf_pmus.shift_to_term(pmu, "rdwrmask", mask) for mask in RDWR_MASKS]
    if event is None or None in masks:
        return None
    reads, writes = (
        (Event(key, pmu.type, event | (mask or 0), is_core=False),)
        for key, mask in zip(TRAFFIC_KEYS, masks, strict=True)
    )
    return Controller(pmu, (reads, writes), LINE_BYTES)


def missing_controller_problem(root: Path) -> Problem:
    guest = identity.virtualisation(root)
    if guest is not None:
        return Problem("memory controllers are not visible in a VM", "check on the host")
    cpu_identity = identity.read_identity(root)
    if cpu_identity.vendor == "AuthenticAMD":
        return Problem("no PMU amd_umc: it needs Zen 4 or later, and Linux 6.7 or later")
    if not (root / perf_pmus.PMU_DIRECTORY).exists():
        return Problem("this kernel has no perf events")
    return Problem("this kernel shows no memory controllers", "sudo modprobe intel_uncore")


# --- the part of memory traffic -------------------------------------------------------------------
# The controllers of a package are the columns of a counter.

MAX_CHANNELS = 64
"""Maximum number of columns that a perf group can fill."""


def memory_part(kernel: Kernel, rows: Sequence[Cpu], online: Sequence[Cpu]) -> PerfPart:
    """Returns the part with memory traffic in bytes, by package; if it cannot be counted, a part
    without counters that has the reason."""
    root, all_controllers = kernel.root, memory_controllers(kernel.root)
    online_cpus = {row.cpu for row in rows if row.online}
    packages = [group for group in topology.packages(rows) if not online_cpus.isdisjoint(group)]
    reading = {row.cpu for row in online}
    package_readers = [_package_readers(all_controllers, group) for group in packages]
    problem = _traffic_problem(kernel, all_controllers, package_readers)
    if problem is not None:
        missing = problem.missing(*TRAFFIC_KEYS)
        return PerfPart(kernel, "package", [], lambda _: [], missing=missing)
    channels = max(len(events) for controller in all_controllers for events in controller.events)
    controller_count = max(map(len, package_readers))
    count = channels * controller_count
    has_clock = 2 * count < MAX_CHANNELS and all(
        controller.clock_event is not None
        and not find_refusal(kernel, controller.clock_event, min(controller.pmu.cpus or {0}))
        for controller in all_controllers
    )
    counters = [
        Counter(
            key,
            f"memory {direction}",
            "B",
            f"perf {all_controllers[0].pmu.name.rstrip('_0123456789')}",
            scale=all_controllers[0].scale,
            columns=count,
            parts=[f"controller {i}" for i in range(count)] if count > 1 else [],
        )
        for key, direction in zip(TRAFFIC_KEYS, ("read", "written"), strict=True)
    ]
    if has_clock:
        clock = replace(
            counters[0], key=CLOCK_KEY, name="clock of memory", unit="cycles", scale=1.0
        )
        parts = clock.parts[:controller_count]
        counters.append(replace(clock, columns=controller_count, parts=parts))
    members = {cpu: group for group in packages for cpu in reading.intersection(group)}

    def plan_groups(cpu: int) -> list[GroupPlan]:
        """Returns a group for each memory controller of the CPU's package."""
        readers = _package_readers(all_controllers, members[cpu]) if cpu in members else []
        if len(readers) * channels > count:
            return []
        groups: list[GroupPlan] = []
        for number, (controller, reader) in enumerate(readers):
            columns = [
                (replace(event, key=f"{event.key} {i}"), side * count + number * channels + i)
                for side, events in enumerate(controller.events)
                for i, event in enumerate(events)
            ]
            if has_clock and controller.clock_event is not None:
                columns.append((controller.clock_event, 2 * count + number))
            groups.append((reader, columns))
        return groups

    hbm = Missing("hbm_bytes", HBM_PROBLEM) if any(_pmus(root, HBM_PMU)) else None
    return PerfPart(kernel, "package", counters, plan_groups, missing=[hbm] if hbm else [])


Readers = list[tuple[Controller, int]]
"""The memory controllers of a package, each with the CPU that reads it. A PMU that several dies
share is listed once for each die."""


def _package_readers(controllers: Iterable[Controller], package: Sequence[int]) -> Readers:
    cpus = set(package)
    return [
        (controller, cpu)
        for controller in controllers
        for cpu in sorted(cpus & (controller.pmu.current_cpus or set()))
    ]


def _traffic_problem(
    kernel: Kernel, controllers: Sequence[Controller], package_readers: Sequence[Readers]
) -> Problem | None:
    """Returns why memory traffic cannot be counted; None if it can. All events must work: a sum
    without one of them would be too small."""
    if not controllers:
        return missing_controller_problem(kernel.root)
    if len({controller.scale for controller in controllers}) > 1:
        return Problem("its memory controllers count in different units")
    numbers = {len(readers) for readers in package_readers}
    if len(numbers) > 1 or 0 in numbers:
        return Problem("packages have different numbers of memory controllers")
    if max(numbers) * max(len(controller.events[0]) for controller in controllers) >= MAX_CHANNELS:
        return Problem(f"a package has more than {MAX_CHANNELS - 1} memory channels")
    refusals = (
        find_refusal(kernel, event, min(controller.pmu.cpus or {0}))
        for controller in controllers
        for events in controller.events
        for event in events
    )
    return next(filter(None, refusals), None)
