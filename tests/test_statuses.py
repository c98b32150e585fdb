"""Exit statuses around a command, as a script sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command import argv, run_in_process
from nightly import cases_by_day
from waiting import MAX_WAIT_S

SIM = ("--source", "sim:steady,cpus=2")


@pytest.mark.parametrize(
    ("verb", "options", "command", "status"),
    [
        ("stat", [], ["sh", "-c", "exit 7"], 7),
        ("stat", [], ["sh", "-c", "kill -9 $$"], 137),
        ("stat", [], ["sh", "-c", "(exit 3) | sh -c 'exit 4'"], 4),
        ("stat", [], ["sh", "-c", "sleep 9 > /dev/null 2>&1 & exit 5"], 5),
        ("stat", [], ["./nothing"], 127),
        ("stat", [], ["./plain"], 126),
        ("stat", [], [], 2),
        ("stat", ["--source", "msr", "--sysroot", "."], ["touch", "touched"], 3),
        ("stat", ["-o", "missing/a"], ["touch", "touched"], 1),
        ("record", ["-o", "a"], ["sh", "-c", "exit 7"], 7),
        ("record", ["-o", "a"], ["./."], 126),
        ("record", ["-o", "a", "--duration", "1s"], ["touch", "touched"], 2),
        ("record", ["-o", "a", "--source", "msr", "--sysroot", "."], ["touch", "touched"], 3),
        ("record", ["-o", "missing/a"], ["touch", "touched"], 1),
    ],
)
def test_statuses_around_a_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    options: list[str],
    command: list[str],
    status: int,
) -> None:
    (tmp_path / "plain").write_text("no program")
    monkeypatch.chdir(tmp_path)
    done = run_in_process(verb, *SIM, *options, "--", *command)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "touched").exists()
    if status in {1, 2, 3, 126, 127}:
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("perftop: ")


@pytest.mark.parametrize(
    "verb", cases_by_day([["stat"], ["record", "-o", "a"], ["why"]], [["stat"]])
)
def test_a_parent_that_ignores_the_end_of_children_costs_no_status(
    tmp_path: Path, verb: list[str]
) -> None:
    command = argv(*verb, *SIM, "--", "sh", "-c", "exit 7")
    ignoring = ["env", "--ignore-signal=CHLD", *command]
    done = subprocess.run(ignoring, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr


def test_a_closed_stderr_lets_the_command_run_to_its_end(tmp_path: Path) -> None:
    """The command runs to its end, and its status is returned."""
    script = f"sleep 1; echo > {tmp_path / 'end'}; exit 7"
    command = argv("stat", "-i", "100ms", *SIM, "--", "sh", "-c", script)
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.stderr.close()
        assert process.wait(MAX_WAIT_S) == 7
    assert (tmp_path / "end").exists()
