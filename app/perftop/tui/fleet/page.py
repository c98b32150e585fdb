"""The fleet's screen: its lines from top to bottom, for one size, and what its keys are called."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from perftop.base.times import clock
from perftop.draw import bars, braille, theme
from perftop.draw.strips import BLANK, Line, Run, fit, foreign, shed, spread, width
from perftop.session.fleet.fleet import SharedEpisode, racks
from perftop.session.fleet.machine import PAST_S, Machine
from perftop.tui.fleet import heat, table
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import TOLD, Look, amount

WIDE = 150
"""Columns from which the right side has room."""
DETAIL = 9, 24
"""Minimum lines for a chart below the rows, with what stands around it; and its maximum."""


def page(look: Look) -> list[Line]:
    """Exactly `look.height` lines. Fills `look.mouse`."""
    look.running = look.fleet.running()
    tall = look.height
    room = 3 if tall >= 40 else 2 if tall >= 30 else 1
    lines = [header(look), totals(look)]
    if look.typing is not None:
        lines.append(typing(look))
    lines += alerts(look, room)
    lines += [BLANK] * (room + 2 + (tall >= 30) - len(lines) + (look.typing is not None))
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
    right = SIDE_WIDTH + max(0, min(30, (look.width - 160) // 3)) if look.width >= WIDE else 0
    return look.width - (right + 4 if right else 1), right


def _rows(look: Look, body: int, first: int) -> list[Line]:
    """The table, and at its right what concerns all machines."""
    left, right = halves(look)
    made = table.table(look, left)
    lines: list[Line] = [table.headings(look, made)]
    look.mouse[first] = ""
    room = visible(look, body)
    for machine in look.rows[look.top : look.top + room]:
        look.mouse[first + len(lines)] = machine.name
        lines.append(table.row(look, made, machine))
    hidden = [*look.rows[: look.top], *look.rows[look.top + room :]]
    if hidden:
        lines.append(table.out_of_sight(look, hidden, left))
    elif not look.rows:
        text = " no machine matches the filter" if look.sight.filter else " no machine yet"
        lines.append(([(text, "dim")], "calm"))
    lines += _below_rows(look, body - len(lines), left)
    lines += [BLANK] * (body - len(lines))
    return _beside(lines, right_side(look, body - 1, right), left) if right else lines


def _below_rows(look: Look, room: int, size: int) -> list[Line]:
    """The selected machine over time, where few machines leave room for it."""
    machine = look.selected
    if machine is None or room < DETAIL[0]:
        return []
    tall = min(room - 2, DETAIL[1])
    return [BLANK, *detail_chart(look, machine, size - 1, tall)]


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
        return [*lines[:-1], detail_numbers(look, machine), BLANK][:body]
    wide = look.width // 2 if look.width >= 110 else look.width
    lines += [detail_numbers(look, machine)]
    plot = detail_chart(look, machine, wide - 2, below - 2)
    if look.width >= 110:
        told = happened(look, below - 3, look.width - wide - 2, brief=False)
        plot = _beside(plot, told, wide - 2)
    return [*lines, *plot]


def _time(look: Look, body: int, first: int) -> list[Line]:
    lines = heat.time_heads(look)
    room = visible(look, body - 1)
    for machine in look.rows[look.top : look.top + room]:
        look.mouse[first + len(lines)] = machine.name
        lines.append(heat.time_row(look, machine))
    hidden = [*look.rows[: look.top], *look.rows[look.top + room :]]
    return [*lines, table.out_of_sight(look, hidden, look.width)] if hidden else lines


def _episodes(look: Look, body: int, _: int) -> list[Line]:
    found = happened(look, body - 1, look.width - 2, brief=False)
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


_TOTALS = (("lost", "lost", 0), ("busy", "busy", 1), ("clock_hz", "clock", 2),
           ("below", "below ceiling", 3), ("both", "both", 5), ("involuntary", "involuntary", 6),
           ("steal", "steal", 4), ("power_w", "power", 7))  # fmt: skip
"""Numbers of all machines together: key, name, and rank where not all fit."""


def header(look: Look) -> Line:
    """Where the numbers come from, how many machines answer, and what that costs."""
    fleet = look.fleet
    every = len(fleet.machines)
    connecting = sum(m.why == "connecting" for m in fleet.silent)
    gone = len(fleet.silent) - connecting
    left: list[Run] = [(" perftop ", "badge"), (" fleet", "bright"), ("  ", "text"),
                       (f"{every} machine{'s' * (every != 1)} ", "text"), (look.what, "dim"),
                       (f"  {len(fleet.answering)} answer", "text")]  # fmt: skip
    left += [(f"  {connecting} connecting", "dim")] if connecting else []
    left += [(f"  {gone} {'does' if gone == 1 else 'do'} not", "alarm")] if gone else []
    if look.paused:
        left += [("  ", "text"), (f" {look.paused} ", "paused")]
    if width(left) > look.width:
        left = [run for run in left if run != (look.what, "dim")]
    pieces: list[tuple[int, list[Run]]] = [
        (i + 1, [(fact, "dim")]) for i, fact in enumerate(look.facts)
    ]
    time: list[Run] = [(clock(look.now), "text")]
    room = look.width - width(left) - 3
    return spread(left, [*shed([*pieces, (0, time)], room, 3), (" ", "text")], look.width), "calm"


def totals(look: Look) -> Line:
    found = look.fleet.totals()
    pieces: list[tuple[int, list[Run]]] = []
    for key, name, rank in _TOTALS:
        if not isfinite(value := found[key]):
            continue
        text, behind = amount(key, value), words.behind(key, found)
        if key == "power_w" and value >= 1e4:
            text, limit = f"{value / 1e3:.1f}", found["power_limit_w"]
            behind = f" of {limit / 1e3:.1f} kW" if isfinite(limit) else " kW"
        style = "bright" if key in {"lost", "busy", "clock_hz"} else "text"
        pieces.append((rank, [(f"{name} ", "dim"), (text, style), (behind, "dim")]))
    gap = 3 if look.width >= 120 else 2
    return [(" ", "text"), *shed(pieces, look.width - 2, gap)], "calm"


def alerts(look: Look, most: int) -> list[Line]:
    """What goes wrong, the worst first, each as a sentence; the rest by their signs."""
    told: list[list[Run]] = []
    if look.problem:
        told.append([(f"{words.SILENT} ", "alarm"), (look.problem, "alarm")])
    gone = [m for m in look.fleet.silent if m.why != "connecting"]
    causes = [_cause(look, each) for each in look.running if each.kind != "suspect"]
    shared = [i for i, each in enumerate(look.running[: len(causes)]) if len(each.machines) > 1]
    first = causes[:1] if shared or not gone else []
    told += first
    told += [_silent(look, gone)] if gone else []
    told += causes[len(first) :]
    if not told:
        quiet = "No machine is losing time to a known cause." if look.fleet.answering else ""
        return [([(" ", "text"), (quiet, "dim")], "calm")]
    if len(told) > most:
        kept = told[: max(1, most - 1)]
        rest = look.running[max(0, len(kept) - bool(gone) - bool(look.problem)) :]
        more = _more(rest, len(told) - len(kept), look)
        if most == 1:  # no line of its own
            room = look.width - width(kept[0]) - 3
            kept[0] += [("  ", "text"), (f"+ {len(told) - 1} more", "dim")] if room > 10 else []
            told = kept
        else:
            told = [*kept, more]
    return [([(" ", "text"), *runs], "calm") for runs in told]


def _cause(look: Look, happening: SharedEpisode) -> list[Run]:
    names, every = happening.machines, len(look.fleet.machines)
    cause = words.told(happening.kind, happening.cause)
    place = words.where(happening, every)
    runs: list[Run] = [
        (f"{words.sign(happening.kind)} ", "alarm"),
        (f"{cause} on {place} since {words.since(happening.start, look.now)}", "alarm"),
    ]
    return _with(runs, (words.deepest(happening), _place(look, names)), look.width)


def _with(runs: list[Run], parts: Sequence[str], room: int) -> list[Run]:
    """The sentence, and the parts of its evidence that fit as a whole."""
    gap = "  "
    for part in parts:
        if part and width(runs) + len(gap) + len(part) <= room - 2:
            runs = [*runs, (gap, "dim"), (part, "dim")]
            gap = " · "
    return runs


def _place(look: Look, names: Sequence[str]) -> str:
    """The racks that the machines fill or lie in, or the first of their names."""
    if len(names) == 1:
        machine = look.fleet.machines.get(names[0])
        return "" if machine is None else foreign(machine.tasks)
    every = racks(list(look.fleet.machines.values()))
    mine = [rack for rack, there in every.items() if any(m.name in names for m in there)]
    numbered = all(rack[-1:].isdigit() for rack in mine)
    if numbered and len(mine) <= min(4, len(every) // 2):
        return f"only {' and '.join(mine)}" if len(mine) < 3 else f"only {', '.join(mine)}"
    return foreign(", ".join(names[:6]) + (" …" if len(names) > 6 else ""))


def _silent(look: Look, gone: Sequence[Machine]) -> list[Run]:
    """Who does not answer, since when, and why."""
    one = min(gone, key=lambda m: m.silent_since)
    since = f"since {clock(one.silent_since)}"
    if len(gone) == 1:
        runs: list[Run] = [(f"{foreign(one.name)} does not answer {since}", "alarm")]
        return _with([(f"{words.SILENT} ", "alarm"), *runs],
                     words.why(one, look.now).split(" · "), look.width)  # fmt: skip
    names = foreign(", ".join(m.name for m in gone[:4]) + (" …" if len(gone) > 4 else ""))
    text = f"{len(gone)} of {len(look.fleet.machines)} do not answer {since}"
    why = foreign(one.why.removeprefix(f"{one.name}: "))
    return _with([(f"{words.SILENT} ", "alarm"), (text, "alarm")], (names, why), look.width)


def _more(rest: Sequence[SharedEpisode], count: int, look: Look) -> list[Run]:
    """The causes not told above, each with the machines."""
    runs: list[Run] = [(f"+ {count} more", "dim")]
    by_cause: dict[tuple[str, str], list[str]] = {}
    for each in rest:
        place = words.where(each, len(look.fleet.machines))
        by_cause.setdefault((each.kind, each.cause), []).append(place)
    for (kind, cause), places in by_cause.items():
        names = ", ".join(places[:3]) + (f" +{len(places) - 3}" if len(places) > 3 else "")
        piece: list[Run] = [
            ("   ", "text"), (f"{words.sign(kind)} ", "alarm"),
            (f"{words.told(kind, cause)} ", "text"), (names, "dim"),
        ]  # fmt: skip
        if width(runs) + width(piece) > look.width - 2:
            break
        runs += piece
    return runs


def typing(look: Look) -> Line:
    """The prompt of the filter."""
    hint = "words of names, causes or states: k07  pl1  silent"
    text = look.typing or ""
    runs: list[Run] = [
        (" filter ", "badge"),
        (" ", "text"),
        (foreign(text), "bright"),
        ("▏", "key"),
    ]
    count = f"{len(look.rows)} of {len(look.fleet.machines)}"
    return spread([*runs, ("  ", "text"), (fit(hint, 52) if not text else "", "faint")],
                  [(f"{count}  ", "dim"), ("enter", "key"), (" keep  ", "dim"), ("esc", "key"),
                   (" all ", "dim")], look.width), "calm"  # fmt: skip


SIDE_WIDTH = 33
SPAN_S = 1800.0
"""Time that the chart of machines below their ceiling covers."""
MANY = 0.05
"""Share of all machines from which on they are red."""
CHART = 4
"""Lines of that chart."""


def right_side(look: Look, height: int, width: int) -> list[Line]:
    """Exactly `height` lines."""
    detail = _selected(look, width)
    lines = below(look, width, CHART) if height >= 24 else []
    room = height - len(lines) - len(detail) - 3
    lines += [*([BLANK] if lines else []), *happened(look, max(3, room), width, brief=True)]
    lines = [*lines[: max(0, height - len(detail) - 1)], BLANK, *detail]
    return [*lines, *[BLANK] * height][:height]


def below(look: Look, width: int, tall: int) -> list[Line]:
    """The number of machines below their ceiling, as columns over the last half hour."""
    cells = width - 5
    counts = look.fleet.below(cells, look.now, SPAN_S)
    top, every = max(5.0, *counts), len(look.fleet.machines)
    now = int(counts[-1])
    title = spread([("machines below ceiling", "dim")],
                   [("now ", "dim"), (str(now), "alarm" if now else "text")], width)  # fmt: skip
    lines: list[Line] = [(title, "calm")]
    for y in range(tall):
        label = f"{top:.0f}" if not y else "0" if y == tall - 1 else ""
        runs: list[Run] = [(f"{label:>4} ", "faint")]
        for count in counts:
            eighths = round(8 * tall * count / top) - 8 * (tall - 1 - y)
            many = count >= max(3, MANY * every)
            style = ("loss-3" if eighths > 8 else "alarm") if many else "kernel-5"
            runs.append((theme.LEVELS[max(0, min(8, eighths))], style))
        lines.append((runs, "calm"))
    lines.append(([("     ", "text"), (theme.RULE * cells, "rule")], "calm"))
    times = words.times(look.now, SPAN_S, cells)
    return [*lines, ([(f"     {times}", "faint")], "calm")]


def happened(look: Look, most: int, width: int, *, brief: bool) -> list[Line]:
    """Episodes of all machines, the newest first."""
    title = spread([("episodes of all machines", "dim")], [("length", "dim")], width)
    lines: list[Line] = [(title, "calm")]
    found = look.fleet.happened(most)
    if not found:
        lines.append(([("none so far", "faint")], "calm"))
    return [*lines, *((_event(look, each, width, brief=brief), "calm") for each in found)]


def _event(look: Look, each: SharedEpisode, width: int, *, brief: bool) -> list[Run]:
    runs_now = each.end is None
    style = "text" if runs_now else "faint"
    length = words.span((look.now if each.end is None else each.end) - each.start)
    name, cause = words.where(each, len(look.fleet.machines)), words.told(each.kind, each.cause)
    room = width - 11 - len(length) - 1
    if brief:
        wide = min(max(len(name), 7), room - 4)
        what = f"{fit(name, wide)} {words.short(each.kind, each.cause)}"
    else:
        wide = min(24, max(10, room // 4))
        deep = words.deepest(each)
        names = "" if len(each.machines) == 1 else foreign(" · " + ", ".join(each.machines[:8]))
        what = f"{fit(name, wide)} {cause}{', ' * bool(deep)}{deep}{names}"
    left: list[Run] = [
        (f"{clock(each.start)} ", style), (words.sign(each.kind), "alarm" if runs_now else "dim"),
        (f" {fit(what, room)}", style),
    ]  # fmt: skip
    return spread(left, [(length, style)], width)


def _selected(look: Look, width: int) -> list[Line]:
    """Six lines or more on the selected machine; none if there is none."""
    machine = look.selected
    if machine is None:
        return []
    name = fit(foreign(machine.name), width - 10).rstrip()
    lines: list[Line] = [(spread([(name, "bright")], [("selected", "dim")], width), "calm")]
    model = foreign(machine.model or "model unknown")
    cores = f"{machine.cores} cores" if machine.cores else ""
    model = f"{fit(model, width - len(cores) - 2).rstrip()}, {cores}" if cores else model
    lines.append(([(fit(model, width), "dim")], "calm"))
    lines += [([*each], "calm") for each in _states(machine, width)]
    events = [event for event in machine.running if event.wrong]
    for event in events[:2]:
        words_ = words.told(*event.group)
        started = words.since(event.start, look.now)
        runs: list[Run] = [(f"{words.sign(event.kind)} ", "alarm"), (words_, "text"),
                           (f" since {started}", "dim")]  # fmt: skip
        lines.append((runs, "calm"))
    facts = [("runs", machine.tasks), ("probe", _probe(machine))]
    lines += [([(f"{key:<6}", "dim"), (fit(foreign(text), width - 6), "text")], "calm")
              for key, text in facts if text]  # fmt: skip
    if not machine.answers:
        lines.append(([(fit(words.why(machine, look.now), width), "alarm")], "calm"))
    return lines


def _states(machine: Machine, width: int) -> list[list[Run]]:
    numbers = machine.numbers
    shares = [numbers[key] for key in ("neither", "lp0", "lp1", "both")]
    if not all(isfinite(share) for share in shares):
        return []
    runs: list[Run] = []
    for key in ("both", "lp0", "lp1", "neither"):
        runs += [(f"{key} ", "dim"), (f"{100 * numbers[key]:.0f} ", "text")]
    return [bars.smt(shares, width), runs]


def _probe(machine: Machine) -> str:
    parts = [f"perfprobe {machine.version}"] if machine.version else []
    if isfinite(machine.probe_share):
        parts.append(f"{100 * machine.probe_share:.2f} % of a CPU")
    return ", ".join(parts)


_DETAIL_NUMBERS = (("lost", "lost"), ("busy", "busy"), ("clock_hz", ""), ("below", "below"),
          ("both", "both"), ("involuntary", "inv"), ("steal", "steal"),
          ("power_w", ""))  # fmt: skip


def detail_numbers(look: Look, machine: Machine) -> Line:
    pieces: list[tuple[int, list[Run]]] = [(0, [(f" {foreign(machine.name)}", "bright")])]
    if not machine.answers:
        why = fit(words.why(machine, look.now), look.width - len(machine.name) - 6).rstrip()
        return [*pieces[0][1], ("  ", "text"), (why, "alarm")], "chosen"
    for rank, (key, name) in enumerate(_DETAIL_NUMBERS, 1):
        value = machine.numbers[key]
        if not isfinite(value):
            continue
        loud = key == "lost" and value >= TOLD
        runs: list[Run] = [(f"{name} " if name else "", "dim"),
                           (amount(key, value), "alarm" if loud else "text"),
                           (words.behind(key, machine.numbers), "dim")]  # fmt: skip
        if key == "below" and machine.cause[0]:
            runs.append((f": {words.told(*machine.cause)}", "dim"))
        pieces.append((rank, runs))
    age: list[Run] = [("age ", "dim"), (words.span(look.now - machine.heard), "text")]
    return shed([*pieces, (2, age)], look.width - 1, 2), "chosen"


def detail_chart(look: Look, machine: Machine, width: int, height: int) -> list[Line]:
    """The clock of a machine under its ceiling over time; without a clock, what it lost."""
    cells = width - 6
    clocks = machine.past.series("clock_hz", 2 * cells, look.now)
    has_clock = any(map(isfinite, clocks))
    ceilings = machine.past.series("ceiling_hz", cells, look.now) if has_clock else [nan] * cells
    key = "clock_hz" if has_clock else "lost"
    values = np.array(clocks if has_clock else machine.past.series(key, 2 * cells, look.now))
    tall = max(1, height - 3)
    known = values[np.isfinite(values)]
    if not len(known):
        return [([(" no past yet", "faint")], "calm"), *[BLANK] * (height - 1)]
    high = max([hz for hz in ceilings if isfinite(hz)] + [float(known.max())])
    low = min(float(known.min()) * 0.98, high * 0.9) if has_clock else 0.0
    high = high if high > low else low + 1.0
    name = "clock, and the ceiling that turbo allows" if has_clock else "lost"
    unit = "GHz" if has_clock else "%"
    title = f" {unit:<5}{name} · {foreign(machine.name)}"
    lines: list[Line] = [([(fit(title, width), "dim")], "calm")]
    dots = braille.line(values, low, high, braille.TALL * tall, thick=2)
    codes = braille.codes(dots)
    lost = _below(values, ceilings) if has_clock else [False] * cells
    for y in range(tall):
        edge = high if not y else low if y == tall - 1 else nan
        label = amount(key, edge) if isfinite(edge) else ""
        runs: list[Run] = [(f"{label:>5} ", "faint")]
        for x, code in enumerate(codes[y].tolist()):
            sign = chr(code)
            if sign == " " and not y and isfinite(ceilings[x]):
                runs.append((theme.LIMIT, "dim"))
            else:
                runs.append((sign, "alarm" if lost[x] else "clock"))
        lines.append((runs, "calm"))
    axis = " " * 6 + words.times(look.now, PAST_S, cells)
    rule: Line = ([("      ", "text"), (theme.RULE * cells, "rule")], "calm")
    return [*lines, rule, ([(axis, "faint")], "calm")][:height]


def _below(values: object, ceilings: list[float]) -> list[bool]:
    """The cells in which the clock is clearly below its ceiling."""
    pairs = np.asarray(values, float).reshape(-1, 2)
    with np.errstate(invalid="ignore"):
        low = np.fmin(pairs[:, 0], pairs[:, 1])
        found: list[bool] = (low < 0.95 * np.array(ceilings)).tolist()
    return found
