"""One machine of a fleet: its numbers, their history, its episodes, and whether it answers.

`LiveMachine` fills a machine from a stream of frames, `fleet.scraped_fleet` from a Prometheus
server. The screen and JSON output only read it.

A row in the table of machines shows each number as a mean over the last ROW_SPAN_S. Unknown numbers
are NaN. Times are Unix seconds of the viewer's clock, because the machines' clocks may differ.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, isfinite, nan

import numpy as np

from perfprobe import wire
from perftop.detect.turbo_drops import DROP_START
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import STEAL_CAUSE, Episode, group_of, kind_of, kind_of_cause
from perftop.model.numbers import NUMBERS, Number
from perftop.model.smt import STATES
from perftop.model.tasks import parse_task
from perftop.session.follow import Follower
from perftop.session.interval import Interval
from perftop.session.losses import CauseKey, LossSums
from perftop.session.session import Session
from perftop.session.values import lasting_reasons, machine_value

ROW_SPAN_S = 10.0
"""Time in s over which a row's numbers are averaged: short enough to follow changes, long enough to
read."""
PAST_S = 600.0
"""Length of a machine's history in s."""
MAX_POINTS = 600
"""Maximum number of points in a machine's history."""
MAX_SERIES_AGE_S = 5.0
"""Age in s after which a series is computed again."""
MAX_GAP = 1.6
"""Maximum gap in a series that the previous point fills, in mean times between points."""
MAX_SERIES = 8
"""Maximum number of cached series of a machine."""
MAX_EPISODES = 200
"""Maximum number of ended episodes of a machine. The newest episodes are kept."""
MIN_TASK_CPUS = 0.05
"""Minimum CPU use of the busiest task, in CPUs, for its name to be shown."""
MIN_VICTIM_SHARE = 0.5
"""Minimum share of its CPU's time that a task must run to be named as the one that loses."""

Numbers = Mapping[str, float]


_LOST_HELP = "Share of the wanted time that tasks did not get. Waits, clock, halts and steal count."
FIELDS: dict[str, Number] = {
    "lost": Number("lost", "lost", "ratio", _LOST_HELP),
    "busy": NUMBERS["util"],
    "clock_hz": NUMBERS["busy_hz"],
    "ceiling_hz": NUMBERS["turbo_ceiling_hz"],
    "below": NUMBERS["below_ceiling"],
    **{key: NUMBERS[key] for key in ("both", "lp0", "lp1", "neither", "involuntary", "steal")},
    **{key: replace(NUMBERS[key], digits=0) for key in ("power_w", "power_limit_w")},
}
"""The numbers of a machine in a fleet, by their keys in the fleet's JSON lines."""
_BUSY_TIME_KEYS = frozenset({"lost", "clock_hz", "ceiling_hz", "below"})
"""Numbers about busy time. Their means over time and machines are weighted with `busy`."""
_INTERVAL_KEYS = "busy", "clock_hz", "involuntary", "steal", "power_w", "power_limit_w"
"""Keys of FIELDS whose numbers exist in every interval."""
MIN_LOSS = 0.01
"""Minimum lost share of a machine for its cause to be named and not dimmed."""
UNKNOWN_NUMBERS: Numbers = dict.fromkeys(FIELDS, nan)


def read_numbers(session: Session, interval: Interval) -> Numbers:
    numbers = dict(UNKNOWN_NUMBERS)
    numbers |= {key: machine_value(session, interval, FIELDS[key].key) for key in _INTERVAL_KEYS}
    cores = session.selected_cores()
    work = []
    """For each core: the sum of its busy shares, its busiest CPU's clock, and its ceiling in Hz."""
    for core in cores:
        rows = [session.position[cpu] for cpu in session.cores[core]]
        util = np.nan_to_num(interval.values["util"][rows])
        clock_hz = interval.values["busy_hz"][rows][int(util.argmax())]
        work.append((util.sum(), clock_hz, interval.ceiling_hz[core]))
    if work:
        table = np.array(work)
        weight, clock, ceiling = table[np.isfinite(table).all(axis=1)].T
        if total := weight.sum():
            numbers["ceiling_hz"] = float((weight * ceiling).sum() / total)
            numbers["below"] = float(weight[clock < ceiling * (1 - DROP_START)].sum() / total)
    pairs = [core for core in cores if len(session.cores[core]) > 1]
    states = interval.split.states[pairs]
    states = states[np.isfinite(states).all(axis=1)]
    if len(states):
        numbers |= dict(zip(STATES, states.mean(axis=0).tolist(), strict=True))
    return numbers


