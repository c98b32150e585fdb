"""Makes the pictures in this folder: the app on simulated machines, at fixed size, moment and seed.

python screenshots/make.py            writes the pictures that have changed
python screenshots/make.py --check    lists the pictures that have changed, and writes nothing
python screenshots/make.py NAME…      only these pictures
"""

from __future__ import annotations

import asyncio
import dataclasses
import html
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeVar

import fleets

from perfprobe import wire
from perfprobe.sources.sim.source import SimSource
from perftop.process.link import LinkState
from perftop.process.streams import Stream
from perftop.recording.file import Recording
from perftop.session.fleet import Fleet
from perftop.session.packing import Recorder
from perftop.tui.app import PerfTopApp
from perftop.tui.fleet_screen import FleetSource
from perftop.tui.frame.top import CpuCost
from perftop.tui.replay import ReplaySource
from perftop.tui.stream import LiveSource, StreamSource

HERE = Path(__file__).parent
SAMPLE_NS = 100_000_000
INTERVAL_NS = 500_000_000
BATCH = INTERVAL_NS // SAMPLE_NS
"""Number of messages that the probe writes at once."""
AGAIN = 4
"""Number of times that the screen is redrawn before its picture is taken."""
REDRAW_S = 0.05
"""Time in s in which a batch is drawn."""
OWN_COST = 0.002
"""Cost of the probe in the pictures, in CPU seconds per second: the real cost would differ each
time."""


@dataclasses.dataclass(frozen=True)
class Picture:
    name: str
    scenario: str
    seconds: float
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    watch: str | None = None
    theme: str | None = None
    no_color: bool = False
    replayed: bool = False
    """Whether the picture shows a recording, at the moment to which the keys lead."""
    fleet: Callable[[], Fleet] | None = None
    """Makes the fleet of the picture; `scenario` is then the source that the header names."""
    facts: tuple[str, ...] = ()
    """What the source reports about the fleet's cost."""
    way: LinkState | None = None
    """The state of the link to a remote machine; None: the machine is local."""
    shows_losses: bool = False
    """Whether the picture shows losses over time, which are summed from each redraw to the next."""
    moments: tuple[float, ...] = ()
    """Seconds of a moving picture's frames, each shown for FRAME_S."""


PICTURES = [
    Picture("moving", "demo,cpus=8", 0, (100, 24), moments=(54, 66, 79, 8, 22, 34)),
    Picture("guest", "guest", 76, (160, 50)),
    Picture("guest-80x24", "guest", 76, (80, 24)),
    Picture("small", "demo,cpus=8", 54, (160, 50)),
    Picture("neighbour", "neighbour,cpus=64", 17, (160, 50)),
    Picture("wide-256", "demo,cpus=256,packages=2", 34, (240, 70), ("W",), shows_losses=True),
    Picture("overview", "smt-mix,cpus=48,packages=2", 12, (160, 40), ("down",) * 5),
    Picture("turbo-drop", "turbo-drop,cpus=32,packages=2", 9, (160, 44)),
    Picture("heat-map", "neighbour,cpus=256,packages=2", 17, (160, 50)),
    Picture("time", "neighbour,cpus=32", 40, (160, 32), ("3", "[")),
    Picture("table", "smt-mix,cpus=32", 12, (160, 40), ("4", "down")),
    Picture("core", "turbo-drop,cpus=32,packages=2", 40, (160, 46), ("enter", "[")),
    Picture("episodes", "throttle,cpus=32,packages=2", 52, (160, 24), ("5",)),
    Picture("neighbours", "neighbour,cpus=32", 17, (160, 30), ("6",), watch="lmp"),
    Picture("help", "demo,cpus=8", 54, (160, 60), ("question_mark",)),
    Picture("light", "demo,cpus=8", 54, (120, 30), theme="perftop-light"),
    Picture("no-color", "demo,cpus=8", 54, (120, 30), no_color=True),
    Picture(
        "replay",
        "turbo-drop,cpus=32,packages=2",
        150,
        (160, 32),
        ("space", "n", "n", "n", "3", "v"),
        replayed=True,
    ),
    Picture(
        "remote",
        "throttle,cpus=32,packages=2",
        33,
        (160, 44),
        way=LinkState("n007", 0.0184, 11_600.0),
    ),
    Picture(
        "fleet",
        "over ssh",
        0,
        (160, 50),
        ("down", "down"),
        fleet=fleets.small,
        facts=("0.03 % there", "49 kB/s", "dropped frames 0"),
    ),
    Picture(
        "fleet-400",
        "prometheus http://mon:9090",
        0,
        (160, 50),
        ("2", "n"),
        fleet=fleets.many,
        facts=("214 kB/s",),
    ),
]


