"""The terminal app: reads a stream into a session and tells its screens what is new."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, work
from textual.binding import BindingType
from textual.screen import Screen

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.base.errors import Failed
from perftop.base.text import utf8
from perftop.base.times import when
from perftop.process import batches
from perftop.process.launch import Feed
from perftop.process.link import Link
from perftop.process.probe_stream import Stream, attached
from perftop.recording.background import Deck
from perftop.session import episode_navigation, marks
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui import first_picture
from perftop.tui.config import Config
from perftop.tui.frame.status import Cost, Status
from perftop.tui.screen.monitor import Monitor, State
from perftop.tui.shared import keys
from perftop.tui.shared.choice import Choice
from perftop.tui.terminal_app import TerminalApp, show

if TYPE_CHECKING:
    from perftop.base.arrays import Ints

Opener = Callable[[], AbstractAsyncContextManager[Stream]]
INTERVALS_NS = tuple(ms * 1_000_000 for ms in (50, 100, 200, 500, 1000, 2000, 5000))
NEWS_S = 10.0
"""How long a message is shown if no key is pressed."""
WATCH_S = 0.9
"""Least seconds between two looks at what no message tells, while messages come."""
SILENT_S = 3.0
"""Seconds without a message, plus two samples, after which the screen says that no data comes."""


class Playhead:
    """The shown moment: the newest, or one in the history to which the user has gone back. Sampling
    continues meanwhile."""

    def __init__(self) -> None:
        self.shown: Interval | None = None
        """It stays while paused, even if the history no longer has it."""
        self.paused = False
        self.newest: Interval | None = None
        self.session: Session | None = None
        """Where moments are taken from."""

    def arrived(self, session: Session, interval: Interval) -> None:
        """Takes up a newer interval, and shows it unless paused."""
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
        near = max(int(times[0]), min(int(times[-1]), time_ns))
        interval = self.session.at(near, span_ns)
        if interval is not None:
            self.shown, self.paused = interval, True

    def step(self, by: int, span_ns: int) -> None:
        """Goes this many samples on, or back if negative, and pauses there."""
        times = self._times()
        if self.shown is not None and times is not None and len(times):
            at = int(times.searchsorted(self.shown.time_ns)) + by
            self.go(int(times[max(0, min(len(times) - 1, at))]), span_ns)

    def leap(self, seconds: float, span_ns: int) -> None:
        if self.shown is not None:
            self.go(self.shown.time_ns + round(seconds * 1e9), span_ns)

    def _times(self) -> Ints | None:
        """Raw ns of the samples in the history."""
        history = self.session and self.session.history
        return history.times() if history else None


class PerfTopApp(TerminalApp):
    TITLE = "perftop"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("app")]

    def __init__(
        self, opener: Opener | None, interval_ns: int, config: Config | None = None,
        *, pace: Callable[[int], None] = lambda _: None,
        link: Callable[[], Link | None] = lambda: None, ascii_: bool = False, greeting: str = "",
        cpu_clock: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`opener`: opens the stream; None: the subclass feeds the app. `interval_ns`: what the
        numbers cover. `pace`: tells the probe how often to write from now on, in ns.
        `link`: the way to a probe that is far away.
        `greeting`: a message for the first numbers."""
        self._config, self._ascii = config or Config(), ascii_
        super().__init__(self._config)
        self._open, self._tell_pace, self._link = opener, pace, link
        self._cost = Cost(cpu_clock)
        self._clock = clock
        self._heard = self._watched = clock()
        """Times of the last message and of the last look at what no message tells, by `clock`, in
        seconds."""
        self._timer: asyncio.TimerHandle | None = None
        self.status = Status(interval_ns)
        self._usual_ns = interval_ns
        self._session: Session | None = None
        self._deck: Deck | None = None
        self.playhead = Playhead()
        self._greeting = greeting
        self._said, self._until_s = "", 0.0
        """The last message, and when it is removed, by the clock."""
        self._choice = Choice()
        """What the user has chosen to see."""

    def get_default_screen(self) -> Screen[Any]:
        config = self._config
        self._choice = Choice(units=config.units, columns=config.columns, ascii=self._ascii)
        return Monitor(self._choice, config.keys, self)

    @property
    def interval(self) -> Interval | None:
        """The interval that is shown; None before the first."""
        return self.playhead.shown

    def on_load(self) -> None:
        self._look_later(1.0)
        self._feed()

    def on_ready(self) -> None:
        self._tell()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.MouseDown) and len(self.screen_stack) == 1:
            self._hush()  # what another screen covers has not been read yet
        await super().on_event(event)

    @work(exclusive=True)
    async def _feed(self) -> None:
        assert self._open is not None
        try:
            async with self._open() as stream:
                async for messages in stream:
                    self._take(messages)
            self._end(Failed("the probe has ended", 0))
        except Failed as failed:
            self._end(failed)

    def _begin(self, hello: wire.Hello) -> None:
        """Begins with a machine; also with one that was restarted behind a broken link."""
        if self._session is not None:
            said = self.ended_recording()
            self.playhead = Playhead()
            self.status = replace(self.status, paused=None)
            text = f"{hello.host} was restarted: its past before that is gone"
            self.say(f"{text} · {said}" if said else text)
        self._session = Session(hello, History(hello))
        self._deck = Deck(self._session)

    def _look_later(self, seconds: float) -> None:
        """Looks at what no message tells in so many seconds, unless a batch comes first: with a
        batch the app is awake anyway. To wake up for it would cost a twentieth of a refresh a
        second."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.call_later, self._look_alone)

    def _look_alone(self) -> None:
        self._look_later(1.0)
        self._look_now()

    def _look_now(self) -> None:
        self._watched = self._clock()
        self._watch()

    # --- messages of the stream

    def _take(self, messages: Sequence[wire.Message]) -> None:
        """Takes all that has come. However many intervals it completes, one is drawn."""
        if isinstance(messages[0], wire.Hello):
            self._begin(messages[0])
            messages = messages[1:]
        session = self._session
        assert session is not None
        self._heard = self._clock()
        arrived = [self._arrived(session) for _ in self._played(session, messages)]
        news = any(arrived) and not self.playhead.paused
        if news:
            self.status = replace(self.status, own=self._cost.share(session))
            if self._greeting:
                self.say(self._greeting)
                self._greeting = ""
        if self._heard - self._watched >= WATCH_S:
            self._look_now()
        self._look_later(1.5)  # longer than a batch of samples up to 1 s
        if news:
            self._tell()

    def _arrived(self, session: Session) -> bool:
        """Whether an interval has ended. The first numbers come after one sample, not after a whole
        interval."""
        due_ns = self.status.interval_ns if self.interval else session.hello.sample_ns
        whole = session.span_ns >= due_ns - session.hello.sample_ns // 2 and session.frames > 1
        if whole:
            if self.interval is None:
                self._set_pace(session)
            self.playhead.arrived(session, session.take())
        return whole

    def _set_pace(self, session: Session) -> None:
        """Tells the probe how often to write."""
        self._tell_pace(batches.longest(session.hello.sample_ns, self.status.interval_ns))

    def _played(self, session: Session, messages: Sequence[wire.Message]) -> Iterator[wire.Message]:
        for message in session.play(messages):
            if self._deck is not None:
                self._deck.take(message)
            yield message

    def _apply(self, session: Session, note: wire.Note) -> None:
        for _ in self._played(session, [note]):
            pass

    def _watch(self) -> None:
        """Tells what no message tells, if it has changed."""
        before, self.status = self.status, self._seen()
        if self.status != before:
            self._tell()

    def _seen(self) -> Status:
        """The status with what no message tells: whether the probe hangs, the state of a
        recording."""
        session, status, now_s = self._session, self.status, self._clock()
        if session is None:
            return status
        silent_s = now_s - self._heard
        hangs = status.failed is None and silent_s > SILENT_S + 2 * session.hello.sample_ns / 1e9
        told = silent_s if hangs else None
        recording, news = self._deck.news(now_s) if self._deck else (None, "")
        notice = self._said if now_s < self._until_s else news
        link = self._link()
        way = None if link is None else link.way()
        return replace(status, silent_s=told, recording=recording, notice=notice, way=way)

    def say(self, notice: str) -> None:
        """Shows a message, until a key is pressed or some seconds have passed."""
        self._said, self._until_s = notice, self._clock() + NEWS_S
        self.status = replace(self.status, notice=notice)
        self._tell()

    def _hush(self) -> None:
        """The user has gone on, and has read what there was to say."""
        self._until_s = 0.0
        if self._deck is not None:
            self._deck.heard()
        if self.status.notice:
            self.status = replace(self.status, notice="")
            self._tell()

    def _end(self, failed: Failed) -> None:
        """The stream has ended. The last numbers stay on the screen; without any, the app exits."""
        self.failure = failed
        if self.interval is None:
            self.leave(failed.status)
            return
        self.status = replace(self.status, failed=str(failed))
        self._tell()

    def _tell(self) -> None:
        """Shows the state on the lowest screen, which others may cover. It is called, not sent a
        message, which would take a twentieth of a refresh. Until it is there, `on_ready` waits."""
        if (monitor := self._monitor) is not None:
            monitor.tell(State(self._session, self.interval, self.status))

    @property
    def _monitor(self) -> Monitor | None:
        """The lowest screen; None while it is not there."""
        screen = self.screen_stack[0] if self.is_running and self.screen_stack else None
        return screen if isinstance(screen, Monitor) and screen.is_mounted else None

    def show_again(self) -> None:
        """Shows the view anew, as history reaches further back than it did."""
        if (monitor := self._monitor) is not None:
            monitor.again()

    def _looked(self) -> None:
        """Updates the status after the user has gone to another moment."""
        at = self.interval
        moment = at.time if at is not None and self.playhead.paused else None
        self.status = replace(self.status, paused=moment)
        self._tell()

    def action_pause(self) -> None:
        if self.playhead.paused:
            self.playhead.resume()
        else:
            self.playhead.step(0, self.status.interval_ns)
        self._looked()

    def action_step(self, by: int) -> None:
        self.playhead.step(by, self.status.interval_ns)
        self._looked()

    def action_leap(self, seconds: float) -> None:
        self.playhead.leap(seconds, self.status.interval_ns)
        self._looked()

    def go(self, time_ns: int) -> None:
        self.playhead.go(time_ns, self.status.interval_ns)
        self._looked()

    def go_to_episode(self, by: int, cpus: list[int] | None) -> None:
        session, at = self._session, self.interval
        if session is not None and at is not None:
            episodes = episode_navigation.reachable(session, cpus)
            time_ns = episode_navigation.beside(session, at, episodes, by)
            if time_ns is None:
                self.say(f"no {'later' if by > 0 else 'earlier'} episode")
            else:
                self.playhead.go(time_ns, self.status.interval_ns)
                self._looked()

    def action_interval(self, by: int) -> None:
        """Sets the next longer (`by` > 0) or shorter interval, or, with 0, the usual one; none is
        below the sampling interval."""
        now_ns = self.status.interval_ns
        least_ns = self._session.hello.sample_ns if self._session else 0
        steps = [ns for ns in INTERVALS_NS if ns >= least_ns and (ns - now_ns) * by > 0]
        span_ns = now_ns if by else self._usual_ns
        if steps:
            span_ns = min(steps) if by > 0 else max(steps)
        self.status = replace(self.status, interval_ns=span_ns)
        if self._session is not None:
            self._set_pace(self._session)
        if self.playhead.paused:  # the shown numbers must cover the new interval
            self.playhead.step(0, span_ns)
        self._looked()

    def action_record(self) -> None:
        if self._deck is not None:
            self._deck.turn(self._clock())
            self._watch()

    def mark(self, time_ns: int, label: str) -> None:
        if self._session is not None:
            label = label or marks.numbered(self._session.marks)
            note = wire.Note("mark", time_ns, "recorder", {"label": label})
            self._apply(self._session, note)
            at = when(self._session.unix(time_ns))
            self.say(f'marked "{marks.shortened(label)}" at {at}')
            if self.playhead.paused:  # else it appears with the next numbers
                self.action_step(0)

    def ended_recording(self) -> str:
        return self._deck.end() if self._deck is not None else ""

    def action_command_palette(self) -> None:
        from perftop.tui.screen.palette import Palette, palette

        if not any(isinstance(screen, Palette) for screen in self.screen_stack):
            self.push_screen(palette(self._session))


def run(probe: Feed, interval_ns: int, config: Config, *, mouse: bool = True) -> int:
    """Runs the app; returns the exit status. Raises Failed if the stream or the app failed."""
    greeting = first_picture.hint(keys.captions(config.keys))
    app = PerfTopApp(
        lambda: attached(probe, anew=True), interval_ns, config, pace=probe.pace,
        link=lambda: probe.link, ascii_=not utf8(), greeting=greeting,
    )  # fmt: skip
    return show(app, mouse=mouse)
