"""The rules that name the cause of a drop from counters, and their order."""

from __future__ import annotations

import dataclasses
from typing import Any

import increments
import numpy as np
import pytest
import synth

from perfprobe.wire import Block, Counter
from perftop.detect.low_clock_causes import (
    USED_COUNTERS,
    CounterTally,
    DropCase,
    DropCounts,
    evidence,
    find_cause,
    possible_causes,
)
from perftop.model.confidence import OUTSIDE_CPU, ClockCap, PolledBits, RegisterBit, ValueWithMax
from perftop.model.counters import Counters
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleReader
from perftop.output.sentences import subject_of

AMBIGUOUS_REASON = "PL1 or multi-core turbo"
PARTS = [*("PROCHOT", "thermal", "bit 2", "PL1", "electrical", "max turbo limit", "PL2"),
         *("VR thermal", "power budget", AMBIGUOUS_REASON)]  # fmt: skip
TIMES = ["PPT", "thermal", "TDC of SoC", "reliability"]
SOURCES = ["cHTC active", "PROCHOT", "TDC", "PPT", "SoC and DIMM power"]
STATUS = ["thermal", "PROCHOT", "critical temperature", "power limit", "current limit"]
PCU = [
    synth.counter(f"pcu_{name}")
    for name in ("ticks", "power", "current", "thermal", "os", "prochot_external", "vr", "avx512")
]
CPU = [
    synth.REF, synth.CYCLES, synth.counter("license_1"), synth.counter("license_2"),
    increments.seconds_counter("stat_steal_s"),
    *(synth.gauge(f"hwp_{name}") for name in ("epp", "max", "highest")),
]  # fmt: skip
CORE = [synth.flags("core_thermal", *STATUS), increments.seconds_counter("core_throttled_s")]
PACKAGE = [
    synth.flags("limit_reasons", *PARTS, bits=12), synth.flags("package_thermal", *STATUS),
    synth.flags("plr_reasons", "POWER", "POWER_PKG_PL2_PCS", "PLATFORM_HOT_VR", "FREQUENCY"),
    synth.flags("hsmp_limits", *SOURCES, bits=6),
    synth.flags("hsmp_limit_times", *TIMES),
    Counter("energy_j", "energy", "J", "made"),
    *(synth.gauge(key) for key in ("power_limit_w", "power_limit2_w", "temperature_c")),
    *(increments.seconds_counter(key) for key in ("package_throttled_s", "power_throttled_s")),
    *(increments.seconds_counter(f"package_{what}") for what in ("throttles", "power_limits")),
    synth.gauge("hsmp_prochot"), synth.gauge("pstate_limit"), *PCU,
]  # fmt: skip


def reader(*, cores: int = 2, counter_keys: set[str] | None = None) -> SampleReader:
    hello = synth.hello(CPU, cores=cores, core=CORE)
    hello.blocks.append(Block("package", "package", PACKAGE))
    blocks = [
        dataclasses.replace(
            b, counters=[c for c in b.counters if counter_keys is None or c.key in counter_keys]
        )
        for b in hello.blocks
    ]
    return SampleReader(dataclasses.replace(hello, blocks=[b for b in blocks if b.counters]))


def drop_case(
    cap: ClockCap | None = None,
    is_guest: bool = False,
    only: set[str] | None = None,
    governor: str = "",
    **values: Any,
) -> DropCase:
    """Returns a drop of the first core over four samples."""
    result = reader(counter_keys=only)
    tally = CounterTally(result.counters, USED_COUNTERS)
    delta = increments.delta(result.counters, values)
    sums = sum(tally.sums(delta, result.cores) for _ in range(4))
    return DropCase(DropCounts(tally, np.asarray(sums)[0]), cap, is_guest, governor)


def case_of(**means: float) -> DropCase:
    """Returns a drop in a guest with exactly these means."""
    tally = CounterTally(reader().counters, USED_COUNTERS)
    sums = np.zeros(tally.width)
    for key, mean in means.items():
        column = tally.columns[key, ""]
        sums[[tally.bases[column], column]] = 1.0, mean
    return DropCase(DropCounts(tally, sums), None, is_guest=True)


