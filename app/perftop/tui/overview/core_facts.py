"""Facts about a core besides its numbers: which tasks may run there, the quota of its busiest task,
interrupts, and notes on the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from perftop.base.text import percent, ranges
from perftop.draw.columns import SUSPECT_SIGN
from perftop.model.control_groups import Quotas, parse_cpu_list
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.delta import Delta
from perftop.model.numbers import Number
from perftop.output.report import INTERRUPT_COUNTERS
from perftop.session.interval import Interval
from perftop.session.run_sums import Totals
from perftop.session.session import Session
from perftop.session.values import LISTED_NAMES, doubt_texts, lasting_reasons, names_by_reason
from perftop.tui.overview.task_lanes import LaneTask
from perftop.tui.shared.cores import Core

MAX_PLACED_TASKS = 4
"""Maximum number of tasks whose allowed CPUs are listed."""


def core_facts(
    session: Session, interval: Interval, core: Core, numbers: Sequence[Number],
    totals: Totals | None, tasks: Sequence[LaneTask],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yields facts about the core besides its numbers, with a label or '' for a note: doubtful and
    estimated numbers, the CPUs on which tasks may run, the quota of the busiest task, interrupts,
    the method for the SMT states, and the reasons for unknown numbers. `totals`: those of the
    verdict; None if there is none. `tasks`: those on the core, the busiest first."""
    for cpu, row in zip(core.cpus, core.positions, strict=True):
        if reasons := doubt_texts(interval, row):
            yield "", f"{SUSPECT_SIGN} CPU {cpu}: {'; '.join(reasons)}"
    for number in numbers:
        shares = interval.event_counted_shares.get(number.key)
        share = 1.0 if shares is None else float(np.fmin.reduce(shares[[*core.positions]]))
        if share < MIN_COUNTED_SHARE:
            yield "", f"{number.plain_name} was counted for {100 * share:.0f} % of the time"
    if tasks:
        yield "may run on", _placement_text(session, tasks[:MAX_PLACED_TASKS])
    if totals is not None:
        recorded_pids = {pid for pid, *_ in totals.times.tasks}
        recorded_tasks = [task for task in tasks if task.pid in recorded_pids]
        yield from (("quota", _quota_text(totals.times.quotas, t)) for t in recorded_tasks[:1])
        yield "interrupts", _interrupt_text(session, totals.span.delta, core)
    method = interval.split.method[core.core_position]
    if len(core.cpus) > 1 and method is not None:
        calibration = session.calibrations.get(method.replace("-", "_"))
        state = ""
        if calibration is not None:
            word = "calibrated" if calibration.state == "settled" else calibration.state
            state = f" ×{calibration.factor:g} {word}"
        yield "", f"SMT states by {method}{state}"
    cpus = {*core.cpus}
    reasons_here = [m for m in lasting_reasons(session) if not cpus.isdisjoint(m.cpus or ())]
    by_reason = names_by_reason(reasons_here, lambda missing: LISTED_NAMES.get(missing.what))
    order = [*dict.fromkeys(LISTED_NAMES.values())]
    for (reason, fix), names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        name_list = ", ".join(sorted(names, key=order.index))
        yield "", f"{name_list} unknown: {reason}" + (f" · {fix}" if fix else "")


def _interrupt_text(session: Session, delta: Delta, core: Core) -> str:
    """Returns the shares of the CPUs' time that interrupts and softirqs took."""
    hard, soft = (session.counters.rates(delta, key) for key in INTERRUPT_COUNTERS)
    if hard is None or soft is None:
        return "n/a: this source does not count their time"
    shares = [f"{percent(hard[row])} %, softirqs {percent(soft[row])} %" for row in core.positions]
    if len(shares) == 1:
        return shares[0]
    return " · ".join(f"CPU {cpu}: {text}" for cpu, text in zip(core.cpus, shares, strict=True))


def _quota_text(quotas: Quotas, task: LaneTask) -> str:
    """Returns the CPU quota that applies to a task, and for how long it stopped tasks."""
    name = f"{task.comm} {task.pid}"
    quota = max(quotas.quotas_of(task.pid or 0), key=lambda q: q.throttled_s, default=None)
    if quota is None:
        return f"none for {name}"
    text = f"{quota.cpus:.3g} CPUs for {name} ({quota.owner})"
    if not quota.throttled_count:
        return f"{text}, not used up"
    periods = f"{quota.throttled_count} of {quota.period_count} periods"
    return f"{text}: stopped {quota.throttled_s:.1f} s, in {periods}"


def _placement_text(session: Session, tasks: Sequence[LaneTask]) -> str:
    """Returns the CPUs on which these tasks may run, which the probe reads for busy tasks only."""
    online = {row.cpu for row in session.topology if row.online}
    names: dict[str, list[str]] = {}
    for task in tasks:
        cpus = parse_cpu_list(session.details.get(str(task.pid), {}).get("affinity"), online)
        place = "every CPU" if cpus == online else f"CPU {ranges(sorted(cpus))} only"
        place = place if cpus else "unknown (only read for the busiest)"
        names.setdefault(place, []).append(f"{task.comm} {task.pid}")
    return " · ".join(f"{place}: {', '.join(names[place])}" for place in names)
