"""Imports of large modules, for a program that may run for days."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def lean() -> Iterator[None]:
    """Imports in the block are not searched for garbage, neither now, which takes a tenth of their
    time, nor at any later collection. numpy starts no threads for products of matrices, one for
    each CPU, which spin for some ms; commands that are started later do not inherit that."""
    ours = _THREADS not in os.environ
    if ours:
        os.environ[_THREADS] = "1"
    gc.disable()
    try:
        yield
    finally:
        if ours:
            del os.environ[_THREADS]
        gc.freeze()
        gc.enable()
