"""The line of a package, above its rows or instead of them, in the overview and the map:
utilisation, clock, power, memory traffic and losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import isnan
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Ints
from perftop.base.text import ClockUnit, count_noun
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import Piece, cut_runs, fit_line, pieces_that_fit, smt_bar, width
from perftop.model.evaluation import MEMORY_COUNTERS, MEMORY_SHARE
from perftop.model.kinds import Episode, kind_of
from perftop.model.numbers import INDEX
from perftop.output.sentences import depth_text
from perftop.session.values import mean_ceiling
from perftop.tui.shared import episode_style
from perftop.tui.shared.cores import Cores, package_name
from perftop.tui.shared.episode_style import RowEpisode, RowEpisodes, lowered_number
from perftop.tui.shared.row_numbers import package_values

MIN_BAR_WIDTH = 16
"""Minimum width in cells of a bar that is readable."""
MIN_WIDTH_FOR_CEILING = 50
"""Minimum width, in cells, of a line that shows the ceiling beside the clock."""
MIN_WIDTH_FOR_CAUSE = 100
"""Minimum width, in cells, of a line that names the most frequent cause of losses."""
_LOSS_RANK = 6
"""Rank of the loss. Those of the columns are 0 to 5, from left to right."""
GAP, NARROW_GAP = 3, 2
"""Cells between two columns; the narrow gap is used if it makes room for one more column."""


class _Layout(NamedTuple):
    pieces: dict[int | None, list[Piece]]
    """The pieces of each package, by rank."""
    columns: list[tuple[int, int]]
    """Rank and width of each column that fits, which all packages share."""
    gap: int


class PackageLines:
    """The lines of the packages of one machine in one interval."""

    def __init__(self, cores: Cores, episodes: RowEpisodes, clock: ClockUnit) -> None:
        """`episodes`: the episodes in the interval that the lines are about."""
        self._session, self._interval = episodes.session, episodes.interval
        self._cores, self._episodes, self._clock = cores, episodes, clock
        self._layouts: dict[int, _Layout] = {}
        """Layouts by size of the lines."""

    @cached_property
    def victims(self) -> Mapping[int, RowEpisode]:
        """The worst episode of each core that loses more than its whole package, by row."""
        worst = self._episodes.worst_by_row(self._cores)
        return {row: episode for row, episode in worst.items() if episode.is_victim}

    def line(self, package: int | None, size: int, *, is_folded: bool = False) -> list[Run]:
        """Returns the line in `size` cells, with the same columns as those of other packages; a
        loss replaces the least important ones if there is no other room. The line ends with a rule
        or, for a folded package without rows, with a bar of SMT states, averaged over its cores."""
        if size not in self._layouts:
            self._layouts[size] = self._layout(size)
        layout = self._layouts[size]
        pieces = dict(layout.pieces[package])
        columns: list[Piece] = []
        for rank, cells in layout.columns:
            runs = pieces.get(rank, [])
            columns.append((rank, [*runs, (" " * (cells - width(runs)), "text")]))
        if loss := pieces.get(_LOSS_RANK):
            columns.append((0, loss))
        runs = cut_runs(fit_line(columns, size - 2, layout.gap), 0, size - 2)
        room = size - width(runs) - 2
        if is_folded and room >= MIN_BAR_WIDTH:
            _, _, cores = self._cores.package_rows(package)
            states = self._interval.split.states[cores]
            states = states[~np.isnan(states[:, 3])]
            if len(states):
                bar = smt_bar(states.mean(axis=0).tolist(), room - 1)
                return [*runs, ("  ", "text"), *bar, (" ", "text")]
        return [*runs, (" " + theme.RULE * room, "rule"), (" ", "text")]

    def _layout(self, size: int) -> _Layout:
        packages = dict.fromkeys(package for package, _ in self._cores.rows_by_group)
        pieces = {package: self._pieces(package, size) for package in packages}
        widths = dict.fromkeys(range(_LOSS_RANK), 0)
        for rank, runs in chain.from_iterable(pieces.values()):
            if rank != _LOSS_RANK:
                widths[rank] = max(widths[rank], width(runs))
        parts: list[Piece] = [(rank, [(" " * n, "text")]) for rank, n in widths.items() if n]
        gap, fitting = GAP, pieces_that_fit(parts, size - 2 + GAP, GAP)
        narrow = pieces_that_fit(parts, size - 2 + NARROW_GAP, NARROW_GAP)
        if len(narrow) > len(fitting):
            gap, fitting = NARROW_GAP, narrow
        return _Layout(pieces, [(rank, width(runs)) for rank, runs in fitting], gap)

    def _pieces(self, package: int | None, size: int) -> list[Piece]:
        interval = self._interval
        rows, cpus, cores = self._cores.package_rows(package)
        episodes, package_wide = self._episodes.package_episodes(package)
        marker: Run = (episode_style.marker(episodes[0]), "alarm") if episodes else (" ", "text")
        unit = "core" if self._cores.has_pairs else "CPU"
        pieces: list[Piece] = [
            (0, [(" ", "text"), marker, (" ", "text"), (package_name(package), "bright")])
        ]
        util, hz = interval.values.group(cpus, [INDEX["util"], INDEX["busy_hz"]]).tolist()
        if not isnan(util):
            pieces.append((1, [("busy ", "dim"), (f"{100 * util:5.1f}", "text"), (" %", "dim")]))
        if not isnan(hz):
            clock_unit, per_hz, digits = self._clock
            has_words = size >= MIN_WIDTH_FOR_CEILING
            is_lowered = any(lowered_number(episode) == "busy_hz" for episode in package_wide)
            runs: list[Run] = [("clock ", "dim")] if has_words else []
            runs.append((f"{hz * per_hz:.{digits}f}", "alarm" if is_lowered else "text"))
            ceiling = mean_ceiling(interval.ceiling_hz[cores], interval.values["util"][cpus])
            if not isnan(ceiling) and has_words:
                runs.append((f" of {ceiling * per_hz:.{digits}f}", "dim"))
            pieces.append((2, [*runs, (f" {clock_unit}", "dim")]))
        pieces += [
            *self._power_and_memory(cpus),
            (5, [(count_noun(len(rows), unit), "dim")]),
            (_LOSS_RANK, self._loss_runs(rows, unit, package_wide, size)),
        ]
        return [piece for piece in pieces if piece[1]]

    def _power_and_memory(self, cpus: Ints) -> Iterator[Piece]:
        """Yields the power, and the memory traffic with the highest so far."""
        cpu = self._session.topology[int(cpus[0])].cpu if len(cpus) else -1
        keys = "power_w", "power_limit_w", "power_dram_w", MEMORY_SHARE, *MEMORY_COUNTERS
        power, limit, dram, share, *rates = package_values(
            self._session, self._interval, cpu, *keys
        )
        if not isnan(power):
            limit_text = "" if isnan(limit) else f" of {limit:.0f}"
            runs: list[Run] = [(f"{power:3.0f}", "text"), (f"{limit_text} W", "dim")]
            if not isnan(dram):
                runs += [(" + ", "dim"), (f"{dram:.0f}", "text"), (" dram", "dim")]
            yield 3, runs
        if not isnan(rate := sum(rates)):
            highest = f", highest {rate / share / 1e9:5.1f}" if share > 0 else ""
            unit: Run = f" GB/s{highest}", "dim"
            yield 4, [("mem ", "dim"), (f"{rate / 1e9:5.1f}", "text"), unit]

    def _loss_runs(
        self, rows: Sequence[int], unit: str, package_wide: Sequence[Episode], size: int
    ) -> list[Run]:
        """Returns the loss of the whole package, or how many cores lose to the commonest cause."""
        if package_wide:
            worst = package_wide[0]
            return [(f"{worst.kind} {depth_text(worst.kind, worst.depth)}".rstrip(), "alarm")]
        members = set(rows) if self.victims else set()
        victim_episodes = [victim.episode for row, victim in self.victims.items() if row in members]
        if not victim_episodes:
            return []
        causes = [e.cause if e.kind == "neighbour" else e.kind for e in victim_episodes]
        cause = max(dict.fromkeys(causes), key=causes.count)
        count = causes.count(cause)
        loses = "loses" if count == 1 else "lose"
        has_cause = size >= MIN_WIDTH_FOR_CAUSE
        loss_name = kind_of(victim_episodes[causes.index(cause)]).loss_text if has_cause else ""
        text = f"{count} of {count_noun(len(rows), unit)} {loses} {loss_name}".rstrip()
        return [(text, "text")]
