"""Random walks through all views of the screen: keys, clicks and resizes at any time.

A walk returns descriptions of the faults that it found; the same seed takes the same steps.
"""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from terminal_apps import ScriptedApp, TerminalApp
from textual import events
from waiting import MAX_WAIT_S

from perfprobe import wire
from perftop.recording.file import Recording
from perftop.tui.replay import ReplaySource
from perftop.tui.shared import keys

SMALLEST, LARGEST = (34, 3), (160, 50)
MAX_SETTLE_S = MAX_WAIT_S
"""Longest wait in s until the screen shows the expected lines."""
TYPED_KEYS = [
    "enter",
    "escape",
    "backspace",
    "tab",
    *"0123456789abcdefghijklmnopqrstuvwxyz-+.:=<>,",
]
EXCLUDED_KEYS = {"q", "f10", "ctrl+c", "ctrl+z", "R", "ctrl+p"}
"""Excluded keys: they end the walk, stop the process or write files, or `colon` replaces them."""


class WalkedApp(TerminalApp):
    """An app that keeps its errors for a report."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.errors: list[str] = []

    def _handle_exception(self, error: Exception) -> None:
        self.errors.append("".join(traceback.format_exception(error)))
        self.exit(return_code=1)

    def differing_line(self) -> str:
        """Returns a line of the terminal that differs from the compositor's; '' if there is
        none."""
        for y, (output, expected) in enumerate(
            zip(self.terminal.lines(), self.composed_lines(), strict=False)
        ):
            if output != expected:
                return f"line {y} at {self.size}:\n  {output!r} instead of\n  {expected!r}"
        return ""


class LiveWalk(WalkedApp, ScriptedApp): ...


class ReplayWalk(WalkedApp): ...


# --- steps


class Walk:
    def __init__(self, app: WalkedApp, rng: random.Random) -> None:
        self._app, self._rng = app, rng
        self.steps: list[str] = []
        self._keys = [
            name
            for key in keys.KEYS
            for name in key.keys.split(",")
            if name not in EXCLUDED_KEYS and key.scope != "output"
        ]

    def step(self) -> None:
        kind = self._rng.choices((self._key, self._type, self._click, self._resize, self._jump),
                                 (55, 8, 15, 15, 7))[0]  # fmt: skip
        kind()

    def _press(self, name: str) -> None:
        self.steps.append(name)
        sign = keys.KEY_NAMES.get(name, name)
        self._app.terminal.process_message(events.Key(name, sign if len(sign) == 1 else None))

    def _key(self) -> None:
        name = self._rng.choice([*self._keys, *"123456", "4", "enter", "escape", "tab"])
        # On some screens `q` closes the screen.
        self._press(name)

    def _type(self) -> None:
        for _ in range(self._rng.randint(1, 6)):
            name = self._rng.choice(TYPED_KEYS)
            covered = len(self._app.screen_stack) > 1
            if name not in EXCLUDED_KEYS or (covered and not self._rng.randrange(3)):
                self._press("x" if name in EXCLUDED_KEYS else name)

    def _jump(self) -> None:
        where = self._rng.choice([f"-{self._rng.randint(1, 90)}s", f"+{self._rng.randint(1, 90)}s"])
        for name in ("J", *where, "enter"):
            self._press({"-": "minus", "+": "plus"}.get(name, name))

    def _click(self) -> None:
        columns, lines = self._app.terminal.size
        x, y = self._rng.randrange(columns), self._rng.randrange(lines)
        self.steps.append(f"click {x},{y}")
        kind = self._rng.choice(["click"] * 4 + ["down", "up", "move"])
        mouse = {
            "click": (events.MouseDown, events.MouseUp),
            "down": (events.MouseScrollDown,),
            "up": (events.MouseScrollUp,),
            "move": (events.MouseMove,),
        }[kind]
        for event in mouse:
            button = 1 if kind == "click" else 0
            self._app.terminal.process_message(
                event(None, x, y, 0, 0, button, False, False, False, screen_x=x, screen_y=y)
            )

    def _resize(self) -> None:
        size = (
            self._rng.randint(SMALLEST[0], LARGEST[0]),
            self._rng.randint(SMALLEST[1], LARGEST[1]),
        )
        if not self._rng.randrange(4):
            size = self._rng.choice([SMALLEST, LARGEST, (34, 50), (160, 3), (80, 24)])
        self.steps.append(f"size {size[0]}x{size[1]}")
        self._app.terminal.resize(size)


async def walk(
    app: WalkedApp, rng: random.Random, steps: int, advance: Callable[[], None]
) -> list[str]:
    """Walks; returns the faults, with the steps before each."""
    walker = Walk(app, rng)
    running = asyncio.ensure_future(app.run_async(size=LARGEST))
    while not app.is_ready and not running.done():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    wrong: list[str] = []
    for _ in range(steps):
        if running.done() or app.errors or app._exit:
            break
        walker.step()
        if not rng.randrange(3):
            advance()
        pause_s = rng.choice([None, None, 0, 0, 0.001, 0.02])
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        if not rng.randrange(25):
            wrong += await _remaining_difference(app)
        if wrong:
            break
    if not wrong and not app.errors and not running.done():
        wrong += await _remaining_difference(app)
    app.exit()
    await running
    wrong += app.errors
    return [f"{text}\nafter {' '.join(walker.steps[-40:])}" for text in wrong]


async def _remaining_difference(app: WalkedApp) -> list[str]:
    end_s = time.monotonic() + MAX_SETTLE_S
    while difference := app.differing_line() if len(app.screen_stack) else "":
        if time.monotonic() > end_s or app.errors or app._exit:
            break
        await asyncio.sleep(0.02)
    return [] if not difference or app.errors or app._exit else [difference]


async def walk_live(
    rng: random.Random, feed: list[wire.Message], steps: int, app: LiveWalk | None = None
) -> list[str]:
    app, waiting = app or LiveWalk(), iter(feed)

    def advance() -> None:
        for message in [m for _, m in zip(range(rng.randint(1, 4)), waiting, strict=False)]:
            app.source.process([message])

    advance()
    return await walk(app, rng, steps, advance)


async def walk_replay(rng: random.Random, path: Path, steps: int) -> list[str]:
    clock = [0.0]

    def advance() -> None:
        clock[0] += rng.choice([0.1, 0.5, 3.0, 30.0])

    with Recording(path) as recording:
        source = ReplaySource(recording, 200_000_000)
        source.clock = lambda: clock[0]
        return await walk(ReplayWalk(source), rng, steps, advance)
