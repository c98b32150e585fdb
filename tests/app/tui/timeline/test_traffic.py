"""The lines of the time view that tell what packages move from and to memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import simulated
from played import played
from simulated import SAMPLE_NS
from waiting import until

from perfprobe import wire
from perftop.draw.strips import Run, text
from perftop.model.memory import KEYS
from perftop.process.probe_stream import Stream
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.app import PerfTopApp
from perftop.tui.core_page import core_page, layout
from perftop.tui.core_page.charts import CoreHistory
from perftop.tui.shared import time_axis
from perftop.tui.shared.places import Places
from perftop.tui.timeline import traffic
from perftop.tui.timeline.timeline import Past


def watched(spec: str, samples: int) -> Session:
    hello, found = simulated.messages(spec, samples)
    return played(Session(hello, History(hello)), found)


@pytest.mark.parametrize("packages", [1, 2])
def test_each_package_has_a_line_with_its_past_and_its_rate(packages: int) -> None:
    session = watched(f"memory,cpus=8,packages={packages}", 130)
    interval = session.at(session.now_ns, 5 * SAMPLE_NS)
    assert interval is not None
    axis = time_axis.fitted(session.now_ns, 15, 60)
    lines = traffic.lines(session, interval, axis, 20, 10, named=True, ascii_=False)
    assert len(lines) == traffic.count(session, 50) == packages
    for at, (package, line) in enumerate(lines):
        assert package == at
        moved = sum(interval.packages[f"{key}_per_s"][at] for key in KEYS)
        assert f"{moved / 1e9:.1f}" in text(line)
        assert len(text(line)) == 20 + 60 + 10
        assert len(shades(line)) > 1  # it was less before others came


@asynccontextmanager
async def told(session: Session, messages: list[wire.Message]) -> AsyncIterator[Stream]:
    """A stream that stays open behind these messages."""

    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield [session.hello, *messages]
        await asyncio.Event().wait()

    yield stream()


@pytest.mark.parametrize("order", ["topology", "CPU number"])
async def test_the_line_stands_under_its_package_or_above_all_rows(order: str) -> None:
    session = watched("memory,cpus=8,packages=2", 40)
    assert session.history is not None
    messages: list[wire.Message] = [*session.history.frames(0, session.now_ns)]
    app = PerfTopApp(lambda: told(session, messages), 5 * SAMPLE_NS)
    async with app.run_test(size=(100, 40)) as pilot:
        await until(lambda: app.interval is not None, "a first interval")
        await pilot.press("3")
        view = app.screen_stack[0].query_one(Past)
        view.choice.order = order
        view.lay_out()
        lines = [text(runs) for runs in view.heads]
        lines += [text(view.line(y)[0]) for y in range(view.count)]
    at = [y for y, line in enumerate(lines) if " mem " in line]
    assert len(at) == 2
    under = [lines[y - 1].startswith(f" package {i}") for i, y in enumerate(at)]
    assert under == [order == "topology"] * 2
    assert order == "topology" or at == [2, 3]


def shades(line: list[Run]) -> set[str]:
    return {key for _, key in line if key.startswith("heat")}


def test_machines_that_count_none_have_no_such_line() -> None:
    assert traffic.count(watched("guest,cpus=2", 3), 50) == 0


def test_a_core_has_the_past_of_its_package() -> None:
    session = watched("memory,cpus=4,packages=2", 60)
    places = Places(session).places
    known = core_page.known(session, places[-1], who=False)
    assert known.shared == (layout.TRAFFIC,)
    track = CoreHistory(session, places[-1])
    track.look(axis := time_axis.fitted(session.now_ns, 5, 20))
    past = session.history
    assert past is not None
    read, write = (past.shared(key, axis.edges)[:, 1] for key in KEYS)
    assert track.traffic().tolist() == pytest.approx((read + write).tolist(), nan_ok=True)
