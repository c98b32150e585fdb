"""Detects that a sibling slows a CPU down, by the CPU's IPC (instructions per cycle) while the
sibling is idle and while it runs.

A program may be slower for reasons of its own, so three conditions must hold: the same task was
measured both alone and together with a running sibling; it loses more than its IPC varies while
alone; and its IPC changes when the sibling starts and stops (see `SiblingHistory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import CpuWork, RunningEpisodes, busy_work, cpu_work
from perftop.detect.losses import NeighbourLoss, NeighbourLosses, blamed_tasks
from perftop.model.confidence import ValueWithMax, confidence
from perftop.model.counters import Cores
from perftop.model.delta import add_samples, first_true, latest_known_values
from perftop.model.kinds import Episode
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader
from perftop.model.smt import SmtShares
from perftop.model.tasks import RunningTasks

LOSS_START, LOSS_END = 0.1, 0.05
"""Shares of the undisturbed IPC at which a loss starts and below which it ends, also for losses to
memory. IPC varies by a few per cent from sample to sample, and moving a job is not worth a gain of
less than 10 %. LOSS_END is so low that a loss near LOSS_START is one episode."""
MAX_ALONE_OVERLAP, MIN_TOGETHER_OVERLAP = 0.1, 0.5
"""A CPU is alone if its sibling runs for less than MAX_ALONE_OVERLAP of the CPU's running time:
even if both threads ran at half speed together, the loss would be below LOSS_START. The siblings
are together from MIN_TOGETHER_OVERLAP on: the mean IPC is then mostly that of a shared core."""
MIN_LOSS_DEVIATIONS = 2.0
"""Minimum loss, in standard deviations of the undisturbed IPC. A smaller loss may be chance."""
CONTENTION_KEY = "smt_contention_ratio"
MIN_SIBLING_SLOTS_SHARE = 0.5
"""Minimum share of the lost IPC that issue slots given to the sibling must explain."""
MAX_ALONE_IPC_AGE_NS = 60_000_000_000
"""Maximum age in ns of the IPC while alone. The program may have been in another phase before."""


class _SiblingWork(NamedTuple):
    """The work of each CPU and of its sibling. For several samples, arrays have a leading axis."""

    util: Floats
    """Utilisation; 0 for CPUs that are left out."""
    is_alone: Bools
    """Mask of the CPUs whose IPC is known and whose sibling hardly ran."""
    is_together: Bools
    """Mask of the CPUs whose sibling ran most of the time."""
    cycles: Floats
    ipc: Floats
    overlap: Floats
    """Share of the running time in which the sibling ran; 0 for a CPU without a sibling."""
    sums: Floats
    """Terms of the learned sums, to add while the CPU is alone."""

    def samples(self, samples: int | slice | None) -> _SiblingWork:
        """Returns one sample (an index) or several (a slice). None adds a leading axis."""
        parts: list[Any] = [part[samples] for part in self]
        return _SiblingWork(*parts)


class _LookAhead(NamedTuple):
    """Samples that are examined ahead, and the sums that would be learned from them if no loss
    starts."""

    learned_sums: Floats
    """(1 + samples, rows, CPUs): the learned sums before the first sample and after each."""
    work: _SiblingWork
    run_s: Floats
    """Running seconds, (samples, CPUs)."""

    @property
    def is_together(self) -> Bools:
        """Mask, (samples, CPUs), of the CPUs whose sibling ran most of the time and whose IPC while
        alone is known."""
        return self.work.is_together & (self.learned_sums[1:, CYCLES_ROW] > 0)


class SiblingLosses:
    """Detects that a CPU loses IPC while its sibling runs."""

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, running: RunningTasks, groups: Ints
    ) -> None:
        self._cpu_lists = reader.single_cpus
        self._running = running
        self.losses = NeighbourLosses(reader, episodes, "sibling", groups, LOSS_START, LOSS_END)
        n = len(groups)
        self._programs = UndisturbedPrograms(
            self.losses, self._cpu_lists, running, learned_rows=3, loss_rows=6
        )
        """`loss_sums` are: instructions, cycles, cycles times the IPC while alone, running seconds,
        running seconds with the sibling, cycles whose slots went to the sibling."""
        self._alone_s: Floats = np.zeros(n)
        self._alone_ns: Ints = np.zeros(n, np.int64)
        """Seconds for which each CPU has run alone, and the raw time at which it last ran alone."""
        self._history = SiblingHistory(n, LOSS_START)
        self._has_contention = CONTENTION_KEY in reader.evaluator.metrics
        """Whether the stream counts the slots that go to the sibling."""
        self._cores: object = None

    def regroup(self, cores: Cores) -> None:
        if cores is self._cores:
            return
        self._cores, rows = cores, cores.rows
        pairs = np.zeros(0, int)
        if rows.shape[1] > 1:
            is_pair = (rows[:, 1:2] >= 0).all(axis=1) & (rows[:, 2:] < 0).all(axis=1)
            pairs = np.flatnonzero(is_pair)
        self._pairs, self._rows = pairs, rows[pairs][:, :2]
        self._sibling_rows: Ints = np.full(len(self._alone_s), -1, np.int64)
        """Index of each CPU's sibling; -1 if the CPU has none, or several."""
        self._sibling_rows[self._rows] = self._rows[:, ::-1]

    def process(self, sample: Sample, busy: Bools, job_pids: set[int] | None) -> list[Episode]:
        """Processes one sample. Returns the episodes that ended. `busy`: mask of the CPUs to
        examine. `job_pids`: PIDs of the watched job; None without a job."""
        self.regroup(sample.cores)
        if self.losses.is_quiet and not (len(self._pairs) and np.count_nonzero(busy)):
            return []
        if job_pids is None:
            work = sample.batch.cached(self._work_of_busy_cpus).samples(sample.index)
        else:
            work = self._work(cpu_work(sample.values, busy), sample.split)
        run_s = work.util * ((sample.time_ns - sample.since_ns) / 1e9)
        look_ahead = self._learned_ahead(work.samples(None), run_s[None])
        self.learn_ahead(look_ahead, np.array([sample.time_ns]))
        ended: list[Episode] = []
        if np.count_nonzero(look_ahead.is_together) or not self.losses.is_quiet:
            ended = self._compare(sample, work, run_s, job_pids or set())
        self.update_programs(busy, sample.time_ns)
        return ended

    def has_program_changed(self, busy: Bools, top_task_ids: Ints) -> bool:
        """Returns whether a busy CPU's program differs in a new record of tasks."""
        return bool(len(self._pairs)) and self._programs.has_program_changed(busy, top_task_ids)

    def update_programs(self, busy: Bools, time_ns: int) -> None:
        """Updates the programs if there is a task record at `time_ns`. Must be called after the
        sample at that time was processed."""
        if self._running.time_ns == time_ns and len(self._pairs) and np.count_nonzero(busy):
            changed = self._programs.update_programs(busy)
            self._alone_s[changed] = 0.0
            self._history.reset(changed)

    def look_ahead(
        self, batch: SampleBatch, first: int, last: int
    ) -> tuple[int, _LookAhead | None]:
        """Returns the index of the first sample in which a loss may start, or `last`, and the
        samples for `learn_ahead`, None if no core has two threads. Not valid during a loss."""
        self.regroup(batch.cores)
        if not len(self._pairs):
            return last, None
        part, spans_ns = slice(first, last), batch.time_ns - batch.since_ns
        work = batch.cached(self._work_of_busy_cpus).samples(part)
        learned_ahead = self._learned_ahead(work, work.util * (spans_ns[part, None] / 1e9))
        if not np.count_nonzero(is_together := learned_ahead.is_together):
            return last, learned_ahead
        _, shares, spread = self._programs.compare_ipc(learned_ahead.learned_sums[1:], work.ipc)
        min_share = np.maximum(MIN_LOSS_DEVIATIONS * spread, LOSS_START)
        may_start: Bools = is_together & (shares >= min_share)
        return first + first_true(may_start), learned_ahead

    def learn_ahead(self, look_ahead: _LookAhead | None, time_ns: Ints) -> None:
        """Learns from the first samples of `look_ahead`, which ended at `time_ns`."""
        if look_ahead is None or not len(time_ns):
            return
        learned, (work, run_s) = look_ahead.learned_sums, look_ahead[1:]
        work, run_s = work.samples(slice(len(time_ns))), run_s[: len(time_ns)]
        self._programs.learned_sums = learned[len(time_ns)].copy()
        self._history.add(work)
        self._alone_s = add_samples(self._alone_s, np.where(work.is_alone, run_s, 0.0))
        ends_ns = np.broadcast_to(time_ns[:, None], work.is_alone.shape)
        self._alone_ns = latest_known_values(work.is_alone, (self._alone_ns, ends_ns))[0][-1]

    def _learned_ahead(self, work: _SiblingWork, run_s: Floats) -> _LookAhead:
        """Returns the learned sums before the first sample and after each, without storing them."""
        learned = self._programs.learned_by_sample(work.is_alone, run_s, work.sums)
        return _LookAhead(learned, work, run_s)

    def ipc_alone(self) -> Floats:
        """Returns the IPC of each CPU's program while the sibling was idle; NaN if the sibling was
        never idle, or if the program no longer runs there."""
        instructions, cycles = self._programs.learned_sums[:2]
        is_known = (self._running.top_task_ids == self._programs.top_task_ids) & (cycles > 0)
        return np.where(is_known, instructions / np.maximum(cycles, 1e-9), nan)

    def _compare(
        self, sample: Sample, work: _SiblingWork, run_s: Floats, job_pids: set[int]
    ) -> list[Episode]:
        """Compares the IPC with the IPC while alone. Returns the episodes that ended."""
        ipc, cycles, overlap = work.ipc, work.cycles, work.overlap
        ipc_alone, shares, spread = self._programs.compare_ipc(self._programs.learned_sums, ipc)
        # A CPU loses nothing while its sibling is idle.
        is_unread = np.isnan(sample.values["util"])
        unknown = is_unread | (cycles > 0) & np.isnan(overlap)
        shares = np.where(np.isnan(shares) | (overlap < MAX_ALONE_OVERLAP), 0.0, shares)
        shares = np.where(unknown, np.nan, shares)
        can_start = work.is_together & (shares >= MIN_LOSS_DEVIATIONS * spread)
        ended = self.losses.step(shares, run_s, can_start, sample.since_ns, sample.time_ns)
        if self.losses.is_quiet:  # the usual case
            return ended
        given_cycles = np.zeros(len(cycles))
        if self._has_contention:
            given_cycles = cycles * np.nan_to_num(sample.values[CONTENTION_KEY])
        losing = self.losses.is_losing & np.isfinite(ipc * ipc_alone * overlap)
        parts = ipc * cycles, cycles, cycles * ipc_alone, run_s, run_s * overlap, given_cycles
        self._programs.add_losses(losing, *parts)
        proven = self._programs.is_same_program(self._alone_s) & self._history.ipc_follows_sibling()
        changed = self.losses.begin(proven, self._cpu_lists, sample.time_ns)
        is_new_record = self._running.time_ns == sample.time_ns
        for loss in self.losses.running:
            with_task_names = is_new_record or loss in changed
            self._describe(loss, sample.time_ns, job_pids, with_task_names=with_task_names)
        return ended

    def _work_of_busy_cpus(self, batch: SampleBatch) -> _SiblingWork:
        return self._work(batch.cached(busy_work), batch.split)

    def _work(self, work: CpuWork, split: SmtShares) -> _SiblingWork:
        util, counted, cycles, ipc, sums = work
        overlap = np.empty(util.shape)
        overlap[...] = np.where(self._sibling_rows < 0, 0.0, np.nan)
        both = split.states[..., self._pairs, 3]
        with np.errstate(invalid="ignore", divide="ignore"):
            overlap[..., self._rows] = np.minimum(both[..., None] / util[..., self._rows], 1.0)
        alone, together = counted & (overlap < MAX_ALONE_OVERLAP), overlap >= MIN_TOGETHER_OVERLAP
        return _SiblingWork(util, alone, together, cycles, ipc, overlap, sums.swapaxes(0, -2))

    def _describe(
        self, loss: NeighbourLoss, now_ns: int, job_pids: set[int], *, with_task_names: bool
    ) -> None:
        members, episode = loss.members, loss.episode
        sums = self._programs.loss_sums[:, members].sum(axis=1)
        instructions, cycles, expected, run_s, together_s, slots = sums
        age_ns = now_ns - int(self._alone_ns[members].min())
        has_task_records = bool(self._programs.top_task_ids[members].all())
        weakest_position = min(members, key=lambda i: int(self._history.counts[MATCHES, i]))
        matches, edges = self._history.counts[[MATCHES, SIBLING_CHANGES], weakest_position].tolist()
        is_measured = matches >= MIN_REPEATS and bool(
            self._history.ipc_follows_sibling()[members].all()
        )
        is_recent = age_ns <= MAX_ALONE_IPC_AGE_NS
        episode.evidence |= {
            "ipc": round(float(instructions / cycles), 2),
            "ipc_alone": round(float(expected / cycles), 2),
            "sibling_active_share": round(float(together_s / run_s), 3),
        }
        is_explained = False  # counted issue slots measure the loss better than the earlier IPC
        if self._has_contention:
            episode.evidence["slots_to_sibling"] = round(float(slots / cycles), 3)
            is_explained = bool(
                slots >= MIN_SIBLING_SLOTS_SHARE * (1 - instructions / expected) * cycles
            )
        counted = is_explained or (is_measured and has_task_records and is_recent)
        episode.confidence = confidence("neighbour", "sibling", counted=counted)
        if age_ns > MAX_ALONE_IPC_AGE_NS:
            episode.evidence["since_alone_s"] = round(age_ns / 1e9)
        if with_task_names:
            rows = [row for row in self._sibling_rows[members].tolist() if row >= 0]
            tasks = self._running.top_tasks(cpu for row in rows for cpu in self._cpu_lists[row])
            episode.evidence |= blamed_tasks(tasks, job_pids)
        episode.evidence["changes_with_sibling"] = ValueWithMax(matches, edges)


