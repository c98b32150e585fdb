"""The views of a fleet: a table with a row for each machine, and a heat map of one number with a
cell for each machine. Only the width decides which columns the table has, so that columns do not
move when values change. If the machines' names contain racks, each rack is a column of the heat
map; otherwise the machines form one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, isfinite, nan

import numpy as np

from perftop.base.text import GHZ, MISSING, cut, fit, time_of_day
from perftop.draw import columns, strips, theme
from perftop.draw.charts import UNKNOWN_TASK
from perftop.draw.columns import FALLING, RISING, UNKNOWN_TEXTS, Cell, Column, Run
from perftop.draw.strips import Line, Piece, safe_cells, width
from perftop.session.fleet import natural_sort_key, racks
from perftop.session.fleet_machine import FIELDS, MIN_LOSS, Machine, mean_numbers
from perftop.tui import fleet_state
from perftop.tui.fleet_state import (
    MIN_LABEL_WIDTH,
    FleetState,
    MachineGrid,
    amount_text,
    plain_line,
)
from perftop.tui.shared.row_numbers import Scale
from perftop.tui.shared.verdict import CALM_SIGN, loss_cell

CALM_MARKERS = " ", CALM_SIGN
NAME_WIDTHS = 10, 24
"""Minimum and maximum width of a machine's name, in cells."""
MAX_AGE_S = 3.0
"""Maximum age of numbers that are not highlighted: this many s and two intervals of the source."""
COLUMNS = (
    Column("lost", "lost %", 9),
    Column("past", "10 min, lost", 14, is_left=True, rank=5, max_width=22, growth_rank=2),
    Column("busy", "busy %", 8),
    Column("clock_hz", "GHz", 6),
    Column("cause", "verdict, last 10 s", 40, is_left=True, rank=1, max_width=90, growth_rank=1),
    Column("since", "since", 10, rank=3),
    Column("age", "age s", 7, rank=4),
)
Table = list[Column]


