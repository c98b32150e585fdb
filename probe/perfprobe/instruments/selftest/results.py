"""The results of the tests: one for each check, and one for each counter that is absent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from perfprobe.instruments.selftest import clocks, resting, working
from perfprobe.instruments.selftest.tape import Tape
from perfprobe.instruments.selftest.verdict import (
    RANK,
    Check,
    Result,
    Seen,
    better,
    conclude,
    judge,
)
from perfprobe.wire import Missing

TRIES = 3

Found = Iterator[tuple[Check, Seen]]


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """The caller asked to stop."""


class Results:
    """Keeps the best of several tries of each check."""

    def __init__(
        self, tape: Tape, cpus: Sequence[int], end: float, stopped: Callable[[], bool]
    ) -> None:
        self.found: list[Result] = []
        self._tape, self._cpus, self._end, self._stopped = tape, cpus, end, stopped

    def of(self, checks: Sequence[Check], attempt: Callable[[], Found]) -> None:
        best: dict[tuple[Check, int], Seen] = {}
        for _ in range(TRIES):
            if self._stopped():
                raise Stopped
            for check, seen in attempt():
                best[check, seen.cpu] = better(check, best.get((check, seen.cpu)), seen)
            if self._settled(checks, best) or time.monotonic() > self._end:
                break
        for check in checks:
            tries = [seen for (of, _), seen in best.items() if of == check]
            if cpus := self._having(check):
                self.found.append(conclude(check, tries, cpus, self._origin(check)))

    def once(self, check: Check, attempt: Found) -> None:
        tries = [seen for _, seen in attempt]
        self.found.append(conclude(check, tries, [], self._origin(check)))

    @staticmethod
    def _settled(checks: Sequence[Check], best: dict[tuple[Check, int], Seen]) -> bool:
        seen = {check for check, _ in best}
        return seen >= set(checks) and all(
            RANK[judge(check, found)] == 0 for (check, _), found in best.items()
        )

    def _having(self, check: Check) -> Sequence[int]:
        """CPUs that have the counter; on hybrids not all have all counters."""
        if check is clocks.SAME:
            return self._cpus[1:]  # against the first
        column = self._tape.columns.get(check.counter)
        if column is None or column.counter.cpus is None:
            return self._cpus
        return [cpu for cpu in self._cpus if cpu in column.counter.cpus]

    def _origin(self, check: Check) -> str:
        column = self._tape.columns.get(check.counter)
        return column.counter.origin if column else ORIGINS.get(check.counter, "idle transitions")


ORIGINS = {"tsc": "RDTSC"}
"""Origins of checks that read no counter of the stream."""
_ALL = (*chain.from_iterable(working.LOOKS.values()), *resting.CHECKS)
CHECKED = tuple(dict.fromkeys(check.counter for check in _ALL))


def not_there(tape: Tape) -> list[Result]:
    """Counters that would be tested if they could be read here."""
    lacking: dict[str, Missing] = {}
    for missing in tape.hello.missing:
        if missing.what in (*CHECKED, "traced") and missing.what not in tape.columns:
            lacking.setdefault(missing.what, missing)
    return [
        Result(key, "", "not there", why=missing.why, fix=missing.fix, cpus=missing.cpus or ())
        for key, missing in lacking.items()
    ]


def unchecked(tape: Tape) -> list[str]:
    """Counters that no known code moves by a known amount."""
    return [key for key in tape.columns if key not in (*CHECKED, "tsc", "stat_iowait_s")]


def wrong(results: Iterable[Result]) -> list[str]:
    """Counters in use that are unusable."""
    found = [r.counter for r in results if r.verdict == "unusable" and r.in_use]
    return list(dict.fromkeys(found))
