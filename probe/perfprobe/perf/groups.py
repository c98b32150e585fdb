"""Parts whose slots are groups of perf events, and work on many CPUs at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perfprobe._native import lib
from perfprobe.native.sampler import Slot
from perfprobe.perf.perf_events import Event, Group, Kernel, Opening
from perfprobe.wire import Counter, Missing, Scope


@dataclass(frozen=True, slots=True)
class Bundle:
    """A group to be opened: its CPU, and each event with its column after the times."""

    cpu: int
    events: Sequence[tuple[Event, int]]


Plan = Callable[[int], Sequence[Bundle]]
"""What a reading CPU must open."""


def alone(events: Callable[[int], Sequence[Event]], column: Mapping[str, int]) -> Plan:
    """One group for each CPU, of its own events; `column` by key."""

    def bundles(cpu: int) -> list[Bundle]:
        found = [(event, column[event.key]) for event in events(cpu)]
        return [Bundle(cpu, found)] if found else []

    return bundles


class Groups:
    """A part with counters of one scope, read as groups of perf events."""

    def __init__(
        self,
        kernel: Kernel,
        scope: Scope,
        counters: list[Counter],
        bundles: Plan,
        *,
        timed: bool = False,
        mapped: bool = True,
        ready: Mapping[int, Group] | None = None,
        missing: Sequence[Missing] = (),
    ) -> None:
        """`ready` has groups that are already open, by reading CPU; this part owns them from now
        on."""
        self.scope = scope
        self.counters = counters
        self.missing = [*missing]
        self._kernel = kernel
        self._bundles = bundles
        self._timed, self._mapped = timed, mapped
        self._ready = dict(ready or {})
        self._open: dict[int, list[Group]] = {}

    def open(self, cpu: int) -> list[Slot]:
        ready = self._ready.pop(cpu, None)
        found = [(0, ready)] if ready else [*filter(None, map(self._group, self._bundles(cpu)))]
        self._open[cpu] = [group for _, group in found]
        return [Slot(lib.PP_PERF, at, -1, one.address, one.columns) for at, one in found]

    def shut(self, cpu: int) -> None:
        for group in self._open.pop(cpu, []):
            group.close()

    def close(self) -> None:
        for cpu in list(self._open):
            self.shut(cpu)
        for group in self._ready.values():
            group.close()
        self._ready.clear()

    def _group(self, bundle: Bundle) -> tuple[int, Group] | None:
        """A group of the events that can be opened now, and its first column; None if there is
        none."""
        events = [event for event, _ in bundle.events]
        opening = Opening(self._kernel, bundle.cpu, events, Path("/"))
        group = opening.group(timed=self._timed, mapped=self._mapped)
        if group is None:
            return None
        columns = [dict(bundle.events)[event] for event in opening.events]
        first = 0 if self._timed else columns[0]  # the times are the first of a timed part
        group.place([column - first for column in columns])
        return first, group


# --- threads --------------------------------------------------------------------------------------

T = TypeVar("T")
R = TypeVar("R")
MAX_THREADS = 32
"""Most of a trial of counters on a CPU is spinning there for 2 ms."""


def run_in_threads(do: Callable[[T], R], items: Collection[T]) -> list[R]:
    """`do` of each item, in their order. Raises the first error once all threads have ended. Where
    the kernel gives too few threads, those that there are do the work, or the caller's own."""
    results: dict[int, R] = {}
    left = iter(enumerate(items))  # one step of it is atomic, so the threads share it

    def work() -> None:
        for position, item in left:
            results[position] = do(item)

    workers: list[Future[None]] = []
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        with suppress(RuntimeError):  # can't start new thread
            while len(workers) < min(MAX_THREADS, len(items)):
                workers.append(pool.submit(work))
        if not workers:
            work()
    for worker in workers:
        worker.result()
    return [results[position] for position in range(len(items))]
