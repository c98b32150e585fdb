"""Notes of the start and the end of a command that runs beside a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfprobe import wire
from perftop.process.command_window import Bracket
from perftop.process.job import Job, Run

MOST_ARGV = 4096
"""Characters of a command line that are kept."""


class RunNotes:
    """Yields run-start and run-end once each."""

    def __init__(self, job: Job, bracket: Bracket) -> None:
        self._job, self._bracket = job, bracket
        self._begun = self._over = False
        self._start_ns = 0

    def due(self, now_ns: int, *, over: bool) -> Iterator[wire.Note]:
        """The notes that are due. `now_ns`: time of the newest frame, the only time that a
        simulated machine has. `over`: nothing more will become known of the run."""
        job, bracket = self._job, self._bracket
        if job.start_ns > 0 and not self._begun:
            self._begun = True
            data = {"pid": job.pid, "argv": spoken(job.argv)}
            self._start_ns = job.start_ns if bracket.ours else now_ns
            yield wire.Note("run-start", self._start_ns, "recorder", data)
        if over and self._begun and not self._over and (run := bracket.run) is not None:
            self._over = True
            far_ns = self._start_ns + run.end_ns - run.start_ns
            at_ns = run.end_ns if bracket.ours else far_ns if bracket.far else now_ns
            yield wire.Note("run-end", at_ns, "recorder", _ended(run, bracket))


def spoken(argv: Sequence[str]) -> list[str]:
    """The command line as valid text, cut to MOST_ARGV characters."""
    words: list[str] = []
    left = MOST_ARGV
    for word in argv:
        if len(word) > left:
            return [*words, word[:left].encode(errors="replace").decode() + "…"]
        words.append(word.encode(errors="replace").decode())
        left -= len(word) + 1
    return words


def _ended(run: Run, bracket: Bracket) -> dict[str, object]:
    """Data of run-end. `first_ns` and `last_ns` are the ranges of raw times of the CPUs' first and
    last reads."""
    bounds = bracket.bounds
    return {
        **run.told(),
        "first_ns": bounds and bounds.first_ns,
        "last_ns": bounds and bounds.last_ns,
        "missed": bracket.missed,
    }
