"""The simulated machine as a source: its hello message, and frames as time passes."""

from __future__ import annotations

import time
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

import perfprobe
from perfprobe import wire
from perfprobe.cpu import cpu_sets
from perfprobe.errors import UsageError
from perfprobe.native.batches import BatchSchedule
from perfprobe.sources.sim import counters, scenarios
from perfprobe.sources.sim import machine as hw
from perfprobe.sources.sim.machine import Ints, SimMachine, parse_spec, tsc
from perfprobe.sources.sim.schedule import Lateness, Row, Schedule, ScheduleCursor
from perfprobe.sources.sim.tasks import SimTasks, SimWatchedJob
from perfprobe.wire import Frame, Missing, Multiplier, Note, Rate, Rows

EPOCH_S = 1_700_000_000
START_RAW_NS = 86_400_000_000_000
MAX_BEHIND_NS = 10_000_000_000
ROUNDING_NS = 1_000  # tolerance in ns, because due() is a float and may be rounded down
MAX_POLL_FRAMES = 16
TASK_SCAN_NS = 1_000_000_000  # ns between two scans of tasks, as on a real machine
MIN_SAMPLE_NS = 1_000_000
STAT_READ_NS = 400_000  # ns from the read of the CPUs to that of /proc/stat
STAT_WIDTH_NS = 30_000


