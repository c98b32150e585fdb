"""The app with a command: a simulated stream, and a real command on its own terminal."""

from __future__ import annotations

import asyncio
import errno
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from fakes import AnyProbe, Machine
from make import stopped
from played_apps import BIG_SCREEN, INTERVAL_NS, Run
from waiting import MAX_WAIT_S, until_true

from perftop.base import errors
from perftop.base.text import count_noun, long_duration
from perftop.process.job import EXEC_FAILURES
from perftop.process.job_terminal import MAX_LINES, JobTerminal, OutputLines
from perftop.tui import command
from perftop.tui.app import PerfTopApp
from perftop.tui.command import CommandSource
from perftop.tui.config import Config
from perftop.tui.frame.command_output import OutputPane
from perftop.tui.frame.monitor import Monitor
from perftop.tui.frame.top import MIN_HEIGHT_FOR_GAPS, ScreenState, TopLines

SIZES = (160, 50), (80, 24), (80, 11)


class CommandRun(Run):
    source: CommandSource

    @property
    def screen(self) -> Monitor:
        screen = self.app.screen_stack[0]
        assert isinstance(screen, Monitor)
        return screen

    def printed(self) -> list[str]:
        """Lines of the output pane without its title; none while it is hidden."""
        pane = self.screen.output_pane
        if pane is None or not pane.display:
            return []
        return [pane.render_line(y).text.rstrip() for y in range(1, pane.size.height)]

    async def wait_for_output(self, text: str) -> None:
        await until_true(lambda: text in self.printed(), f"{text!r} among {self.printed()}")

    def head(self) -> str:
        top = self.screen.query_one(TopLines)
        return "\n".join(top.render_line(y).text.rstrip() for y in range(top.size.height))

    async def wait_for_header(self, text: str) -> None:
        await until_true(lambda: text in self.head(), f"{text!r} in {self.head()}")

    async def finish_command(self) -> None:
        """Sends samples until the command has ended and is measured."""

        def is_measured() -> bool:
            self.feed.frames(1)
            return bool(self.source.summary)

        await until_true(is_measured, "the command is measured")


@asynccontextmanager
async def running(tty: JobTerminal, size: tuple[int, int]) -> AsyncIterator[CommandRun]:
    feed = AnyProbe(Machine(changes={"source": "sim:made"}))  # this source has its own time
    source = stopped(CommandSource(tty, feed.open, INTERVAL_NS))
    app = PerfTopApp(source)
    async with app.run_test(size=size) as pilot:
        run = CommandRun(app, source, feed, pilot)
        feed.frames(2)
        await until_true(lambda: run.seq() >= 1, "a first interval")
        yield run


@asynccontextmanager
async def around(
    script: str, size: tuple[int, int] = BIG_SCREEN, *, interrupted: bool = False
) -> AsyncIterator[CommandRun]:
    """`interrupted`: the command is ended by Ctrl-C."""
    with JobTerminal(["/bin/sh", "-c", script], size[0], size[1]) as tty:
        async with running(tty, size) as run:
            yield run
            if interrupted:
                await run.pilot.press("ctrl+c")
                await run.finish_command()
        await run.source.wait_for_command()


@pytest.mark.parametrize("size", SIZES)
async def test_output_of_a_command_is_below_the_view(size: tuple[int, int]) -> None:
    async with around(
        "for i in 1 2 3; do echo hello $i; done; exec sleep 99", size, interrupted=True
    ) as run:
        await run.wait_for_output("hello 3")
        assert [text for text in run.printed() if text] == ["hello 1", "hello 2", "hello 3"]
        pane, view = run.screen.query_one(OutputPane), run.screen.view
        assert view.region.bottom <= pane.region.y
        keys = size[1] - 1, size[1] - 2  # a high screen has a blank line above the pane
        assert pane.region.bottom == keys[size[1] >= MIN_HEIGHT_FOR_GAPS], (
            "the keys are in the last line"
        )
        assert view.size.height >= 3
        seen = pane.size.width - 1, pane.size.height - 1
        await until_true(
            lambda: run.source.tty.size == seen, "the terminal has the size of the pane"
        )


