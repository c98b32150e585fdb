"""Compared metrics: over time, and over several runs of one command."""

from __future__ import annotations

from functools import cache
from typing import Any

import exports
import pytest
import sim_streams
from examples import output
from sessions import session_of
from summaries import line

from perfprobe import wire
from perftop.output.compare import readings
from perftop.output.compare.comparison import compare
from perftop.output.compare.readings import (
    MAX_EVENTS,
    Reading,
    RecordingReader,
    RunSeries,
    find_number,
    format_like,
    numbers,
    parse_reading,
    row_keys,
)
from perftop.output.compare.repeated import CommandRuns, RepeatedRun, exit_status, lines, runs_json
from perftop.output.summary_text import lines as summary_lines
from perftop.output.summary_text import phase
from perftop.session.session import Session

EVENTS = "branches,cache-misses"
KEYS = ("e.branches", "e.branches/ki", "e.cache-misses", "topdown_backend_ratio")


@cache
def readings_of_recording(seed: int = 1) -> list[Reading]:
    """Returns the readings of a recording of a machine with two chosen events and issue slots."""
    spec = f"sim:memory,cpus=2,seed={seed},slots=1"
    hello, messages = sim_streams.messages(spec, 60, events=EVENTS)
    reader = RecordingReader(by_mark=False)
    reader.process([hello, *messages])
    reader.on_end()
    result = reader.readings
    own = Session(hello)
    own.run.track_losses()
    session_of(own, messages)
    built = phase(own, "")
    text = "\n".join(summary_lines(own, [], built))
    for label in ("branches         /s", "branches        /ki", "back end          %"):
        assert label in text
    assert result[0].numbers["e.branches"] == pytest.approx(built.value("e.branches"))
    return result


def test_events_are_printed_and_compared() -> None:
    a, b = readings_of_recording(), readings_of_recording(seed=2)
    (result,) = compare([("", a, b)])
    rows = {row.number.key: row for row in result.rows}
    assert {*KEYS} <= rows.keys()
    assert rows["e.branches"].side_a == pytest.approx(a[0].numbers["e.branches"], rel=0.02)
    branches = rows["e.branches"]
    assert format_like(branches.number, 1.3153e9, 1.3e9) == "1.315G"
    (only,) = compare([("", a, b)], ["e.branches/ki"])
    assert [row.number.key for row in only.rows] == ["e.branches/ki"]


def test_foreign_lines_with_any_names_are_harmless() -> None:
    measure = {"mean": 1.0}
    machine: dict[str, Any] = {f"e.{n}" + "x" * 500: measure for n in range(1000)} | {
        "e.bad": {"mean": "x"}
    }
    machine |= dict.fromkeys(("util", "busy_hz", "lost_ratio", "ipc", "kernel_cycles"), None)
    machine |= dict.fromkeys(("involuntary", "steal"), None)
    line: dict[str, Any] = dict.fromkeys(("job", "energy_j"))
    line |= {"type": "summary", "machine": machine, "totals": {}, "cores": [], "cpus": []}
    line["elapsed_s"] = 1.0
    result = numbers(line)
    assert len(result) <= 64
    assert all(len(find_number(key).label) <= 12 for key in result)
    assert len(row_keys([result])) > len(result)
    every: dict[str, Any] = {f"e.{n}": 1.0 for n in range(1000)}
    assert (
        len(parse_reading({"type": "run", "numbers": every, "machine": {}}).numbers) == MAX_EVENTS
    )


def series_of(messages: list[wire.Message]) -> RunSeries:
    session = Session(exports.hello(messages))
    session.run.track_losses()
    result = RunSeries(session)
    for _ in session.apply_in_parts(messages[1:], lambda: 0):
        if session.newest_samples is not None:
            result.add(*session.newest_samples)
    return result


