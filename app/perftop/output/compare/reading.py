"""One run, recording or phase, as it is compared; and how it is read from lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from perfprobe.frozen import field, frozen
from perftop.base.statistics import Estimate
from perftop.output.compare.numbers import MOST_EVENTS, NUMBERS, Numbers, finite, numbers, of_event
from perftop.output.stat_json import Line

Cause = tuple[str, str]
"""Kind and cause of episodes."""
WHOLE = "whole"
MOST_READINGS = 10_000
MOST_STATES = 100


@frozen
class Reading:
    numbers: Numbers
    state: Line
    """How the machine was set; empty: not told."""
    lost: dict[Cause, float]
    """Share of the time that was lost to each cause."""
    label: str = ""
    """Name of the phase; '': it is the whole."""
    courses: dict[str, Estimate] = field(default_factory=dict)
    """The same numbers by key, estimated from their course in time; empty: that is not known."""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """Some hundred values of a number, for its distribution."""


class Foreign(Exception):  # noqa: N818 - what it is, not what class of mistake
    """The lines are JSON of somebody else, or damaged; the text tells."""


def reading(line: Line, label: str = "") -> Reading:
    """Reads a summary, a phase, or a line `run` of `stat -r`. The line comes from outside."""
    told = line.get("numbers")
    if isinstance(told, dict):
        events = [key for key in told if of_event(key)][:MOST_EVENTS]
        found = finite({key: told[key] for key in (*NUMBERS, *events) if key in told})
    else:
        found = numbers(line)
    state = line.get("state")
    known = dict(list(state.items())[:MOST_STATES]) if isinstance(state, dict) else {}
    known = {key: value for key, value in known.items() if isinstance(value, str | int | float)}
    return Reading(found, known, _lost(line.get("causes")), label)


def _lost(causes: object) -> dict[Cause, float]:
    found = {}
    for one in causes if isinstance(causes, list) else ():
        share = one.get("lost_ratio") if isinstance(one, dict) else None
        if isinstance(share, int | float):
            found[str(one.get("kind")), str(one.get("cause"))] = float(share)
    return found


def from_lines(lines: Iterable[str]) -> tuple[list[Reading], str | None]:
    """The readings of a file that `stat --json`, `stat -r --json` or `summary --json` has written,
    and where it is damaged. Raises Foreign if it is none."""
    found: list[Reading] = []
    for at, text in enumerate(lines):
        if not text.strip():
            continue
        try:
            line = json.loads(text, parse_int=_whole)
            one = _of(line) if isinstance(line, dict) else None
        except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError):
            if not found:
                raise Foreign(f"line {at + 1} is not of perftop") from None
            return found, f"line {at + 1} is cut or damaged; what is before it was compared"
        found += [one] if one is not None and len(found) < MOST_READINGS else []
    if not found:
        raise Foreign("it has no line summary, phase or run")
    return found, None


def _whole(digits: str) -> int:
    """A whole number of JSON. Raises OverflowError if it is greater than any that we calculate
    with."""
    value = int(digits)
    float(value)
    return value


def _of(line: Line) -> Reading | None:
    kind = line.get("type")
    if kind == "run":
        return None if line.get("warmup") else reading(line)
    if kind == "phase":
        label = str(line["label"])
        whole = label == WHOLE
        return reading(line | {"type": "summary"} if whole else line, "" if whole else label)
    return reading(line) if kind == "summary" else None


def state_of(readings: Sequence[Reading]) -> Line:
    """The state that all of them share; a value in which they differ is told as such."""
    merged: Line = {}
    for key in dict.fromkeys(key for one in readings for key in one.state):
        values = [one.state.get(key) for one in readings]
        same = all(value == values[0] for value in values)
        merged[key] = values[0] if same else "not the same in all runs"
    return merged
