"""`perftop stat -r N -- CMD` around commands that are really run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perftop import cli
from perftop.base.errors import USAGE

SOURCE = "--source=sim:steady,cpus=2,speed=max"


def test_each_run_is_measured_and_the_first_failure_is_the_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with how often it was run before: 0 in the warm-up, then 1 and 2. What it
    finds of signals is the same each time, although perftop ignores some at the end of a run."""
    out, seen = tmp_path / "runs.json", tmp_path / "seen"
    seen.write_text("")
    code = f'n=$(wc -c <"{seen}"); printf x >>"{seen}"; exit $n'
    code = f'grep SigIgn /proc/self/status >>"{tmp_path}/signals"; {code}'
    printed = ["stat", "-r", "2", "--warmup", "1", SOURCE, "--json", "-o", str(out)]
    assert cli.main([*printed, "--", "sh", "-c", code]) == 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["hello", "run", "run", "run", "runs"]
    assert [line["run"]["status"] for line in lines[1:4]] == [0, 1, 2]
    assert lines[-1]["numbers"]["run_s"]["count"] == 2
    assert lines[1]["state"]["cpus"] == "2 of 2 on"
    assert len({*(tmp_path / "signals").read_text().splitlines()}) == 1


def test_a_signal_that_ends_the_command_ends_the_series(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run that was cut short does not count."""
    code = f'printf x >>"{tmp_path}/seen"; grep -q xx "{tmp_path}/seen" && kill -TERM $$; true'
    out = tmp_path / "runs.json"
    line = ["stat", "-r", "3", SOURCE, "--json", "-o", str(out), "--", "sh", "-c", code]
    assert cli.main(line) == 143
    assert (tmp_path / "seen").read_text() == "xx"
    runs = json.loads(out.read_text().splitlines()[-1])
    assert (runs["runs"], runs["status"]) == (1, 0)
    assert "signal 15" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["-r", "3"], ["-r", "3", "-i", "1", "--", "true"], ["--warmup", "2", "--", "true"]]
)
def test_contradicting_options_are_a_usage_error(options: list[str]) -> None:
    assert cli.main(["stat", SOURCE, *options]) == USAGE


def test_a_missing_command_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stat", "-r", "3", SOURCE, "--", "no-such-command"]) == 127
    assert len(capsys.readouterr().err.splitlines()) == 1
