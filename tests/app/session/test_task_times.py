"""Running and waiting times of tasks, numbers of busy CPUs, and the data of a summary."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine, observe
from sessions import TICKS, session_of
from sim_streams import messages_lasting
from synth import frame
from why_reports import end_command

from perfprobe import wire
from perftop.model.numbers import METRICS
from perftop.model.sample_reader import StackedSamples
from perftop.model.tasks import TaskSnapshot, WatchedJob
from perftop.output import run_summary
from perftop.output.why_report import report
from perftop.session import command_run, task_times
from perftop.session.command_run import JobFootprint
from perftop.session.history import History
from perftop.session.interval import Distribution, _percentile
from perftop.session.run_phases import BusyCpus
from perftop.session.session import Session
from perftop.session.task_times import RunTimes, TaskTimes

MS = 1_000_000
ROOT = 100


class WatchedThreads:
    def __init__(self) -> None:
        self.watched_job, self.footprint = WatchedJob(str(ROOT)), JobFootprint()
        self.footprint.start(ROOT)
        self.now_ns = 0

    def add_record(self, *threads: tuple[int, int, int, int], after_ms: int = 100) -> JobFootprint:
        """Adds a record. Each thread is (process, thread, CPU, run time in ms)."""
        self.now_ns += after_ms * MS
        results = {str(t): [p, "job", cpu, ran * MS, 0, 0, 0] for p, t, cpu, ran in threads}
        self.watched_job.read_record({"watched": {"threads": results, "more": 0}}, self.now_ns)
        self.footprint.add_record(self.watched_job, self.now_ns)
        return self.footprint


def test_time_counts_for_the_cpu_that_the_thread_ran_on_last() -> None:
    job = WatchedThreads()
    job.add_record((ROOT, ROOT, 3, 30))
    job.add_record((ROOT, ROOT, 3, 90), (101, 101, 5, 40))
    result = job.add_record((ROOT, ROOT, 4, 91), (101, 101, 5, 140))
    # The first 30 ms precede the start of the command; all time of a child counts.
    assert result.seconds == pytest.approx({3: 0.06, 4: 0.001, 5: 0.14})
    assert result.run_s == pytest.approx(0.201)
    assert result.cpus() == [3, 5], "a visit of 1 ms is none of the CPUs it worked on"


def test_a_record_is_counted_once() -> None:
    job = WatchedThreads()
    job.add_record((101, 101, 0, 50))
    job.footprint.add_record(job.watched_job, job.now_ns + 100 * MS)
    assert job.footprint.run_s == pytest.approx(0.05)


def test_the_share_of_waiting_is_of_the_time_whose_waits_are_known() -> None:
    """Two tasks share a CPU, so each waits for half of its time. The first of the records, one a
    second, has no waits, because the probe takes differences."""
    times, ran = RunTimes([0]), [[1, "a", 0.5], [2, "b", 0.5]]
    for second in (1, 2, 3):
        records: dict[str, object] = {"tasks": {"0": ran[0]}, "others": {"0": ran}}
        if second > 1:
            records["waits"] = {"0": [[0.5, 10.0], [0.5, 10.0]]}
        snapshot = TaskSnapshot.from_records(records)
        assert snapshot is not None
        times.add_snapshot(snapshot, 0, second * 1_000_000_000)
    task = times.tasks[1, "a", 0]
    assert (task.run_s, task.wait_s, task.wanted_s) == (1.5, 1.0, 2.0)
    assert task.by_cpu == {0: 2.0}
    later = times.minus(RunTimes([0]), 3.0)
    assert later.tasks[1, "a", 0].wanted_s == 2.0


def test_the_times_since_an_earlier_record_are_differences() -> None:
    earlier = TaskTimes("job").with_record(1, 0.5, 0.25, 3).with_record(1, 0.5, None)
    earlier = earlier.with_state("S", 0.5, 0.25, 7)
    later = earlier.with_record(1, 0.125, None).with_record(2, 1.0, 0.5, 1)
    later = later.with_state("D", 2.0, 1.5, 4).with_state("S", 1.0, 0.5)
    since = later.minus(earlier)
    assert since == TaskTimes(
        "job", 1.125, 0.5, {2: 1.5}, 3.0, 2.0, {"S": 1.0, "D": 2.0}, 1, 0.25, 0.125, 2.0, 4
    )
    shorter, unknown = later.with_record(1, 0.0, 0.125, 7), later.with_record(1, 0.0, 0.125)
    assert shorter.minus(later).longest_s == 0.125 / 8
    assert unknown.minus(later).longest_s == 0, "as many waits as you like"


@pytest.mark.parametrize(("span_s", "longest_s"), [(0.5, 0.5), (4.0, 3.0)])
def test_a_wait_that_began_earlier_is_at_most_as_long_as_the_span(
    span_s: float, longest_s: float
) -> None:
    """The kernel counts a wait at its end."""
    times = RunTimes([0])
    times.threads[ROOT, ROOT] = TaskTimes("job").with_record(0, 0.25, 3.0, 0)
    since = times.minus(RunTimes([0]), span_s)
    assert (since.longest_wait_s, times.longest_wait_s) == (longest_s, 3.0)


def times_in_states(*letters: str, ran: float = 0.0, waited: float = 0.0) -> RunTimes:
    """A thread that is read every 100 ms, each time in one of these states. `ran` and `waited` are
    shares of the time that ends in state R."""
    job, times = WatchedJob(str(ROOT)), RunTimes([0, 1])
    run_ns = wait_ns = 0
    for at, letter in enumerate(letters):
        run_ns += round(100 * MS * ran) if letter == "R" else 0
        wait_ns += round(100 * MS * waited) if letter == "R" else 0
        threads = {"100": [ROOT, "job", 1, run_ns, wait_ns, 0, 0]}
        states = {"100": letter, "x": "R", "7": 3}
        record = {"watched": {"threads": threads, "more": 0, "states": states}}
        job.read_record(record, (at + 1) * 100 * MS)
        times.add_job_record(job, (at + 1) * 100 * MS)
    return times


@pytest.mark.parametrize(("letters", "seconds"), [
    ("R" * 21, {"ran_s": 1.0, "waited_s": 0.5, "slept_s": 0.5}),
    ("R" * 11 + "T" * 10, {"ran_s": 0.5, "waited_s": 0.25, "slept_s": 0.25, "stopped_s": 1.0}),
    ("S" * 6 + "t" * 5 + "F" * 5, {"slept_s": 0.5, "stopped_s": 1.0}),
    ("S" * 11 + "D" * 10, {"slept_s": 1.0, "blocked_s": 1.0}),
    ("R" * 15 + "D" * 5 + "R", {"ran_s": 0.75, "waited_s": 0.375, "blocked_s": 0.875}),
    ("S" * 11 + "Z" * 10, {"slept_s": 1.0}),
])  # fmt: skip
def test_the_time_of_a_job_is_split_by_the_states_of_its_threads(
    letters: str, seconds: dict[str, float]
) -> None:
    times = times_in_states(*letters, ran=0.5, waited=0.25).job_time()
    assert times is not None
    assert times._asdict() == pytest.approx(dict.fromkeys(times._fields, 0.0) | seconds, abs=0.06)


@pytest.mark.parametrize(("counted_s", "stalled_s", "disk_s"), [
    (None, 5.0, 1.0), (None, 0.25, 0.25), (0.25, 5.0, 0.25), (1.5, 0.0, 1.5), (None, 0.0, 0.0),
])  # fmt: skip
def test_a_blocked_thread_waited_for_a_disk_only_as_long_as_io_pressure_allows(
    counted_s: float | None, stalled_s: float, disk_s: float
) -> None:
    """The kernel's own count of the thread's waits, if there is one, replaces this bound."""
    times = times_in_states(*"S" * 11, *"D" * 10)
    times.job.disk_s, times.io_stall_s = counted_s, stalled_s
    job_time = times.job_time()
    assert job_time is not None
    assert (job_time.disk_s, job_time.blocked_s) == pytest.approx((disk_s, max(0, 1 - disk_s)))
    assert sum(job_time) == pytest.approx(2.0)


def test_sleeps_after_split_locks_have_a_typical_length() -> None:
    times = RunTimes([0, 1])
    for tid, rest_s in enumerate((0.0156, 0.016, 0.1, 0.1004, 0.05)):
        times.threads[7, tid] = TaskTimes(
            "job", by_cpu={0: 0.5, 1: 1.0}, elapsed_s=rest_s, sleeps=4
        )
    assert times.split_locks_by_cpu(range(4)).tolist() == [0.0, pytest.approx(0.116)]


def test_io_pressure_bounds_the_waits_of_one_task() -> None:
    """The kernel averages it over the CPUs in use: at least one, and at most all eight."""
    hello, messages = messages_lasting("sim:guest,cpus=8,seed=2", 30)
    session = Session(hello)
    session.run.track_losses()
    session.neighbours.watched_job.name = "job"
    session_of(session, messages)
    stalled_s = session.run_interval().machine["pressure_io"] * session.run.totals().elapsed_s
    assert 0 < 1.05 * stalled_s < session.run.times.io_stall_s < 8 * stalled_s
    later = session.run.times.minus(session.run.times.copy(), 0.0)
    assert later.io_stall_s == 0


def test_a_stop_costs_the_expected_run_time() -> None:
    busy = times_in_states(*"R" * 11, *"T" * 10, ran=1.0)
    assert busy.by_cpu("stop_loss_s").tolist() == pytest.approx([0.0, 1.0], abs=0.06)
    assert times_in_states(*"S" * 11, *"T" * 10).by_cpu("stop_loss_s").sum() == 0


def test_disk_waits_are_counted_from_the_start_of_the_command() -> None:
    job = WatchedThreads()
    assert job.add_record((ROOT, ROOT, 0, 30)).disk_s is None
    for disk_ms in ({ROOT: 500}, {ROOT: 700, 101: 90}):
        job.now_ns += 100 * MS
        threads = {str(tid): [tid, "job", 0, 40 * MS, 0, 0, 0] for tid in disk_ms}
        disk = {str(tid): ms * MS for tid, ms in disk_ms.items()} | {"x": 1, "7": -1}
        job.watched_job.read_record({"watched": {"threads": threads, "disk": disk}}, job.now_ns)
        job.footprint.add_record(job.watched_job, job.now_ns)
    assert job.footprint.disk_s == pytest.approx(0.2 + 0.09)


def test_threads_missing_for_long_keep_their_times() -> None:
    """Frames were lost; watched threads are dropped sooner than their run times."""
    job = WatchedThreads()
    job.add_record((101, 101, 0, 50))
    job.add_record((102, 102, 1, 10), after_ms=60_000)
    assert 101 not in job.watched_job.threads
    assert job.add_record((101, 101, 0, 80)).seconds == pytest.approx({0: 0.08, 1: 0.01})


def test_a_job_without_a_sample_has_no_cpus() -> None:
    assert WatchedThreads().footprint.cpus() == []
    job = WatchedThreads()
    assert job.add_record((ROOT, ROOT, 0, 20)).cpus() == []


@pytest.mark.parametrize("at_once", [1, 20])
def test_the_number_of_kept_threads_and_tasks_is_limited(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they come one by one or many at once, the newest are kept."""
    for module in (command_run, task_times):
        monkeypatch.setattr(module, "MAX_TIMED_THREADS", 8)
    monkeypatch.setattr(task_times, "MAX_TASKS", 8)
    job, times = WatchedJob(str(ROOT)), RunTimes([0])
    times.job.start(ROOT)
    for step, first in enumerate(range(200, 240, at_once), 1):
        tids = range(first, first + at_once)
        threads = {str(tid): [tid, "job", 0, MS, MS, 0, 0] for tid in tids}
        watched = {"threads": threads, "disk": dict.fromkeys(threads, MS)}
        job.read_record({"watched": watched}, step * MS)
        times.add_job_record(job, step * MS)
        shares = {"0": [[tid, "task", 0.01] for tid in tids]}
        children = {str(tid): ["make", 0.01, "cc1"] for tid in tids}
        times.add_snapshot(TaskSnapshot({}, shares, {}, children), 0, step * MS)
        assert len(times._newer_sums.rows) <= 8
    footprint = times.job
    newest = [(tid, tid) for tid in range(232, 240)]
    for kept in (footprint._run_ns, footprint._disk_ns, times.threads):
        assert list(kept) == newest
    assert len(footprint.pids) == len(times.tasks) == 8
    assert footprint.run_s == footprint.disk_s == pytest.approx(0.04)


