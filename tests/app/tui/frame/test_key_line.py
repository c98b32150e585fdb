"""The last lines: missing instruments, the shown keys, and clicks on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from fakes import guest, observe

from perftop.draw import strips
from perftop.tui.frame.bottom import (
    KeyPiece,
    key_pieces,
    missing_metric_runs,
)
from perftop.tui.frame.monitor import make_view
from perftop.tui.shared import keys
from perftop.tui.shared.view_settings import ViewSettings

CAPTIONS = keys.key_captions({})
LABELS = {key.id: key.label for key in keys.KEYS}
LAST_KEYS = "? help  q quit"
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


# --- clicks


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
