"""Files of numbers may hold command lines, which are for nobody but their owner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perftop.base import files
from perftop.base.errors import Failed


def test_a_new_file_belongs_to_its_owner(tmp_path: Path) -> None:
    with files.create(tmp_path / "out", force=False) as file:
        file.write(b"x")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_a_replaced_file_belongs_to_its_owner(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    (tmp_path / "out").chmod(0o644)
    with pytest.raises(Failed, match="--force"):
        files.create(tmp_path / "out", force=False)
    with files.create(tmp_path / "out", force=True) as file:
        file.write(b"x")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "out").read_bytes() == b"x"


def test_a_device_stays_as_it_is() -> None:
    before = Path("/dev/null").stat().st_mode
    files.create(Path("/dev/null"), force=False).close()
    assert Path("/dev/null").stat().st_mode == before


def test_a_removed_file_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with files.create(path, force=False) as file:
        file.write(b"x")
        file.flush()
        path.unlink()
        file.write(b"y")
        with pytest.raises(Failed, match="out was removed while it was written"):
            file.flush()


def test_a_pipe_has_no_name_to_lose() -> None:
    ours, theirs = os.pipe()
    with files.create(Path(f"/proc/self/fd/{theirs}"), force=False) as file:
        file.write(b"x")
    assert os.read(ours, 2) == b"x"
    os.close(ours)
    os.close(theirs)
