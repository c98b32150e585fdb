"""Finds the tasks that ran most on each CPU since the last scan, from /proc. A scan visits all
processes about once a second, in slices between frames.

Most processes have hardly run since the last scan. Their CPU clock shows that with one system call,
so their files are not read. Threads are read only if their process used noticeable time. So a
process that wakes up is reported by the next scan, or one scan later if it has several threads. One
read is enough for a task that started after the last scan.

Tasks that ended before a scan are missed; their time is in the sums of their parent. All of a
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
    ProcessId,
    SchedSums,
    SentDetails,
    TaskRates,
    TaskStat,
    control_group_of,
    numbered_batches,
    parse_stat,
    process_details,
    read_file,
    read_sums,
)

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import WatchedJob

SCAN_PERIOD_NS = 1_000_000_000
"""Minimum time in ns between two scans; ticks of 10 ms are too coarse for a shorter one."""
PAUSE_FACTOR = 100
"""Minimum pause after a scan, as a multiple of its CPU time (scans use at most 1 % of a CPU)."""
MAX_SLICE_NS = 2_000_000  # maximum length in ns of a slice of a scan, which may delay a frame
MIN_TASK_SHARE = 0.02
"""Minimum reported share of a CPU: user and system time are rounded to ticks of 10 ms."""
TASKS_PER_CPU = 3
"""Number of reported tasks for each CPU. If tasks ran on few CPUs, more are reported, up to
MAX_WAITS in total: among tasks that share a CPU, those that ran least waited most."""
MAX_PARENTS = 8
"""Maximum number of processes, those with the most time, whose ended children are reported."""
CHECK_SPAN_NS, MIN_CHECK_NS, MAX_CHECK_NS = 3_000_000_000, 20_000_000, 100_000_000
"""Time in ns after the first scan that finds a watched process, for which perfprobe checks whether
watched processes have new children or have moved to another control group; and bounds of the time
between two checks. It is a fifth of the time since that scan, because a process usually joins a
group at its start, and stops by the group's quota are missed until the next check."""
MAX_CHECKED_PIDS = 8
"""Maximum number of watched processes in such a check, which takes about 15 us for each."""
POWER_MANAGERS = {"thermald", "tuned", "intel_lpmd", "auto-cpufreq", "power-profiles-"}
"""Names of programs that may lower limits of power and clock while the machine runs."""
MAX_WAITS = 64
"""Maximum number of tasks, the busiest, whose waits are reported; each takes about 20 us."""


@dataclass(slots=True, eq=False)
class _TaskReading:
    """The values of a process or thread when it was last read."""

    valid_until_ns: int
    """Time in ns up to which the values are valid."""
    clock_ns: int | None
    """The process's CPU clock at that time."""
    stat: TaskStat | None
    """None if the stat file cannot be read."""
    read_ns: int
    """Time in ns at which the stat file was read."""
    share: float = 0.0
    """Share of the time since the previous read for which the task ran; 0 if unknown."""
    sums: SchedSums | None = None
    """Sums of running and waiting time; None if they were not read."""
    may_wait: bool = False
    """Whether the task may have waited for a CPU; if so, the next scan reads it even if idle."""
    threads: dict[str, _TaskReading] = field(default_factory=dict)

    def has_rested(self, now_ns: int, clock_ns: int | None) -> bool:
        """Returns whether a process has run too little since this read to be reported, by its CPU
        clock; the reading is then valid until the present. A process whose threads are read must
        not have run at all, because its clock is the sum of all threads."""
        if self.clock_ns is None or clock_ns is None or self.is_in_queue:
            return False
        max_ns = 0 if self.threads else MIN_TASK_SHARE * (now_ns - self.valid_until_ns)
        if not 0 <= clock_ns - self.clock_ns <= max_ns:
            return False
        self.valid_until_ns, self.clock_ns, self.sums = now_ns, clock_ns, None
        for thread in self.threads.values():
            thread.valid_until_ns, thread.sums = now_ns, None
        return True

    @property
    def is_in_queue(self) -> bool:
        threads = self.threads.values()  # `threads` is checked first, because it is usually empty
        return self.may_wait or (bool(threads) and any(thread.may_wait for thread in threads))


