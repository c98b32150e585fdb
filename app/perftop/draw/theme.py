"""Colours and shapes. A style key names a meaning; this module defines how it looks in each theme.

Colour repeats what a shape or a number already says, so NO_COLOR and a monochrome terminal lose
nothing. Where the locale is not UTF-8 every shape has a plain stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from perfprobe.frozen import frozen
from perftop.draw import area_colours

Mood = Literal["calm", "chosen", "stale", "victim", "chosen victim"]
"""How a line is drawn: as usual, as the selected one, as numbers that no longer move, or as a line
on which an episode runs."""

_HEAT_DARK = (
    "#16263d", "#163a5f", "#17527a", "#1b6f86", "#24887f", "#3f9d6d",
    "#72ab54", "#a9b544", "#d6b83c", "#efc04f", "#f8d27a", "#fde9b3",
)  # fmt: skip
HEAT = len(_HEAT_DARK)
"""Number of steps of the heat ramp; `heat0` is the lowest."""


@frozen
class Palette:
    """Colours by key, as rich names them."""

    colors: dict[str, str]
    heat: tuple[str, ...]
    """Colours from low to high; their luminance moves away from that of the background."""
    ground: str
    chosen: str
    """Background of the selected line."""
    victim: str
    """Background of a line on which an episode runs."""
    chosen_victim: str
    dark: bool = True
    ansi: bool = False
    """The palette uses only the terminal's own colours, on its own background."""


_GREY = {
    "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#7d8590", "faint": "#484f58",
    "rule": "#262c36", "neither": "#343b45", "unknown": "#6e7681",
}  # fmt: skip
_DARK = _GREY | {
    "both": "#f0b429", "lp0": "#58a6ff", "lp1": "#bc8cff", "clock": "#3fb950", "alarm": "#ff6b5e",
    "warn": "#f78c3d", "cyan": "#39c5cf", "key": "#58a6ff", "field": "#6ca29b", "ipc": "#2f767c",
    "taker": "#e8a39b", "bar-both": "#cf9a27", "bar-lp0": "#4a8bd8", "bar-lp1": "#9f79d8",
}  # fmt: skip
_SAFE = _GREY | {
    "both": "#fdf06a", "lp0": "#3f8fff", "lp1": "#eac0e4", "clock": "#2fae9b", "alarm": "#e2585f",
    "warn": "#f58700", "cyan": "#a6e8fa", "key": "#3f8fff", "field": "#8fa3ad", "ipc": "#5c7f96",
    "taker": "#dca6a2", "bar-both": "#dccf55", "bar-lp0": "#3a80e0", "bar-lp1": "#cfa8c9",
}  # fmt: skip
_LIGHT = {
    "text": "#24292f", "bright": "#0d1117", "dim": "#57606a", "faint": "#8c959f",
    "rule": "#d0d7de", "both": "#bf8700", "lp0": "#0969da", "lp1": "#8250df",
    "neither": "#afb8c1", "unknown": "#8c959f", "clock": "#1a7f37", "alarm": "#cf222e",
    "warn": "#a85400", "cyan": "#1b7c83", "key": "#0969da", "field": "#2f7f77", "ipc": "#5fa8a1",
    "taker": "#a8443c", "bar-both": "#cf9712", "bar-lp0": "#3a86de", "bar-lp1": "#9468dc",
}  # fmt: skip
# Normal and bright colours are alike in many palettes, bright black is grey in some, and the
# background may be light. So every meaning has its own hue, and quiet text is dimmed.
_ANSI = {
    **dict.fromkeys(("text", "bright", "both", *_GREY), "default"),
    "lp0": "bright_blue", "lp1": "bright_magenta", "clock": "green", "alarm": "bright_red",
    "warn": "yellow", "cyan": "cyan", "key": "bright_blue", "field": "cyan", "ipc": "cyan",
    "taker": "bright_red", "bar-both": "default", "bar-lp0": "bright_blue",
    "bar-lp1": "bright_magenta",
}  # fmt: skip
PALETTES = {
    "perftop-dark": Palette(
        _DARK, _HEAT_DARK, "#0d1117", "#1a212b", "#27171c", "#3a1f24"
    ),
    "perftop-light": Palette(
        _LIGHT,
        ("#fbf3dc", "#f3e2ae", "#e6cf7f", "#cfbe5c", "#a8ae54", "#7f9f5c",
         "#56906a", "#348074", "#226d79", "#1b5876", "#17426a", "#122b52"),
        "#ffffff", "#e8eef5", "#fdecea", "#f8d5d2", dark=False,
    ),
    "perftop-safe": Palette(  # no meaning rests on red against green
        _SAFE,
        ("#012a52", "#1f3b60", "#354d6f", "#4b5f7b", "#66717f", "#7f8383",
         "#979483", "#b0a581", "#c8b67d", "#dcc87b", "#f0d978", "#ffeb74"),
        "#0d1117", "#1a212b", "#27171c", "#3a1f24",
    ),
    "perftop-ansi": Palette(
        _ANSI,
        tuple(name for name in ("blue", "cyan", "bright_green", "bright_yellow") for _ in range(3)),
        "default", "default", "default", "default", ansi=True,
    ),
}  # fmt: skip
_BOLD = frozenset({"bright", "alarm", "key"})
_QUIET = frozenset({"dim", "faint", "rule", "neither", "unknown"})
_GROUNDED = {"badge": "lp0", "paused": "warn", "lost": "alarm"}
"""Styles with a background of their own, and the key of its colour."""
_STALE = 0.55
"""How far the colours of a dead stream move to the background; they stay readable."""


