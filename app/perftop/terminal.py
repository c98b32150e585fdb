"""Where the screen is drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def drawing_on_stdout() -> Iterator[None]:
    """Textual draws on what `sys.__stderr__` is when it starts, and has no setting for it. With
    `2>file` that is no terminal: while the app runs, it gets the terminal of stdout under that
    name. `sys.stderr` itself, for messages, stays what the user made it."""
    shown, terminal = sys.__stderr__, sys.__stdout__
    if terminal is None or not terminal.isatty() or (shown is not None and shown.isatty()):
        yield
        return
    # Its own stream, as forgiving as stderr's: what cannot be encoded must not end the app.
    with open(terminal.fileno(), "w", encoding=terminal.encoding, errors="backslashreplace",
              closefd=False) as screen:  # fmt: skip
        sys.__stderr__ = screen  # type: ignore[misc]
        try:
            yield
        finally:
            sys.__stderr__ = shown  # type: ignore[misc]
