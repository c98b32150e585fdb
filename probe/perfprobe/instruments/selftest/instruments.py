"""`selftest --all`: a verdict on each source and instrument, present or not, as a report that users
can send to the developers. An instrument is a set of counters with one origin.

Code with known counts shows whether the counters of CPUs are right. The other counters are read
over a second in which a known amount of memory is copied: they must advance, stay within possible
values, and agree with each other.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from perfprobe.errors import Unavailable
from perfprobe.instruments.selftest import cpu_checks
from perfprobe.instruments.selftest.cpu_checks import tick_factors
from perfprobe.instruments.selftest.load import FrameLog, read_instant
from perfprobe.instruments.selftest.verdict import Result
from perfprobe.native.affinity import pinned_to
from perfprobe.wire import Missing

COPY_BYTES, COPY_S = 128 << 20, 0.5
"""Size of a copy in bytes, larger than most L3s, so that each copy is read from memory; and time
for which copies are repeated, in s."""
MEMORY_READ_KEY = "memory_read_bytes"
MIN_READ_SHARE = 0.8
"""Minimum share of the copied bytes that is read from memory; a large L3 may have the rest."""
KEY_STEMS = ("memory_", "hbm_", "l3_", "energy_", "plr_", "pstate_limit", "limit_reasons")
"""Prefixes of the keys of counters that are reported even if they are missing."""
MAX_ROWS = 64
"""Maximum number of reported rows of a counter; a thousand cores would fill a message."""


@dataclass(frozen=True, slots=True)
class CopyRun:
    """A period in which memory was copied. `begin`, `end`: TSC stamps."""

    begin: int
    end: int
    copied_bytes: int
    cpu: int
    """The CPU on which memory was copied; no other CPU worked for perftop."""


def copy_memory(log: FrameLog) -> CopyRun:
    """Copies memory on one CPU, and waits for samples before and after it."""
    log.restart()
    cpu = max(os.sched_getaffinity(0))
    with contextlib.suppress(OSError), pinned_to(cpu):
        begin, copied_bytes = read_instant()[1], 0
        source, end_s = bytes(COPY_BYTES), time.monotonic() + COPY_S
        while time.monotonic() < end_s:
            bytearray(source)
            copied_bytes += COPY_BYTES
        end_stamp = read_instant()[1]
        log.read_until_after(end_stamp)
        return CopyRun(begin, end_stamp, copied_bytes, cpu)
    raise Unavailable(f"selftest may not run on CPU {cpu}")


def counter_rows(log: FrameLog, span: CopyRun) -> list[dict[str, Any]]:
    """Returns a row for each counter of a core, package or L3, and for each missing counter."""
    missing_rows = [
        {"counter": missing.what, "verdict": "not there", "why": missing.why}
        for missing in log.hello.missing
        if missing.what.startswith(KEY_STEMS) and missing.what not in log.counters
    ]
    keys = [key for key in log.counters if _scope_text(log, key) in {"core", "package", "L3"}]
    return [*(_counter_row(log, key, span) for key in keys), *missing_rows]


def _scope_text(log: FrameLog, key: str) -> str:
    return "L3" if key.startswith("l3_") else log.scope(key)


def _counter_row(log: FrameLog, key: str, span: CopyRun) -> dict[str, Any]:
    counter = log.counters[key].counter
    advances = [
        None if result is None else float(result.amount)
        for row in rows_with_counter(log, key)
        for result in [log.advance(key, row, span.begin, span.end, inside=False)]
    ]
    amounts = [amount for amount in advances if amount is not None]
    verdict = "counts" if any(amounts) else "stands still" if amounts else "no reading"
    if counter.kind == "gauge" and amounts:
        verdict = "read"
    if key == MEMORY_READ_KEY and amounts and sum(amounts) < MIN_READ_SHARE * span.copied_bytes:
        verdict = "too little"
    return {
        "counter": key,
        "scope": _scope_text(log, key),
        "origin": counter.origin,
        "unit": counter.unit,
        "columns": counter.columns,
        "verdict": verdict,
        "moved": advances[:MAX_ROWS],
        "at_least": span.copied_bytes if key == MEMORY_READ_KEY else None,
    }


def rows_with_counter(log: FrameLog, key: str) -> list[int]:
    """Returns the rows of its block in which the counter has values: all, or one for each L3."""
    all_rows = range(log.rows(key))
    if not key.startswith("l3_"):
        return [*all_rows]
    cpus = log.counters[key].counter.cpus or ()
    return [row for row in all_rows if log.hello.topology[row].cpu in cpus]


# --- verdicts -------------------------------------------------------------------------------------

InstrumentVerdict = Literal["works", "wrong", "undecided", "not there", "not tried"]
PART_KEYS = ("topdown_retiring", "topdown_bad_speculation", "topdown_frontend", "topdown_backend")
MUST_ADVANCE_KEYS = ("energy_j", "energy_ram_j", "memory_read_bytes", "l3_memory_bytes", "slots",
             "limit_reasons", "hsmp_limits")  # fmt: skip
"""Counters that must advance, or be polled, while memory is copied."""
MAX_SLOTS_ERROR = 0.02
"""Maximum relative difference between issue slots and the sum of their four top-down parts, each of
which is a field of 8 bits."""
MAX_FACTOR_ERROR = 0.03
"""Maximum relative difference between the measured factor of an SMT event and a candidate; the same
tolerance as in cpu_checks.py."""
PLAUSIBLE_BOUNDS: dict[str, tuple[float, float]] = {
    "energy_j": (0.2, 2000.0), "energy_ram_j": (0.0, 1000.0), "energy_core_j": (0.0, 200.0),
    "temperature_c": (1.0, 125.0), "power_limit_w": (1.0, 5000.0),
    "power_limit2_w": (1.0, 10000.0), "hsmp_limit_hz": (0.2e9, 10e9),
    "memory_read_bytes": (0.0, 2e12), "memory_write_bytes": (0.0, 2e12),
    "l3_memory_bytes": (0.0, 2e12), "l3_occupancy_bytes": (0.0, 4e9),
}  # fmt: skip
"""Bounds of plausible values: of a counter's rate in a row, or of a gauge's value."""
RATE_UNITS = {"J": "W", "s": "s/s"}
Contradiction = tuple[tuple[str, ...], str]
"""Keys of counters of which at least one must be wrong, and the evidence in words."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A set of counters that are judged together."""

    name: str
    keys: tuple[str, ...]
    reason_keys: tuple[str, ...] = ()
    """Further keys under which hello may have the reason why the instrument is missing."""
    reason: str = "no PMU, register or file here provides it"
    """The reason why the instrument is missing, if the hello message has none."""