def _theme(name: str, palette: Palette) -> Theme:
    colors = palette.colors
    if palette.ansi:
        colors = {key: f"ansi_{color}" for key, color in colors.items()}
        ground, variables = "ansi_default", _ANSI_VARIABLES
    else:
        ground = palette.ground
        variables = {"rule": colors["rule"], "dim": colors["dim"], "chosen": palette.chosen}
    return Theme(
        name,
        primary=colors["lp0"],
        secondary=colors["lp1"],
        accent=colors["key"],
        warning=colors["warn"],
        error=colors["alarm"],
        success=colors["clock"],
        foreground=colors["text"],
        background=ground,
        surface=ground,
        panel="ansi_default" if palette.ansi else palette.chosen,
        dark=palette.dark,
        variables=variables,
        ansi=palette.ansi,
    )


_ANSI_VARIABLES = {
    "rule": "ansi_blue", "dim": "ansi_bright_blue", "chosen": "ansi_blue",
    "block-cursor-foreground": "ansi_black", "block-cursor-background": "ansi_cyan",
    # Textual uses these, but does not define them for a custom ANSI theme.
    "ansi-background": "ansi_default", "ansi-foreground": "ansi_default",
    "foreground-disabled": "ansi_default", "surface-active": "ansi_default",
}  # fmt: skip
THEMES = tuple(_theme(name, palette) for name, palette in PALETTES.items())


def names(*, no_color: bool) -> tuple[str, ...]:
    """Themes to choose from. Without colour the ANSI theme is left out: the brightness of the
    terminal's own colours is unknown, so no grey can replace them."""
    return tuple(name for name, palette in PALETTES.items() if not (palette.ansi and no_color))


@lru_cache(maxsize=32)
def styles(name: str, mood: Mood = "calm") -> dict[str, Style]:
    """Rich styles by key. Every style has a background, so the compositor need not mix any."""
    palette = PALETTES[name]
    colors = palette.colors | {f"heat{i}": color for i, color in enumerate(palette.heat)}
    colors |= {f"field{i}": color for i, color in enumerate(_field(palette))}
    colors |= area_colours.colours(name)
    colors |= {"black": "black", "white": "bright_white"} if palette.ansi else _LETTERS
    made = (_of_terminal if palette.ansi else _mixed)(palette, colors, mood)
    for key, color in _GROUNDED.items():
        ink = "black" if palette.ansi else palette.ground
        made[key] = Style(color=ink, bgcolor=colors[color], bold=not palette.ansi)
    made["mark"] = made["key"]
    return made


