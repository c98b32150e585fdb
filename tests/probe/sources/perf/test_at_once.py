"""Work on many CPUs at once."""

from __future__ import annotations

import threading

import pytest

from perfprobe.sources.perf.groups import MOST, at_once


def test_so_many_work_at_once_and_answers_are_in_order() -> None:
    together = threading.Barrier(MOST, timeout=30)
    ran: set[int] = set()

    def one(item: int) -> int:
        ran.add(threading.get_ident())
        if item < MOST:
            together.wait()  # passes only if all of them are in here together
        return item * item

    items = range(3 * MOST)
    assert at_once(one, items) == [item * item for item in items]
    assert len(ran) == MOST
    assert threading.get_ident() not in ran


def test_the_first_error_comes_back_after_the_others_have_ended() -> None:
    done: list[int] = []

    def one(item: int) -> None:
        if item == 1:
            raise OSError("1 is off")
        done.append(item)

    with pytest.raises(OSError, match="1 is off"):
        at_once(one, range(5))
    assert sorted(done) == [0, 2, 3, 4]


def test_nothing_to_do_starts_no_thread() -> None:
    assert at_once(str, []) == []
