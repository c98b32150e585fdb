"""Seeking in a recording: any time shows what the live run showed then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf, isnan
from pathlib import Path

import numpy as np
import pytest
import sim_streams
from fakes import Machine
from nightly import cases_by_day
from recording_files import write_recording
from sessions import session_of
from synth import SAMPLE_NS

from perfprobe import wire
from perftop.model.kinds import Episode
from perftop.recording.file import Recording
from perftop.recording.player import WARM_UP_NS, Playback, PlayClock, Seeker, frame_range
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import History
from perftop.session.packing import TimedMessage
from perftop.session.session import Session

S = 1_000_000_000
CERTAIN_NS = 20 * S
"""Episodes that began at most this long before a time equal those of the live run."""


def simulated_messages(scenario: str, seconds: int) -> tuple[wire.Hello, Sequence[TimedMessage]]:
    return sim_streams.messages(f"sim:{scenario},cpus=4,seed=3", 10 * seconds)


def test_a_cpu_that_went_offline_long_before_is_offline(tmp_path: Path) -> None:
    """The CPU's note is earlier than all messages that are read."""
    machine = Machine(cores=2)
    machine.hello.topology[2] = replace(machine.hello.topology[2], online=False)  # it comes online
    messages: list[TimedMessage] = [machine.frame(seq) for seq in range(300)]
    machine.offline_cpus.add(3)
    gone = wire.Note("hotplug", 300 * SAMPLE_NS - 1, data={"cpu": 3, "online": False})
    messages += [gone, *(machine.frame(seq) for seq in range(300, 500))]
    path = write_recording(tmp_path / "file", machine.hello, messages)
    with Recording(path) as recording:
        playback = Playback(recording, 450 * SAMPLE_NS)
        assert isnan(playback.cost)
        playback.read_sample()
    assert [row.online for row in playback.session.topology] == [True, True, True, False]
    assert playback.session.online.tolist() == [True, True, True, False]


def test_near_times_are_played_to_and_far_ones_jumped_to(tmp_path: Path) -> None:
    machine = Machine(cores=1)
    messages: list[TimedMessage] = [machine.frame(seq) for seq in range(900)]
    with Recording(write_recording(tmp_path / "file", machine.hello, messages)) as recording:
        seeker = Seeker(recording, RecordingEpisodes(), lambda: 0.0, lambda _: None)
        here = asyncio.run(seeker.seek(None, S))
        assert asyncio.run(seeker.seek(here, 61 * S)) is here
        assert here.ends_ns is not None
        assert asyncio.run(seeker.seek(here, here.ends_ns[0])) is here
        here = asyncio.run(seeker.seek(None, S))
        assert asyncio.run(seeker.seek(here, 61 * S + 1)) is not here


@pytest.mark.parametrize(("steps", "speed"), [(0, 1.0), (1, 2.0), (-99, 0.25), (99, inf)])
def test_a_recording_is_played_at_the_chosen_speed(steps: int, speed: float) -> None:
    clock = PlayClock()
    clock.change_speed(steps)
    assert clock.speed == speed
    clock.begin(S, 100.0)
    assert clock.now_ns(102.0) == S + 2 * speed * S


@pytest.mark.parametrize("room", [100_000, 10_000_000])
def test_joined_histories_keep_common_samples_once_and_their_size_limit(room: int) -> None:
    machine = Machine(cores=2)
    older, newer = (Session(machine.hello, History(machine.hello, room)) for _ in range(2))
    frames = [machine.frame(seq) for seq in range(400)]
    session_of(older, frames[:210])
    session_of(newer, frames[200:])
    assert older.history is not None
    assert newer.history is not None
    before = len(newer.history.times())
    newer.history.prepend(older.history)
    assert newer.history.byte_count <= room
    assert (len(newer.history.times()) > before) == (room > 100_000)
    assert (np.diff(newer.history.times()) == SAMPLE_NS).all()


