"""How episodes reach those who read them."""

from __future__ import annotations

import made

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.session.episodes import MAX_ENDED
from perftop.session.session import Session


def test_readers_of_episodes_do_not_take_them_from_each_other() -> None:
    greeting = made.hello([made.REF], cores=2, threads=1)
    session = Session(greeting)
    often: list[Episode] = []
    seen = 0
    for seq in range(12):
        data = {"cpu": seq % 2, "online": seq % 4 > 1}
        session.apply(wire.Note("hotplug", seq, data=data))
        news, seen = session.episodes_since(seen)
        often += news
        if seq == 6:
            seldom, late = session.episodes_since(0)
    assert session.episodes_since(seen) == ([], seen)
    news, late = session.episodes_since(late)
    assert [*seldom, *news] == often == session.ended
    assert len(often) == 12
    assert session.running == []


def test_a_reader_that_comes_late_gets_the_newest_episodes() -> None:
    greeting = made.hello([made.REF], threads=1)
    session = Session(greeting)
    for ns in range(3 * MAX_ENDED):
        session.apply(wire.Note("hotplug", ns, data={"cpu": 0, "online": ns % 2 == 1}))
    news, cursor = session.episodes_since(MAX_ENDED // 2)
    assert news == session.ended
    assert len(news) == MAX_ENDED
    assert cursor == 3 * MAX_ENDED
    assert session.episodes_since(cursor - 1)[0] == news[-1:]


def test_episodes_that_nobody_takes_are_bounded() -> None:
    greeting = made.hello([made.REF], cores=1)
    session = Session(greeting)
    for n in range(12_000):
        session.apply(wire.Note("hotplug", n, data={"cpu": 1, "online": n % 2 == 1}))
    assert len(session.ended) == 8192
    assert session.ended[-1].end_ns == 11_999
