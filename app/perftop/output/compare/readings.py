"""Reads the numbers of runs, recordings or phases from recordings or JSON lines."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, isfinite, log10, nan
from types import UnionType
from typing import Any

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Floats
from perftop.base.text import GHZ, MISSING, Line, json_number, safe_text, scale
from perftop.model import numbers as model_numbers
from perftop.model.delta import Delta
from perftop.model.kinds import kind_of
from perftop.model.numbers import EVENT_PREFIX, INDEX, METRICS, PER_KI, RARE_METRICS, Number
from perftop.model.sample_reader import SampleBatch
from perftop.model.smt import STATES
from perftop.output.compare.statistics import MIN_BLOCKS, Estimate, estimate_of_series
from perftop.output.run_summary import is_different, mean_both_share, mean_busy_cpus, run_line
from perftop.output.stat_lines import shown_unit
from perftop.output.summary_text import WHOLE_LABEL, Phases
from perftop.session.losses import WAIT_CAUSE, CauseKey
from perftop.session.session import Session

MAX_EVENTS = 64
"""Maximum number of events of a summary that are compared. Untrusted lines may have any number."""
MAX_EVENT_NAME_LENGTH, MAX_CULPRIT_LENGTH = 12, 40
MAX_READINGS, MAX_STATES = 10_000, 100
MAX_SAMPLES = 2000
"""Maximum number of samples kept for each number, for the chart of its distribution."""
MAX_SLICES = 2048

Numbers = dict[str, float]
"""Values by key, in base units; unknown values are left out."""


# --- numbers that are compared

ValueGetter = Callable[[Line], float | None]
"""Returns a number from a summary of `stat --json`; None if it is unknown."""


def _mean(key: str) -> ValueGetter:
    return lambda line: None if line["machine"][key] is None else line["machine"][key]["mean"]


def _run_time(*keys: str) -> ValueGetter:
    """Returns a function that adds up times of the command."""
    return lambda line: sum(line["run"][key] for key in keys) if line.get("run") else None


def _job_value(key: str) -> ValueGetter:
    return lambda line: None if line["job"] is None else line["job"].get(key)


def _other_tasks_cpus(line: Line) -> float | None:
    """Returns the number of CPUs that were busy with tasks other than the command."""
    util, used_s = _mean("util")(line), _run_time("user_s", "sys_s")(line)
    if util is None or used_s is None or not line["elapsed_s"]:
        return None
    return max(0.0, util * len(line["cpus"]) - used_s / float(line["elapsed_s"]))


def _cause_values(line: Line, key: str, types: type | UnionType) -> Iterator[tuple[CauseKey, Any]]:
    """Yields this value of each cause in an untrusted summary that has it and is of these types."""
    causes = line.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and isinstance(cause.get(key), types):
            yield (str(cause.get("kind")), str(cause.get("cause"))), cause[key]


def _lost_shares(line: Line) -> dict[CauseKey, float]:
    return {cause: float(share) for cause, share in _cause_values(line, "lost_ratio", int | float)}


def _power_w(line: Line) -> float | None:
    energy_j, elapsed_s = line["energy_j"], line["elapsed_s"]
    return energy_j / elapsed_s if energy_j is not None and elapsed_s else None


_VALUE_GETTERS: dict[str, ValueGetter] = {
    # A run has `run_s` instead of a duration.
    "length_s": lambda line: line["elapsed_s"] if line["type"] == "phase" else None,
    "run_s": _run_time("wall_s"),
    "cpu_s": _run_time("user_s", "sys_s"),
    "waited_s": _job_value("waited_s"),
    "disk_s": _job_value("disk_s"),
    "others_cpus": _other_tasks_cpus,
    "util": _mean("util"),
    "busy_hz": _mean("busy_hz"),
    "below_ceiling": lambda line: line["totals"].get("below_ceiling"),
    # The causes include waits in run queues, as in `why`.
    "lost_ratio": lambda line: sum(_lost_shares(line).values()) or _mean("lost_ratio")(line),
    "ipc": _mean("ipc"),
    "instructions": lambda line: line["totals"].get("instructions"),
    "kernel_cycles": _mean("kernel_cycles"),
    "both": mean_both_share,
    "involuntary": _mean("involuntary"),
    "steal": _mean("steal"),
    "power_w": _power_w,
    "energy_j": lambda line: line["energy_j"],
}
"""Functions that get a number from a summary of `stat --json`, by key, in the order of rows."""
NUMBERS: dict[str, Number] = {key: model_numbers.NUMBERS[key] for key in _VALUE_GETTERS}
"""The numbers by which runs are compared, except events, which depend on the recording."""
ON_REQUEST_KEYS = frozenset({"kernel_cycles"})
"""Keys that are compared only if the user asks for them."""


def find_number(key: str) -> Number:
    """Returns the declaration of the number with this key, which may be an event's."""
    number = NUMBERS.get(key) or RARE_METRICS.get(key)
    if number is not None:
        return number
    name = safe_text(key.removeprefix(EVENT_PREFIX).removesuffix(PER_KI), MAX_EVENT_NAME_LENGTH)
    if key.endswith(PER_KI):
        return Number(key, name, "1", "", digits=2)
    return Number(key, name, "1/s", "", digits=4, is_unbounded=True)


