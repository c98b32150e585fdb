"""Where the time of a command went, in one sentence."""

from __future__ import annotations

from pathlib import Path

from perftop.base.text import ranges, safe
from perftop.output.stat_json import Line

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


def headline(command: str, line: Line) -> str:
    """`line`: the summary, with a run. Times are of the whole tree of the command."""
    run, job = line["run"], line["job"]
    used_s, wall_s = run["user_s"] + run["sys_s"], run["wall_s"]
    name = safe(Path(command).name or command, MOST_NAME)
    busy = used_s / wall_s if wall_s > 0 else 0.0
    if busy > ALONE:
        told = f"{name} took {wall_s:.2f} s and kept {busy:.1f} of {len(line['cpus'])} CPUs busy"
        return f"{told}{_waited(job, used_s, wall_s, '; its tasks waited')}.{_alone(line, wall_s)}"
    place = f" on CPU {ranges(job['cpus'])}" if job is not None else ""
    told = f"{name} took {wall_s:.2f} s: it ran {used_s:.2f} s{place}"
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