@cache
def capture(
    scenario: str, seconds: float, watch: str | None, seed: int = 7, events: str | None = None,
    cpus: str | None = None,
) -> list[wire.Message]:  # fmt: skip
    """The stream of a simulated machine up to the moment of the picture."""
    spec = f"sim:{scenario},seed={seed},speed=max"
    source = SimSource(spec, SAMPLE_NS, cpus, watch=watch, events=events)
    messages: list[wire.Message] = [source.hello]
    end_ns = source.hello.raw_ns + int(seconds * 1e9)
    while True:
        for message in source.poll():
            if message.time_ns > end_ns:
                source.close()
                return messages
            messages.append(_steady(message))


def _steady(message: wire.Frame | wire.Note) -> wire.Frame | wire.Note:
    """The message with a constant cost of the probe."""
    if not isinstance(message, wire.Frame):
        return message
    own_ns = int(message.seq * SAMPLE_NS * OWN_COST).to_bytes(8, "little")
    rows = message.blocks["machine"]
    machine = dataclasses.replace(rows, values=own_ns + bytes(rows.values)[len(own_ns) :])
    return dataclasses.replace(message, blocks=message.blocks | {"machine": machine})


async def draw_replay(picture: Picture) -> str:
    hello, *messages = capture(picture.scenario, picture.seconds, picture.watch)
    assert isinstance(hello, wire.Hello)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "recording"
        with path.open("wb") as file:
            recorder = Recorder(file.write, hello)
            for message in messages:
                assert isinstance(message, wire.Frame | wire.Note)
                recorder.write([message])
            recorder.end()
        async with replayed(path, picture.size, picture.keys) as app:
            return app.export_screenshot(title="perftop")


@asynccontextmanager
async def replayed(
    path: Path, size: tuple[int, int], keys: Sequence[str]
) -> AsyncIterator[PerfTopApp]:
    """Yields the app on a recording after these keys, once everything that they start is over."""
    with Recording(path) as recording:
        source = stopped(ReplaySource(recording, INTERVAL_NS))
        app = PerfTopApp(source)
        async with app.run_test(size=size) as pilot:
            while (replay := source.status.replay) is None or replay.indexed_share is not None:
                await pilot.pause(0.01)
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
                while (
                    replay := source.status.replay
                ) is None or replay.seek_position_ns is not None:
                    await pilot.pause(0.01)
            while any(worker.group == "deepen" for worker in app.workers):
                await pilot.pause(0.01)
            await pilot.pause()
            yield app


AnyStream = TypeVar("AnyStream", bound=StreamSource)


def stopped(source: AnyStream) -> AnyStream:
    """Returns the source with clocks that stand still, so that pictures are always the same."""
    source.clock = lambda: 0.0
    source.cost = CpuCost(lambda: 0.0)
    return source


@asynccontextmanager
async def watched(
    fleet: Fleet, what: str, facts: Sequence[str], size: tuple[int, int], keys: Sequence[str]
) -> AsyncIterator[PerfTopApp]:
    """Yields the app on a fleet after these keys."""
    feed = fleets.Made(fleet, what, facts)
    app = PerfTopApp(FleetSource(feed, cpu_clock=lambda: 0.0))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        yield app


@asynccontextmanager
async def live(
    messages: Sequence[wire.Message], size: tuple[int, int], keys: Sequence[str], *,
    link: LinkState | None = None, theme: str | None = None, ascii_: bool = False,
    tour: bool = False, shows_losses: bool = False,
) -> AsyncIterator[PerfTopApp]:  # fmt: skip
    """Yields the app on a stream of these messages, which then stands still, after these keys.
    `shows_losses`: redraws the screen after each batch."""
    given = asyncio.Event()

    async def stream() -> AsyncIterator[list[wire.Message]]:
        # The last messages are sent in batches, because messages that arrive together are drawn
        # only once.
        late = BATCH if shows_losses else max(BATCH, len(messages) - AGAIN * BATCH)
        for begin, end in pairwise((0, *range(late, len(messages), BATCH), len(messages))):
            yield [*messages[begin:end]]
            await asyncio.sleep(REDRAW_S if shows_losses else 0)
        given.set()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def opener() -> AsyncIterator[Stream]:
        yield stream()

    made_link: Any = link and SimpleNamespace(state=lambda: link)
    source = stopped(LiveSource(opener, INTERVAL_NS, link=lambda: made_link, tour=tour))
    app = PerfTopApp(source, ascii_=ascii_)
    async with app.run_test(size=size) as pilot:
        app.theme = theme or app.theme
        await given.wait()
        while source.status.link != link:  # the app reads it once a second
            await pilot.pause(0.01)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        yield app


