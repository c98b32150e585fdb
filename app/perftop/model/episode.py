"""Episodes: events with a start and an end on certain CPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

KINDS = (
    "turbo-drop", "throttle", "involuntary-halt", "neighbour", "steal", "license", "smi", "ramp",
    "suspect", "offline", "online",
)  # fmt: skip
"""All kinds, the worst first."""
LOW_CLOCK = frozenset({"turbo-drop", "license"})
"""Kinds that are a clock below its ceiling; their depth is what it lacks, in Hz."""
_SHARES = frozenset({"throttle", "involuntary-halt", "neighbour", "steal"})
"""Kinds whose depth is the share of the time, or of the work, that is lost."""


def rank(kind: str) -> int:
    """Place of a kind among all, the worst first; unknown kinds come last."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


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
    calm: bool = False
    """The episode is not visible in the newest samples; it ends if that lasts."""

    @property
    def lost_share(self) -> float:
        """Share of each CPU's work that is lost, 0 to 1; 0 where that is not known."""
        depth = self.depth or 0.0
        if self.kind in _SHARES:
            return depth
        ceiling_hz = self.evidence.get("ceiling_hz", 0)
        return depth / ceiling_hz if self.kind in LOW_CLOCK and ceiling_hz else 0.0

    def span_s(self, since_ns: int, until_ns: int) -> float:
        """Seconds of it that lie between two moments."""
        end_ns = until_ns if self.end_ns is None else min(self.end_ns, until_ns)
        return max(0, end_ns - max(self.start_ns, since_ns)) / 1e9

    def lost_s(self, now_ns: int) -> float:
        """What it has cost by then, in seconds of CPUs: depth times length times CPUs."""
        end_ns = now_ns if self.end_ns is None else self.end_ns
        return self.lost_share * len(self.cpus) * max(0, end_ns - self.start_ns) / 1e9
