"""Code whose counts follow from how it is built (known.c), run on chosen CPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from perfprobe._native import ffi, lib
from perfprobe.errors import Unavailable, checked
from perfprobe.frozen import frozen

FREE, ADD, IMUL, ENTER = (
    lib.PP_KNOWN_FREE,
    lib.PP_KNOWN_ADD,
    lib.PP_KNOWN_IMUL,
    lib.PP_KNOWN_ENTER,
)


@frozen
class Spell:
    """A time at work. `begin` and `end` are TSC stamps, `*_ns` is CLOCK_MONOTONIC, and `own_ns` is
    how long the thread ran."""

    begin: int
    end: int
    begin_ns: int
    end_ns: int
    own_ns: int
    cpu: int
    """-1: the thread was moved meanwhile."""

    @property
    def lost(self) -> float:
        """The share of the time that others took, by the scheduler's account."""
        length = self.end_ns - self.begin_ns
        return max(0.0, 1 - self.own_ns / length) if length else 0.0


@frozen
class Run:
    """A run of a loop, with the TSC after every `turns` turns."""

    kind: int
    turns: int
    marks: tuple[int, ...]
    spell: Spell

    def turns_between(self, begin: int, end: int) -> float | None:
        """Turns between two stamps; None if one lies outside the marks."""
        first, last = self._at(begin), self._at(end)
        return None if first is None or last is None else (last - first) * self.turns

    def _at(self, stamp: int) -> float | None:
        """Number of marks passed at the stamp, interpolated between two marks."""
        marks = self.marks
        if not marks[0] <= stamp <= marks[-1]:
            return None
        low, high = 0, len(marks) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if marks[middle] <= stamp else (low, middle)
        return low + (stamp - marks[low]) / (marks[high] - marks[low])


turn = lib.pp_known_turn
"""Instructions that one turn of a kind executes in user space."""
chain = lib.pp_known_chain
"""Instructions of one turn that form a chain: each waits for the one before."""


def run(kind: int, turns: int, marks: int) -> Run:
    """Runs the loop on the CPU that the caller is on."""
    c_marks = ffi.new("uint64_t[]", marks)
    out: Any = ffi.new("pp_spell *")
    checked(lib.pp_known_run(kind, turns, c_marks, marks, out))
    return Run(kind, turns, tuple(c_marks), _spell(out))


def pattern(begin_ns: int, period_ns: int, on_ns: int, times: int) -> list[Spell]:
    """Sleeps until each of `times` periods begins, then works for `on_ns`."""
    spells: Any = ffi.new("pp_spell[]", times)
    lib.pp_known_pattern(begin_ns, period_ns, on_ns, spells, times)
    return [_spell(spell) for spell in spells]


def _spell(s: Any) -> Spell:
    return Spell(s.begin, s.end, s.begin_ns, s.end_ns, s.own_ns, s.cpu)


T = TypeVar("T")


def at_once(work: Mapping[int, Callable[[], T]]) -> dict[int, T]:
    """Runs each function in a thread pinned to its CPU, all at the same time. Threads that could
    not be pinned or failed are left out. Raises Unavailable if there cannot be enough threads."""
    done: dict[int, T] = {}
    gate = threading.Barrier(len(work))

    def one(cpu: int, do: Callable[[], T]) -> None:
        pinned = True
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError:
            pinned = False
        with suppress(threading.BrokenBarrierError):
            gate.wait()
            if pinned:
                done[cpu] = do()

    threads = [threading.Thread(target=one, args=item) for item in work.items()]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError as error:  # the kernel gives no more
        gate.abort()
        raise Unavailable(f"there cannot be a thread for every CPU: {error}") from None
    finally:
        for thread in started:
            thread.join()
    return done
