"""The terminal vanishes or a signal arrives at any time: perftop ends and restores registers."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import termios
import time
from pathlib import Path

import command
import pytest
import terminal
from capabilities import needs_fuse
from command import argv, children
from fakekernel.client import FakeKernel
from journals import entries_left, swept_directory
from nightly import cases_by_day
from waiting import process_state, wait_for

MAX_END_S = 60.0
"""Maximum time to end; on an idle machine it takes less than 2 s."""
MAX_CPU_S = 20.0
"""Maximum CPU time of the whole run; a busy loop would use MAX_END_S."""
BYTES = (1, 60, 400, 3000, 12000)
"""Bytes drawn before the event: while the screen is opened, while it starts, and later."""


class Screen(terminal.Screen):
    """perftop on its own terminal."""

    def __init__(self, *options: str, ignored: bool = False) -> None:
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        super().__init__(argv("--source", *options))
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def read(self, count: int) -> None:
        """Reads this number of drawn bytes."""
        end_s = time.monotonic() + MAX_END_S
        while count > 0 and time.monotonic() < end_s:
            if select.select([self.fd], [], [], 1.0)[0]:
                count -= len(os.read(self.fd, min(count, 4096)))
        assert count <= 0, "it draws"

    def hang_up(self) -> None:
        os.close(self.fd)
        self.fd = os.open(os.devnull, os.O_RDONLY)

    def is_stopped(self) -> bool:
        """Returns whether the program is stopped; reads its last output, too."""
        if select.select([self.fd], [], [], 0)[0]:
            os.read(self.fd, 4096)
        return process_state(self.pid) == "T"


def assert_ends(screen: terminal.Screen) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wait_for(screen.has_ended, "perftop ends", MAX_END_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used_s < MAX_CPU_S


@pytest.mark.parametrize(
    ("count", "ignored"),
    cases_by_day(
        [(count, ignored) for count in BYTES for ignored in (False, True)], [(12000, False)]
    ),
)
def test_perftop_ends_when_its_terminal_vanishes(count: int, ignored: bool) -> None:
    """perftop ends even if it ignores SIGHUP from its start."""
    with Screen("sim:steady,cpus=4", ignored=ignored) as screen:
        screen.read(count)
        screen.hang_up()
        assert_ends(screen)


def test_perftop_ends_when_the_terminal_vanishes_before_the_start() -> None:
    with Screen("sim:steady,cpus=4", ignored=True) as screen:
        wait_for(lambda: children(screen.pid), "the probe is started")
        screen.hang_up()
        assert_ends(screen)


@pytest.mark.parametrize(
    ("count", "number"),
    cases_by_day(
        [
            (count, number)
            for count in BYTES
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        ],
        [(400, signal.SIGQUIT)],
    ),
)
def test_a_signal_ends_perftop(count: int, number: signal.Signals) -> None:
    with Screen("sim:steady,cpus=4") as screen:
        screen.read(count)
        os.kill(screen.pid, number)
        with contextlib.suppress(OSError):  # there is room for its last output
            screen.read(1)
        assert_ends(screen)
        assert screen.status in {128 + number, -number}
        assert termios.tcgetattr(screen.fd)[3] & termios.ECHO


def test_a_signal_ends_perftop_while_the_terminal_accepts_no_output() -> None:
    with Screen("sim:smt-mix,cpus=64,speed=20") as screen:
        screen.read(20_000)
        wait_for(lambda: _blocked(screen.pid), "a thread waits for the terminal")
        os.kill(screen.pid, signal.SIGTERM)
        assert_ends(screen)


def test_an_uncatchable_stop_is_handled_after_resuming() -> None:
    """perftop then reopens the terminal with the same number of threads, and restores it at the
    end."""
    with Screen("sim:steady,cpus=4") as screen:
        screen.read(12_000)
        before = _threads(screen.pid)
        os.kill(screen.pid, signal.SIGSTOP)
        os.kill(screen.pid, signal.SIGCONT)
        drawn = b""
        while b"\x1b[?1049h" not in drawn:
            drawn = drawn[-8:] + os.read(screen.fd, 4096)
        screen.read(2_000)
        assert _threads(screen.pid) == before
        os.write(screen.fd, b"q")
        with contextlib.suppress(OSError):  # it has ended
            screen.read(1 << 20)
        assert_ends(screen)
        assert screen.status == 0
        assert termios.tcgetattr(screen.fd)[3] & termios.ECHO


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _blocked(pid: int) -> bool:
    """Whether a thread of the process waits for the terminal to accept output."""
    paths = Path(f"/proc/{pid}/task").glob("*/syscall")
    return any(path.read_text().startswith(f"{WRITE} ") for path in paths)


WRITE = 1
"""Number of the system call write on x86-64."""


@needs_fuse
@pytest.mark.nightly
@pytest.mark.parametrize("count", [1, 400, 12000])
def test_registers_are_restored(tmp_path: Path, count: int) -> None:
    with FakeKernel(tmp_path / "root") as fake, swept_directory(Path(fake.root)):
        with Screen("msr", "--sysroot", str(fake.root), ignored=True) as screen:
            screen.read(count)
            screen.hang_up()
            assert_ends(screen)
        assert not fake.changed()
        assert not entries_left(Path(fake.root))


def test_perftop_can_be_stopped_and_resumed_at_any_time() -> None:
    with Screen("sim:steady,cpus=4") as screen:
        screen.read(12_000)
        os.write(screen.fd, b"\x1a")  # perftop leads its session: nothing could resume it
        text = ""
        end_s = time.monotonic() + MAX_END_S
        while "not suspended" not in text and time.monotonic() < end_s:
            if select.select([screen.fd], [], [], 0.2)[0]:
                text += os.read(screen.fd, 4096).decode(errors="replace")
        assert "not suspended" in text

        # The kernel sends SIGCONT when a terminal vanishes, shells send others; one may arrive
        # while perftop handles another.
        for _ in range(100):
            os.kill(screen.pid, signal.SIGCONT)
            screen.read(1)

        for _ in range(12):  # SIGTSTP during a write
            screen.read(1)
            os.kill(screen.pid, signal.SIGTSTP)
            wait_for(screen.is_stopped, "it stops")
            os.kill(screen.pid, signal.SIGCONT)

        # SIGTSTP before it resumes: the kernel drops the pending SIGCONT, so it stops again.
        os.kill(screen.pid, signal.SIGTSTP)
        wait_for(screen.is_stopped, "it stops")
        for _ in range(10):
            os.kill(screen.pid, signal.SIGCONT)
            os.kill(screen.pid, signal.SIGTSTP)
            wait_for(screen.is_stopped, "it stops again")
        os.kill(screen.pid, signal.SIGCONT)

        os.kill(screen.pid, signal.SIGTERM)  # a key could be lost between two readers
        with contextlib.suppress(OSError):  # it has ended
            screen.read(1 << 20)
        assert_ends(screen)
        assert screen.status in {128 + signal.SIGTERM, -signal.SIGTERM}


CHILDREN = """
import os
from perftop.tui.app import can_be_resumed
for has_own_group in (False, True):
    if (pid := os.fork()) == 0:
        if has_own_group:
            os.setpgid(0, 0)
        print(can_be_resumed(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_a_separate_process_group_in_a_session_can_be_resumed() -> None:
    done = command.python(CHILDREN, start_new_session=True)
    assert done.stdout.split() == ["False", "True"]


EARLY = """
import asyncio, os, signal, sys
from perftop import cli
made = asyncio.BaseEventLoop.__init__
def interrupted(loop):
    os.kill(os.getpid(), signal.SIGTERM)
    made(loop)
asyncio.BaseEventLoop.__init__ = interrupted
sys.exit(cli.main(["--source", "sim:idle"]))
"""


def test_a_signal_while_the_event_loop_starts_causes_no_traceback() -> None:
    data = b""
    with terminal.Screen([sys.executable, "-c", EARLY]) as screen:
        end_s = time.monotonic() + MAX_END_S
        while not screen.has_ended() and time.monotonic() < end_s:
            data += terminal.drained_bytes(screen.fd, 0.1)
        data += terminal.drained_bytes(screen.fd, 0.1)
    assert screen.status == 128 + signal.SIGTERM
    assert b"Traceback" not in data
    assert b"never awaited" not in data
    assert data.rfind(b"\x1b[?1049h") < data.rfind(b"\x1b[?1049l")


SIGNALLED = """
import contextlib, os, signal, sys
from perftop import cli
from perftop.tui.app import TerminalDriver
made = TerminalDriver.__init__
def signalled(driver, *arguments, **options):
    os.set_blocking(1, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(1, b"." * 1024)
    os.set_blocking(1, True)
    os.kill(os.getpid(), signal.SIGTERM)
    made(driver, *arguments, **options)
TerminalDriver.__init__ = signalled
sys.exit(cli.main(["--source", "sim:idle"]))
"""


def test_a_signal_before_the_terminal_is_opened_limits_the_wait_for_it() -> None:
    """Nobody reads the terminal, which is full, so perftop cannot restore it."""
    with terminal.Screen([sys.executable, "-c", SIGNALLED]) as screen:
        assert_ends(screen)
        assert screen.status == 128 + signal.SIGTERM
