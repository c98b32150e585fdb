"""Episodes in words: where, how long, how deep, why; and how a run's are counted."""

from __future__ import annotations

import math
from dataclasses import replace

import made
import pytest
from fakes import Machine, seen

from perfprobe.wire import Cpu
from perftop.base.format import length
from perftop.detect.halt_signs import SIGNS
from perftop.detect.low_clock_causes import FLAGS, PCU
from perftop.model.episode import Episode
from perftop.model.evidence import Bit, Cap, Crowd, Host, Level, OutOf, Polled, Ran
from perftop.output import run_summary, sentences, stat_text
from perftop.output.episode_words import cause, depth, evidence, told, where, worded
from perftop.session.summary import Tally

S = 1_000_000_000


def machine(packages: int = 2, cores: int = 4, threads: int = 2) -> list[Cpu]:
    """CPU numbers go through all first threads, then through all second ones."""
    count = packages * cores
    rows = [
        Cpu(core + t * count, True, core // cores, 0, core % cores, t, 0, 0, None, [])
        for t in range(threads)
        for core in range(count)
    ]
    return sorted(rows, key=lambda row: row.cpu)


@pytest.mark.parametrize(
    ("cpus", "name"),
    [
        ([0, 1, 2, 3, 8, 9, 10, 11], "package 0"),
        ([4, 5, 6, 7, 12, 13, 14, 15], "package 1"),
        (range(16), "packages 0-1"),
        ([0, 1, 2, 8, 9, 10, 11], "CPUs 0-2,8-11"),
        ([0, 1, 2, 3], "CPUs 0-3"),
        ([5, 13], "core 1:1"),
        ([5], "CPU 5"),
        ([4, 5, 12, 13], "cores 1:0-1"),
        ([4, 5, 12], "CPUs 4-5,12"),
        ([3, 4, 11, 12], "CPUs 3-4,11-12"),
        ([0, 99], "CPUs 0,99"),
    ],
)
def test_what_is_whole_has_a_name(cpus: list[int], name: str) -> None:
    assert where(machine(), cpus) == name


def test_of_one_package_a_core_needs_no_more_than_its_number() -> None:
    assert where(machine(1), [3, 7]) == "core 3"
    assert where(machine(1), [0, 2, 4, 6]) == "cores 0,2"
    assert where(machine(1, cores=1), [0, 1]) == "core 0"


def test_what_is_offline_is_not_missed() -> None:
    rows = [replace(row, online=row.cpu != 9) for row in machine()]
    assert where(rows, [0, 1, 2, 3, 8, 10, 11]) == "package 0"
    assert where(rows, [9]) == "CPU 9"


def test_a_guest_whose_cpus_are_packages_each_names_cpus() -> None:
    rows = machine(4, cores=1, threads=1)
    assert where(rows, [2]) == "CPU 2"
    assert where(rows, [1, 2]) == "CPUs 1-2"
    unknown = [replace(row, package=None, core=None) for row in rows]
    assert where(unknown, [0, 1, 2, 3]) == "CPUs 0-3"


def test_long_lists_are_cut_between_numbers() -> None:
    rows = machine(1, cores=64, threads=1)
    assert where(rows, range(0, 64, 2), 12) == "32 CPUs 0,2,4,6,8,…"


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.0 s"), (4_149_999_999, "4.1 s"), (59_999_999_999, "59.9 s"), (60 * S, "1 min 00 s"),
     (3_599 * S, "59 min 59 s"), (7_500 * S, "2 h 05 min"), (-5, "0.0 s")],
)  # fmt: skip
def test_a_length(ns: int, text: str) -> None:
    assert length(ns) == text


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [("turbo-drop", 620e6, "−0.62 GHz"), ("license", 0.0, ""),
     ("ramp", 2.1e9, "+2.10 GHz"), ("smi", 200.0, "200×"), ("involuntary-halt", 0.0104, "1.0 %"),
     ("steal", 0.2, "20.0 %"), ("offline", None, ""), ("throttle", math.nan, "")],
)  # fmt: skip
def test_a_depth_is_told_in_the_unit_of_its_kind(kind: str, value: float | None, text: str) -> None:
    assert depth(kind, value) == text


def test_a_cause_in_words() -> None:
    assert cause("turbo-drop", "power-pl1") == "power limit PL1"
    assert cause("turbo-drop", "unknown") == "cause unknown"
    assert cause("ramp", "unknown") == cause("ramp", "-") == ""
    assert cause("suspect", "37 GHz") == "37 GHz"


def test_evidence_stands_beside_its_limit() -> None:
    told = evidence("x", {"power_w": 149.6, "power_limit_w": 150, "busy_hz": 2.48e9, "x": 1})
    assert told == "power 150 of 150 W · clock 2.48 GHz"
    assert evidence("x", {"power_limit_w": 150}) == "power limit 150 W"
    both = {"busy_hz": 2_480_000_000, "ceiling_hz": 3_100_000_000}
    assert evidence("x", both) == "clock 2.48 of 3.10 GHz"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("t90_s", 0.0005, "90 % within 500 us"), ("t90_s", 0.0123, "90 % within 12 ms"),
     ("t90_s", 1.0, "90 % within 1.0 s"), ("error_share", 0.0999, "error up to 9.99 %"),
     ("error_share", 0.1, "error up to 10 %"), ("switches_per_s", 99.96, "switches 100/s"),
     ("switches_per_s", 1234.5, "switches 1234/s"), ("ticks", 3, "ticks: 3"),
     ("told_s", "so", "told s: so")],
)  # fmt: skip
def test_evidence_is_told_in_the_unit_of_its_key(key: str, value: object, text: str) -> None:
    assert told(key, value) == text


