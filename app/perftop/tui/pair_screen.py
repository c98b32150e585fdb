"""`perftop replay A B`: two recordings on one time axis, with the result of `perftop diff`.
`PairSource` reads them into a `PairState`, which `pair_page` draws; `PairScreen` handles keys."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from perftop.base.errors import require_terminal
from perftop.draw.columns import Run
from perftop.draw.strips import Line, safe_cells
from perftop.output.compare import text as diff_text
from perftop.recording.file import Recording
from perftop.session.session import MAX_BATCH
from perftop.tui.app import ScreenSource, run_app
from perftop.tui.config import Config
from perftop.tui.frame.bottom import PageScreen
from perftop.tui.pair_page import LABEL_WIDTH, Alignment, PairState, Track, pair_page
from perftop.tui.shared.canvas import chart_glyphs
from perftop.tui.shared.keys import PAIR_KEYS, bindings_by_id, key_captions

BATCH_S, REFRESH_S = 0.03, 0.25
"""Maximum seconds for which reading delays keys, and minimum seconds between two drawings then."""
ZOOM_FACTOR, MAX_ZOOM = 2.0, 4096.0


class PairScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_by_id(PAIR_KEYS)]

    def __init__(self, pair: PairState) -> None:
        super().__init__()
        self.pair = pair
        self._drag_start_s: float | None = None
        self._range_start_s = pair.cursor_s
        """Times on the axis in s at which the mouse button was pressed, and a range begins."""

    def page_lines(self, width: int, height: int) -> list[Line]:
        pair = self.pair
        pair.width, pair.height, pair.glyphs = width, height, chart_glyphs(self.app)
        return pair_page(pair)

    def action_why(self) -> None:
        """Shows the text of `perftop diff`."""
        from perftop.tui.frame.overlays import TextScreen

        pair = self.pair
        if pair.comparison is not None:
            names = pair.tracks[0].name, pair.tracks[1].name
            texts = diff_text.lines([pair.comparison], names, unicode=not pair.ascii)
            lines: list[list[Run]] = [[(f" {safe_cells(line)}", "text")] for line in texts]
            self.app.push_screen(TextScreen(lambda _: lines))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._drag_start_s = self._time_at(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Moves the cursor to the clicked time, or selects the dragged range."""
        start_s, end_s = self._drag_start_s, self._time_at(event)
        self._drag_start_s = None
        if start_s is None or end_s is None:
            return
        pair = self.pair
        pair.cursor_s = end_s
        if start_s != end_s:
            pair.select_range(start_s, end_s)
        self.page.update()

    def _time_at(self, event: events.MouseEvent) -> float | None:
        pair, cell = self.pair, event.x - LABEL_WIDTH
        if not (0 <= cell < pair.cells and event.y < pair.height - 1):
            return None
        return (pair.axis.start_ns + cell * pair.axis.bin_ns) / 1e9

    def action_set_range(self, end: bool) -> None:
        """Starts a range at the cursor, or ends it there."""
        pair = self.pair
        if not end:
            self._range_start_s = pair.cursor_s
        elif self._range_start_s != pair.cursor_s:
            pair.select_range(self._range_start_s, pair.cursor_s)
        self.page.update()

    def action_back(self) -> None:
        self.pair.clear_range()
        self.page.update()

    def action_align(self) -> None:
        self.pair.align_next()
        self.page.update()

    def action_resize_window(self, steps: int) -> None:
        pair = self.pair
        pair.zoom = min(MAX_ZOOM, max(1.0, pair.zoom * ZOOM_FACTOR**-steps))
        self.page.update()

    def action_go_to_episode(self, direction: int) -> None:
        """Moves to the next (`direction` = 1) or previous (-1) mark or episode in A or B."""
        pair = self.pair
        starts = sorted(
            (episode.start_ns - origin) / 1e9
            for track, origin in zip(pair.tracks, pair.origins_ns, strict=True)
            for episode in (*track.session.episodes(*track.ends_ns), *track.session.marks)
        )
        starts_beyond = [start for start in starts if (start - pair.cursor_s) * direction > 1e-6]
        if starts_beyond:
            pair.cursor_s = starts_beyond[0] if direction > 0 else starts_beyond[-1]
            self.page.update()


class PairSource(ScreenSource):
    def __init__(self, recordings: tuple[Recording, Recording], alignment: Alignment) -> None:
        self._recordings, self._alignment = recordings, alignment

    def make_screen(self) -> PairScreen:
        a, b = (Track(recording.path.name, recording.hello) for recording in self._recordings)
        captions = key_captions(self.app.config.keys)
        pair = PairState((a, b), self._alignment, ascii=self.app.ascii, captions=captions)
        self.screen = PairScreen(pair)
        return self.screen

    async def read_data(self) -> None:
        """Reads both recordings alternately, so that both appear from the start."""
        pairs = zip(self.screen.pair.tracks, self._recordings, strict=True)
        streams = [(track, recording, recording.messages()) for track, recording in pairs]
        shown_s = began_s = time.monotonic()
        while streams:
            for stream in list(streams):
                track, recording, messages = stream
                if batch := list(islice(messages, MAX_BATCH)):
                    track.process(batch)
                else:
                    track.on_end()
                    track.is_read, track.damage = True, recording.damage
                    streams.remove(stream)
            now_s = time.monotonic()
            if now_s - began_s > BATCH_S:
                if now_s - shown_s > REFRESH_S:
                    self.screen.page.update()
                    shown_s = now_s
                await asyncio.sleep(0.001)
                began_s = time.monotonic()
        self.screen.pair.compare()
        self.screen.page.update()

    def step(self, steps: int) -> None:
        pair = self.screen.pair
        first, last = pair.window_s
        self._move_cursor(steps * (last - first) / pair.cells)

    skip = step

    def go_to_start(self) -> None:
        self._move_cursor(-float("inf"))

    def go_to_end(self) -> None:
        self._move_cursor(float("inf"))

    def _move_cursor(self, seconds: float) -> None:
        self.screen.pair.move_cursor(seconds)
        self.screen.page.update()


def run(paths: tuple[Path, Path], alignment: Alignment, config: Config, *, mouse: bool) -> int:
    """Runs the app; returns the exit status. Raises Failed if there is nothing to show."""
    with ExitStack() as files:
        a, b = (files.enter_context(Recording(path)) for path in paths)
        require_terminal("for pipes and files: perftop diff")
        source = PairSource((a, b), alignment)
        return run_app(source, config, mouse=mouse)
