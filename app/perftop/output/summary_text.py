"""Summaries of the phases of a recording, as JSON and as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan

from perfprobe import wire
from perftop.base.text import (
    GHZ,
    Line,
    count_noun,
    json_number,
    long_duration,
    percent,
    safe_text,
    supports_unicode,
    time_of_day,
    wrap_text,
)
from perftop.draw.columns import Column
from perftop.model.numbers import NUMBERS, PER_KI, Number
from perftop.output.report import MIN_SHARE, Report
from perftop.output.run_summary import summary_line, time_use_lines
from perftop.output.stat_lines import number_text, shown_unit, table_line
from perftop.output.why_report import culprit_of, report
from perftop.output.why_text import SHORT_TASKS, answer, cause_rows, texts
from perftop.session.episodes import RUN_STARTED, EpisodeTally, mark_label
from perftop.session.follow import Follower
from perftop.session.losses import CauseKey
from perftop.session.run_phases import BEFORE_MARKS
from perftop.session.session import Session

PERCENTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}
PERCENTILE_KEYS = ("util", "busy_hz", "ipc", "kernel_cycles", "involuntary", "steal")
"""Metrics of the table, before the chosen events."""
TOTAL_KEYS = ("length_s", "lost_ratio", "both", "power_w", "energy_j")
"""Keys of the numbers of a phase that are sums or have no percentiles."""
LABEL_WIDTH, CELL_WIDTH, ROW_CELL_WIDTH, WIDTH = 19, 7, 9, 80
MAX_PHASE_COLUMNS = 3
"""Maximum number of phases that are shown as columns. If there are more, each is a row."""
MAX_ROW_NUMBERS = 6
"""Maximum number of values in the row of a phase."""
MAX_NAME_LENGTH, MAX_EVENT = 15, 13
PHASE_HEADING = "machine by phase"
"""Heading of the table of the machine's numbers, which differs from that of a command's times."""
WHOLE_LABEL = "whole"
"""Label of the phase that covers the whole recording."""
MAX_PHASES = 1000


@dataclass(frozen=True)
class Phase:
    line: Line
    """The phase as `summary --json` prints it."""
    report: Report

    @property
    def name(self) -> str:
        return safe_text(self.line["label"], MAX_NAME_LENGTH)

    def value(self, key: str, name: str = "mean") -> float:
        """Returns a number of the phase, or one of its percentiles; NaN where unknown."""
        energy_j, elapsed_s = self.line["energy_j"], self.report.totals.elapsed_s
        has_smt = self.report.session.has_smt
        totals = {
            "length_s": elapsed_s,
            "lost_ratio": self.report.lost_ratio,
            "both": self.report.interval.split.mean("both") if has_smt else None,
            "energy_j": energy_j,
            "power_w": energy_j / elapsed_s if energy_j and elapsed_s > 0 else None,
        }
        number = totals[key] if key in totals else (self.line["machine"].get(key) or {}).get(name)
        return nan if number is None else float(number)


def phase(session: Session, label: str) -> Phase:
    """Returns a phase with the session's sums since their last reset."""
    why, tally = report(session, is_past=True), EpisodeTally()
    extremes = session.run.distribution.finish()
    for episode in why.episodes:
        tally.add(episode, session.now_ns)
    line = summary_line(session, tally.counts_by_cause)
    causes = {(cause["kind"], cause["cause"]): cause for cause in line.get("causes", ())}
    for finding in why.named_findings:
        name, place = culprit_of(finding, has_job=why.job is not None)
        if name and (cause := causes.get(finding.cause)) is not None:
            cause |= {"culprit": name} | ({"place": place} if place else {})
    machine = line.pop("machine")
    for key, measure in machine.items():
        values = extremes.percentiles(key, [*PERCENTILES.values()])
        if measure is not None:
            measure |= {
                name: json_number(value)
                for name, value in zip(PERCENTILES, values, strict=True)
                if name not in measure and isfinite(value)
            }
    other_parts = {key: value for key, value in line.items() if key not in {"type", "run"}}
    line = {
        "type": "phase", "label": label, "start": session.unix_s(why.totals.start_ns),
        "answer": answer(why), **other_parts, "machine": machine,
        "lost_to_causes_ratio": json_number(why.lost_ratio),
        "samples": why.totals.span.sample_count,
    }  # fmt: skip
    return Phase(line, why)


