"""What the app tells its screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message
from textual.message_pump import MessagePump

from perftop.widgets.status import Status

if TYPE_CHECKING:  # numpy comes with these; the first paint does not wait for it
    from perftop.session import Interval, Session


class Refreshed(Message):
    """There is something newer to show. A newer one takes the place of one not yet handled."""

    def __init__(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        super().__init__()
        self.session = session
        self.interval = interval
        self.status = status

    def can_replace(self, message: MessagePump | Message) -> bool:
        return isinstance(message, Refreshed)


class Jumped(Message):
    """The user wants to see another moment."""

    def __init__(self, time_ns: int) -> None:
        super().__init__()
        self.time_ns = time_ns  # raw