async def test_a_key_enlarges_or_hides_the_output() -> None:
    async with around("seq 99; exec sleep 99", interrupted=True) as run:
        await run.wait_for_output("99")
        small = len(run.printed())
        await run.pilot.press("O")
        assert [view.display for view in run.screen.query("Canvas")] == [False]
        assert len(run.printed()) > small + 20
        assert run.printed()[-1] == "99"
        await run.pilot.press("home")
        assert run.printed()[0] == "1"
        run.source._on_output(b"more\n")
        await until_true(lambda: len(run.source._printout) == 100, "more of it")
        await run.pilot.pause()
        assert run.printed()[0] == "1", "what is looked at stays"
        await run.pilot.press("end")
        await until_true(lambda: run.printed()[-1] == "more", "the end again")
        await run.pilot.press("2")
        assert [view.id for view in run.screen.query("Canvas") if view.display] == ["heat"]
        assert len(run.printed()) == small
        assert run.printed()[-1] == "more"
        await run.pilot.press("O", "O")
        assert run.printed() == []
        assert run.screen.view.has_focus


async def test_lines_in_view_stay_there_while_older_ones_are_dropped() -> None:
    output_lines, numbers = OutputLines(), iter(range(3 * MAX_LINES))
    async with around("true") as run:
        await run.finish_command()
        for count, scrolls in ((MAX_LINES, False), (0, True), (30, False), (30, False)):
            output_lines.add(b"".join(b"%d\n" % next(numbers) for _ in range(count)))
            output_lines.split_lines()
            await run.screen.show_output(output_lines, lambda *_: None)
            pane = run.screen.output_pane
            assert pane is not None
            if scrolls:
                pane.scroll_to(y=1000, animate=False, immediate=True)
            await run.pilot.pause()
            if count < MAX_LINES:
                assert run.printed()[0] == "1000", output_lines.dropped_count


