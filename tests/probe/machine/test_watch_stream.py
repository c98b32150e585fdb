"""A watched job in the stream: on this machine, and on the simulated one."""

from __future__ import annotations

import contextlib
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sim_streams
from attempts import up_to_three_attempts
from command import burning_cpu
from waiting import first_frame

from perfprobe import wire
from perfprobe.errors import Unavailable
from perfprobe.kernel.job_threads import WatchedJob
from perfprobe.opening import open_os
from perfprobe.sources.sim.schedule import Row
from perfprobe.sources.sim.source import SimSource

MS = 1_000_000
S = 1000 * MS


@up_to_three_attempts
def test_one_of_two_tasks_on_a_cpu_is_watched() -> None:
    cpu = max(os.sched_getaffinity(0))
    no_threads = {"threads": {}, "more": 0}
    with (
        closing(open_os(Path("/"), 50 * MS, None, WatchedJob(Path("/"), "pt-watched"))) as source,
        contextlib.ExitStack() as tasks,
    ):
        assert source.hello.watch == "pt-watched"
        first_frame(source, lambda frame: frame.records.get("watched") == no_threads)
        job, noisy = (
            tasks.enter_context(burning_cpu(cpu, name)) for name in ("pt-watched", "pt-noisy")
        )

        def job_record(frame: wire.Frame) -> Any:
            result = frame.records.get("watched", {}).get("threads", {}).get(str(job))
            return result and (frame.time_ns, result)

        def both(frame: wire.Frame) -> Any:
            others = frame.records.get("others", {}).get(str(cpu), [])
            names = {pid: comm for pid, comm, _ in others}
            return names.items() >= {job: "pt-watched", noisy: "pt-noisy"}.items()

        began_ns, first = first_frame(source, job_record)
        ended_ns, last = first_frame(
            source, lambda frame: frame.time_ns > began_ns + S and job_record(frame)
        )
        assert last[:3] == [job, "pt-watched", cpu]
        ran_ns, waited_ns = last[3] - first[3], last[4] - first[4]
        # A task that is always runnable either runs or waits; both lag by a tick or a time slice.
        assert 0.8 < (ran_ns + waited_ns) / (ended_ns - began_ns) < 1.2
        assert waited_ns / (ran_ns + waited_ns) > 0.3, "the job gets half of the CPU at most"
        assert last[6] > first[6], "the job is preempted"
        first_frame(source, both)
        tasks.close()
        first_frame(source, lambda frame: frame.records.get("watched") == no_threads)


def test_the_files_of_a_running_job_are_closed_with_the_source() -> None:
    job = WatchedJob(Path("/"), str(os.getpid()))
    with closing(open_os(Path("/"), 50 * MS, None, job)) as source:
        first_frame(source, lambda frame: frame.records.get("watched", {}).get("threads"))


# --- the simulated machine -----------------------------------------------------------------------


def run(text: str, seconds: float, sample_ns: int, watch: str) -> list[wire.Frame]:
    hello, frames, _ = sim_streams.run(text, seconds, sample_ns, watch=watch)
    assert hello.watch == watch
    return frames


def busy_ns(text: str, cpu: int, begin_s: float, end_s: float) -> int:
    """Returns the scheduled busy time in ns."""
    schedule = sim_streams.schedule_of(text)
    return int(
        sim_streams.amounts_between(schedule, round(begin_s * S), round(end_s * S))[Row.BUSY, cpu]
    )


@pytest.mark.parametrize("sample_ns", [100 * MS, 1 * S])
def test_a_simulated_job_runs_as_scheduled(sample_ns: int) -> None:
    frames = run("neighbour", 12, sample_ns, "lmp")
    for frame in frames:
        threads = frame.records["watched"]["threads"]
        assert list(threads) == ["4000", "4004"], "the first thread of every fourth core"
        assert threads["4004"][:3] == [4004, "lmp", 4]
        assert threads["4004"][4::2] == [0, 0]
    last = frames[-1].records["watched"]["threads"]["4004"]
    assert last[3] == pytest.approx(busy_ns("neighbour", 4, 0, 12), abs=400_000)
    # From 8 s to 18 s the program `stream` runs on the sibling.
    task_records = [frame.records for frame in frames if "others" in frame.records]
    assert len(task_records) == 12, "tasks are recorded once a second"
    results = {cpu: results[0][1] for cpu, results in task_records[-1]["others"].items()}
    assert results.items() >= {"0": "lmp", "4": "lmp", "8": "stream", "12": "stream"}.items()
    assert all(
        record["others"][cpu][0] == task
        for record in task_records[1:]
        for cpu, task in record["tasks"].items()
    )


@pytest.mark.parametrize("sample_ns", [130 * MS, 400 * MS, 7 * S])
def test_only_time_of_the_job_counts(sample_ns: int) -> None:
    """In the scenario hybrid, CPU 2 alternates every 15 s between lmp and another program."""
    frames = run("hybrid", 77, sample_ns, "lmp")
    there = [f for f in frames if "4002" in f.records["watched"]["threads"]]
    shares = {f.seq * sample_ns // (15 * S) for f in there}
    assert shares == {0, 2, 4}
    last = there[-1]
    own = [busy_ns("hybrid", 2, at, at + 15) for at in (0, 30)]
    own.append(busy_ns("hybrid", 2, 60, last.seq * sample_ns / S))
    ran_ns = last.records["watched"]["threads"]["4002"][3]
    assert ran_ns == pytest.approx(sum(own), abs=2_000_000)
    runs = np.diff([f.records["watched"]["threads"]["4002"][3] for f in there])
    assert (runs >= 0).all()


def test_a_simulated_pid_selects_its_process() -> None:
    frames = run("neighbour", 10, 100 * MS, "4008")
    counts = [len(frame.records["watched"]["threads"]) for frame in frames]
    assert counts == [0] * 80 + [1] * 21
    for pid in ("4001", "4711"):
        with pytest.raises(Unavailable, match=f"^no process {pid}$"):
            SimSource("sim:neighbour", S, None, pid)
    with pytest.raises(ValueError, match="a PID, or a name"):
        SimSource("sim:neighbour", S, None, "")


def test_a_simulated_job_has_its_thread_limit() -> None:
    frames = run("steady,cpus=512", 0.2, 100 * MS, "xhpl")
    record = frames[-1].records["watched"]
    assert (len(record["threads"]), record["more"]) == (256, 256)
