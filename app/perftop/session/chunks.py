"""The chunks of a history. A chunk contains consecutive frames and notes, packed, and a table of
each sample's metrics. It begins with the reader's state, so that no older message is needed to read
it.

The sample table contains the numerator and the denominator of each metric, so that the value of any
span is two sums and a division. For each core, it contains the seconds in its SMT states and its
turbo ceiling; 0 where unknown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgpack
import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Float32s, Floats, Ints
from perftop.model.counters import BlockCounter, Cores, Counters
from perftop.model.sample_reader import SampleBatch, SampleReader, StackedSamples
from perftop.model.smt import STATES
from perftop.session.packing import RECORDS_FIELD, Packer

WEIGHT_ROW = len(STATES)
CEILING_ROW = WEIGHT_ROW + 1
"""Indexes of two values of a core, after the seconds in its SMT states: the seconds for which the
states are known, and the turbo ceiling in Hz."""
CHUNK_OVERHEAD = 5_500
"""Size in bytes of a chunk's objects and array headers, in addition to their content."""
MAX_WAITING, MAX_WAITING_BYTES = 32, 1 << 16
"""Maximum number of frames, and of their bytes, that wait to be packed together. Packing many
frames takes little longer than packing one."""
RECORD_FRAME_BYTES = 130
"""Size in bytes of an entry of `Chunk.record_frames`."""
FRAME_OVERHEAD, ROWS_OVERHEAD = 500, 170
"""Sizes in bytes of a frame's objects, and of each block's objects, without content."""


@dataclass(frozen=True)
class CounterRows:
    """A counter of the machine, packages or L3s, and the rows of its block that history records."""

    column: BlockCounter
    rows: Ints

    def increments(self, batch: SampleBatch) -> Floats:
        """Returns the counter's increments, summed over its columns, (samples, rows)."""
        first, last = self.column.index, self.column.index + self.column.counter.columns
        block = batch.delta.tables[self.column.block].increments
        return np.asarray(np.ascontiguousarray(block[:, self.rows, first:last]).sum(axis=2))


