"""Counters of packages, cores and L3s, reported with their rates."""

from __future__ import annotations

import dataclasses
from typing import Any

import made
import pytest

from perfprobe import wire
from perfprobe.instruments.selftest import instruments
from perfprobe.instruments.selftest.frame_log import FrameLog, read_instant

COUNTERS = {
    "energy_j": wire.Counter("energy_j", "energy", "J", "made", scale=0.5),
    "memory_read_bytes": wire.Counter("memory_read_bytes", "read", "B", "made", scale=64),
    "package_c6": wire.Counter("package_c6", "sleep", "cycles", "made"),
    "temperature_c": wire.Counter("temperature_c", "heat", "°C", "made", kind="gauge"),
    "pcu_vr": wire.Counter("pcu_vr", "VR", "1", "made"),
}


class Source(made.Source):
    """A package whose counters advance by `steps` in each frame; None: not valid."""

    def __init__(self, steps: dict[str, int | None]) -> None:
        self.steps, self.number = steps, 0
        self.hello = made.hello([made.counter("ref")])
        chosen = [COUNTERS[key] for key in steps]
        self.hello.blocks.append(wire.Block("package", "package", chosen))
        l3 = wire.Counter("l3_memory_bytes", "traffic", "B", "made", cpus=[0])
        self.hello.blocks.append(wire.Block("l3", "cpu", [l3]))
        rows = [dataclasses.replace(row, l3=0) for row in self.hello.topology]
        self.hello = dataclasses.replace(self.hello, topology=rows)

    def poll(self) -> list[Any]:
        self.number += 1
        if self.number % 2:
            return []
        stamp = read_instant()[1]
        head = [stamp, stamp, 0, 0, wire.ROW_SAMPLED]
        values = [self.number * (step or 0) for step in self.steps.values()]
        valid = sum(1 << i for i, step in enumerate(self.steps.values()) if step is not None)
        blocks = {
            "package": made.packed([head], [valid], values),
            "l3": made.packed([head, [0] * 5], [1, 0], [self.number * 1000, 0]),
        }
        return [wire.Frame(self.number, self.number, blocks)]


@pytest.fixture(autouse=True)
def fast_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "COPY_S", 0.01)
    monkeypatch.setattr(instruments, "COPY_BYTES", 1 << 20)


def observe(source: Source) -> list[dict[str, Any]]:
    log = FrameLog(source)
    return instruments.counter_rows(log, instruments.copy_memory(log))


def verdicts(**steps: int | None) -> dict[str, dict[str, Any]]:
    return {row["counter"]: row for row in observe(Source(steps))}


def test_each_counter_has_a_verdict() -> None:
    result = verdicts(energy_j=40, package_c6=0, temperature_c=7, pcu_vr=None)
    assert {key: row["verdict"] for key, row in result.items()} == {
        "energy_j": "counts", "package_c6": "stands still", "temperature_c": "read",
        "pcu_vr": "no reading", "l3_memory_bytes": "counts",
    }  # fmt: skip
    (moved,) = result["energy_j"]["moved"]
    assert moved % 20 == 0
    assert moved > 0
    assert result["pcu_vr"]["moved"] == [None]
    (traffic,) = result["l3_memory_bytes"]["moved"]
    assert (result["l3_memory_bytes"]["scope"], traffic > 0) == ("L3", True)


def test_an_absent_counter_has_its_reason() -> None:
    source = Source({"energy_j": 1})
    missing = [wire.Missing("memory_read_bytes", "no right to it"), wire.Missing("ref", "no PMU")]
    source.hello = dataclasses.replace(source.hello, missing=missing)
    (absent,) = [row for row in observe(source) if row["verdict"] == "not there"]
    assert (absent["counter"], absent["why"]) == ("memory_read_bytes", "no right to it")


def test_a_copy_must_show_in_memory_traffic() -> None:
    """A memory counter that advances by less than the copied bytes counts something else."""
    enough = verdicts(memory_read_bytes=1 << 40)["memory_read_bytes"]
    assert enough["verdict"] == "counts"
    assert enough["at_least"] >= 1 << 20
    assert verdicts(memory_read_bytes=1)["memory_read_bytes"]["verdict"] == "too little"
