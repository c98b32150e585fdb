"""Painting of whole lines past Textual's queue of updates.

A refresh changes some lines of some widgets. Textual would send messages for each widget, wait for
a timer, and cut every line of the screen into pieces before it writes. Where nothing lies above the
widgets the result is known beforehand: each line as it is, at its place. This is written at once;
in all other cases Textual paints.

As long as nothing else is written, the lines of the terminal are known, too, and what has moved on
them is moved there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.color import Color
from textual.filter import Monochrome
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from perftop.base.text import plain, printable
from perftop.draw import theme
from perftop.draw.moving import Row, moving
from perftop.draw.strips import Run, grounded, merged, width

Place = tuple[int, int]
"""Column and row of the screen."""


class Lines(CompositorUpdate):
    """Lines of widgets at their places on the screen, each with its visible cells."""

    def __init__(
        self, lines: Mapping[Place, tuple[Strip, int]], shown: Mapping[Place, tuple[Strip, int]]
    ) -> None:
        """`shown`: what the terminal has at these places, as far as is known."""
        self._lines, self._shown = lines, shown

    def render_segments(self, console: Console) -> str:
        return "".join([self._written(at, *line, console) for at, line in self._lines.items()])

    def _written(self, at: Place, line: Strip, wide: int, console: Console) -> str:
        (x, y), shown = at, self._shown.get(at)
        if isinstance(line, Ready) and shown is not None and line.wide <= wide == shown[1]:
            moved = line.moved(shown[0], x, y, console)
            if moved is not None:
                return moved
        return f"\x1b[{y + 1};{x + 1}H{line.crop(0, wide).render(console)}"


def repaint(widget: Widget, lines: Mapping[int, Strip], wide: int) -> None:
    """Paints these lines of the widget, by height, the first `wide` cells of each, together with
    those of other widgets if its screen collects them."""
    screen = widget.screen
    if isinstance(screen, Direct) and screen.collected is not None:
        screen.collected.append((widget, lines, wide))
    elif len(lines) >= widget.size.height:
        widget.refresh()
    elif lines:
        widget.refresh(*(Region(0, y, wide, 1) for y in lines))


class Direct(Screen[None]):
    collected: list[tuple[Widget, Mapping[int, Strip], int]] | None = None
    """Lines to be painted together; None: each widget paints its own."""
    _seen: dict[Widget, tuple[Region, Region]] | None = None
    """The visible widgets from which `_alone` was made."""
    _alone: dict[Widget, Region]
    """Widgets above which there is nothing but what belongs to them, and their places."""
    _shown: Mapping[Place, tuple[Strip, int]] = {}
    """The lines that were written last."""
    _displays = 0
    """How often the app had drawn by then; if it has since, what is shown is not known."""

    def on_resize(self, event: events.Resize) -> None:
        """Textual calls this before it lays out. A terminal that is as large as before may have
        been smaller in between, and have lost what it showed; Textual would leave it so."""
        if event.size == self.outer_size:
            self.refresh()

    def lay_out(self) -> None:
        """Lays out now. Textual would collect messages of widgets whose height is another, and then
        wait for a timer: 25 ms later."""
        self._clear_arrangement_cache()
        self._refresh_layout()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Collects the lines that are repainted in the block, and paints them at its end."""
        self.collected = []
        try:
            yield
        finally:
            collected, self.collected = self.collected, None
            if not self._paint(collected):
                for widget, lines, wide in collected:
                    repaint(widget, lines, wide)

    def _paint(self, collected: list[tuple[Widget, Mapping[int, Strip], int]]) -> bool:
        app: Any = self.app
        waits = self._layout_required or self._scroll_required or self._repaint_required
        if waits or app.screen is not self or app._batch_count or app.is_inline:  # noqa: SLF001
            return False
        visible = self._compositor.visible_widgets
        if visible is not self._seen:
            self._seen, self._alone = visible, _alone(visible, self)
        lines: dict[Place, tuple[Strip, int]] = {}
        for widget, fresh, wide in collected:
            place = self._alone.get(widget)
            if place is None or place.width < wide:
                return False
            x, y, _, height = place
            for at, line in fresh.items():
                if at < height:
                    lines[x, y + at] = line, wide  # a scrollbar may be behind it
        if lines:
            self._write(lines)
        return True

    def _write(self, lines: dict[Place, tuple[Strip, int]]) -> None:
        app: Any = self.app
        shown = self._shown if app.displays == self._displays else {}
        app._display(self, Lines(lines, shown))  # noqa: SLF001
        self._shown, self._displays = {**shown, **lines}, app.displays


def _alone(visible: dict[Widget, tuple[Region, Region]], screen: Widget) -> dict[Widget, Region]:
    """The widgets that no other covers, without their scrollbars."""
    found: dict[Widget, Region] = {}
    for widget, (region, clip) in visible.items():
        if widget is screen or clip.intersection(region) != region:
            continue
        own = {widget, *widget.ancestors}
        others = (
            other.intersection(cut)
            for it, (other, cut) in visible.items()
            if it not in own and it.parent is not widget
        )
        if not any(other.overlaps(region) for other in others):
            found[widget] = region
    return found


# --- lines that are ready for the terminal

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
        styles = {key: theme.to_256_colours(style) for key, style in styles.items()}
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
