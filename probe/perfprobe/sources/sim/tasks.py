"""Tasks of the simulated machine: the load of each CPU is a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfprobe.errors import Unavailable
from perfprobe.kernel.job_threads import MAX_THREADS, wanted_pid
from perfprobe.sources.sim.machine import Ints
from perfprobe.sources.sim.schedule import Cursor, Row, Schedule, noise
from perfprobe.sources.sim.script import Member

FIRST_PID = 4000
Number = TypeVar("Number", int, Ints)
SLICE_NS = 3_000_000  # the kernel lets another task run after this long
MAX_TASKS_PER_CPU = 3
"""Tasks that are reported for each CPU, as the kernel's are."""
USERS = ("ada", "grace", "edsger", "barbara")
COMMANDS = {
    "postgres": ("postgres", "postgres: writer bench [local] UPDATE"),
    "pg_basebackup": ("postgres", "pg_basebackup -D /backup/base -X stream -c fast"),
    "nginx": ("www-data", "nginx: worker process"),
    "cc1plus": (None, "cc1plus -quiet -O2 -std=c++20 solver.cc -o solver.s"),
    "xhpl": (None, "./xhpl HPL.dat"),
    "stream": (None, "./stream -n 100000000"),
    "restic": ("root", "restic backup --repo sftp:vault:/srv /var/lib/postgresql"),
    "make": (None, "make -j4"),
    "configure": (None, "/bin/sh ./configure --prefix=/usr"),
    "ld": (None, "ld -o solver @objects.rsp"),
    "lmp": (None, "lmp -in melt.lmp -sf omp"),
    "mpi_rank": (None, "./solve --mesh wing.msh --ranks 64"),
}
"""User, unless it is the machine's usual one, and command line."""
GROUPS = {"postgres": "postgresql", "restic": "backup", "nginx": "nginx"}
"""Services of tasks; the others were started by the program in PARENTS."""
PARENTS = dict.fromkeys(("cc1plus", "as", "ld", "configure"), "make") | {
    "lmp": "mpirun", "mpi_rank": "mpirun", "make": "bash", "stream": "bash", "xhpl": "mpirun",
}  # fmt: skip


class Tasks:
    def __init__(self, seed: int, cpus: int) -> None:
        bits = noise(seed, 5, np.zeros(1, np.int64), np.arange(cpus))[0]
        self._threads = (1 + bits % 4).tolist()
        self._user = USERS[seed % len(USERS)]
        self._told: dict[int, str] = {}
        """By PID, the name with which its details were sent."""

    def records(
        self,
        crews: Sequence[Sequence[Member]],
        shares: NDArray[np.float64],
        sleeps: NDArray[np.float64],
    ) -> dict[str, Any]:
        """The records of a frame. Details are sent when a process is new. `sleeps`: how often a
        second each CPU fell idle."""
        others: dict[str, list[list[object]]] = {}
        waits: dict[str, list[list[float]]] = {}
        details: dict[str, dict[str, object]] = {}
        for cpu, share in enumerate(shares.tolist()):
            crew = crews[cpu][:MAX_TASKS_PER_CPU]
            if not crew or round(share, 4) <= 0:
                continue
            members = [(pid_of(cpu, i, len(self._threads)), one) for i, one in enumerate(crew)]
            others[str(cpu)] = [
                [pid, one.comm, round(share * one.part / 1000, 4)] for pid, one in members
            ]
            waits[str(cpu)] = [_waits(share * one.wait / 1000, sleeps[cpu]) for one in crew]
            for pid, one in members:
                if self._told.get(pid) != one.comm:
                    self._told[pid] = one.comm
                    details[str(pid)] = self._detail(cpu, one.comm)
        tasks = {cpu: told[0] for cpu, told in others.items()}
        found = {"tasks": tasks, "others": others, "waits": waits}
        return found | ({"details": details} if details else {})

    def _detail(self, cpu: int, comm: str) -> dict[str, object]:
        user, command = COMMANDS.get(comm, (None, f"./{comm}"))
        found: dict[str, object] = {
            "user": user or self._user,
            "command": command,
            "threads": self._threads[cpu],
            "affinity": str(cpu),
        }
        if comm in GROUPS:
            return found | {"group": f"/system.slice/{GROUPS[comm]}.service"}
        return found | ({"parent": PARENTS[comm]} if comm in PARENTS else {})


