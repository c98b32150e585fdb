"""Many readers of one stream, each behind a queue of its own: one that is slow loses frames, is
told so by the count of lost frames in those it gets, and costs the others nothing. Readers are
written to and never read from."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from perfprobe import wire
from perfprobe.frozen import replace
from perfprobe.wire.outbox import Ended, Outbox

QUEUE_BYTES = 2 << 20
"""What may wait for one reader, beside what its socket holds."""
MOST = 64
STATE = ("taken", "given-back")
"""Kinds of notes that hold on, so a reader that comes later needs them."""
MOST_STATE = 4096
"""Most notes of these kinds that are kept."""


class Readers:
    """Used in one loop."""

    def __init__(self) -> None:
        self._outboxes: dict[socket.socket, Outbox] = {}
        self._hello: wire.Hello | None = None
        self._topology: dict[int, wire.Cpu] = {}
        """The row of each CPU as it is now."""
        self._state: list[wire.Note] = []
        self._now_ns, self._slept = 0, False
        """Raw time of the newest frame, and whether the machine has slept since hello."""
        self._last: tuple[wire.Message, bytes] | None = None
        """The newest message and its bytes, which most readers share."""
        self.came, self.gone = asyncio.Event(), asyncio.Event()
        """One of them is set: whether there is a reader, or none."""
        self.gone.set()

    def __len__(self) -> int:
        return len(self._outboxes)

    def admit(self, peer: socket.socket) -> bool:
        """Begins with a reader: hello first, also if it comes late. False: there are too many."""
        if len(self) >= MOST:
            return False
        peer.shutdown(socket.SHUT_RD)  # what it writes is refused by the kernel
        outbox = Outbox(peer.fileno(), QUEUE_BYTES, self._encoded)
        self._outboxes[peer] = outbox
        if self._hello is not None:
            outbox.put(self._greeting(self._hello))
            for note in self._state:
                outbox.put(replace(note, time_ns=max(note.time_ns, self._now_ns)))
            self._flush(peer, outbox)
        self.came.set()
        self.gone.clear()
        return True

    def take(self, message: wire.Message) -> None:
        """Hands a message of the stream to all readers."""
        if isinstance(message, wire.Hello):
            self._hello, self._state = message, []
            self._topology = {row.cpu: row for row in message.topology}
            self._now_ns, self._slept = message.raw_ns, False
        elif isinstance(message, wire.Frame):
            self._now_ns = message.time_ns
            self._slept |= "asleep_ns" in message.records
        elif isinstance(message, wire.Note) and message.kind == "hotplug":
            wire.take_hotplug(self._topology, message)
        elif isinstance(message, wire.Note) and message.kind in STATE:
            self._state = [*self._state, message][-MOST_STATE:]
        for peer, outbox in list(self._outboxes.items()):
            outbox.put(message)
            self._flush(peer, outbox)

    def _greeting(self, hello: wire.Hello) -> wire.Hello:
        """The hello as if it had been sent now: its reader looks back no further, and when a CPU
        went or came is not known to it. After a sleep of the machine its times are as they were,
        because frames count sleep from then on."""
        hello = replace(hello, topology=list(self._topology.values()))
        past_ns = self._now_ns - hello.raw_ns
        if past_ns <= 0 or self._slept:
            return hello
        return replace(hello, raw_ns=self._now_ns, wall_ns=hello.wall_ns + past_ns, tsc=None)

    def rested(self) -> None:
        """The stream has ended, and the next one begins with its own hello."""
        self._hello = None

    def close(self) -> None:
        for peer in list(self._outboxes):
            self._forget(peer)

    def _encoded(self, message: wire.Message) -> bytes:
        if self._last is None or self._last[0] is not message:
            self._last = message, wire.encode(message)
        return self._last[1]

    def _flush(self, peer: socket.socket, outbox: Outbox) -> None:
        loop = asyncio.get_running_loop()
        try:
            outbox.flush()
        except Ended:
            self._forget(peer)
            return
        if outbox:  # it is slow
            loop.add_writer(peer, self._flush, peer, outbox)
        else:
            loop.remove_writer(peer)

    def _forget(self, peer: socket.socket) -> None:
        asyncio.get_running_loop().remove_writer(peer)
        with contextlib.suppress(KeyError):
            del self._outboxes[peer]
        peer.close()
        if not self._outboxes:
            self.came.clear()
            self.gone.set()
