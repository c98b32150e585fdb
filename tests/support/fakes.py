"""Machines whose CPU activity a test specifies, and a stream that the test drives."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import synth
from sessions import session_of

from perfprobe import wire
from perfprobe.wire import Block, Counter, Frame, Hello, Note
from perftop.base.errors import Failed
from perftop.model.delta import Doubt
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session

SECOND = 1e-9
_CPU = (
    *(synth.counter(key) for key in ("ref", "cycles", "instructions", "kernel_cycles")),
    synth.counter("one_thread", "1"),
    synth.counter("idle_s", "s", scale=SECOND, bits=64),
)
_STAT = tuple(
    synth.counter(f"stat_{key}_s", "s", scale=SECOND, bits=64)
    for key in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
)


@dataclass
class CpuLoad:
    """The activity of one CPU: its clock in Hz, its IPC, and shares of its time or cycles."""

    util: float = 0.5
    hz: float = 3.0e9
    ipc: float = 1.25
    kernel: float = 0.1
    alone: float | None = None
    """Share of the time in which only this sibling runs; None: the minimum for the other sibling's
    load."""
    involuntary: float = 0.0
    steal: float = 0.0
    system: float = 0.1
    irq: float = 0.0


@dataclass
class Machine:
    """Makes the hello and the frames of a machine whose CPUs have the activity in `loads`. Between
    two frames, counters advance at constant rates, even if a test changes `loads`."""

    cores: int = 4
    threads: int = 2
    counted: bool = True
    """Whether there are core counters; otherwise only the times of /proc/stat, as in a guest."""
    split: bool = True
    """Whether a counter measures the SMT states; otherwise only their bounds are known."""
    ceiling_hz: float | None = 3.2e9
    loads: dict[int, CpuLoad] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    """CPUs whose cycles and instructions advance faster than is possible."""
    offline_cpus: set[int] = field(default_factory=set)
    _seq: int = field(default=0, init=False)
    _sums: dict[int, dict[str, int]] = field(default_factory=dict, init=False)
    """Counters by CPU and key, after `_seq` samples."""

    def __post_init__(self) -> None:
        chosen = _CPU if self.split else [c for c in _CPU if c.key != "one_thread"]
        self.hello = self._hello(list(chosen) if self.counted else [_CPU[-1]])

    def _hello(self, counters: list[Counter]) -> Hello:
        plain = synth.hello(
            counters, cores=self.cores, threads=self.threads, stat=_STAT, **self.changes
        )
        if self.counted and self.ceiling_hz is not None:
            plain.blocks.append(Block("package", "package", [synth.CEILING]))
        return plain

    def cpu(self, number: int) -> CpuLoad:
        return self.loads.setdefault(number, CpuLoad())

    def frame(self, seq: int, **more: Any) -> Frame:
        """Returns the frame after `seq` samples. Counters restart if the previous frame had a
        higher `seq`."""
        if seq < self._seq:
            self._seq, self._sums = 0, {}
        samples, self._seq = seq - self._seq, seq
        ns, ticks = seq * synth.SAMPLE_NS, int(seq * synth.TSC_HZ / 10)
        n = len(self.hello.topology)
        self._advance(samples)
        cells = [self._counters(row.cpu) for row in self.hello.topology]
        values: dict[str, list[int | None]] = {key: [c[key] for c in cells] for key in cells[0]}
        values["ceiling_hz"] = [int(self.ceiling_hz or 0)] * n
        flags = [
            wire.ROW_OFFLINE if row.cpu in self.offline_cpus else wire.ROW_SAMPLED
            for row in self.hello.topology
        ]
        blocks = {}
        for block in self.hello.blocks:
            rows = self.hello.rows(block.scope)
            block_flags = flags if block.scope == "cpu" else [wire.ROW_SAMPLED] * rows
            blocks[block.name] = synth.rows(block, rows, values, [ticks] * rows, flags=block_flags)
        return Frame(seq, ns, blocks, **more)

    def messages(
        self, samples: int, records: Callable[[int], dict[str, Any]]
    ) -> list[wire.Message]:
        """Returns the hello and the frames of these samples; every tenth frame has records."""
        records_of = {seq: {} if seq % 10 else records(seq) for seq in range(samples)}
        return [self.hello, *(self.frame(seq, records=r) for seq, r in records_of.items())]

    def _counters(self, cpu: int) -> Mapping[str, int | None]:
        return self._sums[cpu]

    def _advance(self, samples: int) -> None:
        """Advances the counters of all CPUs by `samples` samples. CPUs with the same activity
        advance by the same amounts, which are computed once."""
        siblings = {cpu: core for core in self.hello.cores for cpu in core}
        amounts: dict[tuple[object, ...], dict[str, int]] = {}
        for row in self.hello.topology:
            load, is_broken = self.cpu(row.cpu), row.cpu in self.broken
            alone = load.alone
            if alone is None:
                alone = max(0.0, load.util - min(self.cpu(cpu).util for cpu in siblings[row.cpu]))
            activity = *vars(load).values(), alone, is_broken
            if activity not in amounts:
                moved = self._moved(load, alone, is_broken=is_broken, samples=samples)
                amounts[activity] = {key: round(amount) for key, amount in moved.items()}
            sums = self._sums.setdefault(row.cpu, dict.fromkeys(amounts[activity], 0))
            for key, amount in amounts[activity].items():
                sums[key] += amount

    @staticmethod
    def _moved(load: CpuLoad, alone: float, *, is_broken: bool, samples: int) -> dict[str, float]:
        """Returns the amounts by which the counters of a CPU with this activity advance in
        `samples` samples. `alone`: the share of the time in which only this sibling runs."""
        ns, ticks = samples * synth.SAMPLE_NS, samples * synth.TSC_HZ / 10
        ref = load.util * ticks * (1000 if is_broken else 1)
        cycles = ref * load.hz / synth.TSC_HZ
        idle = 1 - load.util - load.involuntary - load.steal
        busy = load.util - load.system
        return {
            "ref": ref,
            "cycles": cycles,
            "instructions": cycles * load.ipc,
            "kernel_cycles": cycles * load.kernel,
            "one_thread": alone * ticks,
            "idle_s": idle * ns,
            "stat_user_s": max(busy, 0.0) * ns,
            "stat_system_s": min(load.system, load.util) * ns,
            "stat_idle_s": idle * ns,
            "stat_steal_s": load.steal * ns,
            "stat_irq_s": load.irq * ns,
            **{f"stat_{key}_s": 0 for key in ("nice", "iowait", "softirq")},
        }


NO_PMU = [
    wire.Missing(key, "no core PMU in this guest: the hypervisor does not expose one")
    for key in ("ref", "cycles", "instructions", "kernel_cycles")
]


def guest(loads: dict[int, CpuLoad] | None = None) -> Machine:
    """A guest with two CPUs and no core counters."""
    changes = {"virtualisation": "kvm", "missing": NO_PMU}
    return Machine(cores=2, threads=1, counted=False, loads=loads or {}, changes=changes)


def observe(machine: Machine, samples: int = 5, **more: Any) -> tuple[Session, Interval]:
    """Returns a session of the machine and its first interval."""
    session = Session(machine.hello, History(machine.hello))
    session_of(session, [machine.frame(seq, **more) for seq in range(samples + 1)])
    return session, session.take_interval()


def with_suspect_counter(interval: Interval, cpu: int, key: str) -> Interval:
    """Returns the interval with this counter of the CPU marked as suspect; values are unchanged."""
    doubts = interval.doubts.copy()
    doubts[cpu, interval.keys.index(key)] = Doubt.JUMPED
    return dataclasses.replace(interval, doubts=doubts)


class AnyProbe:
    """A stream that sends what the test specifies."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.seq = 0
        self.first_frames = 1
        """Number of frames that are sent together with the hello."""
        self.closed = False
        self._queue: asyncio.Queue[list[wire.Message] | Failed] = asyncio.Queue()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AnyProbe]:
        self.send(self.machine.hello)
        self.frames(self.first_frames)
        try:
            yield self
        finally:
            self.closed = True

    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        while True:
            batch = await self._queue.get()
            if isinstance(batch, Failed):
                raise batch
            yield batch

    def send(self, *messages: wire.Message) -> None:
        self._queue.put_nowait([*messages])

    def frames(self, count: int, **more: Any) -> None:
        numbers = range(self.seq, self.seq + count)
        self.send(*(self.machine.frame(seq, **more) for seq in numbers))
        self.seq += count

    def die(self, why: str) -> None:
        self._queue.put_nowait(Failed(why))

    def offline(self, cpu: int) -> None:
        self.machine.offline_cpus.add(cpu)
        data = {"cpu": cpu, "online": False}
        self.send(Note("hotplug", self.seq * synth.SAMPLE_NS, data=data))