@dataclass(slots=True, eq=False)
class _RunningTask:
    """A task that ran or may have waited since the last scan."""

    pid: int
    path: str
    """Directory of the task in /proc."""
    reading: _TaskReading
    previous: _TaskReading | None
    process: TaskStat
    rates: TaskRates = field(default_factory=TaskRates)
    """Rates since the previous read; unknown if either read has no sums."""

    @property
    def stat(self) -> TaskStat:
        assert self.reading.stat is not None
        return self.reading.stat

    def compute_rates(self) -> bool:
        """Computes `rates` and the reading's `may_wait`. Returns whether the task ran or waited for
        at least MIN_TASK_SHARE of the time."""
        last, reading = self.previous, self.reading
        start_ticks = None if last is None or last.stat is None else last.stat.start_ticks
        is_same = last is not None and start_ticks == self.stat.start_ticks
        old_sums = last.sums if last is not None else None
        if reading.sums is not None and old_sums is not None and is_same:
            self.rates = reading.sums.rates_since(old_sums)
        wait = self.rates.wait_share or 0.0
        reading.may_wait = reading.sums is not None and (old_sums is None or wait >= MIN_TASK_SHARE)
        return reading.share >= MIN_TASK_SHARE or wait >= MIN_TASK_SHARE

    def share(self) -> float:
        """Returns the share of time for which the task ran, by the scheduler's count; by ticks of
        10 ms if that is unknown."""
        run = self.rates.run_share
        return round(self.reading.share, 4) if run is None else run


def _non_empty(**records: Any) -> dict[str, Any]:
    return {name: record for name, record in records.items() if record}


