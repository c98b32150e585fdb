"""Converts decoded maps from outside to messages, and checks that they are consistent. A WireError
names the part that is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from dataclasses import MISSING, asdict, replace
from itertools import chain
from typing import Any, Literal, TypeVar, Union

from perfprobe.wire.messages import HEAD, Bytes, Cpu, Frame, Hello, Note, Packed, Rows

MAX_MESSAGE = 16 << 20  # maximum size in bytes of a message: a frame of 8192 CPUs, 200 columns
MAX_COLUMNS = 512  # maximum number of columns in one block

MAX_TIME_NS = 1 << 62
"""Upper bound of any time in ns, so that sums and differences of a few times fit into 64 bits."""

MAX_DEPTH = 32
"""Maximum depth of nested lists and maps in values of any form (records, data of notes)."""


MAX_ERROR_LENGTH = 160
"""Maximum number of characters in the text of a WireError."""


class WireError(Exception):
    """The bytes are not a valid stream of this version; the text is one line for the user."""

    def __init__(self, text: str) -> None:
        # The text may contain long names from other programs.
        super().__init__(text[:MAX_ERROR_LENGTH])


class ForeignDataError(WireError):
    """The bytes are not a stream at all: they do not begin like a message."""


class VersionError(WireError):
    """The stream has a wire version that cannot be read."""


def check_hello(hello: Hello) -> None:
    """Raises WireError if parts of a hello contradict each other: frames would be misread."""
    cpus = [row.cpu for row in hello.topology]
    if not cpus or len(set(cpus)) != len(cpus):
        raise WireError("hello: no CPUs, or one CPU twice")
    for row in hello.topology:
        _check_cpu(row)
    if hello.selected is not None and not set(cpus) >= set(hello.selected) > set():
        raise WireError("hello: no CPUs are selected, or some that are not there")
    for groups in (hello.cores, hello.packages):
        members = [cpu for group in groups for cpu in group]
        if not set(cpus).issuperset(members):
            raise WireError("hello: cores or packages name a CPU that is not in the topology")
        if not all(groups) or len(set(members)) != len(members):
            raise WireError("hello: an empty core or package, or a CPU in two of them")
    for rate in (hello.tsc_hz, hello.base_hz):
        if rate is not None and not 1 <= rate.hz < 1e12:
            raise WireError(f"hello: a clock of {rate.hz} Hz")
    if not all(0 < tick.factor < 1e6 for tick in hello.multipliers):
        raise WireError("hello: an impossible multiplier")
    if not 0 < hello.sample_ns < MAX_TIME_NS:
        raise WireError(f"hello: a sampling interval of {hello.sample_ns} ns")
    if not (0 <= hello.raw_ns < MAX_TIME_NS and 0 <= hello.wall_ns < MAX_TIME_NS):
        raise WireError(f"hello: a time of {hello.raw_ns} or {hello.wall_ns} ns")
    names = [block.name for block in hello.blocks]
    if len(set(names)) != len(names):
        raise WireError("hello: two blocks with one name")
    for block in hello.blocks:
        for c in block.counters:
            if not 0 < c.bits <= 64 or not 0 < c.columns <= 256:
                raise WireError(f"hello: block {block.name} has a counter of impossible width")
            if len(c.parts) > c.columns - (c.kind == "flags"):
                raise WireError(f"hello: {c.key} has more parts than columns")
            if not 1e-18 <= abs(c.scale) <= 1e18:
                raise WireError(f"hello: {c.key} has a scale of {c.scale}")
        if block.columns > MAX_COLUMNS:
            raise WireError(f"hello: block {block.name} claims {block.columns} columns")
    if frame_bytes(hello) > MAX_MESSAGE:
        raise WireError("hello: a frame of its blocks would not fit into a message")
    if not any(block.name == block.scope == "cpu" for block in hello.blocks):
        raise WireError("hello: no cpu block")


def frame_bytes(hello: Hello) -> int:
    sized = ((block, hello.rows(block.scope)) for block in hello.blocks)
    return sum(8 * n * (HEAD + block.valid_words + block.columns) for block, n in sized)


def _check_cpu(row: Cpu) -> None:
    ids = (row.cpu, row.package, row.die, row.core, row.thread, row.l3, row.node, *row.siblings)
    if row.cpu < 0 or any(number is not None and abs(number) >= 1 << 31 for number in ids):
        raise WireError(f"CPU {row.cpu}: an impossible number")


def row_after_hotplug(note: Note, old_row: Cpu) -> Cpu:
    """Returns the topology row of a CPU after a hotplug note. Without a valid row in the note, it
    is the old row with the new `online`."""
    sent_fields, online = note.data.get("row"), bool(note.data.get("online"))
    if isinstance(sent_fields, dict) and online:
        with contextlib.suppress(WireError):
            fields = asdict(old_row) | sent_fields | {"cpu": old_row.cpu, "online": True}
            row = load(Cpu, fields, "row")
            _check_cpu(row)
            return row
    return replace(old_row, online=online)


def apply_hotplug(topology: dict[int, Cpu], note: Note) -> None:
    """Updates the topology row of the CPU in a hotplug note, if `topology` contains it."""
    cpu = note.data.get("cpu")
    if type(cpu) is int and cpu in topology:
        topology[cpu] = row_after_hotplug(note, topology[cpu])


def check_time(message: Frame | Note) -> None:
    if not 0 <= message.time_ns < MAX_TIME_NS:
        raise WireError(f"a time of {message.time_ns} ns")


def check_note(note: Note) -> None:
    check_time(note)
    check_depth(note.data)


def check_frame(frame: Frame) -> None:
    check_time(frame)
    if frame.records:
        check_depth(frame.records)


_CONTAINERS = frozenset({dict, list})


def check_depth(value: object) -> None:
    """Raises WireError if lists and maps are nested more than MAX_DEPTH deep."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        types = {*map(type, level)}
        if types.isdisjoint(_CONTAINERS):
            return
        if types != {list}:
            containers = (nested for nested in level if type(nested) in _CONTAINERS)
            level = [item.values() if type(item) is dict else item for item in containers]
        level = [*chain.from_iterable(level)]
    raise WireError("a message whose lists and maps are nested too deeply")


