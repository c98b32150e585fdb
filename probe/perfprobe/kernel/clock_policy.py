"""The policy that cpufreq applies to clocks: the governor, and whether turbo is on."""

from __future__ import annotations

from pathlib import Path

from perfprobe.cpu.files import CPUS, number, text


def turbo_on(root: Path) -> bool | None:
    """Whether turbo is on now, by intel_pstate or the boost switch; None: there is neither."""
    off = number(f"{root}/{CPUS}/intel_pstate/no_turbo")
    boost = number(f"{root}/{CPUS}/cpufreq/boost")
    if off is None and boost is None:
        return None
    return not off and boost != 0


def governor(root: Path, cpu: int) -> str:
    """The CPU's governor; empty where cpufreq names none."""
    return (text(f"{root}/{CPUS}/cpu{cpu}/cpufreq/scaling_governor") or "").strip()
