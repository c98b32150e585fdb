"""The differences between two groups of runs, their explanations, and the open questions."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from summaries import line

from perftop.output.compare import text
from perftop.output.compare.answer import (
    headline,
    loss_sentences,
    next_step,
    open_questions,
    work_sentence,
)
from perftop.output.compare.comparison import (
    NOISE,
    ONE_RUN,
    SMALL,
    Comparison,
    Row,
    compare,
)
from perftop.output.compare.readings import NUMBERS, Reading, parse_reading
from perftop.output.run_summary import is_different, setting_label, value_text

MEASURES = {"util": 0.974, "busy_hz": 3.09e9, "ipc": 1.62, "lost_ratio": 0.01}
STATE = {"power_limit_w": 250.0, "kernel": "6.8.0-45", "governor": "performance", "cpus": "64"}


def side(
    draw: random.Random, *, count: int = 5, slower: float = 0.0, clock: float = 1.0,
    state: dict[str, Any] | None = None, lost: float = 0.0, noise: float = 0.005,
) -> list[Reading]:  # fmt: skip
    """Runs of 41.2 s whose metrics vary by `noise`."""
    results = []
    for _ in range(count):
        vary = [1 + draw.gauss(0, noise) for _ in range(8)]
        machine = {key: {"mean": MEASURES[key] * vary[at]} for at, key in enumerate(MEASURES)}
        machine["busy_hz"]["mean"] *= clock
        one = line(41.2 * (1 + slower) * vary[5], energy_j=9820 * vary[6])
        one["machine"] |= machine
        one["totals"] |= {"instructions": 12.79e12 * vary[7], "below_ceiling": lost * vary[4]}
        one["causes"] = [{"kind": "turbo-drop", "cause": "power-pl1", "lost_ratio": lost}]
        results.append(parse_reading(one | {"state": STATE | (state or {})}))
    return results


def compare_runs(a: list[Reading], b: list[Reading]) -> Comparison:
    return compare([("", a, b)])[0]


def verdicts(result: Comparison) -> dict[str, str]:
    return {row.number.key: row.verdict for row in result.rows}


@pytest.mark.parametrize(("own", "other"), [(44, 44), (44, 8), (8, 60)])
def test_names_of_models_are_separated_and_fit(own: int, other: int) -> None:
    draw = random.Random(1)
    sides = (side(draw, state={"model": sign * size}) for sign, size in (("a", own), ("b", other)))
    lines = text.lines([compare_runs(*sides)], ("A", "B"))
    assert all(len(line) <= 80 for line in lines)
    (at,) = (i for i, line in enumerate(lines) if "aaa" in line)
    (heading,) = (line for line in lines if line.startswith("machine "))
    assert lines[at] == "  model".ljust(heading.index("A A")) + "a" * own
    assert lines[at + 1] == ("b" * other).rjust(min(heading.index("B B") + other, 80))


def test_a_limit_named_by_an_episode_explains_the_clock() -> None:
    draw = random.Random(1)
    now = {"power_limit_w": 205.0, "kernel": "6.8.0-47"}
    comparison = compare_runs(
        side(draw), side(draw, slower=0.142, clock=0.78, state=now, lost=0.22)
    )
    assert [state.key for state in comparison.differing_states] == ["power_limit_w", "kernel"]
    assert [bool(state.explained_keys) for state in comparison.differing_states] == [True, False]
    found_verdicts = verdicts(comparison)
    assert {key: found_verdicts[key] for key in ("run_s", "busy_hz", "ipc", "instructions")} == {
        "run_s": "worse", "busy_hz": "worse", "ipc": NOISE, "instructions": NOISE,
    }  # fmt: skip
    assert [row.cause for row in comparison.rows if row.number.key in {"run_s", "busy_hz"}] == [
        None, ("turbo-drop", "power-pl1"),
    ]  # fmt: skip
    words = headline([comparison])
    assert "longer" in words
    assert "205 W in B, 250 W in A" in words
    assert any("kernel" in left for left in open_questions([comparison]))


def test_the_run_time_comes_first_unless_only_another_difference_is_certain() -> None:
    """CPU time differs by 5 %; the run time varies by 20 %, then by 1 %."""
    draw = random.Random(9)

    def runs_with_times(cpu_s: float, run_s: float, noise: float) -> list[Reading]:
        return [Reading({"cpu_s": cpu_s * draw.gauss(1, 0.003), "run_s": run_s *
                         draw.gauss(1, noise)}, {}, {}) for _ in range(5)]  # fmt: skip

    words = headline(
        [compare_runs(runs_with_times(30, 40, 0.2), runs_with_times(30 * 1.049, 40, 0.2))]
    )
    assert words.startswith("B needs 4.8 % more CPU time. Run time: no difference found; −")
    assert words.endswith(" % is possible.")
    words = headline(
        [compare_runs(runs_with_times(30, 40, 0.01), runs_with_times(30 * 1.049, 46, 0.01))]
    )
    assert words.startswith("B takes 16.")
    assert " longer. B needs 5." in words
    words = headline([compare_runs(runs_with_times(30, 40, 0.01), runs_with_times(30, 40, 0.01))])
    assert words.startswith("Run time: no difference found; −")


def test_a_cause_of_both_runs_that_costs_more_is_named() -> None:
    draw = random.Random(1)
    comparison = compare_runs(side(draw, lost=0.02), side(draw, clock=0.78, lost=0.22))
    assert ": power limit PL1 takes more from it." in headline([comparison])


def test_a_limit_without_an_episode_explains_nothing() -> None:
    draw = random.Random(2)
    comparison = compare_runs(side(draw), side(draw, slower=0.1, state={"power_limit_w": 205.0}))
    assert [state.explained_keys for state in comparison.differing_states] == [[]]
    assert "205" not in headline([comparison])
    assert any("power limit PL1" in left for left in open_questions([comparison]))


def test_two_states_of_one_cause_are_not_distinguished() -> None:
    causes = [{"kind": "turbo-drop", "cause": "policy", "lost_ratio": 0.22}]
    draw = random.Random(3)
    a = side(draw, state={"turbo": "on", "max_hz": 3.5e9})
    b = side(draw, clock=0.78, state={"turbo": "off", "max_hz": 3.1e9})
    low = [
        parse_reading({"numbers": one.numbers, "state": one.state, "causes": causes}) for one in b
    ]
    left = [*open_questions([compare_runs(a, low)])]
    assert any("turbo and highest clock" in one for one in left)


def test_one_run_a_side_is_inconclusive() -> None:
    draw = random.Random(4)
    comparison = compare_runs(side(draw, count=1), side(draw, count=1, slower=0.2))
    assert {*verdicts(comparison).values()} == {ONE_RUN}
    assert "may be chance" in headline([comparison])
    assert text.diff_json([comparison], ([], []))["phases"][0]["numbers"]["run_s"]["low"] is None
    same = side(draw, count=1)
    assert headline([compare_runs(same, same)]).startswith("B took as long as A (one run per side)")


def test_values_that_both_sides_lack_have_no_row_and_others_are_named() -> None:
    draw = random.Random(5)
    a, b = side(draw), [Reading({"run_s": 41.0, "steal": 0.0}, {}, {}) for _ in range(3)]
    a = [Reading(one.numbers | {"steal": 0.0}, one.state, one.lost_shares) for one in a]
    comparison = compare_runs(a, b)
    assert [row.number.key for row in comparison.rows] == ["run_s"], "steal is 0 on both sides"
    assert "busy_hz" in comparison.one_sided_keys[0]
    assert comparison.one_sided_keys[1] == []
    unknown = "machine: the settings of at least one side are not known"
    assert unknown in text.lines([comparison], ("A", "B"))
    known = compare_runs(side(draw), side(draw, state={"governor": "powersave"}))
    lists: list[dict[str, Any]] = [{}, {"equal_states": []}, {"differing_states": []}]
    for changes in lists:
        comparison = dataclasses.replace(known, **changes)
        assert unknown not in text.lines([comparison], ("A", "B"))


def test_the_loss_that_differs_most_is_named_first() -> None:
    draw = random.Random(6)
    shares = [{("steal", "hypervisor"): steal, ("turbo-drop", "power-pl1"): clock}
              for steal, clock in ((0.0, 0.2), (0.02, 0.0))]  # fmt: skip
    a, b = ([dataclasses.replace(one, lost_shares=lost) for one in side(draw)] for lost in shares)
    comparison = compare_runs(a, b)
    first, second = loss_sentences(comparison)
    assert ("PL1" in first, "PL1" in second) == (True, False)


def test_a_difference_of_many_times_is_printed_as_a_factor() -> None:
    draw = random.Random(6)
    for slower, change in ((9.0, "+8"), (61.0, "x6")):
        rows = text.lines([compare_runs(side(draw, count=1), side(draw, count=1, slower=slower))],
                          ("a", "b"))  # fmt: skip
        assert change in next(row for row in rows if "run time" in row and "s  4" in row)


@pytest.mark.parametrize(("instructions", "ipc", "sentence"), [
    ((10, 10.01), (1.0, 1.2), "B does the same work in fewer cycles (IPC)"),
    ((10, 13), (1.0, 1.2), "B does 30.0 % more instructions in fewer cycles (IPC)"),
    ((10, 8), (1.2, 1.0), "B does 20.0 % fewer instructions in more cycles (IPC)"),
    ((10, 13), (1.0, 1.0), ""),
    ((), (1.0, 1.2), ""),
])  # fmt: skip
def test_work_and_cycles_are_compared_if_both_are_certain(
    instructions: tuple[float, ...], ipc: tuple[float, float], sentence: str
) -> None:
    sides = []
    for i in (0, 1):
        readings = side(random.Random(5 + i))
        for at, reading in enumerate(readings):
            reading.numbers.pop("instructions")
            reading.numbers["ipc"] = ipc[i] * (1 + at / 1e4)
            if instructions:
                reading.numbers["instructions"] = instructions[i] * 1e12 * (1 + at / 1e4)
        sides.append(readings)
    text = work_sentence(compare_runs(*sides))
    assert text.startswith(sentence) if sentence else text == ""


def test_untrusted_text_cannot_control_a_terminal() -> None:
    draw = random.Random(14)
    evil = {"governor": "\x1b[2J", "odd\x1b]0;": "\x07", "kernel": "5 µ"}
    comparison = compare_runs(side(draw), side(draw, state=evil, slower=0.1))
    lines = text.lines([comparison], ("a\x1b[31m", "b\n"), unicode=False, colour=True)
    assert all(line.isascii() for line in lines)
    assert {c for line in lines for c in line if not c.isprintable()} == {"\x1b"}
    assert all(line.count("\x1b") == 2 * line.count("\x1b[0m") for line in lines)
    assert sum("\x1b[31mworse\x1b[0m" in line for line in lines) == 1, "the run time is worse"


def picture(result: Comparison, key: str, *, unicode: bool = True) -> tuple[str, str, str]:
    """Returns the drawn runs, the interval and the verdict of a row."""
    lines = text.lines([result], ("A", "B"), unicode=unicode)
    heading = next(line for line in lines if line.endswith("verdict"))
    first = heading.index("A ⣤ B" if unicode else "A . B") - 2
    name = NUMBERS[key].plain_name
    row = next(line for line in lines if line.startswith(f"  {name} "))
    return row[first : first + 8], row[first + 9 : first + 24], row[first + 25 :]


def runs(key: str, *values: float) -> list[Reading]:
    return [Reading({key: value}, {}, {}) for value in values]


def test_runs_are_dots_on_one_axis_with_a_above_b() -> None:
    result = compare_runs(runs("run_s", 1.0, 1.0, 1.5), runs("run_s", 1.5, 2.0, 2.0))
    dots, _, _ = picture(result, "run_s")
    assert (dots[0], dots[1:4], dots[5:7]) == ("⠃", "···", "··"), "A's are the least"
    assert (dots[4], dots[7]) == ("⡇", "⢠"), "one of each in the middle, B's last"
    dots, _, _ = picture(result, "run_s", unicode=False)
    assert dots == "'   :  ."
    same = compare_runs(runs("run_s", 1.0, 1.0), runs("run_s", 1.0, 1.0))
    assert picture(same, "run_s", unicode=False)[0].strip() == ":"


@pytest.mark.parametrize(("change", "interval", "certain", "shape"), [
    (0.1, (0.05, 0.15), True, "·······│·──●─··"),
    (0.07, (0.011, 0.12), True, "·······│─●──···"),
    (0.0, (-0.1, 0.229), False, "···────●──────▸"),
    (0.1, (-0.229, 1.1), False, "◂──────┼───●──▸"),
    (0.9, (0.5, 1.3), False, "·······│······▸"),
    (-0.1, None, False, "···●···│·······"),
])  # fmt: skip
def test_an_interval_is_a_line_that_may_end_in_an_arrow(
    change: float, interval: tuple[float, float] | None, certain: bool, shape: str
) -> None:
    row = dataclasses.replace(
        compare_runs(runs("run_s", 1.0, 1.1), runs("run_s", 1.2, 1.3)).rows[0],
        change=change, interval=interval, is_clear=certain,
    )  # fmt: skip
    assert text._draw_interval(row, 0.2) == shape


@pytest.mark.parametrize(("certain", "ends", "scale"), [
    (False, [0.09], "10 %"), (False, [0.04, 0.4], "5 %"), (False, [0.04, 0.1, 0.4], "10 %"),
    (True, [0.01, 0.011, 0.4], "50 %"), (True, [0.02], "2 %"), (True, [0.021], "5 %"),
])  # fmt: skip
def test_the_scale_covers_all_clear_intervals_and_half_of_the_others(
    ends: list[float], scale: str, *, certain: bool
) -> None:
    result = compare_runs(runs("run_s", 1.0, 1.1), runs("run_s", 1.0, 1.1))
    rows = [
        dataclasses.replace(result.rows[0], change=0.0, interval=(-end, 0.0), is_clear=certain)
        for end in ends
    ]
    lines = text.lines([dataclasses.replace(result, rows=rows)], ("A", "B"))
    assert f"−{scale} " in next(line for line in lines if line.endswith("verdict"))


def test_open_questions_have_a_way_to_answer_them() -> None:
    def runs_beside_others(mean_s: float, others: float) -> list[Reading]:
        return [Reading({"run_s": mean_s * share, "others_cpus": others}, {}, {})
                for share in (0.94, 1.0, 1.06)]  # fmt: skip

    result = compare([("", runs_beside_others(40, 0.9), runs_beside_others(42.4, 0.9))])
    assert headline(result).startswith("Inconclusive: 3 runs per side cannot show less than ")
    assert " %. Run time: no difference found; −" in headline(result)
    step = next_step(result)
    assert step.startswith("a quieter machine (other tasks used 0.9 CPUs), or perftop stat -r ")
    needed = int(step.split("stat -r ")[1].split(",")[0])
    assert 3 < needed < 200
    calm = compare([("", runs_beside_others(40, 0.0), runs_beside_others(42.4, 0.0))])
    assert next_step(calm).startswith("perftop stat -r ")
    certain = compare([("", runs("run_s", 1.0, 1.001), runs("run_s", 2.0, 2.001))])
    single = compare([("", runs_beside_others(40, 0.9)[:1], runs_beside_others(42.4, 0.9)[:1])])
    assert next_step(certain) == ""
    assert next_step(single).startswith("perftop stat -r 5 --json -o a.json -- CMD for A, ")
    assert not any("blocks of time" in question for question in open_questions(single))


@pytest.mark.parametrize(("commands", "step"), [
    (("./job -n 3", "./job -n 3"), "perftop stat -r 5 --json -o a.json -- ./job -n 3 for A, "),
    (("./job -n 3", "./new"), "perftop stat -r 5 -A './job -n 3' -B ./new"),
    (("./job", "x" * 100), "perftop stat -r 5 --json -o a.json -- CMD for A, "),
])  # fmt: skip
def test_one_run_a_side_is_to_be_repeated_by_its_own_command(
    commands: tuple[str, str], step: str
) -> None:
    a, b = (
        Reading({"run_s": run_s}, {"command": command}, {})
        for run_s, command in zip((40, 42.4), commands, strict=True)
    )
    assert next_step([compare_runs([a], [b])]).startswith(step)
    assert next_step([compare_runs([a], [a])]) == "", "the runs took equally long"


WAIT, PL1 = ("neighbour", "scheduler"), ("turbo-drop", "power-pl1")


@pytest.mark.parametrize(("numbers", "losses", "reason"), [
    ({"cpu_s": 1.124}, {WAIT: -0.054}, "it used 12.4 % more CPU time (more work or slower code)"),
    ({"cpu_s": 1.124, "ipc": 0.9, "busy_hz": 1.05}, {},
     "it used 12.4 % more CPU time, with 10.0 % lower IPC"),
    ({"cpu_s": 1.124, "ipc": 0.99, "instructions": 1.1}, {},
     "it used 12.4 % more CPU time, with 10.0 % more instructions"),
    ({"cpu_s": 1.02}, {WAIT: 0.3},
     "it lost 30.0 points more time in the queue, waiting for gzip on CPU 1"),
    ({"cpu_s": 0.9}, {WAIT: -0.2}, ""),
])  # fmt: skip
def test_the_reason_acts_in_the_direction_of_the_run_time(
    numbers: dict[str, float], losses: dict[tuple[str, str], float], reason: str
) -> None:
    """B takes 6.1 % longer, and other numbers are multiples of A's."""
    start = dict.fromkeys(numbers, 1e10)
    lost_a, lost_b = (
        {cause: max(0.0, sign * s) for cause, s in losses.items()} for sign in (-1, 1)
    )
    a = Reading({"run_s": 10.0, **start}, {}, lost_a)
    b = Reading(
        {"run_s": 10.61} | {key: 1e10 * value for key, value in numbers.items()}, {}, lost_b,
        {WAIT: ("gzip", "CPU 1")},
    )  # fmt: skip
    text = f": {reason}" if reason else ""
    words = headline([compare_runs([a], [b])])
    assert words == f"B took 6.1 % longer{text}. This may be chance: one run per side."


