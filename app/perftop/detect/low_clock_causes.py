"""Finds the cause of a low clock by rules on counters. The first rule that applies decides. Also
finds the tasks whose wide SIMD code lowers a clock, from counters and records of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import cycles_and_time, util
from perftop.model.confidence import (
    OUTSIDE_CPU,
    ClockCap,
    Confidence,
    PolledBits,
    RegisterBit,
    SimdLevel,
    ValueWithMax,
    confidence,
)
from perftop.model.counters import BlockCounter, Cores, Counters
from perftop.model.delta import Delta
from perftop.model.sample_reader import Sample
from perftop.model.tasks import Task, TaskSnapshot

REASON_CAUSES = {
    "PL1": "power-pl1", "PL2": "power-pl2", "electrical": "current", "thermal": "thermal",
    "running average thermal limit": "thermal", "PROCHOT": "prochot", "VR thermal": "vr",
    "VR thermal alert": "vr", "VR thermal design current": "vr", "autonomous utilisation": "hwp",
    "power budget": "power", "PL1 or multi-core turbo": "power",
}  # fmt: skip
"""Causes by the name of a limit reason. If two reasons are equally frequent, the first has
priority. Other reasons do not limit the clock, or their effect is unknown."""
LICENSE_COUNTERS = "license_1", "license_2"
"""Counters of the cycles in which wide SIMD code lowered the clock."""
LEVEL_PREFIX = "license_"
"""Prefix of `LICENSE_COUNTERS`. Each thread counts these cycles of its whole core, even while it is
halted: Intel's metrics for Skylake-SP halve the sum of two threads."""
CORE_CYCLES, PCU_TICKS = "cycles", "pcu_ticks"

MIN_ACTIVE_SHARE = 0.1
"""Minimum share of polls or cycles for which a limit must be active to be a cause. A limit that is
less often active cannot lower the mean clock by DROP_START."""
MIN_POLLS = 1.0
"""Minimum number of polls, as a mean over cores, that must find a bit set for it to count."""
MIN_LIMIT_SHARE = 0.99
"""Minimum mean power, as a share of the power limit, at which power is assumed to be limited."""
MIN_STEAL = 0.05
"""Minimum stolen share of the time at which the hypervisor is a cause. A hypervisor that steals
this much has more work than cores."""
MIN_SAVING_EPP = 128
"""Minimum energy preference (EPP), from 0 to 255, that makes the hardware prefer saving power."""
UNKNOWN_POWER, POWER_LIMITS = "power", ("power-pl1", "power-pl2")
"""The cause "an unknown power limit", and the causes "PL1" and "PL2"."""
AMBIGUOUS_REASON = "PL1 or multi-core turbo"
"""A limit reason of Xeons with two meanings. It counts only if there is no other reason, or if the
power is at PL1: the multi-core turbo limit is already part of the ceiling."""
HSMP_CAUSES = {
    "PPT": "power-ppt", "TDC": "current", "PROCHOT": "prochot", "cHTC active": "thermal",
    "thermal": "thermal", "VRHOT": "vr", "TDC of memory": "current", "TDC of SoC": "current",
    "SoC and DIMM power": "power-ppt",
}  # fmt: skip
"""Causes by the name of AMD's reason for the clock limit."""
HSMP_COUNTERS = "hsmp_limit_times", "hsmp_limits"
"""Counters of AMD's reasons for the clock limit: first the firmware's own count, then a polled
status, which is less exact."""


class LimitClue(NamedTuple):
    """A counter, or one of its bits, that shows a limit of the clock. It counts if its share of
    polls, cycles or time is high enough."""

    cause: str
    key: str
    bit_name: str = ""
    # 0: a single count is enough; such clues rank last
    min_share: float = MIN_ACTIVE_SHARE


PLR_CAUSES = {
    **{f"POWER_{unit}_PL{n}_{source}": f"power-pl{n}"
       for unit in ("PKG", "PLATFORM") for n in (1, 2) for source in ("MSR_TPMI", "MMIO", "PCS")},
    "PLATFORM_PROCHOT": "prochot", "PLATFORM_HOT_VR": "vr", "CURRENT_MTPMAX": "current",
    "THERMAL_PER_CORE": "thermal", "MISC_PCS_PSTATE": "policy", "POWER_FAST_RAPL": UNKNOWN_POWER,
    "CURRENT": "current", "POWER": UNKNOWN_POWER, "THERMAL": "thermal",
}  # fmt: skip
"""Causes by the name of TPMI's limit reason, the most specific reasons first. A bit is set only at
the moment when its limit becomes active, so the bits do not show a share of the span."""