def _field(palette: Palette) -> Sequence[str]:
    """Colours of one hue from low to high, for histories beside numbers."""
    if palette.ansi:
        return palette.heat
    ground, top = Color.parse(palette.ground), Color.parse(palette.colors["field"])
    return [ground.blend(top, (step + 1) / HEAT).hex for step in range(HEAT)]


_LETTERS = {"black": "#000000", "white": "#ffffff"}
"""Letter colours; on every step of a ramp one of the two is readable."""


def letters(name: str) -> tuple[str, ...]:
    """The style key of letters on each step of the ramp, in the form `upper/lower`."""
    palette = PALETTES[name]
    deep = [color == "blue" if palette.ansi else _is_deep(color) for color in palette.heat]
    return tuple(f"{'white' if it else 'black'}/heat{i}" for i, it in enumerate(deep))


def _is_deep(color: str) -> bool:
    """Whether white has more contrast to the colour than black."""
    r, g, b = (math.pow(part, 2.2) for part in Color.parse(color).normalized)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18


def _mixed(palette: Palette, colors: dict[str, str], mood: Mood) -> dict[str, Style]:
    back = {
        "chosen": palette.chosen, "victim": palette.victim, "chosen victim": palette.chosen_victim,
    }.get(mood, palette.ground)  # fmt: skip
    if back != palette.ground:  # faint would be invisible on the brighter row
        raised = {"faint": colors["dim"], "neither": colors["dim"], "rule": colors["faint"]}
        colors = colors | raised
    made = {}
    for key, color in colors.items():
        fore = _muted(color, palette.ground) if mood == "stale" else color
        made[key] = Style(color=fore, bgcolor=back, bold=key in _BOLD and mood != "stale")
    return made


def _of_terminal(palette: Palette, colors: dict[str, str], mood: Mood) -> dict[str, Style]:
    """Styles in the terminal's colours. These cannot be mixed, so the selected line is bold and a
    dead stream is dimmed."""
    made = {}
    for key, color in colors.items():
        stale, quiet = mood == "stale", key in _QUIET
        bold = not stale and (key in _BOLD or (mood.startswith("chosen") and not quiet))
        field = key.startswith(("heat", "field", "black", "white"))
        fore = color if field or not stale else palette.colors["text"]
        dim = stale or (quiet and mood in {"calm", "victim"})
        made[key] = Style(color=fore, bgcolor=palette.ground, bold=bold, dim=dim)
    return made


def _muted(color: str, ground: str) -> str:
    plain = Color.parse(color)
    level = round(255 * plain.brightness)
    grey = Color(level, level, level)
    return grey.blend(Color.parse(ground), _STALE / 2).hex


# --- shapes --------------------------------------------------------------------------------------

BOTH, LP0, LP1, NEITHER, UNKNOWN = "█", "▀", "▄", "·", "▒"
STATES = (BOTH, "both"), (LP0, "lp0"), (LP1, "lp1"), (NEITHER, "neither")
"""Shape and name of the SMT states, from the top; the name is a style too."""
USER, KERNEL, STEAL = "█", "▓", "╳"
LIMIT, EDGE = "┄", "▔"
CLOCK, CLOCK_END, CEILING, DROPPED = "━", "╸", "┃", "▼"
ESTIMATE = "≈"
"""Before a number of an event that took turns on the counters."""
SUSPECT, MISSING, CHOSEN, RULE, STEP, CUT = "≁", "n/a", "▌", "─", "┴", "…"
RISING, FALLING, TAKEN_BY = "▲", "▼", "◂"
CURSOR = "▸", "◂"
"""On both sides of the selected cell, where a line has several."""
EPISODES = {
    "turbo-drop": DROPPED, "throttle": "■", "involuntary-halt": "║", "neighbour": "◐",
    "steal": STEAL, "license": "◊", "smi": "!", "ramp": "╱", "suspect": SUSPECT, "offline": "○",
    "online": "•",
}  # fmt: skip
"""Signs of the kinds of episodes, the worst kind first."""
LEVELS = " ▁▂▃▄▅▆▇█"
LEVELS_PLAIN = " .:-=+*%@"