def test_joined_histories_have_the_current_cores() -> None:
    """A CPU that hello does not place comes online after the time that the older history covers."""
    machine = Machine(cores=2)
    hello = deepcopy(machine.hello)
    hello.topology[3] = wire.Cpu(3, online=False)
    hello.cores[:] = [[1], [0, 2]]
    older, newer = (Session(hello, History(hello)) for _ in range(2))
    machine.offline_cpus.add(3)
    frames = [machine.frame(seq) for seq in range(40)]
    session_of(older, frames[:21])
    session_of(newer, frames[20:])
    machine.offline_cpus.clear()
    row = {"package": 0, "die": 0, "core": 1, "siblings": [1, 3]}
    data = {"cpu": 3, "online": True, "row": row}
    online = wire.Note("hotplug", 40 * SAMPLE_NS - 1, data=data)
    session_of(newer, [online, *(machine.frame(seq) for seq in range(40, 60))])
    newer.past.prepend(older.past)
    interval = newer.interval_at(10 * SAMPLE_NS, 5 * SAMPLE_NS)
    assert interval is not None
    assert interval.cores.lists == [[0, 2], [1, 3]]
    assert interval.split.method == ["one-thread", "single"]


def comparable_episode(episode: Episode) -> tuple[object, ...]:
    """Returns the episode without the number of sibling changes, which depends on the part that was
    read."""
    evidence = {k: v for k, v in episode.evidence.items() if k != "changes_with_sibling"}
    confidence = "" if episode.cause == "sibling" else episode.confidence
    return (episode.kind, tuple(episode.cpus), episode.start_ns, episode.end_ns, episode.cause,
            str(evidence), confidence, episode.depth or 0.0)  # fmt: skip


@pytest.mark.parametrize(
    ("scenario", "seconds"),
    cases_by_day(
        [("turbo-drop", (45,)), ("neighbour", (42, 52)), ("hotplug", (45,))], [("hotplug", (45,))]
    ),
)
def test_seeking_shows_the_same_as_the_live_run(
    tmp_path: Path, scenario: str, seconds: tuple[int, ...]
) -> None:
    """Counters are exactly equal, and all recent episodes are the same."""
    hello, messages = simulated_messages(scenario, seconds[-1] + 2)
    path = write_recording(tmp_path / "file", hello, messages)
    begin_ns = messages[0].time_ns
    was = Session(hello, History(hello))
    at = 0
    with Recording(path) as recording:
        assert frame_range(recording) == (begin_ns, max(m.time_ns for m in messages))
        for second in seconds:
            time_ns = begin_ns + second * S
            later = (i for i, m in enumerate(messages) if m.time_ns >= time_ns)
            end = next(i for i in later if isinstance(messages[i], wire.Frame)) + 1
            session_of(was, messages[at:end])
            at = end
            playback = Playback(recording, time_ns - WARM_UP_NS)
            coming = [*playback.messages_until(time_ns)]
            session_of(playback.session, coming)
            from_start_ns = coming[0].time_ns - begin_ns
            assert from_start_ns > (second - WARM_UP_NS // S - 7) * S
            result = playback.session.interval_at(time_ns, 5 * SAMPLE_NS)
            truth = was.interval_at(time_ns, 5 * SAMPLE_NS)
            assert result is not None
            assert truth is not None
            assert (result.time_ns, result.elapsed_s) == (truth.time_ns, truth.elapsed_s)
            for key, counts in truth.counts.items():
                np.testing.assert_array_equal(result.counts[key], counts, key)
            np.testing.assert_array_equal(result.values.metrics, truth.values.metrics)
            np.testing.assert_array_equal(result.split.states, truth.split.states)
            np.testing.assert_array_equal(result.online, truth.online)
            assert result.tasks == truth.tasks
            there, were = ([row.online for row in s.topology] for s in (playback.session, was))
            assert there == were
            since_ns = time_ns - CERTAIN_NS
            episodes, wanted = (
                sorted(
                    comparable_episode(e)
                    for e in (*s.ended, *s.detector.running)
                    if e.start_ns > since_ns
                )
                for s in (playback.session, was)
            )
            assert [e[:-1] for e in episodes] == [e[:-1] for e in wanted]
            # Losses are relative to a baseline learned from the start on.
            assert [e[-1] for e in episodes] == [pytest.approx(e[-1], rel=1e-4) for e in wanted]
