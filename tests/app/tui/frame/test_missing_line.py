"""The line on what cannot be counted, as text and on the screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Machine, guest, seen
from playing import running

from perftop.draw import strips
from perftop.tui.frame import key_line as missing_line
from perftop.tui.frame.key_line import MissingLine

FIX = "ask for a vPMU, or use a metal instance"


@pytest.mark.parametrize(
    ("width", "end"),
    [(80, "clock, IPC, halts unknown · perftop doctor"),
     (160, f"cannot be counted · {FIX} · perftop doctor tells how")],
)  # fmt: skip
def test_what_is_missing_is_told_whole_at_any_width(width: int, end: str) -> None:
    machine = guest()
    missing = [replace(m, fix=FIX) for m in machine.hello.missing]
    machine.hello = replace(machine.hello, missing=missing)
    session, _ = seen(machine)
    assert strips.text(missing_line.missing_runs(session, width)).endswith(end)
    for size in range(20, 300):
        runs = missing_line.missing_runs(session, size)
        assert strips.width(runs) <= size
        assert "perftop doctor" in strips.text(runs) or size < 45
        assert {key for _, key in runs} <= {"dim", "faint", "key"}


def test_where_nothing_is_missing_nothing_is_said() -> None:
    assert missing_line.missing_runs(seen(Machine(ceiling_hz=3.0e9))[0], 160) == []


@pytest.mark.parametrize(("size", "lines"), [((80, 24), 1), ((160, 50), 3), ((80, 10), 0)])
async def test_it_stands_above_the_keys(size: tuple[int, int], lines: int) -> None:
    async with running(guest(), size) as run:
        await run.intervals(1)
        line = run.app.screen.query_one(MissingLine)
        assert line.size.height * line.display == lines
        if lines:
            assert line.region.bottom == size[1] - 1
            texts = [line.render_line(y).text for y in range(lines)]
            assert ["perftop doctor" in text for text in texts] == [
                y == lines // 2 for y in range(lines)
            ]
