"""What a summary tells of the tasks that ran beside a command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perftop.model.tasks import TaskSnapshot
from perftop.output.run_summary import _others
from perftop.session.task_times import RunTimes

MS = 1_000_000


def test_they_are_a_mean_over_what_was_looked_at_not_over_the_run() -> None:
    """Tasks are looked at once a second: a run of 1.2 s may have had a look at its first 0.7 s."""
    times = RunTimes([0, 1])
    footprint: Any = SimpleNamespace(pids={5})
    session: Any = SimpleNamespace(run_times=times, now_ns=1200 * MS)
    assert _others(session, footprint) is None
    look = TaskSnapshot.of({"tasks": {"0": [7, "hog", 1.0], "1": [5, "job", 1.0]}})
    assert look is not None
    times.of_all(look, 0, 700 * MS)
    found = _others(session, footprint)
    assert found is not None
    assert found["cpus"] == pytest.approx(1.0)
    assert found["most"]["ran_s"] == pytest.approx(0.7)