def unit_of(number: Number) -> str:
    return PER_KI if number.key.endswith(PER_KI) else shown_unit(number)


def format_like(definition: Number, value: float, reference: float | None = None) -> str:
    """Formats a value without its unit, with as many digits as `reference` (default: `value`)."""
    if not isfinite(value):
        return MISSING
    if not definition.is_unbounded:
        return definition.text(value, GHZ)
    factor = definition.scale(GHZ)[0]
    size = abs(value if reference is None else reference) * factor
    power, prefix = scale(size) if definition.is_rate else (0, "")
    size /= 10**power
    digits = max(0, definition.digits - 1 - floor(log10(size))) if size > 0 else 1
    return f"{value * factor / 10**power:z.{min(digits, 4)}f}{prefix}"


def row_keys(readings: Iterable[Numbers]) -> list[str]:
    """Returns the keys of NUMBERS, then those of the events in any of the readings."""
    return list(dict.fromkeys([*NUMBERS, *(key for values in readings for key in values)]))


def numbers(line: Line) -> Numbers:
    """Returns the numbers of a summary. Numbers that grow with time are included only for a command
    or a phase, because the duration of a measurement is not a property of the machine."""
    is_limited = bool(line.get("run")) or line["type"] == "phase"
    values: dict[str, object] = {
        key: value(line)
        for key, value in _VALUE_GETTERS.items()
        if is_limited or not NUMBERS[key].is_unbounded
    }
    events = [key for key in line["machine"] if model_numbers.is_event_key(key)]
    return _finite_numbers(values | {key: _mean(key)(line) for key in events[:MAX_EVENTS]})


def _finite_numbers(values: Mapping[str, object]) -> Numbers:
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def numbers_json(values: Numbers) -> Line:
    """Returns the numbers for a JSON line, in base units; null if unknown."""
    return {key: json_number(values.get(key, nan)) for key in row_keys([values])}


# --- readings of runs


@dataclass(frozen=True)
class Reading:
    """The numbers and state of one run, recording or phase."""

    numbers: Numbers
    state: Line
    """Settings of the machine; empty if unknown."""
    lost_shares: dict[CauseKey, float]
    culprits: dict[CauseKey, tuple[str, str]] = field(default_factory=dict)
    """By cause, the task that made the run lose time, and its CPU or ''; only those that `why`
    names."""
    label: str = ""
    """Name of the phase; '' for the whole run."""
    status: int = 0
    """Exit status of the command; a run that failed is not compared."""
    file: int = 0
    """Index of the file within its side."""
    series_estimates: dict[str, Estimate] = field(default_factory=dict)
    """Estimates of the numbers from their variation over time, by key; empty if unknown."""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """At most MAX_SAMPLES values of each number, by key, for the chart of its distribution."""


def parse_reading(line: Line, label: str = "") -> Reading:
    """Parses a summary, a phase, or a `run` line of `stat -r`, which are untrusted."""
    values = line.get("numbers")
    if isinstance(values, dict):
        events = [key for key in values if model_numbers.is_event_key(key)][:MAX_EVENTS]
        values = _finite_numbers({key: values[key] for key in (*NUMBERS, *events) if key in values})
    else:
        values = numbers(line)
    state = line.get("state")
    states = list(state.items())[:MAX_STATES] if isinstance(state, dict) else []
    state = {key: value for key, value in states if isinstance(value, str | int | float)}
    places = dict(_cause_values(line, "place", str))
    culprits = {
        cause: (
            safe_text(name, MAX_CULPRIT_LENGTH),
            safe_text(places.get(cause, ""), MAX_CULPRIT_LENGTH),
        )
        for cause, name in _cause_values(line, "culprit", str)
    }
    run = line.get("run")
    status = run.get("status") if isinstance(run, dict) else 0
    status = status if isinstance(status, int) else 0
    return Reading(values, state, _lost_shares(line), culprits, label, status)


