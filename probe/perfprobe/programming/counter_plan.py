"""Plans how a CPU's counters are programmed through MSRs: the event of each counter, the registers
to write and to restore, and whether another program uses counters.

A select is the register that selects the event of a general counter (PERFEVTSEL). Register layouts:
Linux asm/perf_event.h and msr-index.h. Counters themselves are never written, since only
differences are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfprobe.cpu.model_terms import METHOD_EVENTS, CounterBudget, CounterRegisters, Uarch
from perfprobe.registers.msr import MsrError, Registers, register_name

USR, OS, INTERRUPT, ENABLE = 1 << 16, 1 << 17, 1 << 20, 1 << 22
ALL_RINGS = USR | OS
FIXED_RINGS, FIXED_PMI, NIBBLE = 0x3, 0x8, 4  # FIXED_CTR_CTRL: OS, USR, ANY, PMI for each counter

FIXED_COUNTER = 0x309
MAX_GENERAL_COUNTERS = 8
"""Maximum number of general counters; the addresses after eight selects are other registers."""

FIXED_CONTROL, GLOBAL_CONTROL = 0x38D, 0x38F
AMD_GLOBAL_CONTROL = 0xC0000301
GLOBAL_INUSE = 0x392
MAX_FIXED_COUNTERS = 16
"""Maximum number of fixed counters: each has a nibble (4 bits) of FIXED_CTR_CTRL."""
EVENT_SELECTS = frozenset(
    [*range(0x186, 0x186 + MAX_GENERAL_COUNTERS), *range(0xC0010200, 0xC001020C, 2)]
)
SHARED_REGISTERS = frozenset({FIXED_CONTROL, GLOBAL_CONTROL, AMD_GLOBAL_CONTROL})
"""Registers with bits of several counters, which keep the bits of other programs."""

IN_USE_FIX = (
    "stop the other user (perf, the NMI watchdog: sudo sysctl kernel.nmi_watchdog=0), "
    "or use --source perf, which shares counters"
)


@dataclass(frozen=True, slots=True)
class PlannedCounter:
    key: str
    register: int
    bits: int
    origin: str


@dataclass(frozen=True, slots=True)
class CounterPlan:
    """The programming of the counters of one CPU."""

    bank: CounterRegisters
    budget: CounterBudget
    counters: tuple[PlannedCounter, ...]
    select_values: Mapping[int, int]
    """The values of selects, by register."""
    fixed_control: int
    """Bits of FIXED_CTR_CTRL to set."""
    enable_bits: int
    """Bits of GLOBAL_CTRL to set."""
    keys_without_counter: tuple[str, ...]
    """Keys of events for which no counter is left."""
    method: str | None
    """The SMT method whose event is counted; None: none."""

    @property
    def control_registers(self) -> list[int]:
        """The registers that control the CPU's counters, in the order of writing."""
        bank = self.bank
        general = min(self.budget.general_count, MAX_GENERAL_COUNTERS)
        registers = [bank.first_select + bank.address_step * n for n in range(general)]
        if self.budget.fixed_count:
            registers.append(FIXED_CONTROL)
        return registers if bank.enable_msr is None else [*registers, bank.enable_msr]


@dataclass(frozen=True, slots=True)
class Change:
    """The value of a register before perftop programs it, and the value that perftop writes."""

    before: int
    written: int


Changes = dict[int, Change]
"""By register: the change of its value."""


# --- the plan -------------------------------------------------------------------------------------


