"""Makes sessions that have received samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import synth

from perfprobe import wire
from perftop.session.session import Session

TICKS = int(synth.TSC_HZ / 10)
"""Number of TSC ticks in a sample."""


def play(hello_message: wire.Hello, *samples: synth.Values) -> Session:
    """Returns a session that has received one frame for each of `samples`."""
    frames = [synth.frame(hello_message, seq, values) for seq, values in enumerate(samples)]
    return session_of(Session(hello_message), frames)


def session_of(session: Session, messages: Sequence[wire.Message]) -> Session:
    """Passes all messages to the session at once, which is eight times faster than one by one."""
    deque(session.apply_in_parts(messages), maxlen=0)
    return session


def one_by_one(session: Session, messages: Iterable[wire.Message]) -> Iterator[wire.Message]:
    """Applies messages in order, and yields each after it was applied. The session still computes
    consecutive frames together, so it reads ahead."""
    for (message,) in session.apply_in_parts(messages, lambda: 0):
        yield message
