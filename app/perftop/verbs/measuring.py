"""How `stat` and `why` process a stream, to print intervals, episodes, a summary or a report."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

from perfprobe import wire
from perftop.base.errors import USAGE, Failed, print_error
from perftop.base.text import (
    Line,
    long_duration,
    printable,
    show_progress,
    supports_colour,
    supports_unicode,
    terminal_text,
)
from perftop.model.kinds import Episode
from perftop.model.numbers import is_event_key
from perftop.output import stat_lines, stat_text, why_report, why_text
from perftop.output.export.fields import chosen_fields, with_events
from perftop.output.export.json_lines import select_measures
from perftop.output.run_summary import run_line, time_use_lines
from perftop.output.stat_lines import SCREEN_LINES, StatTable
from perftop.process.command_window import CommandStart
from perftop.process.measurement import Measurement
from perftop.process.signals import write_text
from perftop.session.episodes import EpisodeTally
from perftop.session.follow import READ_PAUSE_S
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.verbs import options
from perftop.verbs.headless import Consumer

if TYPE_CHECKING:
    from perftop.process.job import Job


class MeasuredConsumer(Consumer):
    """Follows a stream for a limited time or while a command runs. Drops samples from before the
    measurement."""

    summarises = True
    """Whether the run is summarised. If so, the session keeps the distribution of samples."""

    def __init__(self, job: Job | None, measurement: Measurement) -> None:
        super().__init__()
        self.job, self.hooks_each_sample = job, job is not None
        self.measurement, self.command_window = measurement, measurement.command_window

    @property
    def has_run(self) -> bool:
        """Whether the stream has begun and the command, if any, could be run."""
        window = self.command_window
        was_run = window is None or (window.run is not None and not window.run.failure)
        return self.has_started and was_run

    def on_hello(self, hello: wire.Hello) -> Session:
        self.measurement.admit(hello)
        return Session(hello, summarises=self.summarises)

    def accepts(self, message: wire.Message) -> bool:
        is_needed = self.summarises or self.job is not None
        return not is_needed or self.measurement.admit(message)

    def on_message(self, message: wire.Message) -> bool:
        self.measurement.follow(message)
        self._apply_due_notes()
        return self.measurement.is_over

    def _apply_due_notes(self, *, is_over: bool = False) -> None:
        for note in self.measurement.due_notes(self.session.now_ns, is_over=is_over):
            self.session.apply(note)


class Stat(MeasuredConsumer):
    """One measurement of one machine. Prints each interval at its end, and a summary at the end."""

    out: TextIO

    def __init__(
        self, args: argparse.Namespace, job: Job | None = None, start: CommandStart | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        """`start`: shared by the machines on which one command is measured; None for one machine.
        `name`: name of the machine, printed with its lines; None if it is the only one."""
        interval_ns, _ = options.interval_and_sample(args)
        lines = job is None or args.interval is not None
        super().__init__(job, Measurement(job, start, 0.0 if lines else READ_PAUSE_S))
        self.interval_ns = interval_ns if lines else None
        self.duration_ns, self.count = args.duration, args.count
        self._args, self._name, self._tally = args, name, EpisodeTally()
        self._prefix = f"{name}: " if name else ""
        self._lines = lines
        """Whether intervals are printed; otherwise only the summary is."""
        self._metrics = args.metrics
        self._fields = chosen_fields(self._metrics)
        self._columns: list[str] | None = None
        """Keys of the columns of tables; None: the default ones."""
        if self._metrics is not None:
            keys = [field.key for field in self._fields]
            for key in keys:
                if not stat_lines.is_known_number(key):
                    raise Failed(f"--metrics: {key!r} is only in --json, not in tables", USAGE)
            self._columns = keys + [name for name in self._metrics if is_event_key(name)]

    def on_hello(self, hello: wire.Hello) -> Session:
        session = super().on_hello(options.labelled_hello(self._args, hello))
        self._fields = with_events(session, self._fields, self._metrics)
        if self.job is not None:
            session.run.track_losses()
        elif not self._args.json:
            session.run.track_losses(losses_only=True)
        height = SCREEN_LINES
        if self.out.isatty():
            height = shutil.get_terminal_size((80, SCREEN_LINES)).lines
        brief = self._args.brief
        self._table = StatTable(session, self._columns, brief=brief, height=height)
        if self._args.json:
            self._print_json(stat_lines.hello_line(session))
        elif self._lines:
            self._print(stat_text.heading(session))
        return session

    def on_episode_end(self, episode: Episode) -> None:
        """Counts and prints an episode that has ended, or that is running at the end."""
        self._tally.add(episode, self.session.now_ns)
        if self._args.json:
            self._print_json(stat_lines.episode_line(self.session, episode))
        elif episode.end_ns is not None or not self._lines:  # otherwise, its start has been printed
            self._print_episode(episode)

    def on_episode_start(self, episode: Episode) -> None:
        if self._lines and self._args.json:
            self._print_json(stat_lines.episode_line(self.session, episode, is_start=True))
        elif self._lines:
            self._print_episode(episode)

    def on_warning(self, text: str) -> None:
        write_text(sys.stderr, f"perftop: {self._prefix}{printable(text)}\n")

    def on_interval(self, interval: Interval) -> None:
        if self._args.json:
            line = stat_lines.interval_line(self.session, interval)
            self._print_json(select_measures(line, self._fields))
        else:
            self._print([*self._heading(), *self._table.lines(interval)])

    def on_end(self) -> None:
        if not self.has_run or self.first_ns is None:
            return
        self._apply_due_notes(is_over=True)
        for episode in self.session.running:
            self.on_episode_end(episode)
        line = stat_text.measured_line(self.session, self.measurement, self._tally)
        if self._args.json:
            self._print_json(select_measures(line, self._fields))
            return
        brief = self._args.brief
        lines = stat_text.ending_lines(self.session, self._tally, line, self._columns, brief=brief)
        if self.job is None and self.session.frames > 1:
            lines = ["", why_text.answer(why_report.report(self.session)), *lines]
        if not self._lines and self.job is not None:
            lines += ["", *stat_text.heading(self.session, stat_text.DOCTOR_REASONS)]
        else:
            lines += [] if self._lines else ["", stat_text.heading(self.session)[0]]
            lines += stat_text.missing_lines(self.session)
        self._print([*self._heading(), *lines])

    def _print_episode(self, episode: Episode) -> None:
        self._print([self._prefix + stat_text.episode_line(self.session, episode)])

    def _heading(self) -> list[str]:
        """Returns a heading with the machine's name; no lines if it is the only machine."""
        return [] if self._name is None else ["", f"=== {self._name}"]

    def _print_json(self, line: Line) -> None:
        origin = {} if self._name is None else {"from": self._name}
        self._print([stat_lines.line_text(line | origin)])

    def _print(self, lines: list[str]) -> None:
        unicode = self._args.json or self.out not in {sys.stdout, sys.stderr} or supports_unicode()
        write_text(self.out, "".join(f"{terminal_text(s, unicode=unicode)}\n" for s in lines))


