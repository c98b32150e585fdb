"""The C sampler as a Python object, and the layout of a frame: the offsets of each block's rows in
one flat array of u64 words.

The sampler has a thread (a lane) for each CPU, which reads its slots in each round (at each
deadline) and pushes the values into a ring; the main thread drains the rings into a frame. One
thread at a time may use a Sampler. Times are CLOCK_MONOTONIC, as of time.monotonic().
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from perfprobe import wire
from perfprobe._native import ffi, lib
from perfprobe.errors import check_result


@dataclass(frozen=True, slots=True)
class BlockOffsets:
    """Offsets of a block's row heads, valid bits and values, in u64 words of the frame."""

    block: wire.Block
    row_count: int
    heads: int
    valid: int
    values: int
    end: int

    def row_plan(self, row: int, slots: Sequence[Slot]) -> RowPlan:
        words = self.block.valid_words
        return RowPlan(
            self.heads + row * wire.HEAD,
            self.valid + row * words,
            words,
            self.values + row * self.block.columns,
            slots,
        )

    def rows_in(self, frame: memoryview) -> wire.Rows:
        """Returns the block's rows as views into the frame, valid until the frame changes."""
        return wire.Rows(
            frame[8 * self.heads : 8 * self.valid],
            frame[8 * self.valid : 8 * self.values],
            frame[8 * self.values : 8 * self.end],
        )


def lay_out(blocks: Sequence[tuple[wire.Block, int]]) -> tuple[list[BlockOffsets], int]:
    """Lays out blocks (with their numbers of rows) one after the other in a frame. Returns their
    offsets and the length of the frame in words."""
    offsets = []
    begin = 0
    for block, rows in blocks:
        valid = begin + rows * wire.HEAD
        values = valid + rows * block.valid_words
        end = values + rows * block.columns
        offsets.append(BlockOffsets(block, rows, begin, valid, values, end))
        begin = end
    return offsets, begin


# --- sampler --------------------------------------------------------------------------------------

USUAL_PUSH_NS = 1_000_000  # time in ns that lanes usually need from the deadline to the push
RETRY_NS = 1_000_000
"""Minimum pause in ns before late lanes are checked again. The pause grows with the time waited, so
that a lane that does not get its CPU does not keep the main thread busy."""
MAX_LANE_WAIT_NS = 100_000_000  # longest wait in ns for late lanes; at most half a period


@dataclass(frozen=True, slots=True)
class Slot:
    """One read that a lane repeats in each round; the same as pp_slot of pp_sampler.h."""

    kind: int
    column: int
    fd: int
    """The descriptor to read, open until detach or close. For some kinds, not a descriptor."""
    arg: int = 0
    """The meaning depends on the kind (pp_sampler.h)."""
    count: int = 1
    """Number of columns that the slot fills, from `column` on."""


class MsrField:
    """A bit field of an MSR, for a slot: `width` bits from bit `shift` on. If `minuend` is not 0,
    the value is `minuend` minus these bits. If `enable_bit` is not 0, the value is valid only while
    that bit of the register is set. The object must outlive the lane that reads it."""

    def __init__(
        self, register: int, shift: int, width: int, *, minuend: int = 0, enable_bit: int = 0
    ) -> None:
        self._memory: Any = ffi.new("pp_field *", (register, shift, width, minuend, enable_bit))
        self.address = int(ffi.cast("uintptr_t", self._memory))


class MsrFlagCounts:
    """Status bits of an MSR for a slot: the lane counts its polls, and for each bit of `mask` the
    polls that found it set. The object has the counts and must outlive the lane."""

    def __init__(self, register: int, mask: int) -> None:
        self._memory: Any = ffi.new("pp_flags *", (register, mask))
        self.address = int(ffi.cast("uintptr_t", self._memory))
        self.columns = 1 + mask.bit_count()


class ProcStatText:
    """Buffers for a slot that reads /proc/stat: its text (`size` bytes) and the lines of CPUs 0 to
    `cpus` - 1. The lane writes into both buffers, so this object must outlive the lane."""

    def __init__(self, fd: int, cpus: int, size: int) -> None:
        self._text = ffi.new("char[]", size)
        self._lines = ffi.new("pp_stat_line[]", cpus)
        self._memory: Any = ffi.new("pp_proc_stat *", (fd, cpus, size, self._text, self._lines))
        self.address = int(ffi.cast("uintptr_t", self._memory))


@dataclass(frozen=True, slots=True)
class RowPlan:
    """A row that a lane fills: its slots, and its offsets in u64 words of the frame."""

    head: int
    valid: int
    valid_words: int
    values: int
    slots: Sequence[Slot]


@dataclass(frozen=True, slots=True)
class DrainedRound:
    number: int
    deadline_ns: int
    delivered_cpus: int
    missing_lanes: int