def flags_seen_by_polls(**seen: float) -> dict[str, Any]:
    """Returns flags with ten polls a sample, and the number of polls that saw each bit."""
    names = *PARTS, *STATUS, *SOURCES, *TIMES
    words = {name.replace(" ", "_").replace("-", "_"): name for name in names}
    return {"polls": 10.0, **{words[key]: times for key, times in seen.items()}}


WIDE: dict[str, Any] = {"cycles": 1e9, "license_2": 0.8e9}
AT_PL1: dict[str, Any] = {"energy_j": 149.0, "power_limit_w": 150.0, "power_limit2_w": 180.0}
PCU_1: dict[str, Any] = {"pcu_ticks": 1e9}
REQUESTED_LIMIT: dict[str, Any] = {"hwp_max": 20.0, "hwp_highest": 35.0}
NONE: dict[str, Any] = {"limit_reasons": flags_seen_by_polls()}


@pytest.mark.parametrize(("cause", "confidence", "values"), [
    ("license", "measured", WIDE),
    ("license", "measured", PCU_1 | {"pcu_avx512": 2e8}),
    ("power-pl1", "measured", {"limit_reasons": flags_seen_by_polls(PL1=9)}),
    ("power-pl2", "measured", {"limit_reasons": flags_seen_by_polls(PL2=9)}),
    ("current", "measured", {"limit_reasons": flags_seen_by_polls(electrical=9)}),
    ("vr", "measured", {"limit_reasons": flags_seen_by_polls(VR_thermal=9)}),
    ("thermal", "measured", {"package_thermal": flags_seen_by_polls(thermal=9)}),
    ("thermal", "measured", {"core_thermal": flags_seen_by_polls(critical_temperature=9)}),
    ("prochot", "measured", {"core_thermal": flags_seen_by_polls(PROCHOT=9)}),
    ("current", "measured", {"core_thermal": flags_seen_by_polls(current_limit=9)}),
    ("thermal", "measured", {"core_throttled_s": 0.001}),
    ("thermal", "measured", {"package_throttles": 1}),
    ("current", "measured", PCU_1 | {"pcu_current": 2e8}),
    ("thermal", "measured", PCU_1 | {"pcu_thermal": 2e8}),
    ("thermal", "measured", PCU_1 | {"pcu_thermal": 1e8}),  # a tenth of the polls is enough
    ("prochot", "measured", PCU_1 | {"pcu_prochot_external": 2e8}),
    ("vr", "measured", PCU_1 | {"pcu_vr": 2e8}),
    ("policy", "measured", PCU_1 | {"pcu_os": 2e8}),
    ("prochot", "measured", {"hsmp_prochot": 1.0}),
    ("power-pl2", "inferred",
     {"plr_reasons": {"polls": 100.0, "POWER_PKG_PL2_PCS": 1, "POWER": 1}}),
    ("vr", "inferred", {"plr_reasons": {"polls": 100.0, "PLATFORM_HOT_VR": 1}}),
    ("power-pl1", "inferred", {"plr_reasons": {"polls": 100.0, "POWER": 1}}),
    ("power-pl1", "inferred", AT_PL1),
    ("power-pl1", "inferred", {"limit_reasons": flags_seen_by_polls(power_budget=9)}),
    ("power-pl1", "inferred", {"limit_reasons": flags_seen_by_polls(PL1_or_multi_core_turbo=9)}),
    ("power-pl1", "measured",
     {"limit_reasons": flags_seen_by_polls(PL1_or_multi_core_turbo=9)} | AT_PL1),
    ("current", "measured",
     {"limit_reasons": flags_seen_by_polls(PL1_or_multi_core_turbo=10, electrical=3)}),
    ("power-ppt", "measured", {"hsmp_limits": flags_seen_by_polls(PPT=9, TDC=2)}),
    ("current", "measured", {"hsmp_limits": flags_seen_by_polls(TDC=9)}),
    ("power-ppt", "measured", {"hsmp_limits": flags_seen_by_polls(SoC_and_DIMM_power=9)}),
    ("power-ppt", "measured", {"hsmp_limit_times": flags_seen_by_polls(PPT=9, thermal=2)}),
    ("thermal", "measured", {"hsmp_limit_times": flags_seen_by_polls(thermal=3),
                             "hsmp_limits": flags_seen_by_polls(PPT=2)}),
    ("current", "measured", {"hsmp_limit_times": flags_seen_by_polls(TDC_of_SoC=4, reliability=9)}),
    ("thermal", "measured", WIDE | {"limit_reasons": flags_seen_by_polls(thermal=3)}),
    ("power-pl2", "inferred", AT_PL1 | {"energy_j": 179.0}),
    ("power-pl1", "inferred", {"package_thermal": flags_seen_by_polls(power_limit=9)}),
    ("power-pl1", "inferred", PCU_1 | {"pcu_power": 2e8}),
    ("power-pl2", "inferred", PCU_1 | {"pcu_power": 2e8} | AT_PL1 | {"energy_j": 179.0}),
    ("power-pl1", "inferred", {"power_throttled_s": 0.5}),
    ("power-pl1", "inferred", AT_PL1 | {"power_limit2_w": 0.0}),
    ("power-pl1", "inferred", {"package_power_limits": 1}),
    # the most frequent limit, power among equally frequent ones, before single events
    ("thermal", "measured", {"limit_reasons": flags_seen_by_polls(PL1=2, thermal=9)}),
    ("thermal", "measured", {"limit_reasons": flags_seen_by_polls(PL1=9),
                             "package_thermal": flags_seen_by_polls(thermal=10)}),
    ("power-pl1", "measured", {"limit_reasons": flags_seen_by_polls(
        thermal=9, PROCHOT=9, PL1=9, electrical=9)}),
    ("current", "measured", {"limit_reasons": flags_seen_by_polls(electrical=9, thermal=9)}),
    ("thermal", "measured", {"limit_reasons": flags_seen_by_polls(thermal=9, PROCHOT=9)}),
    ("power-pl1", "measured",
     {"limit_reasons": flags_seen_by_polls(PL1=2), "package_throttles": 100}),
    # a status bit names the power limit
    ("power-pl2", "measured", {"limit_reasons": flags_seen_by_polls(PL2=9),
                               "package_thermal": flags_seen_by_polls(power_limit=10)}),
    ("power-pl1", "inferred", {"limit_reasons": flags_seen_by_polls(thermal=9),
                               "package_thermal": flags_seen_by_polls(power_limit=10)}),
    ("hwp", "inferred", REQUESTED_LIMIT),
    ("hwp", "inferred", NONE | {"hwp_epp": 128.0}),
])  # fmt: skip
def test_counters_name_each_cause(cause: str, confidence: str, values: Any) -> None:
    result = drop_case(**values)
    assert find_cause(result) == (cause, confidence)
    assert evidence(result, cause)


