"""`perftop export`: converts a recording to another format."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from perftop.base.errors import USAGE, Failed, print_error
from perftop.base.text import duration
from perftop.session.follow import Follower
from perftop.verbs import headless, options
from perftop.verbs.options import fast_imports

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.model.kinds import Episode
    from perftop.output.export.forms import ExportFormat
    from perftop.session.interval import Interval
    from perftop.session.session import Session

DEFAULT_EVERY_NS = 1_000_000_000
"""Length of an interval in ns if neither --every nor the recording sets one."""
FORMS = ("csv", "jsonl", "parquet", "openmetrics")
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
           ".parquet": "parquet", ".om": "openmetrics", ".prom": "openmetrics"}  # fmt: skip


def add(verbs: Any) -> None:
    text = "a recording as CSV, JSON lines, Parquet, OpenMetrics"
    parser = options.add_verb(verbs, "export", run, text)
    text = "a recording, or - for stdin"
    parser.add_argument("file", type=options.recording, metavar="FILE", help=text)
    text = "write to this file; - is stdout (default)"
    parser.add_argument("-o", "--output", metavar="OUT", default="-", help=text)
    options.add_force(parser)
    text = "form of the output (default: by the ending of OUT, else csv)"
    parser.add_argument("--format", choices=FORMS, help=text)
    parser.add_argument("--metrics", metavar="A,B", help=options.METRICS)
    text = "only these CPUs: 0-15,32 | pkg0 | core3 | pkg1core3 | type:P"
    parser.add_argument("-c", "--cpus", metavar="LIST", help=text)
    text = "time that a line covers (default: -i of the recording, else 1s)"
    parser.add_argument("--every", type=options.span_ns, metavar="TIME", help=text)


def run(args: argparse.Namespace) -> int:
    with fast_imports():
        from perftop.base import files
        from perftop.output.export.fields import chosen_fields, with_events
        from perftop.output.export.forms import Delimited, JsonLines, Parquet, pyarrow
        from perftop.output.export.openmetrics import OpenMetrics
        from perftop.recording.file import UNCHECKED_NOTICE, open_source, report_damage

    forms: dict[str, Callable[..., ExportFormat]] = dict(
        zip(FORMS, (Delimited, JsonLines, Parquet, OpenMetrics), strict=True)
    )
    path = None if str(args.file) == "-" else args.file
    output = None if args.output == "-" else Path(args.output)
    form_name = args.format or ENDINGS.get(Path(args.output).suffix.lower(), "csv")
    metrics = options.split_names(args.metrics)
    fields = chosen_fields(metrics)
    if form_name == "parquet":
        pyarrow()
    with open_source(path) as source:
        summarises = form_name == "jsonl"
        export = Export(_every_ns(args.every, source.hello), args.cpus, summarises=summarises)
        export.take([source.hello])
        session = export.session
        file_status: os.stat_result | None = None
        try:
            with _target(path, output, form_name, force=args.force) as output_file:
                file_status = None if output is None else os.fstat(output_file.fileno())
                fields = with_events(session, fields, metrics)
                export.form = forms[form_name](session, fields, output_file)
                try:
                    quiet, name = output is None and sys.stdout.isatty(), path or "stdin"
                    with headless.read_with_progress(source, name, quiet=quiet) as messages:
                        export.read(messages, output_file, live=source.size is None)
                except BaseException:
                    export.form.drop()
                    raise
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, SystemExit):  # a signal
            if output and file_status and stat.S_ISREG(file_status.st_mode):
                files.remove(output, file_status)
            raise
        except OSError as error:
            name, reason = output or "stdout", error.strerror or error
            text = f"cannot write all of {name}: {reason}; it has only the beginning"
            raise Failed(text) from None
    if not source.checked:
        print_error(f"{path or 'stdin'}: {UNCHECKED_NOTICE}")
    return report_damage(path or "stdin", source)


class Export(Follower):
    """Writes the intervals and episodes of a recording in an export format. Intervals have the same
    boundaries as those of `stat`."""

    form: ExportFormat

    def __init__(self, every_ns: int, cpus: str | None, *, summarises: bool) -> None:
        """`cpus`: the selected CPUs, as typed; None for all. Only episodes on these CPUs, or on no
        CPU, are written. `summarises`: the format has a summary, for which samples are kept."""
        from perftop.session.episodes import Tally

        super().__init__(every_ns)
        self._asked_cpus, self._summarises = cpus, summarises
        self._cpus: frozenset[int] | None = None
        self._tally = Tally()

    def read(self, messages: Iterator[wire.Message], output: BinaryIO, *, live: bool) -> None:
        """Reads all messages after the hello. `live`: each is written as soon as it arrives."""
        from perftop.session.session import MAX_BATCH

        while batch := list(islice(messages, 1 if live else MAX_BATCH)):
            intervals = self.intervals
            self.take(batch)
            if self.intervals > intervals:
                output.flush()  # the reader of a pipe gets each line immediately
        self.on_end()
        output.flush()

    def on_hello(self, hello: wire.Hello) -> Session:
        from dataclasses import replace

        from perftop.output.export.forms import RecordedCommand
        from perftop.session.session import Session

        session = Session(hello, summarises=self._summarises)
        if self._asked_cpus is not None:
            cpus = selected_cpus(session, self._asked_cpus)
            self._cpus = frozenset(cpus)
            session = Session(replace(hello, selected=cpus), summarises=self._summarises)
        self._command = RecordedCommand(session)
        return session

    def on_episode(self, episode: Episode) -> None:
        """Writes an episode. It is also called at the end, for episodes that are still running."""
        if self._is_chosen(episode):
            self._tally.add(episode, self.session.now_ns)
            self.form.episode(episode)

    def on_beginning(self, episode: Episode) -> None:
        if self._is_chosen(episode):
            self.form.beginning(episode)

    def on_interval(self, interval: Interval) -> None:
        self.form.interval(interval)

    def on_message(self, message: wire.Message) -> bool:
        from perfprobe import wire

        self._command.take(message)
        if isinstance(message, wire.Note) and message.kind == "mark":
            self.form.mark(self.session.marks[-1])
        return False

    def on_end(self) -> None:
        """Writes the rest of the last interval, the running episodes, the summary and the end of
        the file."""
        if self.first_ns is not None:
            self.cut_interval()
            for episode in self.session.running:
                self.on_episode(episode)
            elapsed_s = (self.session.now_ns - self.first_ns) / 1e9
            self.form.summary(self._tally.counts_by_cause, elapsed_s, self._command)
        self.form.finish()

    def _is_chosen(self, episode: Episode) -> bool:
        cpus = self._cpus
        return cpus is None or not episode.cpus or not cpus.isdisjoint(episode.cpus)


def _every_ns(asked_ns: int | None, hello: wire.Hello) -> int:
    """Returns the length of an exported interval in ns, a whole number of samples. The default is
    the interval of the recording. Raises Failed if the requested length is not a whole number of
    samples."""
    sample_ns = hello.sample_ns
    if asked_ns is None:
        length_ns = hello.interval_ns or DEFAULT_EVERY_NS
        return -(-max(length_ns, sample_ns) // sample_ns) * sample_ns
    steps = asked_ns / sample_ns
    if asked_ns < sample_ns or abs(steps - round(steps)) > 1e-6:
        sample = duration(sample_ns / 1e9)
        raise Failed(f"--every must be a multiple of the recording's samples of {sample}", USAGE)
    return asked_ns


def _target(
    source: Path | None, output: Path | None, form: str, *, force: bool
) -> contextlib.AbstractContextManager[BinaryIO]:
    from perftop.base import files
    from perftop.recording.file import is_same_file

    if output is None:
        if form == "parquet" and sys.stdout.isatty():
            raise Failed("parquet cannot be written to a terminal: use -o FILE", USAGE)
        return contextlib.nullcontext(sys.stdout.buffer)
    if is_same_file(source, output):
        raise Failed(f"{output} is the input: it cannot be the output as well", USAGE)
    return files.create(output, force=force)


# --- the CPUs selected by -c/--cpus

_PLACE = re.compile(r"(?:pkg([0-9]{1,9}))?(?:core([0-9]{1,9}))?")
_CPU_TERM = re.compile(r"[0-9]+(-[0-9]+)?|type:\S+")


def selected_cpus(session: Session, text: str) -> list[int]:
    """Returns the numbers of the CPUs that `text` names, in ascending order, among those selected
    for the recording. Each term has the syntax of the screen's filter. Raises Failed."""
    from perftop.session import selection

    shown, selected = set(session.shown), set[int]()
    for term in map(str.strip, text.split(",")):
        place = _PLACE.fullmatch(term.lower())
        if term and place:
            parts = zip(("pkg", "core"), place.groups(), strict=True)
            words = " ".join(f"{name}:{number}" for name, number in parts if number)
        elif _CPU_TERM.fullmatch(term):
            words = term
        else:
            hint = "try 0-15, 32, pkg0, core3, pkg1core3, type:P"
            raise Failed(f"--cpus: invalid CPUs {term!r} ({hint})", USAGE)
        try:
            choice = selection.parse(words)
        except selection.FilterError as error:
            raise Failed(f"--cpus: {error}", USAGE) from None
        assert choice is not None
        positions = shown & set(choice.cpus(session, None).nonzero()[0].tolist())
        if not positions:
            raise Failed(f"--cpus: the recording has no CPU {term!r}", USAGE)
        selected |= positions
    return sorted(session.topology[position].cpu for position in selected)
