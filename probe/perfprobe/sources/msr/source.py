"""Counters through /dev/cpu/N/msr, programmed by hand: `--source msr`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfprobe import wire
from perfprobe.frozen import replace
from perfprobe.native.tsc_rate import raw_ns
from perfprobe.sources.msr.chosen import NOTHING, find
from perfprobe.sources.msr.opening import Info, open_parts
from perfprobe.sources.msr.parts import Programmed, close
from perfprobe.sources.msr.register_check import RegisterCheck
from perfprobe.sources.os.hello import About
from perfprobe.sources.os.parts import Part
from perfprobe.sources.os.source import Native, os_parts, read_rows, with_siblings
from perfprobe.wire import Frame, Note

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import Watch


def open_msr(
    root: Path,
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: Watch | None = None,
    events: str | None = None,
) -> Msr:
    """Opens the msr source. Raises Unavailable, or ValueError for a bad list of CPUs or events."""
    chosen = NOTHING if events is None else find(root, events)
    rows, selected = read_rows(root, cpus)
    wanted = with_siblings(selected, rows)
    mine = [row for row in rows if row.cpu in wanted]
    parts, missing, info = open_parts(root, mine, program=True, method=method, wanted=chosen)
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
        """A note for each text that was not told before."""
        new = list(dict.fromkeys(text for text in texts if text not in self._told))
        self._told.update(new)
        return [Note("warning", raw_ns(), data={"text": text}) for text in new]