class Sampler:
    """Samples all attached CPUs every `period_ns`. A frame has `frame_words` words."""

    def __init__(
        self,
        period_ns: int,
        frame_words: int,
        *,
        stamp: Literal["tsc", "raw"] = "tsc",
        check_cpu: bool = True,
        ring_rounds: int = 64,
        first_delay_ns: int = 0,
    ) -> None:
        """With `check_cpu`, a row is valid only if its own CPU read it. A lane's ring has
        `ring_rounds` rounds. Round 0 is due after `first_delay_ns` (0: one period)."""
        self.stamp: Literal["tsc", "raw"] = stamp
        """Unit of the stamps: ticks of the TSC, or ns of CLOCK_MONOTONIC_RAW."""
        kind = lib.PP_STAMP_TSC if stamp == "tsc" else lib.PP_STAMP_RAW
        fields = period_ns, frame_words, ring_rounds, kind, check_cpu, first_delay_ns
        config = ffi.new("pp_config *", fields)
        handle = ffi.new("pp_sampler **")
        check_result(lib.pp_new(config, handle))
        self._sampler = handle[0]
        self._buffer = ffi.new("uint64_t[]", max(frame_words, 1))
        self._delivered = ffi.new("uint32_t *")
        self._start_ns = lib.pp_start_ns(self._sampler)
        self._period_ns = period_ns
        self._ring_rounds = ring_rounds
        self._max_lane_wait_ns = min(MAX_LANE_WAIT_NS, period_ns // 2)
        self._usual_push_ns = min(USUAL_PUSH_NS, period_ns // 4)
        self.next_round = 0
        """The round that is drained next."""
        self._retry_ns = 0
        self._cpus: set[int] = set()
        self._closed = False
        self.late_rounds = 0
        """Number of rounds without a frame: no CPU had a sample, or draining was too late."""
        self.frame = memoryview(ffi.buffer(self._buffer, 8 * frame_words)).cast("B")
        """The last drained round; draining the next round overwrites it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attach(self, cpu: int, rows: Sequence[RowPlan], rebased: bool = False) -> None:
        """Starts the lane of a CPU, or an unpinned lane (PP_UNPINNED_CPU), which reads these rows.
        No error is raised if the lane cannot be pinned; `stats` shows that."""
        plans = [(r.head, r.valid, r.valid_words, r.values, len(r.slots)) for r in rows]
        slots = [(s.kind, s.column, s.fd, s.count, s.arg) for r in rows for s in r.slots]
        flags = wire.ROW_REBASED if rebased else 0
        c_rows, c_slots = ffi.new("pp_row[]", plans), ffi.new("pp_slot[]", slots)
        sampler = self._open()
        check_result(lib.pp_attach(sampler, cpu, flags, c_rows, len(plans), c_slots, len(slots)))
        if cpu != lib.PP_UNPINNED_CPU:
            self._cpus.add(cpu)

    def detach(self, cpu: int) -> None:
        """Ends the CPU's lane and waits for its end."""
        check_result(lib.pp_detach(self._open(), cpu))
        self._cpus.discard(cpu)

    def now(self) -> int:
        """Returns a time stamp of now, in the unit of the frames' stamps."""
        if self.stamp == "tsc":
            return lib.pp_stamp()
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def due_s(self, last_round: int | None = None) -> float:
        """Returns the earliest time at which all rounds up to `last_round` (None: the next round)
        can be drained, in s of CLOCK_MONOTONIC."""
        round_ = self.next_round if last_round is None else last_round
        return max(self._deadline(round_) + self._usual_push_ns, self._retry_ns) / 1e9

    def drain(self, force: bool = False) -> DrainedRound | None:
        """Copies the next round into the frame if all lanes have pushed it, or if the wait for late
        lanes is over; with `force`, immediately. Returns None if the round is not complete."""
        sampler = self._open()
        now_ns = time.monotonic_ns()
        # After a stall of the main thread the rings may be full, and then accept no newer rounds.
        current = (now_ns - self._start_ns) // self._period_ns
        if current - self.next_round >= self._ring_rounds:
            self.late_rounds += current - self.next_round
            self.next_round = current
        while now_ns >= (deadline := self._deadline(self.next_round)):
            is_over = force or now_ns > deadline + self._max_lane_wait_ns
            pending = check_result(
                lib.pp_drain(sampler, self.next_round, self._buffer, is_over, self._delivered)
            )
            if pending and not is_over:
                self._retry_ns = now_ns + max(RETRY_NS, (now_ns - deadline) // 2)
                return None
            drained = DrainedRound(self.next_round, deadline, self._delivered[0], pending)
            self.next_round += 1
            if drained.delivered_cpus or not self._cpus:
                return drained
            self.late_rounds += 1
            now_ns = time.monotonic_ns()
        return None

    def stats(self, cpu: int) -> Any:
        """Returns the pp_stats of a CPU. Raises OSError (ENOENT) if it was never attached."""
        counts = ffi.new("pp_stats *")
        check_result(lib.pp_get_stats(self._open(), cpu, counts))
        return counts

    def close(self) -> None:
        """Ends all lanes. The frame stays readable."""
        if not self._closed:
            self._closed = True
            lib.pp_free(self._sampler)

    def _open(self) -> Any:
        if self._closed:
            raise ValueError("the sampler is closed")
        return self._sampler

    def _deadline(self, round_: int) -> int:
        return self._start_ns + round_ * self._period_ns