CLUES = (
    *(LimitClue(cause, "limit_reasons", part) for part, cause in REASON_CAUSES.items()),
    LimitClue(UNKNOWN_POWER, "pcu_power"),
    LimitClue(UNKNOWN_POWER, "package_thermal", "power limit"),
    LimitClue(UNKNOWN_POWER, "core_thermal", "power limit"),
    LimitClue("current", "pcu_current"),
    LimitClue("current", "core_thermal", "current limit"),
    *(LimitClue("thermal", f"{scope}_thermal", part)
      for scope in ("package", "core") for part in ("thermal", "critical temperature")),
    LimitClue("thermal", "pcu_thermal"),
    LimitClue("prochot", "package_thermal", "PROCHOT"),
    LimitClue("prochot", "core_thermal", "PROCHOT"),
    LimitClue("prochot", "pcu_prochot_internal"),
    LimitClue("prochot", "pcu_prochot_external"),
    LimitClue("prochot", "hsmp_prochot"),
    LimitClue("vr", "pcu_vr"),
    LimitClue("policy", "pcu_os"),
    *(LimitClue(cause, key, part) for key in HSMP_COUNTERS for part, cause in HSMP_CAUSES.items()),
    *(LimitClue(cause, "plr_reasons", part, 0.0) for part, cause in PLR_CAUSES.items()),
    LimitClue(UNKNOWN_POWER, "package_power_limits", min_share=0.0),
    LimitClue(UNKNOWN_POWER, "core_power_limits", min_share=0.0),
    *(LimitClue("thermal", f"{scope}_{suffix}", min_share=0.0)
      for scope in ("package", "core") for suffix in ("throttled_s", "throttles")),
)  # fmt: skip
"""All clues. If two clues are equally frequent, the first has priority."""
MAX_COOL_C = 75.0
"""Temperature in °C below which no CPU throttles itself because of heat."""
WIDE_SIMD_COUNTERS = (*LICENSE_COUNTERS, "pcu_avx256", "pcu_avx512")
PCU_COUNTERS = ("pcu_power", "pcu_current", "pcu_thermal", "pcu_prochot_internal",
                "pcu_prochot_external", "pcu_vr", "pcu_os", "pcu_avx256", "pcu_avx512")  # fmt: skip
"""Counters of the power control unit, in its own cycles."""
FLAG_COUNTERS = "package_thermal", "core_thermal", *HSMP_COUNTERS
USED_COUNTERS = (*dict.fromkeys(clue.key for clue in CLUES), *WIDE_SIMD_COUNTERS, "energy_j",
                 "power_limit_w", "power_limit2_w", "power_throttled_s",
                 "temperature_c", "hwp_epp", "hwp_max", "hwp_highest", "pstate_limit",
                 "stat_steal_s")  # fmt: skip
"""All counters that the rules and the evidence use."""


class CauseVerdict(NamedTuple):
    cause: str
    confidence: Confidence


class DropCase(NamedTuple):
    """The data from which the cause of a turbo drop is determined."""

    counts: DropCounts
    cap: ClockCap | None
    """The clock limit that a user or program set; None if there is none."""
    is_guest: bool
    governor: str = ""
    """The governor, if all CPUs have the same one and do not use hardware P-states; else ''."""
    is_scaled: bool = False
    """Whether counts of the cores were scaled up because their events were multiplexed."""


def _cause_verdict(cause: str, *, counted: bool = True) -> CauseVerdict:
    return CauseVerdict(cause, confidence("turbo-drop", cause, counted=counted))


def find_cause(case: DropCase) -> CauseVerdict:
    """Returns the cause from the first rule that applies."""
    return next(possible_causes(case), CauseVerdict("unknown", "unknown"))


