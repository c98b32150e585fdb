"""The messages of a stream and their parts; perfprobe.wire describes all fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

VERSION = 1

HEAD = 5
"""Number of u64 words in the head of a row."""

# Flags in the head of a row.
ROW_SAMPLED = 1  # the row was read in this frame
ROW_ELSEWHERE = 2  # read on another CPU: values that only the row's CPU can read are not valid
ROW_WIDE = 4  # the read was interrupted, even when repeated: its two stamps are far apart
ROW_REBASED = 8  # counters were restarted: differences from earlier rows are meaningless
ROW_OFFLINE = 16
ROW_UNPINNED = 32  # the thread could not be pinned to the CPU

Scope = Literal["cpu", "core", "package", "machine"]


@dataclass(frozen=True, slots=True)
class Counter:
    key: str
    name: str
    unit: str  # base unit: "cycles", "instructions", "s", "Hz", "J", "°C", "1"
    origin: str  # where the value is read, in a word or two: "perf", "cpuidle", "MSR E7H"
    kind: Literal["counter", "gauge", "flags"] = "counter"
    bits: int = 64
    scale: float = 1.0
    columns: int = 1
    parts: list[str] = field(default_factory=list)
    cpus: list[int] | None = None


def with_columns(counters: Iterable[Counter]) -> Iterator[tuple[int, Counter]]:
    """Yields the counters of a block, each after the number of its first column."""
    first = 0
    for counter in counters:
        yield first, counter
        first += counter.columns


@dataclass(frozen=True, slots=True)
class Block:
    name: str
    scope: Scope
    counters: list[Counter]

    @property
    def columns(self) -> int:
        return sum(c.columns for c in self.counters)

    @property
    def valid_words(self) -> int:
        return -(-self.columns // 64)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A row of the topology. Fields that are unknown, as for an offline CPU, are None."""

    cpu: int
    online: bool
    package: int | None = None
    die: int | None = None
    core: int | None = None
    thread: int | None = None
    l3: int | None = None
    node: int | None = None
    type: str | None = None
    siblings: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Identity:
    vendor: str = ""
    family: int | None = None
    model: int | None = None
    stepping: int | None = None
    name: str = ""
    microcode: str | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    hz: float
    origin: str
    error: float | None = None  # relative


@dataclass(frozen=True, slots=True)
class Multiplier:
    """A candidate for the length of a tick of `counter`: `factor` ticks of the TSC. Lists of
    candidates have the likeliest first."""

    counter: str
    factor: float
    why: str
    type: str | None = None  # the core type, on machines with several core types


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a turbo table: the highest clock with up to this many active cores."""

    cores: int
    hz: float


@dataclass(frozen=True, slots=True)
class Turbo:
    """A turbo table: the highest clock of a package's cores by the number of active cores. Steps
    ascend; the last step also applies to more cores."""

    steps: list[Step]
    origin: str
    cpus: list[int] | None = None
    """The CPUs that the table applies to, where core types differ; None: all."""


@dataclass(frozen=True, slots=True)
class Missing:
    what: str
    why: str
    fix: str | None = None
    cpus: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    perftop: str
    source: str
    host: str
    kernel: str
    wall_ns: int
    raw_ns: int
    sample_ns: int
    topology: list[Cpu]
    cores: list[list[int]]
    packages: list[list[int]]
    blocks: list[Block]
    wire: int = VERSION
    boot_id: str | None = None
    identity: Identity = field(default_factory=Identity)
    virtualisation: str | None = None
    stamp: Literal["tsc", "raw"] = "tsc"
    tsc: int | None = None
    tsc_hz: Rate | None = None
    base_hz: Rate | None = None
    multipliers: list[Multiplier] = field(default_factory=list)
    # methods that this machine allows, best first
    smt_methods: list[str] = field(default_factory=list)
    selected: list[int] | None = None  # CPUs the user asked for; null: all
    missing: list[Missing] = field(default_factory=list)
    turbo: list[Turbo] = field(default_factory=list)
    watch: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    interval_ns: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def rows(self, scope: Scope) -> int:
        counts = {
            "cpu": len(self.topology),
            "core": len(self.cores),
            "package": len(self.packages),
            "machine": 1,
        }
        return counts[scope]


Bytes = bytes | bytearray | memoryview


@dataclass(slots=True)  # frozen, it would take four times as long to make
class Rows:
    """The data of one block in a frame, as little-endian u64."""

    head: Bytes
    valid: Bytes
    values: Bytes


@dataclass(slots=True)  # frozen, it would take four times as long to make
class Frame:
    seq: int
    time_ns: int
    blocks: dict[str, Rows]
    lost: int = 0
    late: int = 0
    records: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    kind: str
    time_ns: int
    author: str = "probe"
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)  # frozen, it would take four times as long to make
class Packed:
    """A compressed frame or note of a recording, as its difference from the previous message."""

    time_ns: int
    first: bool
    """Whether the message can be unpacked without an earlier message."""
    crc: int
    """CRC-32 of the data of all packed messages from the last `first` message to this one."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Bye:
    reason: str
    status: int = 0


Message = Hello | Frame | Note | Packed | Bye
