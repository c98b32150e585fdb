"""Opens the source that the user asked for: a real machine, made of parts, or a simulation.

| source | counters of cores | MSRs | times and states from the kernel |
|---|---|---|---|
| os | | | yes |
| auto, perf | perf events; `auto` continues without them | read only | yes |
| msr | | programmed and read | yes |

If several parts have a counter with the same key, that of the first part is used.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perfprobe import stream_options
from perfprobe.errors import Unavailable, UsageError, with_remedy

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import WatchedJob
    from perfprobe.machine.source import Machine
    from perfprobe.sources import Source
    from perfprobe.wire import Multiplier, Rate


def open_source(options: argparse.Namespace) -> Source:
    """Opens the source that the options of `stream` select. Raises UsageError for a bad option, and
    Unavailable if this machine does not have the source."""
    name, sample_ns = options.source, round(options.sample * 1e9)
    is_sysroot = options.sysroot != Path("/")
    method, events, multiplex = options.smt_method, options.events, not options.no_multiplex
    if method is not None and method not in stream_options.SMT_METHODS:
        raise UsageError(
            f"unknown SMT method {method!r}; known: {', '.join(stream_options.SMT_METHODS)}"
        )
    if name == "sim" or name.startswith("sim:"):
        if is_sysroot:
            raise UsageError("--sysroot is for real sources: a simulated machine has no files")
        if options.watch_tree is not None:
            raise UsageError("--watch-tree is for real sources: no process runs in a simulation")
        from perfprobe.sources.sim.source import SimSource

        return SimSource(name, sample_ns, options.cpus, options.watch, events, multiplex=multiplex)
    # Each CPU needs up to a dozen descriptors and each watched thread three; the default limit of
    # this process is 1024.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    if events is not None and (name in {"os", "msr"} or is_sysroot):
        raise UsageError("--events: only --source auto, perf and sim count events")
    watch = None
    if options.watch is not None or options.watch_tree is not None:
        from perfprobe.kernel.job_threads import WatchedJob

        if (tree := options.watch_tree) is not None:
            watch = WatchedJob(options.sysroot, tree, tree=True)
        if options.watch is not None:
            watch = WatchedJob(options.sysroot, options.watch, second=watch)
    if name == "perf" and is_sysroot:
        raise UsageError("--source perf does not read a --sysroot: perf events are not files")
    if name == "os" or (name == "auto" and is_sysroot):
        return open_os(options.sysroot, sample_ns, options.cpus, watch)
    if name in {"auto", "perf"}:
        return open_perf(name, sample_ns, options.cpus, method, watch, events, multiplex=multiplex)
    if name == "msr":
        from perfprobe.programming.source import open_msr

        return open_msr(options.sysroot, sample_ns, options.cpus, method, watch)
    raise UsageError(f"unknown source {name!r}; known: auto, perf, msr, os, sim[:SCENARIO]")


def open_os(
    root: Path, sample_ns: int, cpus: str | None, watch: WatchedJob | None = None
) -> Machine:
    """Opens the `os` source: only times and states that the operating system records. Raises
    Unavailable if no CPU is found, and ValueError for a bad list of CPUs."""
    from perfprobe.cpu.model_terms import CORE_COUNTER_KEYS
    from perfprobe.machine.source import Machine, os_parts, read_rows
    from perfprobe.perf import perf_pmus

    rows, selected = read_rows(root, cpus)
    missing = perf_pmus.no_counters_problem(root).missing(*CORE_COUNTER_KEYS)
    return Machine(root, sample_ns, rows, selected, os_parts(root, rows), missing, watch=watch)


def open_perf(
    name: Literal["auto", "perf"],
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: WatchedJob | None = None,
    events: str | None = None,
    *,
    multiplex: bool = True,
) -> Machine:
    """Opens the `perf` or the `auto` source: perf events, MSRs that are only read, and times and
    states that the operating system records. `events` is the argument of --events. If neither
    reference cycles nor cycles can be counted, `perf` raises Unavailable; `auto` continues without
    them, and the hello message has the reason. Raises ValueError for unknown events."""
    from perfprobe.machine.parts import Part
    from perfprobe.machine.source import Machine, SourceInfo, os_parts, read_rows, with_siblings
    from perfprobe.perf import chosen_events, cores
    from perfprobe.perf.perf_events import Kernel
    from perfprobe.registers.limits import open_registers

    root, kernel = Path("/"), Kernel()
    chosen_groups = [] if events is None else chosen_events.find_events(root, events)
    rows, selected = read_rows(root, cpus)
    planner = cores.EventPlanner(root, rows, method=method)
    cpus_to_read = with_siblings(selected, rows)
    online = [row for row in rows if row.online and row.cpu in cpus_to_read]
    other_groups = [
        group for group in chosen_groups if chosen_events.always_counted_key(group) is None
    ]
    other_group = chosen_events.largest_group_finder(other_groups, planner.pmus)
    parts = cores.open_parts(kernel, rows, planner, online=online, other_group=other_group)
    aliases = chosen_events.always_counted_keys(chosen_groups, parts[0].counters)
    groups = [group for group in chosen_groups if group[0].request.key not in aliases]
    with contextlib.ExitStack() as on_failure:
        for part in parts:
            on_failure.callback(part.close)
        why_not, extra = cores.no_clock_problem(parts), list[Part]()
        if why_not is not None and name == "perf":
            reason = f"the perf source is not available: {why_not.why}"
            raise Unavailable(with_remedy(reason, why_not.fix))
        if groups:
            extra += chosen_events.open_chosen(
                kernel, rows, groups, planner.pmus, online=online, multiplex=multiplex
            )
        on_failure.pop_all()
    slots, no_slots = chosen_events.open_topdown(kernel, rows, planner.pmus, online=online)
    registers, survey = open_registers(root, rows)
    keys = {counter.key for part in parts for counter in part.counters}

    def rates(tsc_hz: Rate | None) -> tuple[list[Multiplier], Rate | None]:
        multipliers = planner.multipliers(keys, tsc_hz.hz if tsc_hz else None)
        return multipliers, planner.base_hz(tsc_hz) or survey.base_hz

    source_name = "os" if why_not is not None else "perf"
    info = SourceInfo(source_name, cores.smt_methods(keys), rates, survey.turbo, aliases)
    parts += [*registers, *os_parts(root, rows)]
    all_missing = survey.missing + no_slots
    extra += slots
    return Machine(root, sample_ns, rows, selected, parts, all_missing, info, watch, extra)