class TaskScanner:
    """Scans all tasks repeatedly and makes the frame's records of them. `cpus` are the CPUs to
    report. `watch` is a job whose threads are searched for in each scan; the caller closes it.
    `spent_ns` returns the CPU time of the thread that calls `scan_slice`."""

    def __init__(
        self,
        root: Path,
        cpus: Collection[int],
        watch: WatchedJob | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        spent_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._proc = f"{root}/proc"
        self._cpus, self._watch = cpus, watch
        self._now_ns, self._spent_ns = now_ns, spent_ns
        # In a container, /proc may show another PID namespace, whose PIDs are invalid in system
        # calls.
        self._is_own_namespace = root == Path("/") and Path("/proc/self").resolve().name == str(
            os.getpid()
        )
        self._new_task_check = NewTaskCheck(self._proc) if self._is_own_namespace else None
        self._readings: dict[str, _TaskReading] = {}
        self._scan_start_ns = 0
        """Start of the last complete scan; a task that is not in `_readings` started later."""
        self._sent_details = SentDetails()
        self._quotas, self._cpusets = Quotas(root), hierarchy(root, "cpuset")
        self._interrupts, self._memory = Interrupts(root, now_ns), MemoryStalls(root)
        self._log = KernelLog(root)
        may_sample = self._is_own_namespace and access.perf_problem(root) is None
        self._kernel = KernelProfile() if may_sample else None
        self._scan: Iterator[None] | None = None
        self._next_ns = now_ns()
        self._cost_ns = 0
        self._ready: dict[str, Any] = {}
        self._check_due_ns: float = inf
        self._checks_end_ns = 0
        """Times in ns of the next check of watched processes' control groups, and of the end of
        these checks (0 before a watched process is found)."""
        self._joined_quotas: dict[str, Any] = {}
        """The "quotas" record made just after a watched process joined another control group: the
        baseline of the job's throttling."""

    def due_s(self) -> float:
        """Returns the next time for `scan_slice`, in s of time.monotonic()."""
        return 0.0 if self._scan else self._next_ns / 1e9

    def scan_slice(self, early_ns: int = 0) -> None:
        """Runs a slice of a scan if one is due within `early_ns`."""
        start_ns, spent_ns = self._now_ns(), self._spent_ns()
        if self._scan is None:
            if start_ns < self._next_ns - early_ns:
                return
            self._scan, self._cost_ns = self._scan_slices(), 0
        is_first = not self._readings  # it reads all files, so its cost does not count
        for _ in self._scan:
            if self._now_ns() - start_ns >= MAX_SLICE_NS:
                break
        else:
            self._scan = None
        self._cost_ns += self._spent_ns() - spent_ns
        if self._scan is None:
            rest_ns = 0 if is_first else PAUSE_FACTOR * self._cost_ns
            self._next_ns = self._now_ns() + max(SCAN_PERIOD_NS, rest_ns)

    def next_check_s(self) -> float:
        """Returns when `check_watched_processes` is due, in s of time.monotonic(), or infinity."""
        return self._check_due_ns / 1e9

    def check_watched_processes(self) -> bool:
        """If a check is due, finds new children of a watched tree, and records the quota counts of
        control groups that a watched process has just joined. Returns whether a check was due."""
        now_ns = self._now_ns()
        if now_ns < self._check_due_ns:
            return False
        watched_ns = now_ns - self._checks_end_ns + CHECK_SPAN_NS
        pause_ns = min(max(watched_ns // 5, MIN_CHECK_NS), MAX_CHECK_NS)
        self._check_due_ns = now_ns + pause_ns if watched_ns < CHECK_SPAN_NS else inf
        if self._watch is not None and self._scan is None:
            self._watch.find_children()
        if not self._joined_quotas and self._quotas.has_moved(
            self._watched_pids()[:MAX_CHECKED_PIDS]
        ):
            self._joined_quotas = _non_empty(quotas=self._quotas.record(self._watched_pids()))
        return True

    def take_joined_quotas(self) -> dict[str, Any]:
        """Returns the record of control groups that a watched process has joined; usually empty. It
        belongs in an earlier frame than the result of `take_records`."""
        quotas, self._joined_quotas = self._joined_quotas, {}
        return quotas

    def final_quotas(self) -> dict[str, Any]:
        """Returns the present quota counts of a process that has ended; usually empty."""
        return _non_empty(quotas=self._quotas.updated_record())

    def take_records(self) -> dict[str, Any]:
        """Returns the records of a scan that ended since the last call; empty if none ended."""
        records, self._ready = self._ready, {}
        return records

    def close(self) -> None:
        self._scan = None
        self._log.close()
        self._interrupts.close()
        self._memory.close()
        if self._kernel is not None:
            self._kernel.close()
        if self._new_task_check is not None:
            self._new_task_check.close()

    # --- a scan, which may pause at each yield -------------------------------------------------

    def _scan_slices(self) -> Iterator[None]:
        new_readings: dict[str, _TaskReading] = {}
        by_cpu: dict[int, list[_RunningTask]] = {}
        start_ns, since_ns = self._now_ns(), self._scan_start_ns if self._readings else None
        # /proc is listed only if a task was created: with cold caches an entry costs the kernel
        # 3 us, more than a read of the process's CPU clock.
        may_be_new = self._new_task_check is None or self._new_task_check.has_new_tasks()
        batches = numbered_batches(self._proc)
        if self._readings and not may_be_new:
            known_pids = iter([*self._readings])
            batches = iter(lambda: [*islice(known_pids, BATCH_ENTRIES)], [])
        for names in batches:
            for name in names:
                last = self._readings.get(name)
                # The CPU clock is read before the stat file, so that no time is counted twice.
                clock_ns = self._clock_ns(name)
                if last is not None and last.has_rested(self._now_ns(), clock_ns):
                    new_readings[name] = last
                    continue
                path = f"{self._proc}/{name}/stat"
                if reading := self._read_task(path, last, since_ns, clock_ns):
                    new_readings[name] = reading
                    is_in_queue = last is not None and last.is_in_queue and reading.stat is not None
                    if reading.share >= MIN_TASK_SHARE or is_in_queue:
                        yield from self._add_runners(by_cpu, name, reading, since_ns)
            yield
        if self._watch is not None:
            stats = ((pid, reading.stat) for pid, reading in new_readings.items() if reading.stat)
            yield from self._watch.find_threads(stats)
        old_readings, self._readings, self._scan_start_ns = self._readings, new_readings, start_ns
        if not self._checks_end_ns and self._watched_pids():
            self._check_due_ns, self._checks_end_ns = start_ns, start_ns + CHECK_SPAN_NS
        interrupts, shares = self._interrupts.record(), self._interrupts.kernel_shares
        if old_readings and new_readings:
            yield from self._make_records(by_cpu)
            self._ready |= _non_empty(
                interrupts=interrupts,
                ended_children=self._ended_children(old_readings),
                kernel=self._kernel and self._kernel.record(shares, start_ns),
                kernel_log=self._log.record(),
            )
        elif new_readings:  # the first scan: the baseline for shares of the next second
            self._memory.record(self._watched_pids())
            comms = {pid: task.stat.comm for pid, task in new_readings.items() if task.stat}
            managers = {pid: comm for pid, comm in comms.items() if comm in POWER_MANAGERS}
            quotas = self._quotas.record(self._watched_pids())
            self._ready = _non_empty(managers=managers, quotas=quotas)

    def _make_records(self, by_cpu: dict[int, list[_RunningTask]]) -> Iterator[None]:
        """Builds the records of the tasks that ran on each CPU, busiest first."""
        count = max(TASKS_PER_CPU, MAX_WAITS // max(1, len(by_cpu)))
        for runners in by_cpu.values():
            runners.sort(key=lambda runner: -runner.reading.share)
            del runners[count:]
        busiest = sorted(chain(*by_cpu.values()), key=lambda task: -task.reading.share)[:MAX_WAITS]
        for runner in busiest:
            runner.reading.sums = read_sums(runner.path, self._now_ns)
            yield
        noticeable = {runner for runner in chain(*by_cpu.values()) if runner.compute_rates()}
        for cpu, runners in by_cpu.items():
            by_cpu[cpu] = [runner for runner in runners if runner in noticeable]
        by_cpu = {cpu: runners for cpu, runners in by_cpu.items() if runners}
        busiest = [runner for runner in busiest if runner in noticeable]
        for runners in by_cpu.values():
            runners.sort(key=lambda runner: -runner.share())
        details: dict[str, Any] = {}
        if self._is_own_namespace:
            runners = [*(runners[0] for runners in by_cpu.values()), *busiest]
            processes = [(r.pid, r.process.start_ticks, r.process.comm) for r in runners]
            # A starved process is not among those that ran.
            watched = ((pid, self._readings.get(str(pid))) for pid in self._watched_pids())
            processes += [
                (pid, reading.stat.start_ticks, reading.stat.comm)
                for pid, reading in islice(watched, MAX_CHECKED_PIDS)
                if reading is not None and reading.stat is not None
            ]
            yield from self._add_details(processes, details)
        other_counts, waits = {}, {}
        for cpu, runners in by_cpu.items():
            other_counts[str(cpu)] = [[task.pid, task.stat.comm, task.share()] for task in runners]
            waits[str(cpu)] = [[*task.rates[1:]] for task in runners]
        tasks = {cpu: records[0] for cpu, records in other_counts.items()}
        pids = [*self._watched_pids(), *(runner.pid for runner in busiest)]
        quotas, memory = self._quotas.record(pids), self._memory.record(self._watched_pids(), pids)
        self._ready = {"tasks": tasks, "others": other_counts, "waits": waits}
        self._ready |= _non_empty(details=details, quotas=quotas, memory=memory)

    def _ended_children(self, old: dict[str, _TaskReading]) -> dict[str, list[object]]:
        """Returns, by parent's PID: its name, the share of a CPU used by children that started and
        ended between two scans, and the name of its youngest running child ('' if none)."""
        counted: dict[int, int] = {}
        """By parent, ticks of ended children that the last scan counted."""
        ended_stats = [reading.stat for pid, reading in old.items() if pid not in self._readings]
        for stat in ended_stats:
            if stat is not None:
                counted[stat.parent_pid] = (
                    counted.get(stat.parent_pid, 0) + stat.cpu_ticks + stat.children_ticks
                )
        ended_by_parent: dict[str, tuple[str, float]] = {}
        for pid, reading in self._readings.items():
            last = old.get(pid)
            if last is None or last is reading or last.stat is None or reading.stat is None:
                continue
            if reading.stat.children_ticks == last.stat.children_ticks:
                continue
            ticks = (
                reading.stat.children_ticks - last.stat.children_ticks - counted.get(int(pid), 0)
            )
            elapsed_ns = reading.read_ns - last.read_ns
            is_noticeable = ticks * TICK_NS >= MIN_TASK_SHARE * elapsed_ns > 0
            if is_noticeable and reading.stat.start_ticks == last.stat.start_ticks:
                ended_by_parent[pid] = reading.stat.comm, round(ticks * TICK_NS / elapsed_ns, 4)
        parents = sorted(ended_by_parent, key=lambda pid: -ended_by_parent[pid][1])[:MAX_PARENTS]
        running: dict[str, list[tuple[int, str]]] = {pid: [] for pid in parents}
        for reading in self._readings.values() if parents else ():
            if reading.stat is not None and (pid := str(reading.stat.parent_pid)) in running:
                running[pid].append((reading.stat.start_ticks, reading.stat.comm))
        return {
            pid: [*ended_by_parent[pid], max(running[pid], default=(0, ""))[1]] for pid in parents
        }

    def _watched_pids(self) -> list[int]:
        return self._watch.pids if self._watch is not None else []

    def _clock_ns(self, pid: str) -> int | None:
        """Returns the CPU time of a process's threads; None if it has ended or is unreadable."""
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
        """Reads the stat file `path` of a process or thread; None if it has ended. Without `last`,
        the previous reading, the task started after `started_after_ns` (None: unknown)."""
        try:
            stat = parse_stat(read_file(path))
        except TASK_ENDED:
            return None
        except OSError:
            stat = None
        now_ns = self._now_ns()
        reading = _TaskReading(now_ns, clock_ns, stat, now_ns)
        if stat is None:
            return reading
        if last is None and started_after_ns is not None:
            last = _TaskReading(started_after_ns, 0, stat._replace(cpu_ticks=0), started_after_ns)
        if last and last.stat and stat.start_ticks == last.stat.start_ticks:
            elapsed_ns = reading.valid_until_ns - last.valid_until_ns
            ran_ns = (stat.cpu_ticks - last.stat.cpu_ticks) * TICK_NS
            if clock_ns is not None and last.clock_ns is not None:
                # ticks of 10 ms may include earlier time; the CPU clock is exact
                ran_ns = max(0, clock_ns - last.clock_ns)
            if elapsed_ns > 0:
                reading.share = min(ran_ns, elapsed_ns) / elapsed_ns
        return reading

    def _add_runners(
        self,
        by_cpu: dict[int, list[_RunningTask]],
        name: str,
        reading: _TaskReading,
        started_after_ns: int | None,
    ) -> Iterator[None]:
        """Adds a process, or each of its threads, to `by_cpu`, under the CPU where it last ran."""
        last, process, path = self._readings.get(name), reading.stat, f"{self._proc}/{name}"
        readings: list[tuple[str, _TaskReading, _TaskReading | None]] = [(path, reading, last)]
        assert process is not None
        if process.thread_count > 1:
            old_threads = last.threads if last else {}
            if last:  # a thread is certainly new only if the process's threads were read before
                started_after_ns = last.valid_until_ns if old_threads else None
            for tids in numbered_batches(f"{path}/task"):
                for tid in tids:
                    file, previous = f"{path}/task/{tid}/stat", old_threads.get(tid)
                    if thread := self._read_task(file, previous, started_after_ns):
                        reading.threads[tid] = thread
                yield
            threads = reading.threads.items()
            readings = [(f"{path}/task/{tid}", read, old_threads.get(tid)) for tid, read in threads]
        # the process had several threads at the last scan
        elif last and (last.stat is None or last.stat.thread_count != 1):
            return
        for task_path, task, previous in readings:
            is_in_queue = previous is not None and previous.may_wait
            if task.stat is None or task.stat.last_cpu not in self._cpus:
                continue
            if task.share < MIN_TASK_SHARE and not is_in_queue:
                continue
            runner = _RunningTask(int(name), task_path, task, previous, process)
            by_cpu.setdefault(task.stat.last_cpu, []).append(runner)

    def _add_details(self, processes: list[ProcessId], details: dict[str, Any]) -> Iterator[None]:
        for pid, start, _ in self._sent_details.due_processes(processes, self._now_ns()):
            yield
            last = self._readings.get(str(pid))
            pid_of_parent = last.stat.parent_pid if last and last.stat else 0
            parent = self._readings.get(str(pid_of_parent))
            groups = files.read_text(f"{self._proc}/{pid}/cgroup")
            family = {
                "parent": parent.stat.comm if parent and parent.stat else "",
                "group": control_group_of(groups),
                "cpuset": read_cpuset(self._cpusets, groups),
            }
            description = process_details(pid) | {key: word for key, word in family.items() if word}
            reading = self._read_task(f"{self._proc}/{pid}/stat", None)
            if description and reading and reading.stat and reading.stat.start_ticks == start:
                details[str(pid)] = description