def test_the_summary_separates_the_cpus_of_the_job() -> None:
    does = {cpu: CpuLoad(0.2 * (cpu + 1)) for cpu in range(4)}
    session, _ = observe(Machine(cores=2, loads=does), 20)
    end_command(session, "job")
    session.run.times.job.seconds = {1: 0.1}
    line = run_summary.summary_line(session, {})
    assert (line["job"]["cpus"], line["rest"]["cpus"]) == ([1], [0, 2, 3])
    assert line["job"]["seen_s"] == pytest.approx(0.1)
    assert line["job"]["util"]["mean"] == pytest.approx(0.4, rel=1e-3)
    assert line["rest"]["util"]["mean"] == pytest.approx((0.2 + 0.6 + 0.8) / 3, rel=1e-3)
    session.reset_sums()
    line = run_summary.summary_line(session, {})
    assert (line["job"], line["rest"]) == (None, None)
    session.run.times.job.seconds = {1: 0.1}
    line = run_summary.summary_line(session, {})
    assert line["job"]["util"] is line["rest"]["util"] is None, "there is no sample yet"


def test_an_offline_cpu_is_not_one_of_the_others() -> None:
    session, _ = observe(Machine(cores=2), 20)
    session.apply(wire.Note("hotplug", session.now_ns, data={"cpu": 3, "online": False}))
    end_command(session, "job")
    session.run.times.job.seconds = {1: 0.1}
    line = run_summary.summary_line(session, {})
    assert (line["job"]["cpus"], line["rest"]["cpus"]) == ([1], [0, 2])


