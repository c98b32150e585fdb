"""The numbers beside the charts of a core, for both siblings, with their origins. Every line is
exactly as wide as the area for numbers on the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np

from perftop.base.format import MISSING, ClockUnit, short_duration, when
from perftop.draw import theme
from perftop.draw.columns import DOUBTED, Column, Run, fit, number
from perftop.draw.strips import QUIET, Piece, foreign, shed, width
from perftop.model import smt
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST, OF_L3
from perftop.model.memory import READ
from perftop.model.numbers import PER_KI
from perftop.model.tasks import task
from perftop.output.sentences import unique_losses
from perftop.session.interval import MIN_COUNTED_SHARE, Interval
from perftop.session.missing import NAMES, by_reason, doubts, lasting
from perftop.session.session import Session
from perftop.session.values import doubted, of_cpus
from perftop.tui.core_page.layout import L3, NAME, TRAFFIC, VALUE, Page, Panel
from perftop.tui.shared import time_axis
from perftop.tui.shared.choice import Units
from perftop.tui.shared.episode_style import because, going
from perftop.tui.shared.fields import clock_of
from perftop.tui.shared.places import Place
from perftop.tui.shared.row_episodes import lowered_number
from perftop.tui.shared.sheet import AWAKE, DROP, busiest, of_core

DRAM = "power_dram_w"
_BESIDE = {
    "clock": ("busy_hz", "ceiling", "net_hz"),
    "account": ("user", "system", "iowait", "steal"),
    "util": ("util", "idle", "halt", "poll"),
    "involuntary": ("involuntary", "smi"),
    "kernel_cycles": ("kernel_cycles", "kernel_instructions"),
    TRAFFIC: (TRAFFIC, "of_best", "dram"),
}
"""Keys of the numbers beside a panel, of which as many are shown as the panel has lines. Other
panels show only the number of their own key."""


@dataclass(frozen=True, slots=True)
class CoreMoment:
    """One core at one moment."""

    session: Session
    interval: Interval
    place: Place
    page: Page
    unit: ClockUnit
    episodes: Sequence[Episode]
    """Episodes on the core's CPUs that had begun by this moment."""
    awake: bool
    """Whether the core is busy enough for its clock to be meaningful."""

    def lost(self, key: str, rows: Sequence[int]) -> bool:
        """Returns whether an episode that is an alarm makes this metric worse now, on any of these
        CPUs."""
        affected, now_ns = {self.session.topology[row].cpu for row in rows}, self.interval.time_ns
        red = (e for e in self.episodes if time_axis.mark(e, now_ns)[1] == "alarm")
        return any(lowered_number(e) == key and not affected.isdisjoint(e.cpus) for e in red)

    @property
    def ceiling_hz(self) -> float:
        return float(self.interval.ceiling_hz[self.place.at])

    @property
    def size(self) -> int:
        """Width of the numbers in cells; 0 if the page has no numbers."""
        return NAME + VALUE * self.page.values + self.page.origin if self.page.values else 0


def moment(
    session: Session, interval: Interval, place: Place, page: Page, units: Units, since_ns: int
) -> CoreMoment:
    """Returns the core at the end of this interval, with the episodes that had begun by then and
    had not ended by `since_ns` (raw)."""
    unit = clock_of(session, units, known=True)
    episodes = [
        episode
        for episode in session.episodes(since_ns, interval.time_ns)
        if not set(episode.cpus).isdisjoint(place.cpus)
    ]
    util, _ = _now(interval, place, "util")
    awake = max((share for share in util if not isnan(share)), default=0.0) >= AWAKE
    return CoreMoment(session, interval, place, page, unit, episodes, awake)


def _now(interval: Interval, place: Place, key: str) -> tuple[list[float], float]:
    """Returns a metric in the interval: its value for each CPU, and for the core."""
    rows = list(place.rows)
    there = interval.online[rows]
    values, util, hz = (
        np.where(there, interval.values[name][rows], np.nan) for name in (key, "util", "busy_hz")
    )
    return values.tolist(), float(of_core(key, values, busiest(util, hz)))


