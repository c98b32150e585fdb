"""The messages of the wire and their parts; the package's docstring explains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

VERSION = 1

HEAD = 5
"""Number of words in the head of a row."""

ROW_SAMPLED = 1
ROW_ELSEWHERE = 2  # read on another CPU: values that only the row's CPU can read are not valid
ROW_WIDE = 4  # interrupted, even when repeated: the stamps before and after are far apart
ROW_REBASED = 8  # counters started again: differences to earlier rows mean nothing
ROW_OFFLINE = 16
ROW_UNPINNED = 32  # the thread could not be pinned to the CPU

Scope = Literal["cpu", "core", "package", "machine"]


@dataclass(frozen=True, slots=True)
class Counter:
    key: str
    name: str
    unit: str  # base unit: "cycles", "instructions", "s", "Hz", "J", "°C", "1"
    origin: str  # the origin of the value, in a word or two
    kind: Literal["counter", "gauge", "flags"] = "counter"
    bits: int = 64
    scale: float = 1.0
    columns: int = 1
    parts: list[str] = field(default_factory=list)
    cpus: list[int] | None = None


def with_columns(counters: Iterable[Counter]) -> Iterator[tuple[int, Counter]]:
    """The counters of a block, each with its first column."""
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
    """A row of the topology. Fields are None where unknown (an offline CPU)."""

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
    """A candidate: one tick of `counter` may be `factor` ticks of the TSC. Lists have the best
    first."""

    counter: str
    factor: float
    why: str
    type: str | None = None  # the core type, on machines with several core types


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a turbo table."""

    cores: int
    """Maximum number of active cores."""
    hz: float


@dataclass(frozen=True, slots=True)
class Turbo:
    """The highest clock of a package's cores by the number of active cores. Steps ascend; the last
    step also applies to more cores."""

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
    """The job that the user wants to watch: a PID or a name."""
    labels: dict[str, str] = field(default_factory=dict)
    """The user's names for this run."""
    command: list[str] = field(default_factory=list)
    """The command that the run measures; empty: none."""
    interval_ns: int | None = None
    """The interval that a line of a report covers, as the user requested."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of the system by name, as its kernel prints them."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Keys of chosen events, each with the key of the counter that counts the event already."""

    def rows(self, scope: Scope) -> int:
        """Returns the number of rows of a block of this scope."""
        counts = {
            "cpu": len(self.topology),
            "core": len(self.cores),
            "package": len(self.packages),
            "machine": 1,
        }
        return counts[scope]


Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Rows:
    """One block of one frame, as little-endian u64."""

    head: Bytes
    valid: Bytes
    values: Bytes


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Packed:
    """A frame or note of a recording, as its difference to the previous one."""

    time_ns: int
    first: bool
    """Whether the message can be unpacked without an earlier message."""
    crc: int
    """CRC-32 of all packed messages from the last `first` message to this message, because files
    get damaged."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Bye:
    reason: str
    status: int = 0


Message = Hello | Frame | Note | Packed | Bye
