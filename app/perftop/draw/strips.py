"""Lines of runs (text and the name of its style), and values drawn as cells: bars, heat steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import groupby, product

import numpy as np
from rich.cells import cell_len

from perftop.base.arrays import Codes, Floats, Ints
from perftop.base.text import NON_ASCII_PATTERN, cut, fit, printable
from perftop.draw import theme
from perftop.draw.columns import Run

Line = tuple[list[Run], theme.LineState]
"""The runs of a line of the screen, and its state, which decides the background."""
BLANK: Line = ([], "calm")


def has_own_background(key: str) -> bool:
    """Returns whether a style has its own background, not the line's."""
    return key in theme.BACKGROUND_STYLES or "/" in key


def text(runs: Iterable[Run]) -> str:
    return "".join([part for part, _ in runs])


def width(runs: Iterable[Run]) -> int:
    return len("".join([part for part, _ in runs]))


def fit_runs(runs: list[Run], size: int, style: str) -> list[Run]:
    """Returns the runs padded to `size` cells; longer ones become cut text in the style `style`."""
    if (spare_cells := size - width(runs)) >= 0:
        return [*runs, (" " * spare_cells, "text")]
    return [(fit(text(runs), size), style)]


def join_cells(cells: Sequence[Run]) -> list[Run]:
    """Joins cells of one character each into runs."""
    if not cells:
        return []
    chars, styles = zip(*cells, strict=True)
    return make_runs("".join(chars), styles)


def make_runs(chars: str, styles: tuple[str, ...]) -> list[Run]:
    """Returns the runs of cells with these characters and styles; equal neighbours form one run."""
    runs, begin = list[Run](), 0
    for style, cells in groupby(styles):
        end = begin + len([*cells])
        runs.append((chars[begin:end], style))
        begin = end
    return runs


def merge_runs(runs: Iterable[Run], size: int) -> list[Run]:
    """Returns a line of exactly `size` cells. Neighbouring runs of one style are joined."""
    return [*_merge_runs(tuple(runs), size)]


@lru_cache(maxsize=128)
def _merge_runs(runs: tuple[Run, ...], size: int) -> Sequence[Run]:
    """This is cached, because two thirds of the lines stay the same between refreshes. Few screens
    have more lines than `maxsize`; a line takes 3 kB."""
    merged_runs: list[Run] = []
    open_text, key, cells_left = "", "text", size
    for part, style in runs:
        cells_left -= len(part)
        # A space looks the same in all styles with the same background.
        if style == key or (
            part.isspace()
            and not (
                has_own_background(key)
                or has_own_background(style)
                or _ends_in_fallback_font(open_text)
            )
        ):
            open_text += part
        elif part:
            if open_text:
                merged_runs.append((open_text, key))
            open_text, key = part, style
    if has_own_background(key) or (cells_left > 0 and _ends_in_fallback_font(open_text)):
        merged_runs.append((open_text, key))
        open_text, key = "", "text"
    merged_runs.append((open_text + " " * cells_left, key))
    fitting_runs = cut_runs(merged_runs, 0, size) if cells_left < 0 else merged_runs
    return [run for run in fitting_runs if run[0]]


def _ends_in_fallback_font(text: str) -> bool:
    """Returns whether browsers draw the last character in a fallback font. As they keep only the
    total width of such a run, blanks after this character would shift the text before it."""
    last_char = text[-1:]
    return "\u2800" <= last_char <= "\u28ff" or last_char == theme.LIMIT