def possible_causes(case: DropCase) -> Iterator[CauseVerdict]:
    """Yields the causes from all rules that apply, by priority: limits that were set, measured
    limits of the package, limits due to the running code, and causes that are only likely."""
    counts, mean = case.counts, case.counts.mean
    if case.cap:
        yield _cause_verdict("policy")

    def is_at_limit(key: str) -> bool:
        return mean(key) > 0 and mean("energy_j") >= MIN_LIMIT_SHARE * mean(key)

    power_limit = POWER_LIMITS[is_at_limit("power_limit2_w")]
    # The active limits, most frequent first. A clue may show that power is limited without showing
    # by which limit.
    shares = [(clue, mean(clue.key, clue.bit_name)) for clue in counts.clues]
    active = [(clue, share) for clue, share in shares if share > 0 and share >= clue.min_share]
    active.sort(key=lambda pair: -pair[1] if pair[0].min_share else 0.0)
    if not is_at_limit("power_limit_w"):
        active = [pair for pair in active if pair[0].bit_name != AMBIGUOUS_REASON] or active
    elif any(clue.bit_name == AMBIGUOUS_REASON for clue, _ in active):
        pl1 = LimitClue(POWER_LIMITS[0], "limit_reasons")
        active = [(pl1 if c.bit_name == AMBIGUOUS_REASON else c, share) for c, share in active]
    limits = [clue for clue, _ in active]
    some_power_limit = bool(limits) and limits[0].cause == UNKNOWN_POWER
    if some_power_limit:
        limits = [clue for clue in limits if clue.cause in POWER_LIMITS]
    if limits:
        yield _cause_verdict(limits[0].cause, counted=limits[0].key != "plr_reasons")
    # Wide SIMD code also draws more power, so a measured limit ranks before the SIMD license.
    if sum(share for key in WIDE_SIMD_COUNTERS if (share := mean(key)) > 0) >= MIN_ACTIVE_SHARE:
        yield _cause_verdict("license", counted=not case.is_scaled)
    if some_power_limit and not limits:
        yield _cause_verdict(power_limit, counted=False)
    # Some CPU models count throttled time only for power.
    throttled = mean("power_throttled_s") >= MIN_ACTIVE_SHARE
    if is_at_limit("power_limit_w") or is_at_limit("power_limit2_w") or throttled:
        yield _cause_verdict(power_limit, counted=False)
    # A power-saving EPP is a cause only if limit reasons are polled and there was none.
    saves_power = mean("hwp_epp") >= MIN_SAVING_EPP and counts.polls("limit_reasons") > 0
    if mean("hwp_max") < mean("hwp_highest") or saves_power:
        yield _cause_verdict("hwp")
    if case.is_guest and mean("stat_steal_s") >= MIN_STEAL:
        yield _cause_verdict("hypervisor")
    # A power-saving governor is a cause only if limit reasons are polled and there was none.
    is_polled = any(counts.polls(key) > 0 for key in ("limit_reasons", *HSMP_COUNTERS))
    if is_polled and case.governor not in {"", "performance"} and isnan(mean("hwp_max")):
        yield _cause_verdict("governor")


def evidence(case: DropCase, cause: str) -> dict[str, Any]:
    """Returns the evidence for the cause, and further counts during the drop."""
    counts, mean = case.counts, case.counts.mean
    result: dict[str, Any] = {"cap": case.cap} if case.cap else {}
    levels = {key: share for key in LICENSE_COUNTERS if (share := mean(key)) > 0}
    if sum(levels.values()) >= MIN_ACTIVE_SHARE:
        main_level = max(levels, key=lambda key: levels[key])
        result["simd"] = SimdLevel(int(main_level[-1]), levels[main_level])
    # Limit reasons: those that limit the clock first, then the most frequent.
    rank = {part: i for i, part in enumerate(REASON_CAUSES)}
    reasons = counts.bits("limit_reasons", MIN_ACTIVE_SHARE)
    reasons.sort(key=lambda bit: (bit.name not in rank, -bit.times, rank.get(bit.name or "", 0)))
    result["limit_reasons"] = PolledBits(tuple(reasons), counts.polls("limit_reasons"))
    for key, share in (*((key, MIN_ACTIVE_SHARE) for key in FLAG_COUNTERS), ("plr_reasons", 0.0)):
        if bits := counts.bits(key, share):
            result[key] = PolledBits(tuple(bits), counts.polls(key))
    result |= {key: share for key in PCU_COUNTERS if (share := mean(key)) >= MIN_ACTIVE_SHARE}
    for scope in ("package", "core"):
        if (share := mean(f"{scope}_throttled_s")) > 0:
            result[f"{scope}_throttled_share"] = round(share, 3)
        for suffix in ("throttles", "power_limits"):
            if (per_s := mean(f"{scope}_{suffix}")) > 0:
                result[f"{scope}_{suffix}"] = per_s
    if (share := mean("power_throttled_s")) >= MIN_ACTIVE_SHARE:
        result["throttled_for_power_share"] = round(share, 3)
    if cause == "hwp":
        if (requested_level := mean("hwp_max")) < (highest_level := mean("hwp_highest")):
            result["hwp_max"] = ValueWithMax(requested_level, highest_level)
        if (preference := mean("hwp_epp")) >= MIN_SAVING_EPP:
            result["hwp_epp"] = round(preference)
    # this counter shows by how much the clock is lowered, but not the reason
    if (limit := mean("pstate_limit")) > 0:
        result["pstate_limit"] = round(limit, 1)
    if cause == "governor":
        result["governor"] = case.governor
    if cause == "hypervisor":
        result["steal_share"] = round(mean("stat_steal_s"), 3)
    numbers = {"power_w": mean("energy_j"), "power_limit_w": mean("power_limit_w")}
    if cause == "power-pl2":
        numbers["power_limit2_w"] = mean("power_limit2_w")
    if cause in {"thermal", "prochot"}:
        numbers["temperature_c"] = mean("temperature_c")
    # The CPU itself asserts PROCHOT only near its maximum temperature, which is 90 °C or more.
    is_cool = numbers.get("temperature_c", nan) < MAX_COOL_C
    if cause == "prochot" and (is_cool or mean("pcu_prochot_external") >= MIN_ACTIVE_SHARE):
        result["prochot_from"] = OUTSIDE_CPU
    return result | {key: round(value, 1) for key, value in numbers.items() if value > 0}


