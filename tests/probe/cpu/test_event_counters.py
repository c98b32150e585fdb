"""Which general counters count an event, as Linux's constraints have it."""

from __future__ import annotations

import pytest

from perfprobe.cpu import cpuid, model
from perfprobe.cpu.event_counters import ALL, FIRST_FOUR, counters

INTEL, AMD = "GenuineIntel", "AuthenticAMD"


@pytest.mark.parametrize(("family", "number", "event", "umask", "expected"), [
    (6, 0x1A, 0x51, 0x01, 0x3),  # Nehalem: L1D
    (6, 0x2C, 0xB3, 0x04, 0x1),  # Westmere
    (6, 0x2A, 0xCD, 0x02, 0x8),  # Sandy Bridge: stores
    (6, 0x2A, 0xCD, 0x01, 0),  # load latency
    (6, 0x55, 0xB7, 0x01, 0),  # off-core responses
    (6, 0x6A, 0xC6, 0x01, 0),
    (6, 0x8F, 0x2A, 0x01, 0),
    (6, 0x2A, 0xD1, 0x01, 0),  # an erratum
    (6, 0x3A, 0xD3, 0x01, 0),
    (6, 0x3F, 0x48, 0x01, 0x4),  # Haswell: L1D_PEND_MISS
    (6, 0x3F, 0x48, 0x02, ALL),
    (6, 0x4F, 0xA3, 0x0C, 0x4),  # Broadwell: a bit of the umask decides
    (6, 0x4F, 0xA3, 0x04, ALL),
    (6, 0x55, 0xD1, 0x01, FIRST_FOUR),
    (6, 0x55, 0xC0, 0x01, 0x2),
    (6, 0x6A, 0xA3, 0x14, ALL),  # Ice Lake
    (6, 0x6A, 0xA3, 0x06, FIRST_FOUR),
    (6, 0x6A, 0x29, 0x01, ALL),
    (6, 0x8F, 0x51, 0x01, FIRST_FOUR),  # Sapphire Rapids: codes below 90H
    (6, 0x8F, 0x3C, 0x02, ALL),
    (6, 0x8F, 0xA4, 0x08, 0x1),
    (6, 0x8F, 0xC5, 0x00, ALL),
    (6, 0xAF, 0xD1, 0x01, ALL),  # Sierra Forest
    (6, 0xAF, 0xB7, 0x02, 0),
    (6, 0xAF, 0xD0, 0x05, 0),  # load latency
    (6, 0xBE, 0xB7, 0x01, 0),  # Gracemont alone
    (6, 0x5C, 0xB7, 0x01, 0),  # Goldmont
    (6, 0x5C, 0xD0, 0x05, ALL),
    (6, 0x57, 0xB7, 0x02, 0),  # Knights Landing
    (0x17, 0x31, 0x03, 0xFF, 0),  # Zen 2: FLOPs take a pair
    (0x19, 0x11, 0x03, 0xFF, 0),
    (0x19, 0x11, 0x103, 0x01, ALL),
])  # fmt: skip
def test_what_counts_it(family: int, number: int, event: int, umask: int, expected: int) -> None:
    found = model.find(AMD if family > 6 else INTEL, family, number, 1)
    assert found.restrictions is not None
    assert counters(found.restrictions, event, umask) == expected


def test_it_is_not_known_of_models_without_a_table() -> None:
    assert model.find(INTEL, 6, 0x37, 1).restrictions is None
    assert model.find(INTEL, 6, 0xCC, 1, core_type="P").restrictions is None


@pytest.mark.parametrize(("edx", "lent"), [
    (0, 0), (1 << 13, 1 << 3), (1 << 13 | 1 << 11, 0), (1 << 11, 0),
])  # fmt: skip
def test_the_counter_that_transactions_may_use(edx: int, lent: int) -> None:
    table = {0: (0x16, 0, 0, 0), 7: (0, 0, 0, edx), 0xA: (4 | 4 << 8 | 48 << 16, 0, 0, 3 | 48 << 5)}

    def leaves(leaf: int, _subleaf: int = 0, /) -> cpuid.Registers | None:
        return table.get(leaf, (0, 0, 0, 0))

    budget = model.find(INTEL, 6, 0x55, 4, leaves).budget
    assert budget is not None
    assert (budget.gp, budget.lent) == (4, lent)
