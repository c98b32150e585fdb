"""Colours and shapes. A style key names a meaning; its looks are decided here, once a theme.

Colour repeats what a shape or a number already says, so NO_COLOR and a monochrome terminal lose
nothing. Where the locale is not UTF-8 every shape has a plain stand-in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

Mood = Literal["calm", "chosen", "stale"]
"""How a line is drawn: as usual, as the selected one, or as numbers that no longer move."""

_DARK = {
    "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#7d8590", "faint": "#484f58",
    "rule": "#30363d", "both": "#f0b429", "lp0": "#58a6ff", "lp1": "#bc8cff",
    "neither": "#484f58", "unknown": "#6e7681", "clock": "#3fb950", "alarm": "#ff6b5e",
    "warn": "#f0b429", "cyan": "#39c5cf", "key": "#58a6ff",
}  # fmt: skip
_LIGHT = {
    "text": "#24292f", "bright": "#0d1117", "dim": "#57606a", "faint": "#8c959f",
    "rule": "#d0d7de", "both": "#bf8700", "lp0": "#0969da", "lp1": "#8250df",
    "neither": "#afb8c1", "unknown": "#8c959f", "clock": "#1a7f37", "alarm": "#cf222e",
    "warn": "#9a6700", "cyan": "#1b7c83", "key": "#0969da",
}  # fmt: skip
_HEAT_DARK = (
    "#16263d", "#163a5f", "#17527a", "#1b6f86", "#24887f", "#3f9d6d",
    "#72ab54", "#a9b544", "#d6b83c", "#efc04f", "#f8d27a", "#fde9b3",
)  # fmt: skip
_HEAT_LIGHT = (
    "#fbf3dc", "#f3e2ae", "#e6cf7f", "#cfbe5c", "#a8ae54", "#7f9f5c",
    "#56906a", "#348074", "#226d79", "#1b5876", "#17426a", "#122b52",
)  # fmt: skip
HEAT = len(_HEAT_DARK)
"""Steps of the ramp for values that are a field; `heat0` is the lowest."""
_GROUND = {True: ("#0d1117", "#1a212b"), False: ("#ffffff", "#e8eef5")}
_BOLD = frozenset({"bright", "alarm", "key"})
_STALE = 0.55
"""How far towards the background the colours of a dead stream go: still readable."""


def _theme(name: str, *, dark: bool) -> Theme:
    colors, (ground, chosen) = (_DARK if dark else _LIGHT), _GROUND[dark]
    return Theme(
        name,
        primary=colors["lp0"],
        secondary=colors["lp1"],
        accent=colors["cyan"],
        warning=colors["warn"],
        error=colors["alarm"],
        success=colors["clock"],
        foreground=colors["text"],
        background=ground,
        surface=ground,
        panel=chosen,
        dark=dark,
        variables={"rule": colors["rule"], "dim": colors["dim"], "chosen": chosen},
    )


THEMES = (_theme("perftop-dark", dark=True), _theme("perftop-light", dark=False))


@lru_cache(maxsize=8)
def styles(*, dark: bool, mood: Mood = "calm") -> dict[str, Style]:
    """Rich styles by key. Every one has a background: nothing is left for the compositor to mix."""
    colors = dict(_DARK if dark else _LIGHT)
    heat = _HEAT_DARK if dark else _HEAT_LIGHT
    colors |= {f"heat{i}": color for i, color in enumerate(heat)}
    ground, chosen = _GROUND[dark]
    back = chosen if mood == "chosen" else ground
    if mood == "chosen":  # faint on the brighter row would be lost
        colors |= {"faint": colors["dim"], "neither": colors["dim"], "rule": colors["faint"]}
    made = {}
    for key, color in colors.items():
        fore = _muted(color, ground) if mood == "stale" else color
        made[key] = Style(color=fore, bgcolor=back, bold=key in _BOLD and mood != "stale")
    made["badge"] = Style(color=ground, bgcolor=colors["lp0"], bold=True)
    made["paused"] = Style(color=ground, bgcolor=colors["warn"], bold=True)
    made["lost"] = Style(color=ground, bgcolor=colors["alarm"], bold=True)
    made["mark"] = made["key"]
    return made


def _muted(color: str, ground: str) -> str:
    plain = Color.parse(color)
    level = round(255 * plain.brightness)
    grey = Color(level, level, level)
    return grey.blend(Color.parse(ground), _STALE / 2).hex


# --- shapes --------------------------------------------------------------------------------------

BOTH, LP0, LP1, NEITHER, UNKNOWN = "█", "▀", "▄", "·", "▒"
USER, KERNEL, STEAL = "█", "▓", "╳"
CLOCK, CLOCK_END, CEILING, DROPPED = "━", "╸", "┃", "▼"
SUSPECT, MISSING, CHOSEN, RULE, CUT = "≁", "n/a", "▸", "─", "…"
LEVELS = " ▁▂▃▄▅▆▇█"
LEVELS_PLAIN = " .:-=+*%@"

PLAIN = str.maketrans({
    "█": "#", "▀": "'", "▄": ",", "·": ".", "▒": "?", "▓": "%", "╳": "x", "━": "=", "╸": "-",
    "┃": "|", "│": "|", "▼": "v", "≁": "~", "▸": ">", "─": "-", "…": ".", "µ": "u", "×": "x",
    "°": " ", "↑": "^", "↓": "v", "→": ">", "←": "<", "–": "-", "−": "-", "—": "-", "┄": "-",
})  # fmt: skip


def plain(text: str) -> str:
    """The text in ASCII, as wide as it was."""
    return text.translate(PLAIN).encode("ascii", "replace").decode()
