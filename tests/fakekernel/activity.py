"""The truth: who runs when, in which ring, at which clock. Every counter is an integral of it.

A core repeats one period. Times are whole nanoseconds and rates whole numbers, so integrals are
exact. Logical processors (LPs) of a core are numbered from 0 here, whatever their CPU number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

IDLE, USER, KERNEL, HALT, STEAL = "I", "U", "K", "H", "S"
UNHALTED = USER + KERNEL  # HALT: halted although the OS has work; STEAL: the hypervisor took it
DEEP_NS = 1_000_000  # an idle span this long is spent in C6, a shorter one in C1

Rate = Callable[["Piece"], int]


@dataclass(frozen=True)
class Piece:
    """A part of the period in which nothing changes."""

    start: int
    end: int
    modes: str  # one letter per LP
    ipc: tuple[int, ...]  # thousandths, per LP
    hz: int
    requests: tuple[int, ...] = ()  # C-state each LP asked for, 0 where it is not idle
    license: int = 0
    limit: int = 0  # status bits of the limit-reason register
    therm: int = 0  # status bits of THERM_STATUS
    smi: int = 0  # management interrupts at its start

    @property
    def mask(self) -> int:
        return sum(1 << lp for lp, mode in enumerate(self.modes) if mode in UNHALTED)

    @property
    def cstate(self) -> int:
        """The core's state: the shallowest that its LPs asked for."""
        return min(self.requests, default=0)


class Line:
    """A count that grows at a constant rate within each piece, in whole ticks of mul/div."""

    __slots__ = ("base", "div", "mul", "period", "rates", "scale", "starts", "total")

    def __init__(
        self,
        starts: Sequence[int],
        period: int,
        rates: Sequence[int],
        mul: int = 1,
        div: int = 1,
        scale: int = 1,
    ) -> None:
        ends = [*starts[1:], period]
        grown = [0, *accumulate(r * (e - s) for r, s, e in zip(rates, starts, ends, strict=True))]
        self.starts, self.period, self.rates = list(starts), period, list(rates)
        self.base = [g - r * s for g, r, s in zip(grown, rates, starts, strict=False)]
        self.total, self.mul, self.div, self.scale = grown[-1], mul, div, scale

    def __call__(self, t: int) -> int:
        turns, at = divmod(t, self.period)
        i = bisect_right(self.starts, at) - 1
        grown = turns * self.total + self.base[i] + self.rates[i] * at
        return grown * self.mul // self.div * self.scale


class Steps:
    """A count that jumps at moments of the period."""

    def __init__(self, period: int, jumps: Sequence[tuple[int, int]]) -> None:
        ordered = sorted(jumps)
        self.period = period
        self.moments = [moment for moment, _ in ordered]
        self.sums = [0, *accumulate(amount for _, amount in ordered)]

    def __call__(self, t: int) -> int:
        turns, at = divmod(t, self.period)
        return turns * self.sums[-1] + self.sums[bisect_right(self.moments, at)]


@dataclass(frozen=True)
class Span:
    """One idle span of an LP: the OS accounts for it when it ends."""

    end: int
    length: int
    state: int


class Core:
    """The schedule of one physical core."""

    def __init__(self, plan: dict[str, Any]) -> None:
        lps = [_edges(lane) for lane in plan["lps"]]
        clock = _edges([[entry["us"], entry] for entry in plan["clock"]])
        self.period = clock[-1][0]
        if any(lane[-1][0] != self.period for lane in lps):
            raise ValueError("the parts of a core must have the same period")
        starts = sorted({0, *(end for lane in (*lps, clock) for end, *_ in lane)} - {self.period})
        self.spans = [_idle_spans(lane) for lane in lps]
        ends = [*starts[1:], self.period]
        self.pieces = [
            self._piece(start, end, lps, clock) for start, end in zip(starts, ends, strict=True)
        ]
        self.starts = starts

    def _piece(self, start: int, end: int, lps: list[list[Any]], clock: list[list[Any]]) -> Piece:
        at = [_entry(lane, start) for lane in lps]
        now = dict(_entry(clock, start)[1])
        now.pop("us")
        if start and _entry(clock, start - 1)[1] is _entry(clock, start)[1]:
            now.pop("smi", None)
        requests = tuple(
            _request(spans, start, self.period) if entry[1] == IDLE else 0
            for spans, entry in zip(self.spans, at, strict=True)
        )
        ipc = tuple(int(entry[2]) if len(entry) > 2 else 0 for entry in at)
        return Piece(start, end, "".join(entry[1] for entry in at), ipc, requests=requests, **now)

    def line(self, rate: Rate, mul: int = 1, div: int = 1, scale: int = 1) -> Line:
        rates = [rate(piece) for piece in self.pieces]
        return Line(self.starts, self.period, rates, mul, div, scale)

    def steps(self, jump: Rate) -> Steps:
        return Steps(self.period, [(p.start, jump(p)) for p in self.pieces if jump(p)])

    def at(self, t: int) -> Piece:
        return self.pieces[bisect_right(self.starts, t % self.period) - 1]

    def idle(self, lp: int, state: int) -> tuple[Steps, Steps]:
        """Time in ns and number of entries of one cpuidle state: both step when the idle ends."""
        spans = [span for span in self.spans[lp] if span.state == state]
        time = Steps(self.period, [(span.end, span.length) for span in spans])
        return time, Steps(self.period, [(span.end, 1) for span in spans])


