"""The summary of a run, its command and the machine's state, which is the last line of `stat
--json`; and, as a bar and a table, how the command's threads spent their time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from perfprobe import wire
from perftop.base.text import Line, json_number, ranges, safe_text
from perftop.draw.columns import Column
from perftop.model.kinds import Episode, kind_of
from perftop.model.numbers import INDEX
from perftop.model.smt import STATES
from perftop.output.report import MIN_RECORDED_SHARE, seen_share
from perftop.output.stat_lines import table_line
from perftop.output.waiters import other_run_times
from perftop.output.why_report import report
from perftop.process.command_window import RUN_COUNTS, RUN_TIMES, WindowBounds
from perftop.session.episodes import run_seconds
from perftop.session.interval import Distribution, Interval
from perftop.session.losses import WAIT_CAUSE
from perftop.session.run_phases import RunPhase
from perftop.session.session import Session
from perftop.session.task_times import PERFTOP_NAMES, UNKNOWN_CPU, JobTime
from perftop.session.values import BOUNDS_REASON, UNREAD_REASON, state_reasons, unknown_reason

# --- The state of a machine: hardware and settings that can differ between two measurements. Its
# keys and values are those of the JSON output. The tables in this module translate them into text.

MAX_SHOWN_LENGTH, MAX_VALUE_LENGTH = 60, 200
"""Maximum lengths in characters of a value on display, and of a value in the state."""
MAX_SETTINGS = 64
MAX_EQUAL_DIFFERENCE = 0.002
"""Maximum relative difference of two numbers that count as equal: means of gauges are rounded."""
SETTING_NAMES = {
    "power_limit_w": "power limit PL1",
    "power_limit2_w": "power limit PL2",
    "turbo": "turbo",
    "governor": "governor",
    "energy_performance_preference": "energy preference",
    "max_perf_pct": "clock limit",
    "max_hz": "highest clock",
    "hwp_epp": "EPP",
    "cpus": "CPUs",
    "selected": "CPUs selected",
    "smt": "SMT",
    "host": "host",
    "model": "model",
    "microcode": "microcode",
    "kernel": "kernel",
    "virtualisation": "hypervisor",
    "boot_id": "boot",
    "base_hz": "base clock",
    "packages": "packages",
    "source": "counters from",
    "sample_s": "sample",
    "command": "command",
}
"""Names of settings by key, the most important first. Others are shown by their keys."""
_VALUE_FORMATS: dict[str, Callable[[float], str]] = {
    "power_limit_w": "{:g} W".format,
    "power_limit2_w": "{:g} W".format,
    "max_perf_pct": "{:g} %".format,
    "max_hz": lambda hz: f"{hz / 1e9:.2f} GHz",
    "base_hz": lambda hz: f"{hz / 1e9:.2f} GHz",
    "sample_s": "{:g} s".format,
}
"""Functions that format a number with its unit, by key. Others have no unit."""


GAUGES = "power_limit_w", "power_limit2_w", "max_perf_pct", "max_hz", "hwp_epp"
TURBO_OFF_GAUGES = "turbo_off", "turbo_disabled"


def setting_label(key: str) -> str:
    return SETTING_NAMES.get(key) or key.replace("_", " ")


def value_text(key: str, value: object) -> str:
    """Returns a value as text; for a boot, the first part of its ID."""
    if value is None:
        return "n/a"
    if isinstance(value, int | float):
        return _VALUE_FORMATS.get(key, "{:g}".format)(value)
    text = safe_text(str(value), MAX_SHOWN_LENGTH)
    return text.partition("-")[0] if key == "boot_id" else text


def is_different(a: object, b: object) -> bool:
    """Returns whether two values differ; numbers must differ by more than MAX_EQUAL_DIFFERENCE."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) > MAX_EQUAL_DIFFERENCE * max(abs(a), abs(b))
    return a != b


