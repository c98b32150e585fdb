"""Which episodes are drawn at a moment."""

from __future__ import annotations

from fakes import Machine, seen

from perftop.model.episode import Episode
from perftop.session.episodes import RecordingEpisodes
from perftop.tui.shared.episode_style import during


def test_a_recording_that_plays_has_the_episodes_of_the_moment_and_not_of_its_end() -> None:
    session, interval = seen(Machine(cores=2))
    assert interval.seq, "as it is played, not looked up"
    now_ns = interval.time_ns
    live = Episode("offline", [1], now_ns - 1)
    session.detector.running = [live]
    assert during(session, interval) == [live]
    session.file = RecordingEpisodes()
    later, here, before = (
        Episode("steal", [0], now_ns + since, until if until is None else now_ns + until)
        for since, until in ((10**9, None), (-(10**8), 10**9), (-2 * 10**9, -(10**9)))
    )
    for episode in (before, here, later):
        session.file.add(episode)
    session.file.complete = True
    assert during(session, interval) == [here]
