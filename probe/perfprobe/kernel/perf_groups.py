"""One group of events on one CPU: opened, tried, and reduced until it counts.

The kernel puts a group on the counters as a whole or not at all. If there are too few counters,
events are dropped in the order of DROPPED until the rest runs. Events that exist but do not count
are dropped as well.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from perfprobe.frozen import field, frozen
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.perf_events import LEADER, Event, Group, Kernel, Trial, shortage, trouble

LICENSES = ("license_throttle", "license_3", "license_2", "license_1")
OPTIONAL = (*LICENSES, "smt_contention")
"""Keys of what has a counter only if nobody else wants it."""
DROPPED = (*OPTIONAL, "kernel_instructions", "kernel_cycles", "smt", "instructions", "cycles")
"""Roles in the order in which they are dropped. SIMD levels go first, and among them the lowest
last, because most SIMD code stays in it. The SMT event goes after all others that need a general
counter, because no other tool shows it."""
SPINS_NS = (2_000_000, 10_000_000)
"""Durations of the trials. The second is run only if the group was not on the counters during the
first: the kernel rotates groups every 4 ms."""
MAY_REST = frozenset({"one_thread", "smi", *OPTIONAL})
"""Keys whose counters may stand still during a trial."""
STILL = Trouble("the counter is there but does not count")
UNFIT = Trouble("this CPU has too few counters for its group")
TAKEN = Trouble("this CPU has no counter left for it: other events have them")


@frozen
class Settled:
    """What one CPU counts."""

    events: list[Event] = field(default_factory=list)
    missing: dict[str, Trouble] = field(default_factory=dict)
    """By key; for a role without any event, the key of its first event."""
    group: Group | None = None
    host_only: bool = False


def settle(
    kernel: Kernel, wanted: Sequence[Event], cpu: int, *, timed: bool, root: Path = Path("/")
) -> Settled:
    """The largest group that counts, its events in the order of `wanted`."""
    events = list(wanted)
    missing: dict[str, Trouble] = {}
    dropped: list[str] = []
    while events:
        opening = Opening(kernel, cpu, events, root)
        group = opening.group(timed=timed)
        if opening.unfit:
            events = _smaller(events, dropped)
            continue
        missing |= opening.refused
        if group is None:
            break
        trial = _try(kernel, group, cpu)
        still = _still(opening.events, trial) if trial else {}
        if trial is not None and trial.running == 0:
            group.close()
            events = _smaller(opening.events, dropped)
        elif still:
            group.close()
            missing |= still
            dead = [event for event in opening.events if event.key in still]
            events = [event for event in events if event not in dead]
        else:
            missing |= _short(dropped, sum(event.core for event in opening.events), root)
            left = _left(missing, opening.events, wanted)
            return Settled(opening.events, left, group, opening.host_only)
    missing |= _short(dropped, 0, root)
    return Settled(missing=_left(missing, [], wanted))


class Opening:
    """One attempt: a disabled leader, its siblings, then the group is enabled. Siblings that join a
    running leader would count zeros without any error."""

    def __init__(self, kernel: Kernel, cpu: int, wanted: Sequence[Event], root: Path) -> None:
        self.events: list[Event] = []
        self.refused: dict[str, Trouble] = {}
        self.host_only = False
        self.unfit = False
        """The group would not fit even if all counters were free; then all events are refused."""
        self._kernel, self._cpu, self._wanted, self._root = kernel, cpu, wanted, root
        self._fds: list[int] = []

    def group(self, *, timed: bool, mapped: bool = True) -> Group | None:
        """The enabled group; None: no event could be opened, or they do not fit."""
        try:
            self._open_all()
            if not self._fds:
                return None
            self._kernel.enable(self._fds[0])
            return self._kernel.group(self._fds, timed=timed, mapped=mapped)
        except OSError as error:
            self.close()
            refused = self._wanted if self.unfit else self.events
            why = UNFIT if self.unfit else trouble(error, self._root)
            self.refused |= dict.fromkeys((event.key for event in refused), why)
            self.events = []
            return None

    def close(self) -> None:
        for fd in reversed(self._fds):
            self._kernel.close(fd)
        self._fds = []

    def _open_all(self) -> None:
        for event in self._wanted:
            if any(event.part == other.part for other in self.events):
                continue
            try:
                fd = self._open(event)
            except OSError as error:
                if self.unfit:
                    raise
                if error.errno == errno.EOPNOTSUPP and event.core and not self.host_only:
                    self._again_for_host()
                    return
                self.refused[event.key] = trouble(error, self._root)
                continue
            self._fds.append(fd)
            self.events.append(event)

    def _again_for_host(self) -> None:
        """Opens all again without guests: where guests own the PMU while they run, only events
        that exclude them can be counted."""
        self.close()
        self.events, self.refused, self.host_only = [], {}, True
        self._open_all()

    def _open(self, event: Event) -> int:
        leader = self._fds[0] if self._fds else LEADER
        try:
            return self._kernel.open(event, self._cpu, leader, host_only=self.host_only)
        except OSError as error:
            if leader != LEADER and error.errno in {errno.EINVAL, errno.ENOSPC}:
                # Alone: raises what is wrong with the event itself.
                fd = self._kernel.open(event, self._cpu, LEADER, host_only=self.host_only)
                self._kernel.close(fd)
                self.unfit = True
            raise


# --- does it count? -------------------------------------------------------------------------------


def _try(kernel: Kernel, group: Group, cpu: int) -> Trial | None:
    """Runs on the CPU and compares; None: we may not run there."""
    trial = None
    for own_ns in SPINS_NS:
        try:
            trial = kernel.trial(group, cpu, own_ns)
        except OSError as error:
            if error.errno == errno.EIO:  # a pinned group that does not fit cannot even be read
                trial = Trial([], 0.0, 0, 0.0)
        if trial is None or trial.running > 0:
            break
    return trial


def _still(events: Sequence[Event], trial: Trial) -> dict[str, Trouble]:
    """Events whose counts are implausible for a busy CPU."""
    if trial.running == 0:
        return {}
    counts = {e.key: count / trial.running for e, count in zip(events, trial.counts, strict=True)}
    found = {key: STILL for key, n in counts.items() if n <= 0 and key not in MAY_REST}
    ref = counts.get("ref", 0)
    if trial.ticks and ref and not 0.2 * trial.own * trial.ticks <= ref <= 1.05 * trial.ticks:
        share = ref / trial.ticks
        found["ref"] = Trouble(f"the counter moved {share:.3g} times as far as the TSC while busy")
    aperf, mperf = counts.get("aperf", 0), counts.get("mperf", 0)
    if aperf > 0 and mperf > 0 and not 0.05 <= aperf / mperf <= 4:
        why = f"APERF / MPERF is {aperf / mperf:.3g}: these registers do not tell the clock"
        found |= dict.fromkeys(("aperf", "mperf"), Trouble(why))
    return found


# --- what is left ---------------------------------------------------------------------------------


def _smaller(events: Sequence[Event], dropped: list[str]) -> list[Event]:
    """The events without the next role to drop; empty if none is left to drop."""
    for role in DROPPED:
        gone = [event.key for event in events if event.part == role]
        if gone and len(gone) < len(events):
            dropped.append(gone[0])
            return [event for event in events if event.part != role]
    dropped += [event.key for event in events]
    return []


def _short(dropped: Sequence[str], free: int, root: Path) -> dict[str, Trouble]:
    """The reasons for dropped events. SIMD levels have a milder one: most CPUs have too few
    counters for all of them."""
    found = dict.fromkeys(dropped, shortage(free, root))
    return {key: TAKEN if key in OPTIONAL else why for key, why in found.items()}


def _left(
    missing: dict[str, Trouble], events: Sequence[Event], wanted: Sequence[Event]
) -> dict[str, Trouble]:
    """The missing keys whose role no other event serves, one for each role."""
    served = {event.part for event in events}
    lacking: dict[str, Trouble] = {}
    roles: set[str] = set()
    for event in wanted:
        if event.part not in served | roles and event.key in missing:
            lacking[event.key] = missing[event.key]
            roles.add(event.part)
    return lacking
