"""The probe under resource limits."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import trees
from command import argv, read_some, running_command
from waiting import MAX_WAIT_S

from perfprobe.cpu import files
from perfprobe.errors import error_sentence

CPUS = 40
MAX_OPEN_FILES = 64
"""Limit of open files, too low for the CPUs."""


@pytest.mark.parametrize(("size", "reads"), [(2, 1), (2047, 1), (2048, 2), (5000, 2)])
def test_a_short_file_that_stays_open_is_read_once(
    size: int, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counted = tmp_path / "f", Mock(side_effect=os.pread)
    path.write_bytes(b"1" * size)
    monkeypatch.setattr(os, "pread", counted)
    file = files.OpenFile(str(path), 1 << 20)
    assert len(file.read()) == size
    file.close()
    assert counted.call_count == reads


@pytest.mark.parametrize("source", ["auto", "os"])
def test_a_machine_of_many_cpus_needs_no_higher_limit_of_open_files(
    source: str, tmp_path: Path
) -> None:
    """The soft limit is too low, but the hard limit is not."""
    trees.write_machine(tmp_path, CPUS)
    for cpu in range(CPUS):
        for state in range(3):
            trees.put(tmp_path, f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/time", "1000\n")
            trees.put(tmp_path, f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/name", f"C{state}\n")
    code = (
        "import resource, sys; from perfprobe import __main__ as probe\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({MAX_OPEN_FILES}, hard))\n"
        "sys.exit(probe.main(sys.argv[1:]))"
    )
    words = ["stream", "--source", source, "--sysroot", str(tmp_path)]
    result = subprocess.run(
        [sys.executable, "-c", code, *words],
        input=b"",
        capture_output=True,
        timeout=MAX_WAIT_S,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"hello" in result.stdout


@pytest.mark.parametrize(("redirected", "arguments", "status", "expected_message"), [
    ("1>/dev/full", "topology", 1, "cannot write stdout: No space left on device"),
    ("1>&-", "topology", 1, "stdout is closed"),
    ("1>&-", "stream --source sim", 1, "stdout is closed"),
    ("1>/dev/full", "--version", 1, "cannot write stdout: No space left on device"),
    ("1>&-", "stream --help", 1, "stdout is closed"),
    ("", "stream --watch", 2, "--watch: expected one argument; see perfprobe stream --help"),
    ("", "topology --sysroot /nowhere", 3, "no CPUs can be found"),
])  # fmt: skip
def test_failures_are_named_in_one_line(
    redirected: str, arguments: str, status: int, expected_message: str
) -> None:
    line = f"{shlex.join(argv(program='perfprobe'))} {arguments} {redirected}"
    result = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        input="",
        timeout=MAX_WAIT_S,
        check=False,
    )
    assert (result.returncode, result.stderr.count("\n")) == (status, 1)
    assert expected_message in result.stderr


def test_a_closed_stdin_does_not_end_the_stream() -> None:
    """No other file gets the descriptor of stdin, from which the stream would read orders."""
    line = f"exec {shlex.join(argv('stream', '--source', 'sim', program='perfprobe'))} <&-"
    pipe = subprocess.PIPE
    with running_command(["sh", "-c", line], stdout=pipe, stderr=pipe, bufsize=0) as process:
        read_some(process)
        assert Path(f"/proc/{process.pid}/fd/0").readlink() == Path(os.devnull)
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_failed_system_call_is_reported_with_file_and_remedy() -> None:
    assert error_sentence(OSError(errno.EMFILE, "Too many open files", "/proc/stat")) == (
        "/proc/stat: Too many open files; raise the limit on open files (ulimit -n)"
    )
    assert error_sentence(OSError(errno.EIO, "Input/output error")) == "Input/output error"
