"""Events on counters: perftop's own first, and each on one that can count it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pytest

from perfprobe.cpu.model_tables import ROWS
from perfprobe.cpu.model_terms import Budget
from perfprobe.registers import counter_plan
from perfprobe.registers.counter_draft import OS, General
from perfprobe.registers.counter_plan import Plan
from perfprobe.registers.msr import Registers

OWN = ("ref", "cycles", "instructions", "one_thread", "kernel_cycles", "kernel_instructions")


def planned(name: str, *chosen: General, budget: Budget | None = None) -> Plan:
    uarch = next(row.uarch for row in ROWS if row.uarch.name == name)
    found = counter_plan.plan(
        replace(uarch, budget=budget or uarch.budget), any_thread=False, chosen=chosen
    )
    assert found is not None
    return found


def on(key: str, *counters: int) -> General:
    return General(key, 0x1D1, counters=sum(1 << n for n in counters))


def test_what_is_chosen_has_what_is_left() -> None:
    plan = planned("Skylake-SP", General("e.a", 0x1D1, OS))
    assert plan.selects[0x189] == 0x4201D1
    assert plan.enable == 0x7_0000_000F
    counted = plan.counted[-1]
    assert (counted.key, counted.register, counted.bits) == ("e.a", 0xC4, 48)
    assert counted.origin == "counter 3: D1H/1H"
    assert [c.key for c in plan.counted] == [*OWN, "e.a"]


def test_its_own_counters_come_first() -> None:
    plan = planned("Skylake-SP", on("e.a", *range(8)), on("e.b", *range(8)))
    assert plan.short == ("e.b",)
    assert [c.key for c in plan.counted] == [*OWN, "e.a"]
    assert planned("Knights Landing", on("e.a", 0, 1)).short[-1] == "e.a"


def test_an_event_of_one_counter_has_that_one() -> None:
    plan = planned("Skylake-SP", on("e.a", 2))
    registers = {c.key: c.register for c in plan.counted}
    assert registers["e.a"] == 0xC3
    assert len(set(registers.values())) == 7  # the one that was there has another now
    assert dict(plan.selects)[0x188] == 0x4301D1
    assert sorted(plan.selects) == [0x186, 0x187, 0x188, 0x189]


def test_several_of_few_counters_find_their_places() -> None:
    budget = Budget(8, 4)
    chosen = [on("e.a", 0, 1), on("e.b", 0), on("e.c", 0, 1), on("e.d", *range(4)), on("e.e", 3)]
    plan = planned("Ice Lake-SP", *chosen, budget=budget)
    assert plan.short == ("e.c",)
    placed = {c.key: c.register - 0xC1 for c in plan.counted if c.register < 0x200}
    assert (placed["e.a"], placed["e.b"], placed["e.d"], placed["e.e"]) == (1, 0, 2, 3)
    assert len(set(placed.values())) == len(placed) == 7


@pytest.mark.parametrize("wanted", [(), (0, 1, 2)])
def test_a_counter_of_microcode_is_left_alone(wanted: tuple[int, ...]) -> None:
    budget = Budget(4, 3, lent=1 << 3)
    plan = planned("Skylake-SP", *([on("e.a", *wanted)] if wanted else []), budget=budget)
    assert sorted(plan.selects) == [0x186, 0x187, 0x188]
    assert plan.short == (("e.a",) if wanted else ())


@dataclass
class Held:
    """The registers of a CPU."""

    values: dict[int, int]

    def read(self, register: int) -> int:
        return self.values[register]


def test_what_is_chosen_is_looked_after() -> None:
    plan = planned("Skylake-SP", on("e.a", 3))
    ours = counter_plan.changes(plan, dict.fromkeys(plan.controls, 0))
    held = Held({register: change.ours for register, change in ours.items()})
    registers = cast("Registers", held)
    assert counter_plan.foreign(registers, plan) == ([], "")
    held.values[0x189] = 0x4300C0
    assert counter_plan.foreign(registers, plan)[0] == ["e.a"]
    held.values[0x189] = 0x4301D1
    held.values[0x38F] &= ~8
    assert counter_plan.foreign(registers, plan)[0] == ["e.a"]


def test_smis_of_amd_make_room() -> None:
    assert "smi" in {c.key for c in planned("Zen 4").counted}
    plan = planned("Zen 4", General("e.a", 0x1_0000_60A0))
    assert plan.short == ("smi",)
    assert plan.selects[0xC001020A] == 0x1_0043_60A0
    assert plan.counted[-1].origin == "counter 5: 1A0H/60H"
