"""Handling of signals that ask perftop to end, and writes that such a signal can interrupt.

perftop must wait for a probe to end, because it restores registers. So a signal that arrives while
a probe is being started is held until the start is complete. The first signal after that ends the
probe; later ones are ignored. asyncio's own handlers are not enough: a closing loop removes them,
and for a moment the default action of the signal could kill perftop.

A write to a full pipe waits until there is room, and Python continues it after a signal. So perftop
would not end if nobody read the pipe, and registers would stay programmed. `write_text` checks for
signals while it waits.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, ParamSpec, Self, TextIO, TypeVar

from perftop.base import END_SIGNALS
from perftop.base.errors import UNAVAILABLE, Failed, discard_writes, failure_to

P = ParamSpec("P")
T = TypeVar("T")
CHECK_MS = 200
"""Time in ms between two checks for a signal while a write waits."""
GRACE_S = 1.0
"""Time in s after a signal in which a reader can still read the rest of the output."""


class EndRequest:
    """Whether this process was asked to end, and the time of the first request."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def reset(self) -> None:
        self._since_s = None

    def set(self) -> None:
        self._since_s = self._since_s or time.monotonic()

    def age_s(self) -> float:
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s


END_REQUEST = EndRequest()
"""The request to end this process. `on_signal` resets it if it handles one of END_SIGNALS."""


def check_loop() -> None:
    """Raises Failed if no event loop can run. Signals and threads wake the loop through a pair of
    sockets; if the kernel refuses these, asyncio would wait forever. `poll` is needed as well, by
    the probe, the screen and writes to pipes."""
    import socket

    try:
        sender, receiver = socket.socketpair()
        with sender, receiver, select.epoll() as poll:
            receiver.setblocking(False)
            poll.register(receiver)
            poll.poll(0)
            select.poll().poll(0)
            sender.send(b"\0")
            receiver.recv(1)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise failure_to("wait for events", error) from None
        message = f"cannot wait for events: {error.strerror}"
        raise Failed(f"{message}; perhaps a seccomp filter refuses it", UNAVAILABLE) from None


def run_loop(
    work: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
) -> T:
    """Runs a coroutine function in a new event loop. Raises Failed if no loop can run."""
    import asyncio

    async def run() -> T:
        try:
            return await work(*arguments, **options)
        # a closing loop first closes its sockets; a signal that then wakes the loop would be an
        # error
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGURG)

    check_loop()
    hold_signals()
    return asyncio.run(run())


async def run_in_thread(work: Callable[[], T], *, delays_exit: bool = True) -> T:
    """Runs a function in a separate thread, or in this thread if none can be started.
    `delays_exit`: perftop does not exit before the function has ended, even after the loop."""
    import asyncio
    import threading

    loop, outcome = asyncio.get_running_loop(), asyncio.Future[T]()

    def settle(set_outcome: Callable[[], None]) -> None:
        if not outcome.cancelled():
            set_outcome()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            set_outcome = partial(outcome.set_exception, error)
        else:
            set_outcome = partial(outcome.set_result, result)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, set_outcome)

    try:
        threading.Thread(target=run, daemon=not delays_exit).start()
    except RuntimeError:  # no thread can be started
        return work()
    return await outcome


_held_signals: list[int] = []
"""Signals that have arrived since `hold_signals` and that `on_signal` has not handled yet."""


def hold_signals() -> None:
    """Holds signals that ask perftop to end until `on_signal` handles them. An exception raised by
    a handler could leave an event loop half set up."""
    for number in END_SIGNALS:
        if callable(signal.getsignal(number)):
            signal.signal(number, lambda number, _: _held_signals.append(number))


def on_signal(
    numbers: Iterable[int],
    handler: Callable[[Any], object],
    on_arrival: Callable[[], None] = lambda: None,
) -> None:
    """When a signal arrives, calls `on_arrival` immediately, and then `handler(number)` in the
    running loop. After the loop has closed, only `on_arrival` is called."""
    import asyncio  # imported late, so that the probe starts earlier

    loop = asyncio.get_running_loop()
    # signals wake the loop only if asyncio handles at least one; SIGURG is harmless
    loop.add_signal_handler(signal.SIGURG, lambda: None)

    if not set(END_SIGNALS).isdisjoint(numbers := list(numbers)):
        END_REQUEST.reset()

    def handle(number: int, _: FrameType | None) -> None:
        if number in END_SIGNALS:
            END_REQUEST.set()
        on_arrival()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(handler, signal.Signals(number))

    for number in numbers:
        signal.signal(number, handle)
        while number in _held_signals:
            _held_signals.remove(number)
            signal.raise_signal(number)


def ignore(numbers: Iterable[int] = END_SIGNALS) -> None:
    """Ignores these signals from now on."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


class ExitSignals:
    """A context manager in which a signal of END_SIGNALS raises SystemExit, with the status that a
    shell would report, or KeyboardInterrupt.

    On entry, signals are held. `raise_signals` lets them raise; `hold` holds them again. After one
    has raised, all later signals are held, so that cleanup is not interrupted. After `ignore_all`,
    signals stay ignored; otherwise the block ends with their previous handlers. Signals that were
    ignored before (nohup) stay ignored.
    """

    def __init__(self) -> None:
        self._holds_signals, self._ignores_all = True, False
        self._received_signal: signal.Signals | None = None
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ignores_all:
            return
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        if self._received_signal is not None:
            signal.raise_signal(self._received_signal)

    def raise_signals(self) -> None:
        self._holds_signals = False
        self._raise()

    def hold(self) -> None:
        self._holds_signals = True

    def ignore_all(self) -> None:
        self._ignores_all = True
        ignore()

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._received_signal = self._received_signal or signal.Signals(number)
        self._raise()

    def _raise(self) -> None:
        if self._holds_signals or self._received_signal is None:
            return
        number, self._received_signal, self._holds_signals = self._received_signal, None, True
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def write_text(output: TextIO, text: str) -> None:
    """Writes and flushes the text. After a signal, waits at most GRACE_S for the reader; then drops
    the rest of the text, and all later text."""
    try:
        fd = output.fileno()
    except (OSError, ValueError):  # the stream has no descriptor
        fd = -1
    if fd < 0 or stat.S_ISREG(os.fstat(fd).st_mode):
        output.write(text)
        output.flush()
        return
    output.flush()
    data = text.encode(output.encoding, output.errors or "strict")
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    while data:
        if poll.poll(CHECK_MS):  # if the pipe is writable, PIPE_BUF bytes fit without waiting
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]
        elif END_REQUEST.age_s() > GRACE_S:
            discard_writes(fd)
            if output is not sys.stderr:
                write_text(
                    sys.stderr, "perftop: nothing is reading the output; the rest is discarded\n"
                )
            return
