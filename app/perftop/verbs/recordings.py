"""`perftop diff A B` shows which numbers of two runs, or of two groups of runs, differ by more than
the noise, and how their machines differ. `perftop export` converts a recording to another
format."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from perftop.base.errors import DAMAGED, USAGE, Failed, failure_to, print_error
from perftop.base.text import duration, supports_colour, supports_unicode
from perftop.session.follow import Follower
from perftop.verbs import options

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.model.kinds import Episode
    from perftop.output.compare.comparison import Comparison
    from perftop.output.compare.readings import Reading
    from perftop.output.export.fields import ExportFormat
    from perftop.session.interval import Interval
    from perftop.session.session import Session

MAX_JSON_BYTES = 256 << 20
COMPARABLE_FILES = "diff reads recordings and --json, such as that of perftop stat --json -o FILE"
DIFF_EPILOG = (
    "A file is a recording, or the output of stat --json, stat -r N --json or summary --json. The "
    "exit status is 0, whether or not there is a difference; 1 if a condition of --fail-if is met "
    "or cannot be decided, or if a file cannot be read; 2 if nothing can be compared; 4 if a file "
    "is damaged or was written by another program."
)
CONDITION_PATTERN = re.compile(r"\s*([^\s<>]+)\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(%|pt)\s*")
CONDITION_MET_STATUS = 1
"""Exit status if a condition of --fail-if is met or cannot be decided."""
UNITS = {"points": "pt", "%": "%"}
"""Unit of a limit, by the unit of the difference that it limits."""


class Condition(NamedTuple):
    """A condition of --fail-if: a limit on the difference B - A of a number."""

    text: str
    key: str
    operator: str
    limit: float
    unit: str


def parse_condition(text: str) -> Condition:
    """Parses a condition such as `cpu_s > 3 %` or `lost_ratio > 2 pt`."""
    match = CONDITION_PATTERN.fullmatch(text)
    if match is None:
        hint = "try 'cpu_s > 3 %' or 'lost_ratio > 2 pt'"
        raise argparse.ArgumentTypeError(f"invalid condition {text!r} ({hint})")
    return Condition(text.strip(), match[1], match[2], float(match[3]), match[4])


def add_diff(subparsers: Any) -> None:
    text = "compare two runs, or two sets of runs"
    parser = options.add_verb(subparsers, "diff", run_diff, text, epilog=DIFF_EPILOG)
    text = "two files, A and B"
    recording: Any = {"type": options.parse_recording, "metavar": "FILE"}
    parser.add_argument("files", nargs="*", help=text, **recording)
    for side in "ab":
        text = f"files with the runs of {side.upper()}"
        parser.add_argument(f"--{side}", nargs="+", default=[], help=text, **recording)
    text = "compare each phase, from mark to mark, with the phase of the same name"
    parser.add_argument("--by", choices=("mark",), metavar="mark", help=text)
    options.add_metrics_options(parser, "compare only these numbers: run_s, busy_hz, ipc …")
    text = (
        "exit with status 1 if B differs from A by more than both this limit and the noise: "
        "'cpu_s > 3 %%', 'ipc < -2 %%'; for shares, in points: 'lost_ratio > 2 pt'; may be repeated"
    )
    condition: Any = {"type": parse_condition, "metavar": "CONDITION"}
    parser.add_argument("--fail-if", action="append", default=[], help=text, **condition)
    options.add_json_options(parser)


def run_diff(args: argparse.Namespace) -> int:
    with options.fast_imports():
        from perftop.model.numbers import is_event_key
        from perftop.output import stat_lines
        from perftop.output.compare import text
        from perftop.output.compare.comparison import compare
        from perftop.output.compare.readings import NUMBERS

    if len(args.files) == 2 and not (args.a or args.b):
        paths: list[list[Path]] = [args.files[:1], args.files[1:]]
    elif args.a and args.b and not args.files:
        paths = [args.a, args.b]
    else:
        hint = "perftop diff A B; for groups: --a FILE … --b FILE …"
        raise Failed(f"diff needs two files: {hint}", USAGE)
    by_mark, metrics = args.by is not None, args.metrics
    conditions: list[Condition] = args.fail_if
    for key in (*(metrics or ()), *(condition.key for condition in conditions)):
        if key not in NUMBERS and not is_event_key(key):
            raise Failed(f"unknown metric {key!r}; known: {', '.join(NUMBERS)}", USAGE)
    damages: list[str] = []
    a, b = (
        _read_side(name, side, damages, by_mark=by_mark)
        for name, side in zip("AB", paths, strict=True)
    )
    pairs = _compared_pairs(a, b, by_mark=by_mark)
    comparisons = [comparison for comparison in compare(pairs, metrics) if comparison.rows]
    if not comparisons:
        number_text = "no number" if metrics is None else f"none of {', '.join(metrics)}"
        raise Failed(f"A and B share {number_text}: record or measure both in the same way", USAGE)
    if args.json:
        files = [str(path) for path in paths[0]], [str(path) for path in paths[1]]
        lines = [stat_lines.line_text(text.diff_json(comparisons, files))]
    else:
        a_title, b_title = (p[0].name if len(p) == 1 else f"{len(p)} files" for p in paths)
        colour, unicode = supports_colour(sys.stdout), supports_unicode()
        lines = text.lines(comparisons, (a_title, b_title), unicode=unicode, colour=colour)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    print_error(*damages)
    outcomes = [
        line for condition in conditions for line in _met_conditions(condition, comparisons)
    ]
    print_error(*outcomes)
    return CONDITION_MET_STATUS if outcomes else DAMAGED if damages else 0


def _met_conditions(condition: Condition, comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a message for each comparison in which the condition is met or cannot be decided."""
    from perftop.output.compare.comparison import ONE_RUN, SMALL

    lines = []
    rows = [(phase, row) for phase in comparisons for row in phase.rows]
    matching_rows = [(phase, row) for phase, row in rows if row.number.key == condition.key]
    if not matching_rows:
        raise Failed(f"--fail-if {condition.text!r}: {condition.key} was not compared", USAGE)
    for phase, row in matching_rows:
        if condition.unit != UNITS[row.unit]:
            raise Failed(f"--fail-if {condition.text!r}: the unit here is {UNITS[row.unit]}", USAGE)
        phase_text = f" in {phase.label}" if phase.label else ""
        difference = (
            f"{condition.key} differs by {100 * row.change:+.1f} {condition.unit}{phase_text}"
        )
        excess = 100 * row.change - condition.limit
        is_beyond_limit = excess > 0 if condition.operator == ">" else excess < 0
        # An interval from blocks of time within one run does not show how much runs vary.
        if row.verdict == ONE_RUN or len(phase.side_a) == len(phase.side_b) == 1:
            reason = "one run per side (measure several runs: stat -r 5)"
            lines.append(f"{condition.text!r} cannot be decided: {reason}")
        elif is_beyond_limit and (row.is_clear or row.verdict == SMALL):
            lines.append(f"{condition.text!r} is met: {difference}")
    return lines


