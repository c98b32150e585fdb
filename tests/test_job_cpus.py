"""The CPUs that are reported for a pinned command, with every kind of --watch, while another job
runs on the last CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import product

import command
import pytest
from attempts import up_to_three_attempts
from command import burning_cpu
from nightly import cases_by_day

SPIN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
end = time.process_time() + float(sys.argv[2])
while time.process_time() < end: pass
"""
CPU_TIME_S = 0.6
"""CPU time of the command in s, long enough for several scans of tasks."""


@pytest.fixture(scope="module")
def cpus() -> tuple[int, int]:
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("there is one CPU only")
    return found[0], found[-1]


@pytest.fixture
def other_job(cpus: tuple[int, int]) -> Iterator[int]:
    """Runs a job on the last CPU until the end of the test, because the next test may need a quiet
    CPU."""
    with burning_cpu(cpus[1]) as pid:
        yield pid


CASES = [*product(("stat", "record"), ("nobody", "pid", "absent"), (0, 1))]


@pytest.mark.parametrize(("verb", "watch", "cpu_index"), cases_by_day(CASES, [("stat", "pid", 0)]))
@up_to_three_attempts
def test_a_command_is_attributed_to_the_cpus_it_ran_on(
    cpus: tuple[int, int], other_job: int, verb: str, watch: str, cpu_index: int, tmp_path: object
) -> None:
    options = {"nobody": [], "pid": ["--watch", str(other_job)], "absent": ["--watch", "pt-nobody"]}
    path = f"{tmp_path}/out"
    spin = ["taskset", "-c", str(cpus[cpu_index]), sys.executable, "-c", SPIN, str(cpus[cpu_index])]
    more = ["--json"] if verb == "stat" else []
    done = command.run(
        verb,
        "--source",
        "os",
        *options[watch],
        *more,
        "--force",
        "-o",
        path,
        "--",
        *spin,
        str(CPU_TIME_S),
    )
    if verb == "record":
        printed = command.run("export", path, "--format", "jsonl", "--metrics", "util").stdout
        assert f"on CPU {cpus[cpu_index]}" in done.stderr
    else:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            printed = file.read()
    (summary,) = command.lines(printed, "summary")
    if verb == "stat" or watch == "nobody":
        assert summary["job"]["cpus"] == [cpus[cpu_index]]
    run = summary["run"]
    assert run["user_s"] + run["sys_s"] == pytest.approx(CPU_TIME_S, rel=0.2)
