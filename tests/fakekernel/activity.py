"""The schedule of a fake machine: when each LP runs, in which ring, and at which clock. Every
counter is an integral of the schedule.

A core repeats one period, which consists of pieces; the state is constant within a piece. Logical
processors (LPs) of a core are numbered from 0, whatever their CPU number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from perfprobe.sources.sim.stages import Integral, Stages

IDLE, USER, KERNEL, HALT, STEAL = "I", "U", "K", "H", "S"
UNHALTED = USER + KERNEL  # HALT: halted although the OS has work; STEAL: the hypervisor took it
DEEP_NS = 1_000_000  # an idle span of at least this length is spent in C6, a shorter span in C1

Rate = Callable[["Piece"], int]


@dataclass(frozen=True)
class Piece:
    """The constant activity of a core during a part of its period."""

    modes: str  # the mode of each LP, as one letter
    ipc: tuple[int, ...]  # instructions per cycle of each LP, in thousandths
    hz: int
    requests: tuple[int, ...] = ()  # C-state that each LP requested; 0 if not idle
    limit: int = 0  # status bits of the register of limit reasons
    therm: int = 0  # status bits of THERM_STATUS
    smi: int = 0  # number of SMIs at the start of the piece

    @property
    def mask(self) -> int:
        return sum(1 << lp for lp, mode in enumerate(self.modes) if mode in UNHALTED)

    @property
    def cstate(self) -> int:
        """The core's C-state: the shallowest state that its LPs request."""
        return min(self.requests, default=0)


@dataclass(frozen=True)
class IdleSpan:
    """An idle span of an LP, which the OS accounts for at its end."""

    end: int
    length: int
    state: int


class Steps:
    """A function from a time to a count that jumps at some moments of each period."""

    def __init__(self, period_ns: int, jumps: Sequence[tuple[int, int]]) -> None:
        """`jumps` are pairs of a moment in ns and an amount."""
        ordered = sorted(jumps)
        self._period = period_ns
        self._moments = [moment for moment, _ in ordered]
        self._sums = [0, *accumulate(amount for _, amount in ordered)]

    def __call__(self, time_ns: int) -> int:
        turns, within_ns = divmod(time_ns, self._period)
        return turns * self._sums[-1] + self._sums[bisect_right(self._moments, within_ns)]


class Core:
    """The schedule of one physical core."""

    def __init__(self, plan: dict[str, Any]) -> None:
        lps = [_edges(lane) for lane in plan["lps"]]
        clock = _edges([[entry["us"], entry] for entry in plan["clock"]])
        period = clock[-1][0]
        if any(lane[-1][0] != period for lane in lps):
            raise ValueError("the parts of a core must have the same period")
        self.idle_spans = [_idle_spans(lane) for lane in lps]
        self.stages = Stages(sorted({end for lane in (*lps, clock) for end, *_ in lane}))
        self.pieces = [self._piece(start, lps, clock) for start in self.stages.starts]

    def _piece(self, start: int, lps: list[list[Any]], clock: list[list[Any]]) -> Piece:
        entries = [_entry(lane, start) for lane in lps]
        state = dict(_entry(clock, start)[1])
        state.pop("us")
        if start and _entry(clock, start - 1)[1] is _entry(clock, start)[1]:
            state.pop("smi", None)
        requests = tuple(
            _request(spans, start, self.stages.period) if entry[1] == IDLE else 0
            for spans, entry in zip(self.idle_spans, entries, strict=True)
        )
        ipc = tuple(int(entry[2]) if len(entry) > 2 else 0 for entry in entries)
        return Piece("".join(entry[1] for entry in entries), ipc, requests=requests, **state)

    def integral(self, rate: Rate, multiplier: int = 1, divisor: int = 1) -> Integral:
        """The integral of a quantity with this rate in each piece."""
        rates = [rate(piece) for piece in self.pieces]
        return Integral(self.stages, rates, multiplier, divisor)

    def steps(self, jump: Rate) -> Steps:
        """A count that jumps by `jump` at the start of each piece."""
        starts = zip(self.stages.starts, self.pieces, strict=True)
        return Steps(self.stages.period, [(start, jump(piece)) for start, piece in starts])

    def piece(self, t: int) -> Piece:
        return self.pieces[self.stages.index(t)]

    def idle_counts(self, lp: int, state: int) -> tuple[Steps, Steps]:
        """Time in ns and number of entries of a cpuidle state; both step when idling ends."""
        spans = [span for span in self.idle_spans[lp] if span.state == state]
        time = Steps(self.stages.period, [(span.end, span.length) for span in spans])
        return time, Steps(self.stages.period, [(span.end, 1) for span in spans])


