"""The lines of the screen of two recordings, from top to bottom: for each number A above B, on one
axis and one scale."""

from __future__ import annotations

from math import isfinite

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.times import place, when
from perftop.draw import charts, theme
from perftop.draw.charts import rows_of
from perftop.draw.strips import BLANK, Line, Run, fit, foreign, spread
from perftop.output.compare.numbers import NUMBERS, Number
from perftop.output.machine_state import STATES, differs, label, shown, state
from perftop.tui.pair.look import Look
from perftop.tui.shared.canvas import PageWidget
from perftop.tui.shared.time_axis import TICK, mark, mildest_first

ROWS = ("busy_hz", "util", "lost_ratio", "ipc", "both", "power_w", "kernel_cycles", "steal")
"""Numbers, the most important first; as many are drawn as fit."""
AREA = {"ipc": "ipc", "lost_ratio": "loss", "kernel_cycles": "kernel", "both": "both"}
LEFT, RIGHT = 20, 8
"""Cells left of the axis, and right of it."""
EACH, TALLEST = 5, 8
"""Lines that each number needs, and most lines of one recording in it."""
LEAST = 0.02
"""Minimum end of the scale of shares; smaller shares are noise."""
ABOVE = 1.12
"""Room above the highest value, which sets B apart from A."""
STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
APART = 12
"""Least cells between two ticks."""
HELP = (
    (("step_back", "step_on"), "back and on by a cell"),
    (("leap_back", "leap_on"), "back and on by ten cells"),
    (("begin", "finish"), "to the start, to the end"),
    (("next_episode", "previous_episode"), "to the next episode or mark of either, to the last"),
    (("narrower", "wider"), "less time on the axis, more"),
    (("theme",), "next theme"),
    (("help",), "these lines"),
    (("quit",), "quit"),
)


class PairPage(PageWidget, can_focus=True):
    def __init__(self, look: Look) -> None:
        super().__init__(id="pair", ascii_=look.ascii)
        self.look = look

    def page(self, width: int, height: int) -> list[Line]:
        self.look.width, self.look.height = width, height
        return page(self.look)


def page(look: Look) -> list[Line]:
    """Exactly `look.height` lines."""
    lines = [_header(look), _differing(look), _moment(look)]
    room = look.height - len(lines) - 5
    body = _help(look) if look.helping else _charts(look, room)
    body = [*body[:room], *[BLANK] * (room - len(body))]
    return [*lines, *body, *_events(look), _axis(look), _clock(look), _keys(look)][: look.height]


def cells(look: Look) -> int:
    return max(10, look.width - LEFT - RIGHT)


def _header(look: Look) -> Line:
    a, b = (foreign(track.name) for track in look.tracks)
    left: list[Run] = [(" A ", "badge"), (f" {fit(a, 28).rstrip()}  ", "bright"), (" B ", "badge"),
                       (f" {fit(b, 28).rstrip()}", "bright")]  # fmt: skip
    said = f"aligned at {foreign(look.alignment.words)}"
    if not all(track.read for track in look.tracks):
        said = "reading …"
    elif not look.aligned:
        said = "not aligned: one has no such moment"
    elif any(track.damage for track in look.tracks):
        said = "damaged, shown as far as it can be read"
    return spread(left, [(f"{said} ", "dim")], look.width), "calm"


def _differing(look: Look) -> Line:
    """What differs in the machines, the most important first, as far as there is room."""
    a, b = (state(track.session) for track in look.tracks)
    keys = [key for key in (*STATES, *a) if key in a and key in b and differs(a[key], b[key])]
    told = [f"{label(key)} {shown(key, a[key])} / {shown(key, b[key])}"
            for key in dict.fromkeys(keys)]  # fmt: skip
    text = "differs: " + ", ".join(told) if told else "the machine is set alike in both"
    return [(f" {fit(text, look.width - 2)}", "warn" if told else "dim")], "calm"


def _moment(look: Look) -> Line:
    times = [when(track.session.unix(round(look.cursor_s * 1e9) + origin))
             for track, origin in zip(look.tracks, look.origins_ns, strict=True)]  # fmt: skip
    moment: Run = (f" {look.cursor_s:+.1f} s", "bright")
    return [moment, (f"   A {times[0]}   B {times[1]}", "text")], "calm"


