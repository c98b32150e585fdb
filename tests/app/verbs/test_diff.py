"""`perftop diff` of files: what can be read, and what is wrong with what cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from summaries import line

from perftop import cli
from perftop.base.errors import DAMAGED, USAGE

A, B = (41.0, 41.1, 40.9), (47.0, 47.1, 46.9)


def runs(path: Path, *times: float, **more: Any) -> Path:
    """A file of `stat -r`."""
    told = [{"type": "hello"}, *(line(time, **more) | {"type": "run"} for time in times)]
    for one in told[1:]:
        one["numbers"] = {"run_s": one["run"]["wall_s"], "cpu_s": 31.0}
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [*told, {"type": "runs"}]))
    return path


def one(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path


def compared(*arguments: object) -> int:
    return cli.main(["diff", *map(str, arguments)])


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (phase,) = json.loads(capsys.readouterr().out)["phases"]
    return dict(phase["numbers"])


def test_two_files_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = runs(tmp_path / "a", *A), runs(tmp_path / "b", *B)
    assert compared(*files, "--json") == 0
    row = rows(capsys)["run_s"]
    assert (row["a"], row["b"], row["verdict"]) == (41.0, 47.0, "worse")
    assert row["low"] == pytest.approx(6 - 2.776 * 0.08165, abs=1e-3)
    assert compared(*files) == 0
    assert "14.6 % longer" in capsys.readouterr().out.splitlines()[0]


def test_groups_of_files_are_runs_of_one_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {
        name: [one(tmp_path / f"{name}{at}", line(time)) for at, time in enumerate(times)]
        for name, times in (("a", A), ("b", B))
    }
    assert compared("--a", *sides["a"], "--b", *sides["b"], "--json") == 0
    assert rows(capsys)["run_s"]["verdict"] == "worse"


def test_warmups_are_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = runs(tmp_path / "a", *A)
    warm = json.loads(first.read_text().splitlines()[1]) | {"warmup": True}
    warm["numbers"]["run_s"] = 999.0
    first.write_text(f"{json.dumps(warm)}\n{first.read_text()}")
    assert compared(first, runs(tmp_path / "b", *B), "--json") == 0
    assert rows(capsys)["run_s"]["a"] == 41.0


def test_the_numbers_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = runs(tmp_path / "a", *A), runs(tmp_path / "b", *B)
    assert compared(*files, "--metrics", "cpu_s", "--json") == 0
    assert [*rows(capsys)] == ["cpu_s"]
    assert compared(*files, "--metrics", "speed") == USAGE


def test_a_file_that_is_cut_is_compared_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = runs(tmp_path / "b", *B)
    cut.write_bytes(cut.read_bytes()[:-40])
    assert compared(runs(tmp_path / "a", *A), cut, "--json") == DAMAGED
    said = capsys.readouterr()
    assert json.loads(said.out)["type"] == "diff"
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (None, 1),
        (b"", DAMAGED),
        (b"\x7fELF and so on", DAMAGED),
        (b'{"version": 3, "results": []}\n', DAMAGED),
        (b'{"type": "summary", "run": [], "machine": 7}\n', DAMAGED),
        (b'{"type":"run","numbers":{"ipc":1.5}}\n', USAGE),
    ],
    ids=["missing", "empty", "binary", "of-another-tool", "garbled", "no-shared-number"],
)
def test_what_cannot_be_compared_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, status: int
) -> None:
    other = tmp_path / "other"
    if content is not None:
        other.write_bytes(content)
    assert compared(runs(tmp_path / "a", *A), other) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("files", [["a"], ["a", "b", "c"], ["--a", "a"], ["a", "b", "--a", "c"]])
def test_what_is_no_pair_is_usage(files: list[str]) -> None:
    assert compared(*files) == USAGE