def machine_state(session: Session) -> Line:
    """Returns the known properties and settings by key. Power and clock limits are means over the
    run."""
    hello = session.hello
    online_cpus = [row.cpu for row in session.topology if row.online]
    has_siblings = any(len(set(core) & set(online_cpus)) > 1 for core in session.cores)
    selected = hello.selected
    settings = [*hello.settings.items()][:MAX_SETTINGS]  # untrusted
    states: Line = {
        "host": hello.host, "model": hello.identity.name or None,
        "microcode": hello.identity.microcode, "kernel": hello.kernel,
        "virtualisation": hello.virtualisation or "none", "boot_id": hello.boot_id,
        "cpus": f"{len(online_cpus)} of {len(session.topology)} on",
        "smt": "on" if has_siblings else "off",
        "selected": "all" if selected is None else ranges(selected),
        "packages": len(hello.packages), "source": hello.source,
        "base_hz": json_number(hello.base_hz.hz) if hello.base_hz else None,
        "sample_s": hello.sample_ns / 1e9,
        **{safe_text(key, MAX_SHOWN_LENGTH): safe_text(value, MAX_VALUE_LENGTH)
           for key, value in settings},
    }  # fmt: skip
    off_shares = []
    for key in (*GAUGES, *TURBO_OFF_GAUGES):
        means = session.counters.rates(session.run.span.delta, key)
        if means is not None and len(means := means[np.isfinite(means)]):
            value = float(means.sum() if key.endswith("_w") else means.max())
            if key in GAUGES:
                states[key] = json_number(float(f"{value:.4g}"))
            else:
                off_shares.append(value)
    if off_shares:
        states["turbo"] = "off" if max(off_shares) > 0.5 else "on"
    return {key: value for key, value in states.items() if value is not None}


# --- results of the command

MAX_NEIGHBOURS = 3
"""Maximum number of processes that are listed as those for which a job waited."""


def run_line(session: Session) -> Line | None:
    """Returns the JSON object of the command's run; None if no end of a command was noted. The Unix
    times of its start and end, and the earliest and latest times of the first and of the last
    samples of the CPUs, are null if the measuring window was not closed, or if the machine is
    simulated and has another clock."""
    start, end = session.command_run.start, session.command_run.end
    if start is None or end is None:
        return None
    line: Line = {key: _whole_number(end.data.get(key)) for key in ("pid", "status")}
    for key in RUN_TIMES:
        seconds = run_seconds(end, key)
        line[key] = seconds if math.isfinite(seconds) else None
    line |= {key: _whole_number(end.data.get(key)) for key in RUN_COUNTS}
    line |= dict.fromkeys(("start", "end", "slack_s", "first_samples", "last_samples"))
    ranges = []
    for key in ("first_ns", "last_ns"):
        match end.data.get(key):
            case [int(first), int(last)] if 0 <= first <= last < wire.MAX_TIME_NS:
                ranges.append((first, last))
    if len(ranges) == 2:
        line["slack_s"] = WindowBounds(*ranges).slack_s(start.time_ns, end.time_ns)
        for key, times_ns in zip(("first_samples", "last_samples"), ranges, strict=True):
            line[key] = [session.unix_s(time_ns) for time_ns in times_ns]
        if end.data.get("remote") is not True:  # else known only to within the connection's delay
            line |= {"start": session.unix_s(start.time_ns), "end": session.unix_s(end.time_ns)}
    missed_cpus = end.data.get("missed")
    is_valid = isinstance(missed_cpus, list) and all(type(cpu) is int for cpu in missed_cpus)
    return line | {"missed": missed_cpus if is_valid else None}


def _whole_number(value: object) -> int | None:
    return value if type(value) is int else None


# --- summary of a run


def state_means(line: Line, state: str) -> list[float]:
    """Returns the means of an SMT state in a summary, one for each core with known states."""
    return [core["smt"][state]["mean"] for core in line["cores"] if core["smt"][state] is not None]


