"""The counter of a CPU's cycles, for code that reads it by RDPMC; or why there is none.

read(2) is no substitute here: it takes a microsecond, and what is timed takes five.
"""

from __future__ import annotations

from pathlib import Path

from perfprobe.kernel import perf_groups, perf_pmus
from perfprobe.kernel.perf_events import CYCLES, HARDWARE, Event, Group, Kernel, Refused, System


def opened(cpu: int, kernel: Kernel | None = None, root: Path = Path("/")) -> Group:
    """It counts, in all rings, from now until it is closed. Raises Refused."""
    pmu = perf_pmus.core_at(root, cpu)
    event = Event("cycles", HARDWARE, pmu.extended | CYCLES)
    settled = perf_groups.settle(kernel or System(), [event], cpu, timed=True, root=root)
    if settled.group is None:
        raise Refused(settled.missing[event.key])
    if not settled.group.direct:
        settled.group.close()
        raise Refused(pmu.indirect())
    return settled.group
