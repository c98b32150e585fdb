"""What names the cause of a low clock: rules in their order, over what a stream counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from perfprobe.frozen import frozen
from perftop.detect.engine.counted_shares import Facts
from perftop.model.evidence import Cap, Level, OutOf, Polled

CAUSES = {
    "PL1": "power-pl1", "PL2": "power-pl2", "electrical": "current", "thermal": "thermal",
    "running average thermal limit": "thermal", "PROCHOT": "prochot", "VR thermal": "vr",
    "VR thermal alert": "vr", "VR thermal design current": "vr", "autonomous utilisation": "hwp",
}  # fmt: skip
"""Cause by the name of a limit reason; of two seen equally often the first one counts. Other
reasons limit nothing, or it is not known what they limit."""
LEVELS = "license_1", "license_2", "license_3"
"""Counters of cycles for which wide code had the clock lowered."""

ACTS, AT_LIMIT = 0.1, 0.99
"""ACTS: minimum share of polls or cycles; rarer limits cannot lower the mean clock by START.
AT_LIMIT: share of the power limit within which a controller holds the mean power."""
ROBBED = 0.05
"""Share of the time. A hypervisor that takes so much has more to run than there are cores."""
SAVING = 128
"""Energy preference, 0 to 255, from which on power goes before speed."""
POWER, LIMITS = "power", ("power-pl1", "power-pl2")
"""A power limit of which it is not told which one it is, and the limits that it may be."""


class Clue(NamedTuple):
    """A counter that says what limits the clock, by the share of polls, cycles or time."""

    cause: str
    key: str
    part: str = ""
    least: float = ACTS  # 0: events, of which one is enough, and that go after all shares


PLR = {
    **{f"POWER_{of}_PL{n}_{by}": f"power-pl{n}" for of in ("PKG", "PLATFORM") for n in (1, 2)
       for by in ("MSR_TPMI", "MMIO", "PCS")},
    "PLATFORM_PROCHOT": "prochot", "PLATFORM_HOT_VR": "vr", "CURRENT_MTPMAX": "current",
    "THERMAL_PER_CORE": "thermal", "MISC_PCS_PSTATE": "policy", "POWER_FAST_RAPL": POWER,
    "CURRENT": "current", "POWER": POWER, "THERMAL": "thermal",
}  # fmt: skip
"""Cause by the name of TPMI's limit reason, the finer ones first. They are sticky: each is seen
only when it comes on."""

CLUES = (
    *(Clue(cause, "limit_reasons", part) for part, cause in CAUSES.items()),
    Clue(POWER, "pcu_power"),
    Clue(POWER, "package_thermal", "power limit"),
    Clue(POWER, "core_thermal", "power limit"),
    Clue("current", "pcu_current"),
    Clue("current", "core_thermal", "current limit"),
    *(Clue("thermal", f"{scope}_thermal", part)
      for scope in ("package", "core") for part in ("thermal", "critical temperature")),
    Clue("thermal", "pcu_thermal"),
    Clue("prochot", "package_thermal", "PROCHOT"),
    Clue("prochot", "core_thermal", "PROCHOT"),
    Clue("prochot", "pcu_prochot_internal"),
    Clue("prochot", "pcu_prochot_external"),
    Clue("prochot", "hsmp_prochot"),
    Clue("vr", "pcu_vr"),
    Clue("policy", "pcu_os"),
    *(Clue(cause, "plr_reasons", part, 0.0) for part, cause in PLR.items()),
    *(Clue(POWER, f"{scope}_power_limits", least=0.0) for scope in ("package", "core")),
    *(Clue("thermal", f"{scope}_{what}", least=0.0)
      for scope in ("package", "core") for what in ("throttled_s", "throttles")),
)  # fmt: skip
"""The first one counts where several were seen equally often."""
WIDE = (*LEVELS, "pcu_avx256", "pcu_avx512")
PCU = ("pcu_power", "pcu_current", "pcu_thermal", "pcu_prochot_internal", "pcu_prochot_external",
       "pcu_vr", "pcu_os", "pcu_avx256", "pcu_avx512")  # fmt: skip
"""What the power control unit counts in cycles of its own."""
FLAGS = "package_thermal", "core_thermal", "hsmp_limits"
COUNTED = (*dict.fromkeys(clue.key for clue in CLUES), *WIDE, "hsmp_limits", "energy_j",
           "power_limit_w", "power_limit2_w", "power_throttled_s", "temperature_c", "hwp_epp",
           "hwp_max", "hwp_highest", "pstate_limit", "stat_steal_s")  # fmt: skip
"""All counters that rules and evidence ask for."""


class Verdict(NamedTuple):
    cause: str
    confidence: Literal["measured", "inferred", "unknown"]


@frozen
class Case:
    """One drop."""

    facts: Facts
    cap: Cap | None
    """The cap in force; None: there is none."""
    guest: bool


def _capped(case: Case) -> Verdict | None:
    return Verdict("policy", "measured") if case.cap else None


def _wide(case: Case) -> Verdict | None:
    levels = sum(share for key in WIDE if (share := case.facts.mean(key)) > 0)
    return Verdict("license", "measured") if levels >= ACTS else None


def _limited(case: Case) -> Verdict | None:
    """The limit that was seen most. For power: the clue that tells which of its limits it is."""
    seen = [(clue, share) for clue in CLUES if _shows(clue, share := _share(case, clue))]
    seen.sort(key=lambda found: -found[1] if found[0].least else 0.0)
    causes = [clue.cause for clue, _ in seen]
    if causes and causes[0] == POWER:
        causes = [cause for cause in causes if cause in LIMITS]
        return Verdict(causes[0], "measured") if causes else _of_power(case)
    return Verdict(causes[0], "measured") if causes else None


def _share(case: Case, clue: Clue) -> float:
    return case.facts.mean(clue.key, clue.part)


def _shows(clue: Clue, share: float) -> bool:
    return share > 0 and share >= clue.least


def _of_power(case: Case) -> Verdict:
    return Verdict(LIMITS[_reached(case, "power_limit2_w")], "inferred")


def _reached(case: Case, key: str) -> bool:
    limit = case.facts.mean(key)
    return limit > 0 and case.facts.watts >= AT_LIMIT * limit


def _at_limit(case: Case) -> Verdict | None:
    """Power at its limit, or time that counts as throttled, which some models count for power
    only."""
    at_limit = any(_reached(case, key) for key in ("power_limit_w", "power_limit2_w"))
    throttled = case.facts.mean("power_throttled_s") >= ACTS
    return _of_power(case) if at_limit or throttled else None


def _asked_less(case: Case) -> Verdict | None:
    """The preference counts only where limits were looked for and none was found."""
    mean = case.facts.mean
    less = mean("hwp_max") < mean("hwp_highest")
    saving = mean("hwp_epp") >= SAVING and case.facts.polls("limit_reasons") > 0
    return Verdict("hwp", "inferred") if less or saving else None


def _robbed(case: Case) -> Verdict | None:
    robbed = case.guest and case.facts.mean("stat_steal_s") >= ROBBED
    return Verdict("hypervisor", "inferred") if robbed else None


RULES: tuple[Callable[[Case], Verdict | None], ...] = (
    _capped, _wide, _limited, _at_limit, _asked_less, _robbed,
)  # fmt: skip
"""The first rule that holds names the cause. Order: what was set, what the code asks for, what
limits the package, what is only likely."""


def verdict(case: Case) -> Verdict:
    found = (rule(case) for rule in RULES)
    return next((each for each in found if each is not None), Verdict("unknown", "unknown"))


def evidence(case: Case, cause: str) -> dict[str, Any]:
    """What the cause rests on, and what else was seen."""
    facts = case.facts
    told: dict[str, Any] = {"cap": case.cap} if case.cap else {}
    told |= dict(_simd(facts))
    told["limit_reasons"] = _reasons(facts)
    told |= dict(_flags(facts)) | dict(_came_on(facts)) | dict(_shares(facts))
    if cause == "hwp":
        told |= dict(_asked(facts))
    if (held := facts.mean("pstate_limit")) > 0:  # how far it is held down, not why
        told["pstate_limit"] = round(held, 1)
    if cause == "hypervisor":
        told["steal_share"] = round(facts.mean("stat_steal_s"), 3)
    levels = {"power_w": facts.watts, "power_limit_w": facts.mean("power_limit_w")}
    if cause == "power-pl2":
        levels["power_limit2_w"] = facts.mean("power_limit2_w")
    if cause in {"thermal", "prochot"}:
        levels["temperature_c"] = facts.mean("temperature_c")
    return told | {key: round(value, 1) for key, value in levels.items() if value > 0}


def _simd(facts: Facts) -> Iterator[tuple[str, Level]]:
    shares = {key: share for key in LEVELS if (share := facts.mean(key)) > 0}
    if sum(shares.values()) >= ACTS:
        most = max(shares, key=lambda key: shares[key])
        yield "simd", Level(int(most[-1]), shares[most])


def _reasons(facts: Facts) -> Polled:
    """Limit reasons: first those that limit the clock, the most frequent in front."""
    rank = {part: place for place, part in enumerate(CAUSES)}
    seen = facts.seen("limit_reasons", ACTS)
    seen.sort(key=lambda bit: (bit.part not in rank, -bit.times, rank.get(bit.part or "", 0)))
    return Polled(tuple(seen), facts.polls("limit_reasons"))


def _flags(facts: Facts) -> Iterator[tuple[str, Polled]]:
    for key in FLAGS:
        if seen := facts.seen(key, ACTS):
            yield key, Polled(tuple(seen), facts.polls(key))


def _came_on(facts: Facts) -> Iterator[tuple[str, Polled]]:
    """Sticky reasons that came on meanwhile."""
    if seen := facts.seen("plr_reasons"):
        yield "plr_reasons", Polled(tuple(seen), facts.polls("plr_reasons"))


def _shares(facts: Facts) -> Iterator[tuple[str, float]]:
    for key in PCU:
        if (share := facts.mean(key)) >= ACTS:
            yield key, share
    for scope in ("package", "core"):
        if (share := facts.mean(f"{scope}_throttled_s")) > 0:
            yield f"{scope}_throttled_share", round(share, 3)
        for what in ("throttles", "power_limits"):
            if (per_s := facts.mean(f"{scope}_{what}")) > 0:
                yield f"{scope}_{what}", per_s
    if (share := facts.mean("power_throttled_s")) >= ACTS:
        yield "throttled_for_power_share", round(share, 3)


def _asked(facts: Facts) -> Iterator[tuple[str, OutOf | int]]:
    if (most := facts.mean("hwp_max")) < (highest := facts.mean("hwp_highest")):
        yield "hwp_max", OutOf(most, highest)
    if (preference := facts.mean("hwp_epp")) >= SAVING:
        yield "hwp_epp", round(preference)
