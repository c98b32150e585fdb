"""Selects the CPUs of a recording to export, by the text of `-c/--cpus`."""

from __future__ import annotations

import re

from perftop.base.errors import USAGE, Failed
from perftop.session import filter as filters
from perftop.session.session import Session

_PLACE = re.compile(r"(?:pkg([0-9]{1,9}))?(?:core([0-9]{1,9}))?")
_OTHER = re.compile(r"[0-9]+(-[0-9]+)?|type:\S+")


def selected(session: Session, text: str) -> list[int]:
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
