"""Opens groups of perf events that count. The only other event is the one in kernel/profile.py,
which samples the kernel's stack.

The kernel puts a group on the hardware counters as a whole or not at all. A group can be tried: it
counts for a few ms while its CPU is busy. Events that do not count are dropped; others are dropped
in the order of DROPPED_ROLES until the rest fit on the counters. A group that would fit alone, and
only takes turns with other groups, keeps all its events. A pinned copy of the group, which never
takes turns, shows whether it fits.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from perfprobe._native import ffi, lib
from perfprobe.cpu import files
from perfprobe.cpu.identity import may_run_guests
from perfprobe.errors import check_result
from perfprobe.kernel import access
from perfprobe.kernel.access import Problem
from perfprobe.native.affinity import pinned_to

HARDWARE, SOFTWARE = 0, 1  # PERF_TYPE_
CYCLES, INSTRUCTIONS, REF_CYCLES = 0, 1, 9  # numbers of PERF_COUNT_HW_ events
COUNTED_KEYS = {CYCLES: "cycles", INSTRUCTIONS: "instructions", REF_CYCLES: "ref"}
"""Keys of the generic events that perftop always counts, by event number."""
NO_LEADER = -1
TIME_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Event:
    """A perf event to open: fields of perf_event_attr, and the key of its counter."""

    key: str
    type: int
    config: int
    kernel_only: bool = False
    user_only: bool = False
    config1: int = 0
    config2: int = 0
    role: str = ""
    """Alternatives have one role: the first that can be opened is used. Empty: the key."""
    is_core: bool = True
    """Whether a core's PMU, which has few counters and can exclude rings and guests, counts it."""
    pinned: bool = False
    """Whether the group that this event leads must stay on the counters all the time. If that is
    impossible, the kernel does not count the group at all."""

    @property
    def role_or_key(self) -> str:
        return self.role or self.key


@dataclass(frozen=True, slots=True)
class Trial:
    """The counts of a group while a thread pinned to its CPU was busy for a few ms."""

    counts: list[int]
    counted_share: float
    """Share of the time for which the group was on the counters; 1 if the group is not timed."""
    tsc_ticks: int
    run_share: float
    """Share of the elapsed time for which the thread ran."""


class Group:
    """Open events that are read together; the first of `fds` is the leader. The group closes all
    descriptors, and slots of the sampler have its address. With `timed`, the first two columns are
    the times for which it was enabled and counting; with `mapped`, RDPMC may read it."""

    def __init__(self, fds: Sequence[int], *, timed: bool, mapped: bool) -> None:
        pointer = ffi.new("pp_perf_group **")
        array = ffi.new("int32_t[]", list(fds))
        check_result(lib.pp_perf_group_new(array, len(fds), timed, mapped, pointer))
        self.handle: Any = pointer[0]
        self.address = int(ffi.cast("uintptr_t", self.handle))
        self.uses_rdpmc = bool(lib.pp_perf_uses_rdpmc(self.handle))
        """Whether the group can be read by RDPMC, without a system call."""
        self.timed = timed
        self._times = TIME_COLUMNS if timed else 0
        self.set_columns(range(len(fds)))

    @property
    def columns(self) -> int:
        return lib.pp_perf_columns(self.handle)

    def set_columns(self, columns: Sequence[int]) -> None:
        """Sets which columns the events fill, in ascending order; column 0 is the first after the
        time columns. Default: 0, 1, 2 … Must not be called while a thread reads the group."""
        self.filled_columns = [column + self._times for column in columns]
        bits = sum(1 << column for column in (*range(self._times), *self.filled_columns))
        check_result(lib.pp_perf_group_place(self.handle, bits))

    def read(self) -> list[int]:
        """Reads the group, and returns all columns; columns that no event fills are undefined."""
        values = ffi.new("uint64_t[64]")
        check_result(lib.pp_perf_read(self.handle, values))
        return [values[i] for i in range(self.columns)]

    def close(self) -> None:
        lib.pp_perf_group_free(self.handle)
        self.handle = ffi.NULL


