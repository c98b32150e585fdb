"""All kinds and causes of episodes have a sentence that names the victim, the loss and its
cause."""

from __future__ import annotations

import re
from dataclasses import replace
from math import nan
from typing import Any

import pytest
import synth
from fakes import Machine, observe
from sentence_cases import ALL, CASES, PACKAGE, STREAM, S, episode_of, machine
from why_reports import end_command

from perftop.detect.low_clock_causes import FLAG_COUNTERS, PCU_COUNTERS
from perftop.detect.standstill import MARKERS
from perftop.model.confidence import (
    COUNTED_QUANTITIES,
    ClockCap,
    CrowdedCpu,
    Hypervisor,
    PolledBits,
    RegisterBit,
    SimdLevel,
    TaskOnCpu,
    ValueWithMax,
    evidence_json,
    evidence_text,
)
from perftop.model.kinds import Episode, kind_of_cause
from perftop.model.numbers import NUMBERS
from perftop.output.sentences import (
    clocks_text,
    command_name,
    cpus_text,
    depth_text,
    duration_phrase,
    loss_text,
    mid_sentence,
    sentence,
    text,
    total_cost,
    victims,
)
from perftop.session.interval import Tasks
from perftop.tui.shared.episode_style import drop_duplicate_losses, group_episodes


def test_all_causes_that_can_be_counted_have_a_case() -> None:
    assert {*COUNTED_QUANTITIES} - {(kind, cause) for kind, cause, *_ in CASES} == {
        ("suspect", "*")
    }
    kinds = [kind_of_cause(kind, cause) for kind, cause in COUNTED_QUANTITIES]
    assert {kind.worsened_key for kind in kinds} <= {"", *NUMBERS}
    assert {key for kind in kinds for key in kind.explained_keys} <= {*NUMBERS}


@pytest.mark.parametrize(("losers", "who", "sentence_text"), [
    ([7], [(9, "python")], "python[7] waits 98 % of its time for python[9] on CPU 0"),
    ([7], [(9, "python"), (8, "cc")],
     "python[7] waits 98 % of its time for python[9] (+1) on CPU 0"),
    ([7], [(8, "cc")], "python waits 98 % of its time for cc on CPU 0"),
    ([6, 7], [(9, "python")], "python waits 98 % of its time for python[9] on CPU 0"),
    ([6, 7], [(6, "python")], "Threads of python wait 98 % of their time for each other on CPU 0"),
    ([6, 7], [(6, "python"), (8, "cc")], "python waits 98 % of its time for cc on CPU 0"),
])  # fmt: skip
def test_tasks_of_one_name_are_told_apart(
    losers: list[int], who: list[tuple[int, str]], sentence_text: str
) -> None:
    evidence = {
        "label": "x" * 99,
        "loser": [TaskOnCpu(pid, "python", 0) for pid in losers],
        "who": [TaskOnCpu(pid, comm, 0) for pid, comm in who],
    }
    episode = Episode("neighbour", [0], S, None, 0.98, "scheduler", evidence)
    topology = machine()
    assert text(sentence(topology, [episode])) == sentence_text
    detected = replace(episode, evidence={"who": [TaskOnCpu(9, "python", 0)]}, cause="sibling")
    expected = "python[9] on the sibling takes 98 % of python's IPC on CPU 0"
    assert text(sentence(topology, [detected], ["python"])) == expected


@pytest.mark.parametrize(("max_length", "expected"), [
    (46, "python[7] waits 32 % for python[9] (+1)"), (38, "python waits 32 % for python[9] (+1)"),
    (35, "python[7] waits 32 %"), (22, "python[7] waits 32 %"),
])  # fmt: skip
def test_a_short_sentence_about_a_wait_begins_with_the_task_that_waits(
    max_length: int, expected: str
) -> None:
    who = [TaskOnCpu(9, "python", 0), TaskOnCpu(5, "cc", 0)]
    evidence = {"loser": [TaskOnCpu(7, "python", 0)], "who": who}
    episode = Episode("neighbour", [0, 2, 5], S, None, 0.32, "scheduler", evidence)
    assert text(sentence(machine(), [episode], max_length=max_length)) == expected


