"""Finds the tasks that ran most on each CPU since the last scan, from /proc.

A scan visits all processes about once a second, in slices between frames. Most processes sleep or
run only for a moment. The CPU clock of a process shows that with one system call, and its files are
not read. Threads are read only if their process used noticeable time. So the next scan reports a
process that wakes up, and the scan after it if the process has several threads.

One read is enough for a task that started after the last scan, because it has run only since then.
Tasks that ended before this scan are not seen; their time is in the sums of their parent. All of a
task's time is attributed to the CPU on which it last ran.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfprobe.cpu import files
from perfprobe.kernel import access
from perfprobe.kernel.cgroups import Quotas, hierarchy, read_cpuset
from perfprobe.kernel.clues import KernelLog
from perfprobe.kernel.interrupts import Interrupts
from perfprobe.kernel.memory_stalls import MemoryStalls
from perfprobe.kernel.profile import KernelProfile
from perfprobe.kernel.task_files import (
    BATCH_ENTRIES,
    TASK_ENDED,
    TICK_NS,
    NewTaskCheck,
    SchedSums,
    SentDetails,
    Stat,
    TaskChange,
    group_of,
    numbered_batches,
    parse_stat,
    process_details,
    read,
    read_sums,
)

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import Watch

PERIOD_NS = 1_000_000_000
"""Time in ns from the end of a scan to the next scan. Ticks of 10 ms are too coarse for a shorter
time."""
PAUSE_FACTOR = 100
"""Minimum pause after a scan, as a multiple of the scan's CPU time: scans take at most 1 % of a
CPU."""
SLICE_NS = 2_000_000  # upper bound in ns of a slice of a scan, by which a frame may be delayed
MIN_SHARE = 0.02
"""Minimum share of a reported task: user and system time are each rounded to ticks of 10 ms."""
TASKS_PER_CPU = 3
"""Number of tasks that are reported for each CPU, if that many ran. If tasks ran on few CPUs, more
are reported for each, up to MAX_WAITS in all: tasks in a queue take turns, and those that ran most
waited least."""
MAX_PARENTS = 8
"""Maximum number of processes whose ended children are reported; those with the most time are
reported."""
CHECK_SPAN_NS, CHECK_INTERVAL_NS = 3_000_000_000, 100_000_000
"""Time in ns, after the first scan that finds a watched process, for which perfprobe checks whether
the process was moved to another control group; and time between two checks."""
MAX_CHECKED = 8
"""Maximum number of watched processes that are checked: each takes some 15 us."""
MANAGERS = {"thermald", "tuned", "intel_lpmd", "auto-cpufreq", "power-profiles-"}
"""Names of programs that may lower limits of power and clock while the machine runs."""
MAX_WAITS = 64
"""Number of busiest tasks whose waiting is reported: each task costs reads of two files, some 20
us."""


@dataclass(slots=True, eq=False)
class _TaskReading:
    """A process or thread as last read."""

    at_ns: int
    clock_ns: int | None
    stat: Stat | None
    """None if the stat file cannot be read."""
    read_ns: int = 0
    """Time in ns at which the stat file was read."""
    share: float = 0.0
    """Share of the time since the previous read for which the task ran; 0 if unknown."""
    sums: SchedSums | None = None
    """Sums of running and waiting at that time; None if they were not read."""
    may_wait: bool = False
    """Whether the task waited before this read, or may have: it is read again, however little it
    runs."""
    threads: dict[str, _TaskReading] = field(default_factory=dict)

    def has_rested(self, now_ns: int, clock_ns: int | None) -> bool:
        """Returns whether the task has, by its clock, run too little since this read to be
        reported. If so, this read is still valid and gets the present time. The clock does not show
        what threads did, so a process whose threads are read must not have run at all."""
        if self.clock_ns is None or clock_ns is None or self.is_in_queue:
            return False
        most_ns = 0 if self.threads else MIN_SHARE * (now_ns - self.at_ns)
        if not 0 <= clock_ns - self.clock_ns <= most_ns:
            return False
        self.at_ns, self.clock_ns, self.sums = now_ns, clock_ns, None
        for thread in self.threads.values():
            thread.at_ns, thread.sums = now_ns, None
        return True

    @property
    def is_in_queue(self) -> bool:
        threads = self.threads.values()  # `threads` is checked first, because it is usually empty
        return self.may_wait or (bool(threads) and any(thread.may_wait for thread in threads))


@dataclass(slots=True, eq=False)
class _Runner:
    pid: int
    path: str
    """Directory of the task in /proc."""
    reading: _TaskReading
    last: _TaskReading | None
    """The previous read of the same task."""
    process: Stat
    change: TaskChange = field(default_factory=TaskChange)
    """How the sums changed since the last read; unknown if either read lacked them."""

    @property
    def stat(self) -> Stat:
        assert self.reading.stat is not None
        return self.reading.stat

    def compare(self) -> bool:
        """Sets `change`, and whether the task may wait. Returns whether it ran or waited for a
        noticeable time."""
        last, now = self.last, self.reading
        is_same = last is not None and last.stat is not None and last.stat.start == self.stat.start
        before = last.sums if last is not None else None
        if now.sums is not None and before is not None and is_same:
            self.change = now.sums.since(before)
        wait = self.change.wait or 0.0
        now.may_wait = now.sums is not None and (before is None or wait >= MIN_SHARE)
        return now.share >= MIN_SHARE or wait >= MIN_SHARE

    def share(self) -> float:
        """Returns the share by the scheduler's count; by ticks of 10 ms if that is unknown."""
        run = self.change.run
        return round(self.reading.share, 4) if run is None else run

    def record(self) -> list[object]:
        return [self.pid, self.stat.comm, self.share()]

    def waits(self) -> list[float | None]:
        return [*self.change[1:]]


