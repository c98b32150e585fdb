"""How the operating system's account splits a CPU's time; for guests the best there is.

The kernel samples user and system at its tick: good for a bar, not for a decimal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perftop.counters import Floats

if TYPE_CHECKING:
    from perftop.session import Session

_PARTS = {
    "user": ("stat_user_s", "stat_nice_s"),
    "system": ("stat_system_s", "stat_irq_s", "stat_softirq_s"),
    "iowait": ("stat_iowait_s",),
}


class Account:
    """Shares between two calls, from the sums of the run."""

    def __init__(self, session: Session) -> None:
        columns = session.counters.columns
        self._there = all(key in columns for keys in _PARTS.values() for key in keys)
        self._last = [np.zeros_like(part) for part in self._sums(session)]

    def shares(self, session: Session) -> tuple[Floats, Floats, Floats]:
        """User, system (with interrupts) and iowait, by position of the CPU."""
        unknown = np.full(len(session.topology), np.nan)
        if not self._there:
            return unknown, unknown, unknown
        now = self._sums(session)
        elapsed = now[-1] - self._last[-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            user, system, iowait = (
                np.where(elapsed > 0, np.clip((new - old) / elapsed, 0, 1), np.nan)
                for new, old in zip(now[:-1], self._last[:-1], strict=True)
            )
        self._last = now
        return user, system, iowait

    def _sums(self, session: Session) -> list[Floats]:
        """Seconds of each part so far, and at the end seconds elapsed."""
        if not self._there:
            return []
        columns, tables = session.counters.columns, session.run.tables
        sums = []
        for keys in _PARTS.values():
            parts = [tables[columns[key].block].moved[:, columns[key].first] for key in keys]
            sums.append(np.sum(parts, axis=0))
        ticks = tables[columns["stat_user_s"].block].ticks
        return [*sums, ticks / session.counters.stamp_hz]