def mean_both_share(line: Line) -> float | None:
    """Returns the mean share of the time for which both threads of a core ran, over the cores
    where it is known; None if there are none."""
    means = state_means(line, "both")
    return sum(means) / len(means) if means else None


def summary_line(session: Session, counted: dict[str, dict[str, int]]) -> Line:
    """Returns the summary since the start. `counted`: numbers of episodes, by kind and cause."""
    interval, extremes = session.run_interval(), session.run.distribution.finish()
    machine = _measures(session, interval, session.selected, extremes.machine)
    reasons = machine.pop("why", {})
    losses: Line = {}
    if session.run.tracks_losses:
        # `causes`: the losses of busy CPUs or of the watched job, the largest first. `busy`: the
        # seconds in which all, one, several and none of the selected CPUs were busy.
        sums, busy = session.run.lost_time(), session.run.busy_cpus
        losses["causes"] = [
            {"kind": kind, "cause": cause, "lost_ratio": json_number(share),
             "lost_s": json_number(float(sums.by_cause[kind, cause].sum()))}
            for (kind, cause), share in sums.shares().items() if share > 0
        ]  # fmt: skip
        spans = {
            f"{name}_s": json_number(getattr(busy, f"{name}_s"))
            for name in ("all", "one", "between", "none")
        }
        losses["busy"] = {**spans, "alone": busy.single_cpu_task, "cpus": len(session.selected)}
    other_tasks = _other_tasks(session)
    line: Line = {
        "type": "summary",
        "elapsed_s": json_number((session.now_ns - session.run.start_ns) / 1e9),
        "run": run_line(session),
        **_job_line(session, interval, extremes),
        "machine": machine,
        "cpus": [
            {"cpu": session.topology[row].cpu}
            | _measures(session, interval, [row], partial(extremes.cpu, row=row))
            for row in session.selected
        ],
        "cores": [
            _core_line(session, interval, extremes, core) for core in session.selected_cores()
        ],
        "episodes": counted,
        "state": machine_state(session),
        "energy_j": json_number(_energy_j(session, "energy_j")),
        "energy_dram_j": json_number(_energy_j(session, "energy_ram_j")),
        "totals": _total_counts(session, interval),
        **losses,
        **({} if other_tasks is None else {"others": other_tasks}),
        "probe_cpu_s": json_number(session.probe_cpu_s()),
        "lost": session.dropped_frames,
        "late": session.late_samples,
        "suspect": session.run.span.suspect_count,
    }
    if line["energy_j"] is None and "energy_j" in session.counters.columns:
        reasons["energy_j"] = UNREAD_REASON
    return line | {"why": reasons} if reasons else line


def _other_tasks(session: Session) -> Line | None:
    """Returns the mean number of CPUs that other processes used, and the process that used most;
    None without a command or without task records."""
    seen_s, footprint = session.run.times.covered_s, session.command_footprint
    if footprint is None or not session.run.times.tasks or seen_s <= 0:
        return None
    run_s_by_cpu: dict[tuple[int, str], dict[int, float]] = {}
    for (pid, comm, cpu), times in session.run.times.tasks.items():
        if cpu != UNKNOWN_CPU and pid not in footprint.pids and comm not in PERFTOP_NAMES:
            run_s_by_cpu.setdefault((pid, comm), {})[cpu] = times.run_s
    run_s = {task: sum(by_cpu.values()) for task, by_cpu in run_s_by_cpu.items()}
    busiest_task: Line | None = None
    if run_s:
        busiest = pid, comm = max(run_s, key=lambda task: run_s[task])
        cpus = sorted(run_s_by_cpu[busiest])
        ran_s = json_number(run_s[busiest])
        busiest_task = {"pid": pid, "comm": comm, "ran_s": ran_s, "cpus": cpus}
    return {"cpus": json_number(sum(run_s.values()) / seen_s), "most": busiest_task}


