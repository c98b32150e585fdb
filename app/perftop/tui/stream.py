"""The live stream, and the base class of all sources that show one stream: a live stream, a
recording, or a stream around a command. A source owns the displayed moment and the messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.base.text import clock_time
from perftop.model.kinds import Episode
from perftop.process.launch import AnyProbe, longest_batch_ns
from perftop.process.link import Link
from perftop.process.streams import Stream, open_stream
from perftop.recording.writer import ScreenRecorder
from perftop.session.episodes import next_mark_label, shorten_label
from perftop.session.follow import Follower
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.selection import (
    TimeRange,
    episode_range,
    nearest_episode,
    reachable_episodes,
)
from perftop.session.session import Session
from perftop.tui.app import ScreenSource, run_app
from perftop.tui.config import Config, is_first_start
from perftop.tui.frame.monitor import Monitor
from perftop.tui.frame.top import AppStatus, CpuCost, PlaybackControls, ScreenState
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import TOUR_NOTES
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.time_axis import REDRAW_PERIOD_NS

StreamOpener = Callable[[], AbstractAsyncContextManager[Stream]]
INTERVALS_NS = tuple(ms * 1_000_000 for ms in (50, 100, 200, 500, 1000, 2000, 5000))
NOTICE_S = 10.0
"""Time in s for which a message is shown if no key is pressed."""
MIN_CHECK_S = 0.9
"""Minimum seconds between two checks for changes that no message reports, such as a lost link."""
DRAWING_CHECK_S = 0.05
"""Seconds between two checks of whether a slow terminal has accepted the last output."""
MIN_SILENCE_S = 3.0
"""The screen reports that no data arrives after this many seconds and two sample periods."""


class StreamSource(ScreenSource, Follower, PlaybackControls):
    """A stream and its shown moment, which is the newest or, while paused, an earlier one. Sampling
    continues while paused. Times are monotonic, in ns."""

    def __init__(self, interval_ns: int, *, starts_early: bool = False, tour: bool = False) -> None:
        """`interval_ns`: time that numbers cover. `tour`: whether to show notes for new users."""
        super().__init__(interval_ns, starts_early=starts_early)
        self.clock: Callable[[], float] = time.monotonic
        self.cost = CpuCost(time.process_time)
        self.status = AppStatus(interval_ns)
        self._initial_interval_ns = interval_ns
        self._tour = tour
        self.interval: Interval | None = None
        """The shown interval; None before the first. While paused it remains the same, even after
        the history has dropped it."""
        self.is_paused = False
        self.newest_interval: Interval | None = None
        self._notice, self._notice_end_s = "", 0.0
        """The last notice, and the time of `clock` at which it is removed."""
        self._last_check_s = self.clock()
        self._timer: asyncio.TimerHandle | None = None
        self._has_changed = False
        """Whether something has changed that has not been shown yet."""

    def make_screen(self) -> Monitor:
        config = self.app.config
        settings = ViewSettings(units=config.units, columns=config.columns, ascii=self.app.ascii)
        settings.captions = keys.key_captions(config.keys)
        settings.tour_notes = [*range(len(TOUR_NOTES))] if self._tour else []
        self.settings = settings
        return Monitor(settings, self)

    def on_screen_ready(self) -> None:
        self._schedule_check(1.0)
        self.show()
        self.check()

    @property
    def shown_session(self) -> Session | None:
        return self.session if self.has_started else None

    def current_interval(self) -> Interval | None:
        """Returns the newest interval of a live session, with a delay of at most REDRAW_PERIOD_NS,
        while an earlier moment is shown; else None."""
        return None

    @property
    def monitor(self) -> Monitor | None:
        """The main screen, even if another screen covers it; None while it is not mounted."""
        stack = self.app.screen_stack if self.app.is_running else []
        return next((s for s in stack[:1] if isinstance(s, Monitor) and s.is_mounted), None)

    # --- messages of the stream

    def process(self, messages: Iterable[wire.Message]) -> bool:
        """Applies these messages, and draws the last interval that they complete."""
        previous = self.newest_interval
        is_over = super().process(messages)
        newest, is_live = self.newest_interval, not self.is_paused
        has_new_interval = newest is not None and newest is not previous and is_live
        if has_new_interval:
            share = self.cost.cpu_share(self.session.now_ns, self.session.probe_cpu_s())
            self.status = self.status._replace(own_cpu_share=share)
        if self.clock() - self._last_check_s >= MIN_CHECK_S:
            self.check()
        self._schedule_check(1.5)  # longer than a batch, which covers up to 1 s of samples
        self._show_changes(has_new_interval=has_new_interval)
        return is_over

    def _show_changes(self, *, has_new_interval: bool) -> None:
        """Shows the current state if it has changed; later if the terminal has not accepted the
        last output yet, because queued output would delay the response to a key."""
        self._has_changed |= has_new_interval or self._current_status() != self.status
        if self._has_changed and self.app.is_drawing():
            self._schedule_check(DRAWING_CHECK_S)
        elif self._has_changed:
            self._has_changed = False
            self.show()

    def add(self, message: wire.Message) -> None:
        """Applies a message from outside the stream, without drawing."""
        Follower.process(self, [message])

    def on_interval(self, interval: Interval) -> None:
        self.newest_interval = interval
        if not self.is_paused:
            self.interval = interval

    def end(self, failed: Failed) -> None:
        """Called at the end of the stream. The last numbers remain; without any, the app exits."""
        self.app.failure = failed
        if self.interval is None:
            self.app.end_with_status(failed.status)
            return
        self.status = self.status._replace(failure_text=str(failed))
        self.show()

    # --- the status

    def complete_status(self, status: AppStatus) -> AppStatus:
        """Returns the status with the state of this source added."""
        raise NotImplementedError

    def on_tick(self) -> None:
        """Called about once a second, even if no messages arrive."""

    def show(self) -> None:
        """Shows the current state if the screen is mounted. Calls the screen directly, because a
        message to the screen would cost 5 % of a refresh."""
        self.status = self._current_status()
        if (monitor := self.monitor) is not None:
            state = ScreenState(
                self.shown_session, self.interval, self.status, self.current_interval()
            )
            monitor.show_state(state)

    def show_notice(self, notice: str) -> None:
        self._notice, self._notice_end_s = notice, self.clock() + NOTICE_S
        self.show()

    def on_notice_read(self) -> None:
        self._notice_end_s = 0.0
        if self.status.notice:
            self.show()

    def on_unknown_key(self, key: str) -> None:
        is_key = any(key in k.keys.split(",") for k in keys.KEYS)
        scope_text = "in this view" if is_key else "in perftop"
        caption, help_key = keys.key_caption(key), self.settings.captions["help"]
        self.show_notice(f"{caption} has no action {scope_text}; {help_key} lists all keys")

    async def open_palette(self) -> None:
        from textual.widgets import Input

        from perftop.tui.frame.overlays import Palette, command_palette

        if not any(isinstance(screen, Palette) for screen in self.app.screen_stack):
            screen = command_palette(self.shown_session)
            await self.app.push_screen(screen)
            if inputs := screen.query(Input):  # a click outside the palette may have closed it
                screen.set_focus(inputs.first())  # set now, before the next keys are handled

    def _current_status(self) -> AppStatus:
        notice = self._notice if self.clock() < self._notice_end_s else ""
        time_s = self.interval.time if self.interval is not None and self.is_paused else None
        return self.complete_status(self.status._replace(notice=notice, paused_at=time_s))

    def _schedule_check(self, seconds: float) -> None:
        """Schedules a check in this many seconds. Each batch of messages causes a check and
        postpones the scheduled one, which would cost 5 % of a refresh for the wake-up."""
        if self._timer is not None:
            self._timer.cancel()

        def check() -> None:
            self._schedule_check(1.0)
            self.check()  # this may schedule an earlier check

        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.app.call_later, check)

    def check(self) -> None:
        self._last_check_s = self.clock()
        self.on_tick()
        self._show_changes(has_new_interval=False)

    # --- other moments

    def show_moment(self, time_ns: int, span_ns: int | None = None) -> None:
        """Pauses at this moment, or at the nearest moment in the history. `span_ns`: length of the
        time to show; None: the interval."""
        history = self.session.history if self.has_started else None
        if history is not None and len(times := history.times()):
            nearest_ns = max(int(times[0]), min(int(times[-1]), time_ns))
            interval = self.session.interval_at(nearest_ns, span_ns or self.status.interval_ns)
            if interval is not None:
                self.interval, self.is_paused = interval, True
        self.show_new_moment(is_range=span_ns is not None)

    def show_new_moment(self, *, is_range: bool = False) -> None:
        """Shows the new `interval`. `is_range`: whether the user has selected it as a range."""
        self.status = self.status._replace(is_range=is_range)
        self.show()

    def step(self, steps: int) -> None:
        history = self.session.history if self.has_started else None
        if self.interval is not None and history is not None and len(times := history.times()):
            index = int(times.searchsorted(self.interval.time_ns)) + steps
            self.show_moment(int(times[max(0, min(len(times) - 1, index))]))

    def show_nearest_moment(self, time_ns: int) -> None:
        """Shows this moment, or the nearest moment available."""
        self.show_moment(time_ns)

    def go_to(self, time_ns: int) -> None:
        self.show_nearest_moment(time_ns)

    def select_range(self, first_ns: int, last_ns: int) -> None:
        self.show_moment(last_ns, last_ns - first_ns)

    def show_range(self, ends_ns: TimeRange) -> None:
        """Selects a range in the history, or shows a moment if both ends are equal."""
        first_ns, last_ns = ends_ns
        self.show_moment(last_ns, last_ns - first_ns or None)

    @property
    def shown_ns(self) -> int:
        """The start of the selected range, or the shown moment."""
        assert self.interval is not None
        length_ns = round(self.interval.elapsed_s * 1e9) if self.status.is_range else 0
        return self.interval.time_ns - length_ns

    def opposite_key(self, direction: int) -> str:
        """Returns the key that goes to an episode in the other direction."""
        return self.settings.captions["previous_episode" if direction > 0 else "next_episode"]

    def skip(self, seconds: int) -> None:
        """Goes this many seconds forward, or back if negative."""
        if self.interval is not None:
            self.show_nearest_moment(self.interval.time_ns + seconds * 10**9)

    # --- the interval

    def change_interval(self, direction: int) -> None:
        """Sets the next longer (`direction` = 1) or shorter (-1) interval, not shorter than the
        sample period; 0: the initial interval."""
        old_ns = self.status.interval_ns
        min_ns = self.session.hello.sample_ns if self.has_started else 0
        steps = [ns for ns in INTERVALS_NS if ns >= min_ns and (ns - old_ns) * direction > 0]
        new_ns = old_ns if direction else self._initial_interval_ns
        if steps:
            new_ns = min(steps) if direction > 0 else max(steps)
        self.status, self.interval_ns = self.status._replace(interval_ns=new_ns), new_ns
        self.on_interval_changed()
        if self.is_paused and self.interval is not None:  # the numbers now cover the new interval
            self.show_moment(self.interval.time_ns)
        self.show()

    def on_interval_changed(self) -> None:
        """Called when the interval has changed."""


class LiveSource(StreamSource):
    """A live stream from a probe. Only moments in the history can be shown."""

    summarises = False
    """Whether the session collects data for a summary at the end."""

    def __init__(
        self,
        opener: StreamOpener,
        interval_ns: int,
        *,
        set_batch_length: Callable[[int], None] = lambda _: None,
        link: Callable[[], Link | None] = lambda: None,
        tour: bool = False,
    ) -> None:
        """`set_batch_length`: sets the time between two writes of the probe, in ns. `link`: returns
        the link to a remote probe; None if the probe is local."""
        super().__init__(interval_ns, starts_early=True, tour=tour)
        self._open, self._set_batch_length, self._link = opener, set_batch_length, link
        self._recorder: ScreenRecorder | None = None
        self._last_message_s = 0.0
        self._now: Interval | None = None
        """The interval that `current_interval` returned last."""

    async def read_data(self) -> None:
        try:
            async with self._open() as stream:
                await self.consume(stream)
            self.end(Failed("the probe has ended", 0))
        except Failed as failed:
            self.end(failed)

    def on_hello(self, hello: wire.Hello) -> Session:
        """Starts a session. A second hello means that the machine has been restarted."""
        if self.has_started:
            recorded = self.end_recording()
            text = f"{hello.host} was restarted: its earlier history is gone"
            self.interval = self.newest_interval = self._now = None
            self.is_paused = False
            self.show_notice(f"{text} · {recorded}" if recorded else text)
        session = Session(hello, History(hello), summarises=self.summarises)
        session.run.track_losses(losses_only=True)
        self._recorder = None
        return session

    def on_interval(self, interval: Interval) -> None:
        if self.interval is None:
            self.on_interval_changed()
        super().on_interval(interval)
        last_now = self._now
        self._has_changed |= self.is_paused and self.current_interval() is not last_now

    def current_interval(self) -> Interval | None:
        newest, now = self.newest_interval, self._now
        if not self.is_paused or newest is None or self.status.failure_text is not None:
            return None
        if now is None or newest.time_ns - now.time_ns >= REDRAW_PERIOD_NS:
            self._now = newest
        return self._now

    def on_message(self, message: wire.Message) -> bool:
        if self._recorder is not None:
            self._recorder.add(message)
        return False

    def process(self, messages: Iterable[wire.Message]) -> bool:
        self._last_message_s = self.clock()
        return super().process(messages)

    def complete_status(self, status: AppStatus) -> AppStatus:
        """Returns the status with the state of the recording and of the link, and, if the probe
        hangs, the time since the last message."""
        if not self.has_started:
            return status
        silent_s = self.clock() - self._last_message_s
        limit_s = MIN_SILENCE_S + 2 * self.session.hello.sample_ns / 1e9
        is_hanging = status.failure_text is None and silent_s > limit_s
        link, recorder = self._link(), self._recorder
        return status._replace(
            silent_s=silent_s if is_hanging else None,
            recording_text=None if recorder is None else recorder.size_text,
            link=None if link is None else link.state(),
        )

    def on_tick(self) -> None:
        if self._recorder is not None:
            self._recorder.report()

    def toggle_pause(self) -> None:
        if self.is_paused:
            self.interval, self.is_paused = self.newest_interval, False
            self.show_new_moment()
        else:
            self.step(0)

    def go_to_episode(self, direction: int, cpus: list[int] | None) -> None:
        if self.has_started and self.interval is not None:
            episodes = reachable_episodes(self.session, cpus)
            if not self.is_paused:  # no episode is later, so both keys go to the last episode
                direction = -1
            ends_ns = nearest_episode(self.session, self.shown_ns, episodes, direction)
            if ends_ns is None:
                text = f"no {'later' if direction > 0 else 'earlier'} episode"
                self.show_notice(
                    f"{text}; try {self.opposite_key(direction)}" if episodes else text
                )
            else:
                self.show_range(ends_ns)

    def show_episode(self, episode: Episode) -> None:
        self.show_range(episode_range(self.session, episode, self.session.past.times()))

    def add_mark(self, time_ns: int, label: str) -> None:
        label = label or next_mark_label(self.session.marks)
        time_text = clock_time(self.session.unix_s(time_ns))
        self.add(wire.Note("mark", time_ns, "recorder", {"label": label}))
        self.show_notice(f'marked "{shorten_label(label)}" at {time_text}')
        if self.is_paused:  # otherwise the mark appears with the next numbers
            self.step(0)

    def on_interval_changed(self) -> None:
        if self.has_started:
            sample_ns = self.session.hello.sample_ns
            self._set_batch_length(longest_batch_ns(sample_ns, self.status.interval_ns))

    def record(self) -> None:
        if self.has_started:
            self._recorder = self._recorder or ScreenRecorder(self.session, self.show_notice)
            self._recorder.toggle()
        self.check()

    def end_recording(self) -> str:
        return self._recorder.end() if self._recorder is not None else ""


def run(
    probe: AnyProbe, interval_ns: int, config: Config, *, on_start: Callable[[], None], mouse: bool
) -> int:
    """Runs the app as `run_app` does. Also raises Failed if the stream failed."""
    source = LiveSource(
        lambda: open_stream(probe, restarts=True),
        interval_ns,
        set_batch_length=probe.set_batch_length,
        link=lambda: probe.link,
        tour=is_first_start(),
    )
    return run_app(source, config, mouse=mouse, on_start=on_start)
