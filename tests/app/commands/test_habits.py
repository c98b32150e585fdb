"""What is typed by habit of other tools, and what is mistyped."""

from __future__ import annotations

import argparse
import io
import subprocess
from pathlib import Path

import pytest
from command import argv
from waiting import MOST_S

from perftop import cli
from perftop.base.errors import USAGE, Failed
from perftop.commands import habits
from perftop.commands.arguments import interval_ns, size_bytes


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        ("stat -a -I 100 -p 7", "stat --interval 100ms --watch 7"),
        ("stat -I100 -C0-3", "stat --interval 100ms --cpus 0-3"),
        ("live -p7", "live --watch 7"),
        ("stat --interval-print=50", "stat --interval 50ms"),
        ("record -I 2s", "record --interval 2s"),
        ("stat --pid=7 --num_iterations 3", "stat --watch 7 --count 3"),
        ("-V", "--version"),
        ("-h stat", "help stat"),
        ("ramp -a", "ramp -a"),
        ("stat -i 1 -c 0 --watch=-p", "stat -i 1 -c 0 --watch=-p"),
    ],
)
def test_words_that_mean_the_same(typed: str, understood: str) -> None:
    assert habits.translated(typed.split()) == understood.split()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("record -n 3", "--duration"),
        ("live -n", "stat -n 10"),
        ("why --count=3", "--duration"),
        ("record -n5", "--duration"),
    ],
)
def test_only_stat_counts_lines(typed: str, answer: str) -> None:
    with pytest.raises(Failed, match=f"has no .*{answer}"):
        habits.translated(typed.split())


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["stat", "-i", "0"], "-i/--interval: '0' is less than 1 ms"),
        (["replay"], "the following arguments are required: FILE"),
        (["export", "x", "--format", "xml"], "--format: invalid choice: 'xml'"),
        (["why", "10s"], "how long to look: --duration 10s"),
        (["why", "sh"], "to measure a command: perftop why -- sh"),
        (["stat", "--listen", "x"], "--listen is for exporter"),
        (["replay", "x", "--json"], "; --json is for stat, why, fleet"),
        (["record", "run.perftop"], "; where to write: perftop record -o run.perftop"),
        (["version"], "there is no verb 'version'; did you mean --version?"),
        (["no-such-verb"], "there is no verb 'no-such-verb'; `perftop --help` lists them"),
    ],
)
def test_what_is_wrong_is_one_line(
    typed: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(typed) > 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("perftop: ")
    assert told in line


@pytest.mark.parametrize("name", ["2026-run.perftop", "10s"])
def test_a_damaged_recording_is_no_length_of_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"no recording")
    assert cli.main(["why", name]) > 0
    assert "--duration" not in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "answer"), [("--csv", "export"), ("-d", "-i"), ("-x,", "json")])
def test_words_that_mean_something_else_are_answered(typed: str, answer: str) -> None:
    with pytest.raises(Failed, match=f"no {typed[:2]}.*{answer}") as failed:
        habits.translated(["stat", typed])
    assert failed.value.status == USAGE


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["stat", "--jsno"], "--json?"), (["stat", "--intervall", "1"], "--interval?"),
        (["stta"], "stat?"), (["recrod", "-o", "a"], "record?"),
    ],
)  # fmt: skip
def test_mistyped_words(typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(typed) == USAGE
    assert capsys.readouterr().err.endswith(f"did you mean {meant}\n")


def test_a_long_bare_number_is_questioned(capsys: pytest.CaptureFixture[str]) -> None:
    assert interval_ns("100") == 100 * 10**9
    assert "-i 100ms" in capsys.readouterr().err
    assert [interval_ns(text) for text in ("60", "100s", "5m")] == [6e10, 1e11, 3e11]
    assert not capsys.readouterr().err


def test_json_can_be_piped_although_the_command_writes_to_stdout() -> None:
    options = "stat", "--source", "sim:steady,cpus=2", "--json", "-o", "-"
    done = subprocess.run(
        [*argv(*options), "--", "echo", "mine"], capture_output=True, text=True, check=True,
        timeout=MOST_S,
    )  # fmt: skip
    assert [line[:9] for line in io.StringIO(done.stdout)] == ['{"type":"'] * 2
    assert done.stderr == "mine\n"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["record"], "-o FILE is needed"),
        (["record", "-o", "x", "--source", "sim", "--on", "turbo-drp"], "did you mean turbo-drop?"),
    ],
)
def test_what_a_black_box_needs(
    typed: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(typed) == USAGE
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("500M", 500 * 10**6), ("2G", 2 * 10**9), ("1kB", 1000)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size
    for wrong in ("0M", "5", "M", "5X", "-1G"):
        with pytest.raises(argparse.ArgumentTypeError):
            size_bytes(wrong)
