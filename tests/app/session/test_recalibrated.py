"""A factor that was settled wrongly and moves later is told once, with both factors."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import made
import pytest
from played import TICKS

from perfprobe import wire
from perftop import cli
from perftop.output import stat_json
from perftop.session.episodes import MAX_WARNING
from perftop.session.session import Session
from perftop.verbs.stat import Stat

HELLO = made.hello(
    [made.REF, made.CYCLES, made.ONE_THREAD],
    smt_methods=["one-thread"],
    multipliers=[wire.Multiplier("one_thread", k, "made") for k in (96.0, 24.0)],
)


def frames(spans: list[tuple[float, int]]) -> list[wire.Frame]:
    """One thread works half the time, the other sleeps; for so many samples its ticks are worth so
    much."""
    found: list[wire.Frame] = []
    ref, one = 0, 0.0
    for k, count in [(96.0, 1), *spans]:
        for _ in range(count):
            ref += TICKS // 2
            one += TICKS / 2 / k
            values = {"ref": [ref, 0], "cycles": [ref, 0], "one_thread": [int(one), 0]}
            found.append(made.frame(HELLO, len(found), values))
    return found


def test_a_moved_factor_is_reported_once() -> None:
    session, told = Session(HELLO), []
    for _ in session.play(frames([(24.0, 10), (96.0, 60)])):
        told.append((session.calibrations["one_thread"].factor, len(session.warnings)))
        if len(told) == 11:
            assert multiplier(session) == {"factor": 24.0, "state": "settled"}
    assert told[10] == (24.0, 0)
    assert told[-1] == (96.0, 1)
    (text,) = session.warnings
    assert "one_thread is 96 TSC ticks, not 24" in text
    assert len(text) < MAX_WARNING
    assert multiplier(session) == {"factor": 96.0, "state": "settled", "before": 24.0}


def multiplier(session: Session) -> dict[str, object]:
    found: dict[str, object] = stat_json.interval_line(session, session.take())["multipliers"]
    return found["one_thread"]  # type: ignore[return-value]


def test_stat_reports_a_moved_factor_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield [HELLO]
        yield [*frames([(24.0, 10), (96.0, 60)])]

    stat = Stat(cli._parsed(["stat", "-i", "1s", "--json"]))
    stat.out = io.StringIO()
    asyncio.run(stat.consume(stream()))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("perftop: a tick of one_thread is 96 TSC ticks, not 24")
