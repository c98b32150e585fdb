"""Exit statuses of perfprobe."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from command import python

from perfprobe import __main__ as command
from perfprobe import opening, serve, wire
from perfprobe.cpu import topology
from perfprobe.errors import MsrsNotRestored
from perfprobe.instruments.selftest import run
from perfprobe.kernel import access
from perfprobe.native import tsc_rate


@pytest.mark.parametrize(("wrong", "status"), [([], 0), (["cycles"], 1)])
def test_selftest_fails_if_a_counter_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    status: int,
) -> None:
    # The source only needs a method close.
    monkeypatch.setattr(opening, "open_source", lambda _: io.BytesIO())
    monkeypatch.setattr(run, "run", lambda *_, **__: {"wrong": wrong})
    assert command.main(["selftest"]) == status
    assert json.loads(capsys.readouterr().out) == {"wrong": wrong}


@pytest.mark.parametrize(("line", "status", "error"), [
    ("-e contxt-switches", 2, "nearest: context-switches"),
    ("-e page-faults --source os", 2, "only --source auto, perf and sim count events"),
    ("-e page-faults --sysroot /nowhere", 2, "only --source auto, perf and sim count events"),
    ("-e page-faults --source msr", 2, "only --source auto, perf and sim count events"),
    ("-e r1 --source sim", 2, "have it; try context-switches, cpu-migrations, page-faults\n"),
    ("-e= --source sim", 2, "-e '': an event is a NAME"),
    ("-e brnches --source sim", 2, "machine does not have it; try branches, branch-misses\n"),
    ("-e branches --source sim:guest", 3, "the hypervisor exposes no PMU"),
    ("-e branches,cycles,cache-misses,branch-misses --no-multiplex --source sim", 3,
     "-e branch-misses: no counter is left for it"),
    ("--watch 999999999", 3, "perfprobe: no process 999999999\n"),
    ("--source sim --watch 7", 3, "perfprobe: no process 7\n"),
    ("--watch=", 2, "perfprobe: --watch '': a PID, or a name as in"),
    # As from a shell variable that is not set.
    ("--source sim --cpus=", 2, "the selection is empty"),
    ("--source nobody", 2, "unknown source 'nobody'; known: auto"),
])  # fmt: skip
def test_impossible_requests_are_refused_in_one_line(
    line: str,
    status: int,
    error: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Later tests need their capabilities.
    monkeypatch.setattr(access, "drop_capabilities", lambda *_: None)
    assert command.main(["stream", *line.split()]) == status
    output = capsys.readouterr()
    assert error in output.err
    assert (output.out, output.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("option", ["--sample", "--batch"])
def test_times_of_a_stream_have_limits(tmp_path: Path, option: str) -> None:
    stream = ["stream", "--source", "os", "--sysroot", str(tmp_path)]
    for seconds in ("0.001", "3600"):
        assert command.main([*stream, option, seconds]) == command.EXIT_UNAVAILABLE
    for seconds in ("0.00099", "3600.1"):
        assert command.main([*stream, option, seconds]) == command.EXIT_USAGE


@pytest.mark.parametrize("arguments", [
    "ramp --cpu \u0661", "wake --cpu 1_0", "timers --cpu +1", "ramp --seconds \u0661",
    "ramp --seconds 1_0", "stream --source sim --sample 0_1", "stream --source sim --batch \u0661",
])  # fmt: skip
def test_numbers_have_plain_digits(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments.split()) == command.EXIT_USAGE
    assert re.fullmatch(r"perfprobe: --.*: invalid .* \(try .*\)\n", capsys.readouterr().err)


def test_the_tsc_is_measured_while_a_stream_opens_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the first message would wait for the measurement."""
    monkeypatch.setattr(access, "drop_capabilities", lambda *_: None)
    monkeypatch.setattr(tsc_rate, "_span_start", None)
    assert command.main(["stream", "--source", "nobody"]) == 2
    assert tsc_rate._span_start is not None


