"""Samples that cannot be believed, as episodes: of which CPUs, from when to when."""

from __future__ import annotations

import made

from perftop.detect.engine.episode_log import CLEAN_NS, Detector
from perftop.samples.episode import Episode

S = made.SAMPLE_NS
CLEAN = CLEAN_NS // S
BACK, FAST = {"time stamps went backwards"}, {"ref ran faster than the TSC"}


def play(*samples: dict[int, set[str]]) -> tuple[Detector, list[Episode]]:
    """What each sample tells, and as many clean ones as end everything."""
    detector, ended = Detector(), []
    for seq, reasons in enumerate((*samples, *[{}] * CLEAN)):
        ended += detector.suspects(reasons, (seq + 1) * S, seq * S)
    return detector, ended


def told(episode: Episode) -> tuple[list[int], int, int | None]:
    """With times in samples."""
    return episode.cpus, episode.start_ns // S, episode.end_ns and episode.end_ns // S


def test_what_disturbs_a_whole_machine_is_one_episode() -> None:
    detector, (one,) = play({}, {cpu: {*BACK} for cpu in range(1024)})
    assert detector.running == []
    assert told(one) == (list(range(1024)), 1, 2)
    assert (one.cause, one.evidence) == (min(BACK), {min(BACK): 1})


def test_other_reasons_and_other_beginnings_are_others() -> None:
    _, ended = play({3: BACK, 0: FAST, 1: BACK}, {1: BACK, 2: BACK, 3: BACK})
    assert sorted(map(told, ended)) == [([0], 0, 1), ([1, 3], 0, 2), ([2], 1, 2)]


def test_who_is_clean_leaves_and_the_others_go_on() -> None:
    detector, ended = play({0: BACK, 1: BACK}, *[{1: BACK | FAST}] * 2 * CLEAN)
    first, second = ended
    assert told(first) == ([0], 0, 1)
    assert first.evidence == {min(BACK): 1}
    assert told(second) == ([1], 0, 2 * CLEAN + 1)
    assert second.evidence == {min(BACK): 2 * CLEAN + 1, min(FAST): 2 * CLEAN}
    assert detector.running == []
