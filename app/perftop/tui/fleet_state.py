"""The state of the fleet's screen, and texts and cells that several parts of the screen share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, nan

from perftop.base.text import ELLIPSIS, GHZ, fit, long_duration, time_of_day
from perftop.draw.charts import Glyphs
from perftop.draw.columns import SUSPECT_SIGN, UNKNOWN_TEXTS, Run, fold_similar
from perftop.draw.strips import Line, safe_cells
from perftop.model.kinds import cause_of, kind_of_cause, severity_rank
from perftop.session.fleet import Fleet, SharedEpisode, TableSelection
from perftop.session.fleet_machine import FIELDS, MIN_LOSS, Machine, MachineEpisode
from perftop.session.losses import WAIT_CAUSE, CauseKey
from perftop.tui.shared.episode_style import marker, severity_style
from perftop.tui.shared.keys import key_captions
from perftop.tui.shared.row_numbers import Scale
from perftop.tui.shared.verdict import CALM_SIGN, loss_level

SILENT_SIGN = "○"
MIN_POWER_IN_KW = 1e4
_LIMIT_KEYS = {"clock_hz": "ceiling_hz", "power_w": "power_limit_w"}
"""Key of the limit of a number, by the key of the number."""
CLOCK_KEYS = frozenset({"clock_hz", "ceiling_hz"})
_RAMP_TOPS = {"lost": 0.3, "involuntary": 0.05, "steal": 0.3}
"""Upper ends of the heat ramp, by key; for all other shares it is 1."""
MachineRow = tuple[Machine, ...]
"""A row of the table: one machine, or several with the same verdict."""
LOSS_STYLES = "dim", "warn", "alarm"
"""Styles of a lost share by its level, from 0 to 2."""
MIN_LABEL_WIDTH = 6
"""Minimum width of the labels to the left of a heat map, in cells."""


@dataclass(frozen=True, slots=True)
class MachineGrid:
    columns: tuple[tuple[str, tuple[Machine | None, ...]], ...]
    """Title and machines of each column, from top to bottom; None is a gap."""
    labels: tuple[str, ...]
    """Label of each row: the number at the end of its machines' names; else ''."""
    size: int
    has_racks: bool
    name_width: int = 0
    """Width of the name to the left of each machine's cell; 0 if there is no room for names."""

    @property
    def label_width(self) -> int:
        return 0 if self.name_width else max([MIN_LABEL_WIDTH, *map(len, self.labels)])

    def position_of(self, name: str) -> tuple[int, int]:
        """Returns the indices of a machine's column and row; 0, 0 if it is not in the grid."""
        for x, (_, machines) in enumerate(self.columns):
            for y, machine in enumerate(machines):
                if machine is not None and machine.name == name:
                    return x, y
        return 0, 0

    def neighbour(self, name: str, dx: int, dy: int) -> str:
        """Returns the next machine's name in a direction, skipping gaps; at an edge, `name`."""
        x, y = self.position_of(name)
        while True:
            x, y = x + dx, y + dy
            if not (0 <= x < len(self.columns) and 0 <= y < len(self.labels)):
                return name
            column = self.columns[x][1]
            if y < len(column) and (machine := column[y]) is not None:
                return machine.name


@dataclass(slots=True)
class FleetState:
    """Everything that the screen is drawn from."""

    fleet: Fleet
    now: float
    width: int
    height: int
    selection: TableSelection = field(default_factory=TableSelection)
    machines: Sequence[Machine] = ()
    """The machines that match the filter, in display order."""
    rows: Sequence[MachineRow] = ()
    merges_similar: bool = True
    """Whether machines with the same verdict share a row, except the first of them."""
    short_names: Mapping[str, str] = field(default_factory=dict)
    """The machines' names in the width of their column, by name."""
    selected_name: str = ""
    first_row: int = 0
    """Index of the first visible row in `rows`."""
    metric: str = "lost"
    update_s: float = 1.0
    """Seconds between new numbers from the source."""
    origin: str = ""
    """Description of the source, such as "over ssh"."""
    problem: str = ""
    """Why there are no new numbers, as safe text; '' if there are."""
    facts: tuple[str, ...] = ()
    """Texts on the cost of reading the fleet, the most important first."""
    pause_text: str = ""
    captions: Mapping[str, str] = field(default_factory=partial(key_captions, {}))
    view: str = "machines"
    grid: MachineGrid | None = None
    """The heat map that was drawn last."""
    running_episodes: list[SharedEpisode] = field(default_factory=list)
    ascii: bool = False
    theme: str = "perftop-dark"
    glyphs: Glyphs = "colour"
    click_targets: dict[int, str] = field(default_factory=dict)
    """The machine that a click on each line selects, by line; '' for the headings."""

    @property
    def selected_machine(self) -> Machine | None:
        return self.fleet.machines.get(self.selected_name)

    @property
    def matching_fleet(self) -> Fleet:
        return Fleet(self.machines) if self.selection.filter else self.fleet


