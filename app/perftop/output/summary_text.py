"""Summaries of the phases of a recording, as JSON and as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, nan

from perfprobe import wire
from perftop.base.text import GHZ, length, many, percent, safe, time_of_day, utf8
from perftop.draw.columns import Column
from perftop.model.kinds import KINDS, Episode
from perftop.model.numbers import NUMBERS, PER_KI, Number
from perftop.output import receipt
from perftop.output.run_summary import summary_line
from perftop.output.sentences import depth, place_text
from perftop.output.stat_json import Line, number
from perftop.output.stat_table import number_text, shown_unit, table_line
from perftop.output.why_report import MAX_CAUSES, MIN_SHARE, Finding, report
from perftop.output.why_text import MIN_WANTED_SHARE, answer
from perftop.session.episodes import Tally, mark_label
from perftop.session.follow import Follower
from perftop.session.session import Session

PERCENTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}
ROWS = ("util", "busy_hz", "ipc", "kernel_cycles", "involuntary", "steal")
"""Metrics of the table, before the chosen events."""
TOTALS = ("length_s", "lost_ratio", "both", "power_w", "energy_j")
"""Keys of the numbers of a phase that have no percentiles."""
LABEL_WIDTH, CELL_WIDTH, ROW_CELL_WIDTH, WIDTH = 19, 7, 9, 80
MAX_SIDE_BY_SIDE = 3
"""Maximum number of phases shown as columns; with more phases, each is a row."""
MAX_ROW_NUMBERS = 6
"""Maximum number of values in the row of a phase."""
MAX_NAME, MAX_EVENT = 15, 13
WHOLE_LABEL = "whole"
"""Label of the phase that covers the whole recording."""
MAX_PHASES = 1000


@dataclass(frozen=True)
class Phase:
    label: str
    start: float
    """Start of the phase, in Unix seconds."""
    elapsed_s: float
    samples: int
    suspect: int
    line: Line
    """The summary, in the form that `stat --json` prints."""
    percentiles: dict[str, dict[str, float]]
    """Percentiles of the machine's metrics, by key."""
    both: float
    """Mean share of time, over the cores, with both threads active; NaN if unknown."""
    lost_ratio: float
    wanted_s: float
    """Seconds in which CPUs, or the threads of the job, ran or could have run."""
    answer: str
    findings: list[Finding]
    worst: list[tuple[Finding, Episode | None]]
    """The costliest causes, each with its costliest episode; None if the cause has no episode."""

    def value(self, key: str, name: str = "mean") -> float:
        """Returns a number of the phase, or one of its percentiles; NaN if it is unknown."""
        energy_j = self.line["energy_j"]
        totals = {
            "length_s": self.elapsed_s, "lost_ratio": self.lost_ratio, "both": self.both,
            "energy_j": nan if energy_j is None else energy_j,
            "power_w": energy_j / self.elapsed_s if energy_j and self.elapsed_s > 0 else nan,
        }  # fmt: skip
        if key in totals:
            return totals[key]
        measure = self.line["machine"].get(key)
        number = None if measure is None else {**self.percentiles[key], **measure}[name]
        return nan if number is None else float(number)


def phase(session: Session, label: str) -> Phase:
    """Returns a phase with the sums of the session since their last reset."""
    first_ns, now_ns = session.run.start_ns, session.now_ns
    elapsed_s = (now_ns - first_ns) / 1e9
    episodes, tally = session.episodes(first_ns, now_ns), Tally()
    for episode in episodes:
        tally.add(episode, now_ns)
    why, extremes = report(session, first_ns, past=True), session.distribution.finish()
    line = summary_line(session, tally.counts_by_cause, elapsed_s)
    worst = []
    for one in why.named[:MAX_CAUSES]:
        alike = [e for e in episodes if (e.kind, e.cause) == one.cause]
        alike.sort(key=lambda e: -e.lost_share * len(e.cpus) * e.span_s(first_ns, now_ns))
        worst.append((one, alike[0] if alike else None))
    percentiles = {
        key: dict(zip(PERCENTILES, extremes.percentiles(key, [*PERCENTILES.values()]), strict=True))
        for key in line["machine"]
    }
    return Phase(
        label, session.unix(first_ns), elapsed_s, max(0, session.frames - 1),
        session.suspect_samples, line, percentiles, session.whole().split.mean("both"),
        why.sums.lost_ratio, why.sums.whole_s, answer(session, why), why.findings, worst,
    )  # fmt: skip


