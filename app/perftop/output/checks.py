"""The losses that `perftop why` could measure, so that they can be ruled out, and those that cannot
be measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from perftop.base.text import count_noun, percent, short_duration
from perftop.model.kinds import KINDS, STEAL_CAUSE, Episode
from perftop.model.machine_totals import MEMORY_COUNTERS, MEMORY_SHARE
from perftop.output.evidence import job_mean
from perftop.session.interval import Interval
from perftop.session.losses import WAIT_CAUSE, Cause, Totals
from perftop.session.session import Session
from perftop.session.values import lasting_reasons, names_by_reason, unknown_reason

MIN_SHARE = 0.01
"""Minimum cost of a named cause, as a share of the time."""
MIN_LONG_WAIT_S = 1e-3
"""Minimum length in s of the job's longest wait that is reported beside the sum. A short wait on
each CPU costs much if thousands of threads wait for the slowest."""
INTERRUPT_COUNTERS = "stat_irq_s", "stat_softirq_s"
_UNMEASURED_NAMES = {
    "busy_hz": "clock", "ipc": "IPC", "involuntary": "halts", "turbo_ceiling_hz": "turbo ceiling",
    "steal": "steal", "tasks": "who runs", "smt": "SMT states", MEMORY_SHARE: "memory bandwidth",
    "pressure": "waiting for memory", "l3_memory_bytes": "remote memory",
}  # fmt: skip
"""Names of the numbers, by key, without which causes can go undetected."""
OWN_WAITS = ("a program's own waits (locks, disks, network)", "not counted", None)
SLEEP_REASONS = ("why it slept", "locks, network and timers cannot be distinguished", None)
L3_CAPACITY = ("L3 cache taken by others", "not counted", "-e cache-misses")
"""The unmeasured loss for L3 capacity; not listed if a chosen event counts misses."""


@dataclass(frozen=True)
class Check:
    """A kind of loss that was checked for, and the result."""

    key: str
    loss_name: str
    """Name of the loss in the table; '' if only the list of ruled-out losses has it."""
    result: str
    share: float
    """Share of the time that was lost in this way."""
    brief_result: str
    """The result in a few words, for the list of ruled-out losses."""
    measured_share: float = 0.0
    """Measured share of the time (in interrupts, for example), partly lost; NaN if unknown."""

    def is_ruled_out(self, min_share: float) -> bool:
        """Returns whether the loss is certainly below `min_share`, and the measured share is below
        MIN_SHARE or unknown."""
        return self.share < min_share and not self.measured_share >= MIN_SHARE


UnmeasuredLoss = tuple[str, str, str | None]
"""Name of a loss that cannot be measured here, the reason, and how it could be measured."""


def measured_losses(
    session: Session, totals: Totals, interval: Interval, episodes: Sequence[Episode], *,
    is_whole_run: bool = True,
) -> list[Check]:  # fmt: skip
    """Returns the losses that can be measured here, the costliest first."""
    sums, chosen = totals.losses, session.evaluator.variants
    shares = sums.shares()
    results: list[Check] = []

    def add(
        key: str, loss_name: str, result: str, brief: str, *causes: Cause, measured: float = 0.0
    ) -> None:
        share = sum(shares.get(cause, 0.0) for cause in causes)
        results.append(Check(key, loss_name, result, share, brief, measured))

    def add_share(
        key: str, loss_name: str, name: str, share: float, *kinds: str, result: str = ""
    ) -> None:
        """Adds a check whose measured number is a share of the time. `kinds`: kinds of the episodes
        that report the loss."""
        text = f"{100 * share:.{2 if share < 0.001 else 1}f} %"
        result = result or f"{text} of time"
        add(key, loss_name, result, f"{name} ({text})", *of_kinds(*kinds), measured=share)

    def of_kinds(*kinds: str) -> list[Cause]:
        return [cause for cause in shares if cause[0] in kinds]

    if chosen["busy_hz"] and (clocks := _mean_clocks(session, interval)):
        slower = of_kinds(*(key for key, kind in KINDS.items() if kind.costs_cycles))
        add("clock", "a clock below its ceiling", clocks, f"clock ({clocks})", *slower)
    if totals.times.has_waits:
        waited_s = sums.by_cause[WAIT_CAUSE].sum() if WAIT_CAUSE in sums.by_cause else 0.0
        brief = f"waiting for a CPU ({percent(shares.get(WAIT_CAUSE, 0.0))} %)"
        waited = f"{waited_s:.1f} s of {sums.whole_s:.0f} s"
        if (longest_s := totals.times.longest_wait_s) >= MIN_LONG_WAIT_S:
            waited += f", once {short_duration(longest_s)} or longer"
        add("wait", "tasks waiting for a CPU", waited, brief, WAIT_CAUSE)
    hard, soft = (session.counters.rates(session.run.delta, key) for key in INTERRUPT_COUNTERS)
    if is_whole_run and hard is not None and soft is not None:
        interrupt_share = job_mean(session, sums, hard + soft)
        if isfinite(interrupt_share):
            add_share("interrupts", "interrupts", "interrupts", interrupt_share, "interrupt")
    pressure = interval.machine.get("pressure_memory", nan)
    if isfinite(pressure):
        wait = "tasks waiting for memory"
        add_share("memory-stalls", wait, "waiting for memory", pressure, "memory-stall")
    halts = interval.values.mean("involuntary", session.selected)
    if chosen["involuntary"] and np.isfinite(halts):
        name, smi = "involuntary halts", interval.counts.get("smi")
        result = ""
        if smi is not None and np.isfinite(smi).any():
            result = count_noun(int(np.nanmax(smi)), "SMI")
        add_share("halts", name, name, halts, "involuntary-halt", "throttle", result=result)
    if session.has_smt and chosen["ipc"]:
        seen = "no task ran slower than when alone"
        add("sibling", "tasks slowed by a sibling", seen, "siblings", ("neighbour", "sibling"))
    is_read = not _has_unread_cpu(session, interval)
    if MEMORY_SHARE in interval.machine and chosen["ipc"] and is_read:
        gb_per_s = sum(interval.machine[name] for name in MEMORY_COUNTERS) / 1e9
        seen = f"{gb_per_s:.1f} GB/s" if isfinite(gb_per_s) else "not read"
        brief = f"memory bandwidth ({seen})"
        add("memory", "saturated memory bandwidth", seen, brief, ("neighbour", "memory"))
    if session.neighbours.cache.is_available and is_read:
        add("cache", "data displaced from the L3", "no more misses", "the share of the L3",
            ("neighbour", "cache"))  # fmt: skip
    stolen = interval.values.mean("steal", session.selected)
    if chosen["steal"] and isfinite(stolen):
        result = "" if session.hello.virtualisation else "no hypervisor"
        add_share("steal", "steal", "steal", stolen, STEAL_CAUSE[0], result=result)
    heat = interval.machine.get("temperature_c", nan)
    if isfinite(heat) and not any(e.cause == "thermal" for e in episodes):
        add("heat", "", f"{heat:.0f} °C", f"heat ({heat:.0f} °C)")
    return sorted(results, key=lambda check: -check.share)


def _has_unread_cpu(session: Session, interval: Interval) -> bool:
    """Returns whether some CPU of the selected packages was not read, for example because of
    `--cpus`. Losses to tasks on it would go unnoticed."""
    packages = {session.topology[row].package for row in session.selected}
    util = interval.values["util"]
    return any(cpu.online and cpu.package in packages and not isfinite(util[row])
               for row, cpu in enumerate(session.topology))  # fmt: skip


def _mean_clocks(session: Session, interval: Interval) -> str:
    """Returns the mean clock and ceiling of the busy cores; '' if no core was busy."""
    cores = interval.cores
    ceiling = cores.by_cpu(interval.ceilings.low_hz)
    busy, util = interval.values["busy_hz"], interval.values["util"]
    known = np.isfinite(busy) & np.isfinite(ceiling)
    rows = [row for row in session.selected if util[row] >= 0.1 and known[row]]
    if not rows:
        return ""
    clock, limit = (float(np.average(part[rows], weights=util[rows])) for part in (busy, ceiling))
    active = len({int(cores.core_by_cpu[row]) for row in rows})
    return f"{clock / 1e9:.2f} of {limit / 1e9:.2f} GHz, {count_noun(active, 'core')} active"


def unmeasured_losses(session: Session, totals: Totals, interval: Interval) -> list[UnmeasuredLoss]:
    """Returns the losses that cannot be measured here, with reasons."""
    hidden = {"l3_memory_bytes"} if len({row.node for row in session.topology}) < 2 else set[str]()
    reasons = names_by_reason(
        lasting_reasons(session),
        lambda missing: None if missing.what in hidden else _UNMEASURED_NAMES.get(missing.what),
    )
    unseen = [(", ".join(names), why, fix) for (why, fix), names in reasons.items()]
    variants = session.evaluator.variants
    if not totals.times.has_waits:
        short = "too short to tell" if totals.times.wait_snapshots else ""
        why = short or "known after 3 s, if the kernel reports it"
        unseen.append(("waiting for a CPU", why, None))
    if variants["involuntary"] and not np.isfinite(
        interval.values.mean("involuntary", session.selected)
    ):
        run = session.run_interval()
        if not np.isfinite(run.values.mean("involuntary", session.selected)):
            unseen.append(
                ("halts", unknown_reason(session, run, session.selected, "involuntary"), None)
            )
    unseen = unseen or [OWN_WAITS if totals.times.job_time() is None else SLEEP_REASONS]
    if variants["ipc"] and not session.neighbours.cache.is_available:
        is_intel = session.hello.identity.vendor == "GenuineIntel"
        unseen.append(L3_CAPACITY if is_intel else (*L3_CAPACITY[:2], None))
    if variants["ipc"] and _has_unread_cpu(session, interval):
        unseen.append(("losses to others in the package", "not all of its CPUs are read", None))
    return unseen
