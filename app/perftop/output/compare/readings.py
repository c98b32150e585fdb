"""The numbers that runs are compared by, in the order of their rows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, isfinite, log10, nan

import numpy as np

from perfprobe import wire
from perfprobe.frozen import field, frozen, replace
from perftop.base.arrays import Floats
from perftop.base.format import scale
from perftop.base.statistics import FEWEST_BLOCKS, Estimate, estimate_of_course
from perftop.base.text import safe
from perftop.model.episode import LOW_CLOCK
from perftop.model.metrics import INDEX, METRICS
from perftop.model.registry import EVENT, PER_KI, RARE
from perftop.model.smt import STATES
from perftop.output.run_summary import working
from perftop.output.stat_json import Line, number
from perftop.output.summary_text import json_line, phase
from perftop.session import marks
from perftop.session.session import Session

Numbers = dict[str, float]
"""Values by key; unknown ones are left out."""


@frozen
class Number:
    key: str
    label: str
    unit: str
    """"%" for a share, whose differences are told in points; others are told relative."""
    digits: int
    """After the point; where `grows` is set, significant digits."""
    scale: float = 1.0
    """Factor from base units to `unit`."""
    better: int = 0
    """1: more is better; -1: less is better; 0: neither."""
    grows: bool = False
    """Whether it grows with the length of a run, and so can have any size."""
    prefixed: bool = False
    """Whether it is shown with a prefix such as M."""
    usual: bool = True
    """Whether it is compared unless others are asked for."""
    of: Callable[[Line], float | None] = lambda _: None
    """The value in base units from a summary as `stat --json` has it."""

    @property
    def points(self) -> bool:
        return self.unit == "%"

    def seen(self, value: float) -> bool:
        """Whether it is shown as anything but 0."""
        return value != 0 if self.prefixed else float(self.show(value)) != 0

    def show(self, value: float, like: float | None = None) -> str:
        """`like`: a value with whose digits it is shown; None: its own."""
        if not isfinite(value):
            return "n/a"
        digits, size = self.digits, abs(value if like is None else like) * self.scale
        if self.grows:
            power, sign = scale(size) if self.prefixed else (0, "")
            size /= 10**power
            digits = max(0, digits - 1 - floor(log10(size))) if size > 0 else 1
            return f"{value * self.scale / 10**power:.{min(digits, 4)}f}{sign}"
        return f"{value * self.scale:.{min(digits, 4)}f}"


def _top(key: str) -> Callable[[Line], float | None]:
    return lambda line: line[key]


def _length_s(line: Line) -> float | None:
    """Length of a phase; a run has its run time instead."""
    return line["elapsed_s"] if line["type"] == "phase" else None


def _run(*keys: str) -> Callable[[Line], float | None]:
    """A sum of times of the command."""
    return lambda line: sum(line["run"][key] for key in keys) if line.get("run") else None


def _mean(key: str) -> Callable[[Line], float | None]:
    return lambda line: None if line["machine"][key] is None else line["machine"][key]["mean"]


def _total(key: str) -> Callable[[Line], float | None]:
    return lambda line: line["totals"].get(key)


def _job(key: str) -> Callable[[Line], float | None]:
    return lambda line: None if line["job"] is None else line["job"].get(key)


def _power_w(line: Line) -> float | None:
    energy_j, elapsed_s = line["energy_j"], line["elapsed_s"]
    return energy_j / elapsed_s if energy_j is not None and elapsed_s else None


def _others(line: Line) -> float | None:
    """CPUs that others than the command kept busy."""
    util, used_s = _mean("util")(line), _run("user_s", "sys_s")(line)
    if util is None or used_s is None or not line["elapsed_s"]:
        return None
    return max(0.0, util * len(line["cpus"]) - used_s / float(line["elapsed_s"]))


def _both(line: Line) -> float | None:
    """Mean over the cores for which it is known."""
    known = [core["smt"]["both"]["mean"] for core in line["cores"] if core["smt"]["both"]]
    return sum(known) / len(known) if known else None


NUMBERS: dict[str, Number] = {
    one.key: one
    for one in (
        Number("length_s", "length", "s", 4, grows=True, of=_length_s),
        Number("run_s", "run time", "s", 4, better=-1, grows=True, of=_run("wall_s")),
        Number(
            "cpu_s", "CPU time", "s", 4, 1, -1, grows=True, usual=False, of=_run("user_s", "sys_s")
        ),
        Number("waited_s", "waits for CPU", "s", 3, 1, -1, grows=True, of=_job("waited_s")),
        Number("disk_s", "waits for disk", "s", 3, 1, -1, grows=True, of=_job("disk_s")),
        Number("others_cpus", "others", "CPUs", 2, better=-1, of=_others),
        Number("util", "busy", "%", 1, 100, of=_mean("util")),
        Number("busy_hz", "clock", "GHz", 2, 1e-9, better=1, of=_mean("busy_hz")),
        Number("below_ceiling", "below ceiling", "%", 1, 100, -1, of=_total("below_ceiling")),
        Number("lost_ratio", "lost time", "%", 1, 100, better=-1, of=_mean("lost_ratio")),
        Number("ipc", "IPC", "", 2, better=1, of=_mean("ipc")),
        Number("instructions", "instructions", "G", 4, 1e-9, grows=True, of=_total("instructions")),
        Number(
            "kernel_cycles", "in the kernel", "%", 1, 100, usual=False, of=_mean("kernel_cycles")
        ),
        Number("both", "both threads", "%", 1, 100, of=_both),
        Number("involuntary", "involuntary", "%", 2, 100, better=-1, of=_mean("involuntary")),
        Number("steal", "steal", "%", 1, 100, better=-1, of=_mean("steal")),
        Number("power_w", "power", "W", 1, of=_power_w),
        Number("energy_j", "energy", "kJ", 3, 1e-3, -1, grows=True, of=_top("energy_j")),
    )
}


MOST_EVENTS = 64
"""Events of a summary that are compared; a line from elsewhere may name any number."""
NAME = 12
"""Characters of an event's name."""