def test_waits_are_counted_from_the_start_of_the_command() -> None:
    job = WatchedThreads()
    job.watched_job.read_record({"watched": {"threads": {
        "100": [ROOT, "job", 0, 10 * MS, 30 * MS, 0, 0]}, "more": 0}}, 100 * MS)  # fmt: skip
    job.footprint.add_record(job.watched_job, 100 * MS)
    job.watched_job.read_record({"watched": {"threads": {
        "100": [ROOT, "job", 0, 20 * MS, 50 * MS, 0, 0],
        "101": [101, "job", 1, 20 * MS, 40 * MS, 0, 0]}, "more": 0}}, 200 * MS)  # fmt: skip
    job.footprint.add_record(job.watched_job, 200 * MS)
    assert job.footprint.waited_s == pytest.approx(0.06)
    assert job.footprint.pids == {ROOT, 101}
    for ms, wait_ns in ((3, None), (4, 90 * MS)):  # the wait is temporarily unknown
        thread = [ROOT, "job", 0, 20 * MS, wait_ns, 0, 0]
        record = {"watched": {"threads": {"100": thread}, "more": 0}}
        job.watched_job.read_record(record, 100 * ms * MS)
        job.footprint.add_record(job.watched_job, 100 * ms * MS)
    assert job.footprint.waited_s == pytest.approx(0.06)


