"""What is told about the few tasks that are shown: user, command, threads, affinity, group."""

from __future__ import annotations

import functools
import pwd
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from perfprobe.cpu import cpu_sets, files

MOST_COMMAND = 200
AGAIN_NS = 60_000_000_000
"""After this they are sent again: frames get lost, and threads and affinities change."""
AT_ONCE = 32  # details in one record: each costs some 0.1 ms

Who = tuple[int, int, str]
"""PID, birth and name of a process. The name changes when it executes another program."""


class Told:
    """The processes whose details were sent, and when."""

    def __init__(self) -> None:
        self._at_ns: dict[Who, int] = {}

    def wanted(self, shown: Iterable[Who], now_ns: int) -> list[Who]:
        """The ones whose details were not sent within AGAIN_NS. They count as sent from now on."""
        self._at_ns = {who: at for who, at in self._at_ns.items() if now_ns - at < AGAIN_NS}
        new = [who for who in dict.fromkeys(shown) if who not in self._at_ns][:AT_ONCE]
        self._at_ns |= dict.fromkeys(new, now_ns)
        return new


def describe(pid: int) -> dict[str, str | int]:
    """Details of a process; unknown ones are left out. Kernel threads have no command."""
    import psutil

    troubles = (psutil.Error, OSError, ValueError, LookupError)
    asked: dict[str, Callable[[psutil.Process], Any]] = {
        "user": lambda process: _user(process.uids().real),
        "command": lambda process: _sendable(" ".join(process.cmdline())[:MOST_COMMAND]),
        "threads": lambda process: process.num_threads(),
        "affinity": lambda process: cpu_sets.format(process.cpu_affinity()),
    }
    found: dict[str, str | int] = {}
    with suppress(*troubles):
        process = psutil.Process(pid)
        with process.oneshot():
            for key, ask in asked.items():
                with suppress(*troubles):
                    found[key] = ask(process)
    return {key: value for key, value in found.items() if value}


@functools.lru_cache(maxsize=256)
def _user(uid: int) -> str:
    """The user's name; cached, because the look-up may ask a directory service."""
    try:
        return _sendable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def group(path: str) -> str:
    """The control group in a cgroup file of /proc; '' for the root. Of several hierarchies the
    last line counts, which is the unified one."""
    lines = (files.text(path) or "").splitlines()
    found = lines[-1].split(":", 2)[-1] if lines else ""
    return "" if found == "/" else found[-MOST_COMMAND:]


def _sendable(text: str) -> str:
    """The text without surrogates, which stand for undecodable bytes and cannot be encoded."""
    return text.encode(errors="replace").decode()
