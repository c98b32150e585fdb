"""Reads the threads of a watched job: the CPU on which each last ran, and how long it has run and
waited for a CPU.

A job is one process, by its PID; or all processes of one name, including later ones; or all
processes of a control group and its subgroups; or a tree: a process and all its descendants. The
scan that finds running tasks (tasks.py) also finds the job's threads, about once a second; a thread
that starts and ends between two scans is missed. A child of a process belongs to the job only in a
tree, or if it matches the job itself. The files of a thread stay open: that halves the cost of a
read, and an open file never refers to a later thread with the same number.

Times are sums since a thread's start. The kernel adds running time at timer ticks and when the
thread yields, and waiting time when the thread runs again, so both may be older than the frame.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from perfprobe.cpu import files
from perfprobe.errors import Unavailable, UsageError
from perfprobe.kernel import access
from perfprobe.kernel.cgroups import (
    UNIT_SUFFIXES,
    Hierarchy,
    group_directories,
    hierarchy,
    is_frozen,
    member_pids,
)
from perfprobe.kernel.task_files import (
    TICK_NS,
    TaskStat,
    numbered_batches,
    parse_disk_wait_ns,
    parse_stat,
    parse_state,
    parse_switches,
    parse_times,
)
from perfprobe.wire import Missing

MAX_THREADS = 256
"""Maximum number of threads that are read; further threads are only counted."""
READ_INTERVAL_NS = 3_125_000
"""Minimum time in ns between the reads of two threads. A read takes about 20 us, so reads cost at
most 0.6 % of a CPU. Each of 32 threads is read every 100 ms, each of MAX_THREADS once a second."""
MAX_PARENTS, MAX_NEW_CHILDREN = 8, 16
"""Maximum number of processes whose children are searched for between two scans, which takes about
15 us for each; and of children that are then added, about 100 us for each."""
FROZEN_NS = 1_000_000_000
"""Time in ns between two checks whether a thread's control group is frozen."""
MAX_NAME_BYTES = 15  # bytes to which the kernel truncates names
THREAD_FILES = ("stat", "schedstat", "status")
VFORK_FUNCTIONS = frozenset({"kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done"})
"""Kernel functions in which a thread waits until the child of its vfork has called exec."""
MAX_STATE_READS = 3
"""Maximum number of reads of a state that may have changed before it was explained."""
Processes = Iterable[tuple[str, TaskStat]]


