"""The line on stderr that shows how far a recording is read, for all verbs that read one."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from perftop.base.format import place, running

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.recording.file import Source

QUIET_S = 1.0
"""Seconds at the start without a line."""
REDRAW_S = 0.2
_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def read_with_progress(
    source: Source, name: object, *, quiet: bool = False
) -> Iterator[Iterator[wire.Message]]:
    """Provides the messages of a recording. If reading them takes long and stderr is a terminal, a
    line there shows the progress; it is erased at the end of the block. `name`: of the recording.
    `quiet`: no line is shown, because the output is on the terminal as well."""
    is_shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
    line = Line(sys.stderr, f"reading {name}", source) if is_shown else None
    try:
        yield source.messages() if line is None else line.counted()
    finally:
        if line is not None:
            line.erase()


class Line:
    """A line that is redrawn in place: samples, time in the recording, time left."""

    def __init__(
        self,
        output: TextIO,
        title: str,
        source: Source,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output, self._title, self._source, self._clock = output, title, source, clock
        self._start_s = clock()
        self._due_s = self._start_s + QUIET_S
        self._samples = 0
        self._is_drawn = False

    def counted(self) -> Iterator[wire.Message]:
        """Yields the messages of the source, and draws the line between them when it is due."""
        from perfprobe import wire

        for message in self._source.messages():
            yield message
            if isinstance(message, wire.Frame):
                self._samples += 1
                if self._clock() >= self._due_s:
                    self._draw(message.time_ns - self._source.hello.raw_ns)

    def erase(self) -> None:
        if self._is_drawn:
            self._write(_CLEAR)

    def _draw(self, time_ns: int) -> None:
        now_s, offset, size = self._clock(), self._source.offset, self._source.size
        self._due_s, self._is_drawn = now_s + REDRAW_S, True
        text = f"{self._title}: {self._samples} samples, {place(time_ns)}"
        if size and offset:
            left_s = (now_s - self._start_s) * max(0, size - offset) / offset
            text += f", {running(round(left_s))} left"
        self._write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._output.write(text)
            self._output.flush()
