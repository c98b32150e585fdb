"""Consecutive samples as history keeps them: the packed raw messages, and a trail of each sample's
metrics, from which charts are drawn at the resolution of sampling.

The trail has the numerator and the denominator of each metric. So the value of any span of time is
a sum of each and one division. For each core it has the seconds in its SMT states and its turbo
ceiling; 0 where unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints, Singles
from perftop.model.counters import BlockCounter, Cores, Counters
from perftop.model.sample_reader import ReaderState, SampleBatch, StackedSamples
from perftop.model.smt import STATES
from perftop.session.packing import Packer, records

Times = Ints
WEIGHT_ROW = len(STATES)
CEILING_ROW = WEIGHT_ROW + 1
"""Columns of a core after the seconds in its states: the seconds for which the states are known,
and the turbo ceiling in Hz."""
CHUNK_OVERHEAD = 5_500
"""Bytes of the objects and array headers of a chunk, in addition to their content."""
MAX_WAITING, MAX_WAITING_BYTES = 32, 1 << 16
"""Maximum number of frames, and of their bytes, that wait to be packed together: packing many costs
little more than packing one."""
TASK_FRAME_BYTES = 130
"""Bytes that an entry of `Chunk.task_frames` takes."""
FRAME_OVERHEAD, ROWS_OVERHEAD = 500, 170
"""Bytes of the objects of a frame, and of each of its blocks, in addition to their content."""


@dataclass(frozen=True)
class CounterRows:
    """A counter of the machine, of packages or of L3s, and the rows of its block that history
    keeps."""

    column: BlockCounter
    rows: Ints

    def increments(self, batch: SampleBatch) -> Floats:
        """Returns how far the counter advanced, summed over its columns, by sample and row."""
        first, last = self.column.first, self.column.first + self.column.counter.columns
        block = batch.delta.tables[self.column.block].increments
        return np.asarray(np.ascontiguousarray(block[:, self.rows, first:last]).sum(axis=2))


class Trail:
    """Metrics, counters and core states of up to `room` consecutive samples."""

    def __init__(
        self, metrics: Sequence[int], counter_rows: Sequence[CounterRows], counters: Counters,
        cores: Cores, room: int,
    ) -> None:  # fmt: skip
        """`metrics`: the metrics to keep, as positions in the registry."""
        self._metrics, self._stamp_hz = np.array(metrics, int), counters.stamp_hz
        cpus = len(counters.hello.topology)
        self.cores = cores
        self.room = room
        self.count = 0
        self._waiting_samples = StackedSamples()
        """The newest samples, which are not written yet."""
        self._ends = np.zeros(room, np.int64)
        self._parts: Singles = np.zeros((2, len(metrics), room, cpus), np.float32)
        self._counter_rows = counter_rows
        places = [
            [part[rows_of.rows] for part in counters.places(rows_of.column)]
            for rows_of in counter_rows
        ]
        places.append([np.zeros(0, int)] * 2)
        self._ticks, self._increment_places = map(np.concatenate, zip(*places, strict=True))
        """Positions of the rows of the counters in a Delta."""
        self._counters: Singles = np.zeros((2, len(self._ticks), room), np.float32)
        # One row more than there are cores: position -1 stands for a core without known values.
        self._cores: Singles = np.zeros((room, len(cores.lists) + 1, CEILING_ROW + 1), np.float32)

    @property
    def nbytes(self) -> int:
        arrays = self._ends, self._parts, self._counters, self._cores
        return sum(array.nbytes for array in arrays)

    @property
    def ends(self) -> Times:
        """Raw ns of the end of each sample."""
        return self._ends[: self.count]

    def metric_terms(self, metrics: Sequence[int], samples: slice) -> Singles:
        """Numerators and denominators, (2, metrics, samples, CPUs), of the metrics at these
        positions in the trail."""
        self.settle()
        return self._parts[:, metrics, samples]

    def counter_terms(self, rows: Sequence[int] | slice, samples: slice) -> Singles:
        """(samples, 2, rows): by how much rows of counters advanced, and in how many ticks."""
        self.settle()
        return self._counters[:, rows, samples].transpose(2, 0, 1)

    def core_terms(self, cores: Sequence[Sequence[int]], samples: slice) -> Singles:
        """(samples, cores, CEILING_ROW + 1): the values of cores given as lists of CPUs."""
        self.settle()
        return self._cores[samples, self.cores.positions_of(cores)]

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`."""
        ends = [frame.time_ns for frame in batch.frames[first:last]]
        self._ends[self.count : self.count + len(ends)] = ends
        self.count += len(ends)
        self._waiting_samples.add(batch, first, last)

    def settle(self) -> None:
        """Writes the added samples into the arrays; many cost little more than one."""
        if not self._waiting_samples.count:
            return
        new_columns = slice(self.count - self._waiting_samples.count, self.count)
        samples, self._waiting_samples = self._waiting_samples, StackedSamples()
        with np.errstate(over="ignore", invalid="ignore"):
            top = samples.part(lambda batch: batch.values.top)
            bottom = samples.part(lambda batch: batch.values.bottom)
            if len(self._metrics) < top.shape[1]:
                top, bottom = (part.take(self._metrics, axis=1) for part in (top, bottom))
            top, bottom = top.swapaxes(0, 1), bottom.swapaxes(0, 1)
            is_known = np.isfinite(top) & np.isfinite(bottom)
            _write_known(self._parts[0, :, new_columns], top, is_known)
            _write_known(self._parts[1, :, new_columns], bottom, is_known)

            increments = samples.part(lambda batch: batch.delta.take(self._increment_places))
            ticks = samples.part(lambda batch: batch.delta.take(self._ticks))
            first = 0
            for rows_of in self._counter_rows:
                last = first + len(rows_of.rows)
                if rows_of.column.counter.columns > 1:
                    increments[:, first:last] = samples.part(rows_of.increments)
                first = last
            is_known = (np.isfinite(increments) & (ticks > 0)).T
            _write_known(self._counters[0, :, new_columns], increments.T, is_known)
            _write_known(self._counters[1, :, new_columns], ticks.T, is_known)

            states = samples.part(lambda batch: batch.split.states)
            ceiling = samples.part(lambda batch: batch.ceilings.hz)
            is_known = np.isfinite(states[..., 0])
            ticks = samples.part(lambda batch: batch.delta.tables["cpu"].ticks)
            weight = self.cores.max_of_threads(ticks / self._stamp_hz)
            cores = self._cores[new_columns, :-1]
            _write_known(cores[..., :WEIGHT_ROW], states * weight[..., None], is_known[..., None])
            _write_known(cores[..., WEIGHT_ROW], weight, is_known)
            _write_known(cores[..., CEILING_ROW], ceiling, np.isfinite(ceiling))