def test_of_single_runs_the_phase_whose_length_differs_most_comes_first() -> None:
    """It was once 'Inconclusive', or that busy time is the same in the first phase."""

    def reading(length_s: float, lost: float) -> list[Reading]:
        return [Reading({"length_s": length_s}, {}, {WAIT: lost})]

    load = "load", reading(1.0, 0.1), reading(1.5, 0.3)
    solve = "solve", reading(6.3, 0.1), reading(8.4, 0.3)
    words = headline(compare([load, solve]))
    assert words == (
        "B took 33.3 % longer in solve: it lost 20.0 points more time in the queue. "
        "This may be chance: one run per side."
    )


def test_a_culprit_is_named_if_all_runs_of_the_side_that_lost_more_name_it() -> None:
    draw = random.Random(6)

    def runs_behind(share: float, *names: str) -> list[Reading]:
        culprits = ({WAIT: (name, f"CPU {at}")} if name else {} for at, name in enumerate(names))
        sides = zip(side(draw, count=len(names)), culprits, strict=True)
        return [dataclasses.replace(one, lost_shares={WAIT: share}, culprits=culprit)
                for one, culprit in sides]  # fmt: skip

    def loss(a: list[Reading], b: list[Reading]) -> str:
        return next(loss_sentences(compare_runs(a, b)))

    calm, beside = runs_behind(0.01, "cron", "cron"), runs_behind(0.3, "gzip", "gzip", "")
    assert loss(calm, beside).endswith("30.0 % in B (waiting for gzip)"), "on different CPUs"
    assert loss(beside, calm).endswith("1.0 % in B (waiting for gzip)")
    assert loss(calm, runs_behind(0.3, "gzip", "tar")).endswith("30.0 % in B")