class WatchedJob:
    """The watched job, as given with --watch (`text`), and its threads. `second` is another job,
    which is scanned and closed together with this one and has its own record, "command". Raises
    ValueError for text that cannot be a name, and Unavailable for a PID that does not exist."""

    def __init__(
        self, root: Path, text: str, *, tree: bool = False, second: WatchedJob | None = None
    ) -> None:
        self.text = text
        self._second = second
        self._proc = f"{root}/proc"
        self._is_group = text.startswith("/") or text.endswith(UNIT_SUFFIXES)
        self._root = root
        self._pid = None if self._is_group else parse_pid(text)
        self._start_time = None if self._pid is None else self._start_ticks(root, self._pid)
        delays = files.read_word(f"{self._proc}/sys/kernel/task_delayacct")
        self._accounts_delays = delays == "1"
        """Whether the kernel measures how long tasks wait for a disk."""
        self._freezer = hierarchy(root, "freezer")
        self._family = None
        if tree:
            if self._pid is None or self._start_time is None:
                raise UsageError(f"--watch-tree {text!r}: a PID was expected")
            self._family = ProcessFamily(self._pid, self._start_time)
        self.missing = self._missing_files(root)
        self.warning = self._absence_warning()
        """A warning that the source sends once and then clears; '': none."""
        self._threads: dict[str, _Thread] = {}
        """By thread id; the thread that is read next is first."""
        self._unread_count = 0
        self._recorded_ns = 0
        self._thread_has_ended = self._scan_missed_thread = False

    def find_threads(self, processes: Processes) -> Iterator[None]:
        """Finds the job's threads among these processes (pairs of PID and TaskStat), to read them
        from now on. The caller may pause at each yield."""
        if self._second is not None:
            processes = list(processes)
            yield from self._second.find_threads(processes)
        pid_by_tid: dict[str, str] = {}
        total = 0
        for pid, process in self._processes_of_job(processes):
            total += process.thread_count
            for tids in numbered_batches(f"{self._proc}/{pid}/task"):
                pid_by_tid |= dict.fromkeys(tids, pid)
                yield
                if len(pid_by_tid) >= MAX_THREADS:
                    break
        is_cut = len(pid_by_tid) >= MAX_THREADS
        self._open_threads(dict(islice(pid_by_tid.items(), MAX_THREADS)))
        self._unread_count = max(0, (total if is_cut else len(pid_by_tid)) - len(self._threads))

    def find_children(self) -> None:
        """Finds new children of a tree's processes (the first MAX_PARENTS), to read them from now
        on. Must not be called while `find_threads` pauses. Their other threads are found by the
        next scan."""
        if self._second is not None:
            self._second.find_children()
        if self._family is not None:
            for pid in self._family.find_children(self._proc):
                self._open_thread(pid, pid)

    def read_due_threads(self, now_ns: int) -> dict[str, Any]:
        """Reads the threads that are due, and returns the frame's records of this job ("watched")
        and of the second job; empty if no thread is due."""
        record = self.record(now_ns)
        records = {} if record is None else {"watched": record}
        if self._second is not None and (command := self._second.record(now_ns)) is not None:
            records["command"] = command
        return records

    def record(self, now_ns: int) -> dict[str, Any] | None:
        self._thread_has_ended, self._scan_missed_thread = self._scan_missed_thread, False
        due = round((now_ns - self._recorded_ns) / READ_INTERVAL_NS)
        if self._threads and not due:
            return None
        self._recorded_ns += due * READ_INTERVAL_NS
        threads, disk, states = {}, {}, {}
        for tid in list(islice(self._threads, due)):
            thread = self._threads.pop(tid)
            if entry := thread.read(self._freezer):
                threads[tid], states[tid] = entry, thread.state
                self._threads[tid] = thread
                if self._accounts_delays and thread.disk_ns is not None:
                    disk[tid] = thread.disk_ns
            else:
                self._thread_has_ended = True
                thread.close()
        record = {"threads": threads, "more": self._unread_count}
        return record | {k: v for k, v in (("disk", disk), ("states", states)) if v}

    @property
    def thread_has_ended(self) -> bool:
        """Whether a thread was found to have ended, when the last record was made or by a scan
        before that."""
        second = self._second
        return self._thread_has_ended or (second is not None and second.thread_has_ended)

    @property
    def pids(self) -> list[int]:
        """The processes whose threads are read."""
        pids = dict.fromkeys(thread.pid for thread in self._threads.values())
        return [*pids, *(self._second.pids if self._second is not None else [])]

    def close(self) -> None:
        self._open_threads({})
        if self._second is not None:
            self._second.close()

    def _processes_of_job(self, processes: Processes) -> Processes:
        if self._family is not None:
            return self._family.members_among(processes)
        if self._is_group:
            pids = member_pids(group_directories(self._root, self.text))
            return ((pid, stat) for pid, stat in processes if pid in pids)
        if self._pid is None:
            return ((pid, stat) for pid, stat in processes if stat.comm == self.text)
        job = self._pid, self._start_time
        return ((pid, stat) for pid, stat in processes if (pid, stat.start_ticks) == job)

    def _open_threads(self, pid_by_tid: dict[str, str]) -> None:
        for tid in self._threads.keys() - pid_by_tid.keys():
            self._threads.pop(tid).close()
            self._scan_missed_thread = True
        for tid, pid in pid_by_tid.items():
            self._open_thread(tid, pid)

    def _open_thread(self, tid: str, pid: str) -> None:
        if tid not in self._threads:
            with suppress(OSError):  # the thread may have ended, or may not be readable
                self._threads[tid] = _Thread(f"{self._proc}/{pid}/task/{tid}", int(pid))

    # --- checks at the start -----------------------------------------------------------------

    def _start_ticks(self, root: Path, pid: str) -> int:
        status = files.read_text(f"{self._proc}/{pid}/status")
        leader = status.partition("\nTgid:")[2].split("\n", 1)[0].strip()
        if leader not in {"", pid}:
            raise Unavailable(f"{pid} is a thread of process {leader}: --watch {leader}")
        stat = parse_stat(files.read_text(f"{self._proc}/{pid}/stat").encode())
        if stat is None:
            problem = access.hidden_tasks_problem(root)
            hidden_text = f" · {problem.why} · {problem.fix}" if problem else ""
            raise Unavailable(f"no process {pid}{hidden_text}")
        return stat.start_ticks

    def _absence_warning(self) -> str:
        """Returns a warning if there is no process to watch; '' if there is one."""
        if self._pid is not None:
            return ""
        if self._is_group:
            if group_directories(self._root, self.text):
                return ""
            return f"no control group {self.text} now; it is followed once it exists"
        pids = (pid for batch in numbered_batches(self._proc) for pid in batch)
        texts = (files.read_text(f"{self._proc}/{pid}/comm") for pid in pids)
        names = {text.strip("\n") for text in texts}
        if self.text in names:
            return ""
        similar = difflib.get_close_matches(self.text, sorted(names), 1)
        suggestion = f"; did you mean {similar[0]}?" if similar else ""
        return f"no process is named {self.text} now; one that starts will be followed{suggestion}"

    def _missing_files(self, root: Path) -> list[Missing]:
        missing = []
        problem = access.hidden_tasks_problem(root)
        if problem and self._pid is None:
            missing += problem.missing("watch")
        if not self._accounts_delays:
            reason = "this kernel does not account for disk waits (kernel.task_delayacct is 0)"
            missing.append(Missing("disk_wait", reason, "sudo sysctl kernel.task_delayacct=1"))
        pids = [pid for pid in (self._pid, "1", "self") if pid is not None]
        readable = [pid for pid in pids if files.read_text(f"{self._proc}/{pid}/stat")]
        texts = [files.read_text(f"{self._proc}/{pid}/schedstat") for pid in readable]
        if readable and not any(parse_times(text.encode()) for text in texts):
            reason = "this kernel does not account for waits for a CPU (/proc/PID/schedstat)"
            missing.append(Missing("wait", reason, "a kernel with CONFIG_SCHED_INFO"))
        return missing


