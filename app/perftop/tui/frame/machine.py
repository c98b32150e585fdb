"""The lines about the whole machine: its numbers, and a bar of its SMT states. If clocks are not
counted, tiles replace both: shares of CPU time and waits of tasks, with histories if they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from math import isnan, nan
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.base.text import GHZ
from perftop.draw import strips, theme
from perftop.draw.charts import level_lines
from perftop.draw.columns import Run, number_run
from perftop.draw.strips import Piece, width
from perftop.model.counters import Cores
from perftop.model.delta import distinct
from perftop.model.evaluation import MEMORY_COUNTERS, MEMORY_SHARE
from perftop.model.kinds import Episode
from perftop.model.numbers import METRICS, NUMBERS
from perftop.session.history import History, Times
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import mean_ceiling
from perftop.tui.shared import episode_style
from perftop.tui.shared.episode_style import lowered_number
from perftop.tui.shared.time_axis import MIN_CELL_NS, REDRAW_PERIOD_NS, Axis, BinValues

MIN_WIDTH_FOR_DECIMAL = 110
"""Minimum columns of the screen for a decimal in the shares beside the bar."""
MIN_HIGHLIGHTED_POWER = 0.97
"""Minimum share of the power limit at which the power is highlighted."""
MIN_BAR_WIDTH = 12
"""Minimum width in cells of a bar beside a text; if less remains, the text is left out."""
MIN_AFFECTED_SHARE = 0.5
"""Minimum share of the CPUs that episodes must affect for their number to be red."""
SHARE_WIDTH = len("100.0")
GAP, NARROW_GAP = 4, 2
"""Cells between two numbers: GAP if all numbers fit, else NARROW_GAP."""
WAIT_NAMES = {"cpu": "a CPU", "io": "a disk", "memory": "memory"}
"""Resources for which tasks wait, by their name in /proc/pressure."""


@dataclass(frozen=True, slots=True)
class ShownCpus:
    """The CPUs that the user asked for, and their cores, kept between refreshes."""

    cores: list[int]
    pairs: Ints
    cpus: list[int] | slice
    """Positions of the CPUs, as an argument for `Values.group`."""


_SHOWN_CPUS: WeakKeyDictionary[Cores, ShownCpus] = WeakKeyDictionary()


def shown_cpus(session: Session, cores: Cores) -> ShownCpus:
    if cores not in _SHOWN_CPUS:
        indexes = [core for core in distinct(cores.core_by_cpu[session.selected]) if core >= 0]
        pairs = np.array([core for core in indexes if len(cores.lists[core]) > 1], np.intp)
        has_all = session.selected == list(range(len(session.topology)))
        _SHOWN_CPUS[cores] = ShownCpus(indexes, pairs, slice(None) if has_all else session.selected)
    return _SHOWN_CPUS[cores]


def machine_values(session: Session, interval: Interval) -> Mapping[str, float]:
    """Returns the machine's numbers, by key: means over the CPUs that the user asked for, and
    machine-wide numbers, such as power. An unknown number is NaN or absent."""
    means = interval.values.group(shown_cpus(session, interval.cores).cpus).tolist()
    by_metric = zip(session.evaluator.variants.items(), means, strict=True)
    return interval.machine | {key: mean for (key, variants), mean in by_metric if variants}


# --- the numbers


def machine_line(
    session: Session, interval: Interval, running: Iterable[Episode], size: int
) -> list[Run]:
    """Returns a line of `size` cells with the numbers of the machine that this source has. A number
    that running episodes make worse is red."""
    markers, values_by_key = _lowering_markers(session, running), machine_values(session, interval)

    def share(key: str, word: str, style: str = "text") -> list[Run]:
        if (value := values_by_key.get(key)) is None:
            return []
        is_near_limit = METRICS[key].min_highlighted <= value <= 1
        style = "alarm" if key in markers else "warn" if is_near_limit else style
        number = number_run(100 * value, METRICS[key].scale(GHZ)[1], 0, style)
        return [(f"{word} ", "dim"), number, (" %", "dim")]

    pieces: list[Piece] = [(0, share("util", "busy", "bright"))]
    if "busy_hz" in values_by_key:
        marker, cpus = markers.get("busy_hz", ""), shown_cpus(session, interval.cores).cpus
        ceiling_hz = mean_ceiling(
            interval.cores.by_cpu(interval.ceiling_hz)[cpus], interval.values["util"][cpus]
        )
        clock = number_run(values_by_key["busy_hz"] / 1e9, 2, 0, "alarm" if marker else "bright")
        runs: list[Run] = [("clock ", "dim"), (f"{marker} " if marker else "", "alarm"), clock]
        if not isnan(ceiling_hz):
            runs.append((f" of {ceiling_hz / 1e9:.2f}", "dim"))
        # the width is the same with and without the marker
        runs.append((" GHz" if marker else " GHz  ", "dim"))
        pieces.append((1, runs))
    if "net_hz" in values_by_key:
        net_clock = number_run(values_by_key["net_hz"] / 1e9, 2, 0)
        pieces.append((7, [("net ", "dim"), net_clock, (" GHz", "dim")]))
    if "ipc" in values_by_key:
        marker = f"{markers['ipc']} " if "ipc" in markers else ""
        ipc = number_run(values_by_key["ipc"], 2, 0, "alarm" if marker else "bright")
        pieces.append((2, [("IPC ", "dim"), (marker, "alarm"), ipc]))
    idle, involuntary = share("idle", "")[1:], share("involuntary", "")[1:]
    halts: list[Run] = [("halts ", "dim")] if "halt" in values_by_key and idle else []
    halts += [*idle, (" idle", "dim")] if idle else []
    halts += [("  ", "text"), *involuntary, (" involuntary", "dim")] if involuntary else []
    pieces.append((3, halts))
    if session.hello.virtualisation is not None:
        pieces.append((3, share("steal", "steal")))
    pieces.append((5, share("kernel_cycles", "kernel cycles")))
    temperature: list[Run] = []
    if not isnan(degrees := values_by_key.get("temperature_c", nan)):
        style = "alarm" if "temperature_c" in markers else "text"
        temperature = [number_run(degrees, 0, 0, style), (" °C", "dim")]
    further_runs = [_power_runs(values_by_key), temperature, _wait_runs(values_by_key)]
    pieces += [(4 + 2 * i, runs) for i, runs in enumerate(filter(None, further_runs))]
    pieces.append((6, _memory_runs(values_by_key)))
    watts = values_by_key.get("power_dram_w", nan)  # not included in the package power
    if not isnan(watts):
        pieces.append((8, [("dram ", "dim"), number_run(watts, 0, 0), (" W", "dim")]))
    pieces = [(rank, runs) for rank, runs in pieces if runs]
    return [(" ", "text"), *_with_even_gaps(pieces, size - 2)]


def _lowering_markers(session: Session, running: Iterable[Episode]) -> dict[str, str]:
    """Returns the markers of episodes that together affect at least MIN_AFFECTED_SHARE of the CPUs,
    by key of the affected number."""
    by_key: dict[str, list[Episode]] = {}
    for episode in running:
        keys = {lowered_number(episode), "temperature_c" if episode.kind == "throttle" else ""}
        for key in keys - {""}:
            by_key.setdefault(key, []).append(episode)
    min_cpus = MIN_AFFECTED_SHARE * len(session.selected)
    markers: dict[str, str] = {}
    for key, episodes in by_key.items():
        if len({cpu for episode in episodes for cpu in episode.cpus}) >= min_cpus:
            markers[key] = episode_style.marker(episodes[0])
    return markers


def _power_runs(machine: Mapping[str, float]) -> list[Run]:
    watts, limit = machine.get("power_w", nan), machine.get("power_limit_w", nan)
    if isnan(watts):
        return []
    style = "warn" if watts >= MIN_HIGHLIGHTED_POWER * limit else "text"
    limit_text = "" if isnan(limit) else f" of {limit:.0f}"
    return [("power ", "dim"), number_run(watts, 0, 0, style), (limit_text, "dim"), (" W", "dim")]


def _wait_runs(machine: Mapping[str, float]) -> list[Run]:
    shares = {name: machine.get(f"pressure_{kind}", nan) for kind, name in WAIT_NAMES.items()}
    if all(map(isnan, shares.values())):
        return []
    runs: list[Run] = [("waits for", "dim")]
    for name, share in shares.items():
        runs += [(f" {name} ", "dim"), number_run(100 * share, 1, 0)]
    return [*runs, (" %", "dim")]


def _memory_runs(machine: Mapping[str, float]) -> list[Run]:
    """Returns the memory traffic and the highest so far; empty if it is unknown."""
    rates = [machine.get(name, nan) / 1e9 for name in MEMORY_COUNTERS]
    if isnan(sum(rates)):
        return []
    read, write = (number_run(rate, 1, 0) for rate in rates)
    share = machine.get(MEMORY_SHARE, nan)
    highest = f", highest {sum(rates) / share:.1f}" if share > 0 else ""
    return [("mem ", "dim"), read, ("+", "dim"), write, (f" GB/s{highest}", "dim")]


def _with_even_gaps(pieces: list[Piece], size: int) -> list[Run]:
    """Returns the pieces that fit, with wide gaps if all fit. Each piece has room for its longest
    number, so that the following pieces do not move when values change."""
    padded_pieces = []
    for rank, runs in pieces:
        shares = [text for text, _ in runs if text[-2:-1] == "."]  # shares have one decimal
        reserved_cells = sum(max(0, SHARE_WIDTH - len(text)) for text in shares)
        padded_pieces.append((rank, [*runs, (" " * reserved_cells, "text")]))
    gap = GAP
    fitting_pieces = strips.pieces_that_fit(padded_pieces, size + gap, gap)
    if len(fitting_pieces) < len(padded_pieces):
        gap = NARROW_GAP
        fitting_pieces = strips.pieces_that_fit(padded_pieces, size + gap, gap)
    return strips.join_with_gaps([runs for _, runs in fitting_pieces], gap)


# --- the SMT states


def state_line(session: Session, interval: Interval, size: int) -> list[Run]:
    """Returns a bar of the SMT states of all cores together, with a legend if there is room."""
    cores, split = shown_cpus(session, interval.cores).pairs, interval.split
    states, low = split.states[cores], split.low[cores]
    bar: Callable[[Sequence[float], int], list[Run]] = strips.smt_bounds_bar
    legend: list[Run] = []
    further: list[Run] = []  # follows the legend if there is room
    unknown: Run = (theme.UNKNOWN, "unknown")
    if shares := _mean_shares(states):
        neither, lp0, lp1, both = shares
        for (shape, name), share in zip(theme.STATES, (both, lp0, lp1, neither), strict=True):
            legend += [("   ", "text"), (shape, name), (f" {name} ", "dim")]
            legend.append((_percent(share, size), "text"))
        legend.append((" % ", "dim"))
        bar = strips.smt_bar
    elif shares := _mean_shares(low):
        legend = [("  SMT states not counted here: ", "dim"), unknown]
        legend.append((" may be any of them ", "dim"))
    else:  # With more than two threads per core, the line shows how many of them are active.
        if known_share := _mean_shares(states[:, :1]):
            legend = [("  any ", "unknown"), (_percent(1 - known_share[0], size), "text")]
            legend += [("  neither ", "dim"), (_percent(known_share[0], size), "text")]
        elif known_share := _mean_shares(low[:, :1]):
            max_share = _mean_shares(split.high[cores][:, :1])[0]
            range_text = f"{100 * known_share[0]:3.0f}–{100 * max_share:<3.0f}"
            legend = [("  ", "text"), unknown, (" may be either  neither ", "dim")]
            legend.append((range_text, "text"))
        else:
            return [(" SMT ", "dim"), ("n/a", "faint")]
        shares = [known_share[0], 0.0, 0.0, 0.0]
        legend.append((" % ", "dim"))
        (active,) = _mean_shares(split.active_threads[cores][:, None])
        threads = max(len(interval.cores.lists[i]) for i in cores)
        further = [(f"  {active:4.2f}", "text"), (f" of {threads} threads active ", "dim")]
    wordings = [*legend, *further], legend
    shown = next((runs for runs in wordings if size - 5 - width(runs) >= MIN_BAR_WIDTH), [])
    return [(" SMT ", "dim"), *bar(shares, max(0, size - 5 - width(shown))), *shown]


def _mean_shares(shares: Floats) -> list[float]:
    """Returns the mean of each column over the rows (cores) without NaN; [] if there are none."""
    known_rows = shares[~np.isnan(shares.sum(axis=1))]
    return known_rows.mean(axis=0).tolist() if len(known_rows) else []


def _percent(share: float, size: int) -> str:
    digits = 1 if size >= MIN_WIDTH_FOR_DECIMAL else 0
    return f"{100 * share:{3 + 2 * digits}.{digits}f}"


# --- tiles

TILE_GAP = 3
MIN_WIDTH_FOR_NAMES = 110


class Tile(NamedTuple):
    key: str
    name: str
    short_name: str
    rank: int
    """Importance, from 0 for the most important tile."""
    style: str
    min_scale_top: float | None = None
    """Minimum upper end of the scale of the tile's history; None: it is always 1."""


