"""The numbers beside the charts of a core: those of both siblings, and where they come from. Every
line is exactly as wide as its place on the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isnan, nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.format import MISSING, ClockUnit, prefixed
from perftop.draw import strips, theme
from perftop.draw.strips import QUIET, Run, at_rest, fit, foreign, width
from perftop.model import smt
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST, OF_L3
from perftop.model.memory import READ
from perftop.model.numbers import PER_KI
from perftop.session.interval import ALWAYS, Interval
from perftop.session.session import Session
from perftop.session.values import doubted, of_cpus
from perftop.tui.core_page import values
from perftop.tui.core_page.layout import L3, NAME, TRAFFIC, VALUE, Page, Panel
from perftop.tui.shared import time_axis
from perftop.tui.shared.choice import Units
from perftop.tui.shared.fields import clock_of
from perftop.tui.shared.places import Place
from perftop.tui.shared.row_episodes import number
from perftop.tui.shared.sheet import AWAKE, DROP

DRAM = "power_dram_w"
_BESIDE = {
    "clock": ("busy_hz", "ceiling", "net_hz"),
    "account": ("user", "system", "iowait", "steal"),
    "util": ("util", "idle", "halt", "poll"),
    "involuntary": ("involuntary", "smi"),
    "kernel_cycles": ("kernel_cycles", "kernel_instructions"),
    TRAFFIC: (TRAFFIC, "of_best", "dram"),
}
"""Numbers beside a panel, as many as it has lines; other panels have only their own number."""


@frozen
class Scene:
    """One core at one moment."""

    session: Session
    interval: Interval
    place: Place
    page: Page
    unit: ClockUnit
    episodes: Sequence[Episode]
    """Episodes on these CPUs that had begun by then."""
    awake: bool
    """The core is busy enough for its clock to mean something."""

    def lost(self, key: str, rows: Sequence[int]) -> bool:
        """An episode that is an alarm makes this number worse now, on one of these CPUs."""
        mine, now_ns = {self.session.topology[row].cpu for row in rows}, self.interval.time_ns
        red = (e for e in self.episodes if time_axis.mark(e, now_ns)[1] == "alarm")
        return any(number(e) == key and not mine.isdisjoint(e.cpus) for e in red)

    @property
    def ceiling_hz(self) -> float:
        return float(self.interval.ceiling_hz[self.place.at])

    @property
    def size(self) -> int:
        """Width of the numbers in cells; 0 if there are none."""
        return NAME + VALUE * self.page.values + self.page.origin if self.page.values else 0


def scene(
    session: Session, interval: Interval, place: Place, page: Page, units: Units, since_ns: int
) -> Scene:
    """The scene, with episodes begun by then and not ended by `since_ns` (raw)."""
    unit = clock_of(session, units, known=True)
    episodes = [
        episode
        for episode in session.episodes(since_ns, interval.time_ns)
        if not set(episode.cpus).isdisjoint(place.cpus)
    ]
    util, _ = values.now(interval, place, "util")
    awake = max((share for share in util if not isnan(share)), default=0.0) >= AWAKE
    return Scene(session, interval, place, page, unit, episodes, awake)


# --- numbers beside the charts


def beside(scene: Scene, panel: Panel) -> list[list[Run]]:
    """Numbers for each line of the panel."""
    if not scene.page.values:
        return [[] for _ in range(panel.lines)]
    if panel.key == "smt":
        found = _states(scene)
    else:
        keys = _BESIDE.get(panel.key, (panel.key,))
        found = [line for key in keys if (line := _number(scene, key))]
    blank: list[Run] = [(" " * scene.size, "text")]
    return (found + [blank] * panel.lines)[: panel.lines]


def _number(scene: Scene, key: str) -> list[Run] | None:
    """Line of a metric; None if this source does not have it at all."""
    if key in _OTHERS:
        return _OTHERS[key](scene)
    if key in _SHARED:
        return _shared(scene, key)
    origin = scene.session.evaluator.origin(key)
    if origin is None:
        return None
    metric = scene.session.evaluator.metrics[key]
    scale, digits = metric.scale(scene.unit, brief=True)
    cells = []
    for rows, value in _told(scene, *values.now(scene.interval, scene.place, key)):
        if metric.of_running and scene.interval.resting[list(rows)].all():
            cells.append([at_rest(VALUE - 1), (" ", "text")])
            continue
        style = "alarm" if scene.lost(key, rows) else _style(scene, key, value)
        text = prefixed(value) if metric.rate else f"{value * scale:.{digits}f}"
        cells.append(_cell(scene, key, rows, value, text, style))
        if key == "busy_hz" and scene.awake and value < scene.ceiling_hz * (1 - DROP):
            cells[-1][-1] = (theme.DROPPED, style)
    label = metric.label + (" %" if metric.unit == "ratio" else "")
    name = _name(label, _counted(scene, key, scene.place.rows))
    if metric.unit == "Hz":
        name.insert(0, (f"{theme.RULE} ", "clock") if key == "busy_hz" else ("  ", "text"))
    return _line(scene, name, cells, origin)


def _name(label: str, counted: float) -> list[Run]:
    """The label, and behind that of an event that took turns the share of the time for which it was
    counted."""
    if counted >= ALWAYS:
        return [(fit(label, NAME - 1) if len(label) >= NAME else label, "dim")]
    share = f" {100 * counted:.0f}%"
    return [(fit(label, NAME - 1 - len(share)), "dim"), (share, "text")]


def _counted(scene: Scene, key: str, rows: Sequence[int]) -> float:
    """The least share of the time for which one of these CPUs counted an event; 1 for others."""
    shares = scene.interval.shares.get(key.removesuffix(PER_KI))
    return 1.0 if shares is None else float(np.fmin.reduce(shares[[*rows]], initial=1.0))


def _told(
    scene: Scene, each: Sequence[float], core: float
) -> Iterable[tuple[Sequence[int], float]]:
    """Positions of CPUs with their value: each CPU, or all together if there is no room."""
    if scene.page.values == len(each):
        return [((row,), value) for row, value in zip(scene.place.rows, each, strict=True)]
    return [(scene.place.rows, core)]


def _cell(
    scene: Scene, key: str, rows: Sequence[int], value: float, text: str, style: str
) -> list[Run]:
    """A number, and a cell after it for the mark of a clock below its ceiling."""
    online = [row for row in rows if scene.interval.online[row]]
    if not online:
        return [(f"{'off':>{VALUE - 1}}", "dim"), (" ", "text")]
    text, style = (MISSING, "faint") if isnan(value) else (text, style)
    turns = not isnan(value) and _counted(scene, key, online) < ALWAYS
    if turns and len(text) >= VALUE - 1:  # the sign takes the place of the decimal
        text = re.sub(r"\.\d+", "", text)
    told: Run = f"{text:>{VALUE - 1}}", style
    told = strips.estimated(told) if turns else told
    against = doubted(key, scene.session, scene.interval)[online].any()
    return [strips.doubted(told) if against else told, (" ", "text")]


def _style(scene: Scene, key: str, value: float) -> str:
    metric = scene.session.evaluator.metrics[key]
    if metric.unit == "Hz":
        return "text" if scene.awake else "dim"
    if metric.unit != "ratio":
        return "text"
    return "warn" if value >= metric.stands_out else "dim" if value < QUIET else "text"


def _ceiling(scene: Scene) -> list[Run] | None:
    origin = scene.session.reader.turbo.origin
    if origin is None:
        return None
    hz, (_, scale, digits) = scene.ceiling_hz, scene.unit
    number = strips.number(hz * scale, digits, VALUE - 1)
    name: list[Run] = [(f"{theme.NEITHER} ceiling", "dim")]
    return _common(scene, name, number, origin)


def _smi(scene: Scene) -> list[Run] | None:
    """System-management interrupts in the interval: for each CPU, or the maximum of the CPUs, since
    all see the same ones."""
    counts = scene.interval.counts.get("smi")
    if counts is None:
        return None
    each = [float(counts[row]) for row in scene.place.rows]
    most = max((count for count in each if not isnan(count)), default=nan)
    cells = [
        _cell(scene, "smi", rows, count, f"{count:.0f}", "warn" if count > 0 else "dim")
        for rows, count in _told(scene, each, most)
    ]
    origin = scene.session.counters.columns["smi"].counter.origin
    return _line(scene, [("SMIs", "dim")], cells, origin)


def _states(scene: Scene) -> list[list[Run]]:
    """Shares of the four states, or their bounds; with more than two threads, whether any runs."""
    paired = len(scene.place.cpus) == 2
    found = []
    for shape, name in theme.STATES if paired else theme.STATES[-1:]:
        label = f"{name} only" if name in {"lp0", "lp1"} else name
        runs: list[Run] = [(f"{shape} ", name), (label, "dim")]
        found.append(_common(scene, runs, _state(scene, name)))
    if not paired:
        active = float(scene.interval.split.active_threads[scene.place.at])
        runs = [(f"{theme.UNKNOWN} ", "unknown"), ("active", "dim")]
        found.append(_common(scene, runs, strips.number(active, 2, VALUE - 1)))
    how = method(scene)
    if len(how) > scene.size:  # then a note tells the rest
        how = how.rpartition(" ")[0]
    return [*found, [(fit(how, scene.size), "dim")]]


def _state(scene: Scene, name: str) -> Run:
    split, at, first = scene.interval.split, scene.place.at, scene.place.rows[0]
    if split.method[at] == "single" and not scene.interval.online[first]:
        name = {"lp0": "lp1", "lp1": "lp0"}.get(name, name)  # a lone online thread is stored as lp0
    column = smt.STATES.index(name)
    share, low, high = (float(part[at, column]) for part in (split.states, split.low, split.high))
    if isnan(share) and not isnan(low):
        ends = f"{100 * low:.0f}", f"{100 * high:.0f}"
        return "–".join(dict.fromkeys(ends)), "text"
    told = strips.number(100 * share, 1, VALUE - 1, "dim" if share < QUIET else "text")
    return strips.doubted(told) if doubted(name, scene.session, scene.interval)[first] else told


def _common(scene: Scene, name: list[Run], number: Run, origin: str = "") -> list[Run]:
    """A line with one value for all siblings, centred between their columns."""
    text, key = number
    indent = " " * (VALUE * (scene.page.values - 1) // 2)
    return _line(scene, name, [[(f"{indent}{text:>{VALUE - 1}}", key)]], origin)


def _line(scene: Scene, name: list[Run], cells: Iterable[list[Run]], origin: str) -> list[Run]:
    runs: list[Run] = [*name, (" " * (NAME - width(name)), "text")]
    for cell in cells:
        runs += cell
    room = scene.size - scene.page.origin
    runs.append((" " * (room - width(runs)), "text"))
    if scene.page.origin:
        runs.append((fit("  " + foreign(origin), scene.page.origin), "faint"))
    return runs


def method(scene: Scene) -> str:
    """How the SMT states were found, with the calibration factor of the counter's ticks."""
    name = scene.interval.split.method[scene.place.at]
    if name is None:
        return MISSING
    calibration = scene.session.calibrations.get(name.replace("-", "_"))
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
"""Numbers of its package or its L3: label, factor to its unit, digits, keys of what is added up,
and the counter that they come from."""


def _shared(scene: Scene, key: str) -> list[Run] | None:
    """None for the power of memory where it is not counted."""
    label, scale, digits, keys, counter = _SHARED[key]
    if key == "dram" and DRAM not in scene.interval.packages:
        return None
    row, session = scene.place.rows[0], scene.session
    value = sum(float(of_cpus(session, scene.interval, each)[row]) for each in keys)
    origin = session.counters.columns[counter].counter.origin if counter else ""
    number = strips.number(value * scale, digits, VALUE - 1)
    return _common(scene, [(label, "dim")], number, origin)


_OTHERS = {"ceiling": _ceiling, "smi": _smi}
