"""Files of processes in /proc, which may end at any time: their statistics, how long they waited,
and details of the few that are shown."""

from __future__ import annotations

import functools
import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from perfprobe.cpu import cpu_sets

BATCH = 64  # entries a step: they take less than 1 ms
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
MAX_STAT_BYTES = (
    1024  # bytes of a stat file: up to the CPU it has 38 numbers and a name of at most 64 bytes
)
MAX_COMM = 64
TASK_ENDED = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used."""

    comm: str
    ticks: int
    """User and system time, in clock ticks."""
    threads: int
    start: int
    """Birth in ticks since boot; it distinguishes a task from a later one with the same number."""
    cpu: int
    parent: int = 0
    children: int = 0
    """User and system time of its children that have ended and their children, in clock ticks."""


def parse(data: bytes) -> Stat | None:
    """The fields of a stat file; None: it is not one. The name may hold any bytes, parentheses and
    newlines included."""
    first, last = data.find(b"("), data.rfind(b")")
    if not 0 <= first < last:
        return None
    fields = data[last + 1 :].split(None, 37)  # from the third one of proc(5) on
    try:
        ticks, threads = int(fields[11]) + int(fields[12]), int(fields[17])
        start, cpu, parent = int(fields[19]), int(fields[36]), int(fields[1])
        children = int(fields[13]) + int(fields[14])
    except (IndexError, ValueError):
        return None
    comm = data[first + 1 : last].decode(errors="replace")[:MAX_COMM]
    return Stat(comm, ticks, threads, start, cpu, parent, children)


def state(data: bytes) -> str:
    """The state in a stat file, as proc(5) names it: R, S, D, T, t ...; '' if it is not one."""
    return data[data.rfind(b")") + 1 :].lstrip()[:1].decode(errors="replace")


def disk_ns(data: bytes) -> int | None:
    """Ns that a task has waited for a disk, of its stat file: the 42nd field, in clock ticks. 0
    where the kernel does not account for it (`access.accounts_delays`)."""
    fields = data[data.rfind(b")") + 1 :].split(None, 40)
    return int(fields[39]) * TICK_NS if len(fields) > 39 and fields[39].isdigit() else None


def numbers(directory: str) -> Iterator[list[str]]:
    """Yields entries that are PIDs or thread ids, a batch at a time; each takes the kernel 1 us."""
    with suppress(OSError), os.scandir(directory) as entries:
        while some := list(islice(entries, BATCH)):
            yield [e.name for e in some if e.name.isdecimal() and len(e.name) < 10]


def opened(path: str) -> int:
    """A descriptor for reading. Raises OSError."""
    # NONBLOCK: under a sysroot there may be a fifo in place of a file.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def read(path: str, limit: int = MAX_STAT_BYTES) -> bytes:
    """The first bytes: LIMIT is all of a stat file that is needed. Raises OSError."""
    fd = opened(path)
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


# --- births ---------------------------------------------------------------------------------------
# The last word of /proc/loadavg is the number of the newest task in this PID namespace, thread or
# process. Numbers are given in turn, so it stays the same only if none was born. Tasks of a
# restored checkpoint keep the numbers they had; they are found at the next birth of another.


class Births:
    def __init__(self, proc: str) -> None:
        self._last = 0
        """The last task that was born; 0: not known."""
        self._fd = -1
        with suppress(OSError):
            self._fd = opened(f"{proc}/loadavg")
            # A container may have a file of another program there.
            if os.fstat(self._fd).st_dev != Path(proc).stat().st_dev:
                self.close()

    def any(self) -> bool:
        """Whether a task may have been born since the last call."""
        before, self._last = self._last, 0
        with suppress(OSError, ValueError, IndexError):
            self._last = int(os.pread(self._fd, MAX_STAT_BYTES, 0).split()[-1])
        return self._last == 0 or self._last != before

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --- running and waiting --------------------------------------------------------------------------
# Sums since the task's birth, as the kernel counts them. It adds waiting time when the task runs
# again, so that sum may lag.

MAX_STATUS_BYTES = 1 << 15  # bytes: masks of all CPUs and all nodes come before the switches
NO_WAITS = b"0 0 0"  # a kernel that does not account for waiting writes this


class Moved(NamedTuple):
    """Shares of some time that a task ran and waited, and switches a second; None: not known."""

    run: float | None = None
    wait: float | None = None
    switches: float | None = None


class Sums(NamedTuple):
    """The sums at one moment; None: not known."""

    at_ns: int
    run_ns: int | None
    wait_ns: int | None
    switches: int | None

    def since(self, last: Sums) -> Moved:
        elapsed_ns = self.at_ns - last.at_ns
        if elapsed_ns <= 0:
            return Moved()
        ran, waited, switched = (
            None if a is None or b is None or b < a else (b - a) / elapsed_ns
            for a, b in zip(last[1:], self[1:], strict=True)
        )
        return Moved(_share(ran), _share(waited), switched and round(1e9 * switched, 1))


def _share(value: float | None) -> float | None:
    return None if value is None else round(min(1.0, value), 4)


def sums(path: str, now_ns: Callable[[], int]) -> Sums:
    """The sums of the task of this directory in /proc; what cannot be read is not known."""
    waited = times(_head(f"{path}/schedstat", MAX_STAT_BYTES))
    voluntary, involuntary = switches(_head(f"{path}/status", MAX_STATUS_BYTES))
    total = None if voluntary is None or involuntary is None else voluntary + involuntary
    run_ns, wait_ns = waited or (None, None)
    return Sums(now_ns(), run_ns, wait_ns, total)


def _head(path: str, limit: int) -> bytes:
    try:
        return read(path, limit)
    except OSError:
        return b""


def times(schedstat: bytes) -> tuple[int, int] | None:
    """Ns that the thread ran and waited; None: not accounted, or it never ran."""
    fields = schedstat.split()
    if len(fields) != 3 or not all(map(bytes.isdigit, fields)) or schedstat.strip() == NO_WAITS:
        return None
    return int(fields[0]), int(fields[1])


def switches(status: bytes) -> tuple[int | None, int | None]:
    """Voluntary and involuntary switches: usually the last two lines of the file."""
    _, found, rest = status.rpartition(b"\nvoluntary_ctxt_switches:")
    voluntary, _, forced = rest.partition(b"\nnonvoluntary_ctxt_switches:")
    numbers = [word.strip() for word in (voluntary, forced.partition(b"\n")[0])]
    if not found or not all(map(bytes.isdigit, numbers)):
        return None, None
    return int(numbers[0]), int(numbers[1])


# --- details --------------------------------------------------------------------------------------

MAX_COMMAND = 200
RESEND_NS = 60_000_000_000
"""After this they are sent again: frames get lost, and threads and affinities change."""
MAX_DETAILS = 32  # details in one record: each costs some 0.1 ms

Who = tuple[int, int, str]
"""PID, birth and name of a process. The name changes when it executes another program."""


class SentDetails:
    """The processes whose details were sent, and when."""

    def __init__(self) -> None:
        self._at_ns: dict[Who, int] = {}

    def wanted(self, shown: Iterable[Who], now_ns: int) -> list[Who]:
        """The ones whose details were not sent within RESEND_NS. They count as sent from now on."""
        self._at_ns = {who: at for who, at in self._at_ns.items() if now_ns - at < RESEND_NS}
        new = [who for who in dict.fromkeys(shown) if who not in self._at_ns][:MAX_DETAILS]
        self._at_ns |= dict.fromkeys(new, now_ns)
        return new


def describe(pid: int) -> dict[str, str | int]:
    """Details of a process; unknown ones are left out. Kernel threads have no command."""
    import psutil

    troubles = (psutil.Error, OSError, ValueError, LookupError)
    fields: dict[str, Callable[[psutil.Process], Any]] = {
        "user": lambda process: _user(process.uids().real),
        "command": lambda process: _sendable(" ".join(process.cmdline())[:MAX_COMMAND]),
        "threads": lambda process: process.num_threads(),
        "affinity": lambda process: cpu_sets.format(process.cpu_affinity()),
    }
    details: dict[str, str | int] = {}
    with suppress(*troubles):
        process = psutil.Process(pid)
        with process.oneshot():
            for key, read in fields.items():
                with suppress(*troubles):
                    details[key] = read(process)
    return {key: value for key, value in details.items() if value}


@functools.lru_cache(maxsize=256)
def _user(uid: int) -> str:
    """The user's name; cached, because the look-up may ask a directory service."""
    try:
        return _sendable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def group(text: str) -> str:
    """The control group in a cgroup file of /proc; '' for the root. Of several hierarchies the
    last line counts, which is the unified one."""
    lines = text.splitlines()
    path_in_hierarchy = lines[-1].split(":", 2)[-1] if lines else ""
    return "" if path_in_hierarchy == "/" else path_in_hierarchy[-MAX_COMMAND:]


def _sendable(text: str) -> str:
    """The text without surrogates, which represent undecodable bytes and cannot be encoded."""
    return text.encode(errors="replace").decode()
