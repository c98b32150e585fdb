"""Values of metrics by key, of CPUs and of the machine; ceilings from tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pytest
import sessions
import sim_streams
import synth
from fakes import CpuLoad, Machine, observe, with_suspect_counter
from increments import BASE, ORIGIN, cpufreq, turbo_table
from sessions import session_of

from perfprobe import wire
from perfprobe.wire import Block, Missing
from perftop.base.text import clock_unit
from perftop.model.confidence import BASE_CLOCK, ClockCap
from perftop.output import stat_lines
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import (
    COLUMNS_BY_KEY,
    CpuColumns,
    cpu_values,
    lasting_reasons,
    mean_ceiling,
    suspect_rows,
    unaccounted_text,
)


@pytest.mark.parametrize(("hz", "util", "expected_hz"), [
    ([3.5, 3.5, 2.9, 2.9], [1.0, 1.0, 1.0, 1.0], 3.2),
    ([3.5, 2.9], [0.75, 0.25], 3.35),  # the clock is weighted by running time
    ([3.5, 2.9], [0.0, 0.5], 2.9),
    ([3.5, 2.9], [0.0, 0.0], 3.5),
    ([nan, 2.9, 3.5], [1.0, 0.5, nan], 2.9),
    ([nan, nan], [1.0, 0.5], nan),
    ([], [], nan),
])  # fmt: skip
def test_the_ceiling_of_different_cpus_is_weighted_like_their_clock(
    hz: list[float], util: list[float], expected_hz: float
) -> None:
    """Otherwise cores of two types at their ceilings would seem to be below it."""
    ceiling_hz = mean_ceiling(np.array(hz), np.array(util))
    assert ceiling_hz == pytest.approx(expected_hz, nan_ok=True)


@pytest.fixture(scope="module")
def busy_machine() -> tuple[Session, Interval]:
    """Two packages of two cores with two threads, busy and with memory traffic."""
    hello, messages = sim_streams.messages("sim:memory,cpus=8,packages=2", 60)
    session = session_of(Session(hello), messages)
    return session, session.take_interval()


def test_metrics_of_cores_and_packages_are_values_of_their_cpus(
    busy_machine: tuple[Session, Interval],
) -> None:
    session, interval = busy_machine
    core, package = (
        session.reader.cores.core_by_cpu,
        np.array([row.package for row in session.topology], int),
    )
    split = interval.split
    expected = {
        "util": interval.values["util"],
        "ipc": interval.values["ipc"],
        "both": split.states[core, 3],
        "neither": split.states[core, 0],
        "active_threads": split.active_threads[core],
        "turbo_ceiling_hz": interval.ceilings.hz[core],
        "turbo_ceiling_high_hz": interval.ceilings.high_hz[core],
        "package_power_w": interval.packages["power_w"][package],
        "package_memory_of_best": interval.packages["memory_of_best"][package],
        "instructions": interval.counts["instructions"] / interval.elapsed_s,
        "l3_occupancy_bytes": np.full(8, nan),
        "power_w": np.full(8, nan),
        "nonsense": np.full(8, nan),
    }
    assert len(set(core.tolist())) == 4
    assert CpuColumns(session).first_cpus == [session.cores[index][0] for index in core]
    assert set(package.tolist()) == {0, 1}
    for key, values in expected.items():
        np.testing.assert_array_equal(cpu_values(session, interval, key), values, key)


def test_numbers_of_an_l3_are_those_of_its_cpus_in_all_outputs() -> None:
    """Two L3s of two CPUs. Their counters are read on CPUs 0 and 2."""
    l3_counters = [
        wire.Counter("l3_memory_bytes", "traffic", "B", "made", cpus=[0, 2]),
        wire.Counter("l3_occupancy_bytes", "occupancy", "B", "made", kind="gauge", cpus=[0, 2]),
    ]
    hello = synth.hello([synth.REF, *l3_counters], cores=4, threads=1)
    for row in hello.topology:
        hello.topology[row.cpu] = replace(row, l3=7 + row.cpu // 2)
    samples: list[synth.Values] = [
        {
            "ref": [seq] * 4, "l3_memory_bytes": [200_000_000 * seq, None, 600_000_000 * seq, None],
            "l3_occupancy_bytes": [3_000_000, None, 5_500_000, None],
        }
        for seq in range(3)
    ]  # fmt: skip
    session = sessions.play(hello, *samples)
    interval = session.take_interval()
    traffic = cpu_values(session, interval, "l3_memory_bytes_per_s")
    assert traffic == pytest.approx([2e9, 2e9, 6e9, 6e9])
    occupancy = cpu_values(session, interval, "l3_occupancy_bytes")
    assert occupancy.tolist() == [3e6, 3e6, 5.5e6, 5.5e6]
    assert np.isnan(cpu_values(session, interval, "package_power_w")).all()
    keys = "l3", "memory_bytes_per_s", "occupancy_bytes"
    lines = stat_lines.interval_line(session, interval)["l3"]
    assert [[line[key] for key in keys] for line in lines] == [
        [7, pytest.approx(2e9), 3e6], [8, pytest.approx(6e9), 5.5e6],
    ]  # fmt: skip
    text = stat_lines.StatTable(session, ["util"]).lines(interval)
    assert [re.findall(r"[\d.]+", line) for line in text if line.startswith("L3 ")] == [
        ["3", "7", "2.0", "3.0"], ["3", "8", "6.0", "5.5"],
    ]  # fmt: skip


# --- columns of a table of CPUs


@pytest.mark.parametrize(("busy", "known_share", "text"), [
    (0.05, 0.0, ""), (0.0501, 0.0, "not seen 100 %"), (0.5, 0.25, ""), (0.5, 0.24, "not seen 52 %"),
])  # fmt: skip
def test_more_than_half_of_the_busy_time_is_unaccounted_for(
    busy: float, known_share: float, text: str
) -> None:
    assert unaccounted_text(busy, known_share) == text


LOADS = {0: CpuLoad(0.9, hz=2.401e9), 1: CpuLoad(0.3, hz=2.404e9), 2: CpuLoad(0.3, hz=2.9e9),
         3: CpuLoad(0.0)}  # fmt: skip
TASKS = {"0": [7, "b", 0.9], "1": [8, "Aa", 0.3], "2": [9, "rare", 0.1], "3": [9, "a", 0.0]}


@pytest.fixture(scope="module")
def two_cores() -> tuple[Session, Interval]:
    """CPUs 0 and 2 share a core, 1 and 3 the other. CPU 2 was busy with unknown tasks."""
    return observe(Machine(cores=2, loads=LOADS), records={"tasks": TASKS})


@pytest.mark.parametrize(("suspect", "key", "expected"), [
    ("cycles", "busy_hz", [1]), ("cycles", "util", []), ("cycles", "cycles", [1]),
    ("ref", "util", [1]), ("ref", "both", [1, 3]), ("one_thread", "lp0", [1, 3]),
    ("one_thread", "util", []), ("cycles", "both", []), ("instructions", "cycles", []),
])  # fmt: skip
def test_a_number_is_suspect_if_one_of_its_counters_is(
    two_cores: tuple[Session, Interval], suspect: str, key: str, expected: list[int]
) -> None:
    session, interval = two_cores
    assert not suspect_rows(key, session, interval).any()
    marked = with_suspect_counter(interval, 1, suspect)
    assert np.flatnonzero(suspect_rows(key, session, marked)).tolist() == expected


@pytest.mark.parametrize(("key", "rows", "falling", "rising"), [
    ("util", [3, 2, 1, 0], [0, 2, 1, 3], [3, 2, 1, 0]),
    ("busy_hz", [0, 1, 2, 3], [2, 0, 1, 3], [0, 1, 2, 3]),  # 2.40 GHz twice; unknown values last
    ("busy_hz", [1, 0, 3], [1, 0, 3], [1, 0, 3]),
    ("task", [0, 1, 2, 3], [3, 1, 0, 2], [0, 1, 3, 2]),
])  # fmt: skip
def test_rows_are_sorted_by_displayed_values(
    two_cores: tuple[Session, Interval], key: str, rows: list[int], falling: list[int],
    rising: list[int],
) -> None:  # fmt: skip
    session, interval = two_cores
    columns, clock = CpuColumns(session), clock_unit("GHz", nan)
    for reverse, expected in ((False, falling), (True, rising)):
        ordered = columns.sorted_rows(
            np.array(rows), COLUMNS_BY_KEY[key], interval, clock, reverse=reverse
        )
        assert ordered.tolist() == expected, reverse


# --- ceilings from tables


CORES = 4


def stream(turbo_: Sequence[wire.Turbo], **changes: Any) -> wire.Hello:
    switch = Block("machine", "machine", [synth.gauge("turbo_off")])
    hello = synth.hello(
        [synth.REF, synth.CYCLES], cores=CORES, threads=1, turbo=list(turbo_),
        core=[synth.counter("core_c6")],
        **{"base_hz": BASE, **changes},
    )  # fmt: skip
    hello.blocks.append(switch)
    return hello


def play(hello: wire.Hello, *, hz: float, active: int, off: int = 0, samples: int = 8) -> Session:
    session = Session(hello)
    for seq in range(samples):
        ticks = int(seq * synth.TSC_HZ / 10)
        run = [ticks if core < active else 0 for core in range(CORES)]
        values: dict[str, list[int | None]] = {
            "ref": [*run], "cycles": [int(r * hz / synth.TSC_HZ) for r in run],
            "core_c6": [ticks - r for r in run], "turbo_off": [off],
        }  # fmt: skip
        session.apply(synth.frame(hello, seq, values, stamps=[ticks] * CORES))
    return session


STEPS = [(1, 37), (2, 35), (4, 30)]


def test_disabled_turbo_has_the_cause_policy() -> None:
    session = play(stream([turbo_table(STEPS)]), hz=2.1e9, active=4, off=1)
    (episode,) = session.detector.running
    assert (episode.cause, episode.confidence) == ("policy", "measured")
    assert episode.depth == pytest.approx(0.9e9)
    assert episode.evidence["cap"] == ClockCap("turbo off", 2.1e9)


def test_a_clock_below_the_base_clock_is_a_drop_without_a_table() -> None:
    hello = stream([cpufreq(38)])
    assert play(hello, hz=2.5e9, active=4).detector.running == []
    (episode,) = play(hello, hz=1.8e9, active=4).detector.running
    assert episode.depth == pytest.approx(0.3e9)
    assert episode.evidence["ceiling"] == BASE_CLOCK


def test_json_contains_the_range_and_the_origin_of_a_ceiling() -> None:
    session = play(stream([turbo_table(STEPS), cpufreq(39, cpus=[0])]), hz=3.0e9, active=4)
    assert stat_lines.hello_line(session)["origin"]["turbo_ceiling_hz"] == ORIGIN
    cores = stat_lines.interval_line(session, session.take_interval())["cores"]
    keys = "turbo_ceiling_hz", "turbo_ceiling_low_hz", "turbo_ceiling_high_hz"
    assert [cores[0][key] for key in keys] == [3.0e9, 3.0e9, 3.9e9]
    assert [cores[1][key] for key in keys] == [3.0e9, 3.0e9, 3.0e9]
    assert all("turbo_ceiling_hz" not in core.get("why", {}) for core in cores)


def missing(hello: wire.Hello) -> list[tuple[str, str | None, list[int] | None]]:
    result = lasting_reasons(Session(hello))
    return [(m.why, m.fix, m.cpus) for m in result if m.what == "turbo_ceiling_hz"]


def test_a_missing_table_has_the_reason_of_its_registers() -> None:
    none = "perftop knows no register with the turbo limits of this CPU"
    registers = Missing("limit_reasons", "no /dev/cpu/N/msr", "sudo modprobe msr")
    torn = Missing("turbo", "MSR 1ADH cannot be read")
    message = Missing("turbo_ceiling_hz", "turbo is off")
    assert missing(stream([turbo_table(STEPS)])) == []
    assert missing(stream([])) == missing(stream([cpufreq(38)])) == [(none, None, None)]
    assert missing(stream([], missing=[registers])) == [(registers.why, registers.fix, None)]
    assert missing(stream([], missing=[registers, torn])) == [(torn.why, None, None)]
    assert missing(stream([], missing=[message])) == [(message.why, None, None)]
    assert missing(stream([turbo_table(STEPS, cpus=[0, 1])])) == [(none, None, [2, 3])]
