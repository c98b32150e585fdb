"""What the power control unit of Xeons counts, by model. Source: Intel's uncore event lists.

Counts are ticks of its own clock, 800 MHz or 1 GHz. Count / `pcu_ticks` is a share of time.
"""

from __future__ import annotations

from collections.abc import Mapping

COUNTERS = 4
"""Counters of one unit. With more events the kernel would rotate them every few ms, and wake a CPU
of each package each time."""
TICKS = "pcu_ticks"
SECOND_SET = 0x100
"""Added to codes of the extension set. Some PMUs have a ninth bit for it in their format."""

_SANDY = {
    TICKS: 0x00,
    "pcu_transition": SECOND_SET | 0x00,
    "pcu_power": 0x05,
    "pcu_thermal": 0x04,
    "pcu_current": 0x07,
    "pcu_prochot_external": 0x0A,
    "pcu_prochot_internal": 0x09,
    "pcu_vr": 0x32,
    "pcu_os": 0x06,
}
_IVY = {**_SANDY, "pcu_transition": 0x60}
_SKYLAKE = {
    TICKS: 0x00,
    "pcu_transition": 0x74,
    "pcu_power": 0x05,
    "pcu_thermal": 0x04,
    "pcu_prochot_external": 0x0A,
    "pcu_prochot_internal": 0x09,
    "pcu_vr": 0x42,
}
_HASWELL = {**_SKYLAKE, "pcu_os": 0x06}  # from Skylake on the code is another event
_ICE = {**_SKYLAKE, "pcu_avx512": 0x4A, "pcu_avx256": 0x49}
# Its cores have no events for SIMD levels, and thermal_throttle tells of heat too: licences first.
_SAPPHIRE = {
    TICKS: 0x01,
    **{key: _ICE[key] for key in ("pcu_transition", "pcu_power", "pcu_avx512", "pcu_thermal")},
    **{key: code for key, code in _ICE.items() if key != TICKS},
}
_GRANITE = {
    TICKS: 0x01,
    **{key: code for key, code in _SKYLAKE.items() if key not in {TICKS, "pcu_vr"}},
}

_BY_MODEL: Mapping[int, Mapping[str, int]] = {
    0x2D: _SANDY,
    0x3E: _IVY,
    **dict.fromkeys((0x3F, 0x4F, 0x56), _HASWELL),
    0x55: _SKYLAKE,
    **dict.fromkeys((0x6A, 0x6C), _ICE),
    **dict.fromkeys((0x8F, 0xCF), _SAPPHIRE),
    **dict.fromkeys((0xAD, 0xAE, 0xAF, 0xDD), _GRANITE),
}


def events(vendor: str, family: int | None, model: int | None) -> Mapping[str, int]:
    """Codes by counter key, the most informative first; empty for other models."""
    if vendor != "GenuineIntel" or family != 6 or model is None:
        return {}
    return _BY_MODEL.get(model, {})
