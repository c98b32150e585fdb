"""Why a number is absent, in words."""

from __future__ import annotations

import math

from perftop.base.text import ranges
from perftop.samples.metrics import METRICS
from perftop.session.interval import Interval
from perftop.session.session import Session

OFF = "the CPU is off"
UNREAD = "not read in this interval"
MANY = "only neither is told of more than two threads"


def why_absent(interval: Interval, row: int, key: str) -> str:
    """Why a value that this source can give is not there now."""
    if not interval.online[row]:
        return OFF
    if row in interval.suspect:
        return "no sample of this interval could be believed"
    if key in {"busy_hz", "ipc", "kernel_cycles", "kernel_instructions"}:
        halted = interval.values["util"][row]
        if halted == 0:
            return "the CPU was halted throughout"
    return UNREAD


def why_no_states(session: Session, interval: Interval, core: int) -> dict[str, str]:
    """The bounds of a core stand for themselves."""
    split, cpus = interval.split, session.splitter.cores[core]
    known = {"smt": all(map(math.isfinite, split.of(core).values())),
             "active_threads": math.isfinite(split.active_threads[core])}  # fmt: skip
    lacking = [key for key, found in known.items() if not found]
    if not lacking or split.method[core] == "bounds":
        return {}
    rows = [session.position[cpu] for cpu in cpus]
    worst = next((row for row in rows if row in interval.suspect), rows[0])
    why = {key: why_absent(interval, worst, key) for key in lacking}
    if cpus[2:] and known["active_threads"]:
        why["smt"] = MANY
    return why


def missing_text(session: Session) -> list[str]:
    """One line a cause: what is not there, why, and how to get it."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for missing in session.missing():
        metric = METRICS.get(missing.what)
        where = "" if missing.cpus is None else f" on CPUs {ranges(missing.cpus)}"
        label = (metric.label if metric else missing.what) + where
        groups.setdefault((missing.why, missing.fix), []).append(label)
    return [
        f"n/a: {', '.join(dict.fromkeys(labels))} - {why}" + (f" · {fix}" if fix else "")
        for (why, fix), labels in groups.items()
    ]
