"""The app of the main screen. It shows a source: a live stream, a recording, or a live stream
around a command. The app owns the screen, the shown moment and the messages to the user."""

from __future__ import annotations

import asyncio
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.base.text import utf8, when
from perftop.process.launch import Feed, longest_batch_ns
from perftop.process.link import Link
from perftop.process.streams import Stream, open_stream
from perftop.recording.player import END_NS
from perftop.recording.writer import ScreenRecorder
from perftop.session.episodes import next_mark_label, shorten_label
from perftop.session.follow import Follower
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.navigation import nearest_moment, reachable
from perftop.session.session import Session
from perftop.tui import first_picture
from perftop.tui.config import Config
from perftop.tui.frame.header import Cost, Status
from perftop.tui.frame.monitor import Monitor, State
from perftop.tui.shared import keys
from perftop.tui.shared.choice import Choice
from perftop.tui.terminal_app import TerminalApp, show

if TYPE_CHECKING:
    from perftop.base.arrays import Ints

Opener = Callable[[], AbstractAsyncContextManager[Stream]]
INTERVALS_NS = tuple(ms * 1_000_000 for ms in (50, 100, 200, 500, 1000, 2000, 5000))
NOTICE_S = 10.0
"""How long a message is shown if no key is pressed, in seconds."""
MIN_WATCH_S = 0.9
"""Minimum seconds, while messages arrive, between two checks for changes that no message
reports, such as a lost link."""
MIN_SILENCE_S = 3.0
"""After this many seconds plus two sampling intervals without a message, the screen reports that
no data arrives."""


class Playhead:
    """The shown moment: the newest, or an earlier one that the user has chosen. Sampling continues
    while an earlier moment is shown."""

    def __init__(self) -> None:
        self.shown: Interval | None = None
        """The interval on the screen; while paused it is kept, even if the history has dropped
        it."""
        self.paused = False
        self.newest: Interval | None = None
        self.session: Session | None = None
        """The session in whose history moments are looked up."""

    def arrived(self, session: Session, interval: Interval) -> None:
        """Stores a newer interval, and shows it unless paused."""
        self.session, self.newest = session, interval
        if not self.paused:
            self.shown = interval

    def resume(self) -> None:
        self.shown, self.paused = self.newest, False

    def go(self, time_ns: int, span_ns: int) -> None:
        """Pauses at this moment, or at the nearest one in the history."""
        times = self._times()
        if self.session is None or times is None or not len(times):
            return
        nearest_ns = max(int(times[0]), min(int(times[-1]), time_ns))
        interval = self.session.interval_at(nearest_ns, span_ns)
        if interval is not None:
            self.shown, self.paused = interval, True

    def step(self, by: int, span_ns: int) -> None:
        """Moves by this many samples, backwards if negative, and pauses there."""
        times = self._times()
        if self.shown is not None and times is not None and len(times):
            index = int(times.searchsorted(self.shown.time_ns)) + by
            self.go(int(times[max(0, min(len(times) - 1, index))]), span_ns)

    def _times(self) -> Ints | None:
        """Returns the times of the samples in the history, in raw ns; None without a history."""
        history = self.session and self.session.history
        return history.times() if history else None


class Source(Follower, ABC):
    """A stream and the actions on it: going to other moments, setting marks, recording. Times are
    in raw ns."""

    app: PerfTopApp
    LACKS: ClassVar[frozenset[str]]
    """Names of the actions that this source does not have; their keys do nothing and are not
    listed."""
    min_interval_ns = 0

    @abstractmethod
    async def feed(self) -> None:
        """Reads messages until the stream ends. Then ends the app, or keeps it open with the last
        numbers."""

    def take(self, messages: Iterable[wire.Message]) -> bool:
        """Applies these messages. Draws only the last of the intervals that they complete."""
        is_over = super().take(messages)
        self.app.interval_taken()
        return is_over

    def add(self, message: wire.Message) -> None:
        """Applies a message that is not from the stream, without drawing."""
        super().take([message])

    def on_interval(self, interval: Interval) -> None:
        self.app.playhead.arrived(self.session, interval)

    # --- the status

    def read(self, status: Status) -> Status:
        """Returns the status with the state of this source added, and with the source's notice if
        the status has none."""
        return status

    def watch(self) -> None:
        """Called about once a second, even while no messages arrive."""

    def notice_read(self) -> None:
        """Called when the user has pressed a key, and so has read the notice."""

    # --- other moments

    @abstractmethod
    def pause(self) -> None:
        """Pauses at the shown moment, or resumes."""

    @abstractmethod
    def step(self, by: int) -> None:
        """Shows the moment that is `by` samples later; earlier if `by` is negative."""

    @abstractmethod
    def head_for(self, time_ns: int) -> None:
        """Shows this moment, or the nearest moment available."""

    def go(self, time_ns: int) -> None:
        """Shows this moment, or the nearest moment available, and pauses there."""
        self.head_for(time_ns)

    def select(self, first_ns: int, last_ns: int) -> None:  # noqa: ARG002 - for overrides
        """Shows the numbers between these moments, if this source can; else the last of them."""
        self.go(last_ns)

    @abstractmethod
    def go_to_episode(self, by: int, cpus: list[int] | None) -> None:
        """Shows the next (`by` = 1) or previous (-1) episode or mark on one of these CPUs; None: on
        any CPU."""

    @abstractmethod
    def mark(self, time_ns: int, label: str) -> None:
        """Sets a mark with this label at this moment; '': the label is a number."""

    def say(self, notice: str) -> None:
        self.app.say(notice)

    # --- actions of some sources only

    def pace(self) -> None:
        """Called when the interval has changed."""

    def record(self) -> None:
        """Starts or stops a recording."""

    def end_recording(self) -> str:
        """Ends a recording. Returns the message to print to stderr once the screen has closed; ''
        if there is none."""
        return ""

    def speed(self, by: int) -> None:
        """Plays faster (`by` > 0) or slower (`by` < 0)."""

    # --- the end

    def handles(self, number: signal.Signals) -> bool:  # noqa: ARG002 - for overrides
        """Handles a signal or Ctrl-C. Returns False if the signal is to end the app."""
        return False

    def leave(self) -> None:
        """Called when the screen is left."""


