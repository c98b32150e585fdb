"""Shared by all tests: hooks of tests/support, and the same environment for all pictures."""

from __future__ import annotations

import asyncio
import inspect
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import preloaded
import pytest
from hypothesis import HealthCheck, settings
from run_order import (
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from suite_speed import (
    keep_temporary_files_in_memory,
    pytest_collection_finish,
    stop_constant_search,
)

__all__ = [
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""Handlers of the signals that end perftop, at the start of each test."""

keep_temporary_files_in_memory()
# Tests start hundreds of commands from the same source, which is compiled only once.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Otherwise numpy starts a thread for each CPU in each command, for matrix products.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A program in another locale than this process is not started by the preloader.
os.environ["LC_ALL"] = "C.UTF-8"
# It replaces an internal function of subprocess and uses a system call by number.
if sys.version_info < (3, 14) and platform.machine() == "x86_64":
    preloaded.install()
# Hypothesis tries the same examples in each run and has no time limit, since the machine may be
# busy.
for name, examples in {"day": 25, "night": 200}.items():
    settings.register_profile(
        name, max_examples=examples, derandomize=True, deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip


def pytest_sessionstart(session: pytest.Session) -> None:
    night = session.config.option.markexpr == "nightly"
    settings.load_profile("night" if night else "day")
    if not night:
        stop_constant_search()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks Hypothesis tests with `nightly`, because they try more examples at night."""
    asked = item.config.option.markexpr == "nightly"
    if asked and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("nightly")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine in a new event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments}))
    return True


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sets local time to UTC, and makes tests independent of the terminal, colours, cache and state
    of the user who runs them."""
    base = tmp_path_factory.getbasetemp()
    os.environ |= {"TZ": "UTC", "COLORTERM": "truecolor", "TERM": "xterm-256color"}
    os.environ |= {f"XDG_{name}_HOME": f"{base}/{name.lower()}" for name in ("CACHE", "STATE")}
    for name in ("NO_COLOR", "COLUMNS", "LINES", "TEXTUAL_THEME"):
        os.environ.pop(name, None)
    time.tzset()
    greeted = base / "state" / "perftop" / "greeted"
    greeted.parent.mkdir(parents=True)
    greeted.touch()  # otherwise pictures would show the hint of a first run


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restores the signal handlers after each test: a verb that runs in this process, even in a
    fixture of a module, ignores signals at its end; and SIGINT is ignored if a script started
    pytest in the background."""
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)
    yield
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python programs, and kills them after the test."""
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
