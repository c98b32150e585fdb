"""A watched job in the stream: on this machine, and on the simulated one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import sim_streams
import trees
from attempts import up_to_three_attempts
from command import burning_cpu
from nightly import cases_by_day
from waiting import first_frame

from perfprobe import wire
from perfprobe.cpu import cpu_sets
from perfprobe.errors import Unavailable
from perfprobe.kernel import task_files, tasks
from perfprobe.kernel.job_threads import WatchedJob
from perfprobe.opening import open_os
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


def test_a_simulated_pid_selects_its_process() -> None:
    frames = run("neighbour", 10, 100 * MS, "4008")
    counts = [len(frame.records["watched"]["threads"]) for frame in frames]
    assert counts == [0] * 80 + [1] * 21
    for pid in ("4001", "4711"):
        with pytest.raises(Unavailable, match=f"^no process {pid}$"):
            SimSource("sim:neighbour", S, None, pid)
    with pytest.raises(ValueError, match="a PID, or a name"):
        SimSource("sim:neighbour", S, None, "")


# --- tasks ----------------------------------------------------------------------------------------

BURN = """
import os, threading, time
def burn():
    os.sched_setaffinity(0, {CPU})
    while True: pass
print("ready", flush=True)
THREAD
"""
BURNS = ["burn()", "threading.Thread(target=burn).start()"]
"""Programs that run in their first thread, or in another thread."""


@pytest.mark.parametrize("how", cases_by_day(BURNS, [BURNS[1]]))
def test_a_busy_child_is_named_on_its_cpu(
    how: str, child: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SCAN_PERIOD_NS", S // 4)
    cpu = max(os.sched_getaffinity(0))
    code = BURN.replace("CPU", str(cpu)).replace("THREAD", how)
    busy = child(code)
    source = open_os(Path("/"), 20_000_000, None)

    details: dict[str, Any] = {}

    def with_details(frame: wire.Frame) -> wire.Frame | None:
        """Returns the frame if it names the busy process and the details have arrived: they are in
        the frame that first names the process, in `tasks` or in `others`."""
        details.update(frame.records.get("details", {}))
        pid, _, _ = frame.records.get("tasks", {}).get(str(cpu), [None, None, None])
        return frame if pid == busy.pid and str(pid) in details else None

    frame = first_frame(source, with_details)
    source.close()
    _, comm, share = frame.records["tasks"][str(cpu)]
    assert comm == Path(f"/proc/{busy.pid}/comm").read_text(encoding="utf-8").strip()
    assert tasks.MIN_TASK_SHARE <= share <= 1
    command = f"{sys.executable} -c {code}"[: task_files.MAX_COMMAND_LENGTH]
    assert details[str(busy.pid)]["command"] == command


def test_a_sysroot_reports_its_own_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hello also reports hidden processes. Only frames after a scan have records."""
    monkeypatch.setattr(tasks, "SCAN_PERIOD_NS", 150_000_000)  # a scan may start 50 ms early
    monkeypatch.setattr(tasks, "PAUSE_FACTOR", 0)
    trees.write_machine(tmp_path, 1)
    mounts = "22 27 0:21 / /proc rw - proc proc rw,hidepid=invisible\n"
    trees.put(tmp_path, "proc/self/mountinfo", mounts)
    trees.put(tmp_path, "proc/10/stat", trees.process(10, 0))
    source = open_os(tmp_path, 10_000_000, None)
    assert "hidepid=invisible" in next(m.why for m in source.hello.missing if m.what == "tasks")
    first = first_frame(source, lambda frame: "tasks" in frame.records and frame)
    # details are not in every frame
    first_frame(source, lambda frame: "tasks" not in frame.records and frame)

    def add_time(frame: wire.Frame) -> wire.Frame | None:
        """Adds CPU time to the process; returns the frame if it has tasks. On a busy machine two
        scans may end between two frames; then only the second is in a frame."""
        trees.put(tmp_path, "proc/10/stat", trees.process(10, 10**6 * frame.seq))
        return frame if frame.records.get("tasks") else None

    second = first_frame(source, add_time)
    source.close()
    assert first.records == {"tasks": {}, "others": {}, "waits": {}}
    job = [10, "job", 1.0]
    unknown = {"0": [[None, None]]}
    assert second.records == {"tasks": {"0": job}, "others": {"0": [job]}, "waits": unknown}


def test_details_of_a_process_are_short_and_printable(
    child: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = child("print('ready', flush=True); input()", b"\xff", "x" * 300)
    result = task_files.process_details(process.pid)
    command = result.pop("command")
    assert isinstance(command, str)
    assert len(command) == task_files.MAX_COMMAND_LENGTH
    assert " ? xxx" in command
    message = wire.Frame(1, 0, {}, records={"details": {"1": result | {"command": command}}})
    assert wire.encode(message), "bytes that are no text do not stop the stream"
    known = psutil.Process(process.pid)
    affinity = cpu_sets.format(known.cpu_affinity())
    result.pop("priority", None)  # that of the tests, which may be low
    assert result == {"user": known.username(), "threads": 1, "affinity": affinity}
    os.setpriority(os.PRIO_PROCESS, process.pid, 17)
    assert task_files.process_details(process.pid)["priority"] == "nice 17"
    os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    assert task_files.process_details(process.pid)["priority"] == "SCHED_IDLE"
    process.kill()
    process.wait()
    assert task_files.process_details(process.pid) == {}


def test_details_are_sent_once_a_minute() -> None:
    report = task_files.SentDetails()
    who = [(pid, 5, "job") for pid in range(task_files.MAX_DETAILS + 3)]
    assert report.due_processes([*who, *who], 0) == who[:-3]
    assert report.due_processes(who, 1 * S) == who[-3:]
    assert report.due_processes(who, 2 * S) == []
    assert report.due_processes([(0, 6, "job"), (1, 5, "exec")], 3 * S) == [
        (0, 6, "job"),
        (1, 5, "exec"),
    ]
    assert report.due_processes(who, task_files.RESEND_NS) == who[:-3]
