"""The lines that `stat` prints: JSON lines, a stable format for scripts, and tables for people.
Unknown values are null in JSON; `missing` in the `hello` line or `why` in a row has the reason."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from math import isfinite, isnan, nan
from typing import Any

from perfprobe import wire
from perftop.base.text import (
    GHZ,
    Line,
    clock_time,
    escaped,
    json_number,
    percent,
    safe_text,
    whole_percent,
)
from perftop.draw.columns import Column, join_columns, plain_text
from perftop.model.confidence import evidence_json
from perftop.model.control_groups import is_group, short_owner
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.evaluation import MEMORY_COUNTERS, MEMORY_SHARE
from perftop.model.kinds import Episode
from perftop.model.numbers import (
    COUNTER_BY_NAME,
    COUNTS,
    EVENT_PREFIX,
    L3,
    L3_COUNTERS,
    MACHINE,
    NUMBERS,
    PACKAGE,
    PACKAGE_NAMES,
    Number,
)
from perftop.model.smt import STATES
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import (
    UNREAD_REASON,
    CpuColumns,
    absence_reason,
    cpu_values,
    doubt_texts,
    is_possible_column,
    lasting_reasons,
    machine_value,
    state_reasons,
)

NO_WAITS_REASON = "the kernel does not report how long they waited"


def line_text(line: Line) -> str:
    # Non-ASCII characters are only in strings, where JSON allows their escapes.
    return escaped(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def hello_line(session: Session) -> Line:
    hello = session.hello
    origins = {key: session.evaluator.origin(key) for key in session.evaluator.metrics}
    origins["turbo_ceiling_hz"] = session.reader.turbo.origin
    return {
        "type": "hello",
        "version": hello.perftop,
        "wire": hello.wire,
        "host": hello.host,
        "model": hello.identity.name or None,
        "source": hello.source,
        "origin": {key: origin for key, origin in origins.items() if origin},
        "tsc_hz": json_number(hello.tsc_hz.hz) if hello.tsc_hz else None,
        "base_hz": json_number(hello.base_hz.hz) if hello.base_hz else None,
        "smt_method": smt_method(session),
        "missing": [
            {"what": reason.what, **({} if reason.cpus is None else {"cpus": reason.cpus}),
             "why": reason.why, "fix": reason.fix}
            for reason in lasting_reasons(session)
        ],
        "topology": [
            {name: getattr(row, name) for name in wire.Cpu.__match_args__}
            for row in hello.topology
        ],
        "kernel": hello.kernel,
        "virtualisation": hello.virtualisation,
        "sample_s": hello.sample_ns / 1e9,
        "start": session.unix_s(hello.raw_ns),
        "labels": hello.labels,
        "command": hello.command,
    }  # fmt: skip


def smt_method(session: Session) -> str:
    """Returns the best method for the SMT states: from hello, else one that the counters allow."""
    if session.hello.smt_methods:
        return session.hello.smt_methods[0]
    if all(len(core) < 2 for core in session.hello.cores):
        return "single"
    return (session.reader.splitter.any_counter() or "bounds").replace("_", "-")


def interval_line(session: Session, interval: Interval) -> Line:
    shares = multiplexed_shares(interval)
    multipliers: Line = {}
    """TSC ticks per tick of each counter; `before` is a previous value that was wrong."""
    for key, calibration in session.calibrations.items():
        factor = json_number(calibration.factor)
        multipliers[key] = {"factor": factor, "state": calibration.state}
        if (old_factor := session.previous_factor(key)) is not None:
            multipliers[key]["before"] = old_factor
    l3_counters = map(session.counters.columns.get, L3_COUNTERS.values())
    cache_cpus = {cpu for column in l3_counters if column for cpu in column.counter.cpus or ()}
    cache_rows = [session.position[cpu] for cpu in sorted(cache_cpus) if cpu in session.position]
    caches: list[Line] = [
        {"l3": session.topology[row].l3}
        | {name: json_number(float(rates[row])) for name, rates in interval.caches.items()}
        for row in cache_rows
    ]
    packages = []  # hello has the reasons for missing numbers
    for index, cpus in enumerate(session.hello.packages):
        package: Line = {"package": session.topology[session.position[cpus[0]]].package}
        for name in PACKAGE_NAMES:
            values = interval.packages.get(name, ())
            package[name] = json_number(float(values[index])) if index < len(values) else None
        packages.append(package)
    line: Line = {
        "type": "interval",
        "seq": interval.seq,
        "time": interval.time,
        "elapsed_s": json_number(interval.elapsed_s),
        "skew_s": json_number(interval.skew_s),
        "machine": {name: json_number(interval.machine.get(name, nan)) for name in COUNTER_BY_NAME},
        "packages": packages,
        **({"l3": caches} if caches else {}),
        "cpus": [_cpu_line(session, interval, row, shares.get(row)) for row in session.selected],
        "cores": [_core_line(session, interval, core) for core in session.selected_cores()],
        "multipliers": multipliers,
        "lost": session.dropped_frames,
        "late": session.late_samples,
    }
    if (activity := interval.watched) is not None:  # from the records of the job's threads
        job = session.neighbours.watched_job
        watched: Line = {
            "job": job.name, "threads": len(job.threads) + job.unlisted_threads,
            "cpus": sorted(job.cpus()), "run_s": json_number(activity.run_s),
            "wait_s": json_number(activity.wait_s), "preemptions": activity.involuntary_switches,
            "sleeps": activity.voluntary_switches,
        }  # fmt: skip
        reason = {} if isfinite(activity.wait_s) else {"why": {"wait_s": NO_WAITS_REASON}}
        line["watched"] = watched | reason
    missing_names = [name for name, value in interval.machine.items() if not isfinite(value)]
    reasons = dict.fromkeys(missing_names, UNREAD_REASON)
    return line | {"why": reasons} if reasons else line


def _cpu_line(session: Session, interval: Interval, row: int, counted: float | None) -> Line:
    line: Line = {"cpu": session.topology[row].cpu, "online": bool(interval.online[row])}
    reasons = {}
    for key in session.evaluator.metrics:
        line[key] = json_number(float(interval.values[key][row]))
        if line[key] is None and session.evaluator.cpus_with(key)[row]:
            reasons[key] = absence_reason(session, interval, row, key)
    if tasks := interval.snapshot.activity_on(str(line["cpu"]))[:1]:
        task = tasks[0].task
        line["task"] = {"pid": task.pid, "comm": task.comm, "share": task.share}
    line["counts"] = {
        key: int(interval.counts[key][row])
        if key in interval.counts and isfinite(interval.counts[key][row]) else None
        for key in ("tsc", *COUNTS, *session.evaluator.registry.counters)
    }  # fmt: skip
    line["suspect"] = doubt_texts(interval, row)
    if counted is not None:
        line["counted"] = json_number(counted)
    if estimated := {
        key: json_number(share) for key, share in counted_event_shares(interval, row).items()
    }:
        line["counted_events"] = estimated
    return line | {"why": reasons} if reasons else line


def multiplexed_shares(interval: Interval) -> dict[int, float]:
    """Returns, by index of the CPU in hello, the share of time in which its counters were active.
    CPUs without multiplexed counters are left out."""
    if interval.counted_share is None:
        return {}
    shares = enumerate(interval.counted_share.tolist())
    return {row: share for row, share in shares if share < MIN_COUNTED_SHARE}


def counted_event_shares(interval: Interval, row: int) -> dict[str, float]:
    """Returns the share of time in which each chosen event was counted on a CPU. Events that were
    not multiplexed are left out."""
    shares = ((key, float(share[row])) for key, share in interval.event_counted_shares.items())
    return {key: share for key, share in shares if share < MIN_COUNTED_SHARE}


def _core_line(session: Session, interval: Interval, core: int) -> Line:
    cpus = session.cores[core]
    first = session.topology[session.position[cpus[0]]]
    split = interval.split
    bounds = split.method[core] == "bounds"
    reasons = {text for cpu in cpus for text in doubt_texts(interval, session.position[cpu])}
    line = {
        "package": first.package,
        "core": first.core,
        "cpus": cpus,
        "smt": {s: json_number(v) for s, v in split.shares(core).items()},
        "smt_method": split.method[core],
        "smt_low": _states_line(split.low[core]) if bounds else None,
        "smt_high": _states_line(split.high[core]) if bounds else None,
        "active_threads": json_number(float(split.active_threads[core])),
        "turbo_ceiling_hz": json_number(float(interval.ceilings.hz[core])),
        "turbo_ceiling_low_hz": json_number(float(interval.ceilings.low_hz[core])),
        "turbo_ceiling_high_hz": json_number(float(interval.ceilings.high_hz[core])),
        "core_power_w": json_number(float(interval.core_power_w[core])),
        "suspect": sorted(reasons),
    }
    why = state_reasons(session, interval, core)
    row = session.position[cpus[0]]
    if session.reader.turbo.cpus[row] and not isfinite(interval.ceilings.hz[core]):
        why["turbo_ceiling_hz"] = absence_reason(session, interval, row, "turbo_ceiling_hz")
    return line | {"why": why} if why else line


def _states_line(shares: Any) -> Line:
    return dict(zip(STATES, map(json_number, shares.tolist()), strict=True))


def episode_line(session: Session, episode: Episode, *, is_start: bool = False) -> Line:
    """Returns the line of an episode. `is_start`: whether it has just begun; another line follows
    when it ends."""
    end = episode.end_ns
    return {
        "type": "episode-start" if is_start else "episode",
        "kind": episode.kind,
        "cpus": episode.cpus,
        "start": session.unix_s(episode.start_ns),
        "end": None if end is None else session.unix_s(end),
        "depth": episode.depth,
        "cause": episode.cause,
        "evidence": evidence_json(episode.evidence),
        "confidence": episode.confidence,
    }


# --- Tables of intervals: the numbers that they show.

DEFAULT_COLUMNS = ("util", "user", "system", "busy_hz", "net_hz", "halt", "idle", "poll",
                   "involuntary", "steal", "ipc", "kernel_cycles",
                   "kernel_instructions")  # fmt: skip
"""Keys of the default columns: the most useful metrics that fit on one line."""
PRESSURES = "pressure_cpu", "pressure_io", "pressure_memory"
TICK_COLUMNS = {"user", "system"}
"""Default columns only where no counter tells user from kernel time."""
SCREEN_LINES = 24
"""Lines between two headings if the height of the terminal is unknown."""
NAME_WIDTH, TIME_WIDTH, STATE_WIDTH, MIN_WIDTH = 5, 10, 9, 6
"""Widths in columns of a CPU's name, a time, the widest range of a state (100..100), and any
number. The last two include the gap before the cell."""
SHARE_WIDTH = len(" (100 %)")
MAX_NAME_LENGTH, MAX_TASK = 15, 24
MAX_CACHES = 8
"""Maximum number of L3 caches that are listed, those with the most traffic."""


def chosen_numbers(session: Session, requested_keys: Sequence[str] | None) -> tuple[Number, ...]:
    """Returns the numbers with these keys; None: the defaults that this stream can provide. SMT
    states of cores are not included (see `has_states`)."""
    variants = session.evaluator.variants
    if requested_keys is None:
        unused = TICK_COLUMNS if variants["kernel_cycles"] else ()
        keys = [key for key in DEFAULT_COLUMNS if variants[key] and key not in unused]
        keys += [key for key in variants if key.startswith(EVENT_PREFIX) and variants[key]]
    else:
        omitted_keys = {"smt", "task", *STATES}
        keys = [*dict.fromkeys(key for key in requested_keys if key not in omitted_keys)]
    known_numbers = NUMBERS | session.evaluator.registry.events
    return tuple(known_numbers[key] for key in keys)


def has_states(session: Session, requested_keys: Sequence[str] | None) -> bool:
    """Returns whether tables include the SMT states of cores."""
    if requested_keys is None:
        return session.has_smt
    return not {"smt", *STATES}.isdisjoint(requested_keys)


def is_known_number(key: str) -> bool:
    """Returns whether a table can have a column for this key."""
    return is_possible_column(key) or key in MACHINE or key in PACKAGE or key in L3 or key == "smt"


def shown_unit(number: Number) -> str:
    """Returns the unit shown with the label; '' for rates."""
    return number.unit_name(GHZ) or (number.unit.removeprefix("1") if number.is_rate else "")


def number_text(number: Number, value: float | None) -> str:
    """Returns the value without its unit, with the number's decimals; `n/a` if unknown."""
    return number.text(nan if value is None else value, GHZ)


