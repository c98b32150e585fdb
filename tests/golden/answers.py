"""The text of doctor, selftest, timers, wake, events and ramp, from answers of the probe that have
every part that an answer may have."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import chains
from chains import run

from perftop.verbs import doctor, instruments, machine, ramp, ramp_runs

Answer = dict[str, Any]

# --- doctor

DOCTOR: Answer = {
    "host": "n1", "model": "Xeon", "kernel": "6.1", "virtualisation": None,
    "checks": [
        {"what": "perf counters", "state": "not usable", "why": "needs " + "rights " * 30,
         "lost": "clock", "fix": "sudo sysctl x=0"},
        {"what": "clock", "state": "usable", "why": "tsc", "lost": None, "fix": None},
        {"what": "MSRs", "state": "not usable", "why": "not readable", "lost": "",
         "fix": doctor.ROOT_COMMAND},
    ],
    "source": "os", "smt_method": None, "tsc_hz": None,
    "base_hz": {"hz": 2.1e9, "origin": "said so", "error": 1e-6},
    "multipliers": [{"counter": "one_thread", "factor": 84.0, "why": "CPUID 15H", "type": None}],
    "missing": [{"what": "ref", "why": "no rights", "fix": None, "cpus": None},
                {"what": "ipc", "why": "no rights", "fix": None, "cpus": None}],
    "readiness": [
        {"what": "turbo", "state": "matters", "now": "on", "effect": "falls", "change": "x"},
        {"what": "SMT", "state": "unknown", "now": "5 µs", "effect": None, "change": None},
    ],
}  # fmt: skip
BARE_DOCTOR: Answer = DOCTOR | {"smt_method": "perf", "base_hz": None, "multipliers": [],
    "missing": [], "checks": [], "readiness": [], "host": "büro",
    "tsc_hz": {"hz": 3e9, "origin": "counted", "error": None}}  # fmt: skip

# --- selftest


def check(counter: str, verdict: str, **more: Any) -> Answer:
    return {
        "counter": counter, "what": "a loop of known length", "verdict": verdict, "origin": "perf",
        "expected": 1e9, "measured": 2e9, "unit": "instructions", "error": 1.0, "tolerance": 0.01,
        "scale": 1e9, "why": "the tick counts too", "cpu": 3, "cpus": [3, 4, 5], "disturbed": [],
        "fix": None, **more,
    }  # fmt: skip


SELFTEST: Answer = {
    "host": "n1", "boot_id": "b-1", "source": "perf", "virtualisation": None, "time": 1.0,
    "elapsed_s": 2.5, "unchecked": ["smi"], "wrong": ["instructions"],
    "checks": [
        check("instructions", "unusable"),
        check("cycles", "trusted", measured=1e9, error=0.0, disturbed=[7]),
        check("idle_s", "disturbed", measured=None, expected=None, error=None, scale=None,
              disturbed=[7]),
        check("busy_s", "close", unit="s", measured=0.4, expected=0.3, error=0.05, scale=2.0),
        check("poll_s", "close", unit="s", measured=99.94e-6, expected=1e-4, cpus=[]),
        check("aperf", "trusted", unit="Hz", measured=2.1e9, expected=2.1e9, tolerance=0.00123),
        check("ref", "not there", why="no PMU", fix="get one"),
        check("mperf", "not there", why="no PMU", fix="get one"),
        check("smi", "not there", why="no MSRs"),
    ],
}  # fmt: skip


def instrument(name: str, verdict: str, **more: Any) -> Answer:
    empty: Answer = {"counters": [], "wrong": [], "why": None, "fix": None, "measured": []}
    return {"instrument": name, "verdict": verdict} | empty | more


INSTRUMENTS = [
    instrument("energy", "works", measured=[
        {"counter": "energy_j", "values": [120.0], "unit": "W", "nearest": 119.5},
        {"counter": "cycles", "values": [9999.9, 12345.6, 3.14159, 4.0, 5.0, 6.0], "unit": "MHz"},
    ]),
    instrument("limit reasons, MSR", "wrong", why="it stands still", measured=[
        {"counter": "limit_reasons", "values": [50.0, 49.0], "unit": "polls", "bits": ["PL1"]},
        {"counter": "ring_reasons", "values": [50.0], "unit": "polls", "bits": []},
    ]),
    instrument("HSMP", "not there", why="no /dev/hsmp", fix="get one"),
]  # fmt: skip

# --- timers


def method(name: str, **more: Any) -> Answer:
    row: Answer = dict.fromkeys(
        f"{what}_{unit}"
        for what in ("least", "median", "mean", "error", "sigma", "mean_all")
        for unit in ("ticks", "ns")
    )
    row |= {"name": name, "guarantees": None, "calls": 1, "usable": True, "why": None, "fix": None,
            "note": None, "samples": 100, "settled": True, "far": 0.0, "step_ns": None,
            "step_from": None, "histogram": None}  # fmt: skip
    return row | more


def histogram(first: float, width: float, counts: Sequence[int]) -> Answer:
    return {"first_ticks": first, "width_ticks": width, "counts": counts, "beyond": 1}


RDTSC = method(
    "rdtsc", guarantees="none: may move", least_ticks=18.0, median_ticks=22.0, mean_ticks=22.3918,
    error_ticks=0.0217, sigma_ticks=1.1, least_ns=7.83, median_ns=9.57, mean_ns=9.74,
    error_ns=0.0094, sigma_ns=0.48, step_ns=0.8696, far=0.00123,
    histogram=histogram(18.0, 2.0, [1, 0, 8]),
)  # fmt: skip
CPUID = method(
    "cpuid;rdtsc", settled=False, least_ticks=18066.0, median_ticks=19036.4, mean_ticks=22600.6,
    error_ticks=1738.1, sigma_ticks=5312.9, mean_ns=9826.3, sigma_ns=5873.9, step_ns=4e6,
    histogram=histogram(88_888.0, 1000.0, [1] * 24),
)  # fmt: skip
CLOCK = method("MONOTONIC", calls=8, mean_ticks=51.7, far=1.2e-6, note="the vDSO",
               histogram=histogram(40.0, 1.0, [3, 4]))  # fmt: skip
RAW = method("MONOTONIC_RAW", calls=2, mean_ticks=99.996, far=1.2e-5, step_ns=0.385,
             histogram=histogram(40.0, 1.0, [3, 4]))  # fmt: skip
MSR = method("MSR read", usable=False, settled=None, far=None, why="no /dev/cpu/N/msr",
             fix="sudo modprobe msr")  # fmt: skip
HPET = method("HPET", usable=False, settled=None, far=None, why="not mapped")
RATE = {"hz": 2.3e9, "origin": "counted", "error": 1.2e-7}
OFFSET: Answer = {
    "cpu": 1, "against": 0, "exchanges": 9, "offset_ticks": 71.0, "error_ticks": 267.0,
    "offset_ns": 31.0, "error_ns": 116.0, "why": None,
}  # fmt: skip
TIMERS: Answer = {
    "host": "n1", "model": "Xeon", "kernel": "6.1", "virtualisation": "KVM", "cpu": 3,
    "cpu_why": "asked for", "trimmed": 0.05, "far": 10, "epsilon": 0.001, "confidence": 0.95,
    "bracket_ticks": 52.9,
    "tsc": {**RATE, "note": "made of it", "hello": {**RATE, "error": None}, "said": [RATE],
            "invariant": False, "clocksource": "tsc", "step_ticks": 24.5, "step_why": None},
    "methods": [RDTSC, CPUID, CLOCK, RAW, MSR, HPET],
    "offsets": [
        OFFSET,
        OFFSET | dict.fromkeys(("offset_ticks", "error_ticks", "offset_ns", "error_ns"))
        | {"cpu": 2, "exchanges": 0, "why": "it did not answer"},
    ],
    "offsets_left_out": 5,
    "disturbances": [{"what": "steal", "found": "10 %", "matters": "others ran"}],
    "elapsed_s": 1.6,
}  # fmt: skip
SETTLED_TIMERS: Answer = TIMERS | {
    "methods": [RDTSC | {"far": 1.0}], "offsets": [], "disturbances": [],
    "tsc": TIMERS["tsc"] | {"note": None, "invariant": None, "clocksource": None,
                            "step_ticks": 1.0},
}  # fmt: skip
MANY_OFFSETS: Answer = TIMERS | {
    "offsets": [OFFSET | {"cpu": n} for n in range(1, 64)], "offsets_left_out": 0,
    "tsc": TIMERS["tsc"] | {"invariant": True, "step_ticks": None, "step_why": "too coarse"},
}  # fmt: skip

# --- wake


def wake_row(kind: str, deepest: str | None, median: float, **more: Any) -> Answer:
    return {
        "kind": kind, "deepest": deepest, "entered": {"C6": 1.0}, "idle_entries": 400,
        "samples": 400, "least_us": 4.0, "median_us": median, "p95_us": 2 * median,
        "p99_us": 3 * median, "most_us": 1000.0, "mean_us": median,
        "histogram": {"first_us": 4, "width_us": 2, "counts": [1, 300, 80, 5], "beyond": 14},
    } | more  # fmt: skip


WAKE: Answer = {
    "host": "n1", "model": "Xeon", "kernel": "6.18", "virtualisation": None, "cpu": 3, "waker": 0,
    "waker_why": None, "driver": "intel_idle", "governor": "menu", "states_why": None,
    "states": [{"name": "POLL", "latency_us": 0}, {"name": "C6", "latency_us": 170}],
    "pause_s": 0.002, "disturbances": [], "elapsed_s": 5.1,
    "rows": [wake_row("timer", None, 180.0), wake_row("timer", "POLL", 5.0),
             wake_row("another CPU", None, 160.0)],
}  # fmt: skip
DISTURBED_WAKE: Answer = WAKE | {
    "virtualisation": "kvm", "waker": None, "waker_why": "one core only",
    "rows": [wake_row("timer", None, 180.0, idle_entries=40)],
    "disturbances": TIMERS["disturbances"],
}  # fmt: skip
STATELESS_WAKE: Answer = WAKE | {
    "states": [], "states_why": "/dev/cpu_dma_latency: Permission denied",
    "rows": [wake_row("timer", None, 180.0, idle_entries=320)],
}  # fmt: skip

# --- events

EVENT: Answer = {"name": "l1-hits", "about": "hits", "unit": "1", "scale": 1.0, "pmu": "cpu",
                 "type": None, "open": []}  # fmt: skip
EVENTS: Answer = {
    "events": [
        EVENT, EVENT | {"name": "stalls", "unit": "cycles", "refused": "no counter is free"},
        EVENT | {"name": "energy", "about": "used", "unit": "J", "pmu": "power", "open": ["r1"]},
        EVENT | {"name": "faults", "about": "page faults", "pmu": "software", "open": ["f", "g"]},
    ],
    "pmus": [{"pmu": "cpu", "type": None, "cpus": None},
             {"pmu": "power", "type": "E", "cpus": "4-7"}],
    "missing": [],
}  # fmt: skip
NO_EVENTS: Answer = {
    "events": [], "pmus": [],
    "missing": [{"why": "a guest", "fix": "use the host"}, {"why": "no PMU", "fix": ""}],
}  # fmt: skip

# --- ramp: runs of a chain on a CPU whose clock rises in steps

RISING = [(300e-6, 1.2e9), (4e-3, 2.4e9), (1.0, 3.0e9)]
LATE = [(0.3, 2e9), (1.0, 3e9)]
HALTS = [(1e-3, 20e-6), (0.1, 4e-3), (0.3, 400e-6)]


@cache
def _ramp_answers() -> dict[str, Answer]:
    rise = [run(RISING, HALTS, preempted=[1])] * 5
    counted = [run(RISING, HALTS, counter=1.0, running=[0])] * 5
    wide_phases = [{"isa": isa, "seconds": 0.1} for isa in ("avx2", "scalar", "avx2")]
    wide = {
        scalar_hz: run([(0.25, 3.0e9), (0.375, scalar_hz), (1.0, 3.0e9)],
                       [(0.2509, 20e-6), (0.3759, 40e-6)], phases=(0.25, 0.375))
        for scalar_hz in (2.7e9, 3.0e9)
    }  # fmt: skip
    unsure = chains.answer(*rise, virtualisation="KVM")
    unsure["tsc"] = unsure["tsc"] | {"invariant": None}
    return {
        "rise": chains.answer(*rise),
        "one-late": chains.answer(*rise[:4], run(LATE)),
        "unsteady": chains.answer(run(LATE), run([(0.3, 1.8e9), (1.0, 2.8e9)])),
        "guest": unsure,
        "disturbed": chains.answer(*[run(RISING, idle_s=0.1, steal_s=0.02)] * 5),
        "counted": chains.answer(*counted),
        "chain-agrees": chains.answer(*[run(RISING, HALTS, counter=1.008, running=[0, 1, 2])] * 5),
        "chain-differs": chains.answer(*[run(RISING, HALTS, counter=1.25)] * 5),
        "steps": chains.answer(*rise, step_cycles=None, uarch="unknown (X)"),
        "counted-steps": chains.answer(*counted, step_cycles=None),
        "wide": chains.answer(*[wide[2.7e9]] * 3, isa="avx2", phases=wide_phases),
        "wide-same": chains.answer(*[wide[3.0e9]] * 3, isa="avx2", phases=wide_phases),
        "bursts": chains.answer(*[run([*RISING[:-1], (0.2, 3e9), (0.21, 2e9), (1.0, 3e9)])] * 2),
        "one-run": chains.answer(run(RISING)),
    }


TEXTS: dict[str, tuple[Callable[..., list[str]], Answer]] = {
    "doctor": (doctor.doctor_lines, DOCTOR),
    "doctor-bare": (doctor.doctor_lines, BARE_DOCTOR),
    "doctor-no-sudo": (
        partial(doctor.doctor_lines, examined_machine=doctor.ExaminedMachine(program="/p/perftop")),
        DOCTOR,
    ),
    "selftest": (instruments.selftest_lines, SELFTEST),
    "selftest-all": (
        instruments.selftest_lines,
        SELFTEST | {"unchecked": [], "wrong": [], "checks": [], "instruments": INSTRUMENTS},
    ),
    "timers": (instruments.timers_lines, TIMERS),
    "timers-settled": (instruments.timers_lines, SETTLED_TIMERS),
    "timers-offsets": (instruments.timers_lines, MANY_OFFSETS),
    "wake": (instruments.wake_lines, WAKE),
    "wake-disturbed": (instruments.wake_lines, DISTURBED_WAKE),
    "wake-no-states": (instruments.wake_lines, STATELESS_WAKE),
    "events": (machine.event_lines, EVENTS),
    "events-none": (machine.event_lines, NO_EVENTS),
    "events-word": (partial(machine.event_lines, word="l3"), NO_EVENTS),
}
"""What formats each answer as lines, and the answer."""
RAMPS = ("rise", "one-late", "unsteady", "guest", "disturbed", "counted", "chain-agrees",
         "chain-differs", "steps", "counted-steps", "wide", "wide-same", "bursts",
         "one-run")  # fmt: skip


def text(name: str, width: int, *, unicode: bool) -> str:
    """The text that is printed on a terminal of this width; of ramps with colours, unless it is
    ASCII."""
    if name in TEXTS:
        draw, answer = TEXTS[name]
        lines = machine.draw_answer(answer, draw, width, unicode=unicode)
    else:
        answer, size = _ramp_answers()[name], os.terminal_size((width, 24))
        result = ramp_runs.summarise_runs(answer)
        lines = ramp.report_lines(answer, result, size, unicode=unicode, colour=unicode)
    return "\n".join(lines).replace("\x1b", "␛") + "\n"