def shared_state(readings: Sequence[Reading]) -> Line:
    """Returns the state that all readings share. A note replaces a value that differs."""
    state: Line = {}
    for key in dict.fromkeys(key for reading in readings for key in reading.state):
        values = [reading.state.get(key) for reading in readings]
        # A base clock from a calibration of the TSC varies from run to run.
        is_same = not any(is_different(value, values[0]) for value in values)
        state[key] = values[0] if is_same else "not the same in all runs"
    return state


class ForeignFileError(Exception):
    """Raised for JSON lines that are damaged or from another program; the message says which."""


def parse_json_lines(lines: Iterable[str]) -> tuple[list[Reading], str | None]:
    """Parses the output of `stat --json`, `stat -r --json` or `summary --json`. Returns the
    readings, and a description of any damage or None. Raises ForeignFileError if the lines are not
    such output."""
    readings: list[Reading] = []
    for index, text in enumerate(lines):
        if not text.strip():
            continue
        try:
            line = json.loads(text, parse_int=_bounded_int)
            reading = _parse_line(line) if isinstance(line, dict) else None
        except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError):
            if not readings:
                raise ForeignFileError(f"line {index + 1} is not from perftop") from None
            damage = f"line {index + 1} is cut or damaged; the lines before it were compared"
            return readings, damage
        readings += [reading] if reading is not None and len(readings) < MAX_READINGS else []
    if not readings:
        raise ForeignFileError("it has no summary, phase or run line")
    return readings, None


def _bounded_int(digits: str) -> int:
    """Parses an integer of JSON. Raises OverflowError if it is too large for a float."""
    value = int(digits)
    float(value)
    return value


def _parse_line(line: Line) -> Reading | None:
    kind = line.get("type")
    if kind == "run":
        if line.get("side"):
            raise ForeignFileError("it has runs of two commands, which its last line compares")
        return None if line.get("warmup") else parse_reading(line)
    if kind == "phase":
        label = str(line["label"])
        is_whole = label == WHOLE_LABEL
        return parse_reading(
            line | {"type": "summary"} if is_whole else line, "" if is_whole else label
        )
    return parse_reading(line) if kind == "summary" else None


# --- readings of recordings

Sums = tuple[Floats, Floats, Floats]
"""The raw times in ns of the start of the first slice and of the end of each, and the cumulative
amounts and sizes at these times, whose quotient is a mean."""
MIN_LOSS_SLICE_NS = 1_000_000_000
"""Minimum length in ns of a slice of losses: the time between two records of tasks."""


class SliceSums:
    """Sums up to the ends of time slices. When MAX_SLICES are in use, pairs of slices are joined,
    and later slices are twice as long."""

    def __init__(self, session: Session, slice_ns: int, columns: int) -> None:
        self._slice_ns, self._slack_ns = slice_ns, session.hello.sample_ns // 2
        self._points = [(session.now_ns, np.zeros(columns))]

    @property
    def due_ns(self) -> int:
        """Raw time in ns after which the current slice ends."""
        return self._points[-1][0] + self._slice_ns - self._slack_ns

    def end_slice(self, time_ns: int, sums: Floats) -> None:
        self._points.append((time_ns, sums))
        if len(self._points) > MAX_SLICES:
            del self._points[1::2]
            self._slice_ns *= 2

    def table(self) -> tuple[Floats, Floats]:
        """Returns the raw times in ns of the start and of the ends, and the sums up to them."""
        times_ns, sums = zip(*self._points, strict=True)
        return np.array(times_ns, float), np.stack(sums)


