"""The schedule of a simulated machine (what runs when, at which clock, and when cores halt
involuntarily), and exact integrals of it up to any moment, from which counters are computed.

Time is divided into cells of 10 ms. A cell depends only on script, seed and cell number, so any
cell can be computed at any time. In a cell each CPU works during [work_start, work_end), is taken
by the hypervisor during [work_end, steal_end), and is idle otherwise. Each core has one clock and
one pattern of involuntary halts. All times are integer ns and all rates integers, so sums are exact
however time is divided (int64 is enough for a month).

Halts are removed by a change of variable: `unhalted_ns(x)` is the time for which the core was not
halted in the first x ns of the cell. In that time, a CPU's work is still one interval.

A slot is an element of an array of CPUs (see machine.py)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np

from perfprobe.sources.sim.machine import Ints, SimMachine
from perfprobe.sources.sim.script import CELL_NS, Script, ScriptTables
from perfprobe.wire import ROW_WIDE


class Row(IntEnum):
    """Rows of the integrals: quantities that are integrated over time. Times are ns; cycles and
    instructions are times 1000, because ns x MHz is 1000 times the cycles."""

    RUN = 0  # ns not halted
    SMT = 1  # ns not halted and alone on its core; with more than two threads: any thread runs
    CYCLES = 2
    INSTRUCTIONS = 3
    KERNEL_CYCLES = 4
    KERNEL_INSTRUCTIONS = 5
    LICENSE_1 = 6
    LICENSE_2 = 7
    IDLE = 8  # ns idle, halted by the OS
    POLL = 9  # ns idle, polling instead of halting
    ENTRIES = 10  # number of entries into IDLE
    STEAL = 11
    BUSY = 12  # ns in which the OS runs a task on the CPU, halted or not
    SYSTEM = 13  # the part of BUSY in the kernel, in ps
    IOWAIT = 14  # the part of IDLE with I/O pending, in ps
    SMI = 15  # number of SMIs
    ONLINE = 16  # ns online
    TRAFFIC = 17  # memory traffic, in thousandths of bytes
    MISSES = 18  # cache misses x 800 x 1000


@dataclass(frozen=True, slots=True)
class ScheduleCells:
    """Some consecutive cells; axes (cell, thread, core). Times are ns within the cell."""

    work_start: Ints
    work_end: Ints
    steal_end: Ints
    poll_start: Ints
    """The moment in [work_start, work_end) at which the work ends and the idle loop polls."""
    online: Ints
    # Rates in events per microsecond; for cycles, that is MHz.
    mhz: Ints
    instructions_per_us: Ints
    kernel_cycles_per_us: Ints
    kernel_instructions_per_us: Ints
    # Shares in per mille.
    kernel_permille: Ints
    iowait_permille: Ints
    simd_level: Ints
    """The SIMD level: 0, 1 or 2."""
    traffic_mbps: Ints
    """MB/s to and from memory while the CPU runs."""
    miss_rate: Ints
    """Cache misses per 800 us: `instructions_per_us` times `Load.misses`."""
    # Halts, by core (the thread axis has length 1): a halt of `halt` ns in each `halt_period`.
    halt_period: Ints
    halt_phase: Ints
    halt: Ints
    smi_end: Ints
    """The end of the SMI; after the end of the cell if there is none."""

    def cell(self, index: int) -> ScheduleCells:
        return ScheduleCells(*(getattr(self, name)[index : index + 1] for name in _NAMES))

    def unhalted_ns(self, x: Any) -> Ints:
        """Returns the ns for which the core was not halted in the first x ns of the cell."""
        if not self.halt.any():
            return np.asarray(x + 0 * self.halt)
        whole_periods, remainder = np.divmod(x, self.halt_period)
        halted_ns = np.minimum(np.maximum(remainder - self.halt_phase, 0), self.halt)
        return np.asarray(x - whole_periods * self.halt - halted_ns)


_NAMES = tuple(field.name for field in fields(ScheduleCells))


def overlap(x: Any, first: Ints, last: Ints) -> Ints:
    """Returns the length of that part of [first, last) which is before x."""
    return np.asarray(np.minimum(np.maximum(x, first), last) - first)


def integrals(cells: ScheduleCells, x: Any) -> Ints:
    """Returns the integrals from the start of each cell to x (ns in the cell, by CPU or for all
    CPUs), with axes (Row, cell, thread, core)."""
    sums = np.zeros((len(Row), *cells.work_start.shape), np.int64)
    x_run = cells.unhalted_ns(x)
    first, last = cells.unhalted_ns(cells.work_start), cells.unhalted_ns(cells.work_end)
    run = sums[Row.RUN] = overlap(x_run, first, last)
    sums[Row.SMT] = _smt_times(x_run, run, first, last)
    cycles = np.multiply(run, cells.mhz, out=sums[Row.CYCLES])
    np.multiply(run, cells.instructions_per_us, out=sums[Row.INSTRUCTIONS])
    np.multiply(run, cells.kernel_cycles_per_us, out=sums[Row.KERNEL_CYCLES])
    np.multiply(run, cells.kernel_instructions_per_us, out=sums[Row.KERNEL_INSTRUCTIONS])
    if cells.simd_level.any():
        sums[Row.LICENSE_1] = cycles * (cells.simd_level == 1)
        sums[Row.LICENSE_2] = cycles * (cells.simd_level == 2)
    busy = np.minimum(x, cells.poll_start) - np.minimum(x, cells.work_start)
    sums[Row.BUSY] = busy
    np.multiply(busy, cells.kernel_permille, out=sums[Row.SYSTEM])
    sums[Row.POLL] = overlap(x, cells.poll_start, cells.work_end)
    sums[Row.STEAL] = overlap(x, cells.work_end, cells.steal_end)
    idle = (x - overlap(x, cells.work_start, cells.steal_end)) * cells.online
    sums[Row.IDLE] = idle
    np.multiply(idle, cells.iowait_permille, out=sums[Row.IOWAIT])
    goes_idle = (cells.steal_end > cells.work_start) & (cells.steal_end < CELL_NS)
    sums[Row.ENTRIES] = goes_idle & (x >= cells.steal_end)
    sums[Row.SMI] = (x >= cells.smi_end) & (cells.online > 0)
    sums[Row.ONLINE] = x * cells.online
    np.multiply(run, cells.traffic_mbps, out=sums[Row.TRAFFIC])
    np.multiply(run, cells.miss_rate, out=sums[Row.MISSES])
    return sums


def _smt_times(x_run: Ints, run: Ints, first: Ints, last: Ints) -> Ints:
    """Returns the integral Row.SMT of each CPU up to the CPU's own time `x_run`; `run` is its
    Row.RUN, [first, last) its work, all in unhalted ns."""
    threads = first.shape[1]
    if threads == 1:
        return run
    if threads == 2:
        both = overlap(x_run, first.max(axis=1, keepdims=True), last.min(axis=1, keepdims=True))
        # Without an overlap the span is negative, because its end is before its start.
        return np.asarray(run - np.maximum(both, 0))
    order = np.argsort(first, axis=1, kind="stable")
    begins = np.take_along_axis(first, order, axis=1)
    ends = np.take_along_axis(last, order, axis=1)
    total = np.zeros_like(run)
    covered_until = np.zeros_like(begins[:, :1])
    for i in range(threads):  # the union of all threads' work, as intervals without overlap
        begin = np.maximum(begins[:, i : i + 1], covered_until)
        covered_until = np.maximum(covered_until, ends[:, i : i + 1])
        total += overlap(x_run, begin, np.maximum(begin, covered_until))
    return total


# --- schedule -------------------------------------------------------------------------------------

PER_MILLE_NS = CELL_NS // 1000  # ns in a thousandth of a cell
WINDOW_CELLS = 20
POLL_NS = 10_000  # ns for which the idle loop polls before it halts
SMI_NS = 150_000
SMI_AT_NS = 3_000_000
MAX_CHUNK_SLOTS = 16_384  # maximum number of cells times slots that are computed at once


def random_bits(seed: int, stream: int, cells: Ints, items: Ints) -> Ints:
    """Returns 48 random bits for each cell (first axis) and item, by splitmix64."""
    key = (seed * 0xD1342543DE82EF95 + stream * 0x2545F4914F6CDD1D) & (2**64 - 1)
    z = cells.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    z = z + items.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(16)).astype(np.int64)


class Schedule:
    """Computes cells of the schedule from a script and a seed."""

    def __init__(self, machine: SimMachine, script: Script, seed: int) -> None:
        self.machine = machine
        self.tables = ScriptTables(script)
        self._seed = seed
        self._shape = (machine.smt, machine.cores)
        self._slots = np.arange(machine.slots)
        self._cores = np.arange(machine.cores)
        self.chunk = max(1, min(1024, MAX_CHUNK_SLOTS // machine.slots))

    def cells(self, first: int, count: int) -> ScheduleCells:
        number = np.arange(first, first + count, dtype=np.int64)
        stage = self.tables.stage_numbers(number)
        if (stage == stage[0]).all():
            stage = stage[:1]  # usually all cells are in one stage
        slot = {name: table[stage] for name, table in self.tables.slot.items()}
        online = self.tables.online[stage]
        start, length = self._work(number, slot, online)
        stop = start + length
        steal_end = np.minimum(CELL_NS, stop + slot["steal"] * PER_MILLE_NS * online)
        goes_idle = (steal_end < CELL_NS) & (steal_end == stop)
        poll = stop - np.minimum(length, np.where(goes_idle, POLL_NS, 0))
        # The clock and the halts of each core, and the SMI that stops all cores.
        tables = self.tables
        bits = random_bits(self._seed, 2, number, self._cores)
        smi_period = tables.smi_every[stage]
        smi = ((smi_period > 0) & (number % np.maximum(smi_period, 1) == 0))[:, None]
        period = np.where(smi, CELL_NS, tables.halt_period_ns[stage])
        halt = np.where(smi, SMI_NS, tables.halt_ns[stage])
        phase = ((bits >> 16) & 0xFFFF) * (period - halt) >> 16
        wobble = (bits & 0xFFFF) * (tables.wobble_mhz[stage] + 1) >> 16
        mhz = np.tile(tables.mhz[stage] - wobble, (1, self.machine.smt))
        mips = mhz * slot["ipc"] // 1000

        def by_cpu(values: Ints) -> Ints:
            return np.broadcast_to(values.reshape(-1, *self._shape), (count, *self._shape))

        def by_core(values: Ints) -> Ints:
            return np.broadcast_to(values[:, None, :], (count, 1, self.machine.cores))

        return ScheduleCells(
            work_start=by_cpu(start),
            work_end=by_cpu(stop),
            steal_end=by_cpu(steal_end),
            poll_start=by_cpu(poll),
            online=by_cpu(online),
            mhz=by_cpu(mhz),
            instructions_per_us=by_cpu(mips),
            kernel_cycles_per_us=by_cpu(mhz * slot["kernel"] // 1000),
            # The kernel's IPC is 0.6 times the mean.
            kernel_instructions_per_us=by_cpu(mips * slot["kernel"] // 1667),
            kernel_permille=by_cpu(slot["kernel"]),
            iowait_permille=by_cpu(slot["iowait"]),
            simd_level=by_cpu(slot["license"]),
            traffic_mbps=by_cpu(slot["traffic"]),
            miss_rate=by_cpu(mips * slot["misses"]),
            halt_period=by_core(period),
            halt_phase=by_core(np.where(smi, SMI_AT_NS, phase)),
            halt=by_core(halt),
            smi_end=by_core(np.where(smi, SMI_AT_NS + SMI_NS, CELL_NS + 1) + 0 * halt),
        )

    def _work(self, number: Ints, slot: dict[str, Ints], online: Ints) -> tuple[Ints, Ints]:
        """Returns the start and the length of the work of each CPU in each cell."""
        bits = random_bits(self._seed, 0, number, self._slots)
        spread = ((bits >> 16) & 0xFFFF) * slot["jitter"] * PER_MILLE_NS >> 16
        length = (slot["duty"] * 2 - slot["jitter"]) * (PER_MILLE_NS // 2) + spread
        length = np.minimum(np.maximum(length, 0), CELL_NS) * online
        if (slot["active"] < 1000).any():
            windows, window_index = np.unique(number // WINDOW_CELLS, return_inverse=True)
            chance = (random_bits(self._seed, 1, windows, self._slots) & 0x3FF) * 1000 >> 10
            length = np.where(chance[window_index] < slot["active"], length, 0)
        start = slot["start"] * PER_MILLE_NS + (
            (bits & 0xFFFF) * slot["spread"] * PER_MILLE_NS >> 16
        )
        return np.minimum(start, CELL_NS - length), length


class ScheduleCursor:
    """Computes integrals from the start of the simulation to increasing times; fast, because the
    sums of earlier cells are kept."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        slots = schedule.machine.slots
        self._next_cell = 0
        self._sums = np.zeros((len(Row), slots), np.int64)
        """Integrals up to the start of cell `_next_cell`."""
        self._load(0)

    def _load(self, first: int) -> None:
        self._first = first
        self._cells = self._schedule.cells(first, self._schedule.chunk)
        whole_cells = integrals(self._cells, CELL_NS)
        self._whole = whole_cells.reshape(len(Row), self._schedule.chunk, -1)

    def at_times(self, earliest_ns: int, times: Ints) -> Ints:
        """Returns the integrals of each slot up to its own time in `times`, with axes (Row, slot).
        No time may be before `earliest_ns`, and that must not decrease between calls."""
        first_cell = earliest_ns // CELL_NS
        while self._next_cell < first_cell:
            end = self._first + self._schedule.chunk
            stop = min(first_cell, end)
            passed = self._whole[:, self._next_cell - self._first : stop - self._first]
            self._sums = self._sums + passed.sum(axis=1)
            self._next_cell = stop
            if stop == end:
                self._load(end)
        total = self._sums
        shape = (1, self._schedule.machine.smt, self._schedule.machine.cores)
        for cell in range(self._next_cell, int(times.max()) // CELL_NS + 1):
            x = np.minimum(np.maximum(times - cell * CELL_NS, 0), CELL_NS).reshape(shape)
            index = cell - self._first
            is_loaded = index < self._schedule.chunk
            part = self._cells.cell(index) if is_loaded else self._schedule.cells(cell, 1)
            total = total + integrals(part, x).reshape(len(Row), -1)
        return total

    def totals_until(self, time_ns: int) -> Ints:
        return self.at_times(time_ns, np.full(self._schedule.machine.slots, time_ns, np.int64))


# --- lateness of reads ----------------------------------------------------------------------------

USUAL_LATE_NS = 52_000
MAX_RARE_LATE_NS = 300_000
READ_NS = 2_200
INTERRUPTED_READ_NS = 60_000


class Lateness:
    """Simulates how late the samples of CPUs are read, and how long a read takes."""

    def __init__(self, machine: SimMachine, seed: int, late_ns: int, sample_ns: int) -> None:
        self._seed = seed
        self._max_late_ns = sample_ns // 4  # a read never overlaps the next read
        self._late_ns = min(late_ns, self._max_late_ns)
        self._cpus = np.arange(machine.cpus)
        bits = random_bits(seed, 3, np.zeros(1, np.int64), self._cpus)[0]
        self.offset: Ints = bits % 400
        """The constant offset of each CPU's TSC from that of CPU 0, in ticks."""
        self.offset[0] = 0
        self._usual_late_ns = USUAL_LATE_NS + (bits >> 16) % 20_000

    def sample_lateness(self, number: int) -> tuple[Ints, Ints, Ints]:
        """Returns, for each CPU in the sample with this number: lateness and length of the read in
        ns, and the flag ROW_WIDE if the read was interrupted."""
        bits = random_bits(self._seed, 4, np.array([number]), self._cpus)[0]
        late_ns = self._usual_late_ns + bits % 6_000
        rare_bits = (bits >> 16) & 0xFF
        late_ns += np.where(rare_bits == 0, (bits >> 24) % MAX_RARE_LATE_NS, 0)
        if self._late_ns:
            late_ns += (bits >> 24) % self._late_ns
        is_wide = ((bits >> 37) & 0x1FF) == 0
        width = np.where(is_wide, INTERRUPTED_READ_NS, READ_NS + (bits >> 40) % 250 * 4)
        return np.minimum(late_ns, self._max_late_ns), width, np.where(is_wide, ROW_WIDE, 0)
