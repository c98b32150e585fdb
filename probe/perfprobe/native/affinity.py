"""Helpers to run code on one CPU: check that this process may run there, find the CPUs that share
its core, pin the thread, and read the CPU's CPUID."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpu_sets, cpuid
from perfprobe.cpu.cpuid import LeafRegisters, Leaves
from perfprobe.errors import Unavailable, UsageError
from perfprobe.wire import Cpu


def require_cpu(requested_cpu: int | None, rows: Sequence[Cpu], allowed: Collection[int]) -> Cpu:
    """Returns the topology row of the CPU that the user named; if the user named none, of the last
    CPU in `allowed`, because interrupts go to the first CPUs. `allowed` are the CPUs on which this
    process may run.

    Raises ValueError for a CPU that does not exist, and Unavailable for a CPU that is offline or
    not allowed.
    """
    online = [row.cpu for row in rows if row.online]
    if requested_cpu is None:
        requested_cpu = max({*online} & {*allowed} or allowed)
    row = next((row for row in rows if row.cpu == requested_cpu), None)
    if row is None:
        numbers = cpu_sets.format(online)
        raise UsageError(f"--cpu {requested_cpu}: no such CPU (online: {numbers})")
    if not row.online:
        fix = f"echo 1 | sudo tee /sys/devices/system/cpu/cpu{requested_cpu}/online"
        raise Unavailable(f"--cpu {requested_cpu}: it is offline; to bring it online: {fix}")
    if requested_cpu not in allowed:
        cpu_list = cpu_sets.format(sorted(allowed))
        reason = f"perftop may run on {cpu_list} only; start it outside the container or cpuset"
        raise Unavailable(f"--cpu {requested_cpu}: {reason}")
    return row


def siblings(cpu_row: Cpu, rows: Sequence[Cpu]) -> list[int]:
    """Returns the online CPUs that share the core of this CPU, without the CPU itself."""
    online = {row.cpu for row in rows if row.online}
    return [cpu for cpu in cpu_row.siblings if cpu != cpu_row.cpu and cpu in online]


@contextlib.contextmanager
def pinned_to(cpu: int) -> Iterator[None]:
    """Pins the calling thread to this CPU until the block ends, and then restores its affinity.

    Raises OSError if the thread may not run there.
    """
    old_affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, old_affinity)


# --- CPUID ----------------------------------------------------------------------------------------
# Leaves are read by the kernel's cpuid driver; without it, by executing CPUID on the CPU.


def cpuid_leaves(cpu: int) -> Leaves:
    """Returns a reader of the CPUID leaves of one CPU of this machine."""
    device = cpuid.leaves_from_driver(Path("/"), cpu)
    return device if device(0) is not None else leaves_from_cpuid_instruction(cpu)


def leaves_from_cpuid_instruction(cpu: int) -> Leaves:
    """Returns a reader that executes CPUID on this CPU, once for each leaf. In guests CPUID takes
    microseconds, so it must not run while sampling."""

    @functools.cache
    def read(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        registers = ffi.new("uint32_t[4]")
        try:
            with pinned_to(cpu):
                lib.pp_cpuid(leaf, subleaf, registers)
        except OSError:  # the CPU is outside this process's CPU set
            return None
        return registers[0], registers[1], registers[2], registers[3]

    return read