def _read_side(
    name: str, paths: Sequence[Path], damages: list[str], *, by_mark: bool
) -> list[Reading]:
    """Returns the successful runs in the files of A or B, and prints how many others were left out.
    Raises Failed if there are none: the time until a failure is not the time of the work."""
    readings = [
        replace(reading, file=index)
        for index, path in enumerate(paths)
        for reading in _read_lines(path, damages, by_mark=by_mark)
    ]
    successful = [reading for reading in readings if reading.status == 0]
    count = len(readings) - len(successful)
    if count and not successful:
        failed = "its only run" if count == 1 else f"all {count} runs"
        text = f"{name} failed in {failed} (exit status {readings[0].status})"
        raise Failed(f"{text}: nothing was compared", USAGE)
    if count:
        failed = f"{count} of {len(readings)} runs of {name} failed"
        print_error(f"{failed} and {'is' if count == 1 else 'are'} not counted")
    return successful


def _compared_pairs(
    a: Sequence[Reading], b: Sequence[Reading], *, by_mark: bool
) -> list[tuple[str, list[Reading], list[Reading]]]:
    """Returns the label, the readings of A and the readings of B of each comparison. With
    `by_mark`, phases of one label are compared, else whole runs."""
    pairs = []
    labels = [*dict.fromkeys(reading.label for reading in a if reading.label)]
    for label in labels if by_mark else [""]:
        readings_a, readings_b = (
            [reading for reading in side if reading.label == label] for side in (a, b)
        )
        if readings_a and readings_b:
            pairs.append((label, readings_a, readings_b))
    if not pairs and by_mark:
        raise Failed("A and B have no mark in common: leave out --by mark", USAGE)
    if not pairs:
        raise Failed("one side has no run, only phases: add --by mark", USAGE)
    return pairs


