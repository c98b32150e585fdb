"""The views of a fleet: a table with a row for each machine, and a heat map of one number with a
cell for each machine. Only the width decides which columns the table has, so that columns do not
move when values change. If the machines' names contain racks, each rack is a column of the heat
map; otherwise the machines form one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite

import numpy as np

from perftop.base.text import GHZ, MISSING
from perftop.draw import columns, theme
from perftop.draw.columns import DOUBTED_SIGN, Cell, Column, Run, fit, number_run
from perftop.draw.strips import BLANK, Line, justify, level_cell, panel_title, safe_cells, width
from perftop.session.fleet import natural_sort_key, racks
from perftop.session.fleet_machine import FIELDS, MIN_LOSS, Machine, mean_numbers
from perftop.tui.fleet import fleet_state
from perftop.tui.fleet.fleet_state import (
    MIN_LABEL_WIDTH,
    FleetState,
    MachineGrid,
    amount_text,
    number_cell,
    plain_line,
    unit_name,
)
from perftop.tui.shared.row_numbers import Scale

NAME_WIDTHS = 9, 24
"""Minimum and maximum width of a machine's name, in cells."""
MAX_AGE_S = 3.0
"""Numbers older than this many seconds plus two intervals of the source have their age
highlighted."""
COLUMNS = (
    Column("lost", "lost %", 7, gap=1),
    Column("busy", "busy %", 7, gap=1),
    Column("past", "10 min", 13, is_left=True, gap=2, rank=5, max_width=22, growth_rank=2),
    Column("clock_hz", "GHz", 7, gap=1),
    Column("cause", "verdict", 46, is_left=True, gap=2, rank=1, max_width=90, growth_rank=1),
    Column("since", "since", 10, rank=3),
    Column("suspects", DOUBTED_SIGN, 2, gap=1, rank=6),
    Column("age", "age s", 6, gap=1, rank=4),
)
Table = list[Column]


