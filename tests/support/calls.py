"""Counts the function calls of a piece of code: its cost without a clock, independent of the load
of the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """The number of function calls so far, in Python and C."""

    count = 0


@contextmanager
def count_calls() -> Iterator[Calls]:
    calls = Calls()

    def called(frame: FrameType, event: str, argument: object) -> None:
        calls.count += event in {"call", "c_call"}

    sys.setprofile(called)
    try:
        yield calls
    finally:
        sys.setprofile(None)
