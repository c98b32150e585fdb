"""The state of one stream: hello, online CPUs, sums over the interval and the run, and episodes.

`apply` and `apply_in_parts` process messages in order. The session never waits, does no I/O and
draws nothing. Live streams, files and tests use the same code."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from perfprobe import wire
from perftop.base.arrays import Bools
from perftop.base.text import long_duration
from perftop.detect.engine import RunningEpisodes
from perftop.detect.pipeline import Detection
from perftop.model.differences import suspended_ns
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader, record_indexes, task_snapshots
from perftop.model.smt import Calibration
from perftop.model.tasks import TaskSnapshot, ThreadActivity
from perftop.session import episodes
from perftop.session.command_run import CommandRun, JobFootprint
from perftop.session.episodes import MAX_MARKS, EpisodeLog
from perftop.session.history import MAX_TASKS_AGE_NS, History
from perftop.session.interval import Interval, Span, Tasks
from perftop.session.losses import RecordHints
from perftop.session.run_sums import RunSums, Totals

MAX_BATCH = 256
"""Maximum number of frames that are read ahead and computed at once. Larger batches are hardly
faster."""
MAX_BATCH_BYTES = 3 << 19
"""Maximum size in bytes of the counters that are computed at once, for frames so large that
MAX_BATCH of them are larger. Some sixty arrays of this size exist at the same time."""
MIN_BATCH = 16
"""Number of frames that are computed at once even if they are up to three times MAX_BATCH_BYTES."""
MAX_HOTPLUGS = 4096
"""Maximum number of stored hotplug notes. Older notes are no longer needed."""
MAX_WARNINGS = 20
"""Maximum number of stored warnings (the newest), so that a probe cannot fill the memory."""
MAX_PROCESSES = 4096
"""Maximum number of processes with stored details (the newest)."""
MAX_DETAIL_LENGTH = 1 << 14
"""Maximum number of characters of a process's details. The list of CPUs of a large machine needs a
third of this."""


def max_batch(hello: wire.Hello) -> int:
    """Returns the maximum number of frames of this stream to read ahead and to compute at once."""
    frame_bytes = sum(8 * hello.rows(block.scope) * block.columns for block in hello.blocks)
    fitting_frames = MAX_BATCH_BYTES // max(1, frame_bytes)
    min_frames = min(MIN_BATCH, 3 * MAX_BATCH_BYTES // max(1, frame_bytes))
    return max(1, min_frames, min(MAX_BATCH, fitting_frames))


class Session:
    def __init__(
        self, hello: wire.Hello, history: History | None = None, *, summarises: bool = True,
        summarises_cpus: bool = True, kinds: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        """`history`: receives the messages. `summarises`: whether the distribution of the samples
        will be read; `summarises_cpus`: also that of single CPUs and cores. `kinds`: the kinds of
        episodes to detect; None: all."""
        self.hello = hello
        self.history = history
        self.now_ns = hello.raw_ns
        """Raw time of the newest frame."""
        self.frames = 0
        self.reader = SampleReader(hello)
        self.counters = self.reader.counters
        self.evaluator = self.reader.evaluator
        self.position = self.reader.position
        self.online = self.reader.online
        self.topology = list(hello.topology)
        self.selected = self.reader.selected
        self._max_batch = max_batch(hello)
        self.detector = RunningEpisodes()
        self.log = EpisodeLog(self.detector, hello.sample_ns)
        self._detection = Detection(self.reader, self.detector, kinds, is_shown=history is not None)
        self.neighbours, self.ramps = self._detection.neighbours, self._detection.ramps
        self.warnings: list[str] = []
        """Warnings from the probe and this session, newest last. Each creates a new list."""
        self.last_warning_ns = 0
        self.hotplugs: deque[wire.Note] = deque(maxlen=MAX_HOTPLUGS)
        self._seq = 0
        self._resting_cpus: Bools | None = None
        """Mask of the CPUs at rest in the last interval."""
        self._watched_activity = ThreadActivity()
        """Activity of the watched job in the current interval."""
        self.command_run = CommandRun()
        """The command that perftop ran; without notes if there was none."""
        self.hints = RecordHints()
        self.run = RunSums(
            self.reader, self.now_ns, self.neighbours.watched_job, self._detection.quotas.quotas,
            self.hints, self._causes, summarises=summarises, by_cpu=summarises_cpus,
        )  # fmt: skip
        self._span = self.run.span
        """Sums over the current interval. Until an interval has ended, these are those of `run`."""

        self.newest_samples: tuple[SampleBatch, int, int] | None = None
        """The samples that were applied last: their batch, the index of the first, and the index
        after the last. None if the newest message was a note, or a frame without a sample."""
        self.dropped_frames = self.late_samples = 0
        """Numbers of samples so far that were dropped, and that the probe read late."""
        self.snapshot = TaskSnapshot()
        """The latest record of the tasks on each CPU."""
        self._snapshot_ns = 0
        self.details: dict[str, dict[str, object]] = {}
        """Details of processes by PID, as received, newest last."""
        self._factors: dict[str, list[float]] = {}
        """The last two settled calibration factors of each counter for SMT states."""
        self._suspensions: list[tuple[int, int]] = []
        """Suspensions of the machine, newest last: the raw time in ns at which each was noticed,
        and the total suspended time until then in ns."""
        self.caches = defaultdict[str, dict[Any, Any]](dict)
        """Caches of the screen, by name. They may refer to the session, with which they end."""

    # --- Applying messages.

    def apply(self, message: wire.Message) -> None:
        deque(self.apply_in_parts([message]), maxlen=0)

    def apply_in_parts(
        self, messages: Iterable[wire.Message], due_ns: Callable[[], int] = lambda: sys.maxsize
    ) -> Iterator[Sequence[wire.Message]]:
        """Applies messages in order, and yields them in parts that were applied together. A part is
        a note, or consecutive frames up to one in which an episode started or ended, or which ends
        at the raw time `due_ns()` or later. `due_ns` is called before each part."""
        messages_left = iter(messages)
        while batch := list(islice(messages_left, self._max_batch)):
            while batch:
                frames = self._leading_frames(batch)
                self.newest_samples = None
                if not frames:
                    self._apply_note_or_reject(batch[0])
                    yield batch[:1]
                else:
                    if not self.frames:
                        self._apply_baseline(frames[0])
                        yield frames[:1]
                    yield from self._apply_frames_in_parts(frames, due_ns)
                    self._detection.release_batch()
                    if self.history is not None:
                        self.history.write_waiting()
                batch = batch[len(frames) or 1 :]

    def _apply_frames_in_parts(
        self, frames: Sequence[wire.Frame], due_ns: Callable[[], int]
    ) -> Iterator[Sequence[wire.Message]]:
        """Applies frames that can be computed together, and yields parts. This is a separate
        generator so that the frames' arrays are freed before the next frames are computed."""
        for samples in self.reader.batches(frames, self.now_ns, learn=True):
            index = 0
            while index < len(samples):
                begin, index = index, self._apply_samples(samples, index, due_ns())
                yield samples.frames[begin:index]

    def _leading_frames(self, messages: Sequence[wire.Message]) -> list[wire.Frame]:
        """Returns the frames at the start of `messages` that can be computed together."""
        frames: list[wire.Frame] = []
        now_ns, max_frames = self.now_ns, self._max_batch
        for message in messages:
            if not isinstance(message, wire.Frame) or message.time_ns < now_ns:
                break
            if not frames and self.history is not None:
                max_frames = min(max_frames, self.history.room_for_samples(self.reader))
            frames.append(message)
            now_ns = message.time_ns
            if len(frames) == max_frames:
                break
        return frames

    def _apply_baseline(self, frame: wire.Frame) -> None:
        """Applies the first frame of the stream, which has no sample."""
        self.now_ns, self.frames = frame.time_ns, 1
        self.dropped_frames, self.late_samples = frame.lost, frame.late
        self._apply_records(frame, TaskSnapshot.from_records(frame.records))
        self._detection.quotas.process_records(frame.records, frame.time_ns)
        self._mark_suspension(frame)
        if self.history is not None:
            self.history.keep_baseline(frame, self.reader)
        self.run.begin(frame.time_ns, self.snapshot)

    def _apply_samples(self, batch: SampleBatch, first: int, due_ns: int) -> int:
        """Applies samples of a batch, from `first` to the end of a part. Returns the next index."""
        if not first:
            self._warn_of_changed_factors(int(batch.time_ns[0]))
        last = min(len(batch), first + 1 + int(batch.time_ns[first:].searchsorted(due_ns)))
        last = first + self.run.room_for_samples(batch, first, last)
        last, ended_episodes = self._detection.process(batch, first, last)
        self.log.add_ended(ended_episodes)
        newest_frame = batch.frames[last - 1]
        self.now_ns, self.frames = newest_frame.time_ns, self.frames + last - first
        self.dropped_frames, self.late_samples = newest_frame.lost, newest_frame.late
        self.newest_samples = batch, first, last
        if batch.best_traffic is not None:  # a batch is computed before its first sample is used
            self.reader.memory.best_rate = batch.best_traffic[last - 1]
        if self.history is not None:
            self.history.keep_samples(batch, first, last, self.reader)
        self.run.add(batch, first, last)
        if self._span is not self.run.span:
            self._span.add(batch, first, last)
        for index in batch.cached(record_indexes):
            if first <= index < last:
                self._apply_records(batch.frames[index], batch.cached(task_snapshots).get(index))
                self._mark_suspension(batch.frames[index])
        watched_job = self.neighbours.watched_job
        if watched_job.time_ns == self.now_ns:
            new_activity = (thread.latest_activity() for thread in watched_job.last_threads)
            self._watched_activity = sum(new_activity, self._watched_activity)
        return last

    def _warn_of_changed_factors(self, now_ns: int) -> None:
        for key, calibration in self.calibrations.items():
            if calibration.state == "settled":
                factors = self._factors.setdefault(key, [factor := calibration.factor])
                if factors[-1] != factor:
                    text = f"a tick of {key} is {factor:g} TSC ticks, not {factors[-1]:g}"
                    text += " as assumed until now: earlier SMT states are wrong"
                    self._warn(now_ns, text)
                    self._factors[key] = [factors[-1], factor]

    def _apply_records(self, frame: wire.Frame, snapshot: TaskSnapshot | None) -> None:
        """Applies a frame's untrusted records of tasks and processes. `snapshot`: its tasks."""
        if snapshot is not None:
            self.snapshot, self._snapshot_ns = snapshot, frame.time_ns
        if isinstance(details := frame.records.get("details"), dict):
            for pid, detail in details.items():
                if isinstance(detail, dict) and len(repr(detail)) <= MAX_DETAIL_LENGTH:
                    self.details.pop(pid, None)
                    self.details[pid] = detail
            for pid in list(self.details)[:-MAX_PROCESSES]:
                del self.details[pid]
        self.hints.read_records(frame.records)
        self.command_run.read_record(frame.records, frame.time_ns)

    def _mark_suspension(self, frame: wire.Frame) -> None:
        """Adds a mark if the machine was suspended since the previous frame."""
        before_ns = self._suspensions[-1][1] if self._suspensions else 0
        now_ns = suspended_ns(frame)
        if now_ns != before_ns:
            self._suspensions = [*self._suspensions, (frame.time_ns, now_ns)][-MAX_MARKS:]
            if self.frames > 1 and now_ns > before_ns:
                text = episodes.SUSPENDED_TEXT + long_duration(now_ns - before_ns)
                self.log.add_mark(frame.time_ns, text)

    def _apply_note_or_reject(self, message: wire.Message) -> None:
        """Applies a note, or rejects a frame that is earlier than the previous one."""
        if isinstance(message, wire.Frame):
            self._warn(self.now_ns, f"frame {message.seq} goes back in time, and was left out")
        elif isinstance(message, wire.Note):
            if self.history is not None:
                self.history.keep(message, self.reader)
            change = self.reader.apply_note(message)
            if message.kind == "hotplug":
                self.hotplugs.append(message)
                if change is not None:
                    row, online = change
                    self.topology[row] = wire.row_after_hotplug(message, self.topology[row])
                    cpu = self.topology[row].cpu
                    if online and all(cpu not in core for core in self.cores):
                        self.reader.regroup(self.topology)
                    ended = self.detector.apply_hotplug(cpu, message.time_ns, online=online)
                    self.log.add_ended(ended)
            self.command_run.apply_note(message)
            if self.watches_command and self.command_run.pid is not None:
                self.run.times.job.start(self.command_run.pid)
            if message.kind in {"warning", "gap"}:
                self._warn(message.time_ns, episodes.warning_text(message))
            if message.kind == "gap" and message.time_ns >= self.now_ns:
                # Restart the interval, so that no interval contains the gap.
                self.now_ns = message.time_ns
                self._span = Span.empty(self.reader, message.time_ns)
            if (label := episodes.mark_label(message)) is not None:
                self.log.add_mark(message.time_ns, label)
                if message.kind != "gap":
                    self.run.add_mark(message.time_ns, label)

    def _warn(self, time_ns: int, text: str) -> None:
        self.warnings = [*self.warnings, text[: episodes.MAX_WARNING_LENGTH]][-MAX_WARNINGS:]
        self.last_warning_ns = time_ns

    # --- Intervals, losses and phases.

    def take_interval(self) -> Interval:
        """Returns the interval since the last call, and starts the next one."""
        span, self._span = self._span, Span.empty(self.reader, self.now_ns)
        if span is self.run.span:
            span = span.copy()  # the interval's arrays are views, and the run continues
        self._seq += 1
        interval = self._interval(span)
        if self.hello.watch is not None:
            interval = replace(interval, watched=self._watched_activity)
            self._watched_activity = ThreadActivity()
        self._resting_cpus = interval.is_at_rest
        return interval

    @property
    def interval_start_ns(self) -> int:
        """Raw time of the start of the current interval."""
        return self._span.start_ns

    @property
    def span_ns(self) -> int:
        """Length of the current interval so far, in ns."""
        return self.now_ns - self._span.start_ns

    def run_interval(self) -> Interval:
        """Returns the numbers of the whole run so far."""
        return replace(self._interval(self.run.span), sample_count=self.frames)

    def interval_for(self, totals: Totals, snapshot: TaskSnapshot) -> Interval:
        """Returns the numbers of the span of these totals. `snapshot`: the tasks at its end."""
        unix = self.unix_s(totals.end_ns)
        return totals.span.interval(totals.end_ns, unix, self._seq, snapshot)

    def interval_at(self, time_ns: int, span_ns: int) -> Interval | None:
        """Returns the interval of about `span_ns` that ended with the last sample by `time_ns`,
        computed again from raw frames, with the current cores and calibration factors; None if
        history lacks it."""
        bounds = None if self.history is None else self.history.span(time_ns, span_ns)
        if self.history is None or bounds is None:
            return None
        begin_ns, end_ns = bounds
        reader, batches = self.history.reread(self.reader, begin_ns, end_ns)
        span = Span.empty(reader, begin_ns)
        for batch in batches:
            span.add(batch, 0, len(batch))
        snapshot = self.history.tasks_between(begin_ns, end_ns)
        return span.interval(end_ns, self.unix_s(end_ns), 0, snapshot)

    def _interval(self, span: Span) -> Interval:
        now_ns, snapshot, resting_cpus = self.now_ns, self.recent_snapshot, self._resting_cpus
        unix = self.unix_s(now_ns)
        return span.interval(now_ns, unix, self._seq, snapshot, resting_cpus)

    def reset_sums(self) -> None:
        """Resets all sums of the run, which start again with the next sample. Calibrations,
        episodes and marks are kept."""
        self.run.reset(self.now_ns)
        self.frames = min(self.frames, 1)

    def totals_between(self, start_ns: int, end_ns: int) -> Totals | None:
        """Returns the totals between two raw times in ns, added up again from history with the
        episodes known now; None if history lacks the samples."""
        bounds = self.past.span(end_ns, end_ns - start_ns)
        return None if bounds is None else self.run.totals_of_past(self.past, *bounds)

    def _causes(self, since_ns: int, until_ns: int) -> list[Episode]:
        """Returns the episodes between two raw times, and the climbs that will probably be
        ramps."""
        return [*self.episodes(since_ns, until_ns), *self.ramps.unfinished_climbs()]

    # --- Episodes.

    @property
    def running(self) -> list[Episode]:
        return self.log.running

    @property
    def ended(self) -> list[Episode]:
        return self.log.ended

    @property
    def marks(self) -> list[Episode]:
        """The marks of the log: episodes without CPUs and duration."""
        return self.log.marks

    def episodes(self, since_ns: int, until_ns: int) -> list[Episode]:
        return self.log.in_range(since_ns, until_ns)

    @property
    def until_ns(self) -> int:
        """Raw time in ns up to which episodes are known: now, or the end of the recording."""
        recording = self.log.recording
        return self.now_ns if recording is None else max(self.now_ns, recording.until_ns)

    # --- Clock time, CPUs and cores.

    def is_past(self, interval: Interval) -> bool:
        """Returns whether an interval is not the newest of a live session."""
        return not interval.seq or self.log.recording is not None

    def unix_s(self, raw_ns: int) -> float:
        slept_ns = next((ns for at_ns, ns in reversed(self._suspensions) if at_ns <= raw_ns), 0)
        return (self.hello.wall_ns + raw_ns - self.hello.raw_ns + slept_ns) / 1e9

    @property
    def tasks(self) -> Tasks:
        return self.snapshot.tasks

    @property
    def recent_snapshot(self) -> TaskSnapshot:
        """The latest record of the tasks; empty if it is outdated."""
        is_recent = self.now_ns - self._snapshot_ns <= MAX_TASKS_AGE_NS
        return self.snapshot if is_recent else TaskSnapshot()

    @property
    def watches_command(self) -> bool:
        """Whether the watched job is the command that perftop ran."""
        pid = self.command_run.pid
        return pid is not None and self.neighbours.watched_job.name == str(pid)

    @property
    def command_footprint(self) -> JobFootprint | None:
        """The CPUs and times of the command that perftop ran; None if they were not recorded."""
        return self.run.times.job if self.watches_command else self.command_run.footprint

    @property
    def cores(self) -> list[list[int]]:
        """The CPUs of each core. CPUs that have never been online are left out."""
        return self.reader.cores.lists

    @property
    def has_smt(self) -> bool:
        """Whether a selected CPU has siblings. SMT states of a single thread only repeat `util`."""
        # The header asks at each refresh, so this stops at the first such core.
        rows, cores = {*self.selected}, (core for core in self.cores if len(core) > 1)
        return any(self.position[cpu] in rows for core in cores for cpu in core)

    def selected_cores(self) -> list[int]:
        """Returns the indexes of the cores with a selected CPU."""
        rows, cores = set(self.selected), enumerate(self.cores)
        return [i for i, core in cores if any(self.position[cpu] in rows for cpu in core)]

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """The calibration (TSC ticks per tick) of each counter for SMT states, by its key."""
        return self.reader.splitter.calibrations

    def previous_factor(self, key: str) -> float | None:
        """Returns the previous settled calibration factor of a counter; None if there is none."""
        factors = self._factors.get(key, [])
        return factors[0] if len(factors) > 1 else None

    @property
    def past(self) -> History:
        """The history, in sessions that have one, such as a screen's."""
        assert self.history is not None
        return self.history

    def probe_cpu_s(self) -> float:
        """Returns the CPU time in s that the probe used in this run; NaN if unknown."""
        column = self.counters.columns.get("probe_cpu_s")
        if column is None:
            return float("nan")
        return float(self.run.span.delta.tables[column.block].increments[0, column.index])