def task_records(names: Sequence[str]) -> dict[str, Any]:
    return {"tasks": {str(cpu): [4000 + cpu, name, 0.9] for cpu, name in enumerate(names)}}


def queue_records(**queues: Sequence[tuple[int, str, float, float]]) -> dict[str, Any]:
    """Returns the records of tasks of CPUs `cpu0` and so on. Each task has a PID, a name, and the
    shares of the time for which it ran and waited; the first task of a CPU is its main one."""
    by_cpu = {cpu.removeprefix("cpu"): tasks for cpu, tasks in queues.items()}
    ran = {cpu: [[*task[:3]] for task in tasks] for cpu, tasks in by_cpu.items()}
    return {
        "tasks": {cpu: tasks[0] for cpu, tasks in ran.items()},
        "others": ran,
        "waits": {cpu: [[task[3], 20] for task in tasks] for cpu, tasks in by_cpu.items()},
    }


def session_of_core(
    machine: Machine, script: Callable[[Machine, int], None] = lambda _, __: None,
    samples: int = 50, **more: Any,
) -> tuple[Session, Interval]:  # fmt: skip
    """Returns a session with history after `samples` samples, and the interval of its last half
    second. `script`: changes the machine before each sample."""
    session = Session(machine.hello, History(machine.hello))
    frames = []
    for seq in range(samples + 1):
        script(machine, seq)
        frames.append(machine.frame(seq, **more))
    session_of(session, frames[:-5]).take_interval()
    return session, session_of(session, frames[-5:]).take_interval()
