"""`perftop diff` of files, including those that cannot be compared."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import exports
import pytest
from summaries import line

from perfprobe import wire
from perftop import cli
from perftop.base.errors import DAMAGED, USAGE
from perftop.output.compare.statistics import t_quantile

A, B = (41.0, 41.1, 40.9), (47.0, 47.1, 46.9)


def runs(path: Path, *times: float, **more: Any) -> Path:
    """Writes a file like `stat -r`, with these run times."""
    printed = [{"type": "hello"}, *(line(time, **more) | {"type": "run"} for time in times)]
    for one in printed[1:]:
        one["numbers"] = {"run_s": one["run"]["wall_s"], "cpu_s": 31.0}
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [*printed, {"type": "runs"}]))
    return path


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path


def diff_status(*arguments: object) -> int:
    return cli.main(["diff", *map(str, arguments)])


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (phase,) = json.loads(capsys.readouterr().out)["phases"]
    return dict(phase["numbers"])


def test_two_files_of_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = runs(tmp_path / "a", *A), runs(tmp_path / "b", *B)
    assert diff_status(*files, "--json") == 0
    row = rows(capsys)["run_s"]
    assert (row["a"], row["b"], row["verdict"]) == (41.0, 47.0, "worse")
    assert row["test"] == "means"
    t = t_quantile(1 - 0.05 / 4, 3.93)  # the quantile for the first of two rows
    error = 0.1 / math.sqrt(3) * math.hypot(1 / 41, 1 / 47)  # of the logarithm of B / A
    low = 41 * math.expm1(math.log(47 / 41) - t * error)
    assert row["low"] == pytest.approx(low, rel=1e-3)
    assert diff_status(*files) == 0
    assert "14.6 % longer" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(("a", "b", "conditions", "status", "message"), [
    (A, B, ["run_s > 3 %"], 1, "'run_s > 3 %' is met: run_s differs by +14.6 %"),
    (A, B, ["run_s>14%"], 1, "'run_s>14%' is met: run_s differs by +14.6 %"),
    (A, B, ["run_s > 15 %"], 0, ""),
    (A, B, ["run_s < -3 %"], 0, ""),
    (A, B, ["cpu_s > 3 %"], 0, ""),
    (A, B, ["cpu_s > 3 %", "run_s < 20 %"], 1, "'run_s < 20 %' is met: run_s differs by +14.6 %"),
    (A, B, ["run_s > 3 pt"], 2, "--fail-if 'run_s > 3 pt': the unit here is %"),
    (A, B, ["ipc < -3 %"], 2, "--fail-if 'ipc < -3 %': ipc was not compared"),
    (A, B, ["cpus > 3 %"], 2, "unknown metric 'cpus'"),
    (A, B, ["run_s > 3"], 2, "--fail-if: invalid condition 'run_s > 3' (try 'cpu_s > 3 %'"),
    ((41.0,), (41.0,), ["run_s > 3 %"], 1,
     "'run_s > 3 %' cannot be decided: one run per side (measure several runs: stat -r 5)"),
    # less than the difference that counts as one
    ((41.00, 41.01, 41.02, 41.01), (41.24, 41.25, 41.26, 41.25), ["run_s > 0.3 %"], 1,
     "'run_s > 0.3 %' is met: run_s differs by +0.6 %"),
    # within the noise
    ((30.0, 41.0, 52.0), (33.0, 47.0, 56.0), ["run_s > 3 %"], 0, ""),
])  # fmt: skip
def test_a_condition_decides_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], a: tuple[float, ...],
    b: tuple[float, ...], conditions: list[str], status: int, message: str,
) -> None:  # fmt: skip
    files = runs(tmp_path / "a", *a), runs(tmp_path / "b", *b)
    options = [word for text in conditions for word in ("--fail-if", text)]
    assert diff_status(*files, *options) == status
    err = capsys.readouterr().err
    assert err.startswith(f"perftop: {message}" if message else "")
    assert err.count("\n") == (1 if message else 0)


def test_groups_of_files_are_the_runs_of_one_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {
        name: [write_lines(tmp_path / f"{name}{at}", line(time)) for at, time in enumerate(times)]
        for name, times in (("a", A), ("b", B))
    }
    assert diff_status("--a", *sides["a"], "--b", *sides["b"], "--json") == 0
    assert rows(capsys)["run_s"]["verdict"] == "worse"


def test_warmups_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = runs(tmp_path / "a", *A)
    warm = json.loads(first.read_text().splitlines()[1]) | {"warmup": True}
    warm["numbers"]["run_s"] = 999.0
    first.write_text(f"{json.dumps(warm)}\n{first.read_text()}")
    assert diff_status(first, runs(tmp_path / "b", *B), "--json") == 0
    assert rows(capsys)["run_s"]["a"] == 41.0


def test_failed_runs_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four runs that failed immediately took 98.9 % less time."""
    good = runs(tmp_path / "a", *A)
    failed = runs(tmp_path / "b", 0.4, 0.5, 0.4, 0.5, status=1)
    assert diff_status(good, failed) == USAGE
    assert "B failed in all 4 runs (exit status 1)" in capsys.readouterr().err
    assert diff_status(good, runs(tmp_path / "d", 0.4, status=1)) == USAGE
    assert "B failed in its only run (exit status 1)" in capsys.readouterr().err
    failed.write_text(failed.read_text() + runs(tmp_path / "c", *B).read_text())
    assert diff_status(good, failed, "--json") == 0
    words = capsys.readouterr()
    assert "4 of 7 runs of B failed and are not counted" in words.err
    (phase,) = json.loads(words.out)["phases"]
    assert (phase["runs_b"], phase["numbers"]["run_s"]["b"]) == (3, 47.0)


