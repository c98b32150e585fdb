"""Lines of packages and of their L3s, above the table of CPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perftop.base.format import percent
from perftop.samples.machine_totals import MEMORY, OF_BEST
from perftop.session.interval import Interval
from perftop.session.session import Session

MOST_CACHES = 8
"""L3s that are told, those that move most."""


def lines(session: Session, interval: Interval) -> list[str]:
    """A line for each package: its power and its traffic to memory, as far as they are known."""
    found = []
    for at, cpus in enumerate(session.hello.packages):
        values = {name: float(found[at]) for name, found in interval.packages.items()}
        told = [_power(values), _memory(values)]
        if any(told):
            number = session.topology[session.position[cpus[0]]].package
            found.append(f"package {number}: {' · '.join(filter(None, told))}")
    return found


def _power(values: Mapping[str, float]) -> str:
    power, limit = (values.get(name, math.nan) for name in ("power_w", "power_limit_w"))
    dram = values.get("power_dram_w", math.nan)
    if math.isnan(power):
        return "" if math.isnan(dram) else f"{dram:.1f} W for memory"
    of = "" if math.isnan(limit) else f" of {limit:.0f}"
    more = "" if math.isnan(dram) else f" and {dram:.1f} W for memory"
    return f"{power:.1f}{of} W{more}"


def _memory(values: Mapping[str, float]) -> str:
    rates = [values.get(name, math.nan) for name in MEMORY]
    if any(map(math.isnan, rates)):
        return ""
    text = "memory {:.1f} GB/s read, {:.1f} written".format(*(rate / 1e9 for rate in rates))
    share = values.get(OF_BEST, math.nan)
    return text if math.isnan(share) else f"{text}, {percent(share)} % of the best seen"


def caches(session: Session, interval: Interval) -> list[str]:
    """The L3s that move most, and how much of each is in use."""
    traffic, held = (
        interval.caches.get(name) for name in ("memory_bytes_per_s", "occupancy_bytes")
    )
    if traffic is None:
        return []
    known = [at for at, rate in enumerate(traffic.tolist()) if math.isfinite(rate)]
    known.sort(key=lambda at: -float(traffic[at]))
    found = []
    for at in sorted(known[:MOST_CACHES]):
        used = "" if held is None or math.isnan(held[at]) else f", {held[at] / 1e6:.1f} MB in use"
        found.append(f"L3 {session.topology[at].l3}: {traffic[at] / 1e9:.1f} GB/s{used}")
    return found
