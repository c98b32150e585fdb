"""What a refresh of the screen costs, in a real pseudo-terminal: CPU of the app process, against a
plain Python program that writes as many coloured cells as the overview shows.

Run by hand: python tests/bench/bench_screen.py
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import timing

WARM_S, SPAN_S, HZ = 3.0, 8.0, 10
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text(encoding="ascii").split()]


def in_terminal(argv: list[str], columns: int, lines: int) -> tuple[int, int]:
    """A program on a terminal of its own: its pid and our end."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        os.execv(argv[0], argv)  # noqa: S606
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    return pid, fd


def drain(fd: int, seconds: float) -> int:
    """Reads what it draws, for so long; how many bytes."""
    end, total = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            try:
                total += len(os.read(fd, 1 << 16))
            except OSError:  # it has ended
                return total
    return total


def app(cpus: int, columns: int, lines: int) -> tuple[float, float, float, float]:
    """CPU us and bytes of a refresh; MB of the app and of its probe."""
    source = f"sim:smt-mix,cpus={cpus}" if cpus else "os"
    argv = [sys.executable, "-m", "perftop", "--source", source]
    argv += ["-i", f"{1000 // HZ}ms", "--sample", f"{1000 // HZ}ms"]
    pid, fd = in_terminal(argv, columns, lines)
    drain(fd, WARM_S)
    before = cpu_s(pid)
    size = drain(fd, SPAN_S)
    used = cpu_s(pid) - before
    mine, probes = rss_mb(pid), sum(map(rss_mb, children(pid)))
    os.write(fd, b"q")
    drain(fd, 0.5)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(fd)
    refreshes = SPAN_S * HZ
    return used / refreshes * 1e6, size / refreshes, mine, probes


def plain_us(columns: int, lines: int) -> float:
    """The reference: every cell of a screen formatted and coloured by a plain loop."""
    shades = [f"\x1b[38;2;{i * 8};{200 - i * 4};90m" for i in range(16)]

    def draw() -> None:
        out = []
        for line in range(lines):
            out.append(f"\x1b[{line + 1};1H")
            out += [f"{shades[(line + c) % 16]}{line * c % 1000 / 10:7.1f}"
                    for c in range(columns // 8)]  # fmt: skip
        "".join(out).encode()

    return timing.best_us(draw, 50)


if __name__ == "__main__":
    for columns, lines in ((160, 50), (240, 70)):
        reference = plain_us(columns, lines)
        rows = []
        for cpus in (0, 64, 256, 1024):
            us, size, mine, probe = app(cpus, columns, lines)
            name = f"{cpus} CPUs" if cpus else "this machine (os)"
            what = f"{name}: {size:.0f} bytes, {mine:.0f} + {probe:.0f} MB"
            rows.append((what, us, reference))
        timing.table(f"a refresh at {columns}x{lines}, {HZ} Hz", rows)
