"""Answers of the probe as text, and the next command that doctor suggests."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import answers
import command
import json_page
import pytest
from roots import DATA
from waiting import MAX_WAIT_S

from perftop.verbs import doctor, instruments
from perftop.verbs.doctor import ExaminedMachine


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


@pytest.mark.parametrize(("machine", "rights", "module", "look"), [
    (ExaminedMachine(), "perftop --sudo", "sudo modprobe msr && perftop --sudo", "perftop why"),
    (ExaminedMachine(sudo=True), "perftop --sudo", "sudo modprobe msr && perftop --sudo",
     "perftop why --sudo"),
    (ExaminedMachine(root=True), "perftop", "modprobe msr && perftop", "perftop why"),
    (ExaminedMachine(program="/p/perftop"), "su -c /p/perftop",
     "su -c 'modprobe msr && /p/perftop'", "perftop why"),
    (ExaminedMachine(sysroot="/t", program="/p/perftop"), "su -c '/p/perftop --sysroot /t'",
     "su -c 'modprobe msr && /p/perftop --sysroot /t'", "perftop why --sysroot /t"),
    (ExaminedMachine(program="/p q/perftop"), shlex.join(["su", "-c", "'/p q/perftop'"]),
     shlex.join(["su", "-c", "modprobe msr && '/p q/perftop'"]), "perftop why"),
    (ExaminedMachine(sysroot="/t"), "perftop --sysroot /t --sudo",
     "sudo modprobe msr && perftop --sysroot /t --sudo", "perftop why --sysroot /t"),
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
    denied = check("MSRs", ROOT) | {"why": "not readable", "lost": "halts"}
    answer = answers.DOCTOR | {"checks": [denied]}
    assert f"fix: {rights}" in " ".join(
        doctor.doctor_lines(answer, 200, unicode=True, examined_machine=machine)
    )
    assert types(check("MSRs", "sudo modprobe msr")) == f"Type: {module}"
    assert types(check("MSRs")) == f"Type: {look}"


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
    assert "--sysroot" not in result.stdout
    answer = json.loads(command.run_in_process("doctor", "--json").stdout)
    assert {check["what"] for check in answer["checks"]} >= {"perf counters", "MSRs", "clock"}
    assert answer["source"] in {"os", "perf"}


@pytest.mark.parametrize("length", [1, 30, 75, 200])
def test_the_suggested_command_stays_on_one_line_so_that_it_can_be_copied(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)  # another user may have no sudo
    guest = tmp_path / ("x" * length)
    guest.symlink_to(DATA / "guest-epyc-2cpu")
    result = command.run_in_process("doctor", "--sysroot", str(guest))
    last = result.stdout.splitlines()[-1]
    assert last.startswith("Type: ")
    assert f"perftop --sysroot {guest}" in last


def test_timers_of_this_machine_are_printed() -> None:
    result = command.run_in_process("timers", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert not list(json_page.object_faults(answer, "timers", "timers"))
    for width in (80, 160):
        lines = instruments.timers_lines(answer, width, unicode=True)
        assert max(map(len, lines)) <= width
        for row in answer["methods"]:
            assert any(line.startswith(row["name"]) for line in lines)


def test_the_json_of_wake_matches_its_documentation() -> None:
    answer = json.loads(json.dumps(answers.WAKE))
    assert not list(json_page.object_faults(answer, "wake", "wake"))
