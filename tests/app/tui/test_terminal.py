"""The thread that reads the terminal, and immediate output."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from textual import events
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from waiting import wait_for

from perftop.tui import app as terminal_module
from perftop.tui.app import TerminalDriver, _EndEvent, _TerminalFile

PIPE_BYTES = 1 << 16
"""Capacity of a pipe in bytes."""


class PipeReader(TerminalDriver):
    """The reading thread of the terminal, on a pipe; records all messages that it posts."""

    def __init__(self) -> None:
        self.fileno, self.typing = os.pipe()
        self._debug = False
        self.keys: list[str] = []
        self.waits: list[float | None] = []
        self.terminal_lost = False
        self.exit_event = _EndEvent(self.fileno, self._report_hangup)
        self.exit_event.wait_for_input, request = self._waited, self.exit_event.wait_for_input  # type: ignore[method-assign]
        self._asked = request
        self.thread = threading.Thread(target=self.run_input_thread)
        self.thread.start()

    def _waited(self, seconds: float | None) -> bool:
        self.waits.append(seconds)
        return self._asked(seconds)

    def _report_hangup(self) -> None:
        self.terminal_lost = True

    def process_message(self, message: Message) -> None:
        assert isinstance(message, events.Key)
        self.keys.append(message.key)


def test_the_reading_thread_sleeps_until_there_is_input_and_esc_is_a_key() -> None:
    reading = PipeReader()
    wait_for(lambda: reading.waits == [None], "it sleeps")
    for typed, name in ((b"a", "a"), (b"\x1b", "escape")):
        reading.keys.clear()
        os.write(reading.typing, typed)
        wait_for(lambda: reading.keys and reading.waits[-1] is None, "the key, and it sleeps again")
        assert reading.keys == [name]
    reading.exit_event.set()
    reading.thread.join()
    assert not reading.terminal_lost
    reading.exit_event.clear()
    assert not reading.exit_event.is_set()


@pytest.mark.parametrize("typed", [[b"\xc3", b"\xa9", b"q"], [b"\xe9", b"q"]])
def test_half_a_character_does_not_end_the_reading_thread(typed: list[bytes]) -> None:
    """The other half follows later, or never if the terminal has another encoding."""
    reading = PipeReader()
    for number, part in enumerate(typed, 1):
        os.write(reading.typing, part)
        wait_for(
            lambda number=number: len(reading.waits) > number or not reading.thread.is_alive(),  # type: ignore[misc]
            "it sleeps again",
        )
    assert (len(reading.keys), reading.keys[-1]) == (2, "q")
    reading.exit_event.set()
    reading.thread.join()


def test_the_output_queue_for_a_slow_terminal_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a long queue, responses to keys would wait for all of its output."""

    def start(terminal: Any) -> None:
        terminal._writer_thread = WriterThread(sys.stdout)  # not started, so no text is written

    monkeypatch.setattr(LinuxDriver, "start_application_mode", start)
    terminal: Any = TerminalDriver.__new__(TerminalDriver)
    terminal.start_application_mode()
    terminal._is_lost, terminal._wait_left_s = threading.Event(), float("inf")
    with piped_output() as (output, _, reads):
        terminal._file = output
        terminal.write("." * PIPE_BYTES + "a refresh")
        terminal.write("another")
        assert terminal._writer_thread._queue.full()
        assert [*terminal._writer_thread._queue.queue] == [b"a refresh", b"another"]
        assert reads(PIPE_BYTES) == b"." * PIPE_BYTES


def test_a_slow_terminal_is_restored_after_a_late_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal arrived long ago, while perftop was starting; only waiting for the terminal is
    limited."""
    monkeypatch.setattr(terminal_module, "MAX_END_WAIT_S", 0.1)
    terminal: Any = TerminalDriver.__new__(TerminalDriver)
    terminal._writer_thread = WriterThread(sys.stdout)  # not started, so no text is written
    terminal._writer_thread._queue.maxsize = 2
    terminal._is_lost, terminal._wait_left_s = threading.Event(), float("inf")
    with piped_output() as (output, *_):
        terminal._file = output
        terminal.limit_wait()
        time.sleep(0.2)
        terminal.write("." * PIPE_BYTES + "a refresh")
        terminal.write("restore")
        terminal.write("this waits for too long")
        assert [*terminal._writer_thread._queue.queue] == [b"a refresh", b"restore"]
        assert not terminal._may_wait()


@contextmanager
def piped_output() -> Iterator[tuple[_TerminalFile, int, Callable[[int], bytes]]]:
    """The output on a pipe instead of a terminal, its write end, and a function that reads from
    it."""
    reader, writer = os.pipe()
    output = _TerminalFile(writer, "utf-8", lambda: None)
    yield output, writer, lambda count: os.read(reader, count)
    os.close(reader)
    os.close(writer)


def test_output_that_the_terminal_accepts_is_written_immediately() -> None:
    with piped_output() as (output, writer, reads):
        assert output.write_now("é") == b""
        assert reads(2) == "é".encode()
        rest = output.write_now("." * PIPE_BYTES + "end")
        assert rest == b"end"
        assert output.write_now("behind it") == b"behind it"
        assert reads(PIPE_BYTES) == b"." * PIPE_BYTES
        assert output.write_now("last") == b"last"  # there is room, but earlier text is waiting
        for text in (rest, b"behind it", b"last"):
            output.write(text)
        assert reads(16) == b"endbehind itlast"
        assert output.write_now("at once again") == b""
        assert os.get_blocking(writer)  # the descriptor is shared with other programs


def test_output_not_accepted_by_a_slow_terminal_is_discarded_at_the_end() -> None:
    with piped_output() as (output, _, reads):
        rest = output.write_now("." * PIPE_BYTES + "\x1b[38;2;1")
        queued = output.write_now("another picture")
        assert output.is_writing()
        output.discard_output()
        restoring = output.write_now("restored")
        for text in (rest, queued):
            output.write(text)
        assert reads(PIPE_BYTES) == b"." * PIPE_BYTES
        output.write(restoring)
        assert reads(100) == b"\x18restored"
        assert not output.is_writing()
        output.discard_output()
        assert output.write_now("nothing was cut") == b""
        assert reads(100) == b"nothing was cut"


def test_a_terminal_that_cannot_be_reopened_uses_the_writer_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    with piped_output() as (output, *_):
        assert output.write_now("a refresh") == b"a refresh"


def test_a_vanished_terminal_discards_output_and_is_reported() -> None:
    results: list[bool] = []
    reader, writer = os.pipe()
    output = _TerminalFile(writer, "utf-8", lambda: results.append(True))
    os.close(reader)
    assert output.write_now("a refresh") == b""
    assert results == [True]
    os.close(writer)


def test_a_vanished_terminal_ends_the_reading_thread() -> None:
    reading: Any = PipeReader()
    os.close(reading.typing)
    reading.thread.join()
    assert reading.terminal_lost


def test_an_ending_app_does_not_resume_the_terminal() -> None:
    """No other code would end the reading thread that this starts."""
    reading: Any = PipeReader()
    reading.exit_event.set()
    reading.thread.join()
    reading._app = SimpleNamespace(_exit=True)
    before = {*threading.enumerate()}  # other tests may have left threads running
    reading._resume()
    assert before.issuperset(threading.enumerate())
    assert reading.exit_event.is_set()
