"""CPUID of this machine: from the kernel's driver, else by executing it on the CPU itself."""

from __future__ import annotations

import functools
from pathlib import Path

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpuid
from perfprobe.cpu.cpuid import Leaves, Registers
from perfprobe.native.affinity import pinned


def of(cpu: int) -> Leaves:
    """The leaves of one CPU of this machine; on hybrids they differ between core types."""
    device = cpuid.device(Path("/"), cpu)
    return device if device(0) is not None else executed(cpu)


def executed(cpu: int) -> Leaves:
    """Executes CPUID on the CPU and keeps the result. In guests it traps and takes microseconds, so
    it must not run while sampling."""

    @functools.cache
    def read(leaf: int, subleaf: int = 0, /) -> Registers | None:
        out = ffi.new("uint32_t[4]")
        try:
            with pinned(cpu):
                lib.pp_cpuid(leaf, subleaf, out)
        except OSError:  # outside our CPU set
            return None
        return out[0], out[1], out[2], out[3]

    return read
