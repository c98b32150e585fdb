"""The program perftop, also as `python -m perftop`. From the first instruction of `main` on, a
signal that asks perftop to end results in exit status 128 + signal number or, once the work is
done, in the status of the work.
"""

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType

from perftop.base import END_SIGNALS

LOADER = "<frozen importlib._bootstrap>", "_find_and_load"
"""File and name of Python's function that loads a module. Other functions of that file also run if
the module is loaded already."""

_main_code_objects: list[CodeType] = []
"""The code that does the work, once it begins."""


def main() -> int:
    """Runs the command line. SIGUSR1, which sets a mark in `record`, is ignored elsewhere: it would
    end perftop and leave a running command behind."""
    _handle_end_signals(_raise_for_signal)
    if sys.stdout is None:  # closed: a write must fail, as in other programs
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:  # closed: `print` would write to stdout
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    with contextlib.suppress(OSError):  # a seccomp filter may refuse this call
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, lambda *_: None)  # commands would inherit SIG_IGN
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, exit statuses get lost
    from perftop import cli

    status = 1  # for a bug, whose traceback Python prints
    _main_code_objects.append(cli.main.__code__)
    try:
        status = cli.main()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    finally:
        _handle_end_signals(lambda *_: os._exit(status))
        atexit.register(_ignore_signals_at_exit)
    return status


def _handle_end_signals(
    handler: Callable[[int, FrameType | None], object] | signal.Handlers,
) -> None:
    """Installs a handler for all signals that are not ignored, as they are in the background of a
    script."""
    with contextlib.suppress(OSError):
        for number in END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)


def _raise_for_signal(number: int, frame: FrameType | None) -> None:
    """Raises an exception for a signal. While a module is loaded, the exception could be lost or
    replaced, so perftop ends immediately. After the work, `main` is about to end: a second Ctrl-C
    changes nothing."""
    is_done = bool(_main_code_objects)
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == LOADER:
            os._exit(128 + number)
        is_done = is_done and frame.f_code not in _main_code_objects
        frame = frame.f_back
    if is_done:
        return
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _ignore_signals_at_exit() -> None:
    """Ignores signals while the interpreter ends, because Python then removes all handlers. stdout
    is flushed before that, so that a signal can still end a wait for its reader."""
    with contextlib.suppress(OSError, ValueError):  # the interpreter reports it
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        for number in (*END_SIGNALS, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
