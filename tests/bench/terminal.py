"""Programs on terminals of their own, and what they cost."""

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

# An installed program is compiled; what starts here must not be compiled at each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
TICKS = os.sysconf("SC_CLK_TCK")


def start(argv: list[str], columns: int, lines: int) -> tuple[int, int]:
    """A program on a terminal of this size: its pid and our end."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        time.sleep(0.05)  # the size is set meanwhile
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
    """Reads what it draws, for so long; how many bytes."""
    return len(drained(fd, seconds))


def drained(fd: int, seconds: float) -> bytes:
    end, found = time.monotonic() + seconds, []
    while (left := end - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            try:
                data = os.read(fd, 1 << 16)
            except OSError:  # it has ended
                break
            if not data:
                break
            found.append(data)
    return b"".join(found)


def family(pid: int) -> list[int]:
    """The process and all that it has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    below = [int(word) for word in path.read_text(encoding="ascii").split()]
    return [pid, *(one for child in below for one in family(child))]


def cpu_s(pids: list[int]) -> float:
    """User and system time so far."""
    total = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6
