"""Commands that run under us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perftop.process import job
from perftop.process.job import Job, Run, raw_ns


def run(*argv: str) -> Run:
    started = Job(argv)
    started.go()
    return asyncio.run(started.ended())


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)]
)
def test_statuses_are_those_of_a_shell(script: str, status: int) -> None:
    done = run("sh", "-c", script)
    assert (done.status, done.failed) == (status, None)


def test_missing_programs_and_files_that_are_none(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    missing, refused = run(str(tmp_path / "nothing")), run(str(plain))
    assert (missing.status, missing.failed) == (127, os.strerror(2))
    assert (refused.status, refused.failed) == (126, os.strerror(13))
    assert run("").failed == os.strerror(2)


def test_nothing_runs_before_the_gate_opens(tmp_path: Path) -> None:
    told = tmp_path / "told"
    clock = "import time, sys; open(sys.argv[1], 'w').write(str(time.clock_gettime_ns(4)))"
    assert time.CLOCK_MONOTONIC_RAW == 4
    job = Job([sys.executable, "-S", "-c", clock, str(told)])
    time.sleep(0.2)
    assert not told.exists()
    before_ns = raw_ns()
    job.go()
    done = asyncio.run(job.ended())
    assert before_ns <= done.start_ns <= int(told.read_text()) <= done.end_ns <= raw_ns()


def test_a_dropped_command_has_not_run(tmp_path: Path) -> None:
    job = Job(["touch", str(tmp_path / "touched")])
    job.drop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(job.pid, 0)


def test_cpu_time_includes_that_of_children() -> None:
    done = run("sh", "-c", f"{sys.executable} -c 'sum(range(10**7))'; true")
    assert done.user_s > 0.05
    assert done.wall_s >= (done.user_s + done.sys_s) * 0.5


def test_costs_of_our_fork_are_subtracted() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    alone = os.wait4(pid, 0)[2]
    done = run("true")
    assert done.page_faults is not None
    assert 0 < done.page_faults < alone.ru_minflt + 150, "a fork of Python has some 400"
    assert done.disk_faults is not None
    assert done.disk_faults >= 0


def test_the_end_is_noted_while_the_event_loop_is_blocked() -> None:
    async def held_up() -> Run:
        job = Job(["sleep", "0.1"])
        job.go()
        time.sleep(1.5)  # noqa: ASYNC251 - as a write to a slow terminal
        return await job.ended()

    done = asyncio.run(held_up())
    assert 0.1 <= done.wall_s < 1.4
    assert done.late_s == 0


STOPPED = """
import asyncio
from perftop.process import job

job.CHECK_S = 0.1
one = job.Job(["sh", "-c", "echo begun; sleep 0.3"])
one.go()
done = asyncio.run(one.ended())
print(done.late_s, done.wall_s)
"""


def test_an_end_that_we_were_stopped_at_is_late() -> None:
    code = [sys.executable, "-c", STOPPED]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        process.send_signal(signal.SIGCONT)
        late_s, wall_s = map(float, process.stdout.readline().split())
    assert 1.0 < late_s <= wall_s


def test_a_command_runs_without_a_readable_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "RESIDENT", "/nonexistent")
    assert run("true").status == 0


def test_the_command_does_not_inherit_an_ignored_sigpipe() -> None:
    """Python ignores SIGPIPE; what runs under it must not."""
    done = run("sh", "-c", "yes | head -1 > /dev/null; kill -PIPE $$; exit 3")
    assert done.status == 128 + signal.SIGPIPE


def test_a_daemon_left_behind_is_not_waited_for() -> None:
    begun = time.monotonic()
    assert run("sh", "-c", "sleep 60 > /dev/null 2>&1 & exit 4").status == 4
    assert time.monotonic() - begun < 50
