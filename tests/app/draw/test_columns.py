"""Columns are chosen by width, and a cell says what its number is."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any

import pytest

from perftop.draw.columns import (
    Column,
    by_content,
    column_at,
    fitted,
    headings,
    line,
    plain,
    total_width,
)

NAME = Column("name", "task", 8, left=True, most=20, turn=1)
BUSY = Column("busy", "busy %", 8, scale=100.0, digits=1)
BAR = Column("bar", "", 10, left=True, rank=2, most=14)
IPC = Column("ipc", "IPC", 6, digits=2, rank=1)
EVENTS = Column("events", "events/s", 10, prefixed=True, rank=1)
ALL = [NAME, BUSY, BAR, IPC, EVENTS]


@pytest.mark.parametrize(
    ("width", "widths"),
    [
        (10, {"name": 8, "busy": 8}),  # these two are never dropped
        (16, {"name": 8, "busy": 8}),
        (31, {"name": 20, "busy": 8}),  # of equal rank both fit or none
        (32, {"name": 8, "busy": 8, "ipc": 6, "events": 10}),
        (41, {"name": 17, "busy": 8, "ipc": 6, "events": 10}),
        (42, {"name": 8, "busy": 8, "bar": 10, "ipc": 6, "events": 10}),
        (47, {"name": 9, "busy": 8, "bar": 14, "ipc": 6, "events": 10}),
        (99, {"name": 20, "busy": 8, "bar": 14, "ipc": 6, "events": 10}),
    ],
)
def test_columns_are_dropped_by_rank_and_grow_by_turn(width: int, widths: dict[str, int]) -> None:
    assert {column.key: column.width for column in fitted(ALL, width)} == widths


def test_columns_of_one_turn_share_spare_cells_by_weight() -> None:
    columns = [replace(BAR, weight=3, most=40), replace(BAR, most=40), replace(BAR, most=11)]
    assert [column.width for column in fitted(columns, 30 + 11)] == [17, 13, 11]


@pytest.mark.parametrize(
    ("column", "value", "signs", "cell"),
    [
        (BUSY, 0.5, {}, ("50.0", "text")),
        (BUSY, -0.0001, {}, ("0.0", "text")),
        (EVENTS, 12_345.0, {}, ("12.3k", "text")),
        (EVENTS, 12_345.0, {"estimated": True}, ("≈12.3k", "text")),
        (BUSY, 0.5, {"doubted": True}, ("≁50.0", "dim")),
        (BUSY, nan, {}, ("n/a", "faint")),
        (replace(BUSY, scale=nan), 0.5, {}, ("n/a", "faint")),
        (BUSY, nan, {"doubted": True}, ("≁n/a", "dim")),
        (replace(BUSY, width=3), nan, {}, ("–", "faint")),
        (BUSY, nan, {"resting": True}, ("·", "faint")),
        (BUSY, nan, {"resting": True, "online": False}, ("off", "dim")),
    ],
)
def test_a_cell_shows_what_its_number_is(
    column: Column, value: float, signs: dict[str, Any], cell: tuple[str, str]
) -> None:
    assert column.cell(value, **signs) == cell


def test_lines_are_below_their_headings() -> None:
    columns = [by_content(replace(NAME, gap=1), ["sh", "stream[40]"]), BUSY, BAR]
    heading = headings(columns, "busy")
    assert [text for text, _ in heading] == [" task      ", " ▼busy %", "          "]
    assert [style for _, style in heading] == ["dim", "bright", "dim"]
    assert headings(columns, "name", rising=True)[0] == ("▲task      ", "bright")
    made = line(columns, [("a name too long", "text"), BUSY.cell(1.0), [("━━", "lp0")]])
    assert [text for text, _ in made] == [" a name to…", "   100.0", "  ", "━━", "      "]
    assert total_width(columns) == sum(len(text) for text, _ in made)
    assert plain(made) == " a name to…   100.0  ━━"


def test_a_cell_of_the_screen_is_in_a_column() -> None:
    found = [column_at([NAME, BUSY], x) for x in (-1, 0, 7, 8, 15, 16)]
    assert found == [None, NAME, NAME, BUSY, BUSY, None]
