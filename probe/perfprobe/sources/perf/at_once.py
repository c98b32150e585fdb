"""Work on many CPUs at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
MOST = 32
"""Threads at a time. Most of a try to count on a CPU is spinning there for 2 ms."""


def at_once(do: Callable[[T], R], items: Collection[T]) -> list[R]:
    """What `do` makes of each item, in their order; the first error is raised once all threads have
    ended. `concurrent.futures` does the same, but loads logging and queues, 9 ms of a start."""
    found: dict[int, R] = {}
    failed: list[BaseException] = []
    left = iter(enumerate(items))  # one step of it is atomic, so the threads share it

    def work() -> None:
        for at, item in left:
            try:
                found[at] = do(item)
            except BaseException as error:  # noqa: BLE001 - the caller's to handle
                failed.append(error)

    threads = [Thread(target=work) for _ in range(min(MOST, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [found[at] for at in range(len(items))]
