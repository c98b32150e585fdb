"""The CPU models that can be simulated, from the manuals of Intel and AMD."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

MHZ = 1_000_000
Events = dict[tuple[int, int], str]

_COMMON: Events = {(0x3C, 0x00): "cycles", (0xC0, 0x00): "instructions"}
_ONE: Events = {**_COMMON, (0x3C, 0x01): "tick", (0x3C, 0x02): "one"}
_AMD: Events = {(0x76, 0x00): "cycles", (0xC0, 0x00): "instructions", (0x2B, 0x00): "smi"}


@dataclass(frozen=True)
class Model:
    brand: str
    signature: tuple[int, int, int]  # family, model, stepping
    max_leaf: int
    tick_hz: int  # the clock that reference events count in: XCLK or the crystal
    ticks: int  # TSC cycles in one such tick
    base_mhz: int
    turbo_hz: int
    events: Events
    version: int = 0
    gp: int = 4
    fixed: int = 3
    width: int = 48
    threads: int = 2
    any_thread: bool = False
    leaf15: tuple[int, int, int] = (0, 0, 0)  # EAX, EBX, ECX
    mperf_shift: int = 0
    limit_reasons: int = 0  # address
    # for each residency register: its address and C-state
    residency: tuple[tuple[int, int], ...] = ()
    hwp: bool = False
    tjmax: int = 95
    turbo: dict[int, int] = field(default_factory=dict)  # values of the turbo ratio registers

    @property
    def amd(self) -> bool:
        return self.signature[0] >= 0x17

    @property
    def tsc_hz(self) -> int:
        return self.tick_hz * self.ticks


def _packed(*ratios: int) -> int:
    return int.from_bytes(bytes(ratios), "little")


_GROUPS = {0x1AE: _packed(2, 4, 8, 12, 16, 20, 24, 28)}

HASWELL_EP = Model(
    "Intel(R) Xeon(R) CPU E5-2699 v3 @ 2.30GHz",
    (6, 0x3F, 2),
    max_leaf=0xF,
    tick_hz=100 * MHZ,
    ticks=23,
    base_mhz=2300,
    turbo_hz=3600 * MHZ,
    events=_ONE,
    version=3,
    any_thread=True,
    limit_reasons=0x690,
    residency=((0x3FC, 3), (0x3FD, 6)),
    turbo={
        0x1AD: _packed(36, 36, 34, 33, 32, 31, 30, 29),
        0x1AE: _packed(*(28,) * 8),
        0x1AF: _packed(28, 28),
    },
)

SKYLAKE_SP = Model(
    "Intel(R) Xeon(R) Platinum 8160 CPU @ 2.10GHz",
    (6, 0x55, 4),
    max_leaf=0x16,
    tick_hz=25 * MHZ,
    ticks=84,
    base_mhz=2100,
    turbo_hz=3700 * MHZ,
    events=_ONE,
    version=4,
    any_thread=True,
    leaf15=(2, 168, 0),
    limit_reasons=0x64F,
    residency=((0x3FD, 6),),
    hwp=True,
    turbo={0x1AD: _packed(37, 35, 34, 33, 32, 30, 29, 28), **_GROUPS},
)

XEON_W = replace(
    SKYLAKE_SP,
    brand="Intel(R) Xeon(R) W-2155 CPU @ 3.30GHz",
    tick_hz=24 * MHZ,
    ticks=138,
    base_mhz=3300,
    turbo_hz=4500 * MHZ,
    leaf15=(2, 276, 0),
    turbo={0x1AD: _packed(45, 43, 42, 40, 40, 40, 40, 40), **_GROUPS},
)

ICE_LAKE_SP = Model(
    "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz",
    (6, 0x6A, 6),
    max_leaf=0x1B,
    tick_hz=25 * MHZ,
    ticks=96,
    base_mhz=2400,
    turbo_hz=3500 * MHZ,
    events=_ONE,
    version=5,
    gp=8,
    fixed=4,
    leaf15=(2, 192, 0),
    limit_reasons=0x64F,
    residency=((0x660, 1), (0x3FD, 6)),
    hwp=True,
    turbo={0x1AD: _packed(35, 34, 33, 33, 32, 32, 31, 31), **_GROUPS},
)

SAPPHIRE_RAPIDS = replace(
    ICE_LAKE_SP,
    brand="Intel(R) Xeon(R) Platinum 8352M",
    signature=(6, 0x8F, 8),
    max_leaf=0x20,
    ticks=88,
    base_mhz=2200,
    turbo_hz=3800 * MHZ,
    events={**_ONE, (0x3C, 0x01): "ref"},
    leaf15=(2, 176, 25 * MHZ),
    turbo={0x1AD: _packed(38, 36, 35, 34, 33, 32, 31, 30), **_GROUPS},
)

ZEN_3 = Model(
    "AMD EPYC 7713 64-Core Processor",
    (0x19, 1, 1),
    max_leaf=0x10,
    tick_hz=100 * MHZ,
    ticks=20,
    base_mhz=2000,
    turbo_hz=3675 * MHZ,
    events=_AMD,
    gp=6,
    fixed=0,
)

# The manuals lack the unit of its reference event: it is assumed here.
KNIGHTS_LANDING = Model(
    "Intel(R) Xeon Phi(TM) CPU 7210 @ 1.30GHz",
    (6, 0x57, 1),
    max_leaf=0xD,
    tick_hz=100 * MHZ,
    ticks=13,
    base_mhz=1300,
    turbo_hz=1500 * MHZ,
    events={**_COMMON, (0x3C, 0x01): "tick"},
    version=3,
    gp=2,
    width=40,
    threads=4,
    any_thread=True,
    mperf_shift=10,
    residency=((0x3FF, 6),),
    turbo={0x1AD: _packed(2 << 1, 15, 30 | 1 << 5, 0, 0, 0, 0, 0)},
)

MODELS = {
    "haswell-ep": HASWELL_EP,
    "skylake-sp": SKYLAKE_SP,
    "xeon-w": XEON_W,
    "ice-lake-sp": ICE_LAKE_SP,
    "sapphire-rapids": SAPPHIRE_RAPIDS,
    "zen3": ZEN_3,
    "knights-landing": KNIGHTS_LANDING,
}
