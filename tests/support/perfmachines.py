"""Machines with a core PMU for the perf source: files, CPUID and a fake kernel."""

from __future__ import annotations

from pathlib import Path

import fakeperf
import trees

from perfprobe.cpu import cpuid, topology
from perfprobe.sources.os.parts import Part
from perfprobe.sources.perf import parts

INTEL, AMD = "GenuineIntel", "AuthenticAMD"
SKX, ICX, ALDER = 0x55, 0x6A, 0x97
ALL = ["ref", "cycles", "instructions", "kernel_instructions", "kernel_cycles"]
LEVELS = ["license_1", "license_2"]
LICENSES = [*LEVELS, "license_throttle"]
TIMES = ["perf_enabled_s", "perf_running_s"]


class Leaves:
    """CPUID with PMU version 4 or 5, and with a crystal."""

    def __init__(self, version: int = 4, *, deprecated: bool = False, gp: int = 4) -> None:
        self._read: dict[int, cpuid.Registers] = {
            0: (0x16, 0, 0, 0),
            1: (0, 0, 0, 0),
            0xA: (version | gp << 8 | 48 << 16 | 8 << 24, 0, 0, 3 | 48 << 5 | deprecated << 15),
            0x15: (2, 168, 0, 0),
            0x16: (2100, 3700, 100, 0),
        }

    def __call__(self, leaf: int, _subleaf: int = 0, /) -> cpuid.Registers | None:
        return self._read.get(leaf, (0, 0, 0, 0))


def machine(root: Path, cores: int = 2, threads: int = 2) -> None:
    trees.machine(root, cores, threads)


def skylake(root: Path) -> parts.Planner:
    return planned(root, INTEL, 6, SKX, Leaves())


def planned(
    root: Path, vendor: str, family: int, model: int, leaves: cpuid.Leaves, threads: int = 2
) -> parts.Planner:
    """A planner for a machine of two cores with one PMU."""
    machine(root, threads=threads)
    fakeperf.identity(root, vendor, family, model)
    fakeperf.pmu(root, "cpu", 4)
    return parts.Planner(root, topology.read(root), lambda _: leaves)


def opened(root: Path, planner: parts.Planner, kernel: fakeperf.Kernel) -> list[Part]:
    """All parts; without that of memory controllers, if there are none."""
    found = parts.open_perf(root, topology.read(root), planner, kernel=kernel)
    return found if found[2].counters else [*found[:2], *found[3:]]


def has(part: Part, *, cpu: int | None = None) -> list[str]:
    return [c.key for c in part.counters if cpu is None or c.cpus is None or cpu in c.cpus]