_TILES = (
    Tile("util", "busy", "busy", 0, "user-9"),
    Tile("user", "user", "user", 5, "user-7"),
    Tile("system", "kernel", "kernel", 4, "kernel-9"),
    Tile("steal", "steal", "steal", 1, "steal", min_scale_top=0.1),
    Tile("pressure_cpu", "waits for a CPU", "waits", 2, "dim"),
    Tile("pressure_io", "for a disk", "disk", 7, "dim", min_scale_top=0.1),
    Tile("pressure_memory", "for memory", "memory", 9, "dim", min_scale_top=0.1),
    Tile("load_1", "load", "load", 3, "dim", 1.0),
    Tile("interrupts_hz", "interrupts", "irqs", 6, "dim", 1000.0),
    Tile("context_switches_hz", "switches", "switches", 8, "dim", 1000.0),
)
_TILES_BY_RANK = sorted(_TILES, key=lambda tile: tile.rank)
_OLDER_LOAD_KEYS = "load_5", "load_15"
MIN_HIGHLIGHTED_STEAL = METRICS["steal"].min_highlighted


class TileColumn(NamedTuple):
    """A number of the machine with its name, and the width of its history below it."""

    tile: Tile
    width: int
    """Width in cells, including the gap to the right."""
    number: list[Run]
    """The text, padded to this width."""

    @property
    def history_width(self) -> int:
        return max(1, self.width - TILE_GAP)


