"""The four lines above the view: the machine and the cost of watching it, its numbers, its SMT
bar, and one line for what is wrong or missing."""

from __future__ import annotations

from collections import Counter
from math import isinf, isnan
from typing import TYPE_CHECKING

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from perftop.base.times import duration, place, when
from perftop.draw import theme
from perftop.draw.ansi_strip import ink, line
from perftop.draw.strips import Run, foreign, shed, spread
from perftop.tui.frame import alert, machine_line
from perftop.tui.frame.status import STARTING, Replay, Status
from perftop.tui.shared.direct import repaint

if TYPE_CHECKING:
    from perftop.session.interval import Interval
    from perftop.session.session import Session

LINES = 4
WIDE = 100
"""Columns from which the parts of the replay badge are separated by dots."""


class Top(Widget):
    def __init__(self, *, ascii_: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ascii = ascii_
        self._session: Session | None = None
        self._interval: Interval | None = None
        self._status = Status(0)
        self._runs: list[list[Run]] = []
        self._strips: list[Strip] = []

    def show(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        self._session, self._interval, self._status = session, interval, status
        self._build()

    def _build(self) -> None:
        width = self.size.width
        if not width:
            return
        session, interval = self._session, self._interval
        lines = [identity(session, interval, self._status, width)]
        if session is not None and interval is not None:
            lines.append(machine_line.numbers(session, interval, width))
            lines.append(machine_line.bar(session, interval, width))
        lines += [[] for _ in range(LINES - 1 - len(lines))]
        lines.append(alert.line(session, interval, self._status, width))
        changed = [y for y in range(LINES) if lines[y : y + 1] != self._runs[y : y + 1]]
        if changed:
            self._runs = lines
            self._strips = [self._strip(runs, y, width) if y in changed else self._strips[y]
                            for y, runs in enumerate(lines)]  # fmt: skip
            repaint(self, changed, width)

    def _strip(self, runs: list[Run], y: int, width: int) -> Strip:
        # The first and the alert line keep their colours when the rest turns grey.
        stale = self._status.failed is not None and 0 < y < LINES - 1
        mood: theme.Mood = "stale" if stale else "calm"
        return line(runs, ink(self.app, mood), width, ascii_=self._ascii)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns finished strips, for the reason given in Canvas."""
        lines = (self.render_line(y) for y in crop.line_range)
        return [made.crop_extend(crop.x, crop.right, None) for made in lines]

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip([])

    def on_resize(self) -> None:
        self._runs = []
        self._build()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._runs = []
        self._build()


def identity(
    session: Session | None, interval: Interval | None, status: Status, width: int
) -> list[Run]:
    """Line 1: the machine and how it is read; right: the own cost, skew, lost samples, state."""
    if session is None:
        return STARTING
    right = _right(session, interval, status, width)
    room = width - sum(len(text) for text, _ in right) - 2
    hello = session.hello
    cores, cpus = len(machine_line.extent(session).cores), len(session.shown)
    shown, sample = duration(status.interval_ns / 1e9), duration(hello.sample_ns / 1e9)
    running = alert.badge(alert.told(session, interval, status))
    pieces: list[tuple[int, list[Run]]] = [
        (0, STARTING[:1]),
        (1, [(foreign(hello.host), "bright")]),
        (6, [(foreign(hello.identity.name or "unknown CPU"), "text")]),
        (3, [(f"{cores}", "text"), (" cores / ", "dim"), (f"{cpus}", "text"), (" CPUs", "dim")]),
        (2, [(foreign(hello.source), "clock")]),
        (4, _method(interval)),
        (5, [(shown, "text"), (" of ", "dim"), (sample, "text")]),
        (1, running),
    ]
    return spread(_dotted(pieces, room), right, width)


def _dotted(pieces: list[tuple[int, list[Run]]], room: int) -> list[Run]:
    """Joins the pieces with a dot before each but the badge and the host."""
    dotted = [
        (rank, runs if i < 2 else [("· ", "faint"), *runs])
        for i, (rank, runs) in enumerate(pieces)
        if runs
    ]
    return shed(dotted, room, 1)


def _method(interval: Interval | None) -> list[Run]:
    """The method that finds the SMT states of most cores; empty if no core has one."""
    if interval is None:
        return []
    names = Counter(interval.split.method)
    names.pop("single", None)
    names.pop(None, None)
    found = names.most_common(1)
    return [(name, "text") for name, _ in found if name is not None]


def _right(session: Session, interval: Interval | None, status: Status, width: int) -> list[Run]:
    own = "n/a" if isnan(status.own) else f"{100 * status.own:.1f}"
    whose = "own " if status.replay is None else "probe "  # a recording has no cost of the app
    pieces: list[tuple[int, list[Run]]] = [
        (2, [(whose, "dim"), (f"{own:>4}", "text"), (" %", "dim")])
    ]
    if interval is not None:
        pieces.append((4, [("skew ", "dim"), (f"{interval.skew_s * 1e6:4.0f}", "text"),
                           (" µs", "dim")]))  # fmt: skip
    # Late counts the sample times at which no CPU was read. Both counts begin with the probe.
    for rank, name, count in ((5, "late ", session.late), (3, "lost ", session.lost)):
        pieces.append(
            (3 if count else rank, [(name, "dim"), (str(count), "warn" if count else "text")])
        )
    room = max(24, 3 * width // 10)
    if status.replay is not None:
        if interval is not None:
            style = "lost" if status.replay.over and status.replay.damage else "paused"
            text = _replay(status.replay, interval, " · " if width >= WIDE else " ")
            pieces.append((0, [(text, style)]))
            room = max(room + width // 8, len(text) + 1)
    elif status.paused is not None:
        pieces.append((0, [(f" PAUSED {when(status.paused)} ", "paused")]))
        room += width // 8
    elif status.silent_s is not None:
        pieces.append((0, [(f" NO DATA FOR {status.silent_s:.0f} s ", "lost")]))
    if status.recording is not None:
        size = status.recording
        pieces.append((1, [(f" ● {size} ", "paused") if size else (" NOT RECORDING ", "lost")]))
    if status.job:
        pieces.append((0, [(foreign(status.job), "clock")]))
    if status.failed is not None:
        pieces.append((1, [(" DEAD ", "lost")]))
    return [*shed(pieces, room, 2), (" ", "text")]


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
