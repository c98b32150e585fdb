"""The progress line of reading a recording."""

from __future__ import annotations

import io
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from simulated import messages
from taped import write_recording

from perftop.recording.file import Source, open_source
from perftop.verbs import headless
from perftop.verbs.headless import QUIET_S, ProgressLine

SAMPLES = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "a.perftop", *messages("sim:idle,cpus=2", SAMPLES))


def test_the_line_appears_after_a_while_and_is_erased() -> None:
    now_s, out = [0.0], io.StringIO()
    hello, result = messages("sim:idle,cpus=2", SAMPLES)
    source = SimpleNamespace(hello=hello, messages=lambda: result, size=400, offset=100)
    line = ProgressLine(out, "reading a", cast("Source", source), lambda: now_s[0])
    counted = line.messages()
    list(islice(counted, 30))
    line.erase()
    assert not out.getvalue(), "it was not shown"
    now_s[0] = 4 * QUIET_S
    list(counted)
    assert out.getvalue() == "\r\x1b[Kreading a: 30 samples, 0:02, 12 s left"
    line.erase()
    assert out.getvalue().endswith(" left\r\x1b[K")


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (False, False), (True, True)])
def test_the_line_is_shown_on_terminals_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr(headless, "QUIET_S", 0.0)
    with (
        open_source(path) as source,
        pytest.raises(KeyboardInterrupt),
        headless.read_with_progress(source, "a", quiet=quiet) as result,
    ):
        assert len(list(result)) == SAMPLES
        raise KeyboardInterrupt
    assert bool(out.getvalue()) == (terminal and not quiet)
    assert not out.getvalue() or out.getvalue().endswith("\r\x1b[K")
