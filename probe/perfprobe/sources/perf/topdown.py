"""Where the issue slots of a core go, by Intel's PERF_METRICS: a group that `slots` leads.

It takes no general counter. Kernel and hardware want exactly this group: with another leader the
counts are zeros. The kernel resets the registers at each read(), so nothing else may read them by
RDPMC. A field has 8 bits, so that each read is right to 0.4 % of the slots between two reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from perfprobe.frozen import frozen
from perfprobe.kernel import perf_pmus
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.event_catalogue import EVENTS, Chosen
from perfprobe.kernel.event_names import Asked
from perfprobe.kernel.perf_events import Event, Kernel, System
from perfprobe.kernel.perf_pmus import Pmu
from perfprobe.sources.perf.chosen import Opener
from perfprobe.sources.perf.groups import Groups
from perfprobe.wire import Cpu, Missing

LEVEL_1 = {
    "slots": ("slots", "issue slots"),
    "topdown_retiring": ("topdown-retiring", "slots whose work retired"),
    "topdown_bad_speculation": ("topdown-bad-spec", "slots of work that was thrown away"),
    "topdown_frontend": ("topdown-fe-bound", "slots without an instruction to issue"),
    "topdown_backend": ("topdown-be-bound", "slots in which the back end was full"),
}
LEVEL_2 = {
    "topdown_heavy_operations": ("topdown-heavy-ops", "retired slots of long instructions"),
    "topdown_branch_mispredicts": ("topdown-br-mispredict", "slots lost to mispredicted branches"),
    "topdown_fetch_latency": ("topdown-fetch-lat", "slots that waited for a fetch"),
    "topdown_memory_bound": ("topdown-mem-bound", "slots that waited for memory"),
}
"""From Sapphire Rapids on, in the same register."""
NONE = "this CPU has no PERF_METRICS: Ice Lake and later Intel cores have"
WHAT = "topdown_retiring_ratio"
"""The key under which its absence is told."""
OFF = "the counters of slots are there but do not add up: the hypervisor does not pass them on"
ERROR = 0.05
"""Share of the slots by which the four may miss them in a trial."""


@frozen
class Found:
    parts: list[Groups]
    missing: list[Missing]


def find(pmus: Iterable[Pmu]) -> list[Chosen]:
    """The events of the group, the leader first; empty if no PMU lists them."""
    found: list[Chosen] = []
    listing = [pmu for pmu in pmus if perf_pmus.config(pmu, "slots") is not None]
    for key, (name, about) in (LEVEL_1 | LEVEL_2).items():
        events: dict[str | None, Event] = {}
        for pmu in listing:
            if (config := perf_pmus.config(pmu, name)) is not None:
                events[pmu.name] = Event(key, pmu.type, config)
        if events:
            trouble = Trouble("cores of this type have no PERF_METRICS")
            found.append(Chosen(Asked(name, key=key), about, EVENTS, 1.0, events, trouble))
    keys = {chosen.asked.key for chosen in found}
    return found if keys >= LEVEL_1.keys() else []


def open_topdown(
    root: Path, rows: Sequence[Cpu], pmus: Sequence[Pmu], *, cpus: Iterable[int],
    kernel: Kernel | None = None,
) -> Found:  # fmt: skip
    """The part that counts slots, if the machine can; else why not."""
    kernel = kernel or System()
    group = find(pmus)
    if not group:
        return Found([], [Missing(WHAT, NONE)] if pmus else [])
    wanted = set(cpus)
    read = [row for row in rows if row.online and row.cpu in wanted]
    opener = Opener(root, kernel, rows, read, pmus)
    if (why := opener.whole(group, _sound)) is not None:
        return Found([], [Missing(WHAT, why.why, why.fix)])
    return Found([opener.part(group)], [])


def _sound(counts: Sequence[float]) -> Trouble | None:
    """What is wrong with the counts of a trial, in the order of LEVEL_1."""
    slots, parts = counts[0], counts[1 : len(LEVEL_1)]
    if slots <= 0 or abs(sum(parts) - slots) > ERROR * slots or min(parts) < 0:
        return Trouble(OFF)
    return None
