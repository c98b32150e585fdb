"""The history of a stream, within a budget of bytes. It contains raw frames and notes, from which
the values at any moment are computed again exactly, and a table of each sample's metrics, from
which charts are drawn at the sampling rate.

Both are stored in chunks that cover the same samples (`session/chunks.py`). The oldest chunk is
dropped first.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Float32s, Floats, Ints
from perftop.model.evaluation import STATIC_METRICS, TRAFFIC_KEYS, ratio
from perftop.model.numbers import COUNTER_BY_NAME
from perftop.model.sample_reader import SampleBatch, SampleReader
from perftop.model.tasks import TaskSnapshot
from perftop.session.chunks import CEILING_ROW, WEIGHT_ROW, Chunk, CounterRows, SampleTable
from perftop.session.packing import Layouts, Packer

MAX_BYTES = 100_000_000
"""Budget of a history in bytes: enough for ten minutes of samples of 100 ms on 64 CPUs."""
CHUNK_SAMPLES = 50
"""Maximum number of samples in a chunk. All of them may be unpacked to read the last one."""
MIN_CHUNKS = 8
"""Minimum number of chunks in a full history. A chunk uses at most the budget divided by this
number, so that little is dropped at once."""
MAX_PACKED_BYTES, MIN_WAITING_PARTS = 1 << 21, 64
"""Maximum bytes of frames that are packed together, and minimum number of such parts."""
MAX_TASKS_AGE_NS = 2_000_000_000
"""Maximum age in ns of a record of tasks. The probe sends one every second."""
HISTORY_NUMBERS = (
    "pressure_cpu", "pressure_memory", "pressure_io", "load_1", "interrupts_hz",
    "context_switches_hz",
)  # fmt: skip
"""Numbers of the machine that are recorded for each sample."""
HISTORY_COUNTERS = (*TRAFFIC_KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and L3s that are recorded, too."""

Message = wire.Frame | wire.Note
Times = Ints


