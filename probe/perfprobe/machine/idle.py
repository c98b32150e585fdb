"""Busy times of CPUs and SMT states of cores, counted in the kernel by a BPF program that runs
whenever a CPU starts or ends being idle (an idle transition), and the parts of a machine with them.

All values are cumulative, in ns of CLOCK_MONOTONIC. A CPU is busy if it is not idle; that includes
interrupts, wake-ups and time that a hypervisor took. A reader keeps its own CPU busy while it
reads. LP 0 and LP 1 are the two logical processors (threads) of a core.

A value can step back by nanoseconds if a transition was under way during the read (idle_rows.c
explains why), so callers must use signed differences and treat negative ones as zero.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from perfprobe._native import ffi, lib
from perfprobe.cpu import files, identity, topology
from perfprobe.errors import check_result
from perfprobe.kernel import access
from perfprobe.kernel.access import Problem
from perfprobe.machine.parts import Part
from perfprobe.native.affinity import pinned_to
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Cpu, Missing, Scope

LOG_BYTES = 1 << 16  # size of the buffer for the log of the BPF verifier
ROOT = Path("/")
UNPRIVILEGED_BPF_DISABLED = Path("/proc/sys/kernel/unprivileged_bpf_disabled")


class IdleTrace:
    """The loaded BPF program; it stays in the kernel until `close` or the end of this process."""

    def __init__(self, core_map: Mapping[int, tuple[int, int]], *, learn: bool = True) -> None:
        """`core_map` has, by CPU, the number of its core (any numbering) and its LP, 0 or 1. A CPU
        of a core that does not have exactly two threads must be LP 0 of a core of its own. With
        `learn`, the states of all CPUs become known immediately.

        Raises OSError with the reason, and with the verifier's log, if there is one, as a note.
        """
        threads = [(cpu, core, lp) for cpu, (core, lp) in sorted(core_map.items())]
        handle = ffi.new("pp_idle **")
        log = ffi.new("char[]", LOG_BYTES)
        c_threads = ffi.new("pp_idle_thread[]", threads)
        result = lib.pp_idle_open(c_threads, len(threads), handle, log, LOG_BYTES)
        if result < 0:
            words: Any = ffi.string(log)
            raise _open_error(-result, words.decode(errors="replace"))
        self._handle: Any = handle[0]
        self._cpus = [place[0] for place in threads]
        if learn:
            self.learn_states()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def learn_states(self, cpus: Iterable[int] | None = None) -> None:
        """Makes the states of these CPUs (None: all) known by running the calling thread on each
        for a moment. A CPU on which it may not run stays unknown until its next idle transition."""
        for cpu in self._cpus if cpus is None else cpus:
            # the CPU may be offline or outside this process's cpuset
            with suppress(OSError), pinned_to(cpu):
                check_result(lib.pp_idle_mark_busy(self._open(), cpu))

    def mark_offline(self, cpu: int) -> None:
        """Counts a CPU that went offline as idle; the kernel has no idle transition for that."""
        check_result(lib.pp_idle_offline(self._open(), cpu))

    def base_address(self) -> int:
        """Returns the address at which the sampler's lanes read the values; valid until `close`."""
        return int(ffi.cast("uintptr_t", lib.pp_idle_base(self._open())))

    def close(self) -> None:
        if self._handle is not None:
            lib.pp_idle_close(self._handle)
            self._handle = None

    def _open(self) -> Any:
        if self._handle is None:
            raise ValueError("the trace is closed")
        return self._handle


def trace_problem(error: OSError) -> Problem:
    """Returns why idle transitions cannot be traced, and the remedy."""
    reason = error.strerror or "idle transitions cannot be traced"
    if error.errno not in {errno.EPERM, errno.EACCES}:
        return Problem(reason)  # no user can trace on this kernel, so there is no remedy
    if not _is_permitted():
        return Problem(reason, access.root_remedy(ROOT, "CAP_BPF", "CAP_PERFMON"))
    if access.is_seccomp_filtered(ROOT):
        fix = "start perftop outside the container, or allow bpf in its seccomp profile"
        return Problem(reason, fix)
    return Problem(reason, "ask its administrator")


def _open_error(errno_value: int, log: str) -> OSError:
    """Returns the error for an errno. `log` is the call that failed, then the verifier's log."""
    call, _, words = log.partition("\n")
    error = OSError(errno_value, problem_text(errno_value, call))
    if words.strip():
        error.add_note(words.strip())
    return error


def _is_permitted() -> bool:
    """Returns whether this process has the capabilities that tracing needs."""
    return not identity.is_in_user_namespace() and all(
        access.has_capability(ROOT, capability, access.CAP_SYS_ADMIN)
        for capability in (access.CAP_BPF, access.CAP_PERFMON)
    )


