"""Makes imports of large modules cheap, for a program that may run for days."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from perftop.base.errors import UNAVAILABLE, Failed

_THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
_HELD_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
MIN_ADDRESS_SPACE = 128_000_000
"""Minimum limit of memory, in bytes, with which numpy can be loaded. With less, OpenBLAS ends the
process with its own error message."""


@contextmanager
def fast_imports() -> Iterator[None]:
    """A block for imports. Objects created in it are never scanned by the garbage collector:
    neither during the imports, where scanning takes a tenth of the time, nor in later collections.
    numpy starts no threads for matrix products; by default it would start one for each CPU, and
    they would spin for some ms. Commands that are started later do not inherit this setting.
    Signals that ask perftop to end arrive after the block. Raises Failed if the limit of memory is
    too low."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < MIN_ADDRESS_SPACE:
        text = f"the limit of memory, {limit / 1e6:.0f} MB, is too low"
        raise Failed(f"{text}; at least 128 MB, better: ulimit -v unlimited", UNAVAILABLE)
    ours = _THREADS_VARIABLE not in os.environ
    if ours:
        os.environ[_THREADS_VARIABLE] = "1"
    gc.disable()
    try:
        with _signals_held():
            yield
    finally:
        if ours:
            del os.environ[_THREADS_VARIABLE]
        gc.freeze()
        gc.enable()


@contextmanager
def _signals_held() -> Iterator[None]:
    """A block after which signals that arrive in it are handled. An exception of their handlers
    inside an import would become an ImportError of numpy. Blocking them in this thread is not
    enough: the kernel would give them to another one."""
    arrived: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # the only one with handlers
    handlers = {number: signal.getsignal(number) for number in _HELD_SIGNALS if is_main}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for first in arrived[:1]:
            signal.raise_signal(first)
