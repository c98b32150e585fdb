"""Measures the latency of a wake-up of an idle CPU, by its own timer and by a task on another CPU.

A task on the CPU sleeps, so that the CPU goes idle, and reads the clock when it runs again. The
latency of a wake-up by a timer is measured from the time for which the timer was set; that of a
wake-up by another CPU, from the moment before that CPU writes to an eventfd. The latency includes
the exit from the idle state, the interrupt, the scheduler and the return from the system call.

Each kind of wake-up is measured with the idle states that the kernel chooses, and then with each
state as the deepest that PM QoS allows. The kernel's counts show which states were entered. Each
combination of waker and deepest state is a row of the output.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfprobe.cpu import files, identity, topology
from perfprobe.errors import Unavailable
from perfprobe.instruments import disturbance
from perfprobe.instruments.measurement import histogram
from perfprobe.kernel import clues
from perfprobe.native import affinity
from perfprobe.native.affinity import pinned_to

WAKE_UPS_PER_ROW = 400
PAUSE_S = 2e-3
"""Sleep in s before a wake-up, long enough for the kernel to choose the deepest idle state."""
MAX_ROW_S = 4.0
"""Maximum time in s for a row of the output; a row of a busy CPU has fewer wake-ups."""
NO_STAMP = bytes(8)
QUANTILES = {"least": 0.0, "median": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
LATENCY_DEVICE = Path("/dev/cpu_dma_latency")
TIMER, OTHER_CPU = "timer", "another CPU"


@dataclass(frozen=True, slots=True)
class IdleState:
    """An idle state of the CPU, as cpuidle lists it."""

    path: str
    name: str
    latency_us: int
    """Upper bound of the exit latency, as the kernel's driver states it."""


def idle_states(root: Path, cpu: int) -> list[IdleState]:
    """Returns the idle states of a CPU, the lightest first; empty without a cpuidle driver."""
    return [
        IdleState(path, files.read_word(f"{path}/name") or Path(path).name, latency_us)
        for path in clues.idle_state_paths(root, cpu)
        if (latency_us := files.read_number(f"{path}/latency")) is not None
    ]


def entry_counts(states: Sequence[IdleState]) -> list[int]:
    """Returns how often the CPU has entered each idle state since boot."""
    return [files.read_number(f"{state.path}/usage") or 0 for state in states]


def measure(requested_cpu: int | None) -> dict[str, Any]:
    """Returns the JSON output of `wake`. Raises UsageError for a CPU that does not exist, and
    Unavailable for one that cannot be measured."""
    start_s, root = time.monotonic(), Path("/")
    rows, allowed = topology.require_cpus(), sorted(os.sched_getaffinity(0))
    row = affinity.require_cpu(requested_cpu, rows, allowed)
    cpu, all_states = row.cpu, idle_states(root, row.cpu)
    same_core = {cpu, *affinity.siblings(row, rows)}
    waker = next((candidate for candidate in allowed if candidate not in same_core), None)
    limits: list[IdleState | None] = [None]
    qos_why = ""
    if all_states:
        try:
            os.close(os.open(LATENCY_DEVICE, os.O_WRONLY | os.O_CLOEXEC))
            limits += all_states
        except OSError as error:
            qos_why = f"{LATENCY_DEVICE}: {error.strerror}"
    wakers = [None] if waker is None else [None, waker]
    counts_before = disturbance.read_counts(cpu)
    with minimal_timer_slack(), pinned_to(cpu):
        measured = [
            _measure_row(waking_cpu, limit, all_states) for waking_cpu in wakers for limit in limits
        ]
    counts_after = disturbance.read_counts(cpu)
    return {
        **identity.machine_names(),
        "cpu": cpu,
        "waker": waker,
        "waker_why": None if waker is not None else "this process may run on one core only",
        "driver": files.read_word(f"{root}/{files.CPU_DIRECTORY}/cpuidle/current_driver") or None,
        "governor": files.read_word(f"{root}/{files.CPU_DIRECTORY}/cpuidle/current_governor_ro")
        or files.read_word(f"{root}/{files.CPU_DIRECTORY}/cpuidle/current_governor")
        or None,
        "states": [{"name": state.name, "latency_us": state.latency_us} for state in all_states],
        "states_why": qos_why or (None if all_states else "the kernel has no cpuidle driver here"),
        "pause_s": PAUSE_S,
        "rows": measured,
        "disturbances": disturbance.disturbances_during(
            cpu, affinity.siblings(row, rows), counts_before, counts_after
        ),
        "elapsed_s": round(time.monotonic() - start_s, 3),
    }


