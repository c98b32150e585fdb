"""Tasks of the simulated machine: the load of each CPU is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfprobe.kernel.job_threads import MOST, wanted_pid
from perfprobe.native.errors import Unavailable
from perfprobe.sources.sim.cells import Row
from perfprobe.sources.sim.machine import Ints
from perfprobe.sources.sim.schedule import Cursor, Schedule, noise
from perfprobe.sources.sim.script import CELL_NS, Tables

FIRST_PID = 4000
USERS = ("ada", "grace", "edsger", "barbara")
COMMANDS = {
    "postgres": ("postgres", "postgres: writer bench [local] UPDATE"),
    "pg_basebackup": ("postgres", "pg_basebackup -D /backup/base -X stream -c fast"),
    "nginx": ("www-data", "nginx: worker process"),
    "cc1plus": (None, "cc1plus -quiet -O2 -std=c++20 solver.cc -o solver.s"),
    "xhpl": (None, "./xhpl HPL.dat"),
    "stream": (None, "./stream -n 100000000"),
    "lmp": (None, "lmp -in melt.lmp -sf omp"),
    "mpi_rank": (None, "./solve --mesh wing.msh --ranks 64"),
}
"""User, unless it is the machine's usual one, and command line."""


class Tasks:
    def __init__(self, seed: int, cpus: int) -> None:
        bits = noise(seed, 5, np.zeros(1, np.int64), np.arange(cpus))[0]
        self._threads = (1 + bits % 4).tolist()
        self._user = USERS[seed % len(USERS)]
        self._told: dict[int, str] = {}

    def records(self, comms: Sequence[str], shares: NDArray[np.float64]) -> dict[str, Any]:
        """The records of a frame. Details are sent when a CPU's process changes."""
        tasks: dict[str, list[object]] = {}
        details: dict[str, dict[str, object]] = {}
        for cpu, share in enumerate(shares.round(4).tolist()):
            comm = comms[cpu]
            if share <= 0 or not comm:
                continue
            tasks[str(cpu)] = [FIRST_PID + cpu, comm, share]
            if self._told.get(cpu) != comm:
                self._told[cpu] = comm
                details[str(FIRST_PID + cpu)] = self._detail(cpu, comm)
        others = {cpu: [task] for cpu, task in tasks.items()}
        return {"tasks": tasks, "others": others} | ({"details": details} if details else {})

    def _detail(self, cpu: int, comm: str) -> dict[str, object]:
        user, command = COMMANDS.get(comm, (None, f"./{comm}"))
        return {
            "user": user or self._user,
            "command": command,
            "threads": self._threads[cpu],
            "affinity": str(cpu),
        }


class Watched:
    """The threads of the watched job: each process has one. They never wait for a CPU."""

    def __init__(self, schedule: Schedule, text: str) -> None:
        self._schedule = schedule
        self._mine = _mine(schedule.tables, schedule.machine.cpus, text)
        """Whether the job runs there, by stage and CPU."""
        self._last = np.zeros((2, schedule.machine.cpus), np.int64)
        self._sums = self._last.copy()
        """Ns at work, and number of times it fell asleep, by CPU."""

    def follow(self, cursor: Cursor, since_ns: int, until_ns: int) -> None:
        """Adds up to the end of each stage in (since, until]; later time belongs to the next
        stage."""
        for end_ns, stage in _ends(self._schedule.tables, since_ns, until_ns):
            times = np.full(self._schedule.machine.slots, end_ns, np.int64)
            self._add(stage, cursor.at(end_ns, times))

    def record(self, stage: int, totals: Ints, online: NDArray[np.bool_]) -> dict[str, Any]:
        self._add(stage, totals)
        cpus = np.flatnonzero(self._mine[stage] & online).tolist()
        threads: dict[str, list[object]] = {}
        for cpu in cpus[:MOST]:
            pid, comm = FIRST_PID + cpu, self._schedule.tables.comms[stage][cpu]
            run_ns, voluntary = self._sums[:, cpu].tolist()
            threads[str(pid)] = [pid, comm, cpu, run_ns, 0, voluntary, 0]
        return {"watched": {"threads": threads, "more": len(cpus[MOST:])}}

    def _add(self, stage: int, totals: Ints) -> None:
        # CPUs are read a little late, so the time may already lie beyond the end of the stage.
        now = np.maximum(totals[[Row.BUSY, Row.ENTRIES], : self._last.shape[1]], self._last)
        self._sums += (now - self._last) * self._mine[stage]
        self._last = now


def _mine(tables: Tables, cpus: int, text: str) -> NDArray[np.bool_]:
    comms = np.array([stage[:cpus] for stage in tables.comms])
    pid = wanted_pid(text)
    if pid is None:
        return np.asarray(comms == text)
    mine = (comms != "") & (np.arange(cpus) + FIRST_PID == int(pid))
    if not mine.any():
        raise Unavailable(f"no process {pid}")
    return np.asarray(mine)


def _ends(tables: Tables, since_ns: int, until_ns: int) -> Iterator[tuple[int, int]]:
    cell = since_ns // CELL_NS
    while True:
        stage = int(tables.stage_of(np.array([cell]))[0])
        cell = cell // tables.cycle * tables.cycle + int(tables.ends[stage])
        if cell * CELL_NS > until_ns:
            return
        yield cell * CELL_NS, stage