def table_columns(state: FleetState) -> Table:
    """Returns the columns that fit: marker, name, and as many others as possible."""
    min_width, max_width = NAME_WIDTHS
    longest_name = max(map(len, state.fleet.machines), default=0)
    name = max(min_width, min(longest_name, max_width, state.width // 6))
    first = Column("sign", "", 2, gap=0), Column("name", "name", 1 + name, is_left=True, gap=1)
    return columns.fit_columns([*first, *COLUMNS], state.width - 1)


def machine_line(state: FleetState, table: Table, machine: Machine, *similar: Machine) -> Line:
    """Returns the row of a machine, or the row that it shares with similar ones."""
    if similar:
        return _similar_machines_row(table, (machine, *similar)), "calm"
    is_chosen = machine.name == state.selected_name
    marker, name, *other_columns = table
    mark = theme.SELECTED_SIGN if is_chosen else " "
    marks: list[Run] = [(mark, "key"), fleet_state.worst_marker(machine)]
    named = safe_cells(machine.name), "bright" if is_chosen else "text"
    runs = columns.join_columns((marker, name), (marks, named))
    if machine.is_answering:
        cells = [_cell(state, machine, column) for column in other_columns]
        runs += columns.join_columns(other_columns, cells)
    elif (text := fleet_state.silence_text(machine, state.now)) == "connecting":
        runs.append(("  connecting", "dim"))
    else:
        wait_text = f"  no answer for {fleet_state.span_text(state.now - machine.silent_since)}   "
        room = columns.total_width(other_columns) - len(wait_text)
        runs += [(wait_text, "alarm"), (fit(text, max(0, room)), "dim")]
    return runs, "chosen" if is_chosen else "calm"


def _similar_machines_row(table: Table, machines: Sequence[Machine]) -> list[Run]:
    """Returns the row that machines with one verdict share: their mean numbers, their names, and
    the range of their losses."""
    means = mean_numbers([machine.numbers for machine in machines])
    losses = [v for machine in machines if isfinite(v := machine.numbers["lost"])]
    ends = dict.fromkeys(f"{100 * end(losses):.0f}" for end in (min, max)) if losses else ()
    loss_text = f", {' to '.join(ends)} % lost" if ends else ""
    names = " ".join(machine.name for machine in machines)
    cells: list[Cell] = []
    for column in table:
        match column.key:
            case "sign":
                cells.append([(" ", "text"), (fleet_state.worst_marker(machines[0])[0], "dim")])
            case "name":
                cells.append((f"+{len(machines)} alike", "text"))
            case "cause":
                names = fit(safe_cells(names), min(len(names), column.room - len(loss_text) - 7))
                cells.append((f"alike: {names}{loss_text}", "dim"))
            case "lost" | "busy" | "clock_hz":
                cells.append((amount_text(column.key, means[column.key]), "dim"))
            case _:
                cells.append(("", "text"))
    return columns.join_columns(table, cells)


def _cell(state: FleetState, machine: Machine, column: Column) -> Cell:
    size = column.room
    match column.key:
        case "past":
            return [_loss_bar(share) for share in machine.history.series("lost", size, state.now)]
        case "cause":
            text, _ = fleet_state.machine_verdict(machine, size)
            return text, "text" if machine.cause[0] else "dim"
        case "since":
            since = fleet_state.machine_verdict(machine)[1]
            if not isfinite(since):
                return "", "text"
            return fleet_state.since_text(since, state.now), "alarm" if machine.cause[0] else "dim"
        case "suspects":
            return (DOUBTED_SIGN, "warn") if machine.suspect_count else (theme.NEITHER, "neither")
        case "age":
            age = max(0.0, state.now - machine.updated)
            text = f"{age:.1f}" if age < 100 else f"{age:.0f}"
            return text, "warn" if age > MAX_AGE_S + 2 * state.update_s else "dim"
    return number_cell(machine, column.key, size)


def _loss_bar(share: float) -> Run:
    """Returns a bar for a lost share. It is at most seven eighths high, so that rows do not
    touch."""
    if not isfinite(share):
        return " ", "text"
    style = "hot" if share >= 5 * MIN_LOSS else "warn" if share >= MIN_LOSS else "rule"
    return theme.LEVELS[max(1, min(7, round(share * 14)))], style


def hidden_machines_line(state: FleetState, hidden_machines: Sequence[Machine], width: int) -> Line:
    """Returns a line about the machines without a visible row: their number, the largest loss, and
    a cell for each machine, by rack."""
    text = f" {len(hidden_machines)} more rows"
    if known_losses := [v for m in hidden_machines if isfinite(v := m.numbers["lost"])]:
        loss_text = "none loses above" if max(known_losses) < MIN_LOSS else "the worst loses"
        text += f", {loss_text} {amount_text('lost', max(known_losses))} %"
    runs: list[Run] = [(text, "dim")]
    cells_left = width - len(text)
    for rack, machines in racks(hidden_machines).items():
        title = f"   {safe_cells(rack)} "
        if cells_left < len(title) + 1:
            break
        cells_left -= len(title)
        cells = [_machine_cell(state, machine) for machine in machines[:cells_left]]
        runs += [(title, "dim"), *cells]
        cells_left -= len(cells)
    return runs, "calm"


def _machine_cell(state: FleetState, machine: Machine) -> Run:
    """Returns a machine as one cell: its marker, or a block whose colour shows its loss."""
    marker, style = fleet_state.worst_marker(machine)
    if marker != " ":
        return marker, style
    value = machine.numbers["lost"]
    step = fleet_state.heat_scale(state, "lost").level(value)
    return "▄", f"heat{max(1, step)}" if value >= MIN_LOSS else "user-2"


def rack_lines(state: FleetState, width: int) -> list[Line]:
    """Returns a blank line, a title, and a line of cells for each rack, the worst machine first; no
    lines if there is only one rack, or too many machines for any screen."""
    by_rack = racks(state.machines) if len(state.machines) <= MAX_MACHINES_IN_RACKS else {}
    if len(by_rack) < 2:
        return []
    text_styles, scale = theme.letter_styles(state.theme), fleet_state.heat_scale(state, "lost")
    title = f"{len(state.machines)} machines by rack"
    heading = panel_title(title, "lost %, worst first", width - 2)
    lines = [BLANK, plain_line((" ", "text"), *heading)]
    name_width = max(map(len, by_rack))
    for rack, machines in by_rack.items():
        worst_first = sorted(machines, key=lambda m: -np.nan_to_num(m.numbers["lost"]))
        worst_first.sort(key=lambda m: m.is_answering)
        runs: list[Run] = [(f" {safe_cells(rack):<{name_width}}", "text"),
                           (f"{len(machines):>4}  ", "dim")]  # fmt: skip
        count = (width - name_width - 12) // (RACK_CELL_WIDTH + 1)
        for machine in worst_first[:count]:
            value = machine.numbers["lost"]
            text, style = fleet_state.worst_marker(machine) if not machine.is_answering else (
                (f"{100 * value:.0f}" if value >= MIN_LOSS else theme.NEITHER),
                text_styles[max(0, scale.level(value))],
            )  # fmt: skip
            runs += [(f"{text:^{RACK_CELL_WIDTH}}", style), (" ", "text")]
        if len(machines) > count:
            runs.append((f"+{len(machines) - count}", "dim"))
        lines.append(plain_line(*runs))
    return lines


# --- the heat map

RACK_CELL_WIDTH, MAX_MACHINES_IN_RACKS = 4, 1000
"""Width of a machine's cell in the lines of racks, and maximum number of machines in them."""
CELL_WIDTHS = (6, 4, 3, 2, 1)
"""Possible widths of a machine's cell; the largest that fits is used. From 4 on, it has a
number."""
MIN_WIDTH_FOR_WORDS = 150
"""Minimum width of the screen to show a sentence about the number, in cells."""
RACK_TOTAL_LINES = 3
"""Number of lines below racks: two with means and one with power."""


def arrange_machines(machines: Sequence[Machine], width: int, height: int) -> MachineGrid:
    """Returns the grid of the heat map, with the widest cells that fit."""
    room = width - MIN_LABEL_WIDTH - 1
    by_rack = racks(machines)
    numbers = set(map(_number_in_name, machines))
    rows = sorted(numbers, key=lambda number: (natural_sort_key(number), number))  # 2 is next to 02
    are_racks = len(by_rack) > 1 and len(machines) > 2 * len(by_rack)
    for size in CELL_WIDTHS[:3] if are_racks and len(rows) + RACK_TOTAL_LINES <= height else ():
        if len(by_rack) * (size + 1) <= room:
            columns = []
            for rack, machines_of_rack in by_rack.items():
                by_number = {_number_in_name(machine): machine for machine in machines_of_rack}
                columns.append((rack, tuple(map(by_number.get, rows))))
            return MachineGrid(tuple(columns), tuple(rows), size, has_racks=True)
    sorted_machines = sorted(machines, key=lambda m: natural_sort_key(m.name))
    for size in CELL_WIDTHS:
        columns_across = max(1, room // (size + 1))
        rows_of_column = max(1, ceil(len(sorted_machines) / columns_across))
        if rows_of_column <= height or size == CELL_WIDTHS[-1]:
            break
    rows_of_column = min(max(rows_of_column, min(height, 8)), max(1, height))
    starts = range(0, len(sorted_machines), rows_of_column)[:columns_across]
    pieces = [sorted_machines[start : start + rows_of_column] for start in starts]
    named_columns = tuple((piece[0].name, tuple(piece)) for piece in pieces)
    name_width = min(NAME_WIDTHS[1], max((len(_host_name(m.name)) for m in machines), default=0))
    if len(pieces) * (name_width + size + 3) > width:
        name_width = 0
    labels = ("",) * rows_of_column
    return MachineGrid(named_columns, labels, size, has_racks=False, name_width=name_width)


def _host_name(name: str) -> str:
    return safe_cells(name).partition(".")[0]


def _number_in_name(machine: Machine) -> str:
    """Returns the digits at the end of a machine's host name."""
    stem = machine.name.partition(".")[0]
    return stem[len(stem.rstrip("0123456789")) :]


def heat_lines(state: FleetState, height: int) -> list[Line]:
    """Returns the heat map in at most `height` lines, and stores its grid in `state`. The heading
    of a column is the end of its rack's name, or the host name of its first machine. There is no
    heading if the cells have names, or if it would overlap the one before it."""
    room = height - 3 - RACK_TOTAL_LINES
    state.grid = machine_grid = arrange_machines(state.machines, state.width, room)
    lines = _legend_lines(state)
    x, y = machine_grid.position_of(state.selected_name)
    label_width, name_width = machine_grid.label_width, machine_grid.name_width
    runs: list[Run] = []
    for column, (title, _) in enumerate(machine_grid.columns):
        start = label_width + 1 + column * (machine_grid.size + 1)
        text = _host_name(title)
        if machine_grid.has_racks:
            text = f"{text[-machine_grid.size :]:^{machine_grid.size}}"
        gap = start - width(runs)
        if gap >= bool(column) and start + len(text) <= state.width:
            runs += [(" " * gap, "text"), (text, "key" if column == x else "dim")]
    if not name_width:
        lines.append(plain_line(*runs))
    text_styles = theme.letter_styles(state.theme)
    scale = fleet_state.heat_scale(state, state.metric)
    for row, label in enumerate(machine_grid.labels):
        runs = [(f"{label:>{label_width}} ", "key" if row == y and label else "dim")]
        for _, machines in machine_grid.columns:
            machine = machines[row] if row < len(machines) else None
            if machine is None:
                runs.append((" " * (machine_grid.size + 1), "text"))
            else:
                if name_width:
                    style = "key" if machine.name == state.selected_name else "dim"
                    runs.append((f" {fit(_host_name(machine.name), name_width)} ", style))
                runs += _heat_cell(state, machine, machine_grid.size, text_styles, scale)
        lines.append(plain_line(*runs))
    if machine_grid.has_racks and machine_grid.size >= 4:
        lines += _rack_total_lines(machine_grid)
    return lines[:height]


def _legend_lines(state: FleetState) -> list[Line]:
    """Returns the legend: the name of the number, the heat ramp, and the number of machines at each
    step of the ramp."""
    key, has_words = state.metric, state.width >= MIN_WIDTH_FOR_WORDS
    scale, name = fleet_state.heat_scale(state, key), unit_name(key)
    left_runs: list[Run] = [(" ", "text"), (f"{FIELDS[key].label} {name}", "bright")]
    left_runs += [(f"  {FIELDS[key].help}", "dim")] if has_words else []
    left_runs += [(f"  {state.captions['metric']}", "key"), (" another number", "dim")]
    low = amount_text(key, scale.low) if scale.low else "0"
    high = f" {'≥' if name == '%' and scale.high < 1 else ''}{amount_text(key, scale.high)} {name} "
    step = 4 if has_words else 2
    ramp: list[Run] = [(f"{low} ", "dim")]
    ramp += [run for i in range(theme.HEAT_STEPS) for run in level_cell(i, step, state.ascii)]
    lines = [plain_line(*justify(left_runs, [*ramp, (high, "dim")], state.width))]
    if has_words:
        steps = [scale.level(machine.numbers[key]) for machine in state.machines]
        counts = "".join(f"{steps.count(i) or '':>{step}}" for i in range(theme.HEAT_STEPS))
        machines: list[Run] = [("machines ", "faint"), (counts, "dim"), (" " * len(high), "text")]
        lines.append(plain_line(*justify([], machines, state.width)))
    return lines


def _heat_cell(
    state: FleetState, machine: Machine, size: int, text_styles: Sequence[str], scale: Scale
) -> list[Run]:
    """Returns a machine's cell: its worst episode's marker and the number, in the colour of its
    step of the ramp. If there is no marker, losses are small, and the number is left out."""
    is_selected = machine.name == state.selected_name
    gap: Run = (theme.CURSOR_SIGNS[1], "mark") if is_selected else (" ", "text")
    marker, style = fleet_state.worst_marker(machine)
    if not machine.is_answering:
        return [(f" {marker} ···"[:size] if size >= 6 else f"{marker:^{size}}", style), gap]
    key = state.metric
    value = machine.numbers[key]
    step = scale.level(value)
    if step < 0:
        return [(fit(marker if marker != " " else MISSING[:size], size), "faint"), gap]
    has_marker = marker != " "
    if state.ascii and not has_marker:
        return [*level_cell(step, size, state.ascii), gap]
    marker = marker if has_marker else theme.NEITHER  # visible without colours as well
    if size < 4:
        return [(f"{marker:^{size}}", text_styles[step]), gap]
    text = ""
    if has_marker and (key != "lost" or value >= MIN_LOSS):
        factor, _ = FIELDS[key].scale(GHZ)
        text = f"{factor * value:.{int(key in fleet_state.CLOCK_KEYS)}f}"
    return [(fit(f" {marker}{text:>{size - 3}} "[:size], size), text_styles[step]), gap]


def _rack_total_lines(machine_grid: MachineGrid) -> list[Line]:
    """Returns the lines below the racks: means and total power of each rack."""
    racks_ = [[m for m in column if m is not None] for _, column in machine_grid.columns]
    means = [mean_numbers([m.numbers for m in rack if m.is_answering]) for rack in racks_]
    lines: list[Line] = []
    for key, digits in (("lost", 1), ("busy", 0)):
        runs: list[Run] = [(f" {key:<{MIN_LABEL_WIDTH}}", "dim")]
        for mean in means:
            text, style = number_run(100 * mean[key], digits, machine_grid.size - 1)
            if key == "lost":
                style = "bright" if mean[key] >= MIN_LOSS else "faint"
            runs += [(text, style), ("  ", "text")]
        lines.append(plain_line(*runs))
    runs = [(f" {'kW':<{MIN_LABEL_WIDTH}}", "dim")]
    for rack in racks_:
        watts = [v for m in rack if isfinite(v := m.numbers["power_w"])]
        text, _ = number_run(sum(watts) / 1e3 if watts else float("nan"), 1, machine_grid.size - 1)
        runs += [(text, "dim"), ("  ", "text")]
    return [*lines, plain_line(*runs)]
