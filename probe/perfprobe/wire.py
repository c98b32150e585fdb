"""The wire, version 1: what a probe says, in a pipe, a socket or a file - the same bytes.

**Framing.** A stream is a row of msgpack `bin` objects. Each holds one message: a msgpack map
with string keys and a `type`. The outer `bin` is a length, so a reader can skip a message without
understanding it and knows where the last whole one ended. A message is at most MAX_MESSAGE bytes.
The first message is a `hello`; then `frame`s and `note`s in any order; a `bye`, if the probe ended
on purpose, is the last. A stream without a bye was cut.

**Growth.** Unknown keys, message types, note kinds, blocks' counters and records are skipped and
do not raise the version. Only a hello with another `wire` number is refused.

**hello** describes all that is needed to read the frames. Its keys are the fields of `Hello`:
topology rows (one per CPU of the machine), `cores` and `packages` (lists of CPU numbers, in the
order of their rows in frames), and `blocks`. Times: `wall_ns` is Unix time, `raw_ns` is
CLOCK_MONOTONIC_RAW and `tsc` the time-stamp counter, all of one moment; later times are raw only.
`stamp` says what the stamps in row heads count: `tsc` (ticks of `tsc_hz`) or `raw` (ns, where the
TSC must not be read). `tsc_hz` and `base_hz` are null where unknown.

**Blocks.** A block is a table of u64 that is read together: one row for each CPU (in the order of
`topology`), core, package, or one row for the machine, as its `scope` says. Its counters take
`columns` columns each, in their order. Values are raw and cumulative:
- kind `counter`: counts up, `bits` wide, wraps to zero. Value x `scale` is in `unit`. Of several
  columns the counter is the sum; `parts` names them (idle states, say).
- kind `gauge`: the value now. Signed gauges are two's complement.
- kind `flags`: columns are the number of polls, then for each bit the polls that saw it set;
  `parts` names the bits.
`cpus` lists the CPUs that have the counter (null: all): hybrids and partial rights need no second
block. Rates, shares and verdicts are never on the wire.

**frame**: `seq` (counts frames the probe made), `time_ns` (raw time at which the sampling was due),
`lost` (frames so far that a slow reader did not get), `late` (deadlines so far that were missed by
all), `blocks` and `records`. `blocks` maps a name to `{"head": bin, "valid": bin, "values": bin}`,
all little-endian u64 and C order:
- `head`: HEAD words a row: stamp before the read, stamp after it, lateness in ns of the wake-up
  against `time_ns`, samples of this row lost so far, ROW_ flags. One head row stands for all rows.
- `valid`: ceil(columns/64) words a row; bit i says whether column i holds data. Without ROW_SAMPLED
  the row was not read in this frame (its next delta covers the whole span) and nothing is valid.
- `values`: columns words a row. What is not valid is to be ignored.
`records` maps names to any msgpack value:
- `tasks`: {CPU as text: [pid, comm, share]}: of the tasks that last ran on a CPU the one that ran
  most, and for what share of elapsed time. It is in a frame only if it was looked at anew, about
  once a second, and replaces the one before; on a CPU that is not in it nobody ran to speak of. Of
  a thread, `pid` is its process, `comm` its own name.
- `details`: {pid as text: {"user", "command", "threads", "affinity"}}, of processes that `tasks`
  names, when it first does and now and then again. Fields may be missing; `affinity` is a list of
  CPUs as text ("0-3,8").

**note**: `kind`, `time_ns`, `author` (`probe` or `recorder`), `data` (a map). Kinds so far:
`hotplug` {"cpu", "online", "row": the CPU's topology row as it is now}, `warning` {"text"},
`mark` {"label"}, `run-start` and `run-end` {"pid", "status"}.

**bye**: `reason` (text), `status` (0 when all was well).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union

import msgpack

VERSION = 1
MAX_MESSAGE = 16 << 20  # a frame of 8192 CPUs with 200 columns
MAX_ELEMENTS = 1 << 15  # in one array or map: bounds what a lying length can reserve
MAX_COLUMNS = 512  # in one block

HEAD = 5
"""Words in the head of a row."""

ROW_SAMPLED = 1
ROW_ELSEWHERE = 2  # read on another CPU than its own: what only its own CPU can tell is not valid
ROW_WIDE = 4  # interrupted, and still so after repeats: before and after lie far apart
ROW_REBASED = 8  # counters started anew: no difference with what came before
ROW_OFFLINE = 16
ROW_UNPINNED = 32  # the thread could not be pinned to the CPU

Scope = Literal["cpu", "core", "package", "machine"]


class WireError(Exception):
    """The bytes are not a stream of this version; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Counter:
    key: str
    name: str
    unit: str  # base unit: "cycles", "instructions", "s", "Hz", "J", "°C", "1"
    origin: str  # where the value comes from, in a word or two
    kind: Literal["counter", "gauge", "flags"] = "counter"
    bits: int = 64
    scale: float = 1.0
    columns: int = 1
    parts: list[str] = field(default_factory=list)
    cpus: list[int] | None = None


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
    """A row of the topology. None where the kernel does not say (a CPU that is off)."""

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
    """A candidate: one tick of `counter` may be `factor` ticks of the TSC. Best first."""

    counter: str
    factor: float
    why: str
    type: str | None = None  # core type, where they differ


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
    smt_methods: list[str] = field(default_factory=list)  # possible ones, best first
    selected: list[int] | None = None  # CPUs the user asked for; null: all
    missing: list[Missing] = field(default_factory=list)

    def rows(self, scope: Scope) -> int:
        """How many rows a block of this scope has."""
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
class Bye:
    reason: str
    status: int = 0