def _write_known(target: Singles, values: Floats, is_known: Bools) -> None:
    if np.count_nonzero(is_known) == is_known.size:
        target[...] = values
    else:
        np.copyto(target, values, where=is_known, casting="same_kind")


class Chunk:
    """Packed messages, their trail, and the state of the reader before the first of them, so that
    no older message is needed. The newest frames wait to be packed together."""

    __slots__ = (
        "_bytes",
        "_max_waiting_bytes",
        "_waiting_bytes",
        "_waiting_frames",
        "before_ns",
        "first_ns",
        "last_ns",
        "messages",
        "packer",
        "packer_bytes",
        "state",
        "task_frames",
        "trail",
    )  # fmt: skip

    def __init__(
        self,
        state: ReaderState,
        before_ns: int,
        trail: Trail,
        packer: Packer,
        max_waiting_bytes: int,
    ) -> None:
        """`max_waiting_bytes`: maximum size in bytes of the frames that are not packed yet."""
        self.state = state
        self.before_ns = before_ns
        """Raw time of the start of the chunk's first sample."""
        self.trail = trail
        self.messages: list[bytes] = []
        """Packed messages."""
        self.packer: Packer | None = packer
        """Packs the frames of this chunk; None if the chunk is sealed."""
        self.packer_bytes = 0
        self._waiting_frames: list[wire.Frame] = []
        self._waiting_bytes, self._max_waiting_bytes = 0, max_waiting_bytes
        self.task_frames: list[tuple[int, int]] = []
        """Raw time and index, among all messages, of each frame with a record of tasks."""
        self.first_ns, self.last_ns = sys.maxsize, 0
        """Times of the chunk's first and last message."""
        self._bytes = state.nbytes + trail.nbytes + CHUNK_OVERHEAD

    @property
    def nbytes(self) -> int:
        return self._bytes + self._waiting_bytes

    def keep(self, message: wire.Frame | wire.Note) -> None:
        self.first_ns = min(self.first_ns, message.time_ns)
        self.last_ns = max(self.last_ns, message.time_ns)
        if isinstance(message, wire.Note):
            self.settle()
            self._pack([message])
            return
        if "tasks" in message.records:
            index = len(self.messages) + len(self._waiting_frames)
            self.task_frames.append((message.time_ns, index))
            self._bytes += TASK_FRAME_BYTES
        self._waiting_frames.append(message)
        self._waiting_bytes += FRAME_OVERHEAD + sum(
            ROWS_OVERHEAD + len(rows.head) + len(rows.valid) + len(rows.values)
            for rows in message.blocks.values()
        )
        if self._waiting_bytes >= self._max_waiting_bytes:
            self.settle()

    def records(self, index: int) -> Mapping[str, object]:
        """Returns the records, other than counters, of the message with this index."""
        if index < len(self.messages):
            return records(self.messages[index])
        return self._waiting_frames[index - len(self.messages)].records

    def settle_many(self) -> None:
        """Packs the waiting frames, if there are enough of them."""
        if len(self._waiting_frames) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self.settle()

    def settle(self) -> None:
        """Packs the waiting frames."""
        if self._waiting_frames:
            self._pack(self._waiting_frames)
            self._waiting_frames, self._waiting_bytes = [], 0

    def seal(self) -> None:
        """Packs the waiting frames; no message can be added afterwards."""
        self.settle()
        self.packer, self.packer_bytes = None, 0

    def _pack(self, messages: Sequence[wire.Frame | wire.Note]) -> None:
        assert self.packer is not None
        packed_messages = self.packer.packs(messages)
        self.packer_bytes = self.packer.nbytes
        self.messages += packed_messages
        self._bytes += sum(sys.getsizeof(data) + 8 for data in packed_messages)

    @property
    def end_ns(self) -> int:
        return int(self.trail.ends[-1]) if self.trail.count else self.before_ns

    def moments(self) -> Times:
        """Returns raw times of the start of the chunk's first sample and of the end of each
        sample."""
        return np.concatenate([np.array([self.before_ns], np.int64), self.trail.ends])
