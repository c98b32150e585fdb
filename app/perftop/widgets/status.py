"""What screens show of the app itself."""

from __future__ import annotations

from dataclasses import dataclass


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
