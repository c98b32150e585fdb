"""Makes streams for tests: hello and frames from plain lists of numbers."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from perfprobe import wire
from perfprobe.wire import Block, Counter, Cpu, Frame, Hello, Rate, Rows

TSC_HZ = 2e9
SAMPLE_NS = 100_000_000
Values = Mapping[str, Sequence[int | None]]


class Clock:
    """A clock in s that the test advances."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Source:
    """The base of fake sources, which implement `hello` and `poll`."""

    def due_s(self) -> float | None:
        return None

    def set_batch_length(self, batch_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


def topology(cores: int = 1, threads: int = 2) -> list[Cpu]:
    """Returns CPUs in Linux numbering: the first threads of all cores, then the second threads."""
    groups = [[core + cores * t for t in range(threads)] for core in range(cores)]
    rows = [
        Cpu(cpu, True, 0, 0, core, thread, 0, 0, None, group)
        for core, group in enumerate(groups)
        for thread, cpu in enumerate(group)
    ]
    return sorted(rows, key=lambda row: row.cpu)


def counter(key: str, unit: str = "cycles", **more: Any) -> Counter:
    return Counter(key, key, unit, "made", **{"bits": 48, **more})


def gauge(key: str, unit: str = "1") -> Counter:
    return Counter(key, key, unit, "made", kind="gauge")


def flags(key: str, *parts: str, bits: int | None = None) -> Counter:
    """Returns a counter of flags. `bits` is the number of bits, if some have no name."""
    columns = 1 + (len(parts) if bits is None else bits)
    return Counter(key, key, "1", "made", kind="flags", columns=columns, parts=[*parts])


REF = counter("ref")
CYCLES = counter("cycles")
INSTRUCTIONS = counter("instructions", "instructions")
ONE_THREAD = counter("one_thread", "1")
CEILING = gauge("ceiling_hz", "Hz")


def hello(
    counters: Sequence[Counter] = (REF, CYCLES, INSTRUCTIONS),
    *,
    cores: int = 1,
    threads: int = 2,
    stat: Sequence[Counter] = (),
    core: Sequence[Counter] = (),
    **changes: Any,
) -> Hello:
    rows = topology(cores, threads)
    blocks = [Block("cpu", "cpu", list(counters))]
    if stat:
        blocks.append(Block("stat", "cpu", list(stat)))
    if core:
        blocks.append(Block("core", "core", list(core)))
    plain = Hello(
        perftop="0",
        source="made",
        host="h",
        kernel="k",
        wall_ns=1_700_000_000_000_000_000,
        raw_ns=0,
        sample_ns=SAMPLE_NS,
        topology=rows,
        cores=[rows[core].siblings for core in range(cores)],
        packages=[[row.cpu for row in rows]],
        blocks=blocks,
        tsc=0,
        tsc_hz=Rate(TSC_HZ, "made"),
    )
    return dataclasses.replace(plain, **changes)


def rows(
    block: Block,
    n: int,
    values: Values,
    stamps: Sequence[int],
    *,
    flags: Sequence[int] | None = None,
    late_ns: Sequence[int] | None = None,
) -> Rows:
    """Returns the rows of a block. `values` has a list for each key, by position of the CPU; None
    where not valid."""
    head: list[int] = []
    for row in range(n):
        flag = wire.ROW_SAMPLED if flags is None else flags[row]
        late = 0 if late_ns is None else late_ns[row]
        head += [stamps[row], stamps[row] + 100, late, 0, flag]
    columns = [values[item.key] for item in block.counters]
    table = [[column[row] for column in columns] for row in range(n)] if columns else []
    cells = [(value or 0) % 2**64 for line in table for value in line]
    valid = [
        sum((value is not None) << column for column, value in enumerate(line))
        if None in line else (1 << len(line)) - 1
        for line in table
    ]  # fmt: skip
    return Rows(_words(head), _words(valid), _words(cells))


def frame(
    hello_message: Hello,
    seq: int,
    values: Values,
    *,
    stamps: Sequence[int] | None = None,
    flags: Sequence[int] | None = None,
    late_ns: Sequence[int] | None = None,
    **more: Any,
) -> Frame:
    """Returns the frame of sample `seq`, 100 ms after the previous frame; by default all stamps are
    equal."""
    at = [int(seq * TSC_HZ / 10)] * len(hello_message.topology) if stamps is None else stamps
    blocks = {
        block.name: rows(
            block, hello_message.rows(block.scope), values, at, flags=flags, late_ns=late_ns
        )
        for block in hello_message.blocks
    }
    return Frame(seq, seq * SAMPLE_NS, blocks, **more)


def packed(head: Sequence[Sequence[int]], valid: Sequence[int], values: Sequence[int]) -> Rows:
    """Packs rows; each head has five words."""
    return Rows(_words([word for row in head for word in row]), _words(valid), _words(values))


def _words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)
