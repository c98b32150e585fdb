"""Memory traffic of packages, compared with the simulation, of L3s, and of resctrl groups."""

from __future__ import annotations

import dataclasses
from math import isnan, nan
from typing import Any

import numpy as np
import pytest
import sim_streams
import synth
from sessions import session_of

from perfprobe import wire
from perfprobe.sources.sim.truth import truth
from perftop.detect.memory_pressure import DEFAULT_GROUP, L3Groups
from perftop.model.confidence import GroupTraffic
from perftop.model.counters import Counters
from perftop.model.evaluation import (
    MEMORY_COUNTERS,
    MEMORY_SHARE,
    TRAFFIC_KEYS,
    BestTraffic,
    MachineTotals,
)
from perftop.session.interval import Interval
from perftop.session.session import Session

SPEC = "sim:smt-mix,cpus=32,packages=2"


def seconds(count: int) -> list[Interval]:
    """Returns `count` intervals of one second."""
    hello, messages = sim_streams.messages_lasting(SPEC, count)
    session, result = Session(hello), list[Interval]()
    for message in messages:
        session_of(session, [message])
        if (message.time_ns - hello.raw_ns) % 1_000_000_000 == 0:
            result.append(session.take_interval())
    return result[1:]


def test_traffic_matches_the_simulation_and_its_share_refers_to_the_highest_so_far() -> None:
    """More copies of stream run from second 14 on, so the highest value rises."""
    matching_lines = [line for line in truth(SPEC, 18) if line["type"] == "package"]
    best = [0.0, 0.0]
    shares = []
    for second, interval in enumerate(seconds(18)):
        for line in matching_lines[2 * second : 2 * second + 2]:
            package, rates = line["package"], [line[name] for name in MEMORY_COUNTERS]
            for name, rate in zip(MEMORY_COUNTERS, rates, strict=True):
                assert interval.packages[name][package] == pytest.approx(rate, rel=0.01)
            best[package] = max(best[package], sum(rates))
            assert interval.packages[MEMORY_SHARE][package] == pytest.approx(
                sum(rates) / best[package], rel=0.01
            )
        total = sum(
            line[name]
            for line in matching_lines[2 * second : 2 * second + 2]
            for name in MEMORY_COUNTERS
        )
        assert sum(interval.machine[name] for name in MEMORY_COUNTERS) == pytest.approx(
            total, rel=0.01
        )
        shares.append(interval.machine[MEMORY_SHARE])
    assert best[0] > 1.3 * sum(matching_lines[0][name] for name in MEMORY_COUNTERS)
    assert max(shares) <= 1


def memory_frames(rows: list[list[int]]) -> tuple[Counters, wire.Hello, list[wire.Frame]]:
    """A package with two controllers for each direction; one row of values every 0.1 s."""
    counters = [
        wire.Counter(key, key, "B", "made", scale=64, columns=2, parts=["imc 0", "imc 1"])
        for key in TRAFFIC_KEYS
    ]
    hello = synth.hello([synth.counter("ref")])
    hello.blocks.append(block := wire.Block("memory", "package", counters))
    frames = []
    for seq, row in enumerate(rows):
        ticks = int(seq * synth.TSC_HZ / 10)
        cells = np.array(row, np.uint64).tobytes()
        head = np.array([ticks, ticks, 0, 0, wire.ROW_SAMPLED], np.uint64).tobytes()
        valid = np.array([15], np.uint64).tobytes()
        frames.append(
            wire.Frame(seq, seq * 100_000_000, {block.name: wire.Rows(head, valid, cells)})
        )
    return Counters(hello), hello, frames


def test_traffic_of_all_controllers_is_added() -> None:
    counters, _, frames = memory_frames(
        [[10, 2**64 - 500_000, 0, 0], [1_000_010, 500_000, 7_000, 3_000]]
    )
    delta = counters.steps(frames)[1:]
    totals = MachineTotals(counters, BestTraffic(counters))
    result = totals.package_values(totals.rates(delta[0]))
    read, write = (float(result[name][0]) for name in MEMORY_COUNTERS)
    assert read == pytest.approx(2_000_000 * 64 * 10), "one of them has wrapped"
    assert write == pytest.approx(10_000 * 64 * 10)
    assert isnan(result[MEMORY_SHARE][0]), "no second has passed yet"
    assert isnan(totals.numbers(totals.rates(delta[0]))[MEMORY_SHARE])


def test_a_share_of_the_machine_that_was_not_read_is_unknown() -> None:
    hello = synth.hello([synth.counter("ref")])
    pressure = wire.Counter("pressure_io_s", "pressure", "s", "made")
    hello.blocks.append(wire.Block("machine", "machine", [pressure]))
    counters = Counters(hello)
    totals = MachineTotals(counters, BestTraffic(counters))
    assert isnan(totals.numbers({"pressure_io_s": np.array([nan])})["pressure_io"])


