"""A program that the preloader starts does what the same program does after exec."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command import argv, children, running_command
from waiting import MAX_WAIT_S

USUAL = {"PYTHONUTF8": "1"}
"""A variable with which programs start as usual."""


@pytest.mark.parametrize(
    "arguments",
    [["why", "--source", "sim:turbo-drop,speed=max"], ["why", "--no-such-option"], ["stat", "-o"]],
    ids=["answer", "unknown option", "missing argument"],
)
def test_status_and_output_are_those_of_a_usual_start(arguments: list[str], tmp_path: Path) -> None:
    results = [
        subprocess.run(
            argv(*arguments), env=os.environ | more, cwd=tmp_path, capture_output=True,
            check=False, timeout=MAX_WAIT_S,
        )
        for more in ({}, USUAL)
    ]  # fmt: skip
    forked, usual = ((it.returncode, it.stdout, it.stderr) for it in results)
    assert forked == usual


def signal_masks(pid: int) -> list[str]:
    """The blocked and the ignored signals of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigBlk", "SigIgn"))]


def test_perftop_and_its_probe_are_children_with_the_usual_signals() -> None:
    masks = []
    for more in ({}, USUAL):
        command = argv("stat", "-i", "100ms", "--source", "sim")
        with running_command(command, env=os.environ | more, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            assert process.pid in children(os.getpid())
            (probe,) = children(process.pid)
            assert os.getpgid(process.pid) == os.getpgid(0) != os.getpgid(probe) == probe
            masks.append([signal_masks(process.pid), signal_masks(probe)])
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(MAX_WAIT_S) == 128 + signal.SIGTERM
    assert masks[0] == masks[1]
