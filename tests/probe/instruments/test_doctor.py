"""The checks of `doctor` on trees of files. Every refusal has a reason, and a fix if one works for
Python programs.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import fakeperf
import pytest
import trees

from perfprobe.cpu import topology
from perfprobe.instruments import disturbance, doctor
from perfprobe.instruments.disturbance import State
from perfprobe.instruments.doctor import Check
from perfprobe.kernel import access
from perfprobe.programming import journal
from perfprobe.registers import msr
from perfprobe.wire import Missing


def check(root: Path, subject: str) -> Check:
    (result,) = [c for c in doctor.checks(root) if c.what == subject]
    return result


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Makes the files of a bare-metal machine with a PMU, for an unprivileged user."""
    trees.write_machine(tmp_path, 2)
    trees.put(tmp_path, "proc/cpuinfo", "processor : 0\nflags : fpu tsc constant_tsc nonstop_tsc\n")
    trees.put(tmp_path, "proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n")
    trees.put(tmp_path, "sys/bus/event_source/devices/cpu/type", "4\n")
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    return tmp_path


def test_perf_event_paranoid_is_named_with_level_and_fix(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # the user is root in a container
    fix = check(tree, "perf counters").fix
    assert fix == "give root CAP_PERFMON here, or start perftop outside the container"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    verdict = check(tree, "perf counters")
    assert verdict.state == "not usable"
    assert "it is 2" in verdict.why
    assert verdict.fix == "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=0"
    trees.put(tree, "proc/sys/kernel/perf_event_paranoid", "0\n")
    verdict = check(tree, "perf counters")
    assert (verdict.state, verdict.why) == ("usable", "core PMU cpu; perf_event_paranoid 0")
    trees.put(tree, "proc/self/status", "CapEff:\t0000000000000000\nSeccomp:\t2\n")
    verdict = check(tree, "perf counters")
    assert verdict.state == "limited"
    assert verdict.fix == "allow perf_event_open in the container's seccomp profile"


@pytest.mark.parametrize(
    ("capabilities", "state"),
    [("0000004000000000", "usable"), ("0000000000200000", "usable"),
     ("0000008000000000", "not usable"), ("nonsense", "not usable")],
)  # fmt: skip
def test_perf_counters_need_a_capability(tree: Path, capabilities: str, state: str) -> None:
    """The sets have CAP_PERFMON, CAP_SYS_ADMIN, only CAP_BPF, and garbage."""
    trees.put(tree, "proc/self/status", f"CapEff:\t{capabilities}\n")
    result = check(tree, "perf counters")
    assert result.state == state
    assert result.why == "core PMU cpu; CAP_PERFMON" or state == "not usable"


def test_a_directory_without_cpus_is_not_usable(tmp_path: Path) -> None:
    assert check(tmp_path, "CPUs").state == "not usable"
    assert check(tmp_path, "CPUs").why == f"none can be found under {tmp_path}"


@pytest.mark.parametrize(("allowed", "state", "why"), [
    ({0, 1}, "usable", "2 online; perftop may run on all of them"),
    ({1}, "limited", "CPUs 0 are outside perftop's CPU set"),
    (set[int](), "limited", "CPUs 1 are outside perftop's CPU set"),
])  # fmt: skip
def test_cpus_outside_the_cpu_set_are_named(
    tree: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[int], state: str, why: str
) -> None:
    """If /proc does not show the CPU set, the system call does."""
    rows = topology.read_cpus(tree)
    monkeypatch.setattr(topology, "read_cpus", lambda _: rows)
    monkeypatch.setattr(access, "allowed_cpus", lambda _: allowed)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    (result,) = doctor._cpu_and_proc_checks(Path("/"))
    assert (result.what, result.state, result.why) == ("CPUs", state, why)


def test_counters_that_a_killed_perftop_left_are_named(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {"a": None, "b": Mock(pid=7, path="/run/b"), "c": Mock(pid=9, path="/run/c")}
    monkeypatch.setattr(journal, "directories", lambda: [*entries])
    monkeypatch.setattr(journal, "stale_entry", lambda path, *_: entries[path])
    result = check(tree, "MSRs")
    assert (result.state, result.fix) == (
        "limited", "the next perftop --source msr restores them",
    )  # fmt: skip
    assert result.why == ("a killed perftop (pid 7, 9) left counters programmed (saved in /run/b)")


def test_tracing_is_tried(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(tree, "idle transitions").why == "not with --sysroot"
    monkeypatch.setattr(doctor, "IdleTrace", Mock())
    assert doctor._trace_check(Path("/")).state == "usable"
    monkeypatch.setattr(doctor, "IdleTrace", Mock(side_effect=OSError(errno.ENOSYS, "no bpf")))
    result = doctor._trace_check(Path("/"))
    assert (result.state, result.why, result.fix) == ("not usable", "no bpf", None)


@pytest.mark.parametrize(("keys", "state", "lost"), [
    ({"ref", "cycles", "instructions"}, "usable", None),
    ({"cycles", "instructions"}, "limited", "clock, halts"),
    ({"cycles", "instructions", "aperf", "mperf"}, "limited", "halts"),
    (set[str](), "not usable", "clock, IPC, halts"),
])  # fmt: skip
def test_the_perf_check_depends_on_which_counters_worked(
    keys: set[str], state: str, lost: str | None
) -> None:
    result = Check("perf counters", "usable", "core PMU cpu")
    missing = [Missing("ref", "no fixed counter", "another CPU", [1]),
               Missing("ref", "no counter", "none")]  # fmt: skip
    tried = doctor.perf_check_of_stream(result, keys, missing)
    assert (tried.state, tried.lost) == (state, lost)
    if lost:
        assert (tried.why, tried.fix) == ("core PMU cpu; ref: no counter", "none")
        missing += [Missing("cycles", "in use", "stop it"), Missing("mperf", "no counter", "none")]
        both = doctor.perf_check_of_stream(result, set(), missing)
        assert both.why == "core PMU cpu; ref, mperf: no counter; cycles: in use"
        assert both.fix == "none; stop it"
    refused = Check("perf counters", "not usable", "forbidden")
    assert doctor.perf_check_of_stream(refused, keys, missing) == refused


def test_msr_module_lockdown_and_refused_writes(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = check(tree, "MSRs")
    assert (verdict.state, verdict.fix) == ("not usable", "sudo modprobe msr")
    trees.put(tree, "dev/cpu/0/msr", "")
    assert "neither the msr driver's" in check(tree, "MSRs").why
    monkeypatch.setattr(msr, "_is_driver", lambda *_: True)
    assert check(tree, "MSRs").state == "usable"
    trees.put(tree, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    verdict = check(tree, "MSRs")
    assert (verdict.state, verdict.lost) == ("limited", "--source msr")
    assert verdict.why == "readable, not writable: kernel lockdown"
    trees.put(tree, "sys/module/msr/parameters/allow_writes", "off\n")
    verdict = check(tree, "MSRs")
    assert verdict.why == "readable, not writable: msr.allow_writes=off"
    assert verdict.fix == "echo on | sudo tee /sys/module/msr/parameters/allow_writes"


def test_the_watchdog_holds_a_counter(tree: Path) -> None:
    assert check(tree, "NMI watchdog").state == "usable"
    trees.put(tree, "proc/sys/kernel/nmi_watchdog", "1\n")
    verdict = check(tree, "NMI watchdog")
    assert (verdict.state, verdict.fix) == ("limited", "sudo sysctl kernel.nmi_watchdog=0")


def test_idle_and_cpufreq_drivers_are_named(tree: Path) -> None:
    assert check(tree, "idle states").state == "limited"
    assert check(tree, "cpufreq").state == "not usable"
    trees.put(tree, f"{trees.CPU}/cpuidle/current_driver", "intel_idle\n")
    trees.put(tree, f"{trees.CPU}/cpu0/cpufreq/scaling_driver", "intel_pstate\n")
    trees.put(tree, f"{trees.CPU}/cpu0/cpufreq/scaling_governor", "performance\n")
    assert check(tree, "idle states").why == "cpuidle driver intel_idle"
    assert check(tree, "cpufreq").why == "driver intel_pstate, governor performance"


@pytest.mark.parametrize(
    ("options", "status", "hidden"),
    [("rw", "", False), ("rw,hidepid=0", "", False), ("rw,hidepid=off", "", False),
     ("rw,hidepid=1", "", True), ("rw,hidepid=2,gid=27", "", True), ("hidepid=invisible", "", True),
     ("rw,hidepid=2", "CapEff:\t0000000000080000\n", False),
     ("rw,gid=27,hidepid=2", "Groups:\t4 27 1000 \n", False),
     ("rw,hidepid=2", "Gid:\t1000\t0\t0\t0\n", False),
     ("rw,gid=27,hidepid=ptraceable", "Groups:\t4 27 1000 \n", True)],
)  # fmt: skip
def test_hidden_processes_limit_tasks(tree: Path, options: str, status: str, hidden: bool) -> None:
    """Tests which processes /proc with these mount options shows to a user, to CAP_SYS_PTRACE and
    to a group."""
    assert (check(tree, "tasks").state, check(tree, "tasks").fix) == ("not usable", None)
    trees.put(tree, "proc/1/stat", "")
    lines = (
        "21 27 0:20 / /proc rw,relatime shared:5 - proc proc rw,hidepid=2\n"
        f"22 21 0:21 / /proc rw,relatime shared:5 - proc proc {options}\n"
        "23 21 0:22 / /proc/sys rw - proc proc rw,hidepid=2\n"
        "garbage\n"
    )
    trees.put(tree, "proc/self/mountinfo", lines)
    if status:
        trees.put(tree, "proc/self/status", status)
    verdict = check(tree, "tasks")
    assert verdict.state == ("limited" if hidden else "usable")
    if hidden:
        assert verdict.why.endswith(next(o for o in options.split(",") if o.startswith("hidepid")))
        assert "remount,hidepid=0" in (verdict.fix or "")


def test_a_pid_namespace_hides_the_rest(tree: Path) -> None:
    trees.put(tree, "proc/1/stat", "")
    (tree / "proc/self/ns").mkdir()
    link = tree / "proc/self/ns/pid"
    link.symlink_to("pid:[4026531836]")
    assert check(tree, "tasks").state == "usable"
    link.unlink()
    link.symlink_to("pid:[4026532201]")
    verdict = check(tree, "tasks")
    assert (verdict.state, verdict.fix) == ("limited", "start perftop outside the container")


def test_every_check_has_one_name_and_every_refusal_names_the_lost_values(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On an empty tree every check fails, and none raises an error."""
    refusals = doctor.checks(tmp_path_factory.mktemp("empty"))
    assert [result.what for result in refusals] == [result.what for result in doctor.checks(tree)]
    for result in refusals:
        assert result.why
        assert (result.state == "usable") == (result.lost is None)
        assert "setcap" not in (result.fix or "")


def test_memory_controllers_are_named(tree: Path) -> None:
    assert "no memory controllers" in check(tree, "memory bandwidth").why
    for i in (0, 1):
        fakeperf.write_pmu(tree, f"uncore_imc_{i}", 40 + i, mask="0")
        fakeperf.write_events(tree, f"uncore_imc_{i}", form="config:0-7")
        for what in ("read", "write"):
            at = f"{fakeperf.DEVICES}/uncore_imc_{i}/events/cas_count_{what}"
            for end, text in (("", "event=4"), (".unit", "MiB"), (".scale", "6.1e-5")):
                trees.put(tree, at + end, text)
    verdict = check(tree, "memory bandwidth")
    assert verdict.state == "not usable"
    assert "it is 2" in verdict.why
    trees.put(tree, "proc/sys/kernel/perf_event_paranoid", "0\n")
    verdict = check(tree, "memory bandwidth")
    assert (verdict.state, verdict.why) == ("usable", "PMU uncore_imc_0 to uncore_imc_1")


# --- readiness ------------------------------------------------------------------------------------


CPUS = "sys/devices/system/cpu"


def item(root: Path, subject: str) -> State:
    return disturbance.condition_states(root)[subject]


@pytest.mark.parametrize(("flags", "state", "text"), [
    ("constant_tsc nonstop_tsc", "usable", "clocksource tsc; TSC invariant"),
    ("constant_tsc", "limited", "clocksource tsc; TSC not known to be invariant"),
    ("", "limited", "clocksource unknown; TSC not known to be invariant"),
])  # fmt: skip
def test_the_clock_is_usable_if_its_tsc_is_invariant(
    tmp_path: Path, flags: str, state: str, text: str
) -> None:
    trees.put(tmp_path, "proc/cpuinfo", f"flags : {flags}\n")
    trees.put(tmp_path, CLOCK_SOURCE, "tsc\n" if flags else "")
    clock = check(tmp_path, "clock")
    assert (clock.state, clock.why) == (state, text)


CLOCK_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
CASES = [
    ("governor", {f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance\n"}, "ready"),
    ("governor", {f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave\n"}, "matters"),
    ("turbo", {f"{CPUS}/intel_pstate/no_turbo": "1\n"}, "ready"),
    ("turbo", {f"{CPUS}/cpufreq/boost": "0\n"}, "ready"),
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
    ("other load", {"proc/loadavg": "0.79 0 0\n", f"{CPUS}/online": "0-7\n"}, "ready"),
    ("other load", {"proc/loadavg": "0.80 0 0\n", f"{CPUS}/online": "0-7\n"}, "matters"),
    *(("CPU mask", {"proc/self/status": f"Cpus_allowed_list:\t{mask}\n",
                    f"{CPUS}/online": "0-7\n"}, state)
      for mask, state in (("0-7", "ready"), ("2-3", "matters"), ("x", "unknown"))),
    ("CPU quota", {"proc/self/stat": "7 (sh)\n"}, "ready"),
    ("CPU quota", {
        "proc/self/stat": "7 (sh)\n",
        "proc/7/cgroup": "0::/job\n",
        "proc/self/mountinfo": "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/job/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/job/cpu.stat": "nr_periods 1\nnr_throttled 0\nthrottled_usec 0\n",
    }, "matters"),
    ("clock source", {CLOCK_SOURCE: "tsc\n"}, "ready"),
    ("clock source", {CLOCK_SOURCE: "hpet\n"}, "matters"),
    ("other load", {"proc/loadavg": "nonsense\n", f"{CPUS}/online": "0-7\n"}, "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "files", "state"), CASES)
def test_each_condition_has_its_state(
    tmp_path: Path, condition: str, files: dict[str, str], state: str
) -> None:
    for name, text in files.items():
        trees.put(tmp_path, name, text)
    result = item(tmp_path, condition)
    assert result.state == state
    assert (result.change is not None) == (state == "matters")
    assert result.change is None or result.effect


def test_governors_that_differ_are_named_with_their_cpus(tmp_path: Path) -> None:
    for cpu, name in enumerate(("performance", "performance", "powersave")):
        trees.put(tmp_path, f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor", name)
    result = item(tmp_path, "governor")
    assert result.state == "matters"
    assert result.now == "performance on CPUs 0-1, powersave on CPUs 2"


@pytest.mark.parametrize(("file", "now", "then"), [
    ("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0"),
])  # fmt: skip
def test_the_turbo_fix_uses_the_file_that_exists(
    tmp_path: Path, file: str, now: str, then: str
) -> None:
    trees.put(tmp_path, f"{CPUS}/{file}", now)
    result = item(tmp_path, "turbo")
    assert (result.state, bool(result.effect)) == ("matters", True)
    assert result.change == f"echo {then} | sudo tee /{CPUS}/{file}"
