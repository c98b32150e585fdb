"""Sentences on episodes that have ended."""

from __future__ import annotations

from fakes import Machine, seen

from perftop.model.episode import Episode
from perftop.output.sentences import sentence, text
from perftop.tui.shared.past_sentences import over

S = 10**9


def test_each_is_made_once_for_its_episodes_and_room() -> None:
    session, _ = seen(Machine())
    ended = [Episode("turbo-drop", [cpu], S, 2 * S, 1e8 * cpu, "thermal") for cpu in range(300)]
    for some in ([one] for one in ended):
        for most in (20, 70):
            told = over(session, some, most)
            assert told == sentence(session.topology, some, over=True, most=most)
            assert over(session, some, most) is told
    assert text(over(session, ended[1:2], 20)) != text(over(session, ended[1:2], 70))
    assert over(session, ended[1:3]) != over(session, ended[1:2])