class SimSource:
    """A simulated `Source`, which `text`, the argument of --source, specifies."""

    def __init__(
        self, text: str, sample_ns: int, cpus: str | None = None, watch: str | None = None,
        events: str | None = None, *, multiplex: bool = True,
    ) -> None:  # fmt: skip
        """`cpus` names the selected CPUs (None: all), `watch` is the watched job's PID or name,
        `events` the argument of -e. Raises ValueError with a message for the user, and Unavailable
        for events that cannot be counted."""
        self._spec = spec = parse_spec(text)
        if sample_ns < MIN_SAMPLE_NS:
            raise UsageError(f"sim: a sample of {sample_ns} ns; at least 1 ms is needed")
        self._sample_ns = sample_ns
        self._machine = machine = SimMachine.from_spec(spec)
        script = scenarios.make_script(spec.scenario, machine)
        self._schedule = Schedule(machine, script, spec.seed)
        self._cursor = ScheduleCursor(self._schedule)
        self._lateness = Lateness(machine, spec.seed, script.late_ns, sample_ns)
        chosen, missing = counters.chosen_tables(
            events, machine.cpus, multiplex=multiplex, guest=machine.guest
        )
        columns = counters.cpu_columns(
            machine, license_events=spec.scenario == "license", slots=spec.slots
        )
        self._cpu_tables = [counters.CounterTable("cpu", columns, machine.cpus), *chosen]
        self._stat = counters.CounterTable("stat", counters.stat_columns(), machine.cpus)
        tables = self._schedule.tables
        self._packages = None if machine.guest else counters.PackageCounters(machine, tables)
        self._machine_counters = counters.MachineCounters(machine, tables)
        self._watched = None if watch is None else SimWatchedJob(self._schedule, watch)
        self.hello = self._make_hello(missing, cpus, watch)
        selected = self.hello.selected
        self._selected_cpus = np.full(machine.cpus, selected is None)
        for core in {cpu % machine.cores for cpu in selected or ()}:
            self._selected_cpus[machine.threads(core)] = True
        self._tasks = SimTasks(spec.seed, machine.cpus)
        self._number = 0
        self._start_ns = time.monotonic_ns()
        self._batches = BatchSchedule(sample_ns, wire.frame_bytes(self.hello))
        self._base = np.zeros((len(Row), machine.cpus), np.int64)
        """The integrals of each CPU when it last came online; its counters count from there."""
        self._last: Ints | None = None
        self._last_scan: tuple[int, int, Ints] | None = None
        """Time, stage and integrals of the last scan of tasks. If a new stage has replaced a CPU's
        tasks, its integrals are those of the last frame before."""
        self._online = np.ones(machine.cpus, np.bool_)

    def _make_hello(
        self, missing: list[Missing], cpus: str | None, watch: str | None
    ) -> wire.Hello:
        """`missing`: chosen events that cannot be counted."""
        spec, machine = self._spec, self._machine
        wall_ns, raw_ns = EPOCH_S * 10**9, START_RAW_NS
        if spec.epoch is not None:
            wall_ns = spec.epoch * 10**9
        elif spec.speed is not None:
            raw_ns, wall_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), time.time_ns()
        smt, multipliers = ["single"], list[Multiplier]()
        if key := machine.smt_key:
            smt = ["one-thread", "bounds"] if machine.smt == 2 else ["any-thread"]
            kind = "P" if machine.is_hybrid else None
            multipliers = [
                Multiplier(key, float(hw.TICK_TSC), "CPUID 15H 168/2", kind),
                Multiplier(key, 1.0, "at the rate of the TSC", kind),
            ]
            if machine.is_hybrid:
                small = list(range(machine.p_cores, machine.cores))
                missing = [Missing(key, "E cores have one thread", None, small), *missing]
        identity = wire.Identity("GenuineIntel", 6, 0x55, 4, "perftop sim · Xeon-like", "0x1")
        if machine.guest:
            identity = wire.Identity(
                "GenuineIntel", 6, 0x8F, 8, "Intel Xeon Processor (sim)", "0x1"
            )
            missing = [*counters.GUEST_MISSING, *missing]
        blocks = [table.block for table in (*self._cpu_tables, self._stat)]
        blocks += [] if self._packages is None else [self._packages.block]
        topology = [machine.row(cpu) for cpu in range(machine.cpus)]
        return wire.Hello(
            perftop=perfprobe.__version__,
            source=f"sim:{spec.scenario}",
            host=counters.HOST if machine.guest else "sim",
            kernel="simulated",
            wall_ns=wall_ns,
            raw_ns=raw_ns,
            sample_ns=self._sample_ns,
            topology=topology,
            cores=[machine.threads(core) for core in range(machine.cores)],
            packages=[machine.package_cpus(package) for package in range(machine.packages)],
            blocks=[*blocks, self._machine_counters.block],
            identity=identity,
            virtualisation="KVM" if machine.guest else None,
            tsc=tsc(raw_ns),
            tsc_hz=Rate(float(hw.TSC_HZ), "sim", 0.0),
            base_hz=None if machine.guest else Rate(hw.BASE_MHZ["P"] * 1e6, "sim", 0.0),
            multipliers=multipliers,
            smt_methods=smt,
            selected=None if cpus is None else cpu_sets.select(cpus, topology),
            missing=missing,
            watch=watch,
        )

    def due_s(self) -> float | None:
        if self._spec.speed is None:
            return None
        number = self._batches.last_round(self._number)
        return (self._start_ns + number * self._sample_ns / self._spec.speed) / 1e9

    def set_batch_length(self, batch_ns: int) -> None:
        # without a speed, the simulation runs as fast as the reader reads frames
        if self._spec.speed is not None:
            self._batches.set_batch_length(batch_ns)

    def poll(self) -> list[Frame | Note]:
        count = max(1, min(MAX_POLL_FRAMES, 4096 // self._machine.cpus))
        if self._spec.speed is not None:
            # If the process was stopped or is too slow, the simulation pauses; catching up hours
            # would take minutes.
            now_ns = time.monotonic_ns() + ROUNDING_NS
            period_ns = self._sample_ns / self._spec.speed
            if now_ns - self._start_ns - self._number * period_ns > MAX_BEHIND_NS + period_ns:
                self._start_ns = now_ns - round(self._number * period_ns)
            due_count = int((now_ns - self._start_ns) // period_ns) + 1 - self._number
            count = min(max(count, self._batches.max_rounds), due_count)
        messages: list[Frame | Note] = []
        for _ in range(count):
            is_batch_end = self._number == self._batches.last_round(self._number)
            messages += self._sample(is_batch_end=is_batch_end)
            if is_batch_end:
                self._batches.mark_drained(self._number - 1)
        return messages

    def close(self) -> None:
        """Does nothing, because there is nothing to stop."""

    def _sample(self, *, is_batch_end: bool) -> list[Frame | Note]:
        """Returns the next frame, after notes if there are any. With `is_batch_end`, the frame has
        the block that a real machine reads once a batch."""
        time_ns = self._number * self._sample_ns
        tables = self._schedule.tables
        stage = tables.stages.index(time_ns)
        online = tables.online[stage, : self._machine.cpus] > 0
        late_ns, width, is_wide = self._lateness.sample_lateness(self._number)
        times = np.full(self._machine.slots, time_ns, np.int64)
        # Counters have their values at the middle of the read.
        times[: self._machine.cpus] += late_ns + width // 2
        if self._watched is not None and self._number:
            self._watched.add_ended_stages(self._cursor, time_ns - self._sample_ns, time_ns)
        totals = self._cursor.at_times(time_ns, times)[:, : self._machine.cpus]
        rebased = online & ~self._online
        notes = self._apply_hotplug(time_ns, online, totals, rebased)
        flags = np.where(online, wire.ROW_SAMPLED + is_wide, wire.ROW_OFFLINE)
        flags = np.where(self._selected_cpus | ~online, flags + wire.ROW_REBASED * rebased, 0)
        raw_ns = self.hello.raw_ns + time_ns
        begin_ns = raw_ns + late_ns
        heads = np.zeros((self._machine.cpus, wire.HEAD), np.int64)
        heads[:, 0] = tsc(begin_ns) + self._lateness.offset
        heads[:, 1] = tsc(begin_ns + width) + self._lateness.offset
        heads[:, 2] = late_ns
        heads[(flags & wire.ROW_SAMPLED) == 0] = 0
        heads[:, 4] = flags
        # The head of all rows that are not read by the threads of CPUs.
        stamps = tsc(raw_ns + STAT_READ_NS), tsc(raw_ns + STAT_READ_NS + STAT_WIDTH_NS)
        head = np.array([*stamps, STAT_READ_NS, 0, wire.ROW_SAMPLED], np.uint64).tobytes()
        cpu_heads, sampled = heads.tobytes(), online & self._selected_cpus
        counts = totals - self._base
        blocks = {t.block.name: t.rows(cpu_heads, sampled, counts) for t in self._cpu_tables}
        blocks = {"cpu": blocks["cpu"], "stat": self._stat.rows(head, online, totals)} | blocks
        if self._packages is not None:
            values = self._packages.values(time_ns, self._sample_ns, totals)
            blocks["package"] = _fully_valid_rows(head, values)
        if is_batch_end:
            values = self._machine_counters.values(time_ns, stage, totals)
            blocks["machine"] = _fully_valid_rows(head, values)
        records = self._records(time_ns, stage, totals)
        if self._watched is not None:
            records |= self._watched.record(stage, totals, online)
        self._last = totals
        frame = Frame(self._number, raw_ns, blocks, records=records)
        self._number += 1
        return [*notes, frame]

    def _apply_hotplug(
        self, time_ns: int, online: NDArray[np.bool_], totals: Ints, rebased: NDArray[np.bool_]
    ) -> list[Note]:
        if (online == self._online).all():
            return []
        # The counters of a CPU restart when it comes online again.
        self._base = np.where(rebased, totals if self._last is None else self._last, self._base)
        for table in self._cpu_tables:
            table.restart(rebased)
        notes = list[Note]()
        start_ns = time_ns - self._schedule.tables.stages.since_start(time_ns)
        for cpu in np.flatnonzero(online != self._online).tolist():
            is_on = bool(online[cpu])
            row = asdict(self._machine.row(cpu, is_on))
            data = {"cpu": cpu, "online": is_on, "row": row}
            notes.append(Note("hotplug", self.hello.raw_ns + start_ns, data=data))
        self._online = online
        return notes

    def _records(self, time_ns: int, stage: int, totals: Ints) -> dict[str, object]:
        """Returns the frame's records of tasks, once a second; usually empty. Shares are of the
        time since the previous record or the start of the task."""
        if self._last is None or self._last_scan is None:
            self._last_scan = time_ns, stage, totals
            return {}
        tasks = self._schedule.tables.tasks
        since_ns, last_stage, base = self._last_scan
        if stage != last_stage:
            names, last_names = (
                [[task.comm for task in cpu] for cpu in tasks[number]]
                for number in (stage, last_stage)
            )
            is_same = [a == b for a, b in zip(names, last_names, strict=True)]
            base = np.where(is_same[: self._machine.cpus], base, self._last)
        span_ns = time_ns - since_ns
        if since_ns and span_ns < TASK_SCAN_NS:  # the first record is sent immediately
            self._last_scan = since_ns, stage, base
            return {}
        self._last_scan = time_ns, stage, totals
        shares = np.minimum((totals[Row.BUSY] - base[Row.BUSY]) / span_ns, 1.0)
        sleeps = (totals[Row.ENTRIES] - base[Row.ENTRIES]) / (span_ns / 1e9)
        return self._tasks.records(tasks[stage], shares, sleeps)


def _fully_valid_rows(head: bytes, values: counters.Words) -> Rows:
    valid = np.full(len(values), np.uint64(2 ** values.shape[1] - 1))
    return Rows(head, valid.tobytes(), values.tobytes())
