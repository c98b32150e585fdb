"""Turbo drops found in what a simulated machine counts, against those that its script has."""

from __future__ import annotations

import pytest

from perfprobe import wire
from perfprobe.sources import sim
from perfprobe.sources.sim.truth import truth
from perftop.detect import Episode
from perftop.session import Session

SECOND = 1_000_000_000


def found(spec: str, sample_ns: int, seconds: float) -> tuple[Session, list[Episode]]:
    """All episodes of so many seconds, those that still run at the end included."""
    source = sim.open_sim(f"{spec},speed=max", sample_ns)
    session = Session(source.hello)
    while True:
        for message in source.poll():
            if message.time_ns <= source.hello.raw_ns + seconds * SECOND:
                session.apply(message)
            else:
                source.close()
                return session, [*session.ended, *session.detector.running]


def drops(episodes: list[Episode]) -> list[Episode]:
    return [episode for episode in episodes if episode.kind == "turbo-drop"]


def cores(hello: wire.Hello, cpus: set[int]) -> list[int]:
    return [i for i, core in enumerate(hello.cores) if cpus & set(core)]


@pytest.mark.parametrize("seed", [1, 2, 77])
@pytest.mark.parametrize(("cpus", "packages"), [(8, 1), (64, 2)])
@pytest.mark.parametrize("sample_ns", [SECOND // 10, SECOND])
@pytest.mark.parametrize("scenario", ["turbo-drop", "throttle", "license"])
def test_every_drop_is_found_with_its_cause(
    scenario: str, sample_ns: int, cpus: int, packages: int, seed: int
) -> None:
    spec, seconds = f"{scenario},cpus={cpus},packages={packages},seed={seed}", 34.0
    session, episodes = found(spec, sample_ns, seconds)
    left, start_ns = drops(episodes), session.hello.raw_ns
    for true in truth(spec, seconds):
        if true["type"] != "episode" or true["kind"] != "turbo-drop":
            continue
        begin_ns = start_ns + true["start"] * SECOND
        mine = [e for e in left if abs(e.start_ns - begin_ns) <= sample_ns]
        left = [e for e in left if e not in mine]
        said = {cpu for episode in mine for cpu in episode.cpus}
        assert said >= set(true["cpus"])
        assert cores(session.hello, said) == cores(session.hello, set(true["cpus"]))
        for episode in mine:
            assert episode.cause == true["cause"]
            assert episode.confidence == "measured"
            assert episode.depth == pytest.approx(true["depth"], rel=0.05)
            if true["end"] is None:
                assert episode.end_ns is None
            else:
                assert episode.end_ns is not None
                assert abs(episode.end_ns - start_ns - true["end"] * SECOND) <= sample_ns
    assert left == []


CALM = ["steady", "idle", "jitter", "smt-mix", "neighbour", "hybrid", "halts", "warmup", "hotplug"]


@pytest.mark.parametrize("cpus", [8, 64])
@pytest.mark.parametrize("scenario", CALM)
def test_there_is_none_where_there_is_none(scenario: str, cpus: int) -> None:
    _, episodes = found(f"{scenario},cpus={cpus}", SECOND // 10, 90.0)
    assert drops(episodes) == []


@pytest.mark.parametrize("scenario", CALM)
def test_nor_in_samples_that_many_things_happen_in(scenario: str) -> None:
    _, episodes = found(f"{scenario},cpus=8", SECOND, 300.0)
    assert drops(episodes) == []
