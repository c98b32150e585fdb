"""Busy time of each CPU and the states of each core, counted at the kernel's idle transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfprobe._native import lib
from perfprobe.cpu import topology
from perfprobe.kernel import access
from perfprobe.kernel.idle_trace import IdleTrace
from perfprobe.native.sampler import TRACED, Slot
from perfprobe.sources.os.parts import Part
from perfprobe.wire import Counter, Cpu, Missing, Scope

NS = 1e-9
_STATES = (
    ("neither_s", lib.PP_IDLE_NEITHER),
    ("lp0_s", lib.PP_IDLE_LP0),
    ("lp1_s", lib.PP_IDLE_LP1),
    ("both_s", lib.PP_IDLE_BOTH),
)


def open_traced(
    rows: Sequence[Cpu], core_map: Mapping[int, tuple[int, int]] | None = None
) -> list[Part]:
    """Parts for what can be traced, or one part without counters that says why not. `core_map`, CPU
    to (core, 0 or 1), replaces the topology's cores."""
    places = core_map or _places(topology.cores(rows))
    try:
        trace = IdleTrace(places)
    except OSError as error:
        return [_Nothing(Missing("traced", error.strerror or str(error), access.as_root()))]
    parts: list[Part] = [_Busy(trace, places)]
    if any(lp for _, lp in places.values()):
        parts.append(_Cores(trace, places))
    return parts


class _Nothing:
    """A part without counters: there are no rights, or the kernel is too old."""

    scope: Scope = "cpu"
    counters: tuple[Counter, ...] = ()

    def __init__(self, missing: Missing) -> None:
        self.missing = [missing]

    def open(self, cpu: int) -> list[Slot]:  # noqa: ARG002
        return []

    def shut(self, cpu: int) -> None:
        pass

    def close(self) -> None:
        pass


def _places(cores: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """CPU to (core, 0 or 1). Only cores with two threads are kept; of others each thread gets a
    core of its own."""
    places: dict[int, tuple[int, int]] = {}
    number = 0
    for cpus in cores:
        for lp, cpu in enumerate(cpus):
            places[cpu] = (number, lp) if len(cpus) == 2 else (number + lp, 0)
        number += 1 if len(cpus) == 2 else len(cpus)
    return places


class _Busy:
    """Time for which each CPU was not idle."""

    scope: Scope = "cpu"
    counters = (Counter("busy_s", "not idle", "s", "idle transitions", scale=NS),)

    def __init__(self, trace: IdleTrace, places: Mapping[int, tuple[int, int]]) -> None:
        self.missing: list[Missing] = []
        self._trace = trace
        self._places = places

    def open(self, cpu: int) -> list[Slot]:
        if cpu not in self._places:
            return []
        return [Slot(TRACED + lib.PP_IDLE_BUSY, 0, cpu, self._trace.base())]

    def shut(self, cpu: int) -> None:
        if cpu in self._places:
            self._trace.offline(cpu)  # the kernel reports no transition of a CPU that is off

    def close(self) -> None:
        self._trace.close()


class _Cores:
    """Time in each of the four states of cores with two threads."""

    scope: Scope = "core"
    counters = tuple(
        Counter(key, key.removesuffix("_s"), "s", "idle transitions", scale=NS)
        for key, _ in _STATES
    )

    def __init__(self, trace: IdleTrace, places: Mapping[int, tuple[int, int]]) -> None:
        self.missing: list[Missing] = []
        self._trace = trace
        self._core = {cpu: core for cpu, (core, _) in places.items()}
        shared = [core for core, lp in places.values() if lp]
        self._pairs = set(shared)

    def open(self, cpu: int) -> list[Slot]:
        core = self._core.get(cpu)
        if core not in self._pairs or core is None:
            return []
        base = self._trace.base()
        return [Slot(TRACED + kind, i, core, base) for i, (_, kind) in enumerate(_STATES)]

    def shut(self, cpu: int) -> None:
        pass  # slots point into memory that the trace owns

    def close(self) -> None:
        pass
