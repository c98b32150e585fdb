"""The first line of the screen: the machine and how it is read; at the right what that costs, and
the state of the screen."""

from __future__ import annotations

import re
from functools import lru_cache
from math import isinf, isnan
from typing import TYPE_CHECKING, NamedTuple

from perftop.base.format import duration, many, place, when
from perftop.draw.strips import Run, foreign, width
from perftop.tui.frame import machine_line
from perftop.tui.frame.status import STARTING, Replay, Status

if TYPE_CHECKING:
    from perftop.session.interval import Interval
    from perftop.session.session import Session

WIDE, ROOMY = 140, 120
"""Columns from which parts have their words, and from which gaps are wider."""
MARGIN = 1
"""Blank columns at both ends of a line."""
SKEWED = 0.1
"""Share of a sample; a larger skew between CPUs is told as a warning."""
_NOISE = re.compile(r"\((?:r|tm)\)|\b(?:cpu|processor)\b|@.*|\b\d+-core\b", re.IGNORECASE)
"""Parts of a CPU's name that do not tell it from others."""


class Piece(NamedTuple):
    rank: int
    """The piece with the highest rank is left out first."""
    runs: list[Run]


def line(
    session: Session | None, interval: Interval | None, status: Status, size: int
) -> list[Run]:
    if session is None:
        return STARTING
    wide = size >= WIDE
    left = _machine(session, status, wide=wide)
    right = [*_way(status), *_source(session, interval, status, wide=wide)]
    right += _cost(session, interval, status)
    right += _state(status, interval, wide=wide)
    gap = " " * (3 if size >= ROOMY else 2)
    while True:
        told, state = _joined(left, (" · ", "faint"), ("  ", "text")), _joined(right, (gap, "text"))
        room = size - 2 * MARGIN - width(told) - width(state)
        if room >= len(gap) or not (left[1:] or right):
            break
        worst = max([*left[1:], *right], key=lambda piece: piece.rank)
        (left if worst in left else right).remove(worst)
    return [(" " * MARGIN, "text"), *told, (" " * max(1, room), "text"), *state,
            (" " * MARGIN, "text")]  # fmt: skip


def _joined(pieces: list[Piece], gap: Run, first: Run | None = None) -> list[Run]:
    """The pieces with a gap between each two; the first gap may be another."""
    runs: list[Run] = []
    for i, piece in enumerate(pieces):
        runs += [first if first and i == 1 else gap, *piece.runs] if i else piece.runs
    return runs


def _machine(session: Session, status: Status, *, wide: bool) -> list[Piece]:
    hello = session.hello
    cores, cpus = len(machine_line.extent(session).cores), len(session.shown)
    pieces = [Piece(0, [("perftop", "key")]), Piece(1, [(foreign(hello.host), "bright")])]
    if name := model(hello.identity.name):
        several = f"{len(hello.packages)} × " if len(hello.packages) > 1 else ""
        guest = hello.virtualisation is not None
        pieces.append(Piece(7, [(foreign(name if guest else several + name), "dim")]))
    if (kind := hello.virtualisation) is not None:
        named = "guest" if kind == "hypervisor" else f"{kind} guest"
        pieces.append(Piece(4, [(foreign(named), "dim")]))
    each = "" if cores == cpus else f"{many(cores, 'core')}, "
    pieces.append(Piece(3, [(f"{each}{many(cpus, 'CPU')}", "dim")]))
    if not wide:
        pieces.append(Piece(4, [(duration(status.interval_ns / 1e9), "dim")]))
    return pieces


@lru_cache(maxsize=8)
def model(name: str) -> str:
    """A CPU's name without the words that all of them have."""
    short = " ".join(_NOISE.sub(" ", name).split())
    return short.removeprefix("Intel ") or name


def _source(
    session: Session, interval: Interval | None, status: Status, *, wide: bool
) -> list[Piece]:
    """Where the numbers come from, the method of the SMT states, and how often both are read."""
    hello = session.hello
    pieces = []
    if hello.source != "os" or hello.virtualisation is None:
        runs: list[Run] = [(foreign(hello.source), "clock")]
        if method := _method(session, interval):
            runs.append((f", {method}", "text"))
        pieces.append(Piece(5, runs))
    if wide:
        shown, sample = duration(status.interval_ns / 1e9), duration(hello.sample_ns / 1e9)
        pieces.append(Piece(6, [("every ", "dim"), (shown, "text"), (", sampled ", "dim"),
                                (sample, "dim")]))  # fmt: skip
    return pieces


