"""Numbers beside the charts of a core: events that took turns, and traffic to memory."""

from __future__ import annotations

import simulated
from played import played

from perftop.draw.columns import Run
from perftop.draw.strips import text, width
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.core_page import numbers
from perftop.tui.core_page.numbers import TRAFFIC, Panel, page_layout
from perftop.tui.shared.places import Places

EVENTS = "branches,branch-misses,cache-misses,cache-references,page-faults"
"""One more than there are counters for; page-faults need none."""


def beside(key: str) -> tuple[numbers.CoreMoment, list[Run]]:
    """The first number of a panel of core 0."""
    hello, messages = simulated.lasting("sim:memory,cpus=2", 12, events=EVENTS)
    session = played(Session(hello, History(hello)), messages)
    interval = session.interval_at(session.now_ns, 500_000_000)
    assert interval is not None
    place = Places(session).places[0]
    made = page_layout(numbers.capabilities(session, place, tasks=False), 160, 40)
    moment = numbers.core_moment(session, interval, place, made, "GHz", 0)
    return moment, numbers.panel_numbers(moment, Panel(key, 1, 3))[0]


def test_an_event_that_took_turns_has_its_share_and_the_sign_of_an_estimate() -> None:
    moment, runs = beside("e.branches")
    share = moment.interval.shares["e.branches"][0]
    assert share < 0.99
    assert f" {100 * share:.0f}%" in text(runs)
    assert "≈" in text(runs)
    assert width(runs) == moment.size


def test_one_that_was_counted_all_the_time_has_neither() -> None:
    moment, runs = beside("e.page-faults")
    assert "≈" not in text(runs)
    assert "%" not in text(runs)
    assert width(runs) == moment.size


def test_traffic_is_that_of_the_package() -> None:
    moment, runs = beside(TRAFFIC)
    moved = sum(float(moment.interval.packages[f"memory_{what}_bytes_per_s"][0])
                for what in ("read", "write"))  # fmt: skip
    assert f"{moved / 1e9:.1f}" in text(runs)
