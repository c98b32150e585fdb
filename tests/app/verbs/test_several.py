"""Several machines at once, and the progress line of reading."""

from __future__ import annotations

import io
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock, call

import fake_ssh
import pytest
from command import lines, run, run_in_process
from nightly import nightly_case
from recording_files import write_recording
from sim_streams import messages

from perfprobe import wire
from perftop import cli
from perftop.base.errors import Failed
from perftop.base.text import CLEAR_LINE
from perftop.process.link import Link
from perftop.recording import file
from perftop.recording.file import RecordingSource, open_source
from perftop.verbs import headless, options
from perftop.verbs.headless import QUIET_START_S
from perftop.verbs.recorder import StreamRecorder

HOSTS = ("--host", "n1", "--host", "me@n2", "--host", "n3")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_ssh.Hosts:
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    for i, host in enumerate(("n1", "me@n2", "n3")):
        hosts.set(host, f"run sim:idle,cpus={2 + 2 * i},speed=10")
    return hosts


def test_record_writes_a_file_for_each_machine(hosts: fake_ssh.Hosts, tmp_path: Path) -> None:
    result = run_in_process("record", *HOSTS, "-o", str(tmp_path / "kept"), "--duration", "2s")
    assert result.returncode == 0, result.stderr
    results = {}
    for path in (tmp_path / "kept").iterdir():
        with file.Recording(path) as recording:
            results[path.name] = len(recording.hello.topology)
    assert results == {"n1.perftop": 2, "me@n2.perftop": 4, "n3.perftop": 6}
    again = run_in_process("record", *HOSTS, "-o", str(tmp_path / "kept"), "--duration", "2s")
    assert again.returncode == 1
    assert "already exists" in again.stderr


@pytest.mark.parametrize(("words", "limit_s"), [
    (["record", "-o", "kept", "--duration", "500ms"], 0.5),
    (["stat", "--duration", "500ms"], 0.5),
    (["stat", "-n", "3", "-i", "200ms"], 0.6),
])  # fmt: skip
def test_a_broken_link_is_retried_for_at_most_the_duration(
    words: list[str], limit_s: float, hosts: fake_ssh.Hosts, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    limits: list[float] = []
    monkeypatch.setattr(Link, "limit_retries", lambda _, seconds: limits.append(seconds))
    run_in_process(*words, *HOSTS[:2])
    assert limits == [pytest.approx(limit_s)]


def test_each_of_two_machines_has_its_own_probe() -> None:
    args = cli._parse_arguments(["stat", *HOSTS[:4]])
    commands = options.stream_commands(args, 10**8, 10**9, None)
    assert [(name, "n1" in argv, "me@n2" in argv) for name, argv in commands] == [
        ("n1", True, False), ("me@n2", False, True)
    ]  # fmt: skip


def test_the_progress_of_a_recording_is_visible_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Mock())
    record = StreamRecorder(cli._parse_arguments(["record"]), tmp_path / "a")
    record._print("recording: 1 kB")
    assert terminal.method_calls[-2:] == [call.write(f"{CLEAR_LINE}recording: 1 kB"), call.flush()]


def test_a_mark_is_written_to_every_recording(tmp_path: Path) -> None:
    records = [StreamRecorder(cli._parse_arguments(["record"]), tmp_path / name) for name in "ab"]
    for record in records:
        record.all_records = records
        hello, result = messages("sim:idle,cpus=2", 2)
        record.process([hello, result[0]])
    for key in "xxm":
        records[0]._handle_key(key)
    for record in records:
        record.process([result[1]])
        record.on_end()
        with file.Recording(record._path) as recording:
            assert [type(message) for message in recording.messages()].count(wire.Note) == 1


def test_a_broken_recording_does_not_stop_others(hosts: fake_ssh.Hosts, tmp_path: Path) -> None:
    hosts.set("me@n2", "refused")
    result = run_in_process("record", *HOSTS, "-o", str(tmp_path / "kept"), "--duration", "1s")
    assert result.returncode == 1
    assert "me@n2: connection" in result.stderr
    assert "1 of 3 machines failed" in result.stderr
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"n1.perftop", "n3.perftop"}


def test_lines_of_stat_name_their_machine(hosts: fake_ssh.Hosts) -> None:
    hosts.set("n3", "nologin")
    result = run_in_process("stat", *HOSTS, "--json", "-n", "2")
    assert result.returncode == 1
    for kind, each in (("hello", 1), ("interval", 2), ("summary", 1)):
        whose = [line["from"] for line in lines(result.stdout, kind)]
        assert sorted(whose) == sorted(["n1", "me@n2"] * each)


COMMAND = (
    "import time; a = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW); time.sleep(0.4);"
    "print(a, time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))"
)