class SampleTable:
    """Metrics, counters and core states of up to `room` consecutive samples."""

    def __init__(
        self, metrics: Sequence[int], counter_rows: Sequence[CounterRows], counters: Counters,
        cores: Cores, room: int,
    ) -> None:  # fmt: skip
        """`metrics`: indexes of the metrics in the registry."""
        self._metrics, self._stamp_hz = np.array(metrics, int), counters.stamp_hz
        cpus = len(counters.hello.topology)
        self.cores = cores
        self.room = room
        self.count = 0
        self._waiting_samples = StackedSamples()
        """The newest samples, which are not yet in the arrays."""
        self._ends = np.zeros(room, np.int64)
        self.terms: Float32s = np.zeros((2, len(metrics), room, cpus), np.float32)
        """Numerators and denominators of metrics."""
        self._counter_rows = counter_rows
        places = ((counters.value_indexes(chosen.column), chosen.rows) for chosen in counter_rows)
        indexes = [[part[rows] for part in parts] for parts, rows in places]
        indexes.append([np.zeros(0, int)] * 2)
        self._ticks, self._increment_indexes = map(np.concatenate, zip(*indexes, strict=True))
        """Indexes in a Delta of the counters' ticks and increments."""
        self.counters: Float32s = np.zeros((2, len(self._ticks), room), np.float32)
        """Increments and ticks of counters, in the order of `counter_rows`."""
        # The extra position at the end is for cores without known values, which have index -1.
        self.core_terms: Float32s = np.zeros(
            (room, len(cores.lists) + 1, CEILING_ROW + 1), np.float32
        )
        """The seconds in each SMT state, in all states, and the ceiling of each core."""

    @property
    def nbytes(self) -> int:
        arrays = self._ends, self.terms, self.counters, self.core_terms
        return sum(array.nbytes for array in arrays)

    @property
    def ends_ns(self) -> Ints:
        """Raw time in ns of the end of each sample."""
        return self._ends[: self.count]

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`, if any."""
        if first == last:
            return
        ends = [frame.time_ns for frame in batch.frames[first:last]]
        self._ends[self.count : self.count + len(ends)] = ends
        self.count += len(ends)
        self._waiting_samples.add(batch, first, last)

    def write_waiting_samples(self) -> None:
        """Writes the waiting samples into the arrays, which must be done before these are read.
        Writing many takes little longer than writing one."""
        if not self._waiting_samples.count:
            return
        new_columns = slice(self.count - self._waiting_samples.count, self.count)
        samples, self._waiting_samples = self._waiting_samples, StackedSamples()
        with np.errstate(over="ignore", invalid="ignore"):
            top = samples.stack(lambda batch: batch.values.numerators)
            bottom = samples.stack(lambda batch: batch.values.denominators)
            if len(self._metrics) < top.shape[1]:
                top, bottom = (part.take(self._metrics, axis=1) for part in (top, bottom))
            top, bottom = top.swapaxes(0, 1), bottom.swapaxes(0, 1)
            is_known = np.isfinite(top) & np.isfinite(bottom)
            _write_known(self.terms[0, :, new_columns], top, is_known)
            _write_known(self.terms[1, :, new_columns], bottom, is_known)

            increments = samples.stack(lambda batch: batch.delta.values_at(self._increment_indexes))
            ticks = samples.stack(lambda batch: batch.delta.values_at(self._ticks))
            first = 0
            for rows_of in self._counter_rows:
                last = first + len(rows_of.rows)
                if rows_of.column.counter.columns > 1:
                    increments[:, first:last] = samples.stack(rows_of.increments)
                first = last
            is_known = (np.isfinite(increments) & (ticks > 0)).T
            _write_known(self.counters[0, :, new_columns], increments.T, is_known)
            _write_known(self.counters[1, :, new_columns], ticks.T, is_known)

            states = samples.stack(lambda batch: batch.split.states)
            ceiling = samples.stack(lambda batch: batch.ceilings.hz)
            is_known = np.isfinite(states[..., 0])
            ticks = samples.stack(lambda batch: batch.delta.tables["cpu"].ticks)
            weight = self.cores.max_of_threads(ticks / self._stamp_hz)
            cores = self.core_terms[new_columns, :-1]
            _write_known(cores[..., :WEIGHT_ROW], states * weight[..., None], is_known[..., None])
            _write_known(cores[..., WEIGHT_ROW], weight, is_known)
            _write_known(cores[..., CEILING_ROW], ceiling, np.isfinite(ceiling))


def _write_known(target: Float32s, values: Floats, is_known: Bools) -> None:
    if np.count_nonzero(is_known) == is_known.size:
        target[...] = values
    else:
        np.copyto(target, values, where=is_known, casting="same_kind")


class Chunk:
    """Packed messages, their sample table, and the reader's state before the first of them. The
    newest frames wait to be packed together."""

    def __init__(self, reader: SampleReader, before_ns: int, table: SampleTable, packer: Packer,
                 max_waiting_bytes: int) -> None:  # fmt: skip
        """`max_waiting_bytes`: maximum size in bytes of the frames that wait to be packed."""
        self.reader = reader
        self.before_ns = before_ns
        """Raw time of the start of the chunk's first sample."""
        self.table = table
        self.messages: list[bytes] = []
        self.packer: Packer | None = packer
        """Packs the frames of this chunk; None once the chunk is sealed."""
        self.packer_bytes = 0
        self._waiting_frames: list[wire.Frame] = []
        self._waiting_bytes, self._max_waiting_bytes = 0, max_waiting_bytes
        self.record_frames: list[tuple[int, int]] = []
        """Raw time and message index of each frame with records."""
        self.first_ns, self.last_ns = sys.maxsize, 0
        """Raw times of the chunk's first and last message."""
        self._bytes = reader.nbytes + table.nbytes + CHUNK_OVERHEAD

    @property
    def nbytes(self) -> int:
        return self._bytes + self._waiting_bytes

    def keep(self, message: wire.Frame | wire.Note) -> None:
        self.first_ns = min(self.first_ns, message.time_ns)
        self.last_ns = max(self.last_ns, message.time_ns)
        if isinstance(message, wire.Note):
            self.pack_waiting_frames()
            self._pack([message])
            return
        if message.records:
            index = len(self.messages) + len(self._waiting_frames)
            self.record_frames.append((message.time_ns, index))
            self._bytes += RECORD_FRAME_BYTES
        self._waiting_frames.append(message)
        self._waiting_bytes += FRAME_OVERHEAD + sum(
            ROWS_OVERHEAD + len(rows.head) + len(rows.valid) + len(rows.values)
            for rows in message.blocks.values()
        )
        if self._waiting_bytes >= self._max_waiting_bytes:
            self.pack_waiting_frames()

    def records(self, index: int) -> Mapping[str, object]:
        """Returns the records of the message with this index."""
        if index < len(self.messages):
            records: dict[str, object] = msgpack.unpackb(self.messages[index])[RECORDS_FIELD]
            return records
        return self._waiting_frames[index - len(self.messages)].records

    def pack_if_enough(self) -> None:
        """Packs the waiting frames if there are enough of them."""
        if len(self._waiting_frames) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self.pack_waiting_frames()

    def pack_waiting_frames(self) -> None:
        if self._waiting_frames:
            self._pack(self._waiting_frames)
            self._waiting_frames, self._waiting_bytes = [], 0

    def seal(self) -> None:
        """Packs the waiting frames and ends the chunk. No message can be added afterwards."""
        self.pack_waiting_frames()
        self.packer, self.packer_bytes = None, 0

    def _pack(self, messages: Sequence[wire.Frame | wire.Note]) -> None:
        assert self.packer is not None
        packed_messages = self.packer.pack_many(messages)
        self.packer_bytes = self.packer.nbytes
        self.messages += packed_messages
        self._bytes += sum(sys.getsizeof(data) + 8 for data in packed_messages)

    @property
    def end_ns(self) -> int:
        return int(self.table.ends_ns[-1]) if self.table.count else self.before_ns

    def moments(self) -> Ints:
        """Returns the raw times at which the chunk's first sample starts and each sample ends."""
        return np.concatenate([np.array([self.before_ns], np.int64), self.table.ends_ns])
