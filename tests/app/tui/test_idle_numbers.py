"""Values of idle CPUs do not appear and disappear, and no view shows a kernel share of idle
time."""

from __future__ import annotations

import re

from drawn_numbers import fed_messages, press_until_shown
from painted import FedApp, shown_app
from waiting import until_quiet

from perfprobe import wire
from perftop.model.evaluation import MAX_RESTING_SHARE

SPANS = 8


def dots(app: FedApp, cpu: int) -> list[int]:
    """Positions of dots in the table's line of a CPU."""
    line = next(x for x in app.terminal.lines() if re.match(rf".{{3}} +{cpu} +0:", x))
    return [at for at, sign in enumerate(line) if sign == "·"]


async def test_the_dots_of_an_idle_cpu_do_not_move() -> None:
    feed = fed_messages("neighbour", 16)

    async with shown_app(feed[:-SPANS], (200, 40)) as app:
        await press_until_shown(app, "4", "▲core")
        seen: list[list[int]] = []
        shares: list[float] = []
        for message in feed[-SPANS:]:
            app.source.take([message])
            await until_quiet()
            assert app.source.interval is not None
            if isinstance(message, wire.Frame):
                shares.append(float(app.source.interval.values["util"][1]))
                seen.append(dots(app, 1))
        assert 0.0 in shares
        assert any(0 < share < MAX_RESTING_SHARE for share in shares)
        assert seen[0]
        assert all(one == seen[0] for one in seen)
