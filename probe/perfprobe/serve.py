"""The main loop of `perfprobe stream`: writes the messages of a source to a descriptor until the
reader closes it.

A slow reader never slows perfprobe: messages that do not fit into the pipe wait in a bounded queue,
from which the oldest frames are dropped and counted. perfprobe ends when its stdin closes (its
parent has ended), when a write fails, or on SIGTERM. The caller then closes the source, which
restores programmed MSRs.

The parent may send commands on stdin, one per line. `batch NS` sets the time between two writes.
`echo N` asks for a note with that number, by which a remote parent measures the delay of the link.
All other bytes are ignored, because perfprobe may be root while its parent is not.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

from perfprobe import wire
from perfprobe.native import tsc_rate
from perfprobe.sources import Source
from perfprobe.wire.outbox import EndedError, Outbox

BATCH_COMMAND, ECHO_COMMAND = b"batch ", b"echo "
MAX_COMMAND_BYTES = 32
"""Maximum number of bytes of a command; a longer line is not a command."""
_COMMAND_PATTERN = re.compile(rb"(batch |echo )([0-9]{1,12})")


class CommandParser:
    """Parses the commands in the bytes that arrive on stdin."""

    def __init__(self) -> None:
        self._line = b""
        """Beginning of an unfinished line, at most one byte longer than a command."""

    def parse(self, data: bytes) -> dict[bytes, int]:
        """Returns the number in the last command of each kind whose line ends in these bytes."""
        *lines, unfinished_line = (self._line + data).split(b"\n")
        self._line = unfinished_line[: MAX_COMMAND_BYTES + 1]
        commands = (_COMMAND_PATTERN.fullmatch(line) for line in lines)
        return {command[1]: int(command[2]) for command in commands if command and int(command[2])}


# --- main loop ------------------------------------------------------------------------------------

STDIN, STDOUT = 0, 1
FATAL_EVENTS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that would end perfprobe before MSRs are restored."""


def serve(
    source: Source,
    stdin: int,
    stdout: int,
    stop: int,
    hello: wire.Hello | None = None,
    *,
    on_hello: Callable[[], None] = lambda: None,
) -> None:
    """Writes the source's messages to `stdout` until stdin closes, stdout cannot be written or the
    descriptor `stop` becomes readable, then raises EndedError. `hello` replaces the source's own
    hello. `on_hello` is called once, after the hello is written and before the first sample."""
    outbox = Outbox(stdout)
    outbox.put(hello or source.hello)
    outbox.flush()
    on_hello()
    poller = select.poll()
    poller.register(stop, select.POLLIN)
    if _closes_with_parent(stdin):
        poller.register(stdin, select.POLLIN | select.POLLHUP)
    poller.register(stdout, 0)  # poll reports POLLERR once the reader has closed its end
    parser = CommandParser()
    while True:
        due_s = source.due_s()
        # A simulation with speed=max (due_s is None) runs as fast as its reader.
        wait_s = (1.0 if outbox else 0.0) if due_s is None else due_s - time.monotonic()
        for fd, event in poller.poll(max(0.0, wait_s) * 1000):
            if fd not in {stdin, stdout}:
                raise EndedError("a signal")
            if fd == stdout:
                if event & (select.POLLERR | select.POLLNVAL):
                    raise EndedError("the reader is gone")
                continue
            if not (data := os.read(stdin, 4096)):
                raise EndedError("stdin closed")
            commands = parser.parse(data)
            if BATCH_COMMAND in commands:
                source.set_batch_length(commands[BATCH_COMMAND])
            if ECHO_COMMAND in commands and not outbox.is_full:
                # The note has this machine's time, even if a simulation has another clock.
                number = {"number": commands[ECHO_COMMAND]}
                outbox.put(wire.Note("echo", tsc_rate.raw_ns(), data=number))
        # poll() also returns for a command or if stdout is writable; no sample may be early.
        is_due = not outbox if due_s is None else time.monotonic() >= due_s
        if is_due:
            for message in source.poll():
                outbox.put(message)
        outbox.flush()
        poller.modify(stdout, select.POLLOUT if outbox else 0)


def asked_to_end(stop: int) -> bool:
    """Returns whether a signal arrived or the parent has closed stdin."""
    stdin = sys.stdin.fileno() if sys.stdin is not None else -1
    fds = [stop, stdin] if _closes_with_parent(stdin) else [stop]
    ready_fds, _, _ = select.select(fds, [], [], 0)
    return stop in ready_fds or (stdin in ready_fds and not os.read(stdin, 4096))


def _closes_with_parent(fd: int) -> bool:
    """Returns whether a descriptor, a pipe or socket, closes when the parent process ends."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return (mode & 0o170000) in {0o010000, 0o140000}  # S_IFIFO, S_IFSOCK


@contextlib.contextmanager
def stop_signals() -> Iterator[int]:
    """Handles signals until the block ends. Yields a descriptor that becomes readable when a signal
    asks perfprobe to end. Ctrl-C is such a signal if stdin is a terminal; otherwise the terminal's
    signals are for the parent, which closes perfprobe's stdin. Signals raise no exception in the
    middle of other work, so that a source can restore MSRs."""
    is_on_terminal = sys.stdin is not None and sys.stdin.isatty()
    handled = {*FATAL_EVENTS} | ({signal.SIGINT, signal.SIGHUP} if is_on_terminal else set())
    ignored = {signal.SIGPIPE}
    if not is_on_terminal:
        ignored |= {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP}
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_fd = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    old_handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    old_handlers |= {number: signal.signal(number, lambda *_: None) for number in handled}
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        os.close(readable)
        os.close(writable)
