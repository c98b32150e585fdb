"""The program perftop, also as `python -m perftop`.

A signal that asks perftop to end has its documented status, 128 + its number, from the first
instruction of `main` on, and the status of the work once that is done. Before `main` runs, while
the interpreter starts, a signal acts by default.
"""

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from perftop.base import END_SIGNALS

LOADER = "<frozen importlib._bootstrap>", "_find_and_load"
"""File and name that Python gives to its function that loads a module. Other functions of the file
also run if the module is loaded already."""


def main() -> int:
    """Runs the command line. SIGUSR1 sets a mark in `record`; elsewhere it is ignored, because it
    would end perftop and leave a running command behind."""
    _handle_end_signals(_end)
    if sys.stdout is None:  # it was closed: a write fails, as in other programs
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:  # it was closed: otherwise `print` would write to stdout
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    with contextlib.suppress(OSError):  # a seccomp filter may refuse this call
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, lambda *_: None)  # not SIG_IGN, which commands inherit
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, no child leaves a status
    from perftop import cli

    status = 1  # exit status after a bug, whose traceback Python prints
    try:
        status = cli.main()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    finally:
        _handle_end_signals(lambda *_: os._exit(status))
        atexit.register(_finish)
    return status


def _handle_end_signals(
    handler: Callable[[int, FrameType | None], object] | signal.Handlers,
) -> None:
    """Installs a handler, except for signals that are ignored, as in the background of a script."""
    with contextlib.suppress(OSError):
        for number in END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    """Raises the exception of a signal; while a module is loaded, which could lose it or raise
    another exception instead, ends perftop at once."""
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == LOADER:
            os._exit(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _finish() -> None:
    """Ignores signals while the interpreter ends, which takes back all handlers of Python. Output
    that may have to wait for a reader of stdout is written before that, so a signal can still end
    the wait."""
    with contextlib.suppress(OSError, ValueError):  # the interpreter reports it
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        for number in (*END_SIGNALS, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