def _job_line(session: Session, interval: Interval, extremes: Distribution) -> Line:
    """Returns the measures of the CPUs on which the command ran, according to records, and of the
    other selected CPUs."""
    footprint = session.command_footprint
    cpus = [] if footprint is None else footprint.cpus()
    rows = [row for row in session.selected if session.topology[row].cpu in cpus]
    if footprint is None or not rows:
        return {"job": None, "rest": None}
    ran_s = other_run_times(session.run.times.tasks, cpus, footprint.pids)
    is_known = session.watches_command and session.run.tracks_losses
    findings = report(session).findings if is_known else []
    blamed = [task[:2] for f in findings if f.cause == WAIT_CAUSE for task in f.culprit_tasks]
    job_time = session.run.times.job_time()
    job = _group_line(session, interval, extremes, rows) | {
        "seen_s": json_number(footprint.run_s), "waited_s": json_number(footprint.waited_s),
        "longest_wait_s": None if job_time is None
        else json_number(session.run.times.longest_wait_s),
        "disk_s": json_number(footprint.disk_s),
        **{key: None if job_time is None else json_number(getattr(job_time, key))
           for key in ("quota_s", "stopped_s", "slept_s")},
        "behind": [{"pid": pid, "comm": comm, "ran_s": json_number(ran_s[pid, comm])}
                   for pid, comm in blamed if (pid, comm) in ran_s][:MAX_NEIGHBOURS],
    }  # fmt: skip
    other_rows = [row for row in session.selected if row not in rows and session.online[row]]
    other_line = _group_line(session, interval, extremes, other_rows) if other_rows else None
    return {"job": job, "rest": other_line}


def _total_counts(session: Session, interval: Interval) -> Line:
    """Returns the counts of all selected CPUs, without unknown or partly suspect ones, and the
    share of running time below the ceiling."""
    totals: dict[str, float] = {
        key: float(interval.counts[key][session.selected].sum())
        for key in ("cycles", "instructions") if key in interval.counts
    }  # fmt: skip
    ran_s = float(np.nansum(interval.values.numerators[INDEX["util"], session.selected]))
    if session.evaluator.variants["busy_hz"] and session.reader.turbo.cpus.any() and ran_s > 0:
        start_ns, end_ns = session.run.start_ns, session.now_ns
        low_s = sum(
            episode.span_s(start_ns, end_ns) * mean_busy_cpus(session, interval, episode)
            for episode in session.episodes(start_ns, end_ns)
            if kind_of(episode).depth == "hz"
        )
        totals["below_ceiling"] = min(1.0, low_s / ran_s)
    return {key: json_number(value) for key, value in totals.items() if math.isfinite(value)}


def mean_busy_cpus(session: Session, interval: Interval, episode: Episode) -> float:
    rows = [session.position[cpu] for cpu in episode.cpus if cpu in session.position]
    return float(np.nansum(interval.values["util"][rows]))


def _energy_j(session: Session, key: str) -> float:
    """Returns the energy of all packages, or of their memory, in J; NaN if one is unknown."""
    increments = session.counters.increments(session.run.span.delta, key)
    return math.nan if increments is None else float(increments.sum())


# --- measures of CPUs and cores


def _measure_json(mean: float, extremes: dict[str, float]) -> Line | None:
    if not math.isfinite(mean):
        return None
    spans = {"min": extremes["min"], "mean": mean, "max": extremes["max"], "p5": extremes["p5"]}
    return {name: json_number(value) for name, value in spans.items()}


def _measures(
    session: Session, interval: Interval, rows: list[int],
    extremes: Callable[[str], dict[str, float]],
) -> Line:  # fmt: skip
    """Returns the measure of each metric over these CPUs, and in `why`, if there are any, the
    reasons for missing ones that the source can measure. `extremes`: of a metric."""
    means, index = interval.values.group(rows), interval.values.registry.index
    line: Line = {
        key: _measure_json(float(means[index[key]]), extremes(key))
        for key in session.evaluator.metrics
    }
    variants_by_key = session.evaluator.variants.items()
    missing_keys = [key for key, variants in variants_by_key if variants and line[key] is None]
    reasons = {key: unknown_reason(session, interval, rows, key) for key in missing_keys}
    return line | {"why": reasons} if reasons else line


