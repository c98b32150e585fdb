"""Counters through /dev/cpu/N/msr, programmed by hand: `--source msr`."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfprobe import wire
from perfprobe.kernel.job_threads import Watch
from perfprobe.sources.msr.opening import Info, open_parts
from perfprobe.sources.msr.parts import Programmed
from perfprobe.sources.os.hello import About
from perfprobe.sources.os.parts import Part
from perfprobe.sources.os.source import Native, os_parts, read_rows, with_siblings
from perfprobe.wire import Frame, Note


def open_msr(
    root: Path,
    sample_ns: int,
    cpus: str | None,
    method: str | None = None,
    watch: Watch | None = None,
) -> Msr:
    """Opens the msr source. Raises Unavailable, or ValueError for a bad list."""
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
        for part in parts:
            part.close()
        raise
    return Msr(source, parts, info)


class Msr:
    """The machine with its counters programmed. With each frame it checks on one CPU that they
    still are."""

    def __init__(self, source: Native, parts: Sequence[Part], info: Info) -> None:
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
