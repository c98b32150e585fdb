"""Two recordings on one axis: layout, alignment, and keys."""

from __future__ import annotations

from pathlib import Path

import exports
import numpy as np
import pytest
from textual.widgets import Static
from waiting import until_true

from perfprobe import wire
from perftop.draw.strips import text, width
from perftop.recording.file import Recording
from perftop.tui.app import PerfTopApp
from perftop.tui.pair_screen import LABEL_WIDTH, Alignment, PairSource, PairState, Track, pair_page

DROP = "sim:turbo-drop,cpus=8,packages=1,seed=1"
"""A machine that has a turbo drop from 8.0 to 12.1 s."""
BEGIN_S, END_S = 8.0, 12.1


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
        int(np.argmax(one.values("busy_hz", result.axis_of(i).edges) < 3.2e9))
        for i, one in enumerate(tracks)
    ]
    assert (low[1] - low[0]) * cell_s == pytest.approx(offset_s, abs=1.5 * cell_s)
    assert (result.origins_ns[0] - tracks[0].ends_ns[0]) / 1e9 == pytest.approx(origin_s)
    drop = result.axis.cell_after(round((BEGIN_S - origin_s) * 1e9)) + LABEL_WIDTH
    assert starts[0] == pytest.approx(drop, abs=2), "a drop is seen within a sample or two"


def test_the_page_shows_the_answer_of_diff() -> None:
    a = track("a", 11, DROP.replace("turbo-drop", "steady"))
    pair = state((a, track("b", 11)), Alignment(), width=160)
    assert text(pair_page(pair)[2][0]) == "", "before both are compared"
    pair.compare()
    lines = [text(runs) for runs, _ in pair_page(pair)]
    assert lines[2].startswith("   lost clock (power limit PL1): 0.0 % in A, ")
    assert lines[4].rstrip().endswith("±: 95 % for all rows together")
    clock = next(i for i, line in enumerate(lines) if line.startswith(" clock"))
    assert lines[clock].rstrip().endswith(" open")
    difference = next(line for line in lines[clock:] if line.lstrip().startswith("B-A"))
    before, during = (LABEL_WIDTH + round(s / 11 * pair.cells) for s in (4, 9.5))
    assert (difference[before], difference[during]) == ("─", "▀")
    assert [style for runs, _ in pair_page(pair) for text, style in runs if text == "   50.1 "] == [
        "text"
    ]
    pair.width = 60
    assert {style for text, style in pair_page(pair)[2][0] if "clock" in text} == {"alarm"}


def test_a_mark_that_one_recording_lacks_is_reported(tracks: tuple[Track, Track]) -> None:
    assert "not aligned" in text(pair_page(state(tracks, Alignment("mark", "store")))[0][0])


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (240, 70)])
@pytest.mark.parametrize("ascii_", [True, False])
def test_all_sizes_are_filled_and_no_line_is_too_long(
    tracks: tuple[Track, Track], size: tuple[int, int], ascii_: bool
) -> None:
    wide, tall = size
    lines = pair_page(state(tracks, Alignment(), width=wide, height=tall, ascii=ascii_))
    assert len(lines) == tall
    if wide >= 80:
        assert max(width(runs) for runs, _ in lines) <= wide


async def test_keys_move_the_time_and_the_axis(tmp_path: Path) -> None:
    paths = [exports.marked_recording(tmp_path / name, DROP, 140, {at: name})
             for name, at in (("a", 11.0), ("b", 2.0))]  # fmt: skip

    with Recording(paths[0]) as a, Recording(paths[1]) as b:
        source = PairSource((a, b), Alignment())
        app = PerfTopApp(source)
        async with app.run_test(size=(120, 40)) as pilot:
            output = source.page.pair
            await until_true(lambda: all(one.is_read for one in output.tracks), "both are read")
            await pilot.press("n")
            assert output.cursor_s == pytest.approx(2.0, abs=0.11)
            await pilot.press("n")
            assert output.cursor_s == pytest.approx(BEGIN_S, abs=0.35)
            whole_s = output.window_s[1] - output.window_s[0]
            await pilot.press("left_square_bracket")
            first, last = output.window_s
            assert last - first == pytest.approx(whole_s / 2)
            assert first <= output.cursor_s <= last
            await pilot.press("dollar_sign", "right")
            assert output.cursor_s == pytest.approx(output.extent_s[1])
            lines = [text(runs) for runs, _ in pair_page(output)]
            assert any(line.rstrip().endswith("▲") for line in lines)
            clocks = [line.split()[-4] for line in lines if line.startswith(" clock")]
            assert [float(clock) for clock in clocks] == pytest.approx([3.4], abs=0.7)
            await pilot.press("0", "left")
            assert output.cursor_s == pytest.approx(output.extent_s[0])
            await pilot.press("question_mark")
            page_text = str(app.screen.query_one(Static).content)
            assert "Show less time on time axes" in page_text
            assert "Start or stop recording" not in page_text, "a key that has no action here"
