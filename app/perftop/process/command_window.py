"""A command's run between samples: each CPU is read before it may start, and again after it ended.

What lies between the first and the last sample of a CPU then holds all of the run. This needs
hello and frames only, and so serves whoever has a stream. A simulated machine has a time of its
own: there only the order of things says what was before what, and no bounds are told.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats
from perftop.process.job import Job, Run, raw_ns

PATIENCE = 20
"""Frames in which a CPU may be read, before and again after the run. Reads fail when they are
interrupted, a few in a row under load; a CPU that fails so often would hold up all others."""
PATIENCE_NS = 1_000_000_000
"""And at least for that long: under load a CPU may not get to read for many short samples."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""What comes to us alone. The terminal sends the others to the command as well."""
HEEDED = (signal.SIGINT, signal.SIGQUIT, *PASSED_ON)
ECHO_NS = 500_000_000
"""What the terminal sent to both may have ended the command before we hear of it."""
_BAD = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Raw times; each CPU's own samples lie in these ranges."""

    first_ns: tuple[int, int]
    last_ns: tuple[int, int]

    def slack_s(self, start_ns: int, end_ns: int) -> float:
        """How much longer than a run a CPU was measured, at most."""
        before_ns, after_ns = start_ns - self.first_ns[0], self.last_ns[1] - end_ns
        return (before_ns + after_ns) / 1e9


class Bracket:
    """Opens the job's gate, and tells when it is closed again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._running: asyncio.Task[Run] | None = None
        self._frames = 0
        """Of this phase: before the start, or after the end."""
        self.closed = False
        self.missed: list[int] = []
        """CPUs for which this cannot be said: off at either end, or not to be read."""

    def begin(self, hello: wire.Hello) -> None:
        self._ready_ns = raw_ns()
        self.ours = not hello.source.startswith("sim")
        self._cpus = [row.cpu for row in hello.topology]
        wanted = self._cpus if hello.selected is None else hello.selected
        self._wanted: Bools = np.isin(self._cpus, wanted)
        core = {cpu: i for i, group in enumerate(hello.cores) for cpu in group}
        alone = len(hello.cores)  # CPUs of no known core wait for nobody
        self._core = np.array([core.get(cpu, alone + i) for i, cpu in enumerate(self._cpus)])
        self._block = next(block.name for block in hello.blocks if block.scope == "cpu")
        self._first_ns: Floats = np.full(len(self._cpus), np.nan)
        self._last_ns = self._first_ns.copy()

    @property
    def run(self) -> Run | None:
        """Once the command has ended."""
        task = self._running
        over = task is not None and task.done() and not task.cancelled()
        return task.result() if task is not None and over else None

    @property
    def bounds(self) -> Bounds | None:
        if not self.closed or not self.ours:
            return None
        both = np.isfinite(self._first_ns) & np.isfinite(self._last_ns)
        if not both.any():
            return None
        first, last = self._first_ns[both], self._last_ns[both]
        return Bounds((int(first.min()), int(first.max())), (int(last.min()), int(last.max())))

    def early(self, frame: wire.Frame) -> bool:
        """It was taken before there was anybody to let the command go: with it, the time measured
        would only be longer."""
        first = self._running is None and not self._frames
        return first and self.ours and frame.time_ns < self._ready_ns

    def take(self, frame: wire.Frame) -> bool:
        """The next frame. True: it was the last."""
        if self._running is None:
            if self._all(self._first_ns, frame):
                self.job.go()
                self._running = asyncio.ensure_future(self.job.ended())
                self._frames = 0
        elif (run := self.run) is not None and self._all(self._last_ns, frame, run.end_ns):
            self.closed = True
            unread = np.isnan(self._first_ns) | np.isnan(self._last_ns)
            self.missed = np.array(self._cpus)[unread & self._wanted].tolist()
        return self.closed

    def heed(self, number: int) -> bool:
        """A signal. False: it is not the command's, which is not running."""
        if self._running is None:
            return False
        if self._running.done():
            run = self.run
            return run is not None and number not in PASSED_ON and raw_ns() - run.end_ns < ECHO_NS
        if number in PASSED_ON:
            self.job.kill(number)
        return True

    async def ended(self) -> Run | None:
        """Whatever became of us, the command is let run to its end. None: it never started."""
        return None if self._running is None else await self._running

    def _all(self, times_ns: Floats, frame: wire.Frame, since_ns: int = 0) -> bool:
        """Notes who was read; whether nobody is left to wait for."""
        self._frames += 1
        if self._frames == 1:
            self._since_ns = frame.time_ns
        head = np.frombuffer(frame.blocks[self._block].head, "<u8").reshape(-1, wire.HEAD)
        head = np.broadcast_to(head, (len(self._cpus), wire.HEAD))
        off = head[:, 4] & np.uint64(wire.ROW_OFFLINE) != 0
        begun_ns = frame.time_ns + head[:, 2].astype(np.int64)
        read = self._read(head[:, 4], off) & ((begun_ns >= since_ns) | (not self.ours))
        new = read & np.isnan(times_ns)
        times_ns[new] = begun_ns[new]
        waits = self._wanted & ~off & np.isnan(times_ns)
        waited_ns = frame.time_ns - self._since_ns
        return not waits.any() or (self._frames >= PATIENCE and waited_ns >= PATIENCE_NS)

    def _read(self, flags: np.ndarray, off: Bools) -> Bools:
        """Rows that a difference is taken with: of siblings all were read, or none is used."""
        good = (flags & np.uint64(wire.ROW_SAMPLED) != 0) & (flags & _BAD == 0)
        spoilt = np.zeros(int(self._core.max()) + 1, bool)
        spoilt[self._core[~good & ~off]] = True
        read: Bools = good & ~off & ~spoilt[self._core]
        return read
