"""The app's own state and CPU cost, which the screens show."""

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
    """The state of the playback of a recording."""

    playing: bool
    speed: float
    reach_ns: tuple[int, int]
    """Raw ns of the first and the last moment of the recording."""
    seeking_ns: int | None
    """Raw ns up to which a seek has read; None: no seek is under way."""
    over: bool
    """Whether the last moment of the recording is shown."""
    damage: str | None
    """Why the recording is incomplete; None if it is complete."""
    indexed: float | None = None
    """Share of the file that has been searched for episodes; None: the search is complete."""


@dataclass(frozen=True, slots=True)
class Status:
    """The app's own state, which a screen shows beside the measured numbers."""

    interval_ns: int
    own: float = float("nan")
    """CPU seconds per second that the probe and the app use; for a recording, only the probe's."""
    paused: float | None = None
    """Unix time of the shown moment while paused, in seconds; None: not paused."""
    silent_s: float | None = None
    """Seconds since the last message, if that is unusually long; else None."""
    replay: Replay | None = None
    """The state of the playback; None: the stream is live."""
    link: LinkState | None = None
    """The state of the link to a remote probe; None: the probe is local."""
    recording: str | None = None
    """Size of the recording so far, as text; '' if recording failed; None: nothing is being
    recorded."""
    notice: str = ""
    """A message that is shown for some time; '' if there is none."""
    job: str = ""
    """Name and state of the command that perftop runs; '' if it runs none."""
    job_status: int | None = None
    """Exit status of the command; None until the command has ended."""
    failed: str | None = None
    """Why the stream has ended; None while the stream runs."""


SPAN_NS = 5_000_000_000
"""Time over which the shown cost is averaged, in ns; the momentary cost is small and jumps."""
STEP_NS = 1_000_000_000
"""Minimum time between two reads of the cost, in ns, so that the shown number seldom changes."""


class Cost:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        """Returns the CPU seconds that this process has used, including those in the kernel."""
        self._readings: deque[tuple[int, float]] = deque()
        """Times in raw ns, with the CPU seconds used up to each."""
        self._share = float("nan")

    def share(self, session: Session) -> float:
        """Returns the CPU seconds per second that the probe and the app use together, averaged over
        SPAN_NS up to the newest sample."""
        readings, now_ns = self._readings, session.now_ns
        if not isnan(self._share) and now_ns - readings[-1][0] < STEP_NS:
            return self._share
        readings.append((now_ns, session.probe_cpu_s() + self._clock()))
        while len(readings) > 2 and now_ns - readings[0][0] > SPAN_NS:
            readings.popleft()
        elapsed_s = (now_ns - readings[0][0]) / 1e9
        self._share = (readings[-1][1] - readings[0][1]) / elapsed_s if elapsed_s else float("nan")
        return self._share