def test_a_base_clock_that_differs_by_its_calibration_is_the_same() -> None:
    clocks = [Reading({"run_s": 1.0}, {"base_hz": hz}, {}) for hz in (2.6e9, 2.60001e9)]
    for a, b in ((clocks, clocks[:1]), (clocks[:1], clocks[1:])):
        assert compare_runs(a, b).equal_states == ["base_hz"]
    other = [Reading({"run_s": 1.0}, {"base_hz": 2.7e9}, {})]
    assert compare_runs(clocks, other).differing_states[0].key == "base_hz"


def test_work_and_speed_are_separated() -> None:
    """B runs as many instructions in fewer cycles, which is better, but at fewer cycles a
    second."""
    draw = random.Random(15)
    faster = []
    for one in side(draw, clock=0.9):
        results = {**one.numbers, "ipc": 1.2 * one.numbers["ipc"]}
        faster.append(dataclasses.replace(one, numbers=results))
    words = work_sentence(compare_runs(side(draw), faster))
    assert words.startswith("B does the same work in fewer cycles (IPC), but has 1")
    assert words.endswith(" % fewer of them in each second.")
    assert work_sentence(compare_runs(side(draw), side(draw))) == ""


# --- the settings of a machine, read from a recording


def test_a_difference_below_1_percent_is_the_same_however_significant() -> None:
    draw = random.Random(3)
    quiet = {"count": 8, "noise": 0.0005}
    result = compare_runs(side(draw, **quiet), side(draw, slower=0.006, **quiet))  # type: ignore[arg-type]
    (time,) = (row for row in result.rows if row.number.key == "run_s")
    assert (time.is_clear, time.verdict, time.is_same) == (False, SMALL, True)
    larger = compare_runs(side(draw, **quiet), side(draw, slower=0.015, **quiet))  # type: ignore[arg-type]
    assert verdicts(larger)["run_s"] == "worse"


