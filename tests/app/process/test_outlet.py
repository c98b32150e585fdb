"""Output that nobody reads: it is waited for until perftop shall end."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest
from started import started
from waiting import wait

from perftop.process import signals
from perftop.process.signals import END_REQUEST, write_text

TEXT = "a line of numbers\n" * 10_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Its reading end, and what writes to it."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out:
        yield reading, out
    os.close(reading)


@pytest.fixture(autouse=True)
def _nobody_asks() -> Iterator[None]:
    END_REQUEST.reset()
    yield
    END_REQUEST.reset()


def test_all_comes_to_a_reader_that_takes_its_time(pipe: tuple[int, TextIO]) -> None:
    reading, out = pipe
    taken = bytearray()

    def read() -> None:
        while len(taken) < len(TEXT):
            taken.extend(os.read(reading, 1000))

    reader = threading.Thread(target=read)
    reader.start()
    write_text(out, TEXT)
    reader.join()
    assert taken.decode() == TEXT


def test_once_asked_to_end_it_gives_up(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, out = pipe
    monkeypatch.setattr(signals, "GRACE_S", 0.0)
    END_REQUEST.note()
    write_text(out, TEXT)
    write_text(out, TEXT)  # what comes later has no place either
    assert TEXT.startswith(os.read(reading, len(TEXT)).decode())
    assert capsys.readouterr().err == "perftop: nobody reads the output: the rest of it is lost\n"


def test_what_is_read_is_written_after_a_signal_too(pipe: tuple[int, TextIO]) -> None:
    reading, out = pipe
    END_REQUEST.note()
    write_text(out, "the summary\n")
    assert os.read(reading, 100) == b"the summary\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stat_ends_although_nobody_reads(number: signal.Signals) -> None:
    more = ("--source", "sim:smt-mix,cpus=64", "-i", "20ms", "--sample", "20ms")
    with started("stat", "--json", *more, heard=True) as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()

        def full() -> bool:
            (held,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
            return bool(held > 50_000)  # a line of 64 CPUs is longer than the pipe

        wait(full, "the pipe is full")
        process.send_signal(number)
        wait(lambda: process.poll() is not None, "stat ends")
        assert process.returncode == 128 + number
