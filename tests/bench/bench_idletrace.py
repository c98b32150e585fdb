"""What tracing idle transitions costs: a transition, and a read.

Run by hand, as root: python tests/bench/bench_idletrace.py

The ping-pong wakes each CPU in turn, so each message is two transitions. Rounds with and without
the program alternate, and the least of each is compared: other load only adds. The kernel's own
account (BPF statistics, which cost some ns themselves) has the program alone.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from perfprobe.kernel.idle_trace import IdleTrace

ROUNDS = 15
MESSAGES = 3000
READS = 20_000
BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
ENABLE_STATS = 32
CORE_MAP = {0: (0, 0), 1: (0, 1)}


def echo(there: int, back: int, cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while os.read(there, 1) == b"x":
        os.write(back, b"x")


def ping_pong(there: int, back: int) -> float:
    """ns for a message there and back."""
    start = time.monotonic_ns()
    for _ in range(MESSAGES):
        os.write(there, b"x")
        os.read(back, 1)
    return (time.monotonic_ns() - start) / MESSAGES


def account(fdinfo: Path) -> tuple[int, int]:
    """run_time_ns and run_cnt of the program."""
    for file in fdinfo.iterdir():
        try:
            fields = dict(line.split(":", 1) for line in file.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if "run_cnt" in fields:
            return int(fields["run_time_ns"]), int(fields["run_cnt"])
    raise SystemExit("no BPF program here")


def transitions(there: int, back: int) -> None:
    plain, traced, events = [], [], []
    for _ in range(ROUNDS):
        plain.append(ping_pong(there, back))
        with IdleTrace(CORE_MAP) as trace:
            before = sum(trace.entries(cpu) for cpu in CORE_MAP)
            traced.append(ping_pong(there, back))
            entries = sum(trace.entries(cpu) for cpu in CORE_MAP) - before
            events.append(2 * entries / MESSAGES)
    for name, pick in (("least", min), ("median", statistics.median)):
        choose: Callable[[list[float]], float] = pick
        without, with_ = choose(plain), choose(traced)
        per = (with_ - without) / statistics.median(events)
        print(f"round trip, {name:7}{without:9.0f} ns  traced {with_:9.0f} ns  {per:7.0f} ns/event")
    print(f"transitions in a round trip {statistics.median(events):.2f}")


def program_alone(there: int, back: int) -> None:
    attributes = ctypes.create_string_buffer(128)
    statistics_on = ctypes.CDLL(None).syscall(BPF, ENABLE_STATS, attributes, 128)
    with IdleTrace(CORE_MAP):
        for _ in range(5):
            ping_pong(there, back)
        ns, runs = account(Path("/proc/self/fdinfo"))
    os.close(statistics_on)
    print(f"program alone, by the kernel's account: {ns / runs:.0f} ns, {runs} runs")


def reads() -> None:
    with IdleTrace(CORE_MAP) as trace:
        for name, read in (("states", trace.states), ("busy", trace.busy)):
            best = float("inf")
            for _ in range(ROUNDS):
                start = time.process_time_ns()
                for _ in range(READS):
                    read(0)
                best = min(best, (time.process_time_ns() - start) / READS)
            print(f"{name}() in Python {best:.0f} ns")


def main() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("needs two CPUs")
    there, back = os.pipe(), os.pipe()
    os.sched_setaffinity(0, {0})
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=echo, args=(there[0], back[1], 1))
    child.start()
    transitions(there[1], back[0])
    program_alone(there[1], back[0])
    os.write(there[1], b".")
    child.join()
    reads()


if __name__ == "__main__":
    main()
