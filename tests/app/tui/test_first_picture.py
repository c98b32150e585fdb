"""What a user sees first: a picture before the screen is imported, and a hint once."""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fakes import Machine
from playing import running
from waiting import until

from perftop.tui import first_picture
from perftop.tui.shared import keys

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A terminal that is stdout here: the end of who looks at it, and ours."""
    looks, ours = pty.openpty()
    with os.fdopen(ours, "w", closefd=False) as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        try:
            yield looks, ours
        finally:
            os.close(looks)
            os.close(ours)


def seen(looks: int) -> bytes:
    found = b""
    while select.select([looks], [], [], 0)[0]:
        found += os.read(looks, 4096)
    return found


def echoes(ours: int) -> bool:
    flags: int = termios.tcgetattr(ours)[3]
    return bool(flags & termios.ECHO)


def test_the_first_picture_is_removed_unless_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (looks, ours):
        with first_picture.show_picture():
            assert ENTER in (text := seen(looks))
            assert b"perftop" in text
            assert os.uname().nodename.encode() in text
        assert LEAVE in seen(looks)
        with first_picture.show_picture() as picture:
            seen(looks)
            picture.hand_over()
        assert not seen(looks)
        assert echoes(ours)


def test_an_error_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (looks, ours):
        with pytest.raises(SystemExit), first_picture.show_picture():
            raise SystemExit(143)
        assert seen(looks).endswith(LEAVE + b"\x1b[?25h")
        assert echoes(ours)


def test_keys_are_not_echoed_and_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (looks, ours), first_picture.show_picture():
        seen(looks)
        assert not echoes(ours)
        os.write(looks, b"3\n")
        assert os.read(ours, 10) == b"3\n"
        assert not seen(looks)


def test_a_terminal_that_is_gone_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, ours = pty.openpty()
    with os.fdopen(ours, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        with first_picture.show_picture():
            os.close(looks)


def test_a_host_s_name_reaches_the_terminal_without_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = os.uname_result(("Linux", "a\x1b]0;b\x07c", "", "", ""))
    monkeypatch.setattr(os, "uname", lambda: drawn)
    with terminal(monkeypatch) as (looks, _), first_picture.show_picture():
        assert b"  a]0;bc " in seen(looks)


BACKGROUND = """
import os, signal
from perftop.tui import first_picture

signal.signal(signal.SIGTTOU, signal.SIG_DFL)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    with first_picture.show_picture():
        os._exit(7)
print("stopped", os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]), flush=True)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGCONT)
print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_in_the_background_it_waits_until_it_comes_to_the_front() -> None:
    pid, looks = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", BACKGROUND])  # noqa: S606
    found = b""
    with suppress(OSError):  # it has ended
        while data := os.read(looks, 4096):
            found += data
    os.waitpid(pid, 0)
    os.close(looks)
    before, stopped, after = found.partition(b"stopped True")
    assert (before, stopped) == (b"", b"stopped True")
    assert ENTER in after
    assert b"ended 7" in after


CAPTIONS = keys.captions({})


def test_the_hint_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = first_picture.hint(CAPTIONS)
    assert first == "New here?  ? shows keys and shapes · enter opens a core · perftop demo"
    assert first_picture.hint(CAPTIONS) == ""
    assert [path.name for path in (tmp_path / "state" / "perftop").iterdir()] == ["greeted"]


def test_without_a_state_directory_there_is_no_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert first_picture.hint(CAPTIONS) == ""


async def test_the_hint_appears_with_the_first_numbers_until_a_key() -> None:
    async with running(Machine(), greeting="New here?") as run:
        await run.sees("New here?")
        await run.pilot.press("down")
        await until(lambda: not run.has("New here?"), "the hint has gone")
        await run.intervals(2)
        assert not run.has("New here?")
