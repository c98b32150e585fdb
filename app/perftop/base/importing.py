"""Imports of large modules, for a program that may run for days."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def lean() -> Iterator[None]:
    """Imports in the block leave nothing to collect: looking for it again and again would take a
    tenth of their time, and later as much at each collection. And asyncio does not find `ssl`,
    which would take 4.5 MB and 7 ms for connections that nobody here makes; it can be imported
    later."""
    modules: dict[str, Any] = sys.modules
    hidden = "ssl" not in modules
    if hidden:
        modules["ssl"] = None
    gc.disable()
    try:
        yield
    finally:
        if hidden:
            del modules["ssl"]
        gc.freeze()
        gc.enable()
