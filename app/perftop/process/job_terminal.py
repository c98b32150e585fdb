"""The pseudo-terminal of a command, the lines printed on it, and the keys typed on perftop's own
terminal while a verb without a screen runs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import select
import struct
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

from perftop.base.errors import Failed
from perftop.process.job import Job

READ_BYTES = 1 << 16
MAX_READ_BYTES = 1 << 17
"""Number of bytes after which `JobTerminal.read` returns, so that the event loop can do other
work."""
PAUSE_S = 0.004
"""Pause in s between two calls of `JobTerminal.read`. It keeps the screen fast if output never
ends, and slows such output down, as any terminal does."""
DRAIN_MS, DRAIN_BYTES = 100, 1 << 18
"""Limits of output after the command's end, from processes that it left running: ms without output,
and bytes."""
INTERRUPT, QUIT = b"\x03", b"\x1c"
"""Ctrl-C and Ctrl-\\, which a terminal turns into signals for its foreground processes."""
MAX_LINES = 2000
MAX_BYTES = 1 << 20
"""Maximum number of lines and of bytes of output that are kept."""
MAX_LINE_BYTES = 1 << 16
MAX_REWRITES = 8
"""Maximum number of rewrites of one line that are kept, for example by a progress display. The last
ones are kept."""
MAX_COLOUR_BYTES = 128
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")


class JobTerminal:
    """A pseudo-terminal and its `job`, a command that waits at its gate. perftop reads the output
    and sends keys. Must be created before there are threads."""

    def __init__(self, argv: Sequence[str], columns: int, lines: int) -> None:
        try:
            self._terminal_fd, command_fd = os.openpty()
        except OSError as error:
            raise Failed(f"cannot open a terminal for the command: {error.strerror}") from None
        os.set_blocking(self._terminal_fd, False)
        self.size = (0, 0)
        self.resize(columns, lines)
        self.job = Job(argv, command_fd)
        os.close(command_fd)
        self.is_closed = False
        """Whether all processes on the terminal have ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done, self._finish = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the terminal. Processes that still use it get SIGHUP, as when a terminal window is
        closed."""
        for fd in (self._terminal_fd, self._done, self._finish):
            os.close(fd)
        self.job.close_gate()

    def resize(self, columns: int, lines: int) -> None:
        """Sets the size. If it has changed, the foreground processes get a signal."""
        if min(columns, lines) > 0 and (columns, lines) != self.size:
            self.size = (columns, lines)
            packed = struct.pack("HHHH", lines, columns, 0, 0)
            fcntl.ioctl(self._terminal_fd, termios.TIOCSWINSZ, packed)

    def send_keys(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):  # no process reads, and the buffer is full
            os.write(self._terminal_fd, keys)

    def read(self) -> bytes:
        """Returns the output since the last read, up to about MAX_READ_BYTES."""
        parts, size = [], 0
        while size < MAX_READ_BYTES:
            try:
                data = os.read(self._terminal_fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:  # no process has the terminal open
                self.is_closed = True
                break
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    # --- while there is a screen

    def follow(self, on_output: Callable[[bytes], None]) -> None:
        """Passes output to `on_output` until `stop_following` is called."""
        self._loop = loop = asyncio.get_running_loop()
        loop.add_reader(self._terminal_fd, self._read_and_pause, on_output)

    def stop_following(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._terminal_fd)
            self._loop = None

    def _read_and_pause(self, on_output: Callable[[bytes], None]) -> None:
        loop = self._loop
        assert loop is not None
        loop.remove_reader(self._terminal_fd)
        on_output(self.read())
        if not self.is_closed:
            loop.call_later(PAUSE_S, self._follow_again, on_output)

    def _follow_again(self, on_output: Callable[[bytes], None]) -> None:
        if self._loop is not None:
            self.follow(on_output)

    # --- without a screen

    def copy(self, fd: int, first: bytes = b"") -> None:
        """Writes `first`, and then the output until `finish` is called, to descriptor `fd`. Runs in
        a thread, because a terminal may block."""
        fd = _write_if_open(fd, first)
        wait = select.poll()
        wait.register(self._terminal_fd, select.POLLIN)
        wait.register(self._done, select.POLLIN)
        while not self.is_closed and all(ready != self._done for ready, _ in wait.poll()):
            fd = _write_if_open(fd, self.read())
        wait.unregister(self._done)
        size = 0
        while not self.is_closed and size < DRAIN_BYTES and wait.poll(DRAIN_MS):
            data = self.read()
            size += len(data)
            fd = _write_if_open(fd, data)

    def finish(self) -> None:
        """Ends `copy`. Called after the command has ended."""
        os.write(self._finish, b"\n")


def _write_if_open(fd: int, data: bytes) -> int:
    """Writes data, unless `fd` is -1. Returns `fd`, or -1 if a write failed, which must not affect
    the command."""
    try:
        while data and fd >= 0:
            data = data[os.write(fd, data) :]
    except OSError:
        return -1
    return fd


class OutputLine(NamedTuple):
    colours: bytes
    raw: bytes


class OutputLines:
    """The last lines of output, raw and limited in size. Collecting lines costs little, because
    they are rendered only when they are shown."""

    def __init__(self) -> None:
        self._lines: deque[OutputLine] = deque()
        self._bytes = 0
        self._open_line, self._open_colours = b"", b""
        """The last line, which has no end yet, and the colour sequences in force at its start."""
        self._unsplit: deque[bytes] = deque()
        self._new_bytes = 0
        self._skipped_lines = 0
        """Number of lines dropped before the data were split into lines."""
        self.dropped_count = 0
        """Number of lines dropped, which is the index in the whole output of the first line
        kept."""

    def __len__(self) -> int:
        return len(self._lines) + bool(self._open_line)

    def __getitem__(self, index: int) -> OutputLine:
        is_open = index == len(self._lines)
        return OutputLine(self._open_colours, self._open_line) if is_open else self._lines[index]

    def add(self, data: bytes) -> None:
        """Adds data. They are split into lines later, because most of a flood of output is never
        shown."""
        self._unsplit.append(data)
        self._new_bytes += len(data)
        while self._new_bytes - len(self._unsplit[0]) > MAX_BYTES:
            dropped = self._unsplit.popleft()
            self._new_bytes -= len(dropped)
            self._skipped_lines += dropped.count(b"\n")

    def split_lines(self) -> None:
        """Splits the data added since the last call into lines."""
        if self._skipped_lines:
            self.dropped_count += self._skipped_lines + len(self._lines)
            self._lines.clear()
            self._bytes = self._skipped_lines = 0
            self._open_line = self._open_colours = b""
        lines = (self._open_line + b"".join(self._unsplit)).rsplit(b"\n", MAX_LINES + 1)
        self._unsplit.clear()
        self._new_bytes = 0
        if len(lines) > MAX_LINES + 1:  # these lines were never shown
            self.dropped_count += lines[0].count(b"\n") + 1
            del lines[0]
        *complete_lines, rest = lines
        for line in complete_lines:
            raw = _cut_line(line.rstrip(b"\r"))
            self._lines.append(OutputLine(self._open_colours, raw))
            self._bytes += len(raw)
            if b"\x1b" in raw:
                self._open_colours = _colours_after(self._open_colours, raw)
        self._open_line = _cut_line(rest)
        while len(self._lines) > MAX_LINES or self._bytes > MAX_BYTES:
            self._bytes -= len(self._lines.popleft().raw)
            self.dropped_count += 1


def _cut_line(raw: bytes) -> bytes:
    if raw.count(b"\r") > MAX_REWRITES:
        raw = b"\r".join(raw.rsplit(b"\r", MAX_REWRITES)[1:])
    return raw[:MAX_LINE_BYTES]


def _colours_after(colours: bytes, raw: bytes) -> bytes:
    """Returns the colour sequences in force after a line."""
    for colour in _COLOUR.findall(raw):
        codes = colour[2:-1]
        if codes in {b"", b"0"}:
            colours = b""
        elif codes.startswith(b"0;") or len(colours) + len(colour) > MAX_COLOUR_BYTES:
            colours = colour
        else:
            colours += colour
    return colours


@contextlib.contextmanager
def typed_keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_key` with each typed key while the block runs, without waiting for Enter; with ''
    if the terminal is gone. In the background, or if stdin is not a terminal, no keys are read."""
    try:
        fd = sys.stdin.fileno()
        is_ours = os.tcgetpgrp(fd) == os.getpgrp()
        settings = termios.tcgetattr(fd)
    except (AttributeError, ValueError, OSError, termios.error):
        is_ours = False
    if not is_ours:
        yield
        return

    def read() -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(fd, 1)
        if not data:  # the terminal is gone
            loop.remove_reader(fd)
        on_key(data.decode(errors="replace"))

    loop = asyncio.get_running_loop()
    tty.setcbreak(fd, termios.TCSANOW)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(fd, termios.TCSADRAIN, settings)


async def wait_for_key() -> None:
    """Waits until a key is typed. Keys typed earlier are discarded."""
    has_key = asyncio.Event()
    with typed_keys(lambda _: has_key.set()):
        with contextlib.suppress(OSError, ValueError, termios.error):  # the terminal may be gone
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        await has_key.wait()
