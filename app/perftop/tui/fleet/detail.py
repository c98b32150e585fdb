"""Parts of the fleet's screen beside and below the table and the heat map: the episodes of all
machines, and details of the selected machine."""

from __future__ import annotations

from math import isfinite, nan

import numpy as np

from perftop.base.text import count_noun, time_of_day
from perftop.draw import cells as braille
from perftop.draw import theme
from perftop.draw.cells import smt
from perftop.draw.columns import Run, fit
from perftop.draw.strips import BLANK, Line, Piece, fit_line, safe_cells, spread
from perftop.session.fleet import SharedEpisode
from perftop.session.fleet_machine import PAST_S, Machine
from perftop.tui.fleet import words
from perftop.tui.fleet.words import MIN_LOSS, FleetState, amount_text, plain_line

SPAN_S = 1800.0
"""Time covered by the chart of machines below their ceiling, in seconds."""
MIN_SHARE_OF_MACHINES = 0.05
"""Share of all machines from which the bars of machines below their ceiling are red."""
CHART_LINES = 4
"""Lines of the bars in the chart of machines below their ceiling."""
MIN_LINES_FOR_CHART = 24
"""Minimum lines of the right side for the chart of machines below their ceiling."""
MAX_NAMES = 8
LOW_CLOCK_SHARE = 0.95
"""Share of the ceiling below which a clock is red."""
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
    for y in range(CHART_LINES):
        label = f"{top:.0f}" if not y else "0" if y == CHART_LINES - 1 else ""
        runs: list[Run] = [(f"{label:>4} ", "faint")]
        for count in counts:
            eighths = round(8 * CHART_LINES * count / top) - 8 * (CHART_LINES - 1 - y)
            is_many = count >= max(3, MIN_SHARE_OF_MACHINES * len(state.machines))
            style = ("loss-3" if eighths > 8 else "alarm") if is_many else "kernel-5"
            runs.append((theme.LEVELS[max(0, min(8, eighths))], style))
        lines.append(plain_line(*runs))
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
    """Returns a chart of a machine's clock and its ceiling over time; if the clock is unknown, a
    chart of the share of time that the machine lost."""
    cells = width - 6
    series = machine.past.series("clock_hz", 2 * cells, state.now)
    has_clock = any(map(isfinite, series))
    key, ceilings = ("clock_hz", machine.past.series("ceiling_hz", cells, state.now))
    if not has_clock:
        key, ceilings = "lost", [nan] * cells
        series = machine.past.series(key, 2 * cells, state.now)
    values = np.array(series)
    known_values = values[np.isfinite(values)]
    if not len(known_values):
        return [plain_line((" no past yet", "faint")), *[BLANK] * (height - 1)]
    high = max([hz for hz in ceilings if isfinite(hz)] + [float(known_values.max())])
    low = min(float(known_values.min()) * 0.98, high * 0.9) if has_clock else 0.0
    high = high if high > low else low + 1.0
    name = "clock, and the ceiling that turbo allows" if has_clock else "lost"
    title = f" {words.unit_name(key):<5}{name} · {safe_cells(machine.name)}"
    lines = [plain_line((fit(title, width), "dim"))]
    chart_height = max(1, height - 3)
    codes = braille.codes(
        braille.line(values, low, high, braille.CELL_DOT_ROWS * chart_height, thickness=2)
    )
    with np.errstate(invalid="ignore"):
        is_low = np.fmin.reduce(values.reshape(-1, 2), axis=1) < LOW_CLOCK_SHARE * np.array(
            ceilings
        )
    for y in range(chart_height):
        edge_value = high if not y else low if y == chart_height - 1 else nan
        runs: list[Run] = [
            (f"{amount_text(key, edge_value) if isfinite(edge_value) else '':>5} ", "faint")
        ]
        for x, code in enumerate(codes[y].tolist()):
            if chr(code) == " " and not y and isfinite(ceilings[x]):
                runs.append((theme.LIMIT, "dim"))
            else:
                runs.append((chr(code), "alarm" if is_low[x] else "clock"))
        lines.append(plain_line(*runs))
    return [*lines, *words.axis_lines(state.now, PAST_S, cells, left=6)][:height]
