"""Episodes of a stream that was kept as bytes and is read again: the same as those told live."""

from __future__ import annotations

import itertools

import pytest
from simulated import lasting

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.session.history import History
from perftop.session.session import Session

OTHERS = "license", "throttle", "warmup", "halts"
"""Scenarios whose episodes take the same way as those of `turbo-drop`."""


def capture(spec: str, seconds: float) -> bytes:
    hello, found = lasting(f"{spec},cpus=8", seconds)
    return b"".join(map(wire.encode, [hello, *found]))


def told(data: bytes, piece: int, *, history: bool) -> list[tuple[int, Episode]]:
    """When each episode ended to be told, by the number of the frame, then those that run."""
    decoder = wire.Decoder()
    session: Session | None = None
    found: list[tuple[int, Episode]] = []
    cursor = 0
    for start in range(0, len(data), piece):
        messages = list(decoder.feed(data[start : start + piece]))
        if messages and isinstance(messages[0], wire.Hello):
            hello = messages.pop(0)
            assert isinstance(hello, wire.Hello)
            session = Session(hello, History(hello) if history else None)
        for _ in session.play(messages) if session else ():
            assert session is not None
            news, cursor = session.log.since(cursor)
            found += [(session.frames, episode) for episode in news]
    assert session is not None
    return [*found, *((session.frames, episode) for episode in session.detector.running)]


@pytest.mark.parametrize(
    ("scenario", "seconds"),
    [
        pytest.param("turbo-drop", 16, marks=pytest.mark.nightly),
        ("neighbour", 22),
        ("hotplug", 20),
        *(pytest.param(one, 40, marks=pytest.mark.nightly) for one in OTHERS),
    ],
)
def test_a_capture_has_the_episodes_of_the_live_run(scenario: str, seconds: float) -> None:
    data = capture(f"sim:{scenario}", seconds)
    live = told(data, len(data), history=True)
    again = told(data, 777, history=False)
    assert live
    assert len(live) == len(again)
    for one, other in zip(live, again, strict=True):
        assert one == other


def test_a_capture_that_was_cut_has_those_up_to_there() -> None:
    data = capture("sim:turbo-drop", 26)
    whole, half = (told(part, len(data), history=False) for part in (data, data[: len(data) // 2]))
    ended = [episode for _, episode in half if episode.end_ns is not None]
    assert ended
    assert ended == [episode for _, episode in itertools.islice(whole, len(ended))]