def cut_runs(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    """Returns the part of the runs from cell `start` up to but not including cell `stop`."""
    runs_within, begin = list[Run](), 0
    for run in runs:
        end = begin + len(run[0])
        if begin >= stop:
            break
        if end > stop or begin < start < end:
            runs_within.append((run[0][max(0, start - begin) : stop - begin], run[1]))
        elif begin >= start and begin < end:
            runs_within.append(run)
        begin = end
    return runs_within


def restyle_cells(runs: Sequence[Run], start: int, stop: int, prefix: str) -> list[Run]:
    """Adds `prefix` to the styles of the cells from `start` to `stop`."""
    if start >= stop:
        return [*runs]
    middle = [(part, prefix + key) for part, key in cut_runs(runs, start, stop)]
    return [*cut_runs(runs, 0, start), *middle, *cut_runs(runs, stop, width(runs))]


def overlay(
    runs: Sequence[Run], start: int, new: list[Run], *, whole_words: bool = False
) -> list[Run]:
    """Writes `new` over the cells from `start` on. `whole_words`: removes partly covered words."""
    stop, chars = start + width(new), text(runs)
    first, last, non_word_chars = start, stop, " " + theme.RULE + theme.STROKE
    while whole_words and 0 < first <= len(chars) and chars[first - 1] not in non_word_chars:
        first -= 1
    while whole_words and last < len(chars) and chars[last] not in non_word_chars:
        last += 1
    left_runs = [*cut_runs(runs, 0, first), (" " * (start - first), "text")]
    return [*left_runs, *new, (" " * (last - stop), "text"), *cut_runs(runs, last, len(chars))]


@lru_cache(maxsize=4096)
def safe_cells(value: object) -> str:
    """Makes untrusted text safe to draw: one cell for each character, no control characters."""
    raw = str(value)
    if raw.isascii() and raw.isprintable():
        return raw
    return NON_ASCII_PATTERN.sub(
        lambda char: char[0] if cell_len(char[0]) == 1 else "?", printable(raw)
    )


def justify(left: list[Run], right: list[Run], size: int) -> list[Run]:
    """Returns a line of `size` cells with `left` at its left end and `right` at its right end."""
    gap = size - width(left) - width(right)
    return [*left, (" " * max(1, gap), "text"), *right]


Piece = tuple[int, list[Run]]
"""A part of a line that can be dropped: its rank (0 is the most important) and its runs."""


def fit_line(pieces: list[Piece], size: int, gap: int) -> list[Run]:
    """Returns a line of the pieces that fit into `size` cells, with `gap` cells between them."""
    return join_with_gaps([runs for _, runs in pieces_that_fit(pieces, size + gap, gap)], gap)


def pieces_that_fit(pieces: Sequence[Piece], room: int, gap: int) -> list[Piece]:
    """Returns the pieces that fit into `room` cells, each followed by a gap, tried by rank."""
    cells = [width(runs) + gap for _, runs in pieces]
    if sum(cells) <= room:  # the usual case
        return [*pieces]
    kept_indexes = set()
    for i in sorted(range(len(pieces)), key=lambda i: pieces[i][0]):
        if cells[i] <= room:
            kept_indexes.add(i)
            room -= cells[i]
    return [pieces[i] for i in sorted(kept_indexes)]


def join_with_gaps(pieces: Iterable[Sequence[Run]], gap: int) -> list[Run]:
    """Returns the pieces as one line, with `gap` cells between them."""
    line: list[Run] = []
    for i, runs in enumerate(pieces):
        if i:
            line.append((" " * gap, "text"))
        line += runs
    return line


MAX_QUIET_SHARE = 0.01
"""Maximum share (0 to 1) that is drawn dim, so that idle rows do not attract attention."""


def panel_title(
    title: str, count_text: str, size: int, after_runs: Sequence[Run] = ()
) -> list[Run]:
    """Returns a panel's first line: `title`, `count_text`, and a rule up to `after_runs`."""
    title_runs: list[Run] = [(cut(title, size), "bright")]
    room = size - width(title_runs) - width(after_runs)
    gap = " " if after_runs else ""
    if count_text and len(count_text) + 2 + 2 * len(gap) <= room:
        title_runs.append((f"  {count_text}", "dim"))
        room -= len(count_text) + 2
    rule = theme.RULE * max(0, room - 1 - len(gap))
    return merge_runs([*title_runs, (f" {rule}{gap}", "rule"), *after_runs], size)


def wrap_line(text: str, room: int) -> list[str]:
    """Returns lines of at most `room` characters, broken at " · ", else between or in words."""
    lines: list[str] = []
    open_line = ""
    for piece in text.split(" · "):
        joined_line = f"{open_line} · {piece}" if open_line else piece
        if len(joined_line) <= room:
            open_line = joined_line
            continue
        lines += [open_line] if open_line else []
        *full_lines, open_line = textwrap.wrap(piece, max(1, room), break_on_hyphens=False) or [""]
        lines += full_lines
    return [*lines, open_line] if open_line else lines


# --- Bars as runs, each with exactly the requested width.

_SMT_SHAPES = ((theme.BOTH, "bar-both"), (theme.LP0, "bar-lp0"), (theme.LP1, "bar-lp1"))
"""Shapes and styles of SMT states in a bar, a step darker than in legends: red stands out most."""
CPU_TIME_SHAPES = ((theme.USER, "user-9"), (theme.KERNEL, "kernel-9"), (theme.STEAL, "over"))


def stacked_bar(shares: Sequence[float], shapes: Sequence[Run], width: int) -> list[Run]:
    """Returns a bar of shares side by side. The rest up to 1 has the style `neither`. Rounding the
    ends of the parts, not their lengths, keeps rounding errors from adding up."""
    ends: list[int] = []
    end = 0.0
    for share in shares:
        end += share
        ends.append(round(end * width))
    return [*_cached_bar(tuple(ends), tuple(shapes), width)]


@lru_cache(maxsize=4096)
def _cached_bar(ends: Sequence[int], shapes: Sequence[Run], width: int) -> Sequence[Run]:
    """Returns the bar whose parts end at these cells. There are few different bars."""
    runs: list[Run] = []
    drawn_cells = 0
    for end, (shape, key) in zip(ends, shapes, strict=True):
        cells = min(width, end) - drawn_cells
        if cells > 0:
            runs.append((shape * cells, key))
            drawn_cells += cells
    if drawn_cells < width:
        runs.append((theme.NEITHER * (width - drawn_cells), "neither"))
    return runs


def smt_bar(states: Sequence[float], width: int) -> list[Run]:
    """Returns the bar of a core's SMT states. `states`: shares of neither, lp0, lp1 and both."""
    _, lp0, lp1, both = states
    return stacked_bar((both, lp0, lp1), _SMT_SHAPES, width)


def single_thread_bar(share: float, width: int, thread: int | None) -> list[Run]:
    """Returns the bar of one online thread: of half cells, or full ones if `thread` is None."""
    shape = (theme.BOTH, "bar-lp0") if thread is None else _SMT_SHAPES[1 + min(thread, 1)]
    return stacked_bar((share,), (shape,), width)


def smt_bounds_bar(lower_bounds: Sequence[float], width: int) -> list[Run]:
    """Returns the bar of the lower bounds of SMT states, with the rest in the style `unknown`."""
    neither, lp0, lp1, both = (0.0 if math.isnan(share) else share for share in lower_bounds)
    undetermined = 1 - neither - lp0 - lp1 - both
    return stacked_bar(
        (both, lp0, lp1, undetermined), (*_SMT_SHAPES, (theme.UNKNOWN, "unknown")), width
    )


# --- Values drawn as cells: steps of the heat ramp (levels), as colours or as characters of
# increasing density; and small histories beside numbers.

UNKNOWN_LEVEL, OFFLINE_LEVEL = -1, -2
"""Levels (steps of the heat ramp) of an unknown value and of an offline CPU."""
ASCII_HEAT = "_:;=+co*#&%@"
"""The heat ramp in ASCII, from sparse to dense. These characters have no other use on screen."""
MIN_LETTER_STEP = 3
"""Lowest step in whose own colour ASCII characters are drawn. Lower steps would be too dark."""
_RUNS: dict[int, Run] = {UNKNOWN_LEVEL: ("–", "faint"), OFFLINE_LEVEL: (theme.NEITHER, "neither")}


@lru_cache(maxsize=256)
def level_cell(level: int, width: int, ascii_: bool) -> tuple[Run, ...]:
    """Returns the cell of a level: a step of the heat ramp, UNKNOWN_LEVEL or OFFLINE_LEVEL."""
    if level < 0:
        char, key = _RUNS[level]
        return ((f"{char:^{width}}", key),)
    if ascii_:
        return ((ASCII_HEAT[level] * width, f"heat{max(MIN_LETTER_STEP, level)}"),)
    return ((theme.BOTH * width, f"heat{level}"),)


@lru_cache(maxsize=1024)
def level_pair_cells(upper: int, lower: int, width: int, ascii_: bool) -> tuple[Run, ...]:
    """Returns cells for two levels in one line: one above the other or, in ASCII, side by side."""
    if ascii_:
        return (*level_cell(upper, width // 2, ascii_), *level_cell(lower, width // 2, ascii_))
    if upper == lower or max(upper, lower) < 0:
        return level_cell(max(upper, lower), width, ascii_)
    if min(upper, lower) >= 0:
        return ((theme.LP0 * width, f"heat{upper}/heat{lower}"),)
    shape = theme.LP0 if upper >= 0 else theme.LP1
    both_known: Run = (shape * max(1, width - 1), f"heat{max(upper, lower)}")
    return (both_known, _RUNS[min(upper, lower)]) if width > 1 else (both_known,)


def heat_ramp(*, ascii_: bool) -> list[Run]:
    """Returns the cells of all steps of the heat ramp, the lowest first."""
    return [level_cell(level, 1, ascii_)[0] for level in range(theme.HEAT_STEPS)]


# --- histories beside numbers: one cell for each interval, the newest at the right

MIN_DRAWN_SHARE = 0.02
"""Smallest share that is drawn in a history."""
_NOT_DRAWN = 0


def heat_steps(shares: Floats) -> Codes:
    """Returns shares (0 to 1) as steps from 1 to theme.HEAT_STEPS; 0 where nothing is drawn."""
    known_shares = np.fmax(shares, 0.0)
    heat_steps = np.minimum(np.ceil(known_shares * theme.HEAT_STEPS), theme.HEAT_STEPS)
    return np.where(known_shares < MIN_DRAWN_SHARE, _NOT_DRAWN, heat_steps).astype(np.uint8)


_HALF_STEPS = theme.HEAT_STEPS + 1
"""Number of values of half a cell: 0 for unknown or not drawn, or a step from `heat_steps`."""


def pack_step_pairs(upper: Ints | Codes, lower: Ints | Codes) -> Ints | Codes:
    """Returns indexes in `half_cells` of cells that show two threads each, from their steps."""
    return upper * _HALF_STEPS + lower


@cache
def half_cells(*, ascii_: bool) -> list[Run]:
    """Returns cells for all pairs of steps: one above the other or, in ASCII, only the first."""
    cells: list[Run] = []
    for upper, lower in product(range(UNKNOWN_LEVEL, theme.HEAT_STEPS), repeat=2):
        if max(upper, lower) < 0:
            cells.append((" ", "text"))
        elif ascii_:
            shape, _ = level_cell(upper, 1, ascii_)[0]
            cells.append((shape, f"heat{max(MIN_LETTER_STEP, upper)}"))
        else:
            cells += level_pair_cells(upper, lower, 1, ascii_)
    return cells


@cache
def step_run(step: int, *, ascii_: bool) -> Run:
    """Returns the run for a step from `heat_steps`. Height and brightness both show the share."""
    if not step:
        return " ", "text"
    levels = theme.ASCII_LEVELS if ascii_ else theme.LEVELS
    return levels[round(8 * step / theme.HEAT_STEPS)], f"heat{step - 1}"


@lru_cache(maxsize=4096)
def history_runs(cells: bytes, *, pair: bool, ascii_: bool) -> tuple[Run, ...]:
    """Returns the runs of a history from codes of `heat_steps` or, with `pair`, `pack_step_pairs`.
    ASCII cannot draw pairs."""
    pairs = half_cells(ascii_=False)
    runs = [pairs[cell] if pair else step_run(cell, ascii_=ascii_) for cell in cells]
    return tuple(join_cells(runs))


def bar_heights(values: Floats, top: float) -> Codes:
    """Returns heights from 1 to 8 eighths, or 0 for unknown values. `top`: value of 8 eighths."""
    with np.errstate(invalid="ignore", divide="ignore"):
        eighths = np.minimum(np.maximum(np.ceil(8 * values / top), 1), 8)
    return np.where(np.isfinite(eighths), eighths, _NOT_DRAWN).astype(np.uint8)


@lru_cache(maxsize=4096)
def bar_runs(cells: bytes, key: str, first_lost: int, *, ascii_: bool) -> tuple[Run, ...]:
    """Returns the runs for heights from `bar_heights`, in red from the cell `first_lost` on."""
    levels = theme.ASCII_LEVELS if ascii_ else theme.LEVELS
    chars = "".join([levels[cell] for cell in cells])
    first_lost = max(first_lost, len(chars) - len(chars.lstrip()))
    return (chars[:first_lost], key), (chars[first_lost:], "alarm")
