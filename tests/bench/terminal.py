"""Runs programs on separate terminals, and measures their cost."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Self

# Programs keep their compiled modules, like installed programs, so that no start includes
# compiling.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
TICKS = os.sysconf("SC_CLK_TCK")
SIZE = (120, 40)
LIMIT_S = 30.0


def start(
    argv: list[str],
    columns: int,
    lines: int,
    stderr: IO[bytes] | None = None,
    pass_fds: Collection[int] = (),
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a program in a session with a terminal of this size, which is also its stderr unless
    that is given. It inherits `pass_fds`. Returns the process and this side's descriptor."""
    fd, terminal = pty.openpty()
    termios.tcsetwinsize(fd, (lines, columns))
    look = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        argv, stdin=terminal, stdout=terminal, stderr=stderr or terminal, env=os.environ | look,
        start_new_session=True, pass_fds=pass_fds,
        preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )  # fmt: skip
    os.close(terminal)
    return process, fd


def stop(process: subprocess.Popen[bytes], fd: int) -> None:
    os.write(fd, b"q")
    drain(fd, 1.0)
    process.terminate()
    process.wait()
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

    def __init__(self, argv: list[str], stderr: IO[bytes] | None = None) -> None:
        self._process, self.fd = start(argv, *SIZE, stderr)
        self.pid = self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status once `has_ended` was true."""
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._process.kill()  # does nothing after its end
        self._process.wait()
        os.close(self.fd)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def quit(self) -> int:
        """Presses q and returns the exit status; -9 if the program does not end."""
        if not self.has_ended():
            os.write(self.fd, b"q")
        end_s = time.monotonic() + LIMIT_S
        while not self.has_ended() and time.monotonic() < end_s:
            drain(self.fd, 0.1)
        drain(self.fd, 0.1)
        return -9 if self.status is None else self.status
