"""The work of a refresh: calls, lines, bytes and wake-ups. No test measures time."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import itertools
import os
import random
import re
import statistics
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import synth
from calls import count_calls
from fakes import Machine
from nightly import cases_by_day
from screen_numbers import press_until_shown, simulated_messages
from sim_streams import SAMPLE_NS
from terminal_apps import Cells, ScriptedApp, TerminalApp, messages, shown_app, wait_until_drawn
from textual import _time as clock
from textual import events
from textual.geometry import Size
from textual.strip import Strip
from waiting import MAX_WAIT_S, until_quiet, until_true

from perfprobe import wire
from perftop.model.evaluation import MAX_RESTING_SHARE
from perftop.model.smt import core_lists
from perftop.process.streams import ProbeStream, Stream
from perftop.tui.frame.monitor import Monitor
from perftop.tui.frame.top import ScreenState
from perftop.tui.shared.keys import KEY_NAMES
from perftop.tui.stream import LiveSource

SAMPLES = 30


def same_values(app: ScriptedApp) -> ScreenState:
    """Returns a message with a new interval of the same values."""
    assert app.source.interval is not None
    return ScreenState(
        app.source.shown_session, dataclasses.replace(app.source.interval), app.source.status
    )


def differing_line(app: ScriptedApp) -> str:
    """Returns a terminal line that differs from Textual's own drawing; '' if none does."""
    columns, lines = app.terminal.size
    meant, terminal = Cells(), app.terminal.drawn
    for y, strip in enumerate(app.screen._compositor.render_strips(Size(columns, lines))):
        meant.write(f"\x1b[{y + 1};1H{Strip(list(strip)).render(app.console)}", columns)
        drawn, expected = terminal.visible_cells(columns, y), meant.visible_cells(columns, y)
        if drawn != expected:
            return f"line {y}: {drawn} is shown, {expected} meant"
    return ""


@cache
def calls(cpus: int, scenario: str = "smt-mix", samples: int = SAMPLES) -> int:
    """Returns the number of calls of Python and C functions while the screen shows a new interval
    of this many samples. The median is used, since the first intervals fill caches, and every tenth
    sample has task records."""
    feed = messages(cpus, samples + 13, scenario)

    async def count() -> int:
        async with shown_app(feed[:samples]) as app:
            app.terminal.keeps_text = False
            screen, session = app.screen_stack[0], app.source.shown_session
            assert isinstance(screen, Monitor)
            assert session is not None
            await screen.action_view("overview")  # a large machine starts with the heat map
            await until_quiet()  # the view has no size before its layout
            counts = []
            for message in feed[samples:]:
                session.apply(message)
                news = ScreenState(session, session.take_interval(), app.source.status)
                with count_calls() as result:
                    screen.show_state(news)
                counts.append(result.count)
            return statistics.median_low(counts[4:])

    return asyncio.run(count())


def test_the_cost_of_a_refresh_depends_on_visible_rows_only() -> None:
    few, full, many = (calls(cpus) for cpus in (2, 128, 1024))
    assert many < 1.2 * full
    assert many < 4.5 * few


def test_the_cost_of_a_refresh_is_limited() -> None:
    """About 1,750 calls for two charts with counters, 1,400 for charts with task lanes and tiles
    with their whole history, 5,400 for a screen full of rows. Find out why before raising a limit
    by a twentieth."""
    assert calls(2, "smt-mix", 700) < 1_950
    assert calls(2, "guest", 700) < 1_550
    assert calls(1024) < 5_800


async def test_unchanged_lines_are_neither_rebuilt_nor_written() -> None:
    async with shown_app(messages(64, SAMPLES)) as app:
        screen = app.screen_stack[0]
        assert isinstance(screen, Monitor)
        await until_quiet()
        before = app.terminal.written, screen.view.strip_count
        screen.show_state(same_values(app))
        await until_quiet()
        assert (app.terminal.written, screen.view.strip_count) == before


