"""Runs many perftops or hosts at once: fifty perftops on one machine, 64 hosts of a fake ssh, of
which a third hang and a third send invalid data, and a fleet of 500 such machines in one process.

All must end with a documented status, good hosts must be shown, and bad hosts may not delay them.
Prints a line for each case.

Run by hand: python tests/bench/crowds.py
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import fake_ssh  # noqa: E402
import pytest  # noqa: E402
from command import argv  # noqa: E402
from fakes import Feed, Machine  # noqa: E402

from perfprobe import wire  # noqa: E402
from perftop.base.errors import Failed  # noqa: E402
from perftop.process import streams  # noqa: E402
from perftop.process.streams import Member, Stream, listen  # noqa: E402

PERFTOPS, HOSTS, MACHINES = 50, 64, 500
LIMIT_S = 300.0
INVALID_HOSTS = (
    "code os.write(1, b'\\0' * 10**6); time.sleep(60)",
    "code os.write(1, b'\\x85' * 100); time.sleep(60)",
    "code while True: os.write(2, b'\\x1b[2J' * 99); time.sleep(0.1)",
    "garbage", "banner", "badkey", "noprobe",
)  # fmt: skip


def perftops() -> tuple[bool, str]:
    """Measures this machine fifty times at once."""
    command = argv("stat", "--json", "-n", "2", "-i", "1s")
    since_s = time.monotonic()
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(PERFTOPS)
    ]
    statuses: Counter[int | None] = Counter()
    wrong = 0
    for process in processes:
        out, err = process.communicate(timeout=LIMIT_S)
        statuses[process.returncode] += 1
        lines = [json.loads(line) for line in out.splitlines()]
        intervals = [line for line in lines if line["type"] == "interval"]
        utils = [cpu["util"] for line in intervals for cpu in line["cpus"]]
        sane = all(util is None or 0 <= util <= 1 for util in utils)
        wrong += len(intervals) != 2 or not sane or "Traceback" in err
    text = f"statuses {dict(statuses)}, {wrong} wrong, {time.monotonic() - since_s:.0f} s"
    return statuses == {0: PERFTOPS} and not wrong, text


def hosts() -> tuple[bool, str]:
    """Runs a fleet with the largest number of hosts that perftop reads over ssh."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        installed = fake_ssh.install(Path(directory), patch)
        names = [f"h{number}" for number in range(HOSTS)]
        for number, name in enumerate(names):
            bad = "hang" if number % 3 == 1 else INVALID_HOSTS[number % len(INVALID_HOSTS)]
            installed.set(name, "run sim:smt-mix,cpus=2" if number % 3 == 0 else bad)
        command = argv("fleet", *names, "--json", "-n", "25", "-i", "2s")
        since_s = time.monotonic()
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ
        )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    results = {line["machine"] for line in lines if line["type"] == "machine" and line["answers"]}
    good = {name for number, name in enumerate(names) if number % 3 == 0}
    text = f"status {result.returncode}, {len(results & good)} of {len(good)} good ones are shown, "
    elapsed_s = time.monotonic() - since_s
    text += f"{len(results - good)} bad ones, {elapsed_s:.0f} s; {result.stderr[:100]!r}"
    controls = any(ord(sign) < 32 and sign != "\n" for sign in result.stdout + result.stderr)
    return results == good and result.returncode in {0, 1} and not controls, text


class CountingListener:
    """The listener of one machine."""

    def __init__(self) -> None:
        self.messages, self.fails = 0, 0

    def take(self, messages: Sequence[wire.Message]) -> None:
        self.messages += len(messages)

    def fail(self, *_: object) -> None:
        self.fails += 1


@asynccontextmanager
async def works() -> AsyncIterator[Stream]:
    feed = Feed(Machine(cores=1))
    async with feed.open():
        feed.frames(20)
        yield feed


@asynccontextmanager
async def hanging_stream() -> AsyncIterator[Stream]:
    await asyncio.Event().wait()
    yield Feed(Machine(cores=1))


class InvalidStream:
    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        yield [Machine(cores=1).hello]
        raise wire.WireError("not a perftop stream")


@asynccontextmanager
async def sends_garbage() -> AsyncIterator[Stream]:
    yield InvalidStream()


def refusing_stream() -> AbstractAsyncContextManager[Stream]:
    raise Failed("connection refused")


async def machines() -> tuple[bool, str]:
    """Runs the loop of a fleet with machines that need no process."""
    streams.START_S = 0.2
    counts = [CountingListener() for _ in range(MACHINES)]
    kinds = (works, hanging_stream, sends_garbage, works, hanging_stream, refusing_stream)
    members = [Member(kinds[n % 6], count) for n, count in enumerate(counts)]
    since_s, spent_s = time.monotonic(), time.process_time()
    reading = asyncio.create_task(listen(members))
    good = [count for n, count in enumerate(counts) if kinds[n % 6] is works]
    longest_s = 0.0
    while not all(count.messages for count in good) and time.monotonic() - since_s < 120:
        before_s = time.monotonic()
        await asyncio.sleep(0.05)
        longest_s = max(longest_s, time.monotonic() - before_s - 0.05)
    took_s, spent_s = time.monotonic() - since_s, time.process_time() - spent_s
    reading.cancel()
    await asyncio.wait([reading])
    output = sum(bool(count.messages) for count in good)
    text = f"{output} of {len(good)} good ones in {took_s:.1f} s, {spent_s:.1f} s of CPU, "
    text += f"the loop was away for {1e3 * longest_s:.0f} ms at most"
    return output == len(good), text


def main() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    bad = 0
    crowds: dict[str, Callable[[], tuple[bool, str]]] = {
        f"{MACHINES} machines": lambda: asyncio.run(machines()),
        f"{HOSTS} hosts": hosts,
        f"{PERFTOPS} perftops": perftops,
    }
    for name, crowd in crowds.items():
        good, text = crowd()
        bad += not good
        print(f"{'✓' if good else '✗'} {name:14} {text}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
