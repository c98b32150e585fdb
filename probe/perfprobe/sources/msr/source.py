"""Counters through /dev/cpu/N/msr, programmed by hand (`--source msr`), and a check that they stay
programmed.

Control registers are read back at least once a second. From the read that finds one changed until
the read that finds it as programmed again, the values of the counters concerned are not valid. A
note reports both. Nothing is written: what another program has written stays.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfprobe import wire
from perfprobe.native.tsc_rate import raw_ns
from perfprobe.registers.programmer import Programmer
from perfprobe.sources.msr.opening import Info, open_parts
from perfprobe.sources.msr.parts import Programmed, close
from perfprobe.sources.os.hello import About
from perfprobe.sources.os.parts import Part
from perfprobe.sources.os.source import Native, os_parts, read_rows, with_siblings
from perfprobe.wire import Block, Frame, Hello, Note, placed

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import Watch

PERIOD_NS = 800_000_000
"""Time in which all CPUs are checked once."""


@dataclass(slots=True, eq=False)
class _Cpu:
    row: int
    good_ns: int
    """Beginning of the last check that found all as programmed."""
    taken: frozenset[str] = frozenset()
    until_ns: Mapping[str, int] = field(default_factory=dict)
    """By counter that was given back: samples before this are still not valid."""

    def bad(self, key: str, time_ns: int) -> bool:
        return key in self.taken or time_ns < self.until_ns.get(key, 0)


class RegisterCheck:
    def __init__(self, programmer: Programmer, cpus: Sequence[int], hello: Hello) -> None:
        self._programmer = programmer
        self._looked_ns = raw_ns()
        rows = {row.cpu: i for i, row in enumerate(hello.topology)}
        self._cpus = {cpu: _Cpu(rows[cpu], self._looked_ns) for cpu in cpus}
        self._turn = list(cpus)
        self._columns = {
            counter.key: (block, range(first, first + counter.columns))
            for block in hello.blocks
            if block.scope == "cpu"
            for first, counter in placed(block.counters)
        }
        """By key of each counter of a CPU: its block and columns."""
        self.warnings: list[str] = []
        """The evidence of takeovers, as text; the caller clears it."""

    def due(self) -> float:
        """CLOCK_MONOTONIC seconds of the next check."""
        return time.monotonic() + (self._looked_ns + PERIOD_NS - raw_ns()) / 1e9

    def look(self) -> list[Note]:
        """Checks CPUs, all of them once in PERIOD_NS, and returns notes of changes."""
        count = len(self._turn)
        passed_ns = raw_ns() - self._looked_ns
        number = min(count, passed_ns * count // PERIOD_NS)
        if not number:
            return []
        self._looked_ns += passed_ns if number == count else number * PERIOD_NS // count
        now, self._turn = self._turn[:number], self._turn[number:] + self._turn[:number]
        taken: dict[frozenset[str], tuple[list[int], int]] = {}
        back: dict[frozenset[str], list[int]] = {}
        for cpu in now:
            self._look(cpu, taken, back)
        at_ns = raw_ns()
        notes = [
            Note(
                "taken",
                at_ns,
                data={"cpus": sorted(cpus), "counters": sorted(keys), "since_ns": since},
            )
            for keys, (cpus, since) in taken.items()
        ]
        return notes + [
            Note("given-back", at_ns, data={"cpus": sorted(cpus), "counters": sorted(keys)})
            for keys, cpus in back.items()
        ]

    def _look(
        self,
        cpu: int,
        taken: dict[frozenset[str], tuple[list[int], int]],
        back: dict[frozenset[str], list[int]],
    ) -> None:
        """Adds what is new of this CPU, by the counters concerned."""
        state, begun_ns = self._cpus[cpu], raw_ns()
        found = self._programmer.check(cpu)
        if found is None:
            return
        keys = frozenset(found.taken)
        if found.text:
            self.warnings.append(found.text)
        if lost := keys - state.taken:
            cpus, since_ns = taken.get(lost, ([], state.good_ns))
            taken[lost] = ([*cpus, cpu], min(since_ns, state.good_ns))
        if ours := state.taken - keys:
            back.setdefault(ours, []).append(cpu)
            state.until_ns = {**state.until_ns, **dict.fromkeys(ours, raw_ns())}
        state.taken = keys
        if not keys:
            state.good_ns = begun_ns

    def mark(self, frame: Frame) -> None:
        """Clears the valid bits of counters that are not ours."""
        for state in self._cpus.values():
            if not state.taken and not state.until_ns:
                continue
            for key, (block, columns) in self._columns.items():
                if state.bad(key, frame.time_ns):
                    _clear(frame, block, state.row, columns)
            state.until_ns = {k: ns for k, ns in state.until_ns.items() if ns > frame.time_ns}


def _clear(frame: Frame, block: Block, row: int, columns: range) -> None:
    words = memoryview(frame.blocks[block.name].valid).cast("Q")
    for column in columns:
        words[row * block.valid_words + column // 64] &= ~(1 << column % 64)


# --- source ---------------------------------------------------------------------------------------


def open_msr(
    root: Path,
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: Watch | None = None,
) -> Msr:
    """Opens the msr source. Raises Unavailable, or ValueError for a bad list of CPUs."""
    rows, selected = read_rows(root, cpus)
    wanted = with_siblings(selected, rows)
    mine = [row for row in rows if row.cpu in wanted]
    parts, missing, info = open_parts(root, mine, program=True, method=method)
    rates = (info.multipliers, info.base_hz)
    about = About("msr", info.smt_methods, lambda _: rates, info.turbo)
    try:
        everything = [*parts, *os_parts(root, rows)]
        source = Native(root, sample_ns, rows, selected, everything, missing, about, watch)
    except BaseException:
        close(parts)
        raise
    return Msr(source, parts, info)


class Msr:
    """The machine with its counters programmed, and a check that they stay so."""

    def __init__(self, source: Native, parts: Sequence[Part], info: Info) -> None:
        self._source = source
        self._programmed = [part for part in parts if isinstance(part, Programmed)]
        self._checks = [
            RegisterCheck(part.programmer, part.cpus, source.hello) for part in self._programmed
        ]
        self._told: set[str] = set()
        self._notes = self._warnings(info.notes)
        tsc_hz = info.tsc_hz or source.hello.tsc_hz
        self.hello: wire.Hello = replace(source.hello, tsc_hz=tsc_hz)

    def due(self) -> float:
        if self._notes:
            return time.monotonic()
        return min([self._source.due(), *(check.due() for check in self._checks)])

    def poll(self) -> list[Frame | Note]:
        notes, self._notes = self._notes, []
        found = self._source.poll()
        for check in self._checks:
            notes += check.look()
            for message in found:
                if isinstance(message, Frame):
                    check.mark(message)
            notes += self._warnings(check.warnings)
            check.warnings.clear()
        for part in self._programmed:
            notes += self._warnings(part.programmer.notes)
        return [*notes, *found]

    def pace(self, batch_ns: int) -> None:
        self._source.pace(batch_ns)

    def close(self) -> None:
        """Raises NotRestored, once."""
        self._source.close()
        close(self._programmed)

    def _warnings(self, texts: Sequence[str]) -> list[Note]:
        """A note for each text that was not reported before."""
        new = list(dict.fromkeys(text for text in texts if text not in self._told))
        self._told.update(new)
        return [Note("warning", raw_ns(), data={"text": text}) for text in new]
