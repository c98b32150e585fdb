"""Distributions of a number on both sides, as rows of eighth blocks on one axis."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from perftop.base.text import EIGHTHS, columns, in_ascii, painted, printable, safe
from perftop.output.compare.comparison import NOISE, Comparison, Row, answer, not_told, work
from perftop.output.compare.readings import NUMBERS, Reading
from perftop.output.machine_state import label, shown
from perftop.output.stat_json import Line, number

BINS = 32
STEPS = " .:-=+*#"
"""What is drawn where only ASCII can be."""
MOST = 3
"""Numbers that are drawn: those that differ, and the run time."""
FEWEST = 3
"""Values on each side of which a picture is made."""
TRIM = 0.005
"""Share of the values at each end that the axis does not make room for."""


def pictures(one: Comparison, *, unicode: bool) -> list[str]:
    found: list[str] = []
    rows = [row for row in one.rows if row.sure or row.number.key == "run_s"]
    for row in rows:
        sides = [_values(side, row.number.key, one.blocks) for side in (one.a, one.b)]
        if min(map(len, sides)) >= FEWEST and len(found) < 2 * MOST:
            found += _drawn(row, *sides, unicode=unicode)
    return found


def _values(readings: Sequence[Reading], key: str, samples: bool) -> list[float]:
    """A value for each run, or, with `samples`, for each sample of the only run."""
    if samples:
        return readings[0].samples.get(key, [])
    return [one.numbers[key] for one in readings if key in one.numbers]


def _drawn(row: Row, a: Sequence[float], b: Sequence[float], *, unicode: bool) -> Iterator[str]:
    low, high = _ends([*a, *b])
    signs, number = EIGHTHS if unicode else STEPS, row.number
    for at, (name, values) in enumerate((("A", a), ("B", b))):
        label = f"{number.label:<{16 - len(number.unit)}}{number.unit}" if at == 0 else " " * 16
        ends = [number.show(end, row.a) if at == 0 else "" for end in (low, high)]
        yield f"  {label}{ends[0]:>8} {_bars(values, low, high, signs)} {ends[1]:<8}{name}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    return ordered[cut], ordered[-1 - cut]


def _bars(values: Sequence[float], low: float, high: float, signs: str) -> str:
    """A cell a bin. What is beyond the ends counts in the last bin there."""
    counts = [0] * BINS
    for value in values:
        place = int((value - low) / (high - low) * BINS) if high > low else BINS // 2
        counts[min(max(place, 0), BINS - 1)] += 1
    return columns(counts, signs)


WIDTH, LABEL, NAME = 80, 18, 21
SAME = ("host", "model", "microcode", "kernel", "governor", "turbo", "smt", "cpus", "command")
"""States that are named first if they are the same."""
MOST_SAME = 8
"""States that are named; the others are only counted."""
SHORT = {
    "power-pl1": "PL1", "power-pl2": "PL2", "thermal": "heat", "current": "current",
    "prochot": "PROCHOT", "vr": "VR", "hwp": "HWP", "policy": "policy", "license": "SIMD",
    "level": "SIMD", "hypervisor": "steal", "sibling": "sibling", "scheduler": "waits",
    "smm": "SMI", "clock-change": "clock", "modulation": "duty", "package": "others",
    "memory": "memory",
}  # fmt: skip
"""Causes behind a verdict."""


def lines(
    found: Sequence[Comparison], names: tuple[str, str], *, unicode: bool = True,
    colour: bool = False,
) -> list[str]:  # fmt: skip
    """`unicode`: blocks may be drawn. `colour`: with sequences for a terminal."""
    first = found[0]
    told = [_drawn_text(answer(found), "1", unicode, colour), ""]
    told += [_drawn_text(diff_json, "", unicode, colour) for diff_json in _machines(first, names)]
    for one in found:
        told += ["", _drawn_text(_heading(one), "2", unicode, colour)]
        told += [_painted(row, unicode, colour) for row in one.rows]
        drawn = pictures(one, unicode=unicode)
        told += ["", *drawn] if drawn else []
    more = [*filter(None, [work(first)] if len(found) == 1 else [])]
    more += [_folded("not told", text) for text in not_told(found)]
    left = "\n".join(more).splitlines()
    return told + (
        ["", *(_drawn_text(diff_json, "", unicode, colour) for diff_json in left)] if more else []
    )


def _painted(row: Row, unicode: bool, colour: bool) -> str:
    """Dim where it says nothing; of what is worse, the verdict in red."""
    if row.verdict != "worse":
        return _drawn_text(
            f"{_row(row)}   {_verdict(row)}", "" if row.sure else "2", unicode, colour
        )
    return f"{_row(row)}   {_drawn_text(_verdict(row), '31', unicode, colour)}"


def _drawn_text(text: str, code: str, unicode: bool, colour: bool) -> str:
    """Names and values of it come from outside."""
    shown = printable(text if unicode else in_ascii(text)).rstrip()
    return painted(shown, code if colour else "")


def _folded(head: str, text: str) -> str:
    return textwrap.fill(f"{head}   {text}", WIDTH, subsequent_indent=" " * (len(head) + 3))


def _machines(one: Comparison, names: tuple[str, str]) -> list[str]:
    if not one.differing and not one.same:
        return ["machine: at least one side does not tell how it was set"]
    a, b = (safe(name, NAME - 3) for name in names)
    found = [f"{'machine':<{LABEL + 1}}{f'A {a}':<{NAME}}B {b}"]
    for state in one.differing:
        a, b = (shown(state.key, value) for value in (state.a, state.b))
        head, room = f"  {label(state.key):<{LABEL - 1}}", NAME
        if len(a) >= NAME or len(head) + NAME + len(b) > WIDTH:
            # B below it, in its column as far as there is room.
            found.append(f"{head}{a}")
            head, a, room = " " * len(head), "", max(0, min(NAME, WIDTH - len(head) - len(b)))
        keys = [NUMBERS[key].label for key in state.explains]
        explains = f" explains the {keys[0]}" if keys else ""
        found.append(f"{head}{a:<{room}}{b:<{NAME - 1}}{explains}".rstrip())
    if one.same:
        keys = [key for key in SAME if key in one.same]
        keys += [key for key in one.same if key not in keys]
        named, more = keys[:MOST_SAME], len(keys) - MOST_SAME
        words = [label(key) for key in named] + ([f"{more} more"] if more > 0 else [])
        found += textwrap.wrap(f"  same: {', '.join(words)}", WIDTH, subsequent_indent="        ")
    return found


def _heading(one: Comparison) -> str:
    return f"{_counted(one):<{LABEL}}{'A':>7}{'B':>8}{'B - A':>10}{'95 % interval':>17}   verdict"


def _counted(one: Comparison) -> str:
    a, b = len(one.a), len(one.b)
    name = safe(one.label, 10)
    if one.label:
        return f"{name}" if a == b == 1 else f"{name}, {a} and {b}"
    return (f"{a} run{'s' if a > 1 else ''} each") if a == b else f"{a} and {b} runs"


def _row(row: Row) -> str:
    number = row.number
    head = f"  {number.label:<{LABEL - 2 - len(number.unit)}}{number.unit}"
    a, b = (number.show(value, row.a) for value in (row.a, row.b))
    unit = "pt" if number.points else "%"
    moved = f"{_signed(row.relative(row.b - row.a))} {unit}".rjust(10)
    interval = f"{'':17}"
    if row.difference is not None:
        middle, half = row.difference.mean, row.difference.half
        low, high = (_signed(row.relative(value)) for value in (middle - half, middle + half))
        interval = f"{low} to {high:>5}".rjust(17)
    return f"{head}{a:>7}{b:>8}{moved}{interval:>17}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-0.0", "+0.0") if abs(value) < 0.05 else f"{value:+.1f}"


def _verdict(row: Row) -> str:
    if row.cause is None or row.verdict == NOISE:
        return row.verdict
    return f"{row.verdict}: {SHORT.get(row.cause[1], row.cause[1])}"


# --- A comparison as a line of JSON.


def diff_json(found: Sequence[Comparison], files: tuple[list[str], list[str]]) -> Line:
    """`diff`: `answer`, `state` of what differs in the machines, `same`, and by phase (`label`,
    null of the whole) the numbers in base units: of each side, `difference` B - A with its 95 %
    interval `low` to `high`, `chance` of it without a difference, for so many rows, `verdict`."""
    first = found[0]
    return {
        "type": "diff",
        "answer": answer(found),
        "a": {"files": files[0]},
        "b": {"files": files[1]},
        "state": [
            {"key": one.key, "a": one.a, "b": one.b, "explains": one.explains}
            for one in first.differing
        ],
        "same": first.same,
        "phases": [
            {
                "label": one.label or None,
                "runs_a": len(one.a),
                "runs_b": len(one.b),
                "numbers": {row.number.key: _row_json_line(row) for row in one.rows},
                "only_a": one.only[0],
                "only_b": one.only[1],
            }
            for one in found
        ],
        "not_told": list(not_told(found)),
    }


def _row_json_line(row: Row) -> Line:
    told = row.difference
    return {
        "a": number(row.a),
        "b": number(row.b),
        "difference": number(row.b - row.a),
        "low": None if told is None else number(told.mean - told.half),
        "high": None if told is None else number(told.mean + told.half),
        "chance": None if told is None else number(row.chance),
        "verdict": row.verdict,
        "cause": None if row.cause is None else row.cause[1],
    }
