"""The page that Prometheus scrapes, built at most once for each sample and format. Dashboards and
alerts depend on the names, types and labels of the families."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.base.text import ranges
from perftop.model.counters import Cores
from perftop.model.delta import distinct
from perftop.model.evaluation import TRAFFIC_KEYS
from perftop.model.sample_reader import Sample
from perftop.output import stat_lines
from perftop.output.export.exporter_sums import (
    CAUSES,
    CORE_STATES,
    COUNT_KEYS,
    PRESSURE_KEYS,
    TIME_MODES,
    CoreTime,
    EpisodeSums,
    Sums,
    TaskTime,
)
from perftop.output.export.openmetrics import END_LINE, Heading, labels
from perftop.session.session import Session
from perftop.session.values import BOUNDS_REASON, UNREAD_REASON, lasting_reasons

# --- families of series

SMT = Heading(
    "perftop_smt_seconds",
    "Time of cores by the threads that were active. Unknown: suspect, or not measured here. "
    "All states add up to the time of the cores.",
)
CPU = Heading(
    "perftop_cpu_seconds",
    "Time of CPUs: busy, idle by choice of the system, idle but polling, halted although there "
    "was work, taken by the hypervisor. Suspect samples are left out.",
)
CYCLES = Heading(
    "perftop_cycles",
    "Core cycles while not halted. Instructions and reference cycles cover the same time.",
)
INSTRUCTIONS = Heading("perftop_instructions", "Instructions retired.")
REFERENCE = Heading(
    "perftop_reference_cycles",
    "Cycles of the time-stamp counter while not halted; perftop_tsc_hertz ticks are a second.",
)
BELOW_CEILING_SECONDS = Heading(
    "perftop_below_ceiling_seconds",
    "Time in which cores of the package ran below the clock that turbo allows, by cause.",
)
BELOW_CEILING_CYCLES = Heading(
    "perftop_below_ceiling_cycles",
    "Additional cycles that cores would have run in that time at their ceiling.",
)
EPISODES = Heading("perftop_episodes", "Episodes that have begun, counted some seconds later.")
EPISODE_SECONDS = Heading("perftop_episode_seconds", "Duration of episodes.")
OWNER = Heading(
    "perftop_owner_cpu_seconds",
    "Time that tasks of an owner (job, pod, container, unit) ran or waited for a CPU. A lower "
    "bound: only the busiest tasks of each CPU are sampled.",
)
WAIT = Heading(
    "perftop_task_wait_seconds",
    "Time that tasks waited for a CPU in its run queue. A lower bound: only the busiest tasks of "
    "each CPU are sampled.",
)
PRESSURE = Heading(
    "perftop_pressure_seconds",
    "Time in which at least one task of the machine waited for this resource.",
)
CEILING = Heading(
    "perftop_ceiling_hertz",
    "Clock that turbo certainly allows with this number of active cores; mean over the cores.",
    "gauge",
)
BASE_CLOCK = Heading("perftop_base_hertz", "Base clock.", "gauge")
TSC = Heading("perftop_tsc_hertz", "Rate of the time-stamp counter.", "gauge")
LIMIT = Heading("perftop_power_limit_watts", "Power limit of the package.", "gauge")
TEMPERATURE = Heading("perftop_temperature_celsius", "Temperature of the package.", "gauge")
ENERGY = Heading("perftop_energy_joules", "Energy of the package.")
DRAM_ENERGY = Heading("perftop_dram_energy_joules", "Energy of the package's memory.")
MEMORY = Heading("perftop_memory_bytes", "Bytes between the package and its memory, by direction.")
SUSPECT = Heading(
    "perftop_suspect_samples",
    "Samples of CPUs in which a counter could not be trusted, by reason.",
)
LOST_SAMPLES = Heading("perftop_lost_samples", "Samples of the machine that were dropped.")
PROBE = Heading("perftop_probe_cpu_seconds", "CPU time of the probe.")
EXPORTER = Heading("perftop_exporter_cpu_seconds", "CPU time of the exporter itself.")
INFO = Heading("perftop", "Version, CPU model and source of the counters, for joins.", "info")
MISSING_FAMILIES = Heading(
    "perftop_missing",
    "1 for each family, or part of a family, that is missing, with the reason.",
    "gauge",
)
SERIES = Heading("perftop_series", "Number of series on this page, including this one.", "gauge")

PRIVILEGE_RINGS = {
    CYCLES: {"cycles": "all", "kernel_cycles": "kernel"},
    INSTRUCTIONS: {"instructions": "all", "kernel_instructions": "kernel"},
    REFERENCE: {"ref": "all"},
}
"""The families of counts, with the value of the label `ring` for each counter."""
NEEDED_KEYS = {
    BELOW_CEILING_SECONDS: "turbo_ceiling_hz busy_hz",
    CEILING: "turbo_ceiling_hz",
    BASE_CLOCK: "base_hz",
    TSC: "tsc_hz",
    LIMIT: "power_limit_w",
    TEMPERATURE: "temperature_c",
    ENERGY: "energy_j",
    DRAM_ENERGY: "power_dram_w",
    MEMORY: "memory_read_bytes_per_s",
    WAIT: "tasks",
    PRESSURE: "pressure",
    PROBE: "probe_cpu_s",
}
"""Keys of the numbers that each of these families needs. A family is complete or missing."""
QUOTED_WORDS = re.compile(r'"[^"]*"')
"""Pattern of quoted words in a reason. They are never exported, since they may name programs."""
MAX_REASON_LENGTH = 200
FIRST_READS_NS, FIRST_READS_SAMPLES = 3_000_000_000, 3
"""Until this many ns and samples after the start, a number that can be read here is not called
missing: a wait of tasks is the difference between two scans, which are a second apart."""
Detail = Literal["package", "core", "cpu"]
Labels = Mapping[str, object]


class Family(NamedTuple):
    heading: Heading
    lines: str
    series: int
    """Number of series; each is one line."""


def make_family(heading: Heading, values: Iterable[tuple[Labels, float]]) -> Family:
    """Returns a family with a series for each value that is not NaN."""
    known_values = ((names, value) for names, value in values if not math.isnan(value))
    lines = [f"{heading.sample}{labels(**names)} {value:.15g}\n" for names, value in known_values]
    return Family(heading, "".join(lines), len(lines))


def grid_family(
    heading: Heading, places: Sequence[str], values: Floats, label: str = "",
    names: Sequence[str] = ("",),
) -> Family:  # fmt: skip
    """Returns a family with a series for each name and place. `places`: labels of CPUs, cores or
    packages as text. `values`: (names, places), NaN where unknown."""
    values = values.reshape(len(names), -1)
    known_mask = np.isfinite(values)
    series = []
    for name, is_known in zip(names, known_mask.tolist(), strict=True):
        own_label = labels(**{label: name}) if label else ""
        series += [
            f"{place[:-1]},{own_label[1:]}" if place and own_label else place or own_label
            for place in compress(places, is_known)
        ]
    # One format for all values takes half the time of a format for each value.
    lines = "".join(f"{heading.sample}{text} \n" for text in series).replace("%", "%%")
    return Family(heading, lines.replace("\n", "%.15g\n") % tuple(values[known_mask]), len(series))


# --- the page that Prometheus reads


class Page:
    def __init__(
        self, session: Session, detail: Detail = "package", *, owners: bool = False
    ) -> None:
        self._session, self._detail = session, detail
        self._sums, self._core_time = Sums(session), CoreTime(session)
        self._episodes = EpisodeSums(session)
        self._task_time = TaskTime(session, by_owner=owners)
        self._reasons = lasting_reasons(session)
        first_cpus = [cpus[0] for cpus in session.hello.packages]
        numbers = [session.topology[session.position[cpu]].package for cpu in first_cpus]
        packages = [{} if number is None else {"package": number} for number in numbers]
        self._known_packages = [labels(**package_labels) for package_labels in packages]
        """Labels of the packages as text, in the order of hello."""
        self._packages: list[Labels] = [*packages, {}]
        """Labels of the packages; the last ones are for CPUs of no known package (index -1)."""
        package = self._sums.package % len(self._packages)
        self._members = [np.flatnonzero(package == index) for index in range(len(self._packages))]
        """For each package, the indices of its CPUs in hello."""
        self._cores: tuple[Cores | None, list[int], Sequence[str]] = (None, [], [])
        """The core list, and for this list the cores shown and their labels."""
        self._highest_values: dict[str, Floats] = {}
        """The highest values so far, by family. Counters must never decrease, but read skew can
        lower a value by some ns."""
        self._texts: dict[bool, bytes] = {}

    def add_sample(self, since_ns: int) -> None:
        """Adds the session's newest sample, if any, which began at `since_ns`."""
        if (newest := self._session.newest_samples) is not None:
            sample = Sample(newest[0], newest[2] - 1)
            self._sums.add(sample)
            self._core_time.add(sample, (self._session.now_ns - since_ns) / 1e9)
            self._episodes.add(sample, since_ns)
            self._task_time.add_task_scan()
            self._texts.clear()

    def text(self, *, openmetrics: bool) -> bytes:
        """Returns the whole page, as of the newest sample."""
        if openmetrics not in self._texts:
            parts: list[str] = []
            for heading, lines, _ in self.families():
                parts += [heading.openmetrics if openmetrics else heading.text, lines]
            self._texts[openmetrics] = "".join([*parts, END_LINE * openmetrics]).encode()
        return self._texts[openmetrics]

    @property
    def series(self) -> int:
        return sum(family.series for family in self.families())

    def families(self) -> list[Family]:
        """Returns the families of the page. The second-last lists missing families and reasons."""
        families = [family for family in self._all_families() if family.series]
        shown_names, sums = {family.heading.sample for family in families}, self._sums
        parts = [
            (f"{CPU.sample}:{mode}", key, not sums.known_seconds[index].any())
            for index, (mode, key) in enumerate(TIME_MODES.items())
        ]
        for heading, rings in PRIVILEGE_RINGS.items():
            for key, ring in rings.items():
                part = f"{heading.sample}:{ring}" if len(rings) > 1 else heading.sample
                parts.append((part, key, not sums.known_counts[COUNT_KEYS.index(key)].any()))
        parts.append((SMT.sample, "smt", not self._core_time.seconds[:, :-1].any()))
        parts += [(h.sample, key, h.sample not in shown_names) for h, key in NEEDED_KEYS.items()]
        rows = []
        for sample, key, is_absent in parts:
            if reason_text := self._missing_reason(key, is_absent=is_absent):
                reason = QUOTED_WORDS.sub("a program", reason_text)[:MAX_REASON_LENGTH]
                rows.append(({"what": sample, "why": reason}, 1.0))
        families += [make_family(MISSING_FAMILIES, rows)] if rows else []
        count = sum(family.series for family in families) + 1
        return [*families, make_family(SERIES, [({}, count)])]

    def _missing_reason(self, key: str, *, is_absent: bool) -> str:
        """Returns the reason why the numbers with these keys are missing, on all CPUs (`is_absent`)
        or on some; '' if there is none, or if the first read may still come."""
        for reason in (m for part in key.split() for m in self._reasons if m.what == part):
            if reason.cpus is not None:
                return f"{reason.why} (CPUs {ranges(reason.cpus)})"
            if is_absent:
                return reason.why
        session = self._session
        first_reads_ns = max(FIRST_READS_NS, FIRST_READS_SAMPLES * session.hello.sample_ns)
        if not is_absent or session.now_ns - session.hello.raw_ns < first_reads_ns:
            return ""
        return BOUNDS_REASON if key == "smt" else UNREAD_REASON

    def _all_families(self) -> Iterator[Family]:
        session, sums, hello = self._session, self._sums, self._session.hello
        info = {"version": hello.perftop, "model": hello.identity.name, "source": hello.source}
        info["smt_method"] = stat_lines.smt_method(session)
        yield make_family(INFO, [(info, 1.0)])
        yield self._smt_family()
        yield self._cpu_family(CPU, "mode", list(TIME_MODES), sums.seconds, sums.known_seconds)
        for heading, rings in PRIVILEGE_RINGS.items():
            rows = [COUNT_KEYS.index(key) for key in rings]
            names = list(rings.values())
            counts, known_counts = sums.counts[rows], sums.known_counts[rows]
            yield self._cpu_family(heading, "ring", names, counts, known_counts)
        yield from self._episode_families()
        owners = self._task_time.seconds.items()
        yield make_family(OWNER, (({"owner": o, "state": state}, s) for (o, state), s in owners))
        waited_s = self._task_time.waited_s
        yield self._cpu_family(WAIT, "", [""], np.nan_to_num(waited_s), np.isfinite(waited_s))
        pressure = np.array([sums.increments(key) for key in PRESSURE_KEYS])
        yield grid_family(PRESSURE, [""], pressure, "resource", ("cpu", "memory", "io"))
        ceiling_hz, package = self._core_time.ceiling_hz, self._core_time.cores.package
        is_known = np.isfinite(ceiling_hz)
        by_package = [is_known & (package == index) for index in range(len(self._known_packages))]
        means = [ceiling_hz[cores].mean() if cores.any() else np.nan for cores in by_package]
        base_hz = math.nan if hello.base_hz is None else hello.base_hz.hz
        for heading, values in (
            (CEILING, np.array(means)),
            (BASE_CLOCK, np.full(len(self._known_packages), base_hz)),
            (LIMIT, sums.gauges["power_limit_w"]),
            (TEMPERATURE, sums.gauges["temperature_c"]),
            (ENERGY, sums.increments("energy_j")),
            (DRAM_ENERGY, sums.increments("energy_ram_j")),
        ):
            yield grid_family(heading, self._known_packages, values)
        traffic = np.array([sums.increments(key) for key in TRAFFIC_KEYS])
        yield grid_family(MEMORY, self._known_packages, traffic, "direction", ("read", "write"))
        yield make_family(TSC, [({}, math.nan if hello.tsc_hz is None else hello.tsc_hz.hz)])
        yield make_family(SUSPECT, (({"reason": r}, n) for r, n in sums.suspects.items()))
        yield make_family(LOST_SAMPLES, [({}, session.dropped_frames)])
        yield make_family(PROBE, [({}, session.probe_cpu_s())])
        yield make_family(EXPORTER, [({}, time.process_time())])

    @cached_property
    def _cpus(self) -> Sequence[str]:
        rows = zip(self._sums.package.tolist(), self._session.hello.topology, strict=True)
        return [labels(**self._packages[package], cpu=row.cpu) for package, row in rows]

    def _cpu_family(
        self, heading: Heading, label: str, names: Sequence[str], sums: Floats, is_known: Bools
    ) -> Family:
        """Returns a family of sums by package or by CPU. `sums`: (names, CPUs)."""
        place_labels = self._cpus
        if self._detail != "cpu":
            place_labels = [*self._known_packages, ""]
            sums = np.stack([sums[:, cpus].sum(axis=1) for cpus in self._members], axis=1)
            is_known = np.stack([is_known[:, cpus].any(axis=1) for cpus in self._members], axis=1)
        highest = np.maximum(sums, self._highest_values.get(heading.name, 0.0))
        self._highest_values[heading.name] = highest
        values = np.where(is_known, highest, np.nan)
        return grid_family(heading, place_labels, values, label, names)

    def _smt_family(self) -> Family:
        core_time = self._core_time
        if self._cores[0] is not core_time.cores:
            session, cores = self._session, self._session.selected_cores()
            place_labels: Sequence[str] = [*self._known_packages, ""]
            if self._detail != "package":
                # Cores whose kernel number is equal or unknown are named after their first CPU.
                first_cpus = [core_time.cores.lists[core][0] for core in cores]
                rows = [session.topology[session.position[cpu]] for cpu in first_cpus]
                same_cores = Counter((row.package, row.core) for row in rows)
                names = [
                    row.core
                    if row.core is not None and same_cores[row.package, row.core] == 1
                    else f"cpu{row.cpu}"
                    for row in rows
                ]
                of_packages = (self._packages[core_time.cores.package[core]] for core in cores)
                pairs = zip(of_packages, names, strict=True)
                place_labels = [labels(**package, core=name) for package, name in pairs]
            self._cores = core_time.cores, cores, place_labels
        _, cores, place_labels = self._cores
        if not core_time.seconds[cores].any():
            return Family(SMT, "", 0)
        seconds = core_time.seconds[cores]
        if self._detail == "package":
            packages = core_time.cores.package[cores]
            by_package = np.full(core_time.unlisted_s.shape, np.nan)  # last row: no known package
            for package in distinct(packages):
                unlisted_s = core_time.unlisted_s[package]
                by_package[package] = seconds[packages == package].sum(axis=0) + unlisted_s
            seconds = by_package
        return grid_family(SMT, place_labels, seconds.T, "state", CORE_STATES)

    def _episode_families(self) -> Iterator[Family]:
        sums, packages, session = self._episodes, self._packages, self._session
        is_known = np.zeros(len(session.topology), bool)
        for _, mask in session.evaluator.variants["busy_hz"]:
            is_known |= mask
        is_known &= self._sums.is_selected & session.reader.turbo.cpus
        with_ceiling = distinct(self._sums.package[is_known])
        below_s = {(package, cause): 0.0 for package in with_ceiling for cause in CAUSES}
        below_s |= sums.below_s
        for heading, sums_by_cause in (
            (BELOW_CEILING_SECONDS, below_s),
            (BELOW_CEILING_CYCLES, sums.below_cycles),
        ):
            labelled_sums = (
                ({**packages[package], "cause": cause}, n)
                for (package, cause), n in sums_by_cause.items()
            )
            yield make_family(heading, labelled_sums)
        counts = {key: float(count) for key, count in sums.count.items()}
        for heading, values in (EPISODES, counts), (EPISODE_SECONDS, sums.seconds):
            labelled_sums = (
                ({**packages[package], "kind": kind, "cause": cause}, n)
                for (package, kind, cause), n in values.items()
            )
            yield make_family(heading, labelled_sums)
