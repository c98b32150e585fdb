"""The past, as far as it fits: raw frames and notes, from which any moment can be had exactly, and
the trail of what each sample showed, from which pictures are drawn.

Both lie in chunks of the same samples, and the oldest chunk goes first. A chunk begins with the
state in which the stream was read, so nothing before it is needed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from perfprobe import wire
from perftop.model import counters as scopes
from perftop.model.machine_totals import NAMES, SHARED, TRACED
from perftop.model.sample_reader import Sample, Sieve
from perftop.model.tasks import Look
from perftop.session.binned_history import Binned
from perftop.session.frame_packing import Layouts, Packer, records
from perftop.session.history_chunk import Chunk
from perftop.session.interval import Span, nothing
from perftop.session.sample_history import Shared, Times, Trail

BYTES = 100_000_000
"""Bytes of a history: ten minutes of 100 ms on 64 CPUs."""
CHUNK = 50
"""Samples: to look at one, those before it in its chunk must be unpacked."""
PARTS = 8
"""No chunk takes a greater part of the budget: what goes at once is little of what is kept."""
TOGETHER_BYTES, WAITING_PART = 1 << 21, 64
"""Most bytes that are packed together, and what part of the budget they may be."""
TASKS_NS = 2_000_000_000
"""Who runs where is told about once a second: what is older is not true any more."""

Message = wire.Frame | wire.Note


def edges(end_ns: int, bin_ns: int, bins: int) -> Times:
    """Edges of bins, the last of which holds `end_ns`. They are multiples of `bin_ns`, so that bins
    stay the same while time goes on."""
    last = -(-end_ns // bin_ns)
    return np.arange(last - bins, last + 1, dtype=np.int64) * bin_ns


class History(Binned):
    """Filled by a session, message by message; asked by whoever draws."""

    def __init__(self, hello: wire.Hello, budget: int = BYTES) -> None:
        super().__init__(hello)
        self._budget = budget
        self._layouts = Layouts(hello)
        self._sealed = 0
        """Bytes of all chunks but the newest."""
        self._now_ns = -1

    # --- filling

    def room(self, sieve: Sieve) -> int:
        """How many frames can be kept until this must be called again; `sieve` has seen none of
        them yet."""
        last = self._chunks[-1].trail if self._chunks else None
        full = last is None or last.count == last.room or last.cores is not sieve.cores
        if full or self._heavy():
            self._begin(sieve)
        trail = self._chunks[-1].trail
        return trail.room - trail.count

    def keep(self, message: Message, sieve: Sieve) -> bool:
        """Keep a note that `sieve` has not seen yet, or a frame for which there is room. False: its
        time cannot be, so it is not kept."""
        is_frame = isinstance(message, wire.Frame)
        if is_frame and not self._now_ns < message.time_ns <= sys.maxsize:
            return False
        if not is_frame and self._heavy():
            self._begin(sieve)
        self._chunks[-1].keep(message)
        if is_frame:
            self._now_ns = message.time_ns
        while self.bytes > self._budget and len(self._chunks) > 1:
            self._sealed -= self._chunks.pop(0).nbytes
        return True

    def trace(self, sample: Sample | None) -> None:
        """What the sieve has made of the frame that was just kept."""
        chunk, now_ns = self._chunks[-1], self._now_ns
        if sample is None or chunk.before_ns < 0:  # the first is only what others begin with
            chunk.before_ns = now_ns
            return
        chunk.trail.add(now_ns, sample)

    def put_before(self, older: History) -> None:
        """Takes over what another history of this stream has from before this one, the newest of it
        if there is no room for all. The other one is not to be used any more."""
        if not self._chunks or older._served != self._served:
            return
        first_ns = self._chunks[0].before_ns
        for chunk in older._chunks:
            chunk.seal()
        earlier = [c for c in older._chunks if c.trail.count and c.end_ns <= first_ns]
        while earlier and self.bytes + sum(c.nbytes for c in earlier) > self._budget:
            del earlier[0]
        self._chunks[:0] = earlier
        self._sealed += sum(c.nbytes for c in earlier)

    @property
    def begin_ns(self) -> int | None:
        """When the oldest sample began."""
        return self._chunks[0].before_ns if self._chunks else None

    @property
    def room_bytes(self) -> int:
        """How much more can be held."""
        return max(0, self._budget - self.bytes)

    def settle(self) -> None:
        """Called after some samples: writes what `keep` and `trace` were given."""
        if self._chunks:
            self._chunks[-1].trail.settle()
            self._chunks[-1].settle_many()

    def _heavy(self) -> bool:
        """No chunk may take more, or there is none."""
        return not self._chunks or self._chunks[-1].nbytes > self._budget // PARTS

    def _begin(self, sieve: Sieve) -> None:
        self._served = [key for key, chosen in sieve.evaluator.chosen.items() if chosen]
        self._registry = sieve.evaluator.registry
        kept = [self._registry.index[key] for key in self._served]
        found = {name: sieve.counters.columns.get(NAMES[name]) for name in TRACED}
        self._of_machine = {name: column for name, column in found.items() if column is not None}
        machine = [*self._of_machine.values()]
        self._stamp_hz = sieve.counters.stamp_hz
        self._shared = self._shared or _shared(sieve)
        shared = [*self._shared.values()]
        of = kept, machine, sieve.counters, sieve.cores, shared
        sample_bytes = Trail(*of, room=1).nbytes
        room = min(CHUNK, max(1, self._budget // PARTS // 2 // sample_bytes))
        trail = Trail(*of, room=room)
        if self._chunks:
            self._chunks[-1].seal()
            self._sealed += self._chunks[-1].nbytes
        packer = Packer(self._layouts)
        waiting = min(TOGETHER_BYTES, self._budget // WAITING_PART)
        self._chunks.append(Chunk(sieve.state(), self._now_ns, trail, packer, waiting))

    # --- asking

    @property
    def bytes(self) -> int:
        """Held now."""
        newest = self._chunks[-1].nbytes if self._chunks else 0
        packer = self._chunks[-1].packer if self._chunks else None
        return self._sealed + newest + (packer.nbytes if packer else 0) + self._layouts.nbytes

    @property
    def first_ns(self) -> int | None:
        """Raw time of the end of the oldest sample."""
        return next((int(c.trail.ends[0]) for c in self._chunks if c.trail.count), None)

    @property
    def last_ns(self) -> int | None:
        """Raw time of the end of the newest sample."""
        newest = reversed(self._chunks)
        return next((int(c.trail.ends[-1]) for c in newest if c.trail.count), None)

    def frames(self, start_ns: int, end_ns: int) -> Iterator[Message]:
        """Raw, in their order: those that are kept now, whenever and in whatever thread they are
        read."""
        near = [c for c in self._chunks if c.last_ns >= start_ns and c.first_ns <= end_ns]
        parts = [self._unpacked(chunk) for chunk in near]
        return (m for m in chain.from_iterable(parts) if start_ns <= m.time_ns <= end_ns)

    def _unpacked(self, chunk: Chunk) -> Iterator[Message]:
        chunk.settle()
        return map(Packer(self._layouts).unpack, tuple(chunk.messages))

    # --- going back

    def span(self, time_ns: int, span_ns: int) -> tuple[int, int] | None:
        """When the samples begin and end of which the last is the newest that has ended by then,
        and which last for the time asked for as closely as can be."""
        if not self._chunks:
            return None
        chunk = bisect_right(self._chunks, time_ns, key=lambda c: c.end_ns)
        moments = self._chunks[min(chunk, len(self._chunks) - 1)].moments()
        ended = moments[moments <= time_ns]
        if not len(ended):
            return None
        end_ns = int(ended[-1])
        chunk = bisect_left(self._chunks, end_ns - span_ns, key=lambda c: c.end_ns)
        moments = self._chunks[chunk].moments()
        begun = moments[moments < end_ns][::-1]  # of two as close the later: so does a live one
        if not len(begun):
            return None
        return int(begun[np.argmin(np.abs(begun - (end_ns - span_ns)))]), end_ns

    def rewind(self, sieve: Sieve, begin_ns: int, end_ns: int) -> tuple[Sieve, Span]:
        """The samples between two moments that `span` gave, taken again, and the sieve as they left
        it. Cores and calibrations are those of `sieve`, as they are now."""
        first = bisect_right(self._chunks, begin_ns, key=lambda c: c.end_ns)
        sieve = sieve.resumed(self._chunks[first].state)
        span = nothing(sieve, begin_ns)
        for chunk in self._chunks[first:]:
            frames: list[wire.Frame] = []
            for message in self._unpacked(chunk):
                if isinstance(message, wire.Frame):
                    frames.append(message)
                if isinstance(message, wire.Note) or message.time_ns >= end_ns:
                    _add(frames, begin_ns, sieve, span)
                    frames.clear()
                if isinstance(message, wire.Note):
                    sieve.hotplug(message)
                    sieve.ownership(message)
                elif message.time_ns >= end_ns:
                    return sieve, span
            _add(frames, begin_ns, sieve, span)
        raise AssertionError("no such span")

    def look(self, end_ns: int) -> Look:
        """Who ran where, as it was told last; empty if that was long before."""
        for chunk in reversed(self._chunks):
            chunk.settle()
            for packed in reversed(chunk.messages):
                time_ns, found = records(packed)
                if time_ns <= end_ns and (look := Look.of(found)) is not None:
                    return look if end_ns - time_ns <= TASKS_NS else Look()
            if chunk.first_ns <= end_ns - TASKS_NS:
                break
        return Look()


def _add(frames: Sequence[wire.Frame], begin_ns: int, sieve: Sieve, span: Span) -> None:
    """Take frames again, and add the samples that end after that time."""
    sieve.skip([frame for frame in frames if frame.time_ns <= begin_ns])
    for sample in sieve.samples([frame for frame in frames if frame.time_ns > begin_ns]):
        if sample is not None:
            span.add(sample, sieve)


def _shared(sieve: Sieve) -> dict[str, Shared]:
    """Those of SHARED that the stream has, with their rows."""
    found = {}
    for key in SHARED:
        column = sieve.counters.columns.get(key)
        if column is None:
            continue
        rows = [*range(len(sieve.hello.packages))]
        if key not in scopes.OF["package"]:
            cpus = {*(column.counter.cpus or ())}
            rows = [i for i, row in enumerate(sieve.hello.topology) if row.cpu in cpus]
        found[key] = Shared(column, np.array(rows, int))
    return found
