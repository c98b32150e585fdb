"""Lines made of runs: their text and width, cutting, joining, and fitting pieces into a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len

from perftop.base.text import printable
from perftop.draw import theme
from perftop.draw.columns import Run, fit

Line = tuple[list[Run], theme.Mood]
"""A line of the screen; its mood chooses the background."""
BLANK: Line = ([], "calm")

_GROUNDED = frozenset({"badge", "paused", "lost"})
"""Styles with a background of their own; every `upper/lower` has one too."""


def grounded(key: str) -> bool:
    """Whether the style has a background that is not the line's."""
    return key in _GROUNDED or "/" in key


def text(runs: Iterable[Run]) -> str:
    return "".join(part for part, _ in runs)


def width(runs: Iterable[Run]) -> int:
    return sum([len(part) for part, _ in runs])


def fit_runs(runs: list[Run], size: int, style: str) -> list[Run]:
    """The runs padded to exactly `size` cells; if they are longer, their text cut, in one style."""
    spare = size - width(runs)
    return [*runs, (" " * spare, "text")] if spare >= 0 else [(fit(text(runs), size), style)]


def joined(runs: Iterable[Run]) -> list[Run]:
    """Neighbours of one style become one run."""
    return [
        ("".join([part for part, _ in same]), key) for key, same in groupby(runs, key=itemgetter(1))
    ]


def merged(runs: Iterable[Run], size: int) -> list[Run]:
    """A line of exactly `size` cells; neighbours of one style become one run."""
    return [*_merged(tuple(runs), size)]


@lru_cache(maxsize=512)
def _merged(runs: tuple[Run, ...], size: int) -> Sequence[Run]:
    """Cached, as most lines stay the same from one refresh to the next."""
    done: list[Run] = []
    held, key, left = "", "text", size
    for part, style in runs:
        left -= len(part)
        # A space looks the same in all styles with the same background.
        if style == key or (
            part.isspace() and not (grounded(key) or grounded(style) or _borrowed(held))
        ):
            held += part
        elif part:
            if held:
                done.append((held, key))
            held, key = part, style
    if grounded(key) or (left > 0 and _borrowed(held)):
        done.append((held, key))
        held, key = "", "text"
    done.append((held + " " * left, key))
    return [run for run in (_cut(done, size) if left < 0 else done) if run[0]]


def _borrowed(text: str) -> bool:
    """Whether the text ends with a character that browsers take from another font. Its width is
    right for a run as a whole, so blanks in the same run would move the text before them."""
    last = text[-1:]
    return "\u2800" <= last <= "\u28ff" or last == theme.LIMIT


def _cut(runs: list[Run], size: int) -> list[Run]:
    kept = []
    for part, key in runs:
        kept.append((part[:size], key))
        size -= min(size, len(part))
        if not size:
            break
    return kept


@lru_cache(maxsize=4096)
def foreign(value: object) -> str:
    """Untrusted text made safe to draw: no control characters, every character one cell wide."""
    raw = str(value)
    if raw.isascii() and raw.isprintable():
        return raw
    return "".join(c if cell_len(c) == 1 else "?" for c in printable(raw))


def spread(left: list[Run], right: list[Run], size: int) -> list[Run]:
    """A line with `left` at its left end and `right` at its right end."""
    gap = size - width(left) - width(right)
    return [*left, (" " * max(1, gap), "text"), *right]


Piece = tuple[int, list[Run]]
"""A part of a line, after its rank: 0 is the most important."""


def shed(pieces: list[Piece], size: int, gap: int) -> list[Run]:
    """The pieces that fit into a line, with gaps between them."""
    return gapped([runs for _, runs in fitting(pieces, size + gap, gap)], gap)


def fitting(pieces: Sequence[Piece], room: int, gap: int) -> list[Piece]:
    """The pieces that fit into `room` cells if a gap follows each: the important ones first, then
    each that still fits."""
    cells = [width(runs) + gap for _, runs in pieces]
    if sum(cells) <= room:  # mostly
        return [*pieces]
    kept = set()
    for i in sorted(range(len(pieces)), key=lambda i: pieces[i][0]):
        if cells[i] <= room:
            kept.add(i)
            room -= cells[i]
    return [pieces[i] for i in sorted(kept)]


def gapped(pieces: Iterable[Sequence[Run]], gap: int) -> list[Run]:
    """The pieces with gaps between them."""
    line: list[Run] = []
    for i, runs in enumerate(pieces):
        if i:
            line.append((" " * gap, "text"))
        line += runs
    return line


QUIET = 0.01
"""Shares below this are drawn dim, so that idle rows recede."""