def test_metrics_can_be_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = runs(tmp_path / "a", *A), runs(tmp_path / "b", *B)
    assert diff_status(*files, "--metrics", "cpu_s", "--json") == 0
    assert [*rows(capsys)] == ["cpu_s"]
    assert diff_status(*files, "--metrics", "speed") == USAGE
    assert diff_status(*files, "--metrics", "e.nowhere") == USAGE
    assert "share none of e.nowhere" in capsys.readouterr().err


def test_a_cut_file_is_compared_up_to_the_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = runs(tmp_path / "b", *B)
    cut.write_bytes(cut.read_bytes()[:-40])
    assert diff_status(runs(tmp_path / "a", *A), cut, "--json") == DAMAGED
    words = capsys.readouterr()
    assert json.loads(words.out)["type"] == "diff"
    assert len(words.err.splitlines()) == 1


INCOMPARABLE: dict[str, tuple[bytes | None, int]] = {
    "missing": (None, 1),
    "empty": (b"", DAMAGED),
    "binary": (b"\x7fELF and so on", DAMAGED),
    "text of stat": (b"\nsleep took 0.30 s: it ran 2.2 ms.\n", DAMAGED),
    "of another tool": (b'{"version": 3, "results": []}\n', DAMAGED),
    "garbled": (b'{"type": "summary", "run": [], "machine": 7}\n', DAMAGED),
    "too large": (b'{"type":"run","numbers":{"ipc":1%s}}\n' % (400 * b"0"), DAMAGED),
    "no shared number": (b'{"type":"run","numbers":{"ipc":1.5}}\n', USAGE),
}


@pytest.mark.parametrize("kind", INCOMPARABLE)
def test_incomparable_files_are_reported_with_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    content, status = INCOMPARABLE[kind]
    other = tmp_path / "other"
    if content is not None:
        other.write_bytes(content)
    assert diff_status(runs(tmp_path / "a", *A), other) == status
    words = capsys.readouterr()
    assert words.out == ""
    assert len(words.err.splitlines()) == 1
    assert ("perftop stat --json -o FILE" in words.err) == (status == DAMAGED)