def lost_share(numbers: Numbers) -> float:
    """Returns the lost share of a machine's wanted time, from its mean numbers: steal, involuntary
    halts, and the time lost to a clock below the ceiling. NaN if all are unknown."""
    busy, clock, ceiling = numbers["busy"], numbers["clock_hz"], numbers["ceiling_hz"]
    halted = [numbers[key] for key in ("involuntary", "steal") if isfinite(numbers[key])]
    reached = clock / ceiling if ceiling else nan
    if not halted and not isfinite(reached):
        return nan
    wanted_share = busy + sum(halted)
    if not wanted_share > 0:
        return 0.0
    clock_loss = max(0.0, 1 - reached) if isfinite(reached) else 0.0
    return (sum(halted) + busy * clock_loss) / wanted_share


def mean_numbers(machines: Sequence[Numbers]) -> Numbers:
    """Returns the means of the known values over machines, or over spans of equal length."""
    means = dict(UNKNOWN_NUMBERS)
    for key in FIELDS:
        total = weights = 0.0
        for numbers in machines:
            value = numbers[key]
            weight = numbers["busy"] if key in _BUSY_TIME_KEYS else 1.0
            if isfinite(value) and isfinite(weight):
                total += weight * value
                weights += weight
        means[key] = total / weights if weights > 0 else nan
    return means


@dataclass(slots=True)
class MachineEpisode:
    machine: str
    kind: str
    cause: str
    start: float
    end: float | None
    """None while the episode is running."""
    depth: float | None = None
    share: float = 0.0
    """Share of the machine's CPUs that the episode affects."""
    culprit: str = ""
    victim: str = ""
    """Names of the task that takes most, according to the episode's evidence, and of the task that
    runs most of the time on a CPU of the episode; '' where unknown."""

    @property
    def group(self) -> CauseKey:
        return group_of(self.kind, self.cause)

    @property
    def is_wrong(self) -> bool:
        return kind_of(self).is_wrong


