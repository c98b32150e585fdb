"""A command that runs under us: started, held at a gate until we are ready, let go, waited for.

It is forked before there are threads or an event loop, and held there: what it is to be measured
with can start meanwhile, and it has used no time of its own when that is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses, as a shell has them; by a signal n: 128 + n."""
_OURS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a program would inherit that."""


@dataclass(frozen=True, slots=True)
class Run:
    """How it went."""

    pid: int
    status: int
    failed: str | None
    """Why it could not be run."""
    start_ns: int  # raw: it had not begun before
    end_ns: int  # raw: it had ended by then
    user_s: float
    """With all children that it waited for, as `time` has it."""
    sys_s: float

    @property
    def wall_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def told(self) -> dict[str, int | float]:
        """What of it is told, in lines and in notes."""
        return {
            "pid": self.pid,
            "status": self.status,
            "wall_s": self.wall_s,
            "user_s": self.user_s,
            "sys_s": self.sys_s,
        }


def raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class Job:
    def __init__(self, argv: Sequence[str], terminal: int | None = None) -> None:
        """`terminal`: what it is to have for its own, instead of what we have ourselves."""
        self.argv = list(argv)
        gate, self._gate = os.pipe()
        self._trouble, trouble = os.pipe()
        self.start_ns = 0
        """Raw; 0: it waits."""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)  # or the gate would never be seen to close
            _wait_and_run(self.argv, gate, trouble, terminal)
        os.close(gate)
        os.close(trouble)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def go(self) -> None:
        """Open the gate."""
        self.start_ns = raw_ns()
        with contextlib.suppress(BrokenPipeError):  # it was killed where it waited
            os.write(self._gate, b"\n")
        os.close(self._gate)
        self._gate = -1

    async def ended(self) -> Run:
        """Once it has ended; whoever it left behind is not waited for."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        handle = os.pidfd_open(self.pid)
        loop.add_reader(handle, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        return self._reap()

    def drop(self) -> None:
        """It never got its turn: the gate closes, and it ends without having run anything."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
            self._reap()

    def kill(self, number: int) -> None:
        """Pass a signal on."""
        os.kill(self.pid, number)

    def _reap(self) -> Run:
        _, waited, used = os.wait4(self.pid, 0)
        end_ns = raw_ns()
        code = os.waitstatus_to_exitcode(waited)
        said = os.read(self._trouble, 16)
        os.close(self._trouble)
        failed = os.strerror(int(said)) if said else None
        status = code if code >= 0 else 128 - code
        user_s, sys_s = round(used.ru_utime, 6), round(used.ru_stime, 6)  # the kernel tells µs
        return Run(self.pid, status, failed, self.start_ns, end_ns, user_s, sys_s)


def _wait_and_run(argv: list[str], gate: int, trouble: int, terminal: int | None) -> NoReturn:
    """The child. Nothing of the parent's may be run here, least of all its exit."""
    status = NOT_EXECUTABLE
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends by it, as the command would
    try:
        if terminal is not None:
            _move_to(terminal)
        if os.read(gate, 1):
            for number in _OURS:
                signal.signal(number, signal.SIG_DFL)
            if not argv[0]:
                raise FileNotFoundError(errno.ENOENT, "")  # as a shell; exec says something else
            os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        status = NOT_FOUND if error.errno in {errno.ENOENT, errno.ENOTDIR} else NOT_EXECUTABLE
        os.write(trouble, str(error.errno).encode())
    finally:
        os._exit(status)


def _move_to(terminal: int) -> None:
    """A session of its own there: what is typed on it, and its end, are for nobody else."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(terminal, fd)
