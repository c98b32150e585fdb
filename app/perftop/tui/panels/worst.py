"""The cores that lose most, now or within the last minute: which of them they are, and a list with
who loses what to whom and the losses of the last ten minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from perftop.draw import theme
from perftop.draw.columns import Run, fit
from perftop.draw.strips import join_cells, panel_title, safe_cells, wrapped_lines
from perftop.model.kinds import Episode
from perftop.output.evidence import evidence_pieces
from perftop.output.sentences import losers as names_of_losers
from perftop.output.sentences import sentence
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.episode_style import CPU_KINDS, RowEpisode, RowEpisodes
from perftop.tui.shared.places import Places

MAX_WORST = 10
RECENT_NS = 60_000_000_000
"""How long a core is listed after its loss has ended, in ns."""
STRIP_NS, MAX_STRIP = 600_000_000_000, 34
"""Time that a strip of losses covers, in ns, and its maximum width in cells."""
SHARE_WIDTH = 6
"""Width of a lost share, in cells."""
ORDER_STEP = 0.05
"""Losses are ordered in steps of this share, so that rows seldom move."""


class Loser(NamedTuple):
    """A core that loses something, or did within the last minute."""

    row: int
    """Index of its place."""
    episode: Episode
    cpu: int
    """Number of the CPU that loses."""
    share: float
    """NaN if unknown."""
    is_running: bool

    @property
    def style(self) -> str:
        return "alarm" if self.is_running else "over"

    @property
    def percent(self) -> str:
        """The lost share as it is written into the ring of the core; '' if unknown."""
        return f"−{100 * self.share:.0f}" if isfinite(self.share) else ""


def losers(
    session: Session, interval: Interval, places: Places, episodes: RowEpisodes,
    victims: Mapping[int, RowEpisode],
) -> list[Loser]:  # fmt: skip
    """Returns the cores that lose, the greatest loss first; then those that lost within the last
    minute. `victims`: the worst running episode of each core, by index of its place."""
    topology, now_ns = session.topology, interval.time_ns
    running = [
        Loser(row, worst.episode, topology[worst.row].cpu, episodes.share(worst), True)
        for row, worst in victims.items()
    ]
    recent: dict[int, Loser] = {}
    for episode in session.episodes(now_ns - RECENT_NS, now_ns):
        has_ended = episode.end_ns is not None and episode.end_ns <= now_ns
        if not has_ended or episode.kind not in CPU_KINDS or not episode_style.is_loss(episode):
            continue
        share = nan if episode.depth is None else episode.depth
        for cpu in episode.cpus:
            row = places.row_of_cpu.get(cpu, -1)
            if (
                row >= 0
                and row not in victims
                and (row not in recent or not share <= recent[row].share)
            ):
                recent[row] = Loser(row, episode, cpu, share, False)

    def rank(loser: Loser) -> tuple[bool, int, int]:
        share = loser.share if isfinite(loser.share) else 0.0
        return not loser.is_running, -round(share / ORDER_STEP), loser.row

    return sorted([*running, *recent.values()], key=rank)


def losing_cores(
    session: Session, interval: Interval, choice: Choice, width: int, height: int
) -> list[PanelLine]:
    """Returns the list as a panel."""
    places, episodes = Places(session, choice.mask), RowEpisodes(session)
    episodes.read(interval)
    listed = losers(session, interval, places, episodes, episodes.victims(places))
    selected = places.row_of_cpu.get(-1 if choice.cpu is None else choice.cpu)
    return worst_cores(session, interval, places, listed, selected, width, height)


def worst_cores(
    session: Session, interval: Interval, places: Places, listed: Sequence[Loser],
    selected: int | None, width: int, height: int,
) -> list[PanelLine]:  # fmt: skip
    """Returns the list in at most `height` lines: two or three for each core, with a blank line
    between cores where there is room. `selected`: index of the selected place."""
    count = min(len(listed), MAX_WORST, max(0, (height - 1) // 2))
    count_text = f"{count} of {len(listed)}" if count < len(listed) else ""
    lines: list[PanelLine] = [
        (panel_title("ten worst", f"lost %, 10 min  {count_text}".rstrip(), width), None)
    ]
    if not listed:
        text = "no core loses anything, nor did within a minute"
        return [*lines, ([("  " + fit(text, width - 2), "dim")], None)]
    lines_each = min(4, (height - 1) // max(1, count))
    strip_width = min(MAX_STRIP, max(0, width // 2 - 4))
    name_width = width - strip_width - SHARE_WIDTH - 7
    past = session.episodes(interval.time_ns - STRIP_NS, interval.time_ns)
    for loser in listed[:count]:
        place = places.places[loser.row]
        cpu = place.cpus[0]
        mark: Run = (theme.CHOSEN_SIGN, "mark") if loser.row == selected else (" ", "text")
        name = f"core {places.name(loser.row, '')}" if places.pairs else f"CPU {cpu}"
        where = [] if place.l3 is None else [f"L3 {place.l3}"]
        where += [f"CPUs {places.cpus[loser.row]}"] if places.pairs else []
        room = max(0, name_width - len(name))
        details = next((f"  {', '.join(where[:n])}" for n in (2, 1, 0)
                        if len(", ".join(where[:n])) + 2 <= room), "")  # fmt: skip
        share = f"{100 * loser.share:.0f} %" if isfinite(loser.share) else "–"
        head: list[Run] = [
            mark, (" ", "text"), (episode_style.sign(loser.episode), loser.style), (" ", "text"),
            (name, "bright"), (f"{details:<{room}}", "dim"),
            (f"{share:>{SHARE_WIDTH}}", loser.style), ("  ", "text"),
            *_strip(past, place.cpus, interval.time_ns, strip_width, loser.style),
        ]  # fmt: skip
        group = [replace(loser.episode, cpus=[loser.cpu], depth=loser.share)]
        names = names_of_losers(session, group, interval.tasks)
        parts = sentence(session.topology, group, names, over=not loser.is_running, most=width - 4)
        styles = {"lost": loser.style}
        what: list[Run] = [(safe_cells(p.text), styles.get(p.role, "text")) for p in parts]
        evidence = " · ".join(evidence_pieces(loser.episode.cause, loser.episode.evidence))
        evidence, *_ = wrapped_lines(safe_cells(evidence), width - 4) or [""]
        below: list[list[Run]] = [what, [(evidence, "dim")]]
        entry = [head, *([mark, ("   ", "text"), *runs] for runs in below)]
        lines += [(runs, cpu) for runs in entry[: min(3, max(2, lines_each - 1))]]
        lines += [([], None)] if lines_each > 2 else []
    return lines


def _strip(
    episodes: Sequence[Episode], cpus: Sequence[int], now_ns: int, size: int, style: str
) -> list[Run]:
    """Returns a strip of the losses on these CPUs, the newest at the right: in each cell the depth
    of the worst episode."""
    depths, start_ns = np.zeros(size), now_ns - STRIP_NS
    for episode in episodes:
        if episode_style.is_loss(episode) and not set(cpus).isdisjoint(episode.cpus):
            end_ns = now_ns if episode.end_ns is None else min(episode.end_ns, now_ns)
            first = max(0, (episode.start_ns - start_ns) * size // STRIP_NS)
            last = max(first, min(size - 1, (end_ns - start_ns) * size // STRIP_NS))
            depth = min(1.0, episode.depth or 0.0)
            depths[first : last + 1] = np.maximum(depths[first : last + 1], max(depth, 1e-3))
    heights = np.ceil(8 * depths / max(depths.max(initial=0.0), 1e-3)).astype(int).tolist()
    return join_cells(
        [(theme.LEVELS[height], style) if height else (theme.LEVELS[1], "rule")
         for height in heights]
    )  # fmt: skip
