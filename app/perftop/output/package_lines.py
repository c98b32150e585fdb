"""A line for each package, above the table of its CPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perftop.base.format import percent
from perftop.samples.machine_totals import MEMORY, OF_BEST
from perftop.session.interval import Interval
from perftop.session.session import Session


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
    if math.isnan(power):
        return ""
    return f"{power:.1f} W" if math.isnan(limit) else f"{power:.1f} of {limit:.0f} W"


def _memory(values: Mapping[str, float]) -> str:
    rates = [values.get(name, math.nan) for name in MEMORY]
    if any(map(math.isnan, rates)):
        return ""
    text = "memory {:.1f} GB/s read, {:.1f} written".format(*(rate / 1e9 for rate in rates))
    share = values.get(OF_BEST, math.nan)
    return text if math.isnan(share) else f"{text}, {percent(share)} % of the best seen"
