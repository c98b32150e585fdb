"""What screens show of the app itself: its state, and what it costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perftop.draw.strips import Run

if TYPE_CHECKING:
    from perftop.session.session import Session

STARTING: list[Run] = [(" perftop ", "badge"), ("  starting the probe ", "dim")]


@dataclass(frozen=True, slots=True)
class Replay:
    """How a recording is gone through."""

    playing: bool
    speed: float
    reach_ns: tuple[int, int]
    """Raw: the first and the last moment of the recording."""
    seeking_ns: int | None
    """Raw: how far the way to another moment has come, which is not shown yet."""
    over: bool
    """There is nothing after what is shown."""
    damage: str | None
    """Why it ends there, if it was not ended."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a screen shows that is not measured: the app's own state."""

    interval_ns: int
    own: float = float("nan")
    """CPU seconds per second that probe and app use."""
    paused: float | None = None
    """Unix time of the moment that is shown, while paused."""
    silent_s: float | None = None
    """For how long nothing has come, if that is too long."""
    replay: Replay | None = None
    """None: what is shown is live."""
    recording: str | None = None
    """How much there is of it by now; empty: it has stopped, and not because it was told to."""
    notice: str = ""
    """News of a recording, while they are new."""
    job: str = ""
    """How the command fares that runs under us."""
    failed: str | None = None
    """Why nothing more will come."""


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
