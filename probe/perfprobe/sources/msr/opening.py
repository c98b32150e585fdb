"""Registers as parts of a source: found on one CPU of each kind, programmed or only read.

Under a sysroot the TSC is read there too, right before the counters: stamps are of another clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from perfprobe.cpu import cpuid, model
from perfprobe.cpu.identity import boot_id, identity
from perfprobe.cpu.model import INTEL
from perfprobe.errors import NotRestored, Unavailable
from perfprobe.kernel.access import Trouble
from perfprobe.native import tsc_rate
from perfprobe.registers import counter_plan, msr
from perfprobe.registers.counter_plan import Plan
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.registers.programmer import InUse, Programmer
from perfprobe.sources.msr import limits
from perfprobe.sources.msr.limits import Found, of_core, of_cpu, of_package
from perfprobe.sources.msr.parts import (
    Kind,
    Programmed,
    Reading,
    ReadOnly,
    clocks,
    close,
    content,
    kinds,
    programmed,
    readable,
    residencies,
    smi,
    stand_ins,
    tsc,
)
from perfprobe.sources.os.parts import Part, group_missing
from perfprobe.wire import Cpu, Identity, Missing, Multiplier, Rate, Scope, Turbo

SHARED: tuple[Literal["core", "package"], ...] = ("core", "package")
COUNTED = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")

UNREAD = ("aperf", "mperf", "smi", "limit_reasons")
"""Keys that are reported missing if no register can be read."""


@dataclass(slots=True, eq=False)
class Info:
    """What registers add to the hello."""

    identity: Identity
    smt_methods: list[str] = field(default_factory=lambda: ["bounds"])
    """Used if a core has several threads; best first."""
    multipliers: list[Multiplier] = field(default_factory=list)
    tsc_hz: Rate | None = None
    """Under a sysroot only; elsewhere the TSC itself is measured."""
    base_hz: Rate | None = None
    turbo: list[Turbo] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def open_parts(
    root: Path,
    rows: Sequence[Cpu],
    *,
    program: bool,
    method: str | None = None,
) -> tuple[list[Part], list[Missing], Info]:
    """Parts for the CPUs of `rows`, what is missing and why, and what is added to the hello.

    With `program` the counters are programmed when this returns, and closing the parts gives them
    back; raises Unavailable if another program counts or nothing can be read. Without it all
    descriptors are read-only, nothing is raised, and there may be no parts.
    """
    opening = _Opening(root, identity(root), program=program, method=method)
    try:
        opening.look(rows)
        if program:
            opening.program()
        opening.read_only()
    except MsrError as error:
        opening.close()
        if program:
            text = f"{error.why}{f' · {error.fix}' if error.fix else ''}"
            raise Unavailable(f"--source msr: {text}") from None
        lost = [Missing(key, error.why, error.fix) for key in UNREAD]
        return [], lost, opening.info
    except BaseException:
        opening.close()
        raise
    return opening.parts, opening.missing, opening.info


class _Opening:
    def __init__(
        self, root: Path, identity: Identity, *, program: bool, method: str | None
    ) -> None:
        self._root, self._alone, self._method = root, program, method
        self._kinds: list[Kind] = []
        self._counted: set[str] = set()
        self.parts: list[Part] = []
        self.missing: list[Missing] = []
        self.info = Info(identity)

    def close(self) -> None:
        close(self.parts)

    def look(self, rows: Sequence[Cpu]) -> None:
        """Finds the kinds of CPUs, the rates of their clocks, and their turbo tables."""
        self._kinds = list(kinds(self._root, rows, self.info.identity, self._method))
        first = self._kinds[0]
        with self._first(first) as device:
            if device.read(msr.TSC) == 0 == device.read(msr.TSC):
                raise MsrError("the msr driver answers with 0", "it reaches no registers")
            platform = content(device, msr.PLATFORM_INFO)
            if self._root != Path("/"):
                said = model.tsc_hz(first.uarch, first.leaves, platform)
                self.info.tsc_hz = _tsc_hz(device, said)
        bases = model.base_hz(first.uarch, first.leaves, platform)
        self.info.base_hz = bases[0] if bases else None
        hz = self.info.tsc_hz.hz if self.info.tsc_hz else None
        for kind in self._kinds:
            self.info.multipliers += model.multipliers(kind.uarch, kind.leaves, platform, hz)
            self._look_at_turbo(kind)

    def _look_at_turbo(self, kind: Kind) -> None:
        with self._first(kind) as device:
            found = limits.turbo_table(kind.uarch, partial(content, device), self._cpus(kind))
        if isinstance(found, Turbo):
            self.info.turbo.append(found)
        else:
            self.missing.append(found)

    def _cpus(self, kind: Kind) -> list[int] | None:
        """The CPUs that a statement about the kind applies to; None: all."""
        return None if len(self._kinds) == 1 else kind.cpus

    def _first(self, kind: Kind) -> Registers:
        return Registers(self._root, kind.online[0])

    # --- programmed --------------------------------------------------------------------------

    def program(self) -> None:
        plans = self._plans()
        if not plans:
            return
        programmer = Programmer(self._root, boot_id(self._root))
        keys = {counted.key for plan in plans.values() for counted in plan.counted}
        try:
            programmer.begin(plans, [cpu for kind in self._kinds for cpu in kind.online])
        except MsrError as error:
            if programmer.left:
                raise NotRestored(programmer.left) from None
            if isinstance(error, InUse):
                raise
            self.info.notes += programmer.notes
            self.missing += [Missing(key, error.why, error.fix) for key in sorted(keys)]
            return
        self.info.notes += programmer.notes
        self._counted = keys
        table = {
            cpu: [] if cpu in programmer.refused else programmed(plan)
            for cpu, plan in plans.items()
        }
        self.parts.append(Programmed(self._root, table, programmer))
        for cpu, no in programmer.refused.items():
            self.missing += [Missing(key, no.why, no.fix, [cpu]) for key in sorted(keys)]
        methods = [plan.method for plan in plans.values() if plan.method is not None]
        self.info.smt_methods = [*dict.fromkeys(methods), *self.info.smt_methods]

    def _plans(self) -> dict[int, Plan]:
        """Plans by CPU. Keys without a counter are added to `missing`."""
        plans: dict[int, Plan] = {}
        if all(_hidden(kind) for kind in self._kinds):
            why = "CPUID.0AH says that this CPU has no counters (a hypervisor hides them)"
            raise MsrError(why, "there is nothing to program", "perftop --source auto")
        for kind in self._kinds:
            plan = counter_plan.plan(kind.uarch, any_thread=cpuid.anythread(kind.leaves))
            cpus = self._cpus(kind)
            if plan is None:
                why = f"the counters of this CPU are unknown ({kind.uarch.name})"
                self.missing += [Missing(key, why, None, cpus) for key in COUNTED]
                continue
            why = f"this CPU has {plan.budget.gp} general counters: none is left for it"
            self.missing += [Missing(key, why, None, cpus) for key in plan.short]
            plans |= dict.fromkeys(kind.cpus, plan)
        return plans

    # --- read only ---------------------------------------------------------------------------

    def read_only(self) -> None:
        """Adds the parts that are only read. Clocks come first, because the TSC must be read right
        before the counters."""
        first = self._part("cpu", self._clocks)
        rest = (
            self._part("cpu", _of_cpu),
            *(self._part(scope, _shared(scope)) for scope in SHARED),
        )
        parts = [part for part in (first, *self.parts, *rest) if part is not None]
        if self._alone and not any(c.key != "tsc" for part in parts for c in part.counters):
            raise MsrError("no counter register can be read", "there is nothing to show")
        self.parts = parts

    def _clocks(self, kind: Kind, device: Registers) -> Found:  # noqa: ARG002
        found = [] if self._root == Path("/") else [tsc()]
        return [*found, *(stand_ins(kind.uarch, self._counted) if self._alone else [])]

    def _part(self, scope: Scope, wanted: Finder) -> ReadOnly | None:
        """A part with the wanted registers that can be read on each kind; None: there are none."""
        table: dict[int, list[Reading]] = {}
        lost: list[tuple[int, str, Trouble]] = []
        for kind in self._kinds:
            with self._first(kind) as device:
                there, missing = readable(device, wanted(kind, device))
            table |= dict.fromkeys(kind.cpus, there)
            lost += [(cpu, key, Trouble(why)) for key, why in missing.items() for cpu in kind.cpus]
        self.missing += group_missing(lost, len(table))
        return ReadOnly(self._root, scope, table) if any(table.values()) else None


Finder = Callable[[Kind, Registers], Found]


def _hidden(kind: Kind) -> bool:
    """Whether CPUID denies all counters, which every Intel model has."""
    found = cpuid.perfmon(kind.leaves)
    return kind.uarch.vendor == INTEL and found is not None and found.version == 0


def _of_cpu(kind: Kind, device: Registers) -> Found:
    found = kind.uarch
    return [*clocks(found), *smi(found), *of_cpu(kind, device)]


def _shared(scope: Literal["core", "package"]) -> Finder:
    limits = of_core if scope == "core" else of_package
    return lambda kind, device: [*residencies(kind.uarch, scope), *limits(kind, device)]


# --- the TSC below a sysroot ----------------------------------------------------------------------


def _tsc_hz(device: Registers, candidates: Iterable[Rate]) -> Rate:
    """Counted against CLOCK_MONOTONIC_RAW; a candidate that agrees and has a smaller error is
    preferred."""
    tsc0, raw0, width0 = _bracket(device)
    time.sleep(tsc_rate.SPAN_S)
    tsc1, raw1, width1 = _bracket(device)
    elapsed = raw1 - raw0
    hz, error = (tsc1 - tsc0) / elapsed * 1e9, (width0 + width1) / 2 / elapsed
    for said in candidates:
        if said.error is not None and said.error < error and abs(said.hz / hz - 1) < error:
            return said
    origin = f"{msr.name(msr.TSC)} against CLOCK_MONOTONIC_RAW for {elapsed / 1e9:.2f} s"
    return Rate(hz, origin, error)


def _bracket(device: Registers) -> tuple[int, int, int]:
    """The TSC, raw ns at that moment, and the width in ns."""
    return tsc_rate.narrowest(partial(device.read, msr.TSC), tsc_rate.raw_ns)
