"""Whose CPUs a measurement of a command tells, and what it cost."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes import Machine, seen
from simulated import messages

from perfprobe import wire
from perftop.output import stat_text
from perftop.output.measurement import Measurement
from perftop.process.command_window import BOOT_ID
from perftop.session.session import Session
from perftop.session.summary import Tally

MS = 1_000_000
ROOT = 100


class Sham:
    """A command that has started and does not end."""

    closed = False

    def take(self, _: wire.Frame) -> bool:
        return False


def test_only_the_command_counts_where_another_job_is_watched() -> None:
    """With --watch OTHER -- CMD the CPUs of the job are those of the command."""
    session, _ = seen(Machine(cores=2), 3)
    watching = session.neighbours.watching
    watching.name = "other"
    measurement = Measurement(cast("Any", SimpleNamespace(pid=ROOT)))
    measurement.bracket = cast("Any", Sham())
    for at in range(1, 3):
        other = {"7": [7, "other", 0, at * 500 * MS, 0, 0, 0]}
        ours = {"100": [ROOT, "job", 3, at * 100 * MS, 0, 0, 0]}
        told = {"watched": {"threads": other}, "command": {"threads": ours}}
        frame = wire.Frame(at, session.now_ns + at, {}, records=told)
        watching.take(frame.records, frame.time_ns)
        measurement.follow(session, frame)
    assert measurement._footprint is not None
    assert measurement._footprint.cpus() == [3]


@pytest.mark.parametrize("boot", [BOOT_ID.read_text(encoding="ascii").strip(), "another"])
def test_own_cost_is_that_of_both_programs_where_both_run_here(
    boot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = iter([5.0, 5.25])
    monkeypatch.setattr(time, "process_time", lambda: next(spent))
    hello, frames = messages("smt-mix,cpus=2", 20)
    hello = dataclasses.replace(hello, boot_id=boot, source="os")
    session, measurement = Session(hello), Measurement()
    for message in (hello, *frames):
        assert measurement.admit(message)
        session.apply(message)
    line = measurement.line(session)
    probe_s = line["probe_cpu_s"]
    assert probe_s > 0
    whole = None if boot == "another" else pytest.approx(probe_s + 0.25)
    assert line.get("own_cpu_s") == whole
    (told,) = [text for text in stat_text.ending(session, Tally(), line) if " cost " in text]
    assert told.startswith("probe" if boot == "another" else "own")
