"""perftop summary and why of recordings and commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import exports
import pytest
from command import lines, python, run_in_process
from nightly import cases_by_day
from recording_files import write_recording
from sim_streams import messages
from waiting import MAX_WAIT_S

from perfprobe import wire
from perftop import cli
from perftop.base.errors import USAGE, Failed
from perftop.output import report
from perftop.output.summary_text import _sentences
from perftop.output.why_text import SHORT_TASKS
from perftop.verbs import why

SPEC = "sim:turbo-drop,cpus=8,packages=1,seed=1"
MARKS = {2.0: "load", 7.95: "solve", 12.15: "store"}
"""Seconds after the start; the drop covers the second phase."""
SHARE = 620 / 3500
BY_MARK = ("--by", "mark")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "run.perftop"
    return exports.marked_recording(path, SPEC, 200, MARKS)


def run(file: Path, *more: str) -> int:
    options = cli._parse_arguments(["summary", str(file), *more])
    status: int = options.verb(options)
    return status


def printed_summary(capsys: pytest.CaptureFixture[str], file: Path, *more: str) -> list[str]:
    assert run(file, *more) == 0
    return capsys.readouterr().out.splitlines()


def phases(capsys: pytest.CaptureFixture[str], file: Path, *more: str) -> dict[str, dict[str, Any]]:
    lines = printed_summary(capsys, file, "--json", *more)
    return {line["label"]: line for line in map(json.loads, lines)}


def test_phases_begin_at_marks(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = phases(capsys, recording, *BY_MARK)
    assert [*result] == ["load", "solve", "store", "whole"]
    lost = [result[name]["lost_to_causes_ratio"] for name in ("load", "solve", "store")]
    assert lost == pytest.approx([0, SHARE * 4.1 / 4.2, 0], abs=0.01)
    assert result["solve"]["elapsed_s"] == pytest.approx(4.2, abs=0.11)
    assert result["whole"]["lost_to_causes_ratio"] == pytest.approx(SHARE * 4.1 / 20, abs=0.003)
    (cause, *_) = result["solve"]["causes"]
    assert (cause["kind"], cause["cause"]) == ("turbo-drop", "power-pl1")
    clocks = {name: line["machine"]["busy_hz"]["mean"] for name, line in result.items()}
    assert clocks["load"] - clocks["solve"] == pytest.approx(620e6 * 4.1 / 4.2, rel=0.05)
    joules = sum(result[name]["energy_j"] for name in ("load", "solve", "store"))
    assert joules < result["whole"]["energy_j"], "time before the first mark is left out"


def test_percentiles_do_not_import_masked_arrays(recording: Path) -> None:
    """The import takes as long as 150 samples of 96 CPUs take to read."""
    path = str(recording)
    for argv in (["summary", path], ["diff", path, path]):
        code = f"import sys, perftop.cli\nperftop.cli.main({argv!r})\nprint(*sys.modules)"
        assert "numpy.ma" not in python(code).stdout.splitlines()[-1].split(), argv


def test_marks_before_the_part_do_not_begin_phases(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = phases(capsys, recording, *BY_MARK, "--from", "5s", "--to", "14s")
    assert [*result] == ["solve", "store", "whole"]


def test_all_of_many_phases_have_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hello, result = messages(SPEC, 100)
    timed: list[wire.Message] = []
    for i, message in enumerate(result):
        if i % 20 == 0:
            timed.append(wire.Note("mark", message.time_ns, data={"label": f"step {i}"}))
        timed.append(message)
    path = exports.record(tmp_path / "run.perftop", [hello, *timed])
    lines = printed_summary(capsys, path, *BY_MARK)
    assert sum(line.startswith("step ") for line in lines) >= 5


def test_the_time_of_a_command_before_its_first_mark_has_one_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hello, result = messages(SPEC, 100)
    timed: list[wire.Message] = [wire.Note("run-start", result[0].time_ns, data={"argv": ["sh"]})]
    timed += [*result[:50], wire.Note("mark", result[49].time_ns, data={"label": "link"})]
    path = exports.record(tmp_path / "run.perftop", [hello, *timed, *result[50:]])
    lines = printed_summary(capsys, path, *BY_MARK)
    assert any(line.split()[:2] == ["before", "link"] for line in lines)
    assert not any("run: sh" in line for line in lines)


def test_a_phase_that_begins_during_an_episode_names_its_culprit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The episode lasts from 8 to 18 s; headings and long names do not touch others."""
    marks = {1.0: "one", 6.0: "two", 12.0: "a-phase-with-a-long-name", 16.0: "four"}
    path = exports.marked_recording(tmp_path / "run.perftop", "sim:neighbour,cpus=8", 170, marks)
    lines = printed_summary(capsys, path, *BY_MARK)
    assert all(len(line) <= 80 for line in lines[:3])
    assert "Phase a-phase-with-a… lost most: 1.2 of 2.8 CPU s." in " ".join(lines[:3])
    text = " ".join(" ".join(lines).split())
    assert "what held it back" in text
    assert "CPU s, worst at 22:13:28; two " in text, text
    assert "a-phase-with-a… 15.4 %" in text
    (heading,) = (line.split() for line in lines if line.startswith("machine by phase"))
    assert heading[3:7] == ["s", "busy", "%", "GHz"]


