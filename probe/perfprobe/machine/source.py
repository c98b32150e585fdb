"""The source that reads this machine, or the machine whose files are under a sysroot: a pinned
thread for each CPU, one more thread for /proc/stat, and the main thread. Also its hello message.

A round is one sample of all CPUs. The threads (lanes) push rounds into rings; the main thread takes
several rounds at once, a batch, and makes frames of them. The counters are those of all parts
(parts.py); each scope has one block. Under a sysroot only files below it are used, and stamps are
CLOCK_MONOTONIC_RAW.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfprobe import __version__, wire
from perfprobe._native import lib
from perfprobe.cpu import cpu_sets, files, identity, topology
from perfprobe.kernel import access
from perfprobe.kernel.clues import open_offline_events, read_settings
from perfprobe.kernel.tasks import TaskScanner
from perfprobe.machine import cpu_files, idle
from perfprobe.machine.parts import Part, RowReaders, drop_served_keys
from perfprobe.native import sampler, tsc_rate
from perfprobe.native.batches import BatchSchedule
from perfprobe.native.sampler import DrainedRound, Sampler
from perfprobe.polled.firmware_limits import Hsmp, HsmpTable, LimitStatus
from perfprobe.polled.polling import PolledBlocks
from perfprobe.polled.powercap import Powercap, UncoreClock
from perfprobe.polled.proc_counts import STAT_BLOCK, MachineCounts, ProcStat
from perfprobe.polled.resctrl import Resctrl
from perfprobe.wire import Block, Counter, Cpu, Frame, Missing, Multiplier, Note, Rate, Turbo

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import WatchedJob


MIN_RING, RING_BATCHES = 64, 4
"""Minimum size of a lane's ring: in rounds, and in batches of maximum length."""
SCAN_EARLY_NS = 50_000_000
"""Maximum ns by which a scan of tasks begins early, at a batch's end, to save a wake-up."""
MAX_SCAN_DELAY_S = 1.0
"""Maximum time in s for which a scan of tasks waits for the end of a batch."""
FIRST_ROUND_PART, MIN_FIRST_ROUND_NS, LANE_START_NS = 8, 25_000_000, 500_000
"""The first round is due after 1 / FIRST_ROUND_PART of a period, but not before MIN_FIRST_ROUND_NS
plus LANE_START_NS for each lane, so that all lanes have started. The user's first numbers need two
rounds, so an early first round shortens the wait."""
SPARE_DESCRIPTORS = 3
"""Number of descriptors that must be free for files that are opened for a moment."""
MAX_PINNING_S = 0.1
"""Maximum wait in s for threads to move to their CPUs; a busy CPU delays its thread."""
MIN_SUSPENDED_NS = 1_000_000
"""Minimum length in ns of a suspension of the machine. A smaller difference of the clocks may come
from an interrupt between their reads."""


def read_rows(root: Path, cpus: str | None) -> tuple[list[Cpu], list[int] | None]:
    """Returns the topology, and the CPUs that the user selected with `cpus`. Raises Unavailable if
    no CPU is found, and ValueError for a bad list of CPUs."""
    rows = topology.require_cpus(root)
    return rows, cpu_sets.select(cpus, rows) if cpus is not None else None


def os_parts(root: Path, rows: Sequence[Cpu]) -> list[Part]:
    """Returns the parts with times and states that the operating system records, without counters
    of cores. Idle transitions are not traced under a sysroot."""
    parts = idle.open_traced_parts(rows) if root == Path("/") else []
    parts += [cpu_files.cpuidle_part(root, rows), cpu_files.cpufreq_part(root, rows)]
    return [*parts, *cpu_files.throttle_parts(root, rows), *cpu_files.kvm_user_parts(root)]


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Contents of the hello message that do not follow from the parts."""

    source: str = "os"
    smt_methods: Sequence[str] = ("bounds",)
    """SMT methods that are possible if cores have several threads, best first."""
    rates: Callable[[Rate | None], tuple[list[Multiplier], Rate | None]] = lambda _: ([], None)
    """A function from the TSC's rate to the multipliers and the base frequency."""
    turbo: Sequence[Turbo] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The key of the counter that already counts a chosen event, by the event's key."""


