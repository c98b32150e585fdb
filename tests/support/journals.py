"""Register journals. Root's journals are in the system's run directory, which a test cannot
change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfprobe.cpu import identity
from perfprobe.programming import journal


def entries_left(root: Path) -> list[journal.JournalEntry]:
    boot = identity.boot_id(root)
    entries = [journal.read_journal(path, boot, root) for path in journal.directories()]
    return [entry for entry in entries if entry is not None]


@contextmanager
def swept_directory(root: Path) -> Iterator[Path]:
    """Yields the directory of journals, and removes this machine's journals at the end of the
    block."""
    directory = journal.prepare_directory()
    try:
        yield directory
    finally:
        for directory in journal.directories():
            journal.Journal(directory, None, root).remove()
