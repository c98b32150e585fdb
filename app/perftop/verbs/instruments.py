"""Verbs that measure with the probe's own code: `perftop timers` shows the cost and resolution of
each way to read the time, `wake` the cost of a wake-up, and `selftest` checks counters."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator
from typing import Any

from perfprobe import stream_options
from perftop.base import files
from perftop.base.errors import failure_to_write, print_error
from perftop.base.text import (
    MISSING,
    cpu_list,
    describe_machine,
    percent,
    resolution_text,
    round_number,
    state_mark,
    whole_percent,
    wrap_indented,
)
from perftop.verbs import machine, options
from perftop.verbs.machine import HISTOGRAM_BINS, INDENT, Answer, add_instrument, fact_lines

COLUMN_WIDTH = 8
STEP_WIDTH = 10
"""Width in cells of the last column, which has the step with its unit."""
MIN_WIDE_WIDTH = 112
"""Minimum width of the terminal at which costs are shown both in ticks and in ns."""
_TICKS = ("least_ticks", "median_ticks", "mean_ticks", "error_ticks", "sigma_ticks")
_NS = ("least_ns", "median_ns", "mean_ns", "error_ns", "sigma_ns")
_HEADINGS = {"least": "least", "median": "median", "mean": "mean", "error": "±", "sigma": "σ"}


def add_timers(subparsers: Any) -> None:
    text = "measure the cost and the resolution of reading the time"
    run = functools.partial(machine.ask_and_print, draw=timers_lines, verb="timers")
    parser = add_instrument(subparsers, "timers", run, text)
    text = "CPU to measure (default: the one on which the measurement starts)"
    parser.add_argument("--cpu", type=stream_options.parse_cpu, metavar="N", help=text)


def timers_lines(answer: Answer, width: int, *, unicode: bool) -> list[str]:
    width = max(width, machine.MIN_WIDTH)
    source_text = f"measured on CPU {answer['cpu']} ({answer['cpu_why']})"
    lines = wrap_indented(" · ".join([*describe_machine(answer), source_text]), width, 0)
    lines += ["", *_cost_lines(answer, width), *_timer_note_lines(answer, width)]
    lines += ["", *_distribution_lines(answer, unicode), "", "ordering guarantees"]
    for method in answer["methods"]:
        lines += fact_lines(method["name"], method["guarantees"] or "not stated", width)
    lines += ["", *_tsc_lines(answer["tsc"], width), "", *_offset_lines(answer, width), ""]
    return lines + machine.disturbance_lines(answer, width)


def cost_text(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.{2 if abs(value) < 100 else 1 if abs(value) < 10_000 else 0}f}"


def _cost_lines(answer: Answer, width: int) -> Iterator[str]:
    def row(head: str, cells: list[str]) -> str:
        *first, last_cell = cells
        line = f"{head:<{INDENT}}" + "".join(f"{cell:>{COLUMN_WIDTH}}" for cell in first)
        return f"{line}{last_cell:>{STEP_WIDTH}}"

    keys = [*_TICKS, *(_NS if width >= MIN_WIDE_WIDTH else ["mean_ns"])]
    units = [""] * (len(keys) + 1)
    units[0], units[len(_TICKS)] = "in ticks", "in ns"
    yield row("", units).rstrip()
    yield row("cost of one call", [*(_HEADINGS[key.partition("_")[0]] for key in keys), "step"])
    for method in answer["methods"]:
        if method["usable"]:
            mark = "" if method["settled"] else " *"
            cells = [cost_text(method[key]) for key in keys]
            yield row(method["name"], [*cells, resolution_text(method["step_ns"])]) + mark
        else:
            yield from fact_lines(method["name"], f"{MISSING}: {method['why']}", width)
            if method["fix"]:
                yield from fact_lines("", f"fix: {method['fix']}", width)


def _timer_note_lines(answer: Answer, width: int) -> Iterator[str]:
    methods = answer["methods"]
    trimmed, confidence = (f"{100 * answer[key]:g} %" for key in ("trimmed", "confidence"))
    means = (
        f"mean and σ without the lowest and the highest {trimmed}; ±: {confidence} confidence that"
        " the mean of another run is within it, under the same conditions"
    )
    stamps = (
        "MONOTONIC… by clock_gettime; methods other than time stamps are measured between two"
        f" LFENCE;RDTSC;LFENCE, whose {cost_text(answer['bracket_ticks'])} ticks are subtracted"
    )
    notes = [means, stamps]
    by_calls: dict[int, list[str]] = {}
    """Names of the fast methods, by the number of calls that are timed together."""
    for method in methods:
        if method["usable"] and method["calls"] > 1:
            by_calls.setdefault(method["calls"], []).append(method["name"])
    for calls, names in by_calls.items():
        text = f"{calls} calls per sample: least, median and σ are those of the samples' means"
        notes.append(f"{', '.join(names)}: {text}")
    if any(method["settled"] is False for method in methods):
        epsilon = f"{100 * answer['epsilon']:g} %"
        change = f"the mean still changed by more than {epsilon} at the end of the time limit"
        notes.append(f"* {change}: trust only ±")
    notes += [f"{method['name']} of {method['note']}" for method in methods if method["note"]]
    for note in notes:
        yield from wrap_indented(f"  {note}", width, 2)


def _distribution_lines(answer: Answer, unicode: bool) -> Iterator[str]:
    head = f"{'samples, in ticks':<{INDENT}}{'from':>{COLUMN_WIDTH}}"
    yield f"{head} {'':{HISTOGRAM_BINS}} to"
    for method in answer["methods"]:
        histogram = method["histogram"]
        if histogram is not None:
            first, counts = histogram["first_ticks"], histogram["counts"]
            end = first + histogram["width_ticks"] * len(counts)
            line = f"{method['name']:<{INDENT}}{cost_text(first):>{COLUMN_WIDTH}} "
            line += f"{machine.bar_line(counts, unicode=unicode)} {cost_text(end):<{COLUMN_WIDTH}}"
            far_percent = 100 * method["far"]
            share = "<0.001" if far_percent < 0.001 else f"{far_percent:.2g}"
            yield f"{line} {share} % outliers" if far_percent else line.rstrip()
    yield f"  outliers: beyond {answer['far']} times the median; the longest 1 % is not drawn"


def _tsc_lines(tsc: Answer, width: int) -> Iterator[str]:
    not_invariant = "no: it may follow the clock or stop in deep idle"
    invariant = {True: "yes", False: not_invariant, None: "unknown"}
    step = tsc["step_ticks"]
    step_text = tsc["step_why"] if step is None else f"{step:.4g} ticks" if step > 1 else "1 tick"
    rows = [("TSC", _rate_text(tsc)), *([("", tsc["note"])] if tsc["note"] else [])]
    rows.append(("  the screen's rate", _rate_text(tsc["hello"])))
    rows += [("  nominal", _rate_text(rate)) for rate in tsc["said"]]
    rows += [("  invariant", invariant[tsc["invariant"]]), ("  moves in steps of", step_text)]
    rows.append(("  clock source", tsc["clocksource"] or "unknown"))
    for name, row_text in rows:
        yield from fact_lines(name, row_text, width)


def _rate_text(rate: Answer) -> str:
    error = "" if rate["error"] is None else f", within {1e6 * rate['error']:.2g} ppm"
    return f"{rate['hz'] / 1e6:.6f} MHz{error}: {rate['origin']}"


def _offset_lines(answer: Answer, width: int) -> Iterator[str]:
    offsets = answer["offsets"]
    if not offsets:
        yield from fact_lines("TSC offsets", "perftop may run on one CPU only", width)
        return
    yield f"TSC offsets against CPU {offsets[0]['against']}, with guaranteed bounds"
    known_offsets = [
        f"  CPU {o['cpu']:<5}{o['offset_ticks']:+.0f} ± {o['error_ticks']:.0f} ticks"
        f" ({o['offset_ns']:+.0f} ± {o['error_ns']:.0f} ns)"
        for o in offsets
        if o["why"] is None
    ]
    size = max(map(len, known_offsets), default=0) + 2
    columns = max(1, width // size)
    for i in range(0, len(known_offsets), columns):
        yield "".join(f"{cell:<{size}}" for cell in known_offsets[i : i + columns]).rstrip()
    for offset in offsets:
        if offset["why"] is not None:
            yield from fact_lines(f"  CPU {offset['cpu']}", f"{MISSING}: {offset['why']}", width)
    if left_out := answer["offsets_left_out"]:
        yield f"  {left_out} more CPUs were left out"


# --- `perftop wake`: the cost of waking an idle CPU, and its effect on a program

WAKE_UP_RATES = (100, 1_000, 10_000)
MIN_IDLE_SHARE = 0.8
"""Minimum share of wake-ups at which the CPU was idle; below it, a note is shown."""
_COST_KEYS = ("median_us", "p95_us", "p99_us", "most_us")


def add_wake(subparsers: Any) -> None:
    text = "measure what it costs to wake a task on an idle CPU, for each idle state"
    run = functools.partial(machine.ask_and_print, draw=wake_lines, verb="wake")
    parser = add_instrument(subparsers, "wake", run, text)
    text = "CPU to measure (default: the last one that perftop may use)"
    parser.add_argument("--cpu", type=stream_options.parse_cpu, metavar="N", help=text)


def wake_lines(answer: Answer, width: int, *, unicode: bool) -> list[str]:
    width, rows = max(width, machine.MIN_WIDTH), answer["rows"]
    # the median cost of a wake-up if idle states are not limited
    by_kind = {row["kind"]: row["median_us"] for row in rows if row["deepest"] is None}
    wakers = {"timer": "a timer"}
    parts = [f"{cost:.0f} µs by {wakers.get(kind, kind)}" for kind, cost in by_kind.items()]
    sentence = f"A wake-up of CPU {answer['cpu']} takes {' and '.join(parts)} (median)."
    lines = [*wrap_indented(sentence, width, 0), ""]
    head = "".join(f"{name:>7}" for name in ("median", "95 %", "99 %", "most"))
    lines.append(f"{'woken by':<12}{'deepest state':<14}{head}  in µs")
    for row in rows:
        cells = "".join(f"{row[key]:>7.{1 if row[key] < 1000 else 0}f}" for key in _COST_KEYS)
        state = (row["deepest"] or "not limited")[:13]
        bars = machine.bar_line(row["histogram"]["counts"], unicode=unicode)
        line = f"{row['kind']:<12}{state:<14}{cells}  {bars}"
        lines.append(line.rstrip())
    costs = [
        f"{percent(min(1.0, rate * rows[0]['median_us'] / 1e6))} % at {rate:,} a second"
        for rate in WAKE_UP_RATES
    ]
    text = "Share of its time that a program loses if it waits for wake-ups"
    lines += ["", *wrap_indented(f"{text}: {', '.join(costs)}.", width, 2), ""]
    idle = [min(1.0, row["idle_entries"] / row["samples"]) for row in rows]
    notes = []
    if answer["states"] and min(idle) < MIN_IDLE_SHARE:
        notes.append(
            f"In one row, CPU {answer['cpu']} was idle before only {whole_percent(min(idle))} of"
            " the wake-ups: other tasks ran there, and these costs include waiting for them."
            " Repeat the measurement on an idle machine."
        )
    if answer["virtualisation"] is not None:
        notes.append(
            "This is a VM: a halt returns to the hypervisor, and these costs include its time to"
            " resume the VM. The states of the real CPU are not visible here."
        )
    if answer["states_why"]:
        notes.append(f"Idle states were not measured one by one: {answer['states_why']}.")
    elif answer["states"]:
        names = [f"{state['name']} ({state['latency_us']} µs)" for state in answer["states"]]
        notes.append(
            f"Idle states, with the latency that their driver reports: {', '.join(names)}. To avoid"
            " deep ones: cpupower idle-set -D LATENCY, or a PM QoS request."
        )
    if answer["waker_why"]:
        notes.append(f"No wake-up from another CPU: {answer['waker_why']}.")
    notes.append(
        f"The CPU sleeps {1000 * answer['pause_s']:g} ms before each wake-up. The cost includes"
        " leaving the idle state, the interrupt, the scheduler and the return to the program."
    )
    lines += [line for note in notes for line in wrap_indented(note, width, 2)]
    lines += machine.disturbance_lines(answer, width)
    source_text = f"measured on CPU {answer['cpu']} in {answer['elapsed_s']:.1f} s"
    basis = " · ".join([*describe_machine(answer), source_text])
    return [*lines, "", *wrap_indented(basis, width, 0)]


# --- `perftop selftest`: checks every counter with code whose counts are known

VERDICTS = ("trusted", "close", "disturbed", "unusable")
VERDICT_MEANINGS = {
    "close": "off by slightly more than the error of the test",
    "disturbed": "other tasks ran, or CPU time was limited: try again on a quieter machine",
    "unusable": "wrong: do not trust numbers that need it",
}
NAME_WIDTH, VERDICT_WIDTH = 22, 11
MAX_VALUES = 4
"""Maximum number of values shown per counter; those of all cores would fill the screen."""
CHECK_INDENT = 2 + NAME_WIDTH


def add_selftest(subparsers: Any) -> None:
    text = "check every counter with code whose counts are known"
    parser = add_instrument(subparsers, "selftest", run_selftest, text)
    text = "source of the counters: auto (default), perf, msr, os"
    parser.add_argument("--source", default="auto", metavar="NAME", help=text)
    text = "also try every other source and instrument, and print a verdict on each"
    parser.add_argument("--all", action="store_true", help=text)


def run_selftest(args: argparse.Namespace) -> int:
    from perftop.process import launch

    arguments = ["--source", args.source, *(["--all"] if args.all else [])]
    answer = launch.ask_probe(options.probe_command(args, "selftest", *arguments))
    try:
        if args.host is None:  # the file describes this machine, for the screen on it
            files.save_findings(answer)
    except OSError as error:
        failed = failure_to_write(str(files.findings_path()), error)
        print_error(f"the result was not saved, so the screen will not warn: {failed}")
    with machine.checked_answer(args):
        machine.print_answer(answer, selftest_lines, as_json=args.json)
        return 1 if answer["wrong"] else 0


def selftest_lines(answer: Answer, width: int, *, unicode: bool) -> list[str]:
    lines = [f"{answer['host']}: counters of source {answer['source']} against known counts", ""]
    done_checks = [check for check in answer["checks"] if check["verdict"] != "not there"]
    for check in done_checks:
        lines += _check_lines(check, state_mark(check["verdict"], unicode=unicode), width)
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for check in answer["checks"]:
        if check["verdict"] == "not there":
            reasons.setdefault((check["why"], check["fix"]), []).append(check["counter"])
    for (reason, fix), names in reasons.items():
        text = f"{', '.join(names)}: {reason}{f'; fix: {fix}' if fix else ''}"
        lines += fact_lines("  not there", text, width, CHECK_INDENT)
    if answer["unchecked"]:
        text = f"no code changes them by a known amount: {', '.join(answer['unchecked'])}"
        lines += fact_lines("  not tested", text, width, CHECK_INDENT)
    if "instruments" in answer:
        lines += ["", "Every source and instrument:"]
        for row in answer["instruments"]:
            parts = [_number_text(number) for number in row["measured"]]
            parts += [row["why"]] if row["why"] else []
            parts += [f"fix: {row['fix']}"] if row["fix"] else []
            sign, verdict = state_mark(row["verdict"], unicode=unicode), row["verdict"]
            name = f"{sign} {row['instrument']:<{NAME_WIDTH}}{verdict:<{VERDICT_WIDTH}}"
            lines += fact_lines(name, "; ".join(parts), width, CHECK_INDENT + VERDICT_WIDTH)
    counts = [(verdict, sum(c["verdict"] == verdict for c in done_checks)) for verdict in VERDICTS]
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    wrong_text = f"; wrong: {', '.join(answer['wrong'])}" if answer["wrong"] else ""
    text = f"{len(done_checks)} tests in {answer['elapsed_s']:.1f} s: {text}{wrong_text}"
    return [*lines, "", *wrap_indented(text, width, 0)]


def _check_lines(check: Answer, sign: str, width: int) -> list[str]:
    verdict, unit, scale = check["verdict"], check["unit"], check["scale"]
    relative = "" if scale in {None, check["expected"]} else f" of {_amount_text(scale, unit)}"
    """The amount that errors are relative to, as text; '' if it is the expected amount."""
    parts = []
    if check["measured"] is None:
        parts.append("no sample could be used")
    else:
        if verdict in VERDICT_MEANINGS:
            parts.append(VERDICT_MEANINGS[verdict])
        measured = _amount_text(check["measured"], unit)
        expected_amount = _amount_text(check["expected"], unit)
        error = f"off by {100 * abs(check['error']):.2f} %{relative}" if check["error"] else "exact"
        parts.append(f"{measured} for {expected_amount}, {error}")
    parts.append(f"{100 * check['tolerance']:.3g} %{relative} allowed: {check['why']}")
    parts.append(f"from {check['origin']}")
    if verdict != "trusted" and check["cpus"]:
        parts.append(f"on {cpu_list(check['cpus'])}")
    if check["disturbed"] and verdict != "disturbed":
        parts.append(f"disturbed on {cpu_list(check['disturbed'])}")
    name = f"{sign} {check['counter']}"
    first_line = fact_lines(name, f"{verdict:<{VERDICT_WIDTH}}{check['what']}", width, CHECK_INDENT)
    return [*first_line, *fact_lines("", "; ".join(parts), width, CHECK_INDENT)]


def _number_text(number: Answer) -> str:
    """Returns a counter's name with its first MAX_VALUES values."""
    values, unit = number["values"], number["unit"]
    if unit == "polls":
        bits = ", ".join(number["bits"]) or "no bit set"
        return f"{number['counter']} {min(values):.0f} polls, {bits}"
    texts = [round_number(v) if abs(v) >= 1e4 else f"{v:.3g}" for v in values[:MAX_VALUES]]
    suffix = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    expected_text = f" ({number['nearest']:g} expected)" if "nearest" in number else ""
    return f"{number['counter']} {', '.join(texts)}{suffix} {unit}{expected_text}"


def _amount_text(value: float, unit: str) -> str:
    if unit == "s":
        return f"{1e6 * value:z.1f} µs" if abs(value) < 1e-4 else f"{value:z.4f} s"
    if unit == "Hz":
        return f"{value / 1e6:.4f} MHz"
    return f"{value:,.0f} {unit}"
