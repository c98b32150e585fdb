"""`perftop stat`: its end, unwritable output, and repeated runs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from command import argv, run_in_process
from nightly import cases_by_day
from sim_streams import messages
from waiting import MAX_WAIT_S

from perftop import cli
from perftop.output.compare import repeated
from perftop.session.follow import READ_PAUSE_S
from perftop.verbs import options, stat
from perftop.verbs.measuring import Stat, Why


@pytest.mark.parametrize(("json_", "lines", "expected_kinds"), [
    (False, True, ["episode"]),
    (False, False, ["episode"]),
    (True, True, ["episode-start", "episode"]),
    (True, False, ["episode"]),
])  # fmt: skip
def test_a_running_episode_is_printed_once(
    json_: bool, lines: bool, expected_kinds: list[str]
) -> None:
    """Text output reports an episode at its start, or at the end of the run if only that is
    printed."""
    hello, result = messages("sim:turbo-drop,cpus=4,packages=1,seed=1", 100)
    printer = Stat(cli._parse_arguments(["stat", *(["--json"] if json_ else [])]))
    printer.out, printer._lines = io.StringIO(), lines
    printer.process([hello, *result])
    printer.on_end()
    printed = printer.out.getvalue().splitlines()
    if json_:
        kinds = [json.loads(line)["type"] for line in printed]
    else:
        kinds = ["episode" for line in printed if line.startswith("! ")]
    assert [kind for kind in kinds if kind.startswith("episode")] == expected_kinds


@pytest.mark.parametrize(("verb", "runs_job", "accepts_early"), [
    (Stat, False, False), (Stat, True, False), (Why, False, True), (Why, True, False)
])  # fmt: skip
def test_samples_before_the_measurement_do_not_count(
    verb: type[Stat | Why], runs_job: bool, accepts_early: bool
) -> None:
    """`why` without a command has no start: it counts all samples."""
    consumer: Any = verb(cli._parse_arguments(["why" if verb is Why else "stat"]))
    consumer.job, consumer.measurement = runs_job or None, Mock(admit=lambda _: False)
    assert consumer.accepts(None) is accepts_early


@pytest.mark.parametrize(("words", "pause_s"), [(["-i", "1s"], 0.0), ([], READ_PAUSE_S)])
def test_a_stream_is_read_without_pauses_if_intervals_are_printed(
    words: list[str], pause_s: float
) -> None:
    job: Any = Mock(pid=7)
    window = Stat(cli._parse_arguments(["stat", *words]), job).command_window
    assert window is not None
    assert window._read_pause_s == pause_s


JOB = ("--source", "sim:steady,cpus=2", "--", "sh", "-c", "exit 3")


@pytest.mark.parametrize("verb", cases_by_day(["stat", "why"], ["why"]))
def test_a_full_disk_keeps_the_status_of_the_command(verb: str) -> None:
    result = run_in_process(verb, "-o", "/dev/full", *JOB)
    assert result.returncode == 3
    assert "cannot write /dev/full: No space left on device" in result.stderr
    full = run_in_process(
        verb, "-o", "/dev/full", "--source", "sim:steady,cpus=2", "--duration", "1s"
    )
    assert full.returncode == 1


@pytest.mark.parametrize("verb", cases_by_day(["stat", "why"], ["stat"]))
def test_a_closed_output_keeps_the_status_of_the_command(verb: str) -> None:
    with subprocess.Popen(argv(verb, *JOB), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait(MAX_WAIT_S) == 3


# --- `perftop stat -r N -- CMD`


SOURCE = "--source=sim:steady,cpus=2,speed=max"


def test_each_run_is_measured_and_the_first_failure_gives_the_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status of the command is the number of its previous runs: 0 in the warm-up, then 1 and 2.
    Its signal dispositions are always the same, although perftop ignores some signals at the end of
    a run."""
    out, seen = tmp_path / "runs.json", tmp_path / "seen"
    seen.write_text("")
    code = f'n=$(wc -c <"{seen}"); printf x >>"{seen}"; exit $n'
    code = f'grep SigIgn /proc/self/status >>"{tmp_path}/signals"; {code}'
    words = ["stat", "-r", "2", "--warmup", "1", SOURCE, "--json", "-o", str(out)]
    assert cli.main([*words, "--keep-failed", "--", "sh", "-c", code]) == 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["hello", "run", "run", "run", "runs"]
    assert [line["run"]["status"] for line in lines[1:4]] == [0, 1, 2]
    assert (lines[-1]["runs"], lines[-1]["failed"]) == (0, 2)
    assert lines[-1]["numbers"]["run_s"] is None
    assert lines[1]["state"]["cpus"] == "2 of 2 on"
    assert len({*(tmp_path / "signals").read_text().splitlines()}) == 1