def problem_text(errno_value: int, call: str) -> str:
    """Returns the message for the user if this call failed with this errno."""
    prefix = f"idle transitions cannot be traced ({call}): "
    if errno_value in {errno.EPERM, errno.EACCES}:
        if _is_permitted():
            is_filtered = access.is_seccomp_filtered(ROOT)
            refused_by = "the container's seccomp filter" if is_filtered else "a security module"
            return f"{prefix}bpf is refused, it seems by {refused_by}"
        user = "outside this user namespace"
        if not identity.is_in_user_namespace():
            level = files.read_word(str(UNPRIVILEGED_BPF_DISABLED))
            user = "or root" + (f" (kernel.unprivileged_bpf_disabled={level})" if level else "")
        return f"{prefix}needs CAP_BPF and CAP_PERFMON, {user}"
    if errno_value == errno.ENOSYS:
        return f"{prefix}this kernel has no bpf(2)"
    reasons = {
        (errno.EINVAL, "BPF_MAP_CREATE"): "needs Linux 5.12: no maps to share with user space",
        (errno.EINVAL, "BPF_PROG_LOAD"): "needs Linux 5.12: no compare-and-swap in BPF",
        (errno.ENOENT, "BPF_RAW_TRACEPOINT_OPEN"): "this kernel has no tracepoint cpu_idle",
        (errno.EINVAL, "arguments"): "the core map is empty or out of range",
        (errno.EEXIST, "mmap"): "the core map has two CPUs in one place",
    }
    return prefix + reasons.get((errno_value, call), os.strerror(errno_value))


# --- parts ----------------------------------------------------------------------------------------

S_PER_NS = 1e-9
ORIGIN = "idle transitions"
BUSY = Counter("busy_s", "not idle", "s", ORIGIN, scale=S_PER_NS)
STATES = {
    "neither_s": lib.PP_TRACED + lib.PP_IDLE_NEITHER,
    "lp0_s": lib.PP_TRACED + lib.PP_IDLE_LP0,
    "lp1_s": lib.PP_TRACED + lib.PP_IDLE_LP1,
    "both_s": lib.PP_TRACED + lib.PP_IDLE_BOTH,
}
"""By counter key: the kind of slot with which the sampler reads it."""


def open_traced_parts(rows: Sequence[Cpu]) -> list[Part]:
    """Returns the parts that are read from the trace; if tracing is not possible, one part without
    counters that reports the reason."""
    core_and_lp = _cores_by_cpu(topology.cores(rows), [row.cpu for row in rows])
    try:
        trace = IdleTrace(core_and_lp)
    except OSError as error:
        empty_part = TracedPart(None, "cpu", [], {})
        empty_part.missing = trace_problem(error).missing("traced")
        return [empty_part]
    base = trace.base_address()
    busy = {cpu: [Slot(lib.PP_TRACED + lib.PP_IDLE_BUSY, 0, cpu, base)] for cpu in core_and_lp}
    offline = [row.cpu for row in rows if not row.online]
    parts: list[Part] = [TracedPart(trace, "cpu", [BUSY], busy, offline)]
    pairs = {core for core, lp in core_and_lp.values() if lp}
    if pairs:
        states = {
            cpu: [Slot(kind, i, core, base) for i, kind in enumerate(STATES.values())]
            for cpu, (core, _) in core_and_lp.items()
            if core in pairs
        }
        names = [(key, key.removesuffix("_s")) for key in STATES]
        counters = [Counter(key, name, "s", ORIGIN, scale=S_PER_NS) for key, name in names]
        parts.append(TracedPart(None, "core", counters, states))
    return parts


def _cores_by_cpu(
    cores: Sequence[Sequence[int]], cpus: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Returns each CPU's number of core and thread (0 or 1). A CPU that is offline, or not in a
    core with exactly two threads, gets a core of its own."""
    core_and_lp: dict[int, tuple[int, int]] = {}
    number = 0
    listed_cpus = {cpu for threads in cores for cpu in threads}
    for threads in (*cores, *([cpu] for cpu in cpus if cpu not in listed_cpus)):
        for lp, cpu in enumerate(threads):
            core_and_lp[cpu] = (number, lp) if len(threads) == 2 else (number + lp, 0)
        number += 1 if len(threads) == 2 else len(threads)
    return core_and_lp


class TracedPart:
    """A part that is read from the trace of idle transitions. One part owns the trace: it reports
    offline CPUs to the trace, and closes it. The other parts have None."""

    def __init__(
        self,
        trace: IdleTrace | None,
        scope: Scope,
        counters: Sequence[Counter],
        slots: Mapping[int, list[Slot]],
        offline: Sequence[int] = (),
    ) -> None:
        """`slots`: slots of each CPU. `offline`: CPUs that are offline at the start."""
        self.scope, self.counters = scope, counters
        self.missing: list[Missing] = []
        self._trace, self._slots = trace, slots
        self._once_offline: set[int] = set()
        """CPUs that are or were offline, and then counted as idle."""
        for cpu in offline:
            self.close_cpu(cpu)

    def open(self, cpu: int) -> list[Slot]:
        if self._trace is not None and cpu in self._once_offline:
            self._trace.learn_states([cpu])  # a CPU that stays busy makes no idle transition
        return self._slots.get(cpu, [])

    def close_cpu(self, cpu: int) -> None:
        if self._trace is not None and cpu in self._slots:
            self._once_offline.add(cpu)
            self._trace.mark_offline(cpu)  # going offline is not an idle transition

    def close(self) -> None:
        if self._trace is not None:
            self._trace.close()
