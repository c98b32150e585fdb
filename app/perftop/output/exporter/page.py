"""The page that Prometheus scrapes, made from the sums so far, at most once a sample and form."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.cores import Cores
from perftop.model.memory import TRAFFIC_KEYS
from perftop.output import stat_json
from perftop.output.exporter import families as family
from perftop.output.exporter.absent import Absent
from perftop.output.exporter.core_time import KNOWN, CoreTime
from perftop.output.exporter.happened import CAUSES, Happened
from perftop.output.exporter.lines import Family, Grids, Labels, several, single
from perftop.output.exporter.sums import COUNTS, MODES, Sums
from perftop.output.exposition import END, Heading
from perftop.session.session import Session

Detail = Literal["package", "core", "cpu"]
DETAILS: tuple[Detail, ...] = ("package", "core", "cpu")


class Page:
    def __init__(self, session: Session, detail: Detail = "package") -> None:
        self._session, self._detail = session, detail
        self.sums, self.core_time = Sums(session), CoreTime(session)
        self.happened = Happened(session)
        self._absent = Absent(session, self.sums, self.core_time)
        self._packages = [_package(session, cpus) for cpus in session.hello.packages]
        self._known: Sequence[Labels] = self._packages[:]
        self._packages.append({})
        """Labels by position; the last are of what is in no known package, whose position is -1."""
        of = self.sums.package % len(self._packages)
        self._members = [np.flatnonzero(of == at) for at in range(len(self._packages))]
        """CPUs by package, as positions."""
        self._cores: tuple[Cores | None, list[int], Sequence[Labels]] = (None, [], [])
        """The cores shown, with their labels; made anew when cores were regrouped."""
        self._grids = Grids()
        self._highest: dict[str, Floats] = {}
        """The highest values shown so far, by family. Read skew takes back some ns now and then; a
        counter must not."""
        self._made: dict[bool, bytes] = {}

    def take(self, since_ns: int) -> None:
        """Add the session's newest sample, which began at `since_ns`."""
        sample = self._session.sample
        if sample is not None:
            self.sums.take(sample)
            self.core_time.take(sample, (self._session.now_ns - since_ns) / 1e9)
            self.happened.take(sample, since_ns)
            self._made.clear()

    def text(self, *, openmetrics: bool) -> bytes:
        """The whole page, as of the newest sample."""
        if openmetrics not in self._made:
            parts: list[str] = []
            for heading, lines, _ in self.families():
                parts += [heading.openmetrics if openmetrics else heading.text, lines]
            self._made[openmetrics] = "".join([*parts, END * openmetrics]).encode()
        return self._made[openmetrics]

    @property
    def series(self) -> int:
        return sum(one.series for one in self.families())

    def families(self) -> list[Family]:
        found = [one for one in self._all() if one.series]
        missing = self._absent.family({one.heading.sample for one in found})
        found += [missing] if missing.series else []
        return [*found, single(family.SERIES, sum(one.series for one in found) + 1)]

    def _all(self) -> Iterator[Family]:
        session, sums, hello = self._session, self.sums, self._session.hello
        yield single(family.INFO, 1, **self._info)
        yield self._states()
        yield self._of_cpus(family.CPU, "mode", list(MODES), sums.seconds, sums.told_seconds)
        for heading, rings in family.RINGS.items():
            at = [COUNTS.index(key) for key in rings]
            names = list(rings.values())
            yield self._of_cpus(heading, "ring", names, sums.counts[at], sums.told_counts[at])
        yield from self._episodes()
        base = math.nan if hello.base_hz is None else hello.base_hz.hz
        for heading, values in (
            (family.CEILING, self._ceilings()),
            (family.BASE, np.full(len(self._known), base)),
            (family.LIMIT, sums.gauges["power_limit_w"]),
            (family.TEMPERATURE, sums.gauges["temperature_c"]),
            (family.ENERGY, sums.told("energy_j")),
            (family.DRAM_ENERGY, sums.told("energy_ram_j")),
        ):
            yield self._grids.family(heading, self._known, values)
        moved = np.array([sums.told(key) for key in TRAFFIC_KEYS])
        yield self._grids.family(family.MEMORY, self._known, moved, "direction", ("read", "write"))
        yield single(family.TSC, math.nan if hello.tsc_hz is None else hello.tsc_hz.hz)
        yield several(family.SUSPECT, (({"reason": r}, n) for r, n in sums.suspects.items()))
        yield single(family.LOST, session.lost)
        yield single(family.PROBE, session.probe_cpu_s())
        yield single(family.EXPORTER, time.process_time())

    @cached_property
    def _info(self) -> Labels:
        hello = self._session.hello
        return {
            "version": hello.perftop,
            "model": hello.identity.name,
            "source": hello.source,
            "smt_method": stat_json.smt_method(self._session),
        }

    @cached_property
    def _cpus(self) -> Sequence[Labels]:
        rows = zip(self.sums.package.tolist(), self._session.hello.topology, strict=True)
        return [{**self._packages[at], "cpu": row.cpu} for at, row in rows]

    def _of_cpus(
        self, heading: Heading, label: str, names: Sequence[str], sums: Floats, told: Bools
    ) -> Family:
        """Sums by CPU, (names, CPUs), shown by package or by CPU."""
        places = self._cpus
        if self._detail != "cpu":
            places = self._packages
            sums = np.stack([sums[:, cpus].sum(axis=1) for cpus in self._members], axis=1)
            told = np.stack([told[:, cpus].any(axis=1) for cpus in self._members], axis=1)
        highest = np.maximum(sums, self._highest.get(heading.name, 0.0))
        self._highest[heading.name] = highest
        values = np.where(told, highest, np.nan)
        return self._grids.family(heading, places, values, label, names)

    def _states(self) -> Family:
        core_time = self.core_time
        if self._cores[0] is not core_time.cores:
            at = self._session.shown_cores()
            places = self._packages if self._detail == "package" else self._named(at)
            self._cores = core_time.cores, at, places
        _, at, places = self._cores
        if not core_time.seconds[at].any():
            return Family(family.SMT, "", 0)
        seconds = core_time.seconds[at]
        if self._detail == "package":
            seconds = self._states_by_package(core_time.cores.package[at], seconds)
        return self._grids.family(family.SMT, places, seconds.T, "state", KNOWN)

    def _states_by_package(self, of: Ints, seconds: Floats) -> Floats:
        """(packages, KNOWN), the last of what is in no known package; NaN: it has no core."""
        found = np.full(self.core_time.gone.shape, np.nan)
        for package in np.unique(of):
            gone = self.core_time.gone[package]
            found[package] = seconds[of == package].sum(axis=0) + gone
        return found

    def _named(self, at: Sequence[int]) -> Sequence[Labels]:
        """The kernel gives some cores the same number, or none: these have the name of their first
        CPU."""
        session, cores = self._session, self.core_time.cores
        rows = [session.topology[session.position[cores.lists[core][0]]] for core in at]
        alike = Counter((row.package, row.core) for row in rows)
        return [
            {
                **self._packages[cores.package[core]],
                "core": f"cpu{row.cpu}"
                if row.core is None or alike[row.package, row.core] > 1
                else row.core,
            }
            for core, row in zip(at, rows, strict=True)
        ]

    def _ceilings(self) -> Floats:
        hz, of = self.core_time.ceiling_hz, self.core_time.cores.package
        known = [(of == package) & np.isfinite(hz) for package in range(len(self._known))]
        return np.array([hz[cores].mean() if cores.any() else np.nan for cores in known])

    def _episodes(self) -> Iterator[Family]:
        happened, packages = self.happened, self._packages
        session = self._session
        clocks = [mask for _, mask in session.evaluator.chosen["busy_hz"]]
        known = np.any([np.zeros_like(self.sums.shown), *clocks], axis=0) & self.sums.shown
        told = np.unique(self.sums.package[known & session.reader.turbo.cpus]).tolist()
        below = {(at, cause): 0.0 for at in told for cause in CAUSES}
        by_place = (
            (family.BELOW, below | happened.below_s),
            (family.BELOW_CYCLES, happened.below_cycles),
        )
        for heading, found in by_place:
            places = (({**packages[at], "cause": cause}, n) for (at, cause), n in found.items())
            yield several(heading, places)
        counted = {key: float(count) for key, count in happened.count.items()}
        for heading, each in (family.EPISODES, counted), (family.EPISODE_SECONDS, happened.seconds):
            kinds = (({**packages[at], "kind": kind, "cause": cause}, n)
                     for (at, kind, cause), n in each.items())  # fmt: skip
            yield several(heading, kinds)


def _package(session: Session, cpus: Sequence[int]) -> Labels:
    number = session.topology[session.position[cpus[0]]].package
    return {} if number is None else {"package": number}
