"""Runs perftop and perfprobe, to completion or while a test interacts with them."""

from __future__ import annotations

import contextlib
import io
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import MAX_WAIT_S

from perftop import cli

Line = dict[str, Any]


def argv(*arguments: str, program: str = "perftop") -> list[str]:
    return [sys.executable, "-m", program, *arguments]


def run(*arguments: str, program: str = "perftop", **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(*arguments, program=program),
        capture_output=True,
        text=True,
        timeout=MAX_WAIT_S,
        check=False,
        **more,
    )


def python(
    code: str, *through: str, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Runs code in a new interpreter; `through` is a program, with options, that starts it."""
    return subprocess.run(
        [*through, sys.executable, "-c", code],
        capture_output=True, text=True, timeout=MAX_WAIT_S, check=check, **more,
    )  # fmt: skip


def run_in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs perftop in this process, to save the start of an interpreter; its probe is a child
    process. Tests that kill perftop, or in which CMD prints, cannot use it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main([*arguments])
        except SystemExit as ended:  # argparse raises this
            assert isinstance(ended.code, int)
            status = ended.code
    message, complained = (each.detach().getvalue().decode() for each in (out, err))
    return subprocess.CompletedProcess(arguments, status, message, complained)


def lines(text: str, kind: str | None = None) -> list[Line]:
    results = [json.loads(line) for line in text.splitlines()]
    return [line for line in results if kind is None or line["type"] == kind]


def stat(*arguments: str) -> list[Line]:
    """Returns the lines of a `stat --json`, which must exit with 0."""
    result = run_in_process("stat", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return lines(result.stdout)


@contextlib.contextmanager
def running_command(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program. At the end of the block, even after a failure, a program that still runs is
    killed, and reaped."""
    with subprocess.Popen(command, **more) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def started_process(
    *command: str, program: str = "perftop", with_stderr: bool = False
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Starts perftop or perfprobe with unbuffered pipes."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return running_command(
        argv(*command, program=program), bufsize=0, stdin=pipe, stdout=pipe,
        stderr=pipe if with_stderr else null,
    )  # fmt: skip


def read_some(process: subprocess.Popen[bytes]) -> bytes:
    """Returns the next output of the process; fails if the process ends or prints nothing."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], MAX_WAIT_S)
    assert ready, "it is silent"
    data = process.stdout.read(1 << 16)
    assert data, "it has ended"
    return bytes(data)


def children(pid: int) -> list[int]:
    """Returns the running children of the first thread of `pid`."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


BURN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
open("/proc/self/comm", "w").write(sys.argv[2])
print(flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6): pass
"""
"""A program that keeps a CPU busy, and ends if the test is killed."""


@contextmanager
def burning_cpu(cpu: int, name: str = "burns") -> Iterator[int]:
    """Yields the PID of a busy process with this name, once it runs on this CPU."""
    command = [sys.executable, "-c", BURN, str(cpu), name]
    with running_command(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