@pytest.mark.parametrize("values", [
    {},
    NONE,
    {"hwp_epp": 192.0},  # the limits were not read
    {"cycles": 1e9, "license_1": 0.05e9},
    PCU_1 | {"pcu_thermal": 0.5e8, "pcu_power": 0.9e8},
    {"limit_reasons": flags_seen_by_polls(bit_2=10, max_turbo_limit=10)},
    {"package_thermal": flags_seen_by_polls(thermal=0.5)},
    {"plr_reasons": {"polls": 100.0, "FREQUENCY": 1}},
    AT_PL1 | {"energy_j": 147.0},
    {"hwp_max": 35.0, "hwp_highest": 35.0, "hwp_epp": 127.0} | NONE,
    {"stat_steal_s": 0.3},
    {"core_throttled_s": 0.0, "package_throttles": 0.0},
])  # fmt: skip
def test_unrelated_signs_leave_the_cause_unknown(values: Any) -> None:
    assert find_cause(drop_case(**values)) == ("unknown", "unknown")


@pytest.mark.parametrize(("cause", "key", "limit", "more"), [
    ("license", "license_2", 0.1, {}),
    ("license", "license_1", 0.04, {"license_2": 0.03, "pcu_avx512": 0.03}),
    ("power-pl1", "energy_j", 99.0, {"power_limit_w": 100.0}),
    ("power-pl2", "energy_j", 99.0, {"power_limit2_w": 100.0}),
    ("power-pl1", "power_throttled_s", 0.1, {}),
    ("thermal", "pcu_thermal", 0.1, {}),
    ("hypervisor", "stat_steal_s", 0.05, {}),
])  # fmt: skip
def test_a_cause_counts_from_its_limit_on(
    cause: str, key: str, limit: float, more: dict[str, Any]
) -> None:
    assert find_cause(case_of(**{key: limit}, **more)).cause == cause
    assert find_cause(case_of(**{key: 0.999 * limit}, **more)).cause == "unknown"


