"""Saves time in all tests: repeated work is done once per process, and pilots wait no longer than
needed. conftest.py imports this module. Tests behave as before."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from typing import Any

from waiting import FRAMES_HZ, until_handled, until_quiet

gc.set_threshold(20_000, 10, 20)
"""Thresholds of the garbage collector; the default is 700 objects."""
gc.disable()  # the collected tests are a million objects, which live to the end

MEMORY = "/dev/shm"  # noqa: S108
MIN_ROOM_BYTES = 4 << 30
"""Free memory that temporary files need: those of a whole run take about 100 MB."""


def keep_temporary_files_in_memory() -> None:
    """Makes tests and their programs use a directory in memory for temporary files, if it allows
    programs and devices: there a new file costs a tenth of one on a disk, or less."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    room = os.statvfs(MEMORY)
    is_limited = room.f_flag & (os.ST_NOEXEC | os.ST_NODEV | os.ST_RDONLY)
    if not is_limited and room.f_bavail * room.f_frsize >= MIN_ROOM_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


_Rules = list[Any]
_parsed_rules: dict[tuple[Any, ...], _Rules] = {}
"""Parsed rules of style sheets, by text, location and values of variables. Textual never changes
parsed rules."""


def speed_up_textual() -> None:
    """Makes apps share the rules of style sheets that an earlier app parsed, and draw at FRAMES_HZ.
    Makes pilots wait with `until_quiet`, only once after several keys: a key is sent when the
    previous key was handled, which may be before the screen shows its effect."""
    import textual.app
    import textual.pilot
    import textual.screen
    from textual.css.stylesheet import Stylesheet

    parse = Stylesheet._parse_rules

    def parse_once(self: Stylesheet, css: str, *where: Any, **more: Any) -> _Rules:
        key = (css, *where, *more.items(), *self._variables.items())
        if key not in _parsed_rules:
            _parsed_rules[key] = parse(self, css, *where, **more)
        return _parsed_rules[key]

    Stylesheet._parse_rules = parse_once  # type: ignore[method-assign]
    textual.screen.UPDATE_PERIOD = 1 / FRAMES_HZ  # type: ignore[misc]
    textual.pilot.wait_for_idle = until_quiet  # type: ignore[assignment,attr-defined]
    textual.app.wait_for_idle = until_handled  # type: ignore[assignment,attr-defined]
    press = textual.pilot.Pilot.press

    async def press_and_wait(self: Any, *keys: str) -> None:
        await press(self, *keys)
        await until_quiet()

    textual.pilot.Pilot.press = press_and_wait  # type: ignore[method-assign]


def stop_constant_search() -> None:
    """Stops Hypothesis from searching perftop's loaded modules for constants to use as examples:
    that takes seconds, and examples would depend on the modules and the order of tests."""
    from hypothesis.internal.conjecture import providers

    none = providers._local_constants
    providers._get_local_constants = lambda: none


def pytest_collection_finish() -> None:
    """Makes the garbage collector skip the objects of all tests, which are loaded now and live to
    the end."""
    if "textual" in sys.modules:
        speed_up_textual()
    gc.freeze()
    gc.enable()
