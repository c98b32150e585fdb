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

from perfprobe.cpu import cpu_sets, files

BATCH_ENTRIES = 64  # entries of a directory that are read in one step, which takes less than 1 ms
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
MAX_STAT_BYTES = 1024
"""Bytes read of a stat file: the fields up to the CPU are 38 numbers and a name of at most 64
bytes."""
MAX_COMM = 64
TASK_ENDED = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used."""

    comm: str
    ticks: int
    """User and system time, in clock ticks."""
    threads: int
    start: int
    """Start time in ticks since boot; it distinguishes a task from a later task with the same
    number."""
    cpu: int
    parent: int = 0
    children: int = 0
    """User and system time of its ended children and of their ended children, in clock ticks."""


def parse_stat(data: bytes) -> Stat | None:
    """Parses a stat file; None if the data is not a stat file. The name may hold any bytes,
    including parentheses and newlines."""
    first, last = data.find(b"("), data.rfind(b")")
    if not 0 <= first < last:
        return None
    fields = data[last + 1 :].split(None, 37)  # the fields from the third one in proc(5) on
    try:
        ticks, threads = int(fields[11]) + int(fields[12]), int(fields[17])
        start, cpu, parent = int(fields[19]), int(fields[36]), int(fields[1])
        children = int(fields[13]) + int(fields[14])
    except (IndexError, ValueError):
        return None
    comm = data[first + 1 : last].decode(errors="replace")[:MAX_COMM]
    return Stat(comm, ticks, threads, start, cpu, parent, children)


def task_state(data: bytes) -> str:
    """Returns the state in a stat file, as proc(5) names it: R, S, D, T, t ...; '' if the data is
    not a stat file."""
    return data[data.rfind(b")") + 1 :].lstrip()[:1].decode(errors="replace")


def disk_ns(data: bytes) -> int | None:
    """Returns the ns for which a task has waited for a disk: field 42 of its stat file, which is in
    clock ticks. 0 if the kernel does not measure it (`access.accounts_delays`)."""
    fields = data[data.rfind(b")") + 1 :].split(None, 40)
    return int(fields[39]) * TICK_NS if len(fields) > 39 and fields[39].isdigit() else None


def numbered_batches(directory: str) -> Iterator[list[str]]:
    """Yields the entries that are PIDs or thread ids, in batches; the kernel needs 1 us for each
    entry."""
    with suppress(OSError), os.scandir(directory) as entries:
        while some := list(islice(entries, BATCH_ENTRIES)):
            yield [e.name for e in some if e.name.isdecimal() and len(e.name) < 10]


def read(path: str, limit: int = MAX_STAT_BYTES) -> bytes:
    """Reads the first `limit` bytes; the default is enough for all fields of a stat file that are
    used. Raises OSError."""
    fd = files.open_file(path)
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


# --- new tasks ------------------------------------------------------------------------------------
# The last word of /proc/loadavg is the number of the newest thread or process in this PID
# namespace. The kernel assigns numbers in sequence, so the word stays the same only if no task was
# created. Tasks of a restored checkpoint keep their old numbers; they are found when the next task
# is created.


class NewTaskCheck:
    def __init__(self, proc: str) -> None:
        self._last = 0
        """The ID of the newest task; 0 if unknown."""
        self._fd = -1
        with suppress(OSError):
            self._fd = files.open_file(f"{proc}/loadavg")
            # In a container, another program's file may be mounted here.
            if os.fstat(self._fd).st_dev != Path(proc).stat().st_dev:
                self.close()

    def has_new_tasks(self) -> bool:
        """Returns whether a task may have been created since the last call."""
        before, self._last = self._last, 0
        with suppress(OSError, ValueError, IndexError):
            self._last = int(os.pread(self._fd, MAX_STAT_BYTES, 0).split()[-1])
        return self._last == 0 or self._last != before

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --- running and waiting --------------------------------------------------------------------------
# Times are sums since the task's start, as the kernel counts them. It adds waiting time only when
# the task runs again, so the sum of a waiting task is too small.

MAX_STATUS_BYTES = 1 << 15  # bytes: the masks of all CPUs and nodes precede the counts of switches
NO_WAITS = b"0 0 0"  # the file's content if the kernel does not account for waiting


class TaskChange(NamedTuple):
    """Shares of a span for which a task ran and waited, and switches per second; None if
    unknown."""

    run: float | None = None
    wait: float | None = None
    switches: float | None = None


class SchedSums(NamedTuple):
    """Sums of running time, waiting time and switches at one moment; None if unknown."""

    at_ns: int
    run_ns: int | None
    wait_ns: int | None
    switches: int | None

    def since(self, last: SchedSums) -> TaskChange:
        elapsed_ns = self.at_ns - last.at_ns
        if elapsed_ns <= 0:
            return TaskChange()
        ran, waited, switched = (
            None if a is None or b is None or b < a else (b - a) / elapsed_ns
            for a, b in zip(last[1:], self[1:], strict=True)
        )
        return TaskChange(_share(ran), _share(waited), switched and round(1e9 * switched, 1))


def _share(value: float | None) -> float | None:
    return None if value is None else round(min(1.0, value), 4)


def read_sums(path: str, now_ns: Callable[[], int]) -> SchedSums:
    """Reads the sums of the task of this directory in /proc; sums that cannot be read are None."""
    waited = parse_times(_read_head(f"{path}/schedstat", MAX_STAT_BYTES))
    voluntary, involuntary = parse_switches(_read_head(f"{path}/status", MAX_STATUS_BYTES))
    total = None if voluntary is None or involuntary is None else voluntary + involuntary
    run_ns, wait_ns = waited or (None, None)
    return SchedSums(now_ns(), run_ns, wait_ns, total)


def _read_head(path: str, limit: int) -> bytes:
    try:
        return read(path, limit)
    except OSError:
        return b""


def parse_times(schedstat: bytes) -> tuple[int, int] | None:
    """Returns the ns for which the thread ran and waited; None if the kernel does not measure them,
    or if the thread never ran."""
    fields = schedstat.split()
    if len(fields) != 3 or not all(map(bytes.isdigit, fields)) or schedstat.strip() == NO_WAITS:
        return None
    return int(fields[0]), int(fields[1])


def parse_switches(status: bytes) -> tuple[int | None, int | None]:
    """Returns voluntary and involuntary switches, usually the last two lines of the file."""
    _, separator, rest = status.rpartition(b"\nvoluntary_ctxt_switches:")
    voluntary, _, forced = rest.partition(b"\nnonvoluntary_ctxt_switches:")
    numbers = [word.strip() for word in (voluntary, forced.partition(b"\n")[0])]
    if not separator or not all(map(bytes.isdigit, numbers)):
        return None, None
    return int(numbers[0]), int(numbers[1])


# --- details --------------------------------------------------------------------------------------

MAX_COMMAND = 200
RESEND_NS = 60_000_000_000
"""Time in ns after which details are sent again: frames get lost, and threads and affinities
change."""
MAX_DETAILS = 32  # maximum number of processes with details in one record; each takes some 0.1 ms

ProcessId = tuple[int, int, str]
"""PID, start time and name of a process. The name changes when the process executes another
program."""


class SentDetails:
    """Keeps the processes whose details were sent, and the time."""

    def __init__(self) -> None:
        self._at_ns: dict[ProcessId, int] = {}

    def due_processes(self, processes: Iterable[ProcessId], now_ns: int) -> list[ProcessId]:
        """Returns the processes whose details were not sent within RESEND_NS. They count as sent
        from now on."""
        self._at_ns = {who: at for who, at in self._at_ns.items() if now_ns - at < RESEND_NS}
        new = [who for who in dict.fromkeys(processes) if who not in self._at_ns][:MAX_DETAILS]
        self._at_ns |= dict.fromkeys(new, now_ns)
        return new


def process_details(pid: int) -> dict[str, str | int]:
    """Returns details of a process; unknown details are left out. Kernel threads have no
    command."""
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
    """Returns the user's name; cached, because the look-up may ask a directory service."""
    try:
        return _sendable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def group_of(text: str) -> str:
    """Returns the control group in a cgroup file of /proc; '' for the root. If there are several
    hierarchies, the last one counts in which the process is not in the root: the unified hierarchy
    is the last line."""
    paths = [line.split(":", 2)[-1] for line in text.splitlines()]
    return next((path[-MAX_COMMAND:] for path in reversed(paths) if path != "/"), "")


def _sendable(text: str) -> str:
    """Returns the text without surrogates, which represent undecodable bytes and cannot be
    encoded."""
    return text.encode(errors="replace").decode()
