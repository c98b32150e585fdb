"""A comparison as text (the differences between the machines, a row for each number, and charts of
distributions), and as a JSON line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from math import nan

from perftop.base.text import EIGHTHS, bar_chart, count_noun, safe_text, terminal_text
from perftop.draw.columns import Column
from perftop.model.kinds import cause_of
from perftop.output.compare.comparison import (
    NOISE,
    Comparison,
    Row,
    headline,
    open_questions,
    work_sentence,
)
from perftop.output.compare.readings import Reading, format_like, number_of, unit_of
from perftop.output.run_summary import setting_label, value_text
from perftop.output.stat_json import Line, json_number
from perftop.output.stat_table import table_line

WIDTH, STATE_WIDTH = 80, 21
"""Width in columns of all lines, and of the state of a machine."""
LABEL_COLUMN = Column("", "", 18, left=True, gap=0)
COLUMNS = [LABEL_COLUMN, Column("", "A", 7), Column("", "B", 8), Column("", "B - A", 10),
           Column("", "95 % interval", 17)]  # fmt: skip
VERDICT_GAP = " " * 3
INTERVAL_NOTE = "Intervals: 95 % for all rows together, {}."
MAX_RATIO = 10.0
"""Maximum end of an interval, relative to A, that is printed as a number."""
FIRST_EQUAL_STATES = (
    "host",
    "model",
    "microcode",
    "kernel",
    "governor",
    "turbo",
    "smt",
    "cpus",
    "command",
)
"""States that are listed first if both sides have the same value."""
MAX_EQUAL_STATES = 8
"""Maximum number of equal states that are listed; the others are only counted."""


def lines(
    compared: Sequence[Comparison], names: tuple[str, str], *, unicode: bool = True,
    colour: bool = False,
) -> list[str]:  # fmt: skip
    """Returns the lines of the comparison. `unicode`: allow block characters. `colour`: add escape
    sequences for colours."""

    def drawn(text: str, code: str = "") -> str:
        return terminal_text(text.rstrip(), code if colour else "", unicode=unicode)

    text_lines = [drawn(line, "1") for line in textwrap.wrap(headline(compared), WIDTH)]
    text_lines += ["", *map(drawn, _machines(compared[0], names))]
    for phase in compared:
        heads = [_runs(phase), *(column.heading for column in COLUMNS[1:])]
        text_lines += ["", drawn(f"{table_line(COLUMNS, heads)}{VERDICT_GAP}verdict", "2")]
        for row in phase.rows:
            text, verdict = _row(row), row.verdict
            if row.cause is not None and row.verdict != NOISE:
                verdict = f"{verdict}: {cause_of(row.cause[1]).short_text or row.cause[1]}"
            # A row within the noise is dim; where B is worse, the verdict is red.
            if row.verdict == "worse":
                text_lines.append(f"{drawn(text)}{VERDICT_GAP}{drawn(verdict, '31')}")
            else:
                text_lines.append(
                    drawn(f"{text}{VERDICT_GAP}{verdict}", "" if row.is_sure else "2")
                )
        picture = pictures(phase, unicode=unicode)
        text_lines += ["", *picture] if picture else []
    basis = "within these two runs" if compared[0].by_blocks else "if the runs are independent"
    if any(row.interval is not None for phase in compared for row in phase.rows):
        text_lines += ["", drawn(INTERVAL_NOTE.format(basis), "2")]
    more = [text for text in [work_sentence(compared[0])] if text and len(compared) == 1]
    for text in open_questions(compared):
        more += textwrap.wrap(f"{'unknown':<11}{text}", WIDTH, subsequent_indent=" " * 11)
    return text_lines + (["", *map(drawn, more)] if more else [])


def _machines(phase: Comparison, names: tuple[str, str]) -> list[str]:
    if not phase.differing and not phase.same:
        return ["machine: the settings of at least one side are not known"]
    a, b = (safe_text(name, STATE_WIDTH - 3) for name in names)
    text_lines = [f"{'machine':<{LABEL_COLUMN.width + 1}}{f'A {a}':<{STATE_WIDTH}}B {b}"]
    for state in phase.differing:
        a, b = (value_text(state.key, value) for value in (state.a, state.b))
        head, room = f"  {setting_label(state.key):<{LABEL_COLUMN.width - 1}}", STATE_WIDTH
        if len(a) >= STATE_WIDTH or len(head) + STATE_WIDTH + len(b) > WIDTH:
            # Print B on a separate line, in its column if there is room.
            text_lines.append(f"{head}{a}")
            room = max(0, min(STATE_WIDTH, WIDTH - len(head) - len(b)))
            head, a = " " * len(head), ""
        explains = f" explains the {number_of(state.explains[0]).words}" if state.explains else ""
        text_lines.append(f"{head}{a:<{room}}{b:<{STATE_WIDTH - 1}}{explains}".rstrip())
    if phase.same:
        keys = [key for key in FIRST_EQUAL_STATES if key in phase.same]
        keys += [key for key in phase.same if key not in keys]
        words, more = (
            [setting_label(key) for key in keys[:MAX_EQUAL_STATES]],
            len(keys) - MAX_EQUAL_STATES,
        )
        words += [f"{more} more"] if more > 0 else []
        text_lines += textwrap.wrap(f"  same: {', '.join(words)}", WIDTH, subsequent_indent=" " * 8)
    return text_lines


def _runs(phase: Comparison) -> str:
    """Returns the number of runs, or of files, on each side, or the name of the phase."""
    by_file = max(phase.files) > 1
    a, b = phase.files if by_file else (len(phase.a), len(phase.b))
    if phase.label:
        name = safe_text(phase.label, 10)
        return name if a == b == 1 else f"{name}, {a} and {b}"
    noun = "file" if by_file else "run"
    return f"{count_noun(a, noun)} a side" if a == b else f"{a} and {b} {noun}s"


def _label(row: Row) -> str:
    """Returns the name of the number, with its unit right-aligned in the column."""
    unit = unit_of(row.number)
    room = LABEL_COLUMN.width - 2 - len(unit)
    words = row.number.words
    return f"  {words if len(words) < room else row.number.label:<{room}}{unit}"


def _row(row: Row) -> str:
    """Returns the row up to its verdict, padded."""
    unit = "pt" if row.unit == "points" else row.unit
    interval = ""
    if row.interval is not None:
        low, high = (
            f"{100 * end:+z.1f}" if end < MAX_RATIO else f">{100 * MAX_RATIO:.0f}"
            for end in row.interval
        )
        interval = f"{low} to {high:>5}"
    change = f"{100 * row.change:+z.1f} {unit}"
    if row.unit == "%" and row.change >= MAX_RATIO:
        change = f"x{1 + row.change:.0f}  "
    cells = [
        _label(row), *(format_like(row.number, value, row.a) for value in (row.a, row.b)),
        change, interval,
    ]  # fmt: skip
    return table_line(COLUMNS, cells).ljust(sum(column.width for column in COLUMNS))


# --- charts

BINS = 32
ASCII_STEPS = " .:-=+*#"
MAX_PICTURES = 3
"""Maximum number of charts. Each number that differs has a chart, and so has the run time."""
MIN_VALUES = 3
"""Minimum number of values that each side needs for a chart."""
TRIM_SHARE = 0.005
"""Share of the values at each end that may be outside the axis."""


def pictures(phase: Comparison, *, unicode: bool) -> list[str]:
    """Returns the distributions of numbers on both sides, as rows of blocks on a common axis."""
    rows: list[str] = []
    for row in phase.rows:
        sides = [
            _values(side, row.number.key, samples=phase.by_blocks) for side in (phase.a, phase.b)
        ]
        shows = row.is_sure or row.number.key == "run_s"
        if shows and min(map(len, sides)) >= MIN_VALUES and len(rows) < 2 * MAX_PICTURES:
            rows += _picture(row, sides, EIGHTHS if unicode else ASCII_STEPS)
    return rows


def _values(readings: Sequence[Reading], key: str, *, samples: bool) -> list[float]:
    """Returns a value for each run; with `samples`, for each sample of the only run."""
    if samples:
        return readings[0].samples.get(key, [])
    return [run.numbers[key] for run in readings if key in run.numbers]


def _picture(row: Row, sides: Sequence[Sequence[float]], signs: str) -> Iterator[str]:
    ordered = sorted(value for side in sides for value in side)
    cut = int(TRIM_SHARE * len(ordered))
    low, high = ordered[cut], ordered[-1 - cut]
    ends = [format_like(row.number, end, row.a) for end in (low, high)]
    for name, values in zip("AB", sides, strict=True):
        counts = [0] * BINS  # values beyond an end count in the bin at that end
        for value in values:
            place = int((value - low) / (high - low) * BINS) if high > low else BINS // 2
            counts[min(max(place, 0), BINS - 1)] += 1
        first = name == "A"
        left = f"{_label(row)}{ends[0]:>8}" if first else " " * (LABEL_COLUMN.width + 8)
        yield f"{left} {bar_chart(counts, signs)} {ends[1] if first else '':<8}{name}"


# --- JSON


def diff_json(compared: Sequence[Comparison], files: tuple[list[str], list[str]]) -> Line:
    """Returns the line `diff`: `answer`; `state`, the states in which the machines differ; `same`,
    the equal states; and for each phase (`label`, null for the whole) the numbers in base units. A
    number has the values of both sides, `difference` B - A with its 95 % interval `low` to `high`,
    `chance` (the probability of such a difference by chance, corrected for the number of rows),
    `verdict` and `test` (whether means are compared, or medians by ranks)."""
    first = compared[0]
    states = [{"key": state.key, "a": state.a, "b": state.b, "explains": state.explains}
             for state in first.differing]  # fmt: skip
    phases = [
        {
            "label": phase.label or None, "runs_a": len(phase.a), "runs_b": len(phase.b),
            "numbers": {row.number.key: _row_json(row) for row in phase.rows},
            "only_a": phase.only[0], "only_b": phase.only[1],
        }
        for phase in compared
    ]  # fmt: skip
    return {
        "type": "diff", "answer": headline(compared),
        "a": {"files": files[0]}, "b": {"files": files[1]}, "state": states,
        "same": first.same, "phases": phases, "not_told": list(open_questions(compared)),
    }  # fmt: skip


def _row_json(row: Row) -> Line:
    scale = 1.0 if row.number.unit == "ratio" else abs(row.a)
    low, high = row.interval or (nan, nan)
    return {
        "a": json_number(row.a), "b": json_number(row.b),
        "difference": json_number(row.change * scale),
        "low": json_number(low * scale), "high": json_number(high * scale),
        "chance": None if row.interval is None else json_number(row.chance), "verdict": row.verdict,
        "test": None if row.interval is None else "ranks" if row.is_ranked else "means",
        "cause": None if row.cause is None else row.cause[1],
    }  # fmt: skip
