"""Lines of the time view with the memory traffic of packages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product

import pytest
import simulated
from nights import cases_by_day
from played import session_of
from simulated import SAMPLE_NS
from waiting import until_true

from perfprobe import wire
from perftop.draw import strips
from perftop.draw.strips import text
from perftop.model.machine_totals import TRAFFIC_KEYS
from perftop.process.streams import Stream
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.app import PerfTopApp
from perftop.tui.stream import LiveSource
from perftop.tui.views.timeline import Timeline


def watched(spec: str, samples: int) -> Session:
    hello, result = simulated.messages(spec, samples)
    return session_of(Session(hello, History(hello)), result)


@asynccontextmanager
async def shown(session: Session, messages: list[wire.Message]) -> AsyncIterator[Stream]:
    """A stream that remains open after these messages."""

    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield [session.hello, *messages]
        await asyncio.Event().wait()

    yield stream()


@asynccontextmanager
async def time_view(session: Session, order: str) -> AsyncIterator[Timeline]:
    """The time view of the messages applied to the session."""
    assert session.history is not None
    messages: list[wire.Message] = [*session.history.frames(0, session.now_ns)]
    source = LiveSource(lambda: shown(session, messages), 5 * SAMPLE_NS)
    app = PerfTopApp(source)
    async with app.run_test(size=(100, 40)) as pilot:
        await until_true(lambda: source.interval is not None, "a first interval")
        await pilot.press("3")
        view = app.screen_stack[0].query_one(Timeline)
        view.choice.order = order
        view.lay_out()
        yield view


@pytest.mark.parametrize(
    ("order", "packages"),
    cases_by_day(
        [*product(("topology", "CPU number"), (1, 2))], [("topology", 2), ("CPU number", 1)]
    ),
)
async def test_each_package_has_a_line_below_its_heading_or_above_all_rows(
    order: str, packages: int
) -> None:
    async with time_view(watched(f"memory,cpus=8,packages={packages}", 130), order) as view:
        lines = view.heads + [view.line(y)[0] for y in range(view.count)]
        interval, width = view.interval, view.width
    texts = [text(line) for line in lines]
    at = [y for y, line in enumerate(texts) if " mem " in line]
    assert len(at) == packages
    under = [texts[y - 1].startswith(f" package {i}") for i, y in enumerate(at)]
    assert under == [order == "topology"] * packages
    assert order == "topology" or at == [2, 3][:packages]
    for package, y in enumerate(at):
        moved = sum(interval.packages[f"{key}_per_s"][package] for key in TRAFFIC_KEYS)
        assert f"{moved / 1e9:.1f}" in texts[y]
        assert strips.width(lines[y]) == width
        assert len({key for _, key in lines[y] if key.startswith("heat")}) > 1, "it was less before"


async def test_machines_without_traffic_counters_have_no_such_line() -> None:
    async with time_view(watched("guest,cpus=2", 30), "topology") as view:
        assert not any(" mem " in text(view.line(y)[0]) for y in range(view.count))
        assert len(view.heads) == 2
