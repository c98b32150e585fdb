"""The fleet's screen for a given size. From top to bottom: the source, totals of all machines,
alerts, one of the views, details of the selected machine, and the key hints.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, nan

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import GHZ, count_noun, time_of_day
from perftop.draw import charts
from perftop.draw.cells import smt
from perftop.draw.charts import rows_of
from perftop.draw.columns import Run, fit
from perftop.draw.strips import BLANK, Line, Piece, fit_line, safe_cells, spread, width
from perftop.model.kinds import KINDS, UNKNOWN_KIND
from perftop.session.fleet import SharedEpisode, racks
from perftop.session.fleet_machine import FIELDS, MIN_LOSS, PAST_S, Machine
from perftop.tui.fleet import views, words
from perftop.tui.fleet.words import FleetState, Row, amount_text, plain_line
from perftop.tui.shared.episode_style import gap_cause

MIN_WIDTH_FOR_SIDE, SIDE_WIDTH = 150, 33
"""Minimum width of a screen that has a right side, and the minimum width of that side, in cells."""
MIN_CHART, MAX_CHART = 9, 24
"""Minimum lines, including blank ones around it, and maximum lines of the selected machine's chart
below the rows."""
MAX_PLACES, MAX_NAMED_MACHINES = 3, 6
"""Maximum number of places shown for a cause without a sentence of its own, and of machines named
in a sentence."""
_TOTALS = (("lost", "lost", 0), ("busy", "busy", 1), ("clock_hz", "clock", 2),
           ("below", "below ceiling", 3), ("both", "both", 5), ("involuntary", "involuntary", 6),
           ("steal", "steal", 4), ("power_w", "power", 7))  # fmt: skip
"""Totals of all machines: key, name, and rank. Numbers of the highest rank are dropped first if not
all fit."""


def page(state: FleetState) -> list[Line]:
    """Returns the screen without its last line, which has the keys. Also fills
    `state.click_targets`."""
    state.running = state.fleet.running()
    height = state.height
    room = 3 if height >= 40 else 2 if height >= 30 else 1
    lines = [header(state), totals(state), *alerts(state, room)]
    lines += [BLANK] * (room + 2 + (height >= 30) - len(lines))
    draw = {
        "rows": _row_lines,
        "heat": _heat_lines,
        "time": _time_lines,
        "episodes": _episode_lines,
    }
    lines += draw[state.view](state, height - len(lines) - 1, len(lines))
    return [*lines[: height - 1], *[BLANK] * (height - 1 - len(lines))]


# --- the top


def header(state: FleetState) -> Line:
    """Returns the first line: the source, how many machines answer, the cost of watching them, and
    the time."""
    fleet = state.fleet
    machine_count = len(fleet.machines)
    connecting = sum(m.why == "connecting" for m in fleet.silent_machines)
    silent_count = len(fleet.silent_machines) - connecting
    left_runs: list[Run] = [(" perftop ", "badge"), (" fleet", "bright"), ("  ", "text"),
                       (f"{machine_count} machine{'s' * (machine_count != 1)} ", "text"),
                       (state.origin, "dim"),
                       (f"  {len(fleet.answering)} answer", "text")]  # fmt: skip
    left_runs += [(f"  {connecting} connecting", "dim")] if connecting else []
    verb = "does" if silent_count == 1 else "do"
    left_runs += [(f"  {silent_count} {verb} not", "alarm")] if silent_count else []
    left_runs += [("  ", "text"), (f" {state.paused} ", "paused")] if state.paused else []
    if width(left_runs) > state.width:
        left_runs = [run for run in left_runs if run != (state.origin, "dim")]
    facts: list[Piece] = [(rank, [(fact, "dim")]) for rank, fact in enumerate(state.facts, 1)]
    facts.append((0, [(time_of_day(state.now), "text")]))
    right_runs = fit_line(facts, state.width - width(left_runs) - 3, 3)
    return plain_line(*spread(left_runs, [*right_runs, (" ", "text")], state.width))


def totals(state: FleetState) -> Line:
    fleet_totals = state.fleet.totals()
    pieces: list[Piece] = []
    for key, name, rank in _TOTALS:
        if isfinite(fleet_totals[key]):
            style = "bright" if key in {"lost", "busy", "clock_hz"} else "text"
            pieces.append((rank, words.named_number(f"{name} ", key, fleet_totals, style)))
    return plain_line(
        (" ", "text"), *fit_line(pieces, state.width - 2, 3 if state.width >= 120 else 2)
    )


def alerts(state: FleetState, max_lines: int) -> list[Line]:
    """Returns at most `max_lines` lines with the worst episodes, each as a sentence. The other
    episodes are listed with their signs in the last line."""
    silent_machines = [m for m in state.fleet.silent_machines if m.why != "connecting"]
    causes = [_cause(state, episode) for episode in state.running if episode.kind != "suspect"]
    is_shared = any(len(episode.machines) > 1 for episode in state.running[: len(causes)])
    first = 1 if is_shared or not silent_machines else 0
    silent_lines = [_silent_line(state, silent_machines)] if silent_machines else []
    sentences = [*causes[:first], *silent_lines, *causes[first:]]
    if state.problem:
        sentences.insert(0, [(f"{words.SILENT_SIGN} ", "alarm"), (state.problem, "alarm")])
    if not sentences:
        quiet_text = "No machine is losing time to a known cause." if state.fleet.answering else ""
        return [plain_line((" ", "text"), (quiet_text, "dim"))]
    if len(sentences) > max_lines > 1:
        count = max_lines - 1
        first = max(0, count - bool(silent_machines) - bool(state.problem))
        more_line = _more_line(state, state.running[first:], len(sentences) - count)
        sentences = [*sentences[:count], more_line]
    elif len(sentences) > max_lines:  # the count shares the only line
        text = f"+ {len(sentences) - 1} more"
        fits = state.width - width(sentences[0]) - 3 > 10
        sentences = [[*sentences[0], ("  ", "text"), (text, "dim")] if fits else sentences[0]]
    return [plain_line((" ", "text"), *runs) for runs in sentences]


def _cause(state: FleetState, episode: SharedEpisode) -> list[Run]:
    place = words.place_text(episode, len(state.fleet.machines))
    cause = words.cause_name(episode.kind, episode.cause)
    text = f"{cause} on {place} since {words.since_text(episode.start, state.now)}"
    evidence = words.depth_text(episode), _machine_names(state, episode.machines)
    return _sentence(words.episode_sign(episode.kind), text, evidence, state.width)


def _sentence(sign: str, text: str, evidence: Sequence[str], room: int) -> list[Run]:
    """Returns a sentence, followed by each part of its evidence that fits completely."""
    runs: list[Run] = [(f"{sign} ", "alarm"), (text, "alarm")]
    gap = "  "
    for part in evidence:
        if part and width(runs) + len(gap) + len(part) <= room - 2:
            runs += [(gap, "dim"), (part, "dim")]
            gap = " · "
    return runs


def _machine_names(state: FleetState, names: Sequence[str]) -> str:
    """Returns the racks that contain these machines, or the first of the machines' names; for a
    single machine, its tasks."""
    if len(names) == 1:
        machine = state.fleet.machines.get(names[0])
        return "" if machine is None else safe_cells(machine.tasks)
    machines_by_rack = racks(list(state.fleet.machines.values()))
    hit_racks = [
        r for r, machines in machines_by_rack.items() if any(m.name in names for m in machines)
    ]
    has_numbers = all(rack[-1:].isdigit() for rack in hit_racks)
    if has_numbers and len(hit_racks) <= min(4, len(machines_by_rack) // 2):
        return f"only {(' and ' if len(hit_racks) < 3 else ', ').join(hit_racks)}"
    return safe_cells(
        ", ".join(names[:MAX_NAMED_MACHINES]) + (" …" if len(names) > MAX_NAMED_MACHINES else "")
    )


def _silent_line(state: FleetState, machines: Sequence[Machine]) -> list[Run]:
    """Returns a sentence on the machines that do not answer, since when, and why."""
    machine = min(machines, key=lambda m: m.silent_since)
    since_text = f"since {time_of_day(machine.silent_since)}"
    if len(machines) == 1:
        text = f"{safe_cells(machine.name)} does not answer {since_text}"
        evidence = words.silence_text(machine, state.now).split(" · ")
        return _sentence(words.SILENT_SIGN, text, evidence, state.width)
    names = safe_cells(
        ", ".join(m.name for m in machines[:4]) + (" …" if len(machines) > 4 else "")
    )
    text = f"{len(machines)} of {len(state.fleet.machines)} do not answer {since_text}"
    reason = safe_cells(machine.why.removeprefix(f"{machine.name}: "))
    return _sentence(words.SILENT_SIGN, text, (names, reason), state.width)


def _more_line(state: FleetState, episodes: Sequence[SharedEpisode], count: int) -> list[Run]:
    """Returns a line that lists the causes without a sentence, each with its machines."""
    runs: list[Run] = [(f"+ {count} more", "dim")]
    by_cause: dict[tuple[str, str], list[str]] = {}
    for episode in episodes:
        place = words.place_text(episode, len(state.fleet.machines))
        by_cause.setdefault((episode.kind, episode.cause), []).append(place)
    for (kind, cause), places in by_cause.items():
        more = f" +{len(places) - MAX_PLACES}" if len(places) > MAX_PLACES else ""
        piece: list[Run] = [
            ("   ", "text"), (f"{words.episode_sign(kind)} ", "alarm"),
            (f"{words.cause_name(kind, cause)} ", "text"),
            (", ".join(places[:MAX_PLACES]) + more, "dim"),
        ]  # fmt: skip
        if width(runs) + width(piece) > state.width - 2:
            break
        runs += piece
    return runs


# --- the views


def half_widths(state: FleetState) -> tuple[int, int]:
    """Returns the widths of the table and of the right side, in cells; the right side has 0 if
    there is no room for it."""
    has_side = state.width >= MIN_WIDTH_FOR_SIDE
    right = SIDE_WIDTH + max(0, min(30, (state.width - 160) // 3)) if has_side else 0
    return state.width - (right + 4 if right else 1), right


def _visible_rows(state: FleetState, body: int) -> tuple[Sequence[Row], Sequence[Machine]]:
    """Returns the visible rows, scrolled so that the selected one is among them, and the hidden
    machines."""
    room, rows = body - 2, state.rows
    if len(rows) <= room + 1:
        state.top = 0
        return rows, ()
    index = next((i for i, (m, *_) in enumerate(rows) if m.name == state.selected_name), 0)
    state.top = max(0, min(state.top, index, len(rows) - room))
    state.top = max(state.top, index - room + 1)
    end = state.top + room
    hidden_rows = (*rows[: state.top], *rows[end:])
    return rows[state.top : end], [machine for row in hidden_rows for machine in row]


def _row_lines(state: FleetState, body: int, first: int) -> list[Line]:
    """Returns the table, with facts about all machines to its right. Below the table is a chart of
    the selected machine over time, if there are few enough machines to leave room for it."""
    left, right = half_widths(state)
    table = views.table(state, left)
    lines: list[Line] = [views.headings(state, table)]
    state.click_targets[first] = ""
    racks_ = views.rack_lines(state, left)
    if len(racks_) > max(body // 4, body - len(state.rows) - 2):
        racks_ = []
    visible, hidden_machines = _visible_rows(state, body - len(racks_))
    for row in visible:
        state.click_targets[first + len(lines)] = row[0].name
        lines.append(views.row(state, table, *row))
    if hidden_machines:
        lines.append(views.out_of_sight(state, hidden_machines, left))
    elif state.machines and body > len(lines) + len(racks_):
        order = f" Order: {state.choice.order}, no answer first; rows move every 10 s or on a key"
        lines.append(plain_line((fit(order, left), "dim")))
    elif not state.machines:
        text = " no machine matches the filter" if state.choice.filter else " no machine yet"
        lines.append(plain_line((text, "dim")))
    lines += racks_
    room = body - len(lines)
    if state.selected is not None and room >= MIN_CHART:
        chart_height = min(room - 2, MAX_CHART)
        lines += [BLANK, *detail_chart(state, state.selected, left - 1, chart_height)]
    lines += [BLANK] * (body - len(lines))
    return _side_by_side(lines, right_side(state, body - 1, right), left) if right else lines


def _side_by_side(left: list[Line], right: list[Line], size: int) -> list[Line]:
    """Returns lines that join two columns with a rule between them. The mood of a line is that of
    its left part."""
    lines: list[Line] = []
    for (runs, mood), (more, _) in zip(left, [*right, *[BLANK] * len(left)], strict=False):
        lines.append(([*runs, (" " * (size - width(runs)), "text"), (" │ ", "rule"), *more], mood))
    return lines


def _heat_lines(state: FleetState, body: int, _: int) -> list[Line]:
    """Returns the heat map, and below it details of the selected machine if there is room."""
    machine = state.selected
    detail_lines = int(body > 8)
    if body >= 26 and machine is not None:
        detail_lines = min(16, body // 3)
    lines = views.heat(state, body - detail_lines)
    if machine is None or not detail_lines:
        return lines
    numbers = detail_numbers(state, machine)
    if detail_lines == 1:
        return [*lines[:-1], numbers, BLANK][:body]
    detail_width = state.width // 2 if state.width >= 110 else state.width
    plot = detail_chart(state, machine, detail_width - 2, detail_lines - 2)
    if state.width >= 110:
        room = state.width - detail_width - 2
        episodes = ended_episodes(state, detail_lines - 3, room, brief=False)
        plot = _side_by_side(plot, episodes, detail_width - 2)
    return [*lines, numbers, *plot]


def _time_lines(state: FleetState, body: int, first: int) -> list[Line]:
    lines = views.time_heads(state)
    visible, hidden_machines = _visible_rows(state, body - 1)
    for (machine,) in visible:
        state.click_targets[first + len(lines)] = machine.name
        lines.append(views.time_row(state, machine))
    if hidden_machines:
        lines.append(views.out_of_sight(state, hidden_machines, state.width))
    return lines


def _episode_lines(state: FleetState, body: int, _: int) -> list[Line]:
    lines = ended_episodes(state, body - 1, state.width - 2, brief=False)
    return [plain_line((" ", "text"), *runs) for runs, _ in lines]


NUMBERS = (
    ("lost %", "share of the time that tasks wanted and did not get: waits, clock, halts, steal"),
    *((FIELDS[key].name(GHZ), FIELDS[key].help) for key in ("below", "both", "involuntary")),
    ("▼ ≁", "running episodes; samples in which a counter was doubted"),
    ("age s", "since the newest numbers came; all times are of their arrival here"),
    ("○", "does not answer, and why"),
    ("numbers", "cover ten seconds, or what the server was asked for"),
)
"""Numbers and signs, with their meaning, for the help."""


def grid_of(state: FleetState) -> views.Grid:
    """Returns the grid in which the cursor moves."""
    return views.grid(
        state.machines or list(state.fleet.machines.values()), state.width, state.height - 12
    )


# --- Parts of the fleet's screen beside and below the table and the heat map: the episodes of all
# machines, and details of the selected machine.

SPAN_S = 1800.0
"""Time covered by the chart of machines below their ceiling, in seconds."""
CHART_LINES = 4
"""Lines of the bars in the chart of machines below their ceiling."""
MIN_LINES_FOR_CHART = 24
"""Minimum lines of the right side for the chart of machines below their ceiling."""
MAX_NAMES = 8
_NUMBERS = {"lost": "lost ", "busy": "busy ", "clock_hz": "", "below": "below ", "both": "both ",
            "involuntary": "inv ", "steal": "steal ", "power_w": ""}  # fmt: skip
"""Labels of the selected machine's numbers in one line, by key, the most important first."""


