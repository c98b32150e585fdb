"""The app on a recording: keys for navigation, and messages about the file."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest
from fakes import Machine, queue_records
from played_apps import INTERVAL_NS, S, Viewer, viewing
from recording_files import index_in_process, write_recording
from synth import SAMPLE_NS
from textual.widgets import Static
from waiting import until_true

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.draw import strips, theme
from perftop.recording.file import Recording
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import History
from perftop.session.packing import BLOCK_MESSAGES, TimedMessage
from perftop.session.session import Session
from perftop.tui import recording_index, replay
from perftop.tui.config import Config
from perftop.tui.shared.loss_panels import loss_chart_panel
from perftop.tui.shared.verdict import loss_history, verdict_at
from perftop.tui.views.episodes import Episodes

FRAMES = 1001
MARKS = {12: "warm", 80: "late"}
"""Labels of marks by their time in seconds."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 s of a machine with a constant load, with two marks."""
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    messages: list[TimedMessage] = []
    for seq in range(FRAMES):
        messages.append(machine.frame(seq))
        if label := MARKS.get(seq // 10 if seq % 10 == 0 else -1):
            messages.append(wire.Note("mark", seq * SAMPLE_NS, "recorder", {"label": label}))
    return write_recording(tmp_path_factory.mktemp("replay") / "file", machine.hello, messages)


@pytest.fixture(autouse=True)
def _episodes_are_found_here(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only episodes of `away` are found by a separate process, as for a user."""
    if "away" not in request.fixturenames:
        monkeypatch.setattr(recording_index, "_index_process", index_in_process)


# --- playing


async def test_a_recording_plays_at_its_own_pace_and_shows_its_position(path: Path) -> None:
    async with viewing(path) as viewer:
        assert viewer.at_s == 0.1  # the first sample: it plays from the start
        assert "· 0:00/1:40 · ×1" in viewer.header
        await viewer.wait(5.0)
        await viewer.wait_until(5.1)
        assert "· 0:05/1:40 · ×1" in viewer.header
        assert all(map(viewer.has, ("space pause", "{ } speed", "n next episode")))


async def test_pausing_stops_a_replay_and_resuming_continues_it(path: Path) -> None:
    async with viewing(path) as viewer:
        await viewer.wait(3.0)
        await viewer.wait_until(3.1)
        await viewer.press("space")
        await viewer.wait_for_text("· paused")
        await viewer.wait(60.0)
        await viewer.pilot.pause(0.15)
        assert viewer.at_s == pytest.approx(3.1)
        assert viewer.has("space play")
        await viewer.press("space")
        await viewer.wait(1.0)
        await viewer.wait_until(4.1)


async def test_jumps_are_limited_to_the_recording(path: Path) -> None:
    async def jump(viewer: Viewer, text: str) -> None:
        await viewer.press("J", *text, "enter")

    async with viewing(path) as viewer:
        await viewer.press("space")
        await jump(viewer, "+75s")  # a time after everything that was read so far
        await viewer.wait_until(75.1)
        assert "1:15/1:40 · paused" in viewer.header
        await jump(viewer, "-60.5s")
        await viewer.wait_until(14.6)
        await viewer.press("J", *"+5m")
        words = viewer.app.screen.query_one("#prompt-words", Static)
        await until_true(
            lambda: "22:13:20.0 to 22:15:00.0" in str(words.content), "how far one can go"
        )


async def test_the_history_is_read_from_the_start_of_the_time_axes(path: Path) -> None:
    def first_s(viewer: Viewer) -> float:
        ends_ns = viewer.source.ends_ns
        assert ends_ns is not None
        return (ends_ns[0] - viewer.source.recording_span_ns[0]) / S

    async with viewing(path) as viewer:
        await viewer.press("space", "J", *"+95s", "enter", to_s=95.1)
        await until_true(lambda: first_s(viewer) <= 35.1, "a minute of the past")
        await viewer.press("right_square_bracket")
        viewer.source.check()
        await until_true(lambda: first_s(viewer) <= 0.1, "all of the past")
        assert viewer.at_s == pytest.approx(95.1)
        await viewer.press("shift+left", to_s=85.1)


async def test_a_jump_keeps_nothing_of_the_sessions_before_it(path: Path) -> None:
    async with viewing(path) as viewer:
        await viewer.press("space")
        sessions: set[weakref.ref[Session]] = set()
        await viewer.press("left_square_bracket")  # else all of the file may be read, and kept
        await viewer.press("J", *"+5s", "enter", to_s=5.1)
        for jump, at_s in (("+85s", 90.1), ("-85s", 5.1)) * 4:
            await viewer.press("J", *jump, "enter", to_s=at_s)
            sessions.add(weakref.ref(viewer.source.session))
        gc.unfreeze()
        gc.collect()
        known = [session() is not None for session in sessions]
        assert len(known) > 2
        assert sum(known) <= 2  # panels may show the one before


async def test_steps_continue_before_and_after_the_part_that_was_read(path: Path) -> None:
    async with viewing(path) as viewer:
        await viewer.press("space", "left")
        await viewer.wait_until(0.1)
        await viewer.press("right", to_s=0.2)
        await viewer.press("left", to_s=0.1)
        await viewer.press("left_square_bracket", *"J+90s", "enter", to_s=90.1)
        await viewer.press("right", to_s=90.2)
        source = viewer.source
        assert source.ends_ns is not None
        source.show_moment(first_ns := source.ends_ns[0])
        first_s = (first_ns - source.recording_span_ns[0]) / S
        assert first_s > 10, "a part of the file has not been read"
        await viewer.press("left", to_s=first_s - 0.1)
        await viewer.press("dollar_sign", to_s=100.0)
        assert "end" in viewer.header
        await viewer.press("right")
        await viewer.wait_until(100.0)
        source.step(-1)
        assert viewer.at_s == pytest.approx(99.9)
        assert source.status.replay is not None
        assert not source.status.replay.is_over


# --- episodes and marks


async def test_marks_are_found_in_read_and_unread_parts(path: Path) -> None:
    async with viewing(path) as viewer:
        await viewer.press("n", to_s=12.0)
        await viewer.press("n", to_s=80.0)
        await viewer.press("n")
        await viewer.wait_for_text("no episode or mark after this moment; try N")
        await viewer.wait_until(80.0)
        await viewer.press("N", to_s=12.0)
        await viewer.press("dollar_sign", to_s=100.0)
        await viewer.press("N", to_s=80.0)
        await viewer.press("N", to_s=12.0)
        await viewer.press("N")
        await viewer.wait_for_text("no episode or mark before this moment; try n")


@pytest.mark.parametrize("keys", [["n"] * 2, ["5", "home", "enter"]])
@pytest.mark.parametrize("frames_after", [0, 1])
async def test_marks_in_a_part_without_samples_are_passed_over(
    tmp_path: Path, keys: list[str], frames_after: int
) -> None:
    machine, label = Machine(cores=1), {"label": "far"}
    messages: list[TimedMessage] = [machine.frame(seq) for seq in range(BLOCK_MESSAGES)]
    times = range(40 * S, 40 * S * (BLOCK_MESSAGES + 3), 40 * S)
    messages += [wire.Note("mark", time_ns, "recorder", label) for time_ns in times]
    messages += [machine.frame(times[-1] // SAMPLE_NS + 1)] * frames_after
    path = write_recording(tmp_path / "gap", machine.hello, messages)
    async with viewing(path) as viewer:
        await viewer.press("space", *keys)
        await until_true(lambda: viewer.source.seek_worker is None, "the end of the search")
        assert viewer.source.interval is not None


def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


async def test_a_new_mark_can_be_visited_and_the_file_does_not_change(path: Path) -> None:
    before = digest(path)

    async with viewing(path) as viewer:
        await viewer.press("space", "J", *"+50s", "enter", to_s=50.1)
        await viewer.press("m", *"here", "enter")
        await viewer.wait_for_text("the file does not change")
        for end, key in (("dollar_sign", "N"), ("0", "n")):
            await viewer.press(end, to_s=100.0 if end != "0" else 0.1)
            await viewer.press(key, to_s=80.0 if key == "N" else 12.0)
            await viewer.press(key, to_s=50.1)
    assert digest(path) == before


async def test_marks_without_a_name_are_numbered(path: Path) -> None:
    async with viewing(path) as viewer:
        await viewer.press("space")
        for number in (1, 2):
            await viewer.press("m", "enter")
            await viewer.wait_for_text(f'marked "mark {number}" at 22:13:20.1 until you leave')


@pytest.fixture(scope="module")
def recording_with_offline_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 s without CPU 3 from 20.05 s to 90.05 s, longer than the part read before a jump."""
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    messages: list[TimedMessage] = []
    for seq in range(FRAMES):
        if seq in {201, 901}:
            (machine.offline_cpus.add if seq == 201 else machine.offline_cpus.remove)(3)
            data = {"cpu": 3, "online": seq == 901}
            messages.append(wire.Note("hotplug", (seq * 100 - 50) * 10**6, data=data))
        messages.append(machine.frame(seq))
    return write_recording(tmp_path_factory.mktemp("away") / "file", machine.hello, messages)


@pytest.mark.parametrize("start", ["0", "J"])
async def test_an_episode_is_listed_completely_from_any_position(
    recording_with_offline_cpu: Path, start: str
) -> None:
    async with viewing(recording_with_offline_cpu) as viewer:
        await viewer.press("space", start, *(("+", *"80s", "enter") if start == "J" else ()))
        await viewer.wait_until(80.1 if start == "J" else 0.1)
        await until_true(lambda: not viewer.source.indexing, "all episodes of the file")
        await viewer.press("5")
        await viewer.pilot.pause()
        result = viewer.app.screen.query_one(Episodes)
        lines = [result.render_line(y).text for y in range(result.size.height)]
        (line,) = [line for line in lines if line[1:].startswith("○ 22:13:40")]
        assert "1 min 10 s" in line


async def test_the_header_shows_the_progress_of_finding_episodes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, rest = asyncio.Event(), asyncio.Event()

    async def follow(_: Path, hello: wire.Hello, found: RecordingEpisodes) -> AsyncGenerator[None]:
        found.until_ns = hello.raw_ns + 50 * S
        yield
        half.set()
        await rest.wait()

    monkeypatch.setattr(recording_index, "fill_episodes", follow)

    async with viewing(path) as viewer:
        await half.wait()
        await viewer.wait_for_text("finding episodes 50 %")
        await viewer.press("n")
        await viewer.wait_for_text("seeking 0:50")
        rest.set()
        await until_true(lambda: "finding" not in viewer.header, "the end of it")


@pytest.mark.parametrize(("period_s", "count"), [(1e9, 0), (0.0, 109)])
def test_progress_is_reported_at_most_once_a_period(
    path: Path, monkeypatch: pytest.MonkeyPatch, period_s: float, count: int
) -> None:
    monkeypatch.setattr(recording_index, "PROGRESS_S", period_s)
    with Recording(path) as recording:
        kinds = [note.kind for note in recording_index.notes(recording)]
    assert kinds.count(recording_index.PROGRESS_KIND) == count


async def test_a_cancelled_search_does_not_change_the_position(path: Path) -> None:
    async with viewing(path) as viewer:
        await viewer.press("n", to_s=12.0)
        release = asyncio.Event()

        async def forever(_: int) -> None:
            await release.wait()

        viewer.source.start_seek(lambda: forever(0))
        await viewer.wait_for_text("seeking 0:12")
        await viewer.press("space")
        await viewer.wait_for_text("· paused")
        await viewer.wait_until(12.0)


async def test_a_recording_cannot_be_recorded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async with viewing(path) as viewer:
        await viewer.press("R")
        await viewer.pilot.pause()
        assert "recording to" not in "".join(viewer.text())
        active = {it.binding.id for it in viewer.monitor.active_bindings.values() if it.enabled}
        assert "record" not in active
        assert {"begin", "finish", "faster", "slower"} <= active
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240


# --- losses


def live_session(messages: list[wire.Message]) -> Session:
    """Returns a session as a live screen leaves it, with a verdict after each second."""
    hello, *frames = messages
    assert isinstance(hello, wire.Hello)
    session = Session(hello, History(hello))
    session.run.track_losses(losses_only=True)
    for number, frame in enumerate(frames):
        session.apply(frame)
        if number % 10 == 1:
            verdict_at(session, session.take_interval())
    return session


async def test_a_replay_has_the_waits_and_the_losses_of_a_live_screen_at_every_moment(
    tmp_path: Path,
) -> None:
    """Two tasks share a CPU from 20 s to 40 s."""
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    hogs = queue_records(cpu1=((11, "hogA", 0.5, 0.5), (12, "hogB", 0.5, 0.5)))
    messages = machine.messages(FRAMES, lambda seq: hogs if 200 <= seq <= 400 else {})
    live = live_session(messages)
    edges_ns = np.array([0, 15, 45, 98]) * S
    _, wanted_s, lost_s = loss_history(live).between(edges_ns)
    assert lost_s["scheduler"].round(1).tolist() == [0.0, 21.5, 0.0]
    frames = [message for message in messages if isinstance(message, wire.Frame)]
    file = write_recording(tmp_path / "file", machine.hello, frames)
    async with viewing(file) as viewer:
        await viewer.press("space")
        await until_true(lambda: not viewer.source.indexing, "all losses of the file")
        for jump, at_s, has_loss in (
            ("", 0.1, False), ("+30s", 30.1, True), ("+60s", 90.1, True), ("-75s", 15.1, False),
            ("+84.9s", 100.0, True),
        ):  # fmt: skip
            if jump:
                await viewer.press("J", *jump, "enter", to_s=at_s)
            session, interval, settings = viewer.session, viewer.interval, viewer.source.settings
            (wait,), (live_wait,) = session.ended, live.ended
            assert wait.evidence["label"] == live_wait.evidence["label"]
            assert (wait.cpus, wait.depth, wait.end_ns) == ([1], 0.5, live_wait.end_ns)
            assert live_wait.start_ns <= wait.start_ns <= 20 * S, "a calm screen looks less often"
            _, again_wanted_s, again_s = loss_history(session).between(edges_ns)
            assert again_s["scheduler"] == pytest.approx(lost_s["scheduler"], abs=0.02)
            assert again_wanted_s == pytest.approx(wanted_s, rel=0.01)
            running = session.log.listed_in_range(interval.time_ns, interval.time_ns)
            assert len(running) == (at_s == 30.1), at_s
            chart = loss_chart_panel(session, interval, settings, 120, 12)
            assert any(theme.LEVELS[8] in strips.text(line) for line, _ in chart) == has_loss, at_s
            await viewer.press("6")
            await until_true(lambda: shown(viewer, "over time"), "the chart of losses")
            await viewer.press("5")
            await until_true(lambda: shown(viewer, "hogA[11] and hogB[12] shared"), "the wait")


def shown(viewer: Viewer, text: str) -> bool:
    view = viewer.monitor.view
    return any(text in view.render_line(y).text for y in range(view.size.height))


# --- damaged and old files


@pytest.fixture
def cut(path: Path, tmp_path: Path) -> Path:
    data, copy = path.read_bytes(), tmp_path / "cut"
    copy.write_bytes(data[: len(data) // 2])
    return copy


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_cut_file_is_reported_and_ends_with_its_last_complete_frame(
    cut: Path, size: tuple[int, int]
) -> None:

    async with viewing(cut, size) as viewer:
        await viewer.wait(1.0)
        await viewer.wait_for_text("the recording is truncated at byte")
        await viewer.press("dollar_sign")
        await until_true(lambda: "end" in viewer.header, "the end")
        assert 40 < viewer.at_s < 60
        assert "REPLAY" in viewer.header


@pytest.mark.parametrize(("frames", "cut", "status", "why"), [
    (0, 0, 1, "it has no samples"), (1, 0, 1, "it has no samples"),
    (2, 9, 4, "it has no samples: truncated at byte"),
])  # fmt: skip
def test_a_recording_without_samples_is_refused(
    tmp_path: Path, frames: int, cut: int, status: int, why: str
) -> None:
    machine = Machine(cores=1)
    messages: list[TimedMessage] = [machine.frame(seq) for seq in range(frames)]
    path = write_recording(tmp_path / "short", machine.hello, messages, end=not cut)
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    with pytest.raises(Failed, match=why) as failed:
        replay.run(path, INTERVAL_NS, Config())
    assert failed.value.status == status