def make_plan(uarch: Uarch, *, any_thread: bool) -> CounterPlan | None:
    """Returns how to program a CPU's counters; None if nothing can be counted. `any_thread`:
    whether the AnyThread bit works, by CPUID. If there are too few general counters, the SMT event
    gets the first, then come kernel cycles, kernel instructions and SMIs."""
    bank, budget, events = uarch.counter_registers, uarch.budget, uarch.events
    if bank is None or budget is None:
        return None
    # SMT methods that the CPU can use, best first, and the keys of their events.
    usable = (
        (method, METHOD_EVENTS[method])
        for method in uarch.smt_methods
        if (event := events.get(METHOD_EVENTS.get(method, "")))
        and (any_thread or not event.any_thread)
    )
    method, smt = next(usable, (None, ""))
    wanted = (
        *((key, events.get(key), ALL_RINGS) for key in ("ref", "cycles", "instructions", smt)),
        ("kernel_cycles", events.get("cycles"), OS),
        ("kernel_instructions", events.get("instructions"), OS),
        ("smi", events.get("smi"), ALL_RINGS),
    )
    general = range(min(budget.general_count, MAX_GENERAL_COUNTERS))
    free = [n for n in general if not budget.microcode_mask >> n & 1]
    counted: list[PlannedCounter] = []
    selects: dict[int, int] = {}
    lacking: list[str] = []
    fixed = enable = 0
    for key, event, rings in wanted:
        if event is None:
            continue
        if (
            event.fixed_counter is not None
            and event.fixed_counter < budget.fixed_count
            and rings == ALL_RINGS
        ):
            number = event.fixed_counter
            fixed |= FIXED_RINGS << NIBBLE * number
            enable |= 1 << 32 + number
            origin = f"fixed counter {number}"
            counted.append(PlannedCounter(key, FIXED_COUNTER + number, budget.fixed_bits, origin))
        elif event.code and free:
            number = free.pop(0)
            selects[bank.first_select + bank.address_step * number] = event.config | rings | ENABLE
            enable |= 1 << number
            address = bank.first_counter + bank.address_step * number
            origin = f"counter {number}: {event.code:X}H/{event.unit_mask:X}H"
            counted.append(PlannedCounter(key, address, budget.general_bits, origin))
        else:
            lacking.append(key)
    if not counted:
        return None
    method = None if smt in lacking else method
    return CounterPlan(bank, budget, tuple(counted), selects, fixed, enable, tuple(lacking), method)


# --- use by other programs ------------------------------------------------------------------------


def control_values(registers: Registers, plan: CounterPlan) -> dict[int, int]:
    return {register: registers.read(register) for register in plan.control_registers}


def counters_in_use(plan: CounterPlan, values: Mapping[int, int]) -> str | None:
    """Returns evidence (register and value) that another program uses counters; None if there is
    none. A counter is in use if both its select (or nibble) and its bit of GLOBAL_CTRL enable
    it."""
    control = plan.bank.enable_msr
    enabled = -1 if control is None else values[control]
    suffix = "" if control is None else f", enabled in {register_name(control)} = {enabled:X}H"
    selects = [register for register in plan.control_registers if register in EVENT_SELECTS]
    for number, register in enumerate(selects):
        if values[register] & ENABLE and enabled >> number & 1:
            return f"{register_name(register)} = {values[register]:X}H{suffix}"
    for number in range(plan.budget.fixed_count):
        evidence = f"{register_name(FIXED_CONTROL)} = {values[FIXED_CONTROL]:X}H"
        nibble = values[FIXED_CONTROL] >> NIBBLE * number
        if nibble & FIXED_PMI:
            return f"{evidence}: fixed counter {number} interrupts for another program"
        if nibble & FIXED_RINGS and enabled >> 32 + number & 1:
            return f"{evidence}{suffix}"
    return None


def register_evidence(registers: Registers) -> str:
    """Returns the content of PERF_GLOBAL_INUSE for a message; '' if the CPU does not have it
    (before perfmon version 4)."""
    try:
        return f" ({register_name(GLOBAL_INUSE)} = {registers.read(GLOBAL_INUSE):X}H)"
    except MsrError:
        return ""


def planned_changes(plan: CounterPlan, values: Mapping[int, int]) -> Changes:
    """Returns the register changes that the plan needs, given the current values, in the order of
    writing: selects before the bits that enable them."""
    wanted_values = dict(plan.select_values)
    if plan.fixed_control:
        mask = sum(
            0xF << NIBBLE * n for n in range(3) if plan.fixed_control >> NIBBLE * n & FIXED_RINGS
        )
        wanted_values[FIXED_CONTROL] = values[FIXED_CONTROL] & ~mask | plan.fixed_control
    if plan.bank.enable_msr is not None:
        wanted_values[plan.bank.enable_msr] = values[plan.bank.enable_msr] | plan.enable_bits
    return {
        register: Change(values[register], wanted_values[register])
        for register in plan.control_registers
        if register in wanted_values
    }


# --- writing --------------------------------------------------------------------------------------


def program(registers: Registers, changes: Changes) -> None:
    """Writes the changed registers. Raises MsrError if one fails; the caller must restore."""
    for register, change in changes.items():
        if change.before != change.written:
            registers.write(register, change.written)


