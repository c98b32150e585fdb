"""Fixtures that several tests of the probe share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import capabilities
import pytest
from fakekernel.client import FakeKernel
from journals import swept_directory


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


@pytest.fixture(autouse=True)
def _closes_files() -> Iterator[None]:
    """Fails a test that leaves files open."""
    before = {*os.listdir("/proc/self/fd")}  # noqa: PTH208
    yield
    # Garbage of an earlier test may have closed further files.
    assert {*os.listdir("/proc/self/fd")} <= before  # noqa: PTH208


@pytest.fixture(scope="session")
def _may_trace() -> None:
    if why := capabilities.cannot_trace():
        pytest.skip(why)
