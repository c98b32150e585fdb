"""The state that the fleet's screen is drawn from, and the words and cells that its parts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, nan

from perftop.base.format import GHZ, time_of_day
from perftop.draw import theme
from perftop.draw.columns import DOUBTED, Run
from perftop.draw.strips import Line, foreign
from perftop.model.kinds import KINDS, OTHER, cause_of
from perftop.session.fleet.fleet import Fleet, RowChoice, SharedEpisode
from perftop.session.fleet.machine import FIELDS, Machine
from perftop.tui.shared.keys import captions

SILENT = "○"
"""The sign of a machine that does not answer."""
MIN_LOSS = 0.01
"""Share from which a loss is shown as a number; below it numbers are dim."""
MIN_KW = 1e4
"""Power in W from which on it is shown in kW."""
_LIMITS = {"clock_hz": "ceiling_hz", "power_w": "power_limit_w"}
"""Numbers that have a limit."""
CLOCKS = frozenset({"clock_hz", "ceiling_hz"})
_TOPS = {"lost": 0.3, "involuntary": 0.05, "steal": 0.3}
"""Values at the upper end of the heat ramp; of other shares 1."""
_SHORT_NAMES = {"clock-change": "clock steps", "modulation": "modulated"}


@dataclass(slots=True)
class Look:
    """One picture of the fleet."""

    fleet: Fleet
    now: float
    """The moment shown, in Unix seconds."""
    width: int
    height: int
    choice: RowChoice = field(default_factory=RowChoice)
    rows: Sequence[Machine] = ()
    """The machines asked for, in their order."""
    chosen: str = ""
    top: int = 0
    """The first visible machine."""
    shown: str = "lost"
    """The number that heat map and time view show."""
    every_s: float = 1.0
    """How often the source has new numbers."""
    what: str = ""
    """The origin of the numbers."""
    problem: str = ""
    """Why there are no numbers at present; safe to draw."""
    facts: tuple[str, ...] = ()
    """The cost of watching the fleet, piece by piece."""
    paused: str = ""
    captions: Mapping[str, str] = field(default_factory=partial(captions, {}))
    """Names of keys, by id."""
    view: str = "rows"
    typing: str | None = None
    """The filter that is being typed; None while nobody types."""
    running: list[SharedEpisode] = field(default_factory=list)
    ascii: bool = False
    theme: str = "perftop-dark"
    mouse: dict[int, str] = field(default_factory=dict)
    """Targets of clicks, by line: a machine's name; '' for headings."""

    @property
    def selected(self) -> Machine | None:
        return self.fleet.machines.get(self.chosen)


def calm(*runs: Run) -> Line:
    return [*runs], "calm"


# --- machines


def worst_sign(machine: Machine) -> Run:
    """The sign of the worst episode that runs there, or that it does not answer."""
    if not machine.answers:
        return SILENT, "dim" if machine.why == "connecting" else "alarm"
    kinds = {episode.group[0] for episode in machine.running if episode.wrong}
    worst = next((kind for kind in KINDS if kind in kinds), "")
    if not worst:
        return (DOUBTED, "warn") if machine.suspects else (" ", "text")
    return KINDS[worst].sign, "warn" if worst == "suspect" else "alarm"


def why(machine: Machine, now: float) -> str:
    """Why it does not answer, and when the next attempt is."""
    if machine.why == "connecting":
        return "connecting"
    text = foreign(machine.why.removeprefix(f"{machine.name}: "))
    wait = machine.retry_at - now
    return f"{text} · try in {wait:.0f} s" if isfinite(wait) and wait > 0 else text


# --- numbers


def amount(key: str, value: float) -> str:
    """A number without its unit."""
    return FIELDS[key].text(value, GHZ)


def unit(key: str) -> str:
    return FIELDS[key].unit_name(GHZ)