def test_the_first_failure_ends_the_series(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, seen = tmp_path / "runs.json", tmp_path / "seen"
    code = f'printf x >>"{seen}"; test "$(wc -c <"{seen}")" -lt 2'
    line = ["stat", "-r", "4", SOURCE, "--json", "-o", str(out), "--", "sh", "-c", code]
    assert cli.main(line) == 1
    assert seen.read_text() == "xx"
    assert "run 2 failed (exit status 1)" in capsys.readouterr().err
    runs = json.loads(out.read_text().splitlines()[-1])
    assert (runs["runs"], runs["failed"], runs["status"]) == (1, 1, 1)


def test_two_commands_run_alternately_and_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, seen = tmp_path / "runs.json", tmp_path / "seen"
    commands = [f"sh -c 'printf {name} >>{seen}'" for name in "ab"]
    words = ["stat", "-r", "2", SOURCE, "-A", commands[0], "-B", commands[1]]
    assert cli.main([*words, "--json", "-o", str(out)]) == 0
    assert seen.read_text() == "abba"
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["hello", *(["run"] * 2 + ["runs"]) * 2, "diff"]
    assert [line["side"] for line in lines[1:-1]] == ["A"] * 3 + ["B"] * 3
    (phase,) = lines[-1]["phases"]
    assert (phase["runs_a"], phase["runs_b"]) == (2, 2)
    assert "run_s" in phase["numbers"]
    assert not [text for text in lines[-1]["not_told"] if "sessions" in text]
    assert cli.main(["diff", str(out), str(out)]) != 0
    assert "runs of two commands" in capsys.readouterr().err
    assert cli.main(["stat", "-r", "2", *words[3:]]) == 0
    assert "2 runs per side" in capsys.readouterr().err


def test_a_failing_alternate_command_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["stat", "-r", "2", "--keep-failed", SOURCE, "-A", "true", "-B", "false"]
    assert cli.main(words) == 1
    printed = capsys.readouterr().err
    assert "false failed in all 2 runs (exit status 1): no run counts." in printed
    assert "verdict" not in printed


def test_a_signal_that_ended_the_command_ends_the_series(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interrupted run is not counted."""
    code = f'printf x >>"{tmp_path}/seen"; grep -q xx "{tmp_path}/seen" && kill -TERM $$; true'
    out = tmp_path / "runs.json"
    line = ["stat", "-r", "3", SOURCE, "--json", "-o", str(out), "--", "sh", "-c", code]
    assert cli.main(line) == 143
    assert (tmp_path / "seen").read_text() == "xx"
    runs = json.loads(out.read_text().splitlines()[-1])
    assert (runs["runs"], runs["status"]) == (1, 0)
    assert "signal 15" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["fork", "end", "command"])
def test_a_ctrl_c_at_any_moment_ends_the_series_and_keeps_its_runs(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives when the second command waits for its start, when the first run has been read, or
    while the second command runs, which survives it."""
    calls: list[object] = []
    number = signal.SIGINT

    def interrupting(function: Any, call: int) -> Any:
        def interrupt(*arguments: Any, **values: Any) -> Any:
            calls.append(arguments)
            if len(calls) == call:
                signal.raise_signal(number)
            return function(*arguments, **values)

        return interrupt

    code, out = f"printf x >>{tmp_path}/seen", tmp_path / "runs.json"
    if moment == "fork":
        monkeypatch.setattr(options, "stream_command", interrupting(options.stream_command, 2))
    elif moment == "end":
        monkeypatch.setattr(repeated, "RepeatedRun", interrupting(repeated.RepeatedRun, 1))
    else:
        code += f"; if grep -q xx {tmp_path}/seen; then kill -INT {os.getpid()}; sleep .2; fi"
    line = ["stat", "-r", "4", SOURCE, "--json", "-o", str(out), "--", "sh", "-c", code]
    assert cli.main(line) == 130
    assert (tmp_path / "seen").read_text() == ("xx" if moment == "command" else "x")
    runs = json.loads(out.read_text().splitlines()[-1])
    assert (runs["runs"], runs["status"]) == (1, 0)


@pytest.mark.parametrize(("to_file", "is_supported", "has_unicode"), [
    (False, False, False), (False, True, True), (True, False, True)
])  # fmt: skip
def test_runs_are_printed_in_ascii_only_on_a_terminal_without_unicode(
    to_file: bool, is_supported: bool, has_unicode: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(stat, "supports_unicode", lambda: is_supported)
    out = tmp_path / "out"
    words = ["-o", str(out)] if to_file else []
    result = run_in_process("stat", "-r", "2", SOURCE, *words, "--", "true")
    text = out.read_text(encoding="utf-8") if to_file else result.stderr
    assert ("± 95 %" in text, text.isascii()) == (has_unicode, not has_unicode)


def test_a_series_that_ended_before_its_first_run_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stat, "_measured_runs", lambda *_: ([], "", 143))
    assert cli.main(["stat", "-r", "2", SOURCE, "--", "true"]) == 143
    assert capsys.readouterr() == ("", "")