def test_joined_slices_contain_all_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = exports.messages("sim:turbo-drop,cpus=4,packages=1", 10)
    monkeypatch.setattr(readings, "MIN_LOSS_SLICE_NS", 10**8)
    whole = series_of(messages)
    monkeypatch.setattr(readings, "MAX_SLICES", 36)
    joined = series_of(messages)
    for key, (ends_ns, amounts, sizes) in joined.sums().items():
        other_ns, every_amount, every_size = whole.sums()[key]
        index = [*other_ns].index(ends_ns[-1])
        assert len(ends_ns) <= 36 + 1 < len(other_ns)
        assert amounts[-1] == pytest.approx(every_amount[index])
        assert sizes[-1] == pytest.approx(every_size[index])


# --- several runs of one command: outliers and their reasons


TIMES = [44.06, 41.02, 40.97, 41.05, 40.90]


def runs(*repeats: dict[str, Any], warmups: int = 0) -> CommandRuns:
    return CommandRuns([RepeatedRun(one, is_warmup=at < warmups) for at, one in enumerate(repeats)])


def loss_records(lost_s: float) -> list[dict[str, Any]]:
    return [{"kind": "turbo-drop", "cause": "power-pl1", "lost_ratio": 0.1, "lost_s": lost_s}]


@pytest.mark.parametrize(("more", "reason_text"), [
    ({"job": {"disk_s": 1.0}}, "waited 1.00 s more for the disk"),
    ({"job": {"waited_s": 1.2}}, "waited 1.10 s more for a CPU"),
    ({"run": {"user_s": 31.0}}, "worked 1.00 s longer"),
    ({"causes": loss_records(0.9)}, "lost 0.90 s more to turbo-drop power-pl1"),
])  # fmt: skip
def test_an_outlier_is_named_with_its_reason(more: dict[str, Any], reason_text: str) -> None:
    result = runs(line(TIMES[0], **more), *map(line, TIMES[1:]))
    (outlier,) = result.outliers
    assert outlier.index == 0
    assert outlier.excess_s == pytest.approx(3.04 - 0.03, abs=0.03)
    assert reason_text in outlier.why
    assert reason_text in lines(result, ["./job"])[0]


@pytest.mark.parametrize(("times", "warmups", "hint"), [
    (TIMES, 0, True), ([*TIMES[1:], TIMES[0]], 0, False), ([41.0, *TIMES], 1, False),
    ([38.0, *TIMES[1:]], 0, False),
])  # fmt: skip
def test_a_slow_first_run_suggests_a_warmup(times: list[float], warmups: int, hint: bool) -> None:
    display = lines(runs(*map(line, times), warmups=warmups), ["./job"])
    assert any("add --warmup 1" in text for text in display) is hint


def test_episodes_other_than_ramps_are_counted_by_runs() -> None:
    for kinds_by_run, expected in (
        (["steal ramp", "steal halts", ""], ["halts in 1 of 3 runs.", "steal in 2 of 3 runs."]),
        (["ramp"] * 3, ["No episode was seen in any run."]),
    ):
        repeats = [line(41.0, episodes={k: {} for k in kinds.split()}) for kinds in kinds_by_run]
        text = " ".join(lines(runs(*repeats), ["./job"]))
        assert all(sentence in text for sentence in expected)
        assert "ramp in" not in text


def test_small_or_common_losses_explain_nothing() -> None:
    small = runs(line(TIMES[0], job={"disk_s": 0.2}), *map(line, TIMES[1:]))
    common = runs(*(line(time, causes=loss_records(3.0)) for time in TIMES))
    assert [outlier.why for result in (small, common) for outlier in result.outliers] == ["", ""]


def test_a_faster_run_has_no_reason_and_waits_are_named_once() -> None:
    faster = runs(line(38.0, job={"disk_s": 1.0}), *map(line, TIMES[1:]))
    assert [outlier.why for outlier in faster.outliers] == [""]
    behind = [{"kind": "neighbour", "cause": "scheduler", "lost_ratio": 0.1, "lost_s": 1.3}]
    waits = runs(line(TIMES[0], job={"waited_s": 1.2}, causes=behind), *map(line, TIMES[1:]))
    assert [outlier.why for outlier in waits.outliers] == ["waited 1.10 s more for a CPU"]