class Package:
    """All cores of a package, with a common time."""

    def __init__(self, cores: Sequence[Core]) -> None:
        if any(a.stages.period != b.stages.period for a, b in pairwise(cores)):
            raise ValueError("the cores of a package must have the same period")
        self.stages = Stages(sorted({end for core in cores for end in core.stages.ends}))
        self._pieces = [tuple(core.piece(t) for core in cores) for t in self.stages.starts]

    def integral(
        self, rate: Callable[[tuple[Piece, ...]], int], multiplier: int = 1, divisor: int = 1
    ) -> Integral:
        rates = [rate(pieces) for pieces in self._pieces]
        return Integral(self.stages, rates, multiplier, divisor)

    def pieces(self, t: int) -> tuple[Piece, ...]:
        """The piece of each core."""
        return self._pieces[self.stages.index(t)]

    @property
    def all_pieces(self) -> list[Piece]:
        return [piece for pieces in self._pieces for piece in pieces]


def _edges(lane: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Converts entries [µs, …] to [end in ns, …]."""
    ends = accumulate(entry[0] * 1000 for entry in lane)
    return [[end, *entry[1:]] for end, entry in zip(ends, lane, strict=True) if entry[0]]


def _entry(lane: list[list[Any]], t: int) -> list[Any]:
    return lane[bisect_right([entry[0] for entry in lane], t)]


def _idle_spans(lane: list[list[Any]]) -> list[IdleSpan]:
    """Idle spans of a period, joined across its end; a span without an end is cut there."""
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
    return [IdleSpan(end, length, 6 if length >= DEEP_NS else 1) for end, length in joined]


def _request(spans: list[IdleSpan], t: int, period: int) -> int:
    """The C-state of the idle span that includes t; the span may cross the end of the period."""
    for span in spans:
        start = span.end - span.length
        if start <= t < span.end or t >= start + period:
            return span.state
    raise AssertionError("an idle LP outside its idle spans")


# --- default load ---------------------------------------------------------------------------------


def default_plan(core: int, threads: int, hz: int, drop: int) -> dict[str, Any]:
    """A period of 100 ms with all states, and a different pattern on each core."""
    lps = [_lane(core, lp) for lp in range(threads)]
    slow = hz - drop * (core % 3)
    return {"lps": lps, "clock": [{"us": 60_000, "hz": hz}, {"us": 40_000, "hz": slow}]}


def _lane(core: int, lp: int) -> list[list[Any]]:
    """Busy once in 100 ms: user, kernel, an involuntary halt, user; shifted by a phase."""
    duty = 30_000 + 8_000 * (core % 4) + 4_000 * lp
    phase = (20_000 * lp + 7_137 * core) % 100_000
    user, ipc = duty * 6 // 10, 1200 + 300 * lp + 100 * (core % 4)
    kernel = duty // 4
    busy = [[user, USER, ipc], [kernel, KERNEL, 600], [400, HALT, 0]]
    rest = [[duty - user - kernel - 400, USER, ipc], [100_000 - duty, IDLE, 0]]
    return _shifted([*busy, *rest], phase)


def _shifted(lane: list[list[Any]], phase: int) -> list[list[Any]]:
    """The lane, started `phase` µs later; its part after the end is moved to the front."""
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
