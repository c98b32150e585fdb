"""Sums over all samples of a session, which Prometheus calls counters. They are kept by CPU, core
or package, in float64, and aggregated on output. Only reliable values are added."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.control_groups import process_owner
from perftop.model.counters import Cores, packages
from perftop.model.delta import Doubt, distinct
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample
from perftop.model.smt import STATES
from perftop.session.episodes import LATE_NS, LATE_SAMPLES
from perftop.session.session import Session

# --- sums by CPU and by package

TIME_MODES = {"busy": "util", "idle": "idle", "poll": "poll", "involuntary_halt": "involuntary",
         "steal": "steal"}  # fmt: skip
"""Modes that divide the time of a CPU, each with the key of its metric."""
POLL_INDEX = list(TIME_MODES).index("poll")
COUNT_KEYS = "cycles", "instructions", "ref", "kernel_cycles", "kernel_instructions"
LINKED_COUNTS = 3
"""Number of leading COUNT_KEYS that are added together or not at all. Other counts are added only
together with these."""
GAUGE_KEYS = "power_limit_w", "temperature_c"
PACKAGE_COUNTER_KEYS = "energy_j", "energy_ram_j", "memory_read_bytes", "memory_write_bytes"
"""Keys of the counters of packages."""
PRESSURE_KEYS = "pressure_cpu_s", "pressure_memory_s", "pressure_io_s"
"""Keys of the counters of the machine."""


class Sums:
    """Sums by CPU and by package. The modes of a CPU's time are added all together or not at all,
    and so are its cycles, instructions and reference cycles. So ratios of sums are consistent."""

    def __init__(self, session: Session) -> None:
        self._session = session
        hello, cpus = session.hello, len(session.hello.topology)
        self.package = packages(hello)
        """Index of the package of each CPU; -1 if unknown."""
        self.is_selected: Bools = np.isin(np.arange(cpus), session.selected)
        """Mask of the CPUs that the user selected."""
        self.seconds = np.zeros((len(TIME_MODES), cpus))
        self.counts = np.zeros((len(COUNT_KEYS), cpus))
        self.known_seconds, self.known_counts = self.seconds > 0, self.counts > 0
        """Masks of the sums that have received a value. The others are unknown."""
        self._increments = {key: np.zeros(len(hello.packages)) for key in PACKAGE_COUNTER_KEYS}
        self._increments |= {key: np.zeros(1) for key in PRESSURE_KEYS}
        self._known_increments = {key: total > 0 for key, total in self._increments.items()}
        self.gauges = {key: np.full(len(hello.packages), np.nan) for key in GAUGE_KEYS}
        """The last known value of each package, by key; NaN before the first value."""
        self.suspects = {doubt.name.lower(): 0 for doubt in Doubt}
        """Number of samples with a suspect counter, by reason and summed over CPUs."""
        evaluator, keys, positions = (
            session.evaluator,
            TIME_MODES.values(),
            session.counters.key_indexes,
        )
        needs = ({"tsc", *evaluator.needed_counters(key)} & positions.keys() for key in keys)
        self._needs = [[positions[counter] for counter in counters] for counters in needs]
        """By mode, the counters that it needs, as indices in `Counters.keys`."""
        has_mode = [evaluator.cpus_with(key) for key in keys]
        self._is_exported: Bools = np.array(has_mode, bool)
        is_counted = map(session.counters.is_counted, COUNT_KEYS)
        self._has_counter: Bools = np.array([*is_counted], bool)
        self._polls: Bools = np.zeros(cpus, bool)
        """Mask of the CPUs whose reference cycles, and thus busy time, include polling."""
        for variant, mask in evaluator.variants["util"]:
            self._polls |= mask & ("ref" in variant.needs) & self._is_exported[POLL_INDEX]

    def add(self, sample: Sample) -> None:
        delta, counters, values = sample.delta, self._session.counters, sample.values
        metrics = [INDEX[key] for key in TIME_MODES.values()]
        seconds = values.numerators[metrics]
        seconds[0] -= np.where(self._polls, seconds[POLL_INDEX], 0.0)
        is_known = np.isfinite(seconds) & self._is_exported & self.is_selected
        if delta.doubts.any():
            is_doubted = np.array([delta.doubts[:, needs].any(axis=1) for needs in self._needs])
            is_known &= ~(is_doubted & self._is_exported).any(axis=0)
        self.seconds += np.where(is_known, seconds, 0.0)
        self.known_seconds |= is_known & (values.denominators[metrics] > 0)

        no_counts = np.full(len(self.is_selected), np.nan)
        all_counts = [counters.increments(delta, key) for key in COUNT_KEYS]
        counts = np.array([no_counts if n is None else n for n in all_counts])
        is_bad = self._has_counter & ~np.isfinite(counts)
        is_bad |= is_bad[:LINKED_COUNTS].any(axis=0)
        is_known = self._has_counter & ~is_bad & self.is_selected & (delta.tables["cpu"].ticks > 0)
        self.counts += np.where(is_known, counts, 0.0)
        self.known_counts |= is_known

        for key in self._increments:
            if (increments := counters.increments(delta, key)) is not None:
                ticks = delta.tables[counters.columns[key].block].ticks
                is_known = np.isfinite(increments) & (ticks > 0)
                self._increments[key] += np.where(is_known, increments, 0.0)
                self._known_increments[key] |= is_known
        for key, last_value in self.gauges.items():
            if (rates := counters.rates(delta, key)) is not None:
                last_value[:] = np.where(np.isfinite(rates), rates, last_value)
        for doubt in Doubt if delta.doubts.any() else ():
            is_doubted = (delta.doubts == doubt).any(axis=1) & self.is_selected
            self.suspects[doubt.name.lower()] += int(is_doubted.sum())

    def increments(self, key: str) -> Floats:
        """Returns the sum of a counter by package or of the machine; NaN where unknown."""
        return np.where(self._known_increments[key], self._increments[key], np.nan)


# --- sums by core

CORE_STATES = (*STATES, "unknown")
MAX_READ_DELAY = 0.5
"""Maximum delay of a read, as a share of a sample. Time after that is unknown."""


class CoreTime:
    """Seconds of cores in each SMT state. The state `unknown` is time that is suspect or not
    covered by a read. All states add up to the time for which the core was online."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.cores: Cores = session.reader.cores
        self.seconds = np.zeros((len(self.cores.lists), len(CORE_STATES)))
        """Seconds of each core in each state."""
        self.unlisted_s = np.zeros((len(session.hello.packages) + 1, len(CORE_STATES)))
        """Seconds of cores that are no longer in the core list, by package. The last row is for
        cores of no known package."""
        self._owed_s = np.zeros((2, len(self.cores.lists)))
        """For each core, the seconds of samples that no read has covered yet: now, and just after
        its second-last read. Negative if the reads so far cover more time than the samples."""
        self.ceiling_hz: Floats = np.full(len(self.cores.lists), np.nan)
        """The lowest turbo ceiling of each core in the newest sample."""

    def add(self, sample: Sample, span_s: float) -> None:
        if self.cores is not self._session.reader.cores:
            self._regroup(self._session.reader.cores)
        cores, counters = self.cores, self._session.counters
        self.ceiling_hz = sample.ceilings.hz
        core_online = cores.sum_of_threads(self._session.online.astype(float)) > 0
        read_s = cores.max_of_threads(sample.delta.tables["cpu"].ticks) / counters.stamp_hz
        read_s = np.where(core_online & np.isfinite(read_s), read_s, 0.0)
        owed_s, owed_before_s = self._owed_s
        owed_s = np.where(core_online, owed_s + span_s - read_s, 0.0)
        finite = np.isfinite(sample.split.states)
        known_s = np.where(finite, sample.split.states, 0.0) * read_s[:, None]
        self.seconds[:, :-1] += known_s
        self.seconds[:, -1] += np.where(finite.all(axis=1), 0.0, read_s - known_s.sum(axis=1))
        delay_s = MAX_READ_DELAY * self._session.hello.sample_ns / 1e9
        # The time that an early read leaves over is covered by the next read, so it is not lost.
        lost_s = np.where(read_s > 0, np.minimum(owed_s, owed_before_s), 0.0)
        lost_s[lost_s <= delay_s] = 0.0
        self.seconds[:, -1] += lost_s
        owed_s -= lost_s
        self._owed_s = np.array([owed_s, np.where(read_s > 0, owed_s, owed_before_s)])

    def _regroup(self, new_cores: Cores) -> None:
        """Uses a new core list. Adds the time of old cores to the new cores with their CPUs."""
        old_cores, seconds, owed_s = self.cores, self.seconds, self._owed_s
        self.cores, count = new_cores, len(new_cores.lists)
        self.seconds, self._owed_s = np.zeros((count, len(CORE_STATES))), np.zeros((2, count))
        for old_core, new_core in enumerate(new_cores.core_indexes(old_cores.lists)):
            if new_core < 0:
                self.unlisted_s[old_cores.package[old_core]] += seconds[old_core]
            else:
                self.seconds[new_core] += seconds[old_core]
                self._owed_s[:, new_core] = owed_s[:, old_core]