@pytest.mark.parametrize(("watch", "start_seq", "run_s"), [
    (str(ROOT), 1, 0.34), (str(ROOT), 2, 0.34), ("7", 1, 0.1),
])  # fmt: skip
def test_a_child_counts_from_its_start_if_perftop_started_the_job(
    watch: str, start_seq: int, run_s: float
) -> None:
    """Most of a short child's time precedes its first record, which may precede the note on the
    start. This does not hold for a job that was watched before the run began."""
    machine = Machine(cores=2, changes={"watch": watch})
    session = Session(machine.hello)
    session.run.track_losses()
    argv = {"pid": ROOT, "argv": ["make"]}
    for seq, threads in enumerate([{100: 5}, {100: 5, 101: 240}, {100: 5, 101: 340}], 1):
        more = {str(tid): [tid, "job", 0, ms * MS, 0, 0, 0] for tid, ms in threads.items()}
        session.apply(machine.frame(seq, records={"watched": {"threads": more, "more": 0}}))
        if seq == start_seq:
            session.apply(wire.Note("run-start", session.now_ns, data=argv))
    assert sum(times.run_s for times in session.run.times.threads.values()) == pytest.approx(run_s)
    session.run.times.threads = {(102, 102): TaskTimes("ld", 9.0)}
    named = report(session).job
    assert named == ("make" if watch == str(ROOT) else "ld")


