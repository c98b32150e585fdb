"""Ramps found in what a simulated machine counts, against those that its script has."""

from __future__ import annotations

from typing import Any

import pytest
from truths import SECOND, cores, found, scripted

from perfprobe import wire
from perftop.model.episode import Episode

MS = SECOND // 1000


def ramps(episodes: list[Episode]) -> list[Episode]:
    return [episode for episode in episodes if episode.kind == "ramp"]


def is_it(hello: wire.Hello, ramp: Episode, true: dict[str, Any], sample_ns: int) -> bool:
    """They start and end at most a sample apart."""
    assert ramp.end_ns is not None
    ends = (ramp.start_ns, true["start"]), (ramp.end_ns, true["end"])
    return all(abs(ns - hello.raw_ns - s * SECOND) <= 1.01 * sample_ns for ns, s in ends)


@pytest.mark.parametrize(
    ("scenario", "sample_ns", "cpus", "packages", "seed"),
    [
        pytest.param("warmup", 10 * MS, 8, 1, 1, marks=pytest.mark.nightly),
        pytest.param("warmup", 13 * MS, 32, 2, 77, marks=pytest.mark.nightly),
        ("warmup", 13 * MS, 8, 2, 77),
        ("warmup", 100 * MS, 8, 1, 77),
        pytest.param("warmup", 100 * MS, 32, 2, 1, marks=pytest.mark.nightly),
        pytest.param("demo", 13 * MS, 16, 1, 1, marks=pytest.mark.nightly),
    ],
)
def test_every_ramp_is_found_and_nothing_else(
    scenario: str, sample_ns: int, cpus: int, packages: int, seed: int
) -> None:
    spec, seconds = f"{scenario},cpus={cpus},packages={packages},seed={seed}", 12.0
    session, left = found(spec, sample_ns, seconds)
    hello = session.hello
    trues = scripted(spec, seconds, "ramp")
    assert len(trues) == {"warmup": 2, "demo": 1}[scenario]
    for true in trues:
        mine = [ramp for ramp in left if is_it(hello, ramp, true, sample_ns)]
        left = [ramp for ramp in left if ramp not in mine]
        assert len(mine) == packages
        said = {cpu for ramp in mine for cpu in ramp.cpus}
        assert cores(hello, said) == cores(hello, true["cpus"])
        for ramp in mine:
            _told_truly(ramp, true, sample_ns)
    assert left == []


def _told_truly(ramp: Episode, true: dict[str, Any], sample_ns: int) -> None:
    told, lasted_s = ramp.evidence, true["end"] - true["start"]
    assert 0.95 <= told["resolution_s"] * SECOND / sample_ns <= 2.05  # some reads are missed
    assert told["t90_s"] <= told["t99_s"] <= told["steady_s"]
    assert abs(told["steady_s"] - lasted_s) <= told["resolution_s"]
    assert told["steady_hz"] == pytest.approx(1.2e9 + true["depth"], rel=0.01)
    assert ramp.depth is not None
    assert ramp.depth <= 1.01 * true["depth"]
    if sample_ns <= 20 * MS:
        assert ramp.depth >= true["depth"] - 0.4e9  # a step of the script
        assert ramp.confidence == "measured"


def test_a_ramp_shorter_than_a_sample_has_bounds() -> None:
    spec, seconds, sample_ns = "warmup,cpus=8,seed=3", 300.0, SECOND
    session, episodes = found(spec, sample_ns, seconds)
    trues = scripted(spec, seconds, "ramp")
    seen = [t for t in trues if any(is_it(session.hello, r, t, sample_ns) for r in ramps(episodes))]
    assert len(seen) == len(ramps(episodes))
    for ramp in ramps(episodes):
        assert ramp.confidence == "inferred"
        assert {ramp.evidence[f"{key}_s"] for key in ("t90", "t99", "steady")} == {
            ramp.evidence["resolution_s"]
        }
    # A climb is seen where little else of its sample is left, and never where most of it is.
    parts = {true["start"]: true["start"] % 1 for true in trues}
    assert {s for s, part in parts.items() if 0.6 <= part < 0.85} <= {t["start"] for t in seen}
    assert not any(parts[true["start"]] < 0.4 for true in seen)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param("jitter", marks=pytest.mark.nightly),
        "turbo-drop",
        pytest.param("idle", marks=pytest.mark.nightly),
        pytest.param("smt-mix", marks=pytest.mark.nightly),
    ],
)
def test_loads_that_come_and_go_have_none(scenario: str) -> None:
    _, episodes = found(f"{scenario},cpus=16", 10 * MS, 8.0)
    assert ramps(episodes) == []
