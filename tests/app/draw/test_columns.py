"""Columns, cells, bars and histories, and the strips of styled text that they consist of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import strips, theme
from perftop.draw.columns import (
    Column,
    Run,
    column_at,
    fit_columns,
    fit_to_texts,
    fold_similar,
    headings,
    join_columns,
    plain_text,
    total_width,
)
from perftop.draw.strips import (
    CPU_TIME_SHAPES,
    single_thread_bar,
    smt_bar,
    smt_bounds_bar,
    stacked_bar,
)

NAME = Column("name", "task", 8, is_left=True, max_width=20, growth_rank=1)
BUSY = Column("busy", "busy %", 8, scale=100.0, digits=1)
BAR = Column("bar", "", 10, is_left=True, rank=2, max_width=14)
IPC = Column("ipc", "IPC", 6, digits=2, rank=1)
EVENTS = Column("events", "events/s", 10, has_si_prefix=True, rank=1)
ALL = [NAME, BUSY, BAR, IPC, EVENTS]


@pytest.mark.parametrize(("width", "widths"), [
    (10, {"name": 8, "busy": 8}),  # these two columns are never dropped
    (16, {"name": 8, "busy": 8}),
    (31, {"name": 20, "busy": 8}),  # columns of equal rank are kept or dropped together
    (32, {"name": 8, "busy": 8, "ipc": 6, "events": 10}),
    (41, {"name": 17, "busy": 8, "ipc": 6, "events": 10}),
    (42, {"name": 8, "busy": 8, "bar": 10, "ipc": 6, "events": 10}),
    (47, {"name": 9, "busy": 8, "bar": 14, "ipc": 6, "events": 10}),
    (99, {"name": 20, "busy": 8, "bar": 14, "ipc": 6, "events": 10}),
])  # fmt: skip
def test_columns_are_dropped_by_rank_and_grow_in_turn(width: int, widths: dict[str, int]) -> None:
    assert {column.key: column.width for column in fit_columns(ALL, width)} == widths


def test_columns_that_grow_together_share_cells_by_weight() -> None:
    columns = [
        replace(BAR, weight=3, max_width=40),
        replace(BAR, max_width=40),
        replace(BAR, max_width=11),
    ]
    assert [column.width for column in fit_columns(columns, 30 + 11)] == [17, 13, 11]


@pytest.mark.parametrize("column", [BUSY, IPC, replace(BUSY, scale=nan), replace(BUSY, width=3)])
def test_numbers_drawn_together_equal_those_drawn_alone(column: Column) -> None:
    values = [0.5, -0.0001, nan, 0.0, 123.456, 1e9]
    styles = ["text", "dim", "warn", "faint", "text", "alarm"]
    alone = [column.cell(value, style) for value, style in zip(values, styles, strict=True)]
    placed = [(column.pad(text), style) for text, style in alone]
    assert column.numbers(values, styles) == placed


@pytest.mark.parametrize(("column", "value", "signs", "cell"), [
    (BUSY, 0.5, {}, ("50.0", "text")),
    (BUSY, -0.0001, {}, ("0.0", "text")),
    (EVENTS, 12_345.0, {}, ("12.3k", "text")),
    (EVENTS, 12_345.0, {"estimated": True}, ("≈12.3k", "text")),
    (BUSY, 0.5, {"doubted": True}, ("≁50.0", "dim")),
    (BUSY, nan, {}, ("n/a", "faint")),
    (replace(BUSY, scale=nan), 0.5, {}, ("n/a", "faint")),
    (BUSY, nan, {"doubted": True}, ("≁n/a", "dim")),
    (replace(BUSY, width=3), nan, {}, ("–", "faint")),
    (replace(BUSY, width=4), nan, {}, ("n/a", "faint")),
    (BUSY, nan, {"resting": True}, ("·", "faint")),
    (BUSY, nan, {"resting": True, "online": False}, ("off", "dim")),
])  # fmt: skip
def test_cells_have_the_text_and_style_of_their_number(
    column: Column, value: float, signs: dict[str, Any], cell: tuple[str, str]
) -> None:
    assert column.cell(value, **signs) == cell


def test_values_are_aligned_with_their_headings() -> None:
    columns = [fit_to_texts(replace(NAME, gap=1), ["sh", "stream[40]"]), BUSY, BAR]
    heading = headings(columns, "busy")
    assert [text for text, _ in heading] == [" task      ", " ▼busy %", "          "]
    assert [style for _, style in heading] == ["dim", "bright", "dim"]
    assert headings(columns, "name", rising=True)[0] == ("▲task      ", "bright")
    assert headings([replace(NAME, gap=2)], "name") == [(" ▼task  ", "bright")]
    result = join_columns(columns, [("a name too long", "text"), BUSY.cell(1.0), [("━━", "lp0")]])
    assert [text for text, _ in result] == [" a name to…", "   100.0", "  ", "━━", "      "]
    assert total_width(columns) == sum(len(text) for text, _ in result)
    assert plain_text(result) == " a name to…   100.0  ━━"


def test_similar_items_share_a_row_except_the_first_five_and_the_selected_one() -> None:
    items = [("a", n) for n in range(8)] + [(None, 8), (None, 9)]
    rows = fold_similar(items, lambda item: item[0], items[6])
    assert [[number for _, number in row] for row in rows] == [
        [0], [1], [2], [3], [4], [5, 7], [6], [8], [9],
    ]  # fmt: skip


def test_a_screen_position_belongs_to_one_column() -> None:
    results = [column_at([NAME, BUSY], x) for x in (-1, 0, 7, 8, 15, 16)]
    assert results == [None, NAME, NAME, BUSY, BUSY, None]


# --- bars as text


NAN = math.nan


@pytest.mark.parametrize("width", [0, 1, 7, 22, 63])
@pytest.mark.parametrize("states", [(0, 0, 0, 1), (1, 0, 0, 0), (0.21, 0.33, 0.13, 0.33)])
def test_a_bar_has_the_given_width(width: int, states: tuple[float, ...]) -> None:
    bar = smt_bar(states, width)
    assert strips.width(bar) == width
    assert {key for text, key in bar if theme.NEITHER in text} <= {"neither"}


def test_the_four_states_have_four_shapes_in_order() -> None:
    assert strips.text(smt_bar((0.25, 0.25, 0.25, 0.25), 8)) == "██▀▀▄▄··"


def test_bounds_are_drawn_as_a_range_between_the_certain_parts() -> None:
    # r0 = r1 = 0.75: both at least 0.5, neither at least 0, the rest may be anything.
    assert strips.text(smt_bounds_bar([0.0, 0.0, 0.0, 0.5], 8)) == "████▒▒▒▒"


def test_bounds_leave_the_certain_rest_idle() -> None:
    runs = smt_bounds_bar((0.25, 0.125, 0.0, 0.25), 8)
    assert strips.text(runs) == "██▀▒▒▒··"
    assert strips.text(smt_bounds_bar((0.25, 0.0, 0.25, NAN), 8)) == "▄▄▒▒▒▒··"


def test_a_single_thread_fills_half_or_all_of_a_cell() -> None:
    assert strips.text(single_thread_bar(0.5, 4, None)) == "██··"
    assert strips.text(single_thread_bar(0.5, 4, 0)) == "▀▀··"
    assert strips.text(single_thread_bar(0.5, 4, 1)) == "▄▄··"
    assert strips.text(single_thread_bar(0.5, 4, 2)) == "▄▄··", "of a core with more threads"


def test_the_rest_of_the_issue_slots_is_the_back_end() -> None:
    runs = stacked_bar((0.5, 0.2, 0.1), CPU_TIME_SHAPES, 10)
    assert [(text, len(text)) for text, _ in runs] == [
        (theme.USER * 5, 5), (theme.KERNEL * 2, 2), (theme.STEAL, 1), (theme.NEITHER * 2, 2),
    ]  # fmt: skip


# --- histories beside numbers


def test_the_first_of_two_threads_is_in_the_upper_half_of_a_cell() -> None:
    upper, lower = (np.array(shares) for shares in ([1.0, 1.0, 0.0, NAN], [1.0, 0.0, 0.5, 0.0]))
    cells = strips.pack_step_pairs(strips.heat_steps(upper), strips.heat_steps(lower)).tobytes()
    assert strips.text(map(strips.half_cells(ascii_=False).__getitem__, cells)) == "█▀▄ "


def test_two_threads_with_different_loads_have_two_colours_in_a_cell() -> None:
    cells = strips.pack_step_pairs(
        strips.heat_steps(np.ones(1)), strips.heat_steps(np.full(1, 0.5))
    )
    text, key = strips.half_cells(ascii_=False)[cells.tobytes()[0]]
    assert text == theme.LP0
    assert key == f"heat{theme.HEAT_STEPS - 1}/heat{theme.HEAT_STEPS // 2 - 1}"


@pytest.mark.parametrize(("upper", "lower", "width", "expected"), [
    (3, 3, 3, [("███", "heat3")]), (3, 5, 3, [("▀▀▀", "heat3/heat5")]),
    (3, strips.OFFLINE_LEVEL, 3, [("▀▀", "heat3"), ("·", "neither")]),
    (strips.UNKNOWN_LEVEL, 5, 3, [("▄▄", "heat5"), ("–", "faint")]),
    (strips.UNKNOWN_LEVEL, 5, 1, [("▄", "heat5")]), (0, strips.OFFLINE_LEVEL, 1, [("▀", "heat0")]),
    (strips.OFFLINE_LEVEL, strips.OFFLINE_LEVEL, 3, [(" · ", "neither")]),
    (strips.UNKNOWN_LEVEL, strips.OFFLINE_LEVEL, 3, [(" – ", "faint")]),
    (3, strips.OFFLINE_LEVEL, 2, [("▀", "heat3"), ("·", "neither")]),
])  # fmt: skip
def test_two_levels_fill_the_width_of_their_cell(
    upper: int, lower: int, width: int, expected: list[tuple[str, str]]
) -> None:
    assert [*strips.level_pair_cells(upper, lower, width, ascii_=False)] == expected


def test_two_levels_are_side_by_side_in_ascii() -> None:
    assert [*strips.level_pair_cells(5, 2, 4, ascii_=True)] == [("cc", "heat5"), (";;", "heat3")]


def test_the_width_of_a_history_is_the_number_of_its_values() -> None:
    assert strips.heat_steps(np.array([0.0199, 0.02, 2.0])).tolist() == [0, 1, theme.HEAT_STEPS]
    cells = strips.heat_steps(np.array([0.0, 0.01, 0.3, 1.0, NAN]))
    for ascii_ in (False, True):
        text = strips.text(strips.step_run(cell, ascii_=ascii_) for cell in cells.tobytes())
        assert len(text) == 5
        assert text[:2] == "  "
        assert text[4] == " "
        assert text.isascii() == ascii_


def test_histories_are_red_from_the_start_of_a_loss_on() -> None:
    assert strips.bar_heights(np.array([0.0, 0.3, 9.0, NAN]), 2.0).tolist() == [1, 2, 8, 0]
    cells = strips.bar_heights(np.array([2.0, 2.0, 1.0, NAN, 1.0]), 2.0)
    runs = strips.bar_runs(cells.tobytes(), "ipc", 2, ascii_=False)
    assert runs == (("██", "ipc"), ("▄ ▄", "alarm"))


# --- strips of styled text


STYLES = st.sampled_from(["text", "dim", "bright", "label", "hot/steal"])
LINE = st.lists(st.tuples(st.text("ab ⣿", max_size=5), STYLES), max_size=6)
CELL = st.integers(0, 32)


def cells_of(runs: Sequence[Run]) -> list[Run]:
    return [(sign, style) for part, style in runs for sign in part]


@given(LINE, CELL, CELL)
def test_cells_are_cut_and_restyled_one_by_one(runs: list[Run], start: int, stop: int) -> None:
    cells = cells_of(runs)
    assert cells_of(strips.cut_runs(runs, start, stop)) == cells[start:stop]
    assert cells_of(strips.restyle_cells(runs, start, stop, "~")) == [
        (sign, "~" * (start <= at < stop) + style) for at, (sign, style) in enumerate(cells)
    ]


@given(LINE, CELL)
def test_merged_runs_look_the_same(runs: list[Run], size: int) -> None:
    """A blank looks the same in all styles without a background of their own."""
    merged = strips.merge_runs(runs, size)
    padded = [*cells_of(runs), *[(" ", "text")] * size][:size]
    for (sign, style), (seen_sign, seen_style) in zip(padded, cells_of(merged), strict=True):
        assert sign == seen_sign
        if sign != " " or strips.has_own_background(style):
            assert seen_style == style
        else:
            assert not strips.has_own_background(seen_style)
    assert all(part for part, _ in merged)


@given(LINE, LINE, CELL)
def test_an_overlay_replaces_cells(runs: list[Run], new: list[Run], start: int) -> None:
    text, inner = strips.text(runs), strips.text(new)
    start = min(start, len(text))
    stop = start + len(inner)
    assert strips.text(strips.overlay(runs, start, new)) == text[:start] + inner + text[stop:]
    whole = strips.text(strips.overlay(runs, start, new, whole_words=True))
    first, last = start, stop
    while 0 < first <= len(text) and text[first - 1] != " ":
        first -= 1
    while last < len(text) and text[last] != " ":
        last += 1
    assert whole == text[:first].ljust(start) + inner + text[last:].rjust(len(text) - stop)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=6), CELL)
def test_important_pieces_are_kept(ranks_and_widths: list[tuple[int, int]], room: int) -> None:
    """A piece is left out only if it does not fit beside the kept pieces before it in rank."""
    pieces: list[strips.Piece] = [
        (rank, [(f"{i}" * cells, "text")]) for i, (rank, cells) in enumerate(ranks_and_widths)
    ]
    kept = strips.pieces_that_fit(pieces, room, 2)
    assert kept == [piece for piece in pieces if piece in kept]
    order = {i: (rank, i) for i, (rank, _) in enumerate(pieces)}
    for i, piece in enumerate(pieces):
        earlier = [j for j in order if order[j] < order[i] and pieces[j] in kept]
        needed = sum(strips.width(pieces[j][1]) + 2 for j in [*earlier, i])
        assert (piece in kept) == (needed <= room)
    line = strips.text(strips.fit_line(pieces, max(0, room - 2), 2))
    assert line == "  ".join(strips.text(runs) for _, runs in kept) or room < 2


@given(st.lists(st.text("abc ", min_size=1, max_size=25), max_size=5), st.integers(4, 40))
def test_long_text_is_wrapped_between_evidence_if_possible(pieces: list[str], room: int) -> None:
    pieces = [" ".join(piece.split()) or "d" for piece in pieces]
    lines = strips.wrap_line(" · ".join(pieces), room)
    assert all(0 < len(line) <= room for line in lines)
    assert "".join(lines).translate({32: None, 0xB7: None}) == "".join(pieces).replace(" ", "")
    for line, following in pairwise(lines):
        first = following.split(" · ")[0]
        assert first not in pieces or len(line) + 3 + len(first) > room, "it would fit"


@pytest.mark.parametrize(("size", "expected"), [
    (20, "lost  3 of 8 ───── x"), (15, "lost  3 of 8  x"), (14, "lost ─────── x"), (3, "lo…"),
])  # fmt: skip
def test_a_title_drops_its_count_before_its_word(size: int, expected: str) -> None:
    after: list[Run] = [("x", "dim")] if size > 5 else []
    assert strips.text(strips.panel_title("lost", "3 of 8", size, after)) == expected


@pytest.mark.parametrize(("size", "expected"), [(4, "ab  "), (2, "ab"), (1, "…")])
def test_a_line_is_padded_or_cut_to_its_size(size: int, expected: str) -> None:
    result = strips.fit_runs([("a", "dim"), ("b", "warn")], size, "alarm")
    assert strips.text(result) == expected
    assert (result[0][1] == "alarm") == (size < 2)
    spread = strips.justify([("ab", "dim")], [("c", "dim")], size)
    assert strips.text(spread) == "ab" + " " * max(1, size - 3) + "c"


def test_text_without_room_is_wrapped_into_single_characters() -> None:
    assert strips.wrap_line("ab", -4) == ["a", "b"]
