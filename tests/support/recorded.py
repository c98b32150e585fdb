"""The app on a recording."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playing import INTERVAL_NS, Run
from textual.pilot import Pilot
from waiting import until

from perftop.recording.file import Recording
from perftop.tui.app import PerfTopApp
from perftop.tui.config import Config
from perftop.tui.replay import Recorded

S = 1_000_000_000


class Viewer(Run):
    """An app on a file, with a clock that the test moves."""

    def __init__(
        self, app: PerfTopApp, source: Recorded, pilot: Pilot[None], clock: list[float]
    ) -> None:
        self.app, self.source, self.pilot, self._clock = app, source, pilot, clock

    @property
    def at_s(self) -> float:
        """The time shown, in s since the start of the file."""
        assert self.app.interval is not None
        return (self.app.interval.time_ns - self.source.reach_ns[0]) / S

    @property
    def header(self) -> str:
        return self.text()[0]

    async def wait(self, seconds: float) -> None:
        self._clock[0] += seconds

    async def comes_to(self, at_s: float) -> None:
        def there() -> bool:
            return abs(self.at_s - at_s) < 0.01 and self.source.seek is None

        await until(there, f"{at_s}, not {self.header}")
        await self.pilot.pause()

    async def press(self, *keys: str, to_s: float | None = None) -> None:
        """The keys, and where they lead to."""
        await self.pilot.press(*keys)
        if to_s is not None:
            await self.comes_to(to_s)


@asynccontextmanager
async def view(path: Path, size: tuple[int, int] = (160, 50)) -> AsyncIterator[Viewer]:
    clock = [0.0]
    with Recording(path) as recording:
        source = Recorded(recording)
        app = PerfTopApp(source, INTERVAL_NS, Config(), clock=lambda: clock[0])
        async with app.run_test(size=size) as pilot:
            await until(lambda: app.interval is not None, "a first moment")
            await pilot.pause()
            yield Viewer(app, source, pilot, clock)
