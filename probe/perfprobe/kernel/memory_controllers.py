"""The PMUs of memory controllers, and their events for reads and for writes.

Intel's drivers name the events in sysfs; AMD's driver names none, so its codes are here. A
controller belongs to one package: its `cpumask` has the CPU to ask, or a CPU in each package where
packages share the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfprobe.cpu import files, identity
from perfprobe.kernel import perf_pmus
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.perf_events import Event
from perfprobe.kernel.perf_pmus import Pmu

READ, WRITE = KEYS = ("memory_read_bytes", "memory_write_bytes")
NAMED = (
    (("cas_count_read",), ("cas_count_write",)),
    (
        ("cas_count_read_sch0", "cas_count_read_sch1"),
        ("cas_count_write_sch0", "cas_count_write_sch1"),
    ),
    (("data_reads",), ("data_writes",)),
    (("data_read",), ("data_write",)),
    (("read",), ("write",)),
)
"""Events for reads and for writes, as drivers name them: servers, Granite Rapids with two channels
a controller, clients, free-running counters of clients and of servers."""
STEMS = ("uncore_imc", "uncore_imc_free_running")
"""Names of controllers without their numbers, in the order of preference."""
BYTES = {"MiB": 1 << 20, "MB": 10**6, "KiB": 1 << 10, "Bytes": 1, "B": 1}
LINE = 64
AMD, CAS_COMMANDS, MASKS = "amd_umc", 0x0A, (1, 2)
"""AMD's event of column accesses, each of a cache line, and its masks for reads and for writes."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller's events for reads and for writes."""

    pmu: Pmu
    events: tuple[tuple[Event, ...], tuple[Event, ...]]
    scale: float
    """Bytes in a count."""


def controllers(root: Path) -> list[Controller]:
    """The controllers of the first kind that names events for both directions."""
    for stem in (*STEMS, AMD):
        found = [one for pmu in _pmus(root, stem) if (one := _controller(pmu, stem)) is not None]
        if found:
            return found
    return []


def _pmus(root: Path, stem: str) -> Iterator[Pmu]:
    names = files.names(f"{root}/{perf_pmus.DEVICES}")
    number = re.compile(re.escape(stem) + "(?:_([0-9]{1,4}))?")
    matched = {name: found for name in names if (found := number.fullmatch(name))}
    for name in sorted(matched, key=lambda name: int(matched[name][1] or -1)):
        pmu = perf_pmus.find(root, name)
        if pmu is not None:
            yield pmu


def _controller(pmu: Pmu, stem: str) -> Controller | None:
    if stem == AMD:
        return _coded(pmu)
    for names in NAMED:
        codes = [[perf_pmus.config(pmu, name) for name in side] for side in names]
        scales = {_bytes(pmu, name) for side in names for name in side}
        (scale, *others) = scales
        if others or scale is None or any(None in side for side in codes):
            continue
        reads, writes = (
            tuple(Event(key, pmu.type, config or 0, core=False) for config in side)
            for key, side in zip(KEYS, codes, strict=True)
        )
        return Controller(pmu, (reads, writes), scale)
    return None


def _coded(pmu: Pmu) -> Controller | None:
    event = perf_pmus.placed_term(pmu, "event", CAS_COMMANDS)
    masks = [perf_pmus.placed_term(pmu, "rdwrmask", mask) for mask in MASKS]
    if event is None or None in masks:
        return None
    reads, writes = (
        (Event(key, pmu.type, event | (mask or 0), core=False),)
        for key, mask in zip(KEYS, masks, strict=True)
    )
    return Controller(pmu, (reads, writes), LINE)


def _bytes(pmu: Pmu, event: str) -> float | None:
    """Bytes in a count, by the scale and unit that the driver gives."""
    unit = BYTES.get(perf_pmus.unit(pmu, event))
    return None if unit is None else perf_pmus.scale(pmu, event) * unit


def absent(root: Path) -> Trouble:
    """Why there is no controller."""
    guest = identity.virtualisation(root)
    if guest is not None:
        return Trouble("a guest is shown no memory controllers", "look on the host")
    who = identity.identity(root)
    if who.vendor == "AuthenticAMD":
        return Trouble("no PMU amd_umc: it needs Zen 4 or later, and Linux 6.8 or later")
    if not (root / perf_pmus.DEVICES).exists():
        return Trouble("this kernel has no perf events")
    return Trouble("this kernel shows no memory controllers", "sudo modprobe intel_uncore")
