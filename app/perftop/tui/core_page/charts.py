"""The charts of a core's page, their scales and labels, with the numbers beside them. Imports
numpy, as the session does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perftop.draw import charts, theme
from perftop.draw.strips import Run
from perftop.samples.metrics import METRICS
from perftop.tui.core_page import ramp
from perftop.tui.core_page.layout import LABEL, Panel
from perftop.tui.core_page.numbers import Scene, beside
from perftop.tui.core_page.values import Track
from perftop.tui.shared import time_axis
from perftop.tui.shared.time_axis import Axis

_SHAPES = ((theme.BOTH, "both"), (theme.LP0, "lp0"), (theme.LP1, "lp1"))
_RANGE = (*_SHAPES, (theme.UNKNOWN, "unknown"))
_ACCOUNT = ((theme.USER, "lp0"), (theme.KERNEL, "cyan"), (theme.STEAL, "warn"))
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible ends of the scale of a share of which a few per cent are a lot; none is lower, so that
noise does not glow."""
_RATES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)
"""Possible ends of the scale of instructions per cycle."""
_ENDS = {"involuntary": _SHARES, "steal": _SHARES, "ipc": _RATES}
CEILING_STEP_HZ = 50e6
"""Minimum change of the ceiling shown as a step: half a turbo step, as a column is a mean."""
CLOCK_STEP_HZ = 0.25e9
"""The clock's scale ends at multiples of this."""


@dataclass(slots=True)
class Scales:
    """Ends of the scales at the last refresh, kept so that scales do not change all the time."""

    clock: tuple[float, float] | None = None
    tops: dict[str, float] = field(default_factory=dict)


Drawn = tuple[Sequence[str], Sequence[list[Run]]]
"""Labels and cells, by line."""


