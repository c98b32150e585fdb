"""Timing for benchmarks: the CPU time of the fastest round, and its ratio to a reference in the
same run. Machines are shared, so only ratios are comparable."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 7


def best_us(work: Callable[[], object], repeat: int) -> float:
    """Returns the CPU time of one call in us, the minimum of some rounds."""
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
    for what, mine, reference in rows:
        print(f"{what:44}{mine:>10.1f}{reference:>12.1f}{mine / reference:>8.2f}")
