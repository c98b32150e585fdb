"""The app without a terminal, on a stream controlled by the test; its messages and sizes."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import pty
import random
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_ssh import RemoteFeed
from fakes import AnyProbe, Machine
from nightly import cases_by_day
from played_apps import INTERVAL_NS, colour, marked_lines, running_app
from random_walks import walk_live, walk_replay
from recording_files import write_recording
from terminal_apps import messages
from textual import events
from textual.worker import WorkerFailed
from waiting import until_true

from perftop.base import errors
from perftop.base.errors import Failed
from perftop.base.text import supports_unicode
from perftop.process.link import Link
from perftop.tui import app as app_module
from perftop.tui import stream
from perftop.tui.app import PerfTopApp
from perftop.tui.config import Config
from perftop.tui.stream import LiveSource


async def test_keys_after_quitting_are_ignored() -> None:
    async with running_app(Machine()) as run:
        for key in ("q", "3", "J", "slash", "2", "enter"):
            run.app.post_message(events.Key(key, None))
        await until_true(lambda: not run.app.is_running, "the app has ended")
    assert run.app.failure is None


async def test_actions_after_quitting_are_ignored() -> None:
    async with running_app(Machine()) as run:
        run.app.exit()
        assert not await run.app.run_action("screen.view('heat')")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_app_cleanly(number: signal.Signals) -> None:
    async with running_app(Machine()) as run:
        os.kill(os.getpid(), number)
        await until_true(lambda: not run.app.is_running, "the app has ended")
    assert run.app.return_code == 128 + number
    assert run.feed.closed


def test_a_signal_at_the_start_is_handled_when_the_app_runs() -> None:
    feed = AnyProbe(Machine())

    def opener() -> AbstractAsyncContextManager[Any]:  # this is called before the first paint
        os.kill(os.getpid(), signal.SIGTERM)
        return feed.open()

    async def go() -> PerfTopApp:
        app = PerfTopApp(LiveSource(opener, INTERVAL_NS))
        async with app.run_test():
            await until_true(lambda: not app.is_running, "the app has ended")
        return app

    assert asyncio.run(go()).return_code == 128 + signal.SIGTERM


def test_the_screen_is_drawn_on_stdout_if_stderr_is_not_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stdout, os.fdopen(end, "rb", 0) as seen:
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "__stdout__", stdout)
        monkeypatch.setattr(sys, "__stderr__", stderr)

        async def draw(app: PerfTopApp, *, mouse: bool) -> None:
            assert sys.__stderr__ is not None
            print("\udcff drawn", file=sys.__stderr__, end="", flush=True)

        monkeypatch.setattr(PerfTopApp, "run_async", draw)
        probe: Any = SimpleNamespace(set_batch_length=None)  # never used
        assert stream.run(probe, INTERVAL_NS, Config(), on_start=lambda: None, mouse=True) == 0
        assert select.select([seen], [], [], 5)[0], "nothing was drawn on the terminal"
        assert seen.read(100) == rb"\udcff drawn"
        assert id(sys.__stderr__) == id(stderr)
        assert stderr.getvalue() == ""
        assert not stdout.closed


def test_the_first_picture_handles_signals_until_the_app_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(app_module, "hold_signals", lambda: steps.append("holds signals"))
    monkeypatch.setattr(app_module, "run_loop", lambda *_, **__: steps.append("runs"))
    probe: Any = SimpleNamespace(set_batch_length=None)
    stream.run(
        probe, INTERVAL_NS, Config(), on_start=lambda: steps.append("handed over"), mouse=True
    )
    assert steps == ["holds signals", "handed over", "runs"]


@pytest.mark.parametrize("frames", cases_by_day([0, 1], [1]))
async def test_keys_and_clicks_before_the_first_values_are_harmless(frames: int) -> None:
    feed = AnyProbe(Machine())
    feed.first_frames = frames
    app = PerfTopApp(LiveSource(feed.open, INTERVAL_NS))
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press(
            *["down", "k", "end", "home", "pagedown", "pageup", "t", "enter", "s", "n", "escape"],
            *["N", "left", "shift+left", "space", "plus", "ctrl+l"],
        )
        for view in "123456":
            await pilot.press(
                view,
                *["down", "j", "k", "end", "G", "pageup", "v", "left_square_bracket", "o", "r"],
            )
            for y in (1, 8, 20, 23):
                await pilot.click(offset=(10, y))
        assert app.is_running


async def test_the_requested_batches_end_with_intervals() -> None:
    request: list[int] = []

    async with running_app(Machine(), set_batch_length=request.append) as run:
        assert request == [INTERVAL_NS], "with the first numbers, which come after one sample"
        run.source.status = run.source.status._replace(interval_ns=1_500_000_000)
        run.source.on_interval_changed()
        await run.pilot.press("+", "+")
        assert request[1:] == [500_000_000, 1_000_000_000, 1_000_000_000]


async def test_a_dead_probe_leaves_the_last_values_on_the_screen() -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(1)
        before = [line for line in run.text() if "lmp 4000" in line]
        vivid = colour(run)
        run.feed.die("the probe ended by signal 9 without an error message")
        await run.wait_for_text(
            "▼ the probe ended by signal 9 without an error message · these are the last numbers"
        )
        await run.wait_for_text("DEAD")
        assert [line for line in run.text() if "lmp 4000" in line] == before
        assert vivid > 100
        assert colour(run) < 40  # the colours are grey, because the values are no longer updated
        await run.pilot.press("down", "o", "space", "q")
        await until_true(lambda: not run.app.is_running, "q still quits")
    assert str(run.app.failure) == "the probe ended by signal 9 without an error message"


def test_a_missing_source_ends_the_app_with_its_status() -> None:
    @asynccontextmanager
    async def refuse() -> AsyncIterator[Any]:
        for failed in [Failed("no such source", 3)]:
            raise failed
        yield

    async def go() -> PerfTopApp:
        app = PerfTopApp(LiveSource(refuse, INTERVAL_NS))
        async with app.run_test():
            await until_true(lambda: not app.is_running, "the app has ended")
        return app

    app = asyncio.run(go())
    assert app.failure is not None
    assert (str(app.failure), app.failure.status, app.return_code) == ("no such source", 3, 3)


def test_an_internal_error_leaves_a_report(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        int("what happened")
    except ValueError as error:
        line = errors.save_traceback(error)
    (report,) = tmp_path.iterdir()
    assert str(report) in line
    assert "what happened" in report.read_text()
    assert "monkeypatch" not in report.read_text()  # the report has no values of variables


def test_the_first_of_two_internal_errors_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerfTopApp, "is_headless", False)
    monkeypatch.setattr(errors, "save_traceback", str)
    app = PerfTopApp(LiveSource(AnyProbe(Machine()).open, 1))
    for error in (WorkerFailed(ValueError("the cause")), KeyError("a consequence")):
        app._handle_exception(error)
    assert str(app.failure) == "the cause"
    assert app.return_code == 1


@pytest.mark.parametrize(("environ", "encoding", "has_shapes"), [
    ({"LANG": "C"}, "", False), ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "", False),
    ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, "", True), ({"LANG": "de_DE.UTF-8"}, "utf8", True),
    ({"LANG": "de_DE.UTF-8"}, "latin-1", False),
])  # fmt: skip
def test_shapes_are_drawn_if_the_locale_and_stdout_support_them(
    environ: dict[str, str], encoding: str, has_shapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    if encoding:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert supports_unicode() == has_shapes


# --- the shown moment and its interval


async def test_the_interval_is_between_the_sample_period_and_five_seconds() -> None:
    """Samples are 0.1 s apart. The first interval is 0.2 s."""
    async with running_app(Machine()) as run:
        source, lengths_ms = run.source, list[int]()
        for direction in (-1, -1, 0, *([1] * 6), -1, 0):
            source.change_interval(direction)
            lengths_ms.append(source.status.interval_ns // 10**6)
        assert lengths_ms == [100, 100, 200, 500, 1000, 2000, 5000, 5000, 5000, 2000, 200]


async def test_steps_and_skips_end_at_both_ends_of_the_history() -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(10)
        source = run.source

        def shown_s() -> float:
            return (run.interval.time_ns - run.session.hello.raw_ns) / 1e9

        newest_s = shown_s()
        shown = []
        for steps in (0, -1, -2, 1, -1000, -1, 1, 1000):
            source.step(steps)
            shown.append(round(shown_s(), 3))
        assert shown == pytest.approx(
            [newest_s, newest_s - 0.1, newest_s - 0.3, newest_s - 0.2, 0.1, 0.1, 0.2, newest_s]
        )
        source.skip(-1)
        assert shown_s() == pytest.approx(newest_s - 1)
        source.skip(-10)
        assert shown_s() == pytest.approx(0.1)
        assert source.is_paused
        source.toggle_pause()
        assert (shown_s(), source.is_paused) == (newest_s, False)
        source.select_range(source.session.hello.raw_ns + 3 * 10**8, source.session.now_ns)
        assert run.interval.elapsed_s == pytest.approx(newest_s - 0.3)
        assert source.status.is_range
        source.step(0)
        assert run.interval.elapsed_s == pytest.approx(0.2)
        assert not source.status.is_range


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_session_without_episodes_says_so(is_paused: bool) -> None:
    """Live, both keys look for earlier episodes."""
    async with running_app(Machine()) as run:
        run.session.ended.clear()
        run.session.detector.running.clear()
        if is_paused:
            run.source.step(0)
        for direction in (1, -1):
            run.source.go_to_episode(direction, None)
            word = "later" if is_paused and direction > 0 else "earlier"
            assert run.source.status.notice == f"no {word} episode"


@pytest.mark.parametrize(("after_s", "notice"), [(9.9, "x"), (10.0, "")])
async def test_a_notice_is_shown_for_ten_seconds(after_s: float, notice: str) -> None:
    async with running_app(Machine()) as run:
        start_s = run.source.clock()
        run.source.show_notice("x")
        run.source.clock = lambda: start_s + after_s
        run.source.show()
        assert run.source.status.notice == notice


@pytest.mark.parametrize(("after_s", "silent_s"), [(3.2, None), (3.3, 3.3)])
async def test_silence_is_reported_after_three_seconds_and_two_samples(
    after_s: float, silent_s: float | None
) -> None:
    async with running_app(Machine()) as run:
        source = run.source
        start_s = source.clock()
        source.clock = lambda: start_s + after_s
        assert source.complete_status(source.status).silent_s == silent_s
        ended = source.status._replace(failure_text="the probe has ended")
        assert source.complete_status(ended).silent_s is None
        run.feed.frames(1)
        await until_true(lambda: source.complete_status(source.status).silent_s is None, "data")


# --- messages on the screen: effects of keys, a broken link, and a restarted machine


async def test_a_mark_is_reported_with_its_time_until_the_next_key() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("m", *"warm", "enter")
        await until_true(
            lambda: run.source.status.notice.startswith('marked "warm" at '), "the mark"
        )
        output = run.source.status.notice
        await run.wait_for_text(output)
        await run.pilot.press("down")
        assert run.source.status.notice == ""
        assert not run.has(output)


async def test_a_broken_link_is_shown_until_it_is_restored() -> None:
    link = Link("n7", RemoteFeed(), lambda: 0.0)

    async with running_app(Machine(), link=lambda: link) as run:
        link.set_broken("n7: connection failed: refused")
        await run.wait_for_text("NO LINK FOR 0 s")
        assert run.has("n7: connection failed: refused")
        assert run.source.interval is not None, "the last values are kept"
        link.set_connected()
        await until_true(lambda: not run.has("NO LINK"), "the link is restored")


async def test_a_restarted_machine_starts_a_new_session() -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(2)
        await run.pilot.press("space")
        hello = run.feed.machine.hello
        later = dataclasses.replace(hello, raw_ns=hello.raw_ns + 5, boot_id="another")
        run.feed.send(later)
        run.feed.seq = 0
        run.feed.frames(4)
        await run.wait_for_text("was restarted")
        await until_true(lambda: run.seq() >= 1, "numbers of the new session")
        assert not run.source.is_paused
        await run.pilot.press("2", "3", "4", "5", "1")
        await run.send_intervals(1)
        await run.pilot.press("space")
        current = run.source.current_interval()
        assert current is run.source.newest_interval, "not one of the earlier session"


# --- terminals of all sizes and while being resized; random keys, clicks and resizes


async def test_the_selection_is_visible_at_any_size() -> None:
    async with running_app(Machine(cores=64), (80, 24)) as run:
        await run.pilot.press("1", *["down"] * 20)
        for size in [(80, 24), (240, 70), (20, 5), (120, 30), (1, 1), (160, 50), (40, 8)]:
            await run.pilot.resize_terminal(*size)
            await run.send_intervals(1)
            assert run.grid.settings.cpu == 20
            if size[1] > 1:
                assert len(marked_lines(run)) == 1
            screen = run.app.screen
            assert screen.size == size


FRAMES, STEPS = 400, 50
SEEDS = cases_by_day(range(60), [0])
"""By day: a live random walk on few CPUs, and one in a recording of many."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_walks_cause_no_errors(tmp_path: Path, seed: int) -> None:
    feed = messages((2, 8)[seed // 2 % 2], FRAMES, ("guest", "smt-mix")[seed // 4 % 2])
    rng = random.Random(seed)
    if seed % 2:
        path = write_recording(tmp_path / "recording", feed[0], feed[1:])  # type: ignore[arg-type]
        assert asyncio.run(walk_replay(rng, path, STEPS)) == []
    else:
        assert asyncio.run(walk_live(rng, feed, STEPS)) == []
