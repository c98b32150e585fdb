"""Failures that are reported to the user: one line of text and an exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from perftop.base.text import printable, terminal_problem

USAGE = 2
"""Exit status: the request is invalid."""
UNAVAILABLE = 3
"""Exit status: this machine cannot fulfil the request."""
DAMAGED = 4
"""Exit status: the input is damaged; everything readable was output."""


class Failed(Exception):  # noqa: N818 - what happened, not what class of mistake
    def __init__(self, text: str, status: int = 1, *, extra_lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.lines = [text, *extra_lines]


def require_terminal(alternative: str) -> None:
    """Raises Failed if no screen can be shown. `alternative`: what works without one."""
    if (problem := terminal_problem()) is not None:
        raise Failed(f"{problem}; {alternative}", USAGE)


def failure_to(action: str, error: OSError) -> Failed:
    """Returns the failure for a system error. `action`: what failed, such as `write stdout`."""
    # The process has reached its limit of open files; the named file is not the cause.
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return Failed(f"{error.strerror}: raise the limit on open files (ulimit -n)")
    return Failed(f"cannot {action}: {error.strerror or error}")


def failure_to_write(name: object, error: OSError) -> Failed:
    return failure_to(f"write {name}", error)


_WRITE_ERRORS = frozenset({
    None, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN,
    errno.ENXIO, errno.EINVAL, errno.EMFILE, errno.ENFILE,
})  # fmt: skip
"""Errno values of failed writes, whose exceptions name no file, or that `failure_to` words."""


def output_failure(error: OSError, output: str = "stdout") -> Failed:
    """Returns the failure for an unexpected error. It names the error's file; for a failed write,
    which has no file name, it names the output."""
    if error.filename is not None:
        return failure_to(f"use {error.filename}", error)
    if error.errno in _WRITE_ERRORS:
        return failure_to(f"write {output}", error)
    trace, call = error.__traceback__, ""
    while trace is not None:  # up to the function in which the error was raised
        call, trace = trace.tb_frame.f_code.co_name, trace.tb_next
    reason = f"{call}: {error.strerror}" if call else error.strerror
    if error.errno in {errno.EPERM, errno.ENOSYS}:
        return Failed(f"a system call was refused, perhaps by a seccomp filter ({reason})")
    return Failed(f"a system call failed ({reason})")


def expected_failure(error: BaseException | None, output: str = "stdout") -> Failed | None:
    """Returns the failure for an error that is due to a refusal or a shortage of the system, even
    inside the error of a Textual worker or a task group. Returns None if the error is a bug."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, OSError):
        return output_failure(error, output)
    if isinstance(error, ExceptionGroup):  # tasks that read several machines fail together
        failures = [expected_failure(part, output) for part in error.exceptions]
        return None if None in failures else failures[0]
    if isinstance(error, MemoryError):
        return Failed("not enough memory; if it is limited: ulimit -v unlimited")
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return Failed("cannot start a thread: raise the limit on processes and threads (ulimit -u)")
    inner = None if error is None else getattr(error, "error", None)  # Textual's WorkerFailed
    return expected_failure(inner, output) if isinstance(inner, Exception) else None


def print_error(*lines: str) -> None:
    """Prints lines to stderr. Line ends within a line, such as in a file's name, are replaced. If
    stderr is closed, the exit status still reports the failure."""
    try:
        for line in lines:
            print(f"perftop: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        discard_writes(2)


def discard_writes(fd: int) -> None:
    """Replaces a descriptor by /dev/null, so that flushing buffered data cannot fail."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, fd)
        os.close(null)


def save_traceback(error: BaseException) -> str:
    """Saves the traceback in a file, without values of variables. Returns a line that names it."""
    import tempfile
    import traceback

    lines = traceback.format_exception(error)
    try:
        handle, name = tempfile.mkstemp(prefix="perftop-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError:
        return f"internal error, and no report could be written: {lines[-1].strip()}"
    return f"internal error: {lines[-1].strip()[:200]}; the report is in {Path(name)}"
