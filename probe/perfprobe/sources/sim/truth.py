"""True values of a simulated machine (`perfprobe truth`), by its schedule, not its counters."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any

from perfprobe.errors import UsageError
from perfprobe.sources.sim import scenarios
from perfprobe.sources.sim.counters import LINES_PER_WRITE
from perfprobe.sources.sim.machine import Ints, SimMachine, Spec, parse_spec
from perfprobe.sources.sim.schedule import Row, Schedule, ScheduleCursor
from perfprobe.sources.sim.script import ScriptedEpisode

SECOND = 1_000_000_000


def truth(spec: Spec | str, duration_s: float) -> Iterator[dict[str, Any]]:
    """Yields objects for lines of JSON, in the order of their `start`. Times are seconds from the
    start of the simulation, which are `time_ns - hello.raw_ns` in frames.

    For every window of 1 s (the last may be shorter), first all cores, then all CPUs, then all
    packages:

    {"type":"core","package","core","cpus","start","end","smt","clock_hz"}: `core` is Linux's
    core_id; `smt` is {"neither","lp0","lp1","both"}, shares of the window in which those CPUs were
    not halted, or with more than two threads {"neither","active_threads"}; `clock_hz` is the mean
    clock while unhalted, null if the core was always halted.

    {"type":"cpu","cpu","start","end","online","util","busy_hz","ipc","kernel_cycles",
    "kernel_instructions","halt","idle","involuntary","steal"}: as in `stat --json`, shares of the
    window, kernel shares of cycles and of instructions. halt = 1 - util = idle + involuntary +
    steal, exactly. `online` is a share, too. The other values are null if the CPU was offline at
    any time; clock, ipc and kernel shares are also null if nothing ran.

    {"type":"package","package","start","end","memory_read_bytes_per_s",
    "memory_write_bytes_per_s"}: traffic of its CPUs from memory and to memory.

    {"type":"episode","kind","cause","cpus","start","end","depth"}: as scripted. `cause` is null if
    the kind has none, `end` if the episode still runs at the end of the duration. `depth` is in Hz,
    a share, a count (smi), or null. The depth of a throttle is the share of time that it costs, not
    the share for which its status is set. An episode that is only detected if a job is watched
    is left out.
    """
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    if not 0 < duration_s < 31 * 86_400:
        raise UsageError(f"truth: a duration of {duration_s} s is not between 0 and 31 days")
    machine = SimMachine.from_spec(spec)
    script = scenarios.make_script(spec.scenario, machine)
    schedule = Schedule(machine, script, spec.seed)
    scripted = [episode for episode in script.episodes if episode.watch is None]
    episodes = _episodes(scripted, schedule.tables.stages.period / SECOND, duration_s)
    windows = _windows(schedule, round(duration_s * SECOND))
    return heapq.merge(windows, episodes, key=lambda line: line["start"])


def _windows(schedule: Schedule, duration_ns: int) -> Iterator[dict[str, Any]]:
    cursor = ScheduleCursor(schedule)
    totals_before = cursor.totals_until(0)
    for t0 in range(0, duration_ns, SECOND):
        t1 = min(t0 + SECOND, duration_ns)
        totals_after = cursor.totals_until(t1)
        totals, totals_before = totals_after - totals_before, totals_after
        times = {"start": t0 / SECOND, "end": t1 / SECOND}
        for core in range(schedule.machine.cores):
            yield _core_truth(schedule.machine, core, totals, t1 - t0, times)
        for cpu in range(schedule.machine.cpus):
            yield {"type": "cpu", "cpu": cpu, **times, **_cpu_truth(totals[:, cpu], t1 - t0)}
        for package in range(0 if schedule.machine.guest else schedule.machine.packages):
            traffic = totals[Row.TRAFFIC, schedule.machine.package_cpus(package)].sum() / 1000
            rate = float(traffic) * SECOND / (t1 - t0)
            yield {
                "type": "package",
                "package": package,
                **times,
                "memory_read_bytes_per_s": rate * (1 - 1 / LINES_PER_WRITE),
                "memory_write_bytes_per_s": rate / LINES_PER_WRITE,
            }


def _core_truth(
    machine: SimMachine, core: int, totals: Ints, span_ns: int, times: dict[str, float]
) -> dict[str, Any]:
    cpus = machine.threads(core)
    run = [int(totals[Row.RUN, cpu]) for cpu in cpus]
    smt = [int(totals[Row.SMT, cpu]) for cpu in cpus]
    if len(cpus) > 2:
        split = {"neither": 1 - smt[0] / span_ns, "active_threads": sum(run) / span_ns}
    else:
        lp0, lp1 = (*smt, 0)[:2]
        both = run[0] - lp0
        parts = {"neither": span_ns - lp0 - lp1 - both, "lp0": lp0, "lp1": lp1, "both": both}
        split = {state: part / span_ns for state, part in parts.items()}
    cycles = sum(int(totals[Row.CYCLES, cpu]) for cpu in cpus)
    row = machine.row(cpus[0])
    return {
        "type": "core",
        "package": row.package,
        "core": row.core,
        "cpus": cpus,
        **times,
        "smt": split,
        "clock_hz": cycles * 1e6 / sum(run) if sum(run) else None,
    }


def _cpu_truth(total: Ints, span_ns: int) -> dict[str, float | None]:
    run, cycles, instructions, idle, steal, online = (
        int(total[row])
        for row in (Row.RUN, Row.CYCLES, Row.INSTRUCTIONS, Row.IDLE, Row.STEAL, Row.ONLINE)
    )

    def ratio(part: float, whole: int) -> float | None:
        return part / whole if online == span_ns and whole else None

    return {
        "online": online / span_ns,
        "util": ratio(run, span_ns),
        "busy_hz": ratio(cycles * 1e6, run),
        "ipc": ratio(instructions, cycles),
        "kernel_cycles": ratio(int(total[Row.KERNEL_CYCLES]), cycles),
        "kernel_instructions": ratio(int(total[Row.KERNEL_INSTRUCTIONS]), instructions),
        "halt": ratio(span_ns - run, span_ns),
        "idle": ratio(idle, span_ns),
        "involuntary": ratio(span_ns - run - idle - steal, span_ns),
        "steal": ratio(steal, span_ns),
    }


def _episodes(
    script: list[ScriptedEpisode], cycle_s: float, duration_s: float
) -> Iterator[dict[str, Any]]:
    ordered = sorted(script, key=lambda e: e.start)
    for cycle in itertools.count() if ordered else ():
        cycle_start = cycle * cycle_s
        for episode in ordered:
            start, end = round(cycle_start + episode.start, 6), round(cycle_start + episode.end, 6)
            if start >= duration_s:
                return
            yield {
                "type": "episode",
                "kind": episode.kind,
                "cause": episode.cause,
                "cpus": episode.cpus,
                "start": start,
                "end": end if end <= duration_s else None,
                "depth": episode.depth,
            }
