"""Episodes: something with a start and an end on named CPUs. Pure steps from sample to sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

CLEAN_NS = 1_000_000_000
"""A suspect episode has ended when this long no sample was suspect: shorter gaps are the same
disturbance seen twice, and a line per sample would bury it."""

CAUSES = {
    "PL1": "power-pl1", "PL2": "power-pl2", "electrical": "current", "thermal": "thermal",
    "running average thermal limit": "thermal", "PROCHOT": "prochot", "VR thermal": "vr",
    "VR thermal alert": "vr", "VR thermal design current": "vr", "autonomous utilisation": "hwp",
}  # fmt: skip
"""By the name of a limit reason; of two seen as often the first. The others limit nothing, or
nobody knows what."""
LEVELS = "license_1", "license_2", "license_3"
"""Counters of cycles for which wide code had the clock lowered."""


@dataclass(slots=True)
class Episode:
    kind: str
    cpus: list[int]
    start_ns: int  # raw
    end_ns: int | None = None  # None while running
    depth: float | None = None
    cause: str = "unknown"
    evidence: dict[str, Any] = field(default_factory=dict)
    confidence: Literal["measured", "inferred", "unknown"] = "measured"


class Detector:
    """Turns what happened to each CPU into episodes. Ended ones are handed out once."""

    def __init__(self) -> None:
        self.running: list[Episode] = []
        self._last_suspect: dict[int, int] = {}

    def hotplug(self, cpu: int, time_ns: int, *, online: bool) -> list[Episode]:
        """A CPU went away or came."""
        away = [e for e in self.running if e.kind == "offline" and e.cpus == [cpu]]
        if online:
            back = Episode("online", [cpu], time_ns, time_ns, cause="hotplug")
            return [*(self.end(episode, time_ns) for episode in away), back]
        if not away:
            self.running.append(Episode("offline", [cpu], time_ns, cause="hotplug"))
        return []

    def suspects(self, reasons: dict[int, set[str]], time_ns: int, since_ns: int) -> list[Episode]:
        """The sample from since_ns to time_ns could not be believed on these CPUs."""
        mine = {e.cpus[0]: e for e in self.running if e.kind == "suspect"}
        for cpu, texts in reasons.items():
            episode = mine.get(cpu)
            if episode is None:
                episode = Episode("suspect", [cpu], since_ns, cause=min(texts))
                self.running.append(episode)
            counts = episode.evidence
            for text in texts:
                counts[text] = counts.get(text, 0) + 1
            self._last_suspect[cpu] = time_ns
        over = [
            (episode, self._last_suspect[cpu])
            for cpu, episode in mine.items()
            if time_ns - self._last_suspect[cpu] >= CLEAN_NS
        ]
        return [self.end(episode, end_ns) for episode, end_ns in over]

    def end(self, episode: Episode, end_ns: int) -> Episode:
        self.running = [e for e in self.running if e is not episode]
        episode.end_ns = end_ns
        return episode


_UNITS = {"_hz": (1e-9, 2, "GHz"), "_w": (1.0, 0, "W")}


def told(key: str, value: object) -> str:
    """A piece of evidence as text: its key says in which unit a number is."""
    for end, (scale, digits, unit) in _UNITS.items():
        if key.endswith(end) and isinstance(value, int | float):
            what = key.removesuffix(end).replace("_", " ")
            return f"{what} {value * scale:.{digits}f} {unit}"
    return f"{key}: {value}"
