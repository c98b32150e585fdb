"""A comparison as text and as a JSON line. The text lists differences between the machines, and has
a row for each number, with a dot plot of its runs and its interval on a common scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan

from perftop.base.text import (
    Line,
    count_noun,
    json_number,
    safe_text,
    signed,
    terminal_text,
    wrap_text,
)
from perftop.draw.columns import Column, Run, join_columns
from perftop.model.kinds import cause_of
from perftop.model.numbers import SMALL_SHARE_ENDS
from perftop.output.compare.answer import (
    headline,
    loss_sentences,
    next_step,
    open_questions,
    work_sentence,
)
from perftop.output.compare.comparison import (
    EQUIVALENCE_MARGIN,
    NOISE,
    Comparison,
    Row,
)
from perftop.output.compare.readings import Reading, find_number, format_like, unit_of
from perftop.output.run_summary import setting_label, value_text

WIDTH, STATE_WIDTH = 80, 21
"""Width in columns of all lines, and of a machine's state."""
DOT_CELLS, SCALE_CELLS = 8, 15
"""Widths in cells of the dot plot of the runs, and of the scale of intervals."""
LABEL_COLUMN = Column("", "", 18, is_left=True, gap=0)
COLUMNS = [
    LABEL_COLUMN, Column("", "", 7), Column("", "", 8), Column("", "", 14),
    *(Column("", "", width + 1, is_left=True, gap=1) for width in (DOT_CELLS, SCALE_CELLS, 7)),
]  # fmt: skip
"""Name, values of A and B, difference, runs, interval and verdict."""
NOTE = "±: 95 % for all rows together, {}. same: within ±{:.0f} %"
MAX_RATIO = 10.0
"""Relative change above which a multiple is printed instead of per cent. A wider interval is
printed as `>999`."""
STYLE_CODES = {"a": "34", "b": "33", "bold": "1", "dim": "2", "worse": "31", "open": "33"}
"""SGR codes of a terminal, by style."""
VERDICT_WORDS = {"higher": "more", "lower": "less", "better": "better", "worse": "worse"}
FIRST_EQUAL_STATES = ("host", "model", "microcode", "kernel", "governor", "turbo", "smt", "cpus",
                      "command")  # fmt: skip
"""States that are listed first if both sides have the same value."""
MAX_EQUAL_STATES = 8
"""Maximum number of equal states that are listed by name."""