Message = Hello | Frame | Note | Bye
_TYPES: dict[str, type[Any]] = {"hello": Hello, "frame": Frame, "note": Note, "bye": Bye}
_NAMES = {cls: name for name, cls in _TYPES.items()}


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    if isinstance(message, Frame):  # the hot one: asdict would copy the blocks
        blocks = {
            name: {"head": rows.head, "valid": rows.valid, "values": rows.values}
            for name, rows in message.blocks.items()
        }
        body = {
            "type": "frame",
            "seq": message.seq,
            "time_ns": message.time_ns,
            "lost": message.lost,
            "late": message.late,
            "blocks": blocks,
            "records": message.records,
        }
    else:
        body = {"type": _NAMES[type(message)], **dataclasses.asdict(message)}
    packed = msgpack.packb(msgpack.packb(body))
    assert isinstance(packed, bytes)
    return packed


class Decoder:
    """Turns bytes into messages. Memory is bounded by MAX_MESSAGE whatever arrives."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.ended = False
        """A bye was read."""
        self.offset = 0
        """Where the last whole message ended."""
        self._rest = bytearray()

    @property
    def cut(self) -> int:
        """Bytes after the last whole message: not 0 at the end of a stream that was cut."""
        return len(self._rest)

    def feed(self, data: Bytes) -> Iterator[Message]:
        """All messages that are whole by now. WireError: nothing after it can be read."""
        self._rest += data
        while (ends := self._outer()) is not None:
            start, end = ends
            message = self._decode(bytes(self._rest[start:end]))
            del self._rest[:end]
            self.offset += end
            if message is not None:
                yield message

    def _outer(self) -> tuple[int, int] | None:
        """Where the body of the first message starts and ends; None: not all there yet. Read by
        hand, because msgpack's Unpacker would wait for as much as a lying length claims."""
        rest = self._rest
        if not rest:
            return None
        width = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(rest[0])
        if width is None:
            raise WireError(self._damage("not a perftop stream"))
        start = 1 + width
        if len(rest) < start:
            return None
        length = int.from_bytes(rest[1:start], "big")
        if length > MAX_MESSAGE:
            raise WireError(self._damage(f"not a perftop stream (a message of {length} bytes)"))
        return (start, start + length) if len(rest) >= start + length else None

    def _decode(self, packed: bytes) -> Message | None:
        try:
            body = msgpack.unpackb(
                packed, max_array_len=MAX_ELEMENTS, max_map_len=MAX_ELEMENTS, max_ext_len=0
            )
        except (ValueError, msgpack.UnpackException) as error:
            text = str(error) or type(error).__name__
            raise WireError(self._damage(f"a damaged message ({text})")) from None
        if not isinstance(body, dict):
            raise WireError(self._damage("a message that is not a map"))
        kind = body.get("type")
        if self.hello is None and kind != "hello":
            raise WireError(self._damage("no hello at the start"))
        cls = _TYPES.get(kind) if isinstance(kind, str) else None
        if cls is None:
            return None
        if cls is Hello:
            self._check_hello(body)
        try:
            if cls is Frame:
                assert self.hello is not None
                return _frame(self.hello, body)
            message: Message = _load(cls, body, _NAMES[cls])
            if isinstance(message, Hello):
                _check_shape(message)
                self.hello = message
        except WireError as error:
            raise WireError(self._damage(str(error))) from None
        self.ended |= isinstance(message, Bye)
        return message

    def _check_hello(self, body: dict[Any, Any]) -> None:
        version = body.get("wire")
        if version != VERSION:
            raise WireError(
                f"wire version {version!r} is not one this perftop reads ({VERSION}): "
                "use the same perftop at both ends"
            )
        if self.hello is not None:
            raise WireError(self._damage("a second hello"))

    def _damage(self, what: str) -> str:
        return f"{what}, at byte {self.offset}"