@pytest.mark.parametrize(("polls", "cause"), [(1.0, "thermal"), (0.9, "unknown")])
def test_a_limit_counts_from_a_tenth_of_the_polls_on(polls: float, cause: str) -> None:
    assert find_cause(drop_case(limit_reasons=flags_seen_by_polls(thermal=polls))).cause == cause


@pytest.mark.parametrize(("cause", "key", "limit", "name", "value"), [
    ("license", "license_2", 0.1, "simd", (2, 0.1)),
    ("unknown", "pcu_power", 0.1, "pcu_power", 0.1),
    ("unknown", "power_throttled_s", 0.1, "throttled_for_power_share", 0.1),
    ("hwp", "hwp_epp", 128.0, "hwp_epp", 128),
    ("prochot", "pcu_prochot_external", 0.1, "prochot_from", OUTSIDE_CPU),
])  # fmt: skip
def test_evidence_is_reported_from_its_limit_on(
    cause: str, key: str, limit: float, name: str, value: object
) -> None:
    assert evidence(case_of(**{key: limit}), cause)[name] == value
    assert name not in evidence(case_of(**{key: 0.999 * limit}), cause)


@pytest.mark.parametrize(("cause", "key", "mean", "name", "value"), [
    ("unknown", "package_throttled_s", 0.12346, "package_throttled_share", 0.123),
    ("unknown", "power_throttled_s", 0.12346, "throttled_for_power_share", 0.123),
    ("unknown", "pstate_limit", 2.346, "pstate_limit", 2.3),
    ("hypervisor", "stat_steal_s", 0.12346, "steal_share", 0.123),
    ("unknown", "energy_j", 99.96, "power_w", 100.0), ("unknown", "energy_j", 0.5, "power_w", 0.5),
])  # fmt: skip
def test_evidence_is_rounded(cause: str, key: str, mean: float, name: str, value: float) -> None:
    assert evidence(case_of(**{key: mean}), cause)[name] == value


def test_evidence_excludes_zeros_and_limits_of_other_causes() -> None:
    zeros = dict.fromkeys(
        ("energy_j", "power_limit_w", "temperature_c", "package_throttled_s", "core_throttled_s",
         "package_throttles", "package_power_limits"), 0.0,
    )  # fmt: skip
    assert evidence(case_of(**zeros), "thermal").keys() == {"limit_reasons"}
    limits = {f"{key}_w": 100.0 for key in ("power_limit", "power_limit2")}
    for cause in ("power-pl1", "power-pl2"):
        found = evidence(case_of(**limits), cause)
        assert found["power_limit_w"] == 100.0
        assert ("power_limit2_w" in found) == (cause == "power-pl2")


@pytest.mark.parametrize(("temperature", "is_cool"), [(75.0, False), (74.9, True)])
def test_a_cpu_is_cool_below_75_degrees(temperature: float, *, is_cool: bool) -> None:
    assert ("prochot_from" in evidence(case_of(temperature_c=temperature), "prochot")) == is_cool