def _charts(look: Look, room: int) -> list[Line]:
    known = set[str]().union(*(track.keys for track in look.tracks))
    keys = [key for key in ROWS if key in known][: max(2, room // EACH)]
    if not keys:
        return [([(" nothing was read yet", "dim")], "calm")]
    tall = max(1, min(TALLEST, (room // len(keys) - 1) // 2))
    gap = [BLANK] if room >= len(keys) * (2 * tall + 1) else []
    lines: list[Line] = []
    for key in keys:
        lines += [*_band(look, NUMBERS[key], tall), *gap]
    return lines


def _band(look: Look, number: Number, tall: int) -> list[Line]:
    """A number: A above B."""
    wide = cells(look)
    values = [track.values(number.key, look.edges_ns(at, wide))
              for at, track in enumerate(look.tracks)]  # fmt: skip
    top, at = _top(number, values), look.cursor_cell(wide)
    now = [float(each[at]) for each in values]
    rule = {at: ""}
    lines: list[Line] = []
    for side, each in enumerate(values):
        area = charts.area(each / top, tall, AREA.get(number.key, "user"), ascii_=look.ascii)
        drawn = rows_of(charts.ruled(area.columns(), rule))
        for low, runs in enumerate(drawn):
            title = f"{number.label} {number.unit}" if side == low == 0 else ""
            name = "AB"[side] if low == 0 else ""
            value = number.show(now[side]) if low == 0 else ""
            key = "faint" if low == 0 and not isfinite(now[side]) else "text"
            lines.append(([(f" {fit(title, LEFT - 4)}", "dim"), (f"{name:<3}", "bright"), *runs,
                           (f"{value:>{RIGHT - 1}} ", key)], "calm"))  # fmt: skip
    return lines


def _top(number: Number, values: list[Floats]) -> float:
    """The end of the scale of both, in base units."""
    known = np.concatenate([each[np.isfinite(each)] for each in values])
    highest = float(known.max()) if len(known) else 1.0
    if number.points and highest > 0.1:
        return 1.0
    return max(highest, LEAST if number.points else 1e-9) * ABOVE


def _events(look: Look) -> list[Line]:
    """A line each: signs where episodes begin, strokes while they last, names of marks."""
    wide, lines = cells(look), list[Line]()
    for at, (track, origin) in enumerate(zip(look.tracks, look.origins_ns, strict=True)):
        line: list[Run] = [(" ", "text")] * wide
        for one in mildest_first(track.events()):
            end_ns = track.ends_ns[1] if one.end_ns is None else one.end_ns
            first, last = (look.cell((ns - origin) / 1e9, wide) for ns in (one.start_ns, end_ns))
            if last < 0 or first >= wide:
                continue
            sign, key = mark(one)
            for cell in range(max(0, first), min(last, wide - 1) + 1):
                line[cell] = (theme.CLOCK, key)
            if first >= 0:
                name = foreign(one.evidence.get("label", ""))[: min(20, wide - first - 1)]
                line[first : first + 1 + len(name)] = [(sign, key), *((c, "dim") for c in name)]
        title = "episodes" if at == 0 else ""
        lines.append(([(f" {fit(title, LEFT - 4)}", "dim"), (f"{'AB'[at]:<3}", "bright"), *line],
                      "calm"))  # fmt: skip
    return lines


def _ticks(look: Look) -> list[tuple[int, str]]:
    """Round times on the axis: the cell of each, and its text."""
    wide, (first, last) = cells(look), look.window_s
    step = next((s for s in STEPS_S if s / (last - first) * wide >= APART), STEPS_S[-1])
    count = range(int(np.ceil(first / step)), int(last / step) + 1)
    return [(look.cell(at * step, wide), _time(at * step, step)) for at in count]


def _time(at_s: float, step_s: float) -> str:
    """A time on the axis, which may lie before the moment of alignment: 0.5 s, 20 s, 1:30:00."""
    if step_s < 60:
        return f"{at_s:.{0 if step_s >= 1 else 1}f} s"
    return f"{'-' if at_s < 0 else ''}{place(round(abs(at_s) * 1e9))}"


def _axis(look: Look) -> Line:
    wide = cells(look)
    line: list[Run] = [(theme.RULE, "rule")] * wide
    for cell, _ in _ticks(look):
        if 0 <= cell < wide:
            line[cell] = (TICK, "faint")
    line[look.cursor_cell(wide)] = ("▲", "bright")
    return [(" " * LEFT, "text"), *line], "calm"


def _clock(look: Look) -> Line:
    wide, text = cells(look), ""
    for cell, time in _ticks(look):
        start = max(0, cell - len(time) // 2)
        if start >= len(text) + (1 if text else 0) and start + len(time) <= wide:
            text = f"{text:<{start}}{time}"
    return [(" " * LEFT + text, "dim")], "calm"


def _help(look: Look) -> list[Line]:
    lines: list[Line] = [BLANK]
    for ids, text in HELP:
        told = " ".join(look.captions[name] for name in ids)
        lines.append(([(f" {told:<18}", "key"), (text, "text")], "calm"))
    return lines


def _keys(look: Look) -> Line:
    runs: list[Run] = []
    for name, text in (("step_on", "move"), ("next_episode", "next episode"),
                       ("narrower", "less time"), ("wider", "more"), ("help", "help"),
                       ("quit", "quit")):  # fmt: skip
        runs += [(f" {look.captions[name]}", "key"), (f" {text} ", "dim")]
    return runs, "calm"
