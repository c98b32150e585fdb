"""What perftop itself costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perftop.session.session import Session

SPAN_NS = 5_000_000_000
"""It is told as a mean over this long: it is small and jumps."""


class Cost:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        """CPU seconds that this process has used."""
        self._told: deque[tuple[int, float]] = deque()

    def share(self, session: Session) -> float:
        """CPU seconds per second, probe and app together, up to the newest sample."""
        told, now_ns = self._told, session.now_ns
        told.append((now_ns, session.probe_cpu_s() + self._clock()))
        while len(told) > 2 and now_ns - told[0][0] > SPAN_NS:
            told.popleft()
        elapsed_s = (now_ns - told[0][0]) / 1e9
        return (told[-1][1] - told[0][1]) / elapsed_s if elapsed_s else float("nan")