def test_a_recording_in_parts_is_compared(tmp_path: Path) -> None:
    """`record --ring` writes a directory."""
    path = exports.record(tmp_path / "whole", exports.messages(DROP, 6))
    ring = tmp_path / "ring"
    ring.mkdir()
    (ring / "000001.part").write_bytes(path.read_bytes())
    assert diff_status(path, ring) == 0


# --- recordings -----------------------------------------------------------------------------------

DROP = "sim:turbo-drop,cpus=8,packages=1,seed=1"
"""A drop of 620 of 3500 MHz from 8.0 to 12.1 s, repeated every 20 s."""
SHARE = 620 / 3500


def phases(capsys: pytest.CaptureFixture[str]) -> dict[str | None, dict[str, Any]]:
    printed = json.loads(capsys.readouterr().out)
    return {phase["label"]: phase["numbers"] for phase in printed["phases"]}


def test_phases_are_paired_by_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`solve` of A is during the drop; `solve` of B is at the time of `load` of A."""
    a = exports.marked_recording(
        tmp_path / "a", DROP, 200, {2.0: "load", 7.95: "solve", 12.15: "store"}
    )
    b = exports.marked_recording(
        tmp_path / "b", DROP, 75, {0.95: "load", 3.0: "solve", 7.45: "end"}
    )
    assert diff_status(a, b, "--by", "mark", "--json") == 0
    result = phases(capsys)
    assert [*result] == ["load", "solve"]
    clock = result["solve"]["busy_hz"]
    assert clock["difference"] / clock["b"] == pytest.approx(SHARE * 4.1 / 4.2, rel=0.06)
    assert result["solve"]["below_ceiling"]["a"] > 0.9
    assert (result["solve"]["length_s"]["a"], result["solve"]["length_s"]["b"]) == (
        pytest.approx(4.2, abs=0.11), pytest.approx(4.4, abs=0.11),
    )  # fmt: skip
    assert abs(result["load"]["busy_hz"]["difference"]) < 0.01 * clock["b"]


def test_marks_of_one_name_are_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mark every second; those of B are during the drop."""
    a = exports.marked_recording(tmp_path / "a", DROP, 70, {i + 1.95: "step" for i in range(5)})
    b = exports.marked_recording(tmp_path / "b", DROP, 120, {i + 8.15: "step" for i in range(4)})
    assert diff_status(a, b, "--by", "mark", "--json") == 0
    (phase,) = json.loads(capsys.readouterr().out)["phases"]
    assert (phase["runs_a"], phase["runs_b"]) == (5, 4)
    row = phase["numbers"]["busy_hz"]
    assert (row["verdict"], row["cause"]) == ("worse", "power-pl1")
    assert -row["difference"] / row["a"] == pytest.approx(SHARE, rel=0.03)


def test_an_unsteady_metric_is_not_reported_as_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One drop at the end of 12 s lowers the clock, but proves nothing about the next 12 s."""
    a = exports.record(tmp_path / "a", exports.messages(DROP, 7))
    b = exports.record(tmp_path / "b", exports.messages(DROP, 11))
    assert diff_status(a, b, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    row = printed["phases"][0]["numbers"]["busy_hz"]
    assert (row["verdict"], row["low"]) == ("unsteady", None)
    assert printed["answer"].startswith("Inconclusive")


def test_a_condition_on_single_recordings_is_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even with an interval, which is from blocks of time within one run."""
    path = exports.record(tmp_path / "one", exports.messages(DROP, 10))
    assert diff_status(path, path, "--json") == 0
    assert {"low", "high"} <= rows(capsys)["util"].keys()
    assert diff_status(path, path, "--fail-if", "util > 2 pt") == 1
    assert capsys.readouterr().err.startswith(
        "perftop: 'util > 2 pt' cannot be decided: one run per side"
    )