@pytest.mark.parametrize("case", [case for case in CASES if "who" in episode_of(case).evidence])
def test_a_task_that_causes_a_loss_never_reads_as_its_victim(case: tuple[Any, ...]) -> None:
    for max_length in range(12, 80):
        words = text(sentence(machine(), [episode_of(case)], case[-1], max_length=max_length))
        if re.search(r"stream|restic|a-name-.*\(\+4\)", words):
            assert re.search("takes|saturates|displaces|keeps|waits .*for", words), words


def test_the_deepest_of_several_episodes_represents_them() -> None:
    slight = Episode("neighbour", [0], S, None, 0.12, "sibling", {"who": STREAM})
    deep = Episode("neighbour", [6], S, None, 0.31, "sibling", {"who": STREAM})
    others = [Episode("neighbour", [n], S, None, 0.2, "sibling") for n in (2, 4, 9, 11)]
    result = text(sentence(machine(), [slight, *others, deep], ["lmp"]))
    assert "31 %" in result
    assert "CPUs 0,2,4,6,9,11" in result


def test_a_recent_episode_has_a_length_and_an_earlier_one_a_start() -> None:
    session, _ = observe(Machine())
    run = Episode("turbo-drop", [0], 1 * S, None, 5e8, "thermal")
    assert duration_phrase(session, [run], round(5.1 * S)) == "for 4.1 s"
    assert duration_phrase(session, [run], 60 * S).startswith("since ")
    over = replace(run, end_ns=60 * S)
    phrase = duration_phrase(session, [over], round(5.1 * S))
    assert re.fullmatch(r"from \d\d:\d\d:\d\d for 59.0 s", phrase)
    assert duration_phrase(session, [over], 61 * S) == "for 59.0 s"


def test_tasks_on_the_cpus_are_the_victims_unless_a_job_is_watched() -> None:
    session, _ = observe(Machine())
    steal = Episode("steal", [0, 1], S, None, 0.2, "hypervisor")
    tasks: Tasks = {"0": [7, "as", 0.2], "1": [8, "cc1", 0.9], "2": [9, "no", 1.0], "3": ["bad"]}
    assert victims(session, [steal], tasks) == ["cc1", "as"]
    assert victims(session, [steal], {"0": [7, "rest", 0.001]}) == []
    loss = Episode("neighbour", [0], S, None, 0.2, "sibling")
    session.neighbours.watched_job.name = "lmp"
    assert victims(session, [loss], tasks) == ["lmp"]
    end_command(session, "./job.sh", "-x")
    assert victims(session, [loss], tasks) == ["job.sh"], "as in line 1, not a thread's name"


# --- places, amounts and names

PLACES = [
    (PACKAGE, "package 0"), ([4, 5, 6, 7, 12, 13, 14, 15], "package 1"), (ALL, "packages 0-1"),
    ([0, 1, 2, 8, 9, 10, 11], "CPUs 0-2,8-11"), ([0, 1, 2, 3], "CPUs 0-3"), ([5, 13], "core 1:1"),
    ([5], "CPU 5"), ([4, 5, 12, 13], "cores 1:0-1"), ([4, 5, 12], "CPUs 4-5,12"),
    ([3, 4, 11, 12], "CPUs 3-4,11-12"), ([0, 99], "CPUs 0,99"),
]  # fmt: skip


