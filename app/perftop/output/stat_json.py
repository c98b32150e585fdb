"""A session as JSON lines (`stat --json`), the stable format for scripts.

Unknown values are null. Reasons that hold for the whole run are in `missing` of the line `hello`,
under the same key; later reasons are in `why` of a row.
"""

from __future__ import annotations

import json
import math
from typing import Any

from perfprobe import wire
from perftop.base.text import escaped
from perftop.model import machine_totals
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.kinds import Episode
from perftop.model.numbers import COUNTS
from perftop.model.smt import STATES
from perftop.model.tasks import ThreadActivity
from perftop.output.sentences import evidence_json
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import (
    UNREAD_REASON,
    doubt_texts,
    lasting_reasons,
    why_absent,
    why_no_states,
)

Line = dict[str, Any]
NO_WAITS_REASON = "the kernel does not report how long they waited"


def line_text(line: Line) -> str:
    # Non-ASCII characters occur in strings only, where their escapes are valid JSON.
    return escaped(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def json_number(value: float | None) -> float | None:
    """Rounds a number to seven digits, which is more than the precision of any counter and still
    readable. Returns None if the number is unknown or not finite."""
    return float(f"{value:.7g}") if value is not None and math.isfinite(value) else None


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
        "start": session.unix(hello.raw_ns),
        "labels": hello.labels,
        "command": hello.command,
    }  # fmt: skip


def smt_method(session: Session) -> str:
    """Returns the best method for the SMT states. If hello names no method, it is chosen by the
    available counters."""
    if session.hello.smt_methods:
        return session.hello.smt_methods[0]
    if all(len(core) < 2 for core in session.hello.cores):
        return "single"
    return (session.reader.splitter.any_counter() or "bounds").replace("_", "-")


def interval_line(session: Session, interval: Interval) -> Line:
    shares = multiplexed(interval)
    line: Line = {
        "type": "interval",
        "seq": interval.seq,
        "time": interval.time,
        "elapsed_s": json_number(interval.elapsed_s),
        "skew_s": json_number(interval.skew_s),
        "machine": {
            name: json_number(interval.machine.get(name, math.nan))
            for name in machine_totals.COUNTER_BY_NAME
        },
        "packages": [
            _package_line(session, interval, package)
            for package in range(len(session.hello.packages))
        ],
        **_cache_lines(session, interval),
        "cpus": [_cpu_line(session, interval, row, shares.get(row)) for row in session.shown],
        "cores": [_core_line(session, interval, core) for core in session.shown_cores()],
        "multipliers": {key: _multiplier(session, key) for key in session.calibrations},
        "lost": session.lost,
        "late": session.late,
    }
    if interval.watched is not None:
        line["watched"] = _watched_line(session, interval.watched)
    reasons = {
        name: UNREAD_REASON for name, value in interval.machine.items() if not math.isfinite(value)
    }
    return line | {"why": reasons} if reasons else line


def _watched_line(session: Session, activity: ThreadActivity) -> Line:
    """Returns the activity of the watched job in this interval, from the records of its threads."""
    watched_job = session.neighbours.watched_job
    line: Line = {
        "job": watched_job.name, "threads": len(watched_job.threads) + watched_job.more,
        "cpus": sorted(watched_job.cpus()), "run_s": json_number(activity.run_s),
        "wait_s": json_number(activity.wait_s), "preemptions": activity.involuntary,
        "sleeps": activity.voluntary,
    }  # fmt: skip
    return line if math.isfinite(activity.wait_s) else line | {"why": {"wait_s": NO_WAITS_REASON}}


def _package_line(session: Session, interval: Interval, index: int) -> Line:
    """Returns the numbers of a package. For missing ones, hello has the reasons under the key of
    the machine-wide number."""
    first = session.hello.packages[index][0]
    line: Line = {"package": session.topology[session.position[first]].package}
    for name in machine_totals.PACKAGE_NAMES:
        values = interval.packages.get(name)
        line[name] = (
            None if values is None or index >= len(values) else json_number(float(values[index]))
        )
    return line