# --- stat


def drop(start_s: float, end_s: float | None, depth_hz: float, cause_: str) -> Episode:
    end_ns = None if end_s is None else round(end_s * S)
    return Episode("turbo-drop", [0], round(start_s * S), end_ns, depth_hz, cause_, {"why": "so"})


def test_an_episode_is_a_line() -> None:
    session, _ = seen(Machine())
    line = stat_text.episode(session, drop(1, 3.5, 5e8, "thermal"))
    assert (
        line == "! Heat held CPU 0 0.50 GHz below its ceiling, for 2.5 s from 22:13:21.0 · why: so"
    )
    running = drop(1, None, 5e8, "thermal")
    said = sentences.text(sentences.sentence(session.topology, [running]))
    assert stat_text.episode(session, running) == f"! {said}, since 22:13:21.0 · why: so"


def test_all_cpus_are_named_that_the_sentence_only_counts() -> None:
    session, _ = seen(Machine(cores=16))
    many = Episode("smi", [0, 3, 5, 7, 9, 11], S, S, 1.0, "smi")
    assert " · CPUs 0,3,5,7,9,11" in stat_text.episode(session, many)


def test_the_summary_counts_causes_and_names_the_costliest() -> None:
    session, _ = seen(Machine())
    tally = Tally()
    for episode in (
        drop(1, 2, 3e8, "thermal"),
        drop(3, 4, 7e8, "power-pl1"),
        drop(4, 4.1, 9e8, "thermal"),  # deeper, and too short to cost as much
        drop(5.5, None, 5e8, "thermal"),
        Episode("offline", [1], S, 2 * S, cause="hotplug"),
        Episode("steal", [1], S, 2 * S, 0.5, "hypervisor"),
    ):
        episode.evidence["ceiling_hz"] = 3.5e9
        tally.add(episode, 6 * S)
    assert tally.counted == {
        "turbo-drop": {"thermal": 3, "power-pl1": 1},
        "offline": {"hotplug": 1},
        "steal": {"hypervisor": 1},
    }
    lines = stat_text.ending(session, tally, run_summary.summary_line(session, tally.counted, 0.5))
    assert "turbo-drop: 4 (thermal 3, power-pl1 1)" in lines
    worst = [line for line in lines if line.startswith("worst")]
    assert worst == [
        (
            "worst turbo-drop: Power limit PL1 held CPU 0 0.70 GHz below its ceiling, "
            "for 1.0 s from 22:13:23.0"
        )
    ]  # of the single steal all was told when it ended


BITS = Bit(10, "PL1", 9), Bit(2, None, 1), Bit(3, "bit 3", 4)
CROWD = [Ran(7, "cc1", cpu) for cpu in range(6)]
GUEST = "another guest of kvm, or a cap on this one"


@pytest.mark.parametrize(("key", "value", "name", "text"), [
    ("cap", Cap("scaling_max_freq", 2e9), "capped by", "scaling_max_freq, 2.00 GHz"),
    ("simd", Level(2, 0.8), "SIMD", "level 2 in 80 % of cycles"),
    ("limit_reasons", Polled(BITS, 10), "limit reason",
     "bit 10 (PL1) in 9 of 10 polls, bit 2 in 1 of 10 polls, bit 3 in 4 of 10 polls"),
    ("limit_reasons", Polled((), 40), "limit reason", "none in 40 polls"),
    ("limit_reasons", Polled((), 0), "limit reason", "not told by this source"),
    ("package_thermal", Polled(BITS[:2], 10), "package status",
     "PL1 in 9 of 10 polls, bit 2 in 1 of 10 polls"),
    ("pcu_vr", 0.25, "VR hot", "in 25 % of the power control unit's cycles"),
    ("core_throttles", 3.0, "core throttles", "counted by the kernel"),
    ("hwp_max", OutOf(20, 35), "HWP maximum", "level 20 of 35"),
    ("hwp_epp", 200, "energy preference", 200),
    ("explained_by_smi", 0.99, "stopped with all other CPUs", "99 % of the loss"),
    ("explained_by_between", 0.7, "clock between two steps", "70 % of the time"),
    ("who", Host("kvm"), "who", GUEST),
    ("who", Host(None), "who", GUEST.replace("kvm", "the hypervisor")),
    ("who", CROWD[:2], "who", "cc1 (7) on CPU 0, cc1 (7) on CPU 1"),
    ("self", [Crowd(2, 5)], "self", "2 threads of the job on CPU 5"),
    ("busy_hz", 3e9, "busy_hz", 3e9),
])  # fmt: skip
def test_codes_of_detectors_have_their_words(
    key: str, value: object, name: str, text: object
) -> None:
    assert worded({key: value}) == {name: text}


def test_of_many_names_the_others_are_counted() -> None:
    assert worded({"who": CROWD})["who"].endswith("cc1 (7) on CPU 3 and 2 more")


def test_all_that_may_explain_a_halt_and_all_flags_have_words() -> None:
    keys = *(f"explained_by_{key}" for key in SIGNS), *PCU, *FLAGS
    told = {key: Polled((), 0) if key in FLAGS else 0.5 for key in keys}
    assert worded(told).keys().isdisjoint(keys)


def test_made_machines_have_one_package() -> None:
    assert where(made.topology(4), range(8)) == "package 0"
