"""Output of doctor, timers, events and wake."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import command
import json_page
import pytest
from waiting import MAX_WAIT_S

from perftop.verbs import doctor, instruments, machine
from perftop.verbs.doctor import ExaminedMachine

ANSWER: dict[str, Any] = {
    "host": "n1", "model": "Xeon", "kernel": "6.1", "virtualisation": None,
    "checks": [
        {"what": "perf counters", "state": "not usable", "why": "needs " + "rights " * 30,
         "lost": "clock", "fix": "sudo sysctl x=0"},
        {"what": "clock", "state": "usable", "why": "tsc", "lost": None, "fix": None},
    ],
    "source": "os", "smt_method": None, "tsc_hz": None,
    "base_hz": {"hz": 2.1e9, "origin": "said so", "error": 1e-6},
    "multipliers": [{"counter": "one_thread", "factor": 84.0, "why": "CPUID 15H", "type": None}],
    "missing": [{"what": "ref", "why": "no rights", "fix": None, "cpus": None},
                {"what": "ipc", "why": "no rights", "fix": None, "cpus": None}],
}  # fmt: skip


def test_all_facts_are_on_lines_that_fit() -> None:
    for width in (80, 120):
        lines = doctor.doctor_lines(ANSWER, width)
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        for part in ("n1 · Xeon", "✗ perf counters", "without it: clock", "fix: sudo sysctl",
                     "✓ clock", "2100.000 MHz, said so, within 1.0 ppm", "x 84 TSC ticks",
                     "ref, ipc: no rights"):  # fmt: skip
            assert part in text


def check(what: str, fix: str | None = None, *, usable: bool = False) -> dict[str, Any]:
    return {"what": what, "state": "usable" if usable else "not usable", "fix": fix}


ROOT, PARANOID = "perftop --sudo", "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=0"
GUEST = "ask for a vPMU, or use a metal instance"
MACHINES = {
    "metal, a user": (
        [check("perf counters", PARANOID), check("MSRs", ROOT), check("idle transitions", ROOT)],
        "With root privileges, the probe also reads clock, IPC, halts, ceilings", "perftop --sudo",
    ),
    "metal, root, no module": (
        [check("perf counters", usable=True), check("MSRs", "sudo modprobe msr")],
        "This gives you ceilings", "sudo modprobe msr && perftop --sudo",
    ),
    "metal, root": ([check("perf counters", usable=True), check("MSRs", usable=True)],
                    "See what costs the most time.", "perftop why"),
    "guest, root": ([check("perf counters", GUEST), check("MSRs")],
                    f"For clock, IPC, halts: {GUEST}.", "perftop why"),
    "no /proc": ([check("/proc", "sudo mount -t proc proc /proc"), check("perf counters", GUEST),
                  check("idle transitions", usable=True)],
                 "This gives you utilisation", "sudo mount -t proc proc /proc && perftop --sudo"),
    "metal, root, a kernel without a PMU": (
        [check("perf counters"), check("MSRs", usable=True)],
        "--source msr gives you clock, IPC, halts: it programs registers and restores them",
        "perftop --source msr",
    ),
    "nothing helps": ([check("perf counters"), check("MSRs")],
                      "Nothing more is available here.", "perftop why"),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_the_doctor_ends_with_the_next_command(machine: str) -> None:
    checks, step, typed = MACHINES[machine]
    have, does, types = doctor.final_sentences({"checks": checks}, ExaminedMachine())
    assert have.startswith("You have ")
    assert does.startswith(step)
    assert types == f"Type: {typed}"


def test_the_doctor_names_available_metrics_only() -> None:
    limited = {**check("perf counters", usable=True), "state": "limited", "lost": "clock, halts"}
    have, *_ = doctor.final_sentences({"checks": [limited, check("idle transitions", usable=True)]},
                                ExaminedMachine())  # fmt: skip
    assert have == (
        "You have IPC, busy time to the microsecond, utilisation, steal, tasks and what they wait "
        "for; missing: clock, halts."
    )


@pytest.mark.parametrize(("machine", "rights", "module", "look"), [
    (ExaminedMachine(), "perftop --sudo", "sudo modprobe msr && perftop --sudo", "perftop why"),
    (ExaminedMachine(sudo=True), "perftop --sudo", "sudo modprobe msr && perftop --sudo",
     "perftop why --sudo"),
    (ExaminedMachine(root=True), "perftop", "modprobe msr && perftop", "perftop why"),
    (ExaminedMachine(program="/p q/perftop"), "su -c '/p q/perftop'",
     "su -c 'modprobe msr && /p q/perftop'", "perftop why"),
    (ExaminedMachine(sysroot="/t", root=True), "perftop --sysroot /t",
     "modprobe msr && perftop --sysroot /t", "perftop why --sysroot /t"),
    (ExaminedMachine("n7", "/x y"), "perftop --host n7 --remote '/x y' --sudo",
     "ssh -t n7 sudo modprobe msr && perftop --host n7 --remote '/x y' --sudo",
     "perftop why --host n7 --remote '/x y'"),
    (ExaminedMachine("root@n7", root=True), "perftop --host root@n7",
     "ssh -t root@n7 modprobe msr && perftop --host root@n7", "perftop why --host root@n7"),
])  # fmt: skip
def test_the_suggested_command_fits_the_user_and_the_machine(
    machine: ExaminedMachine, rights: str, module: str, look: str
) -> None:
    def types(*checks: dict[str, Any]) -> str:
        return doctor.final_sentences({"checks": checks}, machine)[-1]

    assert types(check("perf counters", PARANOID)) == f"Type: {rights}"
    assert types(check("MSRs", "sudo modprobe msr")) == f"Type: {module}"
    assert types(check("MSRs")) == f"Type: {look}"


def test_a_fix_does_not_use_sudo_where_it_is_missing() -> None:
    unreadable = check("MSRs", doctor.ROOT_COMMAND) | {"why": "not readable", "lost": ""}
    answer = {**ANSWER, "checks": [unreadable]}
    drawn = "\n".join(doctor.doctor_lines(answer, examined=ExaminedMachine(program="/p/perftop")))
    assert "fix: su -c /p/perftop" in drawn
    assert doctor.ROOT_COMMAND not in drawn


def test_the_doctor_can_print_ascii() -> None:
    answer = {**ANSWER, "host": "büro"}
    assert "\n".join(machine.draw_answer(answer, doctor.doctor_lines, unicode=False)).isascii()


def test_a_terminal_that_supports_only_ascii_gets_ascii() -> None:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    result = subprocess.run(
        command.argv("doctor"), capture_output=True, check=False, timeout=MAX_WAIT_S,
        env=os.environ | plain,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.isascii()


def test_the_doctor_reports_on_this_machine() -> None:
    result = command.run_in_process("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    assert "perf counters" in result.stdout
    answer = json.loads(command.run_in_process("doctor", "--json").stdout)
    assert {check["what"] for check in answer["checks"]} >= {"perf counters", "MSRs", "clock"}
    assert answer["source"] in {"os", "perf"}


# --- timers


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
TIMERS: dict[str, Any] = {
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
    "▁ █", "0.12 % outliers", "none: may move", "not stated", "2300.000000 MHz, within 0.12 ppm",
    "no: it may follow", "24.5 ticks", "CPU 1", "+71 ± 267 ticks (+31 ± 116 ns)",
    "n/a: it did not answer", "5 more CPUs", "10 %: others ran", "lowest and the highest 5 %",
    "MONOTONIC: 8 calls per sample: least, median and σ are those of the samples' means",
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 120, 160])
def test_all_facts_about_timers_are_on_lines_that_fit(width: int) -> None:
    lines = instruments.timers_lines(TIMERS, width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for fact in FACTS:
        assert " ".join(fact.split()) in text, fact
    assert [line for line in lines if line.endswith(" *")] == [
        line for line in lines if line.startswith("cpuid;rdtsc") and "18066" in line
    ]


@pytest.mark.parametrize(("share", "text"), [
    (0.0, "112888"), (1.2e-6, "<0.001 % outliers"), (1.2e-5, "0.0012 % outliers"), (1.0, "1e+02 %"),
])  # fmt: skip
def test_a_share_of_outliers_fits(share: float, text: str) -> None:
    histogram = {"first_ticks": 88_888.0, "width_ticks": 1000.0, "counts": [1] * 24}
    methods = [method("cpuid;rdtsc", far=share, histogram=histogram)]
    lines = instruments.timers_lines(TIMERS | {"methods": methods}, 80)
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if "▁" in line or "█" in line]
    assert text in line


@pytest.mark.parametrize("width", [80, 112])
def test_columns_do_not_touch(width: int) -> None:
    fine = method("cpuid;rdtsc", settled=False, mean_ns=5873.9, sigma_ns=5873.9, step_ns=0.385)
    lines = instruments.timers_lines(TIMERS | {"methods": [fine]}, width)
    row = next(line for line in lines if line.startswith("cpuid;rdtsc"))
    assert row.split()[-4:] == ["5873.9", "0.385", "ns", "*"]
    assert max(map(len, lines)) <= width


def test_timers_can_be_printed_in_ascii() -> None:
    text = "\n".join(machine.draw_answer(TIMERS, instruments.timers_lines, unicode=False))
    assert text.isascii()
    assert "?" not in text
    assert "+71 +- 267 ticks" in text


def test_many_cpus_are_side_by_side() -> None:
    first = TIMERS["offsets"][0]
    many = [first | {"cpu": n} for n in range(1, 64)]
    lines = instruments.timers_lines(TIMERS | {"offsets": many}, 160)
    matching_lines = [line for line in lines if "± 267 ticks" in line]
    assert len(matching_lines) <= 21
    assert sum(line.count("± 267 ticks") for line in matching_lines) == 63
    assert max(map(len, matching_lines)) <= 160


def test_timers_of_a_single_cpu_are_printed() -> None:
    text = "\n".join(instruments.timers_lines(TIMERS | {"offsets": [], "disturbances": []}))
    assert "perftop may run on one CPU only" in text
    assert "no disturbance was seen" in text


def test_timers_of_this_machine_are_printed() -> None:
    result = command.run_in_process("timers", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert not list(json_page.object_faults(answer, "timers", "timers"))
    for width in (80, 160):
        lines = instruments.timers_lines(answer, width)
        assert max(map(len, lines)) <= width
        for row in answer["methods"]:
            assert any(line.startswith(row["name"]) for line in lines)


# --- events


def test_events_are_listed_below_their_pmus() -> None:
    row: dict[str, Any] = {
        "name": "l1-hits", "about": "hits", "unit": "1", "scale": 1.0, "pmu": "cpu", "type": None,
        "open": [],
    }  # fmt: skip
    other = row | {"name": "energy", "about": "used", "unit": "J", "pmu": "power", "open": ["r1"]}
    pmus = [
        {"pmu": "cpu", "type": None, "cpus": None},
        {"pmu": "power", "type": "E", "cpus": "4-7"},
    ]
    answer: dict[str, Any] = {"events": [row, other], "pmus": pmus, "missing": []}
    assert machine.event_lines(answer) == [
        "cpu: every CPU", f"  {'l1-hits':<25} hits",
        "", "power: E cores, CPUs 4-7", f"  {'energy':<25} used, in J (open: r1)",
    ]  # fmt: skip


@pytest.mark.parametrize(("word", "missing", "lines"), [
    ("", [], ["no event here"]),
    ("l3", [], ["no event here with 'l3' in its name or description"]),
    ("", [{"why": "a guest", "fix": "use the host"}],
     ["no event here", "", "not here: events of cores - a guest; use the host"]),
    ("", [{"why": "a guest", "fix": ""}],
     ["no event here", "", "not here: events of cores - a guest"]),
])  # fmt: skip
def test_without_events_the_reason_and_the_fix_are_listed(
    word: str, missing: list[dict[str, str]], lines: list[str]
) -> None:
    answer: dict[str, Any] = {"events": [], "pmus": [], "missing": missing}
    assert machine.event_lines(answer, word=word) == lines


# --- the text output of `perftop wake`, from a response of the probe


def row(kind: str, deepest: str | None, median: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind, "deepest": deepest, "entered": {"C6": 1.0}, "idle_entries": 400,
        "samples": 400, "least_us": 4.0, "median_us": median, "p95_us": 2 * median,
        "p99_us": 3 * median, "most_us": 90.5, "mean_us": median,
        "histogram": {"first_us": 4, "width_us": 2, "counts": [1, 300, 80, 5], "beyond": 14},
    } | more  # fmt: skip


METAL: dict[str, Any] = {
    "host": "n1", "model": "Xeon", "kernel": "6.18", "virtualisation": None, "cpu": 3, "waker": 0,
    "waker_why": None, "driver": "intel_idle", "governor": "menu", "states_why": None,
    "states": [{"name": "POLL", "latency_us": 0}, {"name": "C6", "latency_us": 170}],
    "pause_s": 0.002, "disturbances": [], "elapsed_s": 5.1,
    "rows": [row("timer", None, 180.0), row("timer", "POLL", 5.0), row("another CPU", None, 160.0)],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 160])
def test_the_result_comes_first_with_its_meaning(width: int) -> None:
    lines = instruments.wake_lines(METAL, width)
    assert max(map(len, lines)) <= width
    assert (
        lines[0] == "A wake-up of CPU 3 takes 180 µs by a timer and 160 µs by another CPU (median)."
    )
    text = " ".join(" ".join(lines).split())
    assert "1.8 % at 100 a second, 18.0 % at 1,000 a second, 100.0 % at 10,000 a second" in text
    assert "POLL (0 µs), C6 (170 µs)" in text
    assert "hypervisor" not in text
    assert "Repeat it at rest" not in text


@pytest.mark.parametrize(("changes", "expected_text"), [
    ({"virtualisation": "kvm"}, "a halt returns to the hypervisor"),
    ({"rows": [row("timer", None, 180.0, idle_entries=40)]}, "was idle before only 10 %"),
    ({"states_why": "/dev/cpu_dma_latency: Permission denied"}, "not measured one by one: /dev"),
    ({"waker": None, "waker_why": "one core only"}, "No wake-up from another CPU: one core"),
])  # fmt: skip
def test_limits_of_the_measurement_are_reported(
    changes: dict[str, Any], expected_text: str
) -> None:
    assert expected_text in " ".join(" ".join(instruments.wake_lines(METAL | changes, 80)).split())


def test_the_json_matches_its_documentation() -> None:
    assert not list(json_page.object_faults(json.loads(json.dumps(METAL)), "wake", "wake"))