def test_the_most_frequent_simd_level_is_reported() -> None:
    for levels in ((0.3, 0.2), (0.2, 0.3)):
        case = case_of(license_1=levels[0], license_2=levels[1])
        assert evidence(case, "license")["simd"] == (1 + levels.index(0.3), 0.3)


def test_equally_frequent_reasons_are_listed_by_priority() -> None:
    case = drop_case(limit_reasons=flags_seen_by_polls(thermal=9, PL1=9, PROCHOT=9, bit_2=9))
    bits = evidence(case, "power-pl1")["limit_reasons"].bits
    assert [bit.name for bit in bits] == ["PL1", "thermal", "PROCHOT", "bit 2"]


def test_a_share_of_a_counter_in_another_block_is_not_computed() -> None:
    """Its rows may have been read at another time, and another counter has its column."""
    hello = synth.hello([synth.REF, synth.CYCLES])
    hello.blocks.append(Block("events.1", "cpu", [synth.counter("x"), synth.counter("license_1")]))
    counters = Counters(hello)
    tally = CounterTally(counters, USED_COUNTERS)
    sums = tally.sums(
        increments.delta(counters, {"cycles": 1e9, "ref": 1e9, "license_1": 9e8, "x": 1e9}),
        SampleReader(hello).cores,
    )
    assert find_cause(DropCase(DropCounts(tally, sums[0]), None, False)).cause == "unknown"


def test_steal_lowers_the_clock_of_a_guest() -> None:
    assert find_cause(drop_case(is_guest=True, stat_steal_s=0.05)) == ("hypervisor", "inferred")
    assert find_cause(drop_case(is_guest=True, stat_steal_s=0.04)).cause == "unknown"
    assert (
        evidence(drop_case(is_guest=True, stat_steal_s=0.25), "hypervisor")["steal_share"] == 0.25
    )


def test_rules_are_applied_in_order() -> None:
    """All rules match. Removing the first lets the next one name the cause."""
    values = (
        WIDE
        | {"limit_reasons": flags_seen_by_polls(thermal=3)}
        | AT_PL1
        | REQUESTED_LIMIT
        | {"stat_steal_s": 0.2}
    )
    order = []
    everything = drop_case(ClockCap("scaling_max_freq", 2e9), True, **values)
    every = [result.cause for result in possible_causes(everything)]
    order.append(find_cause(everything).cause)
    for gone in (set[str](), {"limit_reasons"}, {"license_2"}, {"energy_j"}, {"hwp_max"}):
        for key in gone:
            del values[key]
        order.append(find_cause(drop_case(None, True, **values)).cause)
    assert order == ["policy", "thermal", "license", "power-pl1", "hwp", "hypervisor"]
    assert every == order


def test_the_most_frequent_limit_is_the_cause() -> None:
    result = drop_case(
        limit_reasons=flags_seen_by_polls(PL1=9, thermal=3, max_turbo_limit=10, bit_2=0.2)
    )
    assert find_cause(result) == ("power-pl1", "measured")
    bits = (
        RegisterBit(3, "PL1", 36),
        RegisterBit(1, "thermal", 12),
        RegisterBit(5, "max turbo limit", 40),
    )
    assert evidence(result, "power-pl1")["limit_reasons"] == PolledBits(bits, 40)


def test_unknown_bits_are_named_by_number() -> None:
    result = drop_case(limit_reasons=flags_seen_by_polls(bit_2=10), hsmp_limits={"polls": 10.0})
    assert evidence(result, "unknown")["limit_reasons"] == PolledBits(
        (RegisterBit(2, "bit 2", 40),), 40
    )
    assert "hsmp_limits" not in evidence(result, "unknown")
    assert evidence(drop_case(**NONE), "unknown")["limit_reasons"] == PolledBits((), 40)
    assert evidence(drop_case(), "unknown") == {"limit_reasons": PolledBits((), 0)}
    tally = CounterTally(reader().counters, ["hsmp_limits"])
    facts = DropCounts(tally, np.array([40.0, 0.0, 0.0, 0.0, 0.0, 0.0, 30.0]))
    assert evidence(DropCase(facts, None, False), "unknown")["hsmp_limits"] == PolledBits(
        (RegisterBit(5, None, 30),), 40
    )


