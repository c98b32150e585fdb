"""Lines that are ready for the terminal: strips that cache their escape sequences.

Textual makes segments of a strip, cuts them, applies filters and turns each into a sequence of its
own; for whole lines that change ten times a second this is most of their cost. A `Ready` holds the
text that goes to the terminal. If something covers it, or only a part of it is painted, it acts as
an ordinary strip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import Monochrome
from textual.strip import Strip

from perftop.base.text import plain, printable
from perftop.draw import eight_bit, theme
from perftop.draw.moving import Row, moving
from perftop.draw.strips import Run, grounded, merged, width

_RESET = "\x1b[0m"


class _Styles(dict[str, Style]):
    """Styles by key. A key `upper/lower` gives the colour of one style on that of another, for
    cells of two colours; letters keep their weight."""

    def __missing__(self, key: str) -> Style:
        upper, _, lower = key.partition("/")
        fore = self[upper]
        made = self[key] = Style(color=fore.color, bgcolor=self[lower].color, bold=fore.bold)
        return made


class Ink:
    """Styles by key, with the escape sequences that switch a terminal to each."""

    def __init__(self, styles: Mapping[str, Style], system: ColorSystem) -> None:
        self.styles = _Styles(styles)
        self.system = system
        self._switches: dict[str, _Switch] = {}

    def write(self, runs: Iterable[Run], size: int) -> str:
        """The runs with their escape sequences, and blanks up to `size` cells. Runs of one style
        share a sequence, blanks need none where the background stays the same, and only the
        letter colour is switched where nothing else changes, as it mostly does. What has no key,
        such as `_go`, is written as it is."""
        parts: list[str] = []
        append, switches = parts.append, self._switches
        last, ground, field = "", None, False
        for text, key in (*runs, (" " * size, "text")) if size else runs:
            if key != last and key:
                mine, whole, fore, own = switches.get(key) or self._switch(key)
                if not text:
                    continue
                if own or field or ground is None or not text.isspace():
                    append(fore if mine == ground else whole)
                    last, ground, field = key, mine, own
            append(text)
        append(_RESET)
        return "".join(parts)

    def _switch(self, key: str) -> _Switch:
        style = self.styles[key]
        whole = _codes(style, self.system).replace("\x1b[", "\x1b[0;", 1) or _RESET
        fore = _codes(Style(color=style.color), self.system)
        ground = style.bgcolor, style.bold, style.dim, style.reverse
        made = self._switches[key] = ground, whole, fore, grounded(key)
        return made


_Switch = tuple[object, str, str, bool]
"""All of a style but its letter colour, the sequence that switches to the whole style, the one that
switches to the letter colour alone, and whether the style has a background of its own."""


def _codes(style: Style, system: ColorSystem) -> str:
    """The sequence that rich puts before text of this style."""
    return style.render("|", color_system=system).partition("|")[0]


def ink(app: App[Any], mood: theme.Mood = "calm") -> Ink:
    """The ink for the current theme on this app's terminal."""
    system = app.console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Strip.render does
    return _ink(app.current_theme.name, mood, app.no_color, system)


@lru_cache(maxsize=32)
def _ink(name: str, mood: theme.Mood, no_color: bool, system: ColorSystem) -> Ink:
    styles = theme.styles(name, mood)
    if no_color:
        grey, ground = Monochrome(), Color.parse("black")
        drawn = {key: grey.apply([Segment("|", style)], ground) for key, style in styles.items()}
        styles = {key: segments[0].style or Style() for key, segments in drawn.items()}
        # Grey red is darker than the words around it.
        styles |= dict.fromkeys(("alarm", "warn"), styles["bright"])
    if system is ColorSystem.EIGHT_BIT and not theme.PALETTES[name].ansi:
        styles = {key: eight_bit.reduced(style) for key, style in styles.items()}
    return Ink(styles, system)


def _go(x: int, y: int) -> str:
    """The sequence that moves the cursor to this cell of the screen."""
    return f"\x1b[{y + 1};{x + 1}H"


def _come(row: Row, x: int, y: int) -> str:
    """The sequences that move the row before this one, which begins at this cell, and then the
    cursor to the first cell that is new."""
    there = _go(x + row.size - len(row.tail), y)
    return f"{_go(x, y)}\x1b[{row.gone}P{there}\x1b[{row.gone}@" if row.gone else there


