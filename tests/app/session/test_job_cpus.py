"""Where a job ran: from what looks at its threads told."""

from __future__ import annotations

import pytest
from fakes import Does, Machine, seen

from perfprobe import wire
from perftop.model.tasks import WatchedJob
from perftop.output import run_summary
from perftop.session import task_times
from perftop.session.task_times import JobFootprint

MS = 1_000_000
ROOT = 100


class Job:
    def __init__(self) -> None:
        self.watched_job, self.footprint = WatchedJob(str(ROOT)), JobFootprint(ROOT)
        self.now_ns = 0

    def look(self, *threads: tuple[int, int, int, int], after_ms: int = 100) -> JobFootprint:
        """Process, thread, CPU, milliseconds run since birth."""
        self.now_ns += after_ms * MS
        told = {str(t): [p, "job", cpu, ran * MS, 0, 0, 0] for p, t, cpu, ran in threads}
        self.watched_job.take({"watched": {"threads": told, "more": 0}}, self.now_ns)
        self.footprint.take(self.watched_job, self.now_ns)
        return self.footprint


def test_time_goes_to_the_cpu_where_it_ran_last() -> None:
    job = Job()
    job.look((ROOT, ROOT, 3, 30))
    job.look((ROOT, ROOT, 3, 90), (101, 101, 5, 40))
    found = job.look((ROOT, ROOT, 4, 91), (101, 101, 5, 140))
    # 30 ms of the first were before it was let go; a child's are all the job's.
    assert found.seconds == pytest.approx({3: 0.06, 4: 0.001, 5: 0.14})
    assert found.seen_s == pytest.approx(0.201)
    assert found.cpus() == [3, 5], "a visit of 1 ms is none of the CPUs it worked on"


def test_a_record_counts_once() -> None:
    job = Job()
    job.look((101, 101, 0, 50))
    job.footprint.take(job.watched_job, job.now_ns + 100 * MS)
    assert job.footprint.seen_s == pytest.approx(0.05)


def test_waiting_for_a_disk_is_that_of_the_command_since_its_start() -> None:
    job = Job()
    assert job.look((ROOT, ROOT, 0, 30)).disk_s is None
    for disk_ms in ({ROOT: 500}, {ROOT: 700, 101: 90}):
        job.now_ns += 100 * MS
        threads = {str(tid): [tid, "job", 0, 40 * MS, 0, 0, 0] for tid in disk_ms}
        disk = {str(tid): ms * MS for tid, ms in disk_ms.items()} | {"x": 1, "7": -1}
        job.watched_job.take({"watched": {"threads": threads, "disk": disk}}, job.now_ns)
        job.footprint.take(job.watched_job, job.now_ns)
    assert job.footprint.disk_s == pytest.approx(0.2 + 0.09)


def test_who_was_not_told_of_for_long_is_no_stranger() -> None:
    """Frames were lost; the watched threads are forgotten sooner than what they ran."""
    job = Job()
    job.look((101, 101, 0, 50))
    job.look((102, 102, 1, 10), after_ms=60_000)
    assert 101 not in job.watched_job.threads
    assert job.look((101, 101, 0, 80)).seconds == pytest.approx({0: 0.08, 1: 0.01})


def test_nobody_was_seen() -> None:
    assert Job().footprint.cpus() == []
    job = Job()
    assert job.look((ROOT, ROOT, 0, 20)).cpus() == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_times, "MAX_THREADS", 8)
    job = Job()
    for tid in range(200, 240):
        job.look((tid, tid, 0, 1))
    assert len(job.footprint._run_ns) == 8
    assert job.footprint.seen_s == pytest.approx(0.04)


def test_the_summary_tells_its_cpus_from_the_rest() -> None:
    does = {cpu: Does(0.2 * (cpu + 1)) for cpu in range(4)}
    session, _ = seen(Machine(cores=2, does=does), 20)
    job = Job()
    job.look((101, 101, 1, 0))
    line = run_summary.summary_line(session, {}, 2.0, None, job.look((101, 101, 1, 100)))
    assert (line["job"]["cpus"], line["rest"]["cpus"]) == ([1], [0, 2, 3])
    assert line["job"]["seen_s"] == pytest.approx(0.1)
    assert line["job"]["util"]["mean"] == pytest.approx(0.4, rel=1e-3)
    assert line["rest"]["util"]["mean"] == pytest.approx((0.2 + 0.6 + 0.8) / 3, rel=1e-3)
    line = run_summary.summary_line(session, {}, 2.0, None, Job().footprint)
    assert (line["job"], line["rest"]) == (None, None)


def test_a_cpu_that_is_off_is_none_of_the_rest() -> None:
    session, _ = seen(Machine(cores=2), 20)
    session.apply(wire.Note("hotplug", session.now_ns, data={"cpu": 3, "online": False}))
    job = Job()
    job.look((101, 101, 1, 0))
    line = run_summary.summary_line(session, {}, 2.0, None, job.look((101, 101, 1, 100)))
    assert (line["job"]["cpus"], line["rest"]["cpus"]) == ([1], [0, 2])


def test_waiting_is_that_of_the_command_since_its_start() -> None:
    job = Job()
    job.watched_job.take({"watched": {"threads": {
        "100": [ROOT, "job", 0, 10 * MS, 30 * MS, 0, 0]}, "more": 0}}, MS)  # fmt: skip
    job.footprint.take(job.watched_job, MS)
    job.watched_job.take({"watched": {"threads": {
        "100": [ROOT, "job", 0, 20 * MS, 50 * MS, 0, 0],
        "101": [101, "job", 1, 20 * MS, 40 * MS, 0, 0]}, "more": 0}}, 2 * MS)  # fmt: skip
    job.footprint.take(job.watched_job, 2 * MS)
    assert job.footprint.waited_s == pytest.approx(0.06)
    assert job.footprint.pids == {ROOT, 101}
