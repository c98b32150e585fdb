"""Reads files of processes and threads in /proc: statistics, waiting times, and details of the few
processes that are displayed. A task may end at any time."""

from __future__ import annotations

import functools
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from perfprobe.cpu import cpu_sets, files

BATCH_ENTRIES = 64  # directory entries that are read at once, in less than 1 ms
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
MAX_STAT_BYTES = 1024
"""Maximum bytes read of a stat file: a name of 64 bytes, and the numbers up to the CPU."""
MAX_COMM_LENGTH = 64
TASK_ENDED = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class TaskStat(NamedTuple):
    """The fields of /proc/PID/stat, or of a thread's stat file, that are used."""

    comm: str
    cpu_ticks: int
    """User and system time, in clock ticks."""
    thread_count: int
    start_ticks: int
    """Start time in ticks since boot; a later task with the same PID has another start time."""
    last_cpu: int
    parent_pid: int = 0
    children_ticks: int = 0
    """User and system time, in clock ticks, of ended children and of their ended children."""


def parse_stat(data: bytes) -> TaskStat | None:
    """Parses the content of a stat file. Returns None if it is not a stat file. A task's name may
    contain any bytes, including parentheses and newlines."""
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
    comm = data[first + 1 : last].decode(errors="replace")[:MAX_COMM_LENGTH]
    return TaskStat(comm, ticks, threads, start, cpu, parent, children)


def parse_state(data: bytes) -> str:
    """Returns the task's state (R, S, D, T … as in proc(5)) in a stat file's content, or ''."""
    return data[data.rfind(b")") + 1 :].lstrip()[:1].decode(errors="replace")


def parse_disk_wait_ns(data: bytes) -> int | None:
    """Returns the ns for which a task has waited for a disk, from the clock ticks in field 42 of
    its stat file; 0 if the kernel does not measure it (kernel.task_delayacct)."""
    fields = data[data.rfind(b")") + 1 :].split(None, 40)
    return int(fields[39]) * TICK_NS if len(fields) > 39 and fields[39].isdigit() else None


def numbered_batches(directory: str) -> Iterator[list[str]]:
    """Yields the numbers (PIDs or thread ids) among a directory's entries, in batches, because the
    kernel needs 1 us for each entry."""
    with suppress(OSError), os.scandir(directory) as entries:
        while batch := list(islice(entries, BATCH_ENTRIES)):
            yield [e.name for e in batch if e.name.isdecimal() and len(e.name) < 10]


def read_file(path: str, limit: int = MAX_STAT_BYTES) -> bytes:
    """Returns the first `limit` bytes of a file. Raises OSError."""
    fd = files.open_file(path)
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


# --- new tasks ------------------------------------------------------------------------------------
# The last word of /proc/loadavg is the ID of the newest thread or process in this PID namespace.
# The kernel assigns IDs in sequence, so the word stays the same only if no task was created. Tasks
# of a restored checkpoint keep their old IDs; they are found when the next task is created.


class NewTaskCheck:
    def __init__(self, proc: str) -> None:
        self._newest_id = 0
        """The ID of the newest task; 0 if unknown."""
        self._loadavg = files.OpenFile(f"{proc}/loadavg")
        # In a container, a file of another program (LXCFS) may be mounted on /proc/loadavg.
        self._is_from_kernel = False
        with suppress(OSError):
            self._is_from_kernel = Path(proc, "loadavg").stat().st_dev == Path(proc).stat().st_dev

    def has_new_tasks(self) -> bool:
        """Returns whether a task may have been created since the last call."""
        last_id, self._newest_id = self._newest_id, 0
        with suppress(ValueError, IndexError):
            if self._is_from_kernel:
                self._newest_id = int(self._loadavg.read().split()[-1])
        return self._newest_id == 0 or self._newest_id != last_id

    def close(self) -> None:
        self._loadavg.close()


# --- running and waiting --------------------------------------------------------------------------
# The kernel's times of a task are sums since its start. It adds waiting time only when the task
# runs again, so the sum of a waiting task is too small.

NO_TIMES = b"0 0 0"  # content of a schedstat file if the kernel does not measure waiting


class TaskRates(NamedTuple):
    """Shares of a span of time for which a task ran and waited for a CPU, and its context switches
    per second; None if unknown."""

    run_share: float | None = None
    wait_share: float | None = None
    switches_per_s: float | None = None


class SchedSums(NamedTuple):
    """A task's running time, waiting time and context switches until `read_ns`, if known."""

    read_ns: int
    run_ns: int | None
    wait_ns: int | None
    switches: int | None

    def rates_since(self, last: SchedSums) -> TaskRates:
        elapsed_ns = self.read_ns - last.read_ns
        if elapsed_ns <= 0:
            return TaskRates()
        run, wait, switched = (
            None if a is None or b is None or b < a else (b - a) / elapsed_ns
            for a, b in zip(last[1:], self[1:], strict=True)
        )
        run, wait = (x if x is None else round(min(1.0, x), 4) for x in (run, wait))
        return TaskRates(run, wait, switched and round(1e9 * switched, 1))


