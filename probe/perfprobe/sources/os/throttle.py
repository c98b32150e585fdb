"""Counts of the kernel's thermal interrupts, from thermal_throttle. Needs no privileges.

A count moves when a throttle starts; its time moves when it is over, by all of it at once. The
kernel checks once a second whether a hot CPU has cooled down.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfprobe.cpu import files
from perfprobe.sources.os.procfs import Files
from perfprobe.wire import Counter, Cpu, Scope

ORIGIN = "thermal_throttle"
SCOPES: tuple[Scope, ...] = ("core", "package")


def parts(root: Path, rows: Sequence[Cpu]) -> list[Files]:
    """Parts for cores and for packages with the files that exist; empty if there are none."""
    cpu = next((row.cpu for row in rows if row.online), 0)
    base = root / files.CPUS / f"cpu{cpu}"
    found = []
    for scope in SCOPES:
        there = {
            f"{ORIGIN}/{name}": counter
            for name, counter in _files(scope).items()
            if (base / ORIGIN / name).exists()
        }
        if there:
            found.append(Files(root, list(there.values()), list(there), scope))
    return found


def _files(scope: Scope) -> dict[str, Counter]:
    return {
        f"{scope}_throttle_total_time_ms": Counter(
            f"{scope}_throttled_s", f"{scope} throttled", "s", ORIGIN, scale=1e-3
        ),
        f"{scope}_throttle_count": Counter(f"{scope}_throttles", f"{scope} throttles", "1", ORIGIN),
        f"{scope}_power_limit_count": Counter(
            f"{scope}_power_limits", f"{scope} power limit events", "1", ORIGIN
        ),
    }
