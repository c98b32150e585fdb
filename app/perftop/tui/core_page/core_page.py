"""The page of one core: clock, SMT states, utilisation and halts over a common time axis, the
numbers of both siblings beside them, and notes about episodes and unknown numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from perftop.base.text import ClockUnit, clock_time, duration, short_duration
from perftop.draw import strips, theme
from perftop.draw.columns import DOUBTED_SIGN, Run, fit
from perftop.draw.strips import Piece, fit_line, safe_cells, width
from perftop.model import smt
from perftop.model.kinds import Episode
from perftop.model.tasks import task
from perftop.output.sentences import unique_losses
from perftop.session.values import SOUGHT_NAMES, doubt_texts, lasting_reasons, names_by_reason
from perftop.tui.core_page.charts import RAMP_LEVELS, Charts, CoreHistory
from perftop.tui.core_page.numbers import (
    NAME_WIDTH,
    VALUE_WIDTH,
    CoreMoment,
    Page,
    capabilities,
    core_moment,
    method_text,
    page_layout,
)
from perftop.tui.shared import time_axis
from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.episode_style import cause_clause, is_running_at
from perftop.tui.shared.keys import bindings, caption
from perftop.tui.shared.places import Place
from perftop.tui.shared.sheet import arranged_rows


class CorePage(Canvas):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("core")]
    HINTS: ClassVar[tuple[str, ...]] = ("back", "core_down", "wider", "units")

    _layout: tuple[Place, Page] | None = None
    """The shown core and the layout of its page; None if there is no core to show."""
    _history: CoreHistory
    """The history of the shown core."""
    _has_tasks = False
    """Whether any interval so far had tasks, so that the page has a line of tasks."""
    _keys: Mapping[str, str]
    """Captions of the keys that go back ("back") and zoom ("window"), as bound by the user."""
    _lines: Sequence[list[Run]] = ()

    def begin(self) -> None:
        self._has_tasks |= bool(self.interval.tasks)

    def is_outdated(self) -> bool:
        if self._layout is None or (self.interval.tasks and not self._has_tasks):
            return True
        return self.choice.cpu not in self._layout[0].cpus

    def line(self, y: int) -> strips.Line:
        return self._lines[y], "calm"

    def make_layout(self) -> None:
        chosen_cpu = self.choice.cpu
        place = next((place for place in self.places.places if chosen_cpu in place.cpus), None)
        if place is None:
            self._layout = None
        else:
            place_capabilities = capabilities(self.session, place, tasks=self._has_tasks)
            self._layout = place, page_layout(place_capabilities, self.size.width, self.size.height)
            self._history = CoreHistory(self.session, place)
            active_bindings = reversed([*self.screen.active_bindings.items()])
            keys = {binding.binding.id: caption(key) for key, binding in active_bindings}
            zoom_keys = [keys[name] for name in ("narrower", "wider") if name in keys]
            self._keys = {"back": keys.get("back", ""), "window": " ".join(zoom_keys)}

    def make_lines(self) -> None:
        """Makes all lines, because each of them may change over time."""
        if self._layout is None:
            self._lines, self.count = [[(" no CPU matches the filter", "dim")]], 1
            return
        (place, page), session, interval = self._layout, self.session, self.interval
        window_s, first_ns = self.choice.window_s, session.past.first_ns
        axis = time_axis.fit_axis(interval.time_ns, window_s, page.columns, first_ns)
        self._history.move_to(axis)
        moment = core_moment(session, interval, place, page, self.choice.units, axis.start_ns)
        charts = Charts(moment, self._history, self.look)
        self._lines = lines(charts, duration(window_s), self._keys, self.size.width)
        self.count = len(self._lines)

    def action_neighbour(self, by: int) -> None:
        """Moves to the core that is `by` cores away, in the row order of other views."""
        if self._layout is None:
            return
        places = self.places.places
        rows = arranged_rows(self.places, self.choice, self.session, self.interval)
        cpus = [places[row].cpus[0] for row in rows]
        index = cpus.index(self._layout[0].cpus[0]) + by
        self.choice.cpu = cpus[max(0, min(len(cpus) - 1, index))]
        self.lay_out()


def lines(charts: Charts, window: str, keys: Mapping[str, str], size: int) -> list[list[Run]]:
    moment = charts.moment
    return [
        _head_line(moment, window, keys, size),
        *([_task_line(moment, size)] if moment.page.tasks else []),
        *charts.panels(),
        *charts.foot(),
        *page_notes(moment, size, moment.page.notes),
    ]


# --- above the charts


def _head_line(moment: CoreMoment, window: str, keys: Mapping[str, str], size: int) -> list[Run]:
    """Returns the first line of the page: the core's name and its position in the topology, and the
    titles of the numbers, which name each sibling or the core."""
    place, online, page = moment.place, moment.interval.online, moment.page
    is_pair = len(place.cpus) > 1
    core = f"core {'-' if place.core is None else place.core}"
    cpus = ", ".join(
        f"{cpu}" if online[row] else f"{cpu} off"
        for cpu, row in zip(place.cpus, place.rows, strict=True)
    )
    pieces: list[tuple[int, str, str]] = [
        (0, core if is_pair or place.core is not None else f"CPU {cpus}", "bright"),
        (3, "" if place.package is None else f"package {place.package}", "dim"),
        (5, "" if place.l3 is None else f"L3 {place.l3}", "dim"),
        (1, f"CPU{'s' if is_pair else ''} {cpus}", "text"),
        (4, "" if place.type is None else f"{place.type}-core", "dim"),
        (6, f"{keys['back']} back", "dim"),
        (2, f"{keys['window']} window {window}", "dim"),
    ]
    separated: list[Piece] = [
        (rank, [*([("· ", "faint")] if rank else []), (safe_cells(text), key)])
        for rank, text, key in pieces
        if text
    ]
    cells_left = size - moment.size - 1
    name: list[Run] = [(" ", "text"), *fit_line(separated, cells_left - 1, 1)]
    titles: Run = (" " * moment.size, "text")
    if page.values and is_pair:
        names = [f"lp{i}" for i in range(page.values)] if page.values > 1 else ["core"]
        text = " " * NAME_WIDTH + "".join(f"{name:>{VALUE_WIDTH - 1}} " for name in names)
        titles = text.ljust(moment.size), "dim"
    return [*name, (" " * (cells_left - width(name)), "text"), titles]


def _task_line(moment: CoreMoment, size: int) -> list[Run]:
    """Returns a line with the task on each sibling, with as many details as fit."""
    cpus = moment.place.cpus
    part = (size - 1) // len(cpus)
    runs: list[Run] = [(" ", "text")]
    for i, cpu in enumerate(cpus):
        name = f"lp{i} " if len(cpus) > 1 else ""
        runs += [*_cut_runs([(name, "dim"), *_task_runs(moment, cpu)], part - 1), (" ", "text")]
    return runs


def _task_runs(moment: CoreMoment, cpu: int) -> list[Run]:
    running_task = task(moment.interval.tasks.get(str(cpu)))
    if running_task is None:
        return [("no task seen", "faint")]
    runs: list[Run] = [(safe_cells(f"{running_task.comm}:{running_task.pid}"), "text")]
    runs.append((f" {100 * running_task.share:.0f} %", "dim"))
    details = moment.session.details.get(str(running_task.pid), {})
    for key in ("user", "command"):
        if isinstance(text := details.get(key), str) and text:
            runs += [("  ", "text"), (safe_cells(text[:400]), "dim" if key == "user" else "faint")]
    return runs


def _cut_runs(runs: Iterable[Run], size: int) -> list[Run]:
    """Returns the runs, cut or padded to exactly `size` cells."""
    output: list[Run] = []
    for text, key in runs:
        if size > 0:
            output.append((fit(text, min(size, len(text))), key))
            size -= len(output[-1][0])
    return [*output, (" " * size, "text")]


# --- notes: running and ended episodes, reasons for doubt, unknown numbers


def page_notes(moment: CoreMoment, size: int, lines: int) -> list[list[Run]]:
    """Returns exactly `lines` lines of notes, the most important first. If some notes do not fit,
    the last line shows their number."""
    if not lines:
        return []
    note_lines = [*_episode_notes(moment), *_missing_notes(moment), *_method_note(moment)]
    more = f"  and {len(note_lines) - lines} more " if len(note_lines) > lines else ""
    shown_lines = [_cut_runs(line, size) for line in note_lines[: lines - bool(more)]]
    if more:
        shown_lines.append([*_cut_runs(note_lines[lines - 1], size - len(more)), (more, "text")])
    return shown_lines + [[] for _ in range(lines - len(shown_lines))]


def _method_note(moment: CoreMoment) -> Iterable[list[Run]]:
    """Yields a note on how the SMT states were measured, unless the numbers beside the SMT panel
    show it."""
    method, panels = method_text(moment), moment.page.panels
    if method == "bounds":
        yield [("   SMT states not counted here: ", "dim"), (theme.UNKNOWN, "unknown"),
               (" may be any of them", "dim")]  # fmt: skip
    is_beside_chart = any(panel.key == "smt" and panel.lines > len(smt.STATES) for panel in panels)
    if len(moment.place.cpus) > 1 and not (is_beside_chart and len(method) <= moment.size):
        yield [(f"   SMT states by {method}", "dim")]


def _episode_notes(moment: CoreMoment) -> Iterable[list[Run]]:
    """Yields notes on running episodes, then on reasons to doubt this interval's numbers, then on
    ended episodes."""
    interval, place = moment.interval, moment.place
    rank_of_style = {"alarm": 0, "warn": 1}
    sorted_episodes = sorted(
        unique_losses(moment.episodes),
        key=lambda e: (rank_of_style.get(time_axis.episode_mark(e)[1], 2), -e.start_ns),
    )
    yield from (
        _episode_note(moment, e) for e in sorted_episodes if is_running_at(e, interval.time_ns)
    )
    for cpu, row in zip(place.cpus, place.rows, strict=True):
        if reasons := doubt_texts(interval, row):
            text = f"CPU {cpu}  {'; '.join(reasons)}"
            yield [(f" {DOUBTED_SIGN} {safe_cells(text)}", "dim")]
    yield from (
        _episode_note(moment, e) for e in sorted_episodes if not is_running_at(e, interval.time_ns)
    )


def _episode_note(moment: CoreMoment, episode: Episode) -> list[Run]:
    sign, key = time_axis.episode_mark(episode)
    is_running = is_running_at(episode, moment.interval.time_ns)
    end_ns = moment.interval.time_ns if is_running or episode.end_ns is None else episode.end_ns
    since_text = clock_time(moment.session.unix(episode.start_ns))
    lasted_s = max(0, end_ns - episode.start_ns) / 1e9
    climb = _ramp_text(moment, episode) if episode.kind == "ramp" else ""
    span = since_text + (f"  {lasted_s:.1f} s" if lasted_s and not climb else "")
    reason = climb or cause_clause(episode)
    return [
        (safe_cells(f" {sign} {episode.kind}"), key if is_running else "dim"),
        (f"  since {span}" if is_running else f"  {span}", "text" if is_running else "dim"),
        (safe_cells(f"  {reason}") if reason else "", "dim"),
    ]


def _ramp_text(moment: CoreMoment, episode: Episode) -> str:
    """Returns how long the core took to reach each level of its clock; '' if unknown. If the
    episode is about several cores, the times are those of the median core."""
    cpus, unit = {*episode.cpus}, moment.unit
    cores = sum(not cpus.isdisjoint(core) for core in moment.session.cores)
    evidence = episode.evidence
    if "steady_s" not in evidence:
        return ""
    clocks = {
        key: _hz_text(evidence[key], unit) for key in ("first_hz", "ceiling_hz") if key in evidence
    }
    below = "" if episode.confidence == "measured" else "below "
    steady = f"{_hz_text(evidence['steady_hz'], unit)} {unit.name}"
    parts = [
        f"steady {steady} {_after_text(evidence, 'steady_s')}",
        *(f"{RAMP_LEVELS[key]} {_after_text(evidence, key)}" for key in ("t90_s", "t99_s")
          if evidence[key] < evidence["steady_s"]),
        f"from {below}{clocks['first_hz']}",
        f"ceiling {clocks['ceiling_hz']}" if "ceiling_hz" in clocks else "",
        f"fell {evidence['drops']}× on the way" if "drops" in evidence else "",
        f"median of {cores} cores" if cores > 1 else "",
        f"CPU {evidence['slowest_cpu']} {short_duration(evidence['slowest_s'])}"
        if "slowest_s" in evidence else "",
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


def _hz_text(hz: float, unit: ClockUnit) -> str:
    return f"{hz * unit.per_hz:.{unit.digits}f}"


def _after_text(evidence: dict[str, float], key: str) -> str:
    least_s = evidence["resolution_s"]
    if evidence[key] <= least_s:
        return f"after at most {short_duration(least_s)}"
    margin_text = f" (± {short_duration(least_s)})" if key == "steady_s" else ""
    return f"after {short_duration(evidence[key])}{margin_text}"


def _missing_notes(moment: CoreMoment) -> Iterable[list[Run]]:
    """Yields notes on the unknown numbers of this core: why they are unknown, and how to fix it."""
    session, cpus = moment.session, set(moment.place.cpus)
    bounds = moment.interval.split.method[moment.place.core_index] == "bounds"
    names = SOUGHT_NAMES | (
        dict.fromkeys((*smt.ANY_COUNTERS, "traced"), "SMT states") if bounds else {}
    )
    reasons_missing = [
        m for m in lasting_reasons(session) if m.cpus is None or not cpus.isdisjoint(m.cpus)
    ]
    reasons = names_by_reason(reasons_missing, lambda reason: names.get(reason.what))
    order = list(dict.fromkeys(names.values()))
    for (reason, fix), lost_names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        name_list = ", ".join(sorted(lost_names, key=order.index))
        text = f" {theme.RULE} {name_list} unknown: {reason}" + (f" · {fix}" if fix else "")
        yield [(safe_cells(text), "dim")]
