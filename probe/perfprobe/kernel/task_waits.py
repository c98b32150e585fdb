"""How long a task has run and waited for a CPU and how often it was switched: sums since its birth,
as the kernel counts them. It adds waiting time when the task runs again, so that sum may lag."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perfprobe.kernel.process_stat import LIMIT, read

MOST_STATUS = 1 << 15  # bytes: masks of all CPUs and all nodes come before the switches
NO_WAITS = b"0 0 0"  # a kernel that does not account for waiting writes this


class Moved(NamedTuple):
    """Shares of some time that a task ran and waited, and switches a second; None: not known."""

    run: float | None = None
    wait: float | None = None
    switches: float | None = None


class Sums(NamedTuple):
    """The sums at one moment; None: not known."""

    at_ns: int
    run_ns: int | None
    wait_ns: int | None
    switches: int | None

    def since(self, last: Sums) -> Moved:
        elapsed_ns = self.at_ns - last.at_ns
        if elapsed_ns <= 0:
            return Moved()
        ran, waited, switched = (
            None if a is None or b is None or b < a else (b - a) / elapsed_ns
            for a, b in zip(last[1:], self[1:], strict=True)
        )
        return Moved(_share(ran), _share(waited), switched and round(1e9 * switched, 1))


def _share(value: float | None) -> float | None:
    return None if value is None else round(min(1.0, value), 4)


def sums(path: str, now_ns: Callable[[], int]) -> Sums:
    """The sums of the task of this directory in /proc; what cannot be read is not known."""
    found = times(_head(f"{path}/schedstat", LIMIT))
    voluntary, involuntary = switches(_head(f"{path}/status", MOST_STATUS))
    switched = None if voluntary is None or involuntary is None else voluntary + involuntary
    run_ns, wait_ns = found or (None, None)
    return Sums(now_ns(), run_ns, wait_ns, switched)


def _head(path: str, limit: int) -> bytes:
    try:
        return read(path, limit)
    except OSError:
        return b""


def times(schedstat: bytes) -> tuple[int, int] | None:
    """Ns that the thread ran and waited; None: not accounted, or it never ran."""
    fields = schedstat.split()
    if len(fields) != 3 or not all(map(bytes.isdigit, fields)) or schedstat.strip() == NO_WAITS:
        return None
    return int(fields[0]), int(fields[1])


def switches(status: bytes) -> tuple[int | None, int | None]:
    """Voluntary and involuntary switches: usually the last two lines of the file."""
    _, found, rest = status.rpartition(b"\nvoluntary_ctxt_switches:")
    voluntary, _, forced = rest.partition(b"\nnonvoluntary_ctxt_switches:")
    numbers = [word.strip() for word in (voluntary, forced.partition(b"\n")[0])]
    if not found or not all(map(bytes.isdigit, numbers)):
        return None, None
    return int(numbers[0]), int(numbers[1])
