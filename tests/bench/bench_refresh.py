"""Measures the CPU time of a refresh of the whole app, without waits, and that of a plain ANSI
writer in the same run for comparison. The numbers are computed beforehand; only their display is
measured. The text is discarded.

Run by hand: PYTHONPATH=tests/support python tests/bench/bench_refresh.py [--profile] [view ...]
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import statistics
import sys
import time
from collections.abc import Callable

from terminal_apps import messages, shown_app
from textual import events

WARM, COUNTED, ROUNDS = 60, 60, 7
SETTLE_S = 0.03
"""Time in s, longer than Textual's delay of a paint."""
KEYS = {"overview": "1", "heat": "2", "time": "3", "table": "4", "episodes": "5",
        "neighbours": "6", "core": "enter"}  # fmt: skip


def refresh_us(
    cpus: int, view: str, size: tuple[int, int], profile: cProfile.Profile | None = None
) -> tuple[float, float]:
    """Returns the median CPU time in us of one refresh, and its number of characters."""
    results: list[tuple[float, float]] = []

    async def idle_us() -> float:
        start = time.process_time_ns()
        await asyncio.sleep(SETTLE_S)
        return (time.process_time_ns() - start) / 1000

    async def act() -> None:
        feed = messages(cpus, WARM + COUNTED)
        async with shown_app(feed[:WARM], size) as app:
            app.terminal.keeps_text = False
            app.post_message(events.Key(KEYS[view], None))
            await asyncio.sleep(0.5)
            asleep = statistics.median([await idle_us() for _ in range(20)])
            show = app.source.show
            app.source.show = lambda: None  # type: ignore[method-assign]
            for message in feed[WARM:]:
                app.source.process([message])
                before = app.terminal.written
                if profile:
                    profile.enable()
                start = time.process_time_ns()
                show()
                await asyncio.sleep(SETTLE_S)
                us = (time.process_time_ns() - start) / 1000
                if profile:
                    profile.disable()
                results.append((us - asleep, app.terminal.written - before))

    asyncio.run(act())
    times, sizes = zip(*results, strict=True)
    return statistics.median(times), statistics.median(sizes)


def plain_us(columns: int, lines: int) -> float:
    """Returns the reference in us: a plain loop formats and colours every cell of a screen."""
    shades = [f"\x1b[38;2;{i * 8};{200 - i * 4};90m" for i in range(16)]

    def draw() -> None:
        out = []
        for line in range(lines):
            out.append(f"\x1b[{line + 1};1H")
            out += [f"{shades[(line + c) % 16]}{line * c % 1000 / 10:7.1f}"
                    for c in range(columns // 8)]  # fmt: skip
        "".join(out).encode()

    return best_us(draw, 50)


def best_us(work: Callable[[], object], repeat: int) -> float:
    """Returns the CPU time of one call in us, the minimum of ROUNDS."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        for _ in range(repeat):
            work()
        best = min(best, (time.process_time_ns() - start) / repeat / 1000)
    return best


def table(title: str, rows: list[tuple[str, float, float]]) -> None:
    """Prints rows of (name, microseconds, reference microseconds)."""
    print(f"\n{title}")
    print(f"{'':44}{'us':>10}{'reference':>12}{'ratio':>8}")
    for what, us, reference in rows:
        print(f"{what:44}{us:>10.1f}{reference:>12.1f}{us / reference:>8.2f}")


if __name__ == "__main__":
    os.environ |= {"COLORTERM": "truecolor", "TERM": "xterm-256color"}
    profile = cProfile.Profile() if "--profile" in sys.argv else None
    views = [word for word in sys.argv[1:] if word in KEYS] or ["overview"]
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()] or [2, 64, 256, 1024]
    for columns, lines in ((160, 50), (240, 70))[: 1 if profile else 2]:
        reference = plain_us(columns, lines)
        rows = []
        for view in views:
            for cpus in sizes:
                us, written = refresh_us(cpus, view, (columns, lines), profile)
                rows.append((f"{view}, {cpus} CPUs: {written:.0f} characters", us, reference))
        table(f"drawing at {columns}x{lines}", rows)
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(60)