def right_side(state: FleetState, height: int, width: int) -> list[Line]:
    """Returns the right side of the screen, in exactly `height` lines."""
    selected_lines = _selected_machine(state, width)
    lines = [*below_ceiling(state, width), BLANK] if height >= MIN_LINES_FOR_CHART else []
    room = height - len(lines) + bool(lines) - len(selected_lines) - 3
    lines += ended_episodes(state, max(3, room), width, brief=True)
    lines = [*lines[: max(0, height - len(selected_lines) - 1)], BLANK, *selected_lines]
    return [*lines, *[BLANK] * height][:height]


def below_ceiling(state: FleetState, width: int) -> list[Line]:
    """Returns a chart of the number of machines below their ceiling over the last half hour."""
    cells = width - 5
    counts = state.matching.below_ceiling_counts(cells, state.now, SPAN_S)
    top, last_count = max(5.0, *counts), int(counts[-1])
    count_now: list[Run] = [("now ", "dim"), (str(last_count), "alarm" if last_count else "text")]
    lines = [plain_line(*spread([("machines below ceiling", "dim")], count_now, width))]
    area = charts.area(np.array(counts) / top, CHART_LINES, "loss", ascii_=state.ascii)
    marks = f"{top:.0f}", *[""] * (CHART_LINES - 2), "0"
    for mark, runs in zip(marks, area.lines(), strict=True):
        lines.append(plain_line((f"{mark:>4} ", "faint"), *runs))
    return [*lines, *words.axis_lines(state.now, SPAN_S, cells, left=5)]


