"""Messages between the app and its screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message
from textual.message_pump import MessagePump

from perftop.process.printout import Printout
from perftop.tui.frame.status import Status

if TYPE_CHECKING:  # numpy comes with these; the first paint does not wait for it
    from perftop.session.interval import Interval
    from perftop.session.session import Session


class Refreshed(Message):
    """There is something new to show. A newer message replaces one not yet handled."""

    def __init__(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        super().__init__()
        self.session = session
        self.interval = interval
        self.status = status

    def can_replace(self, message: MessagePump | Message) -> bool:
        return isinstance(message, Refreshed)


class Deepened(Message):
    """History reaches further back than it did."""


class Printed(Message):
    """The command has printed something. A newer message replaces one not yet handled."""

    def __init__(self, printout: Printout) -> None:
        super().__init__()
        self.printout = printout

    def can_replace(self, message: MessagePump | Message) -> bool:
        return isinstance(message, Printed)


class Sought(Message):
    """The user wants to see the next episode or mark, or for -1 the one before."""

    def __init__(self, by: int, cpus: list[int] | None) -> None:
        super().__init__()
        self.by = by
        self.cpus = cpus
        """The episode must be on one of these; None: on any CPU."""


class Said(Message):
    """A key has done something that is seen nowhere else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Marked(Message):
    """The user has named a moment."""

    def __init__(self, time_ns: int, label: str) -> None:
        super().__init__()
        self.time_ns = time_ns  # raw
        self.label = label


class Jumped(Message):
    """The user wants to see another moment."""

    def __init__(self, time_ns: int) -> None:
        super().__init__()
        self.time_ns = time_ns  # raw
