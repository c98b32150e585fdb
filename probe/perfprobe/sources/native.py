"""This machine - or the one whose files lie below a sysroot - read by a pinned thread per CPU.

What is read is the sum of parts (see part.py); each scope has one block. Under a sysroot only files
below it are used, and stamps are CLOCK_MONOTONIC_RAW.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from perfprobe import __version__, clock, cpulist, host, layout, topology, wire
from perfprobe.sampler import RowPlan, Sampler, stamp_now
from perfprobe.sources import Unavailable, procfs
from perfprobe.sources.part import Part, shifted
from perfprobe.sources.procstat import STAT_BLOCK, ProcStat
from perfprobe.wire import Counter, Cpu, Frame, Missing, Note

MACHINE_BLOCK = wire.Block(
    "machine",
    "machine",
    [Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)],
)


def open_os(root: Path, sample_ns: int, cpus: str | None) -> Native:
    """Raises Unavailable where no CPU can be found, ValueError for a bad list."""
    rows = topology.read(root)
    if not rows:
        raise Unavailable(f"no CPUs can be found below {root}: there is no readable /proc or /sys")
    selected = cpulist.select(cpus, rows) if cpus is not None else None
    parts = [procfs.idle_times(root, rows), procfs.cpufreq(root, rows)]
    why = procfs.no_counters(root)
    lacking = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
    return Native(root, sample_ns, rows, selected, parts, [Missing(key, why) for key in lacking])


class Native:
    def __init__(
        self,
        root: Path,
        sample_ns: int,
        rows: list[Cpu],
        selected: list[int] | None,
        parts: Sequence[Part],
        missing: list[Missing],
    ) -> None:
        self._root = root
        self._real = root == Path("/")
        self._position = {row.cpu: i for i, row in enumerate(rows)}
        self._wanted = _with_siblings(selected, rows)
        self._parts = parts
        self._attached: set[int] = set()
        self._notes: list[Note] = []
        self._seq = 0
        self._online_text = self._read_online()
        counters = [c for part in parts for c in part.counters]
        self._places, words = layout.place(
            [
                (wire.Block("cpu", "cpu", counters), len(rows)),
                (STAT_BLOCK, len(rows)),
                (MACHINE_BLOCK, 1),
            ]
        )
        self._stat = ProcStat(root, list(self._position))
        stamp = "tsc" if self._real else "raw"
        self._sampler = Sampler(sample_ns, words, stamp=stamp, proof=self._real)  # type: ignore[arg-type]
        for row in rows:
            if row.online and row.cpu in self._wanted:
                self._attach(row.cpu)
        self._hello = self._introduce(rows, selected, sample_ns, missing)

    @property
    def hello(self) -> wire.Hello:
        return self._hello

    def due(self) -> float:
        return time.monotonic() if self._notes else self._sampler.due()

    def poll(self) -> list[Frame | Note]:
        """At most one frame a call: its blocks are views that the next one overwrites."""
        notes: list[Frame | Note] = list(self._notes)
        self._notes.clear()
        drained = None if notes else self._sampler.drain()
        if drained is None:
            return notes
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        time_ns = drained.deadline_ns + raw_ns - time.monotonic_ns()
        self._watch_hotplug(time_ns)
        self._mark_offline()
        frame = self._sampler.frame
        _, stat, machine = self._places
        self._stat.fill(frame, stat, self._now())
        self._fill_machine(frame, machine)
        blocks = {place.block.name: place.data(frame) for place in self._places}
        self._seq += 1
        return [Frame(self._seq, time_ns, blocks, late=self._sampler.late)]

    def close(self) -> None:
        self._sampler.close()
        for part in self._parts:
            part.close()
        self._stat.close()

    # --- CPUs --------------------------------------------------------------------------------

    def _attach(self, cpu: int, *, rebased: bool = False) -> None:
        """Opens what the CPU has and starts its thread."""
        self._sampler.attach(cpu, [self._row(cpu)], rebased)
        self._attached.add(cpu)

    def _row(self, cpu: int) -> RowPlan:
        slots = []
        first = 0
        for part in self._parts:
            slots += shifted(part.open(cpu), first)
            first += sum(counter.columns for counter in part.counters)
        return self._places[0].plan(self._position[cpu], slots)

    def _read_online(self) -> str:
        return host.text(f"{self._root}/{procfs.CPUS}/online") or ""

    def _watch_hotplug(self, time_ns: int) -> None:
        """CPUs that came or went since the last frame. The list is one small read."""
        text = self._read_online()
        if text == self._online_text:
            return
        self._online_text = text
        with contextlib.suppress(ValueError):
            online = set(cpulist.parse(text)) & self._wanted
            for cpu in sorted(self._attached - online):
                self._gone(cpu, time_ns)
            for cpu in sorted(online - self._attached):
                self._came(cpu, time_ns)

    def _gone(self, cpu: int, time_ns: int) -> None:
        self._sampler.detach(cpu)
        self._attached.discard(cpu)
        for part in self._parts:
            part.shut(cpu)
        data = {"cpu": cpu, "online": False, "row": None}
        self._notes.append(Note("hotplug", time_ns, data=data))

    def _came(self, cpu: int, time_ns: int) -> None:
        row = next((row for row in topology.read(self._root) if row.cpu == cpu), None)
        if row is None:
            return
        self._attach(cpu, rebased=True)
        data = {"cpu": cpu, "online": True, "row": asdict(row)}
        self._notes.append(Note("hotplug", time_ns, data=data))

    # --- each frame --------------------------------------------------------------------------

    def _now(self) -> int:
        """The stamp of this moment."""
        if self._sampler.stamp == "tsc":
            return stamp_now()
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def _fill_machine(self, frame: memoryview, place: layout.Place) -> None:
        words = frame.cast("Q")
        now = self._now()
        words[place.head : place.valid] = array("Q", [now, now, 0, 0, wire.ROW_SAMPLED])
        words[place.valid] = 1
        words[place.values] = time.process_time_ns()

    def _mark_offline(self) -> None:
        """Rows of CPUs that are off; the drain has cleared them."""
        words = self._sampler.frame.cast("Q")
        for cpu in self._wanted - self._attached:
            words[self._places[0].head + self._position[cpu] * wire.HEAD + 4] = wire.ROW_OFFLINE

    # --- hello -------------------------------------------------------------------------------

    def _introduce(
        self, rows: list[Cpu], selected: list[int] | None, sample_ns: int, missing: list[Missing]
    ) -> wire.Hello:
        tsc_hz = clock.calibrate() if self._sampler.stamp == "tsc" else None
        raw_ns, tsc, _ = clock.bracket()
        cores = topology.cores(rows)
        unpinned = self._unpinned()
        return wire.Hello(
            perftop=__version__,
            source="os",
            host=host.hostname(self._root),
            kernel=host.kernel(self._root),
            boot_id=host.boot_id(self._root),
            wall_ns=time.time_ns(),
            raw_ns=raw_ns,
            sample_ns=sample_ns,
            identity=host.identity(self._root),
            virtualisation=host.virtualisation(self._root),
            topology=rows,
            cores=cores,
            packages=topology.packages(rows),
            blocks=self._blocks(unpinned),
            stamp=self._sampler.stamp,
            tsc=tsc if tsc_hz else None,
            tsc_hz=tsc_hz,
            smt_methods=["bounds"] if any(len(core) > 1 for core in cores) else ["single"],
            selected=selected,
            missing=[
                *missing,
                *(m for part in self._parts for m in part.missing),
                *self._not_ours(unpinned),
            ],
        )

    def _unpinned(self) -> list[int]:
        """CPUs that no thread of ours may run on; by now all threads have tried."""
        if not self._real:
            return []
        return [cpu for cpu in sorted(self._attached) if self._sampler.stats(cpu).pin_errno]

    def _blocks(self, unpinned: list[int]) -> list[wire.Block]:
        """The blocks; counters that only their own CPU can read are not there on the others, so
        that a metric may use what the system says of these."""
        first, *rest = (place.block for place in self._places)
        if unpinned:
            pinned = sorted(self._position.keys() - set(unpinned))
            counters = [replace(counter, cpus=pinned) for counter in first.counters]
            first = replace(first, counters=counters)
        return [first, *rest]

    def _not_ours(self, unpinned: list[int]) -> list[Missing]:
        if not unpinned:
            return []
        why = "outside the CPU set of perftop: no thread of it may run there"
        fix = "start perftop outside the container or cpuset"
        return [Missing(c.key, why, fix, unpinned) for p in self._parts for c in p.counters]


def _with_siblings(selected: list[int] | None, rows: list[Cpu]) -> set[int]:
    """What must be read for the CPUs that the user asked for: a split needs both siblings."""
    everyone = {row.cpu for row in rows}
    if selected is None:
        return everyone
    asked = set(selected)
    return asked | {s for row in rows if row.cpu in asked for s in row.siblings if s in everyone}
