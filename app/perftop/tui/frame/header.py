"""The first line of the screen, with the app's own state and CPU cost that it shows, and the
requests of the user to the app. At the left is the machine; at the right how it is sampled, what
sampling costs, and the state of the screen."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import isinf, isnan
from typing import TYPE_CHECKING, NamedTuple

from perftop.base.text import clock_time, count_noun, duration, player_time
from perftop.draw.columns import Run
from perftop.draw.strips import Piece, pieces_that_fit, safe_cells, spread
from perftop.tui.frame.machine import extent_of

if TYPE_CHECKING:
    from perftop.process.link import LinkState
    from perftop.session.interval import Interval
    from perftop.session.session import Session


@dataclass(frozen=True, slots=True)
class Replay:
    """The state of the playback of a recording."""

    playing: bool
    speed: float
    reach_ns: tuple[int, int]
    """Raw ns of the first and the last moment of the recording."""
    seeking_ns: int | None
    """Raw ns up to which a seek has read; None if no seek is under way."""
    is_over: bool
    """Whether the last moment of the recording is shown."""
    damage: str | None
    """Why the recording is incomplete; None if it is complete."""
    indexed: float | None = None
    """Share of the file that has been searched for episodes; None if the search is complete."""


@dataclass(frozen=True, slots=True)
class Status:
    """The app's own state, which a screen shows beside the measured numbers."""

    interval_ns: int
    own_cpu_share: float = float("nan")
    """CPU seconds per second that the probe and the app use; for a recording, only the probe's."""
    paused: float | None = None
    """Unix time of the shown moment while paused, in seconds; None if not paused."""
    is_range: bool = False
    """Whether the shown numbers are of a range that the user has selected."""
    silent_s: float | None = None
    """Seconds since the last message, if that is unusually long; else None."""
    replay: Replay | None = None
    """The state of the playback; None if the stream is live."""
    link: LinkState | None = None
    """The state of the link to a remote probe; None if the probe is local."""
    recording: str | None = None
    """Size of the recording so far, as text; '' if recording failed; None if nothing is being
    recorded."""
    notice: str = ""
    """A message that is shown for some time; '' if there is none."""
    job: str = ""
    """Name and state of the command that perftop runs; '' if it runs none."""
    job_status: int | None = None
    """Exit status of the command; None until the command has ended."""
    failed: str | None = None
    """Why the stream has ended; None while the stream runs."""


class State(NamedTuple):
    """The state that the screen shows."""

    session: Session | None
    interval: Interval | None
    status: Status

    @property
    def indexed(self) -> float | None:
        """Share of the recording that has been searched for episodes; None if all of it."""
        replay = self.status.replay
        return None if replay is None else replay.indexed


class Controls(ABC):
    """The requests that the screen sends to the app. Times are in raw ns."""

    @abstractmethod
    def go(self, time_ns: int) -> None:
        """Shows this moment."""

    @abstractmethod
    def select(self, first_ns: int, last_ns: int) -> None:
        """Shows the numbers between these moments."""

    @abstractmethod
    def pause(self) -> None:
        """Pauses at the shown moment, or resumes."""

    @abstractmethod
    def go_to_episode(self, by: int, cpus: list[int] | None) -> None:
        """Shows the next (`by` = 1) or previous (-1) episode or mark on one of these CPUs; None: on
        any CPU."""

    @abstractmethod
    def mark(self, time_ns: int, label: str) -> None:
        """Sets a mark with this label at this moment; '': the label is a number."""

    @abstractmethod
    def show_notice(self, notice: str) -> None:
        """Shows a message until the user presses a key or some seconds have passed."""


COST_SPAN_NS = 5_000_000_000
"""Time over which the shown cost is averaged, in ns; the momentary cost is small and jumps."""
COST_STEP_NS = 1_000_000_000
"""Minimum time between two reads of the cost, in ns, so that the shown number rarely changes."""


class Cost:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        """Function that returns the CPU seconds that this process has used, including those in the
        kernel."""
        self._readings: deque[tuple[int, float]] = deque()
        """Times in raw ns, with the CPU seconds used up to each."""
        self._share = float("nan")

    def share(self, session: Session) -> float:
        """Returns the CPU seconds per second that the probe and the app use together, averaged over
        SPAN_NS up to the newest sample."""
        readings, now_ns = self._readings, session.now_ns
        if not isnan(self._share) and now_ns - readings[-1][0] < COST_STEP_NS:
            return self._share
        readings.append((now_ns, session.probe_cpu_s() + self._clock()))
        while len(readings) > 2 and now_ns - readings[0][0] > COST_SPAN_NS:
            readings.popleft()
        elapsed_s = (now_ns - readings[0][0]) / 1e9
        self._share = (readings[-1][1] - readings[0][1]) / elapsed_s if elapsed_s else float("nan")
        return self._share


