"""Programs of ours that run while a test looks at them."""

from __future__ import annotations

import contextlib
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

from command import argv


@contextlib.contextmanager
def started(
    *command: str, program: str = "perftop", heard: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Unbuffered pipes, closed and reaped at the end however the test goes."""
    with subprocess.Popen(
        argv(*command, program=program),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if heard else subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def some(process: subprocess.Popen[bytes]) -> bytes:
    """What it says next; it must not end, nor be silent."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], 10)
    assert ready, "silent for 10 s"
    data = process.stdout.read(1 << 16)
    assert data, "it has ended"
    return bytes(data)


def children(pid: int) -> list[int]:
    """Processes that its first thread has started and that still run."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
