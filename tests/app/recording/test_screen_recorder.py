"""Recording from the screen, and marks: the keys, the file, and slow disks that must not block the
screen."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Machine
from played_apps import Run, running_app
from recording_files import read_messages
from sessions import one_by_one
from textual.pilot import Pilot
from waiting import until_true, wait_for

from perfprobe import wire
from perftop.recording import writer
from perftop.recording.writer import ScreenRecorder
from perftop.session import packing
from perftop.session.history import History
from perftop.session.packing import TimedMessage
from perftop.session.session import Session
from perftop.tui.frame.top import TopLines


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class RecordedSession:
    """A session with a recorder, without a screen."""

    def __init__(self, budget: int = 10**8) -> None:
        self.machine = Machine(cores=2)
        self.session = Session(self.machine.hello, History(self.machine.hello, budget))
        self.notices: list[str] = []
        self.recorder = ScreenRecorder(self.session, self.notices.append)
        self.applied: list[TimedMessage] = []

    def apply(self, *messages: TimedMessage) -> None:
        for message, _ in zip(messages, one_by_one(self.session, messages), strict=True):
            self.recorder.add(message)
            self.applied.append(message)

    def frames(self, first: int, last: int) -> None:
        self.apply(*(self.machine.frame(seq) for seq in range(first, last)))

    def wait_for_end_message(self) -> str:
        """Waits until the recording has ended; returns the message about it."""
        wait_for(lambda: self.reported_size() is None, "the thread has ended")
        return self.notices[-1]

    def reported_size(self) -> str | None:
        self.recorder.report()
        return self.recorder.size_text


def only_file(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def comparable_messages(result: list[TimedMessage]) -> list[tuple[str, int]]:
    """Returns the messages without differences in encoding."""
    return [("frame", m.seq) if isinstance(m, wire.Frame) else (m.kind, m.time_ns) for m in result]


def test_history_and_new_samples_are_recorded_once_each(working_directory: Path) -> None:
    played = RecordedSession()
    played.frames(0, 120)
    played.recorder.toggle()
    assert played.notices[-1] == f"recording to {wait_for_only_file(working_directory)}"
    played.frames(120, 130)
    played.recorder.toggle()
    message = played.wait_for_end_message()
    path = only_file(working_directory)
    assert (
        message == f"recorded 12.9 s, 130 frames, {writer.size_text(path.stat().st_size)} in {path}"
    )
    content = read_messages(path)
    assert comparable_messages(content) == comparable_messages(played.applied)
    again, live = Session(played.machine.hello), Session(played.machine.hello)
    for session, messages in ((again, content), (live, played.applied)):
        assert len(list(one_by_one(session, messages))) == len(messages)
    assert (
        again.take_interval().values["util"].tolist()
        == live.take_interval().values["util"].tolist()
    )


def wait_for_only_file(directory: Path) -> Path:
    wait_for(lambda: list(directory.iterdir()), "there is a file")
    return only_file(directory)


def failing_disk(code: int, after: int) -> Callable[[int, bytes, int | None], None]:
    """A disk that fails after this number of messages."""
    taken, write = [0], packing.write_all

    def write_all(fd: int, data: bytes, offset: int | None = None) -> None:
        taken[0] += 1
        if taken[0] > after:
            write(fd, data[:10], offset)
            raise OSError(code, "broken")
        write(fd, data, offset)

    return write_all


def test_a_failing_disk_is_reported_and_loses_one_message(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "write_all", failing_disk(errno.EIO, 8))
    played = RecordedSession()
    played.frames(0, 20)
    played.recorder.toggle()
    wait_for(lambda: played.reported_size() == "", "the recorder reports that it is written")
    played.frames(20, 25)
    path = only_file(working_directory)
    safe = f"0.6 s, 7 frames, {writer.size_text(path.stat().st_size)} are saved in {path}"
    played.recorder.report()
    assert played.notices[1:] == [f"recording has stopped: broken; {safe}"], "it is reported once"
    assert comparable_messages(
        read_messages(only_file(working_directory), ended=False)
    ) == comparable_messages(played.applied[:7])
    monkeypatch.undo()


def test_a_hanging_disk_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, write = threading.Event(), packing.write_all

    def write_all(fd: int, data: bytes, offset: int | None = None) -> None:
        answers.wait()
        write(fd, data, offset)

    monkeypatch.setattr(writer, "write_all", write_all)
    monkeypatch.setattr(writer, "MAX_END_WAIT_S", 0.05)
    played = RecordedSession()
    monkeypatch.setattr(
        writer, "MAX_WAITING_BYTES", 10 * (1000 + wire.frame_bytes(played.machine.hello))
    )
    played.frames(0, 5)
    played.recorder.toggle()
    played.frames(5, 15)
    assert played.reported_size() == "0 kB"
    played.frames(15, 17)
    assert played.reported_size() == ""
    assert played.notices[-1] == "recording has stopped: the disk accepts no more data"
    assert "the disk does not respond" in played.recorder.end()
    answers.set()


def test_a_missing_directory_is_reported(working_directory: Path) -> None:
    played = RecordedSession()
    played.frames(0, 5)
    working_directory.rmdir()
    played.recorder.toggle()
    wait_for(lambda: played.reported_size() == "", "the recorder reports that it is written")
    assert played.notices[-1].startswith("cannot record to h-2023")
    working_directory.mkdir()  # pytest removes it


# --- on the screen


def lines_above_view(pilot: Pilot[None]) -> str:
    """The lines above the view."""
    top = pilot.app.screen_stack[0].query_one(TopLines)
    return "\n".join(top.render_line(y).text.rstrip() for y in range(top.size.height))


def view(run: Run) -> str:
    output = run.monitor.view
    return "\n".join(output.render_line(y).text.rstrip() for y in range(output.size.height))


async def test_a_key_starts_and_stops_recording(working_directory: Path) -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(3)
        assert " REC " not in lines_above_view(run.pilot)
        await run.pilot.press("R")
        await until_true(
            lambda: f"recording to {working_directory}/h-2023" in lines_above_view(run.pilot),
            "the path of the recording",
        )
        await run.send_intervals(2)
        await until_true(
            lambda: any(file.stat().st_size > 1000 for file in working_directory.iterdir()),
            "content",
        )
        run.source.check()
        await until_true(lambda: " REC " in lines_above_view(run.pilot), "how much it is")
        await run.pilot.press("R")

        def recording_is_over() -> bool:
            run.source.check()
            return "recorded" in lines_above_view(run.pilot)

        await until_true(recording_is_over, "the end of the recording")
        assert " REC " not in lines_above_view(run.pilot)
    content = read_messages(only_file(working_directory))
    assert comparable_messages(content) == [("frame", seq) for seq in range(len(content))]
    assert len(content) >= 11


async def test_quitting_keeps_the_recording(working_directory: Path) -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("R", "q")
    assert run.source.end_recording().startswith("recorded 0.1 s, 2 frames, ")
    assert len(read_messages(only_file(working_directory))) == 2
    assert run.source.end_recording() == ""


async def test_a_failed_recording_is_shown_until_another_starts(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "write_all", failing_disk(errno.ENOSPC, 0))

    async with running_app(Machine()) as run:
        await run.pilot.press("R")

        def failure_is_shown() -> bool:
            run.source.check()
            return "cannot record to" in lines_above_view(run.pilot)

        await until_true(failure_is_shown, "why")
        assert "NOT RECORDING" in lines_above_view(run.pilot)
        await run.send_intervals(2)
        monkeypatch.undo()
        monkeypatch.chdir(working_directory)
        await run.pilot.press("R")
        await until_true(lambda: "NOT RECORDING" not in lines_above_view(run.pilot), "the next one")
        await until_true(lambda: [*working_directory.iterdir()], "its file")
    assert only_file(working_directory)


async def test_marks_have_names(working_directory: Path) -> None:
    async with running_app(Machine(ceiling_hz=3.0e9)) as run:
        await run.send_intervals(10)
        await run.pilot.press("R", "m", *"warm up", "enter")
        await run.send_intervals(10)
        await run.pilot.press("m", "enter")
        await run.pilot.press("3", "left_square_bracket", "left_square_bracket")
        await run.send_intervals(10)
        await until_true(lambda: "│mark 2─" in view(run) and "│warm up─" in view(run), "both")
        await run.pilot.press("5")
        output = view(run)
        assert output.index("mark 2") < output.index("warm up")
        await run.pilot.press("home", "enter")
        await until_true(lambda: run.source.is_paused, "its moment")
        assert run.interval.time_ns == run.session.marks[1].start_ns
    run.source.end_recording()
    notes = [m for m in read_messages(only_file(working_directory)) if isinstance(m, wire.Note)]
    assert [(note.kind, note.author, note.data["label"]) for note in notes] == [
        ("mark", "recorder", "warm up"), ("mark", "recorder", "mark 2")]  # fmt: skip
    session = run.session
    assert [mark.start_ns for mark in session.marks] == [note.time_ns for note in notes]


async def test_a_mark_has_the_time_that_is_shown() -> None:
    """The time may be an earlier one, and typing the name may take long."""

    async with running_app(Machine()) as run:
        await run.send_intervals(10)
        session = run.session
        await run.pilot.press("m")
        at = session.now_ns
        await run.send_intervals(2)
        await run.pilot.press("enter")
        await until_true(lambda: session.marks, "a mark")
        assert session.marks[0].start_ns == at < session.now_ns
        await run.pilot.press("left", "left")
        past_ns = run.interval.time_ns
        await run.pilot.press("m", "x", "enter")
        await until_true(lambda: len(session.marks) == 2, "another one")
        assert session.marks[1].start_ns == past_ns < session.now_ns
        await run.pilot.press("m", "x", "escape")
        await run.pilot.pause()
        assert len(session.marks) == 2


async def test_labels_from_outside_are_drawn_as_text_and_cut() -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(10)
        session = run.session
        for label in ("\x1b[2J\n", "x" * 5000, 17, None):
            session.apply(wire.Note("mark", session.now_ns, data={"label": label}))
        session.apply(wire.Note("mark", session.now_ns))
        for key in ("3", "5"):
            await run.pilot.press(key)
            await run.send_intervals(1)
            assert "\x1b" not in view(run)
        assert max(len(str(mark.evidence["label"])) for mark in session.marks) == 80