# --- sums by owner of tasks

MAX_OWNERS = 32
"""Maximum number of owners of tasks (jobs, pods, containers, units) with series of their own."""
OTHER_OWNERS, ROOT_GROUP = "(others)", "(root)"
"""Names for all further owners together, and for the root control group."""


class TaskTime:
    """Seconds that tasks waited, by CPU, and that each owner's tasks ran and waited. Scans report
    only the busiest tasks of each CPU. A task has an owner once its control group is known."""

    def __init__(self, session: Session, *, by_owner: bool = True) -> None:
        self._session, self._snapshot, self._scanned_ns = session, session.snapshot, session.now_ns
        self._by_owner = by_owner
        self.waited_s = np.full((1, len(session.topology)), np.nan)
        """Seconds that tasks waited, by CPU; NaN where unknown."""
        self.seconds: dict[tuple[str, str], float] = {}
        """Seconds by owner and state (`run` or `wait`)."""
        self._owners: set[str] = set()

    def add_task_scan(self) -> None:
        """Adds the newest scan of tasks, unless it was already added."""
        session = self._session
        if session.snapshot is self._snapshot:
            return
        self._snapshot, span_s = session.snapshot, (session.now_ns - self._scanned_ns) / 1e9
        self._scanned_ns = session.now_ns
        for row in session.selected:
            activity = self._snapshot.activity_on(str(session.topology[row].cpu))
            if self._snapshot.waits is not None:
                waits = [wait for _, wait, _ in activity if wait >= 0]  # a wait may be NaN
                self.waited_s[0, row] = np.nan_to_num(self.waited_s[0, row]) + sum(waits) * span_s
            for task, wait, _ in activity if self._by_owner else ():
                if (details := session.details.get(str(task.pid))) is None:
                    continue
                owner = process_owner(details) or ROOT_GROUP
                if owner in self._owners or len(self._owners) < MAX_OWNERS:
                    self._owners.add(owner)
                else:
                    owner = OTHER_OWNERS
                for state, share in (("run", task.share), ("wait", wait)):
                    if share >= 0:
                        sum_s = self.seconds.get((owner, state), 0.0)
                        self.seconds[owner, state] = sum_s + share * span_s


