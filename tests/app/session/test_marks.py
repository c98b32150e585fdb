"""What notes of a stream say to people."""

from __future__ import annotations

import made

from perfprobe import wire
from perftop.session import episodes as marks
from perftop.session.history import History
from perftop.session.session import Session


def test_only_marks_of_users_are_numbered() -> None:
    """A run and a sleep of the machine have marks of their own, which nobody set."""
    hello = made.hello()
    session = Session(hello, History(hello))
    values = {key: [0, 0] for key in ("ref", "cycles", "instructions")}
    for seq, asleep_ns in enumerate((0, 60 * 10**9)):
        records = {"asleep_ns": asleep_ns}
        session.apply(made.frame(hello, seq, values, records=records))
    session.apply(wire.Note("run-start", made.SAMPLE_NS, "recorder", {"argv": ["make", "-j"]}))
    session.apply(wire.Note("run-end", made.SAMPLE_NS, "recorder", {"status": 2}))
    labels = [str(mark.evidence["label"]) for mark in session.marks]
    assert labels == ["was suspended for 1 min 00 s", "run: make -j", "run ended: status 2"]
    assert marks.next_mark_label(session.marks) == "mark 1"
    session.apply(wire.Note("mark", made.SAMPLE_NS, "user", {"label": "here"}))
    assert marks.next_mark_label(session.marks) == "mark 2"