def read_sums(path: str, now_ns: Callable[[], int]) -> SchedSums:
    """Reads the sums of the task whose directory in /proc is `path`; sums that cannot be read are
    None. `now_ns` returns the time."""
    contents = {"schedstat": b"", "status": b""}
    for name in contents:
        with suppress(OSError):
            contents[name] = read_file(f"{path}/{name}", files.MAX_BYTES)
    voluntary, involuntary = parse_switches(contents["status"])
    total = None if voluntary is None or involuntary is None else voluntary + involuntary
    run_ns, wait_ns = parse_times(contents["schedstat"]) or (None, None)
    return SchedSums(now_ns(), run_ns, wait_ns, total)


def parse_times(schedstat: bytes) -> tuple[int, int] | None:
    """Returns the ns for which a thread ran and waited, from its schedstat file; None if the kernel
    does not measure them, or if the thread never ran."""
    fields = schedstat.split()
    if len(fields) != 3 or not all(map(bytes.isdigit, fields)) or schedstat.strip() == NO_TIMES:
        return None
    return int(fields[0]), int(fields[1])


def parse_switches(status: bytes) -> tuple[int | None, int | None]:
    """Returns the voluntary and involuntary context switches in a status file, usually its last two
    lines; None if they are missing."""
    _, separator, counts_text = status.rpartition(b"\nvoluntary_ctxt_switches:")
    voluntary, _, involuntary = counts_text.partition(b"\nnonvoluntary_ctxt_switches:")
    numbers = [word.strip() for word in (voluntary, involuntary.partition(b"\n")[0])]
    if not separator or not all(map(bytes.isdigit, numbers)):
        return None, None
    return int(numbers[0]), int(numbers[1])


# --- details --------------------------------------------------------------------------------------

MAX_COMMAND_LENGTH = 200
RESEND_NS = 60_000_000_000
"""Time in ns after which a process's details, which may be lost or change, are sent again."""
MAX_DETAILS = 32  # maximum number of processes with details in one record; each takes about 0.1 ms

_STATUS_NUMBERS = re.compile(rb"^(Uid|Threads):\s*([0-9]+)", re.MULTILINE)
"""Numbers in a status file; of the user IDs, the real one."""

ProcessId = tuple[int, int, str]
"""PID, start ticks and name of a process; the name changes if it executes another program."""


class SentDetails:
    """Remembers when the details of each process were last sent."""

    def __init__(self) -> None:
        self._sent_ns: dict[ProcessId, int] = {}

    def due_processes(self, processes: Iterable[ProcessId], now_ns: int) -> list[ProcessId]:
        """Returns at most MAX_DETAILS processes whose details are due, and marks them as sent."""
        self._sent_ns = {
            key: sent_ns for key, sent_ns in self._sent_ns.items() if now_ns - sent_ns < RESEND_NS
        }
        due = [key for key in dict.fromkeys(processes) if key not in self._sent_ns][:MAX_DETAILS]
        self._sent_ns |= dict.fromkeys(due, now_ns)
        return due


def process_details(pid: int) -> dict[str, str | int]:
    """Returns a process's user, command line, number of threads, affinity and low priority, as far
    as they are known. Kernel threads have no command line."""
    details: dict[str, str | int] = {}
    with suppress(OSError, LookupError):
        status = dict(_STATUS_NUMBERS.findall(read_file(f"/proc/{pid}/status", files.MAX_BYTES)))
        details["user"] = _user_name(int(status[b"Uid"]))
        details["threads"] = int(status[b"Threads"])
    with suppress(OSError):
        words = read_file(f"/proc/{pid}/cmdline", files.MAX_BYTES).rstrip(b"\0").split(b"\0")
        details["command"] = _replace_surrogates(os.fsdecode(b" ".join(words))[:MAX_COMMAND_LENGTH])
    with suppress(OSError):
        details["affinity"] = cpu_sets.format(os.sched_getaffinity(pid))
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        is_idle = os.sched_getscheduler(pid) == os.SCHED_IDLE
        details["priority"] = "SCHED_IDLE" if is_idle else f"nice {nice}" if nice > 0 else ""
    return {key: value for key, value in details.items() if value}


@functools.lru_cache(maxsize=256)
def _user_name(uid: int) -> str:
    """Returns the name of a user; cached, because a look-up may ask a directory service."""
    try:
        return _replace_surrogates(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def control_group_of(text: str) -> str:
    """Returns the control group of a process, from the text of its /proc/PID/cgroup; '' for the
    root group. If there are several hierarchies, the last line with a group below the root is used;
    the unified hierarchy is in the last line."""
    paths = [line.split(":", 2)[-1] for line in text.splitlines()]
    return next((path[-MAX_COMMAND_LENGTH:] for path in reversed(paths) if path != "/"), "")


def _replace_surrogates(text: str) -> str:
    """Returns the text with "?" for each surrogate (undecodable byte), which cannot be encoded."""
    return text.encode(errors="replace").decode()