def parse_pid(text: str) -> str | None:
    """Returns the PID in the text; None for a name. Raises ValueError if it is neither."""
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    size = len(text.encode(errors="replace"))
    if not 0 < size <= MAX_NAME_BYTES or not text.isprintable():
        raise UsageError(
            f"--watch {text!r}: a PID, or a name as in /proc/PID/comm, "
            f"of up to {MAX_NAME_BYTES} bytes"
        )
    return None


class ProcessFamily:
    """A process and all its descendants. A descendant stays a member after its parent ends and the
    kernel gives it another parent. `start` is the start time of `pid`, as in TaskStat."""

    def __init__(self, pid: str, start: int) -> None:
        self._members = {pid: start}

    def members_among(self, processes: Processes) -> list[tuple[str, TaskStat]]:
        """Returns the members among these processes, ancestors first."""
        by_pid = dict(processes)
        children: dict[str, list[str]] = {}
        for pid, process in by_pid.items():
            children.setdefault(str(process.parent_pid), []).append(pid)
        starts = {pid: process.start_ticks for pid, process in by_pid.items()}
        members = {pid: start for pid, start in self._members.items() if starts.get(pid) == start}
        todo = list(members)
        for parent in todo:
            for child in children.get(parent, ()):
                # A child older than its parent had another parent with the same PID.
                if child not in members and starts[child] >= members[parent]:
                    members[child] = starts[child]
                    todo.append(child)
        self._members = members
        return [(pid, by_pid[pid]) for pid in members]

    def find_children(self, proc: str) -> list[str]:
        """Adds the children of the first MAX_PARENTS members to the members, at most
        MAX_NEW_CHILDREN. Returns their PIDs."""
        new_pids: list[str] = []
        for parent in list(self._members)[:MAX_PARENTS]:
            children = files.read_text(f"{proc}/{parent}/task/{parent}/children").split()
            for pid in [pid for pid in children if pid not in self._members]:
                stat = parse_stat(files.read_text(f"{proc}/{pid}/stat").encode())
                if stat is not None and len(new_pids) < MAX_NEW_CHILDREN:
                    self._members[pid] = stat.start_ticks
                    new_pids.append(pid)
        return new_pids


