"""The operating system's own account: idle states, /proc/stat, cpufreq. Needs no rights at all.

Idle times are read by the CPU's own pinned thread: its wake-up ends the idle period, so that the
kernel has booked it when the thread reads. Under a sysroot only files below it are used, and stamps
are CLOCK_MONOTONIC_RAW.
"""

from __future__ import annotations

import contextlib
import os
import time
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perfprobe import __version__, clock, cpulist, host, layout, topology, wire
from perfprobe.sampler import FILE, Sampler, Slot, stamp_now
from perfprobe.sources import Unavailable
from perfprobe.sources.procstat import STAT_BLOCK, ProcStat
from perfprobe.wire import Counter, Frame, Missing, Note

CPUFREQ_SLOW_NS = 500_000
"""A read of scaling_cur_freq that takes longer is dropped: on some parts it interrupts the core."""
MACHINE_BLOCK = wire.Block(
    "machine",
    "machine",
    [Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)],
)
_CPUS = "sys/devices/system/cpu"


def open_os(root: Path, sample_ns: int, cpus: str | None) -> OsSource:
    """Raises Unavailable where not even /proc/stat can be read, ValueError for a bad list."""
    rows = topology.read(root)
    if not rows:
        raise Unavailable(f"no CPUs can be found below {root}: /proc and /sys are not readable")
    selected = cpulist.select(cpus, rows) if cpus is not None else None
    return OsSource(root, sample_ns, rows, selected)


@dataclass(slots=True)
class _Files:
    """What one CPU has, opened."""

    slots: list[Slot] = field(default_factory=list)

    def close(self) -> None:
        for slot in self.slots:
            os.close(slot.fd)
        self.slots = []


class OsSource:
    def __init__(
        self, root: Path, sample_ns: int, rows: list[wire.Cpu], selected: list[int] | None
    ) -> None:
        self._root = root
        self._real = root == Path("/")
        self._position = {row.cpu: i for i, row in enumerate(rows)}
        self._online_text = ""
        self._missing: list[Missing] = []
        self._seq = 0
        self._late = 0
        self._notes: list[Note] = []
        self._files: dict[int, _Files] = {}
        self._states = _idle_states(root, rows)
        self._has_cpufreq = self._cpufreq_is_cheap(rows)
        self._places, words = layout.place(
            [(self._cpu_block(), len(rows)), (STAT_BLOCK, len(rows)), (MACHINE_BLOCK, 1)]
        )
        self._stat = ProcStat(root, list(self._position))
        self._wanted = _with_siblings(selected, rows)
        self._sampler = Sampler(
            sample_ns, words, stamp="tsc" if self._real else "raw", proof=self._real
        )
        for row in rows:
            if row.online and row.cpu in self._wanted:
                self._attach(row.cpu)
        self._hello = self._introduce(rows, selected, sample_ns)

    @property
    def hello(self) -> wire.Hello:
        return self._hello

    def due(self) -> float:
        return time.monotonic() if self._notes else self._sampler.due()

    def poll(self) -> list[Frame | Note]:
        """At most one frame a call: its blocks are views that the next one overwrites."""
        notes: list[Frame | Note] = list(self._notes)
        self._notes.clear()
        if notes:
            return notes
        drained = self._sampler.drain()
        if drained is None:
            return []
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
        for files in self._files.values():
            files.close()
        self._stat.close()

    # --- what there is ----------------------------------------------------------------------

    def _cpu_block(self) -> wire.Block:
        counters = []
        idle, poll = self._states
        if idle:
            counters.append(_idle_counter("idle_s", "idle, by state", idle))
        if poll:
            counters.append(_idle_counter("poll_s", "idle but polling", poll))
        if self._has_cpufreq:
            counters.append(
                Counter("cpufreq_hz", "clock, by cpufreq", "Hz", "cpufreq", "gauge", scale=1e3)
            )
        return wire.Block("cpu", "cpu", counters)

    def _cpufreq_is_cheap(self, rows: list[wire.Cpu]) -> bool:
        cpu = next((row.cpu for row in rows if row.online), rows[0].cpu)
        path = self._root / _CPUS / f"cpu{cpu}/cpufreq/scaling_cur_freq"
        took = []
        try:
            for _ in range(3):
                start = time.monotonic_ns()
                path.read_bytes()
                took.append(time.monotonic_ns() - start)
        except OSError:
            self._missing.append(
                Missing("cpufreq_hz", "no cpufreq driver (usual in a guest): no clock from the OS")
            )
            return False
        if min(took) > CPUFREQ_SLOW_NS:
            why = (
                f"a read of scaling_cur_freq takes {min(took) // 1000} us here: too dear to repeat"
            )
            self._missing.append(Missing("cpufreq_hz", why))
            return False
        return True

    def _attach(self, cpu: int, *, rebased: bool = False) -> None:
        """Opens what the CPU has and starts its thread."""
        files = _Files()
        for column, name in enumerate(self._column_files()):
            with contextlib.suppress(OSError):  # this CPU lacks it: the column stays invalid
                fd = os.open(self._root / _CPUS / f"cpu{cpu}" / name, os.O_RDONLY | os.O_CLOEXEC)
                files.slots.append(Slot(FILE, column, fd))
        self._files[cpu] = files
        place = self._places[0]
        self._sampler.attach(cpu, [place.plan(self._position[cpu], files.slots)], rebased)

    def _column_files(self) -> Iterator[str]:
        """The file of each column of the CPU block, below the CPU's directory."""
        idle, poll = self._states
        for state in (*idle, *poll):
            yield f"cpuidle/{state}/time"
        if self._has_cpufreq:
            yield "cpufreq/scaling_cur_freq"

    def _introduce(
        self, rows: list[wire.Cpu], selected: list[int] | None, sample_ns: int
    ) -> wire.Hello:
        tsc_hz = clock.calibrate() if self._sampler.stamp == "tsc" else None
        raw_ns, tsc, _ = clock.bracket()
        cores = topology.cores(rows)
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
            blocks=[place.block for place in self._places],
            stamp=self._sampler.stamp,
            tsc=tsc if tsc_hz else None,
            tsc_hz=tsc_hz,
            smt_methods=["bounds"] if any(len(core) > 1 for core in cores) else ["single"],
            selected=selected,
            missing=self._missing + self._not_there(),
        )

    def _not_there(self) -> list[Missing]:
        why = _no_counters(self._root)
        missing = [
            Missing(key, why)
            for key in ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
        ]
        if not self._states[0]:
            missing.append(
                Missing("idle_s", "no cpuidle driver here: idle times from /proc/stat, in 10 ms")
            )
        unpinned = [cpu for cpu in self._files if self._sampler.stats(cpu).pin_errno]
        if self._real and unpinned:
            why = "these CPUs are outside the CPU set of perftop: no thread can be pinned to them"
            fix = "start perftop outside the cpuset or container"
            missing.append(Missing("idle_s", why, fix, unpinned))
        return missing

    # --- each frame -------------------------------------------------------------------------

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

    def _watch_hotplug(self, time_ns: int) -> None:
        """CPUs that came or went since the last frame. The list is one small read."""
        text = host.text(f"{self._root}/{_CPUS}/online") or ""
        if text == self._online_text:
            return
        first, self._online_text = not self._online_text, text
        if first:
            return
        with contextlib.suppress(ValueError):
            online = set(cpulist.parse(text)) & self._wanted
            for cpu in sorted(set(self._files) - online):
                self._gone(cpu, time_ns)
            for cpu in sorted(online - set(self._files)):
                self._came(cpu, time_ns)

    def _gone(self, cpu: int, time_ns: int) -> None:
        self._sampler.detach(cpu)
        self._files.pop(cpu).close()
        data = {"cpu": cpu, "online": False, "row": None}
        self._notes.append(Note("hotplug", time_ns, data=data))

    def _came(self, cpu: int, time_ns: int) -> None:
        row = next((row for row in topology.read(self._root) if row.cpu == cpu), None)
        if row is None or cpu not in self._position:
            return  # no row in any frame: it was not even present at the start
        self._attach(cpu, rebased=True)
        data = {"cpu": cpu, "online": True, "row": asdict(row)}
        self._notes.append(Note("hotplug", time_ns, data=data))

    def _mark_offline(self) -> None:
        """Rows of CPUs that are off; the drain has cleared them."""
        words = self._sampler.frame.cast("Q")
        for cpu in self._wanted - self._files.keys():
            words[self._places[0].head + self._position[cpu] * wire.HEAD + 4] = wire.ROW_OFFLINE