@dataclass(slots=True, eq=False)
class _Round:
    drained: DrainedRound
    late_rounds: int
    """The value of `Sampler.late_rounds` when the round was drained."""
    data: bytearray
    """The data of the frame; blocks that the main thread reads are 0."""


_OPEN_MACHINES: set[Machine] = set()
"""Machines whose threads run. The set keeps their memory alive, because the threads write to it."""


class Machine:
    def __init__(
        self,
        root: Path,
        sample_ns: int,
        rows: list[Cpu],
        selected: list[int] | None,
        parts: Sequence[Part],
        missing: Sequence[Missing] = (),
        info: SourceInfo | None = None,
        watch: WatchedJob | None = None,
        chosen: Sequence[Part] = (),
    ) -> None:
        """`missing`: what was missing before the parts were made. `info`: further contents of
        hello. `watch`: the watched job. `chosen`: parts that each have their own block."""
        self._root = root
        self._is_this_machine = root == Path("/")
        self._wanted_cpus = with_siblings(selected, rows)
        self._parts = [*parts, *chosen]
        self._attached_cpus: set[int] = set()
        self._seq = 0
        self._offline_events = open_offline_events(root)
        self._online_file = files.OpenFile(f"{root}/{files.CPU_DIRECTORY}/online")
        self._online_text = self._online_file.read()
        self._row_readers = RowReaders(parts, rows, chosen)
        served_keys = {counter.key for part in self._parts for counter in part.counters}
        readers = (UncoreClock, Hsmp, HsmpTable, LimitStatus, Resctrl)
        polled = [MachineCounts(root, len(rows)), Powercap(root, rows, served_keys)]
        self._polled_blocks = PolledBlocks([*polled, *(reader(root, rows) for reader in readers)])
        self._stat = ProcStat(root, [row.cpu for row in rows])
        lane_blocks = [*self._row_readers.blocks(), *self._stat.blocks()]
        offsets, words = sampler.lay_out([*lane_blocks, *self._polled_blocks.blocks()])
        self._offsets = {offset.block.name: offset for offset in offsets}
        self._lane_offsets = {offset.block.name: offset for offset in offsets[: len(lane_blocks)]}
        self._row_readers.set_offsets(self._offsets)
        self._watch = watch
        self._tasks = TaskScanner(root, {row.cpu for row in rows}, watch)
        self._batches = BatchSchedule(sample_ns, 8 * words)
        self._start_clocks = (*tsc_rate.read_bracket()[:2], time.time_ns())
        """Raw ns, TSC and wall-clock ns for the hello, read before the first sample."""
        starting_ns = MIN_FIRST_ROUND_NS + len(self._wanted_cpus) * LANE_START_NS
        self._sampler = Sampler(
            sample_ns,
            words,
            stamp="tsc" if self._is_this_machine else "raw",
            check_cpu=self._is_this_machine,
            ring_rounds=max(MIN_RING, RING_BATCHES * self._batches.max_rounds),
            first_delay_ns=min(sample_ns, max(sample_ns // FIRST_ROUND_PART, starting_ns)),
        )
        _OPEN_MACHINES.add(self)
        self._suspended_at_start_ns = tsc_rate.suspended_ns()
        self._suspended_ns = 0
        """Time in ns for which the machine was suspended since it was opened, at the last batch."""
        try:
            for row in rows:
                if row.online and row.cpu in self._wanted_cpus:
                    self._attach(row.cpu)
            if stat_offsets := self._offsets.get(STAT_BLOCK.name):
                self._sampler.attach(lib.PP_UNPINNED_CPU, self._stat.plans(stat_offsets))
            _require_descriptors()
            self.hello = self._make_hello(rows, selected, sample_ns, missing, info or SourceInfo())
        except BaseException:
            self.close()
            raise

    def due_s(self) -> float:
        wake_s = min(self._batch_due(), self._tasks.next_check_s())
        scan = self._tasks.due_s()
        # A scan waits for the end of a batch if that is near, so that it needs no wake-up.
        if (early_s := scan - SCAN_EARLY_NS / 1e9) <= time.monotonic():
            return min(wake_s, early_s)
        return min(wake_s, scan) if scan + MAX_SCAN_DELAY_S < wake_s else wake_s

    def _batch_due(self) -> float:
        return self._sampler.due_s(self._batches.last_round(self._sampler.next_round))

    def set_batch_length(self, batch_ns: int) -> None:
        self._batches.set_batch_length(batch_ns)

    def poll(self) -> list[Frame | Note]:
        """Returns the frames of all complete rounds, the last with the main thread's blocks."""
        if self._tasks.check_watched_processes() and time.monotonic() < self._batch_due():
            return []
        rounds: list[_Round] = []
        while len(rounds) < self._batches.max_drained_rounds and (drained := self._sampler.drain()):
            data = bytearray(self._sampler.frame)  # a copy: the sampler holds only one round
            rounds.append(_Round(drained, self._sampler.late_rounds, data))
        if not rounds:
            self._tasks.scan_slice(SCAN_EARLY_NS)
            return []
        # One comparison of the clocks serves a batch: within 1 s they drift apart by microseconds.
        raw_minus_monotonic_ns = tsc_rate.raw_ns() - time.monotonic_ns()
        self._batches.mark_drained(rounds[-1].drained.number)
        self._mark_offline(rounds)  # must precede the reattachment of CPUs
        end_ns = rounds[-1].drained.deadline_ns + raw_minus_monotonic_ns
        notes = self._watch_hotplug(end_ns)
        if notes:
            self._mark_offline(rounds[-1:])
        if self._watch is not None and self._watch.warning:
            notes.append(Note("warning", end_ns, data={"text": self._watch.warning}))
            self._watch.warning = ""
        return [*self._make_frames(rounds, raw_minus_monotonic_ns), *notes]

    def close(self) -> None:
        if self not in _OPEN_MACHINES:
            return
        _OPEN_MACHINES.remove(self)
        self._sampler.close()
        for part in self._parts:
            part.close()
        self._stat.close()
        self._polled_blocks.close()
        self._tasks.close()
        self._offline_events.close()
        self._online_file.close()
        if self._watch is not None:
            self._watch.close()

    # --- CPUs --------------------------------------------------------------------------------

    def _attach(self, cpu: int, *, rebased: bool = False) -> None:
        self._sampler.attach(cpu, self._row_readers.open(cpu), rebased)
        self._attached_cpus.add(cpu)

    def _watch_hotplug(self, time_ns: int) -> list[Note]:
        """Starts the threads of CPUs that came online since the last batch, and ends those of CPUs
        that went offline, even if they are online again. Returns notes on both."""
        offline_cpus = self._offline_events.read_offline(self._attached_cpus)
        text = self._online_file.read()
        if text == self._online_text and not offline_cpus:
            return []
        self._online_text = ""  # after an error below, the next call compares the list again
        notes: list[Note] = []
        with contextlib.suppress(ValueError):
            online = set(cpu_sets.parse(text)) & self._wanted_cpus
            offline_cpus |= self._attached_cpus - online
            changes: list[tuple[int, Cpu | None]] = []
            for cpu in sorted(offline_cpus):
                self._sampler.detach(cpu)
                self._attached_cpus.discard(cpu)
                for successor, plans in self._row_readers.close_cpu(cpu):
                    self._sampler.detach(successor)
                    self._sampler.attach(successor, plans, rebased=True)
                changes.append((cpu, None))
            for row in topology.read_cpus(self._root):
                if row.cpu in online - self._attached_cpus:
                    self._attach(row.cpu, rebased=True)
                    changes.append((row.cpu, row))
            for cpu, new_row in changes:
                fields = new_row and asdict(new_row)
                data = {"cpu": cpu, "online": new_row is not None, "row": fields}
                notes.append(Note("hotplug", time_ns, data=data))
            if self._attached_cpus == online:
                self._online_text = text
        return notes

    # --- each batch --------------------------------------------------------------------------

    def _make_frames(self, rounds: list[_Round], raw_minus_monotonic_ns: int) -> list[Frame]:
        last = rounds.pop()
        asleep_ns = tsc_rate.suspended_ns() - self._suspended_at_start_ns
        records = {"asleep_ns": asleep_ns} if asleep_ns >= MIN_SUSPENDED_NS else {}
        if asleep_ns - self._suspended_ns >= MIN_SUSPENDED_NS:
            # It is unknown which rounds were before the suspension, so only the last one is used.
            self._sampler.late_rounds += len(rounds)
            last.late_rounds += len(rounds)
            rounds.clear()
        self._suspended_ns = asleep_ns
        frames = [
            self._make_frame(earlier, self._lane_offsets, raw_minus_monotonic_ns, records)
            for earlier in rounds
        ]
        joined_quotas = self._tasks.take_joined_quotas()
        if frames and joined_quotas:
            frames[0] = replace(frames[0], records=records | joined_quotas)
        self._polled_blocks.read_into(memoryview(last.data), self._offsets, self._sampler.now)
        own_records = joined_quotas if joined_quotas and not frames else self._tasks.take_records()
        records = own_records | self._polled_blocks.take_records() | records
        if self._watch is not None:
            records |= self._watch.read_due_threads(last.drained.deadline_ns)
            if self._watch.thread_has_ended and "quotas" not in records:
                records |= self._tasks.final_quotas()
        return [*frames, self._make_frame(last, self._offsets, raw_minus_monotonic_ns, records)]

    def _make_frame(
        self,
        round_: _Round,
        offsets: Mapping[str, sampler.BlockOffsets],
        raw_minus_monotonic_ns: int,
        records: dict[str, Any],
    ) -> Frame:
        view = memoryview(round_.data)
        blocks = {name: block_offsets.rows_in(view) for name, block_offsets in offsets.items()}
        self._seq += 1
        time_ns = round_.drained.deadline_ns + raw_minus_monotonic_ns
        return Frame(self._seq, time_ns, blocks, late=round_.late_rounds, records=records)

    def _mark_offline(self, rounds: Sequence[_Round]) -> None:
        """Sets ROW_OFFLINE in the rows of offline CPUs, which no thread writes."""
        if offline_cpus := self._wanted_cpus - self._attached_cpus:
            heads = self._row_readers.offline_head_offsets(offline_cpus)
            for one_round in rounds:
                words = memoryview(one_round.data).cast("Q")
                for head in heads:
                    words[head + 4] = wire.ROW_OFFLINE

    # --- hello -------------------------------------------------------------------------------

    def _make_hello(
        self,
        rows: list[Cpu],
        selected: list[int] | None,
        sample_ns: int,
        missing: Sequence[Missing],
        info: SourceInfo,
    ) -> wire.Hello:
        root, (raw_ns, tsc, wall_ns) = self._root, self._start_clocks
        tsc_hz = tsc_rate.calibrate() if self._is_this_machine else None
        cores = topology.cores(rows)
        multipliers, base_hz = info.rates(tsc_hz)
        cpufreq_tables, no_turbo = cpu_files.cpufreq_turbo(root, rows)
        turbo = [*info.turbo, *cpufreq_tables]
        blocks = [block_offsets.block for block_offsets in self._offsets.values()]
        counters = [counter for block in blocks for counter in block.counters]
        counters_of_parts = [
            counter for block, _ in self._row_readers.blocks() for counter in block.counters
        ]
        missing = [*missing, *self._stat.missing, *([] if turbo else no_turbo)]
        missing += [part_missing for part in self._parts for part_missing in part.missing]
        missing = drop_served_keys([*missing, *self._polled_blocks.missing], counters)
        if unpinned := self._unpinned_cpus():
            reason = "outside the CPU set of perftop: no thread of it may run there"
            fix = "start perftop outside the container or cpuset"
            missing += [Missing(c.key, reason, fix, unpinned) for c in counters_of_parts]
            blocks = self._restrict_unpinned(unpinned, blocks, rows)
        if problem := access.hidden_tasks_problem(root):
            missing += problem.missing("tasks")
        if self._watch is not None:
            missing += self._watch.missing
        # SMT methods, best first: those with a counter, then "traced", then "bounds".
        counted = [method for method in info.smt_methods if method != "bounds"]
        traced = ["traced"] if "both_s" in {c.key for c in counters_of_parts} else []
        has_threads = any(len(threads) > 1 for threads in cores)
        return wire.Hello(
            perftop=__version__,
            source=info.source,
            host=identity.hostname(root),
            kernel=identity.kernel_release(root),
            boot_id=identity.boot_id(root),
            wall_ns=wall_ns,
            raw_ns=raw_ns,
            sample_ns=sample_ns,
            identity=identity.read_identity(root),
            virtualisation=identity.virtualisation(root),
            topology=rows,
            cores=cores,
            packages=topology.packages(rows),
            blocks=blocks,
            stamp="tsc" if tsc_hz else "raw",
            tsc=tsc if tsc_hz else None,
            tsc_hz=tsc_hz,
            base_hz=base_hz or cpu_files.cpufreq_base_hz(root, rows),
            multipliers=multipliers,
            smt_methods=[*counted, *traced, "bounds"] if has_threads else ["single"],
            selected=selected,
            watch=None if self._watch is None else self._watch.text,
            turbo=turbo,
            settings=read_settings(root),
            missing=missing,
            aliases={**info.aliases},
        )

    def _restrict_unpinned(
        self, unpinned_cpus: Sequence[int], blocks: Sequence[Block], rows: Sequence[Cpu]
    ) -> list[Block]:
        """Returns the blocks; on `unpinned_cpus`, on which no thread may run, counters that only
        the CPU itself can read are marked as missing."""
        pinned = sorted({row.cpu for row in rows} - set(unpinned_cpus))

        def restrict(c: Counter) -> Counter:
            return replace(c, cpus=[cpu for cpu in pinned if c.cpus is None or cpu in c.cpus])

        return [
            replace(block, counters=[*map(restrict, block.counters)])
            if block.scope == "cpu" and block.name in self._lane_offsets
            else block
            for block in blocks
        ]

    def _unpinned_cpus(self) -> list[int]:
        """Returns the CPUs to which their threads could not be pinned. Waits until all threads have
        tried, but for MAX_PINNING_S at most."""
        if not self._is_this_machine:
            return []
        end_s = time.monotonic() + MAX_PINNING_S
        codes = {cpu: self._sampler.stats(cpu).pin_errno for cpu in sorted(self._attached_cpus)}
        while (unpinned := [c for c, e in codes.items() if e == errno.EINPROGRESS]) and (
            time.monotonic() < end_s
        ):
            time.sleep(0.001)
            codes |= {cpu: self._sampler.stats(cpu).pin_errno for cpu in unpinned}
        return [cpu for cpu, code in codes.items() if code not in {0, errno.EINPROGRESS}]


def _require_descriptors() -> None:
    """Raises OSError if fewer than SPARE_DESCRIPTORS files can be opened. Otherwise the list of
    CPUs could not be read later, and all CPUs would seem to be offline."""
    descriptors: list[int] = []
    try:
        descriptors += (os.eventfd(0) for _ in range(SPARE_DESCRIPTORS))
    finally:
        for fd in descriptors:
            os.close(fd)


def with_siblings(selected: list[int] | None, rows: list[Cpu]) -> set[int]:
    """Returns the selected CPUs (None: all) and their siblings, because SMT states need both."""
    existing = {row.cpu for row in rows}
    if selected is None:
        return existing
    cpus = set(selected)
    return cpus | {s for row in rows if row.cpu in cpus for s in row.siblings if s in existing}
