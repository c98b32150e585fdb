"""A fake perf_event_open with a given number of counters, and the PMU files of several machines."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trees

from perfprobe.cpu import cpuid, topology
from perfprobe.machine.parts import Part
from perfprobe.perf import cores, perf_events
from perfprobe.perf.perf_events import NO_LEADER, Event, Trial
from perfprobe.wire import Cpu

DEVICES = "sys/bus/event_source/devices"
TICKS = 4_000_000  # number of TSC ticks in a trial
Refuse = Callable[[Event, int, bool], int]


def refuse_nothing(_event: Event, _cpu: int, _host_only: bool) -> int:
    return 0


@dataclass
class Group(perf_events.Group):
    fds: list[int]
    timed: bool
    address: int
    uses_rdpmc: bool = False
    mapped: bool = True
    at: list[int] = field(default_factory=list)
    closed: bool = False

    @property
    def columns(self) -> int:
        return max(self.at) + 1 + 2 * self.timed

    def set_columns(self, columns: Sequence[int]) -> None:
        assert list(columns) == sorted(columns)
        self.at = list(columns)

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class Kernel(perf_events.Kernel):
    """A kernel in which each event of a core PMU takes one counter; `refuse` returns an errno for
    an event, or 0."""

    def __init__(
        self,
        counters: int = 9,
        *,
        taken: Mapping[int, int] | int = 0,
        refuse: Refuse = refuse_nothing,
        moved: Mapping[str, int] | None = None,
        turns: Mapping[int, int] | None = None,
    ) -> None:
        """`taken`: number of counters, by CPU, that another program holds. A group that needs more
        than the rest can be opened but never runs. `turns`: number of counters, by CPU, that other
        programs use in turns: a pinned group displaces them, any other group waits. `moved`: counts
        of a trial by event key."""
        super().__init__(Path("/nonexistent"))
        self.counters = counters
        self.refuse = refuse
        self.groups: list[Group] = []
        self.opened: dict[int, tuple[Event, int, int, bool]] = {}
        """Event, CPU, leader and whether the event counts the host only, by descriptor."""
        self.spun: list[tuple[int, int]] = []
        self._taken, self._turns = taken, dict(turns or {})
        self._moved = {"ref": TICKS // 2, "msr_tsc": TICKS, **(moved or {})}
        self._fds = itertools.count(100)
        self._lock = threading.Lock()

    def open(self, event: Event, cpu: int, leader: int, *, host_only: bool) -> int:
        with self._lock:
            if number := self.refuse(event, cpu, host_only):
                raise OSError(number, "refused")
            members = [e for e, _, at, _ in self.opened.values() if leader == at]
            cores = [event, *members]
            if leader != NO_LEADER:
                cores.append(self.opened[leader][0])
                if sum(e.is_core for e in cores) > self.counters and event.is_core:
                    raise OSError(errno.EINVAL, "the group does not fit")
            fd = next(self._fds)
            self.opened[fd] = (event, cpu, leader, host_only)
            return fd

    def enable(self, leader: int) -> None:
        pass

    def close(self, fd: int) -> None:
        with self._lock:
            del self.opened[fd]

    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool) -> Group:
        with self._lock:
            group = Group(list(fds), timed, 0x1000 * (1 + len(self.groups)), mapped=mapped)
            group.set_columns(range(len(fds)))
            self.groups.append(group)
            return group

    def trial(self, group: Any, cpu: int, cpu_ns: int) -> Trial:
        with self._lock:
            self.spun.append((cpu, cpu_ns))
            events = [self.opened[fd][0] for fd in group.fds]
            taken = self._taken if isinstance(self._taken, int) else self._taken.get(cpu, 0)
            share = self._share(group, cpu, self.counters - taken)
            counts = [self._moved.get(event.key, 1000) if share else 0 for event in events]
            return Trial(counts, share if group.timed else 1.0, TICKS, 0.9)

    def _share(self, group: Group, cpu: int, free: int) -> float:
        """Returns the share of time for which the group is on the counters: pinned groups always
        are, and the other groups take turns on the remaining counters, each as a whole."""

        def counters_of(group: Group) -> int:
            return sum(self.opened[fd][0].is_core for fd in group.fds)

        def is_pinned(group: Group) -> bool:
            return self.opened[group.fds[0]][0].pinned

        open_groups = [g for g in self.groups if not g.closed and self.opened[g.fds[0]][1] == cpu]
        earlier = open_groups[: open_groups.index(group)] if is_pinned(group) else open_groups
        free -= sum(counters_of(other) for other in earlier if is_pinned(other))
        if not is_pinned(group):
            free -= self._turns.get(cpu, 0)
        if counters_of(group) > free:
            return 0.0
        flexible = sum(counters_of(other) for other in open_groups if not is_pinned(other))
        return 1.0 if is_pinned(group) or not counters_of(group) else min(1.0, free / flexible)

    def open_events(self, cpu: int) -> list[tuple[Event, int]]:
        """Returns the events of the CPU's open groups, with their leaders."""
        fds = [fd for group in self.groups if not group.closed for fd in group.fds]
        open_ = (self.opened[fd] for fd in fds)
        return [(event, leader) for event, at, leader, _ in open_ if at == cpu]

    def keys(self, group: Group) -> list[str]:
        return [self.opened[fd][0].key for fd in group.fds]


