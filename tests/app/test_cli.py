"""What the command line makes of its options: how often the probe is told to write."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from perftop import cli
from perftop.commands import measuring, options, screens
from perftop.commands.arguments import with_verb
from perftop.process import job_terminal
from perftop.verbs import machine_verbs


class Asked(Exception):  # noqa: N818 - no error: the probe need not run
    """Somebody asked for the probe's arguments."""


@pytest.mark.parametrize(
    ("line", "batch"),
    [
        ("live", "0.5"),
        ("live -i 100ms", None),
        ("live -i 2s", "1"),
        ("live -i 1.5s", "0.5"),
        ("live -- true", None),
        ("stat", "1"),
        ("stat -i 200ms", "0.2"),
        ("stat -i 250ms --sample 50ms", "0.25"),
        ("stat -i 1s --duration 2.5s", "0.5"),
        ("stat -i 1s --duration 100ms", None),
        ("stat -i 1s --sample 1ms", "0.25"),
        ("stat -i 1.3s", None),
        ("stat -i 1h --sample 10ms", "1"),
        ("stat -i 60s --sample 2s", None),
        ("stat -i 1s --sample 166.666667ms", "1"),
        ("stat -- true", None),
        ("stat -i 1s -- true", None),
        ("record", "0.2"),
        ("record -i 10s", "0.2"),
        ("record --sample 1ms", "0.2"),
        ("record --sample 200ms", None),
        ("record --sample 1s", None),
        ("record -- true", None),
    ],
)
def test_a_batch_is_what_the_reader_shows_at_once(
    line: str, batch: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    job = SimpleNamespace(pid=1)

    def command(_: object, verb: str, *arguments: str) -> list[str]:
        asked.extend((verb, *arguments))
        raise Asked

    def held(options: argparse.Namespace) -> AbstractContextManager[object]:
        return nullcontext(job if options.command else None)

    monkeypatch.setattr(machine_verbs, "probe_command", command)
    for module in (measuring, screens):
        monkeypatch.setattr(module, "held", held, raising=False)
    monkeypatch.setattr(
        job_terminal, "JobTerminal", lambda *_: nullcontext(SimpleNamespace(job=job))
    )
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    for stdio in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stdio, "isatty", lambda: True)
    words = line.split()
    if words[0] == "record":
        words[1:1] = ["-o", str(tmp_path / "tape.perftop")]
    with pytest.raises(Asked):
        cli.main(words)
    assert asked[0] == "stream"
    told = asked[asked.index("--batch") + 1] if "--batch" in asked else None
    assert told == batch


@pytest.mark.parametrize(
    ("asked", "times_ms"),
    [
        ((None, None), (500, 100)),
        ((None, 1000), (1000, 1000)),
        ((None, 300), (600, 300)),
        ((None, 20), (500, 20)),
        ((1000, None), (1000, 100)),
        ((250, None), (250, 83.333333)),
    ],
)
def test_an_interval_that_was_not_asked_for_has_whole_samples(
    asked: tuple[int | None, int | None], times_ms: tuple[float, float]
) -> None:
    interval, sample = (None if ms is None else ms * 1_000_000 for ms in asked)
    given = argparse.Namespace(interval=interval, sample=sample)
    assert options.times(given, 500_000_000) == tuple(int(ms * 1e6) for ms in times_ms)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("demo", ["--source", "sim:demo", "--sample", "0.1", "--batch", "0.5"]),
        ("demo guest,cpus=4 -i 1s --sample 1s", ["--source", "sim:guest,cpus=4", "--sample", "1"]),
    ],
)
def test_a_demo_is_the_screen_on_a_simulated_machine(
    line: str, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def command(_: object, verb: str, *arguments: str) -> list[str]:
        asked.extend((verb, *arguments))
        raise Asked

    monkeypatch.setattr(machine_verbs, "probe_command", command)
    for stdio in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stdio, "isatty", lambda: True)
    with pytest.raises(Asked):
        cli.main(line.split())
    assert asked == ["stream", *told]


def test_a_demo_in_a_pipe_says_what_to_type_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "guest"]) == 2
    text = "the screen needs a terminal; in a pipe: perftop stat --source sim:guest"
    assert capsys.readouterr() == ("", f"perftop: {text}\n")


@pytest.mark.parametrize(
    ("given", "command", "screen", "meant"),
    [
        ([], None, True, ["live"]),
        (["-i", "1s"], None, True, ["live", "-i", "1s"]),
        ([], None, False, ["stat", "-n", "1"]),
        (["--source=sim:"], None, False, ["stat", "-n", "1", "--source=sim:"]),
        ([], ["make"], False, ["stat"]),
        (["doctor"], None, False, ["doctor"]),
        (["--print-completion=zsh"], None, True, ["--print-completion=zsh"]),
    ],
)
def test_the_verb_that_is_meant(
    given: list[str], command: list[str] | None, screen: bool, meant: list[str]
) -> None:
    assert with_verb(given, command, screen=screen) == meant


@pytest.mark.parametrize(
    ("given", "said"),
    [(["--watch"], "--watch: expected"), (["-c", "x"], "more: perftop help\n")],
)
def test_text_in_place_of_the_screen_is_told_once_the_options_are_understood(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(given) == 2
    assert said in capsys.readouterr().err.splitlines(keepends=True)[0]


def test_a_terminal_that_only_prints_lines_has_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdio in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stdio, "isatty", lambda: True)
    assert options.at_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not options.at_terminal()
