"""The numbers of a core, in a panel and in single lines. While an earlier moment of a live session
is shown, the panel also shows the tasks and the episode at the cursor, and the current numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import isnan, nan

import numpy as np

from perftop.base.text import MISSING, ClockUnit, clock_time, fit
from perftop.draw import theme
from perftop.draw.columns import Column, Run
from perftop.draw.strips import MAX_QUIET_SHARE, Piece, panel_title
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.kinds import Episode
from perftop.model.numbers import NUMBERS, Number
from perftop.session.interval import Interval
from perftop.session.selection import max_read_ns
from perftop.session.session import Session
from perftop.session.values import columns_by_key, cpu_values, has_few_ticks, suspect_rows
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.episode_style import lowered_number
from perftop.tui.shared.row_numbers import ViewSettings, make_number_column, session_clock_unit
from perftop.tui.shared.tables import INDENT, task_ranking

MAX_CPUS_AT_CURSOR = 2
"""Maximum number of CPUs that a machine may have for the panel to show the numbers of all of them
at the cursor."""
MIN_SHOWN_COUNT = 0.05
"""Minimum mean number of waiting tasks that is shown."""
MIN_HEIGHT_WITH_EPISODE = 6
"""Minimum height in lines of the panel at the cursor with a line for an episode."""
_NAME_WIDTH, _UNIT_WIDTH = 20, 4
_VALUE_WIDTHS = 7, 12
NUMBER_KEYS = ("util", "busy_hz", "ipc", "ipc_alone", "user", "system", "kernel_cycles", "idle",
               "involuntary", "steal")  # fmt: skip
"""Keys of the numbers of the selected core, in the order of its lines."""
_NUMBER_NAMES = {"util": "busy", "idle": "halts, idle", "involuntary": "halts, involuntary"}
"""Names of numbers by key, where they differ from the plain name."""


def core_panel(
    session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
) -> list[PanelLine]:
    """Returns the numbers of the selected core or, at the cursor, of both CPUs of a machine with
    two. Beside the numbers at the cursor are those of a span that ends now and has the same length,
    if that can be read quickly."""
    core = next((core for core in session.cores if settings.cpu in core), [])
    if not core:
        return [(panel_title("no core", "selected", width), None)]
    row, name, now = session.topology[session.position[core[0]]], f"CPU {core[0]}", settings.now
    if len(core) > 1 and row.core is not None:
        has_packages = len({row.package for row in session.topology}) > 1
        name = f"core {row.package}:{row.core}" if has_packages else f"core {row.core}"
    title = panel_title(name, "selected", width)
    cpus, room = core, width - INDENT - _NAME_WIDTH - _UNIT_WIDTH
    if settings.cursor_ns is not None:
        length = f"{interval.elapsed_s:.1f} s"
        title = panel_title("at the cursor", f"{clock_time(interval.time)}, {length}", width)
        if settings.range_ns is not None:
            title = panel_title(f"in {settings.range_name}", length, width)
        selected_cpus = [session.topology[position].cpu for position in session.selected]
        cpus = selected_cpus if len(selected_cpus) <= MAX_CPUS_AT_CURSOR else core
    if now is not None and settings.range_ns is not None:
        now = _equal_span_until(session, now, interval)
    sides = [interval] if now is None else [interval, now]
    if len(cpus) * len(sides) > max(1, room // _VALUE_WIDTHS[0]):
        cpus = [cpu for cpu in core if cpu == settings.cpu]
    size = max(1, min(_VALUE_WIDTHS[1], room // (len(cpus) * len(sides))))
    line_name, headings = "", [f"CPU {cpu}" for cpu in cpus]
    if now is not None:
        line_name = f"CPU {cpus[0]}" if len(cpus) == 1 else "CPU"
        labels = "then" if settings.range_ns is None else settings.range_name, "now"
        words = [(f"{cpu} {label}", label) for cpu in cpus for label in labels]
        headings = [short if len(cpus) == 1 or len(text) >= size else text for text, short in words]
    heading_text = "".join(f"{heading:>{size}}" for heading in headings)
    names = " " * INDENT + fit(line_name, _NAME_WIDTH)
    lines: list[list[Run]] = [title, [(names + heading_text, "dim")]]
    variants = session.evaluator.variants
    keys = [key for key in NUMBER_KEYS if variants["ipc" if key == "ipc_alone" else key]]
    # The IPC while alone is an estimate, known only for the present and only for cores with two
    # threads.
    if settings.cursor_ns is not None or all(len(cpus) != 2 for cpus in session.cores):
        keys = [key for key in keys if key != "ipc_alone"]
    if variants["system"] and "kernel_cycles" in keys:
        keys.remove("kernel_cycles")
    numbers = [NUMBERS[key] for key in keys] + [*session.evaluator.registry.events.values()]
    task_lines: list[list[Run]] = []
    if settings.cursor_ns is not None:
        if height >= MIN_HEIGHT_WITH_EPISODE:
            lines += _episode_lines(session, interval, cpus, width)
        task_count = (height - len(lines)) // 2
        task_lines = _task_lines(session, sides, cpus, size)[: max(0, task_count)]
        numbers = numbers[: max(1, height - len(lines) - len(task_lines))]
    worst = worst_by_number(session, interval, cpus)
    clock = session_clock_unit(session, settings.units)
    for number in numbers:
        episode = worst.get(number.key)
        lines.append(number_line(session, interval, number, cpus, size, clock, episode, now))
    return [(line, None) for line in (*lines, *task_lines)]


def _equal_span_until(session: Session, now: Interval, interval: Interval) -> Interval:
    """Returns the interval that ends with `now` and is as long as the other one, if a span of this
    length can be read quickly."""
    span_ns = min(round(interval.elapsed_s * 1e9), max_read_ns(session))
    cached_spans: dict[tuple[int, int], Interval] = session.caches["spans until now"]
    if (key := (now.time_ns, span_ns)) not in cached_spans:  # reading one takes milliseconds
        cached_spans.clear()
        cached_spans[key] = session.interval_at(*key) or now
    return cached_spans[key]


def _episode_lines(
    session: Session, interval: Interval, cpus: Sequence[int], width: int
) -> list[list[Run]]:
    """Returns the line of the worst loss on these CPUs during the interval, if any."""
    episodes = [
        episode
        for episode in episode_style.episodes_during(session, interval)
        if episode_style.is_loss(episode) and not set(cpus).isdisjoint(episode.cpus)
    ]
    groups = episode_style.group_episodes(episodes)
    return [episode_style.group_line(session, interval, group, width) for group in groups[:1]]


def _task_lines(
    session: Session, sides: Sequence[Interval], cpus: Sequence[int], size: int
) -> list[list[Run]]:
    """Returns the number of waiting tasks, if any, and a line for each task that ran on these
    CPUs in one of these intervals, with its share of each CPU in each interval. The shares in the
    first interval decide their order."""
    shares = defaultdict[str, list[float]](lambda: [0.0] * (len(cpus) * len(sides)))
    waiting_counts = [0.0] * (len(cpus) * len(sides))
    for side, interval in enumerate(sides):
        ranking = task_ranking(session, interval)
        for i, cpu in enumerate(cpus):
            waiting_counts[i * len(sides) + side] = ranking.waiting_by_cpu.get(cpu, nan)
            for share, name in ranking.names_by_cpu.get(cpu, ()):
                shares[name][i * len(sides) + side] += share
    first_shares = {name: sum(values[:: len(sides)]) for name, values in shares.items()}
    order = sorted(shares, key=lambda name: (-first_shares[name], -sum(shares[name]), name))

    def line(name: str, values: Sequence[float], unit: str) -> list[Run]:
        cells: list[Run] = [("  ", "text"), (fit(name, _NAME_WIDTH), "text")]
        for i, value in enumerate(values):
            text = theme.NEITHER if not value else MISSING if isnan(value) else f"{value:.1f}"
            style = "dim" if i % len(sides) or not value else "text"
            cells.append((f"{text:>{size}}", style))
        return [*cells, (unit, "dim")]

    lines = [line(name, [100 * share for share in shares[name]], " %") for name in order]
    has_waits = any(count >= MIN_SHOWN_COUNT for count in waiting_counts)
    return [line("tasks waiting", waiting_counts, ""), *lines] if has_waits else lines


def number_line_width(cpus: int, size: int) -> int:
    """Returns the width of a line with a number of each of `cpus` CPUs, each in `size` cells."""
    return INDENT + _NAME_WIDTH + cpus * size + _UNIT_WIDTH


def number_line(
    session: Session, interval: Interval, number: Number, cpus: Sequence[int], size: int,
    clock: ClockUnit, episode: Episode | None, now: Interval | None = None,
) -> list[Run]:  # fmt: skip
    """Returns a line with a number of each CPU, or a single number if the CPUs share it. `episode`:
    the episode that worsens it. `now`: the interval whose values are beside those of the other."""
    name = fit(_NUMBER_NAMES.get(number.key, number.plain_name), _NAME_WIDTH)
    marker: Run = ("  ", "text")
    if episode is not None:
        marker = (f"{episode_style.marker(episode)} ", "alarm")
    column = make_number_column(number, clock, size)
    cells, sides = [*_cpu_cells(session, interval, column, cpus, episode)], 1
    if now is not None:
        now_cells = ((text, "dim") for text, _ in _cpu_cells(session, now, column, cpus, None))
        cells, sides = [cell for pair in zip(cells, now_cells, strict=True) for cell in pair], 2
    unit = number.unit.removeprefix("1") if number.is_rate else number.unit_name(clock)
    gap: Run = (" " * size * (sides * len(cpus) - len(cells)), "text")
    unit_run: Run = (f" {unit:<{_UNIT_WIDTH - 1}}", "dim")
    return [marker, (name, "text"), *cells, gap, unit_run]


def core_number_pieces(
    session: Session, interval: Interval, cpus: list[int], keys: Iterable[str], clock: ClockUnit
) -> Iterator[Piece]:
    """Yields numbers of a core for a single line, the most important first. Unknown numbers, except
    the first, are left out."""
    worst, numbers = worst_by_number(session, interval, cpus), columns_by_key(session)
    for rank, key in enumerate((key for key in keys if key in numbers), 1):
        number = numbers[key]
        column = make_number_column(number, clock, len("100.0"))
        rows = [session.position[cpu] for cpu in cpus]
        if rank > 1 and np.isnan(cpu_values(session, interval, key)[rows]).all():
            continue
        cells = [*_cpu_cells(session, interval, column, cpus, worst.get(key))]
        gap: Run = (" ", "text")
        unit: Run = (f" {number.unit_name(clock)}".rstrip(), "dim")
        yield rank, [(number.label, "dim"), *(run for cell in cells for run in (gap, cell)), unit]


def worst_by_number(session: Session, interval: Interval, cpus: list[int]) -> dict[str, Episode]:
    """Returns the worst running episode on these CPUs, by key of the number that it makes worse."""
    episode_by_key: dict[str, Episode] = {}
    episodes = episode_style.episodes_during(session, interval)
    for episode in sorted(episodes, key=episode_style.severity_key):
        key = lowered_number(episode)
        if key and episode_style.is_loss(episode) and not set(cpus).isdisjoint(episode.cpus):
            episode_by_key.setdefault(key, episode)
    return episode_by_key


def _cpu_cells(
    session: Session, interval: Interval, column: Column, cpus: Sequence[int],
    episode: Episode | None,
) -> Iterator[Run]:  # fmt: skip
    """Yields the number of each CPU, or a single number if the CPUs share it; it is red on CPUs on
    which the episode makes it worse."""
    key, number, alarm_cpus = column.key, column.source, episode.cpus if episode else ()
    doubts, shares = suspect_rows(key, session, interval), interval.event_counted_shares.get(key)
    values = cpu_values(session, interval, key)
    is_resting = interval.is_at_rest if number.while_running else None
    if key in {"user", "system"}:
        is_resting = has_few_ticks(interval)
    for cpu in cpus if number.scope == "cpu" else cpus[:1]:
        row = session.position[cpu]
        is_alone = key == "ipc_alone"
        value = _ipc_alone(session, interval, cpu) if is_alone else float(values[row])
        is_quiet = number.unit == "ratio" and value < MAX_QUIET_SHARE
        text, style = column.cell(
            value,
            "alarm" if cpu in alarm_cpus else "dim" if is_quiet else "text",
            online=bool(interval.online[row]),
            resting=is_resting is not None and bool(is_resting[row]),
            doubted=bool(doubts[row]),
            estimated=shares is not None and shares[row] < MIN_COUNTED_SHARE,
        )
        yield column.pad(text), style


def _ipc_alone(session: Session, interval: Interval, cpu: int) -> float:
    """Returns the IPC of a CPU while its sibling is idle, from the evidence of an episode in this
    interval, else the current estimate; NaN if unknown, or if the interval is in the past."""
    for episode in episode_style.episodes_during(session, interval):
        ipc = episode.evidence.get("ipc_alone") if cpu in episode.cpus else None
        if isinstance(ipc, int | float):
            return float(ipc)
    siblings = session.neighbours.siblings
    return float(siblings.ipc_alone()[session.position[cpu]]) if interval.seq else nan