def _group_line(
    session: Session, interval: Interval, extremes: Distribution, rows: list[int]
) -> Line:
    cpus = [session.topology[row].cpu for row in rows]
    return {"cpus": cpus} | _measures(session, interval, rows, partial(extremes.group, rows=rows))


def _core_line(session: Session, interval: Interval, extremes: Distribution, core: int) -> Line:
    first = session.topology[session.position[session.cores[core][0]]]
    method, means = extremes.split(interval.split, core)
    smt = {state: _measure_json(means[state], extremes.core(state, core)) for state in STATES}
    line: Line = {"package": first.package, "core": first.core, "smt": smt, "smt_method": method}
    is_missing = {"smt": None in smt.values(), "smt_method": method is None}
    reasons = (
        {"smt": BOUNDS_REASON} if method == "bounds" else state_reasons(session, interval, core)
    )
    reasons = {key: reason for key, reason in reasons.items() if is_missing.get(key)}
    return line | {"why": reasons} if reasons else line


# --- How a command spent its time, as text: the run as one bar, divided into phases, and a table.
#
# The length of the bar is the elapsed time. Each phase is divided in proportion to the time for
# which all threads of the command ran and waited. Sleep is only drawn if all threads slept: the
# others, such as a shell that waits for its children, do not delay the command.

WIDTH = 78
MAX_NAME_LENGTH = 15
MIN_SHOWN_S = 0.05
"""Minimum time in s, summed over all threads, that threads ran, waited or slept to be mentioned."""


TIME_USES = (
    ("ran", "ran", "█#"), ("waited for a CPU", "waited", "▓w"),
    ("stopped by a quota", "quota", "▒q"), ("was blocked (disk)", "disk", "░d"),
    ("was blocked (unknown)", "blocked", "▚b"), ("was stopped", "stopped", "╳x"),
    ("slept", "slept", "·."),
)  # fmt: skip
"""The uses of time, in the order of JobTime's fields: the words, a heading, and a graphic and an
ASCII character."""


def time_use_text(times: JobTime) -> str:
    """Describes how a job's threads spent their time, without times below MIN_SHOWN_S."""
    uses = zip(TIME_USES, times, strict=True)
    parts = [f"{use[0]} {seconds:.1f} s" for use, seconds in uses if seconds >= MIN_SHOWN_S]
    return f"{', '.join(parts) or 'nothing'} (all threads together)"


