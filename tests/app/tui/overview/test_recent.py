"""The past beside the rows: it is kept from one interval to the next."""

from __future__ import annotations

import pytest
from painted import messages

from perfprobe.wire import Hello
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.overview.columns import RowHistories
from perftop.tui.shared.places import Places

BATCHES = (40, 5, 5, 5, 3, 5, 5, 1, 1, 1)
"""Samples in each interval; another length of the interval is one of the bins, too."""


@pytest.mark.parametrize("scenario", ["smt-mix,smt=1", "smt-mix"])
def test_a_past_that_has_moved_on_is_as_if_looked_up_again(scenario: str) -> None:
    hello, *feed = messages(8, sum(BATCHES) + 1, scenario)
    assert isinstance(hello, Hello)
    session = Session(hello, History(hello))
    places = Places(session).places
    sight = [*range(len(places))]
    kept = RowHistories(session, places, 20, 12, ascii_=False)
    for batch in BATCHES:
        for message in [feed.pop(0) for _ in range(batch)]:
            session.apply(message)
        interval, anew = session.take(), RowHistories(session, places, 20, 12, ascii_=False)
        kept.read(interval, sight, 0.0)
        anew.read(interval, [], kept.top_ipc)
        for row in sight:
            assert kept.busy(row) == anew.busy(row)
            assert kept.ipc(row, None) == anew.ipc(row, None)
