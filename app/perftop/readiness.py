"""What `perfprobe doctor` says of the machine as a place for benchmarks, drawn below its checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perftop.base.text import in_ascii

MARKS = {"ready": "✓", "matters": "~", "unknown": "?"}
ASCII_MARKS = {"ready": "+", "matters": "~", "unknown": "?"}


def draw(
    items: Sequence[dict[str, Any]], wrapped: Callable[[str], list[str]], indent: int,
    *, unicode: bool = True,
) -> list[str]:  # fmt: skip
    """`wrapped` breaks a text into lines, those after the first indented by so much."""
    marks = MARKS if unicode else ASCII_MARKS
    lines = ["Benchmarks here:"]
    for item in items:
        lines += wrapped(f"{marks[item['state']]} {item['what']:<{indent - 2}}{item['now']}")
        if item["effect"]:
            lines += wrapped(" " * indent + item["effect"])
        if item["change"]:
            lines += wrapped(" " * indent + f"to change: {item['change']}")
    return lines if unicode else [in_ascii(line) for line in lines]
