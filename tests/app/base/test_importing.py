"""What a program that runs for long imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from waiting import MOST_S

PALETTE = """
import asyncio, sys
from contextlib import asynccontextmanager
from perftop.base.importing import lean
with lean():
    from perftop.tui import app
assert not {"textual.command", "textual.widgets._input"} & sys.modules.keys()
async def stream():
    await asyncio.Event().wait()
    yield []
@asynccontextmanager
async def opener():
    yield stream()
async def main():
    of = app.PerfTopApp(opener, 10**9)
    async with of.run_test() as pilot:
        await pilot.press("ctrl+p")
        while not of.screen.query_one("CommandList").option_count:
            await pilot.pause()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("wanted", "absent", "later"),
    [
        ("asyncio", "_ssl", "import ssl; assert ssl.OPENSSL_VERSION"),
        ("numpy", "_ctypes", "import ctypes; assert numpy.zeros(2).ctypes.data"),
    ],
)
def test_what_nobody_needs_is_left_out_and_can_be_imported_later(
    wanted: str, absent: str, later: str
) -> None:
    code = (
        "import sys\n"
        "from perftop.base.importing import lean\n"
        "with lean():\n"
        f"    import {wanted}\n"
        f"assert '{absent}' not in sys.modules\n"
        f"{later}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_palette_comes_when_it_is_opened() -> None:
    subprocess.run([sys.executable, "-c", PALETTE], check=True, timeout=MOST_S)


def test_numpy_comes_without_threads_and_a_command_is_not_told() -> None:
    code = (
        "import os\n"
        "from perftop.base.importing import lean\n"
        "with lean():\n"
        "    import numpy\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert 'OPENBLAS_NUM_THREADS' not in os.environ\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
