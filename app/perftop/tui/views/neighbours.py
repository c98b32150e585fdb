"""The neighbour view: which CPUs lose time to which neighbours, and how the watched job performs.
All untrusted text is made safe to draw."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import isnan, nan
from typing import ClassVar

import numpy as np

from perftop.base.format import MISSING, ClockUnit, many, percent, time_of_day
from perftop.base.text import ranges
from perftop.detect.losses import MIN_BUSY, MIN_JOB_BUSY
from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run, fitted
from perftop.draw.strips import Line, Piece, foreign, shed
from perftop.model.machine_totals import OF_BEST
from perftop.model.tasks import KEPT_NS, Thread, ThreadActivity, WatchedJob, task
from perftop.session.interval import Interval
from perftop.session.missing import lasting
from perftop.session.session import Session
from perftop.tui.panels import pairs, panels
from perftop.tui.panels.pairs import NO_LOSS_TEXT, Pair, pair_columns, pair_line
from perftop.tui.panels.panels import PaneledView
from perftop.tui.panels.tasks import MIN_BOLD_WAIT, task_bar
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
_NEEDS = {
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
    moved: ThreadActivity
    ipc: float
    """IPC of its CPU, not of the thread alone."""
    siblings: str
    """Names of the tasks that run on the siblings of its CPU."""


class Neighbourhood:
    """Losses and the watched job at one moment of a session, which may be live or past."""

    def __init__(self, session: Session, interval: Interval, mask: frozenset[int] | None) -> None:
        """`mask`: positions of the CPUs to show; None for all CPUs."""
        self._session, self._interval = session, interval
        shown = frozenset(session.shown)
        self.shown = shown if mask is None else mask & shown
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
        return pairs.running_pairs(self._session, self._interval, self.watched_job, self.shown)

    def ended_losses(self) -> list[Pair]:
        """Returns the losses that had ended by this moment, the newest first."""
        return list(islice(pairs.ended_pairs(self._session, self._interval, self.shown), MAX_ENDED))

    # --- the watched job

    def _known(self) -> list[Thread]:
        """Returns the threads on CPUs of this machine, ordered by CPU and thread ID."""
        position = self._session.position
        found = (thread for thread in self.watched_job.threads.values() if thread.cpu in position)
        return sorted(found, key=lambda thread: (thread.cpu, thread.tid))

    def threads(self) -> list[JobThread]:
        """Returns the threads of the watched job on the displayed CPUs, ordered by CPU and thread
        ID."""
        session, interval = self._session, self._interval
        siblings = {cpu: core for core in session.cores for cpu in core}
        found = []
        for thread in self._known():
            row = session.position[thread.cpu]
            if row in self.shown:
                others = [cpu for cpu in siblings.get(thread.cpu, ()) if cpu != thread.cpu]
                tasks = ((task(interval.tasks.get(str(cpu))), cpu) for cpu in others)
                found.append(JobThread(
                    thread.tid, foreign(thread.comm), thread.cpu, thread.activity(self.span_ns),
                    float(interval.values["ipc"][row]),
                    foreign(", ".join(f"{t.comm} {t.pid} on CPU {cpu}" for t, cpu in tasks if t)),
                ))  # fmt: skip
        return found

    def job(self, unit: ClockUnit, width: int) -> list[Run]:
        """Returns a line about the watched job; if it is too long, the least important parts are
        dropped."""
        name: Run = (f" {foreign(self.watched_job.name or '')}", "bright")
        count = len(self.watched_job.threads) + self.watched_job.more
        if not self.watched_job.time_ns:
            return [name, ("  its threads are not known yet", "dim")]
        if not count:
            return [name, ("  is not running", "dim")]
        cpus = sorted({thread.cpu for thread in self._known()})
        where = ranges(cpus)
        where = f"CPU{'s' if len(cpus) > 1 else ''} {where}" if len(where) <= MAX_CPU_LIST else (
            f"{len(cpus)} CPUs")  # fmt: skip
        pieces: list[Piece] = [
            (0, [name, (f"  {many(count, 'thread')}", "text")]),
            (3, [("on ", "dim"), (where, "text")]),
        ]
        moved, values = self.watched_job.job(self.span_ns), self._interval.values
        if elapsed_s := moved.elapsed_s:
            runs: Run = (f"{moved.run_s / elapsed_s:.2f}", "text")
            wait = MISSING if isnan(moved.wait) else f"{percent(moved.wait)} %"
            pieces += [
                (1, [("runs ", "dim"), runs, (" CPUs", "dim")]),
                (
                    1,
                    [
                        ("waits ", "dim"),
                        (wait, "bright" if moved.wait >= MIN_BOLD_WAIT else "text"),
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
            for word, times in (("sleeps ", moved.voluntary), ("preempted ", moved.involuntary)):
                pieces.append((4, [(word, "dim"), (f"{times / elapsed_s:.0f}/s", "text")]))
        return shed(pieces, width, 3)

    # --- checks

    def checked(self) -> list[str]:
        """Returns texts about the checks that were made and would have detected a loss."""
        values, rows = self._interval.values, sorted(self.shown)
        work = np.nan_to_num(values["util"][rows]) + np.nan_to_num(values["steal"][rows])
        watched, missing = self.watched_job.name is not None, self._missing()
        least = MIN_JOB_BUSY if watched else MIN_BUSY
        can = {
            "sibling": "siblings, by IPC alone and together",
            "hypervisor": "the hypervisor, by steal",
            "memory": "the memory, by traffic and IPC",
        }
        if watched:
            can |= {"scheduler": "the scheduler, by waits", "package": "the package, by turbo and"
                    " power"}  # fmt: skip
        busy = many(int((work >= least).sum()), "CPU")
        return [
            f"{busy} busy {100 * least:.0f} % of the time or more",
            *(text for cause, text in can.items() if cause not in missing),
        ]

    def unchecked(self) -> list[str]:
        """Returns texts about the causes that cannot be detected here, with the reasons."""
        found = [f"{_NEEDS[cause][1]} ({why})" for cause, why in self._missing().items()]
        if self.watched_job.name is None:
            found.append("scheduler, package (only for a watched job: --watch PID|COMM)")
        return [foreign(text) for text in found]

    def _missing(self) -> dict[str, str]:
        """Returns the reasons why causes cannot be detected, by cause."""
        session = self._session
        found = {}
        if not any(len(core) > 1 for core in session.cores):
            found["sibling"] = "no core has two threads here, as far as this system can see"
        elif not any(len(core) == 2 for core in session.cores):
            found["sibling"] = "only detected on cores with two threads"
        reasons = {missing.what: missing for missing in lasting(session)}
        for cause, (key, _) in _NEEDS.items():
            unasked = cause in {"scheduler", "package"} and self.watched_job.name is None
            reason = reasons.get(key)
            if reason is not None and reason.cpus is None and not unasked:
                fix = f"; {reason.fix}" if reason.fix else ""
                found.setdefault(cause, f"{reason.why}{fix}")
        how = self._interval.split.method
        counted = {how[at] for at, core in enumerate(session.cores[: len(how)]) if len(core) == 2}
        if counted <= {"bounds", None}:
            found.setdefault(
                "sibling", "how long two threads ran at once is known only within bounds"
            )
        return found


def thread_columns(width: int) -> list[Column]:
    wide = width >= MIN_WIDTH_FOR_BARS
    bars = [Column("bar", "", 24, left=True, gap=4)] if wide else []
    return fitted([
        Column("cpu", "CPU", 6), Column("thread", "thread", 28 if wide else 20, left=True),
        Column("runs", "runs %", 8, scale=100.0, digits=1),
        Column("waits", "waits %", 8, scale=100.0, digits=1), *bars,
        Column("ipc", "IPC", 7, digits=2), Column("preempted", "preempted/s", 13),
        Column("siblings", "on the sibling", 16, left=True, most=width),
    ], width - 1)  # fmt: skip


def thread_cells(one: JobThread, shown: list[Column]) -> list[Cell]:
    moved, elapsed_s = one.moved, one.moved.elapsed_s
    ran, waited, preempted = (
        value / elapsed_s if elapsed_s else nan
        for value in (moved.run_s, moved.wait_s, moved.involuntary)
    )
    by_key = {column.key: column for column in shown}
    wait_style = "bright" if moved.wait >= MIN_BOLD_WAIT else "text"
    still = moved.run_s == 0 and not moved.wait_s > 0
    cells: dict[str, Cell] = {
        "cpu": (str(one.cpu), "text"),
        "thread": (f"{one.comm} {one.tid}", "dim" if moved.run_s == 0 else "text"),
        "runs": by_key["runs"].cell(ran),
        "waits": by_key["waits"].cell(moved.wait, wait_style, resting=still),
        "ipc": by_key["ipc"].cell(one.ipc),
        "preempted": by_key["preempted"].cell(preempted),
        "siblings": (one.siblings, "dim"),
    }
    if "bar" in by_key:
        cells["bar"] = [] if isnan(ran) else task_bar(ran, waited, by_key["bar"].room)
    return [cells[column.key] for column in shown]


def wrapped(before: str, texts: list[str], width: int) -> list[list[Run]]:
    """Returns lines with the texts, wrapped to `width`; the first line begins with `before`, and
    the others are indented by its length."""
    parts = panels.wrapped(" · ".join(texts), max(1, width - len(before) - 5))
    return [
        [(f" {' ' * len(before) if i else before}{part}", "dim")] for i, part in enumerate(parts)
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
        now = Neighbourhood(self.session, self.interval, self.choice.mask)
        name = None if now.watched_job.name is None else foreign(now.watched_job.name)
        order, reverse = self.choice.order, self.choice.reverse
        losses, width = now.losses(), self.width
        rest = many(len(losses), "pair") if losses else ""
        title: list[Run] = [
            (" ", "text"),
            *panels.title("noisy neighbours", rest, max(1, width - 2)),
        ]
        self.heads = [] if self.bare else [title]
        if name is not None:
            self.heads.append(now.job(clock_of(self.session, self.choice.units), width))
        if losses:
            if order == "CPU number":  # in all other orders, the worst loss is first
                losses.sort(key=lambda one: one.cpu)
            heading: list[Run] = [(" ", "text"), *columns.headings(self._pairs)]
            self._rows = [heading, *(losses[::-1] if reverse else losses)]
        else:
            nobody = NO_LOSS_TEXT if name is None else f"{name} is losing no time to a neighbour"
            self._rows = [[(f" {nobody}", "text")], *wrapped("checked: ", now.checked(), width)]
        if name is not None and now.watched_job.threads:
            threads = now.threads()
            if order == "worst first":
                threads.sort(key=lambda one: 1.0 if isnan(one.moved.wait) else -one.moved.wait)
            heading = [(" ", "text"), *columns.headings(self._threads)]
            self._rows += [[], heading, *(threads[::-1] if reverse else threads)]
        if ended := now.ended_losses():
            self._rows += [[], [(" ended", "bright")], *ended]
        self._rows.append([])
        for reason in now.unchecked():
            self._rows += wrapped("not checked: ", [reason], width)
        self.count = len(self._rows)
        self.feet = self.panels(self.spare)
        if self.cpu(at := self._cursor_line()) == self.choice.cpu:
            self._selected = self.identity(at)

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
