"""The wire, version 1: what a probe says, in a pipe, a socket or a file - the same bytes.

**Framing.** A stream is a row of msgpack `bin` objects. Each holds one message: a msgpack map
with string keys and a `type`. The outer `bin` is a length, so a reader can skip a message without
understanding it and knows where the last whole one ended. A message is at most MAX_MESSAGE bytes.
The first message is a `hello`; then `frame`s and `note`s in any order; a `bye`, if the probe ended
on purpose, is the last. A stream without a bye was cut.

**Growth.** Unknown keys, message types, note kinds, blocks' counters and records are skipped and
do not raise the version. Only a hello with another `wire` number is refused.

**hello** describes all that is needed to read the frames. Its keys are the fields of `Hello`
in `message.py`: topology rows (one per CPU of the machine), `cores` and `packages` (lists of CPU
numbers, in the order of their rows in frames), and `blocks`. Times: `wall_ns` is Unix time,
`raw_ns` is CLOCK_MONOTONIC_RAW and `tsc` the time-stamp counter, all of one moment; later times
are raw only.
`stamp` says what the stamps in row heads count: `tsc` (ticks of `tsc_hz`) or `raw` (ns, where the
TSC must not be read). `tsc_hz` and `base_hz` are null where unknown.

**Blocks.** A block is a table of u64 that is read together: one row for each CPU (in the order of
`topology`), core, package, or one row for the machine, as its `scope` says; `cpu` is there always.
Its counters take `columns` columns each, in their order. Values are raw and cumulative:
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
- `others`: {CPU as text: [[pid, comm, share], ...]}: up to three that ran most, busiest first; in
  the frames that have `tasks`.
- `asleep_ns`: for how long the machine was suspended since hello, in which neither `time_ns` nor,
  perhaps, counters went on. Not there before the first time.
- `watched`, where hello has a `watch`: {"threads": {thread id as text: [pid, comm, cpu, run_ns,
  wait_ns, voluntary, involuntary]}, "more"}. Of the watched job's threads those that were looked at
  since the frame before: where each last ran, then, cumulative, how long it has run and has waited
  to run, and how often it gave up the CPU and lost it. Any of the last three may be null. `more`
  are threads beyond those that can be followed.

**packed**, in recordings only: a frame or note as its difference to the one before it, deflated;
described in the app's `recording.py` and `packing.py`.

**note**: `kind`, `time_ns`, `author` (`probe` or `recorder`), `data` (a map). Kinds so far:
`hotplug` {"cpu", "online", "row": the CPU's topology row as it is now}, `warning` {"text"},
`mark` {"label"}, `run-start` {"pid", "argv"}, `run-end` {"pid", "status", "wall_s", "user_s",
"sys_s", "first_ns", "last_ns": between which times all CPUs were first and last read, or null,
"missed": CPUs of which that cannot be said},
`index` at the end of a recording.

**bye**: `reason` (text), `status` (0 when all was well).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgpack

from perfprobe.message import (
    HEAD,
    ROW_ELSEWHERE,
    ROW_OFFLINE,
    ROW_REBASED,
    ROW_SAMPLED,
    ROW_UNPINNED,
    ROW_WIDE,
    VERSION,
    Block,
    Bye,
    Bytes,
    Counter,
    Cpu,
    Frame,
    Hello,
    Identity,
    Message,
    Missing,
    Multiplier,
    Note,
    Packed,
    Rate,
    Rows,
    Scope,
    Step,
    Turbo,
)
from perfprobe.wirecheck import (
    LATEST_NS,
    MAX_COLUMNS,
    MAX_MESSAGE,
    WireError,
    check_hello,
    check_time,
    load,
    load_frame,
    topology_row,
)

__all__ = [
    "HEAD", "LATEST_NS", "MAX_COLUMNS", "MAX_ELEMENTS", "MAX_MESSAGE", "ROW_ELSEWHERE",
    "ROW_OFFLINE", "ROW_REBASED", "ROW_SAMPLED", "ROW_UNPINNED", "ROW_WIDE", "VERSION", "Block",
    "Bye", "Bytes", "Counter", "Cpu", "Decoder", "Frame", "Hello", "Identity", "Message", "Missing",
    "Multiplier", "Note", "Packed", "Rate", "Rows", "Scope", "Step", "Turbo", "WireError",
    "check_time", "encode", "topology_row",
]  # fmt: skip

MAX_ELEMENTS = 1 << 15  # in one array or map: bounds what a lying length can reserve

_TYPES: dict[str, type[Any]] = {
    "hello": Hello, "frame": Frame, "note": Note, "packed": Packed, "bye": Bye,
}  # fmt: skip
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
            self._check_start(body)
        try:
            if cls is Frame:
                assert self.hello is not None
                return load_frame(self.hello, body)
            message: Message = load(cls, body, _NAMES[cls])
            if isinstance(message, Hello):
                check_hello(message)
                self.hello = message
            elif isinstance(message, Note):
                check_time(message)
        except WireError as error:
            raise WireError(self._damage(str(error))) from None
        self.ended |= isinstance(message, Bye)
        return message

    def _check_start(self, body: dict[Any, Any]) -> None:
        """One version only, and only once."""
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
