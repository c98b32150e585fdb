"""The one mutable model: hello, what is online, sums over the interval and the run, episodes.

Messages go in by `apply`, in their order; nothing here waits, reads or draws. The same code serves
a live stream, a file and a test.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from perfprobe import wire
from perftop import gates
from perftop.counters import Bools, Counters, Delta, Floats
from perftop.detect import Detector, Episode
from perftop.evaluate import Evaluator, Values
from perftop.metrics import COUNTS, METRICS
from perftop.smt import Split, Splitter, core_lists
from perftop.summary import Distribution

MOST_WARNINGS = 20
"""Kept: a probe that repeats itself must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of one span of time; arrays by position of CPU or core."""

    seq: int
    time: float  # Unix time of its end
    elapsed_s: float
    skew_s: float  # largest spread of wake-ups among the samples
    values: Values
    split: Split
    counts: dict[str, Floats]
    ceiling_hz: Floats  # by core
    counted: Floats | None
    """Share of the time for which perf counted; None: all of it, or not perf."""
    online: Bools
    suspect: dict[int, set[str]]
    samples: int


@dataclass(slots=True)
class _Span:
    """Sums being made."""

    delta: Delta
    start_ns: int
    skew_ns: int = 0
    samples: int = 0
    suspect: dict[int, set[str]] = field(default_factory=dict)


class Session:
    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.counters = Counters(hello)
        self.evaluator = Evaluator(self.counters)
        self.splitter = Splitter(self.counters)
        self.topology = list(hello.topology)
        self.position = {row.cpu: i for i, row in enumerate(hello.topology)}
        self.online: Bools = np.array([row.online for row in hello.topology])
        self.detector = Detector()
        self.ended: list[Episode] = []
        """Episodes that have ended and were not yet taken."""
        self.shown = [
            i
            for i, row in enumerate(hello.topology)
            if hello.selected is None or row.cpu in hello.selected
        ]
        """Positions of the CPUs that the user asked for; the rest is read for the siblings only."""
        self.distribution = Distribution(self.shown)
        self.lost = 0
        self.late = 0
        self.suspect_samples = 0
        self.warnings: list[str] = []
        """What the probe had to say, newest last."""
        self.warned_ns = 0
        self.frames = 0
        self.tasks: dict[str, list[object]] = {}
        """The latest record of who runs where, as the wire has it."""
        self.now_ns = hello.raw_ns
        self._span = _Span(self.counters.nothing(), hello.raw_ns)
        self.run = self.counters.nothing()
        self._started = False
        self._seq = 0
        self._package_of: list[int | None] = []
        self._regroup(hello.cores)

    def unix(self, raw_ns: int) -> float:
        return (self.hello.wall_ns + raw_ns - self.hello.raw_ns) / 1e9

    def apply(self, message: wire.Message) -> None:
        if isinstance(message, wire.Frame):
            self._frame(message)
        elif isinstance(message, wire.Note):
            if message.kind == "hotplug":
                self._hotplug(message)
            elif message.kind == "warning":
                self._warn(message)

    def take(self) -> Interval:
        """The interval since the last call, and the start of the next."""
        span, self._span = self._span, _Span(self.counters.nothing(), self.now_ns)
        self._seq += 1
        return self._interval(span)

    @property
    def span_ns(self) -> int:
        """How long the current interval has lasted."""
        return self.now_ns - self._span.start_ns

    def whole(self) -> Interval:
        """The run so far as one interval."""
        return self._interval(_Span(self.run, self.hello.raw_ns, samples=self.frames))

    def _frame(self, frame: wire.Frame) -> None:
        since_ns, self.now_ns = self.now_ns, frame.time_ns
        self.frames += 1
        self.lost, self.late = frame.lost, frame.late
        if isinstance(tasks := frame.records.get("tasks"), dict):
            self.tasks = tasks
        delta = self.counters.step(frame)
        if not self._started:  # the first frame is only a baseline
            self._started = True
            self._span.start_ns = frame.time_ns
            return
        values, split = self._believe(delta)
        self._span.delta.add(delta)
        self.run.add(delta)
        self._span.samples += 1
        self._span.skew_ns = max(self._span.skew_ns, self._skew_ns(frame))
        for row, reasons in delta.suspect.items():
            self._span.suspect.setdefault(row, set()).update(reasons)
        self.suspect_samples += len(delta.suspect)
        self.distribution.add(values, split)
        by_cpu = {self.topology[row].cpu: texts for row, texts in delta.suspect.items()}
        self.ended += self.detector.suspects(by_cpu, frame.time_ns, since_ns)

    def _believe(self, delta: Delta) -> tuple[Values, Split]:
        """Metrics of a sample, after all that cannot be true was taken out of it. A sample that
        spoils one sibling spoils the core's split: both are left out."""
        gates.check(self.counters, delta)
        values = self.evaluator.evaluate(delta)
        split = self.splitter.split(delta, values, self.online, learn=True)
        for core in np.flatnonzero(split.suspect):
            for cpu in self.splitter.cores[core]:
                reason = f"SMT states out of bounds ({split.method[core]})"
                delta.suspect.setdefault(self.position[cpu], set()).add(reason)
        if delta.suspect:
            beside = self._beside(set(delta.suspect))
            gates.remove(self.counters, delta, sorted(delta.suspect.keys() | beside))
            for row in beside:
                self._span.suspect.setdefault(row, set()).add("a suspect sample of its sibling")
            values = self.evaluator.evaluate(delta)
            split = self.splitter.split(delta, values, self.online)
        return values, split

    def _beside(self, rows: set[int]) -> set[int]:
        """The siblings of these CPUs that are not among them."""
        found = set()
        for siblings in self.splitter.cores:
            members = {self.position[cpu] for cpu in siblings}
            if members & rows:
                found |= members - rows
        return found

    def _skew_ns(self, frame: wire.Frame) -> int:
        for block in self.hello.blocks:
            rows = frame.blocks.get(block.name)
            if block.scope == "cpu" and rows is not None:
                head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD)
                if len(head) > 1 or len(self.topology) == 1:
                    late = head[head[:, 4] & np.uint64(wire.ROW_SAMPLED) != 0, 2]
                    return int(late.max() - late.min()) if len(late) else 0
        return 0

    def _interval(self, span: _Span) -> Interval:
        values = self.evaluator.evaluate(span.delta)
        counts = {
            key: span.delta.tables[column.block].moved[:, column.first]
            for key in COUNTS
            if (column := self.counters.columns.get(key))
        }
        if "cpu" in span.delta.tables and self.counters.has_tsc:
            counts["tsc"] = self.counters.tsc_ticks(span.delta)
        return Interval(
            seq=self._seq,
            time=self.unix(self.now_ns),
            elapsed_s=(self.now_ns - span.start_ns) / 1e9,
            skew_s=span.skew_ns / 1e9,
            values=values,
            split=self.splitter.split(span.delta, values, self.online),
            counts=counts,
            ceiling_hz=self._ceiling(span.delta),
            counted=self.counters.counted(span.delta),
            online=self.online.copy(),
            suspect=span.suspect,
            samples=span.samples,
        )

    def _ceiling(self, delta: Delta) -> Floats:
        """What turbo allows each core, mean over the span; NaN where nothing says. Hybrids have a
        ceiling for each core type, told apart by the CPUs that a counter is for."""
        result = np.full(len(self.splitter.cores), np.nan)
        for key in ("ceiling_hz", "e_ceiling_hz"):
            column = self.counters.columns.get(key)
            if column is None:
                continue
            table = delta.tables[column.block]
            with np.errstate(divide="ignore", invalid="ignore"):
                by_package = table.moved[:, column.first] / table.ticks
            cpus = column.counter.cpus
            for core, package in enumerate(self._package_of):
                if package is not None and (cpus is None or self.splitter.cores[core][0] in cpus):
                    result[core] = by_package[package]
        return result

    def _hotplug(self, note: wire.Note) -> None:
        cpu, online = note.data.get("cpu"), bool(note.data.get("online"))
        row = self.position.get(cpu) if isinstance(cpu, int) else None
        if row is None or not isinstance(cpu, int):
            return  # a CPU that hello did not know has no row in any frame
        self.online[row] = online
        self.topology[row] = _topology_row(note.data.get("row"), self.topology[row], online=online)
        if online:
            known = {cpu for core in self.splitter.cores for cpu in core}
            if cpu not in known:
                self._regroup(core_lists(self.topology))
        else:
            self.counters.forget(row)
        self.ended += self.detector.hotplug(cpu, note.time_ns, online=online)

    def _warn(self, note: wire.Note) -> None:
        self.warnings = [*self.warnings, str(note.data.get("text", ""))[:200]][-MOST_WARNINGS:]
        self.warned_ns = note.time_ns

    def _regroup(self, cores: list[list[int]]) -> None:
        self.splitter.regroup(cores)
        package = {cpu: i for i, group in enumerate(self.hello.packages) for cpu in group}
        self._package_of = [package.get(core[0]) for core in cores]

    def shown_cores(self) -> list[int]:
        """Positions of the cores with a CPU that the user asked for."""
        rows = set(self.shown)
        cores = enumerate(self.splitter.cores)
        return [i for i, core in cores if any(self.position[cpu] in rows for cpu in core)]

    def probe_cpu_s(self) -> float:
        """What the probe itself has used of CPU time since it started to tell."""
        column = self.counters.columns.get("probe_cpu_s")
        if column is None:
            return float("nan")
        return float(self.run.tables[column.block].moved[0, column.first])

    def missing(self) -> list[wire.Missing]:
        """Why metrics are not there: the probe's reasons, under the keys that users see."""
        why = {m.what: m for m in self.hello.missing}
        found = list(self.hello.missing)
        for key in METRICS:
            lacking = self.evaluator.lacking(key)
            if lacking is not None and key not in why:
                reason = why.get(lacking)
                text = reason.why if reason else f"no counter {lacking} on this source"
                found.append(wire.Missing(key, text, reason.fix if reason else None))
        if "ceiling_hz" not in self.counters.columns and "turbo_ceiling_hz" not in why:
            found.append(wire.Missing("turbo_ceiling_hz", "no turbo limits on this source"))
        return found


def _topology_row(data: object, old: wire.Cpu, *, online: bool) -> wire.Cpu:
    """The row a note brought, if it is one; else the old one with its new state."""
    if isinstance(data, dict):
        names = {f.name for f in dataclasses.fields(wire.Cpu)}
        known = {k: v for k, v in data.items() if k in names and k not in {"cpu", "online"}}
        ids = all(v is None or isinstance(v, int | str | list) for v in known.values())
        if ids and online:
            return dataclasses.replace(old, online=True, **known)
    return dataclasses.replace(old, online=online)
