"""What `-e` can count with `--source msr` here, as far as files and CPUID tell. No register is
read, so whether somebody uses the counters is seen only by who programs them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from perfprobe.cpu import cpuid, topology
from perfprobe.cpu.event_counters import ALL
from perfprobe.cpu.identity import identity
from perfprobe.kernel import event_names
from perfprobe.kernel.event_catalogue import Catalogue
from perfprobe.kernel.perf_pmus import Pmu
from perfprobe.registers import counter_draft, counter_plan
from perfprobe.sources.msr import chosen
from perfprobe.sources.msr.kinds import Kind, kinds


def narrowed(root: Path, catalogue: Catalogue, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of `perfprobe events` with what general counters count, and on which."""
    each = list(kinds(root, topology.read(root), identity(root), None))
    found = {pmu.name: (pmu, k) for k in each for pmu in catalogue.cores if pmu.serves(k.online[0])}
    pmus = [pmu for pmu in answer["pmus"] if pmu["pmu"] in found]
    return {
        "events": [
            row | {"counters": counters}
            for row in answer["events"]
            if row["pmu"] in found
            and (counters := _counters(catalogue, row["name"], *found[row["pmu"]])) is not None
        ],
        "pmus": [pmu | _room(found[pmu["pmu"]][1]) for pmu in pmus],
        "missing": [] if found else answer["missing"][:1],
    }


def _counters(catalogue: Catalogue, name: str, pmu: Pmu, kind: Kind) -> str | None:
    """The numbers of the counters that count the event; empty: all. None: none does."""
    with suppress(ValueError):
        event = catalogue.find(event_names.parse(name)[0][0])
        mine = event.events.get(pmu.name)
        if mine is not None:
            counters = chosen.general(event, mine, kind, pmu).counters
            return "" if counters == ALL else chosen.numbers(counters)
    return None


def _room(kind: Kind) -> dict[str, int]:
    """How many general counters there are, and how many are left beside perftop's own."""
    plan = counter_plan.plan(kind.uarch, any_thread=cpuid.anythread(kind.leaves))
    if plan is None:
        return {"general": 0, "left": 0}
    usable = counter_draft.usable(plan.budget)
    own = len(plan.selects) - any(counted.key == "smi" for counted in plan.counted)
    return {"general": plan.budget.gp, "left": len(usable) - own}
