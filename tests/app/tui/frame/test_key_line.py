"""The last lines: missing instruments, the shown keys, and clicks on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from fakes import Machine, guest, observe
from played_apps import BIG_SCREEN, Run, running_app
from waiting import until_true

from perftop.draw import strips
from perftop.tui.frame.bottom import (
    KeyLine,
    KeyPiece,
    MissingMetricsLine,
    key_pieces,
    missing_metric_runs,
)
from perftop.tui.frame.monitor import make_view
from perftop.tui.shared import keys
from perftop.tui.shared.view_settings import ViewSettings

CAPTIONS = keys.key_captions({})
LABELS = {key.id: key.label for key in keys.KEYS}
LAST_KEYS = "? help  q quit"
VIEWS = "1 overview  2 heat  3 time  4 table  5 episodes  6 neighbours"
HINTS = {name: make_view(name, ViewSettings()).HINTS for name in (*keys.VIEW_ORDER, "core")}


def text_of(pieces: Iterable[KeyPiece]) -> str:
    return "".join(piece.text for piece in pieces).strip()


def line(name: str, width: int, *, replay: bool = False, **labels: str) -> list[KeyPiece]:
    return key_pieces(name, HINTS[name], CAPTIONS, LABELS | labels, width, replay=replay)


def test_the_key_line_fits_and_always_has_help_and_quit() -> None:
    widths = 20, 26, 40, 60, 80, 100, 120, 160, 240
    for name, width, replay in itertools.product(HINTS, widths, (False, True)):
        result = line(name, width, replay=replay)
        assert sum(len(piece.text) for piece in result) < width, (name, width, replay)
        assert text_of(result).endswith(LAST_KEYS), (name, width, replay)


def test_more_keys_are_shown_in_groups_if_there_is_room() -> None:
    counts = [len({piece.key for piece in line("overview", width)}) for width in (80, 120, 160)]
    assert counts == sorted(set(counts))
    views, middle, ends = text_of(line("overview", 240)).split("  │  ")
    assert (views, ends) == (VIEWS, LAST_KEYS)
    move, time, find, keep = middle.split("   ")
    assert move.startswith("enter core")
    assert time.startswith("space pause  n next episode  [ ] window")
    assert find.startswith("/ filter  s sort")
    assert keep.startswith("m mark  R record")


def test_the_current_view_is_bright() -> None:
    for name in keys.VIEW_ORDER:
        bright = [piece.text for piece in line(name, 80) if piece.style == "bright"]
        assert bright == [f" {name}"]


def test_urgent_keys_replace_those_of_views() -> None:
    assert "esc back" in text_of(line("core", 80))
    assert "space play" in text_of(line("overview", 80, replay=True, pause="play"))
    labels = LABELS | {"clear": "all · 4 of 64"}
    cleared = key_pieces("table", ("clear",), CAPTIONS, labels, 80, min_hints=1)
    assert r"\ all · 4 of 64" in text_of(cleared)


@pytest.mark.parametrize("number", "1234")
async def test_the_order_of_rows_is_shown_unless_it_is_the_default(number: str) -> None:
    async with running_app(Machine(), (80, 24)) as run:
        await run.pilot.press(number)
        assert "order" not in {piece.key for piece in key_bar(run)._pieces}
        await run.pilot.press("o", "o")
        assert "o worst first" in key_bar(run).render_line(0).text
        await run.pilot.press("r")
        assert "o worst first reversed" in key_bar(run).render_line(0).text


# --- clicks


def key_bar(run: Run) -> KeyLine:
    return run.app.screen_stack[0].query_one(KeyLine)


async def click(run: Run, text: str) -> None:
    index = key_bar(run).render_line(0).text.index(text)
    await run.pilot.click(key_bar(run), offset=(index, 0))


async def test_a_click_on_a_key_presses_it() -> None:
    async with running_app(Machine(), (240, 50)) as run:
        await click(run, "heat")
        await until_true(lambda: run.monitor.view.id == "heat", "the heat map")
        await click(run, "4 table")
        await until_true(lambda: run.monitor.view.id == "table", "the table")
        await click(run, "pause")
        await until_true(lambda: run.source.status.paused_at is not None, "a pause")
        window_s = run.monitor.settings.window_s
        await click(run, "[")
        await until_true(lambda: run.monitor.settings.window_s < window_s, "a shorter window")
        await click(run, "] window")
        await until_true(
            lambda: run.monitor.settings.window_s == window_s, "the window from before"
        )
        await click(run, "? help")
        await until_true(lambda: len(run.app.screen_stack) == 2, "help")
        await run.pilot.press("escape")
        await click(run, "q quit")
        await until_true(lambda: not run.app.is_running, "the end")


async def test_a_click_closes_the_prompt() -> None:
    async with running_app(Machine(), BIG_SCREEN) as run:
        await run.pilot.press("slash", "1")
        await until_true(lambda: run.monitor.settings.filter is not None, "a filter")
        await click(run, "3 time")
        await until_true(lambda: run.monitor.view.id == "time", "the time view")
        await until_true(lambda: run.monitor.settings.filter is None, "no filter")
        assert run.app.focused is run.monitor.view


async def test_a_click_between_keys_does_nothing() -> None:
    async with running_app(Machine(), BIG_SCREEN) as run:
        before = run.monitor.view
        for gap in ("│", "  "):
            await click(run, gap)
        assert run.monitor.view is before
        assert run.source.status.paused_at is None


FIX = "ask for a vPMU, or use a metal instance"


@pytest.mark.parametrize(("width", "end"), [
    (80, "clock, IPC, halts unknown · perftop doctor"),
    (160, f"cannot be counted · {FIX} · more: perftop doctor"),
])  # fmt: skip
def test_missing_instruments_are_shown_at_all_widths(width: int, end: str) -> None:
    machine = guest()
    missing = [replace(m, fix=FIX) for m in machine.hello.missing]
    machine.hello = replace(machine.hello, missing=missing)
    session, _ = observe(machine)
    assert strips.text(missing_metric_runs(session, width)).endswith(end)
    for size in range(20, 300):
        runs = missing_metric_runs(session, size)
        assert strips.width(runs) <= size
        assert "perftop doctor" in strips.text(runs) or size < 45
        assert {key for _, key in runs} <= {"dim", "faint", "key"}


def test_machines_with_all_instruments_report_nothing() -> None:
    assert missing_metric_runs(observe(Machine(ceiling_hz=3.0e9))[0], 160) == []


@pytest.mark.parametrize(("size", "lines"), [((80, 24), 1), ((160, 50), 3), ((80, 10), 0)])
async def test_the_prompt_is_above_the_keys(size: tuple[int, int], lines: int) -> None:
    async with running_app(guest(), size) as run:
        await run.intervals(1)
        line = run.app.screen.query_one(MissingMetricsLine)
        assert line.size.height * line.display == lines
        if lines:
            assert line.region.bottom == size[1] - 1
            texts = [line.render_line(y).text for y in range(lines)]
            assert ["perftop doctor" in text for text in texts] == [
                y == lines // 2 for y in range(lines)
            ]