# --- the line

STARTING_LINE: list[Run] = [(" perftop", "key"), ("  starting the probe ", "dim")]
MIN_WIDTH_FOR_WORDS, MIN_WIDTH_FOR_WIDE_GAPS = 140, 120
"""Minimum columns of the screen for parts with explanatory words, and for wider gaps."""
MARGIN = 1
"""Blank columns at both ends of a line."""
MAX_SKEW = 0.1
"""Maximum skew between CPUs, as a share of the sampling interval; a larger skew is shown as a
warning."""
_COMMON_WORDS = re.compile(r"\((?:r|tm)\)|\b(?:cpu|processor)\b|@.*|\b\d+-core\b", re.IGNORECASE)
"""Parts of a CPU model's name that do not distinguish the model."""
_SEPARATORS: tuple[Run, ...] = ("", "text"), ("  ", "text"), (" · ", "faint")
"""Separators before the first, the second and each further part at the left."""


def header_line(
    session: Session | None, interval: Interval | None, status: Status, size: int
) -> list[Run]:
    if session is None:
        return STARTING_LINE
    with_words = size >= MIN_WIDTH_FOR_WORDS
    left = [
        (rank, [_SEPARATORS[min(i, 2)], *runs])
        for i, (rank, runs) in enumerate(_machine_pieces(session, status, with_words=with_words))
    ]
    gap: Run = (" " * (3 if size >= MIN_WIDTH_FOR_WIDE_GAPS else 2), "text")
    parts = [
        *_sampling_pieces(session, interval, status, with_words=with_words),
        *_cost_pieces(session, interval, status),
        *_badges(status, interval, with_words=with_words),
    ]
    right = [(rank, [gap, *runs]) for rank, runs in parts]
    fitting_pieces = pieces_that_fit([*left, *right], size - 2 * MARGIN, 0)
    begin, end = ([run for piece in side if piece in fitting_pieces for run in piece[1]]
                  for side in (left, right))  # fmt: skip
    margin: Run = (" " * MARGIN, "text")
    return spread([margin, *begin], [*end[1:], margin], size)


def _machine_pieces(session: Session, status: Status, *, with_words: bool) -> list[Piece]:
    hello = session.hello
    cores, cpus = len(extent_of(session).cores), len(session.shown)
    pieces: list[Piece] = [(-1, [("perftop", "key")]), (1, [(safe_cells(hello.host), "bright")])]
    kind = hello.virtualisation
    if name := short_model(hello.identity.name):
        several = f"{len(hello.packages)} × " if len(hello.packages) > 1 and kind is None else ""
        pieces.append((7, [(safe_cells(several + name), "dim")]))
    if kind is not None:
        named = "guest" if kind == "hypervisor" else f"{kind} guest"
        pieces.append((4, [(safe_cells(named), "dim")]))
    of_cores = "" if cores == cpus else f"{count_noun(cores, 'core')}, "
    pieces.append((3, [(f"{of_cores}{count_noun(cpus, 'CPU')}", "dim")]))
    if not with_words:
        pieces.append((4, [(duration(status.interval_ns / 1e9), "dim")]))
    return pieces


@lru_cache(maxsize=8)
def short_model(name: str) -> str:
    """Returns the name of a CPU model without words that all models have."""
    short = " ".join(_COMMON_WORDS.sub(" ", name).split())
    return short.removeprefix("Intel ") or name


