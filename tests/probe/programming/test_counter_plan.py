"""Events on counters: the counter of each event, and priorities when counters run short."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pytest

from perfprobe.cpu.model_tables import ROWS
from perfprobe.cpu.model_terms import Budget
from perfprobe.programming import counter_plan
from perfprobe.programming.counter_plan import Plan
from perfprobe.registers.msr import Registers

OWN = ("ref", "cycles", "instructions", "one_thread", "kernel_cycles", "kernel_instructions")


def planned(name: str, budget: Budget | None = None) -> Plan:
    uarch = next(row.uarch for row in ROWS if row.uarch.name == name)
    plan = counter_plan.plan(replace(uarch, budget=budget or uarch.budget), any_thread=False)
    assert plan is not None
    return plan


def test_what_a_counter_counts() -> None:
    plan = planned("Skylake-SP")
    assert [c.key for c in plan.counted] == [*OWN]
    assert plan.selects == {0x186: 0x43023C, 0x187: 0x42003C, 0x188: 0x4200C0}
    assert (plan.fixed, plan.enable) == (0x333, 0x7_0000_0007)
    counted = {c.key: (c.register, c.bits, c.origin) for c in plan.counted}
    assert counted["cycles"] == (0x30A, 48, "fixed counter 1")
    assert counted["one_thread"] == (0xC1, 48, "counter 0: 3CH/2H")


@pytest.mark.parametrize(("name", "budget", "selects", "short"), [
    ("Skylake-SP", Budget(4, 3, lent=1 << 3), [0x186, 0x187, 0x188], ()),
    ("Skylake-SP", Budget(4, 3, lent=1 << 1), [0x186, 0x188, 0x189], ()),  # microcode's is left
    ("Skylake-SP", Budget(2, 3), [0x186, 0x187], ("kernel_instructions",)),
    ("Skylake-SP", Budget(1, 3), [0x186], ("kernel_cycles", "kernel_instructions")),
    ("Zen 4", None, [0xC0010200 + 2 * n for n in range(6)], ()),
    ("Zen 4", Budget(5, 0, 48, 0), [0xC0010200 + 2 * n for n in range(5)], ("smi",)),
])  # fmt: skip
def test_what_comes_first_when_counters_run_short(
    name: str, budget: Budget | None, selects: list[int], short: tuple[str, ...]
) -> None:
    plan = planned(name, budget)
    assert [*plan.selects] == selects
    assert plan.short == short


def test_an_event_of_twelve_bits() -> None:
    plan = planned("Zen 4")
    assert plan.selects[0xC0010200] == 0x1_0043_0120
    assert plan.counted[0].origin == "counter 0: 120H/1H"


@dataclass
class Held:
    """The registers of a CPU."""

    values: dict[int, int]

    def read(self, register: int) -> int:
        return self.values[register]


def test_a_takeover_is_found() -> None:
    plan = planned("Skylake-SP")
    ours = counter_plan.changes(plan, dict.fromkeys(plan.controls, 0))
    held = Held({register: change.ours for register, change in ours.items()})
    registers = cast("Registers", held)
    assert counter_plan.foreign(registers, plan) == ([], "")
    held.values[0x188] = 0x4300C0
    assert counter_plan.foreign(registers, plan)[0] == ["kernel_instructions"]
    held.values[0x188] = 0x4200C0
    held.values[0x38F] &= ~4
    assert counter_plan.foreign(registers, plan)[0] == ["kernel_instructions"]
