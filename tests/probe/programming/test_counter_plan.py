"""Plans of counters: the event of each counter, priorities when counters run short, evidence of
other programs, and the values that are restored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from cpu_models import SKYLAKE_COUNTERS, listed_uarch

from perfprobe.cpu.cpuid import read_no_leaf
from perfprobe.cpu.model_terms import CounterBudget
from perfprobe.programming import counter_plan
from perfprobe.programming.counter_plan import Change, CounterPlan
from perfprobe.programming.source import _replacement_readings
from perfprobe.registers.msr import Registers
from perfprobe.registers.parts import CpuKind


def plan_of(
    name: str, budget: CounterBudget | None = None, *, any_thread: bool = False
) -> CounterPlan:
    """The plan of a model, with the counters of `budget`, the table or, of Intel's, a Skylake."""
    uarch = listed_uarch(name)
    plan = counter_plan.make_plan(
        replace(uarch, budget=budget or uarch.budget or SKYLAKE_COUNTERS),
        any_thread=any_thread,
    )
    assert plan is not None
    return plan


def test_the_events_of_a_servers_counters() -> None:
    plan = plan_of("Skylake-SP")
    assert plan.select_values == {0x186: 0x43023C, 0x187: 0x42003C, 0x188: 0x4200C0}
    assert (plan.fixed_control, plan.enable_bits, plan.method) == (
        0x333,
        0x7_0000_0007,
        "one-thread",
    )
    assert [(c.key, c.register) for c in plan.counters] == [
        ("ref", 0x30B), ("cycles", 0x30A), ("instructions", 0x309),
        ("one_thread", 0xC1), ("kernel_cycles", 0xC2), ("kernel_instructions", 0xC3),
    ]  # fmt: skip
    origins = [(c.bits, c.origin) for c in plan.counters]
    assert (origins[1], origins[3]) == ((48, "fixed counter 1"), (48, "counter 0: 3CH/2H"))


@pytest.mark.parametrize(("name", "budget", "selects", "keys_without_counter"), [
    ("Skylake-SP", CounterBudget(4, 3, 48, 48, microcode_mask=1 << 3), [0x186, 0x187, 0x188], ()),
    # the microcode uses one counter itself
    ("Skylake-SP", CounterBudget(4, 3, 48, 48, microcode_mask=1 << 1), [0x186, 0x188, 0x189], ()),
    ("Skylake-SP", CounterBudget(2, 3, 48, 48), [0x186, 0x187], ("kernel_instructions",)),
    ("Skylake-SP", CounterBudget(1, 3, 48, 48), [0x186], ("kernel_cycles", "kernel_instructions")),
    ("Skylake-SP", CounterBudget(0, 3, 48, 48), [],
     ("one_thread", "kernel_cycles", "kernel_instructions")),
    ("Ice Lake-SP", CounterBudget(20, 0, 48, 48), [*range(0x186, 0x18B)], ("ref",)),
    ("Zen 4", None, [0xC0010200 + 2 * n for n in range(6)], ()),
    ("Zen 4", CounterBudget(5, 0, 48, 0), [0xC0010200 + 2 * n for n in range(5)], ("smi",)),
])  # fmt: skip
def test_the_most_useful_events_get_the_counters(
    name: str,
    budget: CounterBudget | None,
    selects: list[int],
    keys_without_counter: tuple[str, ...],
) -> None:
    plan = plan_of(name, budget)
    assert [*plan.select_values] == selects
    assert plan.keys_without_counter == keys_without_counter
    assert (plan.method is None) == (name == "Zen 4" or "one_thread" in keys_without_counter)
    general = [r for r in plan.control_registers if r in counter_plan.EVENT_SELECTS]
    assert len(general) == min(plan.budget.general_count, 8), (
        "other registers follow after eight selects"
    )


def test_a_core_of_four_threads_has_two_counters() -> None:
    plan = plan_of("Knights Landing", CounterBudget(2, 3, 40, 40), any_thread=True)
    assert plan.select_values == {0x186: 0x63013C, 0x187: 0x42003C}
    assert (plan.keys_without_counter, plan.method) == (("kernel_instructions",), "any-thread")
    assert {c.bits for c in plan.counters} == {40}