def _sampling_pieces(
    session: Session, interval: Interval | None, status: Status, *, with_words: bool
) -> list[Piece]:
    """Returns parts on the link to a remote probe, the source of the counters, the method for the
    SMT states, the interval and the sampling interval."""
    hello, link = session.hello, status.link
    pieces: list[Piece] = []
    if link is not None:
        runs: list[Run] = [("socket" if link.place.startswith("unix:") else "ssh", "clock")]
        if not isnan(link.rtt_s):
            runs += [(" ", "dim"), (f"{1e3 * link.rtt_s:.1f}", "text"), (" ms", "dim")]
        if not isnan(link.rate):
            runs += [(" ", "dim"), (f"{link.rate / 1e3:.1f}", "text"), (" kB/s", "dim")]
        pieces.append((4, runs))
    if hello.source != "os" or hello.virtualisation is None:
        runs = [(safe_cells(hello.source), "clock")]
        # The method for most cores, with the factor of its counter once that is settled.
        method = interval.split.usual_method or "" if interval is not None else ""
        calibration = session.calibrations.get(method.replace("-", "_"))
        if calibration is not None and calibration.state == "settled" and calibration.factor != 1:
            method = f"{method} ×{calibration.factor:g}"
        pieces.append((5, [*runs, (f", {method}", "text")] if method else runs))
    if with_words:
        shown, sample = duration(status.interval_ns / 1e9), duration(hello.sample_ns / 1e9)
        runs = [("every ", "dim"), (shown, "text"), (", sampled ", "dim"), (sample, "dim")]
        pieces.append((6, runs))
    return pieces


def _cost_pieces(session: Session, interval: Interval | None, status: Status) -> list[Piece]:
    """Returns parts on the cost of monitoring, the skew, and the late and dropped samples. "late"
    counts the sample times at which no CPU was read. Both counts start with the probe."""
    own = "n/a" if isnan(status.own_cpu_share) else f"{100 * status.own_cpu_share:.1f}"
    # recordings do not have the cost of the app
    whose = "own" if status.replay is None else "probe"
    label = f"{whose} ".rjust(len(whose) + 5 - len(own))
    pieces: list[Piece] = [(3, [(label, "dim"), (own, "text"), (" %", "dim")])]
    if interval is not None and session.hello.virtualisation is None:
        skew = f"{interval.skew_s * 1e6:.0f}"
        style = "warn" if interval.skew_s * 1e9 > MAX_SKEW * session.hello.sample_ns else "text"
        label = "skew ".rjust(9 - len(skew))
        pieces.append((6, [(label, "dim"), (skew, style), (" µs", "dim")]))
    if session.late_samples:
        pieces.append((5, [("late ", "dim"), (str(session.late_samples), "warn")]))
    style = "warn" if session.lost else "text"
    return [*pieces, (2, [("dropped ", "dim"), (str(session.lost), style)])]


def _badges(status: Status, interval: Interval | None, *, with_words: bool) -> list[Piece]:
    """Returns badges for unusual states: a past moment, a recording, a command, no data."""
    pieces: list[Piece] = []

    def badge(rank: int, text: str, style: str) -> None:
        pieces.append((rank, [(text, style)]))

    if status.job:
        ended = status.job_status
        badge(1, safe_cells(status.job), "clock" if ended is None else "warn" if ended else "text")
    if status.recording:
        badge(1, f" REC {status.recording} ", "paused")
    elif status.recording is not None:
        badge(1, " NOT RECORDING ", "lost")
    if status.is_range and interval is not None:
        ends = [clock_time(time) for time in (interval.time - interval.elapsed_s, interval.time)]
        badge(0, f" {' to '.join(ends)}, {interval.elapsed_s:.1f} s ", "paused")
    elif (replay := status.replay) is not None:
        if interval is not None:
            style = "lost" if replay.is_over and replay.damage else "paused"
            badge(0, _replay_text(replay, interval, " · " if with_words else " "), style)
    elif status.paused is not None:
        badge(0, f" PAUSED {clock_time(status.paused)} ", "paused")
    elif status.link is not None and status.link.broken_why:
        badge(0, f" NO LINK FOR {status.link.down_s:.0f} s ", "lost")
    elif status.silent_s is not None:
        badge(0, f" NO DATA FOR {status.silent_s:.0f} s ", "lost")
    if status.failed is not None:
        badge(1, " DEAD ", "lost")
    return pieces


def _replay_text(replay: Replay, interval: Interval, dot: str) -> str:
    first_ns, last_ns = replay.reach_ns
    if replay.seeking_ns is not None:
        state = f"seeking {player_time(replay.seeking_ns - first_ns)}"
    elif replay.is_over:
        state = "end"
    elif replay.playing:
        state = "max" if isinf(replay.speed) else f"×{replay.speed:g}"
    else:
        state = "paused"
    at, whole = player_time(interval.time_ns - first_ns), player_time(last_ns - first_ns)
    parts = [f"REPLAY {clock_time(interval.time)}", f"{at:>{len(whole)}}/{whole}", f"{state:<6}"]
    if replay.indexed is not None:
        parts.append(f"finding episodes {100 * replay.indexed:2.0f} %")
    return f" {dot.join(parts)} "