class RunSeries:
    """The numbers of a session in time slices, from the creation of this object on: those that
    samples have in slices of a few samples, and losses, which depend on records of tasks, in
    slices of seconds. Their variation over time shows the noise of a single run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        registry = session.evaluator.registry
        metrics = [key for key in NUMBERS if key in INDEX and key != "lost_ratio"]
        metrics += [*registry.events][:MAX_EVENTS]
        self._metric_indices = [registry.index[key] for key in metrics]
        has_all = len(session.selected) == len(session.topology)  # a full slice copies nothing
        self._shown = slice(None) if has_all else session.selected
        self._keys = [*metrics, "both", "power_w"]
        self._sums = np.zeros(2 * len(self._keys))
        """Amounts, then sizes, until now. The value of a metric is amount divided by size, in units
        of the metric."""
        self._batch_sums: Floats = np.zeros((0, len(self._sums)))
        """The amounts, then the sizes, of each sample of the newest batch: (samples, 2 x keys)."""
        self._slices = SliceSums(session, session.hello.sample_ns, len(self._sums))
        self.losses = SliceSums(session, MIN_LOSS_SLICE_NS, 3)
        """Seconds that tasks wanted, lost, and waited for a CPU."""

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`. All samples of
        a batch must be added in order."""
        part = slice(first, last)
        if not first:
            amounts, sizes = batch.values.group_sums(self._shown, self._metric_indices)
            both_share = batch.split.states[..., STATES.index("both")]
            is_known = np.isfinite(both_share)
            both_sum = np.where(is_known, both_share, 0.0).sum(axis=1)
            energy_j, span_s = self._package_energy(batch.delta)
            self._batch_sums = np.column_stack(
                [amounts, both_sum, energy_j, sizes, is_known.sum(axis=1), span_s]
            )
        sums = self._sums + np.cumsum(self._batch_sums[part], axis=0)
        self._sums = sums[-1]
        for time_ns, end_sums in zip(batch.time_ns[part].tolist(), sums, strict=True):
            if time_ns >= self._slices.due_ns:
                self._slices.end_slice(time_ns, end_sums)
        if self._session.now_ns >= self.losses.due_ns and self._session.run.tracks_losses:
            self.losses.end_slice(self._session.now_ns, self._lost_s())

    def _lost_s(self) -> Floats:
        losses = self._session.run.lost_time()
        by_cause = {cause: float(lost_s.sum()) for cause, lost_s in losses.by_cause.items()}
        return np.array([losses.whole_s, sum(by_cause.values()), by_cause.get(WAIT_CAUSE, 0.0)])

    def _package_energy(self, delta: Delta) -> tuple[Floats, Floats]:
        """Returns, for each sample, the energy of all packages in J and the time in s that it
        covers."""
        column = self._session.counters.columns.get("energy_j")
        if column is None:
            zeros = np.zeros(len(delta.doubts))
            return zeros, zeros
        table = delta.tables[column.block]
        increments, ticks = table.increments[..., column.index], table.ticks
        # Most frames have no reading of the energy.
        is_read = np.isfinite(increments).all(axis=1) & (ticks > 0).all(axis=1)
        seconds = ticks.mean(axis=1) / self._session.counters.stamp_hz
        return np.where(is_read, increments.sum(axis=1), 0.0), np.where(is_read, seconds, 0.0)

    def estimates(self) -> dict[str, Estimate]:
        """Returns estimates of the counted numbers, by key; without those for which the session was
        too short."""
        session, parts = self._session, self._counted_parts(0, sys.maxsize)
        if session.reader.turbo.cpus.any():  # assuming that each CPU ran evenly over time
            ran_s, (times_ns, _) = parts["util"][0], self._slices.table()
            begins_ns, ends_ns = times_ns[:-1], times_ns[1:]
            interval, low_s = session.run_interval(), np.zeros(len(ends_ns))
            for episode in session.episodes(int(times_ns[0]), session.now_ns):
                if kind_of(episode).depth == "hz":
                    end_ns = session.now_ns if episode.end_ns is None else episode.end_ns
                    span_ns = np.minimum(ends_ns, end_ns) - np.maximum(begins_ns, episode.start_ns)
                    busy_cpus = mean_busy_cpus(session, interval, episode)
                    low_s += np.maximum(span_ns, 0) / 1e9 * busy_cpus
            parts["below_ceiling"] = np.minimum(low_s, ran_s), ran_s
        return _estimates(parts)

    def reading_between(self, whole: Reading, since_ns: int, until_ns: int) -> Reading:
        """Returns the reading of a part of the run: its means, without numbers that grow with time
        and without causes of losses, which have no slices. `whole`: the reading of the run."""
        parts = self._counted_parts(since_ns, until_ns)
        means: dict[str, object] = {
            key: float(amounts.sum() / sizes.sum())
            for key, (amounts, sizes) in parts.items()
            if sizes.sum() > 0
        }
        return replace(
            whole, numbers=_finite_numbers(means), lost_shares={}, culprits={},
            series_estimates=_estimates(parts), samples={},
        )  # fmt: skip

    def _counted_parts(self, since_ns: int, until_ns: int) -> dict[str, tuple[Floats, Floats]]:
        """Returns the amounts and sizes of the slices between these raw times, by key, without
        numbers that grow with time."""
        parts: dict[str, tuple[Floats, Floats]] = {}
        for key, (times_ns, amounts, sizes) in self.sums().items():
            if not find_number(key).is_unbounded:
                is_inside = (times_ns >= since_ns) & (times_ns <= until_ns)
                parts[key] = np.diff(amounts[is_inside]), np.diff(sizes[is_inside])
        return parts

    def sums(self) -> dict[str, Sums]:
        times_ns, table = self._slices.table()
        amounts, sizes = np.split(table.T, 2)
        sums = {key: (times_ns, amounts[i], sizes[i]) for i, key in enumerate(self._keys)}
        times_ns, losses = self.losses.table()
        if self._session.now_ns > times_ns[-1] and self._session.run.tracks_losses:
            times_ns = np.append(times_ns, self._session.now_ns)
            losses = np.vstack([losses, self._lost_s()])
        wanted_s, lost_s, waited_s = losses.T
        elapsed_s = (times_ns - times_ns[0]) / 1e9
        return sums | {
            "lost_ratio": (times_ns, lost_s, wanted_s),
            "waited_s": (times_ns, waited_s, elapsed_s),
        }


