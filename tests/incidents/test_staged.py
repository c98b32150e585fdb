"""Faults that are staged on this machine: what `why -- CMD` says of them, against a truth that is
known without perftop: the signals that were sent, the mask, the counts of the kernel.

The job runs in a control group with so many shares that other load can hardly disturb it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

GROUPS = Path("/sys/fs/cgroup")
SHARES = 200_000
LOOP = f"{sys.executable} -c 'import time\nend = time.time() + 3\nwhile time.time() < end: pass'"


class Stage:
    """Makes control groups, and removes them at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: list[Path] = []

    def group(self, controller: str, name: str = "") -> Path:
        at = GROUPS / controller / f"perftop-test-{os.getpid()}{name}"
        try:
            at.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        self.made.append(at)
        return at

    def why(self, command: str) -> dict[str, Any]:
        home = self.group("cpu", "-home")
        (home / "cpu.shares").write_text(str(SHARES))
        report = self.directory / "why.json"
        perftop = f"{sys.executable} -m perftop why --json -o {report} -- sh -c"
        done = subprocess.run(
            ["sh", "-c", f'echo $$ > {home}/cgroup.procs; exec {perftop} "$0"', command],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        line: dict[str, Any] = json.loads(report.read_text().splitlines()[-1])
        assert line["type"] == "why"
        return line


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    for group in reversed(made.made):
        group.rmdir()


def causes(line: dict[str, Any], least: float = 0.1) -> dict[str, dict[str, Any]]:
    """The causes that cost so much, by name."""
    return {each["cause"]: each for each in line["causes"] if each["lost_ratio"] >= least}


@pytest.mark.parametrize("nested", [False, True], ids=["own", "ancestor's"])
def test_a_quota_takes_what_the_kernel_counts(stage: Stage, nested: bool) -> None:
    limited = stage.group("cpu")
    (limited / "cpu.cfs_quota_us").write_text("20000")
    inner = limited
    if nested:
        inner = limited / "inner"
        inner.mkdir()
        stage.made.append(inner)
    (limited / "cpu.shares").write_text(str(SHARES))
    line = stage.why(f"echo $$ > {inner}/cgroup.procs; exec {LOOP}")
    counts = dict(re.findall(r"^(\w+) (\d+)$", (limited / "cpu.stat").read_text(), re.MULTILINE))
    truth_s = int(counts["throttled_time"]) / 1e9
    (found,) = (each for each in line["causes"] if each["cause"] == "quota")
    assert truth_s > 0.5
    # The job moves to its group after the first scan, so its first second is not counted.
    assert truth_s - 1.2 <= found["lost_s"] <= truth_s + 0.3
    assert found["details"]["cpus"] == 0.2
    assert found["details"]["group"].endswith(limited.name)


@pytest.mark.parametrize("by", ["mask", "cpuset"])
def test_two_processes_on_one_cpu_wait_for_each_other(stage: Stage, by: str) -> None:
    if (count := len(os.sched_getaffinity(0))) < 2:
        pytest.skip("one CPU")
    cpu = max(os.sched_getaffinity(0))
    enter = f"taskset -pc {cpu} $$ > /dev/null"
    if by == "cpuset":
        group = stage.group("cpuset")
        (group / "cpuset.mems").write_text((GROUPS / "cpuset/cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(cpu))
        enter = f"echo $$ > {group}/cgroup.procs"
    line = stage.why(f"{enter}; {LOOP} & {LOOP}; wait")
    found = causes(line)["scheduler"]
    assert found["lost_ratio"] == pytest.approx(0.5, abs=0.15)
    assert "wait for each other" in found["text"]
    assert any(f"may use 1 of {count} CPUs ({by})" in piece for piece in found["evidence"])


@pytest.mark.parametrize("by", ["SIGSTOP", "a frozen group"])
def test_a_job_that_is_stopped_for_two_seconds(stage: Stage, by: str) -> None:
    stop, go = "kill -STOP $p", "kill -CONT $p"
    enter = ""
    if by != "SIGSTOP":
        group = stage.group("freezer")
        enter = f"echo $p > {group}/cgroup.procs; "
        stop, go = (f"echo {word} > {group}/freezer.state" for word in ("FROZEN", "THAWED"))
    line = stage.why(f"{LOOP} & p=$!; {enter}sleep 1.5; {stop}; sleep 2; {go}; wait")
    found = causes(line)["stopped"]
    assert found["lost_s"] == pytest.approx(2.0, abs=0.4)
    assert found["text"].endswith(f"({by})")
    assert line["spent"]["stopped_s"] == pytest.approx(2.0, abs=0.4)


def test_a_job_that_sleeps_loses_nothing(stage: Stage) -> None:
    line = stage.why("exec sleep 3")
    assert causes(line) == {}
    assert line["spent"]["slept_s"] == pytest.approx(3.0, abs=1.2)  # it is first read in a scan
    assert line["spent"]["stopped_s"] == 0
