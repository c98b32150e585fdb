"""What was looked for on every machine, and what was found: the table of one that is well, and what
was ruled out on one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.format import many, percent
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.output.why.phrases import OF_CYCLES
from perftop.session.interval import Interval
from perftop.session.losses import STEAL, WAIT, LossSums
from perftop.session.session import Session


@frozen
class Check:
    """`share`: of the time that was lost to it."""

    key: str
    looked_for: str
    """'': its absence is told, no more."""
    found: str
    share: float
    brief: str
    """The same in a few words, for what was ruled out."""


def checks(session: Session, sums: LossSums, episodes: Sequence[Episode]) -> list[Check]:
    """What could be seen here, the costliest first."""
    whole, shares = session.whole(), sums.shares()
    chosen = session.evaluator.chosen
    clock = sum(s for (kind, _), s in shares.items() if kind in OF_CYCLES)
    halts = sum(s for (kind, _), s in shares.items() if kind in {"involuntary-halt", "throttle"})
    found: list[Check] = []
    if chosen["busy_hz"] and (told := _clocks(session, whole)):
        found.append(Check("clock", "a clock below its ceiling", told, clock, f"clock ({told})"))
    if session.run_times.has_waits:
        share = shares.get(WAIT, 0.0)
        waited = f"{sums.waited_s.sum():.1f} s of {sums.whole_s:.0f} s"
        found.append(Check("wait", "tasks waiting for a CPU", waited, share,
                           f"waiting for a CPU ({percent(share)} %)"))  # fmt: skip
    if chosen["involuntary"]:
        share = whole.values.over("involuntary", session.shown)
        told = _firmware(whole) or f"{_small(share)} of all time"
        found.append(Check("halts", "involuntary halts", told, halts,
                           f"involuntary halts ({_small(share)})"))  # fmt: skip
    if any(len(core) > 1 for core in session.cores) and chosen["ipc"]:
        share = shares.get(("neighbour", "sibling"), 0.0)
        found.append(Check("sibling", "tasks slowed by a sibling",
                           "none ran slower than it ran alone", share, "siblings"))  # fmt: skip
    if OF_BEST in whole.machine and chosen["ipc"]:
        share = shares.get(("neighbour", "memory"), 0.0)
        moved = sum(whole.machine[name] for name in MEMORY) / 1e9
        told = f"{moved:.1f} GB/s" if isfinite(moved) else "not read"
        found.append(Check("memory", "tasks slowed by the memory", told, share,
                           f"memory bandwidth ({told})"))  # fmt: skip
    if chosen["steal"]:
        stolen = whole.values.over("steal", session.shown)
        told = f"{_small(stolen)} of all time" if session.hello.virtualisation else "no hypervisor"
        found.append(Check("steal", "steal", told, shares.get(STEAL, 0.0),
                           f"steal ({_small(stolen)})"))  # fmt: skip
    heat = whole.machine.get("temperature_c", float("nan"))
    if isfinite(heat) and not any(e.cause == "thermal" for e in episodes):
        found.append(Check("heat", "", f"{heat:.0f} °C", 0.0, f"heat ({heat:.0f} °C)"))
    return sorted(found, key=lambda check: -check.share)


def _small(share: float) -> str:
    return f"{100 * share:.{2 if share < 0.001 else 1}f} %" if isfinite(share) else "unknown"


def _clocks(session: Session, whole: Interval) -> str:
    """Mean clock and ceiling of the cores that worked."""
    values, cores = whole.values, session.reader.cores
    if len(whole.ceilings.low_hz) != len(cores.lists):
        return ""
    ceiling = cores.by_cpu(whole.ceilings.low_hz)
    busy, util = values["busy_hz"], values["util"]
    rows = [at for at in session.shown
            if util[at] >= 0.1 and np.isfinite(busy[at]) and np.isfinite(ceiling[at])]  # fmt: skip
    if not rows:
        return ""
    weights = util[rows]
    clock, most = (float(np.average(part[rows], weights=weights)) for part in (busy, ceiling))
    active = len({int(cores.of_cpu[at]) for at in rows})
    return f"{clock / 1e9:.2f} of {most / 1e9:.2f} GHz, {many(active, 'core')} active"


def _firmware(whole: Interval) -> str:
    count = whole.counts.get("smi")
    if count is None or not np.isfinite(count).any():
        return ""
    return f"{many(int(np.nanmax(count)), 'SMI')}"
