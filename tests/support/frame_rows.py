"""The rows of frames as numpy arrays of heads, valid bits and values. On a busy machine some reads
are lost; `is_whole` finds frames in which every CPU was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perfprobe import wire
from perfprobe.wire import Block, Counter, Hello, Rows


def head(rows: Rows) -> Any:
    return np.frombuffer(rows.head, "<i8").reshape(-1, wire.HEAD)


def is_whole(hello: Hello, frame: wire.Frame) -> bool:
    """Whether every row of the frame was read or belongs to an offline CPU."""
    read = wire.ROW_SAMPLED | wire.ROW_OFFLINE
    return all((head(rows)[:, 4] & read != 0).all() for rows in frame.blocks.values())


def find_counter(hello: Hello, key: str) -> tuple[Block, int, Counter]:
    """Returns the block of a counter, the counter's first column in the block, and the counter."""
    return next(
        (block, first, counter)
        for block in hello.blocks
        for first, counter in wire.with_columns(block.counters)
        if counter.key == key
    )


def valid_mask(hello: Hello, blocks: Mapping[str, Rows], key: str) -> Any:
    """Whether the values of the counter are valid: axes (row, column)."""
    block, first, counter = find_counter(hello, key)
    bits = np.frombuffer(blocks[block.name].valid, np.uint8).reshape(hello.rows(block.scope), -1)
    return np.unpackbits(bits, axis=1, bitorder="little")[:, first : first + counter.columns] == 1


def raw_values(hello: Hello, blocks: Mapping[str, Rows], key: str) -> Any:
    """Raw values of the counter: axes (row, column)."""
    block, first, counter = find_counter(hello, key)
    values = np.frombuffer(blocks[block.name].values, "<u8").reshape(hello.rows(block.scope), -1)
    return values[:, first : first + counter.columns]


def missing_values(hello: Hello, blocks: Mapping[str, Rows]) -> set[tuple[int, str]]:
    """Returns CPU and key of each per-CPU counter without a value in a row that was read."""
    result = set()
    for block in (block for block in hello.blocks if block.scope == "cpu"):
        read = head(blocks[block.name])[:, 4] & wire.ROW_SAMPLED != 0
        for key in (counter.key for counter in block.counters):
            lost = np.flatnonzero(read & ~valid_mask(hello, blocks, key).all(1)).tolist()
            result |= {(hello.topology[row].cpu, key) for row in lost}
    return result
