"""Imports of large modules, for a program that may run for days."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def lean() -> Iterator[None]:
    """Imports in the block leave nothing to collect: looking for it again and again would take a
    tenth of their time, and later as much at each collection. And asyncio does not find `ssl`,
    which would take 4.5 MB and 7 ms for connections that nobody here makes; it can be imported
    later. And numpy starts no threads, one for each CPU, for products of matrices that nobody here
    forms: each of them spins for some ms. Commands that are started later are not told."""
    modules: dict[str, Any] = sys.modules
    mine = _THREADS not in os.environ
    if mine:
        os.environ[_THREADS] = "1"
    hidden = "ssl" not in modules
    if hidden:
        modules["ssl"] = None
    gc.disable()
    try:
        yield
    finally:
        if hidden:
            del modules["ssl"]
        if mine:
            del os.environ[_THREADS]
        gc.freeze()
        gc.enable()
