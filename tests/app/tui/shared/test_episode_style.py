"""The episodes shown at a given time, and the sentences of ended ones."""

from __future__ import annotations

from fakes import Machine, observe

from perftop.model.kinds import Episode
from perftop.output.sentences import sentence, text
from perftop.session.episodes import RecordingEpisodes
from perftop.tui.shared.episode_style import ended_sentence, episodes_during

S = 10**9


def test_a_played_recording_shows_the_episodes_of_the_current_time() -> None:
    session, interval = observe(Machine(cores=2))
    assert interval.seq, "as it is played, not looked up"
    now_ns = interval.time_ns
    live = Episode("offline", [1], now_ns - 1)
    session.detector.running = [live]
    assert episodes_during(session, interval) == [live]
    session.log.recording = RecordingEpisodes()
    later, here, before = (
        Episode("steal", [0], now_ns + since, until if until is None else now_ns + until)
        for since, until in ((10**9, None), (-(10**8), 10**9), (-2 * 10**9, -(10**9)))
    )
    for episode in (before, here, later):
        session.log.recording.add(episode)
    session.log.recording.is_complete = True
    assert episodes_during(session, interval) == [here]


def test_sentences_are_cached_by_episodes_and_width() -> None:
    session, _ = observe(Machine())
    ended = [Episode("turbo-drop", [cpu], S, 2 * S, 1e8 * cpu, "thermal") for cpu in range(300)]
    for some in ([one] for one in ended):
        for most in (20, 70):
            output = ended_sentence(session, some, most)
            assert output == sentence(session.topology, some, over=True, most=most)
            assert ended_sentence(session, some, most) is output
    assert text(ended_sentence(session, ended[1:2], 20)) != text(
        ended_sentence(session, ended[1:2], 70)
    )
    assert ended_sentence(session, ended[1:3]) != ended_sentence(session, ended[1:2])