def _tile_number(tile: Tile, values_by_key: Mapping[str, float], *, full_names: bool) -> list[Run]:
    value = values_by_key[tile.key]
    name: Run = (f"{tile.name if full_names else tile.short_name} ", "dim")
    is_high = tile.key == "steal" and value >= MIN_HIGHLIGHTED_STEAL
    style = "alarm" if is_high else "bright" if tile.rank < 3 else "text"
    if tile.key == "load_1":
        older_keys = [key for key in _OLDER_LOAD_KEYS if key in values_by_key and full_names]
        older_loads = [number_run(values_by_key[key], 2, 6, "dim") for key in older_keys]
        return [name, number_run(value, 2, 5, style), *older_loads]
    if NUMBERS[tile.key].is_rate:
        return [name, number_run(value, 0, 5, style), (" /s", "dim")]
    return [name, number_run(100 * value, 1, 5, style), (" %", "dim")]


def tile_columns(values_by_key: Mapping[str, float], size: int) -> list[TileColumn]:
    """Returns the tiles that fit into `size` cells, chosen by importance. They share the spare
    cells equally. On narrow screens they have short names."""
    full_names = size >= MIN_WIDTH_FOR_NAMES
    numbers: dict[str, tuple[list[Run], int]] = {}
    spare_cells = size - 2 + TILE_GAP
    for tile in _TILES_BY_RANK:
        if isnan(values_by_key.get(tile.key, nan)):
            continue
        runs = _tile_number(tile, values_by_key, full_names=full_names)
        used_cells = width(runs) + TILE_GAP
        if used_cells > spare_cells:
            break
        numbers[tile.key] = runs, used_cells
        spare_cells -= used_cells
    columns: list[TileColumn] = []
    for i, tile in enumerate(tile for tile in _TILES if tile.key in numbers):
        (runs, used_cells), count = numbers[tile.key], len(numbers)
        extra = spare_cells * (i + 1) // count - spare_cells * i // count
        runs.append((" " * (TILE_GAP + extra), "text"))
        columns.append(TileColumn(tile, used_cells + extra, runs))
    return columns


