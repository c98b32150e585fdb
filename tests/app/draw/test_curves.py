"""Clock and rate as dots: exact cells of values computed by hand, and what holds for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import charts, strips, theme
from perftop.draw.charts import ASLEEP, AWAKE, LOST, Look, rows_of
from perftop.draw.columns import Run

LOOKS: tuple[Look, ...] = ("colour", "shapes", "ascii")
NAN = float("nan")


def clock(
    hz: list[float], ceiling: list[float], how: list[int] | None = None, look: Look = "colour",
    rows: int = 3, ends: tuple[float, float] = (0.0, 7.0),
) -> Sequence[list[Run]]:  # fmt: skip
    columns = [*zip(hz, ceiling, how or [AWAKE] * len(hz), strict=True)]
    return rows_of(charts.clock(np.array(columns), ends, rows, look))


def rate(
    values: list[float], how: list[int], high: float, rows: int, look: Look = "colour"
) -> Sequence[list[Run]]:
    columns = np.array([values, how]).T
    return rows_of(charts.rate(columns, high, rows, look))


def test_the_clock_is_a_thick_line_below_its_ceiling() -> None:
    """8 rows of dots for 0 to 7, of which the line takes two: 7 is at the top, 0 at the bottom."""
    assert clock([7, 7, 0, 0], [7] * 4) == [
        [("┄┄", "rule")],
        [("⠛⡇", "clock")],
        [(" ", "text"), ("⣧", "clock")],
    ]


def test_unknown_has_no_dots_and_no_line_leads_to_it() -> None:
    assert clock([7, NAN, NAN, 0], [NAN] * 4) == [
        [("  ", "text")],
        [("⠃", "clock"), (" ", "text")],
        [(" ", "text"), ("⢠", "clock")],
    ]


def test_a_lower_ceiling_is_dotted() -> None:
    lines = clock([0, 0, 0, 0], [7, 7, 5, 5])
    assert lines[0] == [("┄", "rule"), (" ", "text")]
    assert strips.text(lines[1]) == " ⠄"
    assert lines[1][-1][1] == "rule"


def test_what_is_lost_is_red_on_its_own_ground_and_sleep_is_faint() -> None:
    lines = clock([7] * 6, [7] * 6, [AWAKE, AWAKE, ASLEEP, ASLEEP, AWAKE, LOST])
    assert lines[0] == [("┄┄", "rule"), ("┄", "faint/drop-back")]
    assert lines[1] == [("⠛", "clock"), ("⠛", "faint"), ("⠛", "alarm/drop-back")]
    assert lines[2] == [("  ", "text"), (" ", "text/drop-back")]


def test_a_rate_is_an_area_from_zero() -> None:
    """12 rows of dots for 0 to 3: 1.5 has 6 of them, 0 none, a little one."""
    lines = rate([1.5, 1.5, 0.0, 0.01, 3.0, NAN], [0, 0, 0, 0, 0, LOST], 3.0, 3)
    assert lines == [
        [("  ", "text"), ("⡇", "loss-10")],
        [("⣤", "ipc-6"), (" ", "text"), ("⡇", "loss-6")],
        [("⣿⢀", "ipc-2"), ("⡇", "loss-2")],
    ]


def test_in_ascii_a_cell_is_one_column() -> None:
    lines = clock([0, 7, 0, 0], [NAN, NAN, NAN, 3], look="ascii")
    assert [strips.text(line) for line in lines] == ["  ", "'|", " |"]
    made = rate([0.0, 3.0, 0.0, 1.5], [AWAKE] * 4, 3.0, 2, "ascii")
    assert [strips.text(line) for line in made] == ["# ", "##"]


VALUES = st.floats(-1e10, 1e10) | st.just(NAN)


@given(
    st.lists(st.tuples(VALUES, VALUES, st.integers(0, 2)), min_size=2, max_size=12),
    st.integers(2, 7), st.sampled_from(LOOKS),
)  # fmt: skip
def test_anything_is_drawn(columns: list[tuple[float, float, int]], rows: int, look: Look) -> None:
    even = columns[: len(columns) // 2 * 2]
    hz, ceiling, how = ([column[i] for column in even] for i in range(3))
    lost = [int(it) for it in how]
    lines = clock(hz, ceiling, lost, look, rows, ends=(1e9, 4e9))
    known = theme.styles("perftop-dark")
    for line in [*lines, *rate(hz, lost, 2.0, rows, look)]:
        assert strips.width(line) == len(even) // 2
        assert all(part in known for _, key in line for part in key.split("/"))


def test_a_run_of_dots_is_not_joined_with_blanks() -> None:
    """Browsers take dots from another font, which has the right width for a whole run only."""
    runs = [("⣿⣿", "clock"), ("  ", "text"), ("3.00", "text")]
    assert strips.merged(runs, 9) == [("⣿⣿", "clock"), ("  3.00 ", "text")]
    assert strips.merged(runs[:1], 4) == [("⣿⣿", "clock"), ("  ", "text")]