def test_the_lost_time_of_a_run_includes_its_waits() -> None:
    """The table of runs once showed 0.0 % above a line that named 40 % lost in the queue."""
    waits = {"kind": "neighbour", "cause": "scheduler", "lost_ratio": 0.4, "lost_s": 1.3}
    run = line(10.0, causes=[waits, *loss_records(0.9)])
    run["machine"]["lost_ratio"] = {"mean": 0.1}
    assert numbers(run)["lost_ratio"] == pytest.approx(0.5)
    assert numbers(run | {"causes": []})["lost_ratio"] == pytest.approx(0.1)


def test_cpus_that_the_command_did_not_use_are_counted() -> None:
    """Half of four CPUs are busy for 10.1 s, of which the command used 12 s."""
    busy = line(10.0, run={"user_s": 10.0, "sys_s": 2.0}, cpus=[{}] * 4)
    busy["machine"]["util"] = {"mean": 0.5}
    assert numbers(busy)["others_cpus"] == pytest.approx(2 - 12 / 10.1)


def test_the_page_shows_these_lines() -> None:
    results = [line(at, energy_j=9800.0, job={"disk_s": float(at > 42)}) for at in TIMES]
    for result in results:
        result["machine"] |= {
            "util": {"mean": 0.95},
            "busy_hz": {"mean": 3.09e9},
            "ipc": {"mean": 1.62},
        }
    display = output("compare", "./job takes")
    assert display == lines(runs(*results), ["./job"])[: len(display)]


def test_only_outliers_of_many_runs_have_a_row() -> None:
    result = lines(runs(line(60.0), *(line(41 + i % 3 / 10) for i in range(29))), ["./job"])
    assert [row.split()[0] for row in result if "  0  " in row] == ["1"]
    two = lines(
        runs(line(60.0), line(58.0), *(line(41 + i % 3 / 10) for i in range(28))), ["./job"]
    )
    assert "Run 1 is an outlier" in " ".join(two)
    assert "So is run 2." in " ".join(two)


def test_warmups_count_for_the_exit_status_only() -> None:
    result = runs(line(90.0, status=7), line(41.0), line(41.1), line(0.5, status=3), warmups=1)
    *each, whole = runs_json(result, ["./job"])
    assert [(one["number"], one["warmup"]) for one in each] == [
        (1, True), (1, False), (2, False), (3, False),
    ]  # fmt: skip
    assert (whole["runs"], whole["failed"], whole["warmups"], whole["status"]) == (2, 1, 1, 7)
    assert whole["numbers"]["run_s"]["mean"] == pytest.approx(41.05)
    assert whole["numbers"]["run_s"]["half"] == pytest.approx(12.706 * 0.05, rel=1e-3)
    assert "90.00 s" in "\n".join(lines(result, ["./job"]))
    assert exit_status(result.all_runs) == 3


def test_a_failed_run_is_in_the_table_but_not_in_the_mean() -> None:
    result = runs(line(41.0), line(0.02, status=1), line(41.2))
    display = lines(result, ["./job"])
    assert (
        display[0] == "./job takes 41.10 s ± 1.27 s (95 %). 1 of 3 runs failed and are not counted."
    )
    assert [row.endswith("not counted") for row in display[3:6]] == [False, True, False]
    assert result.values("run_s") == [41.0, 41.2]


def test_a_command_that_always_fails_has_no_mean() -> None:
    result = runs(line(0.02, status=1), line(0.03, status=2))
    assert lines(result, ["./job"]) == [
        "./job failed in all 2 runs (exit status 1, 2): no run counts."
    ]
    assert runs_json(result, ["./job"])[-1]["numbers"]["run_s"] is None


def test_a_single_run_has_no_interval() -> None:
    result = runs(line(2.5))
    whole = runs_json(result, ["./job"])[-1]
    assert (whole["numbers"]["run_s"]["half"], whole["least_difference_s"]) == (None, None)
    assert "in one run" in lines(result, ["./job"])[0]


def test_names_of_events_are_cut_to_the_column() -> None:
    names = [readings.find_number(key).label for key in ("e.branch-misse", "e.branch-misses/ki")]
    assert names == ["branch-misse", "branch-miss…"]
