"""Detection of CPUs that went offline, from the kernel's events."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perfprobe.kernel.clues import KERNEL_PORT, OfflineEvents, open_offline_events

UDEV = 4711
"""Port of a program that imitates the kernel's events."""


class Events:
    """A socket with queued events and errors."""

    def __init__(self, *waiting: bytes | OSError, sender: int = KERNEL_PORT) -> None:
        self.waiting, self.sender, self.closed = [*waiting], sender, False

    def recvfrom(self, _: int, /) -> tuple[bytes, Any]:
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, "nothing")
        result = self.waiting.pop(0)
        if isinstance(result, OSError):
            raise result
        return result, (self.sender, 1)

    def close(self) -> None:
        self.closed = True


def event(action: str, path: str = "/devices/system/cpu/cpu3") -> bytes:
    """Returns an event as the kernel sends it."""
    return f"{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SEQNUM=7\0".encode()


@pytest.mark.parametrize(("events", "gone"), [
    ([], set()),
    ([event("offline")], {3}),
    ([event("offline"), event("online")], {3}),
    ([event("online")], set()),
    ([event("offline", "/devices/system/cpu/cpu9")], set()),  # this CPU is not read
    ([event("offline", "/devices/system/memory/memory3")], set()),
    ([event("remove", "/devices/virtual/cpuid/cpu3"), event("offline")], {3}),
    ([event("offline", "/devices/system/cpu/cpu3/cache")], set()),
    ([OSError(errno.ENOBUFS, "lost"), event("online")], {0, 3}),
    ([OSError(errno.EBADF, "bad")], set()),
])  # fmt: skip
def test_cpus_that_went_offline_are_reported_once(
    events: list[bytes | OSError], gone: set[int]
) -> None:
    reader = OfflineEvents(Events(*events))
    assert reader.read_offline({0, 3}) == gone
    assert reader.read_offline({0, 3}) == set()


def test_only_events_of_the_kernel_count() -> None:
    assert OfflineEvents(Events(event("offline"), sender=UDEV)).read_offline({3}) == set()


def test_an_event_that_arrives_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    class KernelSocket(socket.socket):
        """A socket whose peer is the kernel, in place of netlink."""

        def __init__(self, *_: int) -> None:
            super().__init__(fileno=reader.detach())
            self.setblocking(False)

        def bind(self, _address: object) -> None: ...

        def recvfrom(self, count: int) -> Any:  # type: ignore[override]
            return self.recv(count), (KERNEL_PORT, 1)

    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setattr(socket, "socket", KernelSocket)
    events = open_offline_events(Path("/"))
    assert events.read_offline([1, 2]) == set()
    writer.send(b"offline@/devices/system/cpu/cpu2\0")
    assert events.read_offline([1, 2]) == {2}
    events.close()
    writer.close()


@pytest.mark.parametrize("refused", ["socket", "bind"])
def test_without_a_socket_no_cpu_is_reported(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, events_socket = PermissionError(errno.EPERM, "made"), Mock()
    events_socket.bind.side_effect = error
    opened = Mock(side_effect=error if refused == "socket" else [events_socket])
    monkeypatch.setattr(socket, "socket", opened)
    events = open_offline_events(Path("/"))
    assert events.read_offline({0}) == set()
    events.close()
    assert events_socket.close.call_count == (refused == "bind")


def test_the_real_socket_does_not_block() -> None:
    events = open_offline_events(Path("/"))
    assert events.read_offline(set()) == set()
    events.close()
