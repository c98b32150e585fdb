"""The time use of a command: phases, the bar and the table."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.base.text import ascii_line
from perftop.output.run_summary import WIDTH, time_use_lines
from perftop.session.losses import MAX_MOMENTS, Moment, Moments, RunPhase, phases
from perftop.session.task_times import RunTimes, TaskTimes

S = 10**9


def times(**run_s: float) -> RunTimes:
    """Times of one thread of each program, each observed for 100 s."""
    result = RunTimes([0, 1])
    result.threads = {
        (at, at): TaskTimes(name, s, elapsed_s=100.0, active_s=s)
        for at, (name, s) in enumerate(run_s.items(), 1)
    }
    return result


def moments(*of: tuple[int, RunTimes]) -> Moments:
    result = Moments()
    for second, at in of:
        result.note(second * S, at)
    return result


def found(result: Moments, end: Moment) -> list[tuple[str, float, float]]:
    spans = phases(result, Moment(0, None, times()), end)
    return [(span.label, span.start_ns / S, span.end_ns / S) for span in spans]


def test_phases_begin_when_another_program_runs_most() -> None:
    result = moments((1, times(cc1=0.9)), (2, times(cc1=1.8)), (3, times(cc1=1.8)),
                   (4, times(cc1=1.8, ld=0.7)), (5, times(cc1=1.9, ld=1.5)))  # fmt: skip
    end = Moment(6 * S, None, times(cc1=1.9, ld=2.4))
    assert found(result, end) == [("cc1", 0, 3), ("ld", 3, 6)]


def test_a_run_that_starts_idle_has_no_unnamed_phase() -> None:
    made = moments((1, times(sh=0.0)), (2, times(sh=0.5)))
    assert found(made, Moment(3 * S, None, times(sh=1.0))) == [("sh", 0, 3)]


def test_marks_divide_a_run_regardless_of_its_programs() -> None:
    result = moments((1, times(cc1=0.9)), (3, times(cc1=1.0, ld=1.5)))
    result.mark(0, "run: make", times())
    result.mark(2 * S, "link", times(cc1=1.0, ld=0.5))
    result.mark(4 * S, "run ended: status 0", times(cc1=1.0, ld=2.5))
    spans = phases(result, Moment(-S, None, times()), Moment(9 * S, None, times(cc1=8.0, ld=9.0)))
    assert [(span.label, span.elapsed_s, span.largest()) for span in spans] == [
        ("before", 2.0, ("cc1", 1.0)), ("link", 2.0, ("ld", 2.0)),
    ]  # fmt: skip


def test_a_run_with_many_changes_has_six_phases_that_cover_it() -> None:
    result, run_s = Moments(), dict.fromkeys("ab", 0.0)
    for second in range(1, 40):
        run_s["ab"[second % 2]] += 0.9
        result.note(second * S, times(**run_s))
    spans = found(result, Moment(40 * S, None, times(**run_s)))
    assert len(spans) == 6
    assert (spans[0][1], spans[-1][2]) == (0, 40)
    assert all(one[2] == then[1] for one, then in itertools.pairwise(spans))


def test_moments_of_a_long_run_are_few_and_evenly_spread() -> None:
    result = Moments()
    for second in range(5000):
        result.note(second * S, times())
    seconds = [moment.time_ns // S for moment in result.periodic]
    assert MAX_MOMENTS // 2 <= len(seconds) <= MAX_MOMENTS
    gaps = {then - one for one, then in itertools.pairwise(seconds)}
    assert max(gaps) <= 1.2 * min(gaps)


def test_moments_contain_the_times_of_the_job_only() -> None:
    """They are kept for the whole run, and there may be thousands of other tasks."""
    noted = times(cc1=1.0)
    noted.tasks = {(9, "other", 0): TaskTimes("other", 1.0)}
    result = moments((1, noted))
    result.mark(2 * S, "link", noted)
    assert [moment.times.tasks for moment in (*result.periodic, *result.marks)] == [{}, {}]


def phase(label: str, seconds: float, **parts: float) -> RunPhase:
    result = RunTimes([0])
    run_s, wait_s = parts.get("run", 0.0), parts.get("wait", 0.0)
    by_state = {"S": parts.get("sleep", 0.0), "T": parts.get("stop", 0.0)}
    elapsed_s = run_s + wait_s + sum(by_state.values())
    result.threads = {
        (1, 1): TaskTimes(label, run_s, wait_s, {0: run_s}, elapsed_s, run_s + wait_s, by_state)
    }
    return RunPhase(0, round(seconds * S), result, label)


def test_each_phase_is_drawn_to_scale_and_split() -> None:
    text = time_use_lines(
        [phase("build", 3.0, run=2.0, wait=1.0), phase("test", 1.0, run=0.25, sleep=0.75)],
        unicode=True,
    )
    assert text[0].startswith("├─ build 3.0 s ──")
    assert text[0][58:] == "├─ test 1.0 s ─────┤"
    assert text[1] == "█" * 39 + "▓" * 19 + "█" * 5 + "·" * 15
    assert text[2] == "██ ran   ▓▓ waited for a CPU   ·· slept"
    rows = [line.split() for line in text[4:]]
    assert rows[0][:5] == ["phase", "length", "ran", "waited", "slept"]
    assert rows[1] == ["build", "3.0", "s", "2.0", "s", "1.0", "s", "0", "build", "2.0", "s"]
    assert rows[3] == ["all", "4.0", "s", "2.2", "s", "1.0", "s", "0.8", "s"]


def test_all_cells_have_the_same_meaning_in_ascii() -> None:
    lines = time_use_lines([phase("job", 2.0, run=1.0, wait=0.5, stop=0.5)], unicode=False)
    assert lines[1] == "#" * 39 + "w" * 19 + "x" * 20
    assert all(line.isascii() for line in lines)


def test_columns_are_aligned_after_a_cut_name_in_ascii() -> None:
    spans = [phase(name, 2.0, run=1.0, sleep=1.0) for name in ("b" * 40, "link")]
    shown = time_use_lines(spans, unicode=True)
    assert [*map(len, map(ascii_line, shown))] == [*map(len, shown)]


@pytest.mark.parametrize("parts", [{}, {"sleep": 9.0}])
def test_a_command_that_only_slept_has_no_bar(parts: dict[str, float]) -> None:
    assert time_use_lines([phase("sleep", 9.0, **parts)], unicode=True) == []


share = st.floats(0.0, 1e4, allow_nan=False)


@given(st.lists(st.tuples(st.floats(0.01, 1e5), share, share, share), min_size=1, max_size=40))
def test_a_bar_always_has_its_full_width(spans: list[tuple[float, float, float, float]]) -> None:
    text = time_use_lines(
        [phase(str(at), s, run=run, wait=wait, sleep=sleep)
         for at, (s, run, wait, sleep) in enumerate(spans)],
        unicode=True,
    )  # fmt: skip
    assert {len(line) for line in text[:2]} <= {WIDTH}