# --- The IPC of undisturbed programs, with which losses to siblings, memory traffic and the L3 are
# compared.

MIN_INVOLVED_SHARE = 0.25
"""Minimum share of the time since a loss started for which a task must have run to be involved."""
LEARNING_DECAY_S = 10.0
"""Running time in s after which a sample's weight is 1/e, because programs have phases."""
MIN_UNDISTURBED_S = 10.0
"""Minimum time in s for which a CPU without task records must have run undisturbed. After that, the
same program is assumed to run during a loss."""
CYCLES_ROW = 1
"""Row of the cycles in the sums of UndisturbedPrograms."""


class UndisturbedPrograms:
    """The IPC of the program on each CPU without a disturbance, and whether this program still runs
    there. Arrays have one column per CPU."""

    def __init__(
        self,
        losses: NeighbourLosses,
        cpu_lists: Sequence[Sequence[int]],
        running: RunningTasks,
        *,
        learned_rows: int,
        loss_rows: int,
    ) -> None:
        self._losses, self._cpu_lists, self._running = losses, cpu_lists, running
        self.learned_sums: Floats = np.zeros((learned_rows, len(cpu_lists)))
        """Sums while the program was undisturbed: instructions, cycles, cycles times IPC squared,
        and the detector's further rows."""
        self.loss_sums: Floats = np.zeros((loss_rows, len(cpu_lists)))
        self.top_task_ids: Ints = np.zeros(len(cpu_lists), np.int64)
        """ID of the program on each CPU, as in `RunningTasks`."""
        self.is_proven: Bools = np.zeros(len(cpu_lists), bool)
        """Mask of the CPUs on which the program that now loses has been measured undisturbed."""

    def learned_by_sample(self, is_quiet: Bools, run_s: Floats, parts: Floats) -> Floats:
        """Returns the learned sums before the first sample and after each sample, (1 + samples,
        rows, CPUs). `is_quiet`: mask of the samples to add, (samples, CPUs). `run_s`: running
        seconds, (samples, CPUs). `parts`: amounts to add, (samples, rows, CPUs)."""
        weights = np.where(is_quiet, np.exp(-run_s / LEARNING_DECAY_S), 1.0)
        learned = np.empty((len(parts) + 1, *self.learned_sums.shape))
        learned[0] = self.learned_sums
        np.copyto(learned[1:], np.where(is_quiet[:, None], parts, 0.0))
        for before, after, weight in zip(learned, learned[1:], weights, strict=False):
            np.add(after, before * weight, out=after)
        return learned

    def compare_ipc(self, learned: Floats, ipc: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns three arrays by CPU: the undisturbed IPC; the share by which `ipc` is lower; the
        relative standard deviation of the undisturbed IPC. `learned`: (..., rows, CPUs)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = learned[..., :3, :] / learned[..., CYCLES_ROW, None, :]
            undisturbed_ipc, squares = parts[..., 0, :], parts[..., 2, :]
            spread = np.sqrt(np.maximum(squares - undisturbed_ipc**2, 0.0)) / undisturbed_ipc
            return undisturbed_ipc, np.maximum(1 - ipc / undisturbed_ipc, 0.0), spread

    def add_losses(self, is_losing: Bools, *parts: Floats) -> None:
        """Adds a sample to the sums of losses, which start at 0 with each new loss."""
        is_new = self._losses.is_new_loss
        self.loss_sums[:, is_new], self.is_proven[is_new] = 0.0, False
        self.loss_sums[:, is_losing] += np.array(parts)[:, is_losing]

    def has_program_changed(self, busy: Bools, top_task_ids: Ints) -> bool:
        """Returns whether the program on any of the `busy` CPUs has changed. `top_task_ids`: the
        tasks in a new record, as in `RunningTasks`."""
        return bool(np.count_nonzero((top_task_ids != self.top_task_ids) & busy))

    def update_programs(self, busy: Bools) -> Ints:
        """Updates the programs on the `busy` CPUs from a new record of tasks. Returns the positions
        whose program has changed, and resets their learned sums."""
        is_new = (self._running.top_task_ids != self.top_task_ids) & busy
        changed = np.flatnonzero(is_new)
        if len(changed):
            self.top_task_ids = np.where(is_new, self._running.top_task_ids, self.top_task_ids)
            self.learned_sums[:, changed] = 0.0
        if not self._losses.is_quiet:
            is_unproven = self._losses.is_losing & ~self._losses.is_in_episode & busy & ~is_new
            for i in np.flatnonzero(is_unproven).tolist():
                # Its main task must have run after the loss started, and not only before.
                begin_ns, now_ns = self._running.since_ns, self._running.time_ns
                since_ns = max(self._losses.position_losses[i].start_ns, begin_ns)
                first_tasks = self._running.tasks_on(self._cpu_lists[i][0])[:1]
                had_ns = sum(task.share for task in first_tasks) * (now_ns - begin_ns)
                left_ns = had_ns - (since_ns - begin_ns)
                is_proven = left_ns >= MIN_INVOLVED_SHARE * (now_ns - since_ns) > 0
                self.is_proven[i] |= is_proven
        return changed

    def is_same_program(self, undisturbed_s: Floats) -> Bools:
        """Returns a mask of the positions whose current program was certainly measured undisturbed.
        Without task records, these are CPUs that were undisturbed for long enough."""
        has_records = bool(self._running.time_ns)
        return self.is_proven if has_records else np.asarray(undisturbed_s >= MIN_UNDISTURBED_S)


# --- Counts how often each program's IPC changes when its sibling starts or stops, and how often at
# other times.
#
# A program has phases. A slow phase that coincides with a running sibling looks like a loss. So a
# loss is attributed to the sibling only if two conditions hold: the IPC falls when the sibling
# starts and rises when it stops, and both happen more often than the program's own phases explain.
# The last sample before a start or stop is compared with the first sample after it.

MAX_NEW_SAMPLES = 32
"""Maximum number of waiting arrays, or of samples in one array, before they are compared."""
MAX_MIXED_SAMPLES = 2
"""Maximum number of samples with a partly active sibling between two compared samples."""
MAX_OVERLAP_STEP = 0.1
"""Maximum change of the sibling's share of time between two samples in which a change of the IPC
counts as the program's own. A sibling that starts or stops within a sample changes the IPC in two
steps, and only one of them counts as its start or stop."""
MAX_CHANCE = 0.001
"""Maximum probability that changes of the program itself explain the changes with the sibling. A
program whose sibling starts or stops every 10 s is tested 360 times an hour.
"""
MAX_FIRST_CHANCE = 0.05
"""The same limit, for a program whose IPC never changed on its own in 19 or more comparisons."""
MIN_REPEATS = 6
"""Minimum number of changes with the sibling for `measured`: three starts and three stops."""
SIBLING_CHANGES, MATCHES, STEADY_PAIRS, OWN_CHANGES = range(4)
"""Rows of the counts: starts and stops of the sibling; those with the expected change of the IPC;
pairs of samples in which the sibling ran equally; those with a change of the IPC."""


class SiblingHistory:
    """For each CPU, counts of changes of the IPC since its program started."""

    def __init__(self, cpus: int, min_change: float) -> None:
        """`min_change`: minimum change of the IPC that counts, as a share of the IPC."""
        self._min_change = min_change
        self._counts: Ints = np.zeros((4, cpus), np.int64)
        self._ipc: Floats = np.full(cpus, np.nan)
        self._was_together: Bools = np.zeros(cpus, bool)
        self._last_overlap: Floats = np.zeros(cpus)
        """For the last compared sample: the IPC, whether the sibling ran, and its share of time."""
        self._last_compared: Ints = np.zeros(cpus, np.int64)
        """Index of the last compared sample, relative to the newest added sample: 0 or negative."""
        self._new_samples: list[tuple[Bools, Bools, Floats, Floats]] = []
        """Samples that are not compared yet: alone, together, IPC and overlap."""

    def reset(self, cpus: Ints) -> None:
        """Resets the counts of these CPUs, because another program runs there now."""
        self.counts[:, cpus] = 0
        self._ipc[cpus] = np.nan

    def add(self, work: _SiblingWork) -> None:
        """Adds samples, which are compared later, because many at once are faster."""
        self._new_samples.append((work.is_alone, work.is_together, work.ipc, work.overlap))
        if len(self._new_samples) >= MAX_NEW_SAMPLES or len(work.ipc) >= MAX_NEW_SAMPLES:
            self._compare()

    @property
    def counts(self) -> Ints:
        if self._new_samples:
            self._compare()
        return self._counts

    def _compare(self) -> None:
        """Compares each new sample with the last comparable one before it."""
        parts: Any = map(np.concatenate, zip(*self._new_samples, strict=True))
        alone, together, ipc, overlap = parts
        self._new_samples = []
        compared = (alone | together) & (ipc > 0)
        number = np.arange(1, len(ipc) + 1)[:, None]
        numbers = np.broadcast_to(number, ipc.shape)
        ipc_by_sample, together_by_sample, overlap_by_sample, last_by_sample = latest_known_values(
            compared,
            (self._ipc, ipc),
            (self._was_together, together),
            (self._last_overlap, overlap),
            (self._last_compared, numbers),
        )
        ipc_before, together_before = ipc_by_sample[:-1], together_by_sample[:-1]
        mixed_count = number - 1 - last_by_sample[:-1]
        with np.errstate(invalid="ignore"):
            has_fallen = ipc <= (1 - self._min_change) * ipc_before
            has_risen = ipc_before <= (1 - self._min_change) * ipc
            compared &= ipc_before > 0
            is_steady = np.abs(overlap - overlap_by_sample[:-1]) <= MAX_OVERLAP_STEP
        edge = compared & (together != together_before) & (mixed_count <= MAX_MIXED_SAMPLES)
        is_same = compared & (together == together_before) & (mixed_count == 0) & is_steady
        matches = np.where(together, has_fallen, has_risen)
        masks = edge, edge & matches, is_same, is_same & (has_fallen | has_risen)
        self._counts += [mask.sum(axis=0) for mask in masks]
        self._ipc, self._was_together = ipc_by_sample[-1].copy(), together_by_sample[-1].copy()
        self._last_overlap = overlap_by_sample[-1].copy()
        self._last_compared = last_by_sample[-1] - len(ipc)

    def ipc_follows_sibling(self) -> Bools:
        """Returns a mask of the CPUs whose IPC follows the sibling more often than by chance."""
        edges, matches, steady_pairs, changes = self.counts
        # Changes in both directions count. With a mixed sample between the two compared samples,
        # the program has had twice as long to change on its own.
        change_rate = (changes + 1) / (steady_pairs + 1)
        share = matches / np.maximum(edges, 1)
        with np.errstate(divide="ignore", invalid="ignore"):  # Chernoff's bound
            remaining_term = (1 - share) * np.log((1 - share) / (1 - change_rate))
            remaining_term = np.where(matches < edges, remaining_term, 0.0)
            chance = np.exp(-edges * (share * np.log(share / change_rate) + remaining_term))
        max_chance = np.where((changes == 0) & (matches == edges), MAX_FIRST_CHANCE, MAX_CHANCE)
        return np.asarray((share > change_rate) & (chance <= max_chance))
