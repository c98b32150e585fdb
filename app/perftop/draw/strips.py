"""Functions for lines made of runs: get their text and width, cut and join them, and fit pieces
into a line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby

from rich.cells import cell_len

from perftop.base.text import NOT_PLAIN, printable
from perftop.draw import theme
from perftop.draw.columns import Run, fit

Line = tuple[list[Run], theme.Mood]
"""A line of the screen: its runs, and its mood, which chooses the background."""
BLANK: Line = ([], "calm")

_WITH_BACKGROUND = frozenset({"label", "badge", "paused", "lost"})
"""Styles with their own background; every style of the form `upper/lower` has one too."""


def has_own_background(key: str) -> bool:
    """Returns whether the style has its own background instead of the line's."""
    return key in _WITH_BACKGROUND or "/" in key


def text(runs: Iterable[Run]) -> str:
    return "".join([part for part, _ in runs])


def width(runs: Iterable[Run]) -> int:
    return len("".join([part for part, _ in runs]))


def fit_runs(runs: list[Run], size: int, style: str) -> list[Run]:
    """Returns the runs padded to exactly `size` cells. If they are longer, returns their text cut
    to `size` cells, in the style `style`."""
    if (spare_cells := size - width(runs)) >= 0:
        return [*runs, (" " * spare_cells, "text")]
    return [(fit(text(runs), size), style)]


def join_cells(cells: Sequence[Run]) -> list[Run]:
    """Returns cells of one sign each as runs."""
    if not cells:
        return []
    signs, styles = zip(*cells, strict=True)
    return runs_of("".join(signs), styles)


def runs_of(signs: str, styles: tuple[str, ...]) -> list[Run]:
    """Returns the runs of a line, given the sign and the style of each cell. Neighbouring cells of
    one style form one run."""
    return [*_runs_of(signs, styles)]


@lru_cache(maxsize=512)
def _runs_of(signs: str, styles: tuple[str, ...]) -> Sequence[Run]:
    """Like `runs_of`, but cached, because most lines stay the same between refreshes."""
    runs, begin = list[Run](), 0
    for style, cells in groupby(styles):
        end = begin + len([*cells])
        runs.append((signs[begin:end], style))
        begin = end
    return runs


def merge_runs(runs: Iterable[Run], size: int) -> list[Run]:
    """Returns a line of exactly `size` cells, with neighbouring runs of one style joined."""
    return [*_merge_runs(tuple(runs), size)]


@lru_cache(maxsize=512)
def _merge_runs(runs: tuple[Run, ...], size: int) -> Sequence[Run]:
    """Like `merge_runs`, but cached, because most lines stay the same between refreshes."""
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
    fitting_runs = cut(merged_runs, 0, size) if cells_left < 0 else merged_runs
    return [run for run in fitting_runs if run[0]]


def _ends_in_fallback_font(text: str) -> bool:
    """Returns whether the text ends with a character that browsers draw in a fallback font. The
    browser keeps only the total width of such a run, so blanks in the same run would shift the text
    before them."""
    last_sign = text[-1:]
    return "\u2800" <= last_sign <= "\u28ff" or last_sign == theme.LIMIT


def cut(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    """Returns the cells from `start` to before `stop`."""
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
    """Returns the runs with this prefix before the styles of the cells from `start` to `stop`."""
    if start >= stop:
        return [*runs]
    middle = [(part, prefix + key) for part, key in cut(runs, start, stop)]
    return [*cut(runs, 0, start), *middle, *cut(runs, stop, width(runs))]


def overlay(
    runs: Sequence[Run], start: int, new: list[Run], *, whole_words: bool = False
) -> list[Run]:
    """Returns the runs with `new` in place of the cells from `start` on. `whole_words`: words that
    `new` covers in part are left out."""
    stop, signs = start + width(new), text(runs)
    first, last = start, stop
    while whole_words and 0 < first <= len(signs) and signs[first - 1 : first].strip():
        first -= 1
    while whole_words and last < len(signs) and signs[last].strip():
        last += 1
    before = [*cut(runs, 0, first), (" " * (start - first), "text")]
    return [*before, *new, (" " * (last - stop), "text"), *cut(runs, last, len(signs))]


@lru_cache(maxsize=4096)
def safe_cells(value: object) -> str:
    """Returns untrusted text made safe to draw: without control characters, and with every
    character one cell wide."""
    raw = str(value)
    if raw.isascii() and raw.isprintable():
        return raw
    return NOT_PLAIN.sub(lambda sign: sign[0] if cell_len(sign[0]) == 1 else "?", printable(raw))


def spread(left: list[Run], right: list[Run], size: int) -> list[Run]:
    """Returns a line of `size` cells with `left` at its left end and `right` at its right end."""
    gap = size - width(left) - width(right)
    return [*left, (" " * max(1, gap), "text"), *right]


Piece = tuple[int, list[Run]]
"""The rank of a part of a line, and its runs. Rank 0 is the most important."""


def fit_line(pieces: list[Piece], size: int, gap: int) -> list[Run]:
    """Returns a line of the pieces that fit into `size` cells, with gaps between them."""
    return join_with_gaps([runs for _, runs in pieces_that_fit(pieces, size + gap, gap)], gap)


def pieces_that_fit(pieces: Sequence[Piece], room: int, gap: int) -> list[Piece]:
    """Returns the pieces that fit into `room` cells if a gap follows each piece. Pieces are tried
    by rank, and each piece that still fits is kept."""
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


QUIET_SHARE = 0.01
"""Shares below this are drawn dim, so that idle rows recede."""


def panel_title(word: str, count_text: str, size: int, after_runs: Sequence[Run] = ()) -> list[Run]:
    """Returns the first line of a panel: the bold title `word`, the dim text `count_text`, and a
    thin rule up to the end of the line or up to the runs `after_runs`."""
    title_runs: list[Run] = [(fit(word, min(len(word), size)), "bright")]
    room = size - width(title_runs) - width(after_runs)
    if count_text and len(count_text) + 2 <= room:
        title_runs.append((f"  {count_text}", "dim"))
        room -= len(count_text) + 2
    gap = " " if after_runs else ""
    rule = theme.RULE * max(0, room - 1 - len(gap))
    return merge_runs([*title_runs, (f" {rule}{gap}", "rule"), *after_runs], size)


def wrapped_lines(text: str, room: int) -> list[str]:
    """Returns the text in lines of at most `room` characters. Lines are broken between pieces of
    evidence if possible, else between words, else within a word."""
    lines: list[str] = []
    open_line = ""
    for piece in text.split(" · "):
        joined_line = f"{open_line} · {piece}" if open_line else piece
        if len(joined_line) <= room:
            open_line = joined_line
            continue
        lines += [open_line] if open_line else []
        *full_lines, open_line = textwrap.wrap(piece, room, break_on_hyphens=False) or [""]
        lines += full_lines
    return [*lines, open_line] if open_line else lines
