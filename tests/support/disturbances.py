"""Adds many disturbances to a stream."""

from __future__ import annotations

import dataclasses
import random
import struct
from collections.abc import Iterator, Sequence

from perfprobe import wire
from perftop.session.packing import TimedMessage

WRONG = (wire.ROW_WIDE, wire.ROW_REBASED, wire.ROW_ELSEWHERE, wire.ROW_OFFLINE)


def with_disturbances(messages: Sequence[TimedMessage], seed: int) -> Iterator[TimedMessage]:
    """Returns the messages with disturbances: rows that were read late, on another CPU or not at
    all, values that another program wrote, missing blocks, a suspend, and counters that are taken
    and returned."""
    rng = random.Random(seed)
    for i, message in enumerate(messages):
        if not isinstance(message, wire.Frame):
            yield message
            continue
        blocks = {}
        for name, rows in message.blocks.items():
            head, values = bytearray(rows.head), bytearray(rows.values)
            if rng.random() < 0.15:
                at = 40 * rng.randrange(len(head) // 40) + 32
                flags = struct.unpack_from("<Q", head, at)[0]
                struct.pack_into("<Q", head, at, flags | rng.choice(WRONG))
            if rng.random() < 0.05:
                at = 8 * rng.randrange(len(values) // 8)
                struct.pack_into("<Q", values, at, rng.randrange(1 << 48))
            if name == "cpu" or rng.random() < 0.8:
                blocks[name] = wire.Rows(bytes(head), rows.valid, bytes(values))
        records = {**message.records, "asleep_ns": 5_000_000_000 if i > len(messages) // 2 else 0}
        yield dataclasses.replace(message, blocks=blocks, records=records)
        if rng.random() < 0.05:
            data = {"cpus": [0, 1], "counters": ["cycles"]}
            yield wire.Note(rng.choice(["taken", "given-back"]), message.time_ns, data=data)
