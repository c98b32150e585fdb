"""The offsets between time-stamp counters of CPUs, from messages between them.

A message is stamped when it leaves, when the other CPU has seen it, and when the answer is back. At
the middle stamp the clock here stood between the first and the last stamp, however long each way
took. So each exchange bounds the offset from both sides, and the tightest bounds of all exchanges
hold. It is not assumed that both ways take equally long.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from perfprobe._native import ffi, lib
from perfprobe.errors import checked
from perfprobe.frozen import frozen
from perfprobe.native.affinity import pinned

EXCHANGES = 2000
TOTAL_S = 1.0
EACH_S = 0.25
"""Time limit for a pair of CPUs. Idle CPUs need a few ms; on busy ones the exchanges wait."""
MOST_CPUS = 64


class Exchange(NamedTuple):
    """The stamps of one message, in the order in which they were taken."""

    sent: int
    seen: int
    """On the other CPU's clock."""
    back: int


class Bounds(NamedTuple):
    """Least and greatest value that may be added to the clock here to get the clock there."""

    low: float
    high: float


def bounds(exchanges: Iterable[Exchange], step: float = 1.0) -> Bounds | None:
    """The bounds in ticks; None: no exchanges, or no constant offset agrees with all of them.

    A reading is up to `step` behind its clock, because the counter moves in steps.
    """
    rows = list(exchanges)
    if not rows:
        return None
    low = max(row.seen - row.back for row in rows) - step
    high = min(row.seen - row.sent for row in rows) + step
    return Bounds(low, high) if low <= high else None


# --- measured -------------------------------------------------------------------------------------


@frozen
class Offset:
    cpu: int
    against: int
    exchanges: int
    offset_ticks: float | None = None
    error_ticks: float | None = None
    """The true offset is at most this far away. It is a bound, not a probability."""
    offset_ns: float | None = None
    error_ns: float | None = None
    why: str | None = None
    """Why there is no offset."""


def chosen(cpus: Sequence[int]) -> list[int]:
    """At most MOST_CPUS of the CPUs, evenly spaced, so that all packages are among them."""
    if len(cpus) <= MOST_CPUS:
        return list(cpus)
    return [cpus[i * (len(cpus) - 1) // (MOST_CPUS - 1)] for i in range(MOST_CPUS)]


def measure(cpus: Sequence[int], step: float, tsc_hz: float) -> list[Offset]:
    """The offset of each CPU against the first."""
    first, others = cpus[0], cpus[1:]
    limit_s = min(EACH_S, TOTAL_S / max(1, len(others)))
    try:
        with pinned(first):
            return [_against(first, cpu, limit_s, step, tsc_hz) for cpu in others]
    except OSError as error:
        return [Offset(cpu, first, 0, why=f"CPU {first}: {error.strerror}") for cpu in others]


def _against(first: int, cpu: int, limit_s: float, step: float, tsc_hz: float) -> Offset:
    try:
        rows = exchanged(cpu, limit_s)
    except OSError as error:
        return Offset(cpu, first, 0, why=_why(error.errno or 0))
    if not rows:
        return Offset(cpu, first, 0, why=f"it did not answer within {limit_s * 1e3:.0f} ms")
    found, done, ns = bounds(rows, step), len(rows), 1e9 / tsc_hz
    if found is None:
        why = "no constant offset agrees with all exchanges: one of the clocks was set or runs off"
        return Offset(cpu, first, done, why=why)
    offset, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    return Offset(cpu, first, done, offset, half, offset * ns, half * ns)


def exchanged(cpu: int, limit_s: float) -> list[Exchange]:
    """Exchanges between the CPU that the caller is pinned to and `cpu`. Raises OSError."""
    out: Any = ffi.new("pp_exchange[]", EXCHANGES)
    done = checked(lib.pp_exchange_stamps(cpu, EXCHANGES, round(limit_s * 1e9), out))
    return [Exchange(e.sent, e.seen, e.back) for e in out[0:done]]


def _why(code: int) -> str:
    if code == errno.EINVAL:
        return "it went off, or we may not run on it"
    if code == errno.EXDEV:
        return "a CPU went off meanwhile"
    return f"no thread could be started there ({errno.errorcode.get(code, code)})"
