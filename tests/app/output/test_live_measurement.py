"""Whose CPUs a measurement of a command tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fakes import Machine, seen

from perfprobe import wire
from perftop.output.live_measurement import Measurement

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
    measurement = Measurement(cast(Any, SimpleNamespace(pid=ROOT)))
    measurement.bracket = cast(Any, Sham())
    for at in range(1, 3):
        other = {"7": [7, "other", 0, at * 500 * MS, 0, 0, 0]}
        ours = {"100": [ROOT, "job", 3, at * 100 * MS, 0, 0, 0]}
        told = {"watched": {"threads": other}, "command": {"threads": ours}}
        frame = wire.Frame(at, session.now_ns + at, {}, records=told)
        watching.take(frame.records, frame.time_ns)
        measurement.over(session, frame)
    assert measurement._footprint is not None
    assert measurement._footprint.cpus() == [3]
