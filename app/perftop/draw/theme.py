"""Colours and characters of each theme, by style key: a meaning, such as `alarm`. Colour only
repeats a shape or a number, so monochrome terminals lose nothing. Shapes have ASCII substitutes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from rich.color import Color as TerminalColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import Monochrome
from textual.theme import Theme

LineState = Literal["calm", "chosen", "stale", "victim", "chosen victim"]
"""States of a line of the screen, which decide its colours. "chosen": selected. "stale": its
numbers are no longer updated. "victim": an episode affects its CPUs."""

HEAT_STEPS = 12
"""Number of colours of the heat ramp, from `heat0` (lowest) to `heat11`."""
_COLOURS: dict[str, tuple[str, str, str, str]] = {
    "text": ("#c9d1d9", "#24292f", "#c9d1d9", "default"),
    "bright": ("#f0f6fc", "#0d1117", "#f0f6fc", "default"),
    "dim": ("#7d8590", "#57606a", "#7d8590", "default"),
    "faint": ("#606873", "#868f99", "#606873", "default"),
    "rule": ("#262c36", "#d0d7de", "#262c36", "default"),
    "neither": ("#343b45", "#afb8c1", "#343b45", "default"),
    "unknown": ("#6e7681", "#8c959f", "#6e7681", "default"),
    "both": ("#f0b429", "#bf8700", "#fdf06a", "bright_yellow"),
    "lp0": ("#58a6ff", "#0969da", "#3f8fff", "bright_blue"),
    "lp1": ("#bc8cff", "#8250df", "#eac0e4", "bright_magenta"),
    "clock": ("#3fb950", "#1a7f37", "#2fae9b", "green"),
    "alarm": ("#ff6b5e", "#bb1e29", "#e2585f", "bright_red"),
    "warn": ("#f78c3d", "#a85400", "#f58700", "yellow"),
    "cyan": ("#39c5cf", "#1b7c83", "#a6e8fa", "cyan"),
    "key": ("#58a6ff", "#0969da", "#3f8fff", "bright_blue"),
    "field": ("#6ca29b", "#2f7f77", "#cadbe3", "cyan"),
    "ipc": ("#2f767c", "#5fa8a1", "#5c7f96", "cyan"),
    "culprit": ("#e8a39b", "#a03f37", "#dca6a2", "bright_red"),
    "bar-both": ("#cf9a27", "#cf9712", "#dccf55", "bright_yellow"),
    "bar-lp0": ("#4a8bd8", "#3a86de", "#3a80e0", "bright_blue"),
    "bar-lp1": ("#9f79d8", "#9468dc", "#cfa8c9", "bright_magenta"),
    "good": ("#3fb950", "#1a7f37", "#2fae9b", "green"),
    "task0": ("#4a8bd8", "#6aa3e6", "#3a80e0", "blue"),
    "task1": ("#9f79d8", "#b497ea", "#cfa8c9", "magenta"),
    "task2": ("#3f9fa6", "#5fb3ac", "#a6d8ea", "cyan"),
    "task3": ("#3f9d6d", "#6dbb7d", "#2fae9b", "green"),
    "task4": ("#a9b544", "#c9c04a", "#dccf55", "yellow"),
    "task5": ("#6e7681", "#afb8c1", "#6e7681", "default"),
    "steal": ("#84505b", "#bd8893", "#84505b", "magenta"),
    "queue": ("#96524f", "#e0938d", "#96524f", "red"),
    "hot": ("#b0443f", "#d9544f", "#b0484c", "bright_red"),
    "hot-back": ("#5c2628", "#f6c9c6", "#57282c", "default"),
    "gap-power": ("#a8423f", "#e08079", "#a8423f", "red"),
    "gap-heat": ("#a8602a", "#e0a070", "#a8602a", "yellow"),
    "gap-licence": ("#6a52a0", "#b8a3e6", "#6a52a0", "magenta"),
    "gap-ramp": ("#2b6a7a", "#93c9d6", "#2b6a7a", "cyan"),
    "gap-policy": ("#565e68", "#c4ccd4", "#565e68", "blue"),
    "gap-unknown": ("#565e68", "#c4ccd4", "#565e68", "blue"),
    "over": ("#b06b78", "#a8606e", "#b06b78", "magenta"),
    "over-back": ("#3c252d", "#f0dde1", "#3c252d", "default"),
    "chosen-back": ("#1c242d", "#e8eef5", "#1c242d", "default"),
}
"""The colour of each style key, by theme in the order of PALETTES, as a name or code for Rich.
Areas in charts, such as `hot`, are closer to the background than numbers, so that red is most
noticeable. In the last theme, which has only the terminal's own colours, each meaning has its own
hue and secondary text is dimmed: many terminals draw normal and bright colours alike, or bright
black as plain grey, and the background may be light. Only `both` shares its hue with warnings,
which are markers and numbers, never bars."""
_AREAS: dict[str, tuple[str, str, str, str]] = {
    "user": ("#1b385c-#3f7cca", "#c6daf3-#4a85d0", "#1b385c-#3f7cca", "blue"),
    "kernel": ("#2c6a76-#62b5be", "#93d3cf-#23877f", "#5a8496-#a6d8ea", "cyan"),
    "ipc": ("#174a50-#4aa9b0", "#b9e0e0-#3a979c", "#17504a-#3fb5a3", "cyan"),
    "loss": ("#4a2629-#9a4442", "#f3cdc9-#d9685f", "#4a2a2d-#9c484d", "bright_red"),
    "both": ("#946c1b-#e1a827", "#ecd59b-#c48f14", "#948c3c-#efe263", "default"),
    "lp0": ("#346cb2-#53a0f5", "#a9cbf2-#3a82d8", "#2a5fae-#4592ff", "bright_blue"),
    "lp1": ("#7a58b0-#b387f5", "#d6c4f3-#8f63d6", "#8f7690-#e3bcdd", "bright_magenta"),
    "clock": ("#153f21-#2f8a3e", "#c3e6cb-#5fb571", "#134a42-#2b9484", "green"),
}
"""The colours of filled areas at the base and at the top of a chart, by theme, or the only colour.
Style keys end with the number of the step between them, such as `user-0`."""
AREA_STEPS = 12
"""Number of colours of a filled area, from its base outwards: `user-0` to `user-11`."""
_ANSI_HEAT = "blue", "cyan", "bright_green", "bright_yellow"


@dataclass(frozen=True)
class Palette:
    column: int
    """Index of the theme in the rows of _COLOURS and _AREAS."""
    background: str
    selected_background: str
    """Background of the selected line."""
    victim_background: str
    """Background of a line with a running episode."""
    selected_victim_background: str
    dark: bool = True
    ansi: bool = False
    """Whether only the terminal's own colours are used, on its own background."""

    @cached_property
    def colors(self) -> dict[str, str]:
        """Colours by style key, except those that `area_colours` and `heat_colours` return."""
        return {key: row[self.column] for key, row in _COLOURS.items()} | {
            "ground": self.background
        }

    @cached_property
    def area_colours(self) -> dict[str, str]:
        """Colours of the steps of filled areas, by style key."""
        area_colours = {}
        for key, row in _AREAS.items():
            low, _, high = row[self.column].partition("-")
            for step in range(AREA_STEPS):
                area_colours[f"{key}-{step}"] = low
                if high:
                    color = Color.parse(low).blend(Color.parse(high), (step + 0.5) / AREA_STEPS)
                    area_colours[f"{key}-{step}"] = color.hex
        return area_colours

    @cached_property
    def heat_colours(self) -> Sequence[str]:
        """Colours of the heat ramp, in order of increasing contrast."""
        if self.ansi:
            return [name for name in _ANSI_HEAT for _ in range(HEAT_STEPS // len(_ANSI_HEAT))]
        ground, field = Color.parse(self.background), Color.parse(self.colors["field"])
        # The exponent makes the distances between steps look equal.
        shares = [((step + 1) / HEAT_STEPS) ** 1.1 for step in range(HEAT_STEPS)]
        return [ground.blend(field, share).hex for share in shares]


PALETTES = {
    "perftop-dark": Palette(0, "#0d1117", "#1a212b", "#27171c", "#3a1f24"),
    "perftop-light": Palette(1, "#ffffff", "#e8eef5", "#fdecea", "#f8d5d2", dark=False),
    # For colour-blind users: red and green alone never distinguish two meanings.
    "perftop-safe": Palette(2, "#0d1117", "#1a212b", "#27171c", "#2d191e"),
    "perftop-ansi": Palette(3, "default", "default", "default", "default", ansi=True),
}
_BOLD = frozenset({"bright", "alarm", "key"})
_QUIET_KEYS = frozenset({"dim", "faint", "rule", "neither", "unknown"})
BACKGROUND_STYLES = {"label": "bright", "paused": "warn", "lost": "alarm"}
"""Style key of the background, for styles that do not use the background of their line."""
_STALE_SHARE = 0.275
"""Share of the background in the grey text of a stale line."""


def _theme(name: str, palette: Palette) -> Theme:
    colors = palette.colors
    if palette.ansi:
        colors = {key: f"ansi_{color}" for key, color in colors.items()}
        ground, variables = "ansi_default", _ANSI_VARIABLES
    else:
        ground = palette.background
        variables = {key: colors[key] for key in ("rule", "dim")}
        variables["chosen"] = palette.selected_background
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
        panel="ansi_default" if palette.ansi else palette.selected_background,
        dark=palette.dark,
        variables=variables,
        ansi=palette.ansi,
    )


_ANSI_VARIABLES = {
    "rule": "ansi_blue", "dim": "ansi_bright_blue", "chosen": "ansi_blue",
    "block-cursor-foreground": "ansi_black", "block-cursor-background": "ansi_cyan",
    # Textual uses these variables, but does not define them for a custom ANSI theme.
    "ansi-background": "ansi_default", "ansi-foreground": "ansi_default",
    "foreground-disabled": "ansi_default", "surface-active": "ansi_default",
}  # fmt: skip
THEMES = tuple(_theme(name, palette) for name, palette in PALETTES.items())


def theme_names(*, no_color: bool) -> tuple[str, ...]:
    """Returns the names of the themes to choose from. Without colour, the ANSI theme is left out:
    the brightness of the terminal's own colours is unknown, so no greys can replace them."""
    return tuple(name for name, palette in PALETTES.items() if not (palette.ansi and no_color))


@lru_cache(maxsize=32)
def line_styles(name: str, state: LineState = "calm") -> dict[str, Style]:
    """Returns the style of each style key, with a background, so that Textual blends no colours."""
    palette = PALETTES[name]
    colors = palette.colors | {f"heat{i}": color for i, color in enumerate(palette.heat_colours)}
    colors |= palette.area_colours
    # Text on the heat ramp: on each step, at least one of the two is readable.
    black, white = ("black", "bright_white") if palette.ansi else ("#000000", "#ffffff")
    colors |= {"black": black, "white": white}
    table = (_ansi_styles if palette.ansi else _rgb_styles)(palette, colors, state)
    for key, color in BACKGROUND_STYLES.items():
        text_colour = "black" if palette.ansi else palette.background
        table[key] = Style(color=text_colour, bgcolor=colors[color], bold=not palette.ansi)
    table["mark"] = table["key"]
    return table


@lru_cache
def letter_styles(name: str) -> tuple[str, ...]:
    """Returns, for each step of the heat ramp, the style key of readable text (`white/heat0`)."""
    palette, keys = PALETTES[name], []
    for step, color in enumerate(palette.heat_colours):
        is_deep = color == "blue"
        if not palette.ansi:  # White has more contrast than black on a deep colour.
            r, g, b = (math.pow(part, 2.2) for part in Color.parse(color).normalized)
            is_deep = 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18
        keys.append(f"{'white' if is_deep else 'black'}/heat{step}")
    return tuple(keys)


def _rgb_styles(palette: Palette, colors: dict[str, str], state: LineState) -> dict[str, Style]:
    background = {
        "chosen": palette.selected_background,
        "victim": palette.victim_background,
        "chosen victim": palette.selected_victim_background,
    }.get(state, palette.background)
    if background != palette.background:  # faint text would be invisible on this background
        dim, faint = colors["dim"], colors["faint"]
        colors = colors | {"faint": dim, "neither": dim, "rule": faint}
    table = {}
    for key, color in colors.items():
        text_colour = color
        if state == "stale":
            level = round(255 * Color.parse(color).brightness)
            grey = Color(level, level, level)
            text_colour = grey.blend(Color.parse(palette.background), _STALE_SHARE).hex
        bold = key in _BOLD and state != "stale"
        table[key] = Style(color=text_colour, bgcolor=background, bold=bold)
    return table


def _ansi_styles(palette: Palette, colors: dict[str, str], state: LineState) -> dict[str, Style]:
    """Returns styles without blended colours: the selected line is bold, a stale one dim."""
    table = {}
    for key, color in colors.items():
        is_stale, is_quiet = state == "stale", key in _QUIET_KEYS
        bold = not is_stale and (key in _BOLD or (state.startswith("chosen") and not is_quiet))
        keeps_colour = not is_stale or key.startswith(("heat", "field", "black", "white"))
        text_colour = color if keeps_colour else palette.colors["text"]
        is_dim = is_stale or (is_quiet and state in {"calm", "victim"})
        ground = palette.background
        table[key] = Style(color=text_colour, bgcolor=ground, bold=bold, dim=is_dim)
    return table


FADED_PREFIX = "~"
"""Prefix of the key of a faded style, which is used outside the selected range."""
_FADED_SHARE = 0.68
"""Share of the background in faded colours."""


class Styles(dict[str, Style]):
    """Styles by key. The key `upper/lower` is for cells with two colours: its style is `upper` on
    the letter colour of `lower`. The key of a faded style begins with FADED_PREFIX."""

    def __missing__(self, key: str) -> Style:
        if key.startswith(FADED_PREFIX):
            style, ground = self[key[1:]], self["text"].bgcolor
            colours = [c for c in (style.color, style.bgcolor) if c is not None and c.triplet]
            if ground is None or len(colours) < 2:  # colours that cannot be blended
                self[key] = style + Style(dim=True)
            else:
                base = Color.parse(ground.name)
                letters, back = (Color.parse(c.name).blend(base, _FADED_SHARE) for c in colours)
                self[key] = Style(color=letters.hex, bgcolor=back.hex)
            return self[key]
        upper, _, lower = key.partition("/")
        upper_style = self[upper]
        background = self[lower].color
        self[key] = Style(color=upper_style.color, bgcolor=background, bold=upper_style.bold)
        return self[key]


def without_colours(styles: Mapping[str, Style]) -> dict[str, Style]:
    """Returns the styles in shades of grey."""
    grey, background = Monochrome(), Color.parse("black")
    segments = {key: grey.apply([Segment("|", style)], background) for key, style in styles.items()}
    grey_styles = {key: segment.style or Style() for key, (segment,) in segments.items()}
    # Red as a shade of grey would be darker than the words around it.
    return grey_styles | dict.fromkeys(("alarm", "warn"), grey_styles["bright"])


# --- terminals with 256 colours

_CUBE_LEVELS = (0, 95, 135, 175, 215, 255)
"""Levels of red, green and blue in the 6 x 6 x 6 cube of a 256-colour terminal. Only the cube and
the 24 greys are used, because users can redefine the first 16 colours."""
_GREYS = range(232, 256)
Rgb = tuple[int, int, int]
"""Red, green and blue, each from 0 to 255."""
_BACKGROUND_COLOURS = {
    "#0d1117": 16, "#1a212b": 235, "#27171c": 52, "#3a1f24": 236, "#2d191e": 236,
    "#ffffff": 231, "#e8eef5": 254, "#fdecea": 224, "#f8d5d2": 223,
}  # fmt: skip
"""Terminal colours of fixed backgrounds, of which similar ones remain distinguishable."""


def to_256_colours(style: Style) -> Style:
    """Returns the style in the fixed colours of a 256-colour terminal."""
    colors = style.color, style.bgcolor
    colours = [c and TerminalColor.from_ansi(nearest_256(c.name)) for c in colors]
    return style + Style(color=colours[0], bgcolor=colours[1])


@lru_cache(maxsize=512)
def nearest_256(color: str) -> int:
    """Returns the number of the terminal colour that is closest to `color` (`#rrggbb`)."""
    if color in _BACKGROUND_COLOURS:
        return _BACKGROUND_COLOURS[color]
    rgb = int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
    oklab_color = _oklab(rgb)
    return min(range(16, 256), key=lambda number: math.dist(oklab_color, _oklab(rgb_256(number))))


def rgb_256(number: int) -> Rgb:
    """Returns the red, green and blue values of one of the terminal's fixed colours."""
    if number in _GREYS:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    r, remainder = divmod(number - 16, 36)
    return _CUBE_LEVELS[r], _CUBE_LEVELS[remainder // 6], _CUBE_LEVELS[remainder % 6]


@lru_cache(maxsize=1024)
def _oklab(color: Rgb) -> tuple[float, float, float]:
    """Returns the colour in Oklab: lightness, green to red, and blue to yellow. Source: Ottosson,
    "A perceptual color space for image processing", 2020."""
    r, g, b = (
        part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in color
    )
    long = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    middle = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


# --- shapes

BOTH, LP0, LP1, NEITHER, UNKNOWN = "█", "▀", "▄", "·", "▒"
STATES = (BOTH, "both"), (LP0, "lp0"), (LP1, "lp1"), (NEITHER, "neither")
"""Shape and name (also a style key) of each SMT state, in the order of display from the top."""
USER, KERNEL, STEAL = "█", "▓", "╳"
LIMIT, STEAL_EDGE = "┄", "▔"
STROKE, STROKE_END, WAIT_STROKE, CEILING_SIGN, DROP_SIGN = "━", "╸", "┅", "┃", "▼"
SELECTED_SIGN, RULE, TAKEN_BY_SIGN = "▌", "─", "◂"
CURSOR_SIGNS = "▸", "◂"
"""Markers to the left and right of the selected cell, in views with several cells in a line."""
LEVELS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = " .:-=+*%@"