def test_packages_and_cores_are_named_if_all_their_online_cpus_are_affected() -> None:
    for cpus, name in PLACES:
        assert cpus_text(machine(), cpus) == name
    one = machine(1)
    assert cpus_text(one, [3, 7]) == "core 3", "of one package a core needs only its number"
    assert cpus_text(one, [0, 2, 4, 6]) == "cores 0,2"
    assert cpus_text(machine(1, cores=1), [0, 1]) == "core 0"
    off = [replace(row, online=row.cpu != 9) for row in machine()]
    assert cpus_text(off, [0, 1, 2, 3, 8, 10, 11]) == "package 0"
    assert cpus_text(off, [9]) == "CPU 9"
    vm = machine(4, cores=1, threads=1)  # each CPU is a package of its own
    assert cpus_text(vm, [2]) == "CPU 2"
    assert cpus_text(vm, [1, 2]) == "CPUs 1-2"
    assert (
        cpus_text([replace(row, package=None, core=None) for row in vm], [0, 1, 2, 3]) == "CPUs 0-3"
    )
    assert cpus_text(machine(1, cores=64, threads=1), range(0, 64, 2), 12) == "32 CPUs 0,2,4,6,8,…"
    assert cpus_text(synth.topology(4), range(8)) == "package 0"


@pytest.mark.parametrize(("kind", "cause", "value", "depth", "loss"), [
    ("turbo-drop", "thermal", 5e6, "−0.01 GHz", "0.01 GHz"),
    ("turbo-drop", "thermal", 4.9e6, "", ""),
    ("turbo-drop", "thermal", nan, "", ""), ("turbo-drop", "thermal", None, "", ""),
    ("steal", "hypervisor", 0.0005, "0.1 %", "0.1 %"),
    ("steal", "hypervisor", 0.00049, "0.0 %", ""),
    ("steal", "hypervisor", 0.1, "10.0 %", "10 %"),
    ("steal", "hypervisor", 0.123, "12.3 %", "12.3 %"),
    ("neighbour", "sibling", 0.1, "10.0 %", "10 %"),
    ("neighbour", "sibling", 0.123, "12.3 %", "12 %"),
    ("neighbour", "sibling", 0.094, "9.4 %", "9.4 %"),
    ("neighbour", "hypervisor", 0.123, "12.3 %", "12.3 %"),
    ("smi", "firmware", 1, "1×", "once"), ("smi", "firmware", 2, "2×", "2 times"),
    ("ramp", "-", 1.2e9, "+1.20 GHz", ""), ("later-kind", "x", 0.25, "25.0 %", "25 %"),
])  # fmt: skip
def test_a_loss_has_a_sign_or_a_word_and_no_more_digits_than_were_measured(
    kind: str, cause: str, value: float | None, depth: str, loss: str
) -> None:
    assert depth_text(kind, value) == depth
    assert loss_text(Episode(kind, [0], S, None, value, cause)) == loss


def test_clocks_are_weighted_by_the_length_and_the_cpus_of_their_episodes() -> None:
    def drop(cpus: int, end_ns: int | None, busy_hz: float, ceiling_hz: float) -> Episode:
        evidence = {"busy_hz": busy_hz, "ceiling_hz": ceiling_hz}
        return Episode("turbo-drop", [*range(cpus)], S, end_ns, 5e8, "thermal", evidence)

    long_drop, wide_drop = drop(1, 4 * S, 2.0e9, 3.0e9), drop(3, 2 * S, 2.6e9, 3.4e9)
    assert clocks_text([long_drop, wide_drop]) == "2.30 of 3.20 GHz"
    assert clocks_text([drop(1, None, 2.0e9, 3.0e9)]) == "2.00 of 3.00 GHz", "it has just begun"
    assert clocks_text([replace(long_drop, evidence={"busy_hz": 2e9})]) == ""


@pytest.mark.parametrize(("subject", "inside"), [
    ("Thermal throttling", "thermal throttling"), ("SMM code", "SMM code"), ("VMs", "VMs"),
    ("A PROCHOT signal", "a PROCHOT signal"),
])  # fmt: skip
def test_only_abbreviations_stay_upper_case_inside_a_sentence(subject: str, inside: str) -> None:
    assert mid_sentence(subject) == inside