class Phases(Follower):
    """Summarises the phases of a recording. A phase lasts from a mark to the next one or to the
    end. No phase includes samples before the first mark."""

    def __init__(
        self, *, by_mark: bool, has_begun: Callable[[Session], bool] = lambda _: True,
        by_cpu: bool = False,
    ) -> None:  # fmt: skip
        """`has_begun`: whether a session has reached the earliest start of a phase. `by_mark`: each
        mark starts a phase; otherwise all from that earliest start on is one phase. `by_cpu`:
        whether the lines of phases have minima, percentiles and maxima of single CPUs and cores."""
        super().__init__()
        self._by_mark, self._has_begun, self._by_cpu = by_mark, has_begun, by_cpu
        self._label = "" if by_mark else WHOLE_LABEL
        """Name of the current phase; '' if there is none."""
        self.has_reached_start = False
        """Whether the recording has reached the earliest start."""
        self.phases: list[Phase] = []

    def on_hello(self, hello: wire.Hello) -> Session:
        session = Session(hello, summarises_cpus=self._by_cpu)
        session.run.track_losses()
        self.has_reached_start = self._has_begun(session)
        return session

    def on_message(self, message: wire.Message) -> bool:
        if not self.has_reached_start and self._has_begun(self.session):
            self.has_reached_start = True
            if not self._by_mark:
                self.session.reset_sums()
        label = mark_label(message) if isinstance(message, wire.Note) else None
        if self._by_mark and label is not None:
            self.on_end()
            self.session.reset_sums()
            self._label = (label or "no name") if self.has_reached_start else ""
        return False

    def on_end(self) -> None:
        is_complete = self._label and self.has_reached_start and self.session.frames > 1
        if is_complete and len(self.phases) < MAX_PHASES:
            self.phases.append(phase(self.session, self._label))


# --- phases as text


def lines(session: Session, phases: Sequence[Phase], whole: Phase) -> list[str]:
    """Returns the lines of the table. `phases`: [] if the recording was not divided."""
    if len(phases) > 1 and phases[0].line["label"].startswith(RUN_STARTED):
        phases = [replace(phases[0], line=phases[0].line | {"label": BEFORE_MARKS}), *phases[1:]]
    all_phases = [*phases, whole]
    events = session.evaluator.registry.events
    numbers = [
        number
        for number in (*map(NUMBERS.__getitem__, PERCENTILE_KEYS), *events.values())
        if any(isfinite(phase.value(number.key)) for phase in all_phases)
    ]
    if len(phases) > MAX_PHASE_COLUMNS:
        table = _phases_as_rows(all_phases, numbers[:MAX_ROW_NUMBERS])
    elif phases:
        columns = _value_columns(2 * CELL_WIDTH, len(all_phases))
        labels = (safe_text(phase.line["label"], 2 * CELL_WIDTH - 1) for phase in all_phases)
        starts = (time_of_day(phase.line["start"]) for phase in all_phases)
        head, *rows = _phases_as_columns(all_phases, numbers, ("mean", "p5"))
        table = [
            table_line(columns, ["", *labels]), head, table_line(columns, ["from", *starts]), *rows
        ]  # fmt: skip
    else:
        length = long_duration(whole.report.span_ns)
        table = [f"from {time_of_day(whole.line['start'])} for {length}"]
        table += _phases_as_columns([whole], numbers, ("mean", *PERCENTILES, "min", "max"))
    samples = f"{count_noun(whole.line['samples'], 'sample')}, {whole.line['suspect']} suspect"
    used_s, unicode = session.command_run.cpu_s, supports_unicode()
    bar = time_use_lines(session.run.phases(), unicode=unicode, used_s=used_s)
    return [
        *wrap_text(_sentences(phases, whole), WIDTH), "",
        *bar, *([""] if bar else []), *table, "",
        *_cause_lines(session, phases, whole),
        f"{samples}, {session.dropped_frames or 'none'} dropped.",
    ]  # fmt: skip


