"""Counters that cannot be believed, as episodes: one takeover is one, whoever shows it when."""

from __future__ import annotations

import made

from perftop.detect.engine import RunningEpisodes
from perftop.detect.suspects import CLEAN_NS, READ, Suspects
from perftop.model.delta import Doubt
from perftop.model.episode import Episode

S = made.SAMPLE_NS
Doubts = dict[int, set[tuple[str, Doubt]]]
BACK, FAST = {("ref", Doubt.BACKWARDS), ("cycles", Doubt.BACKWARDS)}, {("ref", Doubt.FAST)}
TAKEN = {("kernel_cycles", Doubt.ABOVE), ("any_thread", Doubt.OUTSIDE)}


def play(*samples: Doubts, every_ns: int = S) -> tuple[RunningEpisodes, list[Episode]]:
    """What each sample tells, and as many clean ones as end everything."""
    detector, ended = RunningEpisodes(), []
    suspects = Suspects(detector)
    for seq, found in enumerate((*samples, *[{}] * max(3, CLEAN_NS // every_ns))):
        ended += suspects.sample(found, seq * every_ns, (seq + 1) * every_ns)
    return detector, ended


def told(episode: Episode) -> tuple[list[int], int, int | None]:
    """With times in samples."""
    return episode.cpus, episode.start_ns // S, episode.end_ns and episode.end_ns // S


def test_a_disturbance_of_the_whole_machine_is_one_episode() -> None:
    detector, (one,) = play({}, dict.fromkeys(range(1024), BACK))
    assert detector.running == []
    assert told(one) == (list(range(1024)), 1, 2)
    assert (one.cause, one.evidence) == (READ, {READ: "backwards", "samples": 1})


def test_a_read_that_went_wrong_is_no_takeover() -> None:
    _, ended = play({3: BACK, 0: FAST, 1: BACK})
    assert sorted((e.cause, e.cpus) for e in ended) == [("ref", [0]), (READ, [1, 3])]


def test_each_cpu_shows_a_takeover_in_another_sample() -> None:
    """And some of them do only now and then: it goes on until nobody has shown it for a second."""
    shown = [{cpu % 48: TAKEN} for cpu in range(0, 96 * 5, 5)]
    _, (one,) = play({}, *shown)
    assert told(one) == (sorted({cpu % 48 for cpu in range(0, 96 * 5, 5)}), 1, 97)
    assert one.cause == "any_thread, kernel_cycles"
    assert one.evidence == {"any_thread": "outside", "kernel_cycles": "above", "samples": 2}


def test_a_counter_that_is_taken_much_later_is_another_takeover() -> None:
    first, second = {0: {("any_thread", Doubt.STILL)}}, {1: {("kernel_cycles", Doubt.ABOVE)}}
    _, ended = play(*[first] * 25, *[{**first, **second}] * 5)
    assert sorted((e.cause, e.start_ns // S) for e in ended) == [
        ("any_thread", 0), ("kernel_cycles", 25),
    ]  # fmt: skip


def test_slow_samples_need_three_clean_ones() -> None:
    found: Doubts = {0: FAST}
    _, ended = play(found, {}, {}, found, {}, {}, {}, found, every_ns=10 * S)
    assert [(e.start_ns // S, (e.end_ns or 0) // S) for e in ended] == [(0, 40), (70, 80)]