# --- numbers beside the charts


def panel_numbers(moment: CoreMoment, panel: Panel) -> list[list[Run]]:
    """Returns the numbers for each line of the panel."""
    if not moment.page.values:
        return [[] for _ in range(panel.lines)]
    if panel.key == "smt":
        found = _states(moment)
    else:
        keys = _BESIDE.get(panel.key, (panel.key,))
        found = [line for key in keys if (line := _number(moment, key))]
    blank: list[Run] = [(" " * moment.size, "text")]
    return (found + [blank] * panel.lines)[: panel.lines]


def _number(moment: CoreMoment, key: str) -> list[Run] | None:
    """Returns the line of a metric; None if the source does not have this metric at all."""
    if key in _OTHERS:
        return _OTHERS[key](moment)
    if key in _SHARED:
        return _shared(moment, key)
    origin = moment.session.evaluator.origin(key)
    if origin is None:
        return None
    metric = moment.session.evaluator.metrics[key]
    scale, digits = metric.scale(moment.unit, brief=True)
    column = Column(key, metric.label, VALUE - 1, scale=scale, digits=digits, prefixed=metric.rate)
    cells = []
    for rows, value in _values(moment, *_now(moment.interval, moment.place, key)):
        style = "alarm" if moment.lost(key, rows) else _style(moment, key, value)
        rests = metric.of_running and bool(moment.interval.resting[list(rows)].all())
        cells.append(_cell(moment, column, rows, value, style, rests=rests))
        low = moment.awake and not rests and value < moment.ceiling_hz * (1 - DROP)
        if key == "busy_hz" and low:
            cells[-1][-1] = (theme.DROPPED, style)
    label = metric.label + (" %" if metric.unit == "ratio" else "")
    name = _name(label, _counted(moment, key, moment.place.rows))
    if metric.unit == "Hz":
        name.insert(0, (f"{theme.RULE} ", "clock") if key == "busy_hz" else ("  ", "text"))
    return _line(moment, name, cells, origin)


def _name(label: str, counted: float) -> list[Run]:
    """Returns the label of a metric. For a multiplexed event, the label also has the share of time
    for which the event was counted."""
    if counted >= MIN_COUNTED_SHARE:
        return [(fit(label, NAME - 1) if len(label) >= NAME else label, "dim")]
    share = f" {100 * counted:.0f}%"
    return [(fit(label, NAME - 1 - len(share)), "dim"), (share, "text")]


def _counted(moment: CoreMoment, key: str, rows: Sequence[int]) -> float:
    """Returns the minimum share of time, over these CPUs, for which an event was counted; 1 for
    other metrics."""
    shares = moment.interval.shares.get(key.removesuffix(PER_KI))
    return 1.0 if shares is None else float(np.fmin.reduce(shares[[*rows]], initial=1.0))


def _values(
    moment: CoreMoment, each: Sequence[float], core: float
) -> Iterable[tuple[Sequence[int], float]]:
    """Returns values with the positions of their CPUs: one value for each CPU, or one for the core
    if there is no room for more."""
    if moment.page.values == len(each):
        return [((row,), value) for row, value in zip(moment.place.rows, each, strict=True)]
    return [(moment.place.rows, core)]


def _cell(
    moment: CoreMoment, column: Column, rows: Sequence[int], value: float, style: str,
    *, rests: bool = False,
) -> list[Run]:  # fmt: skip
    """Returns a number, and a blank after it, which a clock below its ceiling replaces by a
    mark."""
    online = [row for row in rows if moment.interval.online[row]]
    text, style = column.cell(
        value, style, online=bool(online), resting=rests,
        doubted=bool(doubted(column.key, moment.session, moment.interval)[online].any()),
        estimated=not isnan(value) and _counted(moment, column.key, online) < MIN_COUNTED_SHARE,
    )  # fmt: skip
    if len(text) > column.width:  # the prefix replaces the decimals
        text = re.sub(r"\.\d+", "", text)
    return [(column.place(text), style), (" ", "text")]