class Phases(Follower):
    """Summarises the phases of a recording. A phase lasts from one mark to the next mark or to the
    end. Samples before the first mark belong to no phase."""

    def __init__(
        self, *, by_mark: bool, has_begun: Callable[[Session], bool] = lambda _: True
    ) -> None:
        """`has_begun`: whether a session has reached the earliest possible start of a phase.
        `by_mark`: start a phase at each mark; otherwise everything after that is one phase."""
        super().__init__()
        self._by_mark, self._has_begun = by_mark, has_begun
        self._label = "" if by_mark else WHOLE_LABEL
        """Name of the current phase; '' if there is none."""
        self.reached = False
        """Whether the recording has reached the earliest start."""
        self.phases: list[Phase] = []

    def on_hello(self, hello: wire.Hello) -> Session:
        session = Session(hello)
        session.account()
        self.reached = self._has_begun(session)
        return session

    def on_message(self, message: wire.Message) -> bool:
        if not self.reached and self._has_begun(self.session):
            self.reached = True
            if not self._by_mark:
                self.session.reset_sums()
        label = None
        if self._by_mark and isinstance(message, wire.Note):
            label = mark_label(message)
        if label is not None:
            self.on_end()
            self.session.reset_sums()
            self._label = (label or "no name") if self.reached else ""
        return False

    def on_end(self) -> None:
        complete = self._label and self.reached and self.session.frames > 1
        if complete and len(self.phases) < MAX_PHASES:
            self.phases.append(phase(self.session, self._label))


def phase_json(phase: Phase) -> Line:
    """Returns a phase as JSON: the summary of `stat --json` with `label`, `start`, `answer`,
    `lost_ratio`, `causes` (the costliest first), and p50, p95 and p99 of the machine's measures."""
    machine = {
        key: None if measure is None else measure | {
            name: number(value) for name, value in phase.percentiles[key].items()
            if name not in measure and isfinite(value)
        }
        for key, measure in phase.line["machine"].items()
    }  # fmt: skip
    rest = {
        key: value for key, value in phase.line.items() if key not in {"type", "run", "machine"}
    }
    return {
        "type": "phase", "label": phase.label, "start": phase.start, "answer": phase.answer, **rest,
        "machine": machine, "lost_ratio": number(phase.lost_ratio), "samples": phase.samples,
    }  # fmt: skip


# --- text


def lines(session: Session, phases: Sequence[Phase], whole: Phase) -> list[str]:
    """Returns the lines of the table. `phases`: empty if the recording was not divided into
    phases."""
    events = session.evaluator.registry.events
    numbers = [*map(NUMBERS.__getitem__, ROWS), *events.values()]
    all_phases = [*phases, whole]
    numbers = [one for one in numbers if any(isfinite(each.value(one.key)) for each in all_phases)]
    if len(phases) > MAX_SIDE_BY_SIDE:
        table = _phases_as_rows(all_phases, numbers[:MAX_ROW_NUMBERS])
    elif phases:
        table = _phases_as_columns(all_phases, numbers)
    else:
        names = ("mean", *PERCENTILES, "min", "max")
        placed = _columns_of(CELL_WIDTH, *names)
        lasted = length(round(whole.elapsed_s * 1e9))
        table = [f"from {time_of_day(whole.start)} for {lasted}", table_line(placed, ["", *names])]
        for one in numbers:
            cells = [number_text(one, whole.value(one.key, name)) for name in names]
            table.append(table_line(placed, [_label(one), *cells]))
        table += _totals(all_phases, 1)
    samples = f"{many(whole.samples, 'sample')}, {whole.suspect} suspect"
    bar = receipt.lines(session.run_phases(), unicode=utf8())
    return [
        _sentence(phases) if phases else whole.answer, "", *bar, *([""] if bar else []),
        *table, "",
        *_causes(session, phases or [whole]), f"{samples}, {session.lost or 'none'} lost.",
    ]  # fmt: skip


