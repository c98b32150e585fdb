"""What is told about the few tasks that are shown: user, command, threads, affinity, group."""

from __future__ import annotations

import functools
import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from perfprobe.cpu import cpu_sets, files

MOST_COMMAND = 200
MOST_BYTES = 1 << 16
"""That are read of a file. A status with thousands of groups is shorter."""
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
    found: dict[str, str | int] = {}
    with suppress(OSError, ValueError, LookupError):
        lines = _content(f"/proc/{pid}/status").splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        found["user"] = _user(int(status["Uid"].split()[0]))  # the real one, of four
        found["threads"] = int(status["Threads"])
    with suppress(OSError):
        words = _content(f"/proc/{pid}/cmdline").removesuffix("\0").replace("\0", " ")
        found["command"] = _sendable(words[:MOST_COMMAND])
    with suppress(OSError):
        found["affinity"] = cpu_sets.format(os.sched_getaffinity(pid))
    return {key: value for key, value in found.items() if value}


def _content(path: str) -> str:
    with Path(path).open("rb") as file:
        return os.fsdecode(file.read(MOST_BYTES))


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
