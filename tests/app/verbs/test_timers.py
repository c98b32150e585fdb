"""The text of `perftop timers`."""

from __future__ import annotations

import json
from typing import Any

import command
import json_page
import pytest

from perftop.verbs import machine, timers


def method(name: str, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        f"{what}_{unit}"
        for what in ("least", "median", "mean", "error", "sigma", "mean_all")
        for unit in ("ticks", "ns")
    )
    row |= {"name": name, "guarantees": None, "calls": 1, "usable": True, "why": None, "fix": None,
            "note": None, "samples": 100, "settled": True, "far": 0.0, "step_ns": None,
            "step_from": None, "histogram": None}  # fmt: skip
    return row | more


RDTSC = method(
    "rdtsc", guarantees="none: may move", least_ticks=18.0, median_ticks=22.0, mean_ticks=22.3918,
    error_ticks=0.0217, sigma_ticks=1.1, least_ns=7.83, median_ns=9.57, mean_ns=9.74,
    error_ns=0.0094, sigma_ns=0.48, step_ns=0.8696, far=0.00123,
    histogram={"first_ticks": 18.0, "width_ticks": 2.0, "counts": [1, 0, 8], "beyond": 1},
)  # fmt: skip
CPUID = method(
    "cpuid;rdtsc", settled=False, least_ticks=18066.0, median_ticks=19036.4, mean_ticks=22600.6,
    error_ticks=1738.1, sigma_ticks=5312.9, mean_ns=9826.3, step_ns=4e6,
)  # fmt: skip
CLOCK = method("MONOTONIC", calls=8, mean_ticks=51.7)
MSR = method("MSR read", usable=False, settled=None, far=None, why="no /dev/cpu/N/msr",
             fix="sudo modprobe msr")  # fmt: skip
RATE = {"hz": 2.3e9, "origin": "counted", "error": 1.2e-7}
ANSWER: dict[str, Any] = {
    "host": "n1", "model": "Xeon", "kernel": "6.1", "virtualisation": "KVM", "cpu": 3,
    "cpu_why": "asked for", "trimmed": 0.05, "far": 10, "epsilon": 0.001, "confidence": 0.95,
    "bracket_ticks": 52.9,
    "tsc": {**RATE, "note": "made of it", "hello": {**RATE, "error": None}, "said": [RATE],
            "invariant": False, "clocksource": "tsc", "step_ticks": 24.5, "step_why": None},
    "methods": [RDTSC, CPUID, CLOCK, MSR],
    "offsets": [
        {"cpu": 1, "against": 0, "exchanges": 9, "offset_ticks": 71.0, "error_ticks": 267.0,
         "offset_ns": 31.0, "error_ns": 116.0, "why": None},
        {"cpu": 2, "against": 0, "exchanges": 0, "offset_ticks": None, "error_ticks": None,
         "offset_ns": None, "error_ns": None, "why": "it did not answer"},
    ],
    "offsets_left_out": 5,
    "disturbances": [{"what": "steal", "found": "10 %", "matters": "others ran"}],
    "elapsed_s": 1.6,
}  # fmt: skip
FACTS = (
    "n1 · Xeon · guest of KVM · Linux 6.1", "CPU 3 (asked for)", "22.39", "0.02", "9.74",
    "0.87 ns", "18066", "22601", "4 ms", "n/a: no /dev/cpu/N/msr", "fix: sudo modprobe msr",
    "▁ █", "0.12 % far out", "none: may move", "not stated", "2300.000000 MHz, within 0.12 ppm",
    "no: it may follow", "24.5 ticks", "CPU 1", "+71 ± 267 ticks (+31 ± 116 ns)",
    "n/a: it did not answer", "5 more CPUs", "10 %: others ran", "lowest and the highest 5 %",
    "MONOTONIC: 8 calls a sample: least, median, σ are of their means",
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 120, 160])
def test_every_fact_is_on_a_line_that_fits(width: int) -> None:
    lines = timers.draw(ANSWER, width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for fact in FACTS:
        assert " ".join(fact.split()) in text, fact
    assert [line for line in lines if line.endswith(" *")] == [
        line for line in lines if line.startswith("cpuid;rdtsc") and "18066" in line
    ]


def test_all_in_nanoseconds_too_where_there_is_room() -> None:
    row = next(line for line in timers.draw(ANSWER, 160) if line.startswith("rdtsc "))
    assert row.split() == [
        "rdtsc", "18.00", "22.00", "22.39", "0.02", "1.10",
        "7.83", "9.57", "9.74", "0.01", "0.48", "0.87", "ns",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 112])
def test_columns_do_not_run_into_each_other(width: int) -> None:
    fine = method("cpuid;rdtsc", settled=False, mean_ns=5873.9, sigma_ns=5873.9, step_ns=0.385)
    lines = timers.draw(ANSWER | {"methods": [fine]}, width)
    row = next(line for line in lines if line.startswith("cpuid;rdtsc"))
    assert row.split()[-4:] == ["5873.9", "0.385", "ns", "*"]
    assert max(map(len, lines)) <= width


def test_ascii() -> None:
    text = "\n".join(machine.drawn(ANSWER, timers.draw, unicode=False))
    assert text.isascii()
    assert "?" not in text
    assert "+71 +- 267 ticks" in text


def test_many_cpus_stand_side_by_side() -> None:
    first = ANSWER["offsets"][0]
    many = [first | {"cpu": n} for n in range(1, 64)]
    lines = timers.draw(ANSWER | {"offsets": many}, 160)
    shown = [line for line in lines if "± 267 ticks" in line]
    assert len(shown) <= 21
    assert sum(line.count("± 267 ticks") for line in shown) == 63
    assert max(map(len, shown)) <= 160


def test_alone() -> None:
    text = "\n".join(timers.draw(ANSWER | {"offsets": [], "disturbances": []}))
    assert "perftop may run on one CPU only" in text
    assert "no disturbance was seen" in text


def test_on_this_machine() -> None:
    done = command.here("timers", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert not list(json_page.object_faults(answer, "timers", "timers"))
    for width in (80, 160):
        lines = timers.draw(answer, width)
        assert max(map(len, lines)) <= width
        for row in answer["methods"]:
            assert any(line.startswith(row["name"]) for line in lines)


def test_refusals() -> None:
    for arguments, status, word in (
        (["--cpu", "99999"], 2, "no such CPU"),
        (["--cpu", "x"], 2, "invalid int"),
        (["--sysroot", "."], 2, "--sysroot"),
    ):
        done = command.here("timers", *arguments)
        assert (done.returncode, done.stdout) == (status, ""), arguments
        *usage, line = done.stderr.splitlines()
        assert word in line
        assert "perfprobe" not in line
        assert all(extra.startswith(("usage: ", "  ")) for extra in usage)