class _TallyColumn(NamedTuple):
    """The place of a counter in the sums of a tally: first its denominator, then the counter or
    each of its bits."""

    column: BlockCounter
    # the counter's denominator; None for shares of polls or of time
    base: BlockCounter | None
    offset: int
    width: int


class CounterTally:
    """Adds up a stream's counters that may show the cause of a low clock."""

    def __init__(self, counters: Counters, keys: Iterable[str]) -> None:
        self._counters = counters
        self.entries: dict[str, _TallyColumn] = {}
        self.columns: dict[tuple[str, str], int] = {}
        """The column of the sums, by counter and name of a bit ('' for a counter without bits)."""
        bases: list[int] = []
        is_bit: list[bool] = []
        for key in keys:
            denominator_key = ""  # key of the counter that is the denominator
            if key.startswith(LEVEL_PREFIX):
                denominator_key = CORE_CYCLES
            elif key.startswith("pcu_"):
                denominator_key = PCU_TICKS
            column, base = counters.columns.get(key), counters.columns.get(denominator_key)
            if column is None or (denominator_key and base is None):
                continue
            width, names = 2, [""]
            if column.counter.kind == "flags":
                width, names = column.counter.columns, column.counter.parts
            if width < 2 or (base is not None and base.block != column.block):
                continue
            offset = len(bases)
            self.entries[key] = _TallyColumn(column, base, offset, width)
            columns = zip(names, range(offset + 1, offset + width), strict=False)
            self.columns |= {(key, name): index for name, index in columns}
            bases += [offset] * width
            is_bit += [False, *[column.counter.kind == "flags"] * (width - 1)]
        self.is_bit: Bools = np.array(is_bit, bool)
        self.bases: Ints = np.array(bases, int)
        """For each column of the sums, the column of its denominator."""
        self.width = len(bases)
        self.clues = [clue for clue in CLUES if (clue.key, clue.bit_name) in self.columns]

    def sums(self, delta: Delta, cores: Cores) -> Floats:
        """Returns the sums, (cores, width). Counts of a package or the machine are in each core."""
        core_rows = {
            "cpu": cores.rows,
            "core": cores.block_row[:, None],
            "package": cores.package[:, None],
            "machine": np.zeros((len(cores.lists), 1), int),
        }
        core_sums = np.zeros((len(cores.lists), self.width))
        for entry in self.entries.values():
            counter, first = entry.column.counter, entry.column.index
            table = delta.tables[entry.column.block]
            if counter.kind == "flags":
                increments = table.increments[:, first : first + counter.columns]
            else:
                top = self._counters.increments(delta, counter.key)
                assert top is not None
                if entry.base is not None:
                    base = table.increments[:, entry.base.index]
                else:
                    units = 1.0 if counter.kind == "gauge" else self._counters.stamp_hz
                    base = table.ticks / units
                increments = np.stack([base, top], axis=1)
            is_known = np.isfinite(increments).all(axis=1, keepdims=True)
            sums = np.where(is_known, increments, 0.0)  # 0 in all columns of an unknown row
            by_row = np.concatenate([sums, np.zeros((1, entry.width))])
            threads = by_row[core_rows[entry.column.scope]]
            if counter.key.startswith(LEVEL_PREFIX):
                by_core = threads.max(axis=1)
            else:
                by_core = threads.sum(axis=1)
            core_sums[:, entry.offset : entry.offset + entry.width] = by_core
        return core_sums


