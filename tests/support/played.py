"""Sessions that were given samples."""

from __future__ import annotations

from collections.abc import Sequence

import made

from perfprobe import wire
from perftop.session.session import Session

TICKS = int(made.TSC_HZ / 10)
"""Ticks of the TSC in a sample."""


def play(greeting: wire.Hello, *samples: made.Values) -> Session:
    """A session, after a frame of each of these values."""
    session = Session(greeting)
    for seq, values in enumerate(samples):
        session.apply(made.frame(greeting, seq, values))
    return session


def played(session: Session, messages: Sequence[wire.Message]) -> Session:
    """The session, after all messages; taken together they cost a quarter of one by one."""
    for _ in session.play(messages):
        pass
    return session
