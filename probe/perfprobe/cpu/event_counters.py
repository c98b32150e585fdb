"""Events that not every general counter counts, or not rightly. perf goes by the same rules; who
programs registers must know them, because a counter that cannot count an event stands at 0.

Source: the event constraints in Linux arch/x86/events/intel/core.c and amd/core.c. Where they give
all counters that a model has with SMT on, they matter with SMT off, when there are more.
"""

from __future__ import annotations

from perfprobe.frozen import frozen

ALL = (1 << 32) - 1
FIRST_FOUR = 0xF


@frozen
class Restricted:
    first: int
    last: int
    """Codes of the events, these two included."""
    umask: int | None
    """None: with any."""
    counters: int
    """Bit n: general counter n counts it. 0: none does without something that perf sees to."""


Restrictions = tuple[Restricted, ...]
"""The first that fits an event decides; all others are counted by all counters."""


def counters(rules: Restrictions, event: int, umask: int) -> int:
    """The general counters that count the event, as bits."""
    for rule in rules:
        if rule.first <= event <= rule.last and rule.umask in {None, umask}:
            return rule.counters
    return ALL


def _on(counters: int, *events: int | range) -> Restrictions:
    """Rules for ranges of events, events with any umask, and, above FFH, umask and event."""
    found = []
    for event in events:
        if isinstance(event, range):
            found.append(Restricted(event[0], event[-1], None, counters))
        elif event > 0xFF:
            found.append(Restricted(event & 0xFF, event & 0xFF, event >> 8, counters))
        else:
            found.append(Restricted(event, event, None, counters))
    return tuple(found)


_COUNTER = tuple(1 << n for n in range(4))
_PRECISE_DISTRIBUTION = _on(_COUNTER[1], 0x01C0)
# Errata BJ122, BV98, HSD29: with SMT on they count into the sibling's counters.
_LEAKING = _on(0, range(0xD0, 0xD4))
_MISSES_BY_UMASK = tuple(umask << 8 | 0xA3 for umask in range(8, 16))  # Linux tests one bit of it

# What they count is said by a second register, whose content is whatever the last user left there.
_OFFCORE_LATENCY = _on(0, 0x01B7, 0x01BB, 0x01CD)
_FRONT_END = _on(0, 0x01C6)
_LATER_OFFCORE_LATENCY = _on(0, 0x012A, 0x012B, 0x01CD, 0x40AD, 0x04C2, 0x01C6)

NONE: Restrictions = ()
SMALL = _on(0, 0x01B7, 0x02B7)
"""Cores of Xeon Phi and small ones: all counters count all but off-core responses."""
GRACEMONT = SMALL + _on(0, 0x05D0, 0x0127, 0x0227)
"""Latency of loads, and from Crestmont on responses to snoops."""
NEHALEM = _on(0, 0x01B7, 0x100B) + _on(0x3, range(0x40, 0x44), 0x48, 0x4E, 0x51, 0x63)
WESTMERE = _on(0, 0x01B7, 0x01BB, 0x100B) + _on(0x3, 0x51, 0x63) + _on(_COUNTER[0], 0x60, 0xB3)
SANDY_BRIDGE = (
    _OFFCORE_LATENCY
    + _on(FIRST_FOUR, 0x04A3, 0x05A3)
    + _on(_COUNTER[2], 0x02A3, 0x06A3, 0x48)
    + _PRECISE_DISTRIBUTION
    + _on(_COUNTER[3], 0xCD)
    + _LEAKING
)
IVY_BRIDGE = (
    _OFFCORE_LATENCY
    + _on(_COUNTER[2], 0x0148, 0x08A3, 0x0CA3)
    + _on(FIRST_FOUR, 0x0279, 0x019C, 0x02A3, 0x04A3, 0x05A3, 0x06A3)
    + _PRECISE_DISTRIBUTION
    + _LEAKING
)
HASWELL = (
    _OFFCORE_LATENCY
    + _on(_COUNTER[2], 0x0148, 0x08A3, 0x0CA3)
    + _on(FIRST_FOUR, 0x04A3)
    + _PRECISE_DISTRIBUTION
    + _on(_COUNTER[3], 0xCD)
    + _LEAKING
)
BROADWELL = (
    _OFFCORE_LATENCY
    + _on(_COUNTER[2], 0x0148, *_MISSES_BY_UMASK)
    + _on(FIRST_FOUR, range(0xD0, 0xD3), 0xCD)
)
SKYLAKE = (
    _OFFCORE_LATENCY
    + _FRONT_END
    + _PRECISE_DISTRIBUTION
    + _on(FIRST_FOUR, range(0xD0, 0xD3), 0xCD, 0xC6)
)
ICE_LAKE = (
    _OFFCORE_LATENCY
    + _FRONT_END
    # INST_RETIRED.PREC_DIST is on a fixed counter only.
    + _on(0, 0x01C0)
    + _on(FIRST_FOUR, range(0x03, 0x0B), range(0x1F, 0x29), 0x32, range(0x48, 0x57))
    + _on(FIRST_FOUR, range(0x60, 0x8C))
    + _on(ALL, 0x04A3, 0x10A3, 0x14A3)
    + _on(FIRST_FOUR, 0xA3, range(0xA8, 0xB1), range(0xB7, 0xBE), range(0xD0, 0xE7), 0xEF)
    + _on(FIRST_FOUR, range(0xF0, 0xF5))
)
GOLDEN_COVE = (
    _LATER_OFFCORE_LATENCY
    + _on(0, 0x02C6, 0x03C6)  # of Redwood Cove, which has the same table
    + _on(ALL, 0x2E, 0x3C)
    + _on(FIRST_FOUR, range(0x01, 0x90))
    + _on(FIRST_FOUR, 0x01A3, 0x02A3, 0x05A3, 0x06A3, 0x08A3, 0x0CA3)
    + _on(_COUNTER[0], 0x04A4, 0x08A4)
    + _on(_COUNTER[0], 0x02CD, 0xCE)
    + _on(FIRST_FOUR, range(0xD0, 0xE0))
)
LION_COVE = (
    _LATER_OFFCORE_LATENCY
    + _on(0, 0x02C6, 0x03C6)
    + _on(FIRST_FOUR, 0x20)
    + _on(_COUNTER[2], 0x0148, 0x0175, 0x08A3, 0x0CA3)
    + _on(_COUNTER[0], 0x04A4, 0x08A4)
    + _on(_COUNTER[3], 0x10A4, 0x01B1)
    + _on(0x3, 0x02CD)
    + _on(ALL, 0x87D0)
    + _on(FIRST_FOUR, range(0xD0, 0xE0))
)
ZEN = _on(0, 0x03)
"""From family 17h on it takes two counters."""