@dataclass(frozen=True, slots=True)
class Charts:
    """Everything that the charts of one moment are drawn from."""

    scene: Scene
    time: Axis
    track: Track
    scales: Scales
    ascii_: bool

    def panels(self) -> list[list[Run]]:
        """Lines of all panels: label, chart, numbers."""
        lines: list[list[Run]] = []
        page = self.scene.page
        left = " " * (page.columns - self.time.width)
        for panel in page.panels:
            if panel.gap:
                lines.append([])
            labels, drawn = self._drawn(panel)
            for label, cells, numbers in zip(labels, drawn, beside(self.scene, panel), strict=True):
                start = f" {label:>{LABEL - 2}} {left}"
                lines.append([(start, "dim"), *cells, (" ", "text"), *numbers])
        return lines

    def foot(self) -> list[list[Run]]:
        """The time axis: a line of events and a line of clock times."""
        scene, time = self.scene, self.time
        if not scene.page.axis:
            return []
        kept, unix, now_ns = scene.session.history, scene.session.unix, scene.interval.time_ns
        left: Run = (" " * (LABEL + scene.page.columns - time.width), "dim")
        first_ns = None if kept is None else kept.first_ns
        rule = time_axis.history(
            time, scene.episodes, now_ns, first_ns, unix, self._ceiling_steps(), scene.session.marks
        )
        return [[left, *rule], [left, (time_axis.times(time, unix), "dim")]][-scene.page.axis :]

    def _drawn(self, panel: Panel) -> Drawn:
        if panel.key == "clock":
            return self._clock(panel.lines)
        if panel.key == "smt":
            return _whole("SMT", panel.lines), self._smt(panel.lines)
        if panel.key == "account":
            shares = charts.stack(self.track.account(), _ACCOUNT, panel.lines)
            return _whole("time", panel.lines), shares.lines()
        return self._strips(panel)

    def _clock(self, lines: int) -> Drawn:
        """The clock and its ceiling: red during alarms, and faint where the core slept, which the
        scale then need not include."""
        track, (unit, per_hz, digits) = self.track, self.scene.unit
        busy, ceiling, awake = track.core("busy_hz"), track.ceiling(), track.awake()
        seen = np.concatenate([busy[awake] if awake.any() else busy, ceiling])
        low, high = self.scales.clock = charts.span(seen, CLOCK_STEP_HZ, self.scales.clock)
        keys = np.where(awake, charts.key("clock"), charts.key("faint"))
        for episode in self.scene.episodes:
            found = time_axis.cells(self.time, episode, self.scene.interval.time_ns)
            if found and time_axis.mark(episode)[1] == "alarm":
                keys[found[0].start : found[0].stop] = charts.key("alarm")
        chart = charts.graph(busy, ceiling, keys, low, high, lines, ascii_=self.ascii_)
        for episode in self.scene.episodes:
            if episode.kind == "ramp":
                chart = charts.ruled(chart, ramp.columns(self.time, episode))
        labels = _marks(low * per_hz, high * per_hz, lines, unit)
        if (busy < low).any():
            labels[-1] = f"< {low * per_hz:.{digits}f}"
        return labels, chart.lines()

    def _ceiling_steps(self) -> list[int]:
        """Columns in which the ceiling moved, which is no episode; empty without a clock panel."""
        if all(panel.key != "clock" for panel in self.scene.page.panels):
            return []
        moved = np.abs(np.diff(self.track.ceiling(), prepend=np.nan)) >= CEILING_STEP_HZ
        moved[1:] &= ~moved[:-1]  # a step inside a column shows in two
        return np.flatnonzero(moved).tolist()

    def _smt(self, lines: int) -> list[list[Run]]:
        states, place = self.track.states(), self.scene.place
        if self.scene.interval.split.method[place.at] == "bounds":
            unknown = np.isnan(states).all(axis=1)
            states[unknown] = self.track.lowest()[unknown]
        if len(place.cpus) > 2:  # only known: whether any of them runs
            states[:, 1:] = 0.0
        open_ = 1 - states.sum(axis=1)
        shares = np.stack([states[:, 3], states[:, 1], states[:, 2], open_], axis=1)
        return charts.stack(shares, _RANGE, lines).lines()

    def _strips(self, panel: Panel) -> Drawn:
        """A field over time, with a strip for each sibling or one for the core."""
        key, tall, metric = panel.key, panel.tall, METRICS[panel.key]
        values = self.track.of(key).T if panel.strips > 1 else self.track.core(key)[None]
        scale, top = "", 1.0
        if key in _ENDS:
            held = self.scales.tops.get(key)
            top = self.scales.tops[key] = charts.top(values, _ENDS[key], held)
            scale = f"0-{100 * top:g}%" if metric.unit == "ratio" else f"0-{top:g}"
        labels: list[str] = []
        cells: list[list[Run]] = []
        for i, shares in enumerate(values / top):
            cells += charts.strip(shares, tall, ascii_=self.ascii_).lines()
            if tall > 1 or panel.strips > 1:
                name = f"lp{i} {metric.label}" if panel.strips > 1 else metric.label
                labels += [name, scale, *[""] * tall][:tall]
            else:
                label = f"{metric.label} {scale}".rstrip()
                if len(label) > LABEL - 2:  # then the 0 of the scale is left out
                    label = f"{metric.label} {scale.removeprefix('0-')}"
                labels.append(label)
        return labels, cells


def _marks(low: float, high: float, lines: int, unit: str) -> list[str]:
    """Labels of the lines: round values where they fall, the topmost with the unit."""
    marks = charts.marks(low, high, lines, max(2, min(6, lines // 2)))
    texts = {line: f"{round(value, 6):g}" for line, value in marks.items()}
    digits = max((len(text.partition(".")[2]) for text in texts.values()), default=0)
    labels = [""] * lines
    for line, value in marks.items():
        labels[line] = f"{value:.{digits}f}"
    first = min(marks, default=0)
    blank = " " * (len(unit) + 1)
    return [
        f"{label} {unit}" if line == first else label + blank if label else ""
        for line, label in enumerate(labels)
    ]


def _whole(name: str, lines: int) -> list[str]:
    labels = [f"{name} 100 %", *[""] * (lines - 1)]
    if lines % 2 == 0:
        labels[lines // 2] = "50 %"
    return labels