class Live(Source):
    """A live stream from a probe. Only moments in the history can be shown."""

    LACKS = frozenset({"speed", "begin", "finish"})

    def __init__(
        self, opener: Opener, *, pace: Callable[[int], None] = lambda _: None,
        link: Callable[[], Link | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`pace`: sets the time between two writes of the probe, in ns. `link`: returns the link
        to a remote probe; None if the probe is local."""
        super().__init__(starts_early=True)
        self._open, self._set_pace, self._link = opener, pace, link
        self._recorder: ScreenRecorder | None = None
        self._last_s = 0.0
        """Time of the app's clock at which messages last arrived."""

    async def feed(self) -> None:
        try:
            async with self._open() as stream:
                await self.consume(stream)
            self.app.end(Failed("the probe has ended", 0))
        except Failed as failed:
            self.app.end(failed)

    def on_hello(self, hello: wire.Hello) -> Session:
        """Starts a session. A second hello comes from a machine that was restarted while the link
        was down."""
        if self.has_started:
            recorded = self.end_recording()
            text = f"{hello.host} was restarted: its past before that is gone"
            self.app.restart(f"{text} · {recorded}" if recorded else text)
        session = Session(hello, History(hello))
        session.account(losses_only=True)
        self._recorder = ScreenRecorder(session)
        return session

    def on_interval(self, interval: Interval) -> None:
        if self.app.interval is None:
            self.pace()
        super().on_interval(interval)

    def on_message(self, message: wire.Message) -> bool:
        if self._recorder is not None:
            self._recorder.take(message)
        return False

    def take(self, messages: Iterable[wire.Message]) -> bool:
        self._last_s = self.app.clock()
        return super().take(messages)

    def read(self, status: Status) -> Status:
        """Returns the status with the time since the last message if the probe hangs, and with the
        state of the recording and of the link."""
        if not self.has_started:
            return status
        now_s = self.app.clock()
        silent_s = now_s - self._last_s
        limit_s = MIN_SILENCE_S + 2 * self.session.hello.sample_ns / 1e9
        is_hanging = status.failed is None and silent_s > limit_s
        recording, news_text = self._recorder.news(now_s) if self._recorder else (None, "")
        link = self._link()
        return replace(
            status, silent_s=silent_s if is_hanging else None, recording=recording,
            notice=status.notice or news_text, link=None if link is None else link.state(),
        )  # fmt: skip

    def notice_read(self) -> None:
        if self._recorder is not None:
            self._recorder.clear_notice()

    def pause(self) -> None:
        if self.app.playhead.paused:
            self.app.playhead.resume()
            self.app.moved()
        else:
            self.app.step(0)

    def step(self, by: int) -> None:
        self.app.step(by)

    def head_for(self, time_ns: int) -> None:
        self.app.go(time_ns)

    def select(self, first_ns: int, last_ns: int) -> None:
        self.app.select(first_ns, last_ns)

    def go_to_episode(self, by: int, cpus: list[int] | None) -> None:
        interval = self.app.interval
        if self.has_started and interval is not None:
            episodes = reachable(self.session, cpus)
            time_ns = nearest_moment(self.session, interval, episodes, by)
            if time_ns is None:
                self.say(f"no {'later' if by > 0 else 'earlier'} episode")
            else:
                self.head_for(time_ns)

    def mark(self, time_ns: int, label: str) -> None:
        label = label or next_mark_label(self.session.marks)
        self.add(wire.Note("mark", time_ns, "recorder", {"label": label}))
        self.say(f'marked "{shorten_label(label)}" at {when(self.session.unix(time_ns))}')
        if self.app.playhead.paused:  # otherwise the mark appears with the next numbers
            self.step(0)

    def pace(self) -> None:
        if self.has_started:
            self._set_pace(
                longest_batch_ns(self.session.hello.sample_ns, self.app.status.interval_ns)
            )

    def record(self) -> None:
        if self._recorder is not None:
            self._recorder.turn(self.app.clock())

    def end_recording(self) -> str:
        return self._recorder.end() if self._recorder is not None else ""


class PerfTopApp(TerminalApp):
    TITLE = "perftop"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("app", "replay")]

    def __init__(
        self, source: Source | Opener, interval_ns: int, config: Config | None = None,
        *, ascii_: bool = False, tour: bool = False,
        cpu_clock: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`source`: a source, or the opener of a live stream. `interval_ns`: the interval that the
        numbers cover. `tour`: whether to show notes for a new user."""
        self._config, self._ascii = config or Config(), ascii_
        super().__init__(self._config)
        self.source = source if isinstance(source, Source) else Live(source)
        self.source.app = self
        self.clock = clock
        self.cost = Cost(cpu_clock)
        self.playhead = Playhead()
        self._usual_ns = max(interval_ns, self.source.min_interval_ns)
        self.status = Status(self._usual_ns)
        self.source.interval_ns = self._usual_ns
        self._drawn_interval: Interval | None = None
        """The interval that was the newest at the last update."""
        self._tour = tour
        self._notice, self._until_s = "", 0.0
        """The last message, and the time of `clock` at which it is removed."""
        self._watched_s = clock()
        self._timer: asyncio.TimerHandle | None = None
        self.choice = Choice(
            units=self._config.units, columns=self._config.columns, ascii=self._ascii
        )
        """The user's choices."""

    def get_default_screen(self) -> Screen[Any]:
        return Monitor(self.choice, self._config.keys, self.source, tour=self._tour)

    @property
    def interval(self) -> Interval | None:
        """The shown interval; None before the first interval."""
        return self.playhead.shown

    @property
    def _session(self) -> Session | None:
        return self.source.session if self.source.has_started else None

    @property
    def monitor(self) -> Monitor | None:
        """The main screen, which other screens may cover; None while it is not mounted."""
        screen = self.screen_stack[0] if self.is_running and self.screen_stack else None
        return screen if isinstance(screen, Monitor) and screen.is_mounted else None

    def on_load(self) -> None:
        self._watch_later(1.0)
        self.run_worker(self.source.feed(), exclusive=True)

    def on_ready(self) -> None:
        self.show()
        self._watch()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.MouseDown) and len(self.screen_stack) == 1:
            self._notice_read()  # a notice covered by another screen has not been read yet
        await super().on_event(event)

    def key_unknown(self, key: str) -> None:
        if len(self.screen_stack) == 1:
            known = [k for k in keys.KEYS if key in k.keys.split(",")]
            where = "in this view" if known else "in perftop"
            self.say(f"{keys.caption(key)} has no action {where}; "
                     f"{keys.captions(self._config.keys)['help']} lists all keys")  # fmt: skip

    # --- for the source to call

    def interval_taken(self) -> None:
        """Draws what the last messages have changed. Called after messages were applied."""
        newest = self.playhead.newest
        has_news = (
            newest is not None and newest is not self._drawn_interval and not self.playhead.paused
        )
        self._drawn_interval = newest
        if has_news:
            self.status = replace(self.status, own=self.cost.share(self.source.session))
        if self.clock() - self._watched_s >= MIN_WATCH_S:
            self._watch()
        self._watch_later(1.5)  # longer than a batch of samples up to 1 s
        if has_news or self._read() != self.status:
            self.show()

    def go(self, time_ns: int) -> None:
        """Pauses at this moment, or at the nearest one in the history."""
        self.playhead.go(time_ns, self.status.interval_ns)
        self.moved()

    def select(self, first_ns: int, last_ns: int) -> None:
        """Pauses, and shows the numbers of the range between these raw times."""
        self.playhead.go(last_ns, last_ns - first_ns)
        self.moved(is_range=True)

    def step(self, by: int) -> None:
        """Moves by this many samples in the history, and pauses there."""
        self.playhead.step(by, self.status.interval_ns)
        self.moved()

    def moved(self, *, is_range: bool = False) -> None:
        """Shows the moment at which the playhead is. Called after the playhead has moved.
        `is_range`: the interval is a range that the user has selected."""
        interval = self.interval
        paused = interval.time if interval is not None and self.playhead.paused else None
        self.status = replace(self.status, paused=paused, is_range=is_range)
        self.show()

    def say(self, notice: str) -> None:
        """Shows a message until a key is pressed or NOTICE_S have passed."""
        self._notice, self._until_s = notice, self.clock() + NOTICE_S
        self.show()

    def show(self) -> None:
        """Shows the current state. Calls the screen directly, because a message to it would cost a
        twentieth of a refresh. Does nothing before the screen is mounted; `on_ready` calls this
        method again then."""
        self.status = self._read()
        if (monitor := self.monitor) is not None:
            monitor.show_state(State(self._session, self.interval, self.status))

    def restart(self, notice: str) -> None:
        """Starts afresh with the stream of a machine that was restarted."""
        self.playhead = Playhead()
        self.status = replace(self.status, paused=None)
        self.say(notice)

    def end(self, failed: Failed) -> None:
        """Called when the stream has ended. The last numbers stay on the screen; if there are none,
        the app exits."""
        self.failure = failed
        if self.interval is None:
            self.leave(failed.status)
            return
        self.status = replace(self.status, failed=str(failed))
        self.show()

    # --- the status

    def _read(self) -> Status:
        notice = self._notice if self.clock() < self._until_s else ""
        return self.source.read(replace(self.status, notice=notice))

    def _watch_later(self, seconds: float) -> None:
        """Schedules a check in this many seconds. A batch of messages that arrives earlier
        postpones the check, because the app checks with the batch: waking up only for the check
        would cost a twentieth of a refresh a second."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.call_later, self._watch_alone)

    def _watch_alone(self) -> None:
        self._watch_later(1.0)
        self._watch()

    def _watch(self) -> None:
        """Checks for changes that no message reports, and shows them."""
        self._watched_s = self.clock()
        self.source.watch()
        if self._read() != self.status:
            self.show()

    def _notice_read(self) -> None:
        self._until_s = 0.0
        self.source.notice_read()
        if self.status.notice:
            self.show()

    # --- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in self.source.LACKS and super().check_action(action, parameters)

    def action_pause(self) -> None:
        self.source.pause()

    def action_step(self, by: int) -> None:
        self.source.step(by)

    def action_leap(self, seconds: float) -> None:
        if self.interval is not None:
            self.source.head_for(self.interval.time_ns + round(seconds * 1e9))

    def action_begin(self) -> None:
        self.source.head_for(0)

    def action_finish(self) -> None:
        self.source.head_for(END_NS)

    def action_speed(self, by: int) -> None:
        self.source.speed(by)

    def action_record(self) -> None:
        self.source.record()
        self._watch()

    def action_interval(self, by: int) -> None:
        """Sets the next longer (`by` > 0) or shorter (`by` < 0) interval; 0 resets the interval to
        its initial value. No interval is shorter than the sampling interval."""
        now_ns = self.status.interval_ns
        least_ns = self.source.session.hello.sample_ns if self.source.has_started else 0
        steps = [ns for ns in INTERVALS_NS if ns >= least_ns and (ns - now_ns) * by > 0]
        span_ns = now_ns if by else self._usual_ns
        if steps:
            span_ns = min(steps) if by > 0 else max(steps)
        self.status = replace(self.status, interval_ns=span_ns)
        self.source.interval_ns = span_ns
        self.source.pace()
        if self.playhead.paused:  # recompute the shown numbers over the new interval
            self.step(0)
        self.show()

    async def action_command_palette(self) -> None:  # type: ignore[override]
        from textual.widgets import Input

        from perftop.tui.frame.menu import Palette, palette

        if not any(isinstance(screen, Palette) for screen in self.screen_stack):
            screen = palette(self._session)
            await self.push_screen(screen)
            screen.set_focus(screen.query_one(Input))  # before the next keys are handled

    # --- the end

    def action_interrupt(self) -> None:
        if not self.source.handles(signal.SIGINT):
            self.exit()

    def exit(self, *results: Any, **more: Any) -> None:
        self.source.leave()
        super().exit(*results, **more)

    def _signalled(self, number: signal.Signals) -> None:
        if not self.source.handles(number) or number != signal.SIGINT:
            super()._signalled(number)

    def ended_recording(self) -> str:
        return self.source.end_recording()


def run(
    probe: Feed, interval_ns: int, config: Config, *, on_start: Callable[[], None],
    mouse: bool = True,
) -> int:  # fmt: skip
    """Runs the app; returns the exit status. Raises Failed if the stream or the app failed.
    `on_start`: see `show`."""
    source = Live(
        lambda: open_stream(probe, restarts=True), pace=probe.pace, link=lambda: probe.link
    )
    app = PerfTopApp(
        source, interval_ns, config, ascii_=not utf8(), tour=first_picture.is_first_start()
    )
    return show(app, mouse=mouse, on_start=on_start)
