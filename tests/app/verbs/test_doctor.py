"""The doctor's answer, drawn."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import command
import pytest

from perftop.verbs import doctor, machine
from perftop.verbs.doctor import Asked

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


def test_every_fact_is_on_a_line_that_fits() -> None:
    for width in (80, 120):
        lines = doctor.draw(ANSWER, width)
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
        "Root's rights for the probe give you clock, IPC, halts, ceilings", "perftop --sudo",
    ),
    "metal, root, no module": (
        [check("perf counters", usable=True), check("MSRs", "sudo modprobe msr")],
        "This gives you ceilings", "sudo modprobe msr && perftop --sudo",
    ),
    "metal, root": ([check("perf counters", usable=True), check("MSRs", usable=True)],
                    "Look at what costs most.", "perftop why"),
    "guest, root": ([check("perf counters", GUEST), check("MSRs")],
                    f"For clock, IPC, halts: {GUEST}.", "perftop why"),
    "no /proc": ([check("/proc", "sudo mount -t proc proc /proc"), check("perf counters", GUEST),
                  check("idle transitions", usable=True)],
                 "This gives you utilisation", "sudo mount -t proc proc /proc && perftop --sudo"),
    "metal, root, a kernel without a PMU": (
        [check("perf counters"), check("MSRs", usable=True)],
        "Registers can give you clock, IPC, halts: perftop programs and restores them",
        "perftop --source msr",
    ),
    "nothing helps": ([check("perf counters"), check("MSRs")],
                      "Nothing more is available here.", "perftop why"),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_it_ends_with_the_next_step(machine: str) -> None:
    checks, step, typed = MACHINES[machine]
    have, does, types = doctor.sentences({"checks": checks}, Asked())
    assert have.startswith("You have ")
    assert does.startswith(step)
    assert types == f"Type: {typed}"


@pytest.mark.parametrize(("asked", "rights", "module", "look"), [
    (Asked(), "perftop --sudo", "sudo modprobe msr && perftop --sudo", "perftop why"),
    (Asked(sudo=True), "perftop --sudo", "sudo modprobe msr && perftop --sudo",
     "perftop why --sudo"),
    (Asked(root=True), "perftop", "modprobe msr && perftop", "perftop why"),
    (Asked(program="/p q/perftop"), "su -c '/p q/perftop'",
     "su -c 'modprobe msr && /p q/perftop'", "perftop why"),
    (Asked(sysroot="/t", root=True), "perftop --sysroot /t",
     "modprobe msr && perftop --sysroot /t", "perftop why --sysroot /t"),
    (Asked("n7", "/x y"), "perftop --host n7 --remote '/x y' --sudo",
     "ssh -t n7 sudo modprobe msr && perftop --host n7 --remote '/x y' --sudo",
     "perftop why --host n7 --remote '/x y'"),
    (Asked("root@n7", root=True), "perftop --host root@n7",
     "ssh -t root@n7 modprobe msr && perftop --host root@n7", "perftop why --host root@n7"),
])  # fmt: skip
def test_the_command_fits_the_user_and_the_machine(
    asked: Asked, rights: str, module: str, look: str
) -> None:
    def types(*checks: dict[str, Any]) -> str:
        return doctor.sentences({"checks": checks}, asked)[-1]

    assert types(check("perf counters", PARANOID)) == f"Type: {rights}"
    assert types(check("MSRs", "sudo modprobe msr")) == f"Type: {module}"
    assert types(check("MSRs")) == f"Type: {look}"


def test_ascii() -> None:
    answer = {**ANSWER, "host": "büro"}
    assert "\n".join(machine.drawn(answer, doctor.draw, unicode=False)).isascii()


def test_a_terminal_that_takes_ascii_alone() -> None:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        command.argv("doctor"), capture_output=True, check=False, timeout=command.TIMEOUT_S,
        env=os.environ | plain,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_on_this_machine() -> None:
    done = command.here("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert "perf counters" in done.stdout
    answer = json.loads(command.here("doctor", "--json").stdout)
    assert {check["what"] for check in answer["checks"]} >= {"perf counters", "MSRs", "clock"}
    assert answer["source"] in {"os", "perf"}
