"""perf events: opening, grouping and trying them, and why the kernel refuses one."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from perfprobe._native import ffi, lib
from perfprobe.cpu import files
from perfprobe.errors import checked
from perfprobe.frozen import frozen
from perfprobe.kernel import access
from perfprobe.kernel.access import Trouble
from perfprobe.native.affinity import pinned

HARDWARE, SOFTWARE = 0, 1  # PERF_TYPE_
CYCLES, INSTRUCTIONS, REF_CYCLES = 0, 1, 9  # PERF_COUNT_HW_
LEADER = -1
TIMES = 2


@frozen
class Event:
    key: str
    type: int
    config: int
    kernel: bool = False
    """Count in the kernel only."""
    user: bool = False
    """Count in user space only."""
    config1: int = 0
    config2: int = 0
    role: str = ""
    """The first event of a role that opens is used. Empty: the key is the role."""
    core: bool = True
    """It belongs to a core's PMU: it can exclude rings and guests, and takes one of few
    counters."""
    pinned: bool = False
    """Set of a leader, it keeps its group on the counters all the time; other groups have what is
    left. If that is impossible, the kernel does not count the group at all."""

    @property
    def part(self) -> str:
        return self.role or self.key


@frozen
class Trial:
    """What a group counted while a thread pinned to its CPU was busy."""

    counts: list[int]
    running: float
    """Share of the time that the group was on the counters; 1 if the group is not timed."""
    ticks: int
    """Elapsed TSC ticks."""
    own: float
    """Share of the elapsed time that the thread ran."""


class Group(Protocol):
    """Events that are read together. A slot refers to it by its address."""

    @property
    def address(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def direct(self) -> bool:
        """It can be read by RDPMC, without a system call."""

    def place(self, columns: Sequence[int]) -> None:
        """Says which columns, after the times, the events fill: ascending. Until it is called they
        fill the first ones. Must not be called while a thread reads the group."""

    def close(self) -> None: ...


class Kernel(Protocol):
    """The system calls; tests replace them. All raise OSError."""

    def open(self, event: Event, cpu: int, leader: int, *, host_only: bool) -> int: ...
    def enable(self, leader: int) -> None: ...
    def close(self, fd: int) -> None: ...
    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool = True) -> Group:
        """The group takes over the descriptors. Without `mapped` no RDPMC reads it."""

    def trial(self, group: Any, cpu: int, own_ns: int) -> Trial: ...


class OpenGroup:
    def __init__(self, fds: Sequence[int], *, timed: bool, mapped: bool = True) -> None:
        out = ffi.new("pp_perf_group **")
        array = ffi.new("int32_t[]", list(fds))
        checked(lib.pp_perf_group_new(array, len(fds), timed, mapped, out))
        self.handle: Any = out[0]
        self.address = int(ffi.cast("uintptr_t", self.handle))
        self.direct = bool(lib.pp_perf_is_direct(self.handle))
        self.timed = timed
        self._times = TIMES if timed else 0
        self.place(range(len(fds)))

    def place(self, columns: Sequence[int]) -> None:
        self.filled = [column + self._times for column in columns]
        bits = sum(1 << column for column in (*range(self._times), *self.filled))
        checked(lib.pp_perf_group_place(self.handle, bits))
        self.columns = lib.pp_perf_columns(self.handle)

    def read(self) -> list[int]:
        """All columns. Columns that no event fills have undefined values."""
        values = ffi.new("uint64_t[64]")
        checked(lib.pp_perf_read(self.handle, values))
        return [values[i] for i in range(self.columns)]

    def close(self) -> None:
        lib.pp_perf_group_free(self.handle)
        self.handle, self.address = ffi.NULL, 0


class System:
    """This machine's kernel."""

    def open(self, event: Event, cpu: int, leader: int, *, host_only: bool = False) -> int:
        flags = lib.PP_EVENT_KERNEL if event.kernel else 0
        flags |= lib.PP_EVENT_USER if event.user else 0
        flags |= lib.PP_EVENT_HOST if host_only and event.core else 0
        flags |= lib.PP_EVENT_PINNED if event.pinned else 0
        words = event.config, event.config1, event.config2
        attr = ffi.new("pp_event *", (event.type, flags, *words))
        return checked(lib.pp_perf_open(attr, cpu, leader))

    def enable(self, leader: int) -> None:
        checked(lib.pp_perf_enable(leader))

    def close(self, fd: int) -> None:
        os.close(fd)

    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool = True) -> OpenGroup:
        return OpenGroup(fds, timed=timed, mapped=mapped)

    def trial(self, group: OpenGroup, cpu: int, own_ns: int) -> Trial:
        moved = ffi.new("uint64_t[64]")
        out: Any = ffi.new("pp_trial *")
        with pinned(cpu):
            checked(lib.pp_perf_trial(group.handle, own_ns, moved, out))
        running = (moved[1] / moved[0] if moved[0] else 0.0) if group.timed else 1.0
        counts = [moved[column] for column in group.filled]
        return Trial(counts, running, out.ticks, min(1.0, out.own_ns / max(out.ns, 1)))