class Package:
    """All cores of a package on one time line."""

    def __init__(self, cores: Sequence[Core]) -> None:
        self.period = cores[0].period
        if any(core.period != self.period for core in cores):
            raise ValueError("the cores of a package must have the same period")
        self.starts = sorted({start for core in cores for start in core.starts})
        self.parts = [tuple(core.at(start) for core in cores) for start in self.starts]

    def line(self, rate: Callable[[tuple[Piece, ...]], int], mul: int = 1, div: int = 1) -> Line:
        return Line(self.starts, self.period, [rate(parts) for parts in self.parts], mul, div)

    def at(self, t: int) -> tuple[Piece, ...]:
        return self.parts[bisect_right(self.starts, t % self.period) - 1]


def _edges(lane: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Entries [µs, …] as [end in ns, …]."""
    ends = accumulate(entry[0] * 1000 for entry in lane)
    return [[end, *entry[1:]] for end, entry in zip(ends, lane, strict=True) if entry[0]]


def _entry(lane: list[list[Any]], at: int) -> list[Any]:
    return lane[bisect_right([entry[0] for entry in lane], at)]


def _idle_spans(lane: list[list[Any]]) -> list[Span]:
    """Idle spans of a period, joined, also across its end; one that never ends is cut there."""
    joined: list[list[int]] = []
    start = 0
    for end, mode, *_ in lane:
        if mode == IDLE:
            if joined and joined[-1][0] == start:
                joined[-1] = [end, joined[-1][1] + end - start]
            else:
                joined.append([end, end - start])
        start = end
    if len(joined) > 1 and joined[-1][0] == start and lane[0][1] == IDLE:
        joined[0][1] += joined.pop()[1]
    return [Span(end, length, 6 if length >= DEEP_NS else 1) for end, length in joined]


def _request(spans: list[Span], at: int, period: int) -> int:
    for span in spans:
        if span.end - span.length <= at < span.end or at >= span.end - span.length + period:
            return span.state
    raise AssertionError("an idle LP outside its idle spans")


# --- default load --------------------------------------------------------------------------------


def default_plan(core: int, threads: int, hz: int, drop: int) -> dict[str, Any]:
    """100 ms in which all states occur, another pattern on every core."""
    lps = [_lane(core, lp) for lp in range(threads)]
    slow = hz - drop * (core % 3)
    return {"lps": lps, "clock": [{"us": 60_000, "hz": hz}, {"us": 40_000, "hz": slow}]}


def _lane(core: int, lp: int) -> list[list[Any]]:
    """Busy once in 100 ms: user, kernel, an involuntary halt, user; turned by a phase."""
    duty = 30_000 + 8_000 * (core % 4) + 4_000 * lp
    phase = (20_000 * lp + 7_137 * core) % 100_000
    user, ipc = duty * 6 // 10, 1200 + 300 * lp + 100 * (core % 4)
    kernel = duty // 4
    busy = [[user, USER, ipc], [kernel, KERNEL, 600], [400, HALT, 0]]
    rest = [[duty - user - kernel - 400, USER, ipc], [100_000 - duty, IDLE, 0]]
    return _turned([*busy, *rest], phase)


def _turned(lane: list[list[Any]], phase: int) -> list[list[Any]]:
    """The lane begun `phase` µs later; what falls over the end comes first."""
    later, left = list(lane), phase
    first: list[list[Any]] = []
    while left:
        us, *what = later.pop()
        taken = min(us, left)
        first.insert(0, [taken, *what])
        if us > taken:
            later.append([us - taken, *what])
        left -= taken
    return [*first, *later]