def _style(moment: CoreMoment, key: str, value: float) -> str:
    metric = moment.session.evaluator.metrics[key]
    if metric.unit == "Hz":
        return "text" if moment.awake else "dim"
    if metric.unit != "ratio":
        return "text"
    return "warn" if value >= metric.stands_out else "dim" if value < QUIET else "text"


def _ceiling(moment: CoreMoment) -> list[Run] | None:
    origin = moment.session.reader.turbo.origin
    if origin is None:
        return None
    hz, (_, scale, digits) = moment.ceiling_hz, moment.unit
    text = number(hz * scale, digits)
    name: list[Run] = [(f"{theme.NEITHER} ceiling", "dim")]
    return _common(moment, name, text, origin)


def _smi(moment: CoreMoment) -> list[Run] | None:
    """Returns the line of system-management interrupts in the interval: for each CPU, or the
    maximum over the CPUs, because each interrupt affects all CPUs."""
    counts = moment.interval.counts.get("smi")
    if counts is None:
        return None
    each = [float(counts[row]) for row in moment.place.rows]
    most = max((count for count in each if not isnan(count)), default=nan)
    column = Column("smi", "SMIs", VALUE - 1)
    cells = [
        _cell(moment, column, rows, count, "warn" if count > 0 else "dim")
        for rows, count in _values(moment, each, most)
    ]
    origin = moment.session.counters.columns["smi"].counter.origin
    return _line(moment, [("SMIs", "dim")], cells, origin)


def _states(moment: CoreMoment) -> list[list[Run]]:
    """Returns lines with the shares of the four SMT states, or their bounds. For a core without
    exactly two threads, the lines are the share of `neither` and the number of active threads."""
    paired = len(moment.place.cpus) == 2
    found = []
    for shape, name in theme.STATES if paired else theme.STATES[-1:]:
        label = f"{name} only" if name in {"lp0", "lp1"} else name
        runs: list[Run] = [(f"{shape} ", name), (label, "dim")]
        found.append(_common(moment, runs, _state(moment, name)))
    if not paired:
        active = float(moment.interval.split.active_threads[moment.place.at])
        runs = [(f"{theme.UNKNOWN} ", "unknown"), ("active", "dim")]
        found.append(_common(moment, runs, number(active, 2)))
    how = method(moment)
    if len(how) > moment.size:  # a note shows the whole text
        how = how.rpartition(" ")[0]
    return [*found, [(fit(how, moment.size), "dim")]]


def _state(moment: CoreMoment, name: str) -> Run:
    split, at, first = moment.interval.split, moment.place.at, moment.place.rows[0]
    if split.method[at] == "single" and not moment.interval.online[first]:
        name = {"lp0": "lp1", "lp1": "lp0"}.get(name, name)  # a lone online thread is stored as lp0
    column = smt.STATES.index(name)
    share, low, high = (float(part[at, column]) for part in (split.states, split.low, split.high))
    if isnan(share) and not isnan(low):
        ends = f"{100 * low:.0f}", f"{100 * high:.0f}"
        return "–".join(dict.fromkeys(ends)), "text"
    percent = Column(name, name, VALUE - 1, scale=100.0, digits=1)
    against = bool(doubted(name, moment.session, moment.interval)[first])
    return percent.cell(share, "dim" if share < QUIET else "text", doubted=against)


