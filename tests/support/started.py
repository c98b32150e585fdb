"""Our programs, running while a test watches them."""

from __future__ import annotations

import contextlib
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from command import argv
from waiting import MOST_S


@contextlib.contextmanager
def going(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program; at the end it is killed if need be and reaped, also if the test fails."""
    with subprocess.Popen(command, **more) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def started(
    *command: str, program: str = "perftop", heard: bool = False
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """One of ours with unbuffered pipes."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return going(
        argv(*command, program=program), bufsize=0, stdin=pipe, stdout=pipe,
        stderr=pipe if heard else null,
    )  # fmt: skip


def some(process: subprocess.Popen[bytes]) -> bytes:
    """The next output of the process; it must neither end nor be silent."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], MOST_S)
    assert ready, "it is silent"
    data = process.stdout.read(1 << 16)
    assert data, "it has ended"
    return bytes(data)


def children(pid: int) -> list[int]:
    """Running processes that the first thread of `pid` started."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