def ended_episodes(state: FleetState, max_episodes: int, width: int, *, brief: bool) -> list[Line]:
    """Returns a title, and lines with episodes of all machines, the newest first. `brief`: without
    evidence."""
    fleet, count = state.matching, len(state.machines)
    whose = "all machines" if fleet is state.fleet else count_noun(count, "machine")
    title = spread([(f"episodes of {whose}", "dim")], [("length", "dim")], width)
    episodes = fleet.newest_episodes(max_episodes)
    lines = [plain_line(*_episode(state, episode, width, brief=brief)) for episode in episodes]
    return [plain_line(*title), *(lines or [plain_line(("none so far", "faint"))])]


def _episode(state: FleetState, episode: SharedEpisode, width: int, *, brief: bool) -> list[Run]:
    style = "text" if episode.end is None else "faint"
    length = words.span_text((state.now if episode.end is None else episode.end) - episode.start)
    name = words.place_text(episode, len(state.matching.machines))
    room = width - 11 - len(length) - 1
    if brief:
        name_width = min(max(len(name), 7), room - 4)
        text = f"{fit(name, name_width)} {words.short_cause(episode.kind, episode.cause)}"
    else:
        is_shared = len(episode.machines) > 1
        names = [", ".join(episode.machines[:MAX_NAMES])] if is_shared else []
        cause = ", ".join(
            filter(None, [words.cause_name(episode.kind, episode.cause), words.depth_text(episode)])
        )
        text = f"{fit(name, min(24, max(10, room // 4)))} {safe_cells(' · '.join([cause, *names]))}"
    left: list[Run] = [
        (f"{time_of_day(episode.start)} ", style),
        (words.episode_sign(episode.kind), "alarm" if episode.end is None else "dim"),
        (f" {fit(text, room)}", style),
    ]
    return spread(left, [(length, style)], width)