def _read_lines(path: Path, damages: list[str], *, by_mark: bool) -> list[Reading]:
    """Returns the runs or phases in a file of JSON lines or a recording. Adds a text to `damages`
    if the file is damaged."""
    from perftop.output.compare.readings import ForeignFileError, parse_json_lines

    if path == Path("-"):
        raise Failed("diff cannot read stdin: save the recording to a file and name it", USAGE)
    if path.is_dir():
        return _recorded_readings(path, damages, by_mark=by_mark)
    try:
        with path.open("rb") as file:
            content = file.read(1)
            if content == b"{":
                content += file.read(MAX_JSON_BYTES)
    except OSError as error:
        hint = "for groups: --a FILE … --b FILE …" if "," in str(path) else "nothing was compared"
        raise Failed(f"{failure_to(f'read {path}', error)}; {hint}") from None
    if not content.startswith(b"{"):
        if content and path.is_fifo():
            raise Failed(f"{path} is a pipe: from a pipe, only JSON can be compared", USAGE)
        return _recorded_readings(path, damages, by_mark=by_mark)
    try:
        readings, damage = parse_json_lines(content.decode("utf-8", "replace").splitlines())
    except ForeignFileError as foreign:
        raise Failed(f"{path} cannot be compared: {foreign}; {COMPARABLE_FILES}", DAMAGED) from None
    damages += [] if damage is None else [f"{path}: {damage}"]
    return readings


def _recorded_readings(path: Path, damages: list[str], *, by_mark: bool) -> list[Reading]:
    from perftop.output.compare.readings import RecordingReader
    from perftop.recording.file import BEING_WRITTEN_NOTICE, damage_suffix, open_source
    from perftop.verbs.headless import read_with_progress

    try:
        opened_source = open_source(path)
    except Failed as failed:  # for example, FILE is the text output of `stat -o FILE`
        raise Failed(f"{failed}; {COMPARABLE_FILES}", failed.status) from None
    with opened_source as source:
        recorded = RecordingReader(by_mark=by_mark)
        with read_with_progress(source, path) as messages:
            recorded.process(chain([source.hello], messages))
        recorded.on_end()
    readings = recorded.readings
    if not readings:
        missing_part = "no mark with a sample after it" if by_mark else "fewer than two samples"
        damage = damage_suffix(source)
        text = f"{path} has {missing_part}{damage}; nothing was compared"
        raise Failed(text, DAMAGED if damage else USAGE)
    if source.is_growing:
        print_error(f"{path}: {BEING_WRITTEN_NOTICE}")
    damages += [] if source.damage is None else [f"{path}: {source.damage}"]
    return readings


# --- `perftop export`: converts a recording to another format

DEFAULT_EVERY_NS = 1_000_000_000
"""Length of an exported interval in ns if neither --every nor the recording sets it."""
FORMATS = ("csv", "jsonl", "parquet", "openmetrics")
TABLE_FORMATS = ("csv", "parquet")
FORMATS_BY_SUFFIX = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
           ".parquet": "parquet", ".om": "openmetrics", ".prom": "openmetrics"}  # fmt: skip


def add_export(subparsers: Any) -> None:
    text = "convert a recording to CSV, JSON lines, Parquet or OpenMetrics"
    parser = options.add_verb(subparsers, "export", run_export, text)
    text = "a recording, or - for stdin"
    parser.add_argument("file", type=options.parse_recording, metavar="FILE", help=text)
    text = "write to OUT (default: -, which is stdout)"
    parser.add_argument(
        "-o", "--output", type=options.parse_file_path, metavar="OUT", default="-", help=text
    )
    options.add_force_options(parser)
    text = "format of the output (default: by the extension of OUT, else csv)"
    parser.add_argument("--format", choices=FORMATS, help=text)
    options.add_metrics_options(parser)
    text = "export only these CPUs: 0-15,32 | pkg0 | core3 | pkg1core3 | type:P"
    parser.add_argument("-c", "--cpus", metavar="LIST", help=text)
    text = "time that each row covers (default: -i of record, else 1s)"
    parser.add_argument("--every", type=options.parse_duration_ns, metavar="TIME", help=text)


