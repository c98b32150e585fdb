"""Power, temperature and pressure of a machine, from frames."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import synth
from fakes import Machine, observe

from perfprobe.wire import Block, Counter, Frame, Rows
from perftop.model.counters import Counters
from perftop.model.machine_totals import BestTraffic, MachineTotals
from perftop.session.interval import Interval


def interval(
    values: dict[str, Any], *counters: Counter, scope: Any = "machine", **changes: Any
) -> Interval:
    """A machine whose counters advance by `values` in a sample of 0.1 s."""
    machine = Machine(cores=2, changes=changes)
    machine.hello.blocks.append(Block("more", scope, list(counters)))
    whole = machine.frame

    def frame(seq: int, **more: Any) -> Any:
        block = machine.hello.blocks.pop()
        result = whole(seq, **more)
        machine.hello.blocks.append(block)
        if not values:
            return result
        n = machine.hello.rows(scope)
        cells = {key: [value(seq) if callable(value) else seq * value] * n
                 for key, value in values.items()}  # fmt: skip
        ticks = int(seq * synth.TSC_HZ / 10)
        result.blocks["more"] = synth.rows(block, n, cells, [ticks] * n)
        return result

    machine.frame = frame  # type: ignore[method-assign]
    return observe(machine)[1]


def test_energy_over_time_is_power() -> None:
    energy = Counter("energy_j", "energy", "J", "made", bits=32, scale=0.001)
    limit = Counter("power_limit_w", "limit", "W", "made", kind="gauge")
    result = interval({"energy_j": 12_500, "power_limit_w": lambda _: 150}, energy, limit,
                  scope="package", packages=[[0, 2], [1, 3]])  # fmt: skip
    assert result.machine["power_w"] == pytest.approx(2 * 125.0, rel=1e-6)  # two rows
    assert result.machine["power_limit_w"] == pytest.approx(2 * 150.0)


def test_interrupts_are_rates_and_load_is_a_gauge() -> None:
    counter = Counter("interrupts", "interrupts", "1", "made")
    assert interval({"interrupts": 50}, counter).machine["interrupts_hz"] == pytest.approx(500)
    gauge = Counter("load_1", "load", "1", "made", kind="gauge", scale=0.01)
    assert interval({"load_1": lambda _: 312}, gauge).machine["load_1"] == pytest.approx(3.12)


def test_uncounted_metrics_are_absent() -> None:
    assert observe(Machine(cores=2))[1].machine == {}


def test_a_row_that_was_never_read_is_unknown() -> None:
    energy = Counter("energy_j", "energy", "J", "made", bits=32, scale=0.001)
    assert math.isnan(interval({}, energy, scope="package").machine["power_w"])


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


def test_the_power_of_cores_is_reported() -> None:
    counter = Counter("energy_core_j", "energy", "J", "made", scale=0.001)
    result = interval({"energy_core_j": 500}, counter, scope="core")
    assert result.core_power_w.tolist() == pytest.approx([5.0, 5.0])
    assert np.isnan(observe(Machine(cores=2))[1].core_power_w).all()