def _waits(share: float, sleeps: float) -> list[float]:
    """Share of waiting, and switches a second: a task loses its CPU to one that waited for it."""
    return [round(share, 4), round(sleeps + share * 1e9 / SLICE_NS, 1)]


class Watched:
    """The threads of the watched job: each process has one. A thread waits as its crew
    specifies."""

    def __init__(self, schedule: Schedule, text: str) -> None:
        self._schedule = schedule
        cpus = schedule.machine.cpus
        crews = [stage[:cpus] for stage in schedule.tables.crews]
        self._mine = _mine(crews, text)
        """Whether it is a thread of the job, by stage, CPU and place in the crew."""
        most = self._mine.shape[2]
        self._parts = self._mine * _per_member(crews, most, lambda one: one.part)
        self._waits = self._mine * _per_member(crews, most, lambda one: one.wait)
        self._last = np.zeros((2, cpus, 1), np.int64)
        self._sums = np.zeros((3, cpus, most), np.int64)
        """Ns x 1000 at work, ns x 1000 of waiting, and number of times it fell asleep."""

    def follow(self, cursor: Cursor, since_ns: int, until_ns: int) -> None:
        """Adds up to the end of each stage in (since, until]; later time belongs to the next
        stage."""
        for end_ns, stage in self._schedule.tables.stages.ends_between(since_ns, until_ns):
            self._add(stage, cursor.upto(end_ns))

    def record(self, stage: int, totals: Ints, online: NDArray[np.bool_]) -> dict[str, Any]:
        self._add(stage, totals)
        cpus = self._mine.shape[1]
        found = np.argwhere(self._mine[stage] & online[:, None]).tolist()
        threads: dict[str, list[object]] = {}
        for cpu, member in found[:MAX_THREADS]:
            pid, comm = pid_of(cpu, member, cpus), self._schedule.tables.crews[stage][cpu]
            run, wait, voluntary = self._sums[:, cpu, member].tolist()
            preempted = wait // (1000 * SLICE_NS)
            threads[str(pid)] = [
                pid, comm[member].comm, cpu, run // 1000, wait // 1000, voluntary, preempted,
            ]  # fmt: skip
        return {"watched": {"threads": threads, "more": len(found[MAX_THREADS:])}}

    def _add(self, stage: int, totals: Ints) -> None:
        # CPUs are read a little late, so the time may already be beyond the end of the stage.
        cpus = self._last.shape[1]
        now = np.maximum(totals[[Row.BUSY, Row.ENTRIES], :cpus, None], self._last)
        worked, slept = now - self._last
        parts, waits, mine = self._parts[stage], self._waits[stage], self._mine[stage]
        self._sums += np.stack((worked * parts, worked * waits, slept * mine))
        self._last = now


Crews = Sequence[Sequence[Sequence[Member]]]
"""By stage and CPU."""


def pid_of(cpu: Number, member: Number, cpus: int) -> Number:
    return FIRST_PID + member * cpus + cpu


def _per_member(crews: Crews, most: int, of: Callable[[Member], int]) -> Ints:
    """A number of each member, by stage, CPU and place; 0 where there is none."""
    found = np.zeros((len(crews), len(crews[0]), most), np.int64)
    for stage, row in enumerate(crews):
        for cpu, crew in enumerate(row):
            for i, one in enumerate(crew):
                found[stage, cpu, i] = of(one)
    return found


def _mine(crews: Crews, text: str) -> NDArray[np.bool_]:
    most = max(len(crew) for row in crews for crew in row)
    pid, cpus = wanted_pid(text), len(crews[0])
    if pid is None:
        return _per_member(crews, most, lambda one: one.comm == text) > 0
    there = _per_member(crews, most, lambda _: 1) > 0
    pids = pid_of(np.arange(cpus)[:, None], np.arange(most), cpus)
    mine = there & (pids == int(pid))
    if not mine.any():
        raise Unavailable(f"no process {pid}")
    return np.asarray(mine)