class Why(MeasuredConsumer):
    summarises = False
    out: TextIO

    def __init__(self, args: argparse.Namespace, job: Job | None = None) -> None:
        super().__init__(job, Measurement(job, read_pause_s=READ_PAUSE_S))
        if args.file is None and job is None:
            self.duration_ns = args.duration or options.WHY_DURATION_NS
        self._args = args
        self.status = USAGE
        """Exit status if no command is measured; becomes 0 once there is a report."""

    def on_hello(self, hello: wire.Hello) -> Session:
        session = super().on_hello(hello)
        session.run.track_losses(losses_only=self.job is None)
        if self.duration_ns is not None:
            show_progress(f"watching for {long_duration(self.duration_ns)} …")
        return session

    def on_end(self) -> None:
        if self.duration_ns is not None:
            show_progress("")
        if not self.has_run:
            return
        session = self.session
        if session.frames < 2:
            print_error("fewer than two samples: no answer is possible")
            return
        self.status = 0
        self._apply_due_notes(is_over=True)
        findings = why_report.report(session, is_past=self._args.file is not None)
        if self._args.json:
            lines = [stat_lines.line_text(why_text.why_json(findings, run_line(session)))]
        else:
            colour, unicode = supports_colour(self.out), supports_unicode()
            lines = why_text.lines(findings, colour=colour, unicode=unicode)
            phases = [] if self.job is None else session.run.phases()
            bar = time_use_lines(phases, unicode=unicode, used_s=session.command_run.cpu_s)
            lines[1:1] = ["", *bar] if bar else []
        self.out.write("".join(f"{line}\n" for line in lines))
        self.out.flush()
