"""Detects CPUs that went offline, from the kernel's uevents.

A CPU that went offline and online again between two reads of the list of online CPUs is in both
lists, but the kernel has ended its perf events, and firmware may have cleared its MSRs.
"""

from __future__ import annotations

import errno
import re
import select
import socket
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Protocol

KERNEL_PORT, KERNEL_GROUP = 0, 1
"""Netlink port of the kernel, and the multicast group of its events (not udev's)."""
NETLINK_KOBJECT_UEVENT = 15
MAX_EVENT_BYTES = 4096
"""Maximum length of an event, in bytes; the kernel's own limit is 2048."""
_OFFLINE = re.compile(rb"offline@/devices/system/cpu/cpu(\d+)\0")


class EventSocket(Protocol):
    def recvfrom(self, count: int, /) -> tuple[bytes, Any]: ...

    def close(self) -> None: ...


class OfflineEvents:
    def __init__(
        self, events: EventSocket | None, is_readable: Callable[[], object] = lambda: True
    ) -> None:
        """`is_readable` returns whether the socket may have an event or error; it costs a quarter
        of a `recvfrom` that raises BlockingIOError."""
        self._events, self._is_readable = events, is_readable

    def read_offline(self, cpus: Collection[int]) -> set[int]:
        """Returns those of `cpus` that may have been offline since the last call."""
        offline: set[int] = set()
        while self._events is not None and self._is_readable():
            try:
                data, (sender, _) = self._events.recvfrom(MAX_EVENT_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # the kernel dropped some events
                    offline |= set(cpus)
                    continue
                break
            match = _OFFLINE.match(data) if sender == KERNEL_PORT else None
            offline |= {int(match[1])} if match else set()
        return offline & set(cpus)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()


def open_offline_events(root: Path) -> OfflineEvents:
    """Opens the socket of the kernel's events. Under a sysroot, or if the socket cannot be opened,
    the object has no events."""
    if root != Path("/"):
        return OfflineEvents(None)
    try:
        events = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT
        )
    except OSError:
        return OfflineEvents(None)
    try:
        events.bind((0, KERNEL_GROUP))
    except OSError:
        events.close()
        return OfflineEvents(None)
    poller = select.poll()
    poller.register(events, select.POLLIN)
    return OfflineEvents(events, partial(poller.poll, 0))
