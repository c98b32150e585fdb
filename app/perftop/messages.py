"""What the app tells its screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message
from textual.message_pump import MessagePump

if TYPE_CHECKING:  # numpy comes with these; the first paint does not wait for it
    from perftop.session import Interval, Session


@dataclass(frozen=True, slots=True)
class Status:
    """What a screen shows that is not measured: the app's own state."""

    interval_ns: int
    own: float = float("nan")
    """CPU seconds per second that probe and app use."""
    paused: float | None = None
    """Unix time of the moment that is shown, while paused."""
    failed: str | None = None
    """Why nothing more will come."""


class Refreshed(Message):
    """There is something newer to show. A newer one takes the place of one not yet handled."""

    def __init__(self, session: Session | None, interval: Interval | None, status: Status) -> None:
        super().__init__()
        self.session = session
        self.interval = interval
        self.status = status

    def can_replace(self, message: MessagePump | Message) -> bool:
        return isinstance(message, Refreshed)
