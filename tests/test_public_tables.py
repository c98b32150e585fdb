"""Values that once differed from public tables, each compared with a value that a machine recorded
or that its source prints."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import NamedTuple, cast

import pytest

from perfprobe.cpu import cpuid
from perfprobe.cpu.model import BASE_ERROR, NOMINAL_ERROR, find_uarch
from perfprobe.cpu.model_terms import Uarch
from perfprobe.perf import uncore
from perfprobe.polled import firmware_limits
from perfprobe.registers import limits
from perfprobe.registers.msr import Registers
from perfprobe.registers.parts import CpuKind, Reading
from perfprobe.wire import Turbo

CORE_TYPES = {0x97: "P", 0xCC: "P"}
"""Type of the cores of hybrid models."""
PEPC = "machines recorded for the tests of intel/pepc"


class Claim(NamedTuple):
    what: str
    source: str
    reported: Callable[[], object]
    expected: object


def intel(model: int, stepping: int = 1, family: int = 6) -> Uarch:
    return find_uarch("GenuineIntel", family, model, stepping, core_type=CORE_TYPES.get(model))


def reasons(model: int, word: int, stepping: int = 1) -> list[str]:
    """The names of the bits that are set in a limit register, without its log."""
    known = intel(model, stepping).limits
    assert known is not None
    return [part for bit, part in enumerate(known.bit_names) if word >> bit & 1]


def turbo(model: int, ratios: int, counts: int) -> list[tuple[int, float]]:
    """Returns pairs of the number of active cores and their highest clock in GHz."""
    table = limits.turbo_table(intel(model), {0x1AD: ratios, 0x1AE: counts}.get)
    assert isinstance(table, Turbo)
    return [(step.cores, step.hz / 1e9) for step in table.steps]


class PowerRegisters:
    def __init__(self, units: int, word: int) -> None:
        self.words = {0x606: units, 0x610: word}

    def read(self, register: int) -> int:
        return self.words.get(register, 0)


def watts(model: int, units: int, word: int) -> list[float]:
    """Returns the power limits PL1 and PL2 in W."""
    kind = CpuKind([0], [0], intel(model), cpuid.read_no_leaf)
    readings = limits.package_readings(kind, cast("Registers", PowerRegisters(units, word)))
    scale = {r.counter.key: r.counter.scale for r in readings if isinstance(r, Reading)}
    keys = {"power_limit_w": 0, "power_limit2_w": 32}
    return [(word >> first & 0x7FFF) * scale[key] for key, first in keys.items()]


def zen(family: int, model: int) -> Uarch:
    return find_uarch("AuthenticAMD", family, model, 1)


def zen_6() -> tuple[str, int | None, int]:
    result = zen(0x1A, 0x50)
    return result.name, result.slots_per_cycle, result.events["smt_contention"].config


def has_words(page: str, *expected_words: str) -> bool:
    text = " ".join((resources.files("perftop.docs") / f"{page}.md").read_text("utf-8").split())
    return all(word in text for word in expected_words)


CLAIMS = [
    Claim("Haswell-EP, what a Dell server shows", "SDM vol. 4, table 2-32; EDK2 HaswellEMsr.h",
          lambda: reasons(0x3F, 0xC500),
          ["electrical", "multi-core turbo", "below turbo for the active cores", "below request"]),
    Claim("Haswell-EP, power", PEPC + ": hswep0",
          lambda: watts(0x3F, 0xA0E03, 0x80068570005A8488), [145, 174]),
    Claim("Xeons: bit 10 has two meanings", "SDM vol. 4, table of 06_55; bits seen on an 8160",
          lambda: reasons(0x55, 1 << 2 | 1 << 10 | 1 << 14 | 1 << 15, 4),
          ["bit 2", "PL1 or multi-core turbo", "bit 14", "bit 15"]),
    Claim("Clearwater Forest: modules of four cores", PEPC + ": cwf0, 288 cores a package",
          lambda: turbo(0xDD, 0x1C1C1C1C1C1D1E20, 0x4848484848362412),
          [(72, 3.2), (144, 3.0), (216, 2.9), (288, 2.8)]),
    Claim("Sierra Forest: modules of four cores", PEPC + ": srf8",
          lambda: turbo(0xAF, 0x2020202020202020, 0x1010101010101010), [(64, 3.2)]),
    Claim("licences where the clock was lowered", "perfmon: SKX, ICX; no words for ADL",
          lambda: [[*intel(n).license_events] for n in (0x55, 0x6A, 0x97, 0x7D, 0x8C, 0xA7)],
          [["license_1", "license_2", "license_throttle"], ["license_1", "license_2"],
           [], [], [], []]),
    Claim("Broadwell", "msr-safe, table 2-30", lambda: reasons(0x3D, 0xFFF)[9:],
          ["core power", "PL1", "PL2"]),
    Claim("Broadwell-DE", "EDK2 XeonDMsr.h", lambda: reasons(0x56, 0x404),
          ["power budget", "multi-core turbo"]),
    Claim("Knights Landing", "EDK2 XeonPhiMsr.h", lambda: reasons(0x57, 0x143),
          ["PROCHOT", "thermal", "VR thermal", "electrical"]),
    Claim("Goldmont", "EDK2 GoldmontMsr.h", lambda: reasons(0x5C, 0x1E0C),
          ["PL1", "PL2", "core power", "VR thermal alert", "max turbo limit", "electrical"]),
    Claim("Denverton: turbo by groups of cores", PEPC + ": dnv0",
          lambda: turbo(0x5F, 0x181818181818, 0x0C0A08060402), [(12, 2.4)]),
    Claim("top-down is field / slots; the bias is stated", "perfmon metrics of Ice Lake to ADL",
          lambda: has_words("trust", "divided by slots", "micro-operations", "few percent"),
          True),
    Claim("AMD's limits by HSMP", "Linux, drivers/platform/x86/amd/hsmp/plat.c",
          lambda: firmware_limits.SOURCE_NAMES,
          ("cHTC active", "PROCHOT", "TDC", "PPT", "OPN maximum", "reliability", "APML agent",
           "HSMP agent")),
    Claim("Zen 6", "perf, amdzen6/pipeline.json: 8 slots, event 1A0h umask 60h",
          zen_6, ("Zen 6", 8, 0x1_0000_60A0)),
    Claim("models 30h to 3Fh of family 19h", "Linux, arch/x86/kernel/cpu/amd.c, bsp_init_amd",
          lambda: {zen(0x19, model).name for model in range(0x30, 0x40)}, {"Zen 3"}),
    Claim("HBM of Xeon Max is not in the traffic", "Linux, uncore_snbep.c, spr_uncore_hbm",
          lambda: "DDR" in uncore.HBM_PROBLEM and has_words("trust", "The HBM of Xeon Max is not"),
          True),
    Claim("errors of the rates by CPUID 15H and by the base clock",
          "a Xeon 8160 against wall time; 169 dumps of InstLatx64: at most 1.3 %",
          lambda: (NOMINAL_ERROR, BASE_ERROR), (0.0024, 0.013)),
    Claim("Panther Lake has turbo by count", PEPC + ": ptl-h-4",
          lambda: turbo(0xCC, 0x2020202020202020, 0x0807060504030201), [(8, 3.2)]),
    Claim("Snow Ridge: turbo", PEPC + ": snr0", lambda: turbo(0x86, 0x16, 0x2D), [(45, 2.2)]),
    Claim("Snow Ridge: PL1, PL2", PEPC + ": snr0, 83.0 and 99.625 W",
          lambda: watts(0x86, 0xA0E03, 0x8000 | 664 | (0x8000 | 797) << 32), [83.0, 99.625]),
    Claim("Diamond Rapids has no MSRs of power or limits", "turbostat, dmr_features",
          lambda: (intel(1, family=19).rapl, intel(1, family=19).limits), (None, None)),
    Claim("power of a server with TPMI", PEPC + ": gnr0",
          lambda: watts(0xAD, 0xA0E03, 0x8792C000158FA0), [500, 600]),
    Claim("amd_umc", "Linux 6.7, arch/x86/events/amd/uncore.c",
          lambda: has_words("sources", "`amd_umc` from Zen 4 and Linux 6.7"), True),
]  # fmt: skip


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.what for claim in CLAIMS])
def test_what_perftop_reports_is_what_the_source_has(claim: Claim) -> None:
    assert claim.reported() == claim.expected, claim.source