def time_use_lines(
    phases: Sequence[RunPhase], *, unicode: bool, used_s: float = math.nan
) -> list[str]:
    """Returns the bar with its legend, and a table if there are several phases; [] if it is unknown
    how the threads spent their time, or if they only slept in a run without marks. `used_s`: CPU
    time of the command in s, of which much may be that of children that lived too briefly."""
    no_time = JobTime(*[0.0] * len(TIME_USES))
    spent_s = [phase.times.job_time() or no_time for phase in phases]
    awake_s = [sum(times) - times.slept_s for times in spent_s]
    if (len(phases) < 2 and sum(awake_s) < MIN_SHOWN_S) or not any(map(sum, spent_s)):
        return []
    spent_s = [  # with the least time for which all threads slept
        times._replace(slept_s=min(times.slept_s, max(0.0, phase.elapsed_s - awake)))
        for phase, times, awake in zip(phases, spent_s, awake_s, strict=True)
    ]
    signs = [use[2][0 if unicode else 1] for use in TIME_USES]
    cells = _divide_cells([phase.elapsed_s for phase in phases], WIDTH)
    bar = "".join(
        "".join(sign * n for sign, n in zip(signs, _divide_cells(times, count), strict=True))
        for times, count in zip(spent_s, cells, strict=True)
    )
    uses = zip(signs, TIME_USES, strict=True)
    names = [f"{2 * sign} {use[0]}" for sign, use in uses if sign in bar]
    if signs[-1] in bar:
        is_seen = not seen_share(sum(t.ran_s for t in spent_s), used_s) < MIN_RECORDED_SHARE
        names[-1] = f"{2 * signs[-1]} {'all slept' if is_seen else 'slept or not seen'}"
    legend = "   ".join(["shares:", *names])
    # The name and, if it fits, the length of each phase above its cells, without a rule, because
    # parts of a phase are not in the order of time. A name that does not fit is cut: the table has
    # more room for it.
    first = "│" if unicode else "|"
    pieces = []
    for phase, count in zip(phases, cells, strict=True):
        name = safe_text(phase.label, WIDTH)
        texts = f" {name} {_duration_text(phase.elapsed_s)} ", f" {name} ", name
        text = next((text for text in texts if len(text) < count), name)
        pieces.append((first + text).ljust(count)[:count])
    table = _phase_table(phases, spent_s) if len(phases) > 1 else []
    return ["".join(pieces).rstrip(), bar, legend, *table]


def _divide_cells(parts: Sequence[float], cells: int) -> list[int]:
    """Divides a number of cells in proportion to `parts`."""
    total = sum(parts)
    if total <= 0:
        return [0] * (len(parts) - 1) + [cells]
    edges = [round(cells * end / total) for end in accumulate(parts, initial=0.0)]
    return [last - first for first, last in pairwise(edges)]


def _phase_table(phases: Sequence[RunPhase], spent_s: Sequence[JobTime]) -> list[str]:
    """Returns a row for each phase and one for all, with the mean number of CPUs used."""
    # all uses but the last: time for which all threads slept
    uses = [i for i in range(len(TIME_USES) - 1) if sum(t[i] for t in spent_s) >= MIN_SHOWN_S]
    headings = ["length", *(TIME_USES[index][1] for index in uses), "CPUs"]
    rows = [["phase", *headings, "most CPU time"]]
    for phase, times in zip(phases, spent_s, strict=True):
        program, run_s = phase.largest_program()
        text = f"{safe_text(program, MAX_NAME_LENGTH)} {_duration_text(run_s)}"
        largest = text if run_s >= MIN_SHOWN_S else ""
        seconds = [_duration_text(s) for s in (phase.elapsed_s, *(times[index] for index in uses))]
        cpus = f"{times.ran_s / phase.elapsed_s:.1f}"
        rows.append([phase.label, *seconds, cpus, largest])
    sums = [sum(phase.elapsed_s for phase in phases)]
    sums += [sum(times[index] for times in spent_s) for index in uses]
    cpus = f"{sum(times.ran_s for times in spent_s) / sums[0]:.1f}"
    rows.append(["all", *map(_duration_text, sums), cpus, ""])
    last_width = max(len(row[-1]) for row in rows)
    room = max(MAX_NAME_LENGTH, WIDTH - 9 * len(headings) - 2 - last_width)
    rows = [[safe_text(row[0], room), *row[1:]] for row in rows]
    name_width = max(MAX_NAME_LENGTH, *(len(row[0]) for row in rows))
    columns = [Column("", "", name_width, is_left=True, gap=0)]
    columns += [Column("", "", 9)] * len(headings)
    columns.append(Column("", "", last_width + 2, is_left=True, gap=2))
    return ["", *(table_line(columns, row) for row in rows)]


def _duration_text(seconds: float) -> str:
    """Formats a duration: with one decimal below 1000 s, and as 0 below MIN_SHOWN_S."""
    if seconds < MIN_SHOWN_S:
        return "0"
    return f"{seconds:.1f} s" if seconds < 1000 else f"{seconds:.0f} s"