def _estimates(parts: Mapping[str, tuple[Floats, Floats]]) -> dict[str, Estimate]:
    """Returns estimates from amounts and sizes, by key, except those with too few slices."""
    return {
        key: estimate_of_series(amounts.tolist(), sizes.tolist())
        for key, (amounts, sizes) in parts.items()
        if len(sizes) >= MIN_BLOCKS and sizes.sum() > 0
    }


class RecordingReader(Phases):
    """Reads a recording, and creates a reading for each phase or for the whole."""

    def __init__(self, *, by_mark: bool) -> None:
        super().__init__(by_mark=by_mark)
        self.readings: list[Reading] = []

    def on_hello(self, hello: wire.Hello) -> Session:
        session = super().on_hello(hello)
        session.run.track_losses(losses_only=True)
        self.series = RunSeries(session)
        return session

    def _due_ns(self) -> int:
        return min(super()._due_ns(), self.series.losses.due_ns)

    def on_samples(self, batch: SampleBatch, first: int, last: int) -> None:
        self.series.add(batch, first, last)

    def on_message(self, message: wire.Message) -> bool:
        if isinstance(message, wire.Note) and message.kind == "gap":
            return False  # a gap does not end a phase here
        return super().on_message(message)

    def on_end(self) -> None:
        super().on_end()
        if self.phases and len(self.readings) < MAX_READINGS:
            line = self.phases.pop().line
            label = line["label"] if self._by_mark else ""
            if not self._by_mark:
                line["run"] = run_line(self.session)
                line["type"] = "summary"
            if argv := self.session.command_run.argv:
                line["state"] = line["state"] | {"command": shlex.join(argv)}
            extremes = self.session.run.distribution.finish()
            samples = {key: extremes.samples(key, MAX_SAMPLES) for key in NUMBERS if key in METRICS}
            _, lost_s, wanted_s = map(np.diff, self.series.sums()["lost_ratio"])
            is_busy = wanted_s > 0
            samples["lost_ratio"] = (lost_s[is_busy] / wanted_s[is_busy]).tolist()
            times = self.session.run.times
            if times.threads:
                waited_s = sum(thread.wait_s for thread in times.threads.values())
                line["job"] = {"waited_s": waited_s, "disk_s": times.job.disk_s}
            self.readings.append(
                replace(
                    parse_reading(line, label),
                    series_estimates=self.series.estimates(),
                    samples=samples,
                )
            )
        if self._by_mark:
            self.series = RunSeries(self.session)