def _check_shape(hello: Hello) -> None:
    """What a hello says of itself must fit together, or frames would be misread."""
    cpus = [row.cpu for row in hello.topology]
    if not cpus or len(set(cpus)) != len(cpus):
        raise WireError("hello: no CPUs, or one CPU twice")
    names = [block.name for block in hello.blocks]
    if len(set(names)) != len(names):
        raise WireError("hello: two blocks of one name")
    known = set(cpus)
    if not known.issuperset(cpu for group in (*hello.cores, *hello.packages) for cpu in group):
        raise WireError("hello: cores or packages name a CPU that is not in the topology")
    if hello.tsc_hz is not None and not 0 < hello.tsc_hz.hz < 1e12:
        raise WireError(f"hello: a TSC of {hello.tsc_hz.hz} Hz")
    if not 0 < hello.sample_ns < 1 << 62:
        raise WireError(f"hello: a sampling interval of {hello.sample_ns} ns")
    for block in hello.blocks:
        if any(not 0 < c.bits <= 64 or not 0 < c.columns <= 256 for c in block.counters):
            raise WireError(f"hello: block {block.name} has a counter of impossible width")
        if block.columns > MAX_COLUMNS:
            raise WireError(f"hello: block {block.name} claims {block.columns} columns")
        if 8 * hello.rows(block.scope) * (block.columns + HEAD) > MAX_MESSAGE:
            raise WireError(f"hello: block {block.name} would not fit into a message")


def _frame(hello: Hello, body: dict[str, Any]) -> Frame:
    """By hand, because it is the hot one: a frame with the blocks that hello told of, each of the
    size hello gave it, and no others."""
    seq, time_ns = body.get("seq"), body.get("time_ns")
    lost, late = body.get("lost", 0), body.get("late", 0)
    given, records = body.get("blocks"), body.get("records", {})
    if not all(type(number) is int for number in (seq, time_ns, lost, late)):
        raise WireError("frame: seq, time_ns, lost and late are whole numbers")
    if not isinstance(given, dict) or not isinstance(records, dict):
        raise WireError(f"frame {seq}: blocks and records are maps")
    blocks: dict[str, Rows] = {}
    for block in hello.blocks:
        data = given.get(block.name)
        if data is None:
            continue
        named = data if isinstance(data, dict) else {}
        parts: list[Any] = [named.get(name) for name in ("head", "valid", "values")]
        if not all(isinstance(part, bytes) for part in parts):
            raise WireError(f"frame {seq}: block {block.name} is not head, valid and values")
        n = hello.rows(block.scope)
        sizes = [len(part) for part in parts]
        if sizes[0] not in {8 * HEAD, 8 * HEAD * n} or sizes[1:] != [
            8 * n * block.valid_words,
            8 * n * block.columns,
        ]:
            raise WireError(f"frame {seq}: block {block.name} has not the size hello gave it")
        blocks[block.name] = Rows(*parts)
    return Frame(seq, time_ns, blocks, lost, late, records)  # type: ignore[arg-type]


# --- maps to dataclasses -------------------------------------------------------------------------

T = TypeVar("T")
_hints: dict[type[Any], dict[str, Any]] = {}


def _load(cls: type[T], value: Any, where: str) -> T:
    """A dataclass from a map. Unknown keys are skipped; wrong or missing ones are named."""
    if not isinstance(value, dict):
        raise WireError(f"{where}: a map was expected")
    hints = _hints.get(cls)
    if hints is None:
        hints = _hints[cls] = typing.get_type_hints(cls)
    known = {}
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]
        if item.name in value:
            known[item.name] = _value(hints[item.name], value[item.name], f"{where}.{item.name}")
        elif item.default is item.default_factory:  # both MISSING: the field has no default
            raise WireError(f"{where}: {item.name} is missing")
    return cls(**known)


def _value(hint: Any, value: Any, where: str) -> Any:
    """The value, if it is what the hint says; the few kinds of hint that stand above."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if hint == Bytes:
        if isinstance(value, bytes):
            return value
    elif origin in {Union, types.UnionType}:
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        return _value(next(o for o in options if o is not type(None)), value, where)
    elif origin is list:
        if isinstance(value, list):
            (inner,) = typing.get_args(hint)
            return [_value(inner, item, where) for item in value]
    elif origin is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            inner = typing.get_args(hint)[1]
            return {key: _value(inner, item, f"{where}.{key}") for key, item in value.items()}
    elif origin is Literal:
        if value in typing.get_args(hint):
            return value
    elif dataclasses.is_dataclass(hint):
        return _load(typing.cast("type[Any]", hint), value, where)
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise WireError(f"{where}: {str(value)[:40]!r} was not expected")
