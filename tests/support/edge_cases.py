"""Makes a recording that is hard to export: a CPU goes offline and returns, a counter jumps, a core
has only bounds, a frame is lost, and a reason needs escapes. Run this file to rewrite it."""

from __future__ import annotations

import dataclasses

import numpy as np
from recording_files import write_recording
from roots import DATA
from sim_streams import messages_lasting

from perfprobe import wire
from perftop.session.packing import TimedMessage

GOLDEN = DATA / "export"
SAMPLE_NS = 500_000_000
SECONDS = 18
GAP_REASON = 'in use by "pcm", says the kernel\nsince boot'
"""A reason with quotes, a comma and a second line, which all formats must escape."""
JUMPS_AT, LOST_AT = 10, 20


def hello(result: wire.Hello) -> wire.Hello:
    """A hello in which CPUs 1 and 3 lack the counter of SMT states, and no CPU counts SMIs."""
    blocks = []
    for block in result.blocks:
        counters = [
            dataclasses.replace(counter, cpus=[0, 2]) if counter.key == "one_thread" else counter
            for counter in block.counters
            if counter.key != "smi"
        ]
        blocks.append(dataclasses.replace(block, counters=counters))
    missing = [
        wire.Missing("smi", GAP_REASON),
        wire.Missing("one_thread", GAP_REASON, None, [1, 3]),
    ]
    return dataclasses.replace(result, blocks=blocks, missing=missing)


def column(result: wire.Hello, key: str) -> int:
    (block,) = (block for block in result.blocks if block.name == "cpu")
    return [counter.key for counter in block.counters].index(key)


def frame(result: wire.Hello, report: wire.Hello, message: wire.Frame) -> wire.Frame:
    """The frame without the missing counter; in frame JUMPS_AT the cycles of CPU 2 jump."""
    rows, smi = message.blocks["cpu"], column(result, "smi")
    values = np.frombuffer(rows.values, "<u8").reshape(len(result.topology), -1)
    values = np.delete(values, smi, axis=1).copy()
    valid = np.frombuffer(rows.valid, "<u8")
    low = np.uint64((1 << smi) - 1)
    valid = (valid & low) | ((valid >> np.uint64(1)) & ~low)
    if message.seq == JUMPS_AT:
        values[2, column(report, "cycles")] += np.uint64(1 << 44)
    blocks = message.blocks | {"cpu": wire.Rows(rows.head, valid.tobytes(), values.tobytes())}
    return dataclasses.replace(message, blocks=blocks, lost=int(message.seq > LOST_AT))


def messages() -> tuple[wire.Hello, list[TimedMessage]]:
    given, result = messages_lasting("sim:hotplug,cpus=4", SECONDS, SAMPLE_NS)
    report = hello(given)
    return report, [
        frame(given, report, message) if isinstance(message, wire.Frame) else message
        for message in result
        if not isinstance(message, wire.Frame) or message.seq != LOST_AT
    ]


if __name__ == "__main__":
    write_recording(GOLDEN / "recording", *messages())