def plain_line(*runs: Run) -> Line:
    return [*runs], "calm"


# --- machines


def worst_marker(machine: Machine) -> Run:
    """Returns the marker of a machine: one for silence, for its cause or worst episode, for a
    suspect counter, or for no loss; blank if its losses are unknown."""
    if not machine.is_answering:
        return SILENT_SIGN, "dim" if machine.why == "connecting" else "alarm"
    episodes = [episode for episode in machine.running if episode.is_wrong]
    cause = machine.cause
    if cause[0] and cause not in {episode.group for episode in machine.running}:
        return kind_of_cause(*cause).marker, "alarm" if cause[0] == WAIT_CAUSE[0] else "over"
    if not episodes:
        normal: Run = (CALM_SIGN, "good") if isfinite(machine.numbers["lost"]) else (" ", "text")
        return (SUSPECT_SIGN, "warn") if machine.suspect_count else normal
    worst = min(episodes, key=lambda episode: severity_rank(episode.group[0]))
    return marker(worst), severity_style(worst)


def silence_text(machine: Machine, now: float) -> str:
    """Returns why a machine does not answer, and in how many seconds perftop tries again."""
    if machine.why == "connecting":
        return "connecting"
    text = safe_cells(machine.why.removeprefix(f"{machine.name}: "))
    wait_s = machine.retry_at - now
    return f"{text} · try in {wait_s:.0f} s" if isfinite(wait_s) and wait_s > 0 else text


def distinct_names(names: Sequence[str], room: int) -> dict[str, str]:
    """Returns each name in at most `room` cells. Long ones are cut at the end, at the start or in
    the middle: whichever leaves most of them distinct."""
    head, tail = (room - 1) // 2, room // 2
    cuts = [(room - 1, 0), (0, room - 1), (head, tail)]

    def shorten(name: str, head: int, tail: int) -> str:
        is_long = len(name) > room
        return f"{name[:head]}{ELLIPSIS}{name[len(name) - tail :]}" if is_long else name

    safe_names = {name: safe_cells(name) for name in names}
    best = max(cuts, key=lambda c: len({shorten(name, *c) for name in safe_names.values()}))
    return {name: shorten(safe_name, *best) for name, safe_name in safe_names.items()}


def machine_verdict(machine: Machine, room: int = 200) -> tuple[str, float]:
    """Returns a sentence of at most `room` cells about the costliest cause of loss on a machine,
    and the Unix time in s at which its episode began; NaN if there is none."""
    episode = next((e for e in machine.running if e.is_wrong and e.group == machine.cause), None)
    if episode is not None:
        return first_that_fits(_episode_wordings(machine, episode), room), episode.start
    return first_that_fits(_loss_wordings(machine), room), nan


def first_that_fits(wordings: Sequence[str], room: int) -> str:
    """Returns the first wording of at most `room` cells; if none fits, the last one, cut."""
    return next((text for text in wordings if len(text) <= room), fit(wordings[-1], room))


def _loss_wordings(machine: Machine) -> list[str]:
    """Returns wordings of the verdict on a machine without a running episode, the longest first."""
    if not isfinite(machine.numbers["lost"]):
        return ["Its losses are unknown"]
    if machine.largest_loss is not None:
        cause, lost_share = machine.largest_loss
        loss_text = f"{amount_text('lost', lost_share)} %"
        if cause == WAIT_CAUSE:
            text = f"Tasks wait {loss_text} of their time for a CPU"
            waiting = safe_cells(machine.waiting_task)
            return [*([f"{text}, {waiting} most"] if waiting else []), text]
        return loss_wordings(cause, "took", f"{loss_text} of the time")
    text = "Nothing is slowing it down"
    last = next((e for e in reversed(machine.ended) if e.is_wrong), None)
    if last is not None and last.end is not None:
        short_text = f"{text}; last: {marker(last)}"
        duration = long_duration(round(1e9 * (last.end - last.start)))
        end_text = time_of_day(last.end)
        long_text = f"{short_text} {short_cause(last.group)}, {duration}, {end_text}"
        return [long_text, f"{short_text} {end_text}", text]
    if machine.clock_missing_text:
        return [f"{text}; no PMU, so the clock is unknown", f"{text}; clock unknown", text]
    return [text]


