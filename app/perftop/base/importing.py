"""Makes imports of large modules cheap, for a program that may run for days."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from perftop.base.errors import UNAVAILABLE, Failed

_THREADS = "OPENBLAS_NUM_THREADS"
MIN_ADDRESS_SPACE = 128_000_000
"""Least limit of memory, in bytes, with which numpy can be loaded. With less OpenBLAS ends the
process with words of its own."""


@contextmanager
def lean() -> Iterator[None]:
    """A block for imports. Objects created in it are never scanned by the garbage collector:
    neither during the imports, where scanning takes a tenth of the time, nor in later collections.
    numpy starts no threads for matrix products, of which it would start one for each CPU that spin
    for some ms. Commands that are started later do not inherit this setting. Raises Failed if the
    limit of memory is too low."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < MIN_ADDRESS_SPACE:
        text = f"the limit of memory, {limit / 1e6:.0f} MB, is too low"
        raise Failed(f"{text}; at least 128 MB, better: ulimit -v unlimited", UNAVAILABLE)
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
