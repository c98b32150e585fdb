"""Confidence in the cause of an episode, and the types of evidence that support it.

A cause is `measured` if three conditions hold: the counter counts the cause itself, not a side
effect; it was counted during the whole episode and at no other time, without being scaled up; and
its error is smaller than the effect. A cause that fails one of these conditions is `inferred`. A
loss without a cause is `unknown`.

`COUNTED_QUANTITIES` lists the counted quantity for each kind and cause. All detectors and reports
get their confidence from this module, and `perftop help trust` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Confidence = Literal["measured", "inferred", "unknown"]
_ASCENDING_CONFIDENCE: tuple[Confidence, ...] = ("unknown", "inferred", "measured")


class Quantity(NamedTuple):
    quantity: str
    """The counter or file that shows the cause."""
    is_cause: bool = True
    """Whether the quantity counts the cause itself, not a side effect."""
    inferred_if: str = ""
    """A case in which this cause is only inferred; '' if there is none."""


_LIMIT = "limit reasons, status bits or counters of the package that name it"
_POWER = Quantity(_LIMIT, inferred_if="only the power is at the limit")

COUNTED_QUANTITIES: dict[tuple[str, str], Quantity] = {
    ("turbo-drop", "policy"): Quantity("the limit that was set, with the clock within 2 % of it"),
    ("turbo-drop", "power-pl1"): _POWER,
    ("turbo-drop", "power-pl2"): _POWER,
    ("turbo-drop", "power-ppt"): Quantity(_LIMIT),
    ("turbo-drop", "current"): Quantity(_LIMIT),
    ("turbo-drop", "thermal"): Quantity(_LIMIT),
    ("turbo-drop", "prochot"): Quantity(_LIMIT),
    ("turbo-drop", "vr"): Quantity(_LIMIT),
    ("turbo-drop", "license"): Quantity("cycles in which wide SIMD code lowered the clock"),
    ("turbo-drop", "hwp"): Quantity(
        "a low HWP request, or a power-saving EPP and no limit reason", False
    ),
    ("turbo-drop", "hypervisor"): Quantity("steal, a sign of a busy host", False),
    ("turbo-drop", "governor"): Quantity("limit reasons: none was set", False),
    ("throttle", "thermal"): Quantity("the thermal status of cores, or the kernel's count of it"),
    ("throttle", "prochot"): Quantity("the PROCHOT status of cores"),
    ("throttle", "modulation"): Quantity("the duty cycle that a register requests"),
    ("involuntary-halt", "modulation"): Quantity("the duty cycle that a register requests"),
    ("involuntary-halt", "hdc"): Quantity("MPERF, which keeps counting during these halts", False),
    ("involuntary-halt", "smm"): Quantity("SMIs, while all CPUs were halted together", False),
    ("involuntary-halt", "simd"): Quantity("cycles that one thread waited for SIMD units", False),
    ("involuntary-halt", "clock-change"): Quantity("time of clock changes"),
    ("neighbour", "sibling"): Quantity("the IPC with and without the sibling, three times each"),
    ("neighbour", "scheduler"): Quantity("time in run queues, and who ran there"),
    ("neighbour", "package"): Quantity("active cores, and the ceiling that they allow"),
    ("neighbour", "memory"): Quantity("traffic of the package, of all programs together", False),
    ("neighbour", "cache"): Quantity("misses of the last-level cache", False),
    ("neighbour", "hypervisor"): Quantity("steal"),
    ("quota", "quota"): Quantity(
        "time for which the kernel stopped the group", inferred_if="its tasks waited longer"
    ),
    ("stopped", "stopped"): Quantity("the states of threads"),
    ("stopped", "split-lock"): Quantity("sleeps of 10 ms, counted in the kernel's log", False),
    ("memory-stall", "memory-limit"): Quantity("hits of the group's limit, and its stalled time"),
    ("memory-stall", "read-back"): Quantity("pages read back, and stalls of any cause", False),
    ("memory-stall", "reclaim"): Quantity("direct reclaims, and stalls of any cause", False),
    ("memory-stall", "compaction"): Quantity("compactions, and stalls of any cause", False),
    ("memory-stall", "numa-balancing"): Quantity("faults and moved pages, not their time", False),
    ("steal", "hypervisor"): Quantity("steal"),
    ("interrupt", "irq"): Quantity("the kernel's account of time in interrupts"),
    ("interrupt", "softirq"): Quantity("the kernel's account of time in softirqs"),
    ("license", "level"): Quantity("cycles at a SIMD level"),
    ("smi", "firmware"): Quantity("SMIs"),
    ("ramp", "-"): Quantity("the clock of each sample of the climb"),
    ("mark", "-"): Quantity("the moment at which the mark was set"),
    ("suspect", "*"): Quantity("counters that contradict others"),
    ("offline", "hotplug"): Quantity("the kernel's list of online CPUs"),
    ("online", "hotplug"): Quantity("the kernel's list of online CPUs"),
}
"""The counted quantity, by kind and cause of an episode; "*" matches any cause."""


def confidence(
    kind: str, cause: str, *, counted: bool = True, error: float = 0.0,
    effect: float = float("inf"),
) -> Confidence:  # fmt: skip
    """Returns the confidence in a cause. `counted`: whether its quantity in `COUNTED_QUANTITIES`
    was counted over the whole span, without scaling. `error`, `effect`: the error of the count and
    the size of the effect, in the same unit."""
    entry = COUNTED_QUANTITIES.get((kind, cause)) or COUNTED_QUANTITIES.get((kind, "*"))
    if entry is None:
        return "unknown"
    return "measured" if entry.is_cause and counted and error < effect else "inferred"


MIN_RELEVANT_SHARE = 0.1
"""Share of a loss that must have a lower confidence to lower the confidence of the whole loss."""


def combined_confidence(parts: Iterable[tuple[Confidence, float]]) -> Confidence:
    """Returns the confidence in a cause of several episodes: the highest one that all of the loss
    has, except for less than MIN_RELEVANT_SHARE. `parts`: confidence and loss of each episode."""
    losses: dict[Confidence, float] = {}
    for level, size in parts:
        losses[level] = losses.get(level, 0.0) + size
    substantial_loss, weaker_loss = MIN_RELEVANT_SHARE * sum(losses.values()), 0.0
    for level in _ASCENDING_CONFIDENCE:
        weaker_loss += losses.get(level, 0.0)
        if level in losses and weaker_loss >= substantial_loss:
            return level
    return "unknown"


# --- The types of evidence that detectors report in addition to plain numbers.

OUTSIDE_CPU = "outside the CPU"
"""Evidence that an external device asserted PROCHOT, so the CPU itself is not too hot."""
BASE_CLOCK = "base"
"""Evidence that no turbo table is known, so the base clock serves as the ceiling."""
KERNEL = "kernel"
"""Evidence that only a counter of the kernel shows the episode, after its end."""


class RegisterBit(NamedTuple):
    """A bit of a register, and the number of polls in which it was set."""

    number: int
    name: str | None
    """Name of the bit; None if the stream has no name for it."""
    times: float


class PolledBits(NamedTuple):
    """The bits that were set when a register was polled."""

    bits: tuple[RegisterBit, ...]
    polls: float
    """Number of reads of the register; 0 if the source has no such register."""


class SimdLevel(NamedTuple):
    """A SIMD level, and the share of the core's cycles spent at that level."""

    number: int
    share: float


class ClockCap(NamedTuple):
    """A clock limit in Hz that a user or program set; `name` is a key of `kinds.CLOCK_CAPS`."""

    name: str
    hz: float


class ValueWithMax(NamedTuple):
    """A number and its maximum."""

    number: float
    highest: float


class TaskOnCpu(NamedTuple):
    pid: int
    comm: str
    cpu: int


class CrowdedCpu(NamedTuple):
    threads: int
    cpu: int


class Hypervisor(NamedTuple):
    """The hypervisor of this guest."""

    name: str | None


class GroupTraffic(NamedTuple):
    group: str
    bytes_per_s: float
