"""The one rule for how well the cause of an episode is known.

A cause is `measured` if three conditions hold: the counter counts the cause itself, and not
something that only accompanies it; it counted during the episode, and neither before it nor only in
a part that was scaled up; and the error of the count is smaller than the effect. A cause that fails
one of these conditions is `inferred`. A loss without a cause is `unknown`.

`COUNTED` lists what is counted for each cause of each detector. All detectors and reports get their
confidence from this module, and `perftop help trust` prints the table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Confidence = Literal["measured", "inferred", "unknown"]


class Counted(NamedTuple):
    what: str
    """The counter or file from which the cause is known."""
    is_cause: bool = True
    """Whether the counted quantity is the cause itself."""


_LIMIT = "limit reasons, status bits or counters of the package that name it"
_POWER = Counted(f"{_LIMIT}; if only the power is at the limit: inferred")

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
    ("turbo-drop", "hwp"): Counted("a low HWP request, or no limit reason and a saving one", False),
    ("turbo-drop", "hypervisor"): Counted("steal, which goes with a busy host", False),
    ("turbo-drop", "governor"): Counted("limit reasons, of which none was set", False),
    ("throttle", "thermal"): Counted("the thermal status of cores, or the kernel's count of it"),
    ("throttle", "prochot"): Counted("the PROCHOT status of cores"),
    ("throttle", "modulation"): Counted("the duty that a register asks for"),
    ("involuntary-halt", "modulation"): Counted("the duty that a register asks for"),
    ("involuntary-halt", "hdc"): Counted("MPERF, which runs on while the core is halted", False),
    ("involuntary-halt", "smm"): Counted("SMIs, with halts of all CPUs together", False),
    ("involuntary-halt", "simd"): Counted("cycles before a SIMD level, by one thread", False),
    ("involuntary-halt", "clock-change"): Counted("time that the PCU changed the clock"),
    ("neighbour", "sibling"): Counted("the IPC beside and without the sibling, three times each"),
    ("neighbour", "scheduler"): Counted("time in run queues, and who ran there"),
    ("neighbour", "package"): Counted("active cores, and the ceiling that they allow"),
    ("neighbour", "memory"): Counted("traffic of the package, of all programs together", False),
    ("neighbour", "cache"): Counted("misses of the last cache", False),
    ("neighbour", "hypervisor"): Counted("steal"),
    ("quota", "quota"): Counted("the kernel's account of the group's stops"),
    ("stopped", "stopped"): Counted("the states of threads"),
    ("stopped", "split-lock"): Counted("sleeps of 10 ms of who the kernel's log names", False),
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
    ("mark", "-"): Counted("the moment at which somebody pressed a key"),
    ("suspect", "*"): Counted("counters that contradict others"),
    ("offline", "hotplug"): Counted("the kernel's list of online CPUs"),
    ("online", "hotplug"): Counted("the kernel's list of online CPUs"),
}
"""What is counted, by kind and cause of an episode; "*" stands for any cause."""


def confidence(
    kind: str, cause: str, *, counted: bool = True, error: float = 0.0,
    effect: float = float("inf"),
) -> Confidence:  # fmt: skip
    """Returns how well a cause is known. `counted`: whether the quantity in `COUNTED` was counted
    over the whole span, without scaling. `error`, `effect`: the error of the count and the size of
    the effect, in the same unit."""
    entry = COUNTED.get((kind, cause)) or COUNTED.get((kind, "*"))
    if entry is None:
        return "unknown"
    return "measured" if entry.is_cause and counted and error < effect else "inferred"