def run_export(args: argparse.Namespace) -> int:
    with options.fast_imports():
        from perftop.base import files
        from perftop.output.export.fields import chosen_fields, with_events
        from perftop.recording.file import STDIN, UNCHECKED_NOTICE, open_source, report_damage
        from perftop.verbs.headless import STDOUT, read_with_progress

    path, name = args.file, "stdin" if args.file == STDIN else args.file
    output: Path | None = None if args.output == STDOUT else args.output
    format_name = args.format or FORMATS_BY_SUFFIX.get(args.output.suffix.lower(), "csv")
    fields = chosen_fields(args.metrics)
    create_format = _format_class(format_name)
    with open_source(path) as source:
        export = Export(_interval_length_ns(args.every, source.hello), args.cpus, format_name)
        export.process([source.hello])
        session = export.session
        file_status: os.stat_result | None = None
        try:
            with _export_output(path, output, format_name, force=args.force) as output_file:
                file_status = None if output is None else os.fstat(output_file.fileno())
                fields = with_events(session, fields, args.metrics)
                export.export_format = create_format(session, fields, output_file)
                try:
                    is_quiet = output is None and sys.stdout.isatty()
                    with read_with_progress(source, name, quiet=is_quiet) as messages:
                        export.read(messages, output_file, live=source.size is None)
                except BaseException:
                    export.export_format.discard()
                    raise
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, SystemExit):  # interrupted by a signal
            if output and file_status:
                files.remove(output, file_status)
            raise
        except OSError as error:
            text = f"cannot write all of {output or 'stdout'}: {error.strerror or error}"
            text += "; it is incomplete"
            raise Failed(text) from None
    if not source.checked:
        print_error(f"{name}: {UNCHECKED_NOTICE}")
    return report_damage(name, source)


def _format_class(name: str) -> Callable[..., ExportFormat]:
    """Imports one of FORMATS. Raises Failed if it needs a module that is not installed."""
    if name == "jsonl":
        from perftop.output.export.json_lines import JsonLines

        return JsonLines
    if name == "openmetrics":
        from perftop.output.export.openmetrics import OpenMetrics

        return OpenMetrics
    from perftop.output.export.tables import CsvTable, Parquet, pyarrow

    if name == "csv":
        return CsvTable
    pyarrow()
    return Parquet


