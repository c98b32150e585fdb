"""Streams of strangers, with counters that stand in blocks of a scope that is not theirs."""

from __future__ import annotations

import dataclasses
from typing import Any

import made
import pytest
from played import played

from perfprobe import wire
from perftop.session.history import History, edges
from perftop.session.session import Session

BASE = [made.REF, made.CYCLES, made.counter("smi", "1")]
ODD = [
    ("cycles", "package"), ("cycles", "machine"), ("smi", "core"), ("memory_read_bytes", "cpu"),
    ("energy_j", "machine"), ("energy_j", "core"), ("l3_memory_bytes", "core"),
    ("both_s", "package"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "scope"), ODD)
def test_a_counter_in_another_scope_is_known_to_nobody(key: str, scope: Any) -> None:
    plain = made.hello(BASE, cores=2, packages=[[0, 2], [1, 3]])
    plain.blocks.append(wire.Block("p", "package", [made.gauge("memory_write_bytes")]))
    cpus = [row.cpu for row in plain.topology]
    odd = dataclasses.replace(made.counter(key), cpus=cpus)
    hello = dataclasses.replace(plain, blocks=[wire.Block("odd", scope, [odd]), *plain.blocks])
    history = History(hello)
    session = Session(hello, history)
    played(session, [_frame(hello, seq) for seq in range(1, 5)])
    column = session.counters.columns.get(key)
    assert column is None or column.block == "cpu"
    assert history.shared(key, edges(session.now_ns, 100_000_000, 4)).shape[1] == 0
    assert session.take().values.mean("util", [0]) == pytest.approx(0.5)


def _frame(hello: wire.Hello, seq: int) -> wire.Frame:
    """Each CPU runs for half of the time, and all other counters count the samples."""
    ticks = int(seq * made.TSC_HZ / 10)
    blocks = {}
    for block in hello.blocks:
        count = hello.rows(block.scope)
        values = {counter.key: [seq] * count for counter in block.counters}
        if block.name == "cpu":
            values |= {"ref": [ticks // 2] * count, "cycles": [ticks // 2] * count}
        blocks[block.name] = made.rows(block, count, values, [ticks] * count)
    return wire.Frame(seq, seq * 100_000_000, blocks)
