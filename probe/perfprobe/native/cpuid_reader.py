"""CPUID of this machine: from the kernel's driver, else by executing it on the CPU itself."""

from __future__ import annotations

from pathlib import Path

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpuid
from perfprobe.cpu.cpuid import Leaves, Registers
from perfprobe.native.affinity import pinned


def of(cpu: int) -> Leaves:
    """The leaves of one CPU of this machine; on hybrids they differ between core types."""
    device = cpuid.Device(Path("/"), cpu)
    return device if device(0) is not None else Executed(cpu)


class Executed:
    """Executes CPUID on the CPU and keeps the result. In guests it traps and takes microseconds, so
    it must not run while sampling."""

    def __init__(self, cpu: int) -> None:
        self._cpu = cpu
        self._read: dict[tuple[int, int], Registers | None] = {}

    def __call__(self, leaf: int, subleaf: int = 0, /) -> Registers | None:
        key = (leaf, subleaf)
        if key not in self._read:
            self._read[key] = self._execute(leaf, subleaf)
        return self._read[key]

    def _execute(self, leaf: int, subleaf: int) -> Registers | None:
        out = ffi.new("uint32_t[4]")
        try:
            with pinned(self._cpu):
                lib.pp_cpuid(leaf, subleaf, out)
        except OSError:  # outside our CPU set
            return None
        return out[0], out[1], out[2], out[3]