def test_recordings_without_common_marks_have_no_phases(tmp_path: Path) -> None:
    a, b = (exports.marked_recording(tmp_path / name, DROP, 20, {0.5: name}) for name in "ab")
    assert diff_status(a, b, "--by", "mark") == USAGE


def test_a_recording_cut_before_its_samples_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = exports.record(tmp_path / "whole", exports.messages(DROP, 6))
    bare = exports.record(tmp_path / "bare", exports.messages(DROP, 6)[:2])
    assert diff_status(whole, bare) == USAGE
    assert capsys.readouterr().err.endswith(
        "bare has fewer than two samples; nothing was compared\n"
    )
    bare.write_bytes(bare.read_bytes()[:-10])
    assert diff_status(whole, bare) == DAMAGED
    assert "bare has fewer than two samples: truncated at byte" in capsys.readouterr().err


def test_different_kinds_of_files_are_compared_by_their_common_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording and its own summary: all rates agree, and each side has one run. Metrics that
    grow with time are left out, since neither file has a natural end."""
    path = exports.record(tmp_path / "whole", exports.messages(DROP, 11))
    assert cli.main(["summary", str(path), "--json"]) == 0
    summary = tmp_path / "summary.json"
    summary.write_text(capsys.readouterr().out)
    assert diff_status(path, summary, "--json") == 0
    (numbers,) = phases(capsys).values()
    assert {"busy_hz", "ipc", "util", "both", "power_w"} <= numbers.keys()
    below = numbers.pop("below_ceiling")
    assert below["a"] == pytest.approx(3 / 11, abs=0.04), "of 11 s the drop has the last 3"
    assert below["difference"] == pytest.approx(0, abs=0.01)
    assert not {"length_s", "energy_j", "instructions"} & numbers.keys()
    assert {row["verdict"] for row in numbers.values()} == {"1 run"}
    assert all(row["difference"] == pytest.approx(0, abs=1e-6 * abs(row["a"]))
               for row in numbers.values())  # fmt: skip


def test_a_recording_in_a_pipe_is_refused_but_json_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = runs(tmp_path / "a", *A)
    for content, status in ((file.read_bytes(), 0), (b"\x00 recorded", USAGE)):
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        assert diff_status(f"/dev/fd/{reader}", file) == status
        os.close(reader)


def test_time_taken_by_neighbours_is_lost_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `summary`. One run per side shows it, too, but not whether it repeats."""
    files = [
        exports.record(tmp_path / name, exports.messages(f"sim:{name},cpus=8", 20))
        for name in ("steady", "neighbour")
    ]
    assert diff_status(*files) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("In these two runs, B's clock is 5.4 % higher.")
    assert "lost       to a sibling: 0.0 % in A, 10.3 % in B" in printed
    assert diff_status(*files, "--json") == 0
    (numbers,) = phases(capsys).values()
    assert numbers["lost_ratio"]["difference"] == pytest.approx(0.103, abs=0.001)
    assert numbers["lost_ratio"]["verdict"] == "unsteady"


def test_a_command_in_a_recording_has_a_run_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name, wall_s in (("a", 5.0), ("b", 6.0)):
        messages = exports.messages(DROP, 6)
        last = messages[-1]
        assert isinstance(last, wire.Frame)
        data = {"pid": 7, "status": 0, "wall_s": wall_s, "user_s": 4.0, "sys_s": 1.0}
        start = wire.Note(
            "run-start", exports.hello(messages).raw_ns, data={"argv": ["./job", name]}
        )
        end = wire.Note("run-end", last.time_ns, data=data)
        paths.append(exports.record(tmp_path / name, [messages[0], start, *messages[1:], end]))
    assert diff_status(*paths, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    row = printed["phases"][0]["numbers"]["run_s"]
    assert (row["difference"], row["low"], row["verdict"]) == (1.0, None, "1 run")
    assert {one["key"]: one["b"] for one in printed["state"]} == {"command": "./job b"}
    assert printed["answer"].startswith("B took 20.0 % longer")
