"""The log of episodes and marks, and how they reach their readers."""

from __future__ import annotations

import made

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.session.episodes import MAX_ENDED, Tally, next_mark_label
from perftop.session.history import History
from perftop.session.session import Session


def test_readers_of_episodes_do_not_take_them_from_each_other() -> None:
    greeting = made.hello([made.REF], cores=2, threads=1)
    session = Session(greeting)
    often: list[Episode] = []
    seen = 0
    for seq in range(12):
        data = {"cpu": seq % 2, "online": seq % 4 > 1}
        session.apply(wire.Note("hotplug", seq, data=data))
        news, seen = session.log.since(seen)
        often += news
        if seq == 6:
            seldom, late = session.log.since(0)
    assert session.log.since(seen) == ([], seen)
    news, late = session.log.since(late)
    assert [*seldom, *news] == often == session.ended
    assert len(often) == 12
    assert session.running == []


def test_a_reader_that_comes_late_gets_the_newest_episodes() -> None:
    greeting = made.hello([made.REF], threads=1)
    session = Session(greeting)
    for ns in range(3 * MAX_ENDED):
        session.apply(wire.Note("hotplug", ns, data={"cpu": 0, "online": ns % 2 == 1}))
    news, cursor = session.log.since(MAX_ENDED // 2)
    assert news == session.ended
    assert len(news) == MAX_ENDED
    assert cursor == 3 * MAX_ENDED
    assert session.log.since(cursor - 1)[0] == news[-1:]


def test_only_marks_of_users_are_numbered() -> None:
    """A run and a sleep of the machine have marks of their own, which nobody set."""
    hello = made.hello()
    session = Session(hello, History(hello))
    values = {key: [0, 0] for key in ("ref", "cycles", "instructions")}
    for seq, asleep_ns in enumerate((0, 60 * 10**9)):
        records = {"asleep_ns": asleep_ns}
        session.apply(made.frame(hello, seq, values, records=records))
    session.apply(wire.Note("run-start", made.SAMPLE_NS, "recorder", {"argv": ["make", "-j"]}))
    session.apply(wire.Note("run-end", made.SAMPLE_NS, "recorder", {"status": 2}))
    labels = [str(mark.evidence["label"]) for mark in session.marks]
    assert labels == ["was suspended for 1 min 00 s", "run: make -j", "run ended: status 2"]
    assert next_mark_label(session.marks) == "mark 1"
    session.apply(wire.Note("mark", made.SAMPLE_NS, "user", {"label": "here"}))
    assert next_mark_label(session.marks) == "mark 2"


def test_the_worst_of_several_episodes_is_the_costliest() -> None:
    tally = Tally()
    mild, bad = (Episode("steal", [0], 0, 10**9, depth, "hypervisor") for depth in (0.1, 0.3))
    alone = Episode("throttle", [0], 0, 10**9, 0.5, "thermal")
    for episode in (mild, bad, alone):
        tally.add(episode, 2 * 10**9)
    assert tally.counted == {"steal": {"hypervisor": 2}, "throttle": {"thermal": 1}}
    assert tally.worst() == [bad]
