"""Shared by all tests: support modules, and one clock and one locale for every picture."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sparing import (
    draw_no_constants_of_modules,
    pytest_collection_finish,
    share_style_sheets,
)
from turns import (
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from waiting import quiet

__all__ = [
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

HEEDED: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""Handlers of the signals that end perftop, as tests find them."""

# Some hundred commands are started, from the same source each time: it is compiled once.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# numpy would start a thread a CPU in each of them, for products of matrices that nobody forms.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The same examples each time, and none fails for a busy machine.
for name, examples in {"day": 40, "night": 200}.items():
    settings.register_profile(
        name, max_examples=examples, derandomize=True, deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip


def pytest_sessionstart(session: pytest.Session) -> None:
    night = session.config.option.markexpr == "nightly"
    settings.load_profile("night" if night else "day")
    if not night:
        draw_no_constants_of_modules()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of examples run at night, too, with more of them."""
    asked = item.config.option.markexpr == "nightly"
    if asked and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("nightly")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that are coroutines run in a loop of their own each."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments}))
    return True


@pytest.fixture(autouse=True)
def _pinned(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Local time is UTC, and no terminal, colour setting, cache or state of whoever runs the tests
    shines through."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    for kind in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.getbasetemp() / kind.lower()))
    greeted = tmp_path_factory.getbasetemp() / "state" / "perftop" / "greeted"
    greeted.parent.mkdir(parents=True, exist_ok=True)
    greeted.touch()  # the hint for the first run would stand in pictures
    for name in ("NO_COLOR", "COLUMNS", "LINES", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()


@pytest.fixture(autouse=True)
def _signals_are_heeded() -> Iterator[None]:
    """A verb that runs in this process ignores signals at its end, also one that a fixture of a
    whole module runs; the tests after it do not. Nor do they if pytest was started in the
    background of a script, where SIGINT is ignored."""
    for number, handler in HEEDED.items():
        signal.signal(number, handler)
    yield
    for number, handler in HEEDED.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot waits no longer than there is something to wait for."""
    if "textual" in sys.modules:
        monkeypatch.setattr("textual.pilot.wait_for_idle", quiet)
        monkeypatch.setattr("textual.app.wait_for_idle", quiet)
        share_style_sheets(monkeypatch)


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python programs, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: str | bytes) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