@pytest.mark.parametrize(("recorded", "whole_s", "run_s", "throttled_s"), [
    (range(1, 50), 4.9 + 1.0, 2.0 + 1.0, 0.020),
    ((1, 8, 32, 48), 4.8 + 0.9, 1.6 + 0.9, 0.016),  # no record shortly before the span
])  # fmt: skip
def test_a_past_span_has_only_its_own_times(
    recorded: Collection[int], whole_s: float, run_s: float, throttled_s: float
) -> None:
    """Thread 101 is as old as the command; 102 starts after 3.9 s. The span begins at 2.9 s."""
    machine = Machine(cores=2, changes={"watch": str(ROOT)})
    session = Session(machine.hello, History(machine.hello))
    session.run.track_losses()
    for seq in range(1, 50):
        ran_ms = {ROOT: 0, 101: 100 * seq} | ({102: 100 * (seq - 39)} if seq > 39 else {})
        threads = {str(tid): [tid, "job", 0, ms * MS, 0, 0, 0] for tid, ms in ran_ms.items()}
        quotas = {"groups": {"/g": [1.0, 0, 0, 1000 * seq]}, "pids": {"101": ["/g"]}}
        records = {"watched": {"threads": threads}, "quotas": quotas} if seq in recorded else {}
        session.apply(machine.frame(seq, records=records))
        if seq == 1:
            session.apply(wire.Note("run-start", session.now_ns, data={"pid": ROOT, "argv": []}))
    totals = session.totals_between(session.now_ns - 2000 * MS, session.now_ns)
    assert totals is not None
    assert session.run.times.job.run_s == pytest.approx(whole_s)
    assert totals.times.job.run_s == pytest.approx(run_s)
    assert totals.times.quotas.by_group["/g"].throttled_s == pytest.approx(throttled_s)


def test_a_phase_has_no_times_of_earlier_phases() -> None:
    """A thread that was already running when a phase began counts from its last record."""
    machine = Machine(cores=2, changes={"watch": str(ROOT)})
    session = Session(machine.hello)
    session.run.track_losses()
    for seq in range(1, 5):
        ns = 100 * seq * MS
        threads = {str(tid): [tid, "job", 0, ns, ns, 0, 0] for tid in (ROOT, 101)}
        record = {"threads": threads, "disk": {"101": ns}}
        session.apply(machine.frame(seq, records={"watched": record}))
        if seq == 3:
            session.reset_sums()
    times = session.run.times
    assert [*times.job.seconds.values()] == pytest.approx([0.2])
    assert (times.job.waited_s, times.job.disk_s) == pytest.approx((0.2, 0.1))
    assert [task.run_s for task in times.threads.values()] == pytest.approx([0.1, 0.1])


LD = TaskSnapshot({"2": [7, "ld", 1.0], "0": [8, "idler", 0.1]})


def test_the_linker_at_the_end_of_a_build_is_named() -> None:
    """The build uses all four CPUs for 4 s and two for 1 s; then the linker runs alone for 3 s, and
    no task for 2 s."""
    busy = BusyCpus()
    for util, count in (
        ([0.95] * 4, 40),
        ([1, 1, 0, 0], 10),
        ([0, 0, 1, 0.02], 30),
        ([0.1] * 4, 20),
    ):
        busy.add(np.array([util] * count, float), np.full(count, 0.1), {0: LD})
    assert [busy.all_s, busy.between_s, busy.one_s, busy.none_s] == pytest.approx([4, 1, 3, 2])
    assert busy.single_cpu_task == "ld"