class _Thread:
    """A thread of the job, with its open files. The constructor raises OSError if the thread has
    ended or may not be read."""

    def __init__(self, path: str, pid: int) -> None:
        self.pid = pid
        self.disk_ns: int | None = None
        """Time in ns for which the thread had waited for a disk at the last read."""
        self.state = ""
        """The thread's state at the last read, as proc(5) names it; "F": its group is frozen."""
        self._waits_for_vfork = False
        """Whether the last wait in state D with a known kernel function was for a vforked child."""
        self._cgroup, self._wchan = f"{path}/cgroup", f"{path}/wchan"
        self._last_switches: tuple[int | None, int | None] | None = None
        """The thread's context switches at the last read."""
        self._frozen, self._frozen_ns = False, -FROZEN_NS
        """Whether the thread's control group is frozen, and the time of that check in ns."""
        self._files = {"stat": files.open_file(f"{path}/stat")}
        for name in THREAD_FILES[1:]:
            with suppress(OSError):
                self._files[name] = files.open_file(f"{path}/{name}")

    def read(self, freezer: Hierarchy) -> list[Any] | None:
        """Reads the thread and returns its entry in the record; None if it has ended."""
        data = self._read_file("stat")
        stat = parse_stat(data)
        if stat is None:
            return None
        self.disk_ns = parse_disk_wait_ns(data)
        self.state = self._state_without_vfork(parse_state(data))
        times = parse_times(self._read_file("schedstat"))
        run_ns, wait_ns = times or (stat.cpu_ticks * TICK_NS, None)
        switched = parse_switches(self._read_file("status"))
        last, self._last_switches = self._last_switches, switched
        # A frozen thread seems to wait for a disk (D), or to have slept since the last read (S).
        if self.state == "D" or (self.state == "S" and switched == last):
            now_ns = time.monotonic_ns()
            if now_ns - self._frozen_ns >= FROZEN_NS:
                self._frozen_ns = now_ns
                self._frozen = is_frozen(freezer, files.read_text(self._cgroup))
            self.state = "F" if self._frozen else self.state
        return [self.pid, stat.comm, stat.last_cpu, run_ns, wait_ns, *switched]

    def _state_without_vfork(self, state: str) -> str:
        """Returns the state of the thread, which was just read. A wait for a child is a sleep,
        although after vfork the kernel shows it as D. The place of the wait is "0" if reading it is
        not permitted, and while the thread is still in the run queue; the thread is then assumed to
        wait where it last waited in state D."""
        for _ in range(MAX_STATE_READS):
            if state != "D":
                return state
            place = files.read_text(self._wchan)
            if place != "0":
                self._waits_for_vfork = place in VFORK_FUNCTIONS
                break
            state = parse_state(self._read_file("stat")) or state
        return "S" if state == "D" and self._waits_for_vfork else state

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def _read_file(self, name: str) -> bytes:
        try:
            return os.pread(self._files[name], files.MAX_BYTES, 0) if name in self._files else b""
        except OSError:
            return b""
