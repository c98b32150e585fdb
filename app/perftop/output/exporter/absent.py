"""Series that say what the page cannot tell, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perftop.base.text import ranges
from perftop.output.exporter import families as family
from perftop.output.exporter.core_time import CoreTime
from perftop.output.exporter.lines import Family, several
from perftop.output.exporter.sums import COUNTS, MODES, Sums
from perftop.session.missing import BOUNDS, UNREAD, lasting
from perftop.session.session import Session

KEYS = {
    family.BELOW: "turbo_ceiling_hz busy_hz",
    family.CEILING: "turbo_ceiling_hz",
    family.BASE: "base_hz",
    family.TSC: "tsc_hz",
    family.LIMIT: "power_limit_w",
    family.TEMPERATURE: "temperature_c",
    family.ENERGY: "energy_j",
    family.DRAM_ENERGY: "power_dram_w",
    family.MEMORY: "memory_read_bytes_per_s",
    family.PROBE: "probe_cpu_s",
}
"""Families that are there or not as a whole, with the keys of what they need."""
QUOTED = re.compile(r'"[^"]*"')
"""Quoted words of a reason. They may name somebody's program, which must not be told here."""
MOST = 200
"""Characters of a reason."""


class Absent:
    def __init__(self, session: Session, sums: Sums, core_time: CoreTime) -> None:
        self._sums, self._core_time = sums, core_time
        self._reasons = lasting(session)

    def family(self, there: set[str]) -> Family:
        """`there`: names of the samples that are on the page."""
        told = [
            ({"what": what, "why": QUOTED.sub("a program", why)[:MOST]}, 1)
            for what, key, absent in self._parts(there)
            if (why := self._why(key, absent=absent))
        ]
        return several(family.MISSING, told)

    def _why(self, key: str, *, absent: bool) -> str:
        """Why nobody has it, or else why some CPUs lack it; '' if all have it."""
        for missing in (m for one in key.split() for m in self._reasons if m.what == one):
            if missing.cpus is not None:
                return f"{missing.why} (CPUs {ranges(missing.cpus)})"
            if absent:
                return missing.why
        return (BOUNDS if key == "smt" else UNREAD) if absent else ""

    def _parts(self, there: set[str]) -> Iterator[tuple[str, str, bool]]:
        """Families and parts of families, with the key of the reason, and whether it is absent."""
        sums = self._sums
        for at, (mode, key) in enumerate(MODES.items()):
            yield f"{family.CPU.sample}:{mode}", key, not sums.told_seconds[at].any()
        for heading, rings in family.RINGS.items():
            for key, ring in rings.items():
                part = f"{heading.sample}:{ring}" if len(rings) > 1 else heading.sample
                yield part, key, not sums.told_counts[COUNTS.index(key)].any()
        yield family.SMT.sample, "smt", not self._core_time.seconds[:, :-1].any()
        for heading, key in KEYS.items():
            yield heading.sample, key, heading.sample not in there
