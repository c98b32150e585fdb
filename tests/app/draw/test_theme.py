"""Colours are distinguishable and readable in all themes."""

from __future__ import annotations

import itertools
import re
from typing import get_args

import pytest
from colours import EYES, contrast, distance, luminance
from rich.cells import cell_len
from rich.color import ColorSystem, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import Monochrome

from perftop.base.text import MISSING, to_ascii
from perftop.draw import columns, theme
from perftop.draw.charts import NAMED_TASKS
from perftop.model.kinds import KINDS
from perftop.tui import config

MIXED_THEMES = [name for name, palette in theme.PALETTES.items() if not palette.ansi]
DISTINGUISHABLE = [
    *itertools.combinations(("both", "lp0", "lp1", "alarm", "warn", "clock"), 2),
    ("cyan", "lp0"), ("cyan", "warn"),  # these keys are adjacent in the bar of a CPU
]  # fmt: skip
LETTERS = {"black", "white", "ground"}
"""Keys that are used on heat cells only."""
MIN_DISTANCE = 15.0
MIN_STEP_DISTANCE = 9.0
"""Colour differences: of states and warnings, and of every other step of a ramp."""
TERMINAL_COLOURS = {
    "xterm": {"blue": "#0000ee", "cyan": "#00cdcd", "bright_green": "#00ff00",
              "bright_yellow": "#ffff00"},
    "linux": {"blue": "#0000aa", "cyan": "#00aaaa", "bright_green": "#55ff55",
              "bright_yellow": "#ffff55"},
    "tango": {"blue": "#3465a4", "cyan": "#06989a", "bright_green": "#8ae234",
              "bright_yellow": "#fce94f"},
}  # fmt: skip
"""Colours of the ansi ramp in terminals, unless their users change them."""


@pytest.mark.parametrize("mood", get_args(theme.LineState))
def test_all_themes_have_all_keys(mood: theme.LineState) -> None:
    keys = set(theme.line_styles("perftop-dark", mood))
    assert {"heat0", f"heat{theme.HEAT_STEPS - 1}", "label", "mark"} <= keys
    for name in theme.PALETTES:
        styles = theme.line_styles(name, mood)
        assert set(styles) == keys, name
        assert all(style.color and style.bgcolor for style in styles.values()), name


def test_without_colour_only_grey_themes_are_offered() -> None:
    """Textual draws colours of the terminal as black on black."""
    assert theme.theme_names(no_color=False) == config.THEMES
    assert theme.theme_names(no_color=True) == tuple(MIXED_THEMES)
    grey = Monochrome()
    for name in theme.theme_names(no_color=True):
        for key in set(theme.line_styles(name)) - LETTERS:
            style = theme.line_styles(name)[key]
            ((_, drawn, _),) = grey.apply([Segment("x", style)], Color.parse("black"))
            assert drawn, key
            assert drawn.color != drawn.bgcolor, (name, key)


def test_all_themes_have_the_colours_of_stylesheets() -> None:
    results = [shade.to_color_system().generate() | shade.variables for shade in theme.THEMES]
    assert {"rule", "dim", "chosen", "ansi-background"} <= set.intersection(*map(set, results))
    assert all(set(results[0]) <= set(variables) for variables in results)


@pytest.mark.parametrize("vision", EYES)
def test_the_safe_theme_is_distinguishable_for_all_kinds_of_vision(vision: str) -> None:
    palette = theme.PALETTES["perftop-safe"]
    colors = palette.colors
    distances = {(a, b): distance(colors[a], colors[b], vision) for a, b in DISTINGUISHABLE}
    assert min(distances.values()) >= MIN_DISTANCE, distances
    steps = [
        distance(a, b, vision)
        for a, b in zip(palette.heat_colours, palette.heat_colours[2:], strict=False)
    ]
    assert min(steps) >= MIN_STEP_DISTANCE, steps


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_meanings_are_distinguishable(name: str) -> None:
    colors = theme.PALETTES[name].colors
    near = {(a, b): distance(colors[a], colors[b]) for a, b in DISTINGUISHABLE}
    assert min(near.values()) >= MIN_DISTANCE, near


@pytest.mark.parametrize("name", MIXED_THEMES)
@pytest.mark.parametrize("eyes", EYES)
def test_heat_cells_are_ordered_in_luminance_away_from_the_background(name: str, eyes: str) -> None:
    palette = theme.PALETTES[name]
    assert len(palette.heat_colours) == theme.HEAT_STEPS
    levels = [luminance(color, eyes) for color in palette.heat_colours]
    ordered = sorted(set(levels), reverse=not palette.dark)
    assert levels == ordered
    ground = luminance(palette.background, eyes)
    assert abs(levels[0] - ground) < abs(levels[-1] - ground)


