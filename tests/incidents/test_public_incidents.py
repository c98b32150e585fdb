"""Public incidents in which CPU time was lost, the answer of perftop in each, and the test that
proves it. The tests below check that the tests and causes in the table exist, and how many
incidents have a named cause.

An answer is `size` if the cause is named with the share of the time, or of the clock, that it
costs; `clue` if the cause is named without a size; `loss` if only the loss is shown; `none` if
perftop reports nothing.

Samples of the kernel's stacks give the time in its functions. A staged job proves that time; the
stacks by which a lock, a clock source and a mitigation are recognised are made up. The share of a
lock is the time spent spinning, a lower bound: moving the lock between CPUs costs more."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from perftop.model.kinds import CAUSES, KERNEL_WORK, KINDS, kind_of_cause

TESTS = Path(__file__).parent.parent
WHY, WAITING = "app/output/test_why.py", "app/output/test_waiting.py"
STAGED = "incidents/test_staged.py"
IN_KERNEL = (
    f"{WHY}::test_a_clue_from_samples_of_the_kernel_has_its_share_and_its_process",
    f"{STAGED}::test_samples_of_the_kernel_take_the_share_of_the_jobs_own_clock",
    "probe/kernel/test_profile.py::test_a_stack_has_the_kind_and_function_of_its_work",
)
SETTING = f"{WHY}::test_a_slow_setting_costs_no_more_than_its_calls_in_the_kernel"
DETECT = "app/detect"
CLOCKS = f"{DETECT}/test_low_clock_causes.py"
MIN_NAMED_WITH_SIZE = 26


@dataclass(frozen=True)
class Incident:
    number: int
    what: str
    answer: Literal["size", "clue", "loss", "none"]
    cause: str
    """Kind and cause of the finding, or of the samples of the kernel after `kernel`."""
    owner: str
    """The task or group that the answer names."""
    proofs: tuple[str, ...]
    """File and function of each test."""


INCIDENTS = (
    Incident(1, "AVX-512 code lowers the clock of others", "size", "turbo-drop license",
             "wide SIMD code, with its level and CPUs",
             (f"{WHY}::test_the_scripted_cause_is_first",
              f"{CLOCKS}::test_counters_name_each_cause")),
    Incident(2, "thermal paste and a VRM limit, 402 s for 161", "size", "throttle thermal",
             "heat, or the voltage regulator, of a package",
             (f"{WHY}::test_the_scripted_cause_is_first",
              f"{CLOCKS}::test_counters_name_each_cause")),
    Incident(3, "a broken board asserts PROCHOT", "size", "turbo-drop prochot",
             "a signal from outside the CPU, as its cores are cool",
             (f"{CLOCKS}::test_prochot_on_a_cool_cpu_is_external",)),
    Incident(4, "an unplugged power supply, the board throttles", "size", "turbo-drop prochot",
             "a signal from outside the CPU: the power supply or the BMC",
             (f"{CLOCKS}::test_prochot_on_a_cool_cpu_is_external",
              f"{DETECT}/test_throttles.py::test_status_bits_name_the_cause_and_the_cpus")),
    Incident(5, "200 MHz at 65 °C", "size", "turbo-drop prochot",
             "a signal from outside the CPU, as its cores are cool",
             (f"{CLOCKS}::test_prochot_on_a_cool_cpu_is_external",)),
    Incident(6, "thermald lowers the power limits", "size", "turbo-drop power-pl1",
             "who may have lowered the limit: the managers that run, by PID",
             ((f"{DETECT}/test_turbo_drops.py::"
              "test_a_power_limit_that_is_lowered_at_run_time_is_reported"),
              f"{WHY}::test_a_lowered_power_limit_hints_at_running_power_managers")),
    Incident(7, "idle injection, a job at 45 % of a core", "size", "neighbour idle-injection",
             "idle_inject, as the task that ran there",
             (f"{WAITING}::test_a_kernel_thread_is_named_by_its_function",)),
    Incident(8, "600 MHz for ever on an APU2", "loss", "turbo-drop unknown",
             "nobody: the P-state limit of the CPU is evidence, who set it is not known",
             (f"{CLOCKS}::test_the_p_state_limit_of_amd_is_evidence_but_not_a_cause",)),
    Incident(9, "ondemand climbs slowly", "size", "turbo-drop governor",
             "the governor, with the time of each climb",
             (f"{CLOCKS}::test_a_governor_is_named_if_no_limit_was_seen",
              f"{DETECT}/test_truth.py::test_all_ramps_are_detected_and_no_others")),
    Incident(10, "schedutil of Linux 6.8 keeps clocks low", "size", "turbo-drop governor",
             "the governor, as no limit was seen",
             (f"{CLOCKS}::test_a_governor_is_named_if_no_limit_was_seen",)),
    Incident(11, "the lock of pcc-cpufreq, 21 % system on 72 CPUs", "size", "kernel lock",
             "the function that takes the lock, and the process",
             (*IN_KERNEL, SETTING)),
    Incident(12, "wake-ups from C6, 150 to 230 us each", "size", "neighbour idle-exit",
             "the idle states, with the deepest that is enabled",
             (f"{WAITING}::test_wake_up_waits_on_idle_cpus_are_exits_of_idle_states",
              "probe/instruments/test_wake.py::*")),
    Incident(13, "a polling sibling, -18.8 %", "size", "neighbour sibling",
             "the task on the sibling",
             (f"{WHY}::test_the_scripted_cause_is_first",
              f"{DETECT}/test_truth.py::test_other_tasks_are_named")),
    Incident(14, "a cap on memory bandwidth slows the sibling", "size", "neighbour sibling",
             "the group of resctrl with the cap",
             (f"{WHY}::test_a_loss_too_large_for_a_sibling_is_explained_by_a_cap_on_bandwidth",)),
    Incident(15, "a CPU quota at 10 to 20 % of the limit", "size", "quota quota",
             "the group, pod, container or unit that has the quota",
             (f"{STAGED}::test_the_loss_to_a_quota_matches_the_kernels_count",)),
    Incident(16, "2 of 256 CPUs in an allocation of Slurm", "size", "neighbour scheduler",
             "the mask or cpuset, with its CPUs",
             (f"{STAGED}::test_two_processes_on_one_cpu_wait_for_each_other",
              f"{WAITING}::test_a_job_limited_to_few_cpus_gets_its_mask")),
    Incident(17, "steal of 89 to 93 %", "size", "steal hypervisor", "the hypervisor",
             ("test_stolen.py::test_stolen_time_is_an_episode",)),
    Incident(18, "stalls of NUMA balancing", "size", "memory-stall numa-balancing",
             "the kernel's NUMA balancing",
             (f"{DETECT}/test_records.py::test_counts_of_the_kernel_name_the_cause",)),
    Incident(19, "compaction for huge pages", "size", "memory-stall compaction",
             "the kernel's compaction",
             (f"{DETECT}/test_records.py::test_counts_of_the_kernel_name_the_cause",)),
    Incident(20, "split locks, freezes of 10 ms", "size", "stopped split-lock",
             "the task that the kernel's log names",
             (f"{STAGED}::test_sleeps_after_split_locks_are_attributed_to_them",
              f"{WAITING}::test_the_cost_of_sleeps_after_split_locks_is_inferred")),
    Incident(21, "a mitigation doubles the time in the kernel", "size", "kernel mitigation",
             "the mitigation, and the process",
             (*IN_KERNEL, SETTING)),
    Incident(22, "HPET as the clock source, 48 times slower", "size", "kernel clock",
             "the clock source, and the process that reads it",
             IN_KERNEL),
    Incident(23, "all interrupts on one CPU", "size", "interrupt irq",
             "the line or the kind of softirq",
             (f"{STAGED}::test_the_loss_to_softirqs_matches_the_kernels_count",
              f"{DETECT}/test_records.py::test_a_line_without_a_device_has_its_name_and_its_remedy")),
    Incident(24, "a wait of 1.09 s that sums hid", "size", "neighbour scheduler",
             "the task that ran meanwhile, with the longest wait",
             (f"{STAGED}::test_the_longest_wait_is_reported_beside_the_sum",)),
    Incident(25, "a watchdog owns a counter, 37 GHz", "clue", "suspect *",
             "the counter that is not believed; no time is lost",
             ("app/model/test_falsified_counters.py::*",)),
    Incident(26, "a fight for the L3", "size", "neighbour cache",
             "the task that displaces the data",
             ((f"{DETECT}/test_memory_pressure.py::"
              "test_tasks_that_displace_data_from_the_l3_are_named"),)),
    Incident(27, "an antagonist by its CPI", "size", "neighbour memory",
             "the task that saturates memory",
             (f"{DETECT}/test_memory_pressure.py::test_tasks_that_saturate_memory_are_named",)),
    Incident(28, "noise of the system at 8192 CPUs", "size", "neighbour scheduler",
             "the task that interrupts, with the longest wait",
             (f"{STAGED}::test_the_loss_to_a_hog_is_the_victims_waiting_time",
              f"{WAITING}::test_a_small_wait_is_shown_with_its_longest_part")),
    Incident(29, "a convoy at a lock of the program", "none", "",
             "nobody: a program's own locks are its own",
             (f"{STAGED}::test_what_a_program_does_itself_is_not_attributed_to_others",)),
    Incident(30, "a failing DIMM, a storm of CMCI", "size", "interrupt irq",
             "the line, and the memory module of the kernel's log",
             ((f"{DETECT}/test_records.py::"
              "test_a_line_without_a_device_has_its_name_and_its_remedy"),
              f"{WHY}::test_entries_of_the_kernel_log_are_clues")),
    Incident(31, "the kernel's locks of mounts", "size", "kernel lock",
             "the function that takes the lock, and the process",
             IN_KERNEL),
)  # fmt: skip


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    defined = (node for node in ast.walk(tree)
               if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))  # fmt: skip
    return frozenset(node.name for node in defined if node.name.startswith("test_"))


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: str(incident.number))
def test_tests_show_each_answer(incident: Incident) -> None:
    assert incident.proofs
    for proof in incident.proofs:
        file, _, name = proof.partition("::")
        assert functions(file) if name == "*" else name in functions(file), proof


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: str(incident.number))
def test_perftop_has_a_word_for_each_cause(incident: Incident) -> None:
    kind, _, cause = incident.cause.partition(" ")
    if kind == "kernel":
        assert cause in KERNEL_WORK
    elif kind:
        assert kind in KINDS
        assert cause in CAUSES or cause == "*"
        assert kind_of_cause(kind, cause).key in {kind, cause}


def test_the_table_has_all_incidents_and_names_most_of_them_with_a_size() -> None:
    assert [incident.number for incident in INCIDENTS] == [*range(1, 32)]
    assert sum(incident.answer == "size" for incident in INCIDENTS) >= MIN_NAMED_WITH_SIZE