@pytest.mark.parametrize(("count", "cause"), [(0.25, "unknown"), (1.0, "thermal")])
def test_a_bit_counts_from_one_poll_on_as_a_mean_over_cores(count: float, cause: str) -> None:
    """A cause without its evidence would be a guess."""
    tally = CounterTally(reader().counters, ["core_thermal"])
    case = DropCase(DropCounts(tally, np.array([2.0, count, 0.0, 0.0, 0.0, 0.0])), None, False)
    assert find_cause(case).cause == cause
    assert ("core_thermal" in evidence(case, cause)) == (cause == "thermal")


def test_evidence_includes_its_numbers() -> None:
    result = drop_case(
        **WIDE, **AT_PL1, temperature_c=97.0, package_thermal=flags_seen_by_polls(PROCHOT=2)
    )
    report = evidence(result, "license")
    assert report["simd"] == pytest.approx((2, 0.8))
    assert report["package_thermal"] == PolledBits((RegisterBit(1, "PROCHOT", 8),), 40)
    assert (report["power_w"], report["power_limit_w"]) == (149.0, 150.0)
    assert "temperature_c" not in report
    assert evidence(result, "prochot")["temperature_c"] == 97.0
    assert "prochot_from" not in evidence(result, "prochot")


@pytest.mark.parametrize("values", [{"temperature_c": 52.0}, PCU_1 | {"pcu_prochot_external": 2e8}])
def test_prochot_on_a_cool_cpu_is_external(values: dict[str, Any]) -> None:
    result = drop_case(core_thermal=flags_seen_by_polls(PROCHOT=9), **values)
    assert evidence(result, "prochot")["prochot_from"] == OUTSIDE_CPU
    assert "prochot_from" not in evidence(result, "thermal")
    episode = Episode("turbo-drop", [0], 0, cause="prochot", evidence=evidence(result, "prochot"))
    assert subject_of(episode) == "A PROCHOT signal from outside"
    request = evidence(drop_case(**REQUESTED_LIMIT, hwp_epp=200.0), "hwp")
    assert (request["hwp_max"], request["hwp_epp"]) == (ValueWithMax(20, 35), 200)
    no_limit = evidence(drop_case(hwp_max=35.0, hwp_highest=35.0, hwp_epp=200.0), "hwp")
    assert "hwp_max" not in no_limit


def test_any_of_the_counters_may_be_absent() -> None:
    for key in (*USED_COUNTERS, "cycles", "pcu_ticks"):
        known = {c.key for c in (*CPU, *CORE, *PACKAGE)} - {key}
        assert find_cause(drop_case(only=known)).cause == "unknown"
    assert find_cause(drop_case(only={"ref"})).cause == "unknown"
    without = {"license_2", "pcu_thermal", "ref"}
    assert find_cause(drop_case(only=without, license_2=1e9, pcu_thermal=1e9)).cause == "unknown"


def test_evidence_of_one_core_is_not_used_for_another() -> None:
    result = reader(cores=4)
    tally = CounterTally(result.counters, USED_COUNTERS)
    cycles = np.array([0.0, 0.0, 0.8e9, 0.0] * 2)
    delta = increments.delta(result.counters, {"cycles": 1e9, "license_2": cycles})
    sums = tally.sums(delta, result.cores)
    causes = [find_cause(DropCase(DropCounts(tally, row), None, False)).cause for row in sums]
    assert causes == ["unknown", "unknown", "license", "unknown"]


