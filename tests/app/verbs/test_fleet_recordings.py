"""Recordings of several machines on one axis: moments, jumps, beginnings and ends."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import command
import pytest
from fakes import Does, Machine
from waiting import until

from perftop.base.errors import Failed
from perftop.recording.codec import Recorder
from perftop.verbs.fleet_sources import RecordingsSource

START = 1_700_000_000


def written(directory: Path, name: str, util: float, begins_s: int, seconds: int) -> None:
    """A recording of ten samples a second, from `begins_s` after START on."""
    machine = Machine(cores=2, does={cpu: Does(util=util) for cpu in range(4)})
    hello = dataclasses.replace(machine.hello, wall_ns=(START + begins_s) * 10**9, raw_ns=0)
    with (directory / f"{name}.perftop").open("wb") as file:
        recorder = Recorder(file.write, hello)
        for seq in range(1, 10 * seconds + 1):
            recorder.write(machine.frame(seq))
        recorder.end()


@pytest.fixture
def night(tmp_path: Path) -> Path:
    written(tmp_path, "n1", 0.75, 0, 40)
    written(tmp_path, "n2", 0.25, 20, 40)
    return tmp_path


@asynccontextmanager
async def played(night: Path) -> AsyncIterator[RecordingsSource]:
    source = RecordingsSource(night, playing=False)
    task = asyncio.create_task(source.run())
    try:
        await until(lambda: source.now >= source.first + 1, "the beginning is read")
        yield source
    finally:
        task.cancel()
        await asyncio.wait([task])


async def gone(source: RecordingsSource, by: int) -> float:
    """Steps, and where that leads, in seconds after START."""
    at = source.now
    source.travel(by)
    await until(lambda: abs(source.now - at - by) < 0.01, f"{by} s on")
    return source.now - START


async def test_moments_are_entered_forwards_and_backwards(night: Path) -> None:
    async with played(night) as source:
        machines = source.fleet.machines
        assert machines["n1"].answers
        assert "begins at" in machines["n2"].why
        await gone(source, 30)
        n1, n2 = source.fleet.machines["n1"], source.fleet.machines["n2"]
        assert n1.numbers["busy"] == pytest.approx(0.75, abs=0.02)
        assert n2.numbers["busy"] == pytest.approx(0.25, abs=0.02)
        assert source.now - 1.1 <= n1.updated <= source.now
        await gone(source, 20)
        assert "ends at" in source.fleet.machines["n1"].why
        assert source.fleet.machines["n2"].answers
        await gone(source, -25)
        assert source.fleet.machines["n1"].answers
        assert source.fleet.machines["n1"].opens == ("replay", str(night / "n1.perftop"))


def test_each_line_says_whether_its_machine_answers(night: Path) -> None:
    done = command.here("fleet", str(night), "--json", "-n", "1")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["machine"]: line["answers"] for line in lines} == {"n1": True, "n2": False}


async def test_an_unreadable_file_stops_no_other(night: Path) -> None:
    (night / "n0.perftop").touch()
    async with played(night) as source:
        await gone(source, 30)  # entered, as every moment is
        answers = {name: one.answers for name, one in source.fleet.machines.items()}
        assert answers == {"n0": False, "n1": True, "n2": True}
        assert "is not a perftop recording" in source.fleet.machines["n0"].why


async def test_it_plays_on_to_its_end(night: Path) -> None:
    async with played(night) as source:
        assert not source.over
        source.travel(1000)
        await until(lambda: source.over, "the end")
        assert source.now == source.last == START + 60


def test_a_directory_without_recordings_and_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no recordings"):
        RecordingsSource(tmp_path)
    (tmp_path / "x.perftop").write_bytes(b"no")
    with pytest.raises(Failed):
        RecordingsSource(tmp_path)