# --- the selected machine


def _selected_machine(state: FleetState, width: int) -> list[Line]:
    """Returns lines about the selected machine; an empty list if no machine is selected."""
    machine = state.selected
    if machine is None:
        return []
    name = fit(safe_cells(machine.name), width - 10).rstrip()
    cores = f", {machine.core_count} cores" if machine.core_count else ""
    model = safe_cells(machine.model or "model unknown")
    model = fit(model, width - len(cores)).rstrip() + cores if cores else model
    lines = [plain_line(*spread([(name, "bright")], [("selected", "dim")], width)),
             plain_line((fit(model, width), "dim"))]  # fmt: skip
    states = {key: machine.numbers[key] for key in ("neither", "lp0", "lp1", "both")}
    if all(map(isfinite, states.values())):
        runs: list[Run] = []
        for key in ("both", "lp0", "lp1", "neither"):
            runs += [(f"{key} ", "dim"), (f"{100 * states[key]:.0f} ", "text")]
        lines += [plain_line(*smt([*states.values()], width)), plain_line(*runs)]
    for episode in [episode for episode in machine.running if episode.is_wrong][:2]:
        since_text = f" since {words.since_text(episode.start, state.now)}"
        cause: Run = (words.cause_name(*episode.group), "text")
        lines.append(
            plain_line(
                (f"{words.episode_sign(episode.kind)} ", "alarm"), cause, (since_text, "dim")
            )
        )
    share = f"{100 * machine.probe_share:.2f} % of a CPU" if isfinite(machine.probe_share) else ""
    version = f"perfprobe {machine.version}" if machine.version else ""
    for key, text in ("runs", machine.tasks), ("probe", ", ".join(filter(None, (version, share)))):
        if text:
            lines.append(
                plain_line((f"{key:<6}", "dim"), (fit(safe_cells(text), width - 6), "text"))
            )
    if not machine.answers:
        lines.append(plain_line((fit(words.silence_text(machine, state.now), width), "alarm")))
    return lines


