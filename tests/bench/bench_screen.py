"""What a refresh of the screen costs, in a real pseudo-terminal: CPU of the app process, against a
plain Python program that writes as many coloured cells as the screen has.

Run by hand: python tests/bench/bench_screen.py [view ...]
"""

from __future__ import annotations

import os
import sys

import terminal
import timing

WARM_S, SPAN_S, HZ = 3.0, 8.0, 10
KEYS = {"overview": b"1", "heat": b"2", "time": b"3", "table": b"4", "core": b"\r"}


def app(view: str, cpus: int, columns: int, lines: int) -> tuple[float, float, float, float]:
    """CPU us and bytes of a refresh; MB of the app and of its probe."""
    source = f"sim:smt-mix,cpus={cpus}" if cpus else "os"
    argv = [sys.executable, "-m", "perftop", "--source", source]
    argv += ["-i", f"{1000 // HZ}ms", "--sample", f"{1000 // HZ}ms"]
    pid, fd = terminal.start(argv, columns, lines)
    terminal.drain(fd, WARM_S)
    os.write(fd, KEYS[view])
    terminal.drain(fd, 1.0)
    before = terminal.cpu_s([pid])
    size = terminal.drain(fd, SPAN_S)
    used = terminal.cpu_s([pid]) - before
    mine, *probes = map(terminal.rss_mb, terminal.family(pid))
    terminal.stop(pid, fd)
    refreshes = SPAN_S * HZ
    return used / refreshes * 1e6, size / refreshes, mine, sum(probes)


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
        for view in sys.argv[1:] or ["overview"]:
            for cpus in (0, 64, 256, 1024):
                us, size, mine, probe = app(view, cpus, columns, lines)
                name = f"{view}, {cpus} CPUs" if cpus else f"{view}, this machine (os)"
                what = f"{name}: {size:.0f} bytes, {mine:.0f} + {probe:.0f} MB"
                rows.append((what, us, reference))
        timing.table(f"a refresh at {columns}x{lines}, {HZ} Hz", rows)
