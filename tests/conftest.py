"""What all tests share: modules beside the tests, one clock and one locale for every picture."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from waiting import quiet

sys.path.insert(0, str(Path(__file__).parent / "app"))


@pytest.fixture(autouse=True)
def _pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local time is UTC, and no colour setting of whoever runs the tests shines through."""
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "COLUMNS", "LINES", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()


@pytest.fixture(autouse=True)
def _swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot waits no longer than there is something to wait for."""
    if "textual" in sys.modules:
        monkeypatch.setattr("textual.pilot.wait_for_idle", quiet)
        monkeypatch.setattr("textual.app.wait_for_idle", quiet)
