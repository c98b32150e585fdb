"""Exact busy times and SMT states, counted in the kernel at its idle transitions.

Everything is in ns of CLOCK_MONOTONIC, cumulative and up to the moment of the call. "Busy" is the
operating system's view: not idle, so interrupts and wake-ups count, and time that a hypervisor took
away as well. A reader is busy on its own CPU while it reads.

A value can step back by nanoseconds when a transition was under way as it was read (idle.h says
why): take differences signed, below zero as zero.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perfprobe._native import ffi, lib
from perfprobe.native.errors import checked

LOG_BYTES = 1 << 16  # the verifier's words; the kernel says ENOSPC but keeps what fits
DISABLED = Path("/proc/sys/kernel/unprivileged_bpf_disabled")


@dataclass(frozen=True, slots=True)
class States:
    """ns of a core with: no CPU busy, only LP 0, only LP 1, both."""

    neither: int
    lp0: int
    lp1: int
    both: int
    unknown: int
    """Time in which a CPU's state was not known: with the four, all since the start."""
    known: bool
    """Both CPUs' state is known now."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Cumulative, over all CPUs. All 0 but for the first two on a machine that works."""

    clamped: int
    """Transitions whose clock was behind that of the core's other CPU ..."""
    clamped_ns: int
    """... and by how much: by this `lp0 + both` of a core and `busy` of its CPU may differ."""
    dropped: int
    """Updates given up; the core counts as unknown until that CPU's next transition."""
    missed: int
    """Runs of the program that the kernel suppressed: busy times are wrong by them."""


class IdleTrace:
    """The program is in the kernel until close, or until the process ends in whatever way."""

    def __init__(self, core_map: Mapping[int, tuple[int, int]], *, settle: bool = True) -> None:
        """`core_map`: for each CPU its core, numbered freely, and 0 or 1 within it.

        CPUs of cores with one thread or with more than two: each LP 0 of a core of its own.
        OSError: why it cannot be had, with the verifier's log as a note if there is one.
        """
        places = [(cpu, core, lp) for cpu, (core, lp) in sorted(core_map.items())]
        if not all(0 <= n < 4096 for place in places for n in place):
            raise ValueError("CPU and core numbers are below 4096")
        handle = ffi.new("pp_idle **")
        log = ffi.new("char[]", LOG_BYTES)
        c_places = ffi.new("pp_idle_place[]", places)
        result = lib.pp_idle_open(c_places, len(places), handle, log, LOG_BYTES)
        if result < 0:
            raise _failure(-result, _text(log))
        self._handle: Any = handle[0]
        self._cpus = [place[0] for place in places]
        if settle:
            self.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settle(self, cpus: Iterable[int] | None = None) -> None:
        """Makes states known, by running on each CPU once (the calling thread; moves it back).

        A CPU that cannot be run on stays unknown until its first transition.
        """
        before = os.sched_getaffinity(0)
        try:
            for cpu in self._cpus if cpus is None else cpus:
                with suppress(OSError):  # offline, or not in our cpuset
                    os.sched_setaffinity(0, {cpu})
                    checked(lib.pp_idle_settle(self._open(), cpu))
        finally:
            os.sched_setaffinity(0, before)

    def offline(self, cpu: int) -> None:
        """The CPU went offline: idle from here on. The kernel itself reports nothing then."""
        checked(lib.pp_idle_offline(self._open(), cpu))

    def states(self, core: int) -> States:
        """OSError ENOENT: no such core; EAGAIN: a CPU stood still in the midst of an update."""
        out: Any = ffi.new("pp_idle_states *")
        checked(lib.pp_idle_read(self._open(), core, out))
        neither, lp0, lp1, both = out.ns
        return States(neither, lp0, lp1, both, out.unknown_ns, bool(out.known))

    def busy(self, cpu: int) -> int | None:
        """None: the CPU's state is not known yet."""
        out: Any = ffi.new("uint64_t *")
        result = lib.pp_idle_busy(self._open(), cpu, out)
        if result == -errno.ENODATA:
            return None
        checked(result)
        return int(out[0])

    def entries(self, cpu: int) -> int:
        """How often it went idle, into whichever state."""
        out: Any = ffi.new("uint64_t *")
        checked(lib.pp_idle_get(self._open(), lib.PP_IDLE_ENTRIES, cpu, out))
        return int(out[0])

    def stats(self) -> Stats:
        out: Any = ffi.new("pp_idle_stats *")
        checked(lib.pp_idle_get_stats(self._open(), out))
        return Stats(out.clamped, out.clamped_ns, out.dropped, out.missed)

    def base(self) -> int:
        """Address of the rows, for slots of the sampler; valid until close."""
        return int(ffi.cast("uintptr_t", lib.pp_idle_base(self._open())))

    def close(self) -> None:
        if self._handle is not None:
            lib.pp_idle_close(self._handle)
            self._handle = None

    def _open(self) -> Any:
        if self._handle is None:
            raise ValueError("the trace is closed")
        return self._handle


def _text(log: Any) -> str:
    return bytes(ffi.buffer(log)).partition(b"\0")[0].decode(errors="replace")


def _failure(number: int, log: str) -> OSError:
    """`log` begins with the call that failed; what follows is the verifier's."""
    call, _, words = log.partition("\n")
    error = OSError(number, reason(number, call))
    if words.strip():
        error.add_note(words.strip())
    return error


def reason(number: int, call: str) -> str:
    """What to tell a user, by the error and the call it came from."""
    what = f"idle transitions cannot be traced ({call}): "
    if number in {errno.EPERM, errno.EACCES}:
        try:
            limit = f" (kernel.unprivileged_bpf_disabled={DISABLED.read_text().strip()})"
        except OSError:
            limit = ""
        return f"{what}needs CAP_BPF and CAP_PERFMON, or root{limit}"
    if number == errno.ENOSYS:
        return f"{what}this kernel has no bpf(2)"
    known = {
        (errno.EINVAL, "BPF_MAP_CREATE"): "needs Linux 5.12: no maps to share with user space",
        (errno.EINVAL, "BPF_PROG_LOAD"): "needs Linux 5.12: no compare-and-swap in BPF",
        (errno.ENOENT, "BPF_RAW_TRACEPOINT_OPEN"): "this kernel has no tracepoint cpu_idle",
        (errno.EINVAL, "arguments"): "the core map is empty or out of range",
        (errno.EEXIST, "mmap"): "the core map has two CPUs in one place",
    }
    return what + known.get((number, call), os.strerror(number))
