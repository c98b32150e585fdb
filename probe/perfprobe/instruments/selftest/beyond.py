"""What cores, packages and L3s count, seen over a second in which a known amount of memory is
copied. Few of these counters can be held against a known count, so all are named with what they
moved: that can be sent from machines that the developers do not have.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from perfprobe.errors import Unavailable
from perfprobe.frozen import frozen
from perfprobe.instruments.selftest import clocks
from perfprobe.instruments.selftest.tape import Tape
from perfprobe.native.affinity import pinned

COPY_BYTES, COPY_S = 128 << 20, 0.5
"""Larger than most L3s, so that each copy is read from memory; and how long to go on with it."""
READ = "memory_read_bytes"
LEAST = 0.8
"""Share of the copied bytes that must have been read: a part of them may be in a large L3."""
STEMS = ("memory_", "l3_", "energy_", "plr_", "pstate_limit", "limit_reasons")
"""Beginnings of the keys of counters whose absence is told."""
ROWS_TOLD = 64
"""Rows told of a counter; a thousand cores would fill a message."""


@frozen
class Second:
    """The time in which memory was copied, as stamps."""

    begin: int
    end: int
    copied: int
    """Bytes."""
    cpu: int
    """Where that ran, alone at work for perftop."""


def second(tape: Tape) -> Second:
    """Copies memory on one CPU, with samples before and after it."""
    tape.begin()
    cpu = max(os.sched_getaffinity(0))
    with contextlib.suppress(OSError), pinned(cpu):
        begin = clocks.now()[1]
        copied = _copy()
        end = clocks.now()[1]
        tape.past(end)
        return Second(begin, end, copied, cpu)
    raise Unavailable(f"selftest may not run on CPU {cpu}")


def see(tape: Tape, span: Second) -> list[dict[str, Any]]:
    """A row for each counter that belongs to no CPU, or to the L3 of one, also where it is not
    there."""
    absent = [
        {"counter": missing.what, "verdict": "not there", "why": missing.why}
        for missing in tape.hello.missing
        if missing.what.startswith(STEMS) and missing.what not in tape.columns
    ]
    return [*(_told(tape, key, span) for key in tape.columns if _wanted(tape, key)), *absent]


def _wanted(tape: Tape, key: str) -> bool:
    scope = tape.scope(key)
    return scope in {"core", "package"} or (scope == "cpu" and key.startswith("l3_"))


def _copy() -> int:
    """Copies memory for a while; returns how many bytes were read."""
    source, copied = bytes(COPY_BYTES), 0
    end_s = time.monotonic() + COPY_S
    while time.monotonic() < end_s:
        bytearray(source)
        copied += COPY_BYTES
    return copied


def _told(tape: Tape, key: str, span: Second) -> dict[str, Any]:
    counter = tape.columns[key].counter
    moved = [
        None if found is None else float(found.amount)
        for row in rows(tape, key)
        for found in [tape.moved(key, row, span.begin, span.end, inside=False)]
    ]
    known = [amount for amount in moved if amount is not None]
    verdict = "counts" if any(known) else "stands still" if known else "no reading"
    if counter.kind == "gauge" and known:
        verdict = "read"
    if key == READ and known and sum(known) < LEAST * span.copied:
        verdict = "too little"
    return {
        "counter": key,
        "scope": "L3" if key.startswith("l3_") else tape.scope(key),
        "origin": counter.origin,
        "unit": counter.unit,
        "columns": counter.columns,
        "verdict": verdict,
        "moved": moved[:ROWS_TOLD],
        "at_least": span.copied if key == READ else None,
    }


def rows(tape: Tape, key: str) -> list[int]:
    """The rows of the counter's block that have it: all, or one for each L3."""
    every = range(tape.rows(key))
    if not key.startswith("l3_"):
        return [*every]
    having = tape.columns[key].counter.cpus or ()
    return [row for row in every if tape.hello.topology[row].cpu in having]