class DropCounts:
    """The sums of a tally over one episode."""

    def __init__(self, tally: CounterTally, sums: Floats) -> None:
        self._tally, self._sums, self.clues = tally, sums.tolist(), tally.clues
        base = sums[tally.bases]
        counts = np.where(tally.is_bit & (sums < MIN_POLLS), 0.0, sums)
        means = np.divide(counts, base, out=np.full(len(sums), nan), where=base != 0)
        self._means: list[float] = means.tolist()

    def mean(self, key: str, bit_name: str = "") -> float:
        """Returns the mean of a gauge, a rate per second (for energy: watts), or a bit's share of
        the polls; NaN where unknown."""
        column = self._tally.columns.get((key, bit_name))
        return nan if column is None else self._means[column]

    def polls(self, key: str) -> float:
        entry = self._tally.entries.get(key)
        return self._sums[entry.offset] if entry is not None else 0.0

    def bits(self, key: str, share: float = 0.0) -> list[RegisterBit]:
        """Returns the bits that were set in at least this share of the polls, and at least once."""
        entry = self._tally.entries.get(key)
        if entry is None:
            return []
        counter, first = entry.column.counter, entry.offset
        counts = self._sums[first + 1 : first + entry.width]
        min_polls = max(MIN_POLLS, share * self._sums[first])
        named_bits = enumerate(zip_longest(counter.parts[: len(counts)], counts))
        return [
            RegisterBit(i, part, count) for i, (part, count) in named_bits if count >= min_polls
        ]


# --- Tasks whose wide SIMD code lowers a clock.

MAX_OTHER_TASKS_SHARE = 0.5
"""Maximum running time of all other tasks on a core for a task to be named, as a share of the time
at a SIMD level. A level lasts about 1 ms longer than the code that needs it, so short pieces
of such code may count up to twice."""


class SimdTasks:
    """Finds the task that kept a core at a SIMD level between two records of tasks. A record lists
    a task under the CPU on which it last ran, so the task must be on the core in both records."""

    def __init__(self, tally: CounterTally, cores: Cores) -> None:
        self._levels = [tally.entries[key] for key in LICENSE_COUNTERS if key in tally.entries]
        self._cores, count = cores, len(cores.lists)
        self._last_pids: list[set[int]] = [set() for _ in range(count)]
        """PIDs of the tasks on each core in the last record."""
        self._record_ns = self._sample_ns = 0
        """Raw times in ns of the last record and of the last sample."""
        self._is_low: Bools = np.zeros(count, bool)
        """Mask of the cores whose clock was low in all samples since the last record."""
        self._run_s, self._simd_s = np.zeros((2, count))
        """Since the last record: total running time of each core's threads, and the core's time at
        a SIMD level."""

    def add_sample(self, sample: Sample, is_low: Bools, tally_sums: Floats) -> None:
        """Adds a sample. `is_low`: mask of the cores with a low clock. `tally_sums`: sums of the
        tally, by core."""
        self._is_low &= is_low & (sample.since_ns == self._sample_ns)
        self._sample_ns = sample.time_ns
        self._run_s += sample.get(cycles_and_time)[1]
        busy_s = np.nan_to_num(sample.get(util)) * ((sample.time_ns - sample.since_ns) / 1e9)
        for entry in self._levels:
            cycles, at_level = tally_sums[:, entry.offset : entry.offset + 2].T
            self._simd_s += busy_s * at_level / np.where(cycles > 0, cycles, np.inf)

    def add_record(self, snapshot: TaskSnapshot) -> list[tuple[Task, int]]:
        """Adds the record of the last sample. Returns the tasks found, with their CPUs."""
        found_tasks, span_s = [], (self._sample_ns - self._record_ns) / 1e9
        last_pids, self._last_pids = self._last_pids, []
        for core, cpus in enumerate(self._cores.lists):
            tasks = [(task, cpu) for cpu in cpus for task in snapshot.tasks_on(str(cpu))]
            self._last_pids.append({task.pid for task, _ in tasks})
            if not self._is_low[core] or not tasks:
                continue
            busiest, cpu = max(tasks, key=lambda pair: pair[0].share)
            ran_s = span_s * sum(task.share for task, _ in tasks if task.pid == busiest.pid)
            others_s = max(0.0, self._run_s[core] - ran_s)
            is_proven = others_s < MAX_OTHER_TASKS_SHARE * self._simd_s[core]
            if is_proven and busiest.pid in last_pids[core]:
                found_tasks.append((busiest, cpu))
        self._record_ns = self._sample_ns
        self._is_low[:] = True
        self._run_s[:] = self._simd_s[:] = 0.0
        return found_tasks