def seconds_text(seconds: float) -> str:
    """Formats the duration of a command or a job: "5.65 s", "3 ms", "0 s"."""
    if not seconds:
        return "0 s"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{seconds:.2f} s"


def table_columns(
    name_width: int, numbers: Sequence[Number], states: int, estimated: Container[str] = ()
) -> list[Column]:
    """Returns a column for the name of a line, for each number, and for each of the first `states`
    states of a core. Columns of the events `estimated` have room for a share of time."""
    columns = [Column("", "", name_width)]
    for number in numbers:
        width = max(MIN_WIDTH, len(number.label) + 1) + SHARE_WIDTH * (number.key in estimated)
        columns.append(Column(number.key, number.label, width))
    return columns + [Column(state, state, STATE_WIDTH) for state in STATES[:states]]


def table_line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    """Returns a line of a table. Cells after the last column are appended without padding."""
    cells = [*cells, *[""] * (len(columns) - len(cells))]
    runs = join_columns(columns, [(cell, "") for cell in cells[: len(columns)]])
    return plain_text([*runs, ("".join(cells[len(columns) :]), "")])


# --- the table of intervals as text


class StatTable:
    """Formats the intervals of a session. `requested_keys`: keys of the columns (None: defaults).
    `brief`: only a line for the machine. `height`: maximum lines between two headings."""

    def __init__(
        self, session: Session, requested_keys: Sequence[str] | None = None, *, brief: bool = False,
        height: int = SCREEN_LINES,
    ) -> None:  # fmt: skip
        self._session, self._brief, self._height = session, brief, height
        self.columns = chosen_numbers(session, requested_keys)
        self._states = len(STATES) if has_states(session, requested_keys) else 0
        self._tasks = requested_keys is not None and "task" in requested_keys
        self._cpu_columns = CpuColumns(session)
        width = TIME_WIDTH if brief else NAME_WIDTH
        self._table_columns = table_columns(width, self.columns, self._states)
        self._lines_left = 0
        self._estimated: set[str] = set()
        """Keys of the events that have been multiplexed so far."""

    def lines(self, interval: Interval) -> list[str]:
        session = self._session
        shared_events = {
            key for row in session.selected for key in counted_event_shares(interval, row)
        }
        if not self._brief and shared_events - self._estimated:
            # Another event has become multiplexed: widen its column, which now also shows a share
            # of time, and print a new heading.
            self._estimated |= shared_events
            self._table_columns = table_columns(
                NAME_WIDTH, self.columns, self._states, self._estimated
            )
            self._lines_left = 0
        machine_row = [
            number_text(number, machine_value(session, interval, number.key))
            if number.scope == "machine" or number.key in session.evaluator.metrics
            else ""
            for number in self.columns
        ]
        if self._brief:
            split = interval.split
            cores = [i for i in session.selected_cores() if i < len(split.states)]
            states = [percent(split.mean(state, cores)) for state in STATES[: self._states]]
            header_lines, rows = [], [[clock_time(interval.time), *machine_row, *states]]
        else:
            header_lines = _machine_lines(session, interval)
            rows = [["all", *machine_row], *self._rows(interval)]
        titles: list[str] = []
        if self._lines_left < len(header_lines) + len(rows):
            units = [shown_unit(number) for number in self.columns] + ["%"] * self._states
            labels = [column.heading for column in self._table_columns[1:]]
            labels += [f"{'task':>{STATE_WIDTH}}"] * self._tasks
            names = ["time" if self._brief else "cpu", *labels], ["", *units]
            titles = [table_line(self._table_columns, cells) for cells in names]
            self._lines_left = self._height - len(titles)
        self._lines_left -= len(header_lines) + len(rows)
        return [*header_lines, *titles, *(table_line(self._table_columns, cells) for cells in rows)]

    def _rows(self, interval: Interval) -> list[list[str]]:
        """Returns a row for each CPU. The states of a core are in the row of its first CPU."""
        session, rows = self._session, []
        first = {session.cores[i][0]: i for i in session.selected_cores()}
        values = [cpu_values(session, interval, number.key) for number in self.columns]
        for row in session.selected:
            cpu = session.topology[row].cpu
            name = f"~{cpu}" if row in interval.suspect_counters else str(cpu)
            if not interval.online[row]:
                rows.append([str(cpu), "off"])
                continue
            shares = counted_event_shares(interval, row)
            cells = [name]
            for number, by_cpu in zip(self.columns, values, strict=True):
                is_of_machine = number.scope == "machine"
                cell = "" if is_of_machine else number_text(number, float(by_cpu[row]))
                if number.key in shares:  # the share of time in which the event was counted
                    cell += f" ({whole_percent(shares[number.key])})"
                cells.append(cell)
            core, split = first.get(cpu) if self._states else None, interval.split
            if core is None:
                cells += [""] * self._states
            elif split.method[core] == "bounds":
                bounds = zip(split.low[core], split.high[core], strict=True)
                cells += [
                    f"{100 * low:.0f}..{100 * high:.0f}" if isfinite(low) else percent(low)
                    for low, high in bounds
                ]
            else:
                cells += map(percent, split.states[core])
            if self._tasks:
                task = f"  {safe_text(self._cpu_columns.task(row, interval), MAX_TASK)}"
                cells.append(f"{task:>{STATE_WIDTH}}")
            rows.append(cells)
        return rows


