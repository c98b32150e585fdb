"""A command that we run: it is forked, held at a gate until we are ready, started and waited for.

It is forked before there are threads or an event loop. The measurement starts while it waits at the
gate, so it has used no time of its own by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import signal
import termios
import time
from collections.abc import Sequence
from typing import NoReturn, Self

from perfprobe.frozen import frozen

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses as in a shell, which also uses 128 + n for signal n."""
RESIDENT = "/proc/self/statm"
_OURS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; they are reset, because the command would inherit that."""


SLACK = 1.1
COUNTED = "switches", "page_faults", "disk_faults", "peak_bytes"
"""What is told of a run beside its times."""


@frozen
class Run:
    """The result of a run."""

    pid: int
    status: int
    failed: str | None
    """Why the command could not be run; None if it could."""
    start_ns: int  # raw: time just before the start
    end_ns: int  # raw: time just after the end
    user_s: float
    """User time with that of all children that it waited for, as in `time`."""
    sys_s: float
    switches: int | None = None
    """How often it gave up a CPU or lost it; this and the following as `user_s`."""
    page_faults: int | None = None
    disk_faults: int | None = None
    """Page faults that waited for a disk."""
    peak_bytes: int | None = None
    """Memory of the largest process; None: less than ours, from which the first one was forked."""

    @property
    def wall_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def told(self) -> dict[str, int | float | None]:
        """The part of it that goes into lines of JSON and into notes."""
        return {
            "pid": self.pid,
            "status": self.status,
            "wall_s": self.wall_s,
            "user_s": self.user_s,
            "sys_s": self.sys_s,
            **{name: getattr(self, name) for name in COUNTED},
        }


def raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class Job:
    def __init__(
        self, argv: Sequence[str], terminal: int | None = None, *, apart: bool = False
    ) -> None:
        """`terminal`: file descriptor of a terminal for the command; None: it shares ours. `apart`:
        what it writes to stdout goes to stderr, because stdout has what is measured."""
        self.argv = list(argv)
        gate, self._gate = os.pipe()
        self._trouble, trouble = os.pipe()
        self.start_ns = 0
        """Raw time of the start; 0: it waits at the gate."""
        self._forked_bytes = _resident_bytes()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)  # else the child would never see the gate close
            if apart:
                with contextlib.suppress(OSError):  # there may be no stderr
                    os.dup2(2, 1)
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
        with contextlib.suppress(BrokenPipeError):  # it was killed at the gate
            os.write(self._gate, b"\n")
        os.close(self._gate)
        self._gate = -1

    async def ended(self) -> Run:
        """Wait for its end, but not for processes that it left behind."""
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
        """If it was not started, close the gate; the child then ends without running the
        command."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
            self._reap()

    def kill(self, number: int) -> None:
        """Send a signal to the command."""
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
        peak_bytes = used.ru_maxrss * 1024
        counted = (
            used.ru_nvcsw + used.ru_nivcsw,
            used.ru_minflt + used.ru_majflt,
            used.ru_majflt,
            peak_bytes if peak_bytes > SLACK * self._forked_bytes else None,
        )
        return Run(self.pid, status, failed, self.start_ns, end_ns, user_s, sys_s, *counted)


def _resident_bytes() -> int:
    """The most that it may be where /proc does not tell."""
    try:
        with open(RESIDENT, "rb") as file:  # noqa: PTH123 - quick to import
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _wait_and_run(argv: list[str], gate: int, trouble: int, terminal: int | None) -> NoReturn:
    """The child process. No code of the parent may run here, least of all its exit handlers."""
    status = NOT_EXECUTABLE
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it, as it would end the command
    try:
        if terminal is not None:
            _move_to(terminal)
        if os.read(gate, 1):
            for number in _OURS:
                signal.signal(number, signal.SIG_DFL)
            if not argv[0]:
                raise FileNotFoundError(errno.ENOENT, "")  # as a shell; exec has another error
            os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        status = NOT_FOUND if error.errno in {errno.ENOENT, errno.ENOTDIR} else NOT_EXECUTABLE
        os.write(trouble, str(error.errno).encode())
    finally:
        os._exit(status)


def _move_to(terminal: int) -> None:
    """Start a session on that terminal, so that its keys and its hangup reach only the command."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(terminal, fd)
