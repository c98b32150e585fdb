"""`perftop why` as a program: its output and exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import exported
import pytest
from command import runs_here
from nights import cases_by_day
from waiting import MAX_WAIT_S

from perftop.base.errors import USAGE

QUICK = ["--source", "sim:turbo-drop,cpus=8,speed=40"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perftop", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False)


def test_a_single_sample_is_not_enough(tmp_path: Path) -> None:
    """Empty output would look like "no cause"."""
    path = tmp_path / "recording"
    played = exported.messages("sim:idle,cpus=2", 1)
    exported.record(path, played[:2])
    for arguments, status in (([str(path)], USAGE), ([*QUICK, "--duration", "1ms"], 0)):
        result = runs_here("why", *arguments)
        assert (result.stdout, result.returncode) == ("", status)
        assert "fewer than two samples" in result.stderr


WAYS: list[list[str]] = [[], ["--json"], ["--json", "-o", "-"], ["--json", "-o", "FILE"]]


@pytest.mark.parametrize("how", cases_by_day(WAYS, [WAYS[0], WAYS[3]]))
def test_a_command_has_its_own_output_and_status(how: list[str], tmp_path: Path) -> None:
    path = tmp_path / "FILE"
    how = [str(path) if word == "FILE" else word for word in how]
    result = run("why", "--source", "os", *how, "--", "sh", "-c", "echo mine; exit 3")
    assert result.returncode == 3, result.stderr
    own, printed = (result.stderr, result.stdout) if "-" in how else (result.stdout, result.stderr)
    if path.exists():
        assert printed == ""
        printed = path.read_text()
    assert own == "mine\n"
    if how:
        assert json.loads(printed)["run"]["status"] == 3
    else:
        assert "seen" in printed


def test_a_recording_and_a_command_are_exclusive(tmp_path: Path) -> None:
    result = runs_here("why", str(tmp_path), "--", "true")
    assert result.returncode == 2
    assert "not both" in result.stderr
