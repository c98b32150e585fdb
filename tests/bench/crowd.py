"""Idle processes, as an ordinary machine has them: a monitor may look at each of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ORDINARY = 200
"""How many more there are on a server with its services than in a bare guest."""


@contextmanager
def crowd(count: int) -> Iterator[int]:
    """So many sleep meanwhile. Gives the number of all processes."""
    started = [subprocess.Popen(["sleep", "1h"]) for _ in range(count)]
    try:
        yield sum(1 for _ in Path("/proc").glob("[0-9]*"))
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()
