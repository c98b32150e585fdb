"""Causes of losses in words: subject, line, and the one thing to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from perftop.base.format import percent
from perftop.model.episode import Cap, Episode, TaskOnCpu
from perftop.output.episode_words import where_briefly
from perftop.output.sentences import CAUSES, UNKNOWN, inside
from perftop.session.losses import UNEXPLAINED, Cause
from perftop.session.session import Session

SIGNS = {
    "turbo-drop": "▼", "throttle": "■", "involuntary-halt": "║", "neighbour": "◐", "license": "◊",
    "steal": "╳", "ramp": "╱",
}  # fmt: skip
"""Signs of the kinds of episodes, as on the screen."""
OF_CYCLES = frozenset({"turbo-drop", "license", "ramp"})
"""Kinds that cost cycles; the others cost time."""
_TRY = {
    "power-pl1": "the limit in /sys/class/powercap; the power cap in the BMC",
    "power-pl2": "the limit in /sys/class/powercap; the power cap in the BMC",
    "thermal": "cooling: fans, air flow, dust; or fewer busy cores",
    "prochot": "the power supply and the BMC, which can pull PROCHOT",
    "hwp": "cpupower frequency-set -g performance",
    "policy": "cpupower frequency-info",
    "license": "-mprefer-vector-width=256, if a compiler made that code",
    "clock-change": "cpupower frequency-set -g performance",
    "smm": "the setup of the firmware: USB legacy, power management",
    "hypervisor": "another host or instance size; nothing in here helps",
}
_CAPS = {
    "scaling_max_freq": "cpupower frequency-set -u CLOCK",
    "turbo off": "turbo on: 0 into /sys/devices/system/cpu/*pstate/no_turbo",
    "max_perf_pct": "100 into /sys/devices/system/cpu/*pstate/max_perf_pct",
}
"""Remedies for limits that somebody set, by the limit's name."""


def hint(cause: Cause, worst: Episode | None) -> str:
    """'' where we know nothing better."""
    if worst is not None and isinstance(cap := worst.evidence.get("cap"), Cap):
        return _CAPS.get(cap.by, _TRY["policy"])
    if cause[1] == "sibling":
        who = _first(worst)
        return f"keep {who.comm}[{who.pid}] off these cores: taskset" if who else ""
    if cause == ("neighbour", "memory"):
        who = _first(worst)
        return f"run {who.comm}[{who.pid}] at another time or on another package" if who else ""
    return _TRY.get(cause[1], "")


def subject(cause: Cause, worst: Episode | None) -> str:
    """Short, in the middle of a sentence."""
    kind, name = cause
    if kind == "steal":
        return "the hypervisor"
    if kind == "ramp":
        return "the climb of its clock"
    if kind == "license":
        return "wide SIMD code"
    if kind == "neighbour":
        who = _first(worst)
        others = "others that press the memory" if name == "memory" else "others on its cores"
        return who.comm if who else others
    if name == UNEXPLAINED:
        return "halts" if kind == "involuntary-halt" else "a low clock"
    return inside(CAUSES.get(name, UNKNOWN))


def said(
    session: Session, cause: Cause, cpus: Sequence[int], episodes: Sequence[Episode], loser: str,
    *, over: bool,
) -> str:  # fmt: skip
    """The line behind the number. `loser`: name of the job, '' if none is watched."""
    kind, name = cause
    place = where_briefly(session.topology, cpus, cpus[0] if cpus else None, 12)
    worst = max(episodes, key=lambda e: e.depth or 0.0, default=None)
    who = subject(cause, worst)
    if kind == "steal":
        return f"the hypervisor {'ran' if over else 'runs'} others in place of {place}"
    if kind == "ramp":
        return f"the clock {'climbed' if over else 'climbs'} after a start of {place}"
    if name == UNEXPLAINED:
        what = "halts without a told cause on" if kind == "involuntary-halt" else (
            "a clock a little below its ceiling on")  # fmt: skip
        return f"{what} {place}"
    if kind in {"turbo-drop", "license"} and (clocks := _clocks(episodes)):
        return f"{who} {'held' if over else 'holds'} {place} at {clocks}"
    if name in {"sibling", "package", "memory"}:
        what = "clock" if name == "package" else "IPC"
        whose = f"{loser}'s {what} on {place}" if loser else f"the {what} of {place}"
        depth = percent((worst.depth or 0.0) if worst else 0.0)
        return f"{who} {'took' if over else 'takes'} {depth} % of {whose}"
    verb = ("stopped" if over else "stops") if kind == "throttle" else (
        "halted" if over else "halts")  # fmt: skip
    depth = percent((worst.depth or 0.0) if worst else 0.0)
    return f"{who} {verb} {place} for {depth} % of the time"


def _clocks(episodes: Sequence[Episode]) -> str:
    """Mean clock and ceiling, by length and CPUs."""
    told = [
        (len(e.cpus) * max(1, (e.end_ns or e.start_ns + 1) - e.start_ns), e.evidence)
        for e in episodes
        if {"busy_hz", "ceiling_hz"} <= e.evidence.keys()
    ]
    whole = sum(weight for weight, _ in told)
    if not whole:
        return ""
    busy, ceiling = (
        sum(weight * evidence[key] for weight, evidence in told) / whole
        for key in ("busy_hz", "ceiling_hz")
    )
    return f"{busy / 1e9:.2f} of {ceiling / 1e9:.2f} GHz"


def _first(episode: Episode | None) -> TaskOnCpu | None:
    told = episode.evidence.get("who", ()) if episode is not None else ()
    found = (one for one in told if isinstance(one, TaskOnCpu)) if isinstance(told, list) else ()
    return next(iter(found), None)
