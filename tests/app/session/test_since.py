"""Sums between two moments of a session equal those of a session that started at the first one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import sim_streams
from sessions import session_of

from perftop.session.losses import Totals
from perftop.session.session import Session
from perftop.session.task_times import TaskTimes

SAMPLES, FIRST = 200, 100
STREAMS = [
    ("sim:guest,cpus=2", "postgres"), ("sim:guest,cpus=2", None),
    ("sim:memory,cpus=4,packages=2", None),
]  # fmt: skip


@cache
def totals(spec: str, watch: str | None) -> tuple[Totals, Totals]:
    """Returns the totals since a snapshot of tasks in the middle of a stream: the difference of two
    totals, and those of a session that starts there."""
    hello, messages = sim_streams.messages(spec, SAMPLES, watch=watch)
    first = next(i for i, m in enumerate(messages) if i >= FIRST and "tasks" in m.records)  # type: ignore[union-attr]
    whole, later = Session(hello), Session(replace(hello, raw_ns=messages[first].time_ns))
    for session in (whole, later):
        session.track_losses()
    earlier = session_of(whole, messages[: first + 1]).totals().copy()
    difference = session_of(whole, messages[first + 1 :]).totals().since(earlier)
    return difference, session_of(later, messages[first:]).totals()


@pytest.mark.parametrize(("spec", "watch"), STREAMS)
def test_sums_since_a_moment_are_those_of_a_later_start(spec: str, watch: str | None) -> None:
    difference, later = totals(spec, watch)
    for key in ("start_ns", "end_ns", "elapsed_s", "sample_count", "suspect_count"):
        assert getattr(difference, key) == getattr(later, key), key
    assert difference.losses.whole_s == pytest.approx(later.losses.whole_s, rel=0.02, abs=0.02)
    expected = {cause: pytest.approx(share, abs=0.02) for cause, share in
                later.losses.shares().items() if share > 0.02}  # fmt: skip
    shares = difference.losses.shares()
    assert {cause: shares[cause] for cause in expected} == expected
    assert sum(share for cause, share in shares.items() if cause not in expected) < 0.05
    assert difference.span.sample_count == later.span.sample_count
    assert difference.span.read_shares() == later.span.read_shares()
    assert difference.span.delta.skew_ns >= later.span.delta.skew_ns
    for name, table in later.span.delta.tables.items():
        np.testing.assert_allclose(difference.span.delta.tables[name].increments, table.increments)


@pytest.mark.parametrize(("spec", "watch"), STREAMS)
def test_times_since_a_moment_are_those_of_a_later_start(spec: str, watch: str | None) -> None:
    """A later start misses the time before the first record of each thread."""
    difference, later = (totals_.times for totals_ in totals(spec, watch))
    keys = ("covered_s", "waiting_s", "wait_snapshots", "job_has_waits", "has_waits")
    for key in keys:
        value, expected = getattr(difference, key), getattr(later, key)
        assert value == pytest.approx(expected, abs=1.01 if key == "wait_snapshots" else 1e-6), key
    assert {cpu: s for cpu, s in difference.truncated_s.items() if s} == pytest.approx(
        later.truncated_s
    )
    pairs: list[tuple[Mapping[Any, TaskTimes], Mapping[Any, TaskTimes]]]
    pairs = [(difference.threads, later.threads), (difference.tasks, later.tasks)]
    for tasks, later_tasks in pairs:
        assert tasks.keys() == later_tasks.keys()
        for task_key, task in later_tasks.items():
            assert tasks[task_key].comm == task.comm
            for field in fields(TaskTimes)[1:]:
                value, expected = (getattr(each, field.name) for each in (tasks[task_key], task))
                assert value == pytest.approx(expected, rel=0.02, abs=0.15), field.name
    assert sum(task.run_s for task in difference.tasks.values()) > 5