@pytest.mark.parametrize("terminal", TERMINAL_COLOURS)
def test_heat_cells_are_ordered_in_the_default_palettes_of_16_colours(terminal: str) -> None:
    heat = theme.PALETTES["perftop-ansi"].heat_colours
    assert len(heat) == theme.HEAT_STEPS
    levels = [luminance(TERMINAL_COLOURS[terminal][color]) for color in heat]
    assert levels == sorted(levels)
    assert levels[0] < levels[-1]


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_text_is_readable(name: str) -> None:
    palette = theme.PALETTES[name]
    for key in ("text", "bright", "dim", "lp0", "lp1", "clock", "alarm", "warn", "cyan", "key"):
        color = palette.colors[key]
        assert contrast(color, palette.background) >= 4.5, key
        assert contrast(color, palette.selected_background) >= 4.2, key
    faint, dim = (contrast(palette.colors[key], palette.background) for key in ("faint", "dim"))
    assert 3.2 <= faint < dim
    for key in ("text", "bright", "alarm", "culprit"):
        for ground in (palette.victim_background, palette.selected_victim_background):
            assert contrast(palette.colors[key], ground) >= 4.5, (key, ground)
    for task in range(NAMED_TASKS):  # the names in lanes
        style = theme.Styles(theme.line_styles(name))[f"black/task{task}"]
        assert style.color and style.bgcolor  # noqa: PT018
        assert contrast(style.color.name, style.bgcolor.name) >= 4.5, task
    assert contrast(palette.colors["both"], palette.background) >= 3
    for key in set(theme.line_styles(name)) - LETTERS:
        style = theme.line_styles(name, "stale")[key]
        assert style.color != style.bgcolor, key


@pytest.mark.parametrize("name", theme.PALETTES)
def test_letters_on_heat_cells_are_readable(name: str) -> None:
    palette = theme.PALETTES[name]
    letters = theme.letter_styles(name)
    assert len(letters) == theme.HEAT_STEPS
    for terminal in TERMINAL_COLOURS.values() if palette.ansi else [{}]:
        for level, key in enumerate(letters):
            assert key in {f"black/heat{level}", f"white/heat{level}"}
            ink = "#000000" if key.startswith("black") else "#ffffff"
            color = palette.heat_colours[level]
            assert contrast(ink, terminal.get(color, color)) >= 4.5, (name, level)


def test_the_ansi_theme_uses_colours_of_the_terminal_only() -> None:
    """Any terminal gets only the codes of the 16 colours, on its own background."""
    codes = re.compile(r"\x1b\[(?:(?:[12]|3[0-79]|9[0-7]|4[0-79]|10[0-7]);?)+m|\x1b\[0m")
    for mood in ("calm", "chosen", "stale"):
        for key, style in theme.line_styles("perftop-ansi", mood).items():
            drawn = style.render("x", color_system=ColorSystem.TRUECOLOR)
            assert codes.sub("", drawn) == "x", key
            ground = style.bgcolor
            assert ground
            assert ground.is_default or key in {"paused", "lost"}, key


def test_each_meaning_has_its_own_of_eight_hues() -> None:
    """Many palettes do not distinguish the normal and the bright colour of a hue. Only "both" and
    warnings share a hue: "both" is a bar, and warnings are signs and numbers."""

    def hue(style: Style) -> int:
        assert style.color
        is_own = style.color.type is ColorType.STANDARD and style.color.number is not None
        return (style.color.number or 0) % 8 if is_own else -1

    styles = theme.line_styles("perftop-ansi")
    for one, other in {*DISTINGUISHABLE} - {("both", "warn")}:
        assert hue(styles[one]) != hue(styles[other]), (one, other)


def test_quiet_machines_are_dimmed_and_the_selected_line_is_bold() -> None:
    calm, chosen, stale = (
        theme.line_styles("perftop-ansi", m) for m in ("calm", "chosen", "stale")
    )
    assert (calm["text"].dim, calm["dim"].dim, calm["text"].bold) == (False, True, False)
    assert (chosen["text"].bold, chosen["dim"].dim) == (True, False)
    assert stale["text"].dim
    assert stale["alarm"].color == stale["text"].color
    assert (calm["alarm"].bold, stale["alarm"].bold) == (True, False)
    assert stale["heat5"].color == calm["heat5"].color, "a number is printed on it"