class Ready(Strip):
    """A line of exactly `size` cells: the runs, followed by blanks."""

    # The attributes of an ordinary strip are made when they are first read.
    __slots__ = ["_ready", "ink", "runs", "wide"]

    def __init__(self, runs: Sequence[Run], wide: int, ink: Ink, size: int) -> None:
        self.runs, self.wide = runs, wide
        """The text and its cells, at most `size`."""
        self.ink = ink
        self._cell_length = size
        self._ready: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in Strip.__slots__:
            raise AttributeError(name)
        styles = self.ink.styles
        super().__init__(
            [Segment(text, styles[key]) for text, key in merged(self.runs, self.cell_length)],
            self._cell_length,
        )
        return object.__getattribute__(self, name)

    def render(self, console: Console) -> str:
        if console._color_system is not self.ink.system:  # noqa: SLF001 - a screenshot, say
            return super().render(console)
        if self._ready is None:
            self._ready = self.ink.write(self.runs, self.cell_length - self.wide)
        return self._ready

    def moved(self, shown: Strip, x: int, y: int, console: Console) -> str | None:
        """What makes this line of `shown`, the line at this place of the terminal; None: it must be
        drawn as a whole. Runs that are equal at both ends of the lines are left as they are."""
        if not isinstance(shown, Ready) or shown.ink is not self.ink or shown.wide != self.wide:
            return None
        if console._color_system is not self.ink.system:  # noqa: SLF001 - as in `render`
            return None
        old, new = shown.runs, self.runs
        first, last, at = 0, len(new), x
        for before, after in zip(old, new, strict=False):
            if before != after:
                break
            first += 1
            at += len(after[0])
        for before, after in zip(reversed(old), reversed(new), strict=False):
            if before != after:
                break
            last -= 1
        found, runs = moving(old, new, self.wide), list[Run]()
        until = last if found is None else min(last, found[0].begin)
        if first < until:
            runs += (_go(at, y), ""), *new[first:until]
        if found is not None:
            line, row = found
            if line.row is not row:
                runs += (_come(line.row, x + line.wide, y), ""), *line.row.tail
            if line.end < last:
                end = x + line.wide + line.row.size
                runs += (_go(end, y), ""), *new[line.end : last]
        return self.ink.write(runs, 0) if runs else ""

    def crop(self, start: int, end: int | None = None) -> Strip:
        size = self.cell_length
        end = size if end is None else min(end, size)
        if start == 0 and self.wide <= end:
            return self if end == size else Ready(self.runs, self.wide, self.ink, end)
        return self if (start, end) == (0, size) else self._parts([start, end])[1]

    def crop_extend(self, start: int, end: int, style: Style | None) -> Strip:
        if end > self.cell_length:
            return super().crop_extend(start, end, style)
        return self.crop(start, end)

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        at = list(cuts)
        if at == [self.cell_length]:
            return [self]
        return self._parts(at)

    def _parts(self, cuts: Sequence[int]) -> list[Ready]:
        """The parts of the line before each cut. Every character is one cell wide."""
        parts: list[Ready] = []
        runs = iter(merged(self.runs, self.cell_length))
        text, key, done = "", "text", 0
        for cut in cuts:
            part: list[Run] = []
            left = cut - done
            while left > 0:
                if not text:
                    text, key = next(runs, ("", ""))
                    if not text:
                        break
                part.append((text[:left], key))
                text, left = text[left:], left - len(text[:left])
            parts.append(Ready(part, width(part), self.ink, cut - done - left))
            done = cut - left
        return parts


def line(runs: Sequence[Run], ink_: Ink, size: int, *, ascii_: bool) -> Ready:
    """Runs as a line, cut to `size` cells."""
    whole = "".join([text for text, _ in runs])
    wide = len(whole)
    if not whole.isprintable():
        runs = [(printable(text), key) for text, key in runs]
        wide = width(runs)
    if wide > size:
        runs, wide = merged(runs, size), size
    if ascii_:
        runs = [(plain(text), key) for text, key in runs]
    return Ready(runs, wide, ink_, size)