def test_offline_cpus_are_not_counted() -> None:
    busy = BusyCpus()
    busy.add(np.array([[1.0, np.nan, 1.0], [np.nan] * 3]), np.ones(2), {0: TaskSnapshot()})
    assert (busy.all_s, busy.none_s) == (1.0, 0.0)
    busy.add(np.array([[1.0, 0.5, 0.0, 0.0]]), np.ones(1), {0: LD})
    assert (busy.one_s, busy.between_s) == (0.0, 1.0)


def test_a_short_time_alone_is_not_reported() -> None:
    busy = BusyCpus()
    for look, name in (LD, "ld"), (TaskSnapshot(), "ld"), (TaskSnapshot(), ""):
        busy.add(np.array([[1.0, 0.0]]), np.ones(1), {0: look})
        assert busy.single_cpu_task == name


def test_the_number_of_tasks_that_ran_alone_is_limited() -> None:
    busy = BusyCpus()
    for number in (*range(257), 0, 256):
        look = TaskSnapshot({"0": [1, f"p{number}", 1.0]})
        busy.add(np.array([[1.0, 0.0]]), np.ones(1), {0: look})
    assert list(busy._alone_s) == [f"p{number}" for number in range(256)]
    assert busy._alone_s["p0"] == 2.0


# --- samples of a summary, in bounded memory


def test_percentiles_remain_correct_when_samples_are_thinned() -> None:
    greeting = synth.hello([synth.REF], threads=1)
    session = Session(greeting)
    session.run.distribution = Distribution([0], max_bytes=4096, min_rows=2)
    rng = np.random.default_rng(1)
    shares = np.sort(rng.random(3000))  # sorted: uneven thinning would overweight late ones
    refs = np.cumsum([0, *(int(share * TICKS) for share in shares)]) % 2**48
    frames = [frame(greeting, seq, {"ref": [ref]}) for seq, ref in enumerate(refs.tolist())]
    session_of(session, frames)
    result = run_summary.summary_line(session, {})["cpus"][0]["util"]
    assert result["min"] == pytest.approx(shares.min(), abs=1e-6)
    assert result["max"] == pytest.approx(shares.max(), abs=1e-6)
    assert result["mean"] == pytest.approx(shares.mean(), abs=1e-6)
    assert result["p5"] == pytest.approx(0.05, abs=0.06)


def test_the_distribution_of_the_machine_does_not_depend_on_those_of_cpus() -> None:
    """Even if samples are thinned, and if the list of cores changes during the run."""
    hello, sent = messages_lasting("sim:hotplug,cpus=4,seed=3", 30.0)
    sessions = [Session(hello, summarises_cpus=by_cpu) for by_cpu in (True, False)]
    for session, by_cpu in zip(sessions, (True, False), strict=True):
        session.run.distribution = Distribution(session.selected, 40_000, 2, by_cpu=by_cpu)
        for index, message in enumerate(sent):
            if index == 100:
                session.reader.regroup([replace(row, core=row.cpu) for row in hello.topology])
            session.apply(message)
    whole, machine_only = (session.run.distribution.finish() for session in sessions)
    assert machine_only._kept_samples.shape == (len(whole._kept_samples), len(METRICS))
    for key in METRICS:
        assert whole.machine(key) == pytest.approx(machine_only.machine(key), rel=0, nan_ok=True)
        assert whole.samples(key, 20) == machine_only.samples(key, 20)
    assert np.isnan([*machine_only.cpu("util", 0).values()]).all()
    assert np.isnan([*machine_only.group("util", [0, 1]).values()]).all()
    split = sessions[0].run_interval().split
    assert whole.split(split, 0) == machine_only.split(split, 0)