def of_event(key: str) -> bool:
    """Whether it is a number of a chosen event, or of issue slots."""
    return key.startswith(EVENT) or key in RARE


def number_of(key: str) -> Number:
    """The number with this key of NUMBERS or of an event."""
    if key in NUMBERS:
        return NUMBERS[key]
    if key in RARE:
        return Number(key, RARE[key].label, "%", 1, 100, of=_mean(key))
    if key.endswith(PER_KI):
        name = safe(key.removeprefix(EVENT).removesuffix(PER_KI), NAME)
        return Number(key, name, PER_KI, 2, of=_mean(key))
    name = safe(key.removeprefix(EVENT), NAME)
    return Number(key, name, "/s", 4, grows=True, prefixed=True, of=_mean(key))


def known(found: Iterable[Numbers]) -> list[str]:
    """The keys of NUMBERS, then those of the events that some have."""
    return list(dict.fromkeys([*NUMBERS, *(key for one in found for key in one)]))


def numbers(line: Line) -> Numbers:
    """The numbers of a summary. Those that grow are of a command or a phase only: how long somebody
    looked says nothing of the machine."""
    ended = bool(line.get("run")) or line["type"] == "phase"
    found: dict[str, object] = {
        key: one.of(line) for key, one in NUMBERS.items() if ended or not one.grows
    }
    events = [key for key in line["machine"] if of_event(key)]
    return finite(found | {key: _mean(key)(line) for key in events[:MOST_EVENTS]})