def _common(moment: CoreMoment, name: list[Run], number: Run, origin: str = "") -> list[Run]:
    """Returns a line with one value for all siblings, centred between the siblings' columns."""
    text, key = number
    indent = " " * (VALUE * (moment.page.values - 1) // 2)
    return _line(moment, name, [[(f"{indent}{text:>{VALUE - 1}}", key)]], origin)


def _line(
    moment: CoreMoment, name: list[Run], cells: Iterable[list[Run]], origin: str
) -> list[Run]:
    runs: list[Run] = [*name, (" " * (NAME - width(name)), "text")]
    for cell in cells:
        runs += cell
    room = moment.size - moment.page.origin
    runs.append((" " * (room - width(runs)), "text"))
    if moment.page.origin:
        runs.append((fit("  " + foreign(origin), moment.page.origin), "faint"))
    return runs


def method(moment: CoreMoment) -> str:
    """Returns how the SMT states were measured, with the calibration factor of the counter's
    ticks."""
    name = moment.interval.split.method[moment.place.at]
    if name is None:
        return MISSING
    calibration = moment.session.calibrations.get(name.replace("-", "_"))
    if calibration is None:
        return name
    state = "calibrated" if calibration.state == "settled" else calibration.state
    return f"{name} ×{calibration.factor:g} {state}"


_SHARED: dict[str, tuple[str, float, int, tuple[str, ...], str]] = {
    TRAFFIC: ("mem GB/s", 1e-9, 1, tuple(f"package_{name}" for name in MEMORY), READ),
    "of_best": ("of best %", 100.0, 0, (f"package_{OF_BEST}",), ""),
    "dram": ("memory W", 1.0, 1, (f"package_{DRAM}",), ""),
    L3: ("L3 GB/s", 1e-9, 1, ("l3_memory_bytes_per_s",), OF_L3["memory_bytes_per_s"]),
}
"""Numbers of the core's package or L3, by key: label, factor to the displayed unit, decimals, keys
whose values are added up, and the counter whose origin is shown."""


def _shared(moment: CoreMoment, key: str) -> list[Run] | None:
    """Returns the line of a number of the core's package or L3; None for the power of memory if it
    is not counted."""
    label, scale, digits, keys, counter = _SHARED[key]
    if key == "dram" and DRAM not in moment.interval.packages:
        return None
    row, session = moment.place.rows[0], moment.session
    value = sum(float(of_cpus(session, moment.interval, each)[row]) for each in keys)
    origin = session.counters.columns[counter].counter.origin if counter else ""
    return _common(moment, [(label, "dim")], number(value * scale, digits), origin)


_OTHERS = {"ceiling": _ceiling, "smi": _smi}


# --- text above and below the charts


def head(moment: CoreMoment, window: str, keys: Mapping[str, str], size: int) -> list[Run]:
    """Returns the core's name and its position in the topology. `keys`: captions of the keys that
    go back and zoom."""
    place, online = moment.place, moment.interval.online
    paired = len(place.cpus) > 1
    core = f"core {'-' if place.core is None else place.core}"
    cpus = ", ".join(
        f"{cpu}" if online[row] else f"{cpu} off"
        for cpu, row in zip(place.cpus, place.rows, strict=True)
    )
    pieces: list[tuple[int, str, str]] = [
        (0, core if paired or place.core is not None else f"CPU {cpus}", "bright"),
        (3, "" if place.package is None else f"package {place.package}", "dim"),
        (5, "" if place.l3 is None else f"L3 {place.l3}", "dim"),
        (1, f"CPU{'s' if paired else ''} {cpus}", "text"),
        (4, "" if place.type is None else f"{place.type}-core", "dim"),
        (6, f"{keys['back']} back", "dim"),
        (2, f"{keys['window']} window {window}", "dim"),
    ]
    dotted: list[Piece] = [
        (rank, [*([("· ", "faint")] if rank else []), (foreign(text), key)])
        for rank, text, key in pieces
        if text
    ]
    return [(" ", "text"), *shed(dotted, size - 1, 1)]


def above(moment: CoreMoment, window: str, keys: Mapping[str, str], size: int) -> list[list[Run]]:
    """Returns the first lines of the page: the core, the titles of the numbers, and the tasks."""
    left = size - moment.size - 1
    name = head(moment, window, keys, left)
    lines = [[*name, (" " * (left - width(name)), "text"), *titles(moment)]]
    return [*lines, who(moment, size)] if moment.page.who else lines


def titles(moment: CoreMoment) -> list[Run]:
    """Returns the titles above the numbers, which name each sibling or the core."""
    page = moment.page
    if not page.values or len(moment.place.cpus) == 1:
        return [(" " * moment.size, "text")]
    names = [f"lp{i}" for i in range(page.values)] if page.values > 1 else ["core"]
    text = " " * NAME + "".join(f"{name:>{VALUE - 1}} " for name in names)
    return [(text.ljust(moment.size), "dim")]


def who(moment: CoreMoment, size: int) -> list[Run]:
    """Returns a line with the task on each sibling, with as many details as fit."""
    cpus = moment.place.cpus
    part = (size - 1) // len(cpus)
    runs: list[Run] = [(" ", "text")]
    for i, cpu in enumerate(cpus):
        name = f"lp{i} " if len(cpus) > 1 else ""
        part_runs: list[Run] = [(name, "dim"), *_task(moment, cpu)]
        runs += _cut(part_runs, part - 1)
        runs.append((" ", "text"))
    return runs


def _task(moment: CoreMoment, cpu: int) -> list[Run]:
    found = task(moment.interval.tasks.get(str(cpu)))
    if found is None:
        return [("no task seen", "faint")]
    runs: list[Run] = [(foreign(f"{found.comm}:{found.pid}"), "text")]
    runs.append((f" {100 * found.share:.0f} %", "dim"))
    details = moment.session.details.get(str(found.pid), {})
    for key in ("user", "command"):
        if isinstance(text := details.get(key), str) and text:
            runs += [("  ", "text"), (foreign(text[:400]), "dim" if key == "user" else "faint")]
    return runs


def _cut(runs: Iterable[Run], size: int) -> list[Run]:
    """Returns the runs, cut or padded to exactly `size` cells."""
    done: list[Run] = []
    for text, key in runs:
        if size > 0:
            done.append((fit(text, min(size, len(text))), key))
            size -= len(done[-1][0])
    return [*done, (" " * size, "text")]


# --- notes: running and ended episodes, reasons for doubt, unknown numbers


def notes(moment: CoreMoment, size: int, lines: int) -> list[list[Run]]:
    """Returns exactly `lines` lines of notes, the most important first. If some notes do not fit,
    the last line shows their number."""
    if not lines:
        return []
    found = [*_episodes(moment), *_missing(moment), *_method(moment)]
    more = f"  and {len(found) - lines} more " if len(found) > lines else ""
    shown = [_cut(line, size) for line in found[: lines - bool(more)]]
    if more:
        shown.append([*_cut(found[lines - 1], size - len(more)), (more, "text")])
    return shown + [[] for _ in range(lines - len(shown))]


def _method(moment: CoreMoment) -> Iterable[list[Run]]:
    """Yields a note on how the SMT states were measured, unless the numbers beside the SMT panel
    show it."""
    how, panels = method(moment), moment.page.panels
    if how == "bounds":
        yield [("   SMT states not counted here: ", "dim"), (theme.UNKNOWN, "unknown"),
               (" may be any of them", "dim")]  # fmt: skip
    beside = any(panel.key == "smt" and panel.lines > len(smt.STATES) for panel in panels)
    if len(moment.place.cpus) > 1 and not (beside and len(how) <= moment.size):
        yield [(f"   SMT states by {how}", "dim")]


def _episodes(moment: CoreMoment) -> Iterable[list[Run]]:
    """Yields notes on running episodes, then on reasons to doubt this interval's numbers, then on
    ended episodes."""
    interval, place = moment.interval, moment.place
    worst = {"alarm": 0, "warn": 1}
    ordered = sorted(
        unique_losses(moment.episodes),
        key=lambda e: (worst.get(time_axis.mark(e)[1], 2), -e.start_ns),
    )
    yield from (_episode(moment, e) for e in ordered if going(e, interval.time_ns))
    for cpu, row in zip(place.cpus, place.rows, strict=True):
        if reasons := doubts(interval, row):
            text = f"CPU {cpu}  {'; '.join(reasons)}"
            yield [(f" {DOUBTED} {foreign(text)}", "dim")]
    yield from (_episode(moment, e) for e in ordered if not going(e, interval.time_ns))


def _episode(moment: CoreMoment, episode: Episode) -> list[Run]:
    sign, key = time_axis.mark(episode)
    now = going(episode, moment.interval.time_ns)
    end_ns = moment.interval.time_ns if now or episode.end_ns is None else episode.end_ns
    since = when(moment.session.unix(episode.start_ns))
    lasted_s = max(0, end_ns - episode.start_ns) / 1e9
    climb = _climb(moment, episode)
    span = since + (f"  {lasted_s:.1f} s" if lasted_s and not climb else "")
    why = climb or because(episode)
    return [
        (foreign(f" {sign} {episode.kind}"), key if now else "dim"),
        (f"  since {span}" if now else f"  {span}", "text" if now else "dim"),
        (foreign(f"  {why}") if why else "", "dim"),
    ]


def _climb(moment: CoreMoment, episode: Episode) -> str:
    """Returns the description of a ramp episode; '' for other episodes."""
    if episode.kind != "ramp":
        return ""
    cpus = {*episode.cpus}
    cores = sum(not cpus.isdisjoint(core) for core in moment.session.cores)
    return _ramp_words(episode, cores, moment.unit)


RAMP_LEVELS = {"t90_s": "90 %", "t99_s": "99 %", "steady_s": "steady"}
"""Names of the levels of a ramp, by the evidence key of the time until the level was reached."""


def _ramp_words(episode: Episode, cores: int, unit: ClockUnit) -> str:
    """Returns a text on how long the core took to reach each level of its clock. For several cores,
    the times are those of the median core."""
    evidence = episode.evidence
    if "steady_s" not in evidence:
        return ""
    clocks = {
        key: _hz(evidence[key], unit) for key in ("first_hz", "ceiling_hz") if key in evidence
    }
    below = "" if episode.confidence == "measured" else "below "
    parts = [
        f"steady {_hz(evidence['steady_hz'], unit)} {unit.name} {_after(evidence, 'steady_s')}",
        *(f"{RAMP_LEVELS[key]} {_after(evidence, key)}" for key in ("t90_s", "t99_s")
          if evidence[key] < evidence["steady_s"]),
        f"from {below}{clocks['first_hz']}",
        f"ceiling {clocks['ceiling_hz']}" if "ceiling_hz" in clocks else "",
        f"fell {evidence['drops']}× on the way" if "drops" in evidence else "",
        f"median of {cores} cores" if cores > 1 else "",
        f"CPU {evidence['slowest_cpu']} {short_duration(evidence['slowest_s'])}"
        if "slowest_s" in evidence else "",
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


def _hz(hz: float, unit: ClockUnit) -> str:
    return f"{hz * unit.per_hz:.{unit.digits}f}"


def _after(evidence: dict[str, float], key: str) -> str:
    least_s = evidence["resolution_s"]
    if evidence[key] <= least_s:
        return f"after at most {short_duration(least_s)}"
    sure = f" (± {short_duration(least_s)})" if key == "steady_s" else ""
    return f"after {short_duration(evidence[key])}{sure}"


def _missing(moment: CoreMoment) -> Iterable[list[Run]]:
    """Yields notes on the unknown numbers of this core: why they are unknown, and how to fix it."""
    session, cpus = moment.session, set(moment.place.cpus)
    bounds = moment.interval.split.method[moment.place.at] == "bounds"
    names = NAMES | (dict.fromkeys((*smt.ANY_COUNTERS, "traced"), "SMT states") if bounds else {})
    missing = [m for m in lasting(session) if m.cpus is None or not cpus.isdisjoint(m.cpus)]
    reasons = by_reason(missing, lambda missing: names.get(missing.what))
    order = list(dict.fromkeys(names.values()))
    for (why, fix), lost in sorted(reasons.items(), key=lambda item: -len(item[1])):
        what = ", ".join(sorted(lost, key=order.index))
        text = f" {theme.RULE} {what} unknown: {why}" + (f" · {fix}" if fix else "")
        yield [(foreign(text), "dim")]
