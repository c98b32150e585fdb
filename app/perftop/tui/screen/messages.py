"""What the app shows, and messages between it and its screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message
from textual.message_pump import MessagePump

from perftop.process.job_terminal import Printout
from perftop.tui.frame.status import Status

if TYPE_CHECKING:  # numpy comes with these; the first paint does not wait for it
    from perftop.session.interval import Interval
    from perftop.session.session import Session


class State(NamedTuple):
    """What the app shows now."""

    session: Session | None
    interval: Interval | None
    status: Status


class Deepened(Message):
    """History reaches further back than it did."""


@dataclass(eq=False)
class Printed(Message):
    """The command has printed something. A newer message replaces one not yet handled."""

    printout: Printout

    def can_replace(self, message: MessagePump | Message) -> bool:
        return isinstance(message, Printed)


@dataclass(eq=False)
class Sought(Message):
    """The user wants to see the next episode or mark, or for -1 the one before."""

    by: int
    cpus: list[int] | None
    """The episode must be on one of these; None: on any CPU."""


@dataclass(eq=False)
class Said(Message):
    """A key has done something that is seen nowhere else."""

    text: str


@dataclass(eq=False)
class Marked(Message):
    """The user has named the moment `time_ns` (raw)."""

    time_ns: int
    label: str


@dataclass(eq=False)
class Jumped(Message):
    """The user wants to see the moment `time_ns` (raw)."""

    time_ns: int
