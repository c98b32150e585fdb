"""What a stream has lost over one span of time: the sums that `why` reports on. Those of the last
seconds are the difference of two totals; those of a past moment are summed up again from history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from perftop.session.losses import LossSums
from perftop.session.task_times import RunTimes


@dataclass(frozen=True, slots=True)
class Totals:
    start_ns: int
    end_ns: int
    """Raw times."""
    losses: LossSums
    times: RunTimes
    """Times of tasks and threads. Those of a session grow with it; see `copy`."""
    samples: int
    suspect: int
    """Number of samples of CPUs with suspect counters."""

    @property
    def elapsed_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def copy(self) -> Totals:
        """Returns these totals as they are now."""
        return replace(self, times=self.times.copy())

    def since(self, earlier: Totals) -> Totals:
        """Returns the totals after the end of `earlier`, which has the same start."""
        return Totals(
            earlier.end_ns, self.end_ns, self.losses.since(earlier.losses),
            self.times.since(earlier.times), self.samples - earlier.samples,
            self.suspect - earlier.suspect,
        )  # fmt: skip
