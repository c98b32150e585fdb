"""`perftop -- CMD` as a user runs it: on a terminal, with the probe of a simulated machine."""

from __future__ import annotations

import os
import re
import signal
import termios
from pathlib import Path

import pytest
from command import argv
from nightly import nightly_case
from terminal import Screen
from waiting import wait_for


class Terminal(Screen):
    """A program on a terminal; its stderr is a file, like with `2>`."""

    def __init__(self, arguments: list[str], errors: Path) -> None:
        self._errors = errors
        self.drawn = ""
        with errors.open("wb") as stderr:
            super().__init__(arguments, stderr)
        os.set_blocking(self.fd, False)

    def read(self) -> bool:
        """Reads output; returns whether the program still runs."""
        try:
            self.drawn += os.read(self.fd, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def wait_for_text(self, pattern: str, since: int = 0) -> int:
        """Waits for the pattern on the screen; returns the offset of its end."""
        regex = re.compile(pattern)
        wait_for(lambda: regex.search(self.drawn, since) or not self.read(), f"it draws {pattern}")
        found = regex.search(self.drawn, since)
        assert found, f"it has ended: {self.errors}"
        return found.end()

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    def wait_for_end(self) -> int | None:
        wait_for(lambda: not self.read(), "it ends")
        wait_for(self.has_ended, "it has ended")
        return self.status


def perftop(tmp_path: Path, *command: str) -> Terminal:
    options = ("--source", "sim:smt-mix,cpus=4", "--no-mouse", "--")
    return Terminal(argv(*options, *command), tmp_path / "errors")


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
        assert terminal.errors == "perftop: sh is still running; its summary will follow\n"
        go.write_text("on\n")
        terminal.wait_for_text("after it")
        assert terminal.wait_for_end() == 5
        assert "exit status 5 " in terminal.errors
        assert re.search(
            r"after it\r+\n", terminal.drawn[terminal.drawn.index(LEAVE_ALTERNATE_SCREEN) :]
        )


@pytest.mark.parametrize("screen", [True, nightly_case(False)])
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
        isig = termios.tcgetattr(terminal.fd)[3] & termios.ISIG
        return bool(isig) and "is still running" in terminal.errors

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
