"""`perftop mark`: a command marks its own phases."""

from __future__ import annotations

import os
import shlex
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from capabilities import cannot_be_another_user
from nightly import nightly_case
from waiting import MAX_WAIT_S

from perftop.base.errors import Failed
from perftop.process.job import MAX_PENDING_MARKS, SOCKET_VARIABLE, MarkSocket, send_mark

PERFTOP = [sys.executable, "-m", "perftop"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PERFTOP, *arguments], capture_output=True, text=True, timeout=MAX_WAIT_S, check=False,
        env=os.environ | environment,
    )  # fmt: skip


def test_a_recorded_command_marks_its_own_phases(tmp_path: Path) -> None:
    mark = shlex.join([*PERFTOP, "mark"])
    script = f"{mark} build; sleep 0.8; {mark} 'the link'; sleep 0.8"
    file = str(tmp_path / "run.perftop")
    recorded = run(
        "record", "--source", "os", "--sample", "500ms", "-o", file, "--", "sh", "-c", script
    )
    assert recorded.returncode == 0, recorded.stderr
    summary = run("summary", "--by", "mark", file)
    heads = next(
        line for line in summary.stdout.splitlines() if "build" in line and "whole" in line
    )
    assert heads.split()[-4:] == ["build", "the", "link", "whole"]
    tables = [
        text[text.index("\nphase ") : text.index("\nall ") + 30]
        for text in (recorded.stderr, summary.stdout)
    ]
    assert tables[0] == tables[1], "the receipt ends with the command, not with the last sample"


@pytest.mark.parametrize("verb", [["stat", "--brief"], nightly_case(["why"])], ids=["stat", "why"])
def test_a_measured_command_marks_its_own_phases(verb: list[str]) -> None:
    # A single long process, since processes that end between two scans of tasks are missed.
    script = (
        "import time; from perftop.process.job import send_mark\n"
        "for name in ('first', 'second'):\n"
        "    send_mark(name); time.sleep(1.3)"
    )
    result = run(*verb, "--source", "os", "--", sys.executable, "-c", script)
    rows = [line.split()[0] for line in result.stderr.splitlines() if line[:1].isalpha()]
    assert [row for row in rows if row in {"first", "second"}] == ["first", "second"]


def test_a_mark_without_a_measurement_is_reported_with_a_fix() -> None:
    result = run("mark", "x", **{SOCKET_VARIABLE: ""})
    assert result.returncode == 1
    assert result.stderr.startswith("perftop: no mark was set: ")
    assert "perftop record -- CMD" in result.stderr
    ended = run("mark", "x", **{SOCKET_VARIABLE: f"perftop-{os.getuid()}-gone"})
    assert (ended.returncode, ended.stderr) == (
        1, "perftop: no mark was set: the perftop that ran this command has ended\n",
    )  # fmt: skip


def test_marks_are_in_order_and_long_names_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = MarkSocket()
    monkeypatch.setenv(SOCKET_VARIABLE, marks.environment()[SOCKET_VARIABLE])
    for name in ("a", "b" * 999, "\udcff"):
        send_mark(name)
    assert [name[:3] for _, name in marks.new_marks()] == ["a", "bbb", "?"]
    assert [*marks.new_marks()] == []
    marks.close()
    with pytest.raises(Failed, match="has ended"):
        send_mark("late")
    assert [*marks.new_marks()] == []


def test_a_command_that_sets_many_marks_does_not_wait_for_samples() -> None:
    script = (
        "import time; from perftop.process.job import send_mark; start = time.monotonic()\n"
        "for at in range(256): send_mark(str(at))\n"
        "print(time.monotonic() - start)"
    )
    # The kernel buffers about ten; marks that waited for the samples would take 20 s.
    result = run("stat", "--source", "os", "-o", os.devnull, "--sample", "1s", "--",
                sys.executable, "-c", script)  # fmt: skip
    assert float(result.stdout) < 10


def test_a_stopped_perftop_hardly_delays_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = MarkSocket()
    monkeypatch.setenv(SOCKET_VARIABLE, marks.environment()[SOCKET_VARIABLE])
    monkeypatch.setattr("perftop.process.job.SEND_TIMEOUT_S", 0.01)
    with pytest.raises(Failed, match="does not answer"):
        for _ in range(100_000):
            send_mark("x")


def test_the_number_of_marks_between_two_samples_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = MarkSocket()
    monkeypatch.setenv(SOCKET_VARIABLE, marks.environment()[SOCKET_VARIABLE])
    for at in range(MAX_PENDING_MARKS + 8):
        send_mark(str(at))
        marks.collect()
    assert len(marks.new_marks()) == MAX_PENDING_MARKS
    send_mark("next")
    assert [name for _, name in marks.new_marks()] == ["next"]


@pytest.mark.parametrize("owner", [str(os.getuid()), "9" * 5000])
def test_marks_of_another_user_fail_with_a_message(
    monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, f"perftop-{owner}-x")
    stranger = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: stranger)
    with pytest.raises(Failed, match="another user"):
        send_mark("stranger")


@pytest.mark.skipif(bool(cannot_be_another_user()), reason=cannot_be_another_user() or "it can")
def test_marks_of_another_user_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = MarkSocket()
    monkeypatch.setenv(SOCKET_VARIABLE, marks.environment()[SOCKET_VARIABLE])
    if (pid := os.fork()) == 0:
        with suppress(BaseException):  # of this fork of pytest, too
            user = os.getuid()
            monkeypatch.setattr("os.getuid", lambda: user)
            os.setuid(65534)
            send_mark("stranger")
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, "the mark was sent"
    send_mark("own")
    assert [name for _, name in marks.new_marks()] == ["own"]
    marks.close()


def test_endless_messages_of_another_user_do_not_keep_perftop() -> None:
    class FloodedSocket(socket.socket):
        def recvmsg(self, *_: object) -> Any:
            credentials = struct.pack("=3i", 1, os.getuid() + 1, 1)
            return b"12345678x", [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)], 0, None

    marks = MarkSocket()
    marks.close()
    marks._socket = FloodedSocket(socket.AF_UNIX, socket.SOCK_DGRAM)
    assert marks.new_marks() == []
    marks.close()


def test_a_command_runs_without_marks_if_sockets_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("socket.socket", refused)
    marks = MarkSocket()
    assert marks.environment() == {}
    assert [*marks.new_marks()] == []
