"""Runs of a line: properties of cutting, joining and fitting, for any runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import strips
from perftop.draw.columns import Run

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


@pytest.mark.parametrize(("size", "expected"), [(4, "ab  "), (2, "ab"), (1, "a")])
def test_a_line_is_padded_or_cut_to_its_size(size: int, expected: str) -> None:
    result = strips.fit_runs([("a", "dim"), ("b", "warn")], size, "alarm")
    assert strips.text(result) == expected
    assert (result[0][1] == "alarm") == (size < 2)
    spread = strips.justify([("ab", "dim")], [("c", "dim")], size)
    assert strips.text(spread) == "ab" + " " * max(1, size - 3) + "c"


def test_text_without_room_is_wrapped_into_single_characters() -> None:
    assert strips.wrap_line("ab", -4) == ["a", "b"]