# --- lines above the table


def _machine_lines(session: Session, interval: Interval) -> list[str]:
    """Returns the lines above the table: the time and the interval's reliability, then known
    packages, the L3 caches with the most traffic, and the watched job."""
    time = f"{clock_time(interval.time)}  {interval.elapsed_s:.3f} s"
    if interval.suspect_counters:
        time += f"  ~ {len(interval.suspect_counters)} CPUs with suspect samples, left out"
    if shares := multiplexed_shares(interval):
        lowest_share = percent(min(shares.values()))
        time += f"  counters multiplexed: active for at least {lowest_share} %, counts are scaled"
    lines = ["", time]

    pressures = [NUMBERS[key] for key in PRESSURES if isfinite(interval.machine.get(key, nan))]
    if pressures:
        texts = [f"{n.title} {number_text(n, interval.machine[n.key])} %" for n in pressures]
        waits = " · ".join(text.removeprefix("waits ") for text in texts)
        lines.append(f"tasks wait {waits}")
    for i, cpus in enumerate(session.hello.packages):
        values = {name: float(values[i]) for name, values in interval.packages.items()}
        power, limit, dram, share = (
            values.get(name, nan)
            for name in ("power_w", "power_limit_w", "power_dram_w", MEMORY_SHARE)
        )
        parts = []
        if not isnan(power):
            limit_text = "" if isnan(limit) else f" of {limit:.0f}"
            dram_text = "" if isnan(dram) else f" and {dram:.1f} W for memory"
            parts.append(f"{power:.1f}{limit_text} W{dram_text}")
        elif not isnan(dram):
            parts.append(f"{dram:.1f} W for memory")
        read, written = (values.get(name, nan) / 1e9 for name in MEMORY_COUNTERS)
        if not isnan(read + written):
            highest = f", highest so far {(read + written) / share:.1f}" if share > 0 else ""
            parts.append(f"memory {read:.1f} GB/s read, {written:.1f} written{highest}")
        if parts:
            number = session.topology[session.position[cpus[0]]].package
            lines.append(f"package {number}: {' · '.join(parts)}")

    traffic = interval.caches.get("memory_bytes_per_s")
    occupancy = interval.caches.get("occupancy_bytes")
    if traffic is not None:
        rows = [i for i, rate in enumerate(traffic.tolist()) if isfinite(rate)]
        rows.sort(key=lambda i: -float(traffic[i]))
        for i in sorted(rows[:MAX_CACHES]):
            text = f"L3 {session.topology[i].l3}: {traffic[i] / 1e9:.1f} GB/s"
            if occupancy is not None and not isnan(occupancy[i]):
                text += f", {occupancy[i] / 1e6:.1f} MB in use"
            lines.append(text)

    activity, watched_job = interval.watched, session.neighbours.watched_job
    if activity is not None and watched_job.name is not None:
        watched = watched_job.name
        name = short_owner(watched) if is_group(watched) else watched
        job = f"job {safe_text(name, MAX_NAME_LENGTH)}:"
        if not watched_job.threads:
            return [*lines, f"{job} no running thread found"]
        text = f"{job} ran {seconds_text(activity.run_s)}"
        if not isnan(activity.wait_s):
            text += f", waited {seconds_text(activity.wait_s)} for a CPU"
        count = activity.involuntary_switches
        times = {0: "never preempted", 1: "preempted once"}.get(count, f"preempted {count} times")
        lines.append(f"{text}, was {times}")
    return lines