def _episode_wordings(machine: Machine, episode: MachineEpisode) -> list[str]:
    hz, ceiling_hz = machine.numbers["clock_hz"], machine.numbers["ceiling_hz"]
    verb, loss = "slows", "a task" if episode.kind == "neighbour" else "it down"
    if kind_of_cause(*episode.group).costs_cycles and isfinite(hz) and isfinite(ceiling_hz):
        verb, loss = "keeps it at", f"{hz / 1e9:.2f} of {ceiling_hz / 1e9:.2f} GHz"
    elif episode.kind == "steal":
        verb, loss = "takes", f"{amount_text('steal', machine.numbers['steal'])} % of its time"
    elif episode.depth is not None:
        victim = f"{safe_cells(episode.victim)}'s" if episode.victim else "a task's"
        base_text = f"{victim} work" if episode.kind == "neighbour" else "the time"
        verb, loss = "takes", f"{100 * episode.depth:.0f} % of {base_text}"
    return loss_wordings(episode.group, verb, loss, safe_cells(episode.culprit))


def loss_wordings(cause: CauseKey, verb: str, amount: str, culprit: str = "") -> list[str]:
    """Returns wordings of how much a cause costs, the longest first. `culprit`: name of the task
    that is the cause; '' if it is none or unknown."""
    short = short_cause(cause)
    subject = safe_cells(cause_of(cause[1]).subject or f"A {cause_name(cause)}")
    if culprit:
        subject = f"{culprit} ({short})"
    name = f"{short[:1].upper()}{short[1:]}"
    return [f"{subject} {verb} {amount}", f"{subject}: {amount}", f"{name}: {amount}"]


def machine_rows(state: FleetState) -> list[MachineRow]:
    """Returns the rows of the table. If it is ordered by loss, machines with one cause, or with one
    reason for not answering, share a row, except the first of them and the selected one."""

    def cause(machine: Machine) -> tuple[str, str] | None:
        if not machine.is_answering:
            return "silent", silence_text(machine, nan)
        return machine.cause if machine.cause != ("", "") else None

    if state.selection.order != "lost" or not state.merges_similar:
        return [(machine,) for machine in state.machines]
    return fold_similar(state.machines, cause, state.selected_machine)


# --- numbers


def amount_text(key: str, value: float) -> str:
    return FIELDS[key].text(value, GHZ)


def named_number(name: str, key: str, numbers: Mapping[str, float], style: str) -> list[Run]:
    """Returns a number after its name, followed by its limit, if known, and its unit."""
    values = [numbers[key], numbers.get(_LIMIT_KEYS.get(key, ""), nan)]
    texts, unit_ = [amount_text(key, value) for value in values], FIELDS[key].unit_name(GHZ)
    if key == "power_w" and values[0] >= MIN_POWER_IN_KW:
        texts, unit_ = [f"{value / 1e3:.1f}" for value in values], "kW"
    limit = f" of {texts[1]}" if isfinite(values[1]) else ""
    return [(name, "dim"), (texts[0], style), (f"{limit} {unit_}", "dim")]


def number_cell(machine: Machine, key: str) -> Run:
    value, entry = machine.numbers[key], FIELDS[key]
    style = "text"
    if not isfinite(value):
        return UNKNOWN_TEXTS[1], "faint"
    if value >= entry.min_highlighted:
        style = "alarm"
    elif key == "lost":
        style = LOSS_STYLES[loss_level(value)]
    elif entry.unit == "ratio" and value < MIN_LOSS:
        style = "faint"
    return amount_text(key, value), style


def heat_scale(state: FleetState, key: str) -> Scale:
    if FIELDS[key].unit == "ratio":
        return Scale(0.0, _RAMP_TOPS.get(key, 1.0))
    known_values = [v for m in state.fleet.answering_machines if isfinite(v := m.numbers[key])]
    top = max(known_values, default=1.0) or 1.0
    return Scale(top / 2 if key in CLOCK_KEYS else 0.0, top)


# --- episodes


def cause_name(cause: CauseKey) -> str:
    """Returns the name of a cause; if it is unknown, the kind of the episode."""
    return safe_cells(cause[0] if cause[1] in {"unknown", "-"} else cause_of(cause[1]).name)


def short_cause(cause: CauseKey) -> str:
    return safe_cells(cause_of(cause[1]).short_text or cause_name(cause))


def depth_text(episode: SharedEpisode) -> str:
    """Returns how much an episode costs, with its unit; for several machines, from the lowest to
    the highest cost. Returns '' if it is unknown."""
    low, high = episode.min_depth, episode.depth
    if high is None or low is None or high <= 0:
        return ""
    depth_unit = kind_of_cause(episode.kind, episode.cause).depth
    if depth_unit == "count":
        return f"{high:.0f} times"
    texts = [f"{v / 1e9:.2f}" if depth_unit == "hz" else f"{100 * v:.1f}" for v in (low, high)]
    name = "GHz below" if depth_unit == "hz" else "%"
    return f"{' to '.join(dict.fromkeys(texts))} {name}"
