"""Who waited behind whom: nobody waits for itself, and nobody is accused who did not run there."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Machine, seen

from perftop.output.why_report import NOBODY, Queue, queue
from perftop.session.run_times import Times
from perftop.session.session import Session

SPAN_S = 0.5


def waits(
    threads: dict[tuple[int, int], Times] | None = None,
    tasks: dict[tuple[int, str, int], Times] | None = None,
    job: str | None = "job",
) -> Queue:
    session: Session = seen(Machine(cores=2))[0]
    session.run_times.threads = threads or {}
    session.run_times.tasks = tasks or {}
    found = queue(session, job)
    assert found is not None
    return found


def times(comm: str, run_s: float, wait_s: float = 0.0, cpu: int = 0) -> Times:
    return Times(comm, run_s, wait_s, {cpu: run_s + wait_s})


def test_one_thread_does_not_wait_for_itself() -> None:
    found = waits({(1, 1): times("job", 0.2, 0.3)})
    assert found.said == "job waits for CPU 0"
    assert NOBODY in found.evidence
    assert not found.known
    assert "own" not in found.by


def test_waiting_is_no_more_than_all_that_was_wanted_also_where_that_is_little() -> None:
    found = waits({(1, 1): times("job", 0.004, 0.012)})
    assert found.evidence[0] == "it waited 0.01 of 0.02 s"


def test_one_that_waits_is_behind_who_ran_there() -> None:
    found = waits({(1, 1): times("job", 0.2, 0.3)}, {(7, "hog", 0): times("hog", 0.3)})
    assert found.said == "job waits behind hog[7] on CPU 0"
    assert (found.by, found.known) == ("hog", True)


def test_who_ran_elsewhere_is_not_to_blame() -> None:
    found = waits({(1, 1): times("job", 0.2, 0.3)}, {(7, "hog", 1): times("hog", 0.5, cpu=1)})
    assert "hog" not in found.said


def test_several_that_want_more_than_there_is_wait_for_each_other() -> None:
    each = {(1, tid): times("job", SPAN_S / 2, SPAN_S / 2) for tid in (1, 2)}
    found = waits({**each})
    assert found.said == "2 threads of job wait for each other on CPU 0"
    assert (found.by, found.known) == ("its own threads", True)


def test_several_that_may_have_come_one_after_the_other_are_not_accused() -> None:
    each = {(1, tid): times("job", 0.1, 0.1) for tid in (1, 2)}
    found = waits({**each})
    assert found.said == "2 threads of job wait for CPU 0"
    assert not found.known


@pytest.mark.parametrize(("run_s", "by"), [(0.1, "its own threads"), (2.0, "hog")])
def test_both_are_named_where_both_are_in_the_way(run_s: float, by: str) -> None:
    each: dict[Any, Times] = {(1, tid): times("job", SPAN_S / 2, SPAN_S / 2) for tid in (1, 2)}
    found = waits(each, {(7, "hog", 0): times("hog", run_s)})
    assert found.said == "2 threads of job wait for each other and hog[7] on CPU 0"
    assert found.by == by


def test_programs_that_share_a_cpu_are_all_named() -> None:
    tasks = {
        (1, "pytest", 0): times("pytest", 0.1, 0.4),
        (2, "pytest", 0): times("pytest", 0.1, 0.4),
        (3, "python", 0): times("python", 0.2, 0.2),
    }
    found = waits(tasks=tasks, job=None)
    assert found.said == "2 tasks of pytest wait for each other and python[3] on CPU 0"
    assert found.by == "pytest"