def tile_line(columns: Sequence[TileColumn]) -> list[Run]:
    return [(" ", "text"), *chain.from_iterable(column.number for column in columns)][:-1]


class TileHistory:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._metrics = [tile.key for tile in _TILES if tile.key in METRICS]
        self._other_keys = [tile.key for tile in _TILES if tile.key not in METRICS]
        self._bins = BinValues(self._tile_values)
        self._drawn_lines: tuple[object, list[list[Run]]] = None, []
        """A cache: the last lines, and the inputs from which they were drawn."""

    def lines(
        self, columns: Sequence[TileColumn], interval: Interval, step_ns: int, size: int, rows: int
    ) -> list[list[Run]]:
        """Returns `rows` lines with the histories of these tiles, the newest values at the right.
        Each cell covers `step_ns`, but at least MIN_CELL_NS."""
        step_ns = max(step_ns, MIN_CELL_NS)
        layout = [(column.tile.key, column.width) for column in columns]
        redraw_ns = 1 if self.session.is_past(interval) else max(step_ns, REDRAW_PERIOD_NS)
        inputs = interval.time_ns // redraw_ns, step_ns, size, rows, layout
        if inputs == self._drawn_lines[0]:
            return self._drawn_lines[1]
        history = self.session.history
        if not columns or history is None:
            return [[] for _ in range(rows)]
        keys, end_ns = (
            [*self._metrics, *self._other_keys],
            -(-interval.time_ns // step_ns) * step_ns,
        )
        self._bins.update(history, Axis(end_ns, step_ns, size, interval.time_ns))
        table = self._bins.values
        parts = [table[-column.history_width :, keys.index(column.tile.key)] for column in columns]
        values, lengths = np.concatenate(parts), [*map(len, parts)]
        highest = np.maximum.reduceat(values, [0, *accumulate(lengths[:-1])]).tolist()
        # The scale of most tiles ends at 1, that of the others at the highest value.
        min_tops = [column.tile.min_scale_top for column in columns]
        ends = zip(min_tops, highest, strict=True)
        tops = [1.0 if min_top is None else max(min_top, value) for min_top, value in ends]
        # Any value above 0 is visible.
        eighths = np.maximum(np.rint(8 * rows * values / np.repeat(tops, lengths)), values > 0)
        areas = level_lines(eighths, rows)
        lines: list[list[Run]] = [[(" ", "text")] for _ in range(rows)]
        start = 0
        for column, column_history in zip(columns, parts, strict=True):
            styles = [(column.tile.style, len(column_history))]
            if column.tile.key == "steal":
                styles = _steal_styles(column_history.tolist())
            for style, count in styles:
                for line, area in zip(lines, areas, strict=True):
                    line.append((area[start : start + count], style))
                start += count
            for line in lines:
                line.append((" " * (column.width - column.history_width), "text"))
        self._drawn_lines = inputs, [line[:-1] for line in lines]
        return self._drawn_lines[1]

    def _tile_values(self, history: History, edges_ns: Times) -> Floats:
        """Returns the values of all tiles, (bins, tiles): means over the CPUs that the user asked
        for, and values of the machine. Unknown values are 0, which is also drawn blank."""
        by_cpu = history.metrics(self._metrics, self.session.selected, edges_ns)
        is_known = np.isfinite(by_cpu)
        means = np.where(is_known, by_cpu, 0.0).sum(2) / np.maximum(is_known.sum(2), 1)
        machine_values = history.machine(self._other_keys, edges_ns)
        machine_values = np.where(np.isfinite(machine_values), machine_values, 0.0)
        return np.concatenate([means, machine_values], axis=1)


def _steal_styles(shares: Sequence[float]) -> list[tuple[str, int]]:
    """Returns the styles of the history of steal, each with its number of adjacent cells. The last
    cells are red if steal is high in all of them."""
    keys = ["over" if value >= MIN_HIGHLIGHTED_STEAL else "steal" for value in shares]
    index = len(keys)
    while index and keys[index - 1] == "over":
        index -= 1
        keys[index] = "alarm"
    return [(key, len([*cells])) for key, cells in groupby(keys)]