@pytest.mark.parametrize(("more", "why"), [
    ("--from 100s", "has no samples in that range"),
    ("--from 2s --to 1s", "--to must be later"),
    ("--from 99:00", "invalid time of day '99:00'"),
])  # fmt: skip
def test_a_range_without_samples_is_refused(recording: Path, more: str, why: str) -> None:
    with pytest.raises(Failed, match=why) as failed:
        run(recording, *more.split())
    assert failed.value.status == USAGE


def test_a_phase_seen_too_little_has_no_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short-lived tasks of a phase can be missed: its share would be that of a few milliseconds."""
    marks = {1.0: "one", 6.0: "two"}
    path = exports.marked_recording(tmp_path / "run.perftop", "sim:neighbour,cpus=8", 100, marks)
    lines = printed_summary(capsys, path, *BY_MARK)
    assert "Phase two lost most: 0.6 of 0.6 CPU s." in " ".join(lines[:2])
    monkeypatch.setattr(report.Report, "is_too_short", True)
    lines = printed_summary(capsys, path, *BY_MARK)
    assert f"Used too little CPU time to give shares of it: one, two. {SHORT_TASKS}" in " ".join(
        lines[:4]
    )
    assert not any("stream took" in line for line in lines)


def test_a_phase_that_slept_did_not_lose_most() -> None:
    def phase(name: str, whole_s: float, lost_ratio: float, *, is_too_short: bool = False) -> Any:
        report = SimpleNamespace(
            sums=SimpleNamespace(whole_s=whole_s), lost_ratio=lost_ratio, is_too_short=is_too_short
        )
        return SimpleNamespace(name=name, line={"answer": "It lost."}, report=report)

    phases = [phase("asleep", 0.0, nan), phase("short", 0.09, nan, is_too_short=True)]
    text = _sentences(phases, phase("", 0.18, 0.5))
    assert text == f"It lost. Used too little CPU time to give shares of it: short. {SHORT_TASKS}"


def test_a_recording_without_marks_has_no_phases(tmp_path: Path) -> None:
    path = exports.record(tmp_path / "run.perftop", [*_flat()])
    with pytest.raises(Failed, match=r"no marks in .*run\.perftop; .*: perftop mark NAME"):
        run(path, *BY_MARK)


@pytest.mark.parametrize(
    ("end", "status", "why"), [(True, 1, "$"), (False, 4, ": truncated at byte .* no end$")]
)
def test_a_recording_without_samples_is_reported(
    tmp_path: Path, end: bool, status: int, why: str
) -> None:
    """The user requested no time."""
    hello, first, *_ = _flat()
    assert isinstance(hello, wire.Hello)
    assert isinstance(first, wire.Frame)
    path = write_recording(tmp_path / "run.perftop", hello, [first], end=end)
    with pytest.raises(Failed, match=f"has fewer than two samples{why}") as failed:
        run(path)
    assert failed.value.status == status


def _flat() -> list[wire.Message]:
    hello, result = messages(SPEC, 20)
    return [hello, *result]


def test_times_of_day_are_right_after_a_suspend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine of a recording of 20 s is suspended for an hour after 5 s; the raw clock stops
    meanwhile."""
    hello, played = messages("turbo-drop,cpus=8,packages=1,seed=1", 200)
    wakes_ns = hello.raw_ns + 5 * 10**9
    slept = [
        replace(m, records=m.records | {"asleep_ns": 3600 * 10**9})
        if isinstance(m, wire.Frame) and m.time_ns > wakes_ns else m
        for m in played
    ]  # fmt: skip
    file = write_recording(tmp_path / "slept.perftop", hello, slept)

    def elapsed_s(*span: str) -> float:
        assert run(file, "--json", *span) == 0
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        (whole,) = (line for line in lines if line["label"] == "whole")
        return float(whole["elapsed_s"])

    def clock(second: int) -> str:
        return time.strftime("%H:%M:%S", time.localtime(hello.wall_ns // 10**9 + second))

    assert elapsed_s("--from", clock(60)) == pytest.approx(15, abs=0.3), "during the suspend"
    assert elapsed_s("--to", clock(60)) == pytest.approx(5, abs=0.3)
    assert elapsed_s("--from", clock(3610)) == pytest.approx(10, abs=1.1)
    assert elapsed_s("--from", "10s") == pytest.approx(10, abs=0.3), "10 s of the recording"


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 29, 23), (10, 25, 25), (6, 1, 24)])
def test_the_length_of_a_day_depends_on_clock_changes(
    month: int, day: int, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        start_s = time.mktime((2026, month, day - 1, 12, 0, 1, 0, 0, -1))
        hello, _ = messages(SPEC.removeprefix("sim:"), 1)
        hello = replace(hello, wall_ns=int(start_s) * 10**9)
        result = why._moment("12:00:00", hello)
        assert result == (int(start_s + hours * 3600 - 1) * 10**9, True)
    finally:
        monkeypatch.undo()
        time.tzset()


# --- `perftop why` as a program: its output and exit status


SPED_UP_SIM = ["--source", "sim:turbo-drop,cpus=8,speed=40"]


def run_perftop(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perftop", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False)


def test_a_single_sample_is_not_enough(tmp_path: Path) -> None:
    """Empty output would look like "no cause"."""
    empty, single = tmp_path / "empty", tmp_path / "single"
    played = exports.messages("sim:idle,cpus=2", 1)
    exports.record(empty, played[:1])
    exports.record(single, played[:2])
    for path in (empty, single):
        result = run_in_process("why", str(path))
        assert (result.stdout, result.returncode) == ("", USAGE)
        assert "fewer than two samples" in result.stderr


@pytest.mark.parametrize("duration_ms", [1, 50, 250])
def test_a_short_measurement_has_at_least_one_sample(duration_ms: int) -> None:
    """The default of --sample is shorter than 100 ms if the duration is."""
    length = "--duration", f"{duration_ms}ms"
    why = json.loads(run_in_process("why", *SPED_UP_SIM, *length, "--json").stdout)
    assert why["seen"]["elapsed_s"] == pytest.approx(duration_ms / 1e3, abs=0.051)
    (interval,) = lines(run_in_process("stat", *SPED_UP_SIM, *length, "--json").stdout, "interval")
    assert interval["elapsed_s"] == why["seen"]["elapsed_s"]


OUTPUT_OPTIONS: list[list[str]] = [[], ["--json"], ["--json", "-o", "-"], ["--json", "-o", "FILE"]]


@pytest.mark.parametrize("output_options", cases_by_day(OUTPUT_OPTIONS, [OUTPUT_OPTIONS[3]]))
def test_a_command_has_its_own_output_and_status(output_options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "FILE"
    output_options = [str(path) if word == "FILE" else word for word in output_options]
    result = run_perftop(
        "why", "--source", "os", *output_options, "--", "sh", "-c", "echo mine; exit 3"
    )
    assert result.returncode == 3, result.stderr
    own, printed_summary = (
        (result.stderr, result.stdout) if "-" in output_options else (result.stdout, result.stderr)
    )
    if path.exists():
        assert printed_summary == ""
        printed_summary = path.read_text()
    assert own == "mine\n"
    if output_options:
        assert json.loads(printed_summary)["run"]["status"] == 3
    else:
        assert "seen" in printed_summary
