"""Pre-rendered strips, the bytes written for them, and positions on a canvas."""

from __future__ import annotations

import io
from unittest.mock import Mock

from fakes import Machine
from hypothesis import given
from hypothesis import strategies as st
from played_apps import Run, running_app
from rich.ansi import AnsiDecoder
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from terminal_apps import Cells
from textual.strip import Strip

from perftop.draw import strips, theme
from perftop.draw.columns import Run as TextRun
from perftop.tui.shared.paint import LineUpdate, RenderedStrip, RunWriter, _run_writer

INK = RunWriter(theme.line_styles("perftop-dark"), ColorSystem.TRUECOLOR, ascii_=False)
CHOSEN = RunWriter(theme.line_styles("perftop-dark", "chosen"), ColorSystem.TRUECOLOR, ascii_=False)
CONSOLE = Console(
    file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False
)
RUNS = st.lists(
    st.tuples(
        st.text("ab█▀·1 ", max_size=6),
        st.sampled_from(["text", "dim", "alarm", "label", "heat3", "heat1/heat7", "bright"]),
    ),
    max_size=8,
)


def cells(text: str) -> list[tuple[str, Style]]:
    """Returns the terminal's content after this output: characters with their styles."""
    results: list[tuple[str, Style]] = []
    for decoded in AnsiDecoder().decode(text):
        styles = [Style() for _ in decoded.plain]
        for span in decoded.spans:
            for i in range(span.start, span.end):
                styles[i] = Style.combine([styles[i], Style.parse(str(span.style))])
        results += zip(decoded.plain, styles, strict=True)
    # A space shows its background only.
    return [(c, Style(bgcolor=s.bgcolor) if c == " " else _plain(s)) for c, s in results]


def _plain(style: Style) -> Style:
    return Style(color=style.color, bgcolor=style.bgcolor, bold=bool(style.bold))


def ordinary_strip(strip: Strip) -> Strip:
    return Strip(list(strip), strip.cell_length)


@given(RUNS, st.sampled_from([INK, CHOSEN]), st.integers(1, 60))
def test_the_terminal_shows_the_same_as_with_ordinary_strips(
    runs: list[TextRun], writer: RunWriter, size: int
) -> None:
    ready = RenderedStrip(runs, writer, size)
    assert cells(ready.render(CONSOLE)) == cells(ordinary_strip(ready).render(CONSOLE))
    assert ready.cell_length == size == len(ready.text)


@given(RUNS, st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True))
def test_strips_are_cut_like_ordinary_ones(runs: list[TextRun], cuts: list[int]) -> None:
    ready = RenderedStrip(runs, INK, 40)
    items = sorted(cuts)
    for mine, other in zip(ready.divide(items), ordinary_strip(ready).divide(items), strict=True):
        assert mine.text == other.text
        assert mine.cell_length == other.cell_length
        assert cells(mine.render(CONSOLE)) == cells(other.render(CONSOLE))


@given(RUNS, st.integers(0, 39), st.integers(1, 40))
def test_strips_are_cropped_like_ordinary_ones(
    runs: list[TextRun], start: int, length: int
) -> None:
    ready, end = RenderedStrip(runs, INK, 40), min(40, start + length)
    assert ready.crop(start, end).text == ordinary_strip(ready).crop(start, end).text
    assert (
        ready.crop_extend(start, 44, None).text
        == ordinary_strip(ready).crop_extend(start, 44, None).text
    )


@given(RUNS, st.integers(0, 7), st.integers(0, 7), st.sampled_from(["text", "label", "dim"]))
def test_a_partly_rewritten_line_looks_as_if_redrawn(
    runs: list[TextRun], first: int, last: int, key: str
) -> None:
    """Some runs of the line differ, with the same number of cells."""
    first, last = sorted((first, last))
    replacements = [("?" * len(text), key) for text, _ in runs[first:last]]
    before, after = (
        RenderedStrip(line, INK, 40)
        for line in (runs, [*runs[:first], *replacements, *runs[last:]])
    )
    terminal, meant = Cells(), Cells()
    whole = [f"\x1b[1;1H{line.render(CONSOLE)}" for line in (before, after)]
    replaced = after.difference(before, 0, 0, CONSOLE)
    assert replaced is not None
    assert len(replaced) < len(whole[1])
    terminal.write(whole[0] + replaced, 40)
    meant.write(whole[1], 40)
    assert terminal.visible_cells(40, 0) == meant.visible_cells(40, 0)


