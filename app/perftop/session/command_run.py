"""The command that perftop ran during a stream, and the footprint of a job: its CPUs and waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfprobe import wire
from perftop.model.tasks import MAX_TIMED_THREADS, Thread, ThreadKey, WatchedJob, drop_oldest
from perftop.session.episodes import run_seconds

MIN_CPU_SHARE = 0.01
"""Minimum share of the job's running time for a CPU to count. Other CPUs ran the job only briefly,
and would lower the mean of the CPUs that did the work."""


class JobFootprint:
    """The CPUs on which a job ran, and how long the job waited for a CPU and for a disk."""

    def __init__(self) -> None:
        self.root = -1
        """PID of the first process of a job that perftop started; -1 if the job was already
        running. Threads and children of a started job count from their own start. All others count
        from their first record, including the first process, which had to wait before."""
        self.is_past_start = False
        """Whether the first record has threads that started long before it."""
        self.seconds: dict[int, float] = {}
        """Seconds for which the job ran, by CPU."""
        self.waited_s: float | None = None
        """Seconds for which all threads together waited for a CPU; None if unknown."""
        self.disk_s: float | None = None
        """Seconds for which all threads together waited for a disk; None if unknown."""
        self.pids: set[int] = set()
        self._run_ns: dict[ThreadKey, tuple[int, int | None]] = {}
        """Nanoseconds for which each thread had run and waited at its last record."""
        self._disk_ns: dict[ThreadKey, int] = {}

    def start(self, root: int) -> None:
        """Handles the start of the job's command in the process `root`, which has waited for it.
        Other threads that are already recorded count from their own start."""
        if self.root != root:
            self.root = root
            for times in (self._run_ns, self._disk_ns):
                for key in [key for key in times if key[1] != root]:
                    del times[key]

    def reset(self) -> None:
        """Resets the sums. The times of each thread until its last record no longer count."""
        self.seconds, self.waited_s, self.disk_s = {}, None, None

    def add_record(self, watched_job: WatchedJob, time_ns: int) -> None:
        """Adds the times of the threads in the frame at `time_ns`."""
        for _ in self.steps(watched_job, time_ns):
            pass

    def steps(self, watched_job: WatchedJob, time_ns: int) -> Iterator[tuple[Thread, float, float]]:
        """Adds the times of the threads in the frame at `time_ns`. Yields each thread with the
        seconds for which it ran and waited since its previous record."""
        if watched_job.time_ns != time_ns:
            return
        is_started = self.root >= 0 and not self.is_past_start
        self.is_past_start = False
        for thread in watched_job.last_threads:
            point, key = thread.points[-1], (thread.pid, thread.tid)
            is_new = is_started and thread.tid != self.root
            times = point.run_ns, point.wait_ns
            run_ns, wait_ns = self._run_ns.pop(key, (0, 0) if is_new else times)
            self._run_ns[key] = times
            ran_s, waited_s = max(0, point.run_ns - run_ns) / 1e9, 0.0
            if point.wait_ns is not None and wait_ns is not None:
                waited_s = max(0, point.wait_ns - wait_ns) / 1e9
                self.waited_s = (self.waited_s or 0.0) + waited_s
            if ran_s:
                self.seconds[thread.cpu] = self.seconds.get(thread.cpu, 0.0) + ran_s
            if (disk_ns := watched_job.disk_ns.get(thread.tid)) is not None:
                before_ns = self._disk_ns.pop(key, 0 if is_new else disk_ns)
                self._disk_ns[key] = disk_ns
                self.disk_s = (self.disk_s or 0.0) + max(0, disk_ns - before_ns) / 1e9
            if len(self.pids) < MAX_TIMED_THREADS:
                self.pids.add(thread.pid)
            yield thread, ran_s, waited_s
        drop_oldest(self._run_ns, MAX_TIMED_THREADS)
        drop_oldest(self._disk_ns, MAX_TIMED_THREADS)

    @property
    def run_s(self) -> float:
        return sum(self.seconds.values())

    def cpus(self) -> list[int]:
        least_s = MIN_CPU_SHARE * self.run_s
        return sorted(cpu for cpu, run_s in self.seconds.items() if run_s >= least_s)


class CommandRun:
    """A command, as described by the notes on its start and end, which are untrusted."""

    def __init__(self) -> None:
        self.start: wire.Note | None = None
        self.end: wire.Note | None = None
        self._job = WatchedJob("", "command")
        """The command, in streams whose watched job is another one."""
        self._footprint = JobFootprint()

    def apply_note(self, note: wire.Note) -> None:
        if note.kind == "run-start":
            self.start, self.end = note, None
        elif note.kind == "run-end":
            self.end = note

    def read_record(self, records: Mapping[str, object], time_ns: int) -> None:
        job = self._job
        if job.read_record(records, time_ns) and job.last_threads:
            # The first record has only the command's process, which has not started it yet.
            if self._footprint.root < 0:
                self._footprint.start(job.last_threads[0].pid)
            self._footprint.add_record(job, time_ns)

    @property
    def pid(self) -> int | None:
        pid = None if self.start is None else self.start.data.get("pid")
        return pid if type(pid) is int and pid > 0 else None

    @property
    def argv(self) -> list[str]:
        argv = None if self.start is None else self.start.data.get("argv")
        return [*map(str, argv)] if isinstance(argv, list) else []

    @property
    def cpu_s(self) -> float:
        """CPU time in s of the command, once it has ended; NaN where unknown."""
        if self.end is None or self.end.data.get("pid") != self.pid:
            return float("nan")
        return run_seconds(self.end, "user_s") + run_seconds(self.end, "sys_s")

    @property
    def footprint(self) -> JobFootprint | None:
        """The times of the command, if the probe recorded it beside its watched job."""
        return self._footprint if self.pid == self._footprint.root else None
