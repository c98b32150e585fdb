"""A fake perf_event_open with a given number of counters, and the files of its PMUs."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trees

from perfprobe.kernel.perf_events import LEADER, Event, Trial

DEVICES = "sys/bus/event_source/devices"
TICKS = 4_000_000  # TSC ticks in a trial
Refuse = Callable[[Event, int, bool], int]


def nothing(_event: Event, _cpu: int, _host_only: bool) -> int:
    return 0


@dataclass
class Group:
    fds: list[int]
    timed: bool
    address: int
    direct: bool = False
    mapped: bool = True
    at: list[int] = field(default_factory=list)
    closed: bool = False

    @property
    def columns(self) -> int:
        return max(self.at) + 1 + 2 * self.timed

    def place(self, columns: Sequence[int]) -> None:
        assert list(columns) == sorted(columns)
        self.at = list(columns)

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class Kernel:
    """A kernel in which each event of a core PMU takes one counter; `refuse` returns an errno for
    an event, or 0."""

    def __init__(
        self,
        counters: int = 9,
        *,
        taken: Mapping[int, int] | int = 0,
        refuse: Refuse = nothing,
        moved: Mapping[str, int] | None = None,
    ) -> None:
        """`taken`: number of counters that another program holds, by CPU; groups that do not fit
        beside it open but never run."""
        self.counters = counters
        self.refuse = refuse
        self.calls: list[tuple[str, str | int, int]] = []  # what, which, leader
        self.groups: list[Group] = []
        self.opened: dict[int, tuple[Event, int, int, bool]] = {}
        """Event, CPU, leader and whether it counts the host only, by descriptor."""
        self.spun: list[tuple[int, int]] = []
        self._taken = taken
        self._moved = {"ref": TICKS // 2, "msr_tsc": TICKS, **(moved or {})}
        self._fds = itertools.count(100)
        self._lock = threading.Lock()

    def open(self, event: Event, cpu: int, leader: int, *, host_only: bool) -> int:
        with self._lock:
            self.calls.append(("open", event.key, leader))
            if number := self.refuse(event, cpu, host_only):
                raise OSError(number, "refused")
            members = [e for e, _, at, _ in self.opened.values() if leader == at]
            cores = [event, *members]
            if leader != LEADER:
                cores.append(self.opened[leader][0])
                if sum(e.core for e in cores) > self.counters and event.core:
                    raise OSError(errno.EINVAL, "the group does not fit")
            fd = next(self._fds)
            self.opened[fd] = (event, cpu, leader, host_only)
            return fd

    def enable(self, leader: int) -> None:
        with self._lock:
            self.calls.append(("enable", leader, LEADER))

    def close(self, fd: int) -> None:
        with self._lock:
            del self.opened[fd]

    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool = True) -> Group:
        with self._lock:
            group = Group(list(fds), timed, 0x1000 * (1 + len(self.groups)), mapped=mapped)
            group.place(range(len(fds)))
            self.groups.append(group)
            return group

    def trial(self, group: Group, cpu: int, own_ns: int) -> Trial:
        with self._lock:
            self.spun.append((cpu, own_ns))
            events = [self.opened[fd][0] for fd in group.fds]
            taken = self._taken if isinstance(self._taken, int) else self._taken.get(cpu, 0)
            share = self._share(group, cpu, self.counters - taken)
            counts = [self._moved.get(event.key, 1000) if share else 0 for event in events]
            return Trial(counts, share if group.timed else 1.0, TICKS, 0.9)

    def _share(self, group: Group, cpu: int, free: int) -> float:
        """Share of the time for which the group is on the counters: what is pinned always, the
        others take turns with what is left, each as a whole."""

        def needs(one: Group) -> int:
            return sum(self.opened[fd][0].core for fd in one.fds)

        def pinned(one: Group) -> bool:
            return self.opened[one.fds[0]][0].pinned

        there = [g for g in self.groups if not g.closed and self.opened[g.fds[0]][1] == cpu]
        if not pinned(group):
            free -= sum(needs(other) for other in there if pinned(other))
        if needs(group) > free:
            return 0.0
        flexible = sum(needs(other) for other in there if not pinned(other))
        return 1.0 if pinned(group) or not needs(group) else min(1.0, free / flexible)

    def keys(self, group: Group) -> list[str]:
        return [self.opened[fd][0].key for fd in group.fds]


# --- files ----------------------------------------------------------------------------------------


def pmu(root: Path, name: str, number: int, cpus: str | None = None, mask: str = "") -> None:
    trees.put(root, f"{DEVICES}/{name}/type", f"{number}\n")
    if cpus is not None:
        trees.put(root, f"{DEVICES}/{name}/cpus", f"{cpus}\n")
    if mask:
        trees.put(root, f"{DEVICES}/{name}/cpumask", f"{mask}\n")


def events(root: Path, name: str, form: str = "config:0-63", **codes: int) -> None:
    trees.put(root, f"{DEVICES}/{name}/format/event", f"{form}\n")
    for event, code in codes.items():
        path = f"{DEVICES}/{name}/events/{event.replace('_', '-')}"
        trees.put(root, path, f"event=0x{code:02x}\n")


def identity(root: Path, vendor: str, family: int, model: int, stepping: int = 1) -> None:
    text = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: made\nstepping\t: {stepping}\nflags\t\t: fpu tsc\n\n"
    )
    trees.put(root, "proc/cpuinfo", text)
