"""The doctor's answer, drawn."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import command

from perftop.verbs import doctor

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


def test_ascii() -> None:
    assert "\n".join(doctor.draw({**ANSWER, "host": "büro"}, unicode=False)).isascii()


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