def is_written_immediately(app: ScriptedApp, message: wire.Message) -> bool:
    """Returns whether the refresh after this message is written before Textual continues."""
    screen, session, written = app.screen_stack[0], app.source.shown_session, app.terminal.written
    assert isinstance(screen, Monitor)
    assert session is not None
    session.apply(message)
    screen.show_state(ScreenState(session, session.take_interval(), app.source.status))
    return app.terminal.written > written


async def test_a_refresh_does_not_overwrite_a_screen_over_the_view() -> None:
    feed = messages(64, SAMPLES + 2)

    async with shown_app(feed[:SAMPLES]) as app:
        app.post_message(events.Key("question_mark", "?"))
        title = app.terminal.lines()[0]
        await until_true(lambda: app.terminal.lines()[0] != title, "the help")
        assert not is_written_immediately(app, feed[-2])
        app.post_message(events.Key("escape", None))
        await until_true(lambda: len(app.screen_stack) == 1, "the monitor")
        app.source.process([feed[-1]])
        await until_true(lambda: app.terminal.lines() == app.composed_lines(), "the same screen")


async def test_overwritten_lines_are_redrawn_after_a_key() -> None:
    feed = messages(64, SAMPLES + 1)

    async with shown_app(feed[:SAMPLES]) as app:
        columns, lines = app.terminal.size
        app.terminal.drawn.write(f"\x1b[{lines};1Hsome words of the kernel", columns)
        assert is_written_immediately(app, feed[-1])
        assert app.terminal.lines()[-1].startswith("some words of the kernel")
        app.post_message(events.Key("ctrl+l", None))
        await until_true(lambda: app.terminal.lines() == app.composed_lines(), "the same screen")
        assert differing_line(app) == ""


async def test_a_message_above_a_view_remains_during_refreshes() -> None:
    feed = messages(64, SAMPLES + 1)

    async with shown_app(feed[:SAMPLES]) as app:
        app.notify("a notice in the corner", timeout=60)
        await until_true(
            lambda: any("in the corner" in it for it in app.terminal.lines()), "a toast"
        )
        await until_quiet()  # no layout is pending
        assert not is_written_immediately(app, feed[-1])
        await until_true(lambda: app.terminal.lines() == app.composed_lines(), "the same screen")
        assert any("in the corner" in line for line in app.terminal.lines())


@pytest.mark.parametrize("view", cases_by_day([*"123456", "enter"], ["2", "enter"]))
async def test_written_lines_equal_those_of_the_compositor(view: str) -> None:
    feed = messages(64, SAMPLES + 6)

    async with shown_app(feed[:SAMPLES]) as app:
        for message, keys in zip(feed[SAMPLES:], [[view], [], ["j"], [], ["k"], []], strict=True):
            for key in keys:
                app.post_message(events.Key(key, None))
            await until_quiet()
            app.source.process([message])
            await until_true(
                lambda: app.terminal.lines() == app.composed_lines(), "the same screen"
            )


STEPS = ("", "", "", "", "space", "plus", "t", "question_mark", "escape", "2", "1", "j", "resize")
"""Events between two refreshes, mostly none."""


async def test_moving_charts_look_as_if_redrawn() -> None:
    feed, rng = messages(2, 260, "guest"), random.Random(7)
    async with shown_app(feed[:200]) as app:
        for message in range(200, 260, 5):
            step = rng.choice(STEPS)
            if step == "resize":
                app.terminal.resize(rng.choice([(160, 50), (120, 40)]))
            elif step:
                app.post_message(events.Key(step, None))
            await until_quiet()
            app.source.process(feed[message : message + 5])
            await until_quiet()
            await until_true(lambda: not differing_line(app), "the same screen")


async def test_a_terminal_that_was_briefly_smaller_is_redrawn() -> None:
    """The terminal has lost lines, but has its old size again when Textual checks."""
    async with shown_app(messages(2, SAMPLES)) as app:
        await until_quiet()
        app.terminal.drawn = Cells()
        app.terminal.resize(app.terminal.size)
        await until_true(lambda: not differing_line(app), "the same screen")