def _no_counters(root: Path) -> str:
    """Why there are no cycles, instructions and reference cycles: the machine, or this source."""
    pmus = root / "sys/bus/event_source/devices"
    if (pmus / "cpu").exists() or (pmus / "cpu_core").exists():
        return "the os source does not read the core's counters"
    if host.virtualisation(root) is not None:
        return "no core PMU in this guest: the hypervisor does not expose one"
    return "the kernel offers no core PMU"


def _idle_counter(key: str, name: str, states: list[str]) -> Counter:
    return Counter(key, name, "s", "cpuidle", scale=1e-6, columns=len(states), parts=states)


def _idle_states(root: Path, rows: list[wire.Cpu]) -> tuple[list[str], list[str]]:
    """Directories of the idle states that halt, and of the one that polls, on the CPU that has
    most (hybrids differ)."""
    best: tuple[list[str], list[str]] = ([], [])
    for row in rows:
        base = f"{root}/{_CPUS}/cpu{row.cpu}/cpuidle"
        idle: list[str] = []
        poll: list[str] = []
        for number in host.numbered(base, "state"):
            name = (host.text(f"{base}/state{number}/name") or "").strip()
            (poll if name == "POLL" else idle).append(f"state{number}")
        if len(idle) > len(best[0]):
            best = (idle, poll)
        if not any(r.type != row.type for r in rows):
            break  # all of a kind: the first CPU that is on speaks for all
    return best


def _with_siblings(selected: list[int] | None, rows: list[wire.Cpu]) -> set[int]:
    """What must be read for the CPUs that the user asked for: a split needs both siblings."""
    everyone = {row.cpu for row in rows}
    if selected is None:
        return everyone
    asked = set(selected)
    return asked | {s for row in rows if row.cpu in asked for s in row.siblings if s in everyone}
