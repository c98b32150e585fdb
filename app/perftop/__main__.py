"""The program perftop, also as `python -m perftop`."""

import signal
import sys
from types import FrameType

IMPORTS = "<frozen importlib._bootstrap>"
"""File name that Python gives to its own code for imports."""


def main() -> int:
    """Runs the command line. While modules load and at exit, too, Ctrl-C ends perftop without a
    traceback and with the usual status. SIGUSR1 sets a mark in `record`; elsewhere it is ignored,
    because it would end perftop and leave a running command behind."""
    handler = signal.getsignal(signal.SIGINT)  # SIG_IGN in the background of a script
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, lambda *_: None)  # not SIG_IGN, which commands inherit
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, no child leaves a status
    except OSError:
        pass
    from perftop import cli

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        return cli.main()
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt; inside an import, which could lose it or raise another exception
    instead, it ends perftop at once, as the signal does by default."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORTS:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
