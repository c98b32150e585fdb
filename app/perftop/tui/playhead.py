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
        self.paused = False
        self.newest: Interval | None = None
        self._session: Session | None = None

    def arrived(self, session: Session, interval: Interval) -> None:
        """Takes up a newer interval, and shows it unless paused."""
        self._session, self.newest = session, interval
        if not self.paused:
            self.shown = interval

    def enter(self, session: Session) -> None:
        """Takes moments from this session from now on."""
        self._session = session

    def stay(self) -> None:
        """Pauses; the shown interval stays, even if the history no longer has it."""
        self.paused = True

    def follow(self) -> None:
        """Ends the pause; the shown interval stays until the next one arrives."""
        self.paused = False

    def resume(self) -> None:
        self.shown, self.paused = self.newest, False

    def go(self, time_ns: int, span_ns: int) -> None:
        """Pauses at this moment, or at the nearest one in the history."""
        times = self._times()
        if self._session is None or times is None or not len(times):
            return
        near = max(int(times[0]), min(int(times[-1]), time_ns))
        interval = self._session.at(near, span_ns)
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
        history = self._session and self._session.history
        return history.times() if history else None