class Export(Follower):
    """Writes the intervals and episodes of a recording in an export format. The intervals are those
    that `stat` prints."""

    export_format: ExportFormat

    def __init__(self, every_ns: int, cpus: str | None, format_name: str) -> None:
        """`cpus`: the argument of -c; None: all CPUs. Episodes on other CPUs only are not
        written."""
        from perftop.session.episodes import EpisodeTally

        super().__init__(every_ns)
        self._cpu_text = cpus
        self._summarises = format_name == "jsonl"
        """Whether the session computes percentiles, for the summary."""
        self._kinds = () if format_name in TABLE_FORMATS else None
        self._cpus: frozenset[int] | None = None
        self._tally = EpisodeTally()

    def read(self, messages: Iterator[wire.Message], output: BinaryIO, *, live: bool) -> None:
        """Reads all messages after the hello. `live`: writes intervals as soon as they are
        complete."""
        from perftop.session.session import max_batch

        count = 1 if live else max_batch(self.session.hello)
        while batch := list(islice(messages, count)):
            intervals = self.intervals
            self.process(batch)
            if self.intervals > intervals:
                self.export_format.flush()
                output.flush()  # for the reader of a pipe
        self.on_end()
        output.flush()

    def on_hello(self, hello: wire.Hello) -> Session:
        from perftop.session.session import Session

        session = Session(hello, summarises=self._summarises, kinds=self._kinds)
        if self._cpu_text is not None:
            cpus = selected_cpus(session, self._cpu_text)
            self._cpus = frozenset(cpus)
            hello = replace(hello, selected=cpus)
            session = Session(hello, summarises=self._summarises, kinds=self._kinds)
        return session

    def on_episode_end(self, episode: Episode) -> None:
        """Writes an episode that has ended, or that is running at the end of the file."""
        if self._is_chosen(episode):
            self._tally.add(episode, self.session.now_ns)
            self.export_format.write_episode(episode)

    def on_episode_start(self, episode: Episode) -> None:
        if self._is_chosen(episode):
            self.export_format.write_episode_start(episode)

    def on_interval(self, interval: Interval) -> None:
        self.export_format.write_interval(interval)

    def on_message(self, message: wire.Message) -> bool:
        self.export_format.read_message(message)
        return False

    def on_end(self) -> None:
        """Writes the last, shorter interval, the running episodes, the summary and the end of the
        file."""
        if self.first_ns is not None:
            self.cut_interval()
            for episode in self.session.running:
                self.on_episode_end(episode)
            self.export_format.write_summary(self._tally.counts_by_cause)
        self.export_format.finish()

    def _is_chosen(self, episode: Episode) -> bool:
        cpus = self._cpus
        return cpus is None or not episode.cpus or not cpus.isdisjoint(episode.cpus)


def _interval_length_ns(requested_ns: int | None, hello: wire.Hello) -> int:
    """Returns the length of an exported interval in ns; by default, that of the recording. Raises
    Failed if it is not a whole number of samples."""
    sample_ns = hello.sample_ns
    if requested_ns is None:
        length_ns = hello.interval_ns or DEFAULT_EVERY_NS
        return -(-max(length_ns, sample_ns) // sample_ns) * sample_ns
    steps = requested_ns / sample_ns
    if requested_ns < sample_ns or abs(steps - round(steps)) > 1e-6:
        sample = duration(sample_ns / 1e9)
        raise Failed(f"--every must be a multiple of the recording's samples of {sample}", USAGE)
    return requested_ns


def _export_output(
    source: Path, output: Path | None, export_format: str, *, force: bool
) -> contextlib.AbstractContextManager[BinaryIO]:
    from perftop.base import files
    from perftop.recording.file import check_output_path

    if output is None:
        if export_format == "parquet" and sys.stdout.isatty():
            raise Failed("parquet cannot be written to a terminal: use -o FILE", USAGE)
        return contextlib.nullcontext(sys.stdout.buffer)
    check_output_path(source, output)
    return files.create(output, force=force)


# --- the CPUs selected by -c/--cpus

_PACKAGE_AND_CORE = re.compile(r"(?:pkg([0-9]{1,9}))?(?:core([0-9]{1,9}))?")
_CPU_TERM = re.compile(r"[0-9]+(-[0-9]+)?|type:\S+")


def selected_cpus(session: Session, text: str) -> list[int]:
    """Returns the numbers of the CPUs of the recording that `text` selects, in ascending order.
    Raises Failed for invalid terms and for terms that select none."""
    from perftop.session import selection

    selectable, selected = set(session.selected), set[int]()
    for term in map(str.strip, text.split(",")):
        match = _PACKAGE_AND_CORE.fullmatch(term.lower())
        if term and match:
            parts = zip(("pkg", "core"), match.groups(), strict=True)
            words = " ".join(f"{name}:{number}" for name, number in parts if number)
        elif _CPU_TERM.fullmatch(term):
            words = term
        else:
            hint = "try 0-15, 32, pkg0, core3, pkg1core3, type:P"
            raise Failed(f"--cpus: invalid CPUs {term!r} ({hint})", USAGE)
        try:
            choice = selection.parse_filter(words)
        except selection.FilterError as error:
            raise Failed(f"--cpus: {error}", USAGE) from None
        assert choice is not None
        positions = selectable & set(choice.cpus(session, None).nonzero()[0].tolist())
        if not positions:
            raise Failed(f"--cpus: the recording has no CPU {term!r}", USAGE)
        selected |= positions
    return sorted(session.topology[position].cpu for position in selected)
