"""The fleet's screen: its lines from top to bottom, for one size, and what its keys are called."""

from __future__ import annotations

from typing import NamedTuple

from perftop.draw.strips import BLANK, Line, Run, fit, width
from perftop.tui.fleet import detail, head, heat, rows, side, timeline
from perftop.tui.fleet.look import Look

WIDE = 150
"""Columns from which the right side has room."""
DETAIL = 9, 24
"""Minimum lines for a chart below the rows, with what stands around it; and its maximum."""


def page(look: Look) -> list[Line]:
    """Exactly `look.height` lines. Fills `look.mouse`."""
    look.running = look.fleet.running()
    tall = look.height
    alerts = 3 if tall >= 40 else 2 if tall >= 30 else 1
    lines = [head.header(look), head.totals(look)]
    if look.typing is not None:
        lines.append(head.typing(look))
    lines += head.alerts(look, alerts)
    lines += [BLANK] * (alerts + 2 + (tall >= 30) - len(lines) + (look.typing is not None))
    body = tall - len(lines) - 1
    draw = {"rows": _rows, "heat": _heat, "time": _time, "episodes": _episodes, "help": _help}
    lines += draw[look.view](look, body, len(lines))
    return [*lines[: tall - 1], *[BLANK] * (tall - 1 - len(lines)), _keys(look)]


def visible(look: Look, body: int) -> int:
    """Rows of machines that fit, and scroll so that the chosen one is among them."""
    room = body - 2
    if len(look.rows) <= room + 1:
        look.top = 0
        return room + 1
    names = [machine.name for machine in look.rows]
    at = names.index(look.chosen) if look.chosen in names else 0
    look.top = max(0, min(look.top, at, len(names) - room))
    look.top = max(look.top, at - room + 1)
    return room


