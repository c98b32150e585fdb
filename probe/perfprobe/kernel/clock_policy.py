"""What cpufreq tells the clock to do: how to follow the load, and whether with turbo."""

from __future__ import annotations

from pathlib import Path

from perfprobe.cpu.files import CPUS, number, text


def turbo_on(root: Path) -> bool | None:
    """As it is now: by intel_pstate, or by the boost switch of the others. None: neither says."""
    off = number(f"{root}/{CPUS}/intel_pstate/no_turbo")
    boost = number(f"{root}/{CPUS}/cpufreq/boost")
    if off is None and boost is None:
        return None
    return not off and boost != 0


def governor(root: Path, cpu: int) -> str:
    """Empty: there is none to be seen."""
    return (text(f"{root}/{CPUS}/cpu{cpu}/cpufreq/scaling_governor") or "").strip()