@pytest.mark.parametrize(("name", "any_thread", "method"), [
    ("Nehalem", False, None), ("Nehalem", True, "any-thread"), ("Ice Lake-SP", True, "one-thread"),
])  # fmt: skip
def test_any_thread_only_if_the_cpu_supports_it(
    name: str, any_thread: bool, method: str | None
) -> None:
    assert plan_of(name, any_thread=any_thread).method == method


def test_an_event_of_twelve_bits_is_encoded() -> None:
    plan = plan_of("Zen 4")
    assert plan.select_values[0xC0010200] == 0x1_0043_0120
    assert plan.counters[0].origin == "counter 0: 120H/1H"
    assert plan.control_registers[-1] == 0xC0000301


# --- other programs -------------------------------------------------------------------------------


def values(plan: CounterPlan, changed: dict[int, int]) -> dict[int, int]:
    return dict.fromkeys(plan.control_registers, 0) | changed


@pytest.mark.parametrize(("name", "changed", "used"), [
    ("Skylake-SP", {0x186: 0x53003C}, False),
    ("Skylake-SP", {0x38F: 0x70000000F}, False),
    ("Skylake-SP", {0x186: 0x53003C, 0x38F: 0x70000000E}, False),
    ("Skylake-SP", {0x186: 0x53003C, 0x38F: 1}, True),
    ("Skylake-SP", {0x189: 0x43003C, 0x38F: 8}, True),
    ("Skylake-SP", {0x186: 0x13003C, 0x38F: 1}, False),
    ("Skylake-SP", {0x38D: 0x30, 0x38F: 1}, False),
    ("Skylake-SP", {0x38D: 0x30, 0x38F: 1 << 33}, True),
    ("Skylake-SP", {0x38D: 0x80}, True),
    ("Zen 4", {0xC0010200: 0x530076, 0xC0000301: 0b01}, True),
    ("Zen 4", {0xC0010202: 0x5300C0, 0xC0000301: 0b01}, False),
    ("Zen 4", {0xC0010202: 0x5300C0, 0xC0000301: 0b10}, True),
])  # fmt: skip
def test_registers_show_whether_a_counter_is_in_use(
    name: str, changed: dict[int, int], used: bool
) -> None:
    plan = plan_of(name)
    assert (counter_plan.counters_in_use(plan, values(plan, changed)) is not None) == used


def test_without_a_global_control_the_select_decides() -> None:
    plan = plan_of("Zen 3")
    plan = replace(plan, bank=replace(plan.bank, enable_msr=None))
    assert plan.select_values == {
        0xC0010200: 0x430076, 0xC0010202: 0x4300C0, 0xC0010204: 0x420076,
        0xC0010206: 0x4200C0, 0xC0010208: 0x43002B,
    }  # fmt: skip
    assert counter_plan.counters_in_use(plan, values(plan, {0xC0010204: 0x530076})) is not None
    assert counter_plan.counters_in_use(plan, values(plan, {0xC0010204: 0x130076})) is None


@pytest.mark.parametrize(("select", "bit"), [
    (0x186, 0), (0x18D, 7), (0xC0010200, 0), (0xC0010206, 3), (0xC001020A, 5),
])  # fmt: skip
def test_each_select_has_its_enabling_bit(select: int, bit: int) -> None:
    assert counter_plan.enable_bit(select) == 1 << bit


def test_changes_keep_unrelated_bits() -> None:
    plan = plan_of("Skylake-SP")
    before = values(plan, {0x38F: 1 << 48 | 8, 0x38D: 0x5000, 0x187: 0x42003C})
    assert counter_plan.planned_changes(plan, before) == {
        0x186: Change(0, 0x43023C),
        0x187: Change(0x42003C, 0x42003C),
        0x188: Change(0, 0x4200C0),
        0x38D: Change(0x5000, 0x5333),
        0x38F: Change(1 << 48 | 8, 1 << 48 | 0x70000000F),
    }


def test_changes_keep_fixed_counters_without_an_event() -> None:
    plan = plan_of("Skylake-SP", CounterBudget(4, 2, 48, 48))
    changes = counter_plan.planned_changes(plan, values(plan, {0x38D: 0x1222}))
    assert changes[0x38D] == Change(0x1222, 0x1233)


@dataclass
class FakeRegisters:
    """The registers of a CPU."""

    values: dict[int, int]

    def read(self, register: int) -> int:
        return self.values[register]


