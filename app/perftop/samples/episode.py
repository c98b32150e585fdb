"""Episodes: events with a start and an end on certain CPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

KINDS = (
    "turbo-drop", "throttle", "involuntary-halt", "neighbour", "steal", "license", "smi", "ramp",
    "suspect", "offline", "online",
)  # fmt: skip
"""All kinds, the worst first."""


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
