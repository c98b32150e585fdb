"""perftop ramp with the real probe and with given responses; texts and charts."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from typing import Any

import chains
import command
import json_page
import numpy as np
import pytest
from chains import answer, run
from examples import documents
from hypothesis import given
from hypothesis import strategies as st

from perftop import cli
from perftop.base.errors import Failed
from perftop.draw import charts, strips
from perftop.draw.charts import ChartColumn
from perftop.verbs import ramp, ramp_chart, ramp_runs
from perftop.verbs import ramp as verb

CLOCK = [(300e-6, 1.2e9), (4e-3, 2.4e9), (1.0, 3.0e9)]
SLOW = [(0.05, 1.2e9), (1.0, 3.0e9)]


class Probe:
    """Three CPUs: a fast one, a forbidden one, and a slow one; a fourth is offline."""

    def __init__(self, *lacking: str) -> None:
        self.requests: list[tuple[str, ...]] = []
        self.lacking = lacking or ("1",)

    def __call__(self, verb: str, *more: str) -> dict[str, Any]:
        self.requests.append((verb, *more))
        if verb == "topology":
            return {"cpus": [{"cpu": n, "online": n < 3} for n in range(4)]}
        cpu = more[more.index("--cpu") + 1] if "--cpu" in more else "2"
        if cpu in self.lacking:
            raise Failed(f"--cpu {cpu}: not allowed", 3)
        return chains.answer(*[chains.run(SLOW if cpu == "2" else CLOCK)] * 5, cpu=int(cpu))


def options(**changes: Any) -> argparse.Namespace:
    given = vars(cli._parse_arguments(["ramp"]))
    return argparse.Namespace(**given | changes)


def test_all_cpus_are_measured_in_turn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert verb.measure(options(cpu="all", seconds=1.5), probe) == 0
    more = ("--isa", "scalar", "--seconds", "1.5")
    assert probe.requests == [("topology",), *(("ramp", "--cpu", n, *more) for n in "012")]
    text, progress = capsys.readouterr()
    assert "CPU 1, 2 of 3, 1.5 s …" in progress
    rows = text.splitlines()[:4]
    assert [row.split()[0] for row in rows] == ["CPU", "0", "1", "2"]
    assert rows[2].endswith("--cpu 1: not allowed")
    assert "CPU 2 · scalar" in text  # the chart is that of the slowest CPU
    assert "Warm up CPU 2 for 5" in text
    assert "CPU 0 ·" not in text


def test_ctrl_c_prints_the_previous_results(capsys: pytest.CaptureFixture[str]) -> None:
    probe = Probe()

    def ask(verb: str, *more: str) -> dict[str, Any]:
        if "2" in more:
            raise KeyboardInterrupt
        return probe(verb, *more)

    assert verb.measure(options(cpu="all"), ask) == 130
    assert "Warm up CPU 0 for 4" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        verb.measure(options(cpu="2"), ask)


def test_no_measurable_cpu_is_an_error() -> None:
    with pytest.raises(Failed) as raised:
        verb.measure(options(cpu="all"), Probe("0", "1", "2"))
    assert raised.value.status == 3


def test_json_contains_all_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.measure(options(json=True), Probe()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["steady_hz"] == pytest.approx(3e9, rel=1e-3)
    assert printed["steady_s"]["high"] == pytest.approx(0.05, rel=0.03)
    assert printed["sentence"].startswith("Warm up CPU 2 for 5")
    assert (printed["clock"], printed["unit"], len(printed["climbs"])) == ("probe clock", "Hz", 5)
    assert printed["cycles_why"] == "no PMU here"
    points = printed["climbs"][0]["points"]
    assert points[0] == [0.0, pytest.approx(1.2e9, rel=0.01)]
    assert points[-1][1] == pytest.approx(3e9, rel=0.01)
    assert verb.measure(options(cpu="all", json=True), Probe()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [each["cpu"] for each in printed["cpus"]] == [0, 2]
    assert printed["failed"] == {"1": "--cpu 1: not allowed"}


def test_any_host_name_is_printed_in_ascii(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "supports_unicode", lambda: False)
    probe = Probe()
    assert verb.measure(options(), lambda *words: probe(*words) | {"host": "büro"}) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert text.startswith("b?ro, ")


def test_this_machine_can_be_measured() -> None:
    result = command.run_in_process("ramp", "--seconds", "1")
    if result.returncode == 3:
        pytest.skip(result.stderr)
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert ("probe clock" in result.stdout) is ("no counter" in result.stdout)
    assert ("probe clock" in result.stdout) is not ("busy clock" in result.stdout)
    assert "Warm up CPU" in result.stdout or "No answer" in result.stdout
    printed = json.loads(command.run_in_process("ramp", "--seconds", "1", "--json").stdout)
    assert printed["steady_hz"] is None or 1e8 < printed["steady_hz"] < 1e10
    assert all(climb["points"] for climb in printed["climbs"])
    assert (printed["clock"] == "probe clock") is (printed["cycles_why"] is not None)
    assert not list(json_page.object_faults(printed, "ramp", "ramp"))


# --- charts


HALTS = [(1e-3, 20e-6), (0.1, 4e-3), (0.3, 400e-6)]


def ramp_answer(**changes: Any) -> dict[str, Any]:
    return answer(*[run(CLOCK, HALTS, preempted=[1])] * 5, **changes)


def chart_lines(
    width: int, height: int = 8, *, unicode: bool = True, colour: bool = False
) -> list[str]:
    words = ramp_answer()
    result = ramp_runs.summarise_runs(words)
    parts = ramp_runs.phase_traces(words, words["runs"][0])
    return ramp_chart.chart_lines(
        result, result.climbs[0], parts, width, height, unicode=unicode, colour=colour
    )


def test_a_run_without_chunks_has_no_chart() -> None:
    assert chart_lines(20) == []
    short_run = run(CLOCK, load_s=1e-7)
    for is_empty in (False, True):
        if is_empty:
            short_run["chunks"] = {k: v and [] for k, v in short_run["chunks"].items()}
        words = answer(short_run, phases=[{"isa": "scalar", "seconds": 1e-7}])
        result = ramp_runs.summarise_runs(words)
        assert (result.first_hz == result.climbs[0].first_s == 0) is is_empty
        parts = ramp_runs.phase_traces(words, words["runs"][0])
        chart = ramp_chart.chart_lines(
            result, result.climbs[0], parts, 80, 8, unicode=True, colour=False
        )
        assert bool(chart) is not is_empty


def test_gaps_are_counted_in_the_runs_that_count() -> None:
    """Three undisturbed runs are enough; the disturbed one, with many gaps, does not count."""
    noisy = run(CLOCK, [(0.01 * at, 20e-6) for at in range(1, 30)], idle_s=0.1)
    assert "fewer than one a run" in ramp_report(answer(*[run(CLOCK)] * 3, noisy))
    assert "29 of 5 to 60 µs" in ramp_report(answer(noisy))


def ramp_report(words: dict[str, Any], lines: int = 40) -> str:
    size, result = os.terminal_size((200, lines)), ramp_runs.summarise_runs(words)
    return "\n".join(ramp.report_lines(words, result, size, unicode=True, colour=False))


def test_the_chart_of_a_ramp_fills_the_terminal_within_limits() -> None:
    """The prompt needs one more line. The chart has 12 of 28 lines, and 6 to 20 in all."""
    counts = {n: ramp_report(ramp_answer(), n).count("\n") + 1 for n in (10, 28, 29, 99)}
    assert (counts[28], counts[29]) == (27, 28)
    assert (counts[10], counts[99]) == (counts[28] - 6, counts[28] + 8)


def ramp_text(words: dict[str, Any]) -> str:
    return ramp.ramp_sentence(words, ramp_runs.summarise_runs(words))


def test_the_front_page_shows_the_sentence_of_a_ramp() -> None:
    """With other values, since it is from a guest, where runs differ."""
    quick, slow = ([(at, 2.81e9), (1.0, 3.69e9)] for at in (8e-6, 12e-6))
    halts = [(0.01 * at, 3e-3) for at in range(1, 10)]
    bad = run(quick, halts, preempted=range(9), idle_s=0.38)
    words = answer(run(quick), run(slow), run(quick), run(slow), bad)
    (sentence,) = re.findall(r'"(Warm up [^"]*)"', documents()["README"])
    assert _masked(sentence) == _masked(ramp_text(words))


def _masked(text: str) -> str:
    """Returns the text without numbers, units of time and line breaks."""
    return re.sub(r"[0-9.]+( [µm]?s\b)?", "0", " ".join(text.split()))


def test_a_table_lists_all_cpus() -> None:
    words = [ramp_answer(cpu=cpu) for cpu in (2, 10)]
    lines = ramp.table_lines(
        [(word, ramp_runs.summarise_runs(word)) for word in words], {7: "it is off"}
    )
    assert [line.split()[0] for line in lines] == ["CPU", "2", "7", "10", "Times", "±:"]
    assert lines[2].endswith("it is off")
    assert lines[1].split()[1:] == ["1.20", "3.000", "0.001", "4.0", "ms", "4.0", "ms", "4.0", "ms",
                                    "5", "of", "5"]  # fmt: skip


# --- the chart of a ramp and its scale


NAN = math.nan


def text(chart: list[ChartColumn]) -> list[str]:
    return [strips.text(runs) for runs in charts.chart_lines(chart)]


def line_of(
    values: list[float], lines: int, *, limit: float = NAN, ascii_: bool = False
) -> list[ChartColumn]:
    """A line between 0 and 1."""
    return ramp_chart.clock_graph(np.array(values), limit, 0.0, 1.0, lines, ascii_=ascii_)


@pytest.mark.parametrize(("values", "lines"), [
    ([1.0, 1.0], ["⠉⠉", "  "]),
    ([0.0, 0.0], ["  ", "⣀⣀"]),
    ([1.0, 0.0], ["⠉⡇", " ⣇"]),  # steps are joined
    ([1.0, NAN, 0.0], ["⠉  ", "  ⣀"]),  # gaps are not
    ([7.0, -7.0], ["⠉⡇", " ⣇"]),  # clipped to the scale
])  # fmt: skip
def test_a_line_is_at_the_height_of_its_value(values: list[float], lines: list[str]) -> None:
    assert text(line_of(values, 2)) == lines


def test_a_scale_covers_all_clocks_by_at_least_two_steps() -> None:
    assert ramp_chart.axis_span(np.array([2.64e9, 3.21e9, NAN])) == pytest.approx((2.6e9, 3.3e9))
    assert ramp_chart.axis_span(np.array([3.05e9])) == pytest.approx((2.9e9, 3.1e9))
    assert ramp_chart.axis_span(np.array([NAN])) == (0.0, 2e8)


@pytest.mark.parametrize(("span", "marks"), [
    (4.0, [0, 1, 2, 3, 4]), (7.0, [0, 2, 4, 6]), (9.0, [0, 2.5, 5, 7.5]), (11.0, [0, 5, 10]),
    (20.0, [0, 5, 10, 15, 20]), (30.0, [0, 10, 20, 30]),
])  # fmt: skip
def test_marks_are_multiples_of_the_smallest_step(span: float, marks: list[float]) -> None:
    assert sorted(ramp_chart.axis_marks(0.0, span, 40, 4).values()) == marks


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1e4), st.integers(2, 20), st.integers(1, 8))
def test_scales_have_a_few_round_marks(low: float, size: float, lines: int, max_marks: int) -> None:
    high = low + max(size, low / 100)
    marks = ramp_chart.axis_marks(low, high, lines, max_marks)
    assert len(marks) <= max_marks + 1
    assert all(0 <= line < lines for line in marks)
    assert all(low * (1 - 1e-6) <= value <= high * (1 + 1e-6) for value in marks.values())
    assert sorted(marks.values(), reverse=True) == [marks[line] for line in sorted(marks)]
