from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.cpu import cpu_sets
from perfprobe.wire import Cpu

XEON = [Cpu(n, True, n % 48 // 24, 0, n % 24, n // 48) for n in range(96)]
HYBRID = [Cpu(n, True, 0, 0, n, type="P" if n < 4 else "E") for n in range(12)]
FORMS = "(try 0-15, 32, pkg0, core3, pkg1core3, type:P)"
SPARSE = [Cpu(n, n != 9, 0, 0, n) for n in (0, 1, 2, 3, 8, 9)]


@pytest.mark.parametrize(("text", "cpus"), [
    ("", []),
    ("\n", []),
    ("0\n", [0]),
    ("0-3,8", [0, 1, 2, 3, 8]),
    ("8,0-3,2-4", [0, 1, 2, 3, 4, 8]),
    (" 1, 3 5\n", [1, 3, 5]),
    ("0-7:1/2", [0, 2, 4, 6]),
    ("0-6:2/4", [0, 1, 4, 5]),
    ("1-9:2/4,20", [1, 2, 5, 6, 9, 20]),
    ("65535", [65535]),
    ("007", [7]),
])  # fmt: skip
def test_a_list_is_parsed_into_cpus(text: str, cpus: list[int]) -> None:
    assert cpu_sets.parse(text) == cpus


@pytest.mark.parametrize(("text", "why"), [
    ("0-999999999", "'0-999999999': the highest CPU number is 65535"),
    ("65536", "'65536': the highest CPU number is 65535"),
    ("9" * 5000, f"'{'9' * 39}…': the highest CPU number is 65535"),
    pytest.param(
        ",".join(["0-65535"] * 500), "a CPU list names more than 65536 CPUs", id="many"
    ),
    ("5-3", "'5-3' runs backwards"),
    ("0-7:0/2", "'0-7:0/2': cannot select 0 of every 2 CPUs"),
    ("0-7:3/2", "'0-7:3/2': cannot select 3 of every 2 CPUs"),
    ("0-7:1/0", "'0-7:1/0': cannot select 1 of every 0 CPUs"),
    ("3:1/2", "'3:1/2' is not a CPU number or a range"),
    ("-1", "'-1' is not a CPU number or a range"),
    ("0-", "'0-' is not a CPU number or a range"),
    ("1_0", "'1_0' is not a CPU number or a range"),
    ("٣", "'٣' is not a CPU number or a range"),
    ("0\x1b[2J", "'0?[2J' is not a CPU number or a range"),
])  # fmt: skip
def test_parse_errors_name_the_fault(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        cpu_sets.parse(text)
    assert str(caught.value) == why


def test_numbers_and_lists_have_limits() -> None:
    assert len(cpu_sets.parse(f"0-{cpu_sets.MAX_CPU - 1}")) == cpu_sets.MAX_CPU
    assert cpu_sets.parse("7".rjust(20, "0")) == [7]
    with pytest.raises(ValueError, match="the highest CPU number is"):
        cpu_sets.parse("7".rjust(21, "0"))


def test_a_huge_range_allocates_no_memory() -> None:
    tracemalloc.start()
    with pytest.raises(ValueError):
        cpu_sets.parse("0-999999999")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@given(st.sets(st.integers(0, cpu_sets.MAX_CPU - 1)))
def test_a_formatted_list_is_parsed_into_the_same_cpus(cpus: set[int]) -> None:
    assert cpu_sets.parse(cpu_sets.format(cpus)) == sorted(cpus)


@given(st.text() | st.text("0123456789,:/ -", max_size=30))
def test_any_text_is_a_list_or_a_value_error(text: str) -> None:
    for read in (cpu_sets.parse, lambda text: cpu_sets.select(text, XEON)):
        message = ""
        try:
            cpus = read(text)
            assert cpus == sorted(set(cpus))
        except ValueError as error:
            message = str(error)
        assert len(message) < 200
        assert "\n" not in message


# --- selection -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "cpus"), [
    ("0-2,32", [0, 1, 2, 32]),
    ("5", [5]),
    ("pkg1", [*range(24, 48), *range(72, 96)]),
    ("core3", [3, 27, 51, 75]),
    ("pkg1core3", [27, 75]),
    ("PKG1Core3", [27, 75]),
    ("core0, 90,pkg0core1", [0, 1, 24, 48, 49, 72, 90]),
    ("0-95:1/32", [0, 32, 64]),
])  # fmt: skip
def test_a_selection_chooses_cpus(text: str, cpus: list[int]) -> None:
    assert cpu_sets.select(text, XEON) == cpus


def test_cpus_are_selected_by_core_type() -> None:
    assert cpu_sets.select("type:P", HYBRID) == [0, 1, 2, 3]
    assert cpu_sets.select("type:e,0", HYBRID) == [0, 4, 5, 6, 7, 8, 9, 10, 11]


def test_ranges_span_holes_and_offline_cpus_may_be_selected() -> None:
    assert cpu_sets.select("2-9", SPARSE) == [2, 3, 8, 9]


@pytest.mark.parametrize(("text", "rows", "why"), [
    ("pkg3", XEON, "there is no package 3 here; there are 0-1"),
    ("pkg3", HYBRID, "there is no package 3 here; there is only 0"),
    ("core24", XEON, "there is no core 24 here; there are 0-23"),
    ("pkg1core24", XEON, "there is no core 24 in package 1 here; there are 0-23"),
    ("pkg2core1", XEON, "there is no package 2 here; there are 0-1"),
    ("96", XEON, "there is no CPU 96 here; there are 0-95"),
    ("90-100", XEON, "there is no CPU 96-100 here; there are 0-95"),
    ("5", SPARSE, "there is no CPU 5 here; there are 0-3,8-9"),
    ("4-7", SPARSE, "there is no CPU 4-7 here; there are 0-3,8-9"),
    ("type:X", HYBRID, "there is no CPU of type 'X' here; there are E, P"),
    ("type:P", XEON, "type:P: the CPUs here have no types"),
    ("pkg0", [Cpu(0, True)], "package 0: the kernel does not report packages here"),
    ("", XEON, "no CPUs are named: the selection is empty"),
    ("0,,2", XEON, "'0,,2': an item between commas is empty"),
    ("5-3", XEON, "'5-3' runs backwards"),
    ("0-999999999", XEON, "'0-999999999': the highest CPU number is 65535"),
    ("kern3", XEON, f"invalid CPUs 'kern3' {FORMS}"),
    ("core3pkg1", XEON, f"invalid CPUs 'core3pkg1' {FORMS}"),
])  # fmt: skip
def test_select_errors_name_the_fault_and_the_choices(text: str, rows: list[Cpu], why: str) -> None:
    with pytest.raises(ValueError) as caught:
        cpu_sets.select(text, rows)
    assert str(caught.value) == why
