"""Lines of the list of episodes as runs of text, and their order. Pure; widths of columns depend on
the width alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perftop.base.times import length, when
from perftop.detect.low_clock_causes import LEVELS
from perftop.draw import theme
from perftop.draw.strips import Run, fit, foreign
from perftop.output.episode_words import depth, where
from perftop.samples.episode import Episode
from perftop.session.missing import UNCOUNTED, lasting
from perftop.session.session import Session
from perftop.tui.shared import episode_style

ORDERS = ("start", "length", "depth", "kind")
"""Orders begin with the newest, longest, deepest or worst; "start" puts running ones first."""
_START, _LENGTH, _KIND, _DEPTH = 11, 13, 19, 11
_WHERE = 14, 30
"""Minimum and maximum cells."""
_LEAST_WHY = 24
"""Minimum cells of the cause; a narrower column is left out, as the lowest line shows it."""


@dataclass(frozen=True, slots=True)
class EpisodeLayout:
    where: int
    why: int
    """Cells of cause and evidence; 0 if they are not shown."""


def planned(width: int) -> EpisodeLayout:
    """Widths of the columns; the cause gets the spare width if it is enough."""
    least, most = _WHERE
    spare = width - 1 - _START - _LENGTH - _KIND - _DEPTH - least
    if spare < _LEAST_WHY:
        return EpisodeLayout(least + max(0, spare), 0)
    wide = min(most - least, (spare - _LEAST_WHY) // 4)
    return EpisodeLayout(least + wide, spare - wide)


def heading(plan: EpisodeLayout, order: str, *, reverse: bool) -> list[Run]:
    arrow = "▲" if reverse else "▼"
    names = (("start", _START), ("length", _LENGTH), ("kind", _KIND), ("where", plan.where),
             ("depth", _DEPTH), ("cause · evidence", plan.why))  # fmt: skip
    runs: list[Run] = [(" ", "text")]
    for name, size in names:
        mine = name == order
        title = f"{name}{arrow}" if mine else name
        runs.append((_placed(title, name, size), "bright" if mine else "dim"))
    return runs


def _placed(text: str, name: str, size: int) -> str:
    """Numbers are aligned at the right of their columns, words at the left."""
    if name in {"length", "depth"}:
        return fit(text, max(0, size - 2)).strip().rjust(size - 2) + "  "
    return fit(text, max(0, size - 1)) + " " * min(1, size)


def place(plan: EpisodeLayout, session: Session, episode: Episode) -> str:
    """Where the episode is. Callers keep the text, as it takes time with many CPUs."""
    return where(session.topology, episode.cpus, plan.where - 10)


def line(
    plan: EpisodeLayout, session: Session, episode: Episode, place: str, *, chosen: bool, kept: bool
) -> list[Run]:
    """Line of one episode; `kept`: history can still show it."""
    over = episode.end_ns is not None
    key = episode_style.severity(episode, over=over)
    text = key if not over else "text" if kept and episode_style.wrong(episode) else "dim"
    quiet = "dim" if kept else "faint"
    told = (
        (when(session.unix(episode.start_ns)), "start", _START, text if over else "text"),
        (_lasted(session, episode), "length", _LENGTH, text if over else "text"),
        (f"{episode_style.sign(episode)} {foreign(episode.kind)}", "kind", _KIND, text),
        (place, "where", plan.where, "text" if kept else "dim"),
        (depth(episode.kind, episode.depth), "depth", _DEPTH, text if over else "text"),
        (episode_style.because(episode), "why", plan.why, quiet),
    )
    mark: Run = (theme.CHOSEN, "mark") if chosen else (" ", "text")
    return [mark, *((_placed(value, name, size), style) for value, name, size, style in told)]


def _lasted(session: Session, episode: Episode) -> str:
    """Length of the episode; '' if it has none."""
    momentary = episode.end_ns == episode.start_ns
    return "" if momentary else length(lasted_ns(session, episode))


def lasted_ns(session: Session, episode: Episode) -> int:
    end_ns = session.known_ns if episode.end_ns is None else episode.end_ns
    return max(0, end_ns - episode.start_ns)


def arranged(
    session: Session, episodes: Iterable[Episode], order: str, *, reverse: bool
) -> list[Episode]:
    """Episodes in this order; by depth, those of unknown depth come last in their rank."""
    keys: dict[str, Callable[[Episode], tuple[float, ...]]] = {
        "start": lambda e: (e.end_ns is not None, -e.start_ns),
        "length": lambda e: (-lasted_ns(session, e), -e.start_ns),
        "depth": lambda e: (episode_style.rank(e)[0], -(e.depth or 0.0), -e.start_ns),
        "kind": lambda e: (episode_style.rank(e)[0], -e.start_ns),
    }
    return sorted(episodes, key=keys[order], reverse=reverse)


# --- nothing there

_NEEDS = {
    "turbo-drop": (("busy_hz",), ("turbo_ceiling_hz",)),
    "throttle": (("limit_reasons", "core_thermal", "package_thermal", "modulation",
                  "core_throttled_s", "package_throttled_s"),),
    "involuntary-halt": (("involuntary",),),
    "neighbour": (("ipc", "steal"),),
    "steal": (("steal",),),
    "license": (LEVELS,),
    "smi": (("smi",),),
    "ramp": (("busy_hz",),),
}  # fmt: skip
"""Counters or metrics that each kind needs: one of every group."""


def _lacking(session: Session) -> dict[str, list[str]]:
    """Kinds that cannot be found here, by reason."""
    missing = {m.what: m.why for m in lasting(session) if m.cpus is None}
    metrics = [key for key, variants in session.evaluator.chosen.items() if variants]
    known = {*session.counters.columns, *metrics} | ({"turbo_ceiling_hz"} - missing.keys())
    reasons: dict[str, list[str]] = {}
    for kind, groups in _NEEDS.items():
        if group := next((group for group in groups if known.isdisjoint(group)), None):
            told = (missing[key] for key in group if key in missing)
            reasons.setdefault(next(told, UNCOUNTED), []).append(kind)
    return reasons


def nothing(session: Session, width: int, *, filtered: bool) -> list[list[Run]]:
    """Lines of an empty list: the kinds looked for, and which cannot be found here and why."""
    reasons = _lacking(session)
    blind = {kind for kinds in reasons.values() for kind in kinds}
    where_ = "on the CPUs of the filter" if filtered else "so far"
    lines: list[list[Run]] = [[(f" no episodes {where_}; what is looked for:", "text")]]
    room = 0
    for kind, shape in theme.EPISODES.items():
        if kind not in blind:
            piece = f"  {shape} {kind}"
            if len(piece) >= room:
                lines.append([])
                room = width
            lines[-1].append((piece, "dim"))
            room -= len(piece)
    for why, kinds in reasons.items():
        text = foreign(f" {theme.RULE} no {', '.join(kinds)}: {why}")
        lines.append([(fit(text, min(len(text), width)), "dim")])
    return lines
