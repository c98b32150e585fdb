"""`perftop export`: converts a recording to another format, and shows its progress."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self, TextIO

from perfprobe import wire
from perfprobe.frozen import frozen, replace
from perftop.base import files as new_file
from perftop.base.errors import USAGE, Failed, complain
from perftop.base.format import duration
from perftop.output.export.conversion import Conversion
from perftop.output.export.fields import Field, chosen, with_events
from perftop.output.export.form import Form, Out
from perftop.output.export.json_lines import JsonLines
from perftop.output.export.openmetrics import OpenMetrics
from perftop.output.export.parquet import Parquet, pyarrow
from perftop.output.export.table import Delimited
from perftop.recording.file import UNCHECKED, Source, is_same_file, open_source, report_damage
from perftop.session import filter as filters
from perftop.session.session import MOST_TOGETHER, Session

EVERY_NS = 1_000_000_000
FORMS: dict[str, Callable[[Session, Sequence[Field], Out], Form]] = {
    "csv": Delimited,
    "jsonl": JsonLines,
    "parquet": Parquet,
    "openmetrics": OpenMetrics,
}


@frozen
class Options:
    source: Path | None
    """None: stdin."""
    output: Path | None
    """None: stdout."""
    form: str
    metrics: Sequence[str] | None = None
    cpus: str | None = None
    every_ns: int | None = None
    force: bool = False


def run(options: Options) -> int:
    """Runs the verb; returns the exit status. Raises Failed, and BrokenPipeError if stdout was
    closed."""
    measures = chosen(options.metrics)
    if options.form == "parquet":
        pyarrow()
    with open_source(options.source) as source:
        every_ns = _every_ns(options.every_ns, source.hello)
        session = Session(source.hello)
        cpus = None if options.cpus is None else _selected(session, options.cpus)
        if cpus is not None:
            session = Session(replace(source.hello, selected=cpus))
        target = _target(options)
        try:
            with target as out:
                told = with_events(session, measures, options.metrics)
                form = FORMS[options.form](session, told, out)
                try:
                    _convert(source, Conversion(session, form, every_ns, cpus), out)
                except BaseException:
                    form.drop()
                    raise
        except BrokenPipeError:
            raise
        except OSError as error:
            name, why = options.output or "stdout", error.strerror or error
            text = f"cannot write all of {name}: {why}; what is there is only the beginning"
            raise Failed(text) from None
    name = options.source or "stdin"
    if not source.checked:
        complain(f"{name}: {UNCHECKED}")
    return report_damage(name, source)


def _convert(source: Source, conversion: Conversion, out: BinaryIO) -> None:
    progress = Progress.on_terminal(source.size, out)
    try:
        found = source.messages()
        together = 1 if source.size is None else MOST_TOGETHER  # a pipe may be a live stream
        while messages := list(islice(found, together)):
            if conversion.take(messages):
                out.flush()  # a reader of a pipe gets each line at once
            progress.show(source.at)
    finally:
        progress.clear()
    conversion.finish()
    out.flush()


def _every_ns(asked_ns: int | None, hello: wire.Hello) -> int:
    """Length of the interval that a line covers, in ns: a whole number of samples. By default that
    of the recording. Raises Failed if the one asked for is no such number."""
    sample_ns = hello.sample_ns
    if asked_ns is None:
        length_ns = hello.interval_ns or EVERY_NS
        return -(-max(length_ns, sample_ns) // sample_ns) * sample_ns
    steps = asked_ns / sample_ns
    if asked_ns < sample_ns or abs(steps - round(steps)) > 1e-6:
        sample = duration(sample_ns / 1e9)
        raise Failed(f"--every must be a multiple of the recording's samples of {sample}", USAGE)
    return asked_ns


def _target(options: Options) -> contextlib.AbstractContextManager[BinaryIO]:
    path = options.output
    if path is None:
        if options.form == "parquet" and sys.stdout.isatty():
            raise Failed("parquet cannot go to a terminal: use -o FILE", USAGE)
        return contextlib.nullcontext(sys.stdout.buffer)
    if is_same_file(options.source, path):
        raise Failed(f"{path} is the input: it cannot be the output as well", USAGE)
    return new_file.create(path, force=options.force)


# --- which CPUs, by the text of -c/--cpus

_PLACE = re.compile(r"(?:pkg([0-9]{1,9}))?(?:core([0-9]{1,9}))?")
_OTHER = re.compile(r"[0-9]+(-[0-9]+)?|type:\S+")


def _selected(session: Session, text: str) -> list[int]:
    """Ascending numbers of the CPUs that `text` names, out of those selected for the recording.
    Raises Failed."""
    shown = set(session.shown)
    found: set[int] = set()
    for term in text.split(","):
        rows = shown & _rows(session, term.strip())
        if not rows:
            raise Failed(f"--cpus: the recording has no CPU {term.strip()!r}", USAGE)
        found |= rows
    return sorted(session.topology[row].cpu for row in found)


def _rows(session: Session, term: str) -> set[int]:
    """Positions of the CPUs that a term names."""
    try:
        wanted = filters.parse(_as_filter(term))
    except filters.FilterError as error:
        raise Failed(f"--cpus: {error}", USAGE) from None
    assert wanted is not None
    return set(wanted.cpus(session, None).nonzero()[0].tolist())


def _as_filter(term: str) -> str:
    """The term in the syntax of the screen's filter, which supports all of these selections."""
    place = _PLACE.fullmatch(term.lower())
    if term and place:
        package, core = place.groups()
        parts = (("pkg", package), ("core", core))
        return " ".join(f"{name}:{number}" for name, number in parts if number)
    if _OTHER.fullmatch(term):
        return term
    raise Failed(
        f"--cpus: {term!r} is not understood: CPUs are named like "
        "0-15, 32, pkg0, core3, pkg1core3 or type:P", USAGE,
    )  # fmt: skip


# --- progress

QUIET_S = 2.0
"""No progress is shown for the first 2 s."""
EVERY_S = 0.2
WIDTH = 30


class Progress:
    """A line on a terminal that shows the progress, redrawn in place."""

    def __init__(
        self, out: TextIO | None, size: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`out`: None shows nothing. `size`: of the input, in bytes; None if unknown."""
        self._out, self._size, self._clock = out, size, clock
        self._due_s = clock() + QUIET_S
        self._drawn = False

    @classmethod
    def on_terminal(cls, size: int | None, out: BinaryIO) -> Self:
        """A progress line on stderr, shown if that is a terminal and `out` is none."""
        alone = sys.stderr is not None and sys.stderr.isatty() and not out.isatty()
        return cls(sys.stderr if alone else None, size)

    def show(self, done: int) -> None:
        if self._out is None or self._clock() < self._due_s:
            return
        self._due_s = self._clock() + EVERY_S
        self._drawn = True
        self._out.write(f"\r{self._text(done)}")
        self._out.flush()

    def clear(self) -> None:
        if self._drawn and self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _text(self, done: int) -> str:
        if not self._size:
            return f"{done / 1e6:.0f} MB read"
        share = min(1.0, done / self._size)
        return f"[{'#' * int(WIDTH * share):<{WIDTH}}] {share:4.0%}"
