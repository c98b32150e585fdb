"""What cores, packages and L3s count, seen over a second in which a known amount of memory is
copied. Few of these counters can be held against a known count, so all are named with what they
moved: the owner of a machine that nobody here has can send that back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from perfprobe.instruments.selftest import clocks
from perfprobe.instruments.selftest.tape import Tape

COPY_BYTES, COPY_S = 128 << 20, 0.5
"""Larger than most L3s, so that each copy is read from memory; and how long to go on with it."""
READ = "memory_read_bytes"
LEAST = 0.8
"""Share of the copied bytes that must have been read: a part of them may be in a large L3."""
STEMS = ("memory_", "l3_", "energy_", "plr_", "pstate_limit", "limit_reasons")
"""Beginnings of the keys of counters whose absence is told."""
ROWS_TOLD = 64
"""Rows told of a counter; a thousand cores would fill a message."""


def see(tape: Tape) -> list[dict[str, Any]]:
    """A row for each counter that belongs to no CPU, or to the L3 of one, also where it is not
    there."""
    wanted = [key for key in tape.columns if _wanted(tape, key)]
    absent = [
        {"counter": missing.what, "verdict": "not there", "why": missing.why}
        for missing in tape.hello.missing
        if missing.what.startswith(STEMS) and missing.what not in tape.columns
    ]
    if not wanted:
        return absent
    tape.forget()
    tape.past(clocks.now()[1])
    begin = clocks.now()[1]
    copied = _copy() if READ in wanted else 0
    time.sleep(0.0 if copied else COPY_S)
    end = clocks.now()[1]
    tape.past(end)
    return [*(_told(tape, key, begin, end, copied) for key in wanted), *absent]


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


def _told(tape: Tape, key: str, begin: int, end: int, copied: int) -> dict[str, Any]:
    counter = tape.columns[key].counter
    moved = list(_moved(tape, key, begin, end))
    known = [amount for amount in moved if amount is not None]
    verdict = "counts" if any(known) else "stands still" if known else "no reading"
    if counter.kind == "gauge" and known:
        verdict = "read"
    if key == READ and known and sum(known) < LEAST * copied:
        verdict = "too little"
    return {
        "counter": key,
        "scope": "L3" if key.startswith("l3_") else tape.scope(key),
        "origin": counter.origin,
        "unit": counter.unit,
        "columns": counter.columns,
        "verdict": verdict,
        "moved": moved[:ROWS_TOLD],
        "at_least": copied if key == READ else None,
    }


def _moved(tape: Tape, key: str, begin: int, end: int) -> Iterator[float | None]:
    """By row, how far it moved, in its unit; None: it was not read twice."""
    wanted = tape.columns[key].counter.cpus
    for row in range(tape.rows(key)):
        if key.startswith("l3_") and tape.hello.topology[row].cpu not in (wanted or ()):
            continue
        found = tape.moved(key, row, begin, end, inside=False)
        yield None if found is None else float(found.amount)