async def draw(picture: Picture) -> str:
    if picture.replayed:
        return await draw_replay(picture)
    if picture.fleet is not None:
        shown = watched(
            picture.fleet(), picture.scenario, picture.facts, picture.size, picture.keys
        )
    else:
        messages = capture(picture.scenario, picture.seconds, picture.watch)
        shown = live(
            messages, picture.size, picture.keys, link=picture.way, theme=picture.theme,
            shows_losses=picture.shows_losses,
        )  # fmt: skip
    async with shown as app:
        drawn = ""
        # A view can still have the height that the lines above it left before their last change.
        while drawn != (drawn := app.export_screenshot(title="perftop")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return drawn


FRAME_S = 2


async def draw_moving(picture: Picture) -> str:
    """One picture that shows several in turn. What cannot move shows the first."""
    frames = [
        aligned(await draw(dataclasses.replace(picture, seconds=seconds)))
        for seconds in picture.moments
    ]
    box = re.search(r'viewBox="[^"]*"', frames[0])
    assert box is not None
    whole_s, share = FRAME_S * len(frames), 100 / len(frames)
    style = (
        f".f{{opacity:0;animation:f {whole_s}s step-end infinite}}.f:first-of-type{{opacity:1}}"
        f"@keyframes f{{0%{{opacity:1}}{share:.3f}%,to{{opacity:0}}}}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}}"
    )
    parts = "".join(
        f'<g class="f" style="animation-delay:{FRAME_S * number}s">{frame}</g>'
        for number, frame in enumerate(frames)
    )
    return f'<svg {box[0]} xmlns="http://www.w3.org/2000/svg"><style>{style}</style>{parts}</svg>'


_TEXT = re.compile(
    r'<text (class="[^"]*") x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)" ([^>]*)>([^<]*)</text>'
)
_PIECE = re.compile(
    r"(?P<words>[!-~]+(?:[ \xa0][!-~]+)*)|(?P<block>([▁▂▃▄▅▆▇█▀▔])\3*)|[^\x00-\x7f\xa0▁▂▃▄▅▆▇█▀▔]+"
)
"""Words of ASCII with single spaces between them, or a repeated block, or a row of other signs."""
_BLOCKS = {**{sign: (1 - i / 8, i / 8) for i, sign in enumerate("▁▂▃▄▅▆▇█", 1)},
           "▀": (0.0, 0.5), "▔": (0.0, 0.125)}  # fmt: skip
"""Top and height of each block, as parts of its cell."""
_ABOVE, _LINE, _OVERLAP = 18.5, 24.4, 0.25
"""In units of the picture: the distance from the top of a cell to its baseline, the height of a
cell, and the overlap of neighbours that hides the seam between them."""


def aligned(svg: str) -> str:
    """Returns the picture with every word and every row of signs at its own cells, and blocks as
    rectangles. Browsers draw signs that their font lacks in another font, which is wider or
    narrower, so the rest of the line would be shifted; and no font's blocks fill a line."""

    def pieces(found: re.Match[str]) -> str:
        style, x, y, length, clip, escaped = found.groups()
        text = html.unescape(escaped)
        cell = float(length) / len(text)
        return "".join(
            _piece(piece, style, float(x) + piece.start() * cell, float(y), cell, clip)
            for piece in _PIECE.finditer(text)
        )

    return _TEXT.sub(pieces, svg)


def _piece(piece: re.Match[str], style: str, x: float, y: float, cell: float, clip: str) -> str:
    wide = len(piece[0]) * cell
    if piece["block"]:
        top, high = (part * _LINE for part in _BLOCKS[piece[0][0]])
        return (f'<rect {style} x="{x:.1f}" y="{y - _ABOVE + top:.2f}" '
                f'width="{wide + _OVERLAP:.2f}" height="{high + _OVERLAP:.2f}"/>')  # fmt: skip
    fits = "" if piece["words"] else ' lengthAdjust="spacingAndGlyphs"'
    words = html.escape(piece[0], quote=False).replace(" ", "&#160;").replace("\xa0", "&#160;")
    return f'<text {style} x="{x:.1f}" y="{y}" textLength="{wide:.1f}"{fits} {clip}>{words}</text>'


def main() -> int:
    os.environ |= {"TZ": "UTC", "COLORTERM": "truecolor"}
    time.tzset()
    changed = []
    names = {word for word in sys.argv[1:] if not word.startswith("-")}
    for picture in [one for one in PICTURES if not names or one.name in names]:
        os.environ.pop("NO_COLOR", None)
        if picture.no_color:
            os.environ["NO_COLOR"] = "1"
        path = HERE / f"{picture.name}.svg"
        if picture.moments:
            text = asyncio.run(draw_moving(picture))
        else:
            text = aligned(asyncio.run(draw(picture)))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(path)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    for path in changed:
        print(path.name)
    return 1 if changed and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
