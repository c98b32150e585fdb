"""The neighbour view: which CPUs lose time to which neighbours, and how the watched job performs.
All untrusted text is made safe to draw."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import isnan, nan
from typing import ClassVar

import numpy as np

from perftop.base.text import MISSING, ClockUnit, many, percent, ranges, time_of_day
from perftop.detect.losses import MIN_BUSY, MIN_JOB_BUSY
from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run, fitted
from perftop.draw.strips import Line, Piece, foreign, shed
from perftop.model.machine_totals import OF_BEST
from perftop.model.tasks import KEPT_NS, Thread, ThreadActivity, WatchedJob, task
from perftop.session.interval import Interval
from perftop.session.missing import lasting_reasons
from perftop.session.session import Session
from perftop.tui.panels import panels
from perftop.tui.panels.panels import PaneledView
from perftop.tui.panels.tasks import (
    MIN_BOLD_WAIT,
    NO_LOSS_TEXT,
    Pair,
    ended_pairs,
    pair_columns,
    pair_line,
    running_pairs,
    task_bar,
)
from perftop.tui.shared.canvas import Cursor
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.sheet import clock_of

MIN_SPAN_NS = 1_000_000_000
"""Minimum time, in ns, that the numbers of threads cover, because threads run in slices and sleep
between them."""
MAX_ENDED = 50
"""Maximum number of ended losses shown; these are the newest."""
MIN_WIDTH_FOR_BARS = 110
MAX_CPU_LIST = 24
"""Maximum width of a list of CPUs, in cells; a longer list is replaced by the number of CPUs."""
_NEEDS_OF_CAUSE = {
    "sibling": ("ipc", "siblings"), "hypervisor": ("steal", "hypervisor"),
    "scheduler": ("wait", "scheduler"), "package": ("busy_hz", "package"),
    "memory": (OF_BEST, "memory bandwidth"), "who": ("tasks", "names of tasks"),
}  # fmt: skip
"""By cause: the key of the number without which the cause cannot be detected, and the name of the
cause."""


@dataclass(frozen=True, slots=True)
class JobThread:
    """A thread of the watched job."""

    tid: int
    comm: str
    cpu: int
    activity: ThreadActivity
    ipc: float
    """IPC of its CPU, not of the thread alone."""
    siblings: str
    """Names of the tasks that run on the siblings of its CPU."""


class Neighbourhood:
    """Losses and the watched job at one moment of a session, which may be live or past."""

    def __init__(self, session: Session, interval: Interval, mask: frozenset[int] | None) -> None:
        """`mask`: positions of the CPUs to show; None for all CPUs."""
        self._session, self._interval = session, interval
        shown_rows = frozenset(session.shown)
        self.shown = shown_rows if mask is None else mask & shown_rows
        self.span_ns = max(MIN_SPAN_NS, round(interval.elapsed_s * 1e9))
        self.watched_job = session.neighbours.watched_job
        then_ns = interval.time_ns
        if self.watched_job.name is not None and then_ns < session.now_ns:
            self.watched_job = WatchedJob(
                self.watched_job.name
            )  # as of that moment, from recorded frames
            for message in session.past.frames(then_ns - KEPT_NS, then_ns):
                self.watched_job.take(getattr(message, "records", {}), message.time_ns)

    def losses(self) -> list[Pair]:
        return running_pairs(self._session, self._interval, self.watched_job, self.shown)

    def ended_losses(self) -> list[Pair]:
        """Returns the losses that had ended by this moment, the newest first."""
        return list(islice(ended_pairs(self._session, self._interval, self.shown), MAX_ENDED))

    # --- the watched job

    def _known_threads(self) -> list[Thread]:
        """Returns the threads on CPUs of this machine, ordered by CPU and thread ID."""
        position = self._session.position
        threads = (thread for thread in self.watched_job.threads.values() if thread.cpu in position)
        return sorted(threads, key=lambda thread: (thread.cpu, thread.tid))

    def threads(self) -> list[JobThread]:
        """Returns the threads of the watched job on the displayed CPUs, ordered by CPU and thread
        ID."""
        session, interval = self._session, self._interval
        siblings = {cpu: core for core in session.cores for cpu in core}
        rows = []
        for thread in self._known_threads():
            row = session.position[thread.cpu]
            if row in self.shown:
                other_cpus = [cpu for cpu in siblings.get(thread.cpu, ()) if cpu != thread.cpu]
                tasks = ((task(interval.tasks.get(str(cpu))), cpu) for cpu in other_cpus)
                rows.append(JobThread(
                    thread.tid, foreign(thread.comm), thread.cpu, thread.activity(self.span_ns),
                    float(interval.values["ipc"][row]),
                    foreign(", ".join(f"{t.comm} {t.pid} on CPU {cpu}" for t, cpu in tasks if t)),
                ))  # fmt: skip
        return rows

    def job(self, unit: ClockUnit, width: int) -> list[Run]:
        """Returns a line about the watched job; if it is too long, the least important parts are
        dropped."""
        name: Run = (f" {foreign(self.watched_job.name or '')}", "bright")
        count = len(self.watched_job.threads) + self.watched_job.more
        if not self.watched_job.time_ns:
            return [name, ("  its threads are not known yet", "dim")]
        if not count:
            return [name, ("  is not running", "dim")]
        cpus = sorted({thread.cpu for thread in self._known_threads()})
        cpu_text = ranges(cpus)
        if len(cpu_text) <= MAX_CPU_LIST:
            cpu_text = f"CPU{'s' if len(cpus) > 1 else ''} {cpu_text}"
        else:
            cpu_text = f"{len(cpus)} CPUs"
        pieces: list[Piece] = [
            (0, [name, (f"  {many(count, 'thread')}", "text")]),
            (3, [("on ", "dim"), (cpu_text, "text")]),
        ]
        activity, values = self.watched_job.job(self.span_ns), self._interval.values
        if elapsed_s := activity.elapsed_s:
            runs: Run = (f"{activity.run_s / elapsed_s:.2f}", "text")
            wait_text = MISSING if isnan(activity.wait) else f"{percent(activity.wait)} %"
            pieces += [
                (1, [("runs ", "dim"), runs, (" CPUs", "dim")]),
                (
                    1,
                    [
                        ("waits ", "dim"),
                        (wait_text, "bright" if activity.wait >= MIN_BOLD_WAIT else "text"),
                    ],
                ),
            ]
        rows = [self._session.position[cpu] for cpu in cpus]
        hz, ipc = (values.mean(key, rows) if rows else nan for key in ("busy_hz", "ipc"))
        if not isnan(hz):
            text = f"{hz * unit.per_hz:.{unit.digits}f}"
            pieces.append((2, [(text, "text"), (f" {unit.name}", "dim")]))
        if not isnan(ipc):
            pieces.append((2, [("IPC ", "dim"), (f"{ipc:.2f}", "text")]))
        if elapsed_s:
            for word, times in (
                ("sleeps ", activity.voluntary),
                ("preempted ", activity.involuntary),
            ):
                pieces.append((4, [(word, "dim"), (f"{times / elapsed_s:.0f}/s", "text")]))
        return shed(pieces, width, 3)

    # --- checks

    def checked(self) -> list[str]:
        """Returns texts about the checks that were made and would have detected a loss."""
        values, rows = self._interval.values, sorted(self.shown)
        work = np.nan_to_num(values["util"][rows]) + np.nan_to_num(values["steal"][rows])
        watched, missing_causes = self.watched_job.name is not None, self._missing_causes()
        min_busy = MIN_JOB_BUSY if watched else MIN_BUSY
        checked_counts = {
            "sibling": "siblings, by IPC alone and together",
            "hypervisor": "the hypervisor, by steal",
            "memory": "the memory, by traffic and IPC",
        }
        if watched:
            checked_counts |= {"scheduler": "the scheduler, by waits",
                               "package": "the package, by turbo and power"}  # fmt: skip
        busy_text = many(int((work >= min_busy).sum()), "CPU")
        return [
            f"{busy_text} busy {100 * min_busy:.0f} % of the time or more",
            *(text for cause, text in checked_counts.items() if cause not in missing_causes),
        ]

    def unchecked(self) -> list[str]:
        """Returns texts about the causes that cannot be detected here, with the reasons."""
        texts = [
            f"{_NEEDS_OF_CAUSE[cause][1]} ({reason})"
            for cause, reason in self._missing_causes().items()
        ]
        if self.watched_job.name is None:
            texts.append("scheduler, package (only for a watched job: --watch PID|COMM)")
        return [foreign(text) for text in texts]

    def _missing_causes(self) -> dict[str, str]:
        """Returns the reasons why causes cannot be detected, by cause."""
        session = self._session
        causes = {}
        if not any(len(core) > 1 for core in session.cores):
            causes["sibling"] = "no core has two threads here, as far as this system can see"
        elif not any(len(core) == 2 for core in session.cores):
            causes["sibling"] = "only detected on cores with two threads"
        reasons = {missing_item.what: missing_item for missing_item in lasting_reasons(session)}
        for cause, (key, _) in _NEEDS_OF_CAUSE.items():
            is_unasked = cause in {"scheduler", "package"} and self.watched_job.name is None
            reason = reasons.get(key)
            if reason is not None and reason.cpus is None and not is_unasked:
                fix = f"; {reason.fix}" if reason.fix else ""
                causes.setdefault(cause, f"{reason.why}{fix}")
        methods = self._interval.split.method
        methods_used = {
            methods[index]
            for index, core in enumerate(session.cores[: len(methods)])
            if len(core) == 2
        }
        if methods_used <= {"bounds", None}:
            causes.setdefault(
                "sibling", "how long two threads ran at once is known only within bounds"
            )
        return causes


def thread_columns(width: int) -> list[Column]:
    has_bars = width >= MIN_WIDTH_FOR_BARS
    bars = [Column("bar", "", 24, left=True, gap=4)] if has_bars else []
    return fitted([
        Column("cpu", "CPU", 6), Column("thread", "thread", 28 if has_bars else 20, left=True),
        Column("runs", "runs %", 8, scale=100.0, digits=1),
        Column("waits", "waits %", 8, scale=100.0, digits=1), *bars,
        Column("ipc", "IPC", 7, digits=2), Column("preempted", "preempted/s", 13),
        Column("siblings", "on the sibling", 16, left=True, most=width),
    ], width - 1)  # fmt: skip


def thread_cells(thread: JobThread, columns: list[Column]) -> list[Cell]:
    activity, elapsed_s = thread.activity, thread.activity.elapsed_s
    run_text, wait_text, preempted_text = (
        value / elapsed_s if elapsed_s else nan
        for value in (activity.run_s, activity.wait_s, activity.involuntary)
    )
    by_key = {column.key: column for column in columns}
    wait_style = "bright" if activity.wait >= MIN_BOLD_WAIT else "text"
    is_idle = activity.run_s == 0 and not activity.wait_s > 0
    cells: dict[str, Cell] = {
        "cpu": (str(thread.cpu), "text"),
        "thread": (f"{thread.comm} {thread.tid}", "dim" if activity.run_s == 0 else "text"),
        "runs": by_key["runs"].cell(run_text),
        "waits": by_key["waits"].cell(activity.wait, wait_style, resting=is_idle),
        "ipc": by_key["ipc"].cell(thread.ipc),
        "preempted": by_key["preempted"].cell(preempted_text),
        "siblings": (thread.siblings, "dim"),
    }
    if "bar" in by_key:
        cells["bar"] = [] if isnan(run_text) else task_bar(run_text, wait_text, by_key["bar"].room)
    return [cells[column.key] for column in columns]


def wrapped(prefix: str, texts: list[str], width: int) -> list[list[Run]]:
    """Returns lines with the texts, wrapped to `width`; the first line begins with `prefix`, and
    the others are indented by its length."""
    parts = panels.wrapped(" · ".join(texts), max(1, width - len(prefix) - 5))
    return [
        [(f" {' ' * len(prefix) if i else prefix}{part}", "dim")] for i, part in enumerate(parts)
    ]


Row = list[Run] | Pair | JobThread
"""A line of the view: plain text, a CPU that loses time, or a thread of the job."""


class Neighbours(PaneledView, Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "order", "reverse")
    OWN_PANEL = "losses"

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(choice, id=id)
        self._rows: list[Row] = []
        self._first: dict[int, int] = {}
        """The first CPU of each CPU's core, by CPU."""
        self._pairs = pair_columns(79, since=True)
        self._threads = thread_columns(80)

    def begin(self) -> None:
        self._first = {cpu: core[0] for core in self.session.cores for cpu in core}

    # --- lines

    def make_layout(self) -> None:
        self._pairs = pair_columns(max(20, self.width - 2), since=True)
        self._threads = thread_columns(self.width)

    def make_lines(self) -> None:
        neighbourhood = Neighbourhood(self.session, self.interval, self.choice.mask)
        name = (
            None
            if neighbourhood.watched_job.name is None
            else foreign(neighbourhood.watched_job.name)
        )
        order, reverse = self.choice.order, self.choice.reverse
        losses, width = neighbourhood.losses(), self.width
        count_text = many(len(losses), "pair") if losses else ""
        title: list[Run] = [
            (" ", "text"),
            *panels.title("noisy neighbours", count_text, max(1, width - 2)),
        ]
        self.heads = [] if self.bare else [title]
        if name is not None:
            self.heads.append(neighbourhood.job(clock_of(self.session, self.choice.units), width))
        if losses:
            if order == "CPU number":  # in all other orders, the worst loss is first
                losses.sort(key=lambda loss: loss.cpu)
            heading: list[Run] = [(" ", "text"), *columns.headings(self._pairs)]
            self._rows = [heading, *(losses[::-1] if reverse else losses)]
        else:
            no_loss_text = (
                NO_LOSS_TEXT if name is None else f"{name} is losing no time to a neighbour"
            )
            self._rows = [
                [(f" {no_loss_text}", "text")],
                *wrapped("checked: ", neighbourhood.checked(), width),
            ]
        if name is not None and neighbourhood.watched_job.threads:
            threads = neighbourhood.threads()
            if order == "worst first":
                threads.sort(
                    key=lambda loss: 1.0 if isnan(loss.activity.wait) else -loss.activity.wait
                )
            heading = [(" ", "text"), *columns.headings(self._threads)]
            self._rows += [[], heading, *(threads[::-1] if reverse else threads)]
        if ended_losses := neighbourhood.ended_losses():
            self._rows += [[], [(" ended", "bright")], *ended_losses]
        self._rows.append([])
        for reason in neighbourhood.unchecked():
            self._rows += wrapped("not checked: ", [reason], width)
        self.count = len(self._rows)
        self.feet = self.panels(self.spare)
        if self.cpu(line := self._cursor_line()) == self.choice.cpu:
            self._selected = self.identity(line)

    def line(self, y: int) -> Line:
        row = self._rows[y]
        if isinstance(row, list):
            return row, "calm"
        chosen = self.cpu(y) == self.choice.cpu and self.identity(y) == self._selected
        mark: Run = (theme.CHOSEN_SIGN, "mark") if chosen else (" ", "text")
        if isinstance(row, JobThread):
            cells = columns.line(self._threads, thread_cells(row, self._threads))
            return [mark, *cells], "chosen" if chosen else "calm"
        runs = [mark, *pair_line(row, self._pairs, time_of_day(self.session.unix(row.since_ns)))]
        if row.lasted:
            return runs, "chosen" if chosen else "calm"
        return runs, "chosen victim" if chosen else "victim"

    # --- the cursor is on a loss or a thread; other views select its core

    def cpu(self, y: int) -> int | None:
        row = self._rows[y] if 0 <= y < len(self._rows) else []
        return None if isinstance(row, list) else self._first.get(row.cpu, row.cpu)

    def identity(self, y: int) -> object:
        row = self._rows[y]
        if isinstance(row, list):
            return None
        if isinstance(row, Pair):
            return row.cause, row.cpu, row.since_ns if row.lasted else None
        return row.tid
