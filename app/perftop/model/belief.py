"""The rule that decides the confidence in the cause of an episode, and the types of evidence.

A cause is `measured` if three conditions hold: the counter counts the cause itself, and not
something that only accompanies it; the count covers the episode and no time before it, and is not
scaled up from a part of it; and the error of the count is smaller than the effect. A cause that
fails one of these conditions is `inferred`. A loss without a cause is `unknown`.

`COUNTED` lists the counted quantity for each cause of each detector. All detectors and reports get
their confidence from this module, and `perftop help trust` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Confidence = Literal["measured", "inferred", "unknown"]
_WEAKEST_FIRST: tuple[Confidence, ...] = ("unknown", "inferred", "measured")


class Counted(NamedTuple):
    quantity: str
    """The counter or file from which the cause is known."""
    is_cause: bool = True
    """Whether the counted quantity is the cause itself, not a side effect of it."""


_LIMIT = "limit reasons, status bits or counters of the package that name it"
_POWER = Counted(f"{_LIMIT}; inferred if only the power is at the limit")

COUNTED: dict[tuple[str, str], Counted] = {
    ("turbo-drop", "policy"): Counted("the limit that was set, with the clock within 2 % of it"),
    ("turbo-drop", "power-pl1"): _POWER,
    ("turbo-drop", "power-pl2"): _POWER,
    ("turbo-drop", "power-ppt"): Counted(_LIMIT),
    ("turbo-drop", "current"): Counted(_LIMIT),
    ("turbo-drop", "thermal"): Counted(_LIMIT),
    ("turbo-drop", "prochot"): Counted(_LIMIT),
    ("turbo-drop", "vr"): Counted(_LIMIT),
    ("turbo-drop", "license"): Counted("cycles in which wide SIMD code lowered the clock"),
    ("turbo-drop", "hwp"): Counted("a low HWP request, or a saving one and no limit reason", False),
    ("turbo-drop", "hypervisor"): Counted("steal, a sign of a busy host", False),
    ("turbo-drop", "governor"): Counted("limit reasons, of which none was set", False),
    ("throttle", "thermal"): Counted("the thermal status of cores, or the kernel's count of it"),
    ("throttle", "prochot"): Counted("the PROCHOT status of cores"),
    ("throttle", "modulation"): Counted("the duty cycle that a register requests"),
    ("involuntary-halt", "modulation"): Counted("the duty cycle that a register requests"),
    ("involuntary-halt", "hdc"): Counted("MPERF, which counts in these halts", False),
    ("involuntary-halt", "smm"): Counted("SMIs, while all CPUs were halted together", False),
    ("involuntary-halt", "simd"): Counted("cycles that one thread waited for SIMD units", False),
    ("involuntary-halt", "clock-change"): Counted("time of clock changes"),
    ("neighbour", "sibling"): Counted("the IPC with and without the sibling, three times each"),
    ("neighbour", "scheduler"): Counted("time in run queues, and who ran there"),
    ("neighbour", "package"): Counted("active cores, and the ceiling that they allow"),
    ("neighbour", "memory"): Counted("traffic of the package, of all programs together", False),
    ("neighbour", "cache"): Counted("misses of the last-level cache", False),
    ("neighbour", "hypervisor"): Counted("steal"),
    ("quota", "quota"): Counted(
        "the kernel's account of the group's stops; inferred if multiplied by tasks per CPU"
    ),
    ("stopped", "stopped"): Counted("the states of threads"),
    ("stopped", "split-lock"): Counted("sleeps of 10 ms, counted in the kernel's log", False),
    ("memory-stall", "memory-limit"): Counted("hits of the group's limit, and its stalled time"),
    ("memory-stall", "read-back"): Counted("pages read back, and stalls of any cause", False),
    ("memory-stall", "reclaim"): Counted("direct reclaims, and stalls of any cause", False),
    ("memory-stall", "compaction"): Counted("compactions, and stalls of any cause", False),
    ("memory-stall", "numa-balancing"): Counted("faults and moved pages, not their time", False),
    ("steal", "hypervisor"): Counted("steal"),
    ("interrupt", "irq"): Counted("the kernel's account of time in interrupts"),
    ("interrupt", "softirq"): Counted("the kernel's account of time in softirqs"),
    ("license", "level"): Counted("cycles at a SIMD level"),
    ("smi", "firmware"): Counted("SMIs"),
    ("ramp", "-"): Counted("the clock of each sample of the climb"),
    ("mark", "-"): Counted("the moment at which the mark was set"),
    ("suspect", "*"): Counted("counters that contradict others"),
    ("offline", "hotplug"): Counted("the kernel's list of online CPUs"),
    ("online", "hotplug"): Counted("the kernel's list of online CPUs"),
}
"""The counted quantity, by kind and cause of an episode; "*" matches any cause."""


def confidence(
    kind: str, cause: str, *, counted: bool = True, error: float = 0.0,
    effect: float = float("inf"),
) -> Confidence:  # fmt: skip
    """Returns the confidence in a cause. `counted`: whether the quantity in `COUNTED` was counted
    over the whole span, without scaling. `error`, `effect`: the error of the count and the size of
    the effect, in the same unit."""
    entry = COUNTED.get((kind, cause)) or COUNTED.get((kind, "*"))
    if entry is None:
        return "unknown"
    return "measured" if entry.is_cause and counted and error < effect else "inferred"


MIN_WEAKER_SHARE = 0.1
"""Share of a cause's loss that episodes of lower confidence must make up before the cause has that
lower confidence, too."""


def joint_confidence(parts: Iterable[tuple[Confidence, float]]) -> Confidence:
    """Returns the confidence in the common cause of several losses: the lowest one whose losses
    make up a substantial part of the total. `parts`: confidence and size of each loss."""
    losses: dict[Confidence, float] = {}
    for belief, size in parts:
        losses[belief] = losses.get(belief, 0.0) + size
    substantial_loss, weaker_loss = MIN_WEAKER_SHARE * sum(losses.values()), 0.0
    for belief in _WEAKEST_FIRST:
        weaker_loss += losses.get(belief, 0.0)
        if belief in losses and weaker_loss >= substantial_loss:
            return belief
    return "unknown"


# --- The types of evidence that detectors report in addition to numbers.

OUTSIDE_CPU = "outside the CPU"
"""Evidence that a PROCHOT signal is not due to the CPU's own heat."""
BASE_CLOCK = "base"
"""Evidence that the ceiling is the base clock, because no turbo table is known."""
KERNEL = "kernel"
"""Evidence that only the kernel reported the episode, after its end."""


class Bit(NamedTuple):
    """A bit of a register, and the number of polls that found it set."""

    number: int
    name: str | None
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
    """A clock limit in Hz that a user or program set, and its name in model.kinds.CLOCK_CAPS."""

    name: str
    hz: float


class OutOf(NamedTuple):
    """A number and the highest value that it can have."""

    number: float
    highest: float


class TaskOnCpu(NamedTuple):
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
