"""Stages of a simulated machine, which repeat without end, and counts over them. Rates are constant
within a stage, so a count up to any moment is a sum of rates times lengths. Times and rates are
whole numbers, so sums are exact.

This module does not use numpy, because tests that imitate hardware use it and must start quickly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Stages:
    def __init__(self, ends_ns: Sequence[int]) -> None:
        """`ends_ns` are the ends of the stages, in ns from the start of the first stage."""
        self.ends = list(ends_ns)
        self.starts = [0, *self.ends[:-1]]
        self.period = self.ends[-1]

    def index(self, time_ns: int) -> int:
        """Returns the number of the stage at this time. A stage does not include its end."""
        return bisect_right(self.ends, time_ns % self.period)

    def since_start(self, time_ns: int) -> int:
        """Returns the time in ns since the start of the stage at this time."""
        return time_ns % self.period - self.starts[self.index(time_ns)]

    def ends_between(self, since_ns: int, until_ns: int) -> Iterator[tuple[int, int]]:
        """Yields each end of a stage in (since_ns, until_ns], with the number of the stage."""
        time_ns = since_ns
        while True:
            stage = self.index(time_ns)
            time_ns += self.ends[stage] - time_ns % self.period
            if time_ns > until_ns:
                return
            yield time_ns, stage


class Integral:
    """A function from a time to a count: the sum over stages of rate (amount per ns) times length.
    The sum times `multiplier` / `divisor` is rounded down."""

    __slots__ = ("_before", "_divisor", "_multiplier", "_rates", "_stages", "_total")

    def __init__(
        self, stages: Stages, rates: Sequence[int], multiplier: int = 1, divisor: int = 1
    ) -> None:
        spans = zip(rates, stages.starts, stages.ends, strict=True)
        sums = [0, *accumulate(rate * (end - start) for rate, start, end in spans)]
        self._stages, self._rates, self._total = stages, list(rates), sums[-1]
        # The sum before each stage, minus its rate times its start: see __call__.
        self._before = [
            amount - rate * start
            for amount, rate, start in zip(sums, rates, stages.starts, strict=False)
        ]
        self._multiplier, self._divisor = multiplier, divisor

    def __call__(self, time_ns: int) -> int:
        turns, within_ns = divmod(time_ns, self._stages.period)
        stage = bisect_right(self._stages.ends, within_ns)
        amount = turns * self._total + self._before[stage] + self._rates[stage] * within_ns
        return amount * self._multiplier // self._divisor
