"""Compares episodes with the scripts of simulated machines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import cases_by_day
from sessions import one_by_one
from sim_streams import messages_lasting
from sim_truth import PLAYED_S, SECOND, SMALL, cores_of, found_episodes, scripted

from perfprobe import wire
from perfprobe.sources.sim.truth import truth
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.session.session import Session

NIGHTLY = pytest.mark.nightly
SCENARIOS = [
    "steady", "idle", "jitter", "smt-mix", "hybrid", "hotplug", "warmup", "turbo-drop", "license",
    "throttle", "halts", "neighbour", "memory", "guest", "demo",
]  # fmt: skip
RUNS = [
    (SMALL, SECOND // 10, PLAYED_S),
    ("cpus=64,packages=2,seed=77", SECOND // 10, 58.0),
    (SMALL, SECOND // 10, 58.0),
    ("cpus=4,packages=1,seed=4", SECOND, 298.0),
    ("cpus=64,packages=2,seed=9", SECOND, 97.0),
]
"""Machine, sample length, and a duration at whose end no script has an edge."""
DAY_RUNS = RUNS[0], RUNS[4]
"""A small machine with short samples and a large machine with long samples. The other cases run at
night."""
UNREAD = "memory", RUNS[3]
"""A sample of 1 s in which the CPU of the other task is not read."""
SINGLE_RUN_SCENARIOS = {
    "steady", "idle", "jitter", "smt-mix", "warmup", "hotplug", "license", "halts", "guest",
    "demo", "throttle", "memory",
}  # fmt: skip
CASES = [
    pytest.param(
        f"{scenario},{run[0]}",
        *run[1:],
        marks=[]
        if run in DAY_RUNS[: 1 + (scenario not in SINGLE_RUN_SCENARIOS)]
        or (scenario, run) == UNREAD
        else NIGHTLY,
    )
    for scenario in SCENARIOS
    for run in RUNS
    if scenario != "hybrid" or "packages=1" in run[0]
]
BY_CORE = {"turbo-drop", "license"}
"""Kinds that are reported for whole cores."""
DEPTH_TOLERANCE = {"turbo-drop": 0.05, "neighbour": 0.05}
"""Relative tolerance of the depth by kind; the default is 2 %."""
MIN_SAMPLES = 20
"""Number of samples needed before a sibling can be blamed."""
INFERRED = {"involuntary-halt", "memory"}
"""Kinds of episodes, and causes of neighbours, that are inferred instead of measured."""
MAX_LATE_SAMPLES = 1.01
"""Number of samples by which an episode may end late if another one begins then."""
NOT_COMPARED = {"ramp": {"warmup", "demo"}, "suspect": {"jitter"}}
"""Kinds that this test does not compare, and the scenarios that may have them: ramps are tested
separately, and counts of siblings that are read 3 ms apart are suspect."""


def is_near(ns: int, raw_ns: int, at_s: float, sample_ns: int) -> bool:
    return abs(ns - raw_ns - at_s * SECOND) <= MAX_LATE_SAMPLES * sample_ns


def check(episode: Episode, scripted_episode: dict[str, Any], raw_ns: int, sample_ns: int) -> None:
    assert episode.cause == (scripted_episode["cause"] or episode.cause)
    inferred = not INFERRED.isdisjoint({scripted_episode["kind"], scripted_episode["cause"]})
    if scripted_episode["cause"] == "sibling":
        inferred = episode.evidence["changes_with_sibling"].number < 6
    assert episode.confidence == ("inferred" if inferred else "measured")
    if scripted_episode["depth"] is not None:
        tolerance = DEPTH_TOLERANCE.get(scripted_episode["kind"], 0.02)
        # the first and last samples of the episode count
        if scripted_episode["kind"] == "neighbour" and scripted_episode["end"]:
            tolerance += sample_ns / SECOND / (scripted_episode["end"] - scripted_episode["start"])
        assert episode.depth == pytest.approx(scripted_episode["depth"], rel=tolerance)
    assert (episode.end_ns is None) == (scripted_episode["end"] is None)
    if episode.end_ns is not None:
        assert is_near(episode.end_ns, raw_ns, scripted_episode["end"], sample_ns)


def reported_cpus(hello: wire.Hello, true: dict[str, Any]) -> list[int]:
    if true["kind"] not in BY_CORE:
        return sorted(true["cpus"])
    return sorted(cpu for i in cores_of(hello, true["cpus"]) for cpu in hello.cores[i])


@pytest.mark.parametrize(("spec", "sample_ns", "seconds"), CASES)
def test_all_scripted_episodes_are_detected_within_a_sample_and_no_others(
    spec: str, sample_ns: int, seconds: float
) -> None:
    session, episodes = found_episodes(spec, sample_ns, seconds)
    scenario, raw_ns = spec.partition(",")[0], session.hello.raw_ns
    left = [e for e in episodes if scenario not in NOT_COMPARED.get(e.kind, ())]
    for true in scripted(spec, seconds):
        if scenario in NOT_COMPARED.get(true["kind"], ()):
            continue
        if true["cause"] == "sibling" and true["start"] * SECOND < MIN_SAMPLES * sample_ns:
            continue
        mine = [e for e in left if e.kind == true["kind"]
                and is_near(e.start_ns, raw_ns, true["start"], sample_ns)]  # fmt: skip
        left = [e for e in left if not any(e is one for one in mine)]
        assert sorted(cpu for e in mine for cpu in e.cpus) == reported_cpus(session.hello, true), (
            true
        )
        for episode in mine:
            check(episode, true, raw_ns, sample_ns)
    assert left == []


@pytest.mark.parametrize(("machine", "sample_ns", "seconds"), DAY_RUNS)
def test_other_tasks_are_named(machine: str, sample_ns: int, seconds: float) -> None:
    session, episodes = found_episodes(f"neighbour,{machine}", sample_ns, seconds)
    siblings = [e for e in episodes if e.kind == "neighbour" and e.cause == "sibling"]
    assert siblings
    for episode in siblings:
        other = episode.cpus[0] + len(session.hello.topology) // 2
        assert TaskOnCpu(4000 + other, "stream", other) in episode.evidence["who"]


@pytest.mark.parametrize("seconds", [300.0, pytest.param(3600.0, marks=NIGHTLY)])
@pytest.mark.parametrize("scenario", cases_by_day(["steady", "idle", "jitter"], ["jitter"]))
def test_a_long_healthy_run_has_no_episodes(scenario: str, seconds: float) -> None:
    _, episodes = found_episodes(f"{scenario},cpus=8", SECOND, seconds)
    assert episodes == []


# --- ramps


MS = SECOND // 1000


def ramps(episodes: list[Episode]) -> list[Episode]:
    return [episode for episode in episodes if episode.kind == "ramp"]


def matches_script(hello: wire.Hello, ramp: Episode, true: dict[str, Any], sample_ns: int) -> bool:
    """Start and end differ from the script by at most a sample."""
    assert ramp.end_ns is not None
    ends = (ramp.start_ns, true["start"]), (ramp.end_ns, true["end"])
    return all(abs(ns - hello.raw_ns - s * SECOND) <= 1.01 * sample_ns for ns, s in ends)


@pytest.mark.parametrize(("scenario", "sample_ns", "cpus", "packages", "seed"), [
    pytest.param("warmup", 10 * MS, 8, 1, 1, marks=pytest.mark.nightly),
    pytest.param("warmup", 13 * MS, 32, 2, 77, marks=pytest.mark.nightly),
    ("warmup", 13 * MS, 8, 2, 77),
    ("warmup", 100 * MS, 8, 1, 77),
    pytest.param("warmup", 100 * MS, 32, 2, 1, marks=pytest.mark.nightly),
    pytest.param("demo", 13 * MS, 16, 1, 1, marks=pytest.mark.nightly),
])  # fmt: skip
def test_all_ramps_are_detected_and_no_others(
    scenario: str, sample_ns: int, cpus: int, packages: int, seed: int
) -> None:
    spec, seconds = f"{scenario},cpus={cpus},packages={packages},seed={seed}", 12.0
    session, left = found_episodes(spec, sample_ns, seconds)
    hello = session.hello
    true_ramps = scripted(spec, seconds, "ramp")
    assert len(true_ramps) == {"warmup": 2, "demo": 1}[scenario]
    for true in true_ramps:
        mine = [ramp for ramp in left if matches_script(hello, ramp, true, sample_ns)]
        left = [ramp for ramp in left if ramp not in mine]
        assert len(mine) == packages
        message = {cpu for ramp in mine for cpu in ramp.cpus}
        assert cores_of(hello, message) == cores_of(hello, true["cpus"])
        for ramp in mine:
            _has_scripted_values(ramp, true, sample_ns)
    assert left == []


def _has_scripted_values(ramp: Episode, true: dict[str, Any], sample_ns: int) -> None:
    report, lasted_s = ramp.evidence, true["end"] - true["start"]
    assert 0.95 <= report["resolution_s"] * SECOND / sample_ns <= 2.05  # some reads are missed
    assert report["t90_s"] <= report["t99_s"] <= report["steady_s"]
    assert abs(report["steady_s"] - lasted_s) <= report["resolution_s"]
    assert report["steady_hz"] == pytest.approx(1.2e9 + true["depth"], rel=0.01)
    assert ramp.depth is not None
    assert ramp.depth <= 1.01 * true["depth"]
    if sample_ns <= 20 * MS:
        assert ramp.depth >= true["depth"] - 0.4e9  # 0.4 GHz is one step of the script
        assert ramp.confidence == "measured"


def test_a_ramp_shorter_than_a_sample_has_bounds() -> None:
    spec, seconds, sample_ns = "warmup,cpus=8,seed=3", 300.0, SECOND
    session, episodes = found_episodes(spec, sample_ns, seconds)
    true_ramps = scripted(spec, seconds, "ramp")
    seen = [
        t
        for t in true_ramps
        if any(matches_script(session.hello, r, t, sample_ns) for r in ramps(episodes))
    ]
    assert len(seen) == len(ramps(episodes))
    for ramp in ramps(episodes):
        assert ramp.confidence == "inferred"
        assert {ramp.evidence[f"{key}_s"] for key in ("t90", "t99", "steady")} == {
            ramp.evidence["resolution_s"]
        }
    # A climb is detected if little of its sample is left, and never if most of it is.
    parts = {true["start"]: true["start"] % 1 for true in true_ramps}
    assert {s for s, part in parts.items() if 0.6 <= part < 0.85} <= {t["start"] for t in seen}
    assert not any(parts[true["start"]] < 0.4 for true in seen)


@pytest.mark.parametrize("scenario", [
    pytest.param("jitter", marks=pytest.mark.nightly),
    "turbo-drop",
    pytest.param("idle", marks=pytest.mark.nightly),
    pytest.param("smt-mix", marks=pytest.mark.nightly),
])  # fmt: skip
def test_intermittent_loads_have_no_ramps(scenario: str) -> None:
    _, episodes = found_episodes(f"{scenario},cpus=16", 10 * MS, 8.0)
    assert ramps(episodes) == []


# --- a guest without counters


def messages(spec: str, seconds: float, watch: str | None = None) -> list[Any]:
    hello, result = messages_lasting(spec, seconds, watch=watch)
    return [hello, *result]


@pytest.mark.parametrize("cpus", [1, 2, 6])
def test_shares_match_the_schedule(cpus: int) -> None:
    spec, seconds = f"sim:guest,cpus={cpus},seed=5", 40
    hello, *frames = messages(spec, seconds)
    session = Session(hello)
    for _ in one_by_one(session, frames):
        if session.now_ns - hello.raw_ns == seconds * SECOND:
            break
    values = session.run_interval().values
    true = [line for line in truth(spec, seconds) if line["type"] == "cpu"]
    for cpu in range(cpus):
        for key in ("util", "steal", "idle"):
            mean = sum(line[key] for line in true if line["cpu"] == cpu) / seconds
            assert values[key][cpu] == pytest.approx(mean, abs=1e-3), (cpu, key)
        report = values["user"][cpu] + values["system"][cpu]
        assert report == pytest.approx(values["util"][cpu], abs=2e-3)
    assert values["system"][0] > 0.1
    assert all(values["steal"][cpu] > 0.01 for cpu in range(0, cpus, 2))


def test_tasks_wait_for_a_cpu_as_scripted() -> None:
    """A task waits 39 % of the time during the build, and 56 % while there is steal."""
    hello, *frames = messages("sim:guest", 34)
    session, result = Session(hello), {}
    for _ in one_by_one(session, frames):
        if (session.now_ns - hello.raw_ns) % SECOND == 0:
            result[(session.now_ns - hello.raw_ns) // SECOND] = session.take_interval().machine
    results = [(result[s]["pressure_cpu"], result[s]["pressure_io"]) for s in (6, 26, 33)]
    assert np.allclose(results, [(0.02, 0.03), (0.39, 0.03), (0.56, 0.03)], atol=1e-3)
