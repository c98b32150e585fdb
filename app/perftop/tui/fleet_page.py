"""Draws the fleet's screen at a given size. From top to bottom: the source, the verdict on all
machines, their totals, one of the views, the selected machine and the episodes of all machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from math import isfinite, nan

import numpy as np

from perftop.base.text import GHZ, count_noun, cut, fit, long_duration, percent, time_of_day
from perftop.draw import charts, columns, strips, theme
from perftop.draw.charts import chart_lines
from perftop.draw.columns import Run
from perftop.draw.strips import BLANK, Line, Piece, fit_line, justify, safe_cells, width
from perftop.model.kinds import cause_of, kind_of_cause
from perftop.session.fleet import SharedEpisode, racks
from perftop.session.fleet_machine import FIELDS, MIN_LOSS, PAST_S, ROW_SPAN_S, Machine, Numbers
from perftop.session.losses import WAIT_CAUSE, CauseKey
from perftop.tui import fleet_state, fleet_views
from perftop.tui.fleet_state import FleetState, plain_line
from perftop.tui.shared import time_axis
from perftop.tui.shared.episode_style import marker, severity_style
from perftop.tui.shared.time_axis import Axis
from perftop.tui.shared.verdict import (
    CALM_SIGN,
    HISTORY_CELLS,
    MIN_ALARM_SHARE,
    MIN_WARNING_SHARE,
    Loss,
    Verdict,
    loss_line,
    verdict_line,
)

MIN_WIDTH_FOR_HALVES = 110
"""Minimum width of the screen, in cells, to show the lower part in two halves."""
MIN_HEIGHT_FOR_TOTALS, MIN_HEIGHT_FOR_GAPS = 30, 50
"""Minimum lines of the screen to show the totals, and blank lines around the verdict."""
MIN_CHART_LINES, MAX_CHART_LINES = 6, 22
MIN_HEIGHT_FOR_DETAILS, MAX_DETAIL_LINES = 26, 18
"""Minimum lines of the view to show a chart below a heat map, and maximum lines below it."""
DETAIL_LINES = 6
"""Lines of the selected machine, with a blank one."""
MAX_NAMED_MACHINES = 6
_NUMBERS = (("lost", "lost", 0), ("busy", "busy", 1), ("clock_hz", "clock", 2),
            ("below", "below ceiling", 3), ("both", "both", 5), ("involuntary", "involuntary", 6),
            ("steal", "steal", 4), ("power_w", "power", 7))  # fmt: skip
"""Numbers of a machine: key, name, and rank. Those of the highest rank are left out first."""


def fleet_page_lines(state: FleetState) -> list[Line]:
    """Returns the lines of the screen, except the last one, which shows the keys. Also updates
    `state.running_episodes` and `state.click_targets`."""
    state.running_episodes = state.fleet.running()
    height = state.height
    gap = [BLANK] * (height >= MIN_HEIGHT_FOR_GAPS)
    verdict = fleet_verdict(state)
    names = ("try", "why") if state.selected_machine else ()
    keys: list[Piece] = [
        (rank, [(state.captions[name], "key"), (f" {name}", "dim")])
        for rank, name in enumerate(names)
    ]
    losses = loss_line(verdict, state.width, keys, state.glyphs)
    lines = [header_line(state), *gap, verdict_line(verdict, state.width), losses, *gap]
    if height >= MIN_HEIGHT_FOR_TOTALS:
        pieces = _number_pieces({**state.fleet.totals(), "lost": nan})  # the verdict shows this one
        lines += [plain_line((" ", "text"), *fit_line(pieces, state.width - 2, 3)), BLANK]
    room = height - len(lines) - 1
    match state.view:
        case "machines":
            lines += _row_lines(state, room, len(lines))
        case "heat":
            detail_lines = 4 * (room > 12)
            if room >= MIN_HEIGHT_FOR_DETAILS:
                detail_lines = min(MAX_DETAIL_LINES, room * 3 // 10)
            heat_lines = fleet_views.heat_lines(state, room - detail_lines)
            lines += [*heat_lines, *_detail_lines(state, [], room - len(heat_lines))]
        case _:
            episodes = newest_episode_lines(state, room - 1, state.width - 2)
            lines += [plain_line((" ", "text"), *runs) for runs, _ in episodes]
    return [*lines[: height - 1], *[BLANK] * (height - 1 - len(lines))]


# --- the top


def header_line(state: FleetState) -> Line:
    """Returns the first line: source, number of answering machines, cost of monitoring, time."""
    fleet = state.fleet
    connecting = sum(m.why == "connecting" for m in fleet.silent_machines)
    silent_count = len(fleet.silent_machines) - connecting
    left_runs: list[Run] = [(" perftop", "key"), ("  fleet", "bright"), ("  ", "text")]
    left_runs += [(f"{count_noun(len(fleet.machines), 'machine')} ", "text"), (state.origin, "dim")]
    left_runs.append((f"  {len(fleet.answering_machines)} answer", "text"))
    left_runs += [(f"  {connecting} connecting", "dim")] if connecting else []
    verb = "does" if silent_count == 1 else "do"
    left_runs += [(f"  {silent_count} {verb} not", "alarm")] if silent_count else []
    left_runs += [("  ", "text"), (f" {state.pause_text} ", "paused")] if state.pause_text else []
    if width(left_runs) > state.width:
        left_runs = [run for run in left_runs if run != (state.origin, "dim")]
    facts: list[Piece] = [(rank, [(fact, "dim")]) for rank, fact in enumerate(state.facts, 1)]
    facts.append((0, [(time_of_day(state.now), "text")]))
    right_runs = fit_line(facts, state.width - width(left_runs) - 3, 3)
    return plain_line(*justify(left_runs, [*right_runs, (" ", "text")], state.width))


def fleet_verdict(state: FleetState) -> Verdict:
    """Returns the verdict on all machines: the costliest cause and its machines. Its severity
    depends on the machine that loses most."""
    fleet = state.fleet
    by_cause: dict[CauseKey, list[Machine]] = {}
    for machine in fleet.answering_machines:
        if machine.cause[0]:
            by_cause.setdefault(machine.cause, []).append(machine)
    costs = {cause: _sum_lost_and_busy(machines, cause) for cause, machines in by_cause.items()}
    causes = sorted(costs, key=lambda cause: -costs[cause][0])
    lost, busy = _sum_lost_and_busy(fleet.answering_machines)
    losses: list[Loss] = []
    for cause in causes:
        share, marker = costs[cause][0] / max(busy, 1e-9), kind_of_cause(*cause).marker
        losses.append(Loss(share, marker, fleet_state.short_cause(cause)))
    other_share = lost / max(busy, 1e-9) - sum(loss.share for loss in losses)
    losses += [Loss(other_share, theme.NEITHER, "others")] if other_share > 0 else []
    silence = _silence_sentence(state)
    if state.problem:
        text, pieces = state.problem, silence
        sign, severity = fleet_state.SILENT_SIGN, MIN_ALARM_SHARE
    elif causes and (losses[0].share >= MIN_LOSS or not silence):
        cause, machines = causes[0], by_cause[causes[0]]
        text = _cause_sentence(state, cause, machines, *costs[cause])
        episodes = [e for e in state.running_episodes if (e.kind, e.cause) == cause]
        pieces = [f"since {time_of_day(min(e.start for e in episodes))}"] if episodes else []
        if episodes and kind_of_cause(*cause).depth == "hz":  # the sentence states all other depths
            pieces.append(fleet_state.depth_text(episodes[0]))
        pieces = [piece for piece in (*pieces, _place_text(state, machines)) if piece]
        pieces += silence[:1]
        sign = kind_of_cause(*cause).marker
        severity = max(float(np.nan_to_num(m.numbers["lost"])) for m in machines)
    elif silence:
        (text, *pieces), sign, severity = silence, fleet_state.SILENT_SIGN, MIN_WARNING_SHARE
    else:
        text = "No machine is losing time to a known cause"
        pieces, sign, severity = [], CALM_SIGN, 0.0
        if not fleet.answering_machines:
            text, sign = "No machine answers yet", theme.NEITHER
    histories = (machine.history for machine in fleet.answering_machines)
    loss_series = [history.series(HISTORY_CELLS, state.now) for history in histories]
    shares = np.array(loss_series).reshape(-1, HISTORY_CELLS)
    counts = np.isfinite(shares).sum(axis=0)
    strip = np.where(counts, np.nan_to_num(shares).sum(axis=0) / np.maximum(counts, 1), nan)
    loss_history = tuple(strip.tolist())
    verdict = Verdict(text, tuple(pieces), sign, severity, losses=tuple(losses))
    return replace(verdict, wanted_s=busy or nan, span_s=ROW_SPAN_S, loss_history=loss_history)


def _sum_lost_and_busy(
    machines: Sequence[Machine], cause: CauseKey | None = None
) -> tuple[float, float]:
    """Returns the CPU time lost to a cause (None: to all) and the busy CPU time per second, summed
    over all machines whose losses are known."""
    lost_shares = [m.lost_to(cause) if cause else m.numbers["lost"] for m in machines]
    pairs = zip(lost_shares, (m.numbers["busy"] for m in machines), strict=True)
    known_pairs = [pair for pair in pairs if all(map(isfinite, pair))]
    return sum(lost * busy for lost, busy in known_pairs), sum(busy for _, busy in known_pairs)


def _cause_sentence(
    state: FleetState, cause: CauseKey, machines: Sequence[Machine], lost_s: float, busy_s: float
) -> str:
    count, amount = len(machines), f"{percent(lost_s / busy_s)} %" if busy_s else "an unknown share"
    place = machines[0].name if count == 1 else f"{count} of {len(state.fleet.machines)} machines"
    if cause == WAIT_CAUSE:
        return f"Tasks on {safe_cells(place)} wait {amount} of their time for a CPU"
    loss_text = f"{amount} of the time of {safe_cells(place)}"
    wordings = fleet_state.loss_wordings(cause, "takes", loss_text)
    return fleet_state.first_that_fits(wordings, state.width - 4)


def _place_text(state: FleetState, machines: Sequence[Machine]) -> str:
    """Returns where a cause occurs: the tasks of a single machine; for several machines, their
    racks if these are few and numbered, else the first names."""
    if len(machines) == 1:
        return safe_cells(machines[0].tasks)
    every_rack, hit_racks = racks([*state.fleet.machines.values()]), [*racks(machines)]
    has_numbers = all(rack[-1:].isdigit() for rack in hit_racks)
    if has_numbers and len(hit_racks) <= min(4, len(every_rack) // 2):
        return f"only {(' and ' if len(hit_racks) < 3 else ', ').join(hit_racks)}"
    names = ", ".join(machine.name for machine in machines[:MAX_NAMED_MACHINES])
    return safe_cells(names + (" …" if len(machines) > MAX_NAMED_MACHINES else ""))


def _silence_sentence(state: FleetState) -> list[str]:
    """Returns a sentence with the number and names of silent machines and the reason; [] if all
    answer."""
    machines = [m for m in state.fleet.silent_machines if m.why != "connecting"]
    if not machines:
        return []
    first = min(machines, key=lambda m: m.silent_since)
    since_text = f"since {time_of_day(first.silent_since)}"
    reason = fleet_state.silence_text(first, state.now)
    if len(machines) == 1:
        return [f"{safe_cells(first.name)} has not answered {since_text}", *reason.split(" · ")]
    text = f"{len(machines)} of {len(state.fleet.machines)} silent {since_text}"
    return [text, _place_text(state, machines), reason]


def _number_pieces(numbers: Numbers) -> list[Piece]:
    return [
        (rank, fleet_state.named_number(f"{name} ", key, numbers, "bright" if rank < 3 else "text"))
        for key, name, rank in _NUMBERS
        if isfinite(numbers[key])
    ]


# --- the views


def _row_lines(state: FleetState, view_height: int, first: int) -> list[Line]:
    """Returns the table and, if there is room, the racks and the selected machine."""
    table, size = fleet_views.table_columns(state), _half_width(state)
    name_room = next(column.room for column in table if column.key == "name")
    names = [machine.name for machine in state.machines]
    state.short_names = fleet_state.distinct_names(names, name_room)
    lines: list[Line] = [fleet_views.heading_line(state, table)]
    state.click_targets[first] = ""
    rack_cells = fleet_views.rack_lines(state, size or state.width - 1)
    view_height -= 1  # the last line describes the order
    needed_lines = len(rack_cells) + (0 if size else DETAIL_LINES)
    if needed_lines > max(view_height // 4, view_height - len(state.rows) - 1):
        rack_cells = []
    room, rows = view_height - len(rack_cells) - 2, state.rows
    if len(rows) <= room + 1:
        state.first_row, room = 0, len(rows)
    else:  # scroll to the selected row
        index = next((i for i, (m, *_) in enumerate(rows) if m.name == state.selected_name), 0)
        state.first_row = min(state.first_row, index, len(rows) - room)
        state.first_row = max(state.first_row, index - room + 1)
    end = state.first_row + room
    for row in rows[state.first_row : end]:
        state.click_targets[first + len(lines)] = row[0].name
        lines.append(fleet_views.machine_line(state, table, *row))
    hidden_rows = *rows[: state.first_row], *rows[end:]
    if hidden_machines := [machine for row in hidden_rows for machine in row]:
        lines.append(fleet_views.hidden_machines_line(state, hidden_machines))
    elif not state.machines:
        text = " no machine matches the filter" if state.selection.filter else " no machine yet"
        lines.append(plain_line((text, "dim")))
    lines += _detail_lines(state, rack_cells, view_height - len(lines))
    order, is_reversed = state.selection.order, state.selection.reverse
    order_text = " Worst first, by " if order == "lost" and not is_reversed else " By "
    order_note = "; no answer first; rows move every 10 s or on a key"
    arrow = columns.RISING if is_reversed else columns.FALLING
    order_line = plain_line((order_text, "dim"), (f"{order} {arrow}", "text"), (order_note, "dim"))
    return [*lines, order_line]


_EXPLAINED = frozenset({"lost", "below", "both", "involuntary"})
"""Keys of the numbers that the help explains."""
NUMBER_HELP = (
    *((number.name(GHZ), number.help) for key, number in FIELDS.items() if key in _EXPLAINED),
    ("▼ ≁", "Running episodes; samples with a suspect counter."),
    ("age s", "Age of the newest numbers, counted from their arrival here."),
    ("○", "The machine does not answer; its row has the reason."),
    ("numbers", "Averages over ten seconds, or over the span of the query to the server."),
)
"""Meaning of numbers and markers, for the help."""


# --- below a view: the selected machine, and the episodes of all machines

MAX_NAMES, MAX_LENGTH_WIDTH = 8, 13
"""Maximum number of names of machines, and cells for the length of an episode."""


def _half_width(state: FleetState) -> int:
    """Returns the width of the left half of the lower part; 0 if there are no halves."""
    return state.width // 2 if state.width >= MIN_WIDTH_FOR_HALVES else 0


def _detail_lines(state: FleetState, rack_cells: list[Line], room: int) -> list[Line]:
    """Returns `room` lines: the racks, the selected machine and, if there is room, its chart and
    the episodes of all machines. On a wide screen they are side by side."""
    machine, half_width = state.selected_machine, _half_width(state)
    if machine is None or room < 2:
        return (rack_cells + [BLANK] * room)[:room]
    left_width = half_width if half_width and rack_cells else 0
    selected_lines = [BLANK, *_selected_machine_lines(state, machine, state.width - left_width - 2)]
    if left_width:
        lines = _join_halves(rack_cells, selected_lines, left_width)
    else:
        lines = [*rack_cells, *(plain_line((" ", "text"), *runs) for runs, _ in selected_lines)]
    if (height := min(room - len(lines) - 1, MAX_CHART_LINES)) >= MIN_CHART_LINES:
        chart = loss_chart_lines(state, machine, (half_width or state.width) - 2, height)
        if half_width:
            episodes = newest_episode_lines(state, height - 1, state.width - half_width - 2)
            chart = _join_halves(chart, episodes, half_width)
        lines += [BLANK, *chart]
    return [*lines[:room], *[BLANK] * (room - len(lines))]


def _join_halves(left: list[Line], right: list[Line], size: int) -> list[Line]:
    pairs = zip_longest(left, right, fillvalue=BLANK)
    return [plain_line(*a, (" " * (size - width(a)), "text"), *b) for (a, _), (b, _) in pairs]


def _selected_machine_lines(state: FleetState, machine: Machine, size: int) -> list[Line]:
    cores = count_noun(machine.core_count, "core") if machine.core_count else ""
    hardware_text = ", ".join(filter(None, (safe_cells(machine.model), cores)))
    lines = [strips.panel_title(safe_cells(machine.name), hardware_text, size)]
    sign = fleet_state.worst_marker(machine)
    if not machine.is_answering:
        text, since_s = fleet_state.silence_text(machine, state.now), machine.silent_since
    else:
        text, since_s = fleet_state.machine_verdict(machine, size - 2)
    since_text = f"since {time_of_day(since_s)}" if isfinite(since_s) else ""
    sentence: list[Piece] = [(0, [(fit(text, min(len(text), size - 2)), "text")])]
    sentence += [(1, [(since_text, "dim")])] if since_text else []
    lines.append([sign, (" ", "text"), *fit_line(sentence, size - 2, 2)])
    pieces = _number_pieces(machine.numbers)
    if machine.is_answering:
        age_text = long_duration(round(1e9 * (state.now - machine.updated_at)))
        pieces += _fact_pieces(2, "age", age_text)
    lines.append([("  ", "text"), *fit_line(pieces, size - 2, 2)])
    share = f"{100 * machine.probe_share:.2f} % of a CPU" if isfinite(machine.probe_share) else ""
    version = f"perfprobe {machine.version}" if machine.version else ""
    probe_text = ", ".join(filter(None, (version, share)))
    facts = [*_fact_pieces(0, "runs", machine.tasks), *_fact_pieces(1, "probe", probe_text)]
    lines.append([("  ", "text"), *fit_line(facts, size - 2, 3)])
    if remedy := cause_of(machine.cause[1]).remedy if machine.cause[0] else "":
        key: list[Run] = [("  ", "text"), (state.captions["try"], "key"), (" copy", "dim")]
        text = cut(remedy, size - 6 - width(key))
        lines.append(justify([("  try ", "dim"), (text, "key")], key, size))
    return [plain_line(*runs) for runs in lines]


def _fact_pieces(rank: int, name: str, text: str) -> list[Piece]:
    """Returns a named text as a part of a line; [] if there is no text."""
    return [(rank, [(f"{name} ", "dim"), (safe_cells(text), "text")])] if text else []


def newest_episode_lines(state: FleetState, max_episodes: int, size: int) -> list[Line]:
    fleet, count = state.matching_fleet, len(state.machines)
    scope = "all machines" if fleet is state.fleet else count_noun(count, "machine")
    title = justify([(f"episodes of {scope}", "dim")], [("length", "dim")], size)
    lines = [
        plain_line(*_episode_runs(state, e, size)) for e in fleet.newest_episodes(max_episodes)
    ]
    return [plain_line(*title), *(lines or [plain_line(("none so far", "faint"))])]


def _episode_runs(state: FleetState, episode: SharedEpisode, size: int) -> list[Run]:
    style = "text" if episode.end is None else "faint"
    end = state.now if episode.end is None else episode.end
    length = long_duration(round(1e9 * (end - episode.start)))
    room, count = size - 11 - MAX_LENGTH_WIDTH, len(episode.machines)
    name = f"{count} of {len(state.matching_fleet.machines)}"
    if count == 1:
        name = safe_cells(episode.machines[0])
    names = [", ".join(episode.machines[:MAX_NAMES])] if count > 1 else []
    cause = fleet_state.cause_name((episode.kind, episode.cause)), fleet_state.depth_text(episode)
    description = safe_cells(" · ".join([", ".join(filter(None, cause)), *names]))
    text = f"{fit(name, min(24, max(10, room // 4)))} {description}"
    left_runs = [
        (f"{time_of_day(episode.start)} ", style),
        (marker(episode), severity_style(episode) if episode.end is None else "dim"),
        (f" {fit(text, room)}", style),
    ]
    return justify(left_runs, [(length, style)], size)


def loss_chart_lines(state: FleetState, machine: Machine, width: int, height: int) -> list[Line]:
    """Returns a chart of the share of time that a machine has lost in the last PAST_S."""
    left_width, rows = 6, max(1, height - 3)
    cells = width - left_width
    lost_shares = np.array(machine.history.series(cells, state.now))
    high = max(float(np.nan_to_num(lost_shares).max()), MIN_LOSS)
    lines = [plain_line((fit(f" %    lost · {safe_cells(machine.name)}", width), "dim"))]
    area = charts.area_chart(lost_shares / high, rows, "loss", ascii_=state.ascii)
    for y, runs in enumerate(chart_lines(area)):
        mark = fleet_state.amount_text("lost", 0.0 if y else high) if y in {0, rows - 1} else ""
        lines.append(plain_line((f"{mark:>5} ", "faint"), *runs))
    now_ns, bin_ns = round(state.now * 1e9), round(PAST_S * 1e9 / cells)
    axis = Axis((now_ns // bin_ns + 1) * bin_ns, bin_ns, cells, now_ns)
    ticks = time_axis.ticks(axis, lambda unix_ns: unix_ns / 1e9)
    axis_lines = time_axis.tick_line(axis, (), ticks), time_axis.times_line(axis, ticks)
    lines += [plain_line((" " * left_width, "text"), *runs) for runs in axis_lines]
    return lines[:height]
