"""Sends random keys, clicks and resizes to the screen in one of its modes. Prints a line with the
seed for each walk that failed, and one for all of them. Run by hand:
PYTHONPATH=tests/support:screenshots python tests/bench/walk_screen.py MODE [seconds] [first seed]
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import fleets
from random_walks import LiveWalk, WalkedApp, walk, walk_live, walk_replay
from recording_files import write_recording
from sim_streams import messages

from perfprobe import wire
from perftop.process.job_terminal import JobTerminal
from perftop.process.streams import Stream
from perftop.recording.file import Recording
from perftop.session.fleet import Fleet
from perftop.session.fleet_machine import UNKNOWN_NUMBERS
from perftop.tui.command import CommandSource
from perftop.tui.fleet_screen import FleetSource
from perftop.tui.pair_page import Alignment
from perftop.tui.pair_screen import PairSource

STEPS = 150
FRAMES, FRAMES_OF_LARGE = 1500, 300
COMMAND = (
    "i=0; while :; do i=$((i+1)); printf '\\033[3%dmline %d\\033[0m\\t\\r\\n' $((i%8)) $i; done"
)
RECORDED = ["turbo-drop,cpus=8", "guest,cpus=2", "smt-mix,cpus=64"]
Walk = Callable[[random.Random], Coroutine[Any, Any, list[str]]]


def live(*specs: str, frames: int = FRAMES, **options: Any) -> Walk:
    """Walks on live machines; `options` are those of the app."""
    feeds = [_feed(spec, frames) for spec in specs]

    async def run(rng: random.Random) -> list[str]:
        return await walk_live(rng, rng.choice(feeds), STEPS, LiveWalk(**options))

    return run


def without_colour(*specs: str) -> Walk:
    walk_of_mode = live(*specs)

    async def run(rng: random.Random) -> list[str]:
        os.environ["NO_COLOR"] = "1"  # the app removes it
        return await walk_of_mode(rng)

    return run


def replay() -> Walk:
    paths = _recordings(RECORDED)
    return lambda rng: walk_replay(rng, rng.choice(paths), STEPS)


def pair() -> Walk:
    paths = _recordings(RECORDED)

    async def run(rng: random.Random) -> list[str]:
        with Recording(rng.choice(paths)) as a, Recording(rng.choice(paths)) as b:
            app = WalkedApp(PairSource((a, b), Alignment(rng.choice(["start", "command"]))))
            return await walk(app, rng, STEPS, lambda: None)

    return run


class MovingFleet(fleets.Made):
    """A fleet whose clock moves and whose machines fall silent and answer again."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        super().__init__(fleet, "over ssh")
        self._rng = rng

    def advance(self) -> None:
        self.shown_time_s += self._rng.choice([0.5, 1.0, 20.0])
        for machine in self._rng.sample(
            [*self.fleet.machines.values()], min(3, len(self.fleet.machines))
        ):
            if self._rng.randrange(4):
                numbers = {key: self._rng.random() for key in UNKNOWN_NUMBERS}
                machine.add_numbers(self.shown_time_s, numbers)
            else:
                machine.fall_silent(self.shown_time_s, "x: connection: timed out")


def fleet() -> Walk:
    async def run(rng: random.Random) -> list[str]:
        racks, each = rng.choice([(0, 0), (1, 12), (8, 8)])
        feed = MovingFleet(fleets.racks(racks, each), rng)

        async def open_machine(_: Sequence[str]) -> None:
            """Opens nothing."""

        app = WalkedApp(FleetSource(feed, opener=open_machine))
        return await walk(app, rng, STEPS, feed.advance)

    return run


def command() -> Walk:
    feeds = [_feed(spec, FRAMES) for spec in ("smt-mix,cpus=8", "guest,cpus=2")]

    async def run(rng: random.Random) -> list[str]:
        queue, feed = asyncio.Queue[wire.Message](), iter(rng.choice(feeds))

        async def stream() -> AsyncIterator[list[wire.Message]]:
            while True:
                yield [await queue.get()]

        @asynccontextmanager
        async def open_stream() -> AsyncIterator[Stream]:
            yield stream()

        def advance() -> None:
            for message in islice(feed, rng.randint(1, 4)):
                queue.put_nowait(message)

        script = rng.choice([COMMAND, "echo done; exit 3", "exec sleep 99"])
        with JobTerminal(["sh", "-c", script], 80, 10) as tty:
            source = CommandSource(tty, open_stream, 100_000_000)
            advance()
            faults = await walk(WalkedApp(source), rng, STEPS, advance)
            if source._reading is not None:
                source._reading.cancel()
        return faults

    return run


MODES: dict[str, Callable[[], Walk]] = {
    "live": lambda: live("smt-mix,cpus=2", "smt-mix,cpus=8", "smt-mix,cpus=64"),
    "ascii": lambda: live("smt-mix,cpus=8", "neighbour,cpus=96", "guest,cpus=2", ascii_=True),
    "no-color": lambda: without_colour("smt-mix,cpus=8", "neighbour,cpus=96", "guest,cpus=2"),
    "guest": lambda: live("guest,cpus=2", "guest,cpus=4", "guest,cpus=1"),
    "1024": lambda: live(
        "neighbour,cpus=1024,packages=4", "throttle,cpus=1024,packages=8", frames=FRAMES_OF_LARGE
    ),
    "replay": replay,
    "pair": pair,
    "fleet": fleet,
    "command": command,
}


def _feed(spec: str, frames: int) -> list[wire.Message]:
    hello, result = messages(spec, frames)
    return [hello, *result]


def _recordings(specs: Sequence[str]) -> list[Path]:
    directory = Path(tempfile.mkdtemp(prefix="walks-"))
    feeds = [_feed(spec, FRAMES) for spec in specs]
    return [write_recording(directory / str(i), feed[0], feed[1:]) for i, feed in enumerate(feeds)]  # type: ignore[arg-type]


def main(mode: str, seconds: float, first: int) -> int:
    walk_of_mode = MODES[mode]()
    end_s, seed, failures = time.monotonic() + seconds, first, 0
    while time.monotonic() < end_s:
        faults = asyncio.run(walk_of_mode(random.Random(seed)))
        for text in faults[:1]:
            print(f"{mode}, seed {seed}: {text}", flush=True)
        failures += bool(faults)
        seed += 1
    print(f"{mode}: seeds {first} to {seed - 1}, up to {STEPS} steps each; {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    seconds, first = [float(text) for text in numbers] + [600.0, 1.0][len(numbers) :]
    sys.exit(main(name, seconds, int(first)))