# --- groups


def episode(kind: str, cause: str, cpus: list[int], deep: float | None) -> Episode:
    result = {"ceiling_hz": 3.5e9} if kind == "turbo-drop" else {}
    return Episode(kind, cpus, 1, None, deep, cause, result)


def test_a_loss_counts_once_for_each_cpu_and_the_costliest_group_is_first() -> None:
    drop = episode("turbo-drop", "power-pl1", [0, 1], 0.35e9)
    assert total_cost([drop]) == pytest.approx(0.2)
    steal = episode("steal", "hypervisor", [0], 0.2)
    loss = episode("neighbour", "hypervisor", [0, 1], 0.3)
    assert total_cost([steal, loss]) == pytest.approx(0.6)
    unmeasured = episode("throttle", "thermal", [0], None), episode("smi", "firmware", [0], 9)
    assert total_cost(unmeasured) == 0
    assert Episode("turbo-drop", [0], 1, None, 5e8).lost_share == 0, "of an unknown ceiling"
    assert Episode("smi", [0], 1, None, 9, evidence={"ceiling_hz": 3e9}).lost_share == 0
    assert group_episodes([steal, loss]) == [[loss]], "both are time taken by the hypervisor"
    longer = replace(steal, cpus=[0, 2])
    assert group_episodes([longer, loss]) == [[loss, longer]]
    slight = episode("turbo-drop", "thermal", [9], 0.2e9)
    losses = [episode("neighbour", "sibling", [cpu], 0.4) for cpu in (0, 1)]
    drop = episode("turbo-drop", "power-pl1", [*range(8)], 0.62e9)
    order = group_episodes([episode("ramp", "-", [3], 2e9), slight, *losses, drop])
    assert [[e.cause for e in alike] for alike in order] == [
        ["power-pl1"], ["sibling", "sibling"], ["thermal"], ["-"]]  # fmt: skip


@pytest.mark.parametrize(("steal", "loss", "printed"), [
    ((10, 50), (12, 50), ["loss"]),
    ((10, 50), (30, 50), ["loss"]),  # half of it
    ((10, 50), (31, 60), ["steal", "loss"]),
    ((10, 50), (60, 70), ["steal", "loss"]),
    ((10, None), (20, None), ["loss"]),
    ((10, None), (20, 30), ["steal", "loss"]),
])  # fmt: skip
def test_episodes_of_two_detectors_with_one_cause_are_listed_once(
    steal: tuple[int, int | None], loss: tuple[int, int | None], printed: list[str]
) -> None:
    results = {
        "steal": Episode("steal", [0], *steal, 0.2, "hypervisor"),
        "loss": Episode("neighbour", [0, 1], *loss, 0.3, "hypervisor"),
    }
    assert drop_duplicate_losses([*results.values()]) == [results[name] for name in printed]
    heat = {
        "steal": Episode("involuntary-halt", [0], *steal, 0.06, "modulation"),
        "loss": Episode("throttle", [0, 1], *loss, 0.12, "thermal"),
    }
    assert drop_duplicate_losses([*heat.values()]) == [heat[name] for name in printed]
    unexplained = replace(heat["steal"], cause="unknown")
    assert unexplained in drop_duplicate_losses([unexplained, heat["loss"]])
    elsewhere = Episode("steal", [2], 10, 50, 0.2, "hypervisor")
    assert elsewhere in drop_duplicate_losses([elsewhere, results["loss"]])


def test_evidence_is_shown_with_its_limit() -> None:
    power = {"power_w": 149.6, "power_limit_w": 150, "busy_hz": 2.48e9, "x": 1}
    assert evidence_text("x", power) == "power 150 of 150 W · clock 2.48 GHz"
    assert evidence_text("x", {"power_limit_w": 150}) == "power limit 150 W"
    both = {"busy_hz": 2_480_000_000, "ceiling_hz": 3_100_000_000}
    assert evidence_text("x", both) == "clock 2.48 of 3.10 GHz"
    assert evidence_text("x", {"ipc": 1.29, "ipc_alone": 1.85}) == "IPC 1.29, alone 1.85"


