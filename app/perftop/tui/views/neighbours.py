"""The neighbour view. Ribbons and rows with bars show which tasks lose CPU time and which tasks
take it. Below them are details of the selected row, and the performance of the watched job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, product, repeat
from math import ceil, isnan, nan
from typing import ClassVar

from perftop.base.text import MISSING, count_noun, cut, percent, ranges, short_cpu_list
from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run, fit_columns
from perftop.draw.strips import (
    Line,
    Piece,
    fit_line,
    merge_runs,
    overlay,
    panel_title,
    safe_cells,
    width,
    wrap_line,
)
from perftop.model.control_groups import is_pid
from perftop.model.kinds import NEIGHBOURS
from perftop.model.tasks import ACTIVITY_SPAN_NS, Thread, WatchedJob
from perftop.output.report import Report
from perftop.output.why_report import unmeasured_losses
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.canvas import CursorCanvas, mark_selected
from perftop.tui.shared.loss_panels import SCALES_S, cause_colours, eighths_lines, legend
from perftop.tui.shared.panels import PaneledView
from perftop.tui.shared.row_numbers import session_clock_unit
from perftop.tui.shared.tables import INDENT, MIN_ALARM_WAIT
from perftop.tui.views.flows import Flow, find_flows, flow_details, join_flows

MIN_SPAN_NS = 1_000_000_000
"""Minimum time in ns over which the numbers of threads are averaged. Threads run in short slices,
so averages over less time vary too much."""
MAX_CPU_LIST_WIDTH = 24
MIN_ROWS = 6
"""Minimum number of rows, including a heading, above the details of the selected row."""
_LABEL_WIDTH = 11
"""Width of labels such as "evidence", in cells."""

# --- ribbons

MIN_WIDTH_FOR_RIBBONS, MIN_RIBBON_ROWS = 100, 6
NAME_WIDTH = 26
"""Width of the names on each side of the ribbons, in cells."""


class _RibbonSide:
    """The culprits (`side` 0) or victims (1) at the ends of ribbons, each in a block of rows."""

    def __init__(self, flows: Sequence[Flow], side: int, row_s: float) -> None:
        ends = [(flow.culprit, flow.victim)[side] for flow in flows]
        by_name = {end: [f for f, e in zip(flows, ends, strict=True) if e == end] for end in ends}
        self.names = [join_flows(parts).names[side] for parts in by_name.values()]
        self.lost_s = [sum(flow.lost_s for flow in parts) for parts in by_name.values()]
        self.rows = [max(2, ceil(seconds / row_s)) for seconds in self.lost_s]
        *self.block_tops, end_row = accumulate((rows + 1 for rows in self.rows), initial=0)
        """The first row of each block. Each block is followed by a blank row."""
        self.height = end_row - 1
        next_starts = dict(zip(by_name, (8.0 * top for top in self.block_tops), strict=True))
        self.ribbon_starts: list[float] = []
        """The upper end of each ribbon, in eighths of a row."""
        for flow, end in zip(flows, ends, strict=True):
            self.ribbon_starts.append(next_starts[end])
            next_starts[end] += 8 * flow.lost_s / row_s


def draw_ribbons(flows: Sequence[Flow], size: int, rows: int) -> tuple[list[list[Run]], float]:
    """Returns at most `rows` lines, in which a ribbon joins the culprit and the victim of each
    flow, and the seconds per row. The thickness of a ribbon is the lost time. Flows that do not fit
    are left out, the smallest first."""
    for count, row_s in product(range(len(flows), 0, -1), SCALES_S):
        shown_flows = flows[:count]
        left, right = (_RibbonSide(shown_flows, side, row_s) for side in (0, 1))
        height = max(left.height, right.height)
        if height <= rows:
            break
    else:
        return [], 0.0
    middle = size - 2 * NAME_WIDTH - 3
    columns = []
    for x in range(middle):
        blend = x / (middle - 1)
        blend *= blend * (3 - 2 * blend)
        eighths: list[str] = [""] * (8 * height)
        for i, flow in enumerate(shown_flows):
            top = left.ribbon_starts[i] + (right.ribbon_starts[i] - left.ribbon_starts[i]) * blend
            thickness, colours = 8 * flow.lost_s / row_s, cause_colours(flow.cause)
            stripes = min(len({pair[:2] for pair in flow.pairs}), max(1, int(thickness / 8)))
            bottom = max(round(top) + 1, round(top + thickness))
            for y in range(round(top), min(bottom, 8 * height)):
                stripe = int((y - top) / max(1.0, thickness) * stripes)
                eighths[y] = colours[stripe % len(colours)]
        columns.append(eighths)
    lines = eighths_lines(columns)
    for i, flow in enumerate(shown_flows):
        share = f", {100 * flow.share:.0f} % of its time" if flow.cause else ""
        text, thickness = f" {flow.lost_s:.1f} s{share} ", 8 * flow.lost_s / row_s
        y = int((left.ribbon_starts[i] + right.ribbon_starts[i] + thickness) / 16)
        if thickness >= 8 and len(text) < middle:
            lines[y] = overlay(lines[y], middle // 2 - len(text) // 2, [(text, "bright")])
    gap: Run = (" ", "text")
    culprits, victims = (_ribbon_names(left, height, "taken"), _ribbon_names(right, height, "lost"))
    for y, (culprit, victim) in enumerate(zip(culprits, victims, strict=True)):
        margin: Run = (" " * (NAME_WIDTH - width(culprit)), "text")
        lines[y] = [margin, *culprit, gap, *lines[y], gap, *merge_runs(victim, NAME_WIDTH)]
    return lines, row_s


def _ribbon_names(side: _RibbonSide, height: int, verb: str) -> list[list[Run]]:
    lines: list[list[Run]] = [[] for _ in range(height)]
    blocks = zip(side.names, side.lost_s, side.rows, side.block_tops, strict=True)
    for name, lost_s, rows, top in blocks:
        y = top + (rows - 2) // 2
        lines[y] = [(cut(name, NAME_WIDTH), "bright")]
        lines[y + 1] = [(f"{lost_s:.1f} s {verb}", "dim")]
    return lines


# --- rows


def flow_columns(size: int) -> list[Column]:
    return fit_columns([
        Column("sign", "", INDENT, is_left=True, gap=0),
        Column("culprit", "who takes", 16, is_left=True, gap=0, max_width=24),
        Column("bar", "", 13, is_left=True, gap=1, max_width=60, weight=3),
        Column("lost", "CPU s", 8, digits=1),
        Column("victim", "from", 17, is_left=True, gap=2, max_width=25),
        Column("wanted", "of CPU s", 10, digits=1, rank=1),
        Column("share", "% of time", 11, scale=100.0), Column("cause", "", 13, is_left=True, gap=2),
        Column("cpus", "CPUs", 18, is_left=True, gap=2, rank=1, max_width=30),
    ], size)  # fmt: skip


def flow_cells(flow: Flow, table_columns: Sequence[Column], max_s: float) -> list[Cell]:
    by_key = {column.key: column for column in table_columns}
    kind, (culprit, victim) = NEIGHBOURS.get(flow.cause), flow.names
    bar = theme.LEVELS[8] * max(1, round(by_key["bar"].room * flow.lost_s / max_s))
    style = "alarm" if flow.share >= 0.05 else "text"
    cells: dict[str, Cell] = {
        "sign": (kind.marker if kind else " ", style),
        "culprit": (culprit, "bright"),
        "bar": [(bar, cause_colours(flow.cause)[0])],
        "lost": by_key["lost"].cell(flow.lost_s),
        "victim": (victim, "bright"),
        "share": by_key["share"].cell(flow.share if flow.wanted_s else nan, style),
        "cause": (flow.cause, "dim"),
        "cpus": (ranges(sorted(flow.cpus)), "dim"),
    }
    if "wanted" in by_key:
        cells["wanted"] = by_key["wanted"].cell(sum(flow.wanted_s.values()) or nan, "dim")
    return [cells[column.key] for column in table_columns]


def thread_columns(size: int) -> list[Column]:
    return fit_columns([
        Column("cpu", "CPU", 6), Column("thread", "thread", 20, is_left=True, max_width=28),
        Column("runs", "runs %", 8, scale=100.0, digits=1),
        Column("waits", "waits %", 8, scale=100.0, digits=1),
        Column("ipc", "IPC", 7, digits=2), Column("preempted", "preempted/s", 13),
    ], size - 1)  # fmt: skip


def thread_cells(
    thread: Thread, session: Session, interval: Interval, span_ns: int, table_columns: list[Column]
) -> list[Cell]:
    """Returns the cells of a thread of the watched job. The IPC is that of its CPU."""
    activity, by_key = thread.activity(span_ns), {column.key: column for column in table_columns}
    run_share, preemptions = (
        value / activity.elapsed_s if activity.elapsed_s else nan
        for value in (activity.run_s, activity.involuntary_switches)
    )
    wait_style = "alarm" if activity.wait >= MIN_ALARM_WAIT else "text"
    is_idle = activity.run_s == 0 and not activity.wait_s > 0
    cells: dict[str, Cell] = {
        "cpu": (str(thread.cpu), "text"),
        "thread": (f"{safe_cells(thread.comm)} {thread.tid}", "text" if activity.run_s else "dim"),
        "runs": by_key["runs"].cell(run_share),
        "waits": by_key["waits"].cell(activity.wait, wait_style, resting=is_idle),
        "ipc": by_key["ipc"].cell(float(interval.values["ipc"][session.position[thread.cpu]])),
        "preempted": by_key["preempted"].cell(preemptions),
    }
    return [cells[column.key] for column in table_columns]


def labelled_lines(label: str, text: str, size: int, style: str = "text") -> list[list[Run]]:
    """Returns the lines of a text, wrapped to `size` cells, with a label at its left."""
    lines, labels = wrap_line(text, max(1, size - _LABEL_WIDTH - 3)), chain([label], repeat(""))
    heads = (f"   {name:<{_LABEL_WIDTH}}" for name in labels)
    return [[(head, "dim"), (line, style)] for line, head in zip(lines, heads, strict=False)]


# --- the view

ViewRow = list[Run] | Flow | Thread
"""A line of the view: plain text, a flow, or a thread of the job."""


class Neighbours(PaneledView, CursorCanvas):
    HAS_OWN_ITEMS: ClassVar[bool] = True
    HINTS: ClassVar[tuple[str, ...]] = ("open", "fold", "try")

    _rows: Sequence[ViewRow] = ()
    _folded = True
    """Whether tasks of the same name share a row."""
    _report: Report | None = None
    """The report of the flows, stored so that no other report can get the same id()."""
    _flows: tuple[object, list[Flow]] = None, []
    """A cache: the flows, and the inputs that they were made from."""
    _drawn_ribbons: tuple[object, list[list[Run]], float] = None, [], 0.0
    """A cache: the lines of the ribbons, seconds per row, and what they were drawn from."""
    _details: Sequence[tuple[str, str]] = ()
    """Labels and texts about the selected flow."""
    _detailed_flow: object = None
    """The inputs that `_details` was made from."""
    _first_cpu_of_core: Mapping[int, int] = {}
    """The first CPU of each CPU's core, by CPU."""

    def reset(self) -> None:
        self._first_cpu_of_core = {cpu: core[0] for core in self.session.cores for cpu in core}

    @property
    def remedy(self) -> str:
        return next((text for label, text in self._details if label == "try"), "")

    # --- lines

    def make_layout(self) -> None:
        self._columns = flow_columns(max(20, self.width - 2))
        self._thread_columns = thread_columns(self.width)

    def make_lines(self) -> None:
        verdict = self.verdict
        report = verdict.report if verdict is not None else None
        inputs = id(report), self._folded, self.settings.mask
        if self._flows[0] != inputs:
            found = report and find_flows(
                self.session, report, self.shown_positions, folded=self._folded
            )
            self._report, self._flows = report, (inputs, found or [])
        flows = self._flows[1]
        self._rows, self.header_lines = [*flows], []
        if not flows:
            text = "No CPU is losing time to a neighbour"
            text = verdict.text if verdict is not None and report is None else text
            self._rows = [[(f" {text}", "text")]]
        self._add_job(report)
        self.line_count = len(self._rows)
        row = self._rows[self._cursor_line()]
        selected = row if isinstance(row, Flow) else None
        if selected is None or verdict is None or report is None:
            self._details, self._detailed_flow = [], None
        elif self._detailed_flow != (self._flows[0], selected):
            self._detailed_flow = self._flows[0], selected
            is_largest = next(flow for flow in flows if flow.cause == selected.cause) is selected
            self._details = flow_details(self.session, report, selected, is_largest=is_largest)
        details = self._detail_lines(selected, flows)
        if not self.is_tiny:
            room = self.size.height - len(self.header_lines) - self.line_count - len(details) - 4
            self.header_lines += self._ribbons(flows, room)
            measured_s = 0.0 if verdict is None else verdict.span_s
            self.header_lines.insert(0, self._title(measured_s, flows))
            if flows:
                self.header_lines.append([(" ", "text"), *columns.headings(self._columns)])
        room = self.size.height - len(self.header_lines) - min(self.line_count, MIN_ROWS)
        self.footer_lines = [(line, "calm") for line in details[: max(0, room)]]
        room = max(0, self.spare_lines - len(self.footer_lines))
        self.footer_lines += self.make_panels(room, kinds=("who", "over-time"))

    def _ribbons(self, flows: list[Flow], room: int) -> list[list[Run]]:
        """Returns the lines of the ribbons and a blank line; [] if they do not fit."""
        rows = min(room, 2 * self.size.height // 5)
        is_wide, has_colours = self.width >= MIN_WIDTH_FOR_RIBBONS, self.settings.glyphs == "colour"
        if not is_wide or not has_colours or rows < MIN_RIBBON_ROWS:
            rows = 0
        inputs = self._flows[0], self.width, rows
        if self._drawn_ribbons[0] != inputs:
            lines, row_s = draw_ribbons(flows, self.width - 2, rows) if rows else ([], 0.0)
            self._drawn_ribbons = inputs, lines, row_s
        return [*([(" ", "text"), *line] for line in self._drawn_ribbons[1]), []] if rows else []

    def _title(self, measured_s: float, flows: list[Flow]) -> list[Run]:
        text = f"CPU seconds lost in {measured_s:.1f} s" if flows else ""
        if (row_s := self._drawn_ribbons[2]) and text:
            text += f"; a row is {row_s:g} s"
        if self._folded and any(len({*flow.pairs}) > 1 for flow in flows):
            text += "; equal names are one"
        causes = dict.fromkeys(flow.cause for flow in flows) if self._drawn_ribbons[2] else ()
        size = max(1, self.width - 2)
        return [(" ", "text"), *panel_title("who takes from whom", text, size, legend(causes))]

    def _detail_lines(self, selected: Flow | None, flows: list[Flow]) -> list[list[Run]]:
        """Returns lines about the selected flow, causes ruled out, and losses not measured here."""
        size = max(1, self.width - 2)
        lines: list[list[Run]] = []
        if selected is not None:
            culprit, victim = selected.names
            count = f"{flows.index(selected) + 1} of {len(flows)}"
            title = panel_title(f"{culprit} takes from {victim}", count, size)
            lines += [[], [(" ", "text"), *title]]
            for label, text in self._details:
                lines += labelled_lines(label, text, size, "key" if label == "try" else "text")
        if (report := self._report) is not None:
            lines.append([])
            if ruled_out := report.ruled_out_losses:
                lines += labelled_lines("ruled out", " · ".join(ruled_out), size, "dim")
            cores, methods = self.interval.cores.lists, self.interval.split.method
            pair_methods = {m for m, core in zip(methods, cores, strict=True) if len(core) == 2}
            sibling_reason = ""
            if not self.session.has_smt:
                sibling_reason = "no core has two threads here, as far as this system can see"
            elif not pair_methods:
                sibling_reason = "only detected on cores with two threads"
            elif pair_methods <= {"bounds", None}:
                sibling_reason = "how long two threads ran at once is known only within bounds"
            unmeasured = [f"siblings: {sibling_reason}"] if sibling_reason else []
            unmeasured += [loss for loss, _, _ in unmeasured_losses(report)]
            unmeasured += [f"{self.settings.captions['report']}: reasons"]
            lines += labelled_lines("not seen", safe_cells(" · ".join(unmeasured)), size, "dim")
        return lines

    def _add_job(self, report: Report | None) -> None:
        """Adds the watched job to the header, and its threads to the rows. `report`: the report
        that names a job watched by PID."""
        session, now_ns = self.session, self.interval.time_ns
        job = session.neighbours.watched_job
        if job.name is None:
            return
        if now_ns < session.now_ns:  # numbers at that moment, from recorded frames
            job = WatchedJob(job.name)
            for time_ns, records in session.past.records(now_ns - ACTIVITY_SPAN_NS, now_ns):
                job.read_record(records, time_ns)
        threads = [thread for thread in job.threads.values() if thread.cpu in session.position]
        threads.sort(key=lambda thread: (thread.cpu, thread.tid))
        title = job.name or ""
        if is_pid(title) and report is not None and report.totals.times.threads:
            title = f"{report.job} {title}"
        self.header_lines.append(self._job_line(job, title, threads))
        positions = self.shown_positions
        local_threads = [t for t in threads if session.position[t.cpu] in positions]
        if local_threads:
            heading: list[Run] = [(" ", "text"), *columns.headings(self._thread_columns)]
            self._rows = [*self._rows, [], heading, *local_threads]

    def _job_line(self, job: WatchedJob, title: str, threads: Sequence[Thread]) -> list[Run]:
        """Returns the numbers of the watched job that fit into a line, the most important first.
        `threads`: its threads on CPUs of this machine."""
        name: Run = (f" {safe_cells(title)}", "bright")
        count = len(job.threads) + job.unlisted_threads
        if not count:
            text = "is not running" if job.time_ns else "its threads are not known yet"
            return [name, (f"  {text}", "dim")]
        cpus = sorted({thread.cpu for thread in threads})
        pieces: list[Piece] = [
            (0, [name, (f"  {count_noun(count, 'thread')}", "text")]),
            (3, [("on ", "dim"), (short_cpu_list(cpus, MAX_CPU_LIST_WIDTH), "text")]),
        ]
        activity = job.total_activity(self._span_ns)
        if elapsed_s := activity.elapsed_s:
            wait_text = MISSING if isnan(activity.wait) else f"{percent(activity.wait)} %"
            wait_style = "alarm" if activity.wait >= MIN_ALARM_WAIT else "text"
            runs = f"{activity.run_s / elapsed_s:.2f}"
            pieces.append((1, [("runs ", "dim"), (runs, "text"), (" CPUs", "dim")]))
            pieces.append((1, [("waits ", "dim"), (wait_text, wait_style)]))
        means, rows = self.interval.values, [self.session.position[cpu] for cpu in cpus]
        hz, ipc = (means.mean(key, rows) if rows else nan for key in ("busy_hz", "ipc"))
        if not isnan(hz):
            unit = session_clock_unit(self.session, self.settings.units)
            text = f"{hz * unit.per_hz:.{unit.digits}f}"
            pieces.append((2, [(text, "text"), (f" {unit.name}", "dim")]))
        if not isnan(ipc):
            pieces.append((2, [("IPC ", "dim"), (f"{ipc:.2f}", "text")]))
        return fit_line(pieces, self.width, 3)

    @property
    def _span_ns(self) -> int:
        """Length in ns of the time over which the numbers of threads are averaged."""
        return max(MIN_SPAN_NS, round(self.interval.elapsed_s * 1e9))

    def line(self, y: int) -> Line:
        row = self._rows[y]
        if isinstance(row, list):
            return row, "calm"
        if isinstance(row, Flow):
            max_s = max(flow.lost_s for flow in self._flows[1])
            table_columns, cells = self._columns, flow_cells(row, self._columns, max_s)
        else:
            span_ns, table_columns = self._span_ns, self._thread_columns
            cells = thread_cells(row, self.session, self.interval, span_ns, table_columns)
        line: Line = [(" ", "text"), *columns.join_columns(table_columns, cells)], "calm"
        return mark_selected(line) if y == self._cursor_line() else line

    # --- the cursor is on a flow or a thread; other views select its core

    def handle_enter(self) -> bool:
        self.settings.cpu = self.cpu_of_line(self._cursor_line()) or self.settings.cpu
        return True

    def cpu_of_line(self, y: int) -> int | None:
        row = self._rows[y] if 0 <= y < len(self._rows) else []
        if isinstance(row, list):
            return None
        cpu = next(iter(row.cpus)) if isinstance(row, Flow) else row.cpu
        return self._first_cpu_of_core.get(cpu, cpu)

    def item_of_line(self, y: int) -> object:
        row = self._rows[y]
        return None if isinstance(row, list) else row.key if isinstance(row, Flow) else row.tid

    def action_fold(self) -> None:
        self._folded = not self._folded
        self.draw_selection()