class Kernel:
    """The system calls for perf events; tests replace this class. All methods raise OSError."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        """The directory of /proc and /sys, whose files give the reasons for errors."""

    def open(self, event: Event, cpu: int, leader: int, *, host_only: bool) -> int:
        flags = lib.PP_EVENT_KERNEL if event.kernel_only else 0
        flags |= lib.PP_EVENT_USER if event.user_only else 0
        flags |= lib.PP_EVENT_HOST if host_only and event.is_core else 0
        flags |= lib.PP_EVENT_PINNED if event.pinned else 0
        words = event.config, event.config1, event.config2
        attr = ffi.new("pp_event *", (event.type, flags, *words))
        return check_result(lib.pp_perf_open(attr, cpu, leader))

    def enable(self, leader: int) -> None:
        check_result(lib.pp_perf_enable(leader))

    def close(self, fd: int) -> None:
        os.close(fd)

    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool) -> Group:
        return Group(fds, timed=timed, mapped=mapped)

    def trial(self, group: Group, cpu: int, cpu_time_ns: int) -> Trial:
        increases = ffi.new("uint64_t[64]")
        result: Any = ffi.new("pp_trial *")
        with pinned_to(cpu):
            check_result(lib.pp_perf_trial(group.handle, cpu_time_ns, increases, result))
        running = (increases[1] / increases[0] if increases[0] else 0.0) if group.timed else 1.0
        counts = [increases[column] for column in group.filled_columns]
        return Trial(counts, running, result.ticks, min(1.0, result.cpu_ns / max(result.ns, 1)))


class RefusedError(Exception):
    """An event cannot be counted; `problem` contains the reason and the remedy."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.why)
        self.problem = problem


def shortage_problem(free: int, root: Path) -> Problem:
    """Returns the problem for an event without a counter, if only `free` counters are free."""
    watchdog = files.read_number(f"{root}/proc/sys/kernel/nmi_watchdog")
    reason = f"only {free} counters free: the NMI watchdog or another tool holds one"
    if watchdog == 0:
        return Problem(f"only {free} counters free: another tool holds some", "stop the other tool")
    return Problem(reason, "sysctl kernel.nmi_watchdog=0")


# --- opening groups -------------------------------------------------------------------------------

LICENSES = ("license_throttle", "license_2", "license_1")
OPTIONAL_ROLES = (*LICENSES, "smt_contention")
"""Roles of events that get a counter only if no other event needs it."""
DROPPED_ROLES = (
    *OPTIONAL_ROLES, "kernel_instructions", "kernel_cycles", "smt", "instructions", "cycles",
)  # fmt: skip
"""Roles in the order in which their events are dropped if a group does not fit. SIMD levels are
first; the last of them is the lowest level, in which most SIMD code runs. The SMT event is the last
that needs a general counter, because no other tool shows it."""
SPIN_NS = 2_000_000
"""Duration in ns of a trial that checks whether events count."""
FIT_NS = 100_000
"""Duration in ns of a trial of a pinned group, which is on the counters immediately or never."""
MAX_TRIALS = 3
"""Number of trials; implausible counts in all of them are a failure."""
POSSIBLY_ZERO_KEYS = frozenset({"one_thread", "smi", *OPTIONAL_ROLES})
"""Keys of events whose count may be 0 after a trial."""
NOT_COUNTING = Problem("the counter is there but does not count")
TOO_FEW_COUNTERS = Problem("this CPU has too few counters for its group")
LEFT_TO_CHOSEN_EVENTS = Problem(
    "its counter is left to the events of -e", "fewer events in braces, or no -e"
)
YIELDING_ROLES = ("kernel_instructions", "kernel_cycles")
"""Roles whose events are dropped, in this order, if the events of -e need their counters."""
COUNTERS_TAKEN = Problem("this CPU has no counter left for it: other events have them")


@dataclass(frozen=True, slots=True)
class OpenedEvents:
    events: list[Event] = field(default_factory=list)
    """The events that are open, in the order in which they were wanted."""
    missing: dict[str, Problem] = field(default_factory=dict)
    """By key: why an event is not open; one entry for each role without an open event."""
    group: Group | None = None
    """The open group; None if no event could be opened."""
    host_only: bool = False
    """Whether the events exclude guests of KVM."""
    does_not_fit: bool = False
    """Whether no event is open because the group would not fit even on free counters."""


