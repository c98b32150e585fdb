"""The one mutable model: hello, what is online, sums over the interval and the run, episodes.

Messages go in by `apply`, in their order; nothing here waits, reads or draws. The same code serves
a live stream, a file and a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.base.arrays import Bools
from perftop.base.format import length
from perftop.detect.pipeline import Detection
from perftop.detect.suspects import Suspects
from perftop.model.calibration import Calibration
from perftop.model.differences import asleep_ns
from perftop.model.job_threads import Moved
from perftop.model.running_tasks import Look
from perftop.model.sample_reader import Sample, Sieve
from perftop.model.smt import core_lists
from perftop.session import marks
from perftop.session.busy_cpus import BusyCpus
from perftop.session.happenings import MOST_MARKS, Happenings
from perftop.session.history import TASKS_NS, History
from perftop.session.interval import Interval, Span, Tasks, nothing
from perftop.session.losses import Losses, Sums
from perftop.session.run_times import RunTimes
from perftop.session.summary import LIVE_BYTES, Distribution

MOST_TOGETHER = 16
"""Frames computed at once. More would take memory and gain little."""
BATCH_BYTES = 2 << 20
"""Counters computed at once, where a frame has so many that 16 frames would be more. Some twenty
arrays of this size exist at a time."""
MOST_DETAILS = 4096
"""Processes of which details are kept, the newest."""
MAX_DETAIL = 1 << 14
"""Characters of one, as text: a list of all CPUs of a big machine is a third of it."""


class Session(Happenings):
    def __init__(
        self, hello: wire.Hello, history: History | None = None, summary_bytes: int | None = None
    ) -> None:
        """`summary_bytes`: of the samples kept for percentiles, where nobody asks for them."""
        super().__init__(hello)
        self.history = history
        """Where it can be looked back; filled here."""
        self.sieve = Sieve(hello)
        frame_bytes = sum(8 * hello.rows(block.scope) * block.columns for block in hello.blocks)
        self._together = max(1, min(MOST_TOGETHER, BATCH_BYTES // max(1, frame_bytes)))
        self.counters = self.sieve.counters
        self.evaluator = self.sieve.evaluator
        self.position = self.sieve.position
        self.online = self.sieve.online
        self.topology = list(hello.topology)
        self._suspects = Suspects(self.detector)
        self._detection = Detection(self.sieve, self.detector)
        self.neighbours = self._detection.neighbours
        wanted = self.position if hello.selected is None else hello.selected
        self.shown = [at for cpu, at in self.position.items() if cpu in wanted]
        """Positions of the CPUs that the user asked for; the rest is read for the siblings only."""
        kept = LIVE_BYTES if history is not None and summary_bytes is None else summary_bytes
        room = () if kept is None else (kept, 2)
        self.distribution = Distribution(self.shown, *room)
        self.accounts = False
        """Whether losses and the times of tasks are added up."""
        self._span = nothing(self.sieve, self.now_ns)
        self._seq = 0
        self._begin_sums()
        self._begin_news()

    def _begin_sums(self) -> None:
        """What the run is summed up in."""
        cpus = [*self.position]
        self.run = nothing(self.sieve, self.now_ns)
        self._losses, self.run_times, self.busy_cpus = Losses(cpus), RunTimes(cpus), BusyCpus()
        self.suspect_samples = 0

    def _begin_news(self) -> None:
        """The latest of everything; nothing has come yet."""
        self._watched = Moved()
        """What the watched job did since the last `take`."""
        self.lost = self.late = 0
        self._factors: dict[str, list[float]] = {}
        """The last two factors that were settled, by counter of the SMT states."""
        self.frames = 0
        self.sample: Sample | None = None
        """What the newest frame gave; None: that one was only a baseline."""
        self._rested: Bools | None = None
        """Who was at rest in the last interval."""
        self.look = Look()
        """The latest record of who runs where."""
        self._look_ns = 0
        self.details: dict[str, dict[str, object]] = {}
        """What is known of processes, by pid, as the wire has it; newest last."""
        self._asleep: list[tuple[int, int]] = []
        """When it was known that the machine had slept, and for how long in all; newest last."""

    def unix(self, raw_ns: int) -> float:
        asleep_ns = next((ns for at_ns, ns in reversed(self._asleep) if at_ns <= raw_ns), 0)
        return (self.hello.wall_ns + raw_ns - self.hello.raw_ns + asleep_ns) / 1e9

    def apply(self, message: wire.Message) -> None:
        """Take one message."""
        for _ in self.play([message]):
            pass

    def play(self, messages: Iterable[wire.Message]) -> Iterator[wire.Message]:
        """Take messages in their order; yields each as soon as it was taken. Frames that follow
        each other are computed together, with the same result as one by one; so up to MOST_TOGETHER
        are taken out of `messages` at once."""
        ahead = iter(messages)
        while some := list(islice(ahead, MOST_TOGETHER)):
            at = 0
            while at < len(some):
                run = self._run(some[at:])
                yield from self._played(run) if run else self._alone(some[at])
                at += len(run) or 1

    def _played(self, run: Sequence[wire.Frame]) -> Iterator[wire.Frame]:
        for frame, sample in zip(run, self.sieve.samples(run, learn=True), strict=True):
            self._frame(frame, sample)
            yield frame
        self.distribution.settle_many()
        if self.history is not None:
            self.history.settle()

    def _run(self, messages: Sequence[wire.Message]) -> list[wire.Frame]:
        """The first frames that can be computed together."""
        run: list[wire.Frame] = []
        now_ns, most = self.now_ns, self._together
        for message in messages:
            if not isinstance(message, wire.Frame) or message.time_ns < now_ns or len(run) == most:
                break
            if not run and self.history is not None:
                most = min(most, self.history.room(self.sieve))
            run.append(message)
            now_ns = message.time_ns
        return run

    def _alone(self, message: wire.Message) -> Iterator[wire.Message]:
        if isinstance(message, wire.Frame):
            text = f"frame {message.seq} goes back in time, and was left out"
            self._warn(wire.Note("warning", self.now_ns, data={"text": text}))
        elif isinstance(message, wire.Note):
            if self.history is not None:
                self.history.keep(message, self.sieve)
            self.sieve.ownership(message)
            if message.kind == "hotplug":
                self._hotplug(message)
            elif message.kind == "warning":
                self._warn(message)
            elif message.kind == "gap":
                self._gap(message)
            elif (label := marks.label(message)) is not None:
                self._mark(message.time_ns, label)
        yield message

    @property
    def tasks(self) -> Tasks:
        """The tasks of the latest record."""
        return self.look.tasks

    @property
    def cores(self) -> list[list[int]]:
        """The CPUs of each core, as far as they have been online."""
        return self.sieve.cores.lists

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """The unit that each counter of the SMT states was found to have."""
        return self.sieve.splitter.calibrations

    def factor_before(self, key: str) -> float | None:
        """The factor of that counter that was settled before the present one; None: there was
        none."""
        factors = self._factors.get(key, [])
        return factors[0] if len(factors) > 1 else None

    def take(self) -> Interval:
        """The interval since the last call, and the start of the next."""
        span, self._span = self._span, nothing(self.sieve, self.now_ns)
        self._seq += 1
        interval = self._interval(span)
        if self.hello.watch is not None:
            interval = replace(interval, watched=self._watched)
            self._watched = Moved()
        self._rested = interval.resting
        return interval

    def begin_anew(self) -> None:
        """Begins all sums of the run anew with the next sample; what was learned, episodes and
        marks stay."""
        root = self.run_times.root
        self._begin_sums()
        self.run_times.root = root
        self.distribution, self.frames = Distribution(self.shown), min(self.frames, 1)

    @property
    def span_ns(self) -> int:
        """How long the current interval has lasted."""
        return self.now_ns - self._span.start_ns

    def whole(self) -> Interval:
        """The run so far as one interval."""
        self.run.samples = self.frames
        return self._interval(self.run)

    def at(self, time_ns: int, span_ns: int) -> Interval | None:
        """What `take` would have given when the last sample by then had come, over about that long:
        taken again from the raw frames, with today's factors of counters and today's cores. None:
        this is not kept."""
        found = None if self.history is None else self.history.span(time_ns, span_ns)
        if self.history is None or found is None:
            return None
        begin_ns, end_ns = found
        sieve, span = self.history.rewind(self.sieve, begin_ns, end_ns)
        return span.interval(sieve, end_ns, self.unix(end_ns), 0, self.history.look(end_ns))

    def _interval(self, span: Span) -> Interval:
        now_ns = self.now_ns
        look = self.look if now_ns - self._look_ns <= TASKS_NS else Look()
        unix = self.unix(now_ns)
        return span.interval(self.sieve, now_ns, unix, self._seq, look, self._rested)

    def _frame(self, frame: wire.Frame, sample: Sample | None) -> None:
        since_ns, self.now_ns = self.now_ns, frame.time_ns
        self.frames += 1
        self.sample = sample
        self.lost, self.late = frame.lost, frame.late
        news = self._records(frame)
        self._wake(frame)
        kept = self.history is not None and self.history.keep(frame, self.sieve)
        self._settle()
        if self.history is not None and kept:
            self.history.trace(sample)
        if sample is None:
            self._span.start_ns = frame.time_ns
            return
        self._span.add(sample, self.sieve)
        self.run.add(sample, self.sieve)
        suspect = sample.delta.suspect if sample.doubted else {}
        self.suspect_samples += len(suspect)
        self.distribution.add(sample, self.sieve.cores)
        by_cpu = {self.topology[row].cpu: found for row, found in suspect.items()}
        self._end(self._suspects.sample(by_cpu, since_ns, frame.time_ns))
        self._end(self._detection.sample(sample, since_ns, frame.time_ns, frame.records))
        watching = self.neighbours.watching
        if watching.time_ns == frame.time_ns:
            looks = (thread.since_last() for thread in watching.told)
            self._watched = sum(looks, self._watched)
        if self.accounts:
            self._lose(sample, since_ns, told=news)

    def account(self, root: int = -1) -> None:
        """From now on adds up how long tasks ran and waited, and what was lost to which cause, for
        those who ask for `lost_time` and `run_times`. On a big machine that costs milliseconds a
        second. `root`: first process of a job that we started."""
        self.accounts, self.run_times.root = True, root

    def _lose(self, sample: Sample, since_ns: int, *, told: bool) -> None:
        """`told`: there is a new look at who runs."""
        losses, now_ns, watching = self._losses, self.now_ns, self.neighbours.watching
        util = np.where(self.online, sample.values["util"], np.nan)[self.shown]
        self.busy_cpus.take(util, (now_ns - since_ns) / 1e9, self.look)
        begun_ns = self.run.start_ns
        waited_s = self.run_times.of_all(self.look, begun_ns, now_ns) if told else 0.0
        run_s = None
        if watching.name is not None:
            run_s, waited_s = self.run_times.of_job(watching, now_ns)
        losses.take(sample.lost, since_ns, now_ns, waited_s, run_s)
        if (oldest_ns := losses.due(now_ns)) is not None:
            losses.settle(self.episodes(oldest_ns, now_ns), now_ns)

    def lost_time(self) -> Sums:
        """What working CPUs, or the watched job, lost since the start, by cause. The only place
        that adds up losses; `since` makes a span of two. Needs `account` from the start on."""
        assert self.accounts
        return self._losses.sums(self.episodes(self._losses.begun_ns, self.now_ns))

    def _settle(self) -> None:
        """Says it once when a settled factor has moved."""
        for key, calibration in self.calibrations.items():
            if calibration.state != "settled":
                continue
            factors = self._factors.setdefault(key, [calibration.factor])
            if factors[-1] != calibration.factor:
                text = marks.recalibrated(key, factors[-1], calibration.factor)
                self._warn(wire.Note("warning", self.now_ns, data={"text": text}))
                self._factors[key] = [factors[-1], calibration.factor]

    def _records(self, frame: wire.Frame) -> bool:
        """Who runs where, and what is new of them. All of it comes from outside. Returns whether
        there is a new look."""
        if (look := Look.of(frame.records)) is not None:
            self.look, self._look_ns = look, frame.time_ns
        if isinstance(details := frame.records.get("details"), dict):
            for pid, known in details.items():
                if isinstance(known, dict) and len(repr(known)) <= MAX_DETAIL:
                    self.details.pop(pid, None)
                    self.details[pid] = known
            for pid in list(self.details)[:-MOST_DETAILS]:
                del self.details[pid]
        return look is not None

    def _wake(self, frame: wire.Frame) -> None:
        """Marks that the machine has slept, unless it had before the stream began."""
        before_ns = self._asleep[-1][1] if self._asleep else 0
        now_ns = asleep_ns(frame)
        if now_ns != before_ns:
            self._asleep = [*self._asleep, (frame.time_ns, now_ns)][-MOST_MARKS:]
            if self.frames > 1 and now_ns > before_ns:
                self._mark(frame.time_ns, marks.ASLEEP + length(now_ns - before_ns))

    def _hotplug(self, note: wire.Note) -> None:
        found = self.sieve.hotplug(note)
        if found is None:
            return
        row, online = found
        self.topology[row] = wire.topology_row(note, self.topology[row])
        cpu = self.topology[row].cpu
        if online and all(cpu not in core for core in self.cores):
            self.sieve.regroup(core_lists(self.topology))
        self._end(self.detector.hotplug(cpu, note.time_ns, online=online))

    def _gap(self, note: wire.Note) -> None:
        """The interval begins anew, so that none has numbers of a part of it only."""
        if note.time_ns >= self.now_ns:
            self.now_ns = note.time_ns
            self._span = nothing(self.sieve, note.time_ns)
        self._warn(note)
        self._mark(note.time_ns, marks.gap(note))

    def shown_cores(self) -> list[int]:
        """Positions of the cores with a CPU that the user asked for."""
        rows = set(self.shown)
        cores = enumerate(self.cores)
        return [i for i, core in cores if any(self.position[cpu] in rows for cpu in core)]

    @property
    def past(self) -> History:
        """The history of a session that keeps one, as those of all screens do."""
        assert self.history is not None
        return self.history

    def probe_cpu_s(self) -> float:
        """What the probe itself has used of CPU time since it started to tell."""
        column = self.counters.columns.get("probe_cpu_s")
        if column is None:
            return float("nan")
        return float(self.run.delta.tables[column.block].moved[0, column.first])
