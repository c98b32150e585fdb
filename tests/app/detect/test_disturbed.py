"""Disturbed streams: lost frames, sleep, CPUs that go offline, suspect counters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import synth
from nightly import cases_by_day
from rate_streams import sample_with
from sessions import session_of
from sim_streams import Timed, messages_lasting

from perfprobe import wire
from perftop.detect.engine import RunningEpisodes
from perftop.detect.pipeline import TIME_STAMP_CAUSE, SuspectCounters
from perftop.model.delta import Doubt
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleReader
from perftop.session.session import Session

SCRIPTED = {
    "turbo-drop": [("turbo-drop", "power-pl1", 8.0, 12.1)],
    "throttle": [("turbo-drop", "thermal", 20.0, 25.0)],
    "license": [("turbo-drop", "license", 11.0, 20.0)],
}
"""Scripted drops: kind, cause, start and end."""


def turbo_drops_of(hello: wire.Hello, stream: Iterable[Timed]) -> list[Episode]:
    session = Session(hello)
    session_of(session, [*stream])
    results = [*session.ended, *session.detector.running]
    return [episode for episode in results if episode.kind == "turbo-drop"]


def sequence_number(message: Timed) -> int:
    return message.seq if isinstance(message, wire.Frame) else -1


@pytest.mark.parametrize("scenario", cases_by_day(SCRIPTED, ["throttle"]))
@pytest.mark.parametrize("lost_frames", [3, 17])
def test_lost_frames_hide_only_their_own_time(scenario: str, lost_frames: int) -> None:
    """Once a second 2 or 16 frames are lost; the next frame covers their time."""
    hello, messages = messages_lasting(f"sim:{scenario},cpus=8", 28)
    remaining_messages = [
        m for m in messages if sequence_number(m) % 20 >= lost_frames or isinstance(m, wire.Note)
    ]
    result = turbo_drops_of(hello, remaining_messages)
    assert [(e.kind, e.cause) for e in result] == [
        scripted_drop[:2] for scripted_drop in SCRIPTED[scenario]
    ]
    for episode, (_, _, start, end) in zip(result, SCRIPTED[scenario], strict=True):
        assert abs((episode.start_ns - hello.raw_ns) / 1e9 - start) <= 0.1 * (lost_frames + 1)
        assert episode.end_ns is not None
        assert abs((episode.end_ns - hello.raw_ns) / 1e9 - end) <= 0.1 * (lost_frames + 1)


def with_suspend(
    hello: wire.Hello, stream: Iterable[Timed], suspend_seq: int, sleep_ns: int
) -> Iterator[Timed]:
    """Adds `sleep_ns` to all times from frame `suspend_seq` on; counters and clocks restart at
    zero."""
    base: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for message in stream:
        if isinstance(message, wire.Note) or message.seq < suspend_seq:
            yield message
            continue
        blocks = {}
        for block in hello.blocks:
            rows = message.blocks[block.name]
            head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD).copy()
            values = np.frombuffer(rows.values, "<u8").reshape(-1, block.columns).copy()
            gauge = [c.kind == "gauge" for c in block.counters for _ in range(c.columns)]
            if block.name not in base:
                start_ns = head[:, :2].min() - np.uint64(1_000_000)
                base[block.name] = start_ns, np.where(gauge, np.uint64(0), values)
            start_ns, first = base[block.name]
            head[:, :2] -= start_ns
            values -= first
            blocks[block.name] = wire.Rows(head.tobytes(), rows.valid, values.tobytes())
        yield dataclasses.replace(message, time_ns=message.time_ns + sleep_ns, blocks=blocks)


@pytest.mark.parametrize("at", [40, 100])
@pytest.mark.parametrize("sleep_s", [1, 3600])
def test_a_suspend_causes_no_false_episode(at: int, sleep_s: int) -> None:
    """A suspend during the drop may split it into two episodes, which then end and begin at the
    suspend."""
    hello, whole = messages_lasting("sim:turbo-drop,cpus=8", 16)
    result = turbo_drops_of(hello, with_suspend(hello, whole, at, sleep_s * 10**9))
    results = [
        ((e.start_ns - hello.raw_ns) / 1e9, ((e.end_ns or 0) - hello.raw_ns) / 1e9) for e in result
    ]
    assert {e.cause for e in result} == {"power-pl1"}
    if at < 80:
        assert results == [pytest.approx((8.0 + sleep_s, 12.1 + sleep_s), abs=0.4)]
    elif len(results) == 1:
        assert results == [pytest.approx((8.0, 12.1 + sleep_s), abs=0.4)]
    else:
        assert results == [
            pytest.approx((8.0, 10.0), abs=0.4),
            pytest.approx((10.0 + sleep_s, 12.1 + sleep_s), abs=0.4),
        ]


def with_offline_cpu(
    stream: Iterable[Timed], hello: wire.Hello, cpu: int, start: int, end: int
) -> Iterator[Timed]:
    """Takes the CPU offline from frame `start` to frame `end`."""
    row = next(i for i, row in enumerate(hello.topology) if row.cpu == cpu)
    for message in stream:
        if isinstance(message, wire.Note):
            yield message
            continue
        if message.seq in {start, end}:
            online = message.seq == end
            topology = dataclasses.asdict(hello.topology[row]) if online else None
            data = {"cpu": cpu, "online": online, "row": topology}
            yield wire.Note("hotplug", message.time_ns - 1, data=data)
        blocks = dict(message.blocks)
        if start <= message.seq <= end:
            rows = blocks["cpu"]
            head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD).copy()
            flag = wire.ROW_OFFLINE if message.seq < end else wire.ROW_SAMPLED | wire.ROW_REBASED
            head[row, 4] = flag
            blocks["cpu"] = wire.Rows(head.tobytes(), rows.valid, rows.values)
        yield dataclasses.replace(message, blocks=blocks)


@pytest.mark.parametrize("cpu", [0, 2, 6])
def test_a_cpu_that_goes_offline_does_not_end_an_episode(cpu: int) -> None:
    hello, whole = messages_lasting("sim:turbo-drop,cpus=8", 16)
    (result,) = turbo_drops_of(hello, with_offline_cpu(whole, hello, cpu, 95, 110))
    assert result.cause == "power-pl1"
    assert (result.start_ns - hello.raw_ns) / 1e9 == pytest.approx(8.0, abs=0.1)
    assert result.end_ns is not None
    assert (result.end_ns - hello.raw_ns) / 1e9 == pytest.approx(12.1, abs=0.1)
    assert result.depth == pytest.approx(620e6, rel=0.05)


# --- suspect counters: one takeover is one episode


S = synth.SAMPLE_NS
Doubts = dict[int, set[tuple[str, Doubt]]]
BACK, FAST = {("ref", Doubt.BACKWARDS), ("cycles", Doubt.BACKWARDS)}, {("ref", Doubt.FAST)}
TAKEN_DOUBTS = {("kernel_cycles", Doubt.ABOVE), ("any_thread", Doubt.OUTSIDE)}


def play(*samples: Doubts, every_ns: int = S) -> tuple[RunningEpisodes, list[Episode]]:
    """Returns the running and the ended episodes. Clean samples are appended to end all
    episodes."""
    detector, ended = RunningEpisodes(), []
    reader = SampleReader(synth.hello(cores=1024, threads=1))
    suspects = SuspectCounters(reader, detector)
    for seq, result in enumerate((*samples, *[{}] * max(3, 1_000_000_000 // every_ns))):
        by_row = {reader.position[cpu]: doubts for cpu, doubts in result.items()}
        ended += suspects.process(sample_with(
            {}, since_ns=seq * every_ns, time_ns=(seq + 1) * every_ns, is_doubted=bool(result),
            delta=SimpleNamespace(suspect_counters=by_row),
        ))  # fmt: skip
    return detector, ended


def times_in_samples(episode: Episode) -> tuple[list[int], int, int | None]:
    """Returns the CPUs, the start and the end; times are in samples."""
    return episode.cpus, episode.start_ns // S, episode.end_ns and episode.end_ns // S


def test_a_disturbance_of_all_cpus_is_one_episode() -> None:
    detector, (one,) = play({}, dict.fromkeys(range(1024), BACK))
    assert detector.running == []
    assert times_in_samples(one) == (list(range(1024)), 1, 2)
    assert (one.cause, one.evidence) == (
        TIME_STAMP_CAUSE,
        {TIME_STAMP_CAUSE: "backwards", "samples": 1},
    )


def test_a_failed_read_is_not_a_takeover() -> None:
    _, ended = play({3: BACK, 0: FAST, 1: BACK})
    assert sorted((e.cause, e.cpus) for e in ended) == [("ref", [0]), (TIME_STAMP_CAUSE, [1, 3])]


def test_each_cpu_may_show_a_takeover_in_a_different_sample() -> None:
    """Some CPUs show it only now and then: the episode lasts until no CPU has shown it for a
    second."""
    results = [{cpu % 48: TAKEN_DOUBTS} for cpu in range(0, 96 * 5, 5)]
    _, (one,) = play({}, *results)
    assert times_in_samples(one) == (sorted({cpu % 48 for cpu in range(0, 96 * 5, 5)}), 1, 97)
    assert one.cause == "any_thread, kernel_cycles"
    assert one.evidence == {"any_thread": "outside", "kernel_cycles": "above", "samples": 2}


def test_a_counter_taken_much_later_is_a_separate_takeover() -> None:
    first, second = {0: {("any_thread", Doubt.STILL)}}, {1: {("kernel_cycles", Doubt.ABOVE)}}
    _, ended = play(*[first] * 25, *[{**first, **second}] * 5)
    assert sorted((e.cause, e.start_ns // S) for e in ended) == [
        ("any_thread", 0), ("kernel_cycles", 25),
    ]  # fmt: skip


@pytest.mark.parametrize(("samples", "count"), [(19, 1), (20, 2)])
def test_a_counter_joins_an_episode_within_two_seconds(samples: int, count: int) -> None:
    first, second = {0: {("any_thread", Doubt.STILL)}}, {1: {("kernel_cycles", Doubt.ABOVE)}}
    _, ended = play(*[first] * samples, {**first, **second})
    assert len(ended) == count


@pytest.mark.parametrize(("clean_samples", "count"), [(9, 1), (10, 2)])
def test_a_second_without_doubt_ends_an_episode(clean_samples: int, count: int) -> None:
    doubted: Doubts = {0: FAST}
    _, ended = play(doubted, *[{}] * clean_samples, doubted)
    assert len(ended) == count
    assert ended[0].end_ns == (S if count == 2 else (clean_samples + 2) * S)


def test_an_episode_ends_after_three_clean_samples_if_samples_are_long() -> None:
    results: Doubts = {0: FAST}
    _, ended = play(results, {}, {}, results, {}, {}, {}, results, every_ns=10 * S)
    assert [(e.start_ns // S, (e.end_ns or 0) // S) for e in ended] == [(0, 40), (70, 80)]
