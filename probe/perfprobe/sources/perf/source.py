"""The default source of this machine: what perf counts, and the operating system's account."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from perfprobe.errors import Unavailable
from perfprobe.sources.msr.opening import Info, open_parts
from perfprobe.sources.os.hello import About, Rates
from perfprobe.sources.os.parts import Part
from perfprobe.sources.os.source import Native, os_parts, read_rows, with_siblings
from perfprobe.sources.perf import chosen
from perfprobe.sources.perf.chosen import Wanted
from perfprobe.sources.perf.groups import Groups
from perfprobe.sources.perf.parts import Planner, blocker, open_perf, smt_methods
from perfprobe.wire import Missing, Rate

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import Watch


def open_local(
    name: Literal["auto", "perf"],
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: Watch | None = None,
    events: Wanted | None = None,
) -> Native:
    """Opens the source. If neither reference cycles nor cycles can be counted, `perf` raises
    Unavailable; `auto` goes on without them, and the hello has the reason. Raises ValueError for
    unknown events."""
    root = Path("/")
    groups = [] if events is None else chosen.find(root, events.text)
    rows, selected = read_rows(root, cpus)
    planner = Planner(root, rows, method=method)
    wanted = with_siblings(selected, rows)
    parts = open_perf(root, rows, planner, cpus=wanted, pinned=chosen.any_hardware(groups))
    why_not, extra = blocker(parts), list[Groups]()
    try:
        if why_not is not None and name == "perf":
            _refuse(why_not)
        if events is not None:
            extra = chosen.open_chosen(
                root, rows, groups, planner.pmus, cpus=wanted, multiplex=events.multiplex
            )
    except Unavailable:
        for part in parts:
            part.close()
        raise
    slots = chosen.open_topdown(root, rows, planner.pmus, cpus=wanted)
    registers, lost, info = open_parts(root, rows, program=False)  # read, never written
    about = _about("os" if why_not is not None else "perf", parts, planner, info)
    parts += [*registers, *os_parts(root, rows)]  # in the order of preference
    lost, extra = [*lost, *slots.missing], [*extra, *slots.parts]
    return Native(root, sample_ns, rows, selected, parts, lost, about, watch, extra)


def _refuse(lacking: Missing) -> NoReturn:
    fix = f"; {lacking.fix}" if lacking.fix else ""
    raise Unavailable(f"the perf source is not available: {lacking.why}{fix}")


def _about(name: str, parts: Iterable[Part], planner: Planner, info: Info) -> About:
    keys = {counter.key for part in parts for counter in part.counters}

    def rates(tsc_hz: Rate | None) -> Rates:
        multipliers = planner.multipliers(keys, tsc_hz.hz if tsc_hz else None)
        return multipliers, planner.base_hz(tsc_hz) or info.base_hz

    return About(name, smt_methods(keys), rates, info.turbo)