@pytest.mark.parametrize(("max_bytes", "min_rows", "room"), [(4352, 2, 32), (1, 2, 2), (1, 9, 9)])
def test_a_run_of_any_length_keeps_samples_in_bounded_memory(
    max_bytes: int, min_rows: int, room: int
) -> None:
    """A row has 34 numbers of 4 bytes: 15 metrics of the machine and of its CPU, and 4 states."""
    greeting = synth.hello([synth.REF], threads=1)
    session = Session(greeting)
    session.run.distribution = Distribution([0], max_bytes, min_rows)
    session.apply(frame(greeting, 0, {"ref": [0]}))
    for seq in range(1, 200):
        session.apply(frame(greeting, seq, {"ref": [seq * TICKS // 2]}))
        result = session.run.distribution.finish()
        assert len(result._kept_samples) == room
        assert result._count == seq if seq < room else room // 2 <= result._count <= room
        assert (result._kept_samples[: result._count, 0] == 0.5).all()


def test_samples_of_parts_of_batches_are_stacked() -> None:
    first: Any = np.arange(5)
    other: Any = np.arange(10, 14)
    samples = StackedSamples()
    for batch, begin, end in ((first, 1, 2), (first, 2, 4), (other, 0, 3)):
        samples.add(batch, begin, end)
    assert samples.stack(np.asarray).tolist() == [1, 2, 3, 10, 11, 12]


def test_percentiles_equal_those_of_numpy() -> None:
    random = np.random.default_rng(7)
    for count in (1, 2, 3, 20, 21, 22, 40, 41):
        table = random.random((count, 50)).astype(np.float32)
        table[random.random(table.shape) < 0.2] = np.nan
        table[0] = 0.5
        for percent in (5, 50, 95, 99):
            expected = np.nanpercentile(table.astype(float), percent, axis=0)
            values = _percentile(np.sort(table, axis=0), percent / 100)
            assert values == pytest.approx(expected, rel=1e-12)
    assert np.isnan(_percentile(np.full((3, 1), np.nan, np.float32), 0.05)).all()


# --- unreported waits


@pytest.mark.parametrize(
    ("count", "share", "hidden_s"), [(3, 0.1, 3.0), (3, 0.33, 0.0), (2, 0.1, 0.0)]
)
def test_tasks_missing_from_snapshots_may_wait(count: int, share: float, hidden_s: float) -> None:
    """Ten tasks share a CPU and wait 90 % of their time; three of them are reported."""
    times = RunTimes([0])
    ranked = {"0": [[pid, "job", share] for pid in range(count)]}
    waits = {"0": [[0.9, 10.0] for _ in range(count)]}
    for second in range(1, 5):
        snapshot = TaskSnapshot({}, ranked, waits)
        times.add_snapshot(snapshot, 0, second * 1000 * MS)
        assert times.has_waits == (second > 1), "one snapshot is too short to tell"
        if second == 1:
            first = times.copy()
    later = times.minus(first, 3.0)
    assert later.truncated_s.get(0, 0.0) == pytest.approx(hidden_s)
    assert later.wait_snapshots == 3


def test_tasks_of_an_idle_machine_do_not_wait() -> None:
    """Tasks that hardly ran are not listed, so the lists of an idle machine are empty; a listed
    task without a wait time may have waited."""
    idle, unknown = RunTimes([0]), RunTimes([0])
    for second in range(1, 4):
        idle.add_snapshot(TaskSnapshot({}, {}, {}), 0, second * 1000 * MS)
        unknown.add_snapshot(TaskSnapshot({"0": [1, "job", 0.5]}, {}, {}), 0, second * 1000 * MS)
    assert idle.has_waits
    assert not unknown.has_waits


def test_children_that_have_ended_are_summed_by_parent_and_name() -> None:
    times = RunTimes([0, 1])
    for second in range(1, 4):
        children = {"7": ["make", 0.5, "cc1"], "8": ["sh", 9.0, ""]}
        times.add_snapshot(TaskSnapshot({}, {}, {}, children), 0, second * 1000 * MS)
    assert {key: task.run_s for key, task in times.tasks.items()} == {
        (7, "cc1", task_times.UNKNOWN_CPU): 1.5, (8, "", task_times.UNKNOWN_CPU): 6.0,
    }  # fmt: skip
