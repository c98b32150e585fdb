"""The shown moment: the newest, or one to which the user has gone back. Sampling goes on meanwhile;
the user can go back as far as the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perftop.base.arrays import Ints
    from perftop.session.interval import Interval
    from perftop.session.session import Session


class Playhead:
    def __init__(self) -> None:
        self.shown: Interval | None = None
        """It stays while paused, even if the history no longer has it."""
        self.paused = False
        self.newest: Interval | None = None
        self.session: Session | None = None
        """Where moments are taken from."""

    def arrived(self, session: Session, interval: Interval) -> None:
        """Takes up a newer interval, and shows it unless paused."""
        self.session, self.newest = session, interval
        if not self.paused:
            self.shown = interval

    def resume(self) -> None:
        self.shown, self.paused = self.newest, False

    def go(self, time_ns: int, span_ns: int) -> None:
        """Pauses at this moment, or at the nearest one in the history."""
        times = self._times()
        if self.session is None or times is None or not len(times):
            return
        near = max(int(times[0]), min(int(times[-1]), time_ns))
        interval = self.session.at(near, span_ns)
        if interval is not None:
            self.shown, self.paused = interval, True

    def step(self, by: int, span_ns: int) -> None:
        """Goes this many samples on, or back if negative, and pauses there."""
        times = self._times()
        if self.shown is not None and times is not None and len(times):
            at = int(times.searchsorted(self.shown.time_ns)) + by
            self.go(int(times[max(0, min(len(times) - 1, at))]), span_ns)

    def leap(self, seconds: float, span_ns: int) -> None:
        if self.shown is not None:
            self.go(self.shown.time_ns + round(seconds * 1e9), span_ns)

    def _times(self) -> Ints | None:
        """Raw ns of the samples in the history."""
        history = self.session and self.session.history
        return history.times() if history else None
