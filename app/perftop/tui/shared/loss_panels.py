"""Panels about losses: the cores that lose most, and the losses of all CPUs over time by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import isfinite, isnan, nan
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import fit, percent
from perftop.draw import charts, theme
from perftop.draw.columns import Run, fold_similar
from perftop.draw.strips import join_cells, overlay, panel_title, safe_cells, wrap_line
from perftop.model.confidence import evidence_texts
from perftop.model.kinds import Episode, cause_of
from perftop.model.tasks import parse_task
from perftop.output.sentences import group_key
from perftop.output.sentences import victims as names_of_victims
from perftop.session.interval import Interval
from perftop.session.loss_history import HISTORY_NS, history_edges
from perftop.session.session import Session
from perftop.tui.shared import episode_style, time_axis
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.cores import Cores, package_name
from perftop.tui.shared.episode_style import PER_CPU_KINDS, RowEpisode, RowEpisodes
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.verdict import loss_history

MAX_WORST_CORES = 10
MAX_RECENT_NS = 60_000_000_000
"""Time in ns for which a core is listed after the end of its loss."""
MAX_LOSS_HISTORY_WIDTH = 34
"""Maximum width of a core's history of losses, in cells."""
SHARE_WIDTH, PACKAGE_WIDTH = 6, 14
"""Widths of a lost share and of the name of a package, in cells."""
ORDER_STEP = 0.05
"""Losses are ordered in steps of this share, so that rows rarely move."""


class CoreLoss(NamedTuple):
    """A core that loses something, or did within the last minute."""

    row: int
    episode: Episode
    cpu: int
    share: float
    """The share of time, clock or IPC that the CPU loses; NaN if unknown."""
    is_running: bool

    @property
    def style(self) -> str:
        return "alarm" if self.is_running else "over"

    @property
    def share_text(self) -> str:
        """The lost share as text for the ring around the core; '' if unknown."""
        return f"−{100 * self.share:.0f}" if isfinite(self.share) else ""


def losing_cores(
    cores: Cores, episodes: RowEpisodes, victims: Mapping[int, RowEpisode]
) -> list[CoreLoss]:
    """Returns the cores that lose, the greatest loss first, then those that lost within the last
    minute. `victims`: the worst running episode of each core, by row."""
    session, now_ns = episodes.session, episodes.interval.time_ns
    topology = session.topology
    running = [
        CoreLoss(row, worst.episode, topology[worst.position].cpu, episodes.lost_share(worst), True)
        for row, worst in victims.items()
    ]
    recent_losses: dict[int, CoreLoss] = {}
    for episode in session.episodes(now_ns - MAX_RECENT_NS, now_ns):
        has_ended = episode.end_ns is not None and episode.end_ns <= now_ns
        if not has_ended or episode.kind not in PER_CPU_KINDS or not episode_style.is_loss(episode):
            continue
        share = nan if episode.depth is None else episode.depth
        for cpu in episode.cpus:
            row = cores.row_of_cpu.get(cpu, -1)
            is_worse = row not in recent_losses or not share <= recent_losses[row].share
            if row >= 0 and row not in victims and is_worse:
                recent_losses[row] = CoreLoss(row, episode, cpu, share, False)

    def rank(loss: CoreLoss) -> tuple[bool, int, int]:
        share = loss.share if isfinite(loss.share) else 0.0
        return not loss.is_running, -round(share / ORDER_STEP), loss.row

    return sorted([*running, *recent_losses.values()], key=rank)


