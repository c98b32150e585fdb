"""Tasks of the simulated machine, and the frame's records of them. Each CPU has processes of its
own; the place of a task is its position among the tasks of its CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfprobe.errors import Unavailable
from perfprobe.kernel.job_threads import MAX_THREADS, parse_pid
from perfprobe.sources.sim.machine import Ints
from perfprobe.sources.sim.schedule import Row, Schedule, ScheduleCursor, random_bits
from perfprobe.sources.sim.script import SLICE_NS, TaskShare

FIRST_PID = 4000
Number = TypeVar("Number", int, Ints)
MAX_TASKS_PER_CPU = 3
"""Maximum number of tasks that are reported for each CPU, as on a real machine."""
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
"""By task name: its user (None: one of USERS) and its command line."""
GROUPS = {"postgres": "postgresql", "restic": "backup", "nginx": "nginx"}
"""By task name: its service. PARENTS has the parents of other tasks."""
PARENTS = dict.fromkeys(("cc1plus", "as", "ld", "configure"), "make") | {
    "lmp": "mpirun", "mpi_rank": "mpirun", "make": "bash", "stream": "bash", "xhpl": "mpirun",
}  # fmt: skip


class SimTasks:
    def __init__(self, seed: int, cpus: int) -> None:
        bits = random_bits(seed, 5, np.zeros(1, np.int64), np.arange(cpus))[0]
        self._threads = (1 + bits % 4).tolist()
        self._user = USERS[seed % len(USERS)]
        self._sent_names: dict[int, str] = {}
        """By PID: the task's name when its details were sent."""

    def records(
        self,
        tasks_by_cpu: Sequence[Sequence[TaskShare]],
        shares: NDArray[np.float64],
        sleeps: NDArray[np.float64],
    ) -> dict[str, Any]:
        """Returns the records of tasks for a frame, with details of new processes. `shares`: the
        busy share of each CPU. `sleeps`: how often per second it went idle."""
        task_rows: dict[str, list[list[object]]] = {}
        waits: dict[str, list[list[float]]] = {}
        details: dict[str, dict[str, object]] = {}
        for cpu, share in enumerate(shares.tolist()):
            tasks = tasks_by_cpu[cpu][:MAX_TASKS_PER_CPU]
            if not tasks or round(share, 4) <= 0:
                continue
            pids = [task_pid(cpu, i, len(self._threads)) for i in range(len(tasks))]
            task_rows[str(cpu)] = [
                [pid, task.comm, round(share * task.part / 1000, 4)]
                for pid, task in zip(pids, tasks, strict=True)
            ]
            wait_shares = [share * task.wait / 1000 for task in tasks]
            # A task is switched out when it sleeps, and when it loses the CPU to another task.
            waits[str(cpu)] = [
                [round(wait, 4), round(sleeps[cpu] + wait * 1e9 / SLICE_NS, 1)]
                for wait in wait_shares
            ]
            for pid, task in zip(pids, tasks, strict=True):
                if self._sent_names.get(pid) != task.comm:
                    self._sent_names[pid] = task.comm
                    details[str(pid)] = self._detail(cpu, task.comm)
        first = {cpu: rows[0] for cpu, rows in task_rows.items()}
        records = {"tasks": first, "others": task_rows, "waits": waits}
        return records | ({"details": details} if details else {})

    def _detail(self, cpu: int, comm: str) -> dict[str, object]:
        user, command = COMMANDS.get(comm, (None, f"./{comm}"))
        detail: dict[str, object] = {
            "user": user or self._user,
            "command": command,
            "threads": self._threads[cpu],
            "affinity": str(cpu),
        }
        if comm in GROUPS:
            return detail | {"group": f"/system.slice/{GROUPS[comm]}.service"}
        return detail | ({"parent": PARENTS[comm]} if comm in PARENTS else {})


class SimWatchedJob:
    """Builds the record of the watched job. Each of its processes has one thread, which runs and
    waits as its TaskShare specifies. `text` is the job's PID or name. Raises Unavailable if no
    process has the PID."""

    def __init__(self, schedule: Schedule, text: str) -> None:
        self._schedule = schedule
        cpus = schedule.machine.cpus
        tasks = [stage[:cpus] for stage in schedule.tables.tasks]
        width = max(len(members) for stage in tasks for members in stage)
        pid = parse_pid(text)
        if pid is None:
            self._job = _per_task(tasks, width, lambda task: task.comm == text) > 0
        else:
            pids = task_pid(np.arange(cpus)[:, None], np.arange(width), cpus)
            self._job = (_per_task(tasks, width, lambda _: True) > 0) & (pids == int(pid))
            if not self._job.any():
                raise Unavailable(f"no process {pid}")
        """By stage, CPU and place: whether the task belongs to the job."""
        self._parts = self._job * _per_task(tasks, width, lambda task: task.part)
        self._waits = self._job * _per_task(tasks, width, lambda task: task.wait)
        self._last = np.zeros((2, cpus, 1), np.int64)
        self._sums = np.zeros((3, cpus, width), np.int64)
        """By CPU and place: times of work and of waiting in ps, and the number of sleeps."""

    def add_ended_stages(self, cursor: ScheduleCursor, since_ns: int, until_ns: int) -> None:
        """Adds the times until the ends of stages in (since_ns, until_ns]."""
        for end_ns, stage in self._schedule.tables.stages.ends_between(since_ns, until_ns):
            self._add(stage, cursor.totals_until(end_ns))

    def record(self, stage: int, totals: Ints, online: NDArray[np.bool_]) -> dict[str, Any]:
        self._add(stage, totals)
        cpus = self._job.shape[1]
        job_tasks = np.argwhere(self._job[stage] & online[:, None]).tolist()
        threads: dict[str, list[object]] = {}
        for cpu, place in job_tasks[:MAX_THREADS]:
            pid = task_pid(cpu, place, cpus)
            comm = self._schedule.tables.tasks[stage][cpu][place].comm
            run, wait, voluntary = self._sums[:, cpu, place].tolist()
            switches, times_ns = (voluntary, wait // (1000 * SLICE_NS)), (run // 1000, wait // 1000)
            threads[str(pid)] = [pid, comm, cpu, *times_ns, *switches]
        return {"watched": {"threads": threads, "more": len(job_tasks[MAX_THREADS:])}}

    def _add(self, stage: int, totals: Ints) -> None:
        # CPUs are sampled a little late, so the last totals may be after the end of the stage.
        cpus = self._last.shape[1]
        present_totals = np.maximum(totals[[Row.BUSY, Row.ENTRIES], :cpus, None], self._last)
        work_ns, sleep_count = present_totals - self._last
        parts, waits, job = self._parts[stage], self._waits[stage], self._job[stage]
        self._sums += np.stack((work_ns * parts, work_ns * waits, sleep_count * job))
        self._last = present_totals


TaskTable = Sequence[Sequence[Sequence[TaskShare]]]
"""The tasks of each CPU, by stage and CPU."""


def task_pid(cpu: Number, place: Number, cpus: int) -> Number:
    return FIRST_PID + place * cpus + cpu


def _per_task(tasks: TaskTable, width: int, value: Callable[[TaskShare], int]) -> Ints:
    """Returns a function's value for each task, by stage, CPU and place; 0 without a task."""
    table = np.zeros((len(tasks), len(tasks[0]), width), np.int64)
    for stage, row in enumerate(tasks):
        for cpu, members in enumerate(row):
            table[stage, cpu, : len(members)] = [value(task) for task in members]
    return table
