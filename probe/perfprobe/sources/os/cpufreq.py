"""Clocks by cpufreq: the present one, the cap by policy, and the fastest that a CPU can run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfprobe.cpu import files
from perfprobe.kernel import settings
from perfprobe.sources.os.procfs import Files
from perfprobe.wire import Counter, Cpu, Missing, Rate, Step, Turbo

SLOW_NS = 500_000
"""A file whose read takes longer is left out: on some parts a read interrupts the core."""
COUNTERS = {
    "scaling_cur_freq": Counter(
        "cpufreq_hz", "clock, by cpufreq", "Hz", "cpufreq", "gauge", scale=1e3
    ),
    "scaling_max_freq": Counter(
        "max_hz", "highest clock that policy allows", "Hz", "cpufreq", "gauge", scale=1e3
    ),
}


def part(root: Path, rows: Sequence[Cpu]) -> Files:
    """The files that are read with every sample, if reading them is cheap."""
    counters, missing = {}, []
    for name, counter in COUNTERS.items():
        why = _trouble(root, rows, name)
        if why is None:
            counters[f"cpufreq/{name}"] = counter
        else:
            missing.append(Missing(counter.key, why))
    found = Files(root, list(counters.values()), list(counters))
    found.missing += missing
    return found


def _trouble(root: Path, rows: Sequence[Cpu], name: str) -> str | None:
    cpu = next((row.cpu for row in rows if row.online), 0)
    path = root / files.CPUS / f"cpu{cpu}/cpufreq/{name}"
    took_ns = []
    try:
        for _ in range(3):
            start_ns = time.monotonic_ns()
            path.read_bytes()
            took_ns.append(time.monotonic_ns() - start_ns)
    except OSError:
        return "no cpufreq driver (usual in a guest): no clock from the system"
    if min(took_ns) > SLOW_NS:
        return f"a read of {name} takes {min(took_ns) // 1000} us: too slow to repeat"
    return None


# --- for hello ------------------------------------------------------------------------------------


def turbo(root: Path, rows: Sequence[Cpu]) -> tuple[list[Turbo], list[Missing]]:
    """The fastest clock of each CPU with few active cores, one entry for each speed: favoured cores
    are faster. cpufreq does not tell the clock with more active cores, so it is an upper bound."""
    if settings.turbo_on(root) is False:
        why = "turbo is off, and cpufreq then does not tell how far it would go"
        return [], [Missing("turbo_ceiling_hz", why)]
    cpus: dict[int, list[int]] = {}
    for cpu, at in _online(root, rows):
        khz = files.number(f"{at}/cpuinfo_max_freq")
        if khz:
            cpus.setdefault(khz, []).append(cpu)
    first = next(_online(root, rows), None)
    # The ACPI P-states in kHz; drivers that control the hardware without ACPI have none.
    pstates = (first and files.text(f"{first[1]}/scaling_available_frequencies")) or ""
    if cpus and str(max(cpus)) in pstates.split():
        why = "cpufreq knows the ACPI P-states only, and turbo goes beyond the fastest of them"
        return [], [Missing("turbo_ceiling_hz", why)]
    origin = "cpufreq, cpuinfo_max_freq"
    alike = len(cpus) == 1
    return [
        Turbo([Step(1, khz * 1e3)], origin, None if alike else mine)
        for khz, mine in sorted(cpus.items(), reverse=True)
    ], []


def base_hz(root: Path, rows: Sequence[Cpu]) -> Rate | None:
    """The guaranteed clock; None if it differs between CPUs."""
    found = {files.number(f"{at}/base_frequency") for _, at in _online(root, rows)}
    khz = found.pop() if len(found) == 1 else None
    return Rate(khz * 1e3, "cpufreq, base_frequency") if khz else None


def _online(root: Path, rows: Sequence[Cpu]) -> Iterator[tuple[int, str]]:
    return ((row.cpu, f"{root}/{files.CPUS}/cpu{row.cpu}/cpufreq") for row in rows if row.online)
