"""The `msr` source: counters that perftop programs itself through /dev/cpu/N/msr, and a check that
they stay programmed.

The control registers are read back at least once a second. If another program has changed one, its
counters are not valid until a later read finds it as programmed again. Notes report both events.
The check never writes registers, so it does not disturb the other program."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfprobe import wire
from perfprobe.cpu import cpuid
from perfprobe.cpu.identity import boot_id
from perfprobe.cpu.model import INTEL
from perfprobe.cpu.model_terms import CORE_COUNTER_KEYS, METHOD_EVENTS
from perfprobe.errors import MsrsNotRestored, Unavailable
from perfprobe.machine.parts import Part
from perfprobe.machine.source import Machine, SourceInfo, os_parts, read_rows, with_siblings
from perfprobe.native.tsc_rate import raw_ns
from perfprobe.programming import counter_plan
from perfprobe.programming.counter_plan import CounterPlan
from perfprobe.programming.programmer import InUseError, Programmer
from perfprobe.registers import msr
from perfprobe.registers.limits import RegisterSurvey
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.registers.parts import CpuKind, Reading, RegisterPart, msr_counter
from perfprobe.wire import Frame, Hello, Missing, Note, Rate, with_columns

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import WatchedJob

READ_ORDER = ("ref", *METHOD_EVENTS.values(), "cycles", "kernel_cycles", "instructions")
"""Order of reading: counters that are divided by each other are close together."""


class ProgrammedPart(RegisterPart):
    def __init__(
        self, root: Path, plans: Mapping[int, CounterPlan], programmer: Programmer
    ) -> None:
        table = {
            cpu: [] if cpu in programmer.refused_cpus else _readings(plan)
            for cpu, plan in plans.items()
        }
        super().__init__(root, "cpu", table)
        self.cpus = list(table)
        self.programmer = programmer

    def _device(self, cpu: int) -> Registers | None:
        return self.programmer.device(cpu)

    def close_cpu(self, cpu: int) -> None:
        self.programmer.close_cpu(cpu)

    def close(self) -> None:
        self.programmer.end()


def close_parts(parts: Iterable[Part]) -> None:
    """Closes all parts. Raises MsrsNotRestored if registers could not be restored."""
    unrestored = ""
    for part in parts:
        part.close()
        if isinstance(part, ProgrammedPart):
            unrestored = part.programmer.unrestored
            part.programmer.unrestored = ""  # the error is reported only once
    if unrestored:
        raise MsrsNotRestored(unrestored)


def _readings(plan: CounterPlan) -> list[Reading]:
    """Returns the programmed counters, in the order in which they are read."""
    rank = {key: i for i, key in enumerate(READ_ORDER)}
    counted = sorted(plan.counters, key=lambda c: rank.get(c.key, len(rank)))
    return [Reading(msr_counter(c.key, c.origin, bits=c.bits), c.register) for c in counted]


def _replacement_readings(kind: CpuKind, counted: set[str]) -> list[Reading]:
    """Returns readings of MPERF and APERF for "ref" and "cycles" if these keys are not among the
    counted ones; empty if MPERF has another rate."""
    clocks = kind.uarch.clocks
    if clocks is None or kind.uarch.counts_mperf_at_base_clock:
        return []
    scale = float(1 << clocks.unit_shift)
    return [
        Reading(msr_counter(key, f"{name}, {msr.register_name(r)}", scale=scale), r)
        for key, name, r in (("ref", "MPERF", clocks.mperf), ("cycles", "APERF", clocks.aperf))
        if key not in counted
    ]


# --- opening --------------------------------------------------------------------------------------


def open_msr(
    root: Path,
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: WatchedJob | None = None,
) -> MsrSource:
    """Opens the `msr` source. Raises Unavailable if another program uses the counters or nothing
    can be read, and ValueError for a bad list of CPUs."""
    rows, selected = read_rows(root, cpus)
    cpus_to_read = with_siblings(selected, rows)
    survey, parts = RegisterSurvey(root), list[Part]()
    try:
        survey.find_kinds([row for row in rows if row.cpu in cpus_to_read], method)
        programmed, methods, notes = _program(survey)
        parts += programmed
        counted = {counter.key for part in parts for counter in part.counters}
        clocks, *other_parts = survey.parts(lambda kind: _replacement_readings(kind, counted))
        parts = [part for part in (clocks, *parts, *other_parts) if part is not None]
        _require_counters(parts)
        rates = (survey.multipliers, survey.base_hz)
        info = SourceInfo("msr", methods, lambda _: rates, survey.turbo)
        all_parts = [*parts, *os_parts(root, rows)]
        source = Machine(root, sample_ns, rows, selected, all_parts, survey.missing, info, watch)
    except BaseException as error:
        close_parts(parts)
        if not isinstance(error, MsrError):
            raise
        fix = f" · {error.fix}" if error.fix else ""
        raise Unavailable(f"--source msr: {error.why}{fix}") from None
    return MsrSource(source, parts, notes, survey.tsc_hz)


def _require_counters(parts: Iterable[Part]) -> None:
    if not any(counter.key != "tsc" for part in parts for counter in part.counters):
        raise MsrError("no counter register can be read", "there is nothing to show")


def _program(survey: RegisterSurvey) -> tuple[list[ProgrammedPart], list[str], list[str]]:
    """Programs the counters. Returns their part (none if nothing was programmed), the possible SMT
    methods, best first, and messages for the user. Raises MsrError if another program uses the
    counters, and MsrsNotRestored if registers could not be restored."""
    plans = _plans_by_cpu(survey)
    if not plans:
        return [], ["bounds"], []
    programmer = Programmer(survey.root, boot_id(survey.root))
    keys = sorted({counted.key for plan in plans.values() for counted in plan.counters})
    try:
        programmer.begin(plans, [cpu for kind in survey.kinds for cpu in kind.online])
    except MsrError as error:
        if programmer.unrestored:
            raise MsrsNotRestored(programmer.unrestored) from None
        if isinstance(error, InUseError):
            raise
        survey.missing += [Missing(key, error.why, error.fix) for key in keys]
        return [], ["bounds"], programmer.notes
    for cpu, refusal in programmer.refused_cpus.items():
        survey.missing += [Missing(key, refusal.why, refusal.fix, [cpu]) for key in keys]
    methods = [plan.method for plan in plans.values() if plan.method is not None]
    part = ProgrammedPart(survey.root, plans, programmer)
    return [part], [*dict.fromkeys(methods), "bounds"], programmer.notes


def _plans_by_cpu(survey: RegisterSurvey) -> dict[int, CounterPlan]:
    """Returns the plan of each CPU. Adds events that get no counter to `survey.missing`."""
    plans: dict[int, CounterPlan] = {}

    # every Intel CPU has counters, but a hypervisor may hide them
    def hides_counters(kind: CpuKind) -> bool:
        perfmon = cpuid.perfmon(kind.leaves)
        return kind.uarch.vendor == INTEL and perfmon is not None and perfmon.version == 0

    if all(map(hides_counters, survey.kinds)):
        reason = "CPUID.0AH says that this CPU has no counters (a hypervisor hides them)"
        raise MsrError(reason, "there is nothing to program", "perftop --source auto")
    for kind in survey.kinds:
        plan = counter_plan.make_plan(
            kind.uarch, any_thread=cpuid.has_working_any_thread(kind.leaves)
        )
        cpus = survey.cpus(kind)
        if plan is None:
            reason = f"the counters of this CPU are unknown ({kind.uarch.name})"
            survey.missing += [Missing(key, reason, None, cpus) for key in CORE_COUNTER_KEYS]
            continue
        reason = f"this CPU has {plan.budget.general_count} general counters: none is left for it"
        survey.missing += [Missing(key, reason, None, cpus) for key in plan.keys_without_counter]
        plans |= dict.fromkeys(kind.cpus, plan)
    return plans


# --- the check that they stay programmed ----------------------------------------------------------

CHECK_PERIOD_NS = 800_000_000
"""Period in ns at which each CPU's registers are checked."""