# --- evidence


BITS = RegisterBit(10, "PL1", 9), RegisterBit(2, None, 1), RegisterBit(3, "bit 3", 4)
CROWD = [TaskOnCpu(7, "cc1", cpu) for cpu in range(6)]
VM = "another VM on this host, or a CPU cap on this VM"


@pytest.mark.parametrize(("key", "value", "name", "code_text"), [
    ("cap", ClockCap("scaling_max_freq", 2e9), "capped by", "scaling_max_freq, 2.00 GHz"),
    ("simd", SimdLevel(2, 0.8), "SIMD", "level 2 in 80 % of cycles"),
    ("limit_reasons", PolledBits(BITS, 10), "limit reason",
     "bit 10 (PL1) in 9 of 10 polls, bit 2 in 1 of 10 polls, bit 3 in 4 of 10 polls"),
    ("limit_reasons", PolledBits((), 40), "limit reason", "none in 40 polls"),
    ("limit_reasons", PolledBits((), 0), "limit reason", "not available from this source"),
    ("package_thermal", PolledBits(BITS[:2], 10), "package status",
     "PL1 in 9 of 10 polls, bit 2 in 1 of 10 polls"),
    ("plr_reasons", PolledBits(BITS[:2], 10), "came on (PLR)", "PL1, bit 2"),
    ("pcu_vr", 0.25, "VR hot", "in 25 % of the power control unit's cycles"),
    ("core_throttles", 3.0, "core throttles", "counted by the kernel"),
    ("hwp_max", ValueWithMax(20, 35), "HWP maximum", "level 20 of 35"),
    ("hwp_epp", 200, "energy preference", 200),
    ("explained_by_smi", 0.99, "stopped with all other CPUs", "99 % of the loss"),
    ("explained_by_between", 0.7, "clock between two steps", "70 % of the time"),
    ("who", Hypervisor("kvm"), "who", VM),
    ("who", CROWD[:2], "who", "cc1[7] on CPU 0, cc1[7] on CPU 1"),
    ("who", CROWD, "who", ("cc1[7] on CPU 0, cc1[7] on CPU 1, cc1[7] on CPU 2, "
     "cc1[7] on CPU 3 and 2 more")),
    ("self", [CrowdedCpu(2, 5)], "self", "2 threads of the job on CPU 5"),
    ("busy_hz", 3e9, "busy_hz", 3e9),
])  # fmt: skip
def test_codes_of_detectors_have_words(
    key: str, value: object, name: str, code_text: object
) -> None:
    assert evidence_json({key: value}) == {name: code_text}


def test_all_causes_of_halts_and_all_flags_have_words() -> None:
    keys = *(f"explained_by_{key}" for key in MARKERS), *PCU_COUNTERS, *FLAG_COUNTERS
    results = {key: PolledBits((), 0) if key in FLAG_COUNTERS else 0.5 for key in keys}
    assert evidence_json(results).keys().isdisjoint(keys)


@pytest.mark.parametrize(("words", "busiest", "name"), [
    ("/usr/bin/make -j4", "", "make"),
    ("make -j4", "cc1", "make"),
    ("nice -n 5 ./job", "cc1", "job"),
    ("env A=b timeout 10s taskset -c 0-3,8 ./job --fast", "", "job"),
    ("bash run.sh job", "job", "job"),
    ("nice", "", "nice"), ("7z a x.7z", "", "7z"),
])  # fmt: skip
def test_a_command_has_the_name_of_the_program_that_it_runs(
    words: str, busiest: str, name: str
) -> None:
    assert command_name(words.split(), busiest) == name
