"""Lines of the list of episodes as runs of text, and their order. Pure; widths of columns depend on
the width alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from perfprobe.frozen import frozen
from perftop.base.format import length, many, when
from perftop.detect.low_clock_causes import LEVELS
from perftop.draw import theme
from perftop.draw.strips import Run, fit, foreign, merged
from perftop.model.episode import Episode
from perftop.output.sentences import STOLEN, Part, cost, depth, group, sentence, where
from perftop.session.missing import UNCOUNTED, lasting
from perftop.session.session import Session
from perftop.tui.panels import happened
from perftop.tui.panels.panel import title, wrapped
from perftop.tui.shared import episode_style

ORDERS = ("start", "length", "depth", "kind")
"""Orders begin with the newest, longest, deepest or worst; "start" puts running ones first."""
_SIGN, _START, _LENGTH, _KIND, _DEPTH = 3, 12, 12, 18, 12
_KINDS, _DEPTHS = 100, 116
"""Minimum widths for the columns of kind and depth, which the sentence tells as well."""
_WHAT = 78
"""Cells of the sentence where evidence has a column of its own."""
_LEAST_WHY = 40
"""Minimum cells of that column; else the evidence stands below its episode."""


@frozen
class EpisodeLayout:
    width: int
    kind: int
    depth: int
    what: int
    why: int
    """Cells of cause and evidence; 0 if they stand below."""

    @property
    def before(self) -> int:
        """Cells before the sentence."""
        return _SIGN + _START + _LENGTH + self.kind + self.depth


def planned(width: int) -> EpisodeLayout:
    kind, deep = _KIND * (width >= _KINDS), _DEPTH * (width >= _DEPTHS)
    room = max(1, width - _SIGN - _START - _LENGTH - kind - deep)
    if room - _WHAT < _LEAST_WHY:
        return EpisodeLayout(width, kind, deep, room, 0)
    return EpisodeLayout(width, kind, deep, _WHAT, room - _WHAT)


def summary(session: Session, episodes: Sequence[Episode], width: int) -> list[Run]:
    """The heading: how many episodes in how long a time, and how many of each kind."""
    lasted = length(max(0, session.known_ns - session.hello.raw_ns))
    kinds = Counter(STOLEN[0] if group(e) == STOLEN else e.kind for e in episodes)
    known = [kind for kind in theme.EPISODES if kind in kinds]
    named = [f"{theme.EPISODES[kind]} {kinds[kind]} {kind}" for kind in known]
    short = [f"{theme.EPISODES[kind]} {kinds[kind]}" for kind in known]
    if marks := kinds["mark"]:
        named.append(many(marks, "mark"))
    all_ = f"{len(episodes)} in {lasted}"
    tries = ("   ".join([all_, *named]), "  ".join([all_, *short]), all_)
    rest = next((text for text in tries if len(text) <= width - 15), "")
    return [(" ", "text"), *title("episodes", rest, max(1, width - 2))]


def heading(plan: EpisodeLayout, order: str, *, reverse: bool) -> list[Run]:
    """Titles of the columns; an order whose column is not shown is named at the right."""
    names = [("start", _START), ("length", _LENGTH), ("kind", plan.kind), ("depth", plan.depth),
             ("what", plan.what), ("cause · evidence", plan.why)]  # fmt: skip
    arrow = "▲" if reverse else "▼"
    if order not in [name for name, size in names if size]:
        names[4] = f"what{f'by {order}{arrow}':>{plan.what - 5}}", plan.what
    runs: list[Run] = [(" " * _SIGN, "text")]
    for name, size in names:
        text = f"{name}{arrow}" if name == order else name
        runs.append((_placed(text, name, size), "bright" if name == order else "dim"))
    return runs


def _placed(text: str, name: str, size: int) -> str:
    """Numbers are aligned at the right of their columns, words at the left."""
    if not size:
        return ""
    if name in {"length", "depth"}:
        return fit(text, size - 2).strip().rjust(size - 2) + "  "
    return fit(text, size - 1) + " "


def said(session: Session, episode: Episode, most: int, names: Sequence[str]) -> list[Part]:
    """The sentence about an episode; `names`: the tasks that lose by it while it runs."""
    over = episode.end_ns is not None
    return sentence(session.topology, [episode], names, over=over, most=most)


def line(
    plan: EpisodeLayout, session: Session, episode: Episode, parts: Sequence[Part],
    why: str, *, chosen: bool, kept: bool,
) -> list[Run]:  # fmt: skip
    """Line of one episode with its sentence; `why`: the part of its evidence that stands beside
    it; `kept`: history can still show it."""
    over = episode.end_ns is not None
    key = episode_style.severity(episode, over=over)
    quiet = "text" if kept else "dim"
    text = "dim" if over and not (kept and episode_style.wrong(episode)) else key
    runs: list[Run] = [
        (theme.CHOSEN, "mark") if chosen else (" ", "text"),
        (f"{episode_style.sign(episode)} ", "dim" if over else key),
        (_placed(when(session.unix(episode.start_ns)), "start", _START), quiet if over else key),
        (_placed(_lasted(session, episode), "length", _LENGTH), quiet if over else key),
        (_placed(foreign(episode.kind), "kind", plan.kind), text),
        (_placed(depth(episode.kind, episode.depth), "depth", plan.depth), text),
        *_sentence(parts, plan.what, plain=text if over else "bright", lost=text),
        (_placed(why, "why", plan.why), "dim"),
    ]
    return [run for run in runs if run[0]]


def _sentence(parts: Sequence[Part], size: int, *, plain: str, lost: str) -> list[Run]:
    """The sentence in exactly `size` cells."""
    runs = [(foreign(part.text), lost if part.role == "lost" else plain) for part in parts]
    if sum(len(text) for text, _ in runs) > size - 1:
        return [(_placed("".join(text for text, _ in runs), "what", size), plain)]
    return merged(runs, size)


def reasons(plan: EpisodeLayout, episode: Episode) -> list[str]:
    """Cause and evidence in lines that fit beside the sentence, or below it."""
    why = episode_style.because(episode)
    return wrapped(why, max(8, plan.why - 1 if plan.why else plan.what - 1))


def below(plan: EpisodeLayout, why: str) -> list[Run]:
    """A further line of an episode, with a part of its evidence."""
    before = plan.before + (plan.what if plan.why else 0)
    return [(" " * before + why, "dim")]


def details(
    plan: EpisodeLayout, session: Session, episode: Episode, height: int, names: Sequence[str]
) -> list[list[Run]]:
    """The chosen episode in exactly `height` lines: a title with its kind, place and times, its
    sentence, its cause and evidence."""
    start, end_ns = when(session.unix(episode.start_ns)), episode.end_ns
    lasted = f"for {told}" if (told := _lasted(session, episode)) else ""
    until = f"to {when(session.unix(end_ns))}" if end_ns is not None and lasted else ""
    place = where(session.topology, episode.cpus) if episode.cpus else ""
    rest = " ".join(part for part in (place, start, until, lasted) if part)
    sign = f"{episode_style.sign(episode)} {foreign(episode.kind)}"
    size = max(1, plan.width - 2)
    parts = said(session, episode, size, names)
    told_ = "".join(foreign(part.text) for part in parts)
    found: list[list[Run]] = [
        [(" ", "text"), *title(sign, rest, size)],
        [(f"   {fit(told_, min(len(told_), size - 2))}", "text")],
    ]
    found += happened.because(episode, size, max(0, height - 2), indent=3)
    return [*found, *[[(" ", "text")]] * height][:height]


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
        "start": _newest,
        "length": lambda e: (-lasted_ns(session, e), -e.start_ns),
        "depth": lambda e: (episode_style.rank(e)[0], -(e.depth or 0.0), -e.start_ns),
        "kind": lambda e: (episode_style.rank(e)[0], -e.start_ns),
    }
    return sorted(episodes, key=keys[order], reverse=reverse)


def _newest(episode: Episode) -> tuple[float, ...]:
    """Running ones first, of them the costliest; then by start."""
    running = episode.end_ns is None
    return not running, -cost([episode]) if running else 0.0, -episode.start_ns


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
    lines: list[list[Run]] = [[(f" no episodes {where_}; perftop looks for:", "text")]]
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