# --- files ----------------------------------------------------------------------------------------


def write_pmu(root: Path, name: str, number: int, cpus: str | None = None, mask: str = "") -> None:
    trees.put(root, f"{DEVICES}/{name}/type", f"{number}\n")
    if cpus is not None:
        trees.put(root, f"{DEVICES}/{name}/cpus", f"{cpus}\n")
    if mask:
        trees.put(root, f"{DEVICES}/{name}/cpumask", f"{mask}\n")


def write_events(root: Path, name: str, form: str = "config:0-63", **codes: int) -> None:
    trees.put(root, f"{DEVICES}/{name}/format/event", f"{form}\n")
    for event, code in codes.items():
        path = f"{DEVICES}/{name}/events/{event.replace('_', '-')}"
        trees.put(root, path, f"event=0x{code:02x}\n")


def write_identity(root: Path, vendor: str, family: int, model: int, stepping: int = 1) -> None:
    text = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: made\nstepping\t: {stepping}\nflags\t\t: fpu tsc\n\n"
    )
    trees.put(root, "proc/cpuinfo", text)


INTEL, AMD = "GenuineIntel", "AuthenticAMD"
SKX, ICX, ALDER = 0x55, 0x6A, 0x97
ALL = ["ref", "cycles", "instructions", "kernel_instructions", "kernel_cycles"]
LEVELS = ["license_1", "license_2"]
LICENSES = [*LEVELS, "license_throttle"]
TIMES = ["perf_enabled_s", "perf_running_s"]


class Leaves:
    """CPUID with PMU version 4 or 5 and a crystal clock."""

    def __init__(self, version: int = 4, *, deprecated: bool = False, gp: int = 4) -> None:
        self._read: dict[int, cpuid.LeafRegisters] = {
            0: (0x16, 0, 0, 0),
            1: (0, 0, 0, 0),
            0xA: (version | gp << 8 | 48 << 16 | 8 << 24, 0, 0, 3 | 48 << 5 | deprecated << 15),
            0x15: (2, 168, 0, 0),
            0x16: (2100, 3700, 100, 0),
        }

    def __call__(self, leaf: int, _subleaf: int = 0, /) -> cpuid.LeafRegisters | None:
        return self._read.get(leaf, (0, 0, 0, 0))


def write_machine_files(root: Path, cores: int = 2, threads: int = 2) -> None:
    trees.write_machine(root, cores, threads)


def skylake(root: Path) -> cores.EventPlanner:
    return make_planner(root, INTEL, 6, SKX, Leaves())


def make_planner(
    root: Path, vendor: str, family: int, model: int, leaves: cpuid.Leaves, threads: int = 2
) -> cores.EventPlanner:
    """Returns a planner for a machine of two cores with one PMU."""
    write_machine_files(root, threads=threads)
    write_identity(root, vendor, family, model)
    write_pmu(root, "cpu", 4)
    return cores.EventPlanner(root, topology.read_cpus(root), lambda _: leaves)