@pytest.mark.parametrize(
    ("line", "watches_job"),
    [
        ("os", False),
        ("os --watch PID", True),
        ("os --watch-tree PID", True),
        ("sim:demo --watch lmp", False),
    ],
)
def test_only_a_real_job_needs_a_capability_for_its_wait_channels(
    line: str, watches_job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(
        access, "drop_capabilities", lambda *_, watches_job=False: dropped.append(watches_job)
    )
    hellos: list[wire.Hello] = []

    def serve_hello(_: object, *streams: Any, on_hello: Callable[[], None]) -> None:
        hellos.append(streams[-1])
        on_hello()

    monkeypatch.setattr(serve, "serve", serve_hello)
    words = line.replace("PID", str(os.getpid())).split()
    assert command.main(["stream", "--source", *words]) == 0
    assert dropped[-1] == watches_job
    assert (hellos[0].watch is not None) == ("--watch" in line)


def test_stdout_is_blocking_again_if_registers_cannot_be_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parent may have the same open file."""
    readable, stdout = os.pipe()

    def serving(*_: object, **__: object) -> None:
        os.set_blocking(stdout, False)
        raise MsrsNotRestored("counters of CPU 3 stay programmed")

    monkeypatch.setattr(access, "drop_capabilities", lambda *_: None)
    monkeypatch.setattr(serve, "STDOUT", stdout)
    monkeypatch.setattr(serve, "serve", serving)
    assert command.main(["stream", "--source", "sim"]) == 1
    assert os.get_blocking(stdout)
    for fd in (readable, stdout):
        os.close(fd)


def test_a_stream_into_a_full_file_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(access, "drop_capabilities", lambda *_: None)
    monkeypatch.setattr(command, "_discard_stdout", lambda: None)
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(serve, "STDOUT", full.fileno())
        assert command.main(["stream", "--source", "sim"]) == 1
    error = "perfprobe: cannot write stdout: No space left on device\n"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize(("error", "text"), [
    (OSError(errno.EMFILE, "Too many open files", "/proc/stat"),
     "/proc/stat: Too many open files; raise the limit on open files (ulimit -n)"),
    (MemoryError(), "Cannot allocate memory; raise the limit on memory (ulimit -v)"),
    (ImportError("numpy:\nfailed to map"),
     ("a module cannot be loaded: numpy: failed to map; check the installation, and the limit on "
      "memory (ulimit -v)")),
])  # fmt: skip
def test_failures_are_reported_in_one_line(
    error: Exception,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(opening, "open_source", Mock(side_effect=error))
    assert command.main(["stream"]) == 1
    assert capsys.readouterr().err == f"perfprobe: {text}\n"


@pytest.mark.parametrize("verb", ["stream", "timers"])
def test_an_installation_without_the_native_part_is_reported_in_one_line(verb: str) -> None:
    code = (
        "import sys\nsys.modules['perfprobe._native'] = None\n"
        f"from perfprobe import __main__\nsys.exit(__main__.main(['{verb}']))"
    )
    result = python(code, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("perfprobe: a module cannot be loaded: ")
    assert result.stderr.count("\n") == 1


def test_a_bug_is_no_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open_source", Mock(side_effect=ValueError("bug")))
    with pytest.raises(ValueError, match="bug"):
        command.main(["stream"])


@pytest.mark.parametrize("verb", ["timers", "wake", "ramp"])
def test_an_instrument_needs_a_cpu_that_exists(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([verb, "--cpu", "99999"]) == 2
    assert "--cpu 99999: no such CPU (online: 0" in capsys.readouterr().err
    monkeypatch.setattr(topology, "read_cpus", lambda _: [])
    assert command.main([verb]) == 3
    assert "no CPUs can be found under /" in capsys.readouterr().err


def test_doctor_answers_if_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(opening, "open_source", refused)
    assert command.main(["doctor", "--sysroot", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    (missing,) = answer["missing"]
    assert (missing["what"], answer["source"]) == ("everything", None)
    assert "ulimit -u" in missing["why"]
    assert answer["checks"]