INSTRUMENTS = (
    Instrument("core counters", ("ref", "cycles", "instructions", "kernel_cycles",
               "kernel_instructions", "aperf", "mperf", "smi")),
    Instrument("SIMD levels", ("license_1", "license_2", "license_throttle"),
               reason="Skylake-SP to Ice Lake-SP have these events"),
    Instrument("SMT events", (*cpu_checks.TICK_CHECKS,)),
    Instrument("SMT tracing", cpu_checks.STATES, ("traced",)),
    Instrument("top-down", ("slots", *PART_KEYS), ("topdown_retiring_ratio",),
               "Ice Lake and later Intel cores have PERF_METRICS"),
    Instrument("slots to sibling", ("smt_contention",), reason="Zen 4 and later have this event"),
    Instrument("memory traffic", ("memory_read_bytes", "memory_write_bytes")),
    Instrument("L3 by resctrl", ("l3_memory_bytes", "l3_local_bytes", "l3_occupancy_bytes"),
               reason="the kernel reports no L3 monitors on this CPU"),
    Instrument("energy", ("energy_j", "energy_ram_j", "energy_core_j")),
    Instrument("power limits", ("power_limit_w", "power_limit2_w", "power_throttled_s")),
    Instrument("temperature", ("temperature_c",)),
    Instrument("thermal status", ("core_thermal", "package_thermal", "core_throttles",
               "package_throttles")),
    Instrument("limit reasons, MSR", ("limit_reasons",)),
    Instrument("limit reasons, TPMI", ("plr_reasons",),
               reason="no tpmi-*/plr in debugfs: Granite Rapids and later, Linux 6.11, root"),
    Instrument("HSMP", ("hsmp_limit_hz", "hsmp_limits", "hsmp_limit_times", "hsmp_prochot"),
               reason="no /dev/hsmp: AMD EPYC servers with the module amd_hsmp have one"),
    Instrument("P-state limit", ("pstate_limit",), reason="an MSR of AMD's Zen"),
    Instrument("power unit", ("pcu_ticks", "pcu_power", "pcu_thermal", "pcu_current"),
               reason="servers up to Cascade Lake have its events"),
    Instrument("sleep states", ("core_c3", "core_c6", "core_c7")),
    Instrument("idle times", ("idle_s", "busy_s", "stat_idle_s")),
)  # fmt: skip