def table_columns(state: FleetState) -> Table:
    """Returns the columns that fit: marker, name, and as many others as possible."""
    min_width, max_width = NAME_WIDTHS
    longest_name = max(map(len, state.fleet.machines), default=0)
    name = max(min_width, min(longest_name, max_width, state.width // 6))
    first = Column("sign", "", 2, gap=0), Column("name", "machine", 1 + name, is_left=True, gap=1)
    return columns.fit_columns([*first, *COLUMNS], state.width - 1)


def heading_line(state: FleetState, table: Table) -> Line:
    """Returns the headings; that of the sorted column has an arrow in place of the unit."""
    order, arrow = state.selection.order, (FALLING, RISING)[state.selection.reverse]
    runs: list[Run] = []
    for column in table:
        is_sorted = column.key == order
        heading = f"{column.heading.partition(' ')[0]} {arrow}" if is_sorted else column.heading
        runs.append((column.pad(heading), "bright" if is_sorted else "dim"))
    return plain_line(*runs)


def machine_line(state: FleetState, table: Table, machine: Machine, *similar: Machine) -> Line:
    """Returns the row of a machine, or the row that it shares with similar ones: their mean
    numbers, their names, and the range of their losses."""
    verdict: list[Run] = []
    if similar:
        machines = machine, *similar
        losses = [v for m in machines if isfinite(v := m.numbers["lost"])]
        ends = dict.fromkeys(f"{100 * end(losses):.0f}" for end in (min, max)) if losses else ()
        lost_text = f", {' to '.join(ends)} % lost" if ends else ""
        room = next((c.room for c in table if c.key == "cause"), 0) - len(lost_text)
        names = safe_cells(" ".join(m.name for m in machines))
        verdict = [(cut(f"alike: {names}", max(0, room)) + lost_text, "dim")]
        means = mean_numbers([m.numbers for m in machines])
        machine = replace(machine, name=f"+ {len(machines)} alike", numbers=means, updated_at=nan)
    cells = [_cell(state, machine, column, verdict) for column in table]
    is_chosen = machine.name == state.selected_name
    return columns.join_columns(table, cells), "chosen" if is_chosen else "calm"


def _cell(state: FleetState, machine: Machine, column: Column, verdict: list[Run]) -> Cell:
    """Returns a cell of a machine's row. `verdict`: text that replaces its verdict, unless []."""
    size, is_chosen = column.room, machine.name == state.selected_name
    text, since_s = fleet_state.machine_verdict(machine, size)
    match column.key:
        case "sign":
            mark = theme.SELECTED_SIGN if is_chosen else " "
            return [(mark, "key"), fleet_state.worst_marker(machine)]
        case "name":
            name = state.short_names.get(machine.name, machine.name)
            return safe_cells(name), "bright" if is_chosen else "text"
        case "past":
            series = machine.history.series(size, state.now)
            return [_loss_bar(share, is_answering=machine.is_answering) for share in series]
        case "cause" if verdict or machine.is_answering:
            return verdict or [(text, "text" if machine.cause[0] else "dim")]
        case "cause":
            reason = fleet_state.silence_text(machine, state.now)
            prefix = "" if reason == "connecting" else "no answer: "
            return [(prefix, "alarm"), (cut(reason, size - len(prefix)), "dim")]
        case "since":
            since_s = since_s if machine.is_answering else machine.silent_since
            text = time_of_day(since_s) if isfinite(since_s) else ""
            return text, "alarm" if machine.cause[0] or not machine.is_answering else "dim"
        case "age":
            updated_at = machine.updated_at if machine.is_answering else machine.silent_since
            age = max(0.0, state.now - updated_at)
            text = "" if not isfinite(updated_at) else f"{age:.{int(age < 100)}f}"
            return text, "warn" if age > MAX_AGE_S + 2 * state.update_s else "dim"
        case "lost":
            text, style = fleet_state.number_cell(machine, column.key)
            return [(f"{text:>{size - 2}}", style), (" %" if text[-1].isdigit() else "  ", "dim")]
    return fleet_state.number_cell(machine, column.key)


def _loss_bar(share: float, *, is_answering: bool) -> Run:
    """Returns a bar for a lost share, at most seven eighths high, so that rows do not touch."""
    if not isfinite(share) and not is_answering:
        return UNKNOWN_TASK, "faint"
    return loss_cell(share, 14, 7)


def hidden_machines_line(state: FleetState, hidden_machines: Sequence[Machine]) -> Line:
    """Returns a line about machines without a visible row: number, largest loss, and cells by
    rack."""
    text = f" {len(hidden_machines)} more rows"
    if known_losses := [v for m in hidden_machines if isfinite(v := m.numbers["lost"])]:
        loss_text = "none loses above" if max(known_losses) < MIN_LOSS else "the worst loses"
        text += f", {loss_text} {amount_text('lost', max(known_losses))} %"
    pieces: list[Piece] = [
        (0, [(f"   {safe_cells(rack)} ", "dim"), *(_loss_cell(state, m, 1) for m in machines)])
        for rack, machines in racks(hidden_machines).items()
    ]
    return plain_line((text, "dim"), *strips.fit_line(pieces, state.width - len(text), 0))


def _loss_cell(state: FleetState, machine: Machine, size: int) -> Run:
    """Returns a machine as a cell: its marker if it does not answer, else its loss in per cent, or
    its marker if there is no room for a number; a dot if it loses little."""
    text, style = fleet_state.worst_marker(machine)
    value = machine.numbers["lost"]
    if machine.is_answering and not value >= MIN_LOSS:
        text, style = theme.NEITHER, "dim/chosen-back"
    elif machine.is_answering:
        style = f"bright/loss-{fleet_state.heat_scale(state, 'lost').level(value)}"
        text = text if size == 1 else f"{100 * value:.0f}"
    return f"{text:^{size}}", style


def rack_lines(state: FleetState, width: int) -> list[Line]:
    """Returns a blank line, a title, and a line of cells for each rack, the worst machine first; no
    lines if there is only one rack, or too many machines for any screen."""
    by_rack = racks(state.machines) if len(state.machines) <= MAX_MACHINES_IN_RACKS else {}
    if len(by_rack) < 2:
        return []
    title = f"{len(state.machines)} machines by rack"
    heading = strips.panel_title(title, "lost %, worst first", width - 2)
    lines = [strips.BLANK, plain_line((" ", "text"), *heading)]
    name_width = max(map(len, by_rack))
    for rack, machines in by_rack.items():
        worst_first = sorted(machines, key=lambda m: -np.nan_to_num(m.numbers["lost"]))
        worst_first.sort(key=lambda m: m.is_answering)
        name = f" {safe_cells(rack):<{name_width}}"
        runs: list[Run] = [(name, "text"), (f"{len(machines):>4}  ", "dim")]
        count = (width - name_width - 12) // (RACK_CELL_WIDTH + 1)
        for machine in worst_first[:count]:
            runs += [_loss_cell(state, machine, RACK_CELL_WIDTH), (" ", "text")]
        if len(machines) > count:
            runs.append((f"+{len(machines) - count}", "dim"))
        lines.append(plain_line(*runs))
    return lines


# --- the heat map

RACK_CELL_WIDTH, MAX_MACHINES_IN_RACKS = 4, 1000
"""Width of a machine's cell in the lines of racks, and maximum number of machines in them."""
CELL_WIDTHS = (6, 4, 3, 2, 1)
"""Widths of a machine's cell; the largest that fits is used. From 4 on, it has a number."""
MIN_WIDTH_FOR_WORDS = 150
"""Minimum width of the screen to show a sentence about the number, in cells."""


def arrange_machines(machines: Sequence[Machine], width: int, height: int) -> MachineGrid:
    """Returns the grid of the heat map, with the widest cells that fit."""
    room = width - MIN_LABEL_WIDTH - 1
    by_rack = racks(machines)
    numbers = set(map(_number_in_name, machines))
    rows = sorted(numbers, key=lambda number: (natural_sort_key(number), number))  # 2 beside 02
    are_racks = len(by_rack) > 1 and len(machines) > 2 * len(by_rack)
    for size in CELL_WIDTHS[:3] if are_racks and len(rows) <= height else ():
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
    room = height - 3
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
    host_names = [_host_name(machine.name) for machine in state.machines]
    short_names = fleet_state.distinct_names(host_names, name_width) if name_width else {}
    for row, label in enumerate(machine_grid.labels):
        runs = [(f"{label:>{label_width}} ", "key" if row == y and label else "dim")]
        for _, machines in machine_grid.columns:
            machine = machines[row] if row < len(machines) else None
            if machine is None:
                runs.append((" " * (machine_grid.size + 1), "text"))
            else:
                if name_width:
                    style = "key" if machine.name == state.selected_name else "dim"
                    runs.append(
                        (f" {fit(short_names[_host_name(machine.name)], name_width)} ", style)
                    )
                runs += _heat_cell(state, machine, machine_grid.size, text_styles, scale)
        lines.append(plain_line(*runs))
    return lines[:height]


def _legend_lines(state: FleetState) -> list[Line]:
    """Returns the legend: the name of the number, and the heat ramp with machines at each step."""
    key, has_words = state.metric, state.width >= MIN_WIDTH_FOR_WORDS
    scale, name = fleet_state.heat_scale(state, key), FIELDS[key].unit_name(GHZ)
    meaning = FIELDS[key].help.partition(". ")[0].removesuffix(".")
    pieces: list[Piece] = [
        (0, [(f" {FIELDS[key].label} {name}", "bright")]),
        (2, [(meaning, "dim")]),
        (1, [(state.captions["metric"], "key"), (" another number", "dim")]),
    ]
    low = amount_text(key, scale.low) if scale.low else "0"
    high = f" {'≥' if name == '%' and scale.high < 1 else ''}{amount_text(key, scale.high)} {name} "
    step = 4 if has_words else 2
    ramp: list[Run] = [(f"{low} ", "dim")]
    ramp += [
        run for i in range(theme.HEAT_STEPS) for run in strips.level_cell(i, step, state.ascii)
    ]
    ramp.append((high, "dim"))
    left_runs = strips.fit_line(pieces, state.width - width(ramp) - 1, 2)
    lines = [plain_line(*strips.justify(left_runs, ramp, state.width))]
    if has_words:
        steps = [scale.level(machine.numbers[key]) for machine in state.machines]
        counts = "".join(f"{steps.count(i) or '':>{step}}" for i in range(theme.HEAT_STEPS))
        machines: list[Run] = [("machines ", "faint"), (counts, "dim"), (" " * len(high), "text")]
        lines.append(plain_line(*strips.justify([], machines, state.width)))
    return lines


def _heat_cell(
    state: FleetState, machine: Machine, size: int, text_styles: Sequence[str], scale: Scale
) -> list[Run]:
    """Returns a machine's cell: the marker of its worst episode and the number, in the colour of
    the number's step on the scale. The number is left out if there is no marker, or if it is a
    small loss."""
    is_selected = machine.name == state.selected_name
    gap: Run = (theme.CURSOR_SIGNS[1], "mark") if is_selected else (" ", "text")
    marker, style = fleet_state.worst_marker(machine)
    if not machine.is_answering:
        return [(f" {marker} ···"[:size] if size >= 6 else f"{marker:^{size}}", style), gap]
    key = state.metric
    value = machine.numbers[key]
    step = scale.level(value)
    if step < 0:
        unknown = UNKNOWN_TEXTS[size < len(MISSING)] if marker == " " else marker
        return [(fit(unknown, size), "faint"), gap]
    has_marker = marker not in CALM_MARKERS
    if state.ascii and not has_marker:
        return [*strips.level_cell(step, size, state.ascii), gap]
    marker = marker if has_marker else theme.NEITHER  # visible without colours as well
    if size < 4:
        return [(f"{marker:^{size}}", text_styles[step]), gap]
    text = ""
    if has_marker and (key != "lost" or value >= MIN_LOSS):
        factor, _ = FIELDS[key].scale(GHZ)
        text = f"{factor * value:.{int(key in fleet_state.CLOCK_KEYS)}f}"
    return [(fit(f" {marker}{text:>{size - 3}} "[:size], size), text_styles[step]), gap]
