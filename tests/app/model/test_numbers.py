"""The table of metrics and kinds, and values of the whole machine."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
import synth
from fakes import Machine, observe

from perfprobe.wire import Block, Counter, Frame, Rows
from perftop.base.text import GHZ, MISSING
from perftop.model.counters import Counters
from perftop.model.evaluation import BestTraffic, MachineTotals, Values
from perftop.model.kinds import (
    CAUSES,
    KINDS,
    MARK,
    NEIGHBOURS,
    UNKNOWN_KIND,
    Episode,
    Kind,
    cause_of,
    kind_of,
)
from perftop.model.numbers import MACHINE, METRICS, NUMBERS, PACKAGE, format_significant


def test_export_names_are_unique() -> None:
    columns = [
        number.column for number in NUMBERS.values() if number.scope not in {"machine", "run"}
    ]
    assert len(columns) == len(set(columns))


def test_all_metrics_have_a_heading_and_an_explanation() -> None:
    for key, number in NUMBERS.items():
        assert number.key == key
        assert number.label
        assert number.help.endswith("."), key


def test_a_package_has_the_metrics_of_a_machine_under_its_own_names() -> None:
    assert PACKAGE["package_power_w"].help == "Power of its package."
    assert PACKAGE["package_memory_of_best"].column == "package_memory_of_best_ratio"
    assert {key.removeprefix("package_") for key in PACKAGE} < set(MACHINE)


def test_no_share_exceeds_the_whole() -> None:
    """A tick of /proc/stat can be longer than a sample."""
    values = Values(np.full((len(METRICS), 1), 2.0), np.ones((len(METRICS), 1)))
    shares = {key: values[key].item() for key, number in METRICS.items() if number.unit == "ratio"}
    assert shares == dict.fromkeys(shares, 1.0)


@pytest.mark.parametrize(("key", "value", "heading", "text"), [
    ("util", 0.4567, "busy %", "45.7"),
    ("busy_hz", 3.456e9, "clock GHz", "3.46"),
    ("ipc", 1.0, "IPC", "1.00"),
    ("smi", 12_345.0, "SMI/s", "12.3k"),
    ("power_w", 150.24, "power W", "150.2"),
    ("memory_read_bytes_per_s", 25.2e9, "mem rd GB/s", "25.20"),
    ("run_s", 12.3456, "run time s", "12.35"),
    ("involuntary", nan, "invol %", MISSING),
    ("length_s", 123.456, "length s", "123.5"), ("cpu_s", 123.456, "CPU time s", "123.5"),
    ("waited_s", 123.456, "waits for CPU s", "123"),
    ("disk_s", 1.23456, "waits for disk s", "1.23"),
    ("instructions", 123.456e9, "instructions G", "123.5"),
    ("energy_j", 12_345.6, "energy kJ", "12.3"), ("others_cpus", 1.234, "others CPUs", "1.23"),
    ("load_1", 12.345, "load 1", "12.35"), ("temperature_c", 61.7, "temp °C", "62"),
    ("l3_occupancy_bytes", 12_345_678.0, "L3 used B", "12.3M"),
])  # fmt: skip
def test_values_have_a_heading_and_a_text(key: str, value: float, heading: str, text: str) -> None:
    number = NUMBERS[key]
    assert (number.name(GHZ), number.text(value, GHZ)) == (heading, text)


@pytest.mark.parametrize(("value", "digits", "text"), [
    (0.001234, 4, "0.0012"), (12.3456, 4, "12.35"), (123456.0, 4, "123456"), (1.0, 3, "1.00"),
])  # fmt: skip
def test_values_are_rounded_to_significant_digits(value: float, digits: int, text: str) -> None:
    assert format_significant(value, digits) == text


# --- kinds and causes


ALL = [*KINDS.values(), *NEIGHBOURS.values()]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.key)
def test_the_metrics_named_by_a_kind_exist(kind: Kind) -> None:
    assert {kind.worsened_key} - {""} <= set(NUMBERS)
    assert set(kind.explained_keys) <= set(NUMBERS)
    assert kind.sentences or kind.key == "neighbour"
    assert len(kind.marker) == 1


@pytest.mark.parametrize(("kind", "cause", "expected_kind"), [
    ("turbo-drop", "power-pl1", KINDS["turbo-drop"]),
    ("neighbour", "memory", NEIGHBOURS["memory"]),
    ("neighbour", "something new", KINDS["neighbour"]),
    ("mark", "-", MARK),
    ("something new", "unknown", UNKNOWN_KIND),
])  # fmt: skip
def test_an_episode_has_the_name_and_unit_of_its_kind(
    kind: str, cause: str, expected_kind: object
) -> None:
    assert kind_of(Episode(kind, [0], 0, cause=cause)) is expected_kind


def test_an_unknown_cause_is_shown_as_it_is() -> None:
    assert cause_of("thermal") is CAUSES["thermal"]
    assert cause_of("something new").name == "something new"


# --- values of the whole machine


def test_uncounted_metrics_are_absent() -> None:
    assert observe(Machine(cores=2))[1].machine == {}


def test_dies_of_a_package_are_added_and_memory_power_is_separate() -> None:
    """The counter has two columns, one for each die."""
    energy = Counter("energy_ram_j", "energy", "J", "made", scale=0.001, columns=2)
    machine = Machine(cores=2)
    machine.hello.blocks.append(block := Block("more", "package", [energy]))
    counters = Counters(machine.hello)
    frames = []
    for seq in range(2):
        ticks = int(seq * synth.TSC_HZ / 10)
        head = np.array([ticks, ticks, 0, 0, 1], np.uint64).tobytes()
        cells, valid = np.array([seq * 500, seq * 700], np.uint64), np.array([3], np.uint64)
        rows = Rows(head, valid.tobytes(), cells.tobytes())
        frames.append(Frame(seq, seq * 100_000_000, {block.name: rows}))
    delta = counters.steps(frames)[1]
    totals = MachineTotals(counters, BestTraffic(counters))
    result = totals.package_values(totals.rates(delta))
    assert result["power_dram_w"].tolist() == pytest.approx([12.0])