def finite(found: Mapping[str, object]) -> Numbers:
    return {
        key: float(value)
        for key, value in found.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def told(found: Numbers) -> Line:
    """The numbers for a line of JSON, in base units; null: not known."""
    return {key: number(found.get(key, nan)) for key in known([found])}


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


METRIC_KEYS = tuple(key for key in NUMBERS if key in INDEX)
REST = "both", "power_w"
MOST = 2048
"""Slices. Beyond, two become one, and later ones have twice as many samples."""


class Course:
    """Begins where it is made."""

    def __init__(self, session: Session) -> None:
        self._session = session
        registry = session.evaluator.registry
        events = [*registry.events][:MOST_EVENTS]
        self._at = [registry.index[key] for key in (*METRIC_KEYS, *events)]
        self._added = registry.added[self._at]
        self._keys = (*METRIC_KEYS, *events, *REST)
        self._amounts, self._sizes = np.zeros((2, MOST, len(self._keys)))
        """A value is the amount in a slice by its size; both in the units of the metric."""
        self._ends_ns = np.zeros(MOST, np.int64)
        self._begin_ns = session.now_ns
        self._count, self._in_last, self._samples = 0, 0, 1
        """Whole slices, samples in the one that is being filled, and in a whole one."""

    def take(self) -> None:
        """Takes the newest sample of the session."""
        sample = self._session.sample
        if sample is None:
            return
        shown, at = self._session.shown, self._count
        top = sample.values.top[self._at][:, shown]
        bottom = sample.values.bottom[self._at][:, shown]
        known = np.isfinite(top) & np.isfinite(bottom)
        of_metrics = len(self._at)
        self._amounts[at, :of_metrics] += np.where(known, top, 0.0).sum(axis=1)
        sizes = np.where(known, bottom, 0.0).sum(axis=1)
        self._sizes[at, :of_metrics] += sizes / np.where(self._added, known.sum(axis=1), 1).clip(1)
        both = sample.split.states[:, STATES.index("both")]
        both = both[np.isfinite(both)]
        energy_j, span_s = self._energy()
        self._amounts[at, of_metrics:] += both.sum(), energy_j
        self._sizes[at, of_metrics:] += len(both), span_s
        self._ends_ns[at] = self._session.now_ns
        self._in_last += 1
        if self._in_last == self._samples:
            self._next()

    def _energy(self) -> tuple[float, float]:
        """Joules of all packages in the newest sample, and the seconds that this covers."""
        column, sample = self._session.counters.columns.get("energy_j"), self._session.sample
        if column is None or sample is None:
            return 0.0, 0.0
        table = sample.delta.tables[column.block]
        moved, ticks = table.moved[:, column.first], table.ticks
        if not np.isfinite(moved).all() or not (ticks > 0).all():
            return 0.0, 0.0  # most frames lack it: it is read once for several
        return float(moved.sum()), float(ticks.mean()) / self._session.counters.stamp_hz

    def _next(self) -> None:
        self._count, self._in_last = self._count + 1, 0
        if self._count < MOST:
            return
        for table in (self._amounts, self._sizes):
            table[: MOST // 2] = table[0::2] + table[1::2]
            table[MOST // 2 :] = 0.0
        self._ends_ns[: MOST // 2] = self._ends_ns[1::2]
        self._count, self._samples = MOST // 2, 2 * self._samples

    def estimates(self) -> dict[str, Estimate]:
        """By key of the number; those that were not counted are not there, and none of a
        stretch that is too short."""
        amounts, sizes = self._amounts[: self._count], self._sizes[: self._count]
        found: dict[str, Estimate] = {}
        if self._count < FEWEST_BLOCKS:
            return found
        for at, key in enumerate(self._keys):
            if sizes[:, at].sum() > 0:
                found[key] = estimate_of_course(amounts[:, at].tolist(), sizes[:, at].tolist())
        if self._session.sieve.turbo.cpus.any():
            ran_s = amounts[:, self._keys.index("util")]
            if ran_s.sum() > 0:
                low_s = np.minimum(self._low_s(), ran_s)
                found["below_ceiling"] = estimate_of_course(low_s.tolist(), ran_s.tolist())
        return found

    def sums(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        """By key: raw ns of the start and of the ends of the slices, and what both parts of the
        number had added up to at each of them."""
        none, count = np.zeros((1, len(self._keys))), self._count
        ends_ns = np.concatenate([[self._begin_ns], self._ends_ns[:count]]).astype(float)
        amounts, sizes = (
            np.cumsum(np.concatenate([none, table[:count]]), axis=0)
            for table in (self._amounts, self._sizes)
        )
        return {key: (ends_ns, amounts[:, at], sizes[:, at]) for at, key in enumerate(self._keys)}

    def _low_s(self) -> Floats:
        """By slice, seconds that CPUs ran below their ceiling, as if each had run evenly."""
        session, ends_ns = self._session, self._ends_ns[: self._count]
        begins_ns = np.concatenate([[self._begin_ns], ends_ns[:-1]])
        whole, low_s = session.whole(), np.zeros(self._count)
        for one in session.episodes(self._begin_ns, session.now_ns):
            if one.kind in LOW_CLOCK:
                end_ns = session.now_ns if one.end_ns is None else one.end_ns
                span_ns = np.minimum(ends_ns, end_ns) - np.maximum(begins_ns, one.start_ns)
                low_s += np.maximum(span_ns, 0) / 1e9 * working(session, whole, one)
        return low_s


MOST_SAMPLES = 2000
"""Samples kept of a number, for the picture of its distribution."""


class Recorded:
    """`by_mark`: a reading for each phase; else one of the whole."""

    def __init__(self, hello: wire.Hello, *, by_mark: bool) -> None:
        self._session, self._by_mark = Session(hello), by_mark
        self._session.account()
        self._course = Course(self._session)
        self._label = ""
        self._runs: list[Line] = []
        self._command: str | None = None
        self._readings: list[Reading] = []

    def readings(self, messages: Iterable[wire.Message]) -> list[Reading]:
        """Plays all messages after the hello."""
        for message in self._session.play(messages):
            if isinstance(message, wire.Frame):
                self._course.take()
            elif isinstance(message, wire.Note):
                self._note(message)
        self._cut()
        return self._readings

    def _note(self, note: wire.Note) -> None:
        argv, label = note.data.get("argv"), marks.label(note)
        if note.kind == "run-start" and isinstance(argv, list):
            self._command = shlex.join(map(str, argv))
        elif note.kind == "run-end":
            self._runs.append(note.data)
        if self._by_mark and note.kind in {"mark", "run-start", "run-end"} and label is not None:
            self._cut()
            self._label = label or "no name"
            self._session.begin_anew()
            self._course = Course(self._session)

    def _cut(self) -> None:
        """Ends a phase. What is before the first mark is in none."""
        session = self._session
        named = bool(self._label) == self._by_mark
        if not named or session.frames < 2 or len(self._readings) >= MOST_READINGS:
            return
        line = json_line(phase(session, self._label))
        line["cores"] = line["cores"] or []
        if not self._by_mark:
            line["run"] = self._runs[0] if len(self._runs) == 1 else None
            line["type"] = "summary"
        if self._command is not None:
            line["state"] = line["state"] | {"command": self._command}
        extremes = session.distribution.finish()
        self._readings.append(
            replace(
                reading(line, self._label),
                courses=self._course.estimates(),
                samples={
                    key: extremes.samples(key, MOST_SAMPLES) for key in NUMBERS if key in METRICS
                },
            )
        )
