"""Fixtures that several tests of the probe share."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import capabilities
import pytest
from fakekernel.client import FakeKernel
from journals import swept_directory
from waiting import wait_for


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKernel]:
    with FakeKernel(tmp_path / "root") as kernel:
        yield kernel


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of journals in these tests, instead of the machine's."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with swept_directory(tmp_path / "root") as directory:
        yield directory


def _open_files() -> set[str]:
    names = os.listdir("/proc/self/fd")  # noqa: PTH208
    return {name for name in names if os.path.lexists(f"/proc/self/fd/{name}")}


@pytest.fixture(autouse=True)
def _closes_files() -> Iterator[None]:
    """Fails a test that leaves files open."""
    before = _open_files()
    yield
    if not _open_files() <= before:
        gc.collect()  # perftop in this process leaves an event loop as garbage
        wait_for(lambda: _open_files() <= before, "files are closed", limit_s=10.0)


@pytest.fixture(scope="session")
def _may_trace() -> None:
    if why := capabilities.cannot_trace():
        pytest.skip(why)