async def test_a_wait_for_a_cpu_does_not_lose_resizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer of a resize is due before its wait begins, because its clock runs ahead."""
    get_time, ahead_s = clock.get_time, itertools.count()

    def time_of_timer() -> float:
        caller = sys._getframe(1).f_locals.get("self")
        is_once = getattr(caller, "_repeat", None) == 0
        return get_time() + (next(ahead_s) if is_once else 0)

    monkeypatch.setattr(clock, "get_time", time_of_timer)
    async with shown_app(messages(2, 4), (80, 24)) as app:
        for size in ((120, 40), (100, 30)):
            app.terminal.resize(size)
            await until_true(lambda: app.screen.outer_size == app.terminal.size, "a resize")
        assert next(ahead_s) > 4


@pytest.mark.parametrize("key", ["", "question_mark", "s", "colon"])
async def test_an_event_about_an_earlier_size_changes_nothing(key: str) -> None:
    """Textual repeats a resize as an event to the screen, after which the terminal may already have
    another size."""
    async with shown_app(messages(2, SAMPLES)) as app:
        if key:
            app.post_message(events.Key(key, KEY_NAMES.get(key, key)))
            await until_true(lambda: len(app.screen_stack) == 2, "a screen covers the view")
        earlier_size = app.size
        app.terminal.resize((62, 12))
        await until_true(lambda: app.screen.outer_size == (62, 12), "the screen is resized")
        await until_quiet()
        lines = app.composed_lines()
        for screen in app.screen_stack:
            screen.post_message(events.Resize(earlier_size, earlier_size))
        await until_quiet()
        assert {screen.outer_size for screen in app.screen_stack} == {(62, 12)}
        assert app.composed_lines() == lines
        await until_true(lambda: not differing_line(app), "the same screen")


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
async def test_a_cpu_that_is_online_for_the_first_time_has_a_place_in_the_shown_interval(
    threads: int, *, is_paused: bool
) -> None:
    """The shown interval has fewer cores than the session, or as many, of which some have changed
    places; views show the interval's own cores until the next one."""
    machine, topology = Machine(cores=3, threads=threads), synth.topology(3, threads)
    topology[1], row = wire.Cpu(1, online=False), topology[1]
    hello = dataclasses.replace(machine.hello, topology=topology, cores=core_lists(topology))
    machine.offline_cpus = {1}
    frames: list[wire.Message] = [machine.frame(seq) for seq in range(63)]
    place = {"package": row.package, "die": row.die, "core": row.core}
    data = {"cpu": 1, "online": True, "row": place}
    async with shown_app([hello, *frames[:-1]]) as app:
        source, screen = app.source, app.screen_stack[0]
        assert isinstance(screen, Monitor)
        if is_paused:
            source.show_moment(40 * SAMPLE_NS)
        before = source.interval
        source.process([wire.Note("hotplug", 62 * SAMPLE_NS, data=data)])
        for view in ("heat", "table", "overview"):
            await screen.action_view(view)
            await until_quiet()
        assert before is not None
        assert before.cores.lists != source.session.cores
        assert source.is_paused == is_paused
        assert source.interval is before
        source.process(frames[-1:])
        await wait_until_drawn(app)
        assert source.newest_interval is not None
        assert source.newest_interval.cores.lists == source.session.cores


async def test_only_changed_rows_are_written() -> None:
    """All rows have about 20,000 characters; moving histories have 6,000 of them."""
    feed = messages(256, SAMPLES + 10)
    async with shown_app(feed[:SAMPLES]) as app:
        screen = app.screen_stack[0]
        assert isinstance(screen, Monitor)
        await screen.action_view("overview")  # a large machine starts with the heat map
        await until_quiet()
        app.terminal.keeps_text = False
        before = app.terminal.written
        for message in feed[SAMPLES:]:
            assert is_written_immediately(app, message)
        assert (app.terminal.written - before) / 10 < 14_300


async def test_moving_rows_look_as_if_redrawn() -> None:
    feed = messages(64, SAMPLES + 16)
    async with shown_app(feed[:SAMPLES]) as app:
        for at, message in enumerate(feed[SAMPLES:]):
            if at in {8, 12}:
                app.post_message(events.Key("space", None))
                await until_quiet()
            app.source.process([message])
            await until_quiet()
            assert not differing_line(app)