def detail_numbers(state: FleetState, machine: Machine) -> Line:
    """Returns a line with the numbers of the selected machine."""
    name: list[Run] = [(f" {safe_cells(machine.name)}", "bright")]
    if not machine.answers:
        reason = fit(
            words.silence_text(machine, state.now), state.width - len(machine.name) - 6
        ).rstrip()
        return [*name, ("  ", "text"), (reason, "alarm")], "chosen"
    pieces: list[Piece] = [(0, name)]
    for rank, (key, label) in enumerate(_NUMBERS.items(), 1):
        value = machine.numbers[key]
        if not isfinite(value):
            continue
        style = "alarm" if key == "lost" and value >= MIN_LOSS else "text"
        runs = words.named_number(label, key, machine.numbers, style)
        if key == "below" and machine.cause[0]:
            runs.append((f": {words.cause_name(*machine.cause)}", "dim"))
        pieces.append((rank, runs))
    age: list[Run] = [("age ", "dim"), (words.span_text(state.now - machine.updated), "text")]
    return fit_line([*pieces, (2, age)], state.width - 1, 2), "chosen"


def detail_chart(state: FleetState, machine: Machine, width: int, height: int) -> list[Line]:
    """Returns a chart of a machine's clock below its ceiling over time; if the clock is unknown, a
    chart of the share of time that the machine lost."""
    cells, rows = width - 6, max(1, height - 3)
    hz, ceilings = (
        np.array(machine.past.series(key, 2 * cells, state.now))
        for key in ("clock_hz", "ceiling_hz")
    )
    if np.isfinite(hz).any():
        key, name = "clock_hz", "clock under the ceiling that turbo allows"
        known_hz = np.concatenate([hz, ceilings])
        low, high = floor(np.nanmin(known_hz) / 1e9) * 1e9, ceil(np.nanmax(known_hz) / 1e9) * 1e9
        columns = np.stack([hz, ceilings, _gap_states(state, machine, len(hz))], axis=1)
        area = rows_of(charts.clock_area(columns, (low, high), rows, state.look))
        area = charts.with_gap_numbers(area, np.nan_to_num(ceilings - hz)[1::2] / 1e9)
    else:
        key, name, low = "lost", "lost", 0.0
        lost = np.array(machine.past.series(key, cells, state.now))
        if not np.isfinite(lost).any():
            return [plain_line((" no past yet", "faint")), *[BLANK] * (height - 1)]
        high = max(float(np.nanmax(lost)), MIN_LOSS)
        area = charts.area(lost / high, rows, "loss", ascii_=state.ascii).lines()
    title = f" {words.unit_name(key):<5}{name} · {safe_cells(machine.name)}"
    lines = [plain_line((fit(title, width), "dim"))]
    for y, runs in enumerate(area):
        end = high if not y else low if y == rows - 1 else nan
        mark = amount_text(key, end) if isfinite(end) else ""
        lines.append(plain_line((f"{mark:>5} ", "faint"), *runs))
    return [*lines, *words.axis_lines(state.now, PAST_S, cells, left=6)][:height]


def _gap_states(state: FleetState, machine: Machine, columns: int) -> Floats:
    """Returns the state of each column of a clock's chart: which episode lowers the clock."""
    states, column_s = np.zeros(columns), PAST_S / columns
    for episode in (*machine.ended, *machine.running):
        if KINDS.get(episode.kind, UNKNOWN_KIND).costs_cycles:
            first_state = charts.LOSING if episode.end is None else charts.ENDED_GAP
            gap = charts.GAP_CAUSES.index(gap_cause(episode.kind, episode.cause))
            ends = (episode.start, episode.end or state.now)
            first, last = (columns - int((state.now - end) / column_s) for end in ends)
            states[max(0, first - 1) : max(0, last)] = first_state + gap
    return states