def test_counts_of_a_core_on_a_halted_thread_count_once_and_times_are_added() -> None:
    result = reader()
    tally = CounterTally(result.counters, USED_COUNTERS)
    values = {"cycles": [1e9, 0, 0, 1e9], "license_2": [0.4e9] * 4,
             "stat_steal_s": [0, 0.2, 0.2, 0]}  # fmt: skip
    sums = tally.sums(increments.delta(result.counters, values), result.cores)
    of_cores = [DropCounts(tally, row) for row in sums]
    assert [counts.mean("license_2") for counts in of_cores] == pytest.approx([0.4, 0.4])
    assert [counts.mean("stat_steal_s") for counts in of_cores] == pytest.approx([0.1, 0.1])


def test_machine_wide_counts_apply_to_all_cores() -> None:
    hello = synth.hello(cores=2, threads=1, packages=[[0], [1]])
    hello.blocks.append(Block("machine", "machine", [synth.gauge("temperature_c")]))
    counters = Counters(hello)
    tally = CounterTally(counters, USED_COUNTERS)
    sums = tally.sums(
        increments.delta(counters, {"temperature_c": 70.0}), SampleReader(hello).cores
    )
    assert [DropCounts(tally, row).mean("temperature_c") for row in sums] == pytest.approx(
        [70.0, 70.0]
    )


def test_counters_of_an_invalid_shape_are_ignored_or_used_for_all() -> None:
    odd = [
        Counter("limit_reasons", "r", "1", "made", kind="flags"),
        Counter("energy_j", "energy", "J", "made", columns=3, parts=["a", "b", "c"]),
        Counter("license_1", "l", "1", "made", kind="flags", columns=4),
    ]
    counters = Counters(synth.hello([synth.CYCLES, *odd], cores=2))
    tally = CounterTally(counters, USED_COUNTERS)
    delta = increments.delta(counters, {"limit_reasons": {"polls": 10.0}})
    sums = tally.sums(delta, SampleReader(counters.hello).cores)
    assert evidence(DropCase(DropCounts(tally, sums[0]), None, False), "unknown") == {
        "limit_reasons": PolledBits((), 0)
    }


def test_the_p_state_limit_of_amd_is_evidence_but_not_a_cause() -> None:
    result = drop_case(pstate_limit=1.0)
    assert find_cause(result) == ("unknown", "unknown")
    assert evidence(result, "unknown")["pstate_limit"] == 1.0
    assert "pstate_limit" not in evidence(drop_case(pstate_limit=0.0), "unknown")


def test_a_license_from_scaled_counts_is_inferred() -> None:
    wide = drop_case(**WIDE)
    assert find_cause(wide) == ("license", "measured")
    assert find_cause(wide._replace(is_scaled=True)) == ("license", "inferred")


WITHOUT_HWP = {counter.key for counter in (*CPU, *CORE, *PACKAGE)} - {"hwp_max", "hwp_highest"}


@pytest.mark.parametrize(("cause", "governor", "values"), [
    ("governor", "schedutil", NONE),
    ("governor", "ondemand", {"hsmp_limits": flags_seen_by_polls()}),
    ("unknown", "performance", NONE),
    ("unknown", "", NONE),
    ("unknown", "schedutil", {}),  # the limits were not read
    ("thermal", "schedutil", {"limit_reasons": flags_seen_by_polls(thermal=9)}),
])  # fmt: skip
def test_a_governor_is_named_if_no_limit_was_seen(
    cause: str, governor: str, values: dict[str, Any]
) -> None:
    facts = drop_case(only=WITHOUT_HWP, governor=governor, **values)
    assert find_cause(facts).cause == cause
    if cause == "governor":
        assert find_cause(facts).confidence == "inferred"
        words = subject_of(
            Episode("turbo-drop", [0], 0, cause=cause, evidence=evidence(facts, cause))
        )
        assert words == f"The governor {governor}"


def test_hardware_that_chooses_the_clock_ignores_the_governor() -> None:
    facts = drop_case(governor="powersave", hwp_max=35.0, hwp_highest=35.0, **NONE)
    assert find_cause(facts).cause == "unknown"
