"""Terms of perf events, such as "event=0xd1,umask=0x01", as the words of a perf_event_attr.

A PMU's `format` directory says which bits of which word each term fills, for example
"config:0-7,32-35" or "config1:0-63"; a term's lowest bit goes to the lowest of them. `config`,
`config1` and `config2` are terms of their own on every PMU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from perfprobe.cpu import files
from perfprobe.frozen import frozen

WORDS = ("config", "config1", "config2")
_TERM = re.compile(r"([A-Za-z0-9_.-]+)(?:=(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}))?")
_FORMAT = re.compile(r"(config[12]?):([0-9,-]+)")
_WIDE = (1 << 64) - 1


@frozen
class Code:
    """The three words by which an event is chosen."""

    config: int = 0
    config1: int = 0
    config2: int = 0

    def __or__(self, other: Code) -> Code:
        return Code(
            self.config | other.config, self.config1 | other.config1, self.config2 | other.config2
        )


class TermError(ValueError):
    """A term that the PMU does not have, or a value that does not fit it."""


def values(text: str) -> dict[str, int]:
    """The terms of "event=0xd1,umask=0x01,edge" with their values; 1 where none is given. Raises
    TermError."""
    found = {}
    for item in text.split(","):
        match = _TERM.fullmatch(item.strip())
        if match is None:
            raise TermError(f"{item.strip()!r} is no term such as event=0x3c")
        number = match[2] or "1"
        found[match[1]] = int(number, 16 if number[:2] in {"0x", "0X"} else 10)
    return found


def code(path: str, terms: Mapping[str, int]) -> Code:
    """The words for these terms of the PMU at `path`. Raises TermError."""
    total = Code()
    for term, value in terms.items():
        total |= placed(path, term, value)
    return total


def placed(path: str, term: str, value: int) -> Code:
    """The words for one term of the PMU at `path`. Raises TermError."""
    word, bits = (term, list(range(64))) if term in WORDS else _bits(path, term)
    if value >> len(bits):
        raise TermError(f"{term}={value:#x} does not fit into its {len(bits)} bits")
    spread = sum((value >> i & 1) << bit for i, bit in enumerate(bits))
    return Code(**{word: spread & _WIDE})


def _bits(path: str, term: str) -> tuple[str, list[int]]:
    """The word that a term fills, and its bits there, ascending."""
    match = _FORMAT.fullmatch(files.word(f"{path}/format/{term}"))
    if match is None:
        raise TermError(f"the PMU has no term {term!r}")
    bits: set[int] = set()
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit() or int(last or first) > 63:
            raise TermError(f"the format of {term!r} is not understood")
        bits |= set(range(int(first), int(last or first) + 1))
    if not bits:
        raise TermError(f"the format of {term!r} has no bits")
    return match[1], sorted(bits)
