"""`perftop timers`: shows the cost and the resolution of each way to read the time."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from perftop.base import text
from perftop.base.text import MISSING, resolution_text, wrap_indented
from perftop.verbs import machine
from perftop.verbs.machine import HISTOGRAM_BINS, INDENT, Answer, add_instrument, fact_lines

COLUMN_WIDTH = 8
STEP_WIDTH = 10
"""Width in cells of the last column, which has the step with its unit."""
MIN_WIDE_WIDTH = 112
"""Minimum width of the terminal at which costs are shown both in ticks and in ns."""
_TICKS = ("least_ticks", "median_ticks", "mean_ticks", "error_ticks", "sigma_ticks")
_NS = ("least_ns", "median_ns", "mean_ns", "error_ns", "sigma_ns")
_HEADINGS = {"least": "least", "median": "median", "mean": "mean", "error": "±", "sigma": "σ"}


def add(verbs: Any) -> None:
    text = "what it costs to ask for the time, and how fine it is"
    parser = add_instrument(verbs, "timers", run, text)
    text = "measure on this CPU (default: any)"
    parser.add_argument("--cpu", type=int, metavar="N", help=text)


def run(args: argparse.Namespace) -> int:
    return machine.answer(args, draw, "timers", *machine.cpu_option(args))


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    width = max(width, machine.MIN_WIDTH)
    source_text = f"measured on CPU {answer['cpu']} ({answer['cpu_why']})"
    lines = wrap_indented(" · ".join([*text.describe_machine(answer), source_text]), width, 0)
    lines += ["", *_cost_lines(answer, width), *_note_lines(answer, width)]
    lines += ["", *_distributions(answer, unicode), "", "order it keeps"]
    for method in answer["methods"]:
        lines += fact_lines(method["name"], method["guarantees"] or "not stated", width)
    lines += ["", *_tsc_lines(answer["tsc"], width), "", *_offset_lines(answer, width), ""]
    return lines + machine.disturbances(answer, width)


def number(value: float | None) -> str:
    """Formats a cost, with fewer decimals for a larger one."""
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
            cells = [number(method[key]) for key in keys]
            yield row(method["name"], [*cells, resolution_text(method["step_ns"])]) + mark
        else:
            yield from fact_lines(method["name"], f"{MISSING}: {method['why']}", width)
            if method["fix"]:
                yield from fact_lines("", f"fix: {method['fix']}", width)


def _note_lines(answer: Answer, width: int) -> Iterator[str]:
    methods = answer["methods"]
    trimmed, confidence = (f"{100 * answer[key]:g} %" for key in ("trimmed", "confidence"))
    means = (
        f"mean and σ without the lowest and the highest {trimmed}; ±: with {confidence} confidence"
        " another run's mean is no farther away, if all else stays as it is"
    )
    stamps = (
        "MONOTONIC… by clock_gettime; everything that is not a time stamp is measured between two"
        f" LFENCE;RDTSC;LFENCE, whose {number(answer['bracket_ticks'])} ticks are subtracted"
    )
    notes = [means, stamps]
    by_calls: dict[int, list[str]] = {}
    """By number of calls, the methods that are so short that several calls are measured
    together."""
    for method in methods:
        if method["usable"] and method["calls"] > 1:
            by_calls.setdefault(method["calls"], []).append(method["name"])
    for calls, names in by_calls.items():
        text = f"{calls} calls a sample: least, median, σ are of their means"
        notes.append(f"{', '.join(names)}: {text}")
    if any(method["settled"] is False for method in methods):
        epsilon = f"{100 * answer['epsilon']:g} %"
        notes.append(f"* the mean still moved by more than {epsilon} when time was up: only ± is "
                     "known")  # fmt: skip
    notes += [f"{method['name']} of {method['note']}" for method in methods if method["note"]]
    for note in notes:
        yield from wrap_indented(f"  {note}", width, 2)


def _distributions(answer: Answer, unicode: bool) -> Iterator[str]:
    head = f"{'samples, in ticks':<{INDENT}}{'from':>{COLUMN_WIDTH}}"
    yield f"{head} {'':{HISTOGRAM_BINS}} to"
    for method in answer["methods"]:
        histogram = method["histogram"]
        if histogram is not None:
            first, counts = histogram["first_ticks"], histogram["counts"]
            end = first + histogram["width_ticks"] * len(counts)
            line = f"{method['name']:<{INDENT}}{number(first):>{COLUMN_WIDTH}} "
            line += f"{machine.bar_line(counts, unicode=unicode)} {number(end):<{COLUMN_WIDTH}}"
            far_counts = method["far"]
            yield f"{line} {100 * far_counts:.2g} % far out" if far_counts else line.rstrip()
    yield f"  far out: beyond {answer['far']} times the median; the longest 1 % is not drawn"


def _tsc_lines(tsc: Answer, width: int) -> Iterator[str]:
    invariant = {
        True: "yes", False: "no: it may follow the clock or stop in deep idle", None: "unknown",
    }  # fmt: skip
    step = tsc["step_ticks"]
    step_text = tsc["step_why"] if step is None else f"{step:.4g} ticks" if step > 1 else "1 tick"
    rows = [("TSC", _rate_text(tsc)), *([("", tsc["note"])] if tsc["note"] else [])]
    rows.append(("  the screen's rate", _rate_text(tsc["hello"])))
    rows += [("  nominal", _rate_text(rate)) for rate in tsc["said"]]
    rows += [
        ("  invariant", invariant[tsc["invariant"]]), ("  moves in steps of", step_text),
        ("  clock source", tsc["clocksource"] or "unknown"),
    ]  # fmt: skip
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
    yield f"TSC offsets against CPU {offsets[0]['against']}, with bounds that hold for certain"
    known_offsets = [
        f"  CPU {o['cpu']:<5}{o['offset_ticks']:+.0f} ± {o['error_ticks']:.0f} ticks"
        f" ({o['offset_ns']:+.0f} ± {o['error_ns']:.0f} ns)"
        for o in offsets if o["why"] is None
    ]  # fmt: skip
    size = max(map(len, known_offsets), default=0) + 2
    across = max(1, width // size)
    for i in range(0, len(known_offsets), across):
        yield "".join(f"{cell:<{size}}" for cell in known_offsets[i : i + across]).rstrip()
    for offset in offsets:
        if offset["why"] is not None:
            yield from fact_lines(f"  CPU {offset['cpu']}", f"{MISSING}: {offset['why']}", width)
    if left_out := answer["offsets_left_out"]:
        yield f"  {left_out} more CPUs were left out"