@dataclass(slots=True)
class LostShareHistory:
    """The lost shares of the last points in time, newest last; NaN where unknown."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    points: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    _series_cache: dict[int, tuple[tuple[int, int], list[float]]] = field(default_factory=dict)
    """Cached series by length, with the time steps for which they were computed."""

    def add(self, time: float, share: float) -> None:
        self.times.append(time)
        self.points.append(share)

    def series(self, cells: int, now: float) -> list[float]:
        """Returns the means over `cells` equal parts of the last PAST_S, newest last; NaN where
        unknown. Parts begin at whole multiples of their length, so that a mean on the screen does
        not change. A series is computed again every MAX_SERIES_AGE_S."""
        step = PAST_S / cells
        stamp = int(now // step), int(now // MAX_SERIES_AGE_S)
        cached = self._series_cache.get(cells)
        if cached is None or cached[0] != stamp:
            means = self._series(cells, step, (stamp[0] + 1) * step)
            if len(self._series_cache) >= MAX_SERIES:
                self._series_cache.clear()
            cached = self._series_cache[cells] = stamp, means
        return cached[1]

    def _series(self, cells: int, step: float, end: float) -> list[float]:
        times, points = np.array(self.times), np.array(self.points)
        parts = cells - 1 - ((end - times) / step).astype(int)
        is_known = np.isfinite(points) & (parts >= 0) & (times <= end)
        counts = np.bincount(parts[is_known], minlength=cells)
        sums = np.bincount(parts[is_known], points[is_known], minlength=cells)
        means = [*np.where(counts, sums / np.maximum(counts, 1), nan).tolist()]
        count = len(self.times) - 1
        # mean time between successive points, in s
        spacing = (self.times[-1] - self.times[0]) / count if count > 0 else 0.0
        if self.times and not counts[-1] and end - self.times[-1] <= step + MAX_GAP * spacing:
            means[-1] = means[-2] if cells > 1 else nan  # no data yet
        # Parts without a point take the value of the previous point.
        max_gap, gap, last_value = int(spacing / step * MAX_GAP), 0, nan
        for i, value in enumerate(means):
            if isfinite(value):
                last_value, gap = value, 0
            elif (gap := gap + 1) <= max_gap:
                means[i] = last_value
        return means


@dataclass(slots=True)
class Machine:
    name: str
    open_arguments: tuple[str, ...] = ()
    """Arguments of the perftop command that shows only this machine; empty if there is none."""
    is_answering: bool = False
    why: str = "connecting"
    """Why there are no numbers, as text for the user."""
    silent_since: float = nan
    """Unix time of the last numbers from the machine or, if there were none, of the first attempt
    to reach it."""
    retry_at: float = nan
    updated_at: float = nan
    """Unix time at which the newest numbers arrived."""
    numbers: Numbers = field(default_factory=lambda: UNKNOWN_NUMBERS)
    history: LostShareHistory = field(default_factory=LostShareHistory)
    model: str = ""
    cpu_count: int = 0
    core_count: int = 0
    version: str = ""
    tasks: str = ""
    """The busiest task, and the number of CPUs that it uses."""
    clock_missing_text: str = ""
    """Why the clock is missing, as text for the user."""
    suspect_count: int = 0
    """Number of suspect samples in the last ROW_SPAN_S."""
    running: list[MachineEpisode] = field(default_factory=list)
    ended: deque[MachineEpisode] = field(default_factory=lambda: deque(maxlen=MAX_EPISODES))
    waiting_task: str = ""
    """The task that waited most for a CPU in the last ROW_SPAN_S; '' if none did, or if unknown."""
    lost_shares: Mapping[CauseKey, float] | None = None
    """Lost shares of the time for which tasks ran or were ready in the last ROW_SPAN_S, by cause,
    the largest first, even without an episode; None if only their sum is known."""
    probe_share: float = nan
    """CPU time used by the machine's probe, in CPUs."""
    frames_lost: int = 0

    _recent_numbers: deque[tuple[float, Numbers, int]] = field(default_factory=deque)

    def add_numbers(self, now: float, numbers: Numbers, suspects: int = 0) -> None:
        samples = self._recent_numbers
        samples.append((now, numbers, suspects))
        while samples[0][0] <= now - ROW_SPAN_S or len(samples) > ROW_SPAN_S * 10:
            samples.popleft()
        self.history.add(now, numbers["lost"])
        means = mean_numbers([values for _, values, _ in samples])
        self.set_numbers(now, means, sum(count for *_, count in samples))

    def set_numbers(self, updated_at: float, numbers: Numbers, suspects: int) -> None:
        """Replaces the numbers. The new numbers must cover a whole span."""
        self.numbers, self.suspect_count, self.updated_at = numbers, suspects, updated_at
        self.is_answering, self.why, self.retry_at, self.silent_since = True, "", nan, updated_at

    def fall_silent(self, now: float, reason: str, retry_at: float = nan) -> None:
        """Marks the machine as silent, and ends its episodes. Its history is kept."""
        if not isfinite(self.silent_since):
            self.silent_since = now
        self.is_answering, self.why, self.retry_at = False, reason, retry_at
        self._recent_numbers.clear()
        self.numbers, self.suspect_count, self.lost_shares = UNKNOWN_NUMBERS, 0, None
        for episode in self.running:
            episode.end = self.silent_since
            self.ended.append(episode)
        self.running = []

    @property
    def largest_loss(self) -> tuple[CauseKey, float] | None:
        """The cause of the largest loss, and its share; None without a loss or if unknown."""
        largest = next(iter((self.lost_shares or {}).items()), None)
        return largest if largest is not None and largest[1] >= MIN_LOSS else None

    @property
    def cause(self) -> CauseKey:
        """Kind and cause of the machine's largest loss or, without one, of the episode that affects
        most of its CPUs; two empty texts if there is neither."""
        if (largest := self.largest_loss) is not None:
            return largest[0]
        losing = [e for e in self.running if e.is_wrong]
        return max(losing, key=lambda e: (e.share, e.depth or 0.0)).group if losing else ("", "")

    def lost_to(self, cause: CauseKey) -> float:
        """Returns the share lost to this cause; NaN if unknown. If only the sum of all losses is
        known, that is the steal or, for the machine's cause, the rest if the cause can lower the
        clock or halt CPUs."""
        if self.lost_shares is not None:
            return self.lost_shares.get(cause, 0.0)
        parts = [self.numbers[key] for key in ("steal", "involuntary", "busy")]
        stolen, *others = [part if isfinite(part) else 0.0 for part in parts]
        stolen_share = stolen / max(stolen + sum(others), 1e-9)
        if cause == STEAL_CAUSE:
            return min(self.numbers["lost"], stolen_share)
        if kind_of_cause(*cause).worsened_key not in {"busy_hz", "involuntary"}:
            return nan
        return self.numbers["lost"] - stolen_share if cause == self.cause else 0.0


