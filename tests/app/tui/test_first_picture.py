"""The start of the screen: a picture before imports finish, and a hint shown once."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes import Machine
from nightly import cases_by_day
from played_apps import running_app
from terminal import Screen, drained_bytes
from waiting import MAX_WAIT_S

from perftop.tui import app as app_module
from perftop.tui import config
from perftop.tui.app import PerfTopApp, ScreenSource, run_app
from perftop.tui.config import Config

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """Yields the user's end and the program's end of a terminal that replaces stdout."""
    user_end, program_end = pty.openpty()
    with os.fdopen(program_end, "w", closefd=False) as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        try:
            yield user_end, program_end
        finally:
            os.close(user_end)
            os.close(program_end)


def terminal_output(user_end: int) -> bytes:
    result = b""
    while select.select([user_end], [], [], 0)[0]:
        result += os.read(user_end, 4096)
    return result


def echoes(program_end: int) -> bool:
    flags: int = termios.tcgetattr(program_end)[3]
    return bool(flags & termios.ECHO)


def test_the_first_picture_is_removed_unless_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (user_end, program_end):
        with config.show_picture():
            assert ENTER in (text := terminal_output(user_end))
            assert b"perftop" in text
            assert os.uname().nodename.encode() in text
        assert LEAVE in terminal_output(user_end)
        with config.show_picture() as picture:
            terminal_output(user_end)
            picture.hand_over()
        assert not terminal_output(user_end)
        assert echoes(program_end)


def test_a_signal_removes_the_first_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (user_end, program_end):
        with pytest.raises(SystemExit, match="143"), config.show_picture():
            os.kill(os.getpid(), signal.SIGTERM)
        assert terminal_output(user_end).endswith(LEAVE + b"\x1b[?25h")
        assert echoes(program_end)


def test_keys_are_not_echoed_and_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (user_end, program_end), config.show_picture():
        terminal_output(user_end)
        assert not echoes(program_end)
        os.write(user_end, b"3\n")
        assert os.read(program_end, 10) == b"3\n"
        assert not terminal_output(user_end)


def test_a_vanished_terminal_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    user_end, program_end = pty.openpty()
    with os.fdopen(program_end, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        with config.show_picture():
            os.close(user_end)


def test_a_host_name_is_printed_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = os.uname_result(("Linux", "a\x1b]0;b\x07c", "", "", ""))
    monkeypatch.setattr(os, "uname", lambda: drawn)
    with terminal(monkeypatch) as (user_end, _), config.show_picture():
        assert b"  a]0;bc " in terminal_output(user_end)


BACKGROUND = """
import os, signal
from perftop.tui import config

signal.signal(signal.SIGTTOU, signal.SIG_DFL)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    with config.show_picture():
        os._exit(7)
print("stopped", os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]), flush=True)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGCONT)
print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_start_in_the_background_waits_for_the_foreground() -> None:
    with Screen([sys.executable, "-c", BACKGROUND]) as program:
        result = drained_bytes(program.fd, MAX_WAIT_S)
    before, stopped, after = result.partition(b"stopped True")
    assert (before, stopped) == (b"", b"stopped True")
    assert ENTER in after
    assert b"ended 7" in after


def test_the_first_start_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert config.is_first_start()
    assert not config.is_first_start()
    assert [path.name for path in (tmp_path / "state" / "perftop").iterdir()] == ["greeted"]


def test_no_hint_is_shown_without_a_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert not config.is_first_start()


@pytest.mark.parametrize(
    ("size", "rows"),
    cases_by_day([((80, 24), 1), ((120, 30), 2), ((160, 50), 3)], [((160, 50), 3)]),
)
async def test_notes_are_in_blank_rows_and_have_no_other_effect(
    size: tuple[int, int], rows: int
) -> None:
    """Small screens show one note at a time; others show all notes at once, each joined to its
    subject. From 28 lines on, the next note is also beside its subject."""
    async with running_app(Machine(), size=size) as plain, running_app(
        Machine(), size=size, tour=True
    ) as run:  # fmt: skip
        for each in (plain, run):
            await each.send_intervals(20)
        assert run.has("1 of 3  This is the verdict")
        pairs = [*zip(run.text(), plain.text(), strict=True)]
        notes = [(mine, other) for mine, other in pairs if mine.lstrip("│ ") != other.lstrip()]
        first_note = next(i for i, (mine, _) in enumerate(pairs) if "1 of 3" in mine)
        above = [mine[:1] for mine, other in pairs[:first_note] if mine != other]
        loss_row = next(i for i, (mine, _) in enumerate(pairs) if mine[1:9].strip() == "lost")
        assert above == ["│"] * (first_note - loss_row - 1), "the rows between verdict and note"
        assert pairs[first_note][0].startswith("╰─ 1 of 3")
        assert [other.strip() for _, other in notes] == [""] * rows
        lines = run.text()
        for mine, _ in notes[1:]:
            x, below = mine.index("╭"), lines[lines.index(mine) + 1]
            assert below[x:].startswith(("what happened", "3 time"))
        await run.pilot.press("w", "escape")
        await run.wait_for_text("2 of 3")
        await run.pilot.press("n")
        await run.wait_for_text("3 of 3")
        await run.pilot.press("3", "1")
        assert not run.has("of 3  ")


async def test_the_last_chosen_theme_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with running_app(Machine()) as run:
        run.app.restore_theme()
        await run.pilot.press("T")
        chosen = run.app.theme
    source = ScreenSource()
    monkeypatch.setattr(app_module, "hold_signals", lambda: None)
    monkeypatch.setattr(app_module, "run_loop", lambda *_, **__: None)
    assert PerfTopApp(ScreenSource()).theme != chosen
    run_app(source, Config(), mouse=False)
    assert source.app.theme == chosen
