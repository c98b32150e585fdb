"""What screens show of the app itself."""

from __future__ import annotations

from dataclasses import dataclass


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
    failed: str | None = None
    """Why nothing more will come."""
