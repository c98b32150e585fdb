"""`perftop why`: reports the causes that cost most time, with evidence, in about a dozen lines."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from perftop.base.errors import USAGE, Failed, print_error
from perftop.base.importing import fast_imports
from perftop.base.text import colours, long_duration, utf8
from perftop.verbs import headless, options
from perftop.verbs.headless import MeasuredWork, destination, run_work

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.process.job import Job
    from perftop.session.session import Session

DEFAULT_NS = 10_000_000_000
"""Default duration in ns of a measurement without a command."""
EPILOG = (
    "-- CMD [ARG …] runs a command and shows what it lost, on stderr; the exit status is the "
    "command's. Without a command it is 0, also if nothing was found."
)


def add(verbs: Any) -> None:
    text = "what costs most time here, with evidence"
    parser = options.add_verb(verbs, "why", run, text, stream=True, epilog=EPILOG)
    text = "a recording, or - for stdin"
    parser.add_argument("file", nargs="?", type=options.recording, metavar="FILE", help=text)
    options.add_duration(parser, "how long to look (default: 10s)")
    options.add_json(parser, "one JSON object")
    options.add_output(parser)
    parser.set_defaults(runs=True)


def run(args: argparse.Namespace) -> int:
    if args.file is not None:
        return _run_on_file(args)
    _, sample_ns = options.interval_and_sample(args)
    with options.held_job(args) as job:
        from perftop.process import launch

        duration_ns = args.duration or DEFAULT_NS
        batch_ns = launch.longest_batch_ns(sample_ns, options.STAT_INTERVAL_NS, duration_ns)
        argv = options.stream_command(args, sample_ns, batch_ns, job)
        with fast_imports():
            from perftop.process.signals import run_loop

            work = Why(args, job)
        status = 0
        with destination(args, lambda: work.status) as work.out:
            status = run_loop(run_work, work, argv)
        return status or work.status


def _run_on_file(args: argparse.Namespace) -> int:
    if args.command is not None:
        raise Failed("a recording or a command, not both", USAGE)
    with fast_imports():
        from perftop.recording.file import open_source, report_damage
    path: Path = args.file
    work = Why(args)
    with destination(args) as work.out:
        try:
            with open_source(None if str(path) == "-" else path) as source:
                work.take([source.hello])
                with headless.read_with_progress(source, path) as messages:
                    work.take(messages)
        except Failed as failed:
            raise Failed(f"{failed}{_hint(path)}", failed.status) from None
        work.on_end()
    return report_damage(path, source) or (0 if work.has_reported else USAGE)


def _hint(path: Path) -> str:
    """Returns a hint if an argument that is no recording can be a command or a duration; else
    ''."""
    program = f"./{path}" if path.exists() and not path.is_absolute() else str(path)
    if shutil.which(program):
        return f"; to measure a command: perftop why -- {program}"
    with contextlib.suppress(argparse.ArgumentTypeError):
        options.span_ns("" if path.exists() else str(path))
        return f"; how long to look: --duration {path}"
    return ""


class Why(MeasuredWork):
    """Follows a stream and prints the report at its end."""

    out: TextIO

    def __init__(self, args: argparse.Namespace, job: Job | None = None) -> None:
        from perftop.process.streams import READ_PAUSE_S

        is_timed = args.file is None and job is None
        duration_ns = (args.duration or DEFAULT_NS) if is_timed else None
        super().__init__(None, job, rest_s=READ_PAUSE_S, duration_ns=duration_ns)
        self._args = args
        self.has_reported = False
        """Whether there was enough to report."""
        self._shows_wait = is_timed and sys.stderr is not None and sys.stderr.isatty()

    def on_hello(self, hello: wire.Hello) -> Session:
        session = super().on_hello(hello)
        session.start_accounts(-1 if self.job is None else self.job.pid)
        if self._shows_wait and self.duration_ns is not None:
            text = f"watching for {long_duration(self.duration_ns)} …\r"
            print(text, end="", file=sys.stderr, flush=True)
        return session

    def on_end(self) -> None:
        from perftop.output import stat_lines, why_text
        from perftop.output.run_summary import run_line
        from perftop.output.why_report import report

        if self._shows_wait:
            print("\x1b[K", end="", file=sys.stderr, flush=True)
        if not self.is_measured:
            return
        session, job, first_ns = self.session, self.job, self.measurement.first_ns
        if first_ns is None or session.frames < 2:
            print_error("fewer than two samples: no answer is possible")
            return
        self.has_reported = True
        is_own_job = job is not None and session.neighbours.watched_job.name == str(job.pid)
        name = None if job is None or not is_own_job else Path(job.argv[0]).name
        findings = report(session, first_ns, name, past=self._args.file is not None)
        if self._args.json:
            run = None if self.bracket is None else run_line(session, self.bracket)
            lines = [stat_lines.line_text(why_text.why_json(session, findings, run))]
        else:
            lines = why_text.lines(session, findings, colour=colours(self.out), unicode=utf8())
        self.out.write("".join(f"{line}\n" for line in lines))
        self.out.flush()