def test_an_l3_without_counts_and_a_busy_cpu_is_unknown() -> None:
    """Four CPUs, two to an L3; the second CPU of the first L3 works."""
    counter = wire.Counter("l3_memory_bytes", "traffic", "B", "made", cpus=[0, 2])
    hello = synth.hello([synth.counter("ref")], cores=4, threads=1)
    rows = [dataclasses.replace(row, l3=row.cpu // 2) for row in hello.topology]
    hello = dataclasses.replace(hello, topology=rows)
    hello.blocks.append(wire.Block("l3", "cpu", [counter]))
    frames = []
    for seq, values in enumerate(([5, 0, 100, 0], [5, 0, 2_000_100, 0])):
        ticks = int(seq * synth.TSC_HZ / 10)
        head = np.array([[ticks, ticks, 0, 0, cpu % 2 == 0] for cpu in range(4)], np.uint64)
        valid, cells = np.array([1, 0, 1, 0], np.uint64), np.array(values, np.uint64)
        read = wire.Rows(head.tobytes(), valid.tobytes(), cells.tobytes())
        frames.append(wire.Frame(seq, seq * 100_000_000, {"l3": read}))
    counters = Counters(hello)
    delta = counters.steps(frames)[1]
    totals = MachineTotals(counters, BestTraffic(counters))
    util = np.array([0.1, 0.1, 1.0, 1.0])
    idle = totals.l3_values(totals.rates(delta), util)["memory_bytes_per_s"]
    assert idle[[0, 2]].tolist() == pytest.approx([0.0, 20e6])
    assert np.isnan(idle[[1, 3]]).all()
    util[1] = 0.49
    assert totals.l3_values(totals.rates(delta), util)["memory_bytes_per_s"][0] == 0.0
    util[1] = 0.5
    works = totals.l3_values(totals.rates(delta), util)["memory_bytes_per_s"]
    assert isnan(works[0])
    assert works[2] == pytest.approx(20e6)


@pytest.mark.parametrize(("samples", "best"), [
    ([(95, 0.95)], 100.0), ([(94, 0.94)], nan), ([(100, 0.5), (90, 0.45)], 200.0),
    ([(100, 0.5), (9, 0.0), (90, 0.45)], 200.0),  # a sample that was not read
    ([(100, 0.5), (nan, 0.1), (95, 0.95)], 100.0), ([(200, 1.0), (100, 1.0)], 200.0),
    ([(100, 1.0), (200, 1.0)], 200.0), ([(300, 0.5), (0, 1.0)], 200.0),
    ([(1, 0.02)] * 47, nan), ([(1, 0.02)] * 48, 50.0),
])  # fmt: skip
def test_the_highest_traffic_is_that_of_a_whole_second(
    samples: list[tuple[float, float]], best: float
) -> None:
    counters = Counters(synth.hello())
    for size in (1, len(samples)):
        traffic = BestTraffic(counters)
        moved, seconds = np.array(samples, float).T[..., None]
        for first in range(0, len(samples), size):
            part = slice(first, first + size)
            rates = traffic.learn(moved[part], seconds[part])
        for found in (traffic.best_rate, rates[-1]):
            assert found.tolist() == pytest.approx([best], nan_ok=True)


# --- bandwidth of resctrl groups


S = 1_000_000_000
L3_BY_CPU = {0: 0, 1: 0, 2: 1, 3: 1}


def record(**groups: Any) -> dict[str, object]:
    return {"l3_groups": groups}


def test_l3_groups_are_sorted_by_traffic() -> None:
    seen = L3Groups(L3_BY_CPU)
    first = {"": [[0, 100], [1, 0]], "batch": [[0, 0], [1, 7]], "x": [[0, 0]], "y": [[0, 0]]}
    seen.read_records({"l3_groups": first}, 10 * S)
    assert seen.traffic([0, 1]) == []
    second = {"": [[0, 300], [1, 9]], "batch": [[0, 8000], [1, 7]], "x": [[0, 9]], "y": [[0, 900]]}
    seen.read_records({"l3_groups": second}, 12 * S)
    seen.read_records({}, 13 * S)  # a frame without a read changes nothing
    assert seen.traffic([0, 1]) == [
        GroupTraffic("batch", 4000),
        GroupTraffic("y", 450),
        GroupTraffic(DEFAULT_GROUP, 100),
    ], "the three largest"
    assert seen.traffic([0, 1, 2])[-1] == GroupTraffic(DEFAULT_GROUP, 104)
    for age_ns, count in ((10 * S, 1), (10 * S + 1, 0)):
        seen.read_records({}, 12 * S + age_ns)
        assert seen.traffic([2]) == [GroupTraffic(DEFAULT_GROUP, 4)] * count


def test_the_number_of_groups_and_the_length_of_their_names_are_limited() -> None:
    seen = L3Groups(L3_BY_CPU)
    names = [f"g{number}" for number in range(255)] + ["x" * 61, "y"]
    for second in (1, 2):
        counts = {name: [[0, number * second * S]] for number, name in enumerate(names)}
        seen.read_records({"l3_groups": counts}, second * S)
    assert [group for group, _ in seen.traffic([0])] == ["x" * 59 + "…", "g254", "g253"]


@pytest.mark.parametrize(("span_ns", "count"), [(0, 0), (10 * S - 1, 1), (10 * S, 0)])
def test_traffic_is_known_from_two_records_within_ten_seconds(span_ns: int, count: int) -> None:
    seen = L3Groups(L3_BY_CPU)
    for time_ns in (S, S + span_ns):
        seen.read_records(record(a=[[0, time_ns]]), time_ns)
    assert len(seen.traffic([0])) == count


def test_decreasing_and_non_numeric_values_are_unknown() -> None:
    seen = L3Groups(L3_BY_CPU)
    seen.read_records(record(a=[[0, 100]], b=[[0, 5]], c=[[0, None]]), S)
    seen.read_records(record(a=[[0, 50]], b=[[0, None]], c=[[0, 9]], d=[[0, 9]]), 2 * S)
    assert seen.traffic([0]) == []


@pytest.mark.parametrize(
    "reported_traffic", [None, [], {"a": 3}, {"a": [[1]]}, {"a": [["x", 2]]}, {3: [[0, 1]]}]
)
def test_a_malformed_record_is_harmless(reported_traffic: object) -> None:
    seen = L3Groups(L3_BY_CPU)
    for second in (1, 2):
        seen.read_records({"l3_groups": reported_traffic}, second * S)
    assert seen.traffic([0, 1, 2, 3]) == []
