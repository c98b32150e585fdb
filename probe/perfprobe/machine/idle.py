"""Parts with the busy time of each CPU and the times in the SMT states of each core, from the trace
of the kernel's idle transitions. LP 0 and LP 1 are the two threads of a core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfprobe._native import lib
from perfprobe.cpu import topology
from perfprobe.kernel import idle_trace
from perfprobe.kernel.idle_trace import IdleTrace
from perfprobe.machine.parts import Part
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Cpu, Missing, Scope

NS = 1e-9
ORIGIN = "idle transitions"
BUSY = Counter("busy_s", "not idle", "s", ORIGIN, scale=NS)
STATES = {
    "neither_s": lib.PP_TRACED + lib.PP_IDLE_NEITHER,
    "lp0_s": lib.PP_TRACED + lib.PP_IDLE_LP0,
    "lp1_s": lib.PP_TRACED + lib.PP_IDLE_LP1,
    "both_s": lib.PP_TRACED + lib.PP_IDLE_BOTH,
}
"""By counter key: the kind of slot with which the sampler reads it."""


def open_traced_parts(rows: Sequence[Cpu]) -> list[Part]:
    """Returns the parts that are read from the trace; if tracing is not possible, one part without
    counters that reports the reason."""
    core_and_lp = _cores_by_cpu(topology.cores(rows), [row.cpu for row in rows])
    try:
        trace = IdleTrace(core_and_lp)
    except OSError as error:
        empty_part = TracedPart(None, "cpu", [], {})
        trouble = idle_trace.trace_trouble(error)
        empty_part.missing = [Missing("traced", trouble.why, trouble.fix)]
        return [empty_part]
    base = trace.base_address()
    busy = {cpu: [Slot(lib.PP_TRACED + lib.PP_IDLE_BUSY, 0, cpu, base)] for cpu in core_and_lp}
    offline = [row.cpu for row in rows if not row.online]
    parts: list[Part] = [TracedPart(trace, "cpu", [BUSY], busy, offline)]
    pairs = {core for core, lp in core_and_lp.values() if lp}
    if pairs:
        states = {
            cpu: [Slot(kind, i, core, base) for i, kind in enumerate(STATES.values())]
            for cpu, (core, _) in core_and_lp.items()
            if core in pairs
        }
        names = [(key, key.removesuffix("_s")) for key in STATES]
        counters = [Counter(key, name, "s", ORIGIN, scale=NS) for key, name in names]
        parts.append(TracedPart(None, "core", counters, states))
    return parts


def _cores_by_cpu(
    cores: Sequence[Sequence[int]], cpus: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Returns each CPU's number of core and thread (0 or 1). A CPU that is offline, or not in a
    core with exactly two threads, gets a core of its own."""
    core_and_lp: dict[int, tuple[int, int]] = {}
    number = 0
    listed_cpus = {cpu for threads in cores for cpu in threads}
    for threads in (*cores, *([cpu] for cpu in cpus if cpu not in listed_cpus)):
        for lp, cpu in enumerate(threads):
            core_and_lp[cpu] = (number, lp) if len(threads) == 2 else (number + lp, 0)
        number += 1 if len(threads) == 2 else len(threads)
    return core_and_lp


class TracedPart:
    """A part that is read from the trace of idle transitions. One part owns the trace: it reports
    offline CPUs to the trace, and closes it. The other parts have None."""

    def __init__(
        self,
        trace: IdleTrace | None,
        scope: Scope,
        counters: Sequence[Counter],
        slots: Mapping[int, list[Slot]],
        offline: Sequence[int] = (),
    ) -> None:
        """`slots` has the slots of each CPU; `offline` are CPUs that are offline now."""
        self.scope, self.counters = scope, counters
        self.missing: list[Missing] = []
        self._trace, self._slots = trace, slots
        self._once_offline: set[int] = set()
        """CPUs that are or were offline, and then counted as idle."""
        for cpu in offline:
            self.close_cpu(cpu)

    def open(self, cpu: int) -> list[Slot]:
        if self._trace is not None and cpu in self._once_offline:
            self._trace.learn_states([cpu])  # a CPU that stays busy makes no idle transition
        return self._slots.get(cpu, [])

    def close_cpu(self, cpu: int) -> None:
        if self._trace is not None and cpu in self._slots:
            self._once_offline.add(cpu)
            self._trace.mark_offline(cpu)  # going offline is not an idle transition

    def close(self) -> None:
        if self._trace is not None:
            self._trace.close()
