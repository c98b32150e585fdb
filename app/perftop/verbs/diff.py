"""`perftop diff A B`: which numbers of two runs, or of two groups of them, differ by more than the
noise, and what differs in their machines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from perftop.base.errors import DAMAGED, USAGE, Failed, complain
from perftop.base.text import colours, utf8
from perftop.output import stat_json
from perftop.output.compare import json_line, text
from perftop.output.compare.comparison import compare
from perftop.output.compare.numbers import NUMBERS, of_event
from perftop.output.compare.reading import Foreign, Reading, from_lines
from perftop.output.compare.recorded import Recorded
from perftop.recording.file import GROWING, open_source

MOST_BYTES = 256 << 20
"""Bytes that are read of a file of JSON."""


def run(
    a: list[Path], b: list[Path], *, by_mark: bool, metrics: list[str] | None, as_json: bool
) -> int:
    """Runs the verb; returns the exit status: 0, whether there is a difference or not. Raises
    Failed. `metrics`: the numbers to compare; None: all."""
    for key in metrics or ():
        if key not in NUMBERS and not of_event(key):
            raise Failed(f"there is no number {key!r}; there are {', '.join(NUMBERS)}", USAGE)
    damaged: list[str] = []
    sides = [[one for path in paths for one in _read(path, damaged, by_mark=by_mark)]
             for paths in (a, b)]  # fmt: skip
    pairs = _pairs(sides[0], sides[1], by_mark=by_mark)
    found = [one for one in compare(pairs, metrics) if one.rows]
    if not found:
        what = "no number" if metrics is None else f"none of {', '.join(metrics)}"
        raise Failed(f"A and B share {what}: record or measure both in the same way", USAGE)
    if as_json:
        files = [str(path) for path in a], [str(path) for path in b]
        told = [stat_json.text(json_line.line(found, files))]
    else:
        told = text.lines(found, (_name(a), _name(b)), unicode=utf8(), colour=colours(sys.stdout))
    sys.stdout.write("".join(f"{line}\n" for line in told))
    for line in damaged:
        complain(line)
    return DAMAGED if damaged else 0


def _name(paths: Sequence[Path]) -> str:
    return paths[0].name if len(paths) == 1 else f"{len(paths)} files"


def _pairs(
    a: Sequence[Reading], b: Sequence[Reading], *, by_mark: bool
) -> list[tuple[str, list[Reading], list[Reading]]]:
    """Label and both sides; phases of one label belong together."""
    labels = [one.label for one in a if one.label] if by_mark else [""]
    pairs = [(label, _labelled(a, label), _labelled(b, label)) for label in dict.fromkeys(labels)]
    shared = [(label, mine, other) for label, mine, other in pairs if mine and other]
    if not shared and by_mark:
        raise Failed("A and B have no mark of the same name: leave out --by mark", USAGE)
    if not shared:
        raise Failed("one side has no run, only phases: add --by mark", USAGE)
    return shared


def _labelled(side: Sequence[Reading], label: str) -> list[Reading]:
    return [one for one in side if one.label == label]


def _read(path: Path, damaged: list[str], *, by_mark: bool) -> list[Reading]:
    """What a file tells. Where it is damaged is added to `damaged`."""
    try:
        with path.open("rb") as file:
            begins = file.read(1)
            if begins == b"{":
                content = begins + file.read(MOST_BYTES)
    except OSError as error:
        text = f"cannot read {path}: {error.strerror or error}; nothing was compared"
        raise Failed(text) from None
    if begins != b"{" and begins and not path.is_file():
        raise Failed(
            f"{path} is a pipe: of what can be compared only JSON may come through one", USAGE
        )
    if begins != b"{":
        return _recorded(path, damaged, by_mark=by_mark)
    try:
        found, why = from_lines(content.decode("utf-8", "replace").splitlines())
    except Foreign as foreign:
        made = "stat --json, stat -r N --json or summary --json"
        text = f"{path} cannot be compared: {foreign}; perftop diff reads recordings and {made}"
        raise Failed(text, DAMAGED) from None
    damaged += [] if why is None else [f"{path}: {why}"]
    return found


def _recorded(path: Path, damaged: list[str], *, by_mark: bool) -> list[Reading]:
    with open_source(path) as source:
        recorded = Recorded(source.hello, by_mark=by_mark)
        found = recorded.readings(source.messages())
    if not found:
        what = "mark with a sample behind it" if by_mark else "two samples"
        why = f": {source.damage}" if source.damage else ""
        text = f"{path} has no {what}{why}; nothing was compared"
        raise Failed(text, DAMAGED if why else USAGE)
    if source.growing:
        complain(f"{path}: {GROWING}")
    damaged += [] if source.damage is None else [f"{path}: {source.damage}"]
    return found
