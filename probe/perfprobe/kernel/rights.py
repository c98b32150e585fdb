"""What the probe may still do once everything is open.

Whatever is open stays readable without any capability. The few that are kept open files and events
again when a CPU comes back. The user ID stays as well: registers, journals and some files of /sys
belong to root. No seccomp filter is set: the system calls of the interpreter, the C library and its
look-up of users change with their versions, and each change would end a probe that holds registers.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from perfprobe._native import lib
from perfprobe.cpu import files, identity
from perfprobe.errors import checked
from perfprobe.kernel import access

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_RAWIO = 1, 2, 17
BPF_FREE = (5, 19)
"""From this Linux on, a BPF program that is loaded may be run without a capability."""
_MACHINE = Path("/")
"""Capabilities are those of this machine's kernel, whatever directory is read."""


def keep(root: Path, source: str) -> None:
    """Drops, for the calling thread, what this process will not need; the sampler's threads have
    nothing. A module that is imported later is imported now: the installation may lie in the home
    of a user, which root may not read without a capability."""
    if not source.startswith("sim") and access.status(_MACHINE, "CapPrm") != ["0" * 16]:
        import psutil  # noqa: F401
    kept = sum(1 << capability for capability in set(needed(root, source)))
    with contextlib.suppress(OSError):  # a service's or container's filter: it confines us already
        checked(lib.pp_rights_keep(kept))


def needed(root: Path, source: str) -> Iterator[int]:
    """The capabilities to keep, where this process has them."""
    if os.geteuid() != 0:
        yield from (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)  # for files that root owns
    if access.hiding(_MACHINE):
        yield access.CAP_SYS_PTRACE
    if source in {"auto", "perf", "msr"} and any(root.glob("dev/cpu/*/msr")):
        yield CAP_SYS_RAWIO
    if source in {"auto", "perf"}:
        yield from _events()
    if _version() < BPF_FREE:
        yield access.CAP_BPF
        yield access.CAP_SYS_ADMIN  # in its place before 5.8


def _events() -> Iterator[int]:
    """For opening events of whole CPUs."""
    yield access.CAP_PERFMON
    last = files.number("/proc/sys/kernel/cap_last_cap") or 0
    level = files.number("/proc/sys/kernel/perf_event_paranoid") or 0
    if last < access.CAP_PERFMON or level >= 3:
        yield access.CAP_SYS_ADMIN


def _version() -> tuple[int, ...]:
    found = re.match(r"([0-9]+)\.([0-9]+)", identity.kernel())
    return tuple(map(int, found.groups())) if found else (0, 0)