def online_rows(root: Path) -> list[Cpu]:
    return [row for row in topology.read_cpus(root) if row.online]


def opened_parts(root: Path, planner: cores.EventPlanner, kernel: Kernel) -> list[Part]:
    """Returns all parts, without that of memory controllers if there are none."""
    rows, online, kernel.root = topology.read_cpus(root), online_rows(root), root
    result = cores.open_parts(kernel, rows, planner, online=online)
    return result if result[2].counters else [*result[:2], *result[3:]]


def keys_on(part: Part, *, cpu: int | None = None) -> list[str]:
    return [c.key for c in part.counters if cpu is None or c.cpus is None or cpu in c.cpus]


_INTEL = {
    "event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "pc": "config:19",
    "inv": "config:23", "cmask": "config:24-31",
}  # fmt: skip
_EXTRA = {"in_tx": "config:32", "in_tx_cp": "config:33", "offcore_rsp": "config1:0-63",
          "ldlat": "config1:0-15"}  # fmt: skip
_TOPDOWN = {"slots": "event=0x00,umask=0x4", "topdown-retiring": "event=0x00,umask=0x80",
            "topdown-bad-spec": "event=0x00,umask=0x81", "topdown-fe-bound":
            "event=0x00,umask=0x82", "topdown-be-bound": "event=0x00,umask=0x83"}  # fmt: skip
_LEVEL_2 = {"topdown-heavy-ops": "event=0x00,umask=0x84",
            "topdown-br-mispredict": "event=0x00,umask=0x85",
            "topdown-fetch-lat": "event=0x00,umask=0x86",
            "topdown-mem-bound": "event=0x00,umask=0x87"}  # fmt: skip
_MEMORY = {"mem-loads": "event=0xcd,umask=0x1,ldlat=3"}
_AMD = {
    "event": "config:0-7,32-35", "umask": "config:8-15", "edge": "config:18", "inv": "config:23",
    "cmask": "config:24-31",
}  # fmt: skip

Pmu = tuple[str, int, str | None, dict[str, str], dict[str, str]]
"""Name, type, CPUs (of a hybrid), formats and events of a PMU."""
MACHINES: dict[str, list[Pmu]] = {
    "skylake-sp": [("cpu", 4, None, {**_INTEL, "any": "config:21", **_EXTRA,
                                     "frontend": "config1:0-23"}, _MEMORY)],
    "ice-lake-sp": [("cpu", 4, None, {**_INTEL, **_EXTRA, "frontend": "config1:0-23"},
                     {**_MEMORY, **_TOPDOWN})],
    "sapphire-rapids": [("cpu", 4, None, {**_INTEL, **_EXTRA, "frontend": "config1:0-23"},
                         {**_MEMORY, **_TOPDOWN, **_LEVEL_2})],
    "alder-lake": [
        ("cpu_core", 4, "0,2", {**_INTEL, **_EXTRA, "frontend": "config1:0-23"},
         {**_MEMORY, **_TOPDOWN, **_LEVEL_2}),
        ("cpu_atom", 10, "1,3", {**_INTEL, "offcore_rsp": "config1:0-63", "ldlat": "config1:0-15"},
         {"topdown-retiring": "event=0xc2,umask=0x0", "topdown-bad-spec": "event=0x73,umask=0x0",
          "topdown-fe-bound": "event=0x71,umask=0x0", "topdown-be-bound": "event=0x74,umask=0x0"}),
    ],
    "zen-4": [("cpu", 4, None, _AMD, {})],
}  # fmt: skip


def write_machine(root: Path, machine: str) -> None:
    for name, number, cpus, formats, events in MACHINES[machine]:
        write_pmu(root, name, number, cpus)
        at = f"{DEVICES}/{name}"
        for term, bits in formats.items():
            trees.put(root, f"{at}/format/{term}", bits + "\n")
        for event, terms in events.items():
            trees.put(root, f"{at}/events/{event}", terms + "\n")
