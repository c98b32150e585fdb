"""What the fleet's screen is drawn from, and the words and numbers that its parts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, nan

from perftop.base.format import MISSING, time_of_day
from perftop.draw import theme
from perftop.draw.strips import Run, foreign
from perftop.output.episode_words import cause as cause_words
from perftop.session.fleet.fleet import Fleet, Happening, Sight
from perftop.session.fleet.machine import Machine
from perftop.session.fleet.numbers import FIELDS
from perftop.tui.shared.keys import captions

SILENT = "○"
"""The sign of a machine that does not answer."""
TOLD = 0.01
"""Share from which a loss is told as a number; below it numbers are dim."""
OLD_S = 3.0
"""Age of numbers, beyond two spans of the source, from which it is marked."""
UNITS = {"ratio": "%", "Hz": "GHz", "W": "W"}
_LIMITS = {"clock_hz": "ceiling_hz", "power_w": "power_limit_w"}
SCALES = {"ratio": 100.0, "Hz": 1e-9, "W": 1.0}


@dataclass(slots=True)
class Look:
    """One picture of the fleet."""

    fleet: Fleet
    now: float
    """The moment shown, in Unix seconds."""
    width: int
    height: int
    sight: Sight = field(default_factory=Sight)
    rows: Sequence[Machine] = ()
    """The machines asked for, in their order."""
    chosen: str = ""
    top: int = 0
    """The first machine in sight."""
    shown: str = "lost"
    """The number that heat map and time view show."""
    every_s: float = 1.0
    """How often the source has new numbers."""
    what: str = ""
    """Where the numbers come from."""
    problem: str = ""
    """Why there are none at present; from outside, and safe to draw."""
    facts: tuple[str, ...] = ()
    """What the fleet costs, piece by piece."""
    paused: str = ""
    captions: Mapping[str, str] = field(default_factory=partial(captions, {}))
    """What keys are called, by id."""
    view: str = "rows"
    typing: str | None = None
    """The filter that is being typed; None: none is."""
    running: list[Happening] = field(default_factory=list)
    ascii: bool = False
    theme: str = "perftop-dark"
    mouse: dict[int, str] = field(default_factory=dict)
    """What a click on a line means, by line: a machine's name."""

    @property
    def selected(self) -> Machine | None:
        return self.fleet.machines.get(self.chosen)


def sign(kind: str) -> str:
    return theme.EPISODES.get(kind, "│")


def worst_sign(machine: Machine) -> Run:
    """The sign of what goes on there, or that it does not answer."""
    if not machine.answers:
        return (SILENT, "dim" if machine.why == "connecting" else "alarm")
    kinds = {event.group[0] for event in machine.running if event.wrong}
    kind = next((kind for kind in theme.EPISODES if kind in kinds), "")
    if not kind:
        return (theme.SUSPECT, "warn") if machine.suspects else (" ", "text")
    return sign(kind), "warn" if kind == "suspect" else "alarm"


def told(kind: str, cause: str) -> str:
    """A cause in words, or what happened if that says more."""
    if kind == "steal":
        return "hypervisor"
    words = cause_words(kind, cause)
    return foreign(words if words and words != "cause unknown" else kind)


_SHORT = {"power-pl1": "PL1", "power-pl2": "PL2", "hypervisor": "steal", "current": "current",
          "clock-change": "clock steps", "modulation": "modulated"}  # fmt: skip


def short(kind: str, cause: str) -> str:
    """A cause in a word, for narrow lists."""
    return _SHORT.get(cause) or told(kind, cause)


def amount(key: str, value: float) -> str:
    """A number without its unit."""
    entry = FIELDS[key]
    return f"{value * SCALES[entry.unit]:.{entry.digits}f}" if isfinite(value) else MISSING


def behind(key: str, numbers: Mapping[str, float]) -> str:
    """What stands behind a number: its limit, if that is known, and its unit."""
    unit, limit = UNITS[FIELDS[key].unit], _LIMITS.get(key, "")
    known = isfinite(numbers.get(limit, nan))
    return f" of {amount(limit, numbers[limit])} {unit}" if known else f" {unit}"


def times(now: float, span_s: float, room: int) -> str:
    """The times at the start, in the middle and at the end of an axis of `room` cells."""
    first, middle, last = (time_of_day(now - span_s * part, 60) for part in (1, 0.5, 0))
    gap = max(1, (room - 15) // 2)
    return f"{first}{' ' * gap}{middle}{' ' * (room - 15 - gap)}{last}"


def cell(machine: Machine, key: str, size: int) -> Run:
    """A number of a machine, right-aligned, in the style that its value asks for."""
    value, entry = machine.numbers[key], FIELDS[key]
    text = f"{amount(key, value):>{size}}"
    if not isfinite(value):
        return text, "faint"
    if value >= entry.stands_out:
        return text, "alarm"
    if key == "lost":
        return text, "bright" if value >= TOLD else "faint"
    quiet = entry.unit == "ratio" and value < TOLD
    return text, "faint" if quiet else "text"


def deepest(happening: Happening) -> str:
    """How much it takes, with its unit; of several machines from the least to the most."""
    low, high = happening.least, happening.depth
    if high is None or low is None or high <= 0:
        return ""
    if happening.kind in {"turbo-drop", "license"}:
        ends = [f"{hz / 1e9:.2f}" for hz in (low, high)]
        unit = "GHz below"
    elif happening.kind == "smi":
        return f"{high:.0f} times"
    else:
        ends = [f"{100 * share:.1f}" for share in (low, high)]
        unit = "%"
    same = ends[0] == ends[1]
    return f"{ends[1]} {unit}" if same else f"{ends[0]} to {ends[1]} {unit}"


def where(happening: Happening, of: int) -> str:
    """The machine's name, or how many of all."""
    names = happening.machines
    return foreign(names[0]) if len(names) == 1 else f"{len(names)} of {of}"


def since(start: float, now: float) -> str:
    """When it began: to the second of late, else to the minute."""
    return time_of_day(start, 1 if now - start < 60 else 60)


def span(seconds: float) -> str:
    """How long, in few cells: 4.1 s, 27 s, 2 min, 3 h."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def why(machine: Machine, now: float) -> str:
    """Why it does not answer, and when it is tried again."""
    if machine.why == "connecting":
        return "connecting"
    text = foreign(machine.why.removeprefix(f"{machine.name}: "))
    wait = machine.retry_at - now
    return f"{text} · try in {wait:.0f} s" if isfinite(wait) and wait > 0 else text


def level(value: float, key: str, top: float) -> int:
    """A number as a step of the heat ramp; -1 if unknown."""
    if not isfinite(value):
        return -1
    share = value / top if top > 0 else 0.0
    if key in {"clock_hz", "ceiling_hz"}:
        share = (share - 0.5) * 2
    return max(0, min(theme.HEAT - 1, int(share * theme.HEAT)))


def scale(look: Look, key: str) -> float:
    """The value at the upper end of the ramp."""
    if FIELDS[key].unit == "ratio":
        return {"lost": 0.3, "below": 1.0, "busy": 1.0, "involuntary": 0.05, "steal": 0.3}.get(
            key, 1.0
        )
    known = [v for m in look.fleet.answering if isfinite(v := m.numbers[key])]
    return max(known, default=1.0)