def halves(look: Look) -> tuple[int, int]:
    """Cells of the table and of the right side; 0 where that has no room."""
    right = side.WIDTH + max(0, min(30, (look.width - 160) // 3)) if look.width >= WIDE else 0
    return look.width - (right + 4 if right else 1), right


def _rows(look: Look, body: int, first: int) -> list[Line]:
    """The table, and at its right what concerns all machines."""
    left, right = halves(look)
    made = rows.table(look, left)
    lines: list[Line] = [rows.headings(look, made)]
    look.mouse[first] = ""
    room = visible(look, body)
    for machine in look.rows[look.top : look.top + room]:
        look.mouse[first + len(lines)] = machine.name
        lines.append(rows.row(look, made, machine))
    hidden = [*look.rows[: look.top], *look.rows[look.top + room :]]
    if hidden:
        lines.append(rows.out_of_sight(look, hidden, left))
    elif not look.rows:
        text = " no machine matches the filter" if look.sight.filter else " no machine yet"
        lines.append(([(text, "dim")], "calm"))
    lines += _below_rows(look, body - len(lines), left)
    lines += [BLANK] * (body - len(lines))
    return _beside(lines, side.side(look, body - 1, right), left) if right else lines


def _below_rows(look: Look, room: int, size: int) -> list[Line]:
    """The selected machine over time, where few machines leave room for it."""
    machine = look.selected
    if machine is None or room < DETAIL[0]:
        return []
    tall = min(room - 2, DETAIL[1])
    return [BLANK, *detail.chart(look, machine, size - 1, tall)]


def _beside(left: list[Line], right: list[Line], size: int) -> list[Line]:
    """Two columns; the mood of a line is that of its left part, with a rule between them."""
    made: list[Line] = []
    for (runs, mood), (more, _) in zip(left, [*right, *[BLANK] * len(left)], strict=False):
        made.append(([*runs, (" " * (size - width(runs)), "text"), (" │ ", "rule"), *more], mood))
    return made


def _heat(look: Look, body: int, _: int) -> list[Line]:
    """The heat map, and below it the selected machine, where there is room."""
    machine = look.selected
    below = min(16, body // 3) if body >= 26 and machine is not None else 1 if body > 8 else 0
    lines = heat.heat(look, body - below)
    if machine is None or not below:
        return lines
    if below == 1:
        return [*lines[:-1], detail.numbers(look, machine), BLANK][:body]
    wide = look.width // 2 if look.width >= 110 else look.width
    lines += [detail.numbers(look, machine)]
    plot = detail.chart(look, machine, wide - 2, below - 2)
    if look.width >= 110:
        told = side.happened(look, below - 3, look.width - wide - 2, brief=False)
        plot = _beside(plot, told, wide - 2)
    return [*lines, *plot]


def _time(look: Look, body: int, first: int) -> list[Line]:
    lines = timeline.heads(look)
    room = visible(look, body - 1)
    for machine in look.rows[look.top : look.top + room]:
        look.mouse[first + len(lines)] = machine.name
        lines.append(timeline.row(look, machine))
    hidden = [*look.rows[: look.top], *look.rows[look.top + room :]]
    return [*lines, rows.out_of_sight(look, hidden, look.width)] if hidden else lines


def _episodes(look: Look, body: int, _: int) -> list[Line]:
    found = side.happened(look, body - 1, look.width - 2, brief=False)
    return [([(" ", "text"), *runs], mood) for runs, mood in found]


def _help(look: Look, body: int, _: int) -> list[Line]:
    keys = [(" ".join(look.captions[name] for name in key.ids), key.help) for key in KEYS]
    lines: list[Line] = []
    for key, text in (*keys, ("", ""), *NUMBERS):
        told = fit(text, look.width - 18).rstrip()
        runs: list[Run] = [(f" {key:<16}", "key"), (told, "text")]
        lines.append((runs, "calm"))
    return lines[:body]


class Told(NamedTuple):
    """A key, or two with opposite effects, which share a line of the help."""

    ids: tuple[str, ...]
    label: str
    """In the last line, which names the first key; '': only the help names it."""
    help: str


KEYS = (
    Told(("machines",), "machines", "a row a machine"),
    Told(("heat",), "heat", "a cell a machine"),
    Told(("time",), "time", "a number of each machine over ten minutes"),
    Told(("fleet_episodes",), "episodes", "what happened on all machines"),
    Told(("open",), "open", "the selected machine alone; quit comes back"),
    Told(("why",), "why", "what costs the selected machine most, in a dozen lines"),
    Told(("next_episode", "previous_episode"), "next episode",
         "to the next machine with an episode, and the one before"),
    Told(("filter",), "filter", "only machines that match; esc shows all"),
    Told(("sort_next", "sort_before"), "sort",
         "by the next column, and the one before; a click on a title does it too"),
    Told(("metric", "metric_back"), "number", "another number in heat map and time view"),
    Told(("pause",), "pause", "the screen stands still"),
    Told(("help",), "help", "these lines"),
    Told(("quit",), "quit", "quit"),
    Told(("up", "down"), "", "select a machine"),
    Told(("step_back", "step_on"), "",
         "back and on in time, where there is a past; in the heat map a cell aside"),
    Told(("leap_back", "leap_on"), "", "ten steps back and on in time"),
    Told(("first", "last"), "", "the first and the last machine"),
    Told(("page_up", "page_down"), "", "twenty machines up and down"),
    Told(("reverse",), "", "reverse the order"),
    Told(("theme",), "", "next theme"),
    Told(("back",), "", "back: from a prompt, a filter, the help"),
)  # fmt: skip
NUMBERS = (
    ("lost %", "share of the time that working CPUs did not get: clock, halts, steal"),
    ("below %", "share of the working time with a clock below its ceiling"),
    ("both %", "share of the time in which both threads of a core ran"),
    ("inv %", "halted although there was work"),
    ("▼ ≁", "episodes that run; samples in which a counter was doubted"),
    ("age s", "since the newest numbers came; all times are of their arrival here"),
    ("○", "does not answer, and why"),
    ("numbers", "cover ten seconds, or what the server was asked for"),
)
_SHOWN = {"rows": "machines", "episodes": "fleet_episodes"}
"""Ids of the keys of views that are called otherwise."""


def _fitting(look: Look) -> list[tuple[str, str, str]]:
    """The keys that fit, with help and quit at the end in any case."""
    told = [(look.captions[key.ids[0]], key.label, key.ids[0]) for key in KEYS if key.label]
    *keys, help_, leave = told
    kept: list[tuple[str, str, str]] = []
    for key in keys:
        if sum(len(c) + len(label) + 3 for c, label, _ in [*kept, key, help_, leave]) <= look.width:
            kept.append(key)
    return [*kept, help_, leave]


def _keys(look: Look) -> Line:
    runs: list[Run] = []
    for caption, label, name in _fitting(look):
        style = "bright" if name == _SHOWN.get(look.view, look.view) else "dim"
        runs += [(" ", "text"), (caption, "key"), (f" {label} ", style)]
    return runs, "calm"


def key_at(look: Look, x: int) -> str:
    """The id of the key in the last line at this cell."""
    end = 0
    for caption, label, name in _fitting(look):
        end += len(caption) + len(label) + 3
        if x < end:
            return name
    return ""


def grid_of(look: Look) -> heat.Grid:
    """The grid in which the cursor moves."""
    return heat.grid(look.rows or list(look.fleet.machines.values()), look.width, look.height - 12)
