"""Episodes: states of certain CPUs with a start and an end. Detectors give their evidence as
numbers, whose keys name the unit, and as the types below. `output/sentences.py` turns the evidence
into text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from perftop.model.kinds import KINDS

_ORDER = [*KINDS]


def rank(kind: str) -> int:
    """Returns the position of a kind in order of severity, the worst first. Unknown kinds come
    last."""
    return _ORDER.index(kind) if kind in KINDS else len(_ORDER)


@dataclass(slots=True)
class Episode:
    kind: str
    cpus: list[int]
    start_ns: int  # raw time
    end_ns: int | None = None  # None while the episode runs
    depth: float | None = None
    cause: str = "unknown"
    evidence: dict[str, Any] = field(default_factory=dict)
    confidence: Literal["measured", "inferred", "unknown"] = "measured"
    calm: bool = False
    """Whether the episode is not visible in the newest samples. The episode ends if that lasts."""

    @property
    def lost_share(self) -> float:
        """Share of each CPU's work that is lost, from 0 to 1; 0 where unknown."""
        depth, kind = self.depth or 0.0, KINDS.get(self.kind)
        measure = kind.depth if kind else ""
        if measure == "share":
            return depth
        ceiling_hz = self.evidence.get("ceiling_hz", 0)
        return depth / ceiling_hz if measure == "hz" and ceiling_hz else 0.0

    def span_s(self, since_ns: int, until_ns: int) -> float:
        """Returns how many seconds of the episode are between two times."""
        end_ns = until_ns if self.end_ns is None else min(self.end_ns, until_ns)
        return max(0, end_ns - max(self.start_ns, since_ns)) / 1e9

    def lost_s(self, now_ns: int) -> float:
        """Returns the cost of the episode until `now_ns` in CPU seconds: lost share times duration
        times number of CPUs."""
        end_ns = now_ns if self.end_ns is None else self.end_ns
        return self.lost_share * len(self.cpus) * max(0, end_ns - self.start_ns) / 1e9


BASE_CLOCK = "base"
"""The ceiling is the base clock, because no turbo table is known."""
KERNEL = "kernel"
"""Only the kernel reported the episode, after its end."""


class Bit(NamedTuple):
    """A bit of a register, and how many polls found it set."""

    number: int
    part: str | None
    """Name of the bit; None if the stream has no name for it."""
    times: float


class PolledBits(NamedTuple):
    """The bits that polls of a register found set."""

    bits: tuple[Bit, ...]
    polls: float
    """Number of reads of the register; 0 if the source has no such register."""


class Level(NamedTuple):
    """A SIMD level, and the share of the core's cycles spent at that level."""

    number: int
    share: float


class Cap(NamedTuple):
    """A clock limit that a user or program set: its name in model.kinds.CAPS, and its clock in
    Hz."""

    by: str
    hz: float


class OutOf(NamedTuple):
    """A number and the highest value that it can have."""

    number: float
    highest: float


class TaskOnCpu(NamedTuple):
    """A task that ran on a CPU."""

    pid: int
    comm: str
    cpu: int


class CrowdedCpu(NamedTuple):
    """Threads of the watched job that share a CPU."""

    threads: int
    cpu: int


class Host(NamedTuple):
    """The hypervisor of this guest; its name is None if unknown."""

    name: str | None


class GroupTraffic(NamedTuple):
    """A resctrl group, and its memory traffic in bytes per second."""

    group: str
    bytes_per_s: float