class LiveMachine(Follower):
    """Fills a machine from a stream of frames. Each hello starts a new session."""

    def __init__(
        self, machine: Machine, span_s: float = 1.0, clock: Callable[[], float] | None = None
    ) -> None:
        """`span_s`: length in s of a point of the history, at least one sample. `clock`: returns
        the viewer's Unix time; None: times are those of the machine's clock."""
        super().__init__(round(span_s * 1e9), starts_early=True)
        self.machine = machine
        self._clock = clock
        self._arrival_s: float | None = None
        """The viewer's time at which the newest messages arrived; None without a `clock`."""
        self._offset_s = inf
        """The viewer's time minus the machine's raw time, in s: the smallest difference so far,
        from the frame with the least delay."""
        self._suspects = 0
        self._ended_episodes: list[Episode] = []
        """Episodes that have ended since the last interval."""
        self._losses: deque[tuple[float, LossSums, Counter[str]]] = deque()
        """For each interval of the last ROW_SPAN_S: its time, all losses of the session, and by
        name the millionths of the interval for which tasks waited for a CPU."""

    def process(self, messages: Iterable[wire.Message]) -> bool:
        """Processes messages that have arrived. Raises wire.WireError for impossible messages."""
        self._arrival_s = self._clock and self._clock()
        return super().process(messages)

    def fail(self, reason: str, retry_s: float) -> None:
        assert self._clock is not None
        now = self._clock()
        self.machine.fall_silent(now, reason, now + retry_s)

    def on_hello(self, hello: wire.Hello) -> Session:
        session = Session(hello, summarises=False)
        session.run.track_losses(losses_only=True)
        self._offset_s, self._suspects, self._ended_episodes = inf, 0, []
        self._losses = deque([(-inf, session.run.lost_time(), Counter())])
        machine = self.machine
        machine.model = " ".join(hello.identity.name.split())
        machine.cpu_count, machine.core_count = len(session.selected), len(session.selected_cores())
        machine.version = hello.perftop
        reasons = {reason.what: reason.why for reason in lasting_reasons(session)}
        machine.clock_missing_text = reasons.get("busy_hz", reasons.get("cycles", ""))
        return session

    def accepts(self, message: wire.Message) -> bool:
        if not self.has_started:
            raise wire.WireError("frames came before a hello")
        if isinstance(message, wire.Frame):
            raw_s, arrival_s = message.time_ns / 1e9, self._arrival_s
            time_s = self.session.unix_s(message.time_ns) if arrival_s is None else arrival_s
            self._offset_s = min(self._offset_s, time_s - raw_s)
        return True

    def on_episode_end(self, episode: Episode) -> None:
        self._ended_episodes.append(episode)

    def on_interval(self, interval: Interval) -> None:
        session, machine = self.session, self.machine
        suspects = session.run.span.suspect_count - self._suspects
        self._suspects = session.run.span.suspect_count
        now = interval.time if self._arrival_s is None else self._arrival_s
        losses, past_losses = session.run.lost_time(), self._losses
        lost_ratio = losses.minus(past_losses[-1][1]).lost_ratio
        numbers = {**read_numbers(session, interval), "lost": lost_ratio}
        machine.add_numbers(now, numbers, suspects)
        past_losses.append((now, losses, Counter[str]()))
        for cpu in session.tasks:
            for activity in session.snapshot.activity_on(cpu):
                if activity.wait > 0:
                    past_losses[-1][2][activity.task.comm] += round(1e6 * activity.wait)
        while len(past_losses) > 2 and past_losses[1][0] <= now - ROW_SPAN_S:
            past_losses.popleft()
        recent_losses = losses.minus(past_losses[0][1])
        machine.numbers = {**machine.numbers, "lost": recent_losses.lost_ratio}
        machine.lost_shares = recent_losses.shares()
        machine.frames_lost = session.dropped_frames
        probe_s = session.probe_cpu_s()
        elapsed = (session.now_ns - session.hello.raw_ns) / 1e9
        machine.probe_share = probe_s / elapsed if elapsed > 0 else probe_s
        cpus_by_task: dict[str, float] = {}
        for record in session.tasks.values():
            if (entry := parse_task(record)) is not None:
                cpus_by_task[entry.comm] = cpus_by_task.get(entry.comm, 0.0) + entry.share
        name = max(cpus_by_task, key=lambda comm: cpus_by_task[comm], default="")
        is_busy = cpus_by_task.get(name, 0.0) >= MIN_TASK_CPUS
        machine.tasks = f"{name} × {cpus_by_task[name]:.1f} CPUs" if is_busy else ""
        waits = sum((waits for *_, waits in islice(past_losses, 1, None)), Counter[str]())
        machine.waiting_task = max(waits, key=lambda comm: waits[comm], default="")
        machine.running = [self._episode(session, episode) for episode in session.running]
        machine.ended.extend(self._episode(session, episode) for episode in self._ended_episodes)
        self._ended_episodes = []

    def _episode(self, session: Session, episode: Episode) -> MachineEpisode:
        offset, end_ns, depth = self._offset_s, episode.end_ns, episode.depth
        culprits = episode.evidence.get("who", ())
        culprit_tasks = [task for task in culprits if isinstance(task, TaskOnCpu)]
        records = [session.tasks.get(str(cpu)) for cpu in episode.cpus]
        victim = main_task(records, {task.pid for task in culprit_tasks})
        return MachineEpisode(
            self.machine.name, episode.kind, episode.cause, episode.start_ns / 1e9 + offset,
            None if end_ns is None else end_ns / 1e9 + offset,
            depth if depth is not None and isfinite(depth) else None,
            min(1.0, len(episode.cpus) / max(1, len(session.selected))),
            culprit_tasks[0].comm if culprit_tasks else "", victim,
        )  # fmt: skip


def main_task(records: Iterable[object], culprit_pids: Collection[int]) -> str:
    """Returns the name of the task that runs most according to these untrusted records, except
    those with `culprit_pids`; '' if none runs for MIN_VICTIM_SHARE of its CPU's time."""
    tasks = [task for record in records if (task := parse_task(record)) is not None]
    victims = [t for t in tasks if t.pid not in culprit_pids and t.share >= MIN_VICTIM_SHARE]
    return max(victims, key=lambda task: task.share).comm if victims else ""
