"""`perftop diff A B`: shows which numbers of two runs, or of two groups of runs, differ by more
than the noise, and how their machines differ."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perftop.base.errors import DAMAGED, USAGE, Failed, cannot, print_error
from perftop.base.text import colours, utf8
from perftop.verbs import headless, options
from perftop.verbs.options import fast_imports

if TYPE_CHECKING:
    from perftop.output.compare.comparison import Comparison
    from perftop.output.compare.readings import Reading

MAX_BYTES = 256 << 20
"""Maximum bytes that are read from a JSON file."""
EPILOG = (
    "A file is a recording, or what stat --json, stat -r N --json or summary --json has written. "
    "The exit status is 0, with and without a difference; 1 if a condition of --fail-if is met, or "
    "cannot be decided."
)
CONDITION_PATTERN = re.compile(r"\s*([^\s<>]+)\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(%|pt)\s*")
CONDITION_MET_STATUS = 1
"""Exit status if a condition of --fail-if is met or cannot be decided."""
UNITS = {"points": "pt", "%": "%"}
"""Units of a limit, by unit of the difference of a row."""


class Condition(NamedTuple):
    """A limit on the difference B - A of a number."""

    text: str
    key: str
    sign: str
    limit: float
    """In the unit of the limit."""
    unit: str


def condition(text: str) -> Condition:
    """Parses a condition such as `cpu_s > 3 %` or `lost_ratio > 2 pt`."""
    match = CONDITION_PATTERN.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"invalid condition {text!r} (try 'cpu_s > 3 %' or 'lost_ratio > 2 pt')"
        )
    return Condition(text.strip(), match[1], match[2], float(match[3]), match[4])


def add(verbs: Any) -> None:
    text = "compare two runs, or two groups of runs"
    parser = options.add_verb(verbs, "diff", run, text, epilog=EPILOG)
    text = "two files, A and B"
    parser.add_argument("files", nargs="*", type=options.recording, metavar="FILE", help=text)
    for which in "ab":
        text = f"the runs of {which.upper()}, if there are several"
        parser.add_argument(
            f"--{which}", nargs="+", type=options.recording, default=[], metavar="FILE", help=text
        )
    text = "compare phases from mark to mark, by their labels"
    parser.add_argument("--by", choices=("mark",), help=text)
    text = "only these: run_s, busy_hz, ipc …"
    parser.add_argument("--metrics", metavar="A,B", help=text)
    parser.add_argument(
        "--fail-if", action="append", default=[], type=condition, metavar="CONDITION",
        help="exit with 1 if B differs from A by more than this, and by more than the noise: "
        "'cpu_s > 3 %%', 'ipc < -2 %%', for shares points: 'lost_ratio > 2 pt'; may be repeated",
    )  # fmt: skip
    options.add_json(parser, "one JSON object")


def run(args: argparse.Namespace) -> int:
    with fast_imports():
        from perftop.output import stat_lines
        from perftop.output.compare import text
        from perftop.output.compare.comparison import compare
        from perftop.output.compare.readings import NUMBERS, is_event_key

    if len(args.files) == 2 and not (args.a or args.b):
        paths: list[list[Path]] = [args.files[:1], args.files[1:]]
    elif args.a and args.b and not args.files:
        paths = [args.a, args.b]
    else:
        raise Failed("two files, or groups of them: perftop diff A B; --a FILE … --b FILE …", USAGE)
    by_mark, metrics = args.by is not None, options.split_names(args.metrics)
    conditions: list[Condition] = args.fail_if
    for key in (*(metrics or ()), *(asked.key for asked in conditions)):
        if key not in NUMBERS and not is_event_key(key):
            raise Failed(f"unknown number {key!r}; numbers: {', '.join(NUMBERS)}", USAGE)
    damages: list[str] = []
    a, b = (
        [replace(reading, file=index) for index, path in enumerate(which)
         for reading in _read_lines(path, damages, by_mark=by_mark)]
        for which in paths
    )  # fmt: skip
    a, b = _successful_readings("A", a), _successful_readings("B", b)
    pairs = _pairs(a, b, by_mark=by_mark)
    compared = [comparison for comparison in compare(pairs, metrics) if comparison.rows]
    if not compared:
        number_text = "no number" if metrics is None else f"none of {', '.join(metrics)}"
        raise Failed(f"A and B share {number_text}: record or measure both in the same way", USAGE)
    if args.json:
        files = [str(path) for path in paths[0]], [str(path) for path in paths[1]]
        lines = [stat_lines.line_text(text.diff_json(compared, files))]
    else:
        a_title, b_title = (p[0].name if len(p) == 1 else f"{len(p)} files" for p in paths)
        colour = colours(sys.stdout)
        lines = text.lines(compared, (a_title, b_title), unicode=utf8(), colour=colour)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    print_error(*damages)
    outcomes = [line for asked in conditions for line in _outcomes(asked, compared)]
    print_error(*outcomes)
    return CONDITION_MET_STATUS if outcomes else DAMAGED if damages else 0


def _outcomes(asked: Condition, compared: Sequence[Comparison]) -> list[str]:
    """Returns a line for each phase in which the condition is met or cannot be decided."""
    from perftop.output.compare.comparison import ALONE, UNSTEADY

    lines = []
    rows = [(phase.label, row) for phase in compared for row in phase.rows]
    matching_rows = [(label, row) for label, row in rows if row.number.key == asked.key]
    if not matching_rows:
        raise Failed(f"--fail-if {asked.text!r}: {asked.key} was not compared", USAGE)
    for label, row in matching_rows:
        if asked.unit != UNITS[row.unit]:
            raise Failed(f"--fail-if {asked.text!r}: the unit here is {UNITS[row.unit]}", USAGE)
        place = f" in {label}" if label else ""
        difference = f"{asked.key} differs by {100 * row.change:+.1f} {asked.unit}{place}"
        beyond = (100 * row.change - asked.limit) * (1 if asked.sign == ">" else -1) > 0
        if row.verdict in {ALONE, UNSTEADY}:
            reason = "one run a side" if row.verdict == ALONE else "it changes too slowly"
            hint = "measure several runs: stat -r 5"
            lines.append(f"{asked.text!r} cannot be decided: {reason} ({hint})")
        elif beyond and row.is_sure:
            lines.append(f"{asked.text!r} is met: {difference}")
    return lines


def _successful_readings(name: str, readings: list[Reading]) -> list[Reading]:
    """Returns the runs of a side that did not fail, and reports how many did. Raises Failed if all
    failed, because the time until a failure is not the time of the work."""
    succeeded = [reading for reading in readings if reading.status == 0]
    count = len(readings) - len(succeeded)
    if count and not succeeded:
        failed = "its only run" if count == 1 else f"all {count} runs"
        text = f"{name} failed in {failed} (exit status {readings[0].status})"
        raise Failed(f"{text}: nothing was compared", USAGE)
    if count:
        failed = f"{count} of {len(readings)} runs of {name} failed"
        print_error(f"{failed} and {'is' if count == 1 else 'are'} not counted")
    return succeeded


def _pairs(
    a: Sequence[Reading], b: Sequence[Reading], *, by_mark: bool
) -> list[tuple[str, list[Reading], list[Reading]]]:
    """Returns label and both sides of each comparison. Phases with the same label are compared."""
    pairs = []
    labels = [*dict.fromkeys(reading.label for reading in a if reading.label)]
    for label in labels if by_mark else [""]:
        of_a, of_b = ([reading for reading in side if reading.label == label] for side in (a, b))
        if of_a and of_b:
            pairs.append((label, of_a, of_b))
    if not pairs and by_mark:
        raise Failed("A and B have no mark of the same name: leave out --by mark", USAGE)
    if not pairs:
        raise Failed("one side has no run, only phases: add --by mark", USAGE)
    return pairs


def _read_lines(path: Path, damages: list[str], *, by_mark: bool) -> list[Reading]:
    """Returns the runs or phases of a file. If the file is damaged, a description is added to
    `damages`."""
    from perftop.output.compare.readings import ForeignFile, from_lines

    try:
        with path.open("rb") as file:
            content = file.read(1)
            if content == b"{":
                content += file.read(MAX_BYTES)
    except OSError as error:
        raise Failed(f"{cannot(f'read {path}', error)}; nothing was compared") from None
    if not content.startswith(b"{"):
        if content and not path.is_file():
            raise Failed(f"{path} is a pipe: only JSON can be compared from one", USAGE)
        return _recorded_readings(path, damages, by_mark=by_mark)
    try:
        readings, why = from_lines(content.decode("utf-8", "replace").splitlines())
    except ForeignFile as foreign:
        writers = "stat --json, stat -r N --json or summary --json"
        text = f"{path} cannot be compared: {foreign}; perftop diff reads recordings and {writers}"
        raise Failed(text, DAMAGED) from None
    damages += [] if why is None else [f"{path}: {why}"]
    return readings


def _recorded_readings(path: Path, damages: list[str], *, by_mark: bool) -> list[Reading]:
    from perftop.output.compare.readings import RecordingReader
    from perftop.recording.file import STILL_WRITTEN_NOTICE, open_source

    with open_source(path) as source:
        recorded = RecordingReader(by_mark=by_mark)
        with headless.read_with_progress(source, path) as messages:
            recorded.take(chain([source.hello], messages))
        recorded.on_end()
    readings = recorded.readings
    if not readings:
        missing_part = "mark with a sample after it" if by_mark else "two samples"
        damage = f": {source.damage}" if source.damage else ""
        text = f"{path} has no {missing_part}{damage}; nothing was compared"
        raise Failed(text, DAMAGED if damage else USAGE)
    if source.is_growing:
        print_error(f"{path}: {STILL_WRITTEN_NOTICE}")
    damages += [] if source.damage is None else [f"{path}: {source.damage}"]
    return readings
