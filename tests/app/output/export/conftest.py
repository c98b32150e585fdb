"""The recording that all export formats are tested with."""

from __future__ import annotations

from pathlib import Path

import edge_cases
import pytest


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    path.write_bytes((edge_cases.GOLDEN / "recording").read_bytes())
    return path
