"""The threads of a watched job, on trees whose files the test writes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import trees

from perfprobe.errors import Unavailable
from perfprobe.kernel import job_threads, task_files
from perfprobe.kernel.cgroups import group_directories, member_pids
from perfprobe.kernel.job_threads import MAX_NEW_CHILDREN, MAX_THREADS, WatchedJob
from perfprobe.kernel.tasks import MIN_CHECK_NS, TaskScanner

MS = 1_000_000
S = 1000 * MS
STATUS = """Name:\t{}
Tgid:\t{}
Cpus_allowed:\t{}
voluntary_ctxt_switches:\t{}
nonvoluntary_ctxt_switches:\t{}
"""
MASK = ",".join(["ffffffff"] * 256)  # 8192 CPUs


def write_process(
    root: Path, pid: int, comm: str = "job", threads: int = 1, start: int = 500
) -> None:
    stat = trees.process(pid, 0, comm=comm.encode(), threads=threads, start=start)
    trees.put(root, f"proc/{pid}/stat", stat)
    trees.put(root, f"proc/{pid}/status", STATUS.format(comm, pid, MASK, 0, 0))
    trees.put(root, f"proc/{pid}/schedstat", "70 80 9\n")


def write_thread(
    root: Path, pid: int, tid: int, ns: tuple[int, int] | None = (1, 2), **more: Any
) -> None:
    """Writes the files of a thread. `ns` are its running and waiting times; None: no such file."""
    at, comm = f"proc/{pid}/task/{tid}", more.get("comm", "job")
    stat = trees.process(tid, more.get("ticks", 0), more.get("cpu", 0), comm.encode())
    trees.put(root, f"{at}/stat", stat)
    trees.put(root, f"{at}/status", STATUS.format(comm, pid, MASK, *more.get("switches", (0, 0))))
    if ns is not None:
        trees.put(root, f"{at}/schedstat", "{} {} 9\n".format(*ns))


def scan(watched: WatchedJob, root: Path) -> WatchedJob:
    pids = sorted(int(p.name) for p in (root / "proc").iterdir() if p.name.isdecimal())
    stats = (
        (str(pid), task_files.parse_stat(task_files.read_file(f"{root}/proc/{pid}/stat")))
        for pid in pids
    )
    for _ in watched.find_threads((pid, stat) for pid, stat in stats if stat is not None):
        pass
    return watched


def tids(watched: WatchedJob, now_ns: int) -> list[str]:
    return sorted(watched.read_due_threads(now_ns)["watched"]["threads"])


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- selection of the job ------------------------------------------------------------------------


def test_disk_waits_are_reported_if_the_kernel_accounts_for_them(tmp_path: Path) -> None:
    write_process(tmp_path, 7)
    write_thread(tmp_path, 7, 7)
    stat = (tmp_path / "proc/7/task/7/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    fields[39] = "250"
    trees.put(tmp_path, "proc/7/task/7/stat", f"7 (job) {' '.join(fields)}\n")
    with closing(scan(WatchedJob(tmp_path, "7"), tmp_path)) as watched:
        assert "disk" not in watched.read_due_threads(S)["watched"]
    trees.put(tmp_path, "proc/sys/kernel/task_delayacct", "1\n")
    watched = scan(WatchedJob(tmp_path, "7"), tmp_path)
    assert watched.missing == []
    assert watched.read_due_threads(S)["watched"]["disk"] == {"7": 250 * task_files.TICK_NS}
    watched.close()


def test_states_match_the_kernel_and_a_frozen_group_is_not_a_disk_wait(tmp_path: Path) -> None:
    line = "35 31 0:32 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
    trees.put(tmp_path, "proc/self/mountinfo", line)
    write_process(tmp_path, 7, threads=3)
    for tid, letter, group in ((7, "T", "/"), (8, "D", "/cold"), (9, "D", "/warm")):
        write_thread(tmp_path, 7, tid)
        at = tmp_path / f"proc/7/task/{tid}"
        (at / "stat").write_text((at / "stat").read_text().replace(") R", f") {letter}"))
        (at / "cgroup").write_text(f"6:freezer:{group}\n0::/\n")
    for group, text in (("cold", "FROZEN"), ("warm", "THAWED")):
        trees.put(tmp_path, f"sys/fs/cgroup/freezer/{group}/freezer.state", f"{text}\n")
    with closing(scan(WatchedJob(tmp_path, "7"), tmp_path)) as watched:
        record = watched.read_due_threads(S)["watched"]
    assert record["states"] == {"7": "T", "8": "F", "9": "D"}


def test_a_wait_for_the_child_of_a_vfork_is_a_sleep(tmp_path: Path) -> None:
    """The kernel shows it as D. Here the child cannot call exec before the FIFO has a writer."""
    os.mkfifo(fifo := tmp_path / "fifo")
    code = (
        f"import os; actions = [(os.POSIX_SPAWN_OPEN, 3, {str(fifo)!r}, os.O_RDONLY, 0)]; "
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=actions); os.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as spawner:
        directory = Path(f"/proc/{spawner.pid}")
        try:
            # Before it has a child, it is in D only while its files are read.
            while (
                not psutil.Process(spawner.pid).children()
                or task_files.parse_state((directory / "stat").read_bytes()) != "D"
            ):
                assert spawner.poll() is None
                time.sleep(0.001)
            if (directory / "wchan").read_text() == "0":
                pytest.skip("the kernel does not show where a task waits")
            with closing(WatchedJob(Path("/"), str(spawner.pid))) as watched:
                stat = task_files.parse_stat((directory / "stat").read_bytes())
                assert stat is not None
                deque(watched.find_threads([(str(spawner.pid), stat)]), maxlen=0)
                record = watched.read_due_threads(S)["watched"]
        finally:
            fifo.write_bytes(b"")
    assert record["states"] == {str(spawner.pid): "S"}


def test_a_wait_in_an_unknown_place_is_like_the_wait_before_it(tmp_path: Path) -> None:
    """A thread that begins to wait is in D, but still in the run queue: it has no place yet."""
    write_process(tmp_path, 7)
    write_thread(tmp_path, 7, 7)
    stat, place = (tmp_path / f"proc/7/task/7/{name}" for name in ("stat", "wchan"))
    stat.write_text(stat.read_text().replace(") R", ") D"))
    states = []
    with closing(scan(WatchedJob(tmp_path, "7"), tmp_path)) as watched:
        for at_s, text in enumerate(["0", "kernel_clone", "0", "folio_wait_bit", "0"], 1):
            place.write_text(text)
            states.append(watched.read_due_threads(at_s * S)["watched"]["states"]["7"])
    assert states == ["D", "S", "S", "D", "D"]


def test_an_unknown_job_name_suggests_a_similar_one(tmp_path: Path) -> None:
    write_process(tmp_path, 7, "postgres")
    trees.put(tmp_path, "proc/7/comm", "postgres\n")
    assert WatchedJob(tmp_path, "postgres").warning == ""
    assert WatchedJob(tmp_path, "7").warning == ""
    result = WatchedJob(tmp_path, "postgers").warning
    assert "no process is named postgers now" in result
    assert result.endswith("did you mean postgres?")
    assert "did you mean" not in WatchedJob(tmp_path, "nginx").warning


def test_a_name_selects_all_processes_whenever_they_start(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    watched = scan(WatchedJob(tmp_path, "-my) job"), tmp_path)
    assert watched.read_due_threads(S) == {"watched": {"threads": {}, "more": 0}}, (
        "the job may start later"
    )
    for pid, comm in ((10, "-my) job"), (20, "-my) jo"), (30, "-my) job2"), (40, "-my) job")):
        write_process(tmp_path, pid, comm)
        write_thread(tmp_path, pid, pid, comm=comm)
    # The name of a process is that of its first thread.
    write_thread(tmp_path, 20, 21, comm="-my) job")
    write_thread(tmp_path, 10, 11, comm="other")
    assert tids(scan(watched, tmp_path), 2 * S) == ["10", "11", "40"]
    write_process(tmp_path, 40, "exec")
    shutil.rmtree(tmp_path / "proc/10/task/11")
    assert tids(scan(watched, tmp_path), 3 * S) == ["10"]
    watched.close()


def test_a_pid_without_a_process_is_refused(tmp_path: Path) -> None:
    write_process(tmp_path, 10)
    trees.put(tmp_path, "proc/11/status", STATUS.format("job", 10, MASK, 0, 0))
    for text, why in (("4711", "^no process 4711$"), ("11", "11 is a thread of process 10")):
        with pytest.raises(Unavailable, match=why):
            WatchedJob(tmp_path, text)
    hidden = "22 27 0:21 / /proc rw - proc proc rw,hidepid=invisible\n"
    trees.put(tmp_path, "proc/self/mountinfo", hidden)
    with pytest.raises(Unavailable, match=r"no process 4711 · .* hidepid=invisible"):
        WatchedJob(tmp_path, "4711")
    assert [m.what for m in WatchedJob(tmp_path, "job").missing] == ["watch", "disk_wait"]


# --- many threads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "sample_ms", "each"),
    [(32, 100, {32}), (100, 100, {32}), (256, 100, {32}), (256, 1000, {256}), (40, 10, {3, 4}),
     (2, 1, {0, 1}), (256, 1, {0, 1})],
)  # fmt: skip
def test_each_thread_is_reported_within_a_second(
    tmp_path: Path, threads: int, sample_ms: int, each: set[int]
) -> None:
    write_process(tmp_path, 10, threads=threads)
    for tid in range(10, 10 + threads):
        write_thread(tmp_path, 10, tid)
    watched = scan(WatchedJob(tmp_path, "10"), tmp_path)
    report = [watched.read_due_threads(S + i * MS) for i in range(0, 2000, sample_ms)][1:]
    turns = [list(record["watched"]["threads"]) if record else [] for record in report]
    assert {len(turn) for turn in turns} == each
    assert len(set(itertools.chain(*turns[: 1000 // sample_ms]))) == threads
    assert sum(map(len, turns)) <= 2 * S / job_threads.READ_INTERVAL_NS + 1
    assert all(turns) or sample_ms == 1, "each due frame has a record"
    watched.close()


def test_the_limit_of_threads_is_reported(tmp_path: Path) -> None:
    before = descriptors()
    for pid, threads in ((10, 150), (1000, 150), (2000, 7)):
        write_process(tmp_path, pid, threads=threads)
        for tid in range(pid, pid + threads):
            write_thread(tmp_path, pid, tid)
    watched = scan(WatchedJob(tmp_path, "job"), tmp_path)
    record = watched.read_due_threads(S)["watched"]
    assert (len(record["threads"]), record["more"]) == (MAX_THREADS, 150 + 150 + 7 - MAX_THREADS)
    assert descriptors() == before + 3 * MAX_THREADS
    shutil.rmtree(tmp_path / "proc/10")
    record = scan(watched, tmp_path).read_due_threads(2 * S)["watched"]
    assert (len(record["threads"]), record["more"]) == (157, 0)
    assert descriptors() == before + 3 * 157
    watched.close()
    assert descriptors() == before


# --- unavailable values --------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "0 0 0\n", "", "x 1 2", "1 2", "-1 2 3"])
def test_a_kernel_that_does_not_account_for_waits_is_reported(
    tmp_path: Path, content: str | None
) -> None:
    write_process(tmp_path, 10)
    write_thread(tmp_path, 10, 10, None, ticks=25, switches=(3, 4))
    if content is not None:
        trees.put(tmp_path, "proc/10/task/10/schedstat", content)
        trees.put(tmp_path, "proc/10/schedstat", content)
    else:
        (tmp_path / "proc/10/schedstat").unlink()
    watched = scan(WatchedJob(tmp_path, "10"), tmp_path)
    threads = watched.read_due_threads(S)["watched"]["threads"]
    assert threads == {"10": [10, "job", 0, 25 * task_files.TICK_NS, None, 3, 4]}
    assert [(m.what, "schedstat" in m.why) for m in watched.missing[1:]] == [("wait", True)]
    watched.close()


def test_threads_with_unreadable_files_are_left_out(tmp_path: Path) -> None:
    write_process(tmp_path, 10, threads=5)
    for tid in (10, 11):
        write_thread(tmp_path, 10, tid)
    (tmp_path / "proc/10/task/11/status").write_text("Name:\tvoluntary_ctxt_switches:\t1\n")
    (tmp_path / "proc/10/task/12/stat").mkdir(parents=True)
    (tmp_path / "proc/10/task/13").mkdir()
    os.mkfifo(tmp_path / "proc/10/task/13/stat")
    write_thread(tmp_path, 10, 14)
    (tmp_path / "proc/10/task/14/stat").write_bytes(b"\xff" * 5000)
    before = descriptors()
    watched = scan(WatchedJob(tmp_path, "10"), tmp_path)
    threads = watched.read_due_threads(S)["watched"]["threads"]
    assert threads == {"10": [10, "job", 0, 1, 2, 0, 0], "11": [10, "job", 0, 1, 2, None, None]}
    watched.close()
    watched.close()
    assert descriptors() == before


def test_children_that_a_command_starts_between_two_scans_are_found(tmp_path: Path) -> None:
    """Scans take place once a second, and a child that was stopped before the first was missed."""
    now_ns = 0
    write_process(tmp_path, 20, "command")
    write_thread(tmp_path, 20, 20)
    watched = WatchedJob(tmp_path, "job", second=WatchedJob(tmp_path, "20", tree=True))
    tasks = TaskScanner(tmp_path, range(4), watched, lambda: now_ns, lambda: 0)
    tasks.scan_slice()
    for pid in range(21, 60):
        write_process(tmp_path, pid, "child")
        write_thread(tmp_path, pid, pid)
    write_process(tmp_path, 60, "stranger")
    trees.put(tmp_path, "proc/20/task/20/children", " ".join(map(str, range(21, 60))))
    assert tasks.check_watched_processes()
    threads = watched.read_due_threads(S)["command"]["threads"]
    assert [*threads] == [str(tid) for tid in range(20, 21 + MAX_NEW_CHILDREN)]
    now_ns = MIN_CHECK_NS
    assert tasks.check_watched_processes()
    assert len(watched.read_due_threads(2 * S)["command"]["threads"]) == 1 + 2 * MAX_NEW_CHILDREN
    watched.close()


def test_a_thread_whose_end_a_scan_noticed_first_has_ended(tmp_path: Path) -> None:
    write_process(tmp_path, 7)
    write_thread(tmp_path, 7, 7)
    with closing(scan(WatchedJob(tmp_path, "7"), tmp_path)) as watched:
        assert tids(watched, S) == ["7"]
        assert not watched.thread_has_ended
        shutil.rmtree(tmp_path / "proc/7")
        scan(watched, tmp_path)
        ends = []
        for second in (2, 3):
            assert tids(watched, second * S) == []
            ends.append(watched.thread_has_ended)
    assert ends == [True, False]


def test_two_jobs_are_recorded_separately(tmp_path: Path) -> None:
    write_process(tmp_path, 10)
    write_thread(tmp_path, 10, 10)
    write_process(tmp_path, 20, "command")
    write_thread(tmp_path, 20, 20)
    command_watch = WatchedJob(tmp_path, "20", tree=True)
    watched = scan(WatchedJob(tmp_path, "job", second=command_watch), tmp_path)
    report = watched.read_due_threads(S)
    assert [*report["watched"]["threads"]] == ["10"]
    assert [*report["command"]["threads"]] == ["20"]
    assert watched.read_due_threads(S) == {}, "none of them is due"
    had_ended = watched.thread_has_ended
    (tmp_path / "proc/20/task/20/stat").write_text("")  # as read after the thread has ended
    assert watched.read_due_threads(2 * S)["command"]["threads"] == {}
    assert (had_ended, watched.thread_has_ended) == (False, True)
    watched.close()


@pytest.mark.parametrize(("letter", "frozen", "state"), [
    ("S", 1, "F"), ("S", 0, "S"), ("R", 1, "R"),
])  # fmt: skip
def test_a_sleeping_thread_of_a_frozen_group_is_frozen(
    tmp_path: Path, letter: str, frozen: int, state: str
) -> None:
    line = "32 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    trees.put(tmp_path, "proc/self/mountinfo", line)
    trees.put(tmp_path, "sys/fs/cgroup/job/cgroup.events", f"populated 1\nfrozen {frozen}\n")
    write_process(tmp_path, 7)
    write_thread(tmp_path, 7, 7)
    at = tmp_path / "proc/7/task/7"
    (at / "stat").write_text((at / "stat").read_text().replace(") R", f") {letter}"))
    (at / "cgroup").write_text("0::/job\n")
    with closing(scan(WatchedJob(tmp_path, "7"), tmp_path)) as watched:
        records = [watched.read_due_threads(second * S)["watched"] for second in (1, 2)]
    assert records[-1]["states"] == {"7": state}


def test_a_job_can_be_a_control_group_or_a_unit(tmp_path: Path) -> None:
    line = "32 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    trees.put(tmp_path, "proc/self/mountinfo", line)
    unit = "sys/fs/cgroup/system.slice/web.service"
    trees.put(tmp_path, f"{unit}/cgroup.procs", "7\n8\n")
    trees.put(tmp_path, f"{unit}/worker/cgroup.procs", "9\n")
    trees.put(tmp_path, "sys/fs/cgroup/system.slice/cgroup.procs", "")
    for pid in (7, 8, 9, 10):
        for path in (f"proc/{pid}/stat", f"proc/{pid}/task/{pid}/stat"):
            trees.put(tmp_path, path, trees.process(pid, 31, comm=b"other"))
    processes = [(str(pid), task_files.TaskStat("other", 31, 1, 500, 0)) for pid in (7, 8, 9, 10)]
    for text in ("web.service", "/system.slice/web.service", "/sys/fs/cgroup/system.slice"):
        watch = WatchedJob(tmp_path, text)
        assert watch.warning == ""
        for _ in watch.find_threads(processes):
            pass
        assert sorted(watch.pids) == [7, 8, 9]
        watch.close()
    absent = WatchedJob(tmp_path, "db.service")
    assert absent.warning == "no control group db.service now; it is followed once it exists"
    for _ in absent.find_threads(processes):
        pass
    assert absent.pids == []


def test_a_group_of_several_hierarchies_is_that_of_the_first(tmp_path: Path) -> None:
    mounts = ""
    for pid, controller in ((7, "memory"), (8, "cpu")):
        directory = f"sys/fs/cgroup/{controller}"
        mounts += f"{pid} 31 0:29 / /{directory} rw - cgroup cgroup rw,{controller}\n"
        trees.put(tmp_path, f"{directory}/job/cgroup.procs", f"{pid}\n")
    trees.put(tmp_path, "proc/self/mountinfo", mounts)
    assert member_pids(group_directories(tmp_path, "/job")) == {"8"}


def test_a_reused_pid_is_not_the_job(tmp_path: Path) -> None:
    write_process(tmp_path, 10, start=500)
    write_thread(tmp_path, 10, 10)
    watched = scan(WatchedJob(tmp_path, "010"), tmp_path)
    assert tids(watched, S) == ["10"]
    write_process(tmp_path, 10, start=501)
    assert scan(watched, tmp_path).read_due_threads(2 * S) == {
        "watched": {"threads": {}, "more": 0}
    }
