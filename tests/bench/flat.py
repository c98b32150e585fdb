"""What processes hold - memory, descriptors, threads - and whether that stays flat."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from terminal import rss_mb

SLACK, SLACK_MB = 0.02, 2.0
RULE = (
    f"flat: in the last quarter of a run no process holds more than {SLACK:.0%} and {SLACK_MB:g} MB"
    " above the most in its second quarter, and not one descriptor or thread more"
)
"""The first quarter is for stores that fill up to their limits."""


class Held(NamedTuple):
    rss_mb: float
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.rss_mb:.1f} MB, {self.descriptors} descriptors, {self.threads} threads"


def held(pid: int) -> Held:
    """Raises OSError if the process has ended."""
    process = Path(f"/proc/{pid}")
    return Held(
        rss_mb(pid), len(os.listdir(process / "fd")), len(os.listdir(process / "task"))  # noqa: PTH208
    )  # fmt: skip


def family(pid: int) -> dict[str, int]:
    """The processes of a perftop that runs: its pid and that of its probe."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return dict(zip(("perftop", "perfprobe"), [pid, *map(int, words)], strict=False))
    return {}


def grown(trail: Sequence[Held]) -> str:
    """What has grown in these samples of a process; '' if nothing has."""
    quarter = len(trail) // 4
    if not quarter:
        return "too few samples"
    early, late = (map(max, zip(*part, strict=True))
                   for part in (trail[quarter : 2 * quarter], trail[-quarter:]))  # fmt: skip
    before, after = Held(*early), Held(*late)
    few = before.rss_mb * (1 + SLACK) + SLACK_MB
    words = [f"{after.rss_mb:.1f} MB after {before.rss_mb:.1f}"] if after.rss_mb > few else []
    for name in ("descriptors", "threads"):
        one, other = getattr(before, name), getattr(after, name)
        words += [f"{other} {name} after {one}"] if other > one else []
    return ", ".join(words)
