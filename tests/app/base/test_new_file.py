"""Files of numbers may hold command lines, which are for nobody but their owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftop.base import new_file
from perftop.base.errors import Failed


def test_a_new_file_is_its_owners(tmp_path: Path) -> None:
    with new_file.create(tmp_path / "out", force=False) as file:
        file.write(b"x")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_so_is_one_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    (tmp_path / "out").chmod(0o644)
    with pytest.raises(Failed, match="--force"):
        new_file.create(tmp_path / "out", force=False)
    with new_file.create(tmp_path / "out", force=True) as file:
        file.write(b"x")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "out").read_bytes() == b"x"


def test_a_device_stays_as_it_is() -> None:
    before = Path("/dev/null").stat().st_mode
    new_file.create(Path("/dev/null"), force=False).close()
    assert Path("/dev/null").stat().st_mode == before
