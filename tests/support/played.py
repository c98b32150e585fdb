"""Messages that a session takes together, which costs a quarter of one by one."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe import wire
from perftop.session.session import Session


def played(session: Session, messages: Sequence[wire.Message]) -> Session:
    """The session, after all messages."""
    for _ in session.play(messages):
        pass
    return session
