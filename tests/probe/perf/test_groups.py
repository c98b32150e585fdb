"""Tests run_in_threads: calls for many CPUs at once."""

from __future__ import annotations

import threading

import pytest
from waiting import MAX_WAIT_S

from perfprobe.perf.perf_events import MAX_THREADS, run_in_threads


def test_calls_run_in_threads_and_results_are_in_order() -> None:
    barrier = threading.Barrier(MAX_THREADS, timeout=MAX_WAIT_S)
    ran: set[int] = set()

    def one(item: int) -> int:
        ran.add(threading.get_ident())
        if item < MAX_THREADS:
            barrier.wait()  # returns only if all calls run at the same time
        return item * item

    items = range(3 * MAX_THREADS)
    assert run_in_threads(one, items) == [item * item for item in items]
    assert len(ran) == MAX_THREADS
    assert threading.get_ident() not in ran


def test_the_first_error_is_raised_after_all_calls_end() -> None:
    result: list[int] = []

    def one(item: int) -> None:
        if item == 1:
            raise OSError("1 is off")
        result.append(item)

    with pytest.raises(OSError, match="1 is off"):
        run_in_threads(one, range(5))
    assert sorted(result) == [0, 2, 3, 4]


def test_no_work_starts_no_thread() -> None:
    assert run_in_threads(str, []) == []


@pytest.mark.parametrize("given", [0, 1, 3])
def test_all_work_is_done_with_too_few_threads(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def limited(thread: threading.Thread) -> None:
        if len(started) >= given:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    ran: list[int] = []

    def one(item: int) -> int:
        ran.append(item)
        return -item

    assert run_in_threads(one, range(40)) == [-item for item in range(40)]
    assert sorted(ran) == [*range(40)]
    assert len(started) == given
