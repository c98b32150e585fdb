"""A stream whose records are made by a test, second by second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import made
from fakes import Machine
from played import session_of

from perftop.model.kinds import Episode
from perftop.session.session import Session

PER_S = 1_000_000_000 // made.SAMPLE_NS


class RecordStream:
    def __init__(self, **changes: Any) -> None:
        """`changes`: fields of hello."""
        self.machine = Machine(cores=2, changes=changes)
        self.session = Session(self.machine.hello)
        self.seq = 0

    def second(
        self, last: dict[str, Any], every: Callable[[], dict[str, Any]] = dict[str, Any]
    ) -> None:
        """Plays a second. `every` makes the records of each frame, `last` are further ones of the
        last frame."""
        frames = []
        for _ in range(PER_S):
            self.seq += 1
            records = every() | (last if self.seq % PER_S == 0 else {})
            frames.append(self.machine.frame(self.seq, records=records))
        session_of(self.session, frames)

    def episodes(self, kind: str) -> list[Episode]:
        whole = [*self.session.detector.running, *self.session.ended]
        return [episode for episode in whole if episode.kind == kind]
