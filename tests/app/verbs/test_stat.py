"""When `perftop stat` has what was asked for."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator

import made

from perfprobe import wire
from perftop import cli
from perftop.verbs.stat import Stat

MS = 1_000_000


def test_deadlines_a_hair_early_belong_to_their_interval_and_end_the_run() -> None:
    """Intervals of 200 ms, twice that in all, samples of 100: each second one comes 1 us early."""
    hello = made.hello([made.REF])
    times = [50 * MS, 150 * MS, 250 * MS - 1000, 350 * MS, 450 * MS - 1000]

    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield [hello]
        for seq, time_ns in enumerate(times):
            blocks = made.frame(hello, seq, {"ref": [seq, seq]}).blocks
            yield [wire.Frame(seq, time_ns, blocks)]
        raise AssertionError("it was not enough")

    out = io.StringIO()
    words = ["stat", "-i", "200ms", "--sample", "100ms", "--duration", "400ms", "--json"]
    printer = Stat(cli._parsed(words))
    printer.out = out
    asyncio.run(printer.consume(stream()))
    printer.on_end()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    spans = [line["elapsed_s"] for line in lines if line["type"] == "interval"]
    assert [round(span, 3) for span in spans] == [0.2, 0.2]
