"""Values of the trace of idle transitions, read as the program reads them: by a lane of the
sampler."""

from __future__ import annotations

from waiting import whenever_due

from perfprobe import wire
from perfprobe._native import ffi, lib
from perfprobe.machine.idle import STATES, IdleTrace
from perfprobe.native.sampler import RowPlan, Sampler, Slot

BUSY = lib.PP_TRACED + lib.PP_IDLE_BUSY
PERIOD_NS = 1_000_000
ENTRIES, CLAMPED_NS, CORE_UNKNOWN = 4, 6, 5
"""Words of the row of a CPU, and of a core, that only tests read (idle_rows.h)."""


def read_values(trace: IdleTrace, *values: tuple[int, int]) -> list[int | None]:
    """Returns the values of these kinds and CPUs or cores, read one after the other; None where the
    trace has no value."""
    base = trace.base_address()
    slots = [Slot(kind, i, number, base) for i, (kind, number) in enumerate(values)]
    first = wire.HEAD + 1
    with Sampler(PERIOD_NS, first + len(slots), check_cpu=False) as sampler:
        sampler.attach(lib.PP_UNPINNED_CPU, [RowPlan(0, wire.HEAD, 1, first, slots)])
        for drained in whenever_due(sampler.due_s, sampler.drain, "a read of the trace"):
            words = sampler.frame.cast("Q").tolist()
            if drained and words[4] & wire.ROW_SAMPLED:
                break
    return [n if words[wire.HEAD] >> i & 1 else None for i, n in enumerate(words[first:])]


def busy_ns(trace: IdleTrace, cpu: int) -> int | None:
    """Returns the busy time of the CPU in ns; None while its state is unknown."""
    return read_values(trace, (BUSY, cpu))[0]


def smt_times(trace: IdleTrace, core: int) -> list[int]:
    """Returns the times in ns for which no CPU of the core was busy, only LP 0, only LP 1, and
    both."""
    return [
        n for n in read_values(trace, *((kind, core) for kind in STATES.values())) if n is not None
    ]


def row_word(trace: IdleTrace, row: int, word: int) -> int:
    """Returns a word of a row: of CPU `row` - 1, or of a core, after all CPUs."""
    return int(ffi.cast("uint64_t *", trace.base_address() + row * 64)[word])