async def test_a_running_and_an_ended_command_have_their_status(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with around(f"echo hello; until [ -e {go} ]; do sleep 0.05; done; exit 7") as run:
        await run.wait_for_output("hello")
        await until_true(lambda: re.search(r" sh \d+ s", run.head()), "the command is running")
        go.touch()
        await run.finish_command()
        await run.wait_for_header("sh ended: 7")
        run_ = run.source.run
        assert run_ is not None
        after = long_duration(run_.end_ns - run_.start_ns)
        await run.wait_for_header(f"sh ended with status 7 after {after}")
        await run.send_intervals(2)
        await run.pilot.press("q")
    assert run.source.run is not None
    assert run.source.run.status == 7
    assert any(line.startswith("exit status 7") for line in run.source.summary)


async def test_the_message_about_the_end_remains_for_some_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[str] = []
    show_state = Monitor.show_state

    def show_and_record(screen: Monitor, state: ScreenState) -> None:
        drawn.append(state.status.notice)
        show_state(screen, state)

    async with around("exit 3") as run:
        await run.finish_command()
        await run.wait_for_header("sh ended with status 3")
        monkeypatch.setattr(Monitor, "show_state", show_and_record)
        for _ in range(3):
            await run.send_intervals(1)
            run.source.check()
        assert drawn
        assert all("status 3" in notice for notice in drawn)


async def test_the_message_about_the_end_remains_after_the_help_was_open() -> None:
    async with around("exec sleep 99") as run:
        await until_true(lambda: run.source._may_read_late, "it runs")
        await run.pilot.press("question_mark")
        run.source.tty.job.kill(signal.SIGTERM)
        await run.finish_command()
        await until_true(lambda: "status 143" in run.source.status.notice, "its news")
        await run.pilot.press("escape")
        await run.wait_for_header("sh ended with status 143")
        await run.pilot.press("down")
        await until_true(lambda: not run.source.status.notice, "it is read")


async def test_the_end_of_a_recording_is_reported_while_a_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with around("exec sleep 99") as run:
        await until_true(lambda: run.source._may_read_late, "it runs")
        await run.send_intervals(2)
        await run.pilot.press("R", "R")
        try:
            await until_true(lambda: "recorded" in run.source.status.notice, "the end")
        finally:
            run.source.tty.job.kill(signal.SIGTERM)
            await run.finish_command()


async def test_the_stream_is_read_once_an_interval_while_the_command_runs() -> None:
    async with around("exec sleep 99") as run:
        drawn: list[float] = []
        run.source._set_read_pause = drawn.append
        await until_true(lambda: run.source._may_read_late, "it runs")
        await run.send_intervals(2)
        await run.pilot.press("+")
        assert drawn == [run.source.status.interval_ns / 1e9]
        await run.pilot.press("ctrl+c")
        await until_true(lambda: not run.source._may_read_late, "samples are waited for")
        await run.finish_command()
        await until_true(lambda: len(drawn) == 2, "its run is measured")


async def test_the_summary_covers_the_run_only() -> None:
    summaries = []

    async with around("true") as run:
        await run.finish_command()
        summaries.append((run.feed.seq, list(run.source.summary)))
        run.feed.machine.cpu(0).util = 0.1
        await run.send_intervals(3)
        summaries.append((0, run.source.summary))
    (frames, early), (_, late) = summaries
    assert early == late
    drawn = {f" {count_noun(n, 'sample')} of 8 CPUs" for n in range(1, frames)}
    assert any(text in line for line in early for text in drawn)


async def test_ctrl_c_interrupts_the_command_and_then_perftop() -> None:
    async with around("trap 'echo still here; exit 3' INT; echo ready; sleep 99") as run:
        await run.wait_for_output("ready")
        await run.pilot.press("ctrl+c")
        await run.wait_for_output("^Cstill here")
        assert run.app.is_running
        await run.finish_command()
        await run.pilot.press("ctrl+c")
        await until_true(lambda: run.app._exit, "the app ends")
    assert run.source.run is not None
    assert run.source.run.status == 3


async def test_no_output_is_lost_when_the_screen_closes(capfd: pytest.CaptureFixture[str]) -> None:
    async with around("echo seen") as run:
        await run.wait_for_output("seen")
        await run.finish_command()
        run.source._on_output(b"not shown any more\n")
        run.app.exit()
        await run.source._show_output()  # the timer of the pane ends late
        assert run.source.tty._loop is None
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("not shown any more\n", "")


async def test_a_vanished_terminal_leaves_the_command_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def gone(_: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    go = tmp_path / "go"
    async with around(f"echo ready; until [ -e {go} ]; do sleep 0.05; done; exit 6") as run:
        await run.wait_for_output("ready")
        monkeypatch.setattr(errors, "sys", Mock(stderr=Mock(write=gone)))
        monkeypatch.setattr(errors, "discard_writes", Mock())  # all tests use this stderr
        run.app.exit()
        run.feed.die("it is gone, too")
        go.touch()
    assert run.source.run is not None
    assert run.source.run.status == 6


async def test_a_dead_probe_leaves_the_command_running(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    go, message = tmp_path / "go", "sh is still running; its summary will follow"

    async def end_command_after_message() -> None:
        await until_true(lambda: message in capfd.readouterr().err, "the message")
        go.touch()

    async with around(f"echo ready; until [ -e {go} ]; do sleep 0.05; done; exit 6") as run:
        await run.wait_for_output("ready")
        run.feed.die("it is gone")
        await until_true(lambda: run.app.failure, "the failure is reported")
        ending = asyncio.ensure_future(end_command_after_message())
        run.app.exit()
    await ending
    assert run.source.run is not None
    assert run.source.run.status == 6
    assert any("status 6" in line for line in run.source.summary)


async def test_a_bug_while_the_stream_is_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with around("true") as run:
        handle_exception = Mock()
        monkeypatch.setattr(run.app, "_handle_exception", handle_exception)
        monkeypatch.setattr(run.source, "process", Mock(side_effect=KeyError("a bug")))
        run.feed.frames(1)
        await until_true(lambda: handle_exception.called, "the error is handled")
        run.app.exit()


def test_the_theme_chosen_last_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    restore_theme = Mock()
    monkeypatch.setattr(PerfTopApp, "restore_theme", restore_theme)
    monkeypatch.setattr(command, "run_loop", Mock())
    with JobTerminal(["true"], 80, 24) as tty:
        command.run(Mock(), tty, INTERVAL_NS, Config())
    assert restore_theme.called


@pytest.mark.parametrize(
    "signal_time", ["no sample", "a sample while it ends", "before the stream", "after the screen"]
)
def test_a_signal_before_the_start_cancels_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal_time: str
) -> None:
    async def go(tty: JobTerminal) -> CommandSource:
        feed = AnyProbe(Machine(changes={"source": "sim:made"}))
        send_frames = feed.frames
        monkeypatch.setattr(feed, "frames", Mock())
        source = CommandSource(tty, feed.open, INTERVAL_NS)
        app = PerfTopApp(source)
        if signal_time == "before the stream":
            assert not source.handle_signal(signal.SIGTERM)
        async with app.run_test() as pilot:
            if signal_time in {"no sample", "after the screen"}:
                await pilot.press("ctrl+c" if signal_time == "no sample" else "q")
            else:
                await until_true(lambda: source.measurement is not None, "the stream is open")
                assert source.measurement is not None
                command_window = source.measurement.command_window
                assert signal_time == "before the stream" or not source.handle_signal(
                    signal.SIGTERM
                )
                send_frames(20)
                await until_true(lambda: command_window._has_opened, "a sample")
        if signal_time == "after the screen":  # the screen's handler has it in its queue
            asyncio.get_running_loop().call_soon(app._on_signal, signal.SIGTERM)
        async with asyncio.timeout(MAX_WAIT_S) as limit:
            await source.wait_for_command()
        assert not limit.expired()
        return source

    with JobTerminal(["touch", str(tmp_path / "ran")], 80, 24) as tty:
        source = asyncio.run(go(tty))
    assert source.run is None
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_cannot_run_ends_the_app(tmp_path: Path) -> None:
    """A script whose interpreter is missing."""
    script = tmp_path / "made"
    script.write_text("#!/nowhere/nothing\n")
    script.chmod(0o755)

    async def go(tty: JobTerminal) -> CommandSource:
        feed = AnyProbe(Machine(changes={"source": "sim:made"}))
        source = CommandSource(tty, feed.open, INTERVAL_NS)
        app = PerfTopApp(source)
        async with app.run_test():
            feed.frames(2)

            def gone() -> bool:
                feed.frames(1)
                return app._exit

            await until_true(gone, "the app ends")
        await source.wait_for_command()
        return source

    with JobTerminal([str(script)], 80, 24) as tty:
        source = asyncio.run(go(tty))
    assert source.run is not None
    assert (source.run.status, source.run.failure) == (127, EXEC_FAILURES[errno.ENOENT])


@pytest.mark.parametrize(("program", "name"), [
    ("/usr/bin/make", "make"), ("x" * 17, "x" * 16), ("/", "/"), ("/" + "y" * 16, "y" * 16),
])  # fmt: skip
async def test_a_command_is_named_by_its_program(program: str, name: str) -> None:
    source = CommandSource(Mock(job=Mock(argv=[program])), Mock(), INTERVAL_NS)
    assert source.complete_status(source.status).job_text == f"{name} waits"


async def test_the_newest_output_is_kept_while_the_screen_cannot_show_it() -> None:
    source = CommandSource(Mock(job=Mock(argv=["make"])), Mock(), INTERVAL_NS)
    source.app = Mock()
    source._on_output(b"a" * 40_000)
    timer = source._print_timer
    source._on_output(b"b" * 40_000)
    assert source._print_timer is timer, "one update shows both"
    assert source._unseen_output == b"a" * 25_536 + b"b" * 40_000
    assert timer is not None
    timer.cancel()