def open_events(
    kernel: Kernel,
    wanted_events: Mapping[int, Sequence[Event]],
    *,
    timed: bool,
    mapped: bool = True,
    with_trial: bool = False,
    other_group: Mapping[int, Sequence[Event]] | None = None,
) -> dict[int, OpenedEvents]:
    """Opens a group of the wanted events on each CPU; see open_group. `other_group` has, by CPU,
    the events of another group that will be counted, too. If that group does not fit, events of
    YIELDING_ROLES are dropped."""

    def open_on_cpu(cpu: int) -> OpenedEvents:
        def open_without(roles: Collection[str]) -> OpenedEvents:
            events = [event for event in wanted_events[cpu] if event.role_or_key not in roles]
            opened = open_group(
                kernel, events, cpu, timed=timed, mapped=mapped, with_trial=with_trial
            )
            yielded_keys = (event.key for event in wanted_events[cpu] if event not in events)
            missing = dict.fromkeys(yielded_keys, LEFT_TO_CHOSEN_EVENTS) | opened.missing
            return replace(opened, missing=missing)

        other_events = other_group.get(cpu, ()) if other_group else ()
        for count in range(len(YIELDING_ROLES) + 1 if other_events else 0):
            opened = open_without(YIELDING_ROLES[:count])
            if opened.group is None or group_fits(kernel, other_events, cpu):
                return opened
            opened.group.close()
        return open_without(())

    return dict(zip(wanted_events, run_in_threads(open_on_cpu, wanted_events), strict=True))


def open_group(
    kernel: Kernel,
    wanted_events: Sequence[Event],
    cpu: int,
    *,
    timed: bool,
    mapped: bool = True,
    with_trial: bool = False,
) -> OpenedEvents:
    """Opens these events as one group and starts it; the caller closes it. `timed` adds columns
    with the times for which the group was enabled and counting. `mapped` makes it readable by
    RDPMC. `with_trial` runs a trial: events that do not count are dropped, then others in the order
    of DROPPED_ROLES until the group fits."""
    events = list(wanted_events)
    missing: dict[str, Problem] = {}
    dropped: dict[str, Problem | None] = {}
    while events:
        attempt = _open_together(kernel, cpu, events, timed=timed, mapped=mapped)
        if with_trial and attempt.does_not_fit:
            events = _without_next_role(events, dropped, TOO_FEW_COUNTERS)
            continue
        missing |= attempt.missing
        if (group := attempt.group) is None:
            break
        trial, implausible = None, dict[str, Problem]()
        if with_trial:
            trial, implausible = _try_group(kernel, group, attempt.events, cpu)
        if trial is not None and trial.counted_share == 0:
            group.close()
            events = _without_next_role(attempt.events, dropped)
        elif implausible:
            group.close()
            missing |= implausible
            dead_events = [event for event in attempt.events if event.key in implausible]
            events = [event for event in events if event not in dead_events]
        else:
            free = sum(event.is_core for event in attempt.events)
            missing |= _drop_reasons(dropped, free, kernel.root)
            unserved = _unserved_keys(missing, attempt.events, wanted_events)
            host_only = attempt.host_only and any(event.is_core for event in attempt.events)
            return OpenedEvents(attempt.events, unserved, group, host_only)
    missing |= _drop_reasons(dropped, 0, kernel.root)
    return OpenedEvents(missing=_unserved_keys(missing, [], wanted_events))


def open_event(kernel: Kernel, event: Event, cpu: int, *, with_trial: bool = False) -> Group:
    """Opens one event as a group that also reports its enabled and running times. `with_trial`:
    also counts briefly. Raises RefusedError if the event cannot be counted."""
    opened = open_group(kernel, [event], cpu, timed=True, with_trial=with_trial)
    if opened.group is None:
        raise RefusedError(opened.missing[event.key])
    return opened.group


def find_refusal(kernel: Kernel, event: Event, cpu: int) -> Problem | None:
    """Returns why the kernel refuses to open this event alone on this CPU; None if it does not."""
    error = _error_alone(kernel, event, cpu, host_only=may_run_guests(kernel.root))
    return None if error is None else access.perf_open_problem(error, kernel.root)


def _error_alone(kernel: Kernel, event: Event, cpu: int, *, host_only: bool) -> OSError | None:
    """Returns the error of opening an event alone, and closes it; None if there is no error."""
    try:
        fd = kernel.open(event, cpu, NO_LEADER, host_only=host_only)
    except OSError as error:
        return error
    with suppress(OSError):
        kernel.close(fd)
    return None


