"""Two recordings on one axis: layout, alignment, and keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import exports
import numpy as np
import pytest
from roots import ROOT

from perfprobe import wire
from perftop.draw import theme
from perftop.draw.strips import text, width
from perftop.model.numbers import NUMBERS
from perftop.recording.file import Recording
from perftop.tui.pair_page import (
    LABEL_WIDTH,
    VERDICT_WIDTH,
    Alignment,
    PairState,
    Track,
    chart_top,
    pair_page,
)

DROP = "sim:turbo-drop,cpus=8,packages=1,seed=1"
"""A machine that has a turbo drop from 8.0 to 12.1 s."""
BEGIN_S = 8.0


def track(name: str, seconds: float, source: str = DROP, **notes: float) -> Track:
    """Returns a recording with marks of these names at these seconds. `command`: the second at
    which a command starts."""
    messages = exports.messages(source, seconds)
    hello = exports.hello(messages)
    result = Track(name, hello)
    for label, at_s in notes.items():
        kind = "run-start" if label == "command" else "mark"
        data = {"label": label, "argv": ["./job"]}
        messages.append(wire.Note(kind, hello.raw_ns + int(at_s * 1e9), data=data))
    result.process(sorted(messages[1:], key=lambda message: message.time_ns))  # type: ignore[union-attr]
    result.on_end()
    result.is_read = True
    return result


@pytest.fixture(scope="module")
def tracks() -> tuple[Track, Track]:
    return track("a", 14, solve=8.0, command=1.0), track("b", 15, solve=5.0, command=3.0)


def state(tracks: tuple[Track, Track], alignment: Alignment, **more: object) -> PairState:
    return PairState(tracks, alignment, **{"width": 120, "height": 40, **more})  # type: ignore[arg-type]


def test_values_match_the_schedule(tracks: tuple[Track, Track]) -> None:
    a, _ = tracks
    edges_ns = a.ends_ns[0] + np.array([-20, -10, 10, 70, 85, 115, 200, 300]) * 10**8
    before, _, full, _, low, _, after = a.values("busy_hz", edges_ns)
    assert full - low == pytest.approx(620e6, rel=0.03)
    assert np.isnan([before, after]).all(), "where there is no recording"


@pytest.mark.parametrize(("alignment", "origin_s", "offset_s"), [
    (Alignment(), 0.0, 0.0),
    (Alignment("mark", "solve"), 8.0, 3.0),
    (Alignment("command"), 1.0, -2.0),
])  # fmt: skip
def test_both_are_aligned_at_the_given_time(
    tracks: tuple[Track, Track], alignment: Alignment, origin_s: float, offset_s: float
) -> None:
    """Both recordings have the same drop, `offset_s` later in B."""
    result = state(tracks, alignment)
    lines = [text(runs) for runs, _ in pair_page(result)]
    top = next(i for i, line in enumerate(lines) if "episodes" in line)
    cell_s = (result.window_s[1] - result.window_s[0]) / result.cells
    starts = [line.index("▼") for line in lines[top : top + 2]]
    assert (starts[1] - starts[0]) * cell_s == pytest.approx(offset_s, abs=1.5 * cell_s)
    low = [
        int(np.argmax(one.values("busy_hz", result.track_axis(i).edges) < 3.2e9))
        for i, one in enumerate(tracks)
    ]
    assert (low[1] - low[0]) * cell_s == pytest.approx(offset_s, abs=1.5 * cell_s)
    assert (result.origins_ns[0] - tracks[0].ends_ns[0]) / 1e9 == pytest.approx(origin_s)
    drop = result.axis.cell_after(round((BEGIN_S - origin_s) * 1e9)) + LABEL_WIDTH
    assert starts[0] == pytest.approx(drop, abs=2), "a drop is seen within a sample or two"


def test_a_mark_that_one_recording_lacks_is_reported(tracks: tuple[Track, Track]) -> None:
    assert "not aligned" in text(pair_page(state(tracks, Alignment("mark", "store")))[0][0])


def test_alignments_that_both_have_follow_each_other(tracks: tuple[Track, Track]) -> None:
    """The cursor stays at its time of A."""
    result = state(tracks, Alignment(), cursor_s=9.0)
    seen = []
    for _ in range(4):
        time_of_a = round(result.cursor_s * 1e9) + result.origins_ns[0] - tracks[0].ends_ns[0]
        seen.append((result.alignment.text, time_of_a / 1e9))
        result.align_next()
    assert seen == [("the start", 9.0), ("the start of the command", 9.0), ("mark solve", 9.0),
                    ("the start", 9.0)]  # fmt: skip


def test_recordings_without_another_shared_moment_say_so(tracks: tuple[Track, Track]) -> None:
    result = state((tracks[0], Track("plain", tracks[1].session.hello)), Alignment(), width=160)
    result.tracks[1].on_end()
    for track in result.tracks:
        track.is_read = True
    result.align_next()
    assert "aligned at the start: no other moment in both" in text(pair_page(result)[0][0])
    result.tracks[1].damage = "damaged at byte 9: a damaged packed message"
    assert "B is damaged at byte 9 " in text(pair_page(result)[0][0]), "later samples are shown"


def test_a_range_is_compared_alone(tracks: tuple[Track, Track]) -> None:
    """From 0.3 to 2.7 s after the mark, only A has the drop."""
    result = state(tracks, Alignment("mark", "solve"), width=160)
    result.compare()
    whole = result.comparison
    result.select_range(2.7, 0.3)
    assert result.comparison is not None
    row = next(row for row in result.comparison.rows if row.number.key == "busy_hz")
    assert (row.side_a, row.side_b) == pytest.approx((2.88e9, 3.50e9), rel=0.01)
    assert row.verdict == "better"
    lines = pair_page(result)
    assert "+0.3 to +2.7 s only" in text(lines[2][0])
    assert sum(style.startswith(theme.FADED_PREFIX) for runs, _ in lines for _, style in runs) > 50
    result.select_range(-7.5, -5.5)
    assert "lost –  " in text(pair_page(result)[3][0]), "B begins later"
    result.clear_range()
    assert result.comparison == whole


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (20, 30), (40, 10), (80, 24), (240, 70)])
@pytest.mark.parametrize("ascii_", [True, False])
def test_all_sizes_are_filled_and_no_line_is_too_long(
    tracks: tuple[Track, Track], size: tuple[int, int], ascii_: bool
) -> None:
    wide, tall = size
    lines = pair_page(state(tracks, Alignment(), width=wide, height=tall, ascii=ascii_))
    assert len(lines) == tall
    if wide >= 80:
        assert max(width(runs) for runs, _ in lines) <= wide
    styles = theme.line_styles(next(iter(theme.PALETTES)))
    assert all(styles[style] for runs, _ in lines for _, style in runs), "every style exists"


SHIPPED = ROOT / "app/perftop/recording/shipped"


def read(path: Path) -> Track:
    with Recording(path) as recording:
        result = Track(path.name, recording.hello)
        result.process(recording.messages())
    result.on_end()
    result.is_read = True
    return result


@pytest.fixture(scope="module")
def runs() -> tuple[Track, Track]:
    """Two recordings of one job: alone, and beside a backup that it waits for."""
    return read(SHIPPED / "good-run.perftop"), read(SHIPPED / "bad-run.perftop")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_the_loss_of_the_headline_has_a_chart(
    runs: tuple[Track, Track], size: tuple[int, int]
) -> None:
    result = state(runs, Alignment(), width=size[0], height=size[1])
    result.compare()
    lines = pair_page(result)
    red = [text(runs) for runs, line_state in lines if line_state == "victim"]
    assert "B took 44.5 % longer: it lost 29.6 points more time" in red[0]
    assert "lost 30.4 %" in red[1]
    named = next(i for i, (runs, _) in enumerate(lines) if "waits for CPU s/s" in text(runs))
    difference = next(runs for runs, _ in lines[named:] if "B-A" in text(runs))
    styles = [style for chars, style in difference if "▇" in chars]
    assert "hot" in styles, "more waiting in B rises, and is bad"
    assert "ground/hot" not in styles


def test_a_worse_number_has_the_cause_to_which_b_lost_more_and_its_start() -> None:
    """Of two sleeping machines, B has a turbo drop at 8.0 s; from one run, nothing is certain."""
    calm = track("a", 14, "sim:steady,cpus=8,packages=1,seed=1")
    result = state((calm, track("b", 14)), Alignment(), width=160, height=50)
    result.compare()
    lines = [text(runs)[-VERDICT_WIDTH:].strip() for runs, _ in pair_page(result)]
    clock = next(i for i, (runs, _) in enumerate(pair_page(result)) if "clock GHz" in text(runs))
    assert lines[clock + 2].startswith("▼ power limit PL1")
    assert lines[clock + 2].endswith(", +8 s")
    assert sum("+8 s" in line for line in lines) == 2, "the clock and the lost time, but not power"
    swapped = state(result.tracks[::-1], Alignment(), width=160, height=50)
    swapped.compare()
    assert not any("PL1" in text(runs)[-VERDICT_WIDTH:] for runs, _ in pair_page(swapped))
    assert swapped.comparison is not None
    better = next(row for row in swapped.comparison.rows if row.number.key == "busy_hz")
    better = replace(better, is_clear=True, verdict="better", cause=("turbo-drop", "power-pl1"))
    swapped.comparison = replace(swapped.comparison, rows=[better])
    causes = [text(runs)[-VERDICT_WIDTH:].strip() for runs, _ in pair_page(swapped)]
    assert any("PL1" in cause and cause.endswith(", +8 s") for cause in causes), "the start in A"


def test_charts_have_gaps_unless_few_numbers_would_remain(tracks: tuple[Track, Track]) -> None:
    for height, count, has_gaps in ((24, 5, False), (50, 6, True), (70, 7, True)):
        lines = [
            text(r) for r, _ in pair_page(state(tracks, Alignment(), width=160, height=height))
        ]
        differences = [i for i, line in enumerate(lines) if line[20:23] == "B-A"]
        assert len(differences) == count
        assert all(lines[i + 1][:LABEL_WIDTH].strip() == "" for i in differences[:-1]) == has_gaps


def test_a_worse_a_is_not_red(runs: tuple[Track, Track]) -> None:
    result = state((runs[1], runs[0]), Alignment())
    result.compare()
    assert not [line for line in pair_page(result) if line[1] == "victim"]


def test_waits_add_up_to_those_of_the_job(runs: tuple[Track, Track]) -> None:
    for one in runs:
        ends_ns, waited_s, elapsed_s = one.series.sums()["waited_s"]
        assert waited_s[-1] == pytest.approx(one.readings[0].numbers["waited_s"], abs=0.01)
        assert elapsed_s[-1] == pytest.approx((ends_ns[-1] - ends_ns[0]) / 1e9)
        _, lost_s, wanted_s = one.series.sums()["lost_ratio"]
        assert lost_s[-1] / wanted_s[-1] == pytest.approx(one.readings[0].numbers["lost_ratio"])


def test_work_per_second_is_made_of_its_factors(tracks: tuple[Track, Track]) -> None:
    result = state(tracks, Alignment(), width=200)
    result.compare()
    assert result.comparison is not None
    of_b = {"busy_hz": 0.8, "ipc": 1.1}
    rows = [replace(row, side_a=1.0, side_b=of_b.get(row.number.key, 1.0))
            for row in result.comparison.rows]  # fmt: skip
    result.comparison = replace(result.comparison, rows=rows)
    lines = [text(line).rstrip() for line, _ in pair_page(result)]
    work = "work per second −12.0 %: clock −20.0, IPC +10.0, busy +0.0   w diff as text"
    assert lines[3].endswith(work)
    a_episodes = next(line for line in lines if line.startswith(" episodes"))
    assert a_episodes.endswith("B-A: up where B is more")
    assert lines[lines.index(a_episodes) + 1].endswith("██ worse  ██ better")
    result.comparison = replace(result.comparison, rows=rows[:1])
    assert "work per second" not in text(pair_page(result)[3][0])


@pytest.mark.parametrize(("size", "cells"), [(120, 69), (110, 59), (109, 84), (40, 15), (20, 10)])
def test_the_axis_has_the_cells_beside_the_labels_and_the_verdicts(
    tracks: tuple[Track, Track], size: int, cells: int
) -> None:
    assert state(tracks, Alignment(), width=size).cells == cells


@pytest.mark.parametrize(("zoom", "cursor", "window"), [
    (1.0, 0.5, (0.0, 1.0)), (4.0, 0.0, (0.0, 0.25)), (4.0, 0.5, (0.375, 0.625)),
    (4.0, 1.0, (0.75, 1.0)), (4096.0, 0.5, None),
])  # fmt: skip
def test_the_cursor_is_in_the_middle_of_a_zoomed_axis(
    tracks: tuple[Track, Track], zoom: float, cursor: float, window: tuple[float, float] | None
) -> None:
    """Times are shares of the length of both recordings; None: a second, which is the minimum."""
    first_s, last_s = state(tracks, Alignment("mark", "solve")).extent_s
    length_s = last_s - first_s
    assert (first_s, last_s) == pytest.approx((-8.0, 10.0), abs=0.11)
    result = state(
        tracks, Alignment("mark", "solve"), zoom=zoom, cursor_s=first_s + cursor * length_s
    )
    ends_s = [(end_s - first_s) / length_s for end_s in result.window_s]
    half = 0.5 / length_s
    assert ends_s == pytest.approx(window or (cursor - half, cursor + half))
    cell = round((cursor - ends_s[0]) / (ends_s[1] - ends_s[0]) * result.cells)
    assert result.cursor_cell == pytest.approx(min(cell, result.cells - 1), abs=1)


def test_the_cursor_stays_between_the_ends_of_the_recordings(
    tracks: tuple[Track, Track],
) -> None:
    result = state(tracks, Alignment())
    first_s, last_s = result.extent_s
    for seconds, at_s in ((1.5, first_s + 1.5), (-9.0, first_s), (1e9, last_s), (-1, last_s - 1)):
        result.move_cursor(seconds)
        assert result.cursor_s == pytest.approx(at_s)


def test_small_losses_have_no_chart(tracks: tuple[Track, Track]) -> None:
    """A chart of a loss needs half a per cent; that of another number, any value above 0."""
    means = {"steal": 0.005, "lost_ratio": 0.0051, "util": 0.0, "ipc": 1e-9, "busy_hz": 3e9}
    sums = {key: (np.arange(2.0), np.array([0, 2 * mean]), np.array([0, 2.0]))
            for key, mean in means.items()}  # fmt: skip
    sums["both"] = np.arange(2.0), np.array([0, 1.0]), np.zeros(2)
    track = Track("a", tracks[0].session.hello)
    track._sums_cache = track.session.frames, sums
    assert track.keys == {"lost_ratio", "ipc", "busy_hz"}


@pytest.mark.parametrize(("key", "highest", "top"), [
    ("util", 0.101, 1.0), ("util", 0.1, 0.112), ("util", 0.019, 0.0224), ("util", 0.0, 0.0224),
    ("busy_hz", 3e9, 3.36e9), ("ipc", 0.01, 0.0112), ("ipc", 0.0, 1.12e-9),
])  # fmt: skip
def test_charts_of_small_shares_have_a_scale_of_their_own(
    key: str, highest: float, top: float
) -> None:
    assert chart_top(NUMBERS[key], highest) == pytest.approx(top)