def worst_core_lines(
    session: Session,
    interval: Interval,
    cores: Cores,
    losses: Sequence[CoreLoss],
    selected: int | None,
    width: int,
    height: int,
) -> list[PanelLine]:
    """Returns the cores that lose most, with two or three lines each and, if there is room, blank
    lines between them. Cores on which the same task loses to the same cause share two lines, except
    the first few. `selected`: index of the selected row."""

    def victim_and_cause(loss: CoreLoss) -> object:
        texts = (interval.tasks.get(str(cpu)) for cpu in cores.rows[loss.row].cpus)
        tasks = (task.comm for task in map(parse_task, texts) if task is not None)
        return group_key(loss.episode), loss.is_running, *tasks

    rows = fold_similar(
        losses, victim_and_cause, next((loss for loss in losses if loss.row == selected), None)
    )
    rows = rows[: min(MAX_WORST_CORES, max(0, (height - 1) // 2))]
    shown_count = sum(map(len, rows))
    count_text = f"{shown_count} of {len(losses)}" if shown_count < len(losses) else ""
    lines: list[PanelLine] = [
        (panel_title("ten worst", f"lost %, 10 min  {count_text}".rstrip(), width), None)
    ]
    if not losses:
        text = "no episode on a single core, now or within 1 min"
        return [*lines, ([("  " + fit(text, width - 2), "dim")], None)]
    lines_each = min(4, (height - 1) // max(1, len(rows)))
    past_episodes = session.episodes(interval.time_ns - HISTORY_NS, interval.time_ns)
    for row in rows:
        entry = _core_loss_lines(session, interval, cores, row, past_episodes, width)
        if row[0].row == selected:
            entry = [overlay(runs, 0, [(theme.SELECTED_SIGN, "mark")]) for runs in entry]
        cpu = cores.rows[row[0].row].cpus[0]
        lines += [(runs, cpu) for runs in entry[: min(3, max(2, lines_each - 1))]]
        lines += [([], None)] if lines_each > 2 else []
    return lines


def _core_loss_lines(
    session: Session,
    interval: Interval,
    cores: Cores,
    row: Sequence[CoreLoss],
    past_episodes: Sequence[Episode],
    width: int,
) -> list[list[Run]]:
    """Returns the lines about a core or several similar ones: names, loss and its history, then the
    sentence and the evidence or, for several cores, their names. `past_episodes`: the episodes of
    the history, which are read once for all rows."""
    loss, core, kind = row[0], cores.rows[row[0].row], "core" if cores.has_pairs else "CPU"
    strip_width = min(MAX_LOSS_HISTORY_WIDTH, max(0, width // 2 - 4))
    shares = sorted(core_loss.share for core_loss in row if isfinite(core_loss.share))
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (*shares[:1], *shares[-1:]))
    share_text = (f"{'–'.join(ends)} %" if ends else "–").rjust(SHARE_WIDTH)
    room = max(0, width - strip_width - len(share_text) - 7)
    name = f"{kind} {cores.name(loss.row, '') if cores.has_pairs else core.cpus[0]}"
    l3_name = [] if core.l3 is None else [f"L3 {core.l3}"]
    l3_name += [f"CPUs {cores.cpu_lists[loss.row]}"] if cores.has_pairs else []
    cpus = [*core.cpus]
    if len(row) > 1:
        name, l3_name = f"+{len(row)} alike", []
        cpus = [cpu for core_loss in row for cpu in cores.rows[core_loss.row].cpus]
    history = _loss_history(session, past_episodes, cpus, interval.time_ns, strip_width)
    room -= len(name)
    wordings = [f"  {', '.join(l3_name[:n])}" for n in (2, 1, 0)]
    details = next((wording for wording in wordings if len(wording) <= room), "")
    marker: Run = (episode_style.marker(loss.episode), loss.style)
    first_line: list[Run] = [("  ", "text"), marker, (" ", "text"), (name, "bright")]
    first_line += [(f"{details:<{max(0, room)}}", "dim"), (share_text, loss.style), ("  ", "text")]
    highest = float(np.fmax.reduce(history, initial=0.0))
    first_line += _history_runs(history, highest, loss.style)
    if len(row) > 1:
        names = " ".join(cores.name(core_loss.row, "") for core_loss in row)
        return [first_line, [("    ", "text"), (fit(f"{kind}s {names}", width - 4), "dim")]]
    group = [replace(loss.episode, cpus=[loss.cpu], depth=loss.share)]
    victims = names_of_victims(session, group, interval.tasks) if loss.is_running else None
    styles = loss.style, "text"
    sentence = episode_style.sentence_runs(session, group, max(0, width - 4), victims, styles)
    pieces = evidence_texts(loss.episode.cause, loss.episode.evidence)
    evidence, *_ = wrap_line(safe_cells(" · ".join(pieces)), width - 4) or [""]
    if pieces and len(pieces[0]) > width - 4:
        evidence = fit(safe_cells(pieces[0]), width - 4)
    return [first_line, [("    ", "text"), *sentence], [("    ", "text"), (evidence, "dim")]]


def package_loss_lines(session: Session, now_ns: int, cores: Cores, width: int) -> list[PanelLine]:
    """Returns each package's losses over the last ten minutes: their history, all on one scale,
    and the share of the time that tasks wanted on its CPUs."""
    history = loss_history(session)
    edges_ns = history_edges(now_ns, max(1, width - PACKAGE_WIDTH - SHARE_WIDTH - 2))
    is_known = history.between(edges_ns)[0] > 0
    packages = list(dict.fromkeys(core.package for core in cores.rows))
    shares = [history.shares(edges_ns, package) for package in packages]
    highest = float(np.nanmax([0.0, *chain(*shares)]))
    description = "% of the time that tasks of each package wanted"
    lines: list[PanelLine] = [(panel_title("lost over 10 min", description, width), None)]
    for package, series in zip(packages, shares, strict=True):
        first_cpu = next(core.cpus[0] for core in cores.rows if core.package == package)
        name = fit(f"  {package_name(package)}", PACKAGE_WIDTH)
        whole = history.shares(edges_ns[[0, -1]], package).item()
        share_text = (f"{percent(whole)} %" if isfinite(whole) else "–").rjust(SHARE_WIDTH + 2)
        strip = _history_runs(np.where(is_known, np.nan_to_num(series), nan), highest, "hot")
        lines.append(([(name, "text"), *strip, (share_text, "text")], first_cpu))
    return lines


def _loss_history(
    session: Session, episodes: Sequence[Episode], cpus: Sequence[int], now_ns: int, size: int
) -> Floats:
    """Returns the lost shares of `size` equal parts of the last ten minutes: the depth of the worst
    episode on these CPUs in each part; NaN before the session."""
    depths, start_ns = np.zeros(size), now_ns - HISTORY_NS
    depths[: max(0, session.hello.raw_ns - start_ns) * size // HISTORY_NS] = np.nan
    for episode in episodes:
        if episode_style.is_loss(episode) and not set(cpus).isdisjoint(episode.cpus):
            end_ns = now_ns if episode.end_ns is None else min(episode.end_ns, now_ns)
            first = max(0, (episode.start_ns - start_ns) * size // HISTORY_NS)
            last = max(first, min(size - 1, (end_ns - start_ns) * size // HISTORY_NS))
            depth = max(min(1.0, episode.depth or 0.0), 1e-3)
            depths[first : last + 1] = np.fmax(depths[first : last + 1], depth)
    return depths


def _history_runs(shares: Floats, highest: float, style: str) -> list[Run]:
    """Returns a history of losses as cells, on a scale up to `highest`; blank where unknown."""
    cells: list[Run] = []
    for height in np.ceil(8 * shares / max(highest, 1e-3)).tolist():
        if isnan(height):
            cells.append((" ", "text"))
        else:
            level = theme.LEVELS[max(1, round(height))]
            cells.append((level, style if height else "rule"))
    return join_cells(cells)


# --- The panel "over time": the CPU seconds that were lost in each second, stacked by cause.

LABEL_WIDTH = 6
"""Width in cells of the scale to the left of the chart."""
FIXED_LINES, MAX_CHART_HEIGHT = 3, 12
"""Number of lines besides the chart (title, axis, its times), and maximum number of all lines."""
MIN_CAUSE_SHARE = 0.01
"""Minimum share of the losses in the chart for a cause to be drawn."""
SCALES_S = tuple(base * 10.0**power for power in range(-2, 5) for base in (1, 2, 5))
"""Possible upper ends of the scale, in CPU seconds per second."""
_COLOURS = {
    "sibling": ("lp1-4", "lp1-7"), "scheduler": ("loss-11", "loss-8"), "hypervisor": ("steal",),
    "memory": ("both-3", "both-1"), "package": ("gap-heat",), "thermal": ("gap-heat",),
    "cache": ("both-2", "both-4"), "license": ("gap-licence",), "": ("rule",),
}  # fmt: skip
"""Colours by cause. A ribbon of several pairs of tasks has a stripe for each pair, in alternating
colours; a chart has the first colour."""


def cause_colours(cause: str) -> tuple[str, ...]:
    return _COLOURS.get(cause, ("gap-power",) if cause.startswith("power-") else ("over",))


def legend(causes: Iterable[str]) -> list[Run]:
    """Returns the colour and the short name of each cause."""
    runs: list[Run] = []
    for cause in causes:
        name = cause_of(cause).short_text or "others"
        runs += [(f" {theme.LP0 * 2}", cause_colours(cause)[0]), (f" {name} ", "dim")]
    return runs


def loss_chart_panel(
    session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
) -> list[PanelLine]:
    """Returns the title, the chart with its scale, and the axis with the episodes. Without colour,
    the causes are added up."""
    height, room = max(1, min(height, MAX_CHART_HEIGHT) - FIXED_LINES), max(1, width - LABEL_WIDTH)
    axis = time_axis.fit_axis(
        interval.time_ns, settings.window_s, room, first_ns=session.past.first_ns
    )
    known_s, _, lost_s = loss_history(session).between(axis.edges)
    seconds = np.where(known_s > 0, known_s, np.nan)
    min_lost_s = MIN_CAUSE_SHARE * sum(lost.sum() for lost in lost_s.values())
    rates = {cause: lost / seconds for cause, lost in lost_s.items() if lost.sum() > min_lost_s}
    total = sum(rates.values(), 0.0 * seconds)
    top = charts.scale_top(total, SCALES_S, None)
    columns = charts.area_chart(total / top, height, "loss", ascii_=settings.ascii)
    chart, title_end = charts.chart_lines(columns), []
    if settings.glyphs == "colour" and rates:
        chart = eighths_lines(_stacked_columns(rates, top, height))
        title_end = legend(rates)
    title = panel_title("over time", "CPU s lost per second", width, title_end)
    lines: list[PanelLine] = [(title, None)]
    ticks = time_axis.ticks(axis, session.unix_s)
    episodes = time_axis.visible_episodes(axis, session)
    chart += [time_axis.tick_line(axis, episodes, ticks), time_axis.times_line(axis, ticks)]
    for y, runs in enumerate(chart):
        label = f"{top:g}" if y == 0 else "0" if y == height - 1 else ""
        lines.append(([(f"{label:>{LABEL_WIDTH - 1}} ", "dim"), *runs], None))
    return lines


def _stacked_columns(rates: Mapping[str, Floats], top: float, height: int) -> Iterator[list[str]]:
    """Yields for each column of the chart the colours of its eighths of a cell, from the top."""
    for values in np.nan_to_num(np.array([*rates.values()])).T.tolist():
        colours: list[str] = []
        for cause, value in zip(rates, values, strict=True):
            colours += [cause_colours(cause)[0]] * round(8 * height * value / top)
        yield [""] * (8 * height - len(colours)) + colours[: 8 * height][::-1]


def eighths_lines(columns: Iterable[Sequence[str]]) -> list[list[Run]]:
    """Returns the lines of a chart from the colours of the eighths of a cell in each column."""
    cells = [[_eighths_cell(c[y : y + 8]) for y in range(0, len(c), 8)] for c in columns]
    return [join_cells(line) for line in zip(*cells, strict=True)]


def _eighths_cell(eighths: Sequence[str]) -> Run:
    """Returns a cell with these colours of its eighths, from the top; '' is the background. A block
    character has only two colours: below, that of the lowest eighth; above, the most frequent one.
    A thin band that touches neither edge of the cell is moved to the nearer edge."""
    indexes = [i for i, colour in enumerate(eighths) if colour]
    if indexes and indexes[0] > 0 and indexes[-1] < 7:
        band, blank = [eighths[i] for i in indexes], [""] * (8 - len(indexes))
        eighths = [*blank, *band] if indexes[0] + indexes[-1] > 7 else [*band, *blank]
    lower, count = eighths[-1], 1
    while count < 8 and eighths[-count - 1] == lower:
        count += 1
    if count == 8:
        return (theme.LEVELS[8], lower) if lower else (" ", "text")
    upper_eighths = eighths[: 8 - count]
    upper = max(sorted({*upper_eighths}), key=upper_eighths.count)
    return theme.LEVELS[count], f"{lower or 'ground'}/{upper or 'ground'}"