def group_fits(kernel: Kernel, events: Sequence[Event], cpu: int) -> bool:
    """Returns whether these events can be counted in addition to all pinned groups, by a trial;
    True if that cannot be tried."""
    trial = _run_pinned_trial(kernel, events, cpu, FIT_NS)
    return trial is None or trial.counted_share > 0


def _open_together(
    kernel: Kernel,
    cpu: int,
    wanted_events: Sequence[Event],
    *,
    timed: bool,
    mapped: bool,
    host_only: bool | None = None,
) -> OpenedEvents:
    """Opens a disabled leader, then its siblings, then enables the group: siblings that join a
    running leader would count zeros without any error. `host_only`: whether to exclude guests;
    None: if KVM may run guests here. `missing` has the reasons for all events that are refused."""
    host_only = may_run_guests(kernel.root) if host_only is None else host_only
    fds: list[int] = []
    events: list[Event] = []
    refused: dict[str, Problem] = {}

    def close_all() -> None:
        for fd in reversed(fds):
            kernel.close(fd)

    for event in wanted_events:
        if any(event.role_or_key == other.role_or_key for other in events):
            continue
        leader = fds[0] if fds else NO_LEADER
        try:
            fds.append(kernel.open(event, cpu, leader, host_only=host_only))
        except OSError as error:
            reason: OSError | None = error
            if leader != NO_LEADER and error.errno in {errno.EINVAL, errno.ENOSPC}:
                reason = _error_alone(kernel, event, cpu, host_only=host_only)
            if reason is None:
                close_all()
                refused |= dict.fromkeys((event.key for event in wanted_events), TOO_FEW_COUNTERS)
                return OpenedEvents(missing=refused, does_not_fit=True)
            if reason.errno == errno.EOPNOTSUPP and event.is_core and not host_only:
                # Guests own the PMU while they run, so events must exclude guests.
                close_all()
                return _open_together(
                    kernel, cpu, wanted_events, timed=timed, mapped=mapped, host_only=True
                )
            refused[event.key] = access.perf_open_problem(reason, kernel.root)
        else:
            events.append(event)
    if not fds:
        return OpenedEvents(missing=refused)
    try:
        kernel.enable(fds[0])
        group = kernel.group(fds, timed=timed, mapped=mapped)
    except OSError as error:
        close_all()
        problem = access.perf_open_problem(error, kernel.root)
        return OpenedEvents(missing=refused | {event.key: problem for event in events})
    return OpenedEvents(events, refused, group, host_only)


# --- trials of groups -----------------------------------------------------------------------------


def _try_group(
    kernel: Kernel, group: Group, events: Sequence[Event], cpu: int
) -> tuple[Trial | None, dict[str, Problem]]:
    """Runs a trial of a group on its CPU. Returns the trial (None if this process may not run on
    that CPU) and, by key, the events whose counts are implausible."""
    results = []
    for _ in range(MAX_TRIALS):
        trial = run_trial(kernel, group, cpu, SPIN_NS)
        if trial is not None and trial.counted_share == 0 and not events[0].pinned:
            trial = _run_pinned_trial(kernel, events, cpu, SPIN_NS)
        implausible = {} if trial is None else _implausible_events(events, trial)
        if not implausible:
            return trial, implausible
        results.append((trial, implausible))
    return min(results, key=lambda result: len(result[1]))


def run_trial(kernel: Kernel, group: Group, cpu: int, cpu_time_ns: int) -> Trial | None:
    """Counts an open group while this CPU is busy; None if that cannot be tried there."""
    try:
        return kernel.trial(group, cpu, cpu_time_ns)
    except OSError as error:
        if error.errno == errno.EIO:  # a pinned group that does not fit cannot even be read
            return Trial([], 0.0, 0, 0.0)
    return None


def _run_pinned_trial(
    kernel: Kernel, events: Sequence[Event], cpu: int, cpu_time_ns: int
) -> Trial | None:
    """Opens a pinned copy of a group, runs a trial of it, and closes it."""
    copies = [replace(event, pinned=True) for event in events]
    group = _open_together(kernel, cpu, copies, timed=True, mapped=False).group
    if group is None:
        return Trial([], 0.0, 0, 0.0)
    try:
        return run_trial(kernel, group, cpu, cpu_time_ns)
    finally:
        group.close()


