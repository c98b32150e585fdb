"""`perftop replay`: the terminal app on a recording.

What was read of the file is kept in a history, as in a live session. Reading follows the shown
moment, and begins elsewhere when the user goes to a moment that is not in the history.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.worker import Worker

from perfprobe.frozen import replace
from perftop.base.errors import USAGE, Failed
from perftop.base.text import utf8
from perftop.base.times import when
from perftop.recording import episode_index
from perftop.recording.file import GROWING, UNCHECKED
from perftop.recording.parts import AnyRecording
from perftop.recording.parts import recording as opened
from perftop.recording.player import END_NS, Pace, Passage, reach
from perftop.recording.search import BATCH_S, BREATH_S, Search
from perftop.session import marks
from perftop.session.file_episodes import FileEpisodes
from perftop.session.session import MOST_TOGETHER
from perftop.tui.app import PerfTopApp
from perftop.tui.config import Config
from perftop.tui.frame.status import Cost, Replay
from perftop.tui.shared import keys
from perftop.tui.terminal_app import show

Way = Callable[[], Coroutine[None, None, None]]
TICK_S = 0.05
"""Seconds between two steps of playing; no interval is shorter."""


class ReplayApp(PerfTopApp):
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("replay")]

    def __init__(
        self, recording: AnyRecording, interval_ns: int, config: Config | None = None,
        *, ascii_: bool = False, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        interval_ns = max(interval_ns, recording.hello.sample_ns)
        super().__init__(None, interval_ns, config, ascii_=ascii_, clock=clock)
        self._recording = recording
        self._reach_ns = reach(recording)
        self._passage: Passage | None = None
        self._pace = Pace()
        self._playing = asyncio.Event()
        self._playing.set()
        self._sought: Worker[None] | None = None
        """The seek under way to another moment; None if there is none."""
        self._sought_ns = 0
        """Raw ns that the seek has come to."""
        self._found = FileEpisodes()
        self._looking = True
        """Whether the pass over the file, which finds its episodes, is under way."""
        self._deepened: tuple[Passage, int] | None = None
        """The passage whose past was last read, and the moment that was reached, raw ns."""
        self._named = 0
        """How many marks the user has set; they are not written to the file."""
        self._remarks = [] if recording.checked else [UNCHECKED]
        """What is still to be told of the recording."""
        self._remarks += [GROWING] if recording.growing else []
        self._damage: str | None = None
        """The damage that was last reported."""

    @work(exclusive=True)
    async def _feed(self) -> None:
        await self._go(self._reach_ns[0])
        self.run_worker(self._index(), group="index")
        while True:
            await self._playing.wait()
            late = self._sought is None and self._play()
            await asyncio.sleep(BREATH_S if late else TICK_S)

    async def _index(self) -> None:
        """Finds the episodes of the whole file, in a process of its own."""
        recording, found = self._recording, self._found
        try:
            async with aclosing(
                episode_index.follow(recording.path, recording.hello, found)
            ) as news:
                async for _ in news:
                    self._tell()
            if found.left_out:
                self.say(f"{found.left_out} more episodes of the file are not listed")
        except (Failed, OSError) as error:
            self.say(str(error))
        self._looking = False
        self._looked()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "record" and super().check_action(action, parameters)

    def _watch(self) -> None:
        """Reports damage to the file, and removes an old notice. A file is never silent. Looks
        whether the user wants to see more of the past."""
        self._deepen()
        damage = self._recording.damage
        if damage != self._damage and damage is not None:
            self._damage = damage
            self.say(f"the recording is {damage}")
        elif self._remarks:
            self.say(f"the recording is {self._remarks.pop()}")
        elif self.status.notice and self._clock() >= self._until_s:
            self.status = replace(self.status, notice="")
            self._tell()

    def _tell(self) -> None:
        if self._passage is not None:
            status = Replay(
                playing=self._playing.is_set(),
                speed=self._pace.speed,
                reach_ns=self._reach_ns,
                seeking_ns=None if self._sought is None else self._sought_ns,
                over=self._over,
                damage=self._passage.trouble or self._recording.damage,
                indexed=self._share if self._looking else None,
            )
            self.status = replace(self.status, replay=status)
        super()._tell()

    @property
    def _share(self) -> float:
        """How much of the file has been looked through for episodes, 0 to 1."""
        first_ns, last_ns = self._reach_ns
        return max(0.0, min(1.0, (self._found.until_ns - first_ns) / (last_ns - first_ns)))

    @property
    def _ends_ns(self) -> tuple[int, int] | None:
        return None if self._passage is None else self._passage.ends_ns

    @property
    def _over(self) -> bool:
        """Whether the last moment of the recording is shown."""
        passage, ends_ns, at = self._passage, self._ends_ns, self.interval
        shown = ends_ns is not None and at is not None and at.time_ns >= ends_ns[1]
        return shown and passage is not None and passage.over

    # --- playing

    def _play(self) -> bool:
        """Plays up to the moment that is due: first what was read before, then the file. Returns
        True if this machine cannot keep up with the speed."""
        passage, at = self._passage, self.interval
        now_ns = self._pace.now_ns(self._clock())
        if passage is None or at is None:
            return False
        if self.playhead.paused and now_ns < passage.session.now_ns:
            if now_ns - at.time_ns >= self.status.interval_ns:
                self.playhead.go(int(now_ns), self.status.interval_ns)
                self._looked()
            return False
        self.playhead.paused = False
        self.status = replace(self.status, paused=None)
        end_s = self._clock() + BATCH_S
        due = passage.until(now_ns)
        while messages := list(islice(due, MOST_TOGETHER)):
            self._take(messages)
            if self._clock() > end_s:
                self._pace.begin(passage.session.now_ns, self._clock())
                return True
        if passage.over:
            self._playing.clear()
            self.playhead.go(END_NS, self.status.interval_ns)
            self._looked()
        return False

    def action_pause(self) -> None:
        if self._playing.is_set() or self._sought is not None:
            self._playing.clear()
            self._stay()
            self.playhead.paused = True
        elif self._over:
            self.say("there is nothing after this moment")
        elif (at := self.interval) is not None:
            self._playing.set()
            self._pace.begin(at.time_ns, self._clock())
            if (ends_ns := self._ends_ns) is not None and at.time_ns < ends_ns[0]:
                self._head_for(at.time_ns)  # a search has read on and dropped it
        self._looked()

    def action_speed(self, by: int) -> None:
        self._pace.change(by)
        if (at := self.interval) is not None:
            self._pace.begin(at.time_ns, self._clock())
        self._tell()

    # --- going to another moment

    def action_step(self, by: int) -> None:
        passage, ends_ns, at = self._passage, self._ends_ns, self.interval
        if passage is None or ends_ns is None or at is None or self._sought is not None:
            return
        self._playing.clear()
        if by > 0 and at.time_ns >= ends_ns[1]:
            passage.sample()
        if by < 0 and at.time_ns <= ends_ns[0]:
            self._head_for(at.time_ns - 1)
        else:
            super().action_step(by)

    def action_leap(self, seconds: float) -> None:
        if (at := self.interval) is not None:
            self._head_for(at.time_ns + round(seconds * 1e9))

    def action_begin(self) -> None:
        self._head_for(self._reach_ns[0])

    def action_finish(self) -> None:
        self._head_for(self._reach_ns[1])

    def go(self, time_ns: int) -> None:
        self._playing.clear()
        self._head_for(time_ns)

    def go_to_episode(self, by: int, cpus: list[int] | None) -> None:
        self._playing.clear()
        self._seek(partial(self._find, by, cpus))

    def _head_for(self, time_ns: int) -> None:
        """Goes to this moment: at once if it is in the history, else by a seek."""
        first_ns, last_ns = self._reach_ns
        time_ns = max(first_ns, min(last_ns, time_ns))
        ends_ns = self._ends_ns
        if ends_ns is not None and ends_ns[0] <= time_ns <= ends_ns[1]:
            self._stay()
            self._stand(time_ns)
        else:
            self._seek(partial(self._go, time_ns))

    def mark(self, time_ns: int, label: str) -> None:
        if self._passage is None:
            return
        self._named += 1
        label = marks.shortened(label or f"mark {self._named}")
        self._found.name(marks.mark(time_ns, label))
        at = when(self._passage.session.unix(time_ns))
        self.say(f'marked "{label}" at {at} until you leave; the file does not change')
        if self.playhead.paused:
            self.playhead.step(0, self.status.interval_ns)
            self._looked()

    def _seek(self, way: Way) -> None:
        """Starts a seek; it replaces one that is under way."""
        self._stay()
        self._sought_ns = self._reach_ns[0] if self.interval is None else self.interval.time_ns
        self._sought = self.run_worker(partial(self._take_way, way), group="seek")
        self._tell()

    async def _take_way(self, way: Way) -> None:
        await way()
        self._sought = None
        self._tell()

    def _stay(self) -> None:
        """Cancels a seek that is under way."""
        if self._sought is not None:
            self._sought.cancel()
            self._sought = None

    async def _go(self, time_ns: int) -> None:
        self._enter(await self._search().go(self._passage, time_ns), time_ns)

    async def _find(self, by: int, cpus: list[int] | None) -> None:
        """Goes to the next episode or mark of the file, or the one before. What the pass over the
        file has not come to yet is waited for."""
        at, found = self.interval, self._found
        if at is None or self._passage is None:
            return
        while True:
            known = not self._looking or (by < 0 and found.until_ns >= at.time_ns)
            way = await self._search().beside(self._passage, at, by, cpus)
            if known or (way is not None and by > 0):
                break
            self._come(found.until_ns)
            await asyncio.sleep(BATCH_S)
        if way is not None:
            self._enter(*way)
        else:
            self.say(f"no episode or mark {'after' if by > 0 else 'before'} this moment")

    def _search(self) -> Search:
        return Search(self._recording, self._found, self._clock, self._come)

    def _come(self, time_ns: int) -> None:
        self._sought_ns = time_ns
        self._tell()

    def _enter(self, passage: Passage, time_ns: int) -> None:
        """Shows this moment of the passage, if the passage has samples."""
        if passage.ends_ns is None:
            return
        if passage is not self._passage:
            self.workers.cancel_group(self, "deepen")
            self._passage, self._session = passage, passage.session
            self._cost = Cost(lambda: 0.0)
            self._cost.share(passage.session)
            self.status = replace(self.status, own=passage.cost)
            self.playhead.session = passage.session
        passage.session.take()  # the next interval begins where reading goes on
        self._stand(time_ns)

    def _deepen(self) -> None:
        """Reads, in the background, what the time axes show of the time before the history."""
        passage, ends_ns, at = self._passage, self._ends_ns, self.interval
        if passage is None or ends_ns is None or at is None or self._sought is not None:
            return
        since_ns = max(self._reach_ns[0], at.time_ns - round(self._choice.window_s * 1e9))
        before = self._deepened
        done = before is not None and before[0] is passage and before[1] <= since_ns
        if not done and ends_ns[0] > since_ns + 2 * self._recording.hello.sample_ns:
            self._deepened = passage, since_ns
            self.run_worker(self._deepening(passage, since_ns), group="deepen", exclusive=True)

    async def _deepening(self, passage: Passage, since_ns: int) -> None:
        search = Search(self._recording, self._found, self._clock, lambda _: None)
        await search.deepen(passage, since_ns)
        if passage is self._passage:
            self.show_again()

    def _stand(self, time_ns: int) -> None:
        """Shows this moment; playing goes on from there."""
        self.playhead.go(time_ns, self.status.interval_ns)
        if (at := self.interval) is not None:
            self._pace.begin(at.time_ns, self._clock())
        self._looked()
        self._deepen()


def run(path: Path, interval_ns: int, config: Config, *, mouse: bool = True) -> int:
    """Runs the app; returns the exit status. Raises Failed if there is nothing to replay."""
    with opened(path) as recording:
        app = ReplayApp(recording, interval_ns, config, ascii_=not utf8())
        if not (sys.stdin.isatty() and sys.stdout.isatty()):  # told after what the file lacks
            tells = "perftop summary, perftop export"
            raise Failed(f"the screen needs a terminal; for pipes and files: {tells}", USAGE)
        return show(app, mouse=mouse)