def test_values_have_words_and_small_differences_are_ignored() -> None:
    assert setting_label("power_limit_w") == "power limit PL1"
    assert value_text("power_limit_w", 205.0) == "205 W"
    assert setting_label("idle_governor") == "idle governor"
    assert value_text("idle_governor", "menu") == "menu"
    assert value_text("max_hz", None) == "n/a"
    assert not is_different(250.0, 250.3)
    assert is_different(250.0, 251.0)
    assert is_different("on", "off")


@pytest.mark.parametrize(("interval", "verdict", "word"), [
    ((-0.02, 0.02), NOISE, "same"), ((-0.021, 0.0), NOISE, "open"), ((0.0, 0.021), NOISE, "open"),
    ((0.001, 0.9), SMALL, "same"), (None, NOISE, "same"), (None, ONE_RUN, "open"),
])  # fmt: skip
def test_a_difference_that_is_certainly_within_2_percent_is_none(
    interval: tuple[float, float] | None, verdict: str, word: str
) -> None:
    row = Row(NUMBERS["ipc"], 1.0, 1.0, 0.0, interval, 0.5, False, False, verdict)
    assert text.verdict_word(row) == word


@pytest.mark.parametrize(("a", "b", "is_named"), [
    (0.01, 0.02, True), (0.02, 0.01, True), (0.01, 0.0199, False), (0.0, 0.01, True),
])  # fmt: skip
def test_a_cause_is_named_if_it_cost_one_point_more(a: float, b: float, is_named: bool) -> None:
    cause = "turbo-drop", "thermal"
    readings = [Reading({"run_s": 1.0}, {}, {cause: share}) for share in (a, b)]
    result = compare_runs(readings[:1], readings[1:])
    assert (cause in result.extra_loss) is is_named
    other = [dataclasses.replace(r, lost_shares={("turbo-drop", "other"): 0.5}) for r in readings]
    assert compare_runs(other[:1], readings[1:]).extra_loss.keys() <= {cause}


def test_dots_have_the_colours_of_their_sides() -> None:
    a, b = [1.0, 5.0], [5.0, 9.0]
    runs = text._dot_runs([a, b], unicode=True)
    assert [style for _, style in runs if style != "dim"] == ["a", "", "b"]
    ascii_runs = text._dot_runs([a, b], unicode=False)
    assert "".join(sign for sign, _ in ascii_runs) == "'   :  ."


def test_runs_of_several_files_are_counted_by_file() -> None:
    a = [dataclasses.replace(run, file=i) for i, run in enumerate(runs("run_s", 1.0, 1.1, 1.2))]
    result = compare_runs(a, runs("run_s", 1.0, 1.1))
    heading = next(line for line in text.lines([result], ("A", "B")) if line.endswith("verdict"))
    assert heading.startswith("3 and 1 files")
    result = compare_runs(runs("run_s", 1.0, 1.1), runs("run_s", 1.0, 1.1))
    heading = next(line for line in text.lines([result], ("A", "B")) if line.endswith("verdict"))
    assert heading.startswith("2 runs per side")
