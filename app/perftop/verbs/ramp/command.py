"""`perftop ramp`: the probe goes from idle to load; this measures how long the clock takes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from perfprobe.frozen import asdict, frozen
from perftop.base import files as new_file
from perftop.base.errors import USAGE, Failed
from perftop.base.text import colours, in_ascii, printable, utf8, wrapped
from perftop.verbs.ramp import picture, plot, words
from perftop.verbs.ramp.runs import Ramp, middle, together
from perftop.verbs.ramp.trace import traces

INTERRUPTED = 130
FRAME = 7
"""Lines of the screen beside chart and words: title, gaps, axis, blank lines, the prompt."""
LEAST, MOST = 6, 20
"""Minimum and maximum lines of a chart."""

Answer = dict[str, Any]
Ask = Callable[..., Answer]
"""Returns the probe's answer to a verb and its arguments."""


@frozen
class Options:
    cpu: str | None
    isa: str
    seconds: float
    json: bool
    output: Path | None
    force: bool = False


@dataclass(slots=True)
class Measured:
    """The results so far."""

    found: list[tuple[Answer, Ramp]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    """Reasons, by CPU."""
    interrupted: bool = False

    def slowest(self) -> tuple[Answer, Ramp]:
        return max(self.found, key=lambda each: each[1].steady_s.high if each[1].steady_s else inf)


def run(options: Options, ask: Ask) -> int:
    _check(options)
    measured = _measure(options, _cpus(options.cpu, ask), ask)
    answer, ramp = measured.slowest()
    if options.output is not None:
        _picture(options, options.output, answer, ramp)
    if options.json:
        _print_json(options, measured)
    else:
        lines = _lines(answer, ramp)
        if options.cpu == "all":
            table = words.table(measured.found, measured.failed)
            lines = [*table, words.settles(answer), "", *lines]
        print("\n".join(map(printable, lines if utf8() else map(in_ascii, lines))))
    return INTERRUPTED if measured.interrupted else 0


def _check(options: Options) -> None:
    """Raises Failed if the picture cannot be written, before the time is spent on measuring."""
    path = options.output
    if path is None:
        return
    if path.suffix != ".svg":
        raise Failed(f"{path}: the picture is an SVG; give a name that ends in .svg", USAGE)
    new_file.refuse(path, force=options.force)
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise Failed(f"cannot write {path}: there is no such directory, or no right to", 1)


def _cpus(asked: str | None, ask: Ask) -> list[str | None]:
    if asked is None or asked.isdecimal():
        return [asked]
    if asked != "all":
        raise Failed(f"--cpu {asked}: name one CPU by its number, or all", USAGE)
    return [str(row["cpu"]) for row in ask("topology")["cpus"] if row["online"]]


def _measure(options: Options, cpus: list[str | None], ask: Ask) -> Measured:
    """Measures each CPU in turn. If one fails, its reason is kept; if all fail, the last error is
    raised. Ctrl-C ends it with the results so far."""
    measured = Measured()
    last: Failed | None = None
    for i, cpu in enumerate(cpus, 1):
        which = f"CPU {cpu}, {i} of {len(cpus)}, " if len(cpus) > 1 else ""
        _progress(f"{which}{options.seconds:g} s …")
        try:
            answer = _ask(options, cpu, ask)
        except Failed as error:
            if error.status == USAGE or cpu is None:
                raise
            last = error
            measured.failed[int(cpu)] = str(error)
            continue
        except KeyboardInterrupt:
            measured.interrupted = True
            break
        finally:
            _progress("")
        measured.found.append((answer, together(answer)))
        if not options.json:
            _forget_points(measured)
    if not measured.found:
        raise last or KeyboardInterrupt
    return measured


def _ask(options: Options, cpu: str | None, ask: Ask) -> Answer:
    which = [] if cpu is None else ["--cpu", cpu]
    return ask("ramp", *which, "--isa", options.isa, "--seconds", f"{options.seconds:g}")


def _forget_points(measured: Measured) -> None:
    """Drops the runs of all CPUs but the one to be drawn; they take a megabyte per CPU."""
    drawn, _ = measured.slowest()
    for answer, _ in measured.found:
        if answer is not drawn:
            answer["runs"] = []


def _progress(text: str) -> None:
    """Shows a progress line, on a terminal only; an empty text clears it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _lines(answer: Answer, ramp: Ramp) -> list[str]:
    size = shutil.get_terminal_size((80, 24))
    width = min(size.columns, 160)
    facts = words.facts(answer, ramp, width)
    said = wrapped(words.sentence(answer, ramp), width, 0)
    height = max(LEAST, min(size.lines - len(facts) - len(said) - FRAME, MOST))
    lines = [words.title(answer), ""]
    if ramp.climbs:
        shown = middle(ramp)
        parts = traces(answer, answer["runs"][shown])
        lines += plot.draw(
            ramp, ramp.climbs[shown], parts, width, height,
            unicode=utf8(), colour=colours(sys.stdout),
        )  # fmt: skip
    return [*lines, "", *facts, "", *said]


def _picture(options: Options, path: Path, answer: Answer, ramp: Ramp) -> None:
    runs = [traces(answer, run) for run in answer["runs"]]
    text = picture.draw(
        words.title(answer), words.sentence(answer, ramp),
        f"{words.clock_name(answer)}, {words.unit(answer)}", ramp, runs, middle(ramp),
    )  # fmt: skip
    try:
        with new_file.create(path, force=options.force) as file:
            file.write(text.encode())
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from error


def _print_json(options: Options, measured: Measured) -> None:
    told = [_json(*each) for each in measured.found]
    failed = {str(cpu): why for cpu, why in measured.failed.items()}
    print(json.dumps({"cpus": told, "failed": failed} if options.cpu == "all" else told[0]))


def _json(answer: Answer, ramp: Ramp) -> dict[str, Any]:
    """The results of a CPU for JSON, with its points: seconds since the load began, and clocks."""
    told = {key: value for key, value in answer.items() if key != "runs"} | asdict(ramp)
    told["clock"] = words.clock_name(answer)
    told["unit"] = "Hz" if words.unit(answer) == "GHz" else "steps/s"
    told["sentence"] = words.sentence(answer, ramp)
    for climb, run in zip(told["climbs"], answer["runs"], strict=True):
        climb["around"] = run["around"]
        climb["points"] = [
            [round(at, 7), round(hz)]
            for part in traces(answer, run)
            for at, hz in zip(part.start_s.tolist(), part.hz.tolist(), strict=True)
        ]
    return told
