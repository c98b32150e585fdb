"""What became of a command: where its time went, in one sentence; then in a line each its times,
what the CPUs did, what it waited for, and who else ran."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from perftop.base.format import clock_ghz, percent, rough, scale
from perftop.base.text import ranges, safe
from perftop.output import sentences
from perftop.output.stat_json import Line
from perftop.session.session import Session

MOST_NAME = 24
ALONE = 1.05
"""Most CPUs that a command kept busy of which it is told where it ran, not how many they were."""
NOTICED = 0.01
"""Minimum share of the elapsed time of waiting that is told."""
LONG = 0.1
"""Minimum share of the elapsed time with one CPU at work that is told."""
UNSEEN = 0.9
"""Share of its running time that must have been seen; if it was less, it waited longer than is
known."""
WIDTH = 13
MOST_COMMAND = 100
_LOW = "turbo-drop", "throttle", "license"


def headline(command: str, line: Line) -> str:
    """`line`: the summary, with a run. Times are of the whole tree of the command."""
    run, job = line["run"], line["job"]
    used_s, wall_s = run["user_s"] + run["sys_s"], run["wall_s"]
    name = safe(Path(command).name or command, MOST_NAME)
    most = "at most " if run.get("late_s") else ""
    busy = used_s / wall_s if wall_s > 0 else 0.0
    if busy > ALONE:
        told = (
            f"{name} took {most}{wall_s:.2f} s and kept {busy:.1f} of {len(line['cpus'])} CPUs busy"
        )
        return f"{told}{_waited(job, used_s, wall_s, '; its tasks waited')}.{_alone(line, wall_s)}"
    place = f" on CPU {ranges(job['cpus'])}" if job is not None else ""
    told = f"{name} took {most}{wall_s:.2f} s: it ran {used_s:.2f} s{place}"
    return f"{told}{_waited(job, used_s, wall_s, ' and waited')}."


def _alone(line: Line, wall_s: float) -> str:
    """How long one CPU of many worked; '' if that was not for long."""
    alone = line.get("busy")
    if alone is None or alone["cpus"] < 3 or alone["one_s"] < LONG * wall_s:
        return ""
    return f" One CPU alone worked for {alone['one_s']:.1f} s."


def _waited(job: Line | None, used_s: float, wall_s: float, how: str) -> str:
    """'' if it hardly waited, or that is not known."""
    waited_s = None if job is None else job["waited_s"]
    if job is None or waited_s is None or waited_s < NOTICED * wall_s:
        return ""
    least = " at least" if job["seen_s"] < UNSEEN * used_s else ""
    told = f"{how}{least} {waited_s:.2f} s for a CPU"
    behind = next((one for one in job["behind"] if one["ran_s"] > waited_s / 4), None)
    if behind is None:
        return told
    return f"{told}, mostly behind {safe(behind['comm'], MOST_NAME)}[{behind['pid']}]"


def block(session: Session, argv: Sequence[str], line: Line) -> list[str]:
    """`line`: the summary, with a run."""
    told: dict[str, str] = {
        "command": safe(shlex.join(argv), MOST_COMMAND) if len(argv) > 1 else "",
        f"exit status {line['run']['status']}": _times(line["run"]),
        "CPUs busy": _busy(line.get("busy")),
        "clock": _clock(session, line),
        "work": ", ".join(_work(line)),
        "used": ", ".join(_used(line)),
        "waits": _waits(line),
        "others": _others(line.get("others")),
        "energy": _energy(line),
    }
    lines = [f"{name:<{WIDTH}}{text}" if len(name) < WIDTH else f"{name}   {text}"
             for name, text in told.items() if text]  # fmt: skip
    if line["run"]["missed"]:
        missed = ranges(line["run"]["missed"])
        lines.append(f"CPUs {missed} were off or unreadable at its start or end")
    return lines


def _times(run: Line) -> str:
    slack_s = run["slack_s"]
    when = ("not known when in the measurement it ran" if slack_s is None
            else f"measured {slack_s:.3f} s longer")  # fmt: skip
    return f"user {run['user_s']:.3f} s   system {run['sys_s']:.3f} s   {when}"


def _busy(busy: Mapping[str, float] | None) -> str:
    if busy is None:
        return ""
    who = f" ({safe(str(busy['alone']), MOST_NAME)})" if busy["alone"] else ""
    parts = {
        f"all {busy['cpus']} for": busy["all_s"], "one for": busy["one_s"],
        "between for": busy["between_s"], "none for": busy["none_s"],
    }  # fmt: skip
    least_s = NOTICED * sum(parts.values())
    return ", ".join(
        f"{name} {span_s:.1f} s" + (who if name.startswith("one") else "")
        for name, span_s in parts.items() if span_s > least_s
    )  # fmt: skip


def _clock(session: Session, line: Line) -> str:
    measure = line["machine"]["busy_hz"]
    if measure is None:
        return ""
    ceilings = session.whole().ceiling_hz[session.shown_cores()]
    known = ceilings[np.isfinite(ceilings)]
    told = f"{clock_ghz(measure['mean'])} GHz"
    if len(known):
        told = f"{clock_ghz(measure['mean'])} of {clock_ghz(float(known.mean()))} GHz"
    below = line["totals"].get("below_ceiling")
    if below is None or below < NOTICED:
        return told
    causes = [one["cause"] for one in line.get("causes", ()) if one["kind"] in _LOW]
    why = sentences.CAUSES.get(causes[0], sentences.UNKNOWN) if causes else ""
    return f"{told}, below it {rough(below)} of the time{f': {why}' if why else ''}"


def _work(line: Line) -> Iterator[str]:
    machine = line["machine"]
    kernel = machine["kernel_cycles"] or machine["system"]
    both = [core["smt"]["both"]["mean"] for core in line["cores"] if core["smt"]["both"]]
    if machine["ipc"] is not None:
        yield f"IPC {machine['ipc']['mean']:.2f}"
    if kernel is not None:
        yield f"{percent(kernel['mean'])} % in the kernel"
    if sum(both) >= NOTICED * len(both) > 0:
        yield f"both threads of a core {rough(sum(both) / len(both))}"


def _used(line: Line) -> Iterator[str]:
    """The machine's cycles; the rest is the command's own."""
    run, totals = line["run"], line["totals"]
    if {"instructions", "cycles"} <= totals.keys():
        counts = f"{_si(totals['instructions'])} instructions in {_si(totals['cycles'])} cycles"
        yield f"{counts} on all CPUs"
    if run["switches"] is not None:
        yield f"{_si(run['switches'])} switches"
    if run["page_faults"] is not None:
        disk = f" ({run['disk_faults']} from disk)" if run["disk_faults"] else ""
        yield f"{_si(run['page_faults'])} page faults{disk}"
    if run["peak_bytes"] is not None:
        yield f"{run['peak_bytes'] / 1e6:.1f} MB in its largest process"


def _si(value: float) -> str:
    power, prefix = scale(value)
    return f"{value / 10**power:.3g} {prefix}" if prefix else f"{value:.0f}"


def _waits(line: Line) -> str:
    job, run = line["job"], line["run"]
    if job is None or (job["waited_s"] is None and job["disk_s"] is None):
        return ""
    parts = {"a CPU": job["waited_s"], "the disk": job["disk_s"]}
    told = [f"{waited_s:.2f} s for {what}" for what, waited_s in parts.items()
            if waited_s is not None]  # fmt: skip
    unseen = job["seen_s"] < UNSEEN * (run["user_s"] + run["sys_s"])
    return f"{'at least ' if unseen else ''}{' and '.join(told)}, all tasks together"


def _others(others: Line | None) -> str:
    if others is None:
        return ""
    told = f"at least {others['cpus']:.1f} CPUs on average"  # what is short-lived is not seen
    most = others["most"]
    if most is None:
        return told
    name, at = f"{safe(most['comm'], MOST_NAME)}[{most['pid']}]", ranges(most["cpus"])
    return f"{told}; most: {name}, {most['ran_s']:.1f} s on CPU {at}"


def _energy(line: Line) -> str:
    energy_j, own_s, elapsed_s = line["energy_j"], line.get("own_cpu_s"), line["elapsed_s"]
    parts = []
    if energy_j is not None and elapsed_s:
        amount = f"{energy_j / 1e3:.2f} kJ" if energy_j >= 1e3 else f"{energy_j:.1f} J"
        dram_j = line.get("energy_dram_j")
        dram = f" (memory {dram_j / elapsed_s:.1f} W)" if dram_j is not None else ""
        parts.append(f"{amount}, {energy_j / elapsed_s:.1f} W{dram}")
    if own_s is not None and elapsed_s:
        parts.append(f"own cost {100 * own_s / elapsed_s:.1f} % of one CPU")
    return "   ".join(parts) if energy_j is not None else ""
