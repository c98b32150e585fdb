"""`perftop stat -r N -- CMD`: a command run several times, with a probe of its own each time."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from perfprobe.frozen import frozen
from perftop.base.errors import Failed, cannot_write, complain
from perftop.base.text import colours, in_ascii, painted, printable, utf8
from perftop.output import stat_json
from perftop.output.compare.repeated import Repeat, Runs, first_failed, lines, lines_json, repeat
from perftop.process.command_window import HANDLED_SIGNALS
from perftop.process.job import Job
from perftop.verbs.run_headless import attend, destination
from perftop.verbs.stat import Options, Stat

ENDED_BY = frozenset(128 + number for number in HANDLED_SIGNALS)
"""Exit statuses of a command that a signal has ended: then no other run follows."""


@frozen
class Plan:
    command: list[str]
    runs: int
    warmups: int
    """Runs before those, which are measured and not counted."""
    one: Callable[[Job], Options]
    """What `stat` does for a single run of that job."""
    json: bool = False
    output: Path | None = None
    force: bool = False


def run(plan: Plan) -> int:
    """Runs the verb; returns the exit status of the first run that failed, warm-ups included.
    Raises Failed if the command cannot be run."""
    status = 0
    try:
        with destination(plan.output, force=plan.force, job=True) as out:
            every, hello, stopped = _measured(plan)
            status = first_failed(every) or stopped
            runs = Runs(every)
            if not runs.runs:
                return status
            if plan.json:
                told = [hello, *map(stat_json.text, lines_json(runs, plan.command))]
            else:
                told = lines(runs, plan.command)
                plain = out in {sys.stdout, sys.stderr} and not utf8()
                told = [in_ascii(line) for line in told] if plain else told
            told = [printable(line) for line in told]
            told[0] = painted(told[0], "1" if colours(out) and not plan.json else "")
            out.write("".join(f"{line}\n" for line in told))
            out.flush()
    except BrokenPipeError:
        return status
    except OSError as error:
        failed = cannot_write(str(plan.output or "stderr"), error)
        raise Failed(str(failed), status or failed.status) from None
    return status


def _measured(plan: Plan) -> tuple[list[Repeat], str, int]:
    """The runs, the hello of the first as a line of JSON, and 128 + the signal that ended them
    early, else 0."""
    handlers = {number: signal.getsignal(number) for number in HANDLED_SIGNALS}
    hello, every = "", list[Repeat]()
    for at in range(plan.warmups + plan.runs):
        for number, handler in handlers.items():
            signal.signal(number, handler)  # at its end the run before ignores them
        with Job(plan.command, apart=plan.output == Path("-")) as job:
            options, sink = plan.one(job), io.StringIO()
            stat = Stat(options, sink)
            status = asyncio.run(attend(stat, options.argv))
        told = sink.getvalue().splitlines()
        if stat.run is None:
            return every, hello, status
        if status in ENDED_BY and every:
            complain(f"run {at + 1} was ended by signal {status - 128}: it counts for nothing")
            return every, hello, status
        hello = hello or told[0]
        every.append(repeat(json.loads(told[-1]), warmup=at < plan.warmups))
        if status in ENDED_BY:
            return every, hello, status
    return every, hello, 0