@pytest.mark.parametrize("name", MIXED_THEMES)
@pytest.mark.parametrize("area", ["user", "kernel", "ipc", "loss", "both", "lp0", "lp1", "clock"])
def test_steps_of_an_area_move_away_from_the_background(name: str, area: str) -> None:
    colors = theme.PALETTES[name].area_colours
    ground = luminance(theme.PALETTES[name].background)
    far = [abs(luminance(colors[f"{area}-{i}"]) - ground) for i in range(theme.AREA_STEPS)]
    assert far == sorted(set(far))


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_adjacent_areas_are_distinguishable(name: str) -> None:
    """User and kernel time, losses, and the three states of a core."""
    colors = theme.PALETTES[name].colors | theme.PALETTES[name].area_colours
    for step in range(theme.AREA_STEPS):
        areas = ("user", "kernel"), ("ipc", "loss"), ("both", "lp0"), ("both", "lp1")
        pairs = [(f"{a}-{step}", f"{b}-{step}") for a, b in areas]
        pairs += [(f"kernel-{step}", "steal"), (f"kernel-{step}", "hot")]
        for a, b in pairs:
            assert distance(colors[a], colors[b]) >= MIN_DISTANCE, (a, b)


# --- terminals with 256 colours ------------------------------------------------------------------


def in_256_colours(style: Style) -> tuple[str, str]:
    """Foreground and background as a terminal with 256 colours shows them."""
    result = theme.to_256_colours(style)
    assert result.color
    assert result.bgcolor
    return fixed_colour(result.color.number or 0), fixed_colour(result.bgcolor.number or 0)


def fixed_colour(number: int) -> str:
    return "#" + bytes(theme.rgb_256(number)).hex()


def test_fixed_colours_are_the_same_in_all_terminals() -> None:
    assert [theme.rgb_256(n) for n in (16, 17, 231, 232, 255)] == [
        (0, 0, 0), (0, 0, 95), (255, 255, 255), (8, 8, 8), (238, 238, 238),
    ]  # fmt: skip
    for number in range(16, 256):
        assert theme.rgb_256(theme.nearest_256(fixed_colour(number))) == theme.rgb_256(number)


@pytest.mark.parametrize(("rgb", "expected"), [
    ((255, 255, 255), (1.0, 0.0, 0.0)), ((255, 0, 0), (0.628, 0.2249, 0.1258)),
    ((0, 255, 0), (0.8664, -0.2339, 0.1795)), ((0, 0, 255), (0.452, -0.0325, -0.3115)),
    ((10, 10, 10), (0.1448, 0.0, 0.0)),
])  # fmt: skip
def test_oklab_has_its_published_values(rgb: theme.Rgb, expected: tuple[float, ...]) -> None:
    assert theme._oklab(rgb) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_in_256_colours_heat_cells_are_ordered_and_meanings_distinguishable(name: str) -> None:
    styles, dark = theme.line_styles(name), theme.PALETTES[name].dark
    levels = [luminance(in_256_colours(styles[f"heat{i}"])[0]) for i in range(theme.HEAT_STEPS)]
    assert levels == sorted(levels, reverse=not dark)
    assert len(set(levels)) >= 8
    for a, b in DISTINGUISHABLE:
        assert distance(in_256_colours(styles[a])[0], in_256_colours(styles[b])[0]) >= 12, (a, b)


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_in_256_colours_lines_of_all_moods_are_distinguishable_and_readable(name: str) -> None:
    grounds = set()
    for mood in ("calm", "chosen", "victim", "chosen victim"):
        styles = theme.line_styles(name, mood)
        for key in ("text", "bright", "alarm"):
            fore, ground = in_256_colours(styles[key])
            assert contrast(fore, ground) >= 3.5, (mood, key)
        grounds.add(ground)
    assert len(grounds) == 4


# --- signs ---------------------------------------------------------------------------------------

WRONG_WIDTH_SIGNS = set("◆◇●‖")
"""Signs that browser fonts draw wider or narrower than a cell."""


def test_all_signs_are_one_cell_wide() -> None:
    named = [*vars(theme).items(), *vars(columns).items()]
    shapes = [sign for name, sign in named if name.isupper() and isinstance(sign, str)]
    for text in (*shapes, *(kind.marker for kind in KINDS.values())):
        if text in {MISSING, theme.LEVELS}:
            continue
        assert all(cell_len(sign) == 1 for sign in text)
        assert not WRONG_WIDTH_SIGNS & set(text)
        stand_in = to_ascii(text)
        assert stand_in.isascii()
        assert len(stand_in) == len(text)
        assert "?" not in stand_in or text == theme.UNKNOWN


def test_all_kinds_of_episodes_have_their_own_sign() -> None:
    signs = [kind.marker for kind in KINDS.values()]
    assert len(set(signs)) == len(signs)
    assert len({to_ascii(sign) for sign in signs}) == len(signs)


def test_levels_grow_in_ascii_and_none_is_a_sign_for_unknown() -> None:
    levels = to_ascii(theme.LEVELS)
    assert "?" not in levels
    assert levels[1:] == "__,,;;*#"
