"""The log of a session: episodes, marks and warnings; changing factors; a suspended machine."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import AsyncIterator, Iterator
from math import nan
from unittest.mock import Mock

import numpy as np
import pytest
import synth
from calls import count_calls
from exports import hello as greeting
from exports import messages
from sessions import TICKS, one_by_one
from sim_streams import SAMPLE_NS

from perfprobe import wire
from perftop import cli
from perftop.model.kinds import Episode
from perftop.output import stat_lines
from perftop.session.episodes import (
    MAX_WARNING_LENGTH,
    EpisodeLog,
    EpisodeTally,
    RecordingEpisodes,
    gap_text,
    next_mark_label,
    run_seconds,
)
from perftop.session.history import History
from perftop.session.session import Session
from perftop.verbs.measuring import Stat


@pytest.mark.parametrize("source", ["live", "pass over a recording", "marks"])
def test_the_cost_of_an_episode_does_not_depend_on_their_number(source: str) -> None:
    """Twice as many episodes need twice as many calls, not four times as many."""

    def calls(count: int) -> int:
        log, cursor = EpisodeLog(Mock(running=[]), SAMPLE_NS), 0
        if source == "pass over a recording":
            log.recording = RecordingEpisodes()
        with count_calls() as counted:
            for number in range(count):
                start_ns = number * 10**8
                if source == "marks":
                    log.add_mark(start_ns, "")
                    continue
                ended = Episode("turbo-drop", [0], start_ns, start_ns + 10**9)
                if log.recording is None:
                    log.add_ended([ended])
                else:
                    log.recording.add(ended)
                    log.recording.until_ns = start_ns
                if number % 10 == 0:  # a screen is drawn
                    log.in_range(start_ns - 10**9, start_ns)
                    _, cursor = log.ended_since(cursor)
        return counted.count

    assert calls(4000) < 2.1 * calls(2000)


def test_of_many_episodes_the_newest_are_listed_once() -> None:
    log = EpisodeLog(Mock(running=[]), SAMPLE_NS)
    episodes = [Episode("steal", [0], n, n + 1) for n in range(8194)]
    log.add_ended(episodes)
    listed, cursor = log.ended_since(0)
    assert listed == episodes[2:]
    log.add_ended(episodes[:1])
    assert log.ended_since(cursor)[0] == episodes[:1]


@pytest.mark.parametrize(("since_ns", "until_ns", "count"), [
    (4, 9, 1), (5, 9, 0), (0, 2, 1), (0, 1, 0),
])  # fmt: skip
def test_losses_that_no_detector_reports_are_listed_in_their_time(
    since_ns: int, until_ns: int, count: int
) -> None:
    log = EpisodeLog(Mock(running=[]), SAMPLE_NS)
    log.add_loss(Episode("neighbour", [0], 2, 5))
    assert len(log.listed_in_range(since_ns, until_ns)) == count


def test_the_costliest_episode_of_several_is_the_worst() -> None:
    tally, costs = EpisodeTally(), [("steal", 0.5), ("steal", 0.75), ("throttle", 0.5)]
    for kind, depth in costs:
        tally.add(Episode(kind, [0], 0, 10**9, depth=depth), 10**9)
    assert [(e.kind, e.depth) for e in tally.worst_episodes()] == [("steal", 0.75)]


@pytest.mark.parametrize(("since_ns", "text"), [
    (0, "no link for 2.0 s"), (2 * 10**9, "no link for 0.0 s"), (-1, "no link for some time"),
    (2 * 10**9 + 1, "no link for some time"), (0.5, "no link for some time"),
])  # fmt: skip
def test_the_length_of_a_gap_is_that_of_its_note(since_ns: object, text: str) -> None:
    assert gap_text(wire.Note("gap", 2 * 10**9, "recorder", {"since_ns": since_ns})) == text


@pytest.mark.parametrize(("value", "is_valid"), [
    (0.0, True), (9.9e11, True), (1e12, False), (-1e-9, False), (1, False), (None, False),
])  # fmt: skip
def test_times_of_a_command_are_checked(value: object, *, is_valid: bool) -> None:
    note = wire.Note("run-end", 0, "recorder", {"user_s": value})
    assert run_seconds(note, "user_s") == (value if is_valid else pytest.approx(nan, nan_ok=True))


def test_only_marks_of_users_are_numbered() -> None:
    """Runs and suspends of the machine have automatic marks."""
    hello = synth.hello()
    session = Session(hello, History(hello))
    values = {key: [0, 0] for key in ("ref", "cycles", "instructions")}
    for seq, asleep_ns in enumerate((0, 60 * 10**9)):
        records = {"asleep_ns": asleep_ns}
        session.apply(synth.frame(hello, seq, values, records=records))
    session.apply(wire.Note("run-start", synth.SAMPLE_NS, "recorder", {"argv": ["make", "-j"]}))
    session.apply(wire.Note("run-end", synth.SAMPLE_NS, "recorder", {"status": 2}))
    labels = [str(mark.evidence["label"]) for mark in session.marks]
    assert labels == ["was suspended for 1 min 00 s", "run: make -j", "run ended: status 2"]
    assert next_mark_label(session.marks) == "mark 1"
    session.apply(wire.Note("mark", synth.SAMPLE_NS, "user", {"label": "here"}))
    assert next_mark_label(session.marks) == "mark 2"


# --- a wrongly settled factor that changes later


HELLO = synth.hello(
    [synth.REF, synth.CYCLES, synth.ONE_THREAD],
    smt_methods=["one-thread"],
    multipliers=[wire.Multiplier("one_thread", k, "made") for k in (96.0, 24.0)],
)


def frames(spans: list[tuple[float, int]]) -> list[wire.Frame]:
    """One thread is busy half of the time, the other is idle; each span has a number of samples and
    a value of one tick."""
    results: list[wire.Frame] = []
    ref, one = 0, 0.0
    for k, count in [(96.0, 1), *spans]:
        for _ in range(count):
            ref += TICKS // 2
            one += TICKS / 2 / k
            values = {"ref": [ref, 0], "cycles": [ref, 0], "one_thread": [int(one), 0]}
            results.append(synth.frame(HELLO, len(results), values))
    return results


def test_a_changed_factor_is_reported_once() -> None:
    session, report = Session(HELLO), []
    for _ in one_by_one(session, frames([(24.0, 10), (96.0, 60)])):
        report.append((session.calibrations["one_thread"].factor, len(session.warnings)))
        if len(report) == 11:
            assert factor_of_session(session) == {"factor": 24.0, "state": "settled"}
    assert report[10] == (24.0, 0)
    assert report[-1] == (96.0, 1)
    (text,) = session.warnings
    assert "one_thread is 96 TSC ticks, not 24" in text
    assert len(text) < MAX_WARNING_LENGTH
    assert factor_of_session(session) == {"factor": 96.0, "state": "settled", "before": 24.0}
    live = Session(HELLO)
    for frame in frames([(24.0, 10), (96.0, 60)]):
        live.apply(frame)
    assert live.warnings == session.warnings, "although each batch has a single sample"


def factor_of_session(session: Session) -> dict[str, object]:
    result: dict[str, object] = stat_lines.interval_line(session, session.take_interval())[
        "multipliers"
    ]
    return result["one_thread"]  # type: ignore[return-value]


def test_stat_reports_a_changed_factor_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield [HELLO]
        yield [*frames([(24.0, 10), (96.0, 60)])]

    stat = Stat(cli._parse_arguments(["stat", "-i", "1s", "--json"]))
    stat.out = io.StringIO()
    asyncio.run(stat.consume(stream()))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("perftop: a tick of one_thread is 96 TSC ticks, not 24")


# --- a machine suspended as by Linux: the monotonic clock stops, some counters continue


SLEPT_NS = 3600 * 10**9
SUSPEND_SEQ = 40
"""The first frame after the suspend."""


def with_suspend(
    result: list[wire.Message], tsc_hz: float, rows_before_suspend: int
) -> Iterator[wire.Message]:
    """The TSC continues during the suspend; `rows_before_suspend` is the number of rows of the
    first frame that were read before the suspend."""
    for message in result:
        if not isinstance(message, wire.Frame) or message.seq < SUSPEND_SEQ:
            yield message
            continue
        blocks = dict(message.blocks)
        for name, rows in blocks.items():
            head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD).copy()
            late = slice(rows_before_suspend if message.seq == SUSPEND_SEQ else 0, None)
            head[late, :2] += np.uint64(SLEPT_NS / 1e9 * tsc_hz)
            blocks[name] = dataclasses.replace(rows, head=head.tobytes())
        records = message.records | {"asleep_ns": SLEPT_NS}
        yield dataclasses.replace(message, blocks=blocks, records=records)


@pytest.mark.parametrize("split", [0, 3])
def test_a_suspend_is_marked_and_affects_no_value(split: int) -> None:
    result = messages("sim:steady,cpus=8", 8)
    hello = greeting(result)
    assert hello.tsc_hz is not None
    session = Session(hello, History(hello))
    utils, times = [], []
    for _ in one_by_one(session, [*with_suspend(result[1:], hello.tsc_hz.hz, split)]):
        if session.span_ns >= 1_000_000_000:
            interval = session.take_interval()
            utils.append(interval.values["util"].tolist())
            times.append(interval.time)
    assert np.ptp(np.array(utils), axis=0).max() < 0.02, "the load is steady"
    assert not np.isnan(utils).any()
    gaps = np.diff(times)
    assert gaps.max() == pytest.approx(3601, abs=0.2)
    assert np.sort(gaps)[:-1] == pytest.approx(np.ones(len(gaps) - 1), abs=0.2)
    assert [e for e in (*session.ended, *session.detector.running) if e.kind != "ramp"] == []
    assert [m.evidence["label"] for m in session.marks] == ["was suspended for 1 h 00 min"]
    before_ns = hello.raw_ns + (SUSPEND_SEQ - 5) * SAMPLE_NS
    assert session.unix_s(before_ns) == pytest.approx(
        (hello.wall_ns + before_ns - hello.raw_ns) / 1e9
    )
    past = session.interval_at(hello.raw_ns + (SUSPEND_SEQ + 6) * SAMPLE_NS, 500_000_000)
    assert past is not None
    assert past.values["util"] == pytest.approx(utils[-1], abs=0.02)


def test_a_recording_opened_after_a_suspend_has_no_mark_of_it() -> None:
    """The time of the suspend before its first frame is unknown. Later suspends are reported."""
    result = messages("sim:steady,cpus=4", 1)
    session = Session(greeting(result))
    frames = (message for message in result if isinstance(message, wire.Frame))
    for frame, asleep_ns in zip(frames, (7, 7, 7 + 90 * 10**9), strict=False):
        session.apply(dataclasses.replace(frame, records={"asleep_ns": asleep_ns}))
    assert [m.evidence["label"] for m in session.marks] == ["was suspended for 1 min 30 s"]


@pytest.mark.parametrize("value", ["x", -1, 1.5, True, None, 1 << 63])
def test_malformed_suspend_times_are_ignored(value: object) -> None:
    result = messages("sim:steady,cpus=4", 1)
    session = Session(greeting(result))
    for message in result[1:]:
        if isinstance(message, wire.Frame):
            session.apply(dataclasses.replace(message, records={"asleep_ns": value}))
    assert session.marks == []


@pytest.mark.parametrize(("kind", "cpu", "start_s", "end_s", "is_missing"), [
    ("throttle", 2, 50, 97, False), ("throttle", 3, 50, 97, True), ("steal", 2, 50, 97, True),
    ("throttle", 2, 96, 98, True), ("throttle", 2, 94, None, False),
    ("throttle", 2, 96, None, True), ("throttle", 3, 80, 90, False), ("throttle", 3, 80, 91, True),
])  # fmt: skip
def test_an_episode_is_missing_until_the_pass_over_the_file_lists_one_like_it(
    kind: str, cpu: int, start_s: int, end_s: int | None, *, is_missing: bool
) -> None:
    """The pass has read 100 s, and lists episodes up to 10 s late."""
    second = 10**9
    recording = RecordingEpisodes()
    recording.add(Episode("throttle", [1, 2], 60 * second, 95 * second))
    recording.until_ns = 100 * second
    end_ns = None if end_s is None else end_s * second
    detected = [Episode(kind, [cpu], start_s * second, end_ns)]
    assert recording.missing_episodes(detected) == detected * is_missing
    recording.is_complete = True
    assert recording.missing_episodes(detected) == []
    log = EpisodeLog(Mock(running=[]), SAMPLE_NS)
    log.recording = recording
    for since_s, until_s, count in ((94, 60, 1), (95, 60, 0), (94, 59, 0)):
        assert len(log.in_range(since_s * second, until_s * second)) == count
