"""One machine among many: what it last told, its past, its episodes, and whether it answers.

Who reads a machine fills it; the screen and the JSON lines only look at it. Times are Unix seconds
of the viewer: no clocks of two machines are compared.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from math import isfinite, nan

from perftop.session.fleet.numbers import FIELDS, NOTHING, Numbers, mean

SPAN_S = 10.0
"""What the numbers of a row cover: short enough to follow, long enough to be read."""
PAST_S = 600.0
"""How far a machine's past reaches."""
POINTS = 600
"""Most entries of a machine's past; some 15 KB."""
FRESH_S = 5.0
"""How often the newest part of a series is made anew."""
HELD = 1.6
"""Spacings of the points for which one holds; a longer gap is told."""
MOST_SERIES = 8
"""Series kept of a machine."""
TRACED = ("lost", "busy", "clock_hz", "ceiling_hz", "below")
"""Numbers of which the past is kept."""
MOST_EPISODES = 200
"""Ended episodes kept of a machine, the newest."""
_HIDDEN = frozenset({"ramp", "online"})
"""Kinds of episodes that tell of nothing wrong."""


@dataclass(slots=True)
class Event:
    """An episode as it is told among those of other machines."""

    machine: str
    kind: str
    cause: str
    start: float
    end: float | None
    """None while it runs."""
    depth: float | None = None
    share: float = 0.0
    """Share of the machine's CPUs on which it runs."""

    @property
    def group(self) -> tuple[str, str]:
        """Events of one group have one cause. Two detectors tell what a hypervisor takes."""
        stolen = self.kind == "steal" or self.cause == "hypervisor"
        return ("steal", "hypervisor") if stolen else (self.kind, self.cause)

    @property
    def wrong(self) -> bool:
        return self.kind not in _HIDDEN


@dataclass(slots=True)
class Past:
    """A ring of numbers over time, the newest last."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS))
    points: deque[array[float]] = field(default_factory=lambda: deque(maxlen=POINTS))
    _made: dict[tuple[str, int, float], tuple[tuple[int, int], list[float]]] = field(
        default_factory=dict
    )
    """Series that were asked for, with the moments they are of; a few of each machine."""

    def add(self, time: float, numbers: Numbers) -> None:
        self.times.append(time)
        self.points.append(array("f", [numbers[key] for key in TRACED]))

    def series(self, key: str, cells: int, now: float, span_s: float = PAST_S) -> list[float]:
        """Means of `cells` equal parts of the last `span_s`, the newest last; NaN where nothing is
        known. Parts begin at whole multiples of their length, so that a mean once shown stays; the
        series is made anew every FRESH_S."""
        step = span_s / cells
        stamp = int(now // step), int(now // FRESH_S)
        held = self._made.get((key, cells, span_s))
        if held is not None and held[0] == stamp:
            return held[1]
        found = self._series(TRACED.index(key), cells, step, (stamp[0] + 1) * step)
        if len(self._made) >= MOST_SERIES:
            self._made.clear()
        self._made[key, cells, span_s] = stamp, found
        return found

    def _series(self, at: int, cells: int, step: float, end: float) -> list[float]:
        sums, counts = [0.0] * cells, [0] * cells
        for time, point in zip(reversed(self.times), reversed(self.points), strict=True):
            cell = cells - 1 - int((end - time) / step)
            if cell < 0:
                break
            if isfinite(point[at]) and time <= end:
                sums[cell] += point[at]
                counts[cell] += 1
        means = [total / n if n else nan for total, n in zip(sums, counts, strict=True)]
        spacing = self._spacing()
        if self.times and not counts[-1] and end - self.times[-1] <= step + HELD * spacing:
            means[-1] = means[-2] if cells > 1 else nan  # nothing of this part has come yet
        return _held(means, spacing / step)

    def _spacing(self) -> float:
        """Mean time between two points."""
        count = len(self.times) - 1
        return (self.times[-1] - self.times[0]) / count if count > 0 else 0.0


def _held(means: list[float], spacing: float) -> list[float]:
    """The same; parts that only lie between two points have the value of the earlier one."""
    most, since = int(spacing * HELD), 0
    last = nan
    for i, value in enumerate(means):
        if isfinite(value):
            last, since = value, 0
        elif (since := since + 1) <= most:
            means[i] = last
    return means


@dataclass(slots=True)
class Machine:
    name: str
    opens: tuple[str, ...] = ()
    """Arguments of the perftop that shows this machine alone; empty: there is none."""
    answers: bool = False
    why: str = "connecting"
    """Why there are no numbers; for who reads, not for programs."""
    silent_since: float = nan
    """When it was last heard, or first tried."""
    retry_at: float = nan
    heard: float = nan
    """When the newest numbers arrived."""
    numbers: Numbers = field(default_factory=lambda: NOTHING)
    past: Past = field(default_factory=Past)
    model: str = ""
    cpus: int = 0
    cores: int = 0
    guest: bool = False
    version: str = ""
    tasks: str = ""
    """What runs most."""
    absent: str = ""
    """Why there is no clock."""
    suspects: int = 0
    """Samples of the last span in which a counter was doubted."""
    running: list[Event] = field(default_factory=list)
    ended: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EPISODES))
    bytes: int = 0
    """Received so far."""
    probe_share: float = nan
    """What the probe costs there, in CPUs."""
    frames_lost: int = 0

    _recent: deque[tuple[float, Numbers, int]] = field(default_factory=deque)

    def hear(self, now: float, numbers: Numbers, suspects: int = 0) -> None:
        """Take the numbers of one more interval."""
        recent = self._recent
        recent.append((now, numbers, suspects))
        while recent[0][0] <= now - SPAN_S or len(recent) > SPAN_S * 10:
            recent.popleft()
        self.numbers = mean([each for _, each, _ in recent])
        self.suspects = sum(count for *_, count in recent)
        self.past.add(now, numbers)
        self.answers, self.why, self.heard, self.retry_at = True, "", now, nan
        self.silent_since = now

    def show(self, heard: float, numbers: Numbers, suspects: int) -> None:
        """Take numbers that cover a span already."""
        self.numbers, self.suspects, self.heard = numbers, suspects, heard
        self.answers, self.why, self.retry_at, self.silent_since = True, "", nan, heard

    def fall_silent(self, now: float, why: str, retry_at: float = nan) -> None:
        """Called when it does not answer. What it told before stays in its past; what ran there is
        not known to run any more."""
        if not isfinite(self.silent_since):
            self.silent_since = now
        self.answers, self.why, self.retry_at = False, why, retry_at
        self._recent.clear()
        self.numbers, self.suspects = NOTHING, 0
        for event in self.running:
            event.end = self.silent_since
            self.ended.append(event)
        self.running = []

    @property
    def cause(self) -> tuple[str, str]:
        """Kind and cause of the episode that runs on most of its CPUs; empty if none does."""
        wrong = [event for event in self.running if event.wrong and event.kind != "suspect"]
        worst = max(wrong, key=lambda event: (event.share, event.depth or 0.0), default=None)
        return ("", "") if worst is None else worst.group

    def rank(self, key: str) -> float:
        """What it is sorted by, in steps so coarse that noise moves no row. NaN if unknown."""
        value = self.numbers.get(key, nan)
        scale = {"Hz": 1e-8, "W": 0.2}.get(FIELDS[key].unit, 100.0)
        return round(value * scale) if isfinite(value) else nan
