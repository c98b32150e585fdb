"""Every kind and cause of an episode gives a sentence that answers: who loses how much to what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fakes import Machine, seen

from perfprobe.wire import Cpu
from perftop.model.episode import Cap, CrowdedCpu, Episode, Host, Level, TaskOnCpu
from perftop.output.sentences import MOST, lasting, losers, lost, sentence, text
from perftop.session.interval import Tasks

S = 1_000_000_000
ALL = range(16)
WHEN = "since 09:43:50"
STREAM = [TaskOnCpu(4032, "stream", 8), TaskOnCpu(4033, "stream", 9)]
LONG = "a-name-of-15-ch"
MANY = [TaskOnCpu(n, f"{LONG}{n}", n) for n in range(5)]


def machine(packages: int = 2, cores: int = 4, threads: int = 2) -> list[Cpu]:
    """CPU numbers go through all first threads, then through all second ones."""
    count = packages * cores
    return [
        Cpu(core + t * count, True, core // cores, 0, core % cores, t, 0, 0, None, [])
        for t in range(threads)
        for core in range(count)
    ]


def told(
    kind: str, cause: str, cpus: list[int], depth: float | None, evidence: Mapping[str, Any],
    names: list[str], *, over: bool = False, when: str = WHEN, most: int = MOST,
) -> str:  # fmt: skip
    episode = Episode(kind, cpus, S, None, depth, cause, dict(evidence))
    return text(sentence(machine(), [episode], names, over=over, when=when, most=most))


PACKAGE = [0, 1, 2, 3, 8, 9, 10, 11]
LOW = {"busy_hz": 2.88e9, "ceiling_hz": 3.5e9}
CASES = [
    *(("turbo-drop", cause, PACKAGE, 0.62e9, LOW, [], ["package 0", "0.62 GHz", name])
      for cause, name in (
          ("power-pl1", "PL1"), ("power-pl2", "PL2"), ("current", "current"), ("thermal", "Heat"),
          ("prochot", "PROCHOT"), ("vr", "voltage regulator"), ("hwp", "HWP"),
          ("license", "SIMD"), ("hypervisor", "hypervisor"), ("unknown", "unknown"),
          ("policy", "limit"))),
    ("turbo-drop", "policy", PACKAGE, 1e9, {"cap": Cap("scaling_max_freq", 2e9)}, [],
     ["scaling_max_freq", "1.00 GHz"]),
    ("turbo-drop", "policy", ALL, 1e9, {"cap": Cap("turbo off, config-TDP", 2e9)}, [],
     ["turbo", "1.00 GHz", "both packages"]),
    ("turbo-drop", "license", [0, 8], 0.3e9, {"simd": Level(2, 0.8)}, [],
     ["level 2", "0.30 GHz", "core 0:0"]),
    ("throttle", "thermal", PACKAGE, 0.021, {}, [], ["Heat", "package 0", "2.1 %"]),
    ("throttle", "prochot", PACKAGE, 0.0, {}, [], ["PROCHOT", "package 0", "without"]),
    ("throttle", "thermal", [3], None, {"throttled_s": 0.8}, [], ["Heat", "CPU 3"]),
    ("throttle", "modulation", [3], 0.5, {}, [], ["Clock modulation", "CPU 3", "50.0 %"]),
    ("license", "level", [0, 8], 0.3e9, {"simd": Level(1, 0.8)}, [],
     ["level 1", "0.30 GHz", "core 0:0"]),
    ("license", "level", [0, 8], 0.0, {"simd": Level(2, 0.8)}, [], ["level 2", "core 0:0"]),
    ("license", "level", [0, 8], None, {"simd": Level(2, 0.8)}, [], ["level 2", "core 0:0"]),
    *(("involuntary-halt", cause, [5], 0.0104, {}, [], ["CPU 5", "1.0 %", name])
      for cause, name in (("modulation", "modulation"), ("hdc", "duty"), ("smm", "firmware"),
                          ("simd", "SIMD"), ("clock-change", "clock"), ("unknown", "unknown"))),
    ("neighbour", "sibling", [0, 2, 4, 6, 9, 11], 0.31, {"who": STREAM}, ["lmp"],
     ["stream", "31 %", "lmp", "IPC", "CPU 0 (+5)"]),
    ("neighbour", "sibling", [0], 0.31, {"who": STREAM}, [], ["stream", "31 %", "CPU 0"]),
    ("neighbour", "sibling", [0], 0.31, {"self": STREAM}, ["stream"], ["own", "31 %", "stream"]),
    ("neighbour", "sibling", [0], 0.31, {}, ["lmp"], ["sibling", "31 %", "lmp", "CPU 0"]),
    ("neighbour", "sibling", [0], None, {}, [], ["sibling", "CPU 0"]),
    ("neighbour", "scheduler", [0], 0.061, {"who": [TaskOnCpu(1, "restic", 0)]}, ["lmp"],
     ["restic", "6.1 %", "lmp", "CPU 0"]),
    ("neighbour", "scheduler", [0], 0.061, {"self": [CrowdedCpu(3, 0)]}, ["lmp"],
     ["lmp", "6.1 %", "each other"]),
    ("neighbour", "scheduler", [0], 0.061, {}, ["lmp"], ["lmp", "6.1 %", "CPU 0"]),
    ("neighbour", "scheduler", [0], 0.061, {}, [], ["6.1 %", "CPU 0"]),
    ("neighbour", "package", [0, 1], 0.12, {"who": STREAM}, ["lmp"],
     ["stream", "12 %", "lmp", "clock", "CPUs 0-1"]),
    ("neighbour", "package", [0, 1], 0.12, {}, ["lmp"], ["Other tasks", "12 %", "lmp"]),
    ("neighbour", "hypervisor", [0], 0.138, {"who": Host("kvm")}, ["cc1plus", "as"],
     ["hypervisor", "13.8 %", "CPU 0", "cc1plus (+1)"]),
    ("steal", "hypervisor", [0], 0.138, {"ticks": 9}, ["cc1plus"],
     ["hypervisor", "13.8 %", "CPU 0", "cc1plus"]),
    ("steal", "hypervisor", [0], 0.138, {}, [], ["hypervisor", "13.8 %", "CPU 0"]),
    ("smi", "firmware", ALL, 200.0, {"SMIs_per_s": 50.0}, [], ["firmware", "200 times"]),
    ("ramp", "-", [2, 10], 2.3e9, {"first_hz": 1.2e9, "steady_hz": 3.5e9, "steady_s": 0.14}, [],
     ["Core 0:2", "140 ms", "1.20", "3.50 GHz"]),
    ("suspect", "inst, cycles", [3], None, {"samples": 3}, [], ["inst", "CPU 3"]),
    ("suspect", "time stamps", [3], None, {"samples": 3}, [], ["time stamps", "CPU 3"]),
    ("offline", "hotplug", [1], None, {}, [], ["CPU 1", "offline"]),
    ("online", "hotplug", [1], None, {}, [], ["CPU 1", "online"]),
    ("mark", "-", [], None, {"label": "solve"}, [], ["solve"]),
    ("neighbour", "package", [0, 2, 4, 6, 9, 11], 0.31, {"who": MANY}, [LONG],
     [LONG[:8], "31 %", "clock"]),
    ("neighbour", "scheduler", [0, 2, 4, 6, 9, 11], 0.31, {"who": MANY}, [LONG],
     [LONG[:8], "31 %"]),
]  # fmt: skip


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_a_sentence_answers_in_76_characters(case: tuple[Any, ...], *, over: bool) -> None:
    kind, cause, cpus, depth, evidence, names, answers = case
    found = told(kind, cause, list(cpus), depth, evidence, names, over=over)
    assert len(found) <= MOST
    for answer in answers:
        assert answer in found
    assert "0.00" not in found
    assert not {"{", "|", "  "} & {found[i : i + n] for n in (1, 2) for i in range(len(found))}


@pytest.mark.parametrize("most", [20, 36, 50, 76, 200])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_the_number_that_was_lost_is_marked(case: tuple[Any, ...], most: int) -> None:
    kind, cause, cpus, depth, evidence, names, _ = case
    episode = Episode(kind, list(cpus), S, None, depth, cause, dict(evidence))
    parts = sentence(machine(), [episode], names, when=WHEN, most=most)
    marked = [part.text for part in parts if part.role == "lost"]
    assert marked == ([lost(episode)] if lost(episode) else ["140 ms"] if kind == "ramp" else [])
    named = [part.text for part in parts if part.role == "name"]
    assert all(any(name[:8] in text for text in named) for name in names[:1]) or most < MOST


def test_the_deepest_of_several_stands_for_them() -> None:
    slight = Episode("neighbour", [0], S, None, 0.12, "sibling", {"who": STREAM})
    deep = Episode("neighbour", [6], S, None, 0.31, "sibling", {"who": STREAM})
    others = [Episode("neighbour", [n], S, None, 0.2, "sibling") for n in (2, 4, 9, 11)]
    found = text(sentence(machine(), [slight, *others, deep], ["lmp"]))
    assert "31 %" in found
    assert "CPU 6 (+5)" in found


def test_time_is_the_first_to_go_and_never_the_answer() -> None:
    wide, narrow = (
        told("turbo-drop", "power-pl1", PACKAGE, 0.62e9, LOW, [], most=most) for most in (76, 40)
    )
    assert wide.endswith(WHEN)
    assert WHEN not in narrow
    assert {"PL1", "0.62"} <= {*narrow.split()}


def test_a_young_episode_has_a_length_and_an_old_one_a_start() -> None:
    session, _ = seen(Machine())
    run = Episode("turbo-drop", [0], 1 * S, None, 5e8, "thermal")
    assert lasting(session, [run], round(5.1 * S)) == "for 4.1 s"
    assert lasting(session, [run], 60 * S).startswith("since ")
    over = replace(run, end_ns=60 * S)
    assert lasting(session, [over], round(5.1 * S)) == "for 4.1 s of 59.0 s"
    assert lasting(session, [over], 61 * S) == "for 59.0 s"


def test_tasks_on_the_cpus_lose_unless_a_job_is_watched() -> None:
    session, _ = seen(Machine())
    steal = Episode("steal", [0, 1], S, None, 0.2, "hypervisor")
    tasks: Tasks = {"0": [7, "as", 0.2], "1": [8, "cc1", 0.9], "2": [9, "no", 1.0], "3": ["bad"]}
    assert losers(session, [steal], tasks) == ["cc1", "as"]
    assert losers(session, [steal], {"0": [7, "rest", 0.001]}) == []
    loss = Episode("neighbour", [0], S, None, 0.2, "sibling")
    session.neighbours.watched_job.name = "lmp"
    assert losers(session, [loss], tasks) == ["lmp"]
