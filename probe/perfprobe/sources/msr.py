"""Counters through /dev/cpu/N/msr: programmed by hand (`--source msr`), or only read.

Under a sysroot the TSC is read there too, right before the counters: stamps are of another clock.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfprobe import cpuid, host, leaves, msr, pmu, uarch, wire
from perfprobe.cpuid import Leaves
from perfprobe.msr import MsrError, Registers
from perfprobe.pmu import Plan
from perfprobe.programmer import InUse, Programmer
from perfprobe.sources import Unavailable, msrparts, native
from perfprobe.sources.msrparts import Programmed, Reading, ReadOnly
from perfprobe.sources.part import Part
from perfprobe.uarch import Uarch
from perfprobe.wire import Cpu, Frame, Identity, Missing, Multiplier, Note, Rate, Scope

SHARED: tuple[Scope, ...] = ("core", "package")
COUNTED = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")


@dataclass(slots=True)
class Info:
    """What hello is to say besides."""

    identity: Identity
    smt_methods: list[str] = field(default_factory=lambda: ["bounds"])
    """Where a core has several threads."""
    multipliers: list[Multiplier] = field(default_factory=list)
    tsc_hz: Rate | None = None
    """Under a sysroot only: elsewhere there is a clock to measure the real one with."""
    base_hz: Rate | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kind:
    """CPUs of one core type."""

    cpus: list[int]
    online: list[int]
    uarch: Uarch
    leaves: Leaves


def open_parts(
    root: Path, rows: Sequence[Cpu], *, program: bool, method: str | None = None
) -> tuple[list[Part], list[Missing], Info]:
    """Parts for the CPUs of `rows`, what is missing and why, and what hello should say.

    With `program` the counters are programmed when this returns; closing the parts gives them back.
    It raises Unavailable where somebody else counts or nothing can be read. Without, nothing is
    written and no descriptor could; nothing is raised, and there may be no parts.
    """
    opening = _Opening(root, host.identity(root), program=program, method=method)
    try:
        opening.look(rows)
        if program:
            opening.program()
        opening.read_only()
    except MsrError as error:
        opening.close()
        if program:
            text = f"{error.why}{f' · {error.mend}' if error.mend else ''}"
            raise Unavailable(f"--source msr: {text}") from None
        lost = [Missing(key, error.why, error.mend) for key in ("aperf", "mperf", "smi")]
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
        for part in self.parts:
            part.close()

    def look(self, rows: Sequence[Cpu]) -> None:
        """Which CPUs there are and how fast their clocks tick."""
        self._kinds = list(_kinds(self._root, rows, self.info.identity, self._method))
        first = self._kinds[0]
        with self._first(first) as device:
            if device.read(msr.TSC) == 0 == device.read(msr.TSC):
                raise MsrError("the msr driver answers with 0", "there are no registers behind it")
            platform = _maybe(device, msr.PLATFORM_INFO)
            if self._root != Path("/"):
                said = uarch.tsc_hz(first.uarch, first.leaves, platform)
                self.info.tsc_hz = msr.tsc_hz(device, said)
        bases = uarch.base_hz(first.uarch, first.leaves, platform)
        self.info.base_hz = bases[0] if bases else None
        hz = self.info.tsc_hz.hz if self.info.tsc_hz else None
        for kind in self._kinds:
            self.info.multipliers += uarch.multipliers(kind.uarch, kind.leaves, platform, hz)

    def _first(self, kind: Kind) -> Registers:
        return Registers(self._root, kind.online[0])

    # --- programmed --------------------------------------------------------------------------

    def program(self) -> None:
        plans = self._plans()
        if not plans:
            return
        programmer = Programmer(self._root, host.boot_id(self._root))
        keys = {counted.key for plan in plans.values() for counted in plan.counted}
        try:
            programmer.begin(plans, [cpu for kind in self._kinds for cpu in kind.online])
        except InUse:
            raise
        except MsrError as error:
            self.info.notes += programmer.notes
            self.missing += [Missing(key, error.why, error.mend) for key in sorted(keys)]
            return
        self.info.notes += programmer.notes
        self._counted = keys
        table = {
            cpu: [] if cpu in programmer.refused else msrparts.programmed(plan)
            for cpu, plan in plans.items()
        }
        self.parts.append(Programmed(self._root, table, programmer))
        for cpu, no in programmer.refused.items():
            self.missing += [Missing(key, no.why, no.mend, [cpu]) for key in sorted(keys)]
        methods = [plan.method for plan in plans.values() if plan.method is not None]
        self.info.smt_methods = [*dict.fromkeys(methods), *self.info.smt_methods]

    def _plans(self) -> dict[int, Plan]:
        """By CPU. What no counter is left for is missing."""
        plans: dict[int, Plan] = {}
        for kind in self._kinds:
            plan = pmu.plan(kind.uarch, any_thread=cpuid.anythread(kind.leaves))
            cpus = None if len(self._kinds) == 1 else kind.cpus
            if plan is None:
                why = f"nothing is known of counters of this CPU ({kind.uarch.name})"
                self.missing += [Missing(key, why, None, cpus) for key in COUNTED]
                continue
            why = f"this CPU has {plan.budget.gp} general counters: none is left for it"
            self.missing += [Missing(key, why, None, cpus) for key in plan.short]
            plans |= dict.fromkeys(kind.cpus, plan)
        return plans

    # --- read only ---------------------------------------------------------------------------

    def read_only(self) -> None:
        """Clocks come first: the TSC is to be read right before the counters."""
        first = self._part("cpu", self._clocks)
        rest = (
            self._part(
                "cpu", lambda kind: [*msrparts.clocks(kind.uarch), *msrparts.smi(kind.uarch)]
            ),
            *(self._part(scope, self._shared(scope)) for scope in SHARED),
        )
        parts = [part for part in (first, *self.parts, *rest) if part is not None]
        if self._alone and not any(c.key != "tsc" for part in parts for c in part.counters):
            raise MsrError("no counter register can be read", "there is nothing to show")
        self.parts = parts

    def _clocks(self, kind: Kind) -> list[Reading]:
        found = [] if self._root == Path("/") else [msrparts.tsc()]
        return [*found, *(msrparts.stand_ins(kind.uarch, self._counted) if self._alone else [])]

    @staticmethod
    def _shared(scope: Scope) -> Callable[[Kind], list[Reading]]:
        return lambda kind: [
            *msrparts.residencies(kind.uarch, scope),
            *msrparts.thermal(kind.uarch, kind.leaves, scope),
        ]

    def _part(self, scope: Scope, wanted: Callable[[Kind], list[Reading]]) -> ReadOnly | None:
        """Of those registers that are really there."""
        table: dict[int, list[Reading]] = {}
        lost: dict[str, list[int]] = {}
        for kind in self._kinds:
            with self._first(kind) as device:
                there, missing = msrparts.readable(device, wanted(kind))
            table |= dict.fromkeys(kind.cpus, there)
            for key in missing:
                lost.setdefault(key, []).extend(kind.cpus)
        why = "this CPU does not have the register, or its hypervisor hides it"
        for key, cpus in lost.items():
            everywhere = len(cpus) == len(table)
            self.missing.append(Missing(key, why, None, None if everywhere else cpus))
        return ReadOnly(self._root, scope, table) if any(table.values()) else None


def _kinds(
    root: Path, rows: Sequence[Cpu], identity: Identity, method: str | None
) -> Iterator[Kind]:
    """CPUs that are off have no type: they go with the others where these are all alike."""
    types = sorted({row.type or "" for row in rows if row.online})
    for name in types:
        mine = [row for row in rows if (row.type or "") == name or len(types) == 1]
        online = [row.cpu for row in mine if row.online]
        first = online[0]
        given: Leaves = cpuid.Device(root, first) if root != Path("/") else leaves.of(first)
        model = uarch.find(
            identity.vendor,
            identity.family,
            identity.model,
            identity.stepping,
            given,
            name or None,
        )
        yield Kind([row.cpu for row in mine], online, uarch.preferring(model, method), given)


def _maybe(device: Registers, register: int) -> int | None:
    try:
        return device.read(register)
    except MsrError:
        return None


# --- the source -----------------------------------------------------------------------------------


def open_msr(root: Path, sample_ns: int, cpus: str | None, method: str | None = None) -> Msr:
    """Raises Unavailable, or ValueError for a bad list."""
    rows, selected = native.read_rows(root, cpus)
    wanted = native.with_siblings(selected, rows)
    mine = [row for row in rows if row.cpu in wanted]
    parts, missing, info = open_parts(root, mine, program=True, method=method)
    about = native.About("msr", info.smt_methods, lambda _: (info.multipliers, info.base_hz))
    try:
        everything = [*parts, *native.os_parts(root, rows)]
        source = native.Native(root, sample_ns, rows, selected, everything, missing, about)
    except BaseException:
        for part in parts:
            part.close()
        raise
    return Msr(source, parts, info)


class Msr:
    """The machine with its counters programmed. Looks whether they stay so, a CPU a frame."""

    def __init__(self, source: native.Native, parts: Sequence[Part], info: Info) -> None:
        self._source = source
        self._programmed = [part for part in parts if isinstance(part, Programmed)]
        self._turn = itertools.cycle([(p, cpu) for p in self._programmed for cpu in p.cpus])
        self._told = set(info.notes)
        self._notes = [self._warning(text) for text in info.notes]
        tsc_hz = info.tsc_hz or source.hello.tsc_hz
        self.hello: wire.Hello = replace(source.hello, tsc_hz=tsc_hz)

    def due(self) -> float:
        return time.monotonic() if self._notes else self._source.due()

    def poll(self) -> list[Frame | Note]:
        if self._notes:
            notes, self._notes = self._notes, []
            return [*notes]
        found = self._source.poll()
        if any(isinstance(message, Frame) for message in found):
            self._look()
        return found

    def close(self) -> None:
        self._source.close()
        for part in self._programmed:
            while part.told:
                print(f"perfprobe: {part.told.pop()}", file=sys.stderr)

    def _look(self) -> None:
        for part, cpu in itertools.islice(self._turn, 1):
            texts = [*part.programmer.notes, part.programmer.check(cpu)]
            new = [text for text in texts if text and text not in self._told]
            self._told.update(new)
            self._notes += [self._warning(text) for text in new]

    def _warning(self, text: str) -> Note:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        return Note("warning", now, data={"text": text})