# --- sums of episodes, by package and cause

DROP = "turbo-drop"
CAUSES = ("policy", "license", "power-pl1", "power-pl2", "power-ppt", "current", "thermal",
          "prochot", "vr", "hwp", "hypervisor", "unknown")  # fmt: skip
"""Causes of a clock below its ceiling. They are label values, which must not change."""
EpisodeKey = tuple[int, str, str]
"""Index of the package (-1 for none), kind and cause of an episode."""
PackageCause = tuple[int, str]


PendingSample = tuple[int, int, Floats, Cores]
"""A sample that is not in the sums yet, because its episodes may still change: its start and end,
the cycles that each core lost to a clock below its ceiling, and the core list."""


class EpisodeSums:
    """Sums of the number, duration and cost of episodes. Counters must never decrease, so samples
    wait until their episodes can no longer turn out to have ended or to have another cause."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._late_ns = max(LATE_NS, LATE_SAMPLES * session.hello.sample_ns)
        self._waiting: deque[PendingSample] = deque()
        packages = enumerate(session.hello.packages)
        self._package = {cpu: package for package, cpus in packages for cpu in cpus}
        self.count: defaultdict[EpisodeKey, int] = defaultdict(int)
        self.seconds: defaultdict[EpisodeKey, float] = defaultdict(float)
        self.below_s: defaultdict[PackageCause, float] = defaultdict(float)
        """Seconds with at least one core of a package below its ceiling, by package and cause."""
        self.below_cycles: defaultdict[PackageCause, float] = defaultdict(float)

    def add(self, sample: Sample, since_ns: int) -> None:
        now_ns, cores = self._session.now_ns, self._session.reader.cores
        clock = INDEX["busy_hz"]
        cycles, run_s = sample.values.numerators[clock], sample.values.denominators[clock]
        is_known = np.isfinite(cycles) & np.isfinite(run_s)
        cycles, run_s = (
            cores.sum_of_threads(np.where(is_known, part, 0.0)) for part in (cycles, run_s)
        )
        lost_cycles = np.maximum(0.0, np.nan_to_num(sample.ceilings.low_hz) * run_s - cycles)
        self._waiting.append((since_ns, now_ns, lost_cycles, cores))
        while self._waiting and self._waiting[0][1] <= now_ns - self._late_ns:
            self._settle(*self._waiting.popleft())

    def _settle(self, since_ns: int, end_ns: int, lost_cycles: Floats, cores: Cores) -> None:
        below_by_key: dict[PackageCause, float] = {}
        for episode in self._session.episodes(since_ns - 1, end_ns):
            seconds = episode.span_s(since_ns, end_ns)
            begins = since_ns <= episode.start_ns < end_ns
            # Suspect episodes have lists of counters as causes, which are too many for labels.
            cause = "counters" if episode.kind == "suspect" else episode.cause
            for package in sorted({self._package.get(cpu, -1) for cpu in episode.cpus}):
                key = package, episode.kind, cause
                self.seconds[key] += seconds
                self.count[key] += begins
                if episode.kind == DROP:
                    below_by_key[package, cause] = max(
                        below_by_key.get((package, cause), 0.0), seconds
                    )
            if episode.kind == DROP and seconds:
                is_slow = cores.contains_any(episode.cpus)
                for package in distinct(cores.package[is_slow]):
                    cycles = lost_cycles[is_slow & (cores.package == package)]
                    self.below_cycles[package, episode.cause] += float(cycles.sum())
        for package_cause, below_s in below_by_key.items():
            self.below_s[package_cause] += below_s
