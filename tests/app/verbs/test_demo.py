"""Recordings shipped with perftop: their list and contents, and the reports of `why` and `diff`
compared with the staged load."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perfprobe import wire
from perftop import cli
from perftop.base import errors
from perftop.docs.command_line import names_in_table
from perftop.process import launch
from perftop.recording.file import Recording
from perftop.tui import config, pair_screen
from perftop.verbs import options, screens

NAMES = names_in_table("demo", "recording")
MAX_BYTES = 300_000


def why(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.main(["why", "--json", f"demo:{name}"]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


def test_the_page_lists_all_recordings() -> None:
    assert sorted(NAMES) == sorted(path.stem for path in options.SHIPPED_DIRECTORY.iterdir())
    assert not set(NAMES) & set(names_in_table("sim", "scenario"))


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


@pytest.mark.parametrize(("name", "cause", "key", "share"), [
    ("quota", "quota", "lost_ratio", pytest.approx(0.4, abs=0.11)),  # of one CPU; it may use 0.6
    ("queue", "scheduler", "lost_s", pytest.approx(2.5, abs=0.6)),  # `backup` ran for 5 of 13 s
    ("reclaim", "memory-limit", "lost_ratio", pytest.approx(0.26, abs=0.16)),
    ("softirq", "softirq", "cpus", [1]),  # `flood` sent for 6 of 12 s
    ("bad-run", "scheduler", "running", False),
])  # fmt: skip
def test_the_staged_load_is_the_first_cause(
    name: str, cause: str, key: str, share: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole reports are in the golden outputs. `index` used 70 MiB, in a group limited to 48:
    it read back more than the rest."""
    first = why(name, capsys)["causes"][0]
    assert (first["cause"], first[key]) == (cause, share)
    assert "backup[" in first["text"] or cause != "scheduler"
    assert first["details"].get("pages_read_back", 1 << 30) > (22 << 20) // 4096
    assert first["details"].get("memory_limit_mb", 50) == round((48 << 20) / 1e6)


def test_the_list_has_recordings_and_simulated_machines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["demo", "list"]) == 0
    printed = capsys.readouterr().out
    first_words = {line.split()[0] for line in printed.splitlines() if line}
    assert {*NAMES, *names_in_table("sim", "scenario")} <= first_words
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
    monkeypatch.setattr(errors, "terminal_problem", lambda: None)
    monkeypatch.setattr(screens, "run_live", lambda args: int(args.source != source))
    assert cli.main(["demo", *typed]) == 0


SIM = "--source", "sim:idle,cpus=2"


@pytest.mark.parametrize(("typed", "screen", "interval_ns"), [
    (["live", *SIM], "stream.run", 500_000_000),
    (["demo", "guest", "-i", "2s"], "stream.run", 2_000_000_000),
    (["live", *SIM, "-i", "1s", "--", "true"], "command.run", 1_000_000_000),
    (["replay", "demo:queue"], "replay.run", 500_000_000),
    (["demo", "queue", "-i", "250ms"], "replay.run", 250_000_000),
    (["fleet", "sim:idle"], "app.run_app", None),
])  # fmt: skip
@pytest.mark.parametrize("mouse", [True, False])
def test_a_verb_opens_its_screen(
    typed: list[str], screen: str, interval_ns: int | None, mouse: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: list[object] = []

    def run(*arguments: object, mouse: bool, **_: object) -> int:
        seen.extend([mouse, interval_ns is None or interval_ns in arguments])
        return 7

    monkeypatch.setattr(errors, "terminal_problem", lambda: None)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    monkeypatch.setattr(config, "show_picture", lambda: contextlib.nullcontext(Mock()))
    monkeypatch.setattr(launch, "running_probe", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(f"perftop.tui.{screen}", run)
    index = typed.index("--") if "--" in typed else len(typed)
    words = [*typed[:index], *([] if mouse else ["--no-mouse"]), *typed[index:]]
    assert cli.main(words) == 7
    assert seen == [mouse, True]


def test_two_recordings_are_shown_in_the_order_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(pair_screen, "run", lambda *values, mouse: seen.extend([*values, mouse]))
    cli.main(["replay", "demo:good-run", "demo:bad-run", "--align", "mark:link", "--no-mouse"])
    files, moment, _, mouse = seen
    assert [path.stem for path in files] == ["good-run", "bad-run"]
    assert (moment.kind, moment.label, mouse) == ("mark", "link", False)


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