BlockSize = tuple[str, set[int], tuple[int, int]]
"""A block's name; the possible sizes of its `head` (one head may apply to all rows); the sizes of
its `valid` and `values`. All sizes are in bytes."""


def block_sizes(hello: Hello) -> list[BlockSize]:
    sized = [(block, 8 * hello.rows(block.scope)) for block in hello.blocks]
    return [
        (block.name, {8 * HEAD, n * HEAD}, (n * block.valid_words, n * block.columns))
        for block, n in sized
    ]


def load_frame(block_sizes: list[BlockSize], body: dict[str, Any]) -> Frame:
    """Creates a frame from a decoded map, faster than `load`, because most messages are frames.
    Skips blocks that hello did not announce; raises WireError for a block of another size."""
    seq, time_ns = body.get("seq"), body.get("time_ns")
    lost_count, late_count = body.get("lost", 0), body.get("late", 0)
    raw_blocks, records = body.get("blocks"), body.get("records", {})
    if not all(type(number) is int for number in (seq, time_ns, lost_count, late_count)):
        raise WireError("frame: seq, time_ns, lost and late must be whole numbers")
    if not isinstance(raw_blocks, dict) or not isinstance(records, dict):
        raise WireError(f"frame {seq}: blocks and records must be maps")
    blocks: dict[str, Rows] = {}
    for name, heads, allowed_sizes in block_sizes:
        data = raw_blocks.get(name)
        if data is None:
            continue
        fields = data if isinstance(data, dict) else {}
        head, valid, values = fields.get("head"), fields.get("valid"), fields.get("values")
        if type(head) is not bytes or type(valid) is not bytes or type(values) is not bytes:
            raise WireError(f"frame {seq}: block {name} is not head, valid and values")
        if len(head) not in heads or (len(valid), len(values)) != allowed_sizes:
            raise WireError(f"frame {seq}: block {name} does not have the size that hello gave")
        blocks[name] = Rows(head, valid, values)
    frame = Frame(seq, time_ns, blocks, lost_count, late_count, records)  # type: ignore[arg-type]
    check_frame(frame)
    return frame


def load_packed(body: dict[str, Any]) -> Packed:
    """Creates a packed message from a decoded map; faster than `load`, for recordings."""
    time_ns, first, crc, data = map(body.get, ("time_ns", "first", "crc", "data"))
    if (type(time_ns), type(first), type(crc), type(data)) != (int, bool, int, bytes):
        raise WireError("a damaged packed message (a field has a wrong type)")
    return Packed(time_ns, first, crc, data)  # type: ignore[arg-type]


# --- maps to values

T = TypeVar("T")
_fields: dict[type[Any], list[tuple[str, Any, bool]]] = {}
"""By class: name and type of each field, and whether it is required; a cache of `load`."""


def load(cls: type[T], value: Any, where: str) -> T:
    """Creates an object of the dataclass `cls` from a decoded map. Unknown keys are skipped. Raises
    WireError for a wrong or missing key, whose name begins with `where`."""
    if not isinstance(value, dict):
        raise WireError(f"{where}: a map was expected")
    if cls not in _fields:
        hints = typing.get_type_hints(cls)
        _fields[cls] = [
            (
                field.name,
                hints[field.name],
                field.default is MISSING and field.default_factory is MISSING,
            )
            for field in dataclasses.fields(typing.cast("Any", cls))
        ]
    values = {}
    for name, hint, required in _fields[cls]:
        if name in value:
            values[name] = _convert(hint, value[name], f"{where}.{name}")
        elif required:
            raise WireError(f"{where}: {name} is missing")
    return cls(**values)


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Returns a decoded value, converted to the type hint of a field. Raises WireError if it does
    not fit. Supports the kinds of hint that messages have."""
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
        return _convert(next(o for o in options if o is not type(None)), value, where)
    elif origin is list:
        if isinstance(value, list):
            (inner,) = typing.get_args(hint)
            return [_convert(inner, item, where) for item in value]
    elif origin is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            inner = typing.get_args(hint)[1]
            return {key: _convert(inner, item, f"{where}.{key}") for key, item in value.items()}
    elif origin is Literal:
        if value in typing.get_args(hint):
            return value
    elif dataclasses.is_dataclass(hint):
        return load(typing.cast("type[Any]", hint), value, where)
    elif hint is float:
        if type(value) in {int, float} and math.isfinite(value):
            return float(value)
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    shown = type(value).__name__ if isinstance(value, list | dict | bytes) else str(value)[:40]
    raise WireError(f"{where[:80]}: {shown!r} was not expected")
