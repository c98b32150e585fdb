"""Cells of the table and their positions, without an app."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine, guest, observe, tasks, with_doubt
from hypothesis import given
from hypothesis import strategies as st

from perftop.base.text import clock_unit
from perftop.draw import strips, theme
from perftop.draw.columns import Column, columns_line, total_width
from perftop.model.numbers import METRICS
from perftop.model.smt import STATES
from perftop.session import values as columns
from perftop.tui.views import table

GHZ = clock_unit("GHz", math.nan)


def page(machine: Machine, doubt: tuple[int, str] | None = None, **more: Any) -> table.Page:
    """All columns; `doubt`: a CPU and its counter."""
    session, interval = observe(machine, **more)
    interval = with_doubt(interval, *doubt) if doubt else interval
    of = columns.CpuColumns(session)
    result = table.Page(names=table.name_columns(session)[:1])
    result.scroll([table.number_column(number, GHZ) for number in of.columns()], 0, 400)
    result.read(of, session, interval)
    return result


def row(machine: Machine, cpu: int, **more: Any) -> dict[str, str]:
    """The text below each heading."""
    result = page(machine, **more)
    cells = zip(result.columns, result.cells(cpu, "a:1", None), strict=True)
    return {column.key: str(cell[0]) for column, cell in cells}


# --- contents


def test_all_known_metrics_of_a_cpu_are_shown() -> None:
    m = Machine(cores=2, does={0: CpuLoad(1.0, 2.5e9, ipc=0.42), 2: CpuLoad(0.25, alone=0.0)})
    result = row(m, 0, records=tasks(["lmp"]))
    served = {key for key in METRICS if observe(m)[0].evaluator.chosen[key]}
    assert served <= result.keys()
    assert {key: result[key] for key in ("util", "busy_hz", "ipc", "involuntary", "task")} == {
        "util": "100.0", "busy_hz": "2.50", "ipc": "0.42", "involuntary": "0.00", "task": "a:1",
    }  # fmt: skip
    assert [result[key] for key in ("both", "lp0", "lp1", "neither")] == [
        "25.0",
        "75.0",
        "0.0",
        "0.0",
    ]
    assert result["turbo_ceiling_hz"] == "3.20"
    assert row(m, 2)["both"] == "25.0"  # shared with its sibling


def test_uncounted_metrics_have_no_column() -> None:
    result = row(guest(), 0)
    assert not {"busy_hz", "ipc", "both", "turbo_ceiling_hz", "smi", "task"} & result.keys()
    assert {"util", "steal"} <= result.keys()
    bounds_only = Machine(cores=2, split=False)
    assert not {"both", "lp0"} & row(bounds_only, 0).keys()
    assert row(Machine(cores=2, threads=4), 0).get("neither") is not None
    assert "both" not in row(Machine(cores=2, threads=4), 0)


def test_unknown_values_and_the_clock_of_an_idle_cpu_are_not_numbers() -> None:
    m = Machine(does={1: CpuLoad(0.0), 2: CpuLoad(0.005)})
    for cpu in (1, 2):
        result = row(m, cpu)
        assert (result["busy_hz"], result["ipc"], result["kernel_cycles"]) == (theme.NEITHER,) * 3
    assert row(Machine(ceiling_hz=None), 0).get("turbo_ceiling_hz") is None


def test_only_values_of_suspect_counters_are_marked() -> None:
    doubt = 2, "instructions"
    output = row(Machine(), 2, doubt=doubt)
    assert (output["util"], output["busy_hz"], output["kernel_cycles"]) == ("50.0", "3.00", "10.0")
    assert output["ipc"] == "≁1.25"
    assert "≁" not in "".join(row(Machine(), 1, doubt=doubt).values())


def test_states_are_marked_on_both_cpus_of_the_core() -> None:
    doubt = 2, "one_thread"
    for cpu in (2, 6):
        output = row(Machine(), cpu, doubt=doubt)
        assert {key for key, text in output.items() if "≁" in text} == {*STATES}
    assert "≁" not in "".join(row(Machine(), 1, doubt=doubt).values())


# --- positions


def test_positions_do_not_change_with_values() -> None:
    low = CpuLoad(0.001, 0.8e9, 0.01, 0.0)
    high = CpuLoad(1.0, 9.2e9, 9.99, 1.0)
    results = []
    for does in (low, high):
        result = page(Machine(does=dict.fromkeys(range(8), does)))
        title = strips.text(result.headings("util", 400, reverse=False))
        texts = [
            strips.text(columns_line(result.columns, result.cells(i, "", None))) for i in range(8)
        ]
        results.append((title, [len(text) for text in texts]))
        for text in texts:  # values end below the end of their title
            at = 0
            for column in result.columns:
                at += column.width
                end = title[at - 1 + table.SIGN_CELLS]
                assert column.is_left or (text[at - 1] != " " and end != " "), column.key
    assert results[0] == results[1]


@given(
    st.lists(st.integers(3, 34), max_size=20),
    st.integers(-3, 40),
    st.integers(1, 200),
)
def test_visible_columns_fit_and_all_can_be_reached(
    widths: list[int], left: int, width: int
) -> None:
    every = [Column(str(i), "x", wide) for i, wide in enumerate(widths)]
    result = table.Page(names=[Column("cpu", "cpu", 6)])
    result.scroll(every, left, width)
    count, room = len(result.numbers), width - table.SIGN_CELLS - 1
    assert result.hidden + count + result.more == len(every)
    assert result.numbers == every[result.hidden : result.hidden + count]
    assert bool(count) == bool(every)
    if count > 1:
        assert total_width(result.columns) <= room
    if result.hidden and result.more == 0:  # no further than needed
        assert total_width([every[result.hidden - 1], *result.columns]) > room


def test_rows_of_equal_values_do_not_move() -> None:
    session, interval = observe(
        Machine(does={3: CpuLoad(0.50049), 5: CpuLoad(0.50031), 1: CpuLoad(0.7)})
    )
    of = columns.CpuColumns(session)
    rows = of.sorted_rows(
        np.arange(8), columns.COLUMNS_BY_KEY["util"], interval, GHZ, reverse=False
    ).tolist()
    assert rows == [1, 0, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("units", "base_hz", "number", "digits"),
    [("GHz", 2e9, 3.456, 2), ("MHz", 2e9, 3456, 0), ("base", 2e9, 1.728, 2),
     ("base", math.nan, math.nan, 2), ("base", 0.0, math.nan, 2)],
)  # fmt: skip
def test_a_clock_is_converted_to_units(
    units: str, base_hz: float, number: float, digits: int
) -> None:
    unit = clock_unit(units, base_hz)
    assert 3.456e9 * unit.per_hz == pytest.approx(number, nan_ok=True)
    assert unit.digits == digits
