"""Which parts to read on this machine: what perf counts, and the operating system's account."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from perfprobe.kernel.job_threads import Watch
from perfprobe.native.errors import Unavailable
from perfprobe.sources import msr, native, perf, perfplan
from perfprobe.sources.native import About, Native, Rates
from perfprobe.wire import Rate


def open_local(
    name: Literal["auto", "perf"],
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: Watch | None = None,
) -> Native:
    """`perf`: raises Unavailable where neither reference cycles nor cycles can be counted. `auto`
    then does without them, and hello says why."""
    root = Path("/")
    rows, selected = native.read_rows(root, cpus)
    planner = perfplan.Planner(root, rows, method=method)
    wanted = native.with_siblings(selected, rows)
    parts = perf.open_perf(root, rows, planner, cpus=wanted)
    blocker = perf.blocker(parts)
    if blocker is not None and name == "perf":
        for part in parts:
            part.close()
        mend = f"; {blocker.fix}" if blocker.fix else ""
        raise Unavailable(f"the perf source is not available: {blocker.why}{mend}")
    keys = {counter.key for part in parts for counter in part.counters}

    def rates(tsc_hz: Rate | None) -> Rates:
        multipliers = planner.multipliers(keys, tsc_hz.hz if tsc_hz else None)
        return multipliers, planner.base_hz(tsc_hz) or info.base_hz

    registers, lost, info = msr.open_parts(root, rows, program=False)  # read, never written
    about = About(
        "os" if blocker is not None else "perf",
        smt_methods=perfplan.methods(keys),
        rates=rates,
        turbo=info.turbo,
    )
    parts += [*registers, *native.os_parts(root, rows)]  # in the order of preference
    return Native(root, sample_ns, rows, selected, parts, lost, about, watch)