# --- why not --------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818 - a state of the machine, not a mistake
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.why)
        self.trouble = trouble


_REASONS: Mapping[int, Trouble] = {
    errno.ENOENT: Trouble("this CPU, or its hypervisor, has no such event"),
    errno.ENODEV: Trouble("the PMU does not count on this CPU, or the CPU is off"),
    errno.EINVAL: Trouble("this kernel does not know the event, or not in this form"),
    errno.EOPNOTSUPP: Trouble("the PMU cannot count it so, or is given to guests"),
    errno.EBUSY: Trouble("another tool or the firmware holds the PMU", "stop the other tool"),
    errno.EMFILE: Trouble(
        "not enough file descriptors: the hard limit is {limit}",
        "raise it (root: ulimit -Hn 65536; a service: LimitNOFILE=65536)",
    ),
    errno.ENFILE: Trouble("the system has no file descriptors left", "sysctl fs.file-max=1000000"),
    errno.ENOMEM: Trouble("the kernel has no memory for it"),
    errno.E2BIG: Trouble("this kernel is too old for the request"),
    errno.ENOSYS: Trouble(
        "this kernel or container has no perf_event_open",
        "a kernel with CONFIG_PERF_EVENTS, or a seccomp profile that allows perf_event_open",
    ),
}


def trouble(error: OSError, root: Path = Path("/")) -> Trouble:
    """The meaning of a failed open, and the remedy."""
    number = error.errno or 0
    if number in {errno.EACCES, errno.EPERM}:
        return _forbidden(number, root)
    if number == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        found = _REASONS[number]
        return Trouble(found.why.format(limit=limit), found.fix)
    return _REASONS.get(number) or Trouble(os.strerror(number) if number else str(error))


def _forbidden(number: int, root: Path) -> Trouble:
    """Why it is forbidden. The kernel's own check returns EACCES, a container's filter EPERM."""
    filtered = access.filtered(root)
    refused = access.perf_refused(root)
    if refused is not None and not (filtered and number == errno.EPERM):
        return refused
    if filtered:
        return Trouble(
            "perf_event_open is refused, it seems by the container's seccomp filter",
            "run outside the container, or allow perf_event_open and add CAP_PERFMON",
        )
    return Trouble("perf_event_open is refused by a security module", "ask its administrator")


def shortage(free: int, root: Path = Path("/")) -> Trouble:
    """The trouble when there are fewer counters than events."""
    watchdog = files.number(f"{root}/proc/sys/kernel/nmi_watchdog")
    why = f"only {free} counters free: the NMI watchdog or another tool holds one"
    if watchdog == 0:
        return Trouble(f"only {free} counters free: another tool holds some", "stop the other tool")
    return Trouble(why, "sysctl kernel.nmi_watchdog=0")
