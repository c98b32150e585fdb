"""Files that numbers are written to: never over a file that is there, unless that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from perftop.base.errors import Failed


def refuse(path: Path, *, force: bool) -> None:
    """Raises Failed if a file is there. A device or a pipe is no file: nothing is replaced."""
    if path.is_file() and not force:
        raise Failed(f"{path} is there already; --force replaces it")


def create(path: Path, *, force: bool) -> BinaryIO:
    """A file to write to. Raises Failed."""
    refuse(path, force=force)
    try:
        return path.open("wb" if force or path.exists() else "xb")
    except FileExistsError:
        raise Failed(f"{path} is there already; --force replaces it") from None
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror or error}") from None
