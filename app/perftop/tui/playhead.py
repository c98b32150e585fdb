"""Which moment is shown: the newest, or one that the user has gone back to. Time goes on all the
same; the past is as long as the history."""

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
        """There is a newer interval."""
        self._session, self.newest = session, interval
        if not self.paused:
            self.shown = interval

    def enter(self, session: Session) -> None:
        """From now on moments are those of this session."""
        self._session = session

    def stay(self) -> None:
        """What is shown stays, be it that it is not kept any more."""
        self.paused = True

    def follow(self) -> None:
        """What comes next is shown; until then what is shown stays."""
        self.paused = False

    def resume(self) -> None:
        self.shown, self.paused = self.newest, False

    def go(self, time_ns: int, span_ns: int) -> None:
        """Stand still at this moment, or the nearest one that is kept."""
        times = self._times()
        if self._session is None or times is None or not len(times):
            return
        near = max(int(times[0]), min(int(times[-1]), time_ns))
        interval = self._session.at(near, span_ns)
        if interval is not None:
            self.shown, self.paused = interval, True

    def step(self, by: int, span_ns: int) -> None:
        """To the sample before or after."""
        times = self._times()
        if self.shown is not None and times is not None and len(times):
            at = int(times.searchsorted(self.shown.time_ns)) + by
            self.go(int(times[max(0, min(len(times) - 1, at))]), span_ns)

    def leap(self, seconds: float, span_ns: int) -> None:
        if self.shown is not None:
            self.go(self.shown.time_ns + round(seconds * 1e9), span_ns)

    def _times(self) -> Ints | None:
        """Raw ns at which the samples that are kept were taken."""
        history = self._session and self._session.history
        return history.times() if history else None