def _sentences(phases: Sequence[Phase], whole: Phase) -> str:
    """Returns the answer for the whole recording, the phase that lost most of it, and the names of
    phases with too little CPU time for a share."""

    def lost_s(phase: Phase) -> float:
        return phase.report.sums.whole_s * phase.report.lost_ratio

    sentences = [whole.line["answer"]]
    losing_phases = [phase for phase in phases if lost_s(phase) > 0]  # not NaN
    if losing_phases and whole.report.lost_ratio >= MIN_SHARE:
        worst = max(losing_phases, key=lost_s)
        lost_text = f"{lost_s(worst):.1f} of {lost_s(whole):.1f} CPU s"
        sentences.append(f"Phase {worst.name} lost most: {lost_text}.")
    if names := ", ".join(phase.name for phase in phases if phase.report.is_too_short):
        sentences.append(f"Used too little CPU time to give shares of it: {names}. {SHORT_TASKS}")
    return " ".join(sentences)


def _value_columns(width: int, count: int) -> list[Column]:
    return [Column("", "", LABEL_WIDTH, is_left=True, gap=0), *[Column("", "", width)] * count]


def _label(number: Number) -> str:
    """Returns the name of a number, with its unit right-aligned in the label column."""
    unit = PER_KI if number.key.endswith(PER_KI) else shown_unit(number)
    is_event = number.key not in NUMBERS
    event_name = safe_text(number.label.removesuffix(PER_KI), MAX_EVENT)
    name = event_name if is_event else number.plain_name
    return f"{name:<{LABEL_WIDTH - len(unit)}}{unit}"


def _phases_as_columns(
    phases: Sequence[Phase], numbers: Sequence[Number], names: tuple[str, ...]
) -> list[str]:
    """Returns a heading, and a row for each number with its values `names` in each phase. Numbers
    that have percentiles are first; others have only one value."""
    columns = _value_columns(CELL_WIDTH, len(phases) * len(names))
    lines = [table_line(columns, ["", *names * len(phases)])]
    for number in (*numbers, *map(NUMBERS.__getitem__, TOTAL_KEYS)):
        is_total = number.key in TOTAL_KEYS
        values = [[phase.value(number.key, name) for name in names] for phase in phases]
        if not is_total or any(isfinite(first) for first, *_ in values):
            cells = [
                "" if is_total and index else number_text(number, value)
                for of_phase in values
                for index, value in enumerate(of_phase)
            ]
            lines.append(table_line(columns, [_label(number), *cells]))
    return lines


def _phases_as_rows(phases: Sequence[Phase], numbers: Sequence[Number]) -> list[str]:
    """Returns a table with a row of means for each phase."""
    heads = [
        GHZ.name if n.unit == "Hz" else f"{n.label.split()[0]} {shown_unit(n)}".rstrip()
        for n in numbers
    ]
    columns = [Column("", PHASE_HEADING, LABEL_WIDTH - 3, is_left=True, gap=0)]
    columns.append(Column("", "s", CELL_WIDTH))
    columns += [Column("", head, ROW_CELL_WIDTH) for head in heads]
    lines = [table_line(columns, [PHASE_HEADING, "s", *heads])]
    for phase in phases:
        cells = [number_text(number, phase.value(number.key)) for number in numbers]
        elapsed = f"{phase.report.totals.elapsed_s:.1f}"
        lines.append(table_line(columns, [phase.name, elapsed, *cells]))
    return lines


def _cause_lines(session: Session, phases: Sequence[Phase], whole: Phase) -> list[str]:
    """Returns the causes that cost most, over the whole recording, with what each cost in every
    phase that names it; [] if none is named."""
    notes: dict[CauseKey, str] = {}
    for finding in whole.report.findings:
        shares = [
            f"{phase.name} {percent(named_finding.share)} %"
            for phase in phases for named_finding in phase.report.named_findings
            if named_finding.cause == finding.cause
        ]  # fmt: skip
        if not shares and finding not in whole.report.named_findings:
            continue
        note = f"{finding.lost_s:.1f} CPU s"
        if finding.worst is not None:
            start = max(session.unix_s(finding.worst.start_ns), whole.line["start"])
            note += f", worst at {time_of_day(start)}"
        notes[finding.cause] = "; ".join([note, *([", ".join(shares)] if shares else [])])
    rows = [*cause_rows(whole.report, notes), []] if notes else []
    return texts(rows, colour=False, unicode=supports_unicode())
