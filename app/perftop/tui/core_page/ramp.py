"""A ramp on the page of a core: its moments in the chart of the clock, and its description."""

from __future__ import annotations

from perftop.base.format import ClockUnit, short_duration
from perftop.model.episode import Episode
from perftop.tui.shared.time_axis import Axis

_TIMES = {"t90_s": "90 %", "t99_s": "99 %", "steady_s": "steady"}
"""Names of the levels reached, by the evidence that says how long each took."""


def columns(axis: Axis, episode: Episode) -> dict[int, str]:
    """Cells at which the core woke ('') or reached a level, each with the highest level reached
    there. Times within the resolution are only bounds and have no cell."""
    told, least_s = episode.evidence, episode.evidence.get("resolution_s", 0.0)
    moments = {"": episode.start_ns}
    moments |= {
        name: episode.start_ns + round(told[key] * 1e9)
        for key, name in _TIMES.items()
        if told.get(key, 0.0) > least_s
    }
    if episode.end_ns is not None:
        moments["steady"] = episode.end_ns
    found = {axis.bin(ns + 1): name for name, ns in moments.items()}
    return {at: name for at, name in found.items() if 0 <= at < axis.width}


def words(episode: Episode, cores: int, unit: ClockUnit) -> str:
    """How long the core took to reach which clock; of several cores, the median one."""
    told = episode.evidence
    if "steady_s" not in told:
        return ""
    clocks = {key: _clock(told[key], unit) for key in ("first_hz", "ceiling_hz") if key in told}
    below = "" if episode.confidence == "measured" else "below "
    parts = [
        f"steady {_clock(told['steady_hz'], unit)} {unit.name} {_after(told, 'steady_s')}",
        *(f"{_TIMES[key]} {_after(told, key)}" for key in ("t90_s", "t99_s")
          if told[key] < told["steady_s"]),
        f"from {below}{clocks['first_hz']}",
        f"ceiling {clocks['ceiling_hz']}" if "ceiling_hz" in clocks else "",
        f"fell {told['drops']}× on the way" if "drops" in told else "",
        f"median of {cores} cores" if cores > 1 else "",
        f"CPU {told['slowest_cpu']} {short_duration(told['slowest_s'])}" if "slowest_s" in told else "",
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


def _clock(hz: float, unit: ClockUnit) -> str:
    return f"{hz * unit.per_hz:.{unit.digits}f}"


def _after(told: dict[str, float], key: str) -> str:
    least_s = told["resolution_s"]
    if told[key] <= least_s:
        return f"after at most {short_duration(least_s)}"
    sure = f" (± {short_duration(least_s)})" if key == "steady_s" else ""
    return f"after {short_duration(told[key])}{sure}"
