"""What matters to benchmarks, on trees that say so: what is not said is unknown, not good."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees

from perfprobe.instruments import doctor
from perfprobe.instruments.doctor import Item

CPUS = "sys/devices/system/cpu"


def item(root: Path, what: str) -> Item:
    (found,) = [i for i in doctor.items(root) if i.what == what]
    return found


def test_nothing_is_said(tmp_path: Path) -> None:
    states = {i.what: i.state for i in doctor.items(tmp_path)}
    assert states.pop("hypervisor") == "ready"
    assert states.pop("isolated CPUs") == "matters"
    assert set(states.values()) == {"unknown"}


CASES = [
    ("governor", {f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance\n"}, "ready"),
    ("governor", {f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave\n"}, "matters"),
    ("turbo", {f"{CPUS}/intel_pstate/no_turbo": "1\n"}, "ready"),
    ("turbo", {f"{CPUS}/intel_pstate/no_turbo": "0\n"}, "matters"),
    ("turbo", {f"{CPUS}/cpufreq/boost": "0\n"}, "ready"),
    ("turbo", {f"{CPUS}/cpufreq/boost": "1\n"}, "matters"),
    ("SMT", {f"{CPUS}/smt/active": "0\n"}, "ready"),
    ("SMT", {f"{CPUS}/smt/active": "1\n"}, "matters"),
    ("isolated CPUs", {f"{CPUS}/isolated": "2-3\n"}, "ready"),
    ("isolated CPUs", {f"{CPUS}/isolated": "\n", f"{CPUS}/nohz_full": "2-3\n"}, "matters"),
    ("SMT", {f"{CPUS}/smt/active": "0\n", "proc/cpuinfo": "flags : hypervisor\n"}, "unknown"),
    ("isolated CPUs", {f"{CPUS}/isolated": "\n", f"{CPUS}/nohz_full": "(null)\n"}, "matters"),
    ("NMI watchdog", {"proc/sys/kernel/nmi_watchdog": "0\n"}, "ready"),
    ("NMI watchdog", {"proc/sys/kernel/nmi_watchdog": "1\n"}, "matters"),
    ("timer slack", {"proc/self/timerslack_ns": "50000\n"}, "matters"),
    ("timer slack", {"proc/self/timerslack_ns": "1\n"}, "ready"),
    ("hypervisor", {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n"}, "matters"),
    ("other load", {"proc/loadavg": "0.10 0 0\n", f"{CPUS}/online": "0-7\n"}, "ready"),
    ("other load", {"proc/loadavg": "3.0 0 0\n", f"{CPUS}/online": "0-7\n"}, "matters"),
    ("other load", {"proc/loadavg": "nonsense\n", f"{CPUS}/online": "0-7\n"}, "unknown"),
]


@pytest.mark.parametrize(("what", "files", "state"), CASES)
def test_states(tmp_path: Path, what: str, files: dict[str, str], state: str) -> None:
    for name, text in files.items():
        trees.put(tmp_path, name, text)
    found = item(tmp_path, what)
    assert found.state == state
    assert (found.change is not None) == (state == "matters")
    assert found.change is None or found.effect


def test_governors_that_differ_are_named_with_their_cpus(tmp_path: Path) -> None:
    for cpu, name in enumerate(("performance", "performance", "powersave")):
        trees.put(tmp_path, f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor", name)
    found = item(tmp_path, "governor")
    assert found.state == "matters"
    assert found.now == "performance on CPUs 0-1, powersave on CPUs 2"


@pytest.mark.parametrize(("file", "now", "then"), [
    ("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0"),
])  # fmt: skip
def test_turbo_is_switched_where_it_was_found(
    tmp_path: Path, file: str, now: str, then: str
) -> None:
    trees.put(tmp_path, f"{CPUS}/{file}", now)
    assert item(tmp_path, "turbo").change == f"echo {then} | sudo tee /{CPUS}/{file}"


def test_slack_is_told_in_microseconds(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/self/timerslack_ns", "50000\n")
    assert item(tmp_path, "timer slack").now == "50 µs"
