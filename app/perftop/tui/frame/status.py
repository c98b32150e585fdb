"""The app's own state and cost, as screens show them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from perftop.draw.columns import Run

if TYPE_CHECKING:
    from perftop.process.link import LinkState
    from perftop.session.session import Session

STARTING: list[Run] = [(" perftop", "key"), ("  starting the probe ", "dim")]


@dataclass(frozen=True, slots=True)
class Replay:
    """State of the playback of a recording."""

    playing: bool
    speed: float
    reach_ns: tuple[int, int]
    """Raw ns of the first and the last moment of the recording."""
    seeking_ns: int | None
    """Raw ns up to which a seek has read, not shown yet; None: no seek is under way."""
    over: bool
    """Whether the last moment of the recording is shown."""
    damage: str | None
    """Why the recording is incomplete; None if it was ended properly."""
    indexed: float | None = None
    """Share of the file that has been searched for episodes; None: all of it."""


@dataclass(frozen=True, slots=True)
class Status:
    """The app's own state, which a screen shows with the measured numbers."""

    interval_ns: int
    own: float = float("nan")
    """CPU seconds per second that probe and app use; on a recording, the probe's alone."""
    paused: float | None = None
    """Unix time of the shown moment while paused; None: not paused."""
    silent_s: float | None = None
    """Seconds since the last message; None while that is not too long."""
    replay: Replay | None = None
    """None: the stream is live."""
    link: LinkState | None = None
    """The link to a remote probe; None: the probe is local."""
    recording: str | None = None
    """Size of the recording so far, '' if it failed; None: nothing is being recorded."""
    notice: str = ""
    """A message about a recording or command, shown for some time."""
    job: str = ""
    """Name and state of the command that perftop runs; '' without one."""
    job_status: int | None = None
    """Its exit status; None while it has not ended."""
    failed: str | None = None
    """Why the stream has ended; None while it runs."""


SPAN_NS = 5_000_000_000
"""Span of the mean that is shown: the cost itself is small and jumps."""
STEP_NS = 1_000_000_000
"""Minimum time between two reads of the cost, so that its number seldom changes."""


class Cost:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        """Returns the CPU seconds that this process has used, those in the kernel included."""
        self._readings: deque[tuple[int, float]] = deque()
        """Raw ns, and CPU seconds used up to then."""
        self._share = float("nan")

    def share(self, session: Session) -> float:
        """CPU seconds per second that probe and app use together, up to the newest sample."""
        readings, now_ns = self._readings, session.now_ns
        if not isnan(self._share) and now_ns - readings[-1][0] < STEP_NS:
            return self._share
        readings.append((now_ns, session.probe_cpu_s() + self._clock()))
        while len(readings) > 2 and now_ns - readings[0][0] > SPAN_NS:
            readings.popleft()
        elapsed_s = (now_ns - readings[0][0]) / 1e9
        self._share = (readings[-1][1] - readings[0][1]) / elapsed_s if elapsed_s else float("nan")
        return self._share
