"""The tables of `stat`: which columns they have, and when a heading stands above them."""

from __future__ import annotations

from itertools import pairwise

import made
from fakes import Machine, seen

from perftop.model.machine_totals import NAMES
from perftop.output.stat_table import USUAL, StatTable, columns, known
from perftop.session.session import Session


def test_columns_that_nothing_here_can_tell_are_left_out_unless_asked_for() -> None:
    session = Session(made.hello([made.REF, made.CYCLES]))
    there = [column.key for column in columns(session, None)]
    assert there == ["util", "busy_hz", "net_hz", "halt"]
    assert [column.key for column in columns(session, USUAL)] == [*USUAL]


def test_only_what_is_asked_for_is_there() -> None:
    session, interval = seen(Machine(cores=2))
    lines = StatTable(session, ["busy_hz", "smi", "power_w"]).lines(interval)
    heading, units, everyone, first, *_ = lines[2:]
    assert heading.split() == ["cpu", "clock", "SMI", "power"]
    assert units.split() == ["GHz", "/s", "W"]
    assert everyone.split()[0] == "all"
    assert len(first.split()) == 3, "of power a CPU has none"


def test_a_heading_stands_above_each_screenful() -> None:
    session, interval = seen(Machine(cores=2))
    for brief, rows in ((True, 1), (False, 7)):
        table = StatTable(session, brief=brief, height=20)
        printed = [line for _ in range(20) for line in table.lines(interval)]
        headings = [at for at, line in enumerate(printed) if "busy" in line]
        assert len(headings) == -(-20 * rows // (18 // rows * rows)), printed
        assert all(b - a <= 20 for a, b in pairwise(headings))


def test_brief_is_a_line_an_interval_with_the_states_of_all_cores() -> None:
    session, interval = seen(Machine(cores=2))
    _, _, line = StatTable(session, ["util", "smt"], brief=True).lines(interval)
    states = [float(cell) for cell in line.split()[2:]]
    assert len(states) == 4
    assert abs(sum(states) - 100) < 0.3


def test_every_number_of_the_machine_has_a_column() -> None:
    assert [name for name in NAMES if not known(name)] == []
