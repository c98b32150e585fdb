"""Numbers over time: slices that are joined when they become too many still hold all of it."""

from __future__ import annotations

import exported
import pytest

from perfprobe import wire
from perftop.output.compare import readings as course
from perftop.output.compare.readings import Course
from perftop.session.session import Session


def played(found: list[wire.Message]) -> Course:
    session = Session(exported.hello(found))
    made = Course(session)
    for message in session.play(found[1:]):
        if isinstance(message, wire.Frame):
            made.take()
    return made


def test_joined_slices_hold_what_they_were_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found = exported.messages("sim:turbo-drop,cpus=4,packages=1", 10)
    whole = played(found)
    monkeypatch.setattr(course, "MOST", 36)
    joined = played(found)
    for key, (ends_ns, amounts, sizes) in joined.sums().items():
        other_ns, every_amount, every_size = whole.sums()[key]
        at = [*other_ns].index(ends_ns[-1])
        assert len(ends_ns) <= 36 + 1 < len(other_ns)
        assert amounts[-1] == pytest.approx(every_amount[at])
        assert sizes[-1] == pytest.approx(every_size[at])
