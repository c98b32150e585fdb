"""The row of the machine: CPU time of the probe, pressure, load and interrupts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import trees
from hypothesis import given
from hypothesis import strategies as st
from synth import Clock

from perfprobe import wire
from perfprobe.native import sampler
from perfprobe.polled.polling import PolledBlock, PolledBlocks, ReadPace, Values
from perfprobe.polled.proc_counts import (
    MachineCounts,
    parse_loads,
    parse_pressure,
    parse_totals,
)

TEXT = "some avg10=0.00 avg60=1.20 avg300=0.31 total={}\nfull avg10=0 avg60=0 avg300=0 total=7\n"


def write_root(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "proc/pressure"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
    return tmp_path


def valid_columns(machine: MachineCounts) -> tuple[int, list[int]]:
    """The mask of valid columns, and all values."""
    assert machine.rows == 1
    ((_, values),) = machine.read()
    valid = sum(1 << i for i, value in enumerate(values) if value is not None)
    return valid, [value or 0 for value in values]


def test_reads_take_at_most_a_hundredth_of_the_time() -> None:
    clock = Clock()
    pace = ReadPace(clock)
    due = []
    for later_s in (0.0, 0.99, 0.02):
        clock.now_s += later_s
        with pace.timed_read() as is_due:
            due.append(is_due)
            clock.now_s += 0.01 if is_due else 0.0
    assert due == [True, False, True]


class MadeBlock(PolledBlock):
    block = wire.Block("made", "package", [wire.Counter(key, key, "1", "made") for key in "abc"])
    rows = 2

    def read(self) -> Iterator[tuple[int, Values]]:
        yield 1, [7, None, 9]


def test_a_row_has_its_stamps_and_valid_bits() -> None:
    polled = PolledBlocks([MadeBlock()])
    (place,), words = sampler.lay_out(polled.blocks())
    frame = memoryview(bytearray(8 * words))
    polled.read_into(frame, {"made": place}, iter([5, 6]).__next__)
    data = place.rows_in(frame)
    parts = (data.head, data.valid, data.values)
    heads, valid, values = (list(memoryview(part).cast("Q")) for part in parts)
    assert heads == [0] * wire.HEAD + [5, 6, 0, 0, wire.ROW_SAMPLED]
    assert (valid, values) == ([0, 0b101], [0, 0, 0, 7, 0, 9])


def test_a_kernel_without_pressure_is_reported(tmp_path: Path) -> None:
    machine = MachineCounts(write_root(tmp_path, cpu=TEXT.format(1)), 2)
    assert [c.key for c in machine.block.counters] == ["probe_cpu_s"]
    assert [(m.what, m.fix) for m in machine.missing] == [("pressure", "boot with psi=1")]
    assert valid_columns(machine)[0] == 1


def test_switches_of_intel_pstate_are_read(tmp_path: Path) -> None:
    below = write_root(tmp_path)
    at = "sys/devices/system/cpu"
    trees.put(below, f"{at}/intel_pstate/no_turbo", "1\n")
    trees.put(below, f"{at}/intel_pstate/max_perf_pct", "80\n")
    trees.put(below, f"{at}/cpufreq/boost", "1\n")  # intel_pstate takes precedence
    machine = MachineCounts(below, 2)
    assert [(c.key, c.kind) for c in machine.block.counters[1:]] == [
        ("turbo_off", "gauge"),
        ("max_perf_pct", "gauge"),
    ]
    assert valid_columns(machine)[1][1:] == [1, 80]
    (below / at / "intel_pstate/no_turbo").write_text("0\n", encoding="ascii")
    assert valid_columns(machine)[1][1:] == [0, 80]
    machine.close()


def test_the_boost_switch_of_other_drivers_is_read(tmp_path: Path) -> None:
    below = write_root(tmp_path, cpu=TEXT.format(1), memory=TEXT.format(2), io=TEXT.format(3))
    trees.put(below, "sys/devices/system/cpu/cpufreq/boost", "1\n")
    machine = MachineCounts(below, 2)
    assert machine.block.counters[-1].key == "turbo_off"
    assert [c.scale for c in machine.block.counters] == [1e-9, 1e-6, 1e-6, 1e-6, 1.0]
    assert valid_columns(machine)[1][1:] == [1, 2, 3, 0]
    trees.put(below, "sys/devices/system/cpu/cpufreq/boost", "?\n")
    assert valid_columns(machine)[0] == 0b1111  # the column of the switch is not valid
    machine.close()


def test_load_interrupts_and_context_switches_are_read(tmp_path: Path) -> None:
    below = write_root(tmp_path)
    trees.put(below, "proc/loadavg", "0.20 11.08 0.12 1/80 11206\n")
    trees.put(below, "proc/stat", "cpu0 1 2 3\nintr 4711 1 2 3\nctxt 815\nbtime 7\n")
    too_large = MachineCounts(below, 65)
    assert [c.key for c in too_large.block.counters[1:]] == ["load_1", "load_5", "load_15"]
    too_large.close()
    machine = MachineCounts(below, 64)
    assert [c.key for c in machine.block.counters[1:]] == [
        "load_1", "load_5", "load_15", "interrupts", "context_switches",
    ]  # fmt: skip
    assert valid_columns(machine)[1][1:] == [20, 1108, 12, 4711, 815]
    assert {c.scale for c in machine.block.counters[1:4]} == {0.01}
    (below / "proc/loadavg").write_text("0.2 nan 0.12", encoding="ascii")
    # A last line without its end is ignored.
    (below / "proc/stat").write_text("intr 4712 9\nctxt 81", encoding="ascii")
    assert valid_columns(machine)[0] >> 1 == 0b01000
    machine.close()


@given(st.binary(max_size=200))
def test_any_bytes_give_bounded_numbers_or_none(data: bytes) -> None:
    text = data.decode("ascii", "replace")
    values = parse_pressure(text) + parse_loads(text) + parse_totals(text)
    assert all(value is None or 0 <= value < 10**18 for value in values)
