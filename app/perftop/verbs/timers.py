"""Draws the answer of `perfprobe timers`: costs, distributions, order, TSC, offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perftop.base.format import MISSING, exact
from perftop.base.text import EIGHTHS, columns, in_ascii, machine, wrapped

Answer = dict[str, Any]
INDENT = 20
"""Cells of the first column: the longest name of a method and a space."""
COLUMN = 8
LAST = 10
"""Cells of the last column, the step, which includes its unit."""
WIDE = 112
"""Columns of the terminal from which costs are shown both in ticks and in ns."""
BARS, SIGNS = 24, " .:-=+*#@"
"""Bins of a histogram, and what they are drawn with in ASCII."""
NARROWEST = 80
"""Minimum width of lines; a narrower terminal wraps them itself."""


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    width = max(width, NARROWEST)
    lines = [
        *wrapped(_title(answer), width, 0), "",
        *_costs(answer, width), "",
        *_distributions(answer, unicode), "",
        *_order(answer, width), "",
        *_tsc(answer, width), "",
        *_offsets(answer, width), "",
        *_disturbances(answer, width),
    ]  # fmt: skip
    return lines if unicode else [in_ascii(line) for line in lines]


def _fact(name: str, text: str, width: int) -> list[str]:
    return wrapped(f"{name:<{INDENT}}{text}", width, INDENT)


def _title(answer: Answer) -> str:
    where = f"measured on CPU {answer['cpu']} ({answer['cpu_why']})"
    return " · ".join([*machine(answer), where])


def number(value: float | None) -> str:
    """A cost with as many decimals as mean something at its size."""
    if value is None:
        return MISSING
    return f"{value:.{2 if abs(value) < 100 else 1 if abs(value) < 10_000 else 0}f}"


# --- costs ----------------------------------------------------------------------------------------

_TICKS = ("least_ticks", "median_ticks", "mean_ticks", "error_ticks", "sigma_ticks")
_NS = ("least_ns", "median_ns", "mean_ns", "error_ns", "sigma_ns")
_HEADS = {"least": "least", "median": "median", "mean": "mean", "error": "±", "sigma": "σ"}


def _costs(answer: Answer, width: int) -> Iterator[str]:
    keys = [*_TICKS, *(_NS if width >= WIDE else ["mean_ns"])]
    units = [""] * (len(keys) + 1)
    units[0], units[len(_TICKS)] = "in ticks", "in ns"
    yield _row("", units).rstrip()
    yield _row("cost of one call", [*(_HEADS[key.partition("_")[0]] for key in keys), "step"])
    for method in answer["methods"]:
        if method["usable"]:
            mark = "" if method["settled"] else " *"
            cells = [number(method[key]) for key in keys]
            yield _row(method["name"], [*cells, exact(method["step_ns"])]) + mark
        else:
            yield from _fact(method["name"], f"{MISSING}: {method['why']}", width)
            if method["fix"]:
                yield from _fact("", f"fix: {method['fix']}", width)
    yield from _notes(answer, width)


def _row(head: str, cells: list[str]) -> str:
    *first, last = cells
    return f"{head:<{INDENT}}" + "".join(f"{cell:>{COLUMN}}" for cell in first) + f"{last:>{LAST}}"


def _notes(answer: Answer, width: int) -> Iterator[str]:
    trimmed = f"{100 * answer['trimmed']:g} %"
    text = (
        f"mean and σ without the lowest and the highest {trimmed}; ±: with"
        f" {100 * answer['confidence']:g} % confidence another run's mean is no farther away,"
        " if all else stays as it is"
    )
    yield from wrapped(f"  {text}", width, 2)
    stamps = number(answer["bracket_ticks"])
    text = (
        "MONOTONIC… by clock_gettime; everything that is not a time stamp is measured between two"
        f" LFENCE;RDTSC;LFENCE, whose {stamps} ticks are subtracted"
    )
    yield from wrapped(f"  {text}", width, 2)
    yield from _together(answer["methods"], width)
    if any(method["settled"] is False for method in answer["methods"]):
        moved = f"{100 * answer['epsilon']:g} %"
        text = f"* the mean still moved by more than {moved} when time was up: only ± is known"
        yield from wrapped(f"  {text}", width, 2)
    for method in answer["methods"]:
        if method["note"]:
            yield from wrapped(f"  {method['name']} of {method['note']}", width, 2)


def _together(methods: Sequence[Answer], width: int) -> Iterator[str]:
    """The lines on methods so short that several calls are measured together."""
    by_calls: dict[int, list[str]] = {}
    for method in methods:
        if method["usable"] and method["calls"] > 1:
            by_calls.setdefault(method["calls"], []).append(method["name"])
    for calls, names in by_calls.items():
        text = f"{', '.join(names)}: {calls} calls a sample: least, median, σ are of their means"
        yield from wrapped(f"  {text}", width, 2)


# --- distributions --------------------------------------------------------------------------------


def _distributions(answer: Answer, unicode: bool) -> Iterator[str]:
    yield f"{'samples, in ticks':<{INDENT}}{'from':>{COLUMN}} {'':{BARS}} to"
    for method in answer["methods"]:
        drawn = method["histogram"]
        if drawn is not None:
            first, counts = drawn["first_ticks"], drawn["counts"]
            last = first + drawn["width_ticks"] * len(counts)
            line = f"{method['name']:<{INDENT}}{number(first):>{COLUMN}} "
            bars = columns(counts, EIGHTHS if unicode else SIGNS)
            line += f"{bars:{BARS}} {number(last):<{COLUMN}}"
            far = method["far"]
            yield f"{line} {100 * far:.2g} % far out" if far else line.rstrip()
    yield f"  far out: beyond {answer['far']} times the median; the longest 1 % is not drawn"


# --- the rest -------------------------------------------------------------------------------------


def _order(answer: Answer, width: int) -> Iterator[str]:
    yield "order it keeps"
    for method in answer["methods"]:
        yield from _fact(method["name"], method["guarantees"] or "not stated", width)


def _tsc(answer: Answer, width: int) -> Iterator[str]:
    tsc = answer["tsc"]
    yield from _fact("TSC", _rate(tsc), width)
    if tsc["note"]:
        yield from _fact("", tsc["note"], width)
    yield from _fact("  the screen's rate", _rate(tsc["hello"]), width)
    for rate in tsc["said"]:
        yield from _fact("  nominal", _rate(rate), width)
    kept = {True: "yes", False: "no: it may follow the clock or stop in deep idle", None: "unknown"}
    yield from _fact("  invariant", kept[tsc["invariant"]], width)
    step = tsc["step_ticks"]
    moves = tsc["step_why"] if step is None else f"{step:.4g} ticks" if step > 1 else "1 tick"
    yield from _fact("  moves in steps of", moves, width)
    yield from _fact("  clock source", tsc["clocksource"] or "unknown", width)


def _rate(rate: Answer) -> str:
    error = "" if rate["error"] is None else f", within {1e6 * rate['error']:.2g} ppm"
    return f"{rate['hz'] / 1e6:.6f} MHz{error}: {rate['origin']}"


def _offsets(answer: Answer, width: int) -> Iterator[str]:
    offsets = answer["offsets"]
    if not offsets:
        yield from _fact("TSC offsets", "perftop may run on one CPU only", width)
        return
    yield f"TSC offsets against CPU {offsets[0]['against']}, with bounds that hold for certain"
    known = [f"  CPU {o['cpu']:<5}{_offset(o)}" for o in offsets if o["why"] is None]
    size = max(map(len, known), default=0) + 2
    across = max(1, width // size) if size else 1
    for i in range(0, len(known), across):
        yield "".join(f"{cell:<{size}}" for cell in known[i : i + across]).rstrip()
    for offset in offsets:
        if offset["why"] is not None:
            yield from _fact(f"  CPU {offset['cpu']}", f"{MISSING}: {offset['why']}", width)
    if left := answer["offsets_left_out"]:
        yield f"  {left} more CPUs were left out"


def _offset(offset: Answer) -> str:
    ticks = f"{offset['offset_ticks']:+.0f} ± {offset['error_ticks']:.0f} ticks"
    return f"{ticks} ({offset['offset_ns']:+.0f} ± {offset['error_ns']:.0f} ns)"


def _disturbances(answer: Answer, width: int) -> Iterator[str]:
    yield "what disturbed" if answer["disturbances"] else "no disturbance was seen"
    for seen in answer["disturbances"]:
        yield from _fact(f"  {seen['what']}", f"{seen['found']}: {seen['matters']}", width)
