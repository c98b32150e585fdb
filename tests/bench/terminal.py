"""Runs programs on separate terminals, and measures their cost."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

# Programs keep their compiled modules, like installed programs, so that no start includes
# compiling.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
TICKS = os.sysconf("SC_CLK_TCK")
SIZE = (120, 40)
LIMIT_S = 30.0
START_DELAY_S = 0.05
"""Time in s that a program waits before it starts, while its terminal gets its size."""


def start(argv: list[str], columns: int, lines: int) -> tuple[int, int]:
    """Starts a program on a terminal of this size; returns its pid and this side's descriptor."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        time.sleep(START_DELAY_S)
        os.execvp(argv[0], argv)  # noqa: S606
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    return pid, fd


def stop(pid: int, fd: int) -> None:
    os.write(fd, b"q")
    drain(fd, 1.0)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(fd)


def drain(fd: int, seconds: float) -> int:
    """Reads the program's output for `seconds`. Returns the number of bytes."""
    return len(drained_bytes(fd, seconds))


def drained_bytes(fd: int, seconds: float) -> bytes:
    end, result = time.monotonic() + seconds, []
    while (left := end - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            try:
                data = os.read(fd, 1 << 16)
            except OSError:  # the program has ended
                break
            if not data:
                break
            result.append(data)
    return b"".join(result)


def process_tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    below = [int(word) for word in path.read_text(encoding="ascii").split()]
    return [pid, *(one for child in below for one in process_tree(child))]


def cpu_s(pids: list[int]) -> float:
    """Returns the user and system time of these processes so far, in s."""
    total = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


class Screen:
    """A program on its own terminal, which is ended at the end of the block, even after an
    error."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.fd = start(argv, *SIZE)
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def has_ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def quit(self) -> int:
        """Presses q and returns the exit status; -9 if the program does not end."""
        if not self.has_ended():
            os.write(self.fd, b"q")
        end_s = time.monotonic() + LIMIT_S
        while not self.has_ended() and time.monotonic() < end_s:
            drain(self.fd, 0.1)
        drain(self.fd, 0.1)
        return -9 if self.status is None else self.status
