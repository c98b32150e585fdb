"""The pass over a recording in the process of the test, which spares the start of another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from perftop.recording import episode_index


@contextmanager
def pass_here(path: Path) -> Iterator[int]:
    """In the place of `episode_index._pass`."""
    with TemporaryFile() as out:
        episode_index.run(path, out)
        out.seek(0)
        yield out.fileno()
