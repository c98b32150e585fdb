"""`perftop replay A B`: two recordings stacked on one time axis."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import BindingType

from perfprobe import wire
from perftop.base.errors import USAGE, Failed
from perftop.base.text import utf8
from perftop.recording.file import Recording
from perftop.session.session import MAX_BATCH
from perftop.tui.config import Config
from perftop.tui.pair.page import Alignment, Look, PairPage, Track, cells
from perftop.tui.shared import keys
from perftop.tui.terminal_app import PageApp, show

BATCH_S, REFRESH_S = 0.03, 0.25
"""Longest time for which reading keeps keys waiting, and time between two pictures meanwhile."""
ZOOM, MAX_ZOOM = 2.0, 4096.0


class PairApp(PageApp):
    TITLE = "perftop replay"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bound(keys.PAIR)]
    page: PairPage

    def __init__(
        self, recordings: tuple[Recording, Recording], alignment: Alignment,
        config: Config | None = None, *, ascii_: bool = False,
    ) -> None:  # fmt: skip
        config = config or Config()
        super().__init__(config)
        self._recordings = recordings
        a, b = (Track(each.path.name, each.hello) for each in recordings)
        look = Look((a, b), alignment, ascii=ascii_, captions=keys.captions(config.keys))
        self.page = PairPage(look)

    def on_ready(self) -> None:
        self.page.focus()
        self.page.update()
        self._read()

    @work(exclusive=True)
    async def _read(self) -> None:
        """Reads both by turns, so that both are there from the beginning."""
        streams: list[tuple[Track, Recording, Iterator[wire.Message]]] = [
            (track, each, each.messages())
            for track, each in zip(self.page.look.tracks, self._recordings, strict=True)
        ]
        shown_s = began_s = time.monotonic()
        while streams:
            for one in list(streams):
                track, recording, messages = one
                if some := list(islice(messages, MAX_BATCH)):
                    track.play(some)
                else:
                    track.read, track.damage = True, recording.damage
                    streams.remove(one)
            now_s = time.monotonic()
            if now_s - began_s > BATCH_S:
                if now_s - shown_s > REFRESH_S:
                    self.page.update()
                    shown_s = now_s
                await asyncio.sleep(0.001)
                began_s = time.monotonic()
        self.page.update()

    # --- keys

    def action_help(self) -> None:
        self.page.look.helping = not self.page.look.helping
        self.page.redraw()

    async def action_back(self) -> None:
        self.page.look.helping = False
        self.page.redraw()

    def action_step(self, by: int) -> None:
        look = self.page.look
        first, last = look.window_s
        look.move(by * (last - first) / cells(look))
        self.page.update()

    action_leap = action_step

    def action_begin(self) -> None:
        self.page.look.move(-float("inf"))
        self.page.update()

    def action_finish(self) -> None:
        self.page.look.move(float("inf"))
        self.page.update()

    def action_window(self, by: int) -> None:
        look = self.page.look
        look.zoom = min(MAX_ZOOM, max(1.0, look.zoom * ZOOM**-by))
        self.page.update()

    def action_episode(self, by: int) -> None:
        """To the next start of an episode or mark of either recording."""
        look = self.page.look
        starts = sorted(
            (one.start_ns - origin) / 1e9
            for track, origin in zip(look.tracks, look.origins_ns, strict=True)
            for one in track.events()
        )
        beyond = [at for at in starts if (at - look.cursor_s) * by > 1e-6]
        if beyond:
            look.cursor_s = beyond[0] if by > 0 else beyond[-1]
            self.page.update()


def run(paths: tuple[Path, Path], alignment: Alignment, config: Config, *, mouse: bool) -> int:
    """Runs the app; returns the exit status. Raises Failed if there is nothing to show."""
    with ExitStack() as files:
        a, b = (files.enter_context(Recording(path)) for path in paths)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Failed("the screen needs a terminal; for pipes and files: perftop diff", USAGE)
        return show(PairApp((a, b), alignment, config, ascii_=not utf8()), mouse=mouse)