@dataclass(slots=True, eq=False)
class _CpuState:
    """The results of the checks of one CPU."""

    row: int
    last_good_ns: int
    """Start time in ns of the last check that found all registers as programmed."""
    taken_keys: frozenset[str] = frozenset()
    invalid_until_ns: Mapping[str, int] = field(default_factory=dict)
    """By key of a returned counter: the time in ns before which its samples are not valid."""


class RegisterCheck:
    """Checks repeatedly that the registers of CPUs stay as programmed."""

    def __init__(self, programmer: Programmer, cpus: Sequence[int], hello: Hello) -> None:
        self._programmer = programmer
        self._checked_ns = raw_ns()
        rows = {row.cpu: i for i, row in enumerate(hello.topology)}
        self._cpus = {cpu: _CpuState(rows[cpu], self._checked_ns) for cpu in cpus}
        self._queue = list(cpus)
        self._columns = {
            counter.key: (block, range(first, first + counter.columns))
            for block in hello.blocks
            if block.scope == "cpu"
            for first, counter in with_columns(block.counters)
        }
        """By key of a counter: its block and its columns."""
        self.warnings: list[str] = []
        """Evidence that other programs have taken counters; the caller clears it."""

    def due_s(self) -> float:
        """Returns the time of the next check in s of CLOCK_MONOTONIC."""
        return time.monotonic() + (self._checked_ns + CHECK_PERIOD_NS - raw_ns()) / 1e9

    def check_cpus(self) -> list[Note]:
        """Checks the due CPUs; returns notes on counters that were taken or given back."""
        count = len(self._queue)
        passed_ns = raw_ns() - self._checked_ns
        number = min(count, passed_ns * count // CHECK_PERIOD_NS)
        if not number:
            return []
        self._checked_ns += passed_ns if number == count else number * CHECK_PERIOD_NS // count
        due_cpus, self._queue = self._queue[:number], self._queue[number:] + self._queue[:number]
        taken_cpus: dict[frozenset[str], tuple[list[int], int]] = {}
        returned: dict[frozenset[str], list[int]] = {}
        """By keys of counters that were taken, or returned: the CPUs."""
        for cpu in due_cpus:
            state, start_ns = self._cpus[cpu], raw_ns()
            if (verdict := self._programmer.check(cpu)) is None:
                continue
            keys, message = frozenset(verdict[0]), verdict[1]
            if message:
                self.warnings.append(message)
            if lost_keys := keys - state.taken_keys:
                cpus, since_ns = taken_cpus.get(lost_keys, ([], state.last_good_ns))
                taken_cpus[lost_keys] = ([*cpus, cpu], min(since_ns, state.last_good_ns))
            if returned_keys := state.taken_keys - keys:
                returned.setdefault(returned_keys, []).append(cpu)
                state.invalid_until_ns = {
                    **state.invalid_until_ns,
                    **dict.fromkeys(returned_keys, raw_ns()),
                }
            state.taken_keys = keys
            if not keys:
                state.last_good_ns = start_ns
        at_ns = raw_ns()

        def note(kind: str, cpus: list[int], keys: frozenset[str], **fields: int) -> Note:
            data = {"cpus": sorted(cpus), "counters": sorted(keys), **fields}
            return Note(kind, at_ns, data=data)

        notes = [
            note("taken", cpus, keys, since_ns=since_ns)
            for keys, (cpus, since_ns) in taken_cpus.items()
        ]
        return notes + [note("given-back", cpus, keys) for keys, cpus in returned.items()]

    def invalidate(self, frame: Frame) -> None:
        """Clears, in a frame, the valid bits of counters that another program uses."""
        for state in self._cpus.values():
            if not state.taken_keys and not state.invalid_until_ns:
                continue
            for key, (block, columns) in self._columns.items():
                if key in state.taken_keys or frame.time_ns < state.invalid_until_ns.get(key, 0):
                    words = memoryview(frame.blocks[block.name].valid).cast("Q")
                    for column in columns:
                        words[state.row * block.valid_words + column // 64] &= ~(1 << column % 64)
            state.invalid_until_ns = {
                k: ns for k, ns in state.invalid_until_ns.items() if ns > frame.time_ns
            }


class MsrSource:
    """The `msr` source: a machine with programmed counters, and the check that they stay
    programmed."""

    def __init__(
        self, source: Machine, parts: Sequence[Part], notes: Sequence[str], tsc_hz: Rate | None
    ) -> None:
        self._source = source
        self._programmed = [part for part in parts if isinstance(part, ProgrammedPart)]
        self._checks = [
            RegisterCheck(part.programmer, part.cpus, source.hello) for part in self._programmed
        ]
        self._reported: set[str] = set()
        self._notes = self._warnings(notes)
        tsc_hz = tsc_hz or source.hello.tsc_hz
        self.hello: wire.Hello = replace(source.hello, tsc_hz=tsc_hz)

    def due_s(self) -> float:
        if self._notes:
            return time.monotonic()
        return min([self._source.due_s(), *(check.due_s() for check in self._checks)])

    def poll(self) -> list[Frame | Note]:
        notes, self._notes = self._notes, []
        messages = self._source.poll()
        for check in self._checks:
            notes += check.check_cpus()
            for message in messages:
                if isinstance(message, Frame):
                    check.invalidate(message)
            notes += self._warnings(check.warnings)
            check.warnings.clear()
        for part in self._programmed:
            notes += self._warnings(part.programmer.notes)
        return [*notes, *messages]

    def set_batch_length(self, batch_ns: int) -> None:
        self._source.set_batch_length(batch_ns)

    def close(self) -> None:
        """Closes the machine. Raises MsrsNotRestored once if registers could not be restored."""
        self._source.close()
        close_parts(self._programmed)

    def _warnings(self, texts: Sequence[str]) -> list[Note]:
        """Returns a warning note for each text that was not reported before."""
        new_texts = list(dict.fromkeys(text for text in texts if text not in self._reported))
        self._reported.update(new_texts)
        return [Note("warning", raw_ns(), data={"text": text}) for text in new_texts]