def test_the_window_of_each_machine_contains_the_command(hosts: fake_ssh.Hosts) -> None:
    """All machines are this one under other names: its clock shows whether the windows, found
    without using it, contain the times printed by the command."""
    for host in ("n1", "me@n2", "n3"):
        hosts.set(host, "other")
    kept = hosts.path.parent / "kept"
    result = run("record", *HOSTS, "--source", "os", "-o", str(kept),
               "--", sys.executable, "-c", COMMAND)  # fmt: skip
    assert result.returncode == 0, result.stderr
    first_ns, last_ns = map(int, result.stdout.split())
    assert len(list(kept.iterdir())) == 3
    for path in kept.iterdir():
        with file.Recording(path) as recording:
            notes = [m for m in recording.messages() if isinstance(m, wire.Note)]
        (end,) = (note.data for note in notes if note.kind == "run-end")
        assert end["first_ns"][1] <= first_ns < last_ns <= end["last_ns"][0]


@pytest.mark.parametrize("probe", ["other", nightly_case("old")])
def test_clocks_of_other_machines_are_not_compared(hosts: fake_ssh.Hosts, probe: str) -> None:
    """Only lengths are: the remote window exceeds the run by the reported slack. A probe of an
    older version has no window."""
    hosts.set("n1", probe)
    out = hosts.path.parent / "out"
    result = run_in_process(
        "stat", "--host", "n1", "--source", "os", "--json", "-o", str(out), "--", "true"
    )
    assert result.returncode == 0, result.stderr
    (printed,) = (line["run"] for line in lines(out.read_text(encoding="utf-8"), "summary"))
    assert (printed["start"], printed["end"]) == (None, None)
    if probe == "old":
        assert (printed["slack_s"], printed["first_samples"]) == (None, None)
        return
    (first, _), (_, last) = printed["first_samples"], printed["last_samples"]
    assert printed["slack_s"] == pytest.approx(last - first - printed["wall_s"], abs=1e-5)
    assert printed["slack_s"] > 0


def test_the_status_of_the_command_is_kept_if_a_machine_is_lost(hosts: fake_ssh.Hosts) -> None:
    for host in ("n1", "n3"):
        hosts.set(host, "real")
    hosts.set("me@n2", "badkey")
    result = run("stat", *HOSTS, "--source", "os", "--", "sh", "-c", "exit 7")
    assert result.returncode == 7
    assert "me@n2: host key not accepted" in result.stderr
    assert result.stderr.count("\nexit status 7") == 2
    result = run_in_process("stat", *HOSTS, "--source", "os", "--", "true")
    assert result.returncode == 1


def test_the_command_does_not_start_without_a_machine(hosts: fake_ssh.Hosts) -> None:
    for host in ("n1", "me@n2", "n3"):
        hosts.set(host, "refused")
    result = run_in_process("stat", *HOSTS, "--", "echo", "it ran")
    assert result.returncode == 3
    assert result.stdout == ""


def test_names_of_machines_are_safe_file_names(tmp_path: Path) -> None:
    wild = ["../../etc/x", "a/b", "a:b", ".x", "---", "ü" * 300, "[::1]"]
    result = headless.output_paths(tmp_path, wild)
    assert len({*result}) == len(wild)
    for path in result:
        assert path.parent == tmp_path
        assert path.name[0] not in ".-"
        assert len(path.name.encode()) < 100
    alike = headless.output_paths(tmp_path, ["a/b", "a:b", "a b"])
    assert [path.stem for path in alike] == ["a-b", "a-b-2", "a-b-3"]
    with pytest.raises(Failed, match="twice"):
        headless.output_paths(tmp_path, ["a", "a"])
    assert len(headless.output_paths(tmp_path, [f"n{i}" for i in range(64)])) == 64
    with pytest.raises(Failed, match="65 machines: at most 64 at once"):
        headless.output_paths(tmp_path, [f"n{i}" for i in range(65)])
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(Failed, match="directory"):
        headless.output_paths(tmp_path / "file", ["a", "b"])


# --- the progress line of reading a recording


SAMPLES = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "a.perftop", *messages("sim:idle,cpus=2", SAMPLES))


def test_the_line_appears_after_a_while_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, terminal = [0.0], io.BytesIO()
    out = io.TextIOWrapper(terminal)  # which keeps a line without an end until it is flushed
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr("perftop.verbs.headless.time.monotonic", lambda: now_s[0])
    hello, result = messages("sim:idle,cpus=2", SAMPLES)
    source = SimpleNamespace(hello=hello, messages=lambda: result, size=400, offset=100)
    with headless.read_with_progress(cast("RecordingSource", source), "a") as counted:
        list(islice(counted, 30))
        assert not terminal.getvalue(), "it was not shown"
        now_s[0] = 4 * QUIET_START_S
        list(counted)
        assert terminal.getvalue() == b"\r\x1b[Kreading a: 30 samples, 0:02, 12 s left"
    assert terminal.getvalue().endswith(b" left\r\x1b[K")


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (False, False), (True, True)])
def test_the_line_is_shown_on_terminals_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr(headless, "QUIET_START_S", 0.0)
    with (
        open_source(path) as source,
        pytest.raises(KeyboardInterrupt),
        headless.read_with_progress(source, "a", quiet=quiet) as result,
    ):
        assert len(list(result)) == SAMPLES
        raise KeyboardInterrupt
    assert bool(out.getvalue()) == (terminal and not quiet)
    assert not out.getvalue() or out.getvalue().endswith("\r\x1b[K")
