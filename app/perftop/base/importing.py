"""Makes imports of large modules cheap, for a program that may run for days."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def lean() -> Iterator[None]:
    """A block for imports. Objects created in it are never scanned by the garbage collector:
    neither during the imports, where scanning takes a tenth of the time, nor in later collections.
    numpy starts no threads for matrix products, of which it would start one for each CPU that spin
    for some ms. Commands that are started later do not inherit this setting."""
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