class Tasks:
    """Scans the tasks and makes their records. `cpus` are the CPUs to report. `watch` gets all
    processes at each scan; the caller owns it. `spent_ns` returns the CPU time of the thread that
    calls `work`."""

    def __init__(
        self,
        root: Path,
        cpus: Collection[int],
        watch: Watch | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        spent_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._proc = f"{root}/proc"
        self._cpus, self._watch = cpus, watch
        self._now_ns, self._spent_ns = now_ns, spent_ns
        # In a container /proc may show another PID namespace, whose PIDs system calls do not know.
        self._is_own_namespace = root == Path("/") and Path("/proc/self").resolve().name == str(
            os.getpid()
        )
        self._new_task_check = NewTaskCheck(self._proc) if self._is_own_namespace else None
        self._seen: dict[str, _TaskReading] = {}
        self._begun_ns = 0
        """Start of the last complete scan: a task that is not in `_seen` started later."""
        self._sent_details = SentDetails()
        self._quotas, self._cpusets = Quotas(root), hierarchy(root, "cpuset")
        self._interrupts, self._memory = Interrupts(root, now_ns), MemoryStalls(root)
        self._log = KernelLog(root)
        may_sample = self._is_own_namespace and access.perf_trouble(root) is None
        self._kernel = KernelProfile() if may_sample else None
        self._scan: Iterator[None] | None = None
        self._next_ns = now_ns()
        self._cost_ns = 0
        self._ready: dict[str, Any] = {}
        self._check_due_ns: float = inf
        self._checks_end_ns = 0
        """Times in ns of the next check of the groups of watched processes, and of the last one; 0
        before a watched process was found."""
        self._joined: dict[str, Any] = {}
        """The record of quotas from just after a watched process joined another group: later counts
        belong to the job."""

    def due(self) -> float:
        """Returns the time, in s of time.monotonic(), at which `work` should be called next."""
        return 0.0 if self._scan else self._next_ns / 1e9

    def work(self, early_ns: int = 0) -> None:
        """Does a slice of a scan if a slice is due within `early_ns`."""
        begun_ns, spent_ns = self._now_ns(), self._spent_ns()
        if self._scan is None:
            if begun_ns < self._next_ns - early_ns:
                return
            self._scan, self._cost_ns = self._scan_slices(), 0
        first = not self._seen  # the first scan reads all files, so its cost does not count
        for _ in self._scan:
            if self._now_ns() - begun_ns >= SLICE_NS:
                break
        else:
            self._scan = None
        self._cost_ns += self._spent_ns() - spent_ns
        if self._scan is None:
            rest_ns = 0 if first else PAUSE_FACTOR * self._cost_ns
            self._next_ns = self._now_ns() + max(PERIOD_NS, rest_ns)

    def check_due(self) -> float:
        """Returns the time, in s of time.monotonic(), at which `check_moves` should be called next;
        infinity if it need not be called."""
        return self._check_due_ns / 1e9

    def check_moves(self) -> bool:
        """If a check is due, records the quota counts of groups that a watched process has just
        joined. Returns whether it was due."""
        now_ns = self._now_ns()
        if now_ns < self._check_due_ns:
            return False
        self._check_due_ns = now_ns + CHECK_INTERVAL_NS if now_ns < self._checks_end_ns else inf
        if not self._joined and self._quotas.has_moved(self._watched_pids()[:MAX_CHECKED]):
            quotas = self._quotas.record(self._watched_pids())
            self._joined = {"quotas": quotas} if quotas else {}
        return True

    def take_joined_quotas(self) -> dict[str, Any]:
        """Returns the quota counts of groups that a watched process has joined, which must be in an
        earlier frame than the records of `take`; usually empty."""
        joined, self._joined = self._joined, {}
        return joined

    def final_quotas(self) -> dict[str, Any]:
        """Returns the quota counts of now, which are the last ones of a process that has ended;
        usually empty."""
        quotas = self._quotas.record_again()
        return {"quotas": quotas} if quotas else {}

    def take(self) -> dict[str, Any]:
        """Returns the records of a scan that ended since the last call; empty if none ended."""
        ready, self._ready = self._ready, {}
        return ready

    def close(self) -> None:
        self._scan = None
        self._log.close()
        self._interrupts.close()
        self._memory.close()
        if self._kernel is not None:
            self._kernel.close()
        if self._new_task_check is not None:
            self._new_task_check.close()

    # --- a scan: it may pause at each yield ----------------------------------------------------

    def _scan_slices(self) -> Iterator[None]:
        seen: dict[str, _TaskReading] = {}
        ran: dict[int, list[_Runner]] = {}
        begun_ns, since_ns = self._now_ns(), self._begun_ns if self._seen else None
        for names in self._processes():
            for name in names:
                last = self._seen.get(name)
                # The clock is read before the file, so time used in between counts in the next
                # scan.
                clock_ns = self._clock_ns(name)
                if last is not None and last.has_rested(self._now_ns(), clock_ns):
                    seen[name] = last
                    continue
                path = f"{self._proc}/{name}/stat"
                if reading := self._read_task(path, last, since_ns, clock_ns):
                    seen[name] = reading
                    is_in_queue = last is not None and last.is_in_queue and reading.stat is not None
                    if reading.share >= MIN_SHARE or is_in_queue:
                        yield from self._add_runners(ran, name, reading, since_ns)
            yield
        if self._is_own_namespace and not self._seen:
            import psutil  # noqa: F401 - in the first scan, whose cost does not count

            yield
        if self._watch is not None:
            stats = ((pid, reading.stat) for pid, reading in seen.items() if reading.stat)
            yield from self._watch.find(stats)
        before, self._seen, self._begun_ns = self._seen, seen, begun_ns
        if not self._checks_end_ns and self._watched_pids():
            self._check_due_ns, self._checks_end_ns = begun_ns, begun_ns + CHECK_SPAN_NS
        interrupts, shares = self._interrupts.record(), self._interrupts.kernel_shares
        if before and seen:
            yield from self._make_records(ran)
            self._ready |= {"interrupts": interrupts} if interrupts else {}
            if ended := self._ended_children(before):
                self._ready["ended_children"] = ended
            if self._kernel is not None and (kernel := self._kernel.record(shares, begun_ns)):
                self._ready["kernel"] = kernel
            if messages := self._log.record():
                self._ready["kernel_log"] = messages
        elif seen:  # the first scan: the baseline for shares of the next second
            self._memory.record(self._watched_pids())
            comms = {pid: reading.stat.comm for pid, reading in seen.items() if reading.stat}
            managers = {pid: comm for pid, comm in comms.items() if comm in MANAGERS}
            self._ready = {"managers": managers} if managers else {}
            if quotas := self._quotas.record(self._watched_pids()):
                self._ready["quotas"] = quotas

    def _processes(self) -> Iterator[list[str]]:
        """Yields the PIDs in batches. The directory is read only if a task was created: with cold
        caches an entry costs the kernel 3 us, more than the clock of its process."""
        may_be_new = self._new_task_check is None or self._new_task_check.has_new_tasks()
        if may_be_new or not self._seen:
            return numbered_batches(self._proc)
        known = iter([*self._seen])
        return iter(lambda: [*islice(known, BATCH_ENTRIES)], [])

    def _make_records(self, ran: dict[int, list[_Runner]]) -> Iterator[None]:
        """Makes the records; the task that ran most on a CPU comes first."""
        count = max(TASKS_PER_CPU, MAX_WAITS // max(1, len(ran)))
        for runners in ran.values():
            runners.sort(key=lambda runner: -runner.reading.share)
            del runners[count:]
        busiest = sorted(chain(*ran.values()), key=lambda runner: -runner.reading.share)[:MAX_WAITS]
        for runner in busiest:
            runner.reading.sums = read_sums(runner.path, self._now_ns)
            yield
        noticed = {runner for runner in chain(*ran.values()) if runner.compare()}
        ran = {cpu: listed for cpu, runners in ran.items()
               if (listed := [runner for runner in runners if runner in noticed])}  # fmt: skip
        busiest = [runner for runner in busiest if runner in noticed]
        for runners in ran.values():
            runners.sort(key=lambda runner: -runner.share())
        details: dict[str, Any] = {}
        if self._is_own_namespace:
            firsts = [runners[0] for runners in ran.values()]
            yield from self._add_details([*firsts, *busiest], details)
        others = {str(cpu): [runner.record() for runner in runners] for cpu, runners in ran.items()}
        waits = {str(cpu): [runner.waits() for runner in runners] for cpu, runners in ran.items()}
        tasks = {cpu: records[0] for cpu, records in others.items()}
        self._ready = {"tasks": tasks, "others": others, "waits": waits}
        self._ready |= {"details": details} if details else {}
        pids = [*self._watched_pids(), *(runner.pid for runner in busiest)]
        if quotas := self._quotas.record(pids):
            self._ready["quotas"] = quotas
        if memory := self._memory.record(self._watched_pids(), pids):
            self._ready["memory"] = memory

    def _ended_children(self, before: dict[str, _TaskReading]) -> dict[str, list[object]]:
        """Returns for each parent its name, the share of time of children that started and ended
        between two scans, and the name of the youngest child that runs now; '' if none runs."""
        counted: dict[int, int] = {}
        """By parent, ticks of children that an earlier scan has seen."""
        gone = [reading.stat for pid, reading in before.items() if pid not in self._seen]
        for stat in gone:
            if stat is not None:
                counted[stat.parent] = counted.get(stat.parent, 0) + stat.ticks + stat.children
        ended: dict[str, tuple[str, float]] = {}
        for pid, reading in self._seen.items():
            last = before.get(pid)
            if last is None or last is reading or last.stat is None or reading.stat is None:
                continue
            if reading.stat.children == last.stat.children:
                continue
            ticks = reading.stat.children - last.stat.children - counted.get(int(pid), 0)
            elapsed_ns = reading.read_ns - last.read_ns
            is_noticeable = ticks * TICK_NS >= MIN_SHARE * elapsed_ns > 0
            if is_noticeable and reading.stat.start == last.stat.start:
                ended[pid] = reading.stat.comm, round(ticks * TICK_NS / elapsed_ns, 4)
        parents = sorted(ended, key=lambda pid: -ended[pid][1])[:MAX_PARENTS]
        running: dict[str, list[tuple[int, str]]] = {pid: [] for pid in parents}
        for reading in self._seen.values() if parents else ():
            if reading.stat is not None and (pid := str(reading.stat.parent)) in running:
                running[pid].append((reading.stat.start, reading.stat.comm))
        return {pid: [*ended[pid], max(running[pid], default=(0, ""))[1]] for pid in parents}

    def _watched_pids(self) -> list[int]:
        return self._watch.pids if self._watch is not None else []

    def _clock_ns(self, pid: str) -> int | None:
        """Returns the CPU time of all threads of a process; None if it has ended, or its clock
        cannot be read."""
        if not self._is_own_namespace:
            return None
        try:
            # the ID of the CPU clock of a process, as clock_getcpuclockid(3) computes it
            return time.clock_gettime_ns(~int(pid) << 3 | 2)
        except OSError:
            return None

    def _read_task(
        self,
        path: str,
        last: _TaskReading | None,
        started_after_ns: int | None = None,
        clock_ns: int | None = None,
    ) -> _TaskReading | None:
        """Reads a process or thread; None if it has ended. If `last` is None, the task started
        after `started_after_ns`; that is None if its start time is unknown."""
        try:
            stat = parse_stat(read(path))
        except TASK_ENDED:
            return None
        except OSError:
            stat = None
        reading = _TaskReading(self._now_ns(), clock_ns, stat)
        reading.read_ns = reading.at_ns
        if stat is None:
            return reading
        if last is None and started_after_ns is not None:
            last = _TaskReading(started_after_ns, 0, stat._replace(ticks=0))
        if last and last.stat and stat.start == last.stat.start:
            elapsed_ns = reading.at_ns - last.at_ns
            ran_ns = (stat.ticks - last.stat.ticks) * TICK_NS
            if clock_ns is not None and last.clock_ns is not None:
                # ticks may include earlier time, so the CPU clock is used
                ran_ns = max(0, clock_ns - last.clock_ns)
            if elapsed_ns > 0:
                reading.share = min(ran_ns, elapsed_ns) / elapsed_ns
        return reading

    def _add_runners(
        self,
        ran: dict[int, list[_Runner]],
        name: str,
        reading: _TaskReading,
        started_after_ns: int | None,
    ) -> Iterator[None]:
        """Adds the process, or each of its threads, to the runners of the CPU where it ran."""
        last, process, path = self._seen.get(name), reading.stat, f"{self._proc}/{name}"
        readings: list[tuple[str, _TaskReading, _TaskReading | None]] = [(path, reading, last)]
        assert process is not None
        if process.threads > 1:
            before = last.threads if last else {}
            if last:  # a thread is known to be new only if the process's threads were read before
                started_after_ns = last.at_ns if before else None
            for tids in numbered_batches(f"{path}/task"):
                for tid in tids:
                    file, known = f"{path}/task/{tid}/stat", before.get(tid)
                    if thread := self._read_task(file, known, started_after_ns):
                        reading.threads[tid] = thread
                yield
            threads = reading.threads.items()
            readings = [(f"{path}/task/{tid}", read, before.get(tid)) for tid, read in threads]
        # a process of several threads
        elif last and (last.stat is None or last.stat.threads != 1):
            return
        for where, task, known in readings:
            is_in_queue = known is not None and known.may_wait
            if task.stat is None or task.stat.cpu not in self._cpus:
                continue
            if task.share < MIN_SHARE and not is_in_queue:
                continue
            runner = _Runner(int(name), where, task, known, process)
            ran.setdefault(task.stat.cpu, []).append(runner)

    def _add_details(self, runners: list[_Runner], details: dict[str, Any]) -> Iterator[None]:
        processes = [(r.pid, r.process.start, r.process.comm) for r in runners]
        for pid, start, _ in self._sent_details.due_processes(processes, self._now_ns()):
            yield
            known = self._seen.get(str(pid))
            parent = self._seen.get(str(known.stat.parent)) if known and known.stat else None
            groups = files.read_text(f"{self._proc}/{pid}/cgroup")
            family = {
                "parent": parent.stat.comm if parent and parent.stat else "",
                "group": group_of(groups), "cpuset": read_cpuset(self._cpusets, groups),
            }  # fmt: skip
            description = process_details(pid) | {key: word for key, word in family.items() if word}
            reading = self._read_task(f"{self._proc}/{pid}/stat", None)
            if description and reading and reading.stat and reading.stat.start == start:
                details[str(pid)] = description