def _way(status: Status) -> list[Piece]:
    """How long the way from a probe that is far away is, and what comes along it."""
    way = status.way
    if way is None:
        return []
    runs: list[Run] = [("ssh" if not way.place.startswith("unix:") else "socket", "clock")]
    if not isnan(way.rtt_s):
        runs += [(" ", "dim"), (f"{1e3 * way.rtt_s:.1f}", "text"), (" ms", "dim")]
    if not isnan(way.rate):
        runs += [(" ", "dim"), (f"{way.rate / 1e3:.1f}", "text"), (" kB/s", "dim")]
    return [Piece(4, runs)]


def _method(session: Session, interval: Interval | None) -> str:
    """The method of the SMT states of most cores, with the factor of its counter once that is
    settled; '' if no core has a method."""
    if interval is None:
        return ""
    name = interval.split.usual
    found = session.calibrations.get((name or "").replace("-", "_"))
    settled = found is not None and found.state == "settled" and found.factor != 1
    return f"{name} ×{found.factor:g}" if found is not None and settled else name or ""


def _cost(session: Session, interval: Interval | None, status: Status) -> list[Piece]:
    """What watching costs and what was missed. Late counts the sample times at which no CPU was
    read; both counts begin with the probe."""
    own = "n/a" if isnan(status.own) else f"{100 * status.own:.1f}"
    whose = "own" if status.replay is None else "probe"  # a recording has no cost of the app
    pieces = [Piece(3, [(f"{whose} ".rjust(len(whose) + 5 - len(own)), "dim"), (own, "text"),
                        (" %", "dim")])]  # fmt: skip
    if interval is not None and session.hello.virtualisation is None:
        skew = f"{interval.skew_s * 1e6:.0f}"
        apart = interval.skew_s * 1e9 > SKEWED * session.hello.sample_ns
        pieces.append(Piece(6, [("skew ".rjust(9 - len(skew)), "dim"),
                                (skew, "warn" if apart else "text"), (" µs", "dim")]))  # fmt: skip
    if session.late:
        pieces.append(Piece(5, [("late ", "dim"), (str(session.late), "warn")]))
    lost = session.lost
    pieces.append(Piece(2, [("lost ", "dim"), (str(lost), "warn" if lost else "text")]))
    return pieces


def _state(status: Status, interval: Interval | None, *, wide: bool) -> list[Piece]:
    """What is unusual: a past moment, a recording, a command, no data."""
    pieces = []
    if status.job:
        ended = status.job_status
        style = "clock" if ended is None else "warn" if ended else "text"
        pieces.append(Piece(1, [(foreign(status.job), style)]))
    if status.recording is not None:
        size = status.recording
        pieces.append(Piece(1, [(f" REC {size} ", "paused") if size
                                else (" NOT RECORDING ", "lost")]))  # fmt: skip
    if status.replay is not None:
        if interval is not None:
            style = "lost" if status.replay.over and status.replay.damage else "paused"
            text = _replay(status.replay, interval, " · " if wide else " ")
            pieces.append(Piece(0, [(text, style)]))
    elif status.paused is not None:
        pieces.append(Piece(0, [(f" PAUSED {when(status.paused)} ", "paused")]))
    elif status.way is not None and status.way.down:
        pieces.append(Piece(0, [(f" NO LINK FOR {status.way.down_s:.0f} s ", "lost")]))
    elif status.silent_s is not None:
        pieces.append(Piece(0, [(f" NO DATA FOR {status.silent_s:.0f} s ", "lost")]))
    if status.failed is not None:
        pieces.append(Piece(1, [(" DEAD ", "lost")]))
    return pieces


def _replay(replay: Replay, interval: Interval, dot: str) -> str:
    first_ns, last_ns = replay.reach_ns
    if replay.seeking_ns is not None:
        does = f"seeking {place(replay.seeking_ns - first_ns)}"
    elif replay.over:
        does = "end"
    elif replay.playing:
        does = "max" if isinf(replay.speed) else f"×{replay.speed:g}"
    else:
        does = "paused"
    at, whole = place(interval.time_ns - first_ns), place(last_ns - first_ns)
    told = [f"REPLAY {when(interval.time)}", f"{at:>{len(whole)}}/{whole}", f"{does:<6}"]
    if replay.indexed is not None:
        told.append(f"finding episodes {100 * replay.indexed:2.0f} %")
    return f" {dot.join(told)} "
