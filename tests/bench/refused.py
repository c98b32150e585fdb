"""Cases in which the kernel refuses a system call, or a resource is exhausted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import refusing
import terminal
from command import argv
from hard_tools import SOURCES, Case, Result

LIMIT_S = 40.0
LIMITS = (
    *(f"NPROC={n}" for n in (1, 2, 3, 4, 5, 6)),
    *(f"AS={mb}000000" for mb in (40, 60, 80, 100, 120, 200, 400)),
    *(f"NOFILE={n}" for n in (4, 8, 12, 16)),
)
STATUSES = {0, 1, 2, 3, 126, 127, 130}
"""The documented exit statuses of perftop, in addition to a command's own status."""
COMMAND_STATUS = 7
"""Exit statuses that come from the command."""
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[\[(PX^_][0-9;?<>=$]*[ -/]*[@-~]?|\r")
VERBS = {
    "live": (["live"], False),
    "live --": (["live"], True),
    "stat": (["stat", "-n", "2"], False),
    "stat --": (["stat"], True),
    "record --": (["record", "-o", "OUT"], True),
    "why": (["why", "--duration", "1s"], False),
    "why --": (["why"], True),
    "doctor": (["doctor"], False),
    "check": (["doctor", "--check"], False),
    "wake": (["wake"], False),
    "summary": (["summary", "SMALL"], False),
    "fleet": (["fleet", "sim:steady", "--json", "-n", "1"], False),
    "export": (["export", "SMALL", "--format", "jsonl"], False),
}
"""Arguments of each verb, and whether it runs a command."""


def refused_case(trouble: str, verb: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        directory.mkdir()
        directory.chmod(0o1777)  # not a directory in which others could replace a recording
        words, runs = VERBS[verb]
        mark = directory / "ran"
        words = [w.replace("OUT", f"{directory}/r").replace("SMALL", f"{SOURCES['small']}")
                 for w in words]  # fmt: skip
        command = ["sh", "-c", f": >{mark}; exit {COMMAND_STATUS}"]
        prefix = [sys.executable, "-ISB", refusing.__file__, trouble]
        if _alone([*prefix, sys.executable, "-c", ""]):
            return Result("no Python starts", skipped=True)
        if runs and _alone([*prefix, *command]) != COMMAND_STATUS:
            return Result("no command starts", skipped=True)
        mark.unlink(missing_ok=True)
        whole = [*prefix, *argv(*words), *(["--", *command] if runs else [])]
        if words[0] == "live":
            status, message, left = _on_terminal(whole)
        else:
            status, message, left = _in_pipes(whole)
        return _judged(status, message, left, ran=mark.exists() if runs else None)

    return act


def _alone(command: list[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False, timeout=LIMIT_S).returncode


def _in_pipes(command: list[str]) -> tuple[int | None, str, int]:
    """Runs the command. Returns its status (None if it never ended), stderr, and the number of
    remaining processes."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr
    try:
        message = process.communicate(timeout=LIMIT_S)[1]
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        status, message = None, b""
    left = end_session(process.pid)
    return status, message.decode(errors="replace"), left


def _on_terminal(command: list[str]) -> tuple[int | None, str, int]:
    pid, fd = terminal.start(command, 120, 40)
    data, end_s, asked_s = b"", time.monotonic() + LIMIT_S, 0.0
    status = None
    while status is None and time.monotonic() < end_s:
        data += terminal.drained_bytes(fd, 0.1)
        if len(data) > 4000 and time.monotonic() > asked_s + 2:
            asked_s = time.monotonic()
            os.write(fd, b"q")
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
    data += terminal.drained_bytes(fd, 0.05)
    left = end_session(pid)
    if status is None:
        os.waitpid(pid, 0)
    os.close(fd)
    text = _ESCAPES.sub("\n", data.decode(errors="replace"))
    lines = [line for line in text.splitlines()
             if line.startswith(("perftop:", "Traceback", "Fatal"))]  # fmt: skip
    return status, "\n".join(lines), left


def end_session(session: int) -> int:
    """Kills the remaining processes of a session. Returns their number."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            count += 1
            os.kill(int(entry.name), signal.SIGKILL)
    return count


def _judged(status: int | None, text: str, left: int, *, ran: bool | None) -> Result:
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("perftop:")]
    first = errors[0] if errors else lines[0] if lines else ""
    result = Result(f"status {status}{'' if ran is None else f', ran: {ran}'}; {first[:110]}")
    if status is None:
        return result.check(False, "it never ends")
    result.check("Traceback" not in text, f"a traceback: {lines[-1:]}")
    result.check("Fatal Python" not in text and "OpenBLAS" not in text, "others' words")
    result.check(not re.search("internal error", text), "an internal error")
    if ran:
        result.check(status == COMMAND_STATUS, "the command's status is lost")
    else:
        result.check(status in STATUSES, "no documented status")
        if (status and ran is not None) or status not in {0, 1, None}:
            result.check(errors, "no reason")
    result.check(len(errors) <= (1 if status and not ran else 3), f"many lines: {errors[:3]}")
    result.check("write stdout" not in text, "stdout is blamed")
    return result.check(not left, f"{left} processes are left")


CASES = [
    Case(trouble, verb, "one true line, a documented status", refused_case(trouble, verb))
    for trouble in (
        *LIMITS,
        *(f"{call}={error}" for call in refusing.CALLS for error in refusing.ERRORS),
    )
    for verb in VERBS
]