FIXED = ["ref", "cycles", "instructions"]


@pytest.mark.parametrize(("register", "value", "keys"), [
    (0x38D, 0x222, FIXED), (0x38D, 0x777, FIXED), (0x38D, 0x733, ["ref"]), (0x38D, 0xB33, ["ref"]),
    (0x186, 0x4300C0, ["one_thread"]), (0x187, 0, ["kernel_cycles"]),
    (0x188, 0x4300C0, ["kernel_instructions"]), (0x38F, 0x700000003, ["kernel_instructions"]),
    (0x38F, 0x70000000D, ["kernel_cycles"]), (0x38F, 0x50000000F, ["cycles"]),
    (0x38D, 0x3333, []), (0x189, 0x4300C0, []),  # a fourth counter of each kind is not planned
])  # fmt: skip
def test_exactly_the_taken_counters_are_found(register: int, value: int, keys: list[str]) -> None:
    plan = plan_of("Skylake-SP")
    ours = counter_plan.planned_changes(plan, dict.fromkeys(plan.control_registers, 0))
    held = FakeRegisters({register: change.written for register, change in ours.items()})
    registers = cast("Registers", held)
    assert counter_plan.foreign_changes(registers, plan) == ([], "")
    held.values[register] = value
    lost, evidence = counter_plan.foreign_changes(registers, plan)
    assert (lost, f"MSR {register:X}H is {value:X}H" in evidence) == (keys, bool(keys))


# --- restored values ------------------------------------------------------------------------------


@pytest.mark.parametrize(("register", "change", "now", "after"), [
    (0x186, Change(5, 0x43023C), 0x43023C, 5),
    (0x186, Change(5, 0x43023C), 5, 5),
    (0x186, Change(5, 0x43023C), 0, 5),
    (0x186, Change(5, 0x43023C), 0x4300C0, 0x4300C0),  # taken by another program
    (0x38F, Change(8, 0xF), 0x1F, 0x18),
    (0x38D, Change(0, 0x333), 0x3333, 0x3000),
    (0xC0000301, Change(8, 0xF), 0x1F, 0x18),
])  # fmt: skip
def test_only_own_bits_are_restored(register: int, change: Change, now: int, after: int) -> None:
    assert counter_plan.values_to_restore({register: change}, {register: now}) == {register: after}


OURS = {
    0x186: Change(0, 0x43023C), 0x187: Change(0, 0x42003C), 0x38D: Change(0, 0x333),
    0x38F: Change(0, 0x700000003),
}  # fmt: skip
"""Registers programmed on a machine on which nothing was enabled."""


@pytest.mark.parametrize(("theirs", "after"), [
    ({}, {}),
    ({0x186: 0x4300C0}, {0x186: 0x4300C0, 0x38F: 0x1}),
    ({0x38D: 0x222}, {0x38D: 0x222, 0x38F: 0x700000000}),
    ({0x38D: 0x733}, {0x38D: 0x700, 0x38F: 0x400000000}),
    ({0x38F: 0x70000000B}, {0x38F: 0x8}),
    ({0x187: 0, 0x38D: 0x033}, {}),
    ({0x187: 0x4300C0, 0x38F: 0x2}, {0x187: 0x4300C0, 0x38F: 0x2}),
])  # fmt: skip
def test_counters_of_another_program_stay_enabled(
    theirs: dict[int, int], after: dict[int, int]
) -> None:
    now = {register: change.written for register, change in OURS.items()} | theirs
    assert counter_plan.values_to_restore(OURS, now) == dict.fromkeys(OURS, 0) | after


@pytest.mark.parametrize(("name", "change", "counted", "keys"), [
    ("Skylake-SP", {}, {"ref"}, ["cycles"]), ("Skylake-SP", {}, set(), ["ref", "cycles"]),
    ("Skylake-SP", {"clocks": None}, set(), []), ("Skylake", {}, set(), []),
])  # fmt: skip
def test_mperf_and_aperf_replace_what_is_not_counted(
    name: str, change: dict[str, Any], counted: set[str], keys: list[str]
) -> None:
    """The MPERF of a Skylake has another rate."""
    uarch = listed_uarch(name)
    kind = CpuKind([0], [0], replace(uarch, **change), read_no_leaf)
    assert [r.counter.key for r in _replacement_readings(kind, counted)] == keys
