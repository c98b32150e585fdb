"""What notes say to people: warnings, and marks on the time axes. All of it comes from outside."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from perfprobe import wire
from perftop.base.format import length
from perftop.model.episode import Episode

MOST, MOST_WARNING = 80, 200
"""Characters of a label, and of a warning."""
BEGUN, ENDED = "run: ", "run ended: "
ASLEEP, GAP = "was suspended for ", "no link for "


def label(note: wire.Note) -> str | None:
    """None: it is none that marks a moment."""
    data = note.data
    match note.kind:
        case "mark":
            text = str(data.get("label", ""))
        case "run-start":
            argv = data.get("argv")
            words = argv if isinstance(argv, list) else []
            text = BEGUN + shlex.join(map(str, words))
        case "run-end":
            text = f"{ENDED}status {data.get('status')}"
        case "gap":
            text = gap(note)
        case _:
            return None
    return shortened(text)


def shortened(text: str) -> str:
    return text[:MOST]


def mark(at_ns: int, label: str) -> Episode:
    """A moment with a name, `at_ns` raw."""
    return Episode("mark", [], at_ns, at_ns, cause="-", evidence={"label": label})


def warning(note: wire.Note) -> str:
    if note.kind == "gap":
        return f"{gap(note)}: {note.data.get('why')}"[:MOST_WARNING]
    return str(note.data.get("text", ""))[:MOST_WARNING]


def gap(note: wire.Note) -> str:
    since_ns = note.data.get("since_ns")
    if not isinstance(since_ns, int) or not 0 <= since_ns <= note.time_ns:
        return f"{GAP}some time"
    return f"{GAP}{length(note.time_ns - since_ns)}"


def recalibrated(key: str, before: float, now: float) -> str:
    """What a user has to know whose counter turned out to count in another unit."""
    return (
        f"a tick of {key} is {now:g} TSC ticks, not {before:g} as assumed until now: "
        "earlier SMT states are wrong"
    )


def numbered(there: Iterable[Episode]) -> str:
    """A label for one that got no name."""
    own = [m for m in there if not str(m.evidence["label"]).startswith((BEGUN, ENDED, ASLEEP, GAP))]
    return f"mark {len(own) + 1}"
