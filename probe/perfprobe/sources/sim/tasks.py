"""Who runs on the simulated machine: the load of each CPU as a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfprobe.sources.sim.schedule import noise

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
"""User, if it has one of its own, and command line."""


class Tasks:
    def __init__(self, seed: int, cpus: int) -> None:
        bits = noise(seed, 5, np.zeros(1, np.int64), np.arange(cpus))[0]
        self._threads = (1 + bits % 4).tolist()
        self._user = USERS[seed % len(USERS)]
        self._told: dict[int, str] = {}

    def records(self, comms: Sequence[str], shares: NDArray[np.float64]) -> dict[str, Any]:
        """Details of those that were not told of when last somebody else ran there."""
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
        return {"tasks": tasks} | ({"details": details} if details else {})

    def _detail(self, cpu: int, comm: str) -> dict[str, object]:
        user, command = COMMANDS.get(comm, (None, f"./{comm}"))
        return {
            "user": user or self._user,
            "command": command,
            "threads": self._threads[cpu],
            "affinity": str(cpu),
        }
