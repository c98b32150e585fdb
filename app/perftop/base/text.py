"""Text that a terminal can show."""

from __future__ import annotations

import codecs
import locale
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any


def ranges(numbers: Iterable[int]) -> str:
    """0-2,5: as the kernel writes lists of CPUs."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def safe(text: str, most: int) -> str:
    """Text from elsewhere as a terminal can show it: it may hold anything, and be of any length."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def machine(answer: Mapping[str, Any]) -> list[str]:
    """Which one an answer of the probe is of."""
    parts = [answer["host"] or "this machine", answer["model"] or "unknown CPU"]
    if guest := answer["virtualisation"]:
        parts.append("guest" if guest == "hypervisor" else f"guest of {guest}")
    return [*parts, f"Linux {answer['kernel']}"]


def utf8() -> bool:
    """Whether shapes can be drawn: the user's locale has them and stdout can take them."""
    if "LC_ALL" not in os.environ and os.environ.get("LANG") in {"C", "POSIX"}:
        # Python has put C.UTF-8 in the place of a C locale; who asked for C by name means it.
        named = os.environ.get("LC_CTYPE", "C.UTF-8") not in {"C.UTF-8", "C", "POSIX"}
    else:
        named = codecs.lookup(locale.getencoding()).name == "utf-8"
    return named and codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"


_PLAIN = {"±": "+-", "σ": "sd", " · ": ", ", "µ": "u", "×": "x", "…": "..", "−": "-",
          "│": "|"}  # fmt: skip


def in_ascii(line: str) -> str:
    """For terminals without `utf8`."""
    for sign, instead in _PLAIN.items():
        line = line.replace(sign, instead)
    return line.encode("ascii", "replace").decode()
