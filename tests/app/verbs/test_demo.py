"""Recordings shipped with perftop: their list and contents, and the reports of `why` and `diff`
compared with the staged load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfprobe import wire
from perftop import cli
from perftop.docs.command_line import doc_names
from perftop.recording.file import Recording
from perftop.verbs import options, screens

NAMES = doc_names("demo", "recording")
MAX_BYTES = 300_000


def why(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.main(["why", "--json", f"demo:{name}"]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


def test_the_page_lists_all_recordings() -> None:
    assert sorted(NAMES) == sorted(path.stem for path in options.SHIPPED.iterdir())
    assert not set(NAMES) & set(doc_names("sim", "scenario"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_complete_and_contains_no_other_process(name: str) -> None:
    path = options.shipped_recording(name)
    assert path is not None
    assert path.stat().st_size <= MAX_BYTES
    with Recording(path) as recording:
        messages = list(recording.messages())
        assert recording.damage is None
        text = repr(
            (recording.hello, [message for message in messages if isinstance(message, wire.Note)])
        )
    assert recording.hello.host == "vm1"
    for folder in ("/work", "/home", "/root"):
        assert folder not in text


def test_a_quota_is_blamed_for_the_time_it_stops_the_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The quota is 0.6 CPUs, and the job needs one."""
    first = why("quota", capsys)["causes"][0]
    assert first["cause"] == "quota"
    assert first["details"]["cpus"] == 0.6
    assert first["details"]["group"].endswith("nightly.service")
    assert first["lost_ratio"] == pytest.approx(0.4, abs=0.11)


def test_sharing_a_cpu_is_blamed_for_half_of_the_shared_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`backup` ran for 5 of 13 s on the CPU of `lmp`."""
    line = why("queue", capsys)
    first = line["causes"][0]
    assert first["cause"] == "scheduler"
    assert "backup[" in first["text"]
    assert first["lost_s"] == pytest.approx(2.5, abs=0.6)


def test_a_memory_limit_is_blamed_for_reading_pages_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`index` used 70 MiB all the time, in a group limited to 48."""
    first = why("reclaim", capsys)["causes"][0]
    assert first["cause"] == "memory-limit"
    assert first["details"]["group"].endswith("index.service")
    assert first["details"]["memory_limit_mb"] == round((48 << 20) / 1e6)
    assert first["details"]["pages_read_back"] > (22 << 20) // 4096
    assert first["lost_ratio"] > 0.1


def test_softirqs_are_named_with_their_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    """`flood` sent for 6 of 12 s on CPU 1."""
    first = why("softirq", capsys)["causes"][0]
    assert first["cause"] == "softirq"
    assert first["cpus"] == [1]
    assert "NET_RX" in first["text"]


def test_the_bad_run_is_slowed_down_by_backup(capsys: pytest.CaptureFixture[str]) -> None:
    assert why("good-run", capsys)["lost_ratio"] < 0.1
    first = why("bad-run", capsys)["causes"][0]
    assert first["cause"] == "scheduler"
    assert "backup[" in first["text"]


def test_the_list_has_recordings_and_simulated_machines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["demo", "list"]) == 0
    printed = capsys.readouterr().out
    first_words = {line.split()[0] for line in printed.splitlines() if line}
    assert {*NAMES, *doc_names("sim", "scenario")} <= first_words
    assert "`" not in printed


@pytest.mark.parametrize(("typed", "source"), [
    ([], "sim:demo"),
    (["guest"], "sim:guest"),
    (["cpus=8"], "sim:demo,cpus=8"),
    (["neighbour,cpus=64"], "sim:neighbour,cpus=64"),
])  # fmt: skip
def test_a_simulated_machine_can_be_given_by_its_size_only(
    typed: list[str], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "is_at_terminal", lambda: True)
    monkeypatch.setattr(screens, "run_live", lambda args: int(args.source != source))
    assert cli.main(["demo", *typed]) == 0


@pytest.mark.parametrize(
    "typed", [["why"], ["summary"], ["export"], ["replay"], ["diff", "demo:quota"]]
)
def test_an_unknown_recording_lists_the_existing_ones(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("nothing", "../file", ""):
        assert cli.main([*typed, f"demo:{name}"]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert all(known in message for known in NAMES)


def test_a_file_name_may_contain_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = options.shipped_recording("quota")
    assert path is not None
    Path("n1:quota").write_bytes(path.read_bytes())
    assert cli.main(["summary", "n1:quota"]) == 0
    assert "quota" in capsys.readouterr().out


def test_diff_agrees_with_why_about_a_recorded_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The job's wait is not visible in samples of CPUs, which meanwhile run other tasks."""
    lost = why("bad-run", capsys)["lost_ratio"]
    assert cli.main(["diff", "--json", "demo:good-run", "demo:bad-run"]) == 0
    (phase,) = json.loads(capsys.readouterr().out)["phases"]
    rows = phase["numbers"]
    assert rows["lost_ratio"]["b"] == pytest.approx(lost, abs=0.01)
    assert rows["waited_s"]["a"] < 1
    assert rows["waited_s"]["b"] > 5
