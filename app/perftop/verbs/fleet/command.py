"""`perftop fleet`: which machines, and their lines as JSON for programs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.output.stat_json import number, text
from perftop.process.signals import ENDS, on_signal
from perftop.session.fleet.fleet import Sight
from perftop.session.fleet.machine import Event, Machine
from perftop.session.fleet.numbers import FIELDS
from perftop.verbs.fleet import prometheus
from perftop.verbs.fleet.live import LiveSource
from perftop.verbs.fleet.prometheus import PrometheusSource
from perftop.verbs.fleet.recordings import RecordingsSource

MOST_FILE = 1 << 20
"""Bytes read of a file of hosts."""
FIRST_S = 10.0
"""Longest time that the first lines wait until all machines have answered."""


Source = LiveSource | PrometheusSource | RecordingsSource


def source(
    hosts: Sequence[str], file: Path | None, every_s: float | None, remote: str | None,
    url: str | None, match: str | None,
) -> Source:  # fmt: skip
    """Where the machines are told of: `url` is Prometheus's. Raises Failed for what contradicts
    each other."""
    if url is not None:
        if hosts or file is not None or remote is not None:
            raise Failed("--prometheus names the machines: leave out hosts and --remote", USAGE)
        return PrometheusSource(url, match or "", every_s or prometheus.EVERY_S)
    if match is not None:
        raise Failed("--match goes with --prometheus", USAGE)
    if len(hosts) == 1 and Path(hosts[0]).is_dir() and file is None:
        return RecordingsSource(Path(hosts[0]))
    return LiveSource(names(hosts, file), every_s or 1.0, remote=remote)


def names(hosts: Sequence[str], file: Path | None) -> list[str]:
    """The hosts of the command line and of a file: a name a line, after # a comment. Raises
    Failed."""
    found = list(hosts)
    if file is not None:
        try:
            with file.open("rb") as lines:
                told = lines.read(MOST_FILE + 1)
        except OSError as error:
            raise Failed(f"{file}: {error.strerror or error}", USAGE) from None
        if len(told) > MOST_FILE:
            raise Failed(f"{file}: no file of hosts: it is larger than {MOST_FILE >> 20} MB", USAGE)
        lines_ = told.decode("utf-8", "replace").splitlines()
        found += [name for line in lines_ if (name := line.partition("#")[0].strip())]
    if not found:
        raise Failed("no machine was named: perftop fleet HOST… | --hosts FILE", USAGE)
    return found


# --- lines for programs


def lines(source: Source, count: int | None) -> int:
    """Writes a line a machine for each span, `count` times; returns the exit status."""
    return asyncio.run(_lines(source, count))


async def _lines(source: Source, count: int | None) -> int:
    caught: list[int] = []
    over = asyncio.Event()

    def stop(number: int) -> None:
        caught.append(number)
        over.set()

    on_signal(ENDS, stop)
    feeding = asyncio.create_task(source.run())
    feeding.add_done_callback(lambda _: over.set())
    told = Told()
    try:
        await _first(source, over)
        while not over.is_set() and count != 0:
            told.write(source)
            count = 0 if source.over else None if count is None else count - 1
            if count != 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), source.every_s)
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding  # raises what ended it
    return 128 + caught[0] if caught else 0


async def _first(source: Source, over: asyncio.Event) -> None:
    """Wait until every machine has answered, failed, or had its time."""
    until = asyncio.get_running_loop().time() + FIRST_S
    while asyncio.get_running_loop().time() < until and not over.is_set():
        waiting = [m for m in source.fleet.silent if m.why == "connecting"]
        if source.fleet.machines and not waiting:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), 0.1)


class Told:
    """Writes lines; each ended episode once."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        """The end of the newest that was told, by machine."""

    def write(self, source: Source) -> None:
        for machine in source.fleet.rows(Sight(), source.now):
            print(text(machine_line(machine, source.now)))
            last = self._ended.get(machine.name, 0.0)
            for event in machine.ended:
                if event.end is not None and event.end > last:
                    print(text(episode_line(event)))
                    self._ended[machine.name] = max(event.end, self._ended.get(machine.name, 0.0))
        sys.stdout.flush()


def machine_line(machine: Machine, now: float) -> dict[str, Any]:
    kind, cause = machine.cause
    line: dict[str, Any] = {
        "type": "machine",
        "machine": machine.name,
        "time": now,
        "answers": machine.answers,
        "why": machine.why or None,
        "age_s": number(now - machine.heard) if isfinite(machine.heard) else None,
        "model": machine.model or None,
        "cpus": machine.cpus or None,
    }
    line |= {key: number(machine.numbers[key]) for key in FIELDS}
    line |= {"kind": kind or None, "cause": cause or None, "suspects": machine.suspects}
    return line | {"episodes": [episode_line(event) for event in machine.running]}


def episode_line(event: Event) -> dict[str, Any]:
    return {
        "type": "episode", "machine": event.machine, "kind": event.kind, "cause": event.cause,
        "start": event.start, "end": event.end, "depth": event.depth, "share": event.share,
    }  # fmt: skip