def test_only_changed_parts_of_a_line_are_written() -> None:
    before, after, longer = (
        RenderedStrip([("core ", "dim"), (number, "text"), (" who", "text")], INK, 20)
        for number in ("12", "13", "100")
    )
    written = after.difference(before, 2, 3, CONSOLE)
    assert written is not None
    assert written.startswith("\x1b[4;8H")
    assert "13" in written
    assert "core" not in written
    assert "who" not in written
    assert after.difference(after, 2, 3, CONSOLE) == ""
    assert longer.difference(before, 2, 3, CONSOLE) is None


def test_a_terminal_with_fewer_colours_gets_its_own_ones() -> None:
    """A line rendered for 24-bit colours is drawn by a console with 16."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    writer = RunWriter(
        {"text": Style(color="#123456", bgcolor="#000000")}, ColorSystem.TRUECOLOR, ascii_=False
    )
    assert "38;2" not in RenderedStrip([("abc", "text")], writer, 3).render(console)


def test_a_terminal_of_256_colours_gets_fixed_colours_only() -> None:
    result = _run_writer("perftop-dark", "chosen", False, ColorSystem.EIGHT_BIT, False)
    written = result.write([("abc", "alarm")], 3)
    assert "38;5;203" in written
    assert "48;5;235" in written
    grey = _run_writer("perftop-safe", "victim", True, ColorSystem.EIGHT_BIT, False)
    assert "38;5;102" in grey.write([("abc", "mark")], 3)


def test_cells_behind_a_scrollbar_are_not_written() -> None:
    before, after = (RenderedStrip([(text, "text")], INK, 4) for text in ("1234", "1235"))
    for visible, written in ((4, True), (3, False)):
        text = LineUpdate({(0, 0): (after, visible)}, {(0, 0): (before, visible)}).render_segments(
            CONSOLE
        )
        assert text.removesuffix("\x1b[0m").endswith("5") == written


# --- positions on a canvas of lines


async def test_no_line_exists_below_the_last_one() -> None:
    """A click below the last line selects nothing."""

    async with running_app(Machine(cores=2)) as run:
        grid = run.grid
        end = len(grid.header_lines) + grid.line_count
        assert end < grid.size.height
        assert (grid.line_at(end - 1), grid.line_at(end)) == (grid.line_count - 1, None)
        before = grid.settings.cpu
        await run.pilot.click(grid, offset=(5, end))
        assert grid.settings.cpu == before


def fixed_lines(*texts: str) -> list[strips.Line]:
    return [([(text, "text")], "calm") for text in texts]


async def test_fixed_lines_are_at_the_bottom_and_others_scroll_above() -> None:
    async with running_app(Machine(cores=29, threads=1), (100, 20)) as run:
        grid = run.grid
        # The grid would set its own fixed lines.
        grid._draw_fixed_lines = Mock()  # type: ignore[method-assign]
        grid.footer_lines = []
        before = grid.height
        grid.footer_lines = fixed_lines("first", "second")
        grid._paint()
        assert [line.text.rstrip() for line in shown_strips(run)[-2:]] == ["first", "second"]
        assert grid.height == before - 2
        assert grid.line_at(grid.size.height - 2) is None
        await run.pilot.press("G")
        assert "28" in shown_strips(run)[-3].text.split()
        grid.footer_lines = []
        grid._paint()
        assert "first" not in "".join(line.text for line in shown_strips(run))


async def test_only_changed_fixed_lines_are_drawn() -> None:
    async with running_app(Machine(cores=29, threads=1)) as run:
        grid = run.grid
        grid.footer_lines = fixed_lines("first", "second", "third")
        grid._paint()
        built = grid.strip_count
        grid.footer_lines = fixed_lines("first", "other", "third")
        grid._paint()
        assert grid.strip_count == built + 1
        assert [line.text.rstrip() for line in shown_strips(run)[-3:]] == [
            "first",
            "other",
            "third",
        ]


def shown_strips(run: Run) -> list[Strip]:
    return [run.grid.render_line(y) for y in range(run.grid.size.height)]