def named(name: str, key: str, numbers: Mapping[str, float], style: str) -> list[Run]:
    """A number after its name, with its limit, if that is known, and its unit."""
    values = [numbers[key], numbers.get(_LIMITS.get(key, ""), nan)]
    texts, unit_ = [amount(key, value) for value in values], unit(key)
    if key == "power_w" and values[0] >= MIN_KW:
        texts, unit_ = [f"{value / 1e3:.1f}" for value in values], "kW"
    limit = f" of {texts[1]}" if isfinite(values[1]) else ""
    return [(name, "dim"), (texts[0], style), (f"{limit} {unit_}", "dim")]


def cell(machine: Machine, key: str, size: int) -> Run:
    """A number of a machine, right-aligned, in the style for its value."""
    value, entry = machine.numbers[key], FIELDS[key]
    style = "text"
    if not isfinite(value):
        style = "faint"
    elif value >= entry.stands_out:
        style = "alarm"
    elif key == "lost":
        style = "bright" if value >= MIN_LOSS else "faint"
    elif entry.unit == "ratio" and value < MIN_LOSS:
        style = "faint"
    return f"{amount(key, value):>{size}}", style


def level(value: float, key: str, top: float) -> int:
    """A number as a step of the heat ramp; -1 if unknown."""
    if not isfinite(value):
        return -1
    share = value / top if top > 0 else 0.0
    if key in CLOCKS:
        share = (share - 0.5) * 2
    return max(0, min(theme.HEAT - 1, int(share * theme.HEAT)))


def ramp_top(look: Look, key: str) -> float:
    """The value at the upper end of the ramp."""
    if FIELDS[key].unit == "ratio":
        return _TOPS.get(key, 1.0)
    known = [v for m in look.fleet.answering if isfinite(v := m.numbers[key])]
    return max(known, default=1.0)


# --- episodes


def sign(kind: str) -> str:
    return KINDS.get(kind, OTHER).sign


def cause_name(kind: str, cause: str) -> str:
    """A cause in words, or the kind of episode if the cause is unknown."""
    if kind == "steal":
        return "hypervisor"
    return foreign(kind if cause in {"unknown", "-"} else cause_of(cause).name)


def short_cause(kind: str, cause: str) -> str:
    """A cause in a word, for narrow lists."""
    if cause in {"power-pl1", "power-pl2", "hypervisor", "current"}:
        return cause_of(cause).short
    return _SHORT_NAMES.get(cause) or cause_name(kind, cause)


def place(episode: SharedEpisode, count: int) -> str:
    """The machine's name, or how many of all machines."""
    names = episode.machines
    return foreign(names[0]) if len(names) == 1 else f"{len(names)} of {count}"


def depth(episode: SharedEpisode) -> str:
    """How much is lost, with its unit; of several machines from the least to the most."""
    low, high = episode.least, episode.depth
    if high is None or low is None or high <= 0:
        return ""
    of = KINDS.get(episode.kind, OTHER).depth
    if of == "count":
        return f"{high:.0f} times"
    ends = [f"{v / 1e9:.2f}" if of == "hz" else f"{100 * v:.1f}" for v in (low, high)]
    name = "GHz below" if of == "hz" else "%"
    return f"{ends[1]} {name}" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} {name}"


# --- times


def since(start: float, now: float) -> str:
    """When it began: to the second in the last minute, else to the minute."""
    return time_of_day(start, 1 if now - start < 60 else 60)


def span(seconds: float) -> str:
    """A length of time in few cells: 4.1 s, 27 s, 2 min, 3 h."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def time_axis(now: float, span_s: float, cells: int) -> str:
    """The times at the start, in the middle and at the end of an axis of so many cells."""
    first, middle, last = (time_of_day(now - span_s * part, 60) for part in (1, 0.5, 0))
    gap = max(1, (cells - 15) // 2)
    return f"{first}{' ' * gap}{middle}{' ' * (cells - 15 - gap)}{last}"