def _implausible_events(events: Sequence[Event], trial: Trial) -> dict[str, Problem]:
    """Returns, by key, the events whose counts are implausible for a CPU that was busy."""
    if trial.counted_share == 0:
        return {}
    pairs = zip(events, trial.counts, strict=True)
    counts = {event.key: count / trial.counted_share for event, count in pairs}
    stopped_keys = {key for key, n in counts.items() if n <= 0}
    if counts.keys() - POSSIBLY_ZERO_KEYS <= stopped_keys:  # no counter of this CPU counts at all
        return dict.fromkeys(stopped_keys, NOT_COUNTING)
    problems = dict.fromkeys(stopped_keys - POSSIBLY_ZERO_KEYS, NOT_COUNTING)
    ref = counts.get("ref", 0)
    share = ref / trial.tsc_ticks if trial.tsc_ticks else 0.0
    if share and not 0.2 * trial.run_share <= share <= 1.05:
        problems["ref"] = Problem(
            f"the counter moved {share:.3g} times as far as the TSC while busy"
        )
    aperf, mperf = counts.get("aperf", 0), counts.get("mperf", 0)
    if aperf > 0 and mperf > 0 and not 0.05 <= aperf / mperf <= 4:
        reason = f"APERF / MPERF is {aperf / mperf:.3g}: these registers do not show the clock"
        problems |= dict.fromkeys(("aperf", "mperf"), Problem(reason))
    return problems


# --- dropping events that do not fit --------------------------------------------------------------


def _without_next_role(
    events: Sequence[Event], dropped: dict[str, Problem | None], why: Problem | None = None
) -> list[Event]:
    """Returns the events without those of the first role in DROPPED_ROLES; empty if none would
    remain. Adds the dropped keys, with the reason `why` (None: too few counters), to `dropped`."""
    for role in DROPPED_ROLES:
        keys = [event.key for event in events if event.role_or_key == role]
        if keys and len(keys) < len(events):
            dropped[keys[0]] = why
            return [event for event in events if event.role_or_key != role]
    dropped |= dict.fromkeys((event.key for event in events), why)
    return []


def _drop_reasons(
    dropped: Mapping[str, Problem | None], free: int, root: Path
) -> dict[str, Problem]:
    """Returns, by key, why events were dropped; `free` is the number of counters that were free.
    Optional events have their own reason: most CPUs have too few counters for all of them."""
    shortage = shortage_problem(free, root)
    return {
        key: COUNTERS_TAKEN if key in OPTIONAL_ROLES else why or shortage
        for key, why in dropped.items()
    }


def _unserved_keys(
    missing: dict[str, Problem], events: Sequence[Event], wanted_events: Sequence[Event]
) -> dict[str, Problem]:
    """Returns the entries of `missing` whose role none of `events` has, one for each role."""
    served_roles = {event.role_or_key for event in events}
    unserved: dict[str, Problem] = {}
    roles: set[str] = set()
    for event in wanted_events:
        if event.role_or_key not in served_roles | roles and event.key in missing:
            unserved[event.key] = missing[event.key]
            roles.add(event.role_or_key)
    return unserved


# --- on many CPUs ---------------------------------------------------------------------------------

T = TypeVar("T")
R = TypeVar("R")
MAX_THREADS = 32
"""Maximum number of threads that open and try events."""


def run_in_threads(do: Callable[[T], R], items: Collection[T]) -> list[R]:
    """Returns `do(item)` for all items, in their order, called in up to MAX_THREADS threads (in the
    caller's own, if none can be started). Raises the first error after all threads have ended."""
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    remaining = iter(enumerate(items))  # shared by the threads, because next() is atomic

    def work() -> None:
        try:
            for position, item in remaining:
                results[position] = do(item)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            errors.append(error)

    threads: list[threading.Thread] = []
    with suppress(RuntimeError):  # no further thread can be started
        while len(threads) < min(MAX_THREADS, len(items)):
            thread = threading.Thread(target=work)
            thread.start()
            threads.append(thread)
    if not threads:
        work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[position] for position in range(len(items))]
