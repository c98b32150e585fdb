"""What a fleet of 64 machines costs who looks at it: simulated probes on this machine, a sample a
second each, and the screen without a terminal.

python tests/bench/bench_fleet.py [MACHINES [SECONDS]]
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from perftop.tui.fleet_app import FleetApp
from perftop.verbs.fleet_sources import LiveSource

SCENARIOS = ("turbo-drop", "steady", "neighbour", "throttle", "guest", "halts", "smt-mix")
SIZE = 160, 50


def hosts(count: int) -> list[str]:
    return [f"sim:{SCENARIOS[i % len(SCENARIOS)]},seed={i}" for i in range(count)]


def written() -> int:
    """Bytes that our children have written so far."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            told = Path(f"/proc/{pid}/io").read_text()
            total += int(told.partition("wchar: ")[2].split()[0])
    return total


async def measured(count: int, seconds: float) -> None:
    source = LiveSource(hosts(count))
    app = FleetApp(source)
    began = time.monotonic()
    first: dict[tuple[str, str, float], float] = {}
    async with app.run_test(size=SIZE) as pilot:
        while len(source.fleet.answering) < count:
            await pilot.pause(0.1)
        print(f"all {count} machines on the screen after {time.monotonic() - began:.1f} s")
        cpu, read, since = time.process_time(), written(), time.monotonic()
        known = {(e.machine, e.kind, e.start) for m in source.fleet.answering for e in m.running}
        while time.monotonic() - since < seconds:
            await asyncio.sleep(0.1)
            shown = "\n".join(app.page.text())
            for machine in source.fleet.answering:
                for event in machine.running:
                    key = event.machine, event.kind, event.start
                    if key not in known and event.machine in shown:
                        first.setdefault(key, time.time() - event.start)
        spent, elapsed = time.process_time() - cpu, time.monotonic() - since
        print(f"viewer: {100 * spent / elapsed:.1f} % of a CPU")
        print(f"bytes: {(written() - read) / elapsed / 1e3:.0f} kB/s of all machines")
        waits = sorted(first.values())
        if waits:
            half, most = waits[len(waits) // 2], waits[-1]
            print(f"episodes: {len(waits)}, on the screen {half:.1f} s after their start by half, "
                  f"{most:.1f} s at most")  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    asyncio.run(measured(count, float(sys.argv[2]) if len(sys.argv) > 2 else 30.0))


if __name__ == "__main__":
    main()
