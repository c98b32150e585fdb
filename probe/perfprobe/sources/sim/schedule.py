"""The truth: what runs when, at which clock, and when a core halts involuntarily.

Time is divided into cells of 10 ms (cells.py). A cell depends only on script, seed and cell number,
so any cell can be computed at any time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfprobe.sources.sim.cells import Cells, Row, measure
from perfprobe.sources.sim.machine import Ints, Machine
from perfprobe.sources.sim.script import CELL_NS, Script, Tables

UNIT_NS = CELL_NS // 1000
WINDOW_CELLS = 20
POLL_NS = 10_000  # the idle loop polls this long before it halts
SMI_NS = 150_000
SMI_AT_NS = 3_000_000
CHUNK = 16_384  # cells x slots that are computed at a time


def noise(seed: int, stream: int, cells: Ints, items: Ints) -> Ints:
    """48 random bits for each cell (first axis) and item, by splitmix64 of their numbers."""
    key = (seed * 0xD1342543DE82EF95 + stream * 0x2545F4914F6CDD1D) & (2**64 - 1)
    z = cells.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    z = z + items.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(16)).astype(np.int64)


class Schedule:
    def __init__(self, machine: Machine, script: Script, seed: int) -> None:
        self.machine = machine
        self.tables = Tables(script)
        self._seed = seed
        self._shape = (machine.smt, machine.cores)
        self._slots = np.arange(machine.slots)
        self._cores = np.arange(machine.cores)
        self.chunk = max(1, min(1024, CHUNK // machine.slots))

    def cells(self, first: int, count: int) -> Cells:
        number = np.arange(first, first + count, dtype=np.int64)
        stage = self.tables.stage_of(number)
        if (stage == stage[0]).all():
            stage = stage[:1]  # nearly always; one row then serves all cells
        slot = {name: table[stage] for name, table in self.tables.slot.items()}
        online = self.tables.online[stage]
        start, length = self._work(number, slot, online)
        stop = start + length
        gone = np.minimum(CELL_NS, stop + slot["steal"] * UNIT_NS * online)
        rests = (gone < CELL_NS) & (gone == stop)
        poll = stop - np.minimum(length, np.where(rests, POLL_NS, 0))
        core = self._per_core(number, stage)
        mhz = np.tile(core.pop("mhz"), (1, self.machine.smt))
        mips = mhz * slot["ipc"] // 1000
        per_slot = {
            "start": start,
            "stop": stop,
            "gone": gone,
            "poll": poll,
            "online": online,
            "mhz": mhz,
            "mips": mips,
            "kernel_mhz": mhz * slot["kernel"] // 1000,
            "kernel_mips": mips * slot["kernel"] // 1667,  # the kernel's IPC is 0.6 of the whole
            "kernel": slot["kernel"],
            "iowait": slot["iowait"],
            "license": slot["license"],
            "traffic": slot["traffic"],
        }
        shape = (count, *self._shape)
        cube = {
            name: np.broadcast_to(a.reshape(-1, *self._shape), shape)
            for name, a in per_slot.items()
        }
        flat = (count, 1, self.machine.cores)
        return Cells(**cube, **{n: np.broadcast_to(a[:, None, :], flat) for n, a in core.items()})

    def _work(self, number: Ints, slot: dict[str, Ints], online: Ints) -> tuple[Ints, Ints]:
        """Start and length of the work of each CPU in each cell."""
        bits = noise(self._seed, 0, number, self._slots)
        spread = ((bits >> 16) & 0xFFFF) * slot["jitter"] * UNIT_NS >> 16
        length = (slot["duty"] * 2 - slot["jitter"]) * (UNIT_NS // 2) + spread
        length = np.minimum(np.maximum(length, 0), CELL_NS) * online
        if (slot["on"] < 1000).any():
            windows, where = np.unique(number // WINDOW_CELLS, return_inverse=True)
            chance = (noise(self._seed, 1, windows, self._slots) & 0x3FF) * 1000 >> 10
            length = np.where(chance[where] < slot["on"], length, 0)
        start = slot["start"] * UNIT_NS + ((bits & 0xFFFF) * slot["wander"] * UNIT_NS >> 16)
        return np.minimum(start, CELL_NS - length), length

    def _per_core(self, number: Ints, stage: Ints) -> dict[str, Ints]:
        """Clock and halts of each core in each cell, and the SMI that stops all cores."""
        tables = self.tables
        bits = noise(self._seed, 2, number, self._cores)
        wobble = (bits & 0xFFFF) * (tables.wobble_mhz[stage] + 1) >> 16
        every = tables.smi_every[stage]
        smi = ((every > 0) & (number % np.maximum(every, 1) == 0))[:, None]
        period = np.where(smi, CELL_NS, tables.halt_period_ns[stage])
        halt = np.where(smi, SMI_NS, tables.halt_ns[stage])
        phase = ((bits >> 16) & 0xFFFF) * (period - halt) >> 16
        return {
            "mhz": tables.mhz[stage] - wobble,
            "halt_period": period,
            "halt_phase": np.where(smi, SMI_AT_NS, phase),
            "halt": halt,
            "smi": np.where(smi, SMI_AT_NS + SMI_NS, CELL_NS + 1) + 0 * halt,
        }

    def between(self, t0: int, t1: int) -> NDArray[np.int64]:
        """Integrals over [t0, t1) ns from the start, equal for all CPUs. Axes (Row, slot)."""
        total = np.zeros((len(Row), self.machine.slots), np.int64)
        cell = t0 // CELL_NS
        while cell * CELL_NS < t1:
            count = min(self.chunk, -(-t1 // CELL_NS) - cell)
            begin = (np.arange(cell, cell + count) * CELL_NS)[:, None, None]
            cells = self.cells(cell, count)
            upper = measure(cells, np.clip(t1 - begin, 0, CELL_NS))
            lower = measure(cells, np.clip(t0 - begin, 0, CELL_NS))
            total += (upper - lower).sum(axis=1).reshape(len(Row), -1)
            cell += count
        return total


class Cursor:
    """Integrals from the start to moments that never go back. Cheap, because sums are kept."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        slots = schedule.machine.slots
        self._done = 0
        self._sums = np.zeros((len(Row), slots), np.int64)
        """Integrals up to the start of cell `done`."""
        self._load(0)

    def _load(self, first: int) -> None:
        self._first = first
        self._cells = self._schedule.cells(first, self._schedule.chunk)
        whole = measure(self._cells, CELL_NS)
        self._whole = whole.reshape(len(Row), self._schedule.chunk, -1)

    def at(self, least: int, times: Ints) -> Ints:
        """Integrals of each slot up to its own time, none of which is before `least`. Axes (Row,
        slot)."""
        self._advance(least // CELL_NS)
        total = self._sums
        shape = (1, self._schedule.machine.smt, self._schedule.machine.cores)
        for cell in range(self._done, int(times.max()) // CELL_NS + 1):
            x = np.minimum(np.maximum(times - cell * CELL_NS, 0), CELL_NS).reshape(shape)
            index = cell - self._first
            inside = index < self._schedule.chunk
            part = self._cells.one(index) if inside else self._schedule.cells(cell, 1)
            total = total + measure(part, x).reshape(len(Row), -1)
        return total

    def _advance(self, cell: int) -> None:
        while self._done < cell:
            end = self._first + self._schedule.chunk
            stop = min(cell, end)
            self._sums = self._sums + self._whole[
                :, self._done - self._first : stop - self._first
            ].sum(axis=1)
            self._done = stop
            if stop == end:
                self._load(end)