def _measure_row(
    waker: int | None, deepest_state: IdleState | None, all_states: Sequence[IdleState]
) -> dict[str, Any]:
    """Measures wake-ups by a task on the CPU `waker` (None: by a timer) with `deepest_state` as the
    deepest idle state (None: as the kernel chooses), and returns a row of the output."""
    with _limit_idle_states(deepest_state):
        time.sleep(5 * PAUSE_S)  # a CPU applies the limit when it next goes idle
        before = entry_counts(all_states)
        waits = _wake_by_timer() if waker is None else _wake_by_cpu(waker)
        entered = [new - last for new, last in zip(entry_counts(all_states), before, strict=True)]
    total = sum(entered)
    ordered = sorted(waits)
    bins = histogram(Counter(round(ns / 1000) for ns in ordered))
    return {
        "kind": TIMER if waker is None else OTHER_CPU,
        "deepest": None if deepest_state is None else deepest_state.name,
        "entered": {
            state.name: round(n / total, 4)
            for state, n in zip(all_states, entered, strict=True)
            if n
        },
        "idle_entries": total,
        "samples": len(ordered),
        **{
            f"{name}_us": round(ordered[min(len(ordered) - 1, int(q * len(ordered)))] / 1000, 2)
            for name, q in QUANTILES.items()
        },
        "mean_us": round(sum(ordered) / len(ordered) / 1000, 2),
        "histogram": {
            "first_us": bins.first, "width_us": bins.width, "counts": bins.counts,
            "beyond": bins.outlier_count,
        },
    }  # fmt: skip


def _wake_by_timer() -> list[int]:
    """Returns the latency in ns of each wake-up by a timer."""
    pause_ns = round(PAUSE_S * 1e9)

    def wait() -> int:
        start_ns = time.monotonic_ns()
        time.sleep(PAUSE_S)
        return max(0, time.monotonic_ns() - start_ns - pause_ns)

    return _repeat_wait(wait)


def _wake_by_cpu(waker: int) -> list[int]:
    """Returns the latency in ns of each wake-up by an eventfd write from CPU `waker`."""
    event, stamp = os.eventfd(0), mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        try:
            _wake_repeatedly(waker, event, stamp)
        finally:
            os._exit(1)

    def wait() -> int:
        os.eventfd_read(event)
        latency_ns: int = time.monotonic_ns() - struct.unpack("q", stamp[:8])[0]
        stamp[:8] = NO_STAMP
        return latency_ns

    try:
        return _repeat_wait(wait)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(event)
        stamp.close()


def _repeat_wait(wait: Callable[[], int]) -> list[int]:
    """Returns the results of WAKE_UPS_PER_ROW waits; of fewer if they last longer than MAX_ROW_S,
    but of at least one."""
    end_s = time.monotonic() + MAX_ROW_S
    results = [wait()]
    while len(results) < WAKE_UPS_PER_ROW and time.monotonic() < end_s:
        results.append(wait())
    return results


def _wake_repeatedly(cpu: int, event: int, stamp: mmap.mmap) -> None:
    """Wakes the reader of an eventfd repeatedly from this CPU, and stores the time before each
    write in `stamp`. The reader clears `stamp`; until then, there is no further write."""
    parent = os.getppid()
    os.sched_setaffinity(0, {cpu})
    while os.getppid() == parent:
        time.sleep(PAUSE_S)
        if stamp[:8] != NO_STAMP:
            continue
        stamp[:8] = struct.pack("q", time.monotonic_ns())
        os.eventfd_write(event, 1)


@contextlib.contextmanager
def _limit_idle_states(state: IdleState | None) -> Iterator[None]:
    """Keeps all CPUs out of idle states deeper than this one until the block ends. Raises
    Unavailable if the kernel refuses."""
    if state is None:
        yield
        return
    try:
        fd = os.open(LATENCY_DEVICE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{LATENCY_DEVICE}: {error.strerror}") from None
    try:
        os.write(fd, struct.pack("i", state.latency_us))
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def minimal_timer_slack() -> Iterator[None]:
    """Sets this thread's timer slack to 1 ns (the default is 50 us) until the block ends."""
    path = "/proc/self/timerslack_ns"
    slack = files.read_word(path)
    with contextlib.suppress(OSError):
        Path(path).write_text("1")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            Path(path).write_text(slack)