def restore(registers: Registers, changes: Changes) -> Iterator[tuple[int, MsrError]]:
    """Restores the registers, those with enabling bits first. Yields each register that could not
    be restored, with the error."""
    present_values: dict[int, int] = {}
    for register in changes:
        try:
            present_values[register] = registers.read(register)
        except MsrError as error:
            yield register, error
    value = values_to_restore(changes, present_values)
    for register in reversed(present_values):
        try:
            if value[register] != present_values[register]:
                registers.write(register, value[register])
        except MsrError as error:
            yield register, error


def values_to_restore(changes: Changes, present_values: Mapping[int, int]) -> dict[int, int]:
    """Returns the values to restore, by register; `present_values` contains the current values. If
    another program has since taken a counter, its registers and enabling bits stay
    unchanged."""
    taken_bits = 0  # bits of GLOBAL_CTRL of the counters that another program has taken
    for register, value in present_values.items():
        old, new = changes[register].before, changes[register].written
        if register == FIXED_CONTROL:
            for n in range(MAX_FIXED_COUNTERS):
                expected = {control_nibble(old, n), control_nibble(new, n)}
                taken_bits |= (control_nibble(value, n) not in expected) << 32 + n
        elif register in EVENT_SELECTS and value not in {old, new} and value & ENABLE:
            taken_bits |= enable_bit(register)
    nibbles = sum(0xF << NIBBLE * n for n in range(MAX_FIXED_COUNTERS) if taken_bits >> 32 + n & 1)
    masks = {FIXED_CONTROL: nibbles, GLOBAL_CONTROL: taken_bits, AMD_GLOBAL_CONTROL: taken_bits}
    values = {}
    for register, value in present_values.items():
        old, new = changes[register].before, changes[register].written
        if register in SHARED_REGISTERS:
            own_bits = (old ^ new) & ~masks[register]
            values[register] = value & ~own_bits | old & own_bits
        else:
            values[register] = value if taken_bits & enable_bit(register) else old
    return values


def control_nibble(control: int, n: int) -> int:
    """Returns the bits of fixed counter `n` in FIXED_CTR_CTRL."""
    return control >> NIBBLE * n & 0xF


def enable_bit(select: int) -> int:
    """Returns the bit of GLOBAL_CTRL that enables the counter of this select register."""
    return 1 << (select - 0x186 if select < 0xC0010200 else (select - 0xC0010200) // 2)


# --- checks while counting ------------------------------------------------------------------------


def foreign_changes(registers: Registers, plan: CounterPlan) -> tuple[list[str], str]:
    """Returns the keys of counters that another program has reprogrammed, and the first evidence
    (register and value); both empty while all registers are as programmed."""
    lost_bits, evidence = 0, ""
    for register, mask, planned, bits in _expected_values(plan):
        value = registers.read(register)
        if (value ^ planned) & mask:
            lost_bits |= sum(bit for bit, part in bits if (value ^ planned) & part)
            evidence = (
                evidence
                or f"{register_name(register)} is {value:X}H, not {value & ~mask | planned:X}H"
            )
    keys = []
    for counted in plan.counters:
        fixed = counted.register - FIXED_COUNTER
        general = (counted.register - plan.bank.first_counter) // plan.bank.address_step
        if lost_bits & 1 << (32 + fixed if 0 <= fixed < MAX_FIXED_COUNTERS else general):
            keys.append(counted.key)
    return keys, evidence


def _expected_values(plan: CounterPlan) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
    """Yields, for each register of the plan: the register, a mask of its planned bits, their
    values, and for each counter its bit of GLOBAL_CTRL and the mask of its bits."""
    for register, value in plan.select_values.items():
        yield register, -1, value, [(enable_bit(register), -1)]
    fixed = [n for n in range(MAX_FIXED_COUNTERS) if control_nibble(plan.fixed_control, n)]
    parts = [(1 << 32 + n, 0xF << NIBBLE * n) for n in fixed]
    if fixed:
        yield FIXED_CONTROL, sum(part for _, part in parts), plan.fixed_control, parts
    if plan.bank.enable_msr is not None:
        bits = [
            (1 << n, 1 << n)
            for n in range(plan.enable_bits.bit_length())
            if plan.enable_bits >> n & 1
        ]
        yield plan.bank.enable_msr, plan.enable_bits, plan.enable_bits, bits
