"""The real probe, wire and command: results compared with the schedule of a simulated machine, and
with a known load on this machine."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import command
import pytest
from attempts import up_to_three_attempts
from command import Line, burning_cpu
from nightly import cases_by_day, nightly_case
from waiting import MAX_WAIT_S

from perfprobe.sources.sim.truth import truth

SCENARIOS = ["steady", "smt-mix", "turbo-drop", "license", "throttle", "neighbour", "warmup",
             "halts", "hybrid", "idle", "jitter"]  # fmt: skip
BY_DAY = ("halts", "hybrid")


@pytest.mark.parametrize("scenario", cases_by_day(SCENARIOS, BY_DAY))
def test_stat_reports_what_the_simulated_machine_did(scenario: str) -> None:
    spec = f"sim:{scenario},cpus=8,seed=3,speed=max"
    found = command.stat("--source", spec, "-i", "1s", "--sample", "100ms", "-n", "6")
    true = list(truth(spec, 6.0))
    intervals = [line for line in found if line["type"] == "interval"]
    assert len(intervals) == 6
    checked = 0
    for at, interval in enumerate(intervals):
        window = [t for t in true if t["type"] != "episode" and round(t["start"]) == at]
        checked += _check_cpus(interval, window) + _check_cores(interval, window)
    assert checked > 6 * 8
    assert found[-1]["suspect"] == 0


def _check_cpus(interval: Line, window: list[Line]) -> int:
    truth = {t["cpu"]: t for t in window if t["type"] == "cpu"}
    for row in interval["cpus"]:
        true = truth[row["cpu"]]
        for key in ("util", "halt", "idle", "involuntary"):
            assert row[key] == pytest.approx(true[key], abs=2e-3), (row["cpu"], key)
        if true["util"] > 0.01:
            assert row["busy_hz"] == pytest.approx(true["busy_hz"], rel=1e-3)
            assert row["ipc"] == pytest.approx(true["ipc"], rel=5e-3)
            for key in ("kernel_cycles", "kernel_instructions"):
                assert row[key] == pytest.approx(true[key], abs=1e-3), (row["cpu"], key)
    return len(interval["cpus"])


def _check_cores(interval: Line, window: list[Line]) -> int:
    truth = {tuple(t["cpus"]): t for t in window if t["type"] == "core"}
    for row in interval["cores"]:
        true = truth[tuple(row["cpus"])]["smt"]
        assert row["smt"] == pytest.approx(true, abs=2e-3)
        assert sum(row["smt"].values()) == pytest.approx(1, abs=1e-6)
    return len(interval["cores"])


def test_a_cpu_goes_offline_and_online_in_the_stream() -> None:
    spec = "sim:hotplug,cpus=8,seed=3,speed=max"
    found = command.stat("--source", spec, "-i", "1s", "--duration", "45s")
    done = command.run("truth", spec, "--duration", "45", program="perfprobe")
    true = [t for t in command.lines(done.stdout, "episode") if t["kind"] == "offline"]
    own = [e for e in found if e["type"] == "episode" and e["kind"] == "offline"]
    assert true
    start = next(line for line in found if line["type"] == "interval")["time"] - 1
    for a, b in zip(own, true, strict=True):
        assert a["cpus"] == b["cpus"]
        assert a["start"] - start == pytest.approx(
            b["start"], abs=0.11
        )  # the episode is detected at the next sample
        if a["end"] is not None:
            assert a["end"] - start == pytest.approx(b["end"], abs=0.11)
    assert any(not c["online"] for i in found if i["type"] == "interval" for c in i["cpus"])
    assert found[-1]["suspect"] == 0


def test_a_thousand_cpus_are_reported() -> None:
    found = command.stat("--source", "sim:smt-mix,cpus=1024,speed=max", "-i", "1s", "-n", "1")
    (interval,) = [line for line in found if line["type"] == "interval"]
    assert len(interval["cpus"]) == 1024
    assert len(interval["cores"]) == 512
    assert all(sum(c["smt"].values()) == pytest.approx(1, abs=1e-6) for c in interval["cores"])


def test_only_selected_cpus_are_reported() -> None:
    found = command.stat("--source", "sim:smt-mix,cpus=8,speed=max", "-c", "1,core2", "-n", "1")
    (interval,) = [line for line in found if line["type"] == "interval"]
    assert [c["cpu"] for c in interval["cpus"]] == [1, 2, 6]
    assert {tuple(c["cpus"]) for c in interval["cores"]} == {(1, 5), (2, 6)}
    assert all(sum(c["smt"].values()) == pytest.approx(1, abs=1e-6) for c in interval["cores"])


# --- this machine ---------------------------------------------------------------------------------


def proc_stat_busy(cpu: int) -> tuple[int, int]:
    """Returns the ticks that were not idle, and all ticks."""
    text = Path("/proc/stat").read_text(encoding="ascii")
    match = re.search(rf"^cpu{cpu} (.*)$", text, re.MULTILINE)
    assert match
    fields = [int(word) for word in match[1].split()[:8]]
    return sum(fields) - fields[3] - fields[4] - fields[7], sum(fields)


@up_to_three_attempts
def test_utilisation_agrees_with_the_kernel_and_a_job_is_not_its_own_neighbour() -> None:
    cpu = max(os.sched_getaffinity(0))
    with burning_cpu(cpu, "pt-alone") as alone:
        before = proc_stat_busy(cpu)
        watch = "--watch", str(alone)
        found = command.stat("--source", "os", *watch, "-i", "500ms", "-n", "3")
        after = proc_stat_busy(cpu)
    rows = [c for i in found if i["type"] == "interval" for c in i["cpus"] if c["cpu"] == cpu]
    mean = sum(row["util"] + row["steal"] for row in rows) / len(rows)
    kernel = (after[0] - before[0]) / (after[1] - before[1])
    # 2 points, plus the start and end of the command, which the kernel's longer window includes
    assert mean == pytest.approx(kernel, abs=0.04)
    assert mean > 0.95
    watched = [i["watched"] for i in found if i["type"] == "interval"]
    assert {one["job"] for one in watched} == {str(alone)}
    named = [e["evidence"] for e in found if e.get("kind") == "neighbour"]
    assert [evidence for evidence in named if "pt-alone" in str(evidence)] == []


# --- pitfalls for users ---------------------------------------------------------------------------


def test_interrupted_reads_make_no_counter_suspect() -> None:
    """The simulated machine has interrupted reads, for which siblings wait."""
    found = command.stat("--source", "sim:hotplug,cpus=64,speed=max", "--duration", "18s")
    assert found[-1]["suspect"] == 0
    assert not [line for line in found if line.get("kind") == "suspect"]


@pytest.mark.parametrize(
    ("method", "expected"), [("bounds", "bounds"), ("one-thread", "one-thread")]
)
def test_a_method_can_be_forced(method: str, expected: str) -> None:
    spec = "sim:smt-mix,cpus=8,speed=max"
    found = command.stat("--source", spec, "--smt-method", method, "-n", "1")
    assert {core["smt_method"] for core in found[1]["cores"]} == {expected}


@pytest.mark.parametrize("around", [False, nightly_case(True)])
def test_a_terminal_of_ascii_gets_ascii(tmp_path: Path, around: bool) -> None:
    """This includes the output of a recorded command."""
    what = ["record", "-o", str(tmp_path / "a")] if around else ["stat", "-n", "1", "-i", "100ms"]
    job = ["--", "sleep", "0.2"] if around else []
    arguments = command.argv(*what, "--source", "sim", *job)
    done = subprocess.run(
        arguments,
        capture_output=True,
        timeout=MAX_WAIT_S,
        check=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    printed = done.stderr if around else done.stdout
    assert printed.isascii()
    assert b"SMT states, mean of 8 cores: " in printed


def test_a_dash_is_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = "stat", "--source", "sim", "-n", "1", "-i", "100ms", "-o", "-"
    done = command.run_in_process(*arguments)
    assert "busy" in done.stdout
    assert done.stderr == ""
    done = command.run_in_process(*arguments[:3], "-o", "-", "--", "sh", "-c", "exit 0")
    assert "status 0" in done.stdout
    assert not list(tmp_path.iterdir())
