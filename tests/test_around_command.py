"""`perftop -- CMD` as a user runs it: on a terminal, with the probe of a simulated machine."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import argv
from waiting import wait_for


class Terminal:
    """A program on a terminal; its stderr is a file, like with `2>`."""

    def __init__(self, arguments: list[str], errors: Path) -> None:
        self._errors = errors
        self.drawn = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.execv(arguments[0], arguments)  # noqa: S606
        os.set_blocking(self._fd, False)

    def read(self) -> bool:
        """Reads output; returns whether the program still runs."""
        try:
            self.drawn += os.read(self._fd, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def wait_for_text(self, pattern: str, since: int = 0) -> int:
        """Waits for the pattern on the screen; returns the offset of its end."""
        regex = re.compile(pattern)

        def match() -> re.Match[str] | None:
            assert regex.search(self.drawn, since) or self.read(), f"it has ended: {self.errors}"
            return regex.search(self.drawn, since)

        wait_for(match, f"it draws {pattern}")
        found = regex.search(self.drawn, since)
        assert found
        return found.end()

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    def wait_for_end(self) -> int:
        wait_for(lambda: not self.read(), "it ends")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        os.close(self._fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextmanager
def perftop(tmp_path: Path, *command: str) -> Iterator[Terminal]:
    options = ("--source", "sim:smt-mix,cpus=4", "--no-mouse", "--")
    terminal = Terminal(argv(*options, *command), tmp_path / "errors")
    try:
        yield terminal
    finally:
        terminal.close()


LEAVE_ALTERNATE_SCREEN = "\x1b[?1049l"
"""Restores the previous screen."""


def test_output_status_and_summary_of_a_command(tmp_path: Path) -> None:
    with perftop(tmp_path, "sh", "-c", "echo hello; tty; exit 7") as terminal:
        terminal.wait_for_text("hello")
        terminal.wait_for_text("/dev/pts/")
        terminal.wait_for_text("sh ended with status 7")
        terminal.type("q")
        assert terminal.wait_for_end() == 7
        assert "exit status 7 " in terminal.errors
        assert re.search(r"^ +busy % +[0-9.]+", terminal.errors, re.MULTILINE)
        assert "own cost" in terminal.errors


def test_quitting_early_leaves_the_rest_of_the_output_on_the_terminal(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"echo before; read line < {go}; echo after it; exit 5"
    with perftop(tmp_path, "sh", "-c", script) as terminal:
        terminal.wait_for_text("before")
        terminal.type("q")
        wait_until_ctrl_c_is_a_signal(terminal)
        assert terminal.errors == "perftop: sh runs on, its summary will follow\n"
        go.write_text("on\n")
        terminal.wait_for_text("after it")
        assert terminal.wait_for_end() == 5
        assert "exit status 5 " in terminal.errors
        assert re.search(
            r"after it\r+\n", terminal.drawn[terminal.drawn.index(LEAVE_ALTERNATE_SCREEN) :]
        )


@pytest.mark.parametrize("screen", [True, False])
def test_ctrl_c_reaches_the_command_on_the_screen_and_after_it(
    tmp_path: Path, *, screen: bool
) -> None:
    script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    with perftop(tmp_path, "sh", "-c", script) as terminal:
        at = terminal.wait_for_text("ready")
        if not screen:
            terminal.type("q")
            wait_until_ctrl_c_is_a_signal(terminal)
        terminal.type("\x03")
        terminal.wait_for_text("caught", at)
        if screen:
            terminal.wait_for_text("ended with status 3")
            terminal.type("q")
        assert terminal.wait_for_end() == 3
        assert "exit status 3 " in terminal.errors


def wait_until_ctrl_c_is_a_signal(terminal: Terminal) -> None:
    """Waits until ^C in the terminal sends a signal again."""

    def makes_signals() -> bool:
        terminal.read()
        isig = termios.tcgetattr(terminal._fd)[3] & termios.ISIG
        return bool(isig) and "runs on" in terminal.errors

    wait_for(makes_signals, "^C sends signals")


def test_a_signal_ends_the_command(tmp_path: Path) -> None:
    with perftop(tmp_path, "sh", "-c", "echo ready; exec sleep 60") as terminal:
        terminal.wait_for_text("ready")
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait_for_end() == 143
        assert "exit status 143 " in terminal.errors


def test_sigusr1_does_not_end_a_command_after_the_screen(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    with perftop(tmp_path, "sh", "-c", f"echo ready; read line < {go}; exit 7") as terminal:
        terminal.wait_for_text("ready")
        os.kill(terminal.pid, signal.SIGUSR1)
        terminal.type("q")
        wait_until_ctrl_c_is_a_signal(terminal)
        os.kill(terminal.pid, signal.SIGUSR1)
        go.write_text("on\n")
        assert terminal.wait_for_end() == 7
