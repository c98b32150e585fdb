"""`perftop replay`: a recording as a source for the screen. Samples from the file are stored in a
history, as in a live session. The file is read up to the shown moment. For a moment outside the
history, another section of the file is read into a new history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path

from textual.worker import Worker

from perfprobe import wire
from perftop.base.errors import Failed, require_terminal
from perftop.base.text import clock_time
from perftop.model.kinds import Episode
from perftop.recording import file, player
from perftop.recording.file import AnyRecording
from perftop.recording.player import Playback, PlayClock, Seeker
from perftop.session.episodes import RecordingEpisodes, new_mark, shorten_label
from perftop.session.selection import TimeRange
from perftop.session.session import MAX_BATCH, Session
from perftop.tui import recording_index
from perftop.tui.app import run_app
from perftop.tui.config import Config
from perftop.tui.frame.top import AppStatus, CpuCost, PlaybackState
from perftop.tui.stream import StreamSource

PLAY_STEP_S = 0.05
"""Seconds between two steps of playing."""


class ReplaySource(StreamSource):
    def __init__(self, recording: AnyRecording, interval_ns: int) -> None:
        super().__init__(max(interval_ns, recording.hello.sample_ns))
        self.recording_span_ns = player.frame_range(recording)
        self._recording = recording
        self._playback: Playback | None = None
        """The section of the file that is in the history; None before the first."""
        self._play_clock = PlayClock()
        self._playing = asyncio.Event()
        self._playing.set()
        self.seek_worker: Worker[None] | None = None
        """The worker of the current seek; None if there is none."""
        self._seek_ns = 0
        """Monotonic time in ns up to which the current seek has read."""
        packages = [row.package for row in recording.hello.topology]
        self._episodes = RecordingEpisodes(packages)
        self.indexing = True
        """Whether the file is still being searched for episodes."""
        self._extended_playback: tuple[Playback | None, int] = None, 0
        """The playback whose history was last extended backwards, and to when (monotonic ns)."""
        self._mark_count = 0
        """Number of marks that the user has set in this replay. They are not stored in the file."""
        self._remarks = [] if recording.checked else [file.UNCHECKED_NOTICE]
        """Remarks about the recording that have not been reported yet."""
        self._remarks += [file.BEING_WRITTEN_NOTICE] if recording.is_growing else []
        self._damage: str | None = None
        """The damage to the file that was reported last; None if there is none."""

    async def read_data(self) -> None:
        await self._seek_to(self.recording_span_ns[0])
        self.app.run_worker(self._index_episodes(), group="index")
        while True:
            await self._playing.wait()
            is_late = self.seek_worker is None and self._play()
            await asyncio.sleep(player.SEEK_PAUSE_S if is_late else PLAY_STEP_S)

    async def _index_episodes(self) -> None:
        recording, episodes = self._recording, self._episodes
        search = recording_index.fill_episodes(recording.path, recording.hello, episodes)
        try:
            async with aclosing(search) as updates:
                async for _ in updates:
                    self.show()
            if count := episodes.omitted_count:
                self.show_notice(f"{count} more episodes of the file are not listed")
        except (Failed, OSError) as error:
            self.show_notice(str(error))
        self.indexing = False
        self.show_new_moment()

    def on_tick(self) -> None:
        """Reports damage and remarks once. Reads earlier samples if time axes cover them."""
        self._read_earlier_samples()
        damage = self._recording.damage
        if damage != self._damage and damage is not None:
            self._damage = damage
            self.show_notice(f"the recording is {damage}")
        elif self._remarks:
            self.show_notice(f"the recording is {self._remarks.pop()}")

    def complete_status(self, status: AppStatus) -> AppStatus:
        if self._playback is None:
            return status
        first_ns, last_ns = self.recording_span_ns
        indexed = (self._episodes.until_ns - first_ns) / (last_ns - first_ns)
        replay = PlaybackState(
            is_playing=self._playing.is_set(),
            speed=self._play_clock.speed,
            recording_span_ns=self.recording_span_ns,
            seek_position_ns=None if self.seek_worker is None else self._seek_ns,
            is_over=self._is_at_end,
            damage=self._recording.damage,
            indexed_share=max(0.0, min(1.0, indexed)) if self.indexing else None,
        )
        return status._replace(replay=replay)

    @property
    def ends_ns(self) -> tuple[int, int] | None:
        """First and last moment in the history (monotonic ns); None before the first section."""
        return None if self._playback is None else self._playback.ends_ns

    @property
    def _is_at_end(self) -> bool:
        playback, ends_ns, interval = self._playback, self.ends_ns, self.interval
        is_at_end = ends_ns is not None and interval is not None and interval.time_ns >= ends_ns[1]
        return is_at_end and playback is not None and playback.is_over

    # --- playing

    def _play(self) -> bool:
        """Shows the moment that is due now, from the history or by reading on in the file. Returns
        whether this machine is too slow for the playback speed."""
        playback, interval = self._playback, self.interval
        now_ns = self._play_clock.now_ns(self.clock())
        if playback is None or interval is None:
            return False
        if self.is_paused and now_ns < playback.session.now_ns:
            if now_ns - interval.time_ns >= self.status.interval_ns:
                self.show_moment(int(now_ns))
            return False
        self.is_paused = False
        end_s = self.clock() + player.BATCH_S
        due_messages = playback.messages_until(now_ns)
        while messages := list(islice(due_messages, MAX_BATCH)):
            self.process(messages)
            if self.clock() > end_s:
                self._play_clock.begin(playback.session.now_ns, self.clock())
                return True
        if playback.is_over:
            self._playing.clear()
            self.show_moment(player.AFTER_END_NS)
        return False

    def toggle_pause(self) -> None:
        if self._playing.is_set() or self.seek_worker is not None:
            self._playing.clear()
            self._cancel_seek()
            self.is_paused = True
        elif self._is_at_end:
            self.show_notice("end of recording")
        elif (interval := self.interval) is not None:
            self._playing.set()
            self._play_clock.begin(interval.time_ns, self.clock())
            if (ends_ns := self.ends_ns) is not None and interval.time_ns < ends_ns[0]:
                # a seek has dropped this moment from the history
                self.show_nearest_moment(interval.time_ns)
        self.show_new_moment()

    def change_speed(self, steps: int) -> None:
        self._play_clock.change_speed(steps)
        if (interval := self.interval) is not None:
            self._play_clock.begin(interval.time_ns, self.clock())
        self.show()

    # --- going to another moment

    def step(self, steps: int) -> None:
        playback, ends_ns, interval = self._playback, self.ends_ns, self.interval
        if playback is None or ends_ns is None or interval is None or self.seek_worker is not None:
            return
        self._playing.clear()
        if steps > 0 and interval.time_ns >= ends_ns[1]:
            playback.read_sample()
        if steps < 0 and interval.time_ns <= ends_ns[0]:
            self.show_nearest_moment(interval.time_ns - 1)
        else:
            super().step(steps)

    def show_nearest_moment(self, time_ns: int) -> None:
        """Goes to this moment, by a seek if it is not in the history."""
        first_ns, last_ns = self.recording_span_ns
        time_ns = max(first_ns, min(last_ns, time_ns))
        ends_ns = self.ends_ns
        if ends_ns is not None and ends_ns[0] <= time_ns <= ends_ns[1]:
            self._cancel_seek()
            self._show_and_play_from((time_ns, time_ns))
        else:
            self.start_seek(partial(self._seek_to, time_ns))

    def go_to_start(self) -> None:
        self.show_nearest_moment(0)

    def go_to_end(self) -> None:
        self.show_nearest_moment(player.AFTER_END_NS)

    def go_to(self, time_ns: int) -> None:
        self._playing.clear()
        self.show_nearest_moment(time_ns)

    def select_range(self, first_ns: int, last_ns: int) -> None:
        self._playing.clear()
        self._cancel_seek()
        super().select_range(first_ns, last_ns)

    def go_to_episode(self, direction: int, cpus: list[int] | None) -> None:
        self._playing.clear()
        self.start_seek(partial(self._go_to_found_episode, direction, cpus))

    def show_episode(self, episode: Episode) -> None:
        self._playing.clear()

        async def seek() -> None:
            self._show_section(*await self._make_seeker().go_to_episode(self._playback, episode))

        self.start_seek(seek)

    def add_mark(self, time_ns: int, label: str) -> None:
        self._mark_count += 1
        label = shorten_label(label or f"mark {self._mark_count}")
        self._episodes.add_mark(new_mark(time_ns, label))
        mark_text = f'"{label}" at {clock_time(self.session.unix_s(time_ns))}'
        self.show_notice(f"marked {mark_text} until you leave; the file does not change")
        if self.is_paused and self.interval is not None:
            self.show_moment(self.interval.time_ns)

    def start_seek(self, search: Callable[[], Coroutine[None, None, None]]) -> None:
        async def seek() -> None:
            await search()
            self.seek_worker = None
            self.show()

        self._cancel_seek()
        interval = self.interval
        self._seek_ns = self.recording_span_ns[0] if interval is None else interval.time_ns
        self.seek_worker = self.app.run_worker(seek, group="seek")
        self.show()

    def _cancel_seek(self) -> None:
        if self.seek_worker is not None:
            self.seek_worker.cancel()
            self.seek_worker = None

    async def _seek_to(self, time_ns: int) -> None:
        playback = await self._make_seeker().seek(self._playback, time_ns)
        self._show_section(playback, (time_ns, time_ns))

    async def _go_to_found_episode(self, direction: int, cpus: list[int] | None) -> None:
        """Goes to the next (`direction` = 1) or previous (-1) episode or mark of the file, as soon
        as the search for episodes has read that part of the file."""
        interval, episodes = self.interval, self._episodes
        if interval is None or self._playback is None:
            return
        while True:
            has_passed = episodes.until_ns >= interval.time_ns
            is_complete = not self.indexing or (direction < 0 and has_passed)
            search, shown_ns = self._make_seeker(), self.shown_ns
            result = await search.next_episode(self._playback, shown_ns, direction, cpus)
            if is_complete or (result is not None and direction > 0):
                break
            self._report_seek(episodes.until_ns)
            await asyncio.sleep(player.BATCH_S)
        if result is not None:
            self._show_section(*result)
        else:
            direction_word = "after" if direction > 0 else "before"
            text = f"no episode or mark {direction_word} this moment"
            self.show_notice(f"{text}; try {self.opposite_key(direction)}")

    def _make_seeker(self) -> Seeker:
        return Seeker(self._recording, self._episodes, self.clock, self._report_seek)

    def _report_seek(self, time_ns: int) -> None:
        self._seek_ns = time_ns
        self.show()

    def _show_section(self, playback: Playback, ends_ns: TimeRange) -> None:
        """Shows this range or moment of a section of the file, if the section has samples."""
        if playback.ends_ns is None:
            return
        if playback is not self._playback:
            self.app.workers.cancel_group(self.app, "deepen")
            self._playback = playback
            self.add(playback.session.hello)
            self.cost = CpuCost(lambda: 0.0)
            self.cost.cpu_share(playback.session.now_ns, playback.session.probe_cpu_s())
            self.status = self.status._replace(own_cpu_share=playback.cost)
        playback.session.take_interval()  # so that the next interval begins where reading continues
        self._show_and_play_from(ends_ns)

    def on_hello(self, hello: wire.Hello) -> Session:  # noqa: ARG002 - the section has read it
        assert self._playback is not None
        return self._playback.session

    def _show_and_play_from(self, ends_ns: TimeRange) -> None:
        """Shows this range or moment, from whose end playing continues."""
        self.show_range(ends_ns)
        if (interval := self.interval) is not None:
            self._play_clock.begin(interval.time_ns, self.clock())
        self._read_earlier_samples()

    def _read_earlier_samples(self) -> None:
        """Starts to read the samples before the history that time axes cover, in the background."""
        playback, ends_ns, interval = self._playback, self.ends_ns, self.interval
        if playback is None or ends_ns is None or interval is None or self.seek_worker is not None:
            return
        window_ns = round(self.settings.window_s * 1e9)
        since_ns = max(self.recording_span_ns[0], interval.time_ns - window_ns)
        last_playback, last_since_ns = self._extended_playback
        is_done = last_playback is playback and last_since_ns <= since_ns
        if is_done or ends_ns[0] <= since_ns + 2 * self._recording.hello.sample_ns:
            return
        self._extended_playback = playback, since_ns

        async def read() -> None:
            search = Seeker(self._recording, self._episodes, self.clock, lambda _: None)
            await search.extend_back(playback, since_ns)
            if playback is self._playback and (monitor := self.monitor) is not None:
                monitor.refresh_view()

        _: Worker[None] = self.app.run_worker(read, group="deepen", exclusive=True)


def run(path: Path, interval_ns: int, config: Config, *, mouse: bool = True) -> int:
    """Runs the app; returns the exit status. Raises Failed if there is nothing to replay."""
    with file.open_recording(path) as recording:
        source = ReplaySource(recording, interval_ns)
        # Errors in the file are raised first.
        require_terminal("for pipes and files: perftop summary, perftop export")
        return run_app(source, config, mouse=mouse)
