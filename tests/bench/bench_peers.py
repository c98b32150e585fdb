"""What watching this machine costs in all - the program and whatever it starts - beside what the
others that are installed here cost, in one run. Seconds of CPU a minute, at 160x50.

Run by hand: python tests/bench/bench_peers.py
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import terminal

WARM_S, SPAN_S = 4.0, 20.0


def argvs(hz: int) -> dict[str, list[str]]:
    period = f"{1000 // hz}ms"
    own = [sys.executable, "-m", "perftop", "--source", "os", "-i", period, "--sample", period]
    peers = {
        "perftop": own,
        "htop": ["htop", "-d", str(10 // hz)],
        "top": ["top", "-d", str(1 / hz)],
        "s-tui": ["s-tui", "-r", str(1 / hz)],
        "glances": ["glances", "-t", str(1 / hz)],
    }
    if hz == 1:
        peers["btop"] = ["btop"]  # has no option for its rate, which is 0.5 Hz
    return {name: argv for name, argv in peers.items() if shutil.which(argv[0])}


def cost(argv: list[str]) -> float:
    pid, fd = terminal.start(argv, 160, 50)
    terminal.drain(fd, WARM_S)
    before = terminal.cpu_s(terminal.family(pid))
    terminal.drain(fd, SPAN_S)
    used = terminal.cpu_s(terminal.family(pid)) - before
    terminal.stop(pid, fd)
    return used / SPAN_S * 60


if __name__ == "__main__":
    for hz in (1, 10):
        costs = {name: cost(argv) for name, argv in argvs(hz).items()}
        print(f"\nCPU seconds a minute at {hz} Hz")
        for name, seconds in costs.items():
            print(f"  {name:10} {seconds:6.2f}   {seconds / costs['perftop']:5.2f} of perftop's")