def report(
    log: FrameLog, span: CopyRun, checks: Sequence[Result], requested_source: str
) -> dict[str, Any]:
    """Returns the additional output of `selftest --all`: the verdicts, and the identity of the
    machine. `requested_source` is the source that the user asked for."""
    hello = log.hello
    rows = [_judged_row(instrument, log, span, checks) for instrument in INSTRUMENTS]
    keys = ("identity", "kernel", "multipliers", "tsc_hz", "base_hz", "smt_methods", "missing")
    hello_fields = asdict(hello)
    machine = {key: hello_fields[key] for key in keys}
    machine |= {"cpus": len(hello.topology), "packages": len(hello.packages)}
    instruments = [
        *_source_rows(log, requested_source),
        *rows,
        _calibration_row(log, span),
        _turbo_row(log),
    ]
    return {"instruments": instruments, "machine": machine}


def wrong_instruments(instruments: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the keys of counters that contradict a known count or other counters. Further
    counters of the same instrument may be right."""
    return [key for row in instruments for key in row["wrong"]]


def _row(
    name: str, verdict: InstrumentVerdict, *, counters: Sequence[str] = (), why: str | None = None,
    fix: str | None = None, measured: Sequence[dict[str, Any]] = (), wrong: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    return {
        "instrument": name, "verdict": verdict, "counters": list(counters), "wrong": [*wrong],
        "why": why, "fix": fix, "measured": list(measured),
    }  # fmt: skip


# --- sources


def _source_rows(log: FrameLog, requested_source: str) -> Iterator[dict[str, Any]]:
    used_source, missing_by_key = log.hello.source, {m.what: m for m in log.hello.missing}
    yield _row("source os", "works", why="its counters are tested below")
    if used_source == "perf":
        yield _row("source perf", "works", why="its counters are tested below")
    elif used_source == "os" and requested_source != "os":
        missing = missing_by_key.get("ref") or missing_by_key.get("cycles")
        reason = "the kernel's perf counts no cycles here" if missing is None else missing.why
        yield _row("source perf", "not there", why=reason, fix=missing.fix if missing else None)
    else:
        yield _row("source perf", "not tried", why=f"asked for: --source {used_source}")
    if used_source == "msr":
        yield _row("source msr", "works", why="its counters are tested below")
        return
    if not Path("/dev/cpu/0/msr").exists():
        yield _row("source msr", "not there", why="no /dev/cpu/*/msr", fix="sudo modprobe msr")
        return
    reason = "it programs counters, which is done only if asked for"
    yield _row("source msr", "not tried", why=reason, fix="perftop selftest --all --source msr")


# --- instruments


def _judged_row(
    instrument: Instrument, log: FrameLog, span: CopyRun, checks: Sequence[Result]
) -> dict[str, Any]:
    name = instrument.name
    own_checks = [c for c in checks if c.counter in instrument.keys and c.verdict != "not there"]
    checked_keys = {check.counter for check in own_checks}
    present_keys = [key for key in instrument.keys if key in log.counters or key in checked_keys]
    if not present_keys:  # hello may have the reason under one of several keys
        reasons = {missing.what: missing for missing in reversed(log.hello.missing)}
        found_reasons = (reasons.get(key) for key in (*instrument.keys, *instrument.reason_keys))
        missing = next(filter(None, found_reasons), Missing(name, instrument.reason))
        return _row(name, "not there", why=missing.why, fix=missing.fix)
    results = (_measured_rate(log, key, span) for key in present_keys if key in log.counters)
    measured = [result for result in results if result is not None]
    contradictions = [*_contradictions(own_checks, measured)]
    if MEMORY_READ_KEY in present_keys:
        contradictions += _copy_contradictions(_counter_row(log, MEMORY_READ_KEY, span))
    if contradictions:
        keys = dict.fromkeys(key for keys, _ in contradictions for key in keys)
        reason = "; ".join(text for _, text in contradictions)
        return _row(name, "wrong", counters=present_keys, why=reason, measured=measured, wrong=keys)
    is_trusted = any(check.verdict in {"trusted", "close"} for check in own_checks)
    if own_checks and not is_trusted:
        reason = "other tasks were running, so no known count could be checked"
        return _row(name, "undecided", counters=present_keys, why=reason, measured=measured)
    if not measured and not is_trusted:
        reason = "it was not read twice during the test"
        return _row(name, "undecided", counters=present_keys, why=reason)
    return _row(name, "works", counters=present_keys, measured=measured)


def _measured_rate(log: FrameLog, key: str, span: CopyRun) -> dict[str, Any] | None:
    """Returns a counter's values in all rows while memory was copied: rates of a counter, values of
    a gauge, the polls and set bits of flags. None if nothing was read."""
    counter, topology = log.counters[key].counter, log.hello.topology
    rows = rows_with_counter(log, key)
    if _scope_text(log, key) == "cpu":
        # Only the row of the CPU that copied memory.
        rows = [row for row in rows if topology[row].cpu == span.cpu]
    if counter.kind == "flags":
        by_row = [steps for row in rows if (steps := log.advances(key, row, span.begin, span.end))]
        if not by_row:
            return None
        polls_by_part = zip(counter.parts, *(steps[1:] for steps in by_row), strict=False)
        bits = [part for part, *polls in polls_by_part if any(polls)]
        poll_counts = [steps[0] for steps in by_row]
        return {"counter": key, "values": poll_counts, "unit": "polls", "bits": bits}
    if counter.kind == "gauge":
        values = [value for row in rows if (value := log.latest_value(key, row)) is not None]
        return {"counter": key, "values": values, "unit": counter.unit} if values else None
    rates = []
    for row in rows:
        advance = log.advance(key, row, span.begin, span.end, inside=False)
        if advance is not None and log.hello.tsc_hz is not None:
            rates.append(advance.amount * log.hello.tsc_hz.hz / (advance.end - advance.begin))
    unit = RATE_UNITS.get(counter.unit, f"{counter.unit}/s")
    return {"counter": key, "values": rates, "unit": unit} if rates else None


def _copy_contradictions(row: dict[str, Any]) -> Iterator[Contradiction]:
    """Yields the contradiction of the bytes read from memory with the number of copied bytes."""
    if row["verdict"] == "too little":
        total_advance = sum(filter(None, row["moved"]))
        text = f"{total_advance:.3g} B, but {row['at_least']:.3g} B were copied"
        yield (MEMORY_READ_KEY,), f"{MEMORY_READ_KEY}: {text}"


def _contradictions(
    results: Iterable[Result], measured: Sequence[dict[str, Any]]
) -> Iterator[Contradiction]:
    """Yields contradictions of one instrument's counters with known counts, possible values, and
    each other's sums."""
    for check in results:
        if check.verdict == "unusable" and check.measured is not None:
            key, expected = check.counter, f"{check.expected:.4g} {check.unit}"
            yield (key,), f"{key}: {check.measured:.4g} for {expected}, {check.what}"
    for number in measured:
        key, unit = number["counter"], number["unit"]
        low, high = PLAUSIBLE_BOUNDS.get(key, (float("-inf"), float("inf")))
        for value in [value for value in number["values"] if not low <= value <= high][:1]:
            yield (key,), f"{key}: {value:.4g} {unit}, which no machine has ({low:g} to {high:g})"
    for number in measured:
        if (key := number["counter"]) in MUST_ADVANCE_KEYS and not any(number["values"]):
            yield (key,), f"{key} does not move while memory is copied"
    total = {number["counter"]: sum(number["values"]) for number in measured}
    slots, parts = total.get("slots", 0.0), [total[key] for key in PART_KEYS if key in total]
    if slots > 0 and len(parts) == len(PART_KEYS) and abs(sum(parts) / slots - 1) > MAX_SLOTS_ERROR:
        text = f"its four parts are {100 * sum(parts) / slots:.1f} % of the slots"
        yield ("slots", *PART_KEYS), text
    cores, package = total.get("energy_core_j", 0.0), total.get("energy_j", 0.0)
    if package > 0 and cores > 1.05 * package:
        text = f"cores take {cores:.1f} W, their packages {package:.1f} W"
        yield ("energy_core_j", "energy_j"), text
    local, whole = total.get("l3_local_bytes", 0.0), total.get("l3_memory_bytes", 0.0)
    if whole > 0 and local > 1.05 * whole:
        text = f"an L3 moves {local:.3g} B/s with its own node, and {whole:.3g} B/s in all"
        yield ("l3_local_bytes", "l3_memory_bytes"), text


# --- calibration and ceiling


def _calibration_row(log: FrameLog, span: CopyRun) -> dict[str, Any]:
    """Returns the row on calibration: the TSC ticks in a tick of an SMT event on the CPU that
    copied memory. any_thread counts all that time, other events only while no sibling worked."""
    name = "calibration"
    row = next(i for i, cpu in enumerate(log.hello.topology) if cpu.cpu == span.cpu)
    key = next((k for k in ("any_thread", "one_thread", "distributed") if k in log.counters), "")
    if not key:
        reason = "no SMT event is counted, so there is nothing to calibrate"
        return _row(name, "not there", why=reason)
    advance = log.advance(key, row, span.begin, span.end, inside=True)
    if advance is None or advance.amount <= 0:
        return _row(name, "undecided", counters=[key], why=f"{key} was not read in that time")
    factor = (advance.end - advance.begin) / advance.amount
    nearest = min(tick_factors(log, key), key=lambda candidate: abs(candidate - factor))
    measured = [{"counter": key, "values": [factor], "unit": "TSC ticks", "nearest": nearest}]
    factor_error = factor / nearest - 1
    if abs(factor_error) <= MAX_FACTOR_ERROR:
        return _row(name, "works", counters=[key], measured=measured)
    if factor_error > 0 and key != "any_thread":
        reason = "a sibling may have been at work, which this event does not count"
        return _row(name, "undecided", counters=[key], why=reason, measured=measured)
    reason = f"{key} takes {factor:.4g} TSC ticks a tick, {nearest:g} were expected"
    return _row(name, "wrong", counters=[key], why=reason, measured=measured, wrong=[key])


def _turbo_row(log: FrameLog) -> dict[str, Any]:
    """Returns the row of the report on the tables of turbo clocks by number of active cores."""
    key, tables = "turbo_ceiling_hz", log.hello.turbo
    if not tables:
        missing = next((m for m in log.hello.missing if m.what == key), None)
        text = "no table of turbo clocks is known here" if missing is None else missing.why
        return _row("turbo ceiling", "not there", why=text, fix=missing.fix if missing else None)
    measured: list[dict[str, Any]] = [
        {"counter": table.origin, "values": [step.hz for step in table.steps], "unit": "Hz"}
        for table in tables
    ]
    is_implausible = any(not 0.2e9 <= hz <= 10e9 for number in measured for hz in number["values"])
    if not is_implausible:
        return _row("turbo ceiling", "works", counters=[key], measured=measured)
    text = "a clock that no CPU has"
    return _row("turbo ceiling", "wrong", counters=[key], why=text, measured=measured, wrong=[key])