async def test_moving_charts_write_few_bytes() -> None:
    """Charts at 10 Hz are drawn once a second, so this applies to many samples."""
    feed = messages(2, 740, "guest")
    async with shown_app(feed[:700]) as app:
        app.terminal.keeps_text = False

        def count(message: wire.Message) -> int:
            written = app.terminal.written
            assert is_written_immediately(app, message)
            return app.terminal.written - written

        moved = [count(message) for message in feed[700:720]]
        assert statistics.mean(moved) < 4_000, moved
        whole = []
        for message in feed[720:]:
            app._display(app.screen, app.screen._compositor.render_update(full=True))
            whole.append(count(message))
        assert statistics.mean(whole) > 1.3 * statistics.mean(moved), whole


# --- wakeups of the app: one for each batch from the pipe, and no others


BATCHES = 12


class CountingApp(TerminalApp):
    """The app on the read end of a pipe. It counts sleeps of its event loop, and writes."""

    def __init__(self, reader: int) -> None:
        probe: Any = SimpleNamespace(stdout=io.FileIO(reader), remote_name=None)

        @asynccontextmanager
        async def opener() -> AsyncIterator[Stream]:
            yield ProbeStream(probe)

        self.live = LiveSource(opener, SAMPLE_NS)
        super().__init__(self.live)
        self.slept = self.writes = 0
        self.drew = threading.Event()

    def post_display_hook(self) -> None:
        super().post_display_hook()
        self.writes += 1
        self.drew.set()

    def watch_sleep(self) -> None:
        loop: Any = asyncio.get_running_loop()
        select = loop._selector.select

        def counting_select(timeout: float | None = None) -> Any:
            self.slept += timeout is None or timeout > 0
            return select(timeout)

        loop._selector.select = counting_select


def feed(app: CountingApp, writer: int, batches: list[bytes]) -> None:
    """Writes each batch after the previous one was drawn and the app sleeps again."""
    for batch in batches:
        app.drew.clear()
        before = app.slept
        os.write(writer, batch)
        assert app.drew.wait(MAX_WAIT_S)
        while app.slept == before:
            threading.Event().wait(0.001)


async def test_a_batch_causes_one_wakeup_and_one_write() -> None:
    reader, writer = os.pipe()
    texts = [wire.encode(message) for message in messages(2, 20 + BATCHES)]
    app = CountingApp(reader)
    run = asyncio.ensure_future(app.run_async(size=(160, 50)))
    os.write(writer, b"".join(texts[:20]))
    await until_true(lambda: app.is_ready and app.live.interval is not None, "the first numbers")
    await until_quiet()
    app.watch_sleep()
    slept, writes = app.slept, app.writes
    await asyncio.to_thread(feed, app, writer, texts[20:])
    # The loop sleeps once before the first batch and once after each; a slow machine may add one.
    assert app.slept - slept <= BATCHES + 3
    assert app.writes - writes <= BATCHES + 1
    assert not [*app._timers]
    app.exit()
    await run
    os.close(writer)


# --- values of idle cpus do not appear and disappear, and no view shows a kernel share of idle


SPANS = 8


def dots(app: ScriptedApp, cpu: int) -> list[int]:
    """Positions of dots in the table's line of a CPU."""
    line = next(x for x in app.terminal.lines() if re.match(rf".{{3}} +{cpu} +0:", x))
    return [at for at, sign in enumerate(line) if sign == "·"]


async def test_the_dots_of_an_idle_cpu_do_not_move() -> None:
    feed = simulated_messages("neighbour", 16)

    async with shown_app(feed[:-SPANS], (200, 40)) as app:
        await press_until_shown(app, "4", "▲core")
        seen: list[list[int]] = []
        shares: list[float] = []
        for message in feed[-SPANS:]:
            app.source.process([message])
            await until_quiet()
            assert app.source.interval is not None
            if isinstance(message, wire.Frame):
                shares.append(float(app.source.interval.values["util"][1]))
                seen.append(dots(app, 1))
        assert 0.0 in shares
        assert any(0 < share < MAX_RESTING_SHARE for share in shares)
        assert seen[0]
        assert all(one == seen[0] for one in seen)