class History:
    """The history of one stream. A session adds messages and samples. Charts read sums over bins of
    time. A past interval is computed again from raw frames."""

    def __init__(self, hello: wire.Hello, budget: int = MAX_BYTES) -> None:
        self._budget = budget
        self._layouts = Layouts(hello)
        self._chunks: list[Chunk] = []
        self._sealed_bytes = 0
        """Size in bytes of all chunks except the newest."""
        self._now_ns = -1
        self._rows = [*range(len(hello.topology))]
        self._metrics: list[str] = []
        """Recorded metrics, in the order of the sample table."""
        self._registry = STATIC_METRICS
        self._counters: dict[str, CounterRows] = {}
        """Recorded counters of the machine, by key of the number, then those of packages and L3s,
        by key of the counter. The sample table has their rows in this order."""
        self._first: dict[str, int] = {}
        """For each counter in `_counters`, the index of its first row in the sample table."""
        self._stamp_hz = 1.0

    # --- Adding messages.

    def room_for_samples(self, reader: SampleReader) -> int:
        """Returns the number of frames for which the newest chunk has room, at least 1. Must be
        called before `reader` reads these frames, and again afterwards."""
        if not self._needs_chunk():
            table = self._chunks[-1].table
            if table.count < table.room and table.cores is reader.cores:
                return table.room - table.count
        self._begin_chunk(reader)
        return self._chunks[-1].table.room

    def keep(self, message: Message, reader: SampleReader) -> bool:
        """Adds a note before `reader` applies it, or a frame for which there is room. Returns
        False, without adding it, if a frame's time is impossible."""
        is_frame = isinstance(message, wire.Frame)
        if is_frame and not self._now_ns < message.time_ns <= sys.maxsize:
            return False
        if not is_frame and self._needs_chunk():
            self._begin_chunk(reader)
        self._chunks[-1].keep(message)
        if is_frame:
            self._now_ns = message.time_ns
        while self.byte_count > self._budget and len(self._chunks) > 1:
            self._sealed_bytes -= self._chunks.pop(0).nbytes
        return True

    def keep_baseline(self, frame: wire.Frame, reader: SampleReader) -> None:
        """Adds the first frame of a stream, which has no sample."""
        if self.keep(frame, reader):
            self._chunks[-1].before_ns = self._now_ns

    def keep_samples(self, batch: SampleBatch, first: int, last: int, reader: SampleReader) -> None:
        """Adds samples of a batch, and their frames, from `first` up to but not including
        `last`."""
        begin = first
        for index in range(first, last):
            was_kept = self.keep(batch.frames[index], reader)
            if was_kept and self._chunks[-1].before_ns < 0:
                self._chunks[-1].before_ns, was_kept = self._now_ns, False
            if not was_kept:
                self._chunks[-1].table.add(batch, begin, index)
                begin = index + 1
        self._chunks[-1].table.add(batch, begin, last)

    def write_waiting(self) -> None:
        """Packs the waiting messages, if there are enough, and writes the waiting samples. One call
        for several samples is faster than one call per sample."""
        if self._chunks:
            self._chunks[-1].table.write_waiting_samples()
            self._chunks[-1].pack_if_enough()

    def prepend(self, older: History) -> None:
        """Moves chunks of `older`, another history of this stream, to the start of this history: as
        many of the earlier chunks as fit, the newest first. `older` must not be used afterwards."""
        if not self._chunks or older._metrics != self._metrics:
            return
        first_ns = self._chunks[0].before_ns
        for chunk in older._chunks:
            chunk.seal()
        earlier_chunks = [c for c in older._chunks if c.table.count and c.end_ns <= first_ns]
        while (
            earlier_chunks
            and self.byte_count + sum(c.nbytes for c in earlier_chunks) > self._budget
        ):
            del earlier_chunks[0]
        self._chunks[:0] = earlier_chunks
        self._sealed_bytes += sum(c.nbytes for c in earlier_chunks)

    def _needs_chunk(self) -> bool:
        """Returns whether there is no chunk or the newest one is full."""
        return not self._chunks or self._chunks[-1].nbytes > self._budget // MIN_CHUNKS

    def _begin_chunk(self, reader: SampleReader) -> None:
        if not self._chunks:  # choose the metrics and counters to record
            self._metrics = [key for key, variants in reader.evaluator.variants.items() if variants]
            self._registry, self._stamp_hz = reader.evaluator.registry, reader.counters.stamp_hz
            columns, topology = reader.counters.columns, reader.hello.topology
            for name in HISTORY_NUMBERS:
                if (column := columns.get(COUNTER_BY_NAME[name])) is not None:
                    self._counters[name] = CounterRows(column, np.zeros(1, int))
            for key in HISTORY_COUNTERS:
                if (column := columns.get(key)) is None:
                    continue
                rows = [*range(len(reader.hello.packages))]
                if column.scope != "package":
                    cpus = {*(column.counter.cpus or ())}
                    rows = [i for i, row in enumerate(topology) if row.cpu in cpus]
                self._counters[key] = CounterRows(column, np.array(rows, int))
            counts = [len(counter_rows.rows) for counter_rows in self._counters.values()]
            self._first = dict(zip(self._counters, accumulate(counts, initial=0), strict=False))
        metrics = [self._registry.index[key] for key in self._metrics]
        parts = metrics, [*self._counters.values()], reader.counters, reader.cores
        sample_count = self._budget // MIN_CHUNKS // 2 // SampleTable(*parts, room=1).nbytes
        table = SampleTable(*parts, room=min(CHUNK_SAMPLES, max(1, sample_count)))
        if self._chunks:
            self._chunks[-1].seal()
            self._sealed_bytes += self._chunks[-1].nbytes
        max_waiting_bytes = min(MAX_PACKED_BYTES, self._budget // MIN_WAITING_PARTS)
        packer = Packer(self._layouts)
        self._chunks.append(Chunk(reader.copy(), self._now_ns, table, packer, max_waiting_bytes))

    # --- Size and times of the history.

    @property
    def byte_count(self) -> int:
        chunk = self._chunks[-1] if self._chunks else None
        newest_bytes = 0 if chunk is None else chunk.nbytes + chunk.packer_bytes
        return self._sealed_bytes + newest_bytes + self._layouts.nbytes

    @property
    def free_bytes(self) -> int:
        return max(0, self._budget - self.byte_count)

    @property
    def begin_ns(self) -> int | None:
        """Raw time of the start of the oldest sample."""
        return self._chunks[0].before_ns if self._chunks else None

    @property
    def first_ns(self) -> int | None:
        """Raw time of the end of the oldest sample."""
        return next((int(c.table.ends_ns[0]) for c in self._chunks if c.table.count), None)

    @property
    def last_ns(self) -> int | None:
        """Raw time of the end of the newest sample."""
        newest = reversed(self._chunks)
        return next((int(c.table.ends_ns[-1]) for c in newest if c.table.count), None)

    def times(self) -> Times:
        """Returns the raw times in ns of the ends of all samples, in ascending order."""
        return np.concatenate([np.zeros(0, np.int64), *(c.table.ends_ns for c in self._chunks)])

    # --- Charts: sums over bins of time. A bin reaches from one edge to the next and includes the
    # second edge. A bin in which no sample ends has the value of the sample that covers it. Unknown
    # values are NaN.

    def metric(self, key: str, rows: Sequence[int], edges_ns: Times) -> Floats:
        """Returns values of a metric, (bins, rows). `rows`: indexes of the CPUs."""
        return self.metrics([key], rows, edges_ns)[:, 0]

    def metrics(self, keys: Sequence[str], rows: Sequence[int], edges_ns: Times) -> Floats:
        """Returns values of several metrics, (bins, metrics, rows). One takes nearly as long."""
        values = np.full((len(edges_ns) - 1, len(keys), len(rows)), np.nan)
        served_columns = [i for i, key in enumerate(keys) if key in self._metrics]
        if not served_columns:
            return values
        places = [self._metrics.index(keys[i]) for i in served_columns]
        row_list = [*rows]
        all_rows = row_list == self._rows

        def part(chunk: Chunk, samples: slice) -> Float32s:
            top_and_bottom = chunk.table.terms[:, places, samples]
            chosen = top_and_bottom if all_rows else top_and_bottom[..., row_list]
            return chosen.transpose(2, 0, 1, 3)

        sums = self._sums(edges_ns, (2, len(served_columns), len(row_list)), part)
        metric_indexes = [self._registry.index[keys[i]] for i in served_columns]
        registry = self._registry
        low, high = registry.lows[metric_indexes, None], registry.highs[metric_indexes, None]
        values[:, served_columns] = ratio(sums[:, 0], sums[:, 1], low, high)
        return values

    def machine(self, names: Sequence[str], edges_ns: Times) -> Floats:
        """Returns numbers of the whole machine, (bins, names); NaN if not in HISTORY_NUMBERS."""
        values = np.full((len(edges_ns) - 1, len(names)), np.nan)
        counters = self._counters
        served_columns = [i for i, n in enumerate(names) if n in HISTORY_NUMBERS and n in counters]
        if served_columns:
            rows = [self._first[names[i]] for i in served_columns]
            kinds = [counters[names[i]].column.counter.kind for i in served_columns]
            units_per_second = np.where([kind == "gauge" for kind in kinds], 1.0, self._stamp_hz)
            increments, ticks = self._counter_sums(rows, len(rows), edges_ns)
            with np.errstate(divide="ignore", invalid="ignore"):
                values[:, served_columns] = units_per_second * increments / ticks
        return values

    def shared_counter(self, key: str, edges_ns: Times) -> Floats:
        """Returns the rate per second of a counter in HISTORY_COUNTERS, (bins, rows). There is one
        row for each package, in the order of hello, or for each L3, in the order of the CPUs that
        count it; none if it is not counted. A reading applies to all bins since the last one."""
        if key not in self._counters:
            return np.full((len(edges_ns) - 1, 0), np.nan)
        first, count = self._first[key], len(self._counters[key].rows)
        increments, ticks = self._counter_sums(slice(first, first + count), count, edges_ns)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = self._stamp_hz * increments / ticks
        return fill_covered_bins(rates, ticks / self._stamp_hz, np.diff(edges_ns) / 1e9)

    def states(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> Floats:
        """Returns the mean SMT states, (bins, cores, 4). `cores`: the CPU numbers of each core."""
        return self.cores(cores, edges_ns)[..., :WEIGHT_ROW]

    def cores(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> Floats:
        """Returns the values of `states` and the turbo ceiling in Hz, (bins, cores, 5)."""

        def part(chunk: Chunk, samples: slice) -> Float32s:
            table = chunk.table
            core_sums = table.core_terms[samples, table.cores.core_indexes(cores)]
            hz = core_sums[:, :, CEILING_ROW:]
            moments = chunk.moments()[samples.start : samples.stop + 1]
            weight = np.where(hz > 0, np.diff(moments)[:, None, None], 0).astype(np.float32)
            return np.concatenate([core_sums[:, :, :CEILING_ROW], hz * weight, weight], axis=2)

        sums = self._sums(edges_ns, (len(cores), CEILING_ROW + 2), part)
        top = sums[:, :, [*range(WEIGHT_ROW), CEILING_ROW]]
        bottom = sums[:, :, [*[WEIGHT_ROW] * WEIGHT_ROW, CEILING_ROW + 1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(bottom > 0, top / bottom, np.nan))

    def _counter_sums(
        self, rows: Sequence[int] | slice, count: int, edges_ns: Times
    ) -> tuple[Floats, Floats]:
        """Returns the increments and ticks of the `count` rows `rows` of the sample table, both
        (bins, rows)."""

        def part(chunk: Chunk, samples: slice) -> Float32s:
            return chunk.table.counters[:, rows, samples].transpose(2, 0, 1)

        sums = self._sums(edges_ns, (2, count), part)
        return sums[:, 0], sums[:, 1]

    def _sums(
        self, edges_ns: Times, shape: tuple[int, ...], part: Callable[[Chunk, slice], Float32s]
    ) -> Floats:
        """Returns sums over the samples that end in each bin, (bins, *shape). `part` returns the
        values of samples of a chunk."""
        chunks = self._chunks_between(int(edges_ns[0]), int(edges_ns[-1]))
        chunks = [c for c in chunks if c.table.count]
        if not chunks:
            return np.zeros((len(edges_ns) - 1, *shape))
        ends = np.concatenate([c.table.ends_ns for c in chunks])
        starts = ends.searchsorted(edges_ns, side="right")
        first, last, sample_count = int(starts[0]), int(starts[-1]) + 1, 0
        parts = []
        for chunk in chunks:
            chunk.table.write_waiting_samples()
            count = chunk.table.count
            samples = slice(max(0, first - sample_count), min(count, last - sample_count))
            parts.append(part(chunk, samples))
            sample_count += count
        # A sample of zeros, without known values, follows the last sample. For an empty bin,
        # reduceat returns the sample at its start, which is the one that covers the bin.
        table = np.concatenate([*parts, np.zeros((1, *shape), np.float32)])
        sums: Floats = np.add.reduceat(table, starts - first, axis=0, dtype=np.float64)[:-1]
        if edges_ns[1] <= chunks[0].before_ns:
            sums[edges_ns[1:] <= chunks[0].before_ns] = 0.0
        return sums

    def _chunks_between(self, first_ns: int, last_ns: int) -> Sequence[Chunk]:
        """Returns the chunks with samples that end between these moments, and the next chunk."""
        if self._chunks and first_ns >= self._chunks[-1].before_ns:
            return self._chunks[-1:]  # the usual case: a moving chart reads its newest bins
        first = bisect_right(self._chunks, first_ns, key=lambda c: c.end_ns)
        last = bisect_left(self._chunks, last_ns, key=lambda c: c.end_ns)
        return self._chunks[first : last + 1]

    # --- Computing past intervals again.

    def frames(self, start_ns: int, end_ns: int) -> Iterator[Message]:
        """Yields raw messages between two raw times, in their order. The iterator contains the
        messages present at the time of the call, even if it is read later or in another thread."""
        chunks = [c for c in self._chunks if c.last_ns >= start_ns and c.first_ns <= end_ns]
        parts = [self._unpack(chunk) for chunk in chunks]
        return (m for m in chain.from_iterable(parts) if start_ns <= m.time_ns <= end_ns)

    def _unpack(self, chunk: Chunk) -> Iterator[Message]:
        chunk.pack_waiting_frames()
        return map(Packer(self._layouts).unpack, tuple(chunk.messages))

    def span(self, time_ns: int, span_ns: int) -> tuple[int, int] | None:
        """Returns the start and end of an interval that ends with the newest sample at or before
        `time_ns`, with a length as close to `span_ns` as possible; None if its samples were
        dropped."""
        if not self._chunks:
            return None
        chunk = bisect_right(self._chunks, time_ns, key=lambda c: c.end_ns)
        moments = self._chunks[min(chunk, len(self._chunks) - 1)].moments()
        end_times = moments[moments <= time_ns]
        if not len(end_times):
            return None
        end_ns = int(end_times[-1])
        chunk = bisect_left(self._chunks, end_ns - span_ns, key=lambda c: c.end_ns)
        moments = self._chunks[chunk].moments()
        # if two samples are equally close, the later one is chosen
        starts_ns = moments[moments < end_ns][::-1]
        if not len(starts_ns):
            return None
        return int(starts_ns[np.argmin(np.abs(starts_ns - (end_ns - span_ns)))]), end_ns

    def reread(
        self, reader: SampleReader, begin_ns: int, end_ns: int
    ) -> tuple[SampleReader, Iterator[SampleBatch]]:
        """Returns the samples between two moments from `span`, computed again with the current
        cores and calibrations of `reader`; and a reader that is in its state after the newest one
        that was returned."""
        first = bisect_right(self._chunks, begin_ns, key=lambda c: c.end_ns)
        reader = reader.resume(self._chunks[first].reader)
        return reader, self._batches(reader, self._chunks[first:], begin_ns, end_ns)

    def _batches(
        self, reader: SampleReader, chunks: Iterable[Chunk], begin_ns: int, end_ns: int
    ) -> Iterator[SampleBatch]:
        frames: list[wire.Frame] = []
        newest_ns = begin_ns
        for message in chain.from_iterable(map(self._unpack, chunks)):
            is_end = isinstance(message, wire.Frame) and message.time_ns >= end_ns
            if isinstance(message, wire.Frame):
                frames.append(message)
            if isinstance(message, wire.Note) or is_end or len(frames) == CHUNK_SAMPLES:
                reader.skip([frame for frame in frames if frame.time_ns <= begin_ns])
                frames = [frame for frame in frames if frame.time_ns > begin_ns]
                yield from reader.batches(frames, newest_ns)
                newest_ns, frames = frames[-1].time_ns if frames else newest_ns, []
            if isinstance(message, wire.Note):
                reader.apply_note(message)
            if is_end:
                return

    def records(self, after_ns: int, until_ns: int) -> list[tuple[int, Mapping[str, object]]]:
        """Returns the records of frames after `after_ns` up to `until_ns`, with their raw times."""
        records: list[tuple[int, Mapping[str, object]]] = []
        for chunk in reversed(self._chunks):
            for time_ns, index in reversed(chunk.record_frames):
                if after_ns < time_ns <= until_ns:
                    records.append((time_ns, chunk.records(index)))
            if chunk.first_ns <= after_ns:
                break
        return records[::-1]

    def task_records(self, after_ns: int, until_ns: int) -> list[tuple[int, TaskSnapshot]]:
        """Returns the records of tasks after `after_ns` up to `until_ns`, with their raw times."""
        records = self.records(after_ns, until_ns)
        snapshots = ((time_ns, TaskSnapshot.from_records(record)) for time_ns, record in records)
        return [(time_ns, snapshot) for time_ns, snapshot in snapshots if snapshot is not None]

    def tasks_between(self, begin_ns: int, end_ns: int) -> TaskSnapshot:
        """Returns the mean of the records of tasks in this span; without any, the last one before
        it; empty if that is outdated at `end_ns`."""
        oldest_ns = min(begin_ns, end_ns - MAX_TASKS_AGE_NS - 1)
        records = self.task_records(oldest_ns, end_ns)
        inside = [snapshot for time_ns, snapshot in records if time_ns > begin_ns]
        if len(inside) > 1:
            return TaskSnapshot.mean(inside)
        return records[-1][1] if records else TaskSnapshot()


def fill_covered_bins(rates: Floats, read_s: Floats, bin_s: Floats) -> Floats:
    """Copies a rate that was read over several bins into all of them, in place. Returns `rates`."""
    for row in range(rates.shape[1]):
        known_rows = np.flatnonzero(np.isfinite(rates[:, row]))
        for index in known_rows[read_s[known_rows, row] > bin_s[known_rows]].tolist():
            first = index - round((read_s[index, row] - bin_s[index]) / max(bin_s[index], 1e-9))
            gap = slice(max(0, first), index)
            part = rates[gap, row]
            part[np.isnan(part)] = rates[index, row]
    return rates