def _cache_lines(session: Session, interval: Interval) -> Line:
    """Returns a row for each L3 cache for which the stream has counters."""
    columns = [session.counters.columns.get(key) for key in machine_totals.L3_COUNTERS.values()]
    cpus = sorted({cpu for column in columns if column for cpu in column.counter.cpus or ()})
    rows = [session.position[cpu] for cpu in cpus if cpu in session.position]
    lines: list[Line] = [{"l3": session.topology[row].l3} for row in rows]
    for line, row in zip(lines, rows, strict=True):
        for name, rates in interval.caches.items():
            line[name] = json_number(float(rates[row]))
    return {"l3": lines} if lines else {}


def _multiplier(session: Session, key: str) -> Line:
    """Returns the value of one tick of the counter; `factor_before` is an earlier, wrong value."""
    calibration, factor_before = session.calibrations[key], session.factor_before(key)
    line: Line = {"factor": json_number(calibration.factor), "state": calibration.state}
    return line if factor_before is None else line | {"before": factor_before}


def _cpu_line(session: Session, interval: Interval, row: int, counted: float | None) -> Line:
    line: Line = {"cpu": session.topology[row].cpu, "online": bool(interval.online[row])}
    why = {}
    for key in session.evaluator.metrics:
        line[key] = json_number(float(interval.values[key][row]))
        if line[key] is None and session.evaluator.serves(key, row):
            why[key] = why_absent(session, interval, row, key)
    if ran := interval.snapshot.activity_on(str(line["cpu"]))[:1]:
        task = ran[0].task
        line["task"] = {"pid": task.pid, "comm": task.comm, "share": task.share}
    line["counts"] = {
        key: _counted_share(interval, key, row)
        for key in ("tsc", *COUNTS, *session.evaluator.registry.counters)
    }
    line["suspect"] = doubt_texts(interval, row)
    if counted is not None:
        line["counted"] = json_number(counted)
    if estimated := {key: json_number(share) for key, share in estimates(interval, row).items()}:
        line["counted_events"] = estimated
    return line | {"why": why} if why else line


def multiplexed(interval: Interval) -> dict[int, float]:
    """Returns the share of time in which counters were active, by position of the CPU, for CPUs on
    which perf multiplexed counters. The counts of these CPUs are scaled up, so they are
    estimates."""
    if interval.counted is None:
        return {}
    shares = enumerate(interval.counted.tolist())
    return {row: share for row, share in shares if share < MIN_COUNTED_SHARE}


def estimates(interval: Interval, row: int) -> dict[str, float]:
    """Returns the share of time in which each chosen event was counted on a CPU, for the events
    that were multiplexed."""
    shares = ((key, float(share[row])) for key, share in interval.shares.items())
    return {key: share for key, share in shares if share < MIN_COUNTED_SHARE}


def _counted_share(interval: Interval, key: str, row: int) -> int | None:
    increments = interval.counts.get(key)
    if increments is None or not math.isfinite(increments[row]):
        return None
    return int(increments[row])


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
    why = why_no_states(session, interval, core)
    row = session.position[cpus[0]]
    if session.reader.turbo.cpus[row] and not math.isfinite(interval.ceilings.hz[core]):
        why["turbo_ceiling_hz"] = why_absent(session, interval, row, "turbo_ceiling_hz")
    return line | {"why": why} if why else line


def _states_line(shares: Any) -> Line:
    return dict(zip(STATES, map(json_number, shares.tolist()), strict=True))


def beginning_line(session: Session, episode: Episode) -> Line:
    """Returns the line of an episode that has just begun. The line of the whole episode follows
    when it ends."""
    return episode_line(session, episode) | {"type": "episode-start"}


def episode_line(session: Session, episode: Episode) -> Line:
    end = episode.end_ns
    return {
        "type": "episode",
        "kind": episode.kind,
        "cpus": episode.cpus,
        "start": session.unix(episode.start_ns),
        "end": None if end is None else session.unix(end),
        "depth": episode.depth,
        "cause": episode.cause,
        "evidence": evidence_json(episode.evidence),
        "confidence": episode.confidence,
    }
