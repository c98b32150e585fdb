"""Going to episodes: what is shown there shows them, and each is come to once."""

from __future__ import annotations

import pytest
from cores import lived
from fakes import Machine
from made import SAMPLE_NS
from played import played

from perftop.model.episode import Episode
from perftop.session import navigation as episode_navigation
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session

Lived = tuple[Session, Interval]


@pytest.fixture
def told() -> Lived:
    """5 s of a machine, shown at its end; episodes at 1 to 4 s."""
    session, interval = lived(Machine(cores=2, ceiling_hz=3.0e9))
    session.ended.extend([episode(20, 32, 1), episode(10, 11, 0), episode(30, 30, 3)])
    session.detector.running.append(episode(48, None, 0))
    return session, interval


def episode(start: int, end: int | None, cpu: int) -> Episode:
    """Times of samples."""
    end_ns = None if end is None else end * SAMPLE_NS
    return Episode("steal", [cpu], start * SAMPLE_NS, end_ns)


def walk(told: Lived, episodes: list[Episode], by: int) -> list[float]:
    """In samples, each moment that is come to from the one before."""
    session, interval = told
    found: list[float] = []
    while True:
        moment = episode_navigation.nearest_moment(session, interval, episodes, by)
        if moment is None:
            return found
        found.append(moment / SAMPLE_NS)
        shown = session.at(moment, 5 * SAMPLE_NS)
        assert shown is not None
        interval = shown


def test_each_is_come_to_once_and_back_again(told: Lived) -> None:
    session, _ = told
    episodes = episode_navigation.reachable(session)
    assert walk(told, episodes, 1) == []  # the newest is what is shown
    back = walk(told, episodes, -1)
    assert back == [30, 25, 11]
    first = session.at(SAMPLE_NS * 2, SAMPLE_NS)
    assert first is not None
    assert walk((session, first), episodes, 1) == [11, 25, 30, 50]


@pytest.mark.parametrize(("start", "end"), [(20, 32), (10, 11), (30, 30), (20, 24), (44, None)])
def test_the_numbers_there_are_of_the_episode(told: Lived, start: int, end: int | None) -> None:
    session, interval = told
    moment = episode_navigation.moment_of(session, it := episode(start, end, 0), interval)
    shown = session.at(moment, 5 * SAMPLE_NS)
    assert shown is not None
    since_ns = shown.time_ns - round(shown.elapsed_s * 1e9)
    assert since_ns <= it.start_ns <= shown.time_ns
    if end is None or end - start >= 5:
        assert since_ns == it.start_ns  # all of them
    else:
        assert shown.time_ns == it.end_ns


def test_only_those_on_these_cpus(told: Lived) -> None:
    session, _ = told
    assert walk(told, episode_navigation.reachable(session, [1, 3]), -1) == [30, 25]
    assert walk(told, episode_navigation.reachable(session, [2]), -1) == []


def test_what_history_has_forgotten_is_not_gone_to() -> None:
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    session = Session(machine.hello, History(machine.hello, 200_000))
    played(session, [machine.frame(seq) for seq in range(500)])
    assert session.history is not None
    first = (session.history.first_ns or 0) // SAMPLE_NS
    assert first > 30
    session.ended.extend([episode(10, first - 1, 0), episode(20, first, 0)])
    session.ended.append(episode(first + 5, first + 9, 0))
    episodes = episode_navigation.reachable(session)
    assert episodes == session.ended[1:]
    assert walk((session, session.take()), episodes, -1) == [first + 9, first]
    assert episode_navigation.reachable(Session(machine.hello)) == []