def lines(
    comparisons: Sequence[Comparison], names: tuple[str, str], *, unicode: bool = True,
    colour: bool = False,
) -> list[str]:  # fmt: skip
    """Returns the lines of the comparison. `unicode`: allow graphic characters. `colour`: add
    escape sequences for colours."""

    def draw_line(runs: Iterable[Run]) -> str:
        codes = STYLE_CODES if colour else {}
        parts = [terminal_text(text, codes.get(style, ""), unicode=unicode) for text, style in runs]
        return "".join(parts).rstrip()

    def styled_lines(texts: Iterable[str], style: str = "") -> list[str]:
        return [draw_line([(text, style)]) for text in texts]

    # The scale covers all changes up to 100 %, all intervals of clear differences, and half of the
    # other intervals.
    rows, last = [row for phase in comparisons for row in phase.rows], SMALL_SHARE_ENDS[-1]
    ends = sorted(max(map(abs, row.interval)) for row in rows if row.interval)
    sizes = [*(abs(row.change) for row in rows), *ends[: (len(ends) + 1) // 2]]
    sizes += [abs(end) for row in rows if row.is_clear for end in row.interval or ()]
    longest = max((size for size in sizes if size <= last), default=last)
    scale = next(scale for scale in SMALL_SHARE_ENDS if scale >= longest)
    answer = headline(comparisons)
    is_open = answer.startswith("Inconclusive")
    text_lines = styled_lines(wrap_text(answer, WIDTH), "open" if is_open else "bold")
    text_lines += ["", *styled_lines(_machine_lines(comparisons[0], names))]
    for phase in comparisons:
        change, runs = ("B − A ± 95 %", "⠛ A ⣤ B") if unicode else ("B - A +- 95 %", "' A . B")
        half, end = SCALE_CELLS // 2, f"{100 * scale:.0f} %"
        scale_heading = f"{f'−{end}':<{half}}0{f'+{end}':>{half}}"
        titles = [_runs_heading(phase), "A", "B", change, runs, scale_heading, "verdict"]
        text_lines += ["", draw_line(join_columns(COLUMNS, [(title, "dim") for title in titles]))]
        text_lines += [draw_line(_row(phase, row, scale, unicode=unicode)) for row in phase.rows]
    basis = "within these two runs" if comparisons[0].within_runs else "if the runs are independent"
    if any(row.interval is not None for row in rows):
        text_lines += ["", *styled_lines([NOTE.format(basis, 100 * EQUIVALENCE_MARGIN)], "dim")]
    causes = [
        f"{row.number.plain_name}: {cause_of(row.cause[1]).short_text or row.cause[1]}"
        for row in rows
        if row.cause is not None and row.verdict != NOISE
    ]
    loss_texts = [text for phase in comparisons for text in loss_sentences(phase)]
    sections = [("cause", causes), ("lost", loss_texts), ("try", [next_step(comparisons)]),
                ("unknown", open_questions(comparisons))]  # fmt: skip
    work_texts = [
        text for text in [work_sentence(comparisons[0])] if text and len(comparisons) == 1
    ]
    for title, texts in sections:
        for text in filter(None, texts):
            work_texts += wrap_text(f"{title:<11}{text}", WIDTH, subsequent_indent=" " * 11)
    return text_lines + (["", *styled_lines(work_texts)] if work_texts else [])


def _machine_lines(phase: Comparison, names: tuple[str, str]) -> list[str]:
    if not phase.differing_states and not phase.equal_states:
        return ["machine: the settings of at least one side are not known"]
    a, b = (safe_text(name, STATE_WIDTH - 3) for name in names)
    text_lines = [f"{'machine':<{LABEL_COLUMN.width + 1}}{f'A {a}':<{STATE_WIDTH}}B {b}"]
    for state in phase.differing_states:
        a, b = (value_text(state.key, value) for value in (state.side_a, state.side_b))
        head, room = f"  {setting_label(state.key):<{LABEL_COLUMN.width - 1}}", STATE_WIDTH
        if len(a) > STATE_WIDTH - 2 or len(head) + STATE_WIDTH + len(b) > WIDTH:
            # B is on a separate line, in its column if there is room.
            text_lines.append(f"{head}{a}")
            room = max(0, min(STATE_WIDTH, WIDTH - len(head) - len(b)))
            head, a = " " * len(head), ""
        explained_names = [find_number(key).plain_name for key in state.explained_keys[:1]]
        explanation = f" explains the {explained_names[0]}" if explained_names else ""
        text_lines.append(f"{head}{a:<{room}}{b:<{STATE_WIDTH - 1}}{explanation}".rstrip())
    if phase.equal_states:
        keys = [key for key in FIRST_EQUAL_STATES if key in phase.equal_states]
        keys += [key for key in phase.equal_states if key not in keys]
        words = [setting_label(key) for key in keys[:MAX_EQUAL_STATES]]
        hidden_count = len(keys) - MAX_EQUAL_STATES
        words += [f"{hidden_count} more"] if hidden_count > 0 else []
        text_lines += wrap_text(f"  same: {', '.join(words)}", WIDTH, subsequent_indent=" " * 8)
    return text_lines


def _runs_heading(phase: Comparison) -> str:
    """Returns the number of runs or files on each side, or the name of the phase."""
    by_file = max(phase.files) > 1
    a, b = phase.files if by_file else (len(phase.side_a), len(phase.side_b))
    if phase.label:
        name = safe_text(phase.label, 10)
        return name if a == b == 1 else f"{name}, {a} and {b}"
    noun = "file" if by_file else "run"
    return f"{count_noun(a, noun)} per side" if a == b else f"{a} and {b} {noun}s"


def _label(row: Row) -> str:
    """Returns the name of the number, with its unit right-aligned in the column."""
    unit = unit_of(row.number)
    room = LABEL_COLUMN.width - 2 - len(unit)
    words = row.number.plain_name
    return f"  {words if len(words) < room else row.number.label:<{room}}{unit}"


def _row(phase: Comparison, row: Row, scale: float, *, unicode: bool) -> list[Run]:
    """Returns the row of a number. Only a clear difference is bright, and red where B is worse."""
    style = "" if row.is_clear else "dim"
    verdict = verdict_word(row)
    emphasis = "worse" if row.verdict == "worse" else style
    sides = [
        _values(side, row.number.key, by_sample=phase.within_runs)
        for side in (phase.side_a, phase.side_b)
    ]
    return join_columns(COLUMNS, [
        (_label(row), style),
        *((format_like(row.number, x, row.side_a), style) for x in (row.side_a, row.side_b)),
        (change_text(row, "±" if unicode else "+-"), emphasis),
        _dot_runs(sides, unicode=unicode), (_draw_interval(row, scale), emphasis),
        [(verdict, emphasis)],
    ])  # fmt: skip


def verdict_word(row: Row) -> str:
    return "same" if row.is_same else VERDICT_WORDS.get(row.verdict, "open")


def change_text(row: Row, sign: str) -> str:
    """Returns the difference as text, with the larger half of its confidence interval."""
    unit = "pt" if row.unit == "points" else row.unit
    if row.unit == "%" and row.change >= MAX_RATIO:
        return f"x{1 + row.change:.0f}  "
    half = max((abs(end - row.change) for end in row.interval or ()), default=0.0)
    digits = int(max(abs(row.change), half) < 1)
    text = signed(100 * row.change, digits)
    if row.interval is not None:
        size = f"{100 * half:.{digits}f}" if half < MAX_RATIO else f">{100 * MAX_RATIO - 1:.0f}"
        text += f"{sign:>2}{size}"
    return f"{text} {unit}"


# --- the dot plot of a row's values

TRIM_SHARE = 0.005
"""Share of the values at each end that may be outside the axis."""
BRAILLE_BASE = 0x2800
DOT_BITS = ((0x00, 0x02, 0x03), (0x00, 0x10, 0x18)), ((0x00, 0x04, 0x44), (0x00, 0x20, 0xA0))
"""Bits of a braille character, by side (A above, B below), column of dots and density."""
ASCII_DOTS = " '.:"
"""Characters of a cell without values, with values of A, of B, and of both."""


def _values(readings: Sequence[Reading], key: str, *, by_sample: bool) -> list[float]:
    """Returns a number in each run, or with `by_sample` in each sample of the only run."""
    if by_sample:
        return readings[0].samples.get(key, [])
    return [run.numbers[key] for run in readings if key in run.numbers]


def _dot_runs(sides: Sequence[Sequence[float]], *, unicode: bool) -> list[Run]:
    """Draws the values of both sides as dots on one axis. A place has two dots for a side with at
    least half as many values there as at its densest place, and one dot for fewer."""
    ordered = sorted(value for side in sides for value in side)
    if not ordered:
        return []
    trim_count, columns = int(TRIM_SHARE * len(ordered)), 2 * DOT_CELLS if unicode else DOT_CELLS
    low, high = ordered[trim_count], ordered[-1 - trim_count]
    densities = []
    for side in sides:
        counts = [0] * columns  # values beyond an end are counted in the last cell there
        for value in side:
            column = int((value - low) / (high - low) * columns) if high > low else columns // 2
            counts[min(max(column, 0), columns - 1)] += 1
        dense = max(counts) / 2
        densities.append([0 if count == 0 else 1 if count < dense else 2 for count in counts])
    width = columns // DOT_CELLS
    with_a, with_b = (
        [max(side[at : at + width]) > 0 for at in range(0, columns, width)] for side in densities
    )
    signs = [ASCII_DOTS[a + 2 * b] for a, b in zip(with_a, with_b, strict=True)]
    if unicode:
        bits = [sum(dots[half][side[2 * cell + half]]
                    for dots, side in zip(DOT_BITS, densities, strict=True) for half in range(2))
                for cell in range(DOT_CELLS)]  # fmt: skip
        signs = [chr(BRAILLE_BASE + b) if b else "·" for b in bits]
    styles = [("dim", "a", "b", "")[a + 2 * b] for a, b in zip(with_a, with_b, strict=True)]
    return list(zip(signs, styles, strict=True))


def _draw_interval(row: Row, scale: float) -> str:
    """Draws a change as a dot on the scale, and its interval as a line. An arrow shows where either
    leaves the scale."""
    middle = SCALE_CELLS // 2

    def cell(value: float) -> int:
        return middle + round(max(-2.0, min(2.0, value / scale)) * middle)

    cells = ["·"] * SCALE_CELLS
    cells[middle], x = "│", cell(row.change)
    low, high = map(cell, row.interval or (row.change, row.change))
    for column in range(max(0, low), min(SCALE_CELLS - 1, high) + 1):
        if column == middle and row.is_clear:
            continue  # the interval ends within this cell, and 0 is not in it
        cells[column] = "┼" if column == middle else "─"
    if 0 <= x < SCALE_CELLS:
        cells[x] = "●"
    if low < 0:
        cells[0] = "◂"
    if high >= SCALE_CELLS:
        cells[-1] = "▸"
    return "".join(cells)


# --- comparisons as JSON


def diff_json(comparisons: Sequence[Comparison], files: tuple[list[str], list[str]]) -> Line:
    """Returns the `diff` line, whose keys `perftop help json-runs` explains."""
    first = comparisons[0]
    states = [
        {"key": s.key, "a": s.side_a, "b": s.side_b, "explains": s.explained_keys}
        for s in first.differing_states
    ]
    phases = [
        {
            "label": phase.label or None, "runs_a": len(phase.side_a), "runs_b": len(phase.side_b),
            "numbers": {row.number.key: _row_json(row) for row in phase.rows},
            "only_a": phase.one_sided_keys[0], "only_b": phase.one_sided_keys[1],
        }
        for phase in comparisons
    ]  # fmt: skip
    return {
        "type": "diff", "answer": headline(comparisons),
        "a": {"files": files[0]}, "b": {"files": files[1]}, "state": states,
        "same": first.equal_states, "phases": phases, "not_told": list(open_questions(comparisons)),
    }  # fmt: skip


def _row_json(row: Row) -> Line:
    scale = 1.0 if row.number.unit == "ratio" else abs(row.side_a)
    low, high = row.interval or (nan, nan)
    return {
        "a": json_number(row.side_a), "b": json_number(row.side_b),
        "difference": json_number(row.change * scale),
        "low": json_number(low * scale), "high": json_number(high * scale),
        "chance": None if row.interval is None else json_number(row.probability),
        "verdict": row.verdict,
        "test": None if row.interval is None else "ranks" if row.is_ranked else "means",
        "cause": None if row.cause is None else row.cause[1],
    }  # fmt: skip
