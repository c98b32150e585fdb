"""A pinned command is attributed to its CPU, while a watched job runs on another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import command
import pytest
from attempts import up_to_three_attempts
from command import burning_cpu

SPIN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
end = time.process_time() + float(sys.argv[2])
while time.process_time() < end: pass
"""
CPU_TIME_S = 0.6
"""CPU time of the command in s, long enough for several scans of tasks."""


@up_to_three_attempts
def test_a_command_is_attributed_to_the_cpu_it_ran_on(tmp_path: Path) -> None:
    cpu, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("there is one CPU only")
    path = tmp_path / "out"
    spin = ["taskset", "-c", str(cpu), sys.executable, "-c", SPIN, str(cpu), str(CPU_TIME_S)]
    with burning_cpu(others[-1]) as other_job:
        options = "--source", "os", "--watch", str(other_job), "--force", "-o", str(path)
        command.run("stat", "--json", *options, "--", *spin)
    (summary,) = command.lines(path.read_text(), "summary")
    assert summary["job"]["cpus"] == [cpu]
    run = summary["run"]
    assert run["user_s"] + run["sys_s"] == pytest.approx(CPU_TIME_S, rel=0.2)