def _sentence(phases: Sequence[Phase]) -> str:
    """Returns one sentence with the costliest cause of each phase."""
    parts = []
    for one in phases:
        first, name = next(iter(one.findings), None), safe(one.label, MAX_NAME)
        if one.wanted_s < MIN_WANTED_SHARE * one.elapsed_s:
            parts.append(f"{name} hardly wanted a CPU")
        elif first is None or first.share < MIN_SHARE:
            parts.append(f"{name} loses less than 1 %")
        else:
            parts.append(f"{name} loses {percent(first.share)} % of its {first.unit} to {first.by}")
    return "; ".join(parts) + "."


def _columns_of(width: int, *headings: str) -> list[Column]:
    cells = [Column("", heading, width) for heading in headings]
    return [Column("", "", LABEL_WIDTH, left=True, gap=0), *cells]


def _label(one: Number) -> str:
    """Returns the name of a number, with its unit right-aligned in the label column."""
    unit = PER_KI if one.key.endswith(PER_KI) else shown_unit(one)
    known = one.key in NUMBERS
    name = one.words if known else safe(one.label.removesuffix(PER_KI), MAX_EVENT)
    return f"{name:<{LABEL_WIDTH - len(unit)}}{unit}"


def _phases_as_columns(phases: Sequence[Phase], numbers: Sequence[Number]) -> list[str]:
    wide = _columns_of(2 * CELL_WIDTH, *[""] * len(phases))
    placed = _columns_of(CELL_WIDTH, *["mean", "p5"] * len(phases))
    lines = [
        table_line(wide, ["", *(safe(one.label, 2 * CELL_WIDTH - 1) for one in phases)]),
        table_line(placed, ["", *["mean", "p5"] * len(phases)]),
        table_line(wide, ["from", *(time_of_day(one.start) for one in phases)]),
    ]
    for one in numbers:
        cells = [
            number_text(one, each.value(one.key, name))
            for each in phases
            for name in ("mean", "p5")
        ]
        lines.append(table_line(placed, [_label(one), *cells]))
    return lines + _totals(phases, 2)


def _totals(phases: Sequence[Phase], columns: int) -> list[str]:
    """Returns the rows of numbers without percentiles. `columns`: number of columns of each
    phase."""
    placed, lines = _columns_of(CELL_WIDTH, *[""] * len(phases) * columns), []
    for one in map(NUMBERS.__getitem__, TOTALS):
        values = [each.value(one.key) for each in phases]
        if any(map(isfinite, values)):
            cells = [cell for value in values
                     for cell in (number_text(one, value), *[""] * (columns - 1))]  # fmt: skip
            lines.append(table_line(placed, [_label(one), *cells]))
    return lines


def _phases_as_rows(phases: Sequence[Phase], numbers: Sequence[Number]) -> list[str]:
    """Returns a table with a row of means for each phase."""
    heads = [GHZ.name if one.unit == "Hz" else f"{one.label.split()[0]} {shown_unit(one)}".rstrip()
             for one in numbers]  # fmt: skip
    placed = [Column("", "phase", LABEL_WIDTH - 3, left=True, gap=0), Column("", "s", CELL_WIDTH)]
    placed += [Column("", head, ROW_CELL_WIDTH) for head in heads]
    lines = [table_line(placed, ["phase", "s", *heads])]
    for one in phases:
        cells = [number_text(each, one.value(each.key)) for each in numbers]
        lines.append(
            table_line(placed, [safe(one.label, MAX_NAME), f"{one.elapsed_s:.1f}", *cells])
        )
    return lines


def _causes(session: Session, phases: Sequence[Phase]) -> list[str]:
    lines = []
    for one in phases:
        for i, (cause, worst) in enumerate(one.worst):
            parts = [cause.by, f"{percent(cause.share)} %", f"{cause.lost_s:.1f} CPU s"]
            if worst is not None:
                since = max(session.unix(worst.start_ns), one.start)
                parts.append(f"worst {time_of_day(since)}")
                parts += [f"on {place_text(session.topology, worst.cpus, 12)}"]
                parts += [deep] if (deep := depth(worst.kind, worst.depth)) else []
            sign = KINDS[cause.cause[0]].sign if cause.cause[0] in KINDS else " "
            name = safe(one.label, MAX_NAME) if i == 0 else ""
            head = f"{name:<{MAX_NAME + 1}}{sign} " if phases[1:] else f"{sign} "
            while len(text := head + ", ".join(parts)) > WIDTH:
                parts.pop()
            lines.append(text)
    return lines
