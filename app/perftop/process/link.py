"""A connection that can break: over ssh, or to a socket whose server may end. `Link` is its state;
`StreamJoiner` makes the streams of later connections continue the first, by a note for the gap and
frames whose counters begin again.

That needs the same boot of the same machine, so that raw times continue, and, as readers know the
first hello only, frames that are described alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from math import inf, nan
from typing import Protocol

import numpy as np

from perfprobe import wire
from perftop.process.job import raw_ns

WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each try; the last one applies to all later ones."""
MAX_UNANSWERED = 3
"""Echoes without an answer after which none is sent: an older probe answers none."""
LOST_NS = 30_000_000_000
"""Age of an echo that is not waited for any more, in ns: a probe whose output is full drops
some."""
RATE_S = 5.0
"""Span of the mean of bytes a second."""
SLEPT_NS = 1_000_000_000
"""Wall time may move this far against raw time because the clock was set; more is sleep of the
machine."""


def waits_s() -> Iterator[float]:
    """Seconds to wait before each try to reach a machine that does not answer."""
    yield from WAITS_S
    yield from repeat(WAITS_S[-1])


class Echoing(Protocol):
    """A probe that can be asked for an echo."""

    def echo(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Echo:
    """An answer from there. Times of the two machines are never compared."""

    sent_ns: int  # raw, here
    there_ns: int  # raw, there: when it was read
    took_ns: int


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link at one moment, as a screen shows it."""

    place: str
    rtt_s: float
    rate: float
    """Bytes a second that come."""
    down: str = ""
    """Why it is broken; '': it is not."""
    down_s: float = nan
    next_s: float = nan
    """Seconds since it broke, and until it is tried again; 0: it is being tried."""


class Link:
    """The state of a link, for those who show it. It is used in one loop."""

    def __init__(
        self, place: str, probe: Echoing, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.place = place
        self._probe = probe
        self._clock = clock
        self.down = ""
        """Why the link is broken; '': it is not."""
        self.down_since_s = self.next_s = nan
        """Times by `clock` when it broke, and when it is tried again."""
        self.until_s = inf
        """Time of `clock` from which on a broken link is not tried again."""
        self.echoed: Echo | None = None
        """The newest answer."""
        self.bytes = 0
        self._counts: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._sent: dict[int, int] = {}
        """Raw time of each echo that has no answer yet, by its number."""
        self._number = 0
        self._waits_s = waits_s()

    @property
    def mute(self) -> bool:
        """Whether the probe there answers no echo, as older ones do not."""
        return self.echoed is None and len(self._sent) >= MAX_UNANSWERED

    @property
    def rtt_s(self) -> float:
        """Time to there and back; NaN: unknown."""
        return nan if self.echoed is None else self.echoed.took_ns / 1e9

    @property
    def over(self) -> bool:
        """Whether it is too late for another try."""
        return self._clock() >= self.until_s

    def count(self, read: int) -> None:
        self.bytes += read

    def rate(self) -> float:
        """Bytes a second that come from there; NaN: unknown yet."""
        now_s, counts = self._clock(), self._counts
        if now_s - counts[-1][0] >= 1:
            counts.append((now_s, self.bytes))
        while len(counts) > 2 and now_s - counts[0][0] > RATE_S:
            counts.popleft()
        (first_s, first), (last_s, last) = counts[0], counts[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else nan

    def state(self) -> LinkState:
        now_s = self._clock()
        ahead_s = max(0.0, self.next_s - now_s)
        return LinkState(
            self.place, self.rtt_s, self.rate(), self.down, now_s - self.down_since_s, ahead_s
        )

    def set_down(self, why: str) -> None:
        if not self.down:
            self.down_since_s = self._clock()
        self.down = why
        self._sent.clear()

    def set_up(self) -> None:
        self._waits_s = waits_s()
        self.down, self.down_since_s, self.next_s = "", nan, nan

    def end_within(self, seconds: float) -> None:
        self.until_s = self._clock() + seconds

    def wait_s(self) -> float:
        """Seconds to wait now for the next try."""
        now_s = self._clock()
        wait_s = min(next(self._waits_s), max(0.0, self.until_s - now_s))
        self.next_s = now_s + wait_s
        return wait_s

    def ping(self) -> None:
        """Asks for an echo now."""
        now_ns = raw_ns()
        if self.echoed is not None:
            self._sent = {n: ns for n, ns in self._sent.items() if now_ns - ns < LOST_NS}
        if len(self._sent) < MAX_UNANSWERED:
            self._number += 1
            self._sent[self._number] = now_ns
            self._probe.echo(self._number)

    def take_echo(self, note: wire.Note) -> None:
        number = note.data.get("number")
        sent_ns = self._sent.get(number) if isinstance(number, int) else None
        if sent_ns is not None:
            self._sent = {n: ns for n, ns in self._sent.items() if ns > sent_ns}
            self.echoed = Echo(sent_ns, note.time_ns, raw_ns() - sent_ns)


class StreamJoiner:
    """Makes messages of later connections fit the first hello. It is fed all of them."""

    def __init__(self, hello: wire.Hello | None = None) -> None:
        self.hello = hello
        """The first hello; None: none has come."""
        rows = () if hello is None else hello.topology
        self.now_ns = 0 if hello is None else hello.raw_ns
        """Raw time of the newest frame."""
        self._seq = self._lost = self._late = 0
        self._totals = (0, 0, 0)
        """Sequence, losses and late frames of earlier connections together."""
        self._asleep_ns = self._slept_ns = 0
        """Sleep of the machine: up to now, and up to this connection."""
        self._cpus = [row.cpu for row in rows]
        self._offline = {row.cpu for row in rows if not row.online}
        self._unread: dict[str, np.ndarray] = {}
        """Mask of the rows that were not read since the gap, by block."""

    def mismatch(self, hello: wire.Hello) -> str:
        """Why frames after this hello cannot follow those before; '': they can."""
        old = self.hello
        assert old is not None
        if hello.boot_id != old.boot_id or hello.host != old.host or hello.raw_ns < self.now_ns:
            return "the machine was restarted, or is another one"
        same = all(
            getattr(hello, name) == getattr(old, name)
            for name in ("cores", "packages", "blocks", "stamp", "selected")
        )
        cpus = [row.cpu for row in hello.topology] == [row.cpu for row in old.topology]
        return "" if same and cpus else "its CPUs or counters have changed"

    def gap(self, hello: wire.Hello, why: str) -> list[wire.Message]:
        """The notes that replace a later hello that fits."""
        old = self.hello
        assert old is not None
        self._totals = (self._seq + 1, self._lost, self._late)
        apart_ns = (hello.wall_ns - hello.raw_ns) - (old.wall_ns - old.raw_ns)
        self._slept_ns = max(self._asleep_ns, apart_ns if apart_ns > SLEPT_NS else 0)
        rows = ((block.name, hello.rows(block.scope)) for block in hello.blocks)
        self._unread = {name: np.ones(count, bool) for name, count in rows}
        data = {"since_ns": self.now_ns, "why": why}
        notes = [wire.Note("gap", hello.raw_ns, "recorder", data)]
        for row in hello.topology:
            if row.online != (row.cpu not in self._offline):
                data = {"cpu": row.cpu, "online": row.online, "row": asdict(row)}
                notes.append(wire.Note("hotplug", hello.raw_ns, "recorder", data))
        self._offline = {row.cpu for row in hello.topology if not row.online}
        return list(notes)

    def frames(self, messages: list[wire.Message]) -> Iterator[wire.Message]:
        """Messages after a hello, as they follow those of earlier connections."""
        for message in messages:
            if isinstance(message, wire.Frame):
                yield self._frame(message)
            else:
                if isinstance(message, wire.Note) and message.kind == "hotplug":
                    online = message.data.get("online")
                    if (cpu := message.data.get("cpu")) in self._cpus:
                        (self._offline.discard if online else self._offline.add)(cpu)
                yield message

    def _frame(self, frame: wire.Frame) -> wire.Frame:
        seq, lost, late = self._totals
        asleep = frame.records.get("asleep_ns")
        asleep_ns = _sum(self._slept_ns, asleep if type(asleep) is int else 0)
        if seq:
            records = frame.records | ({"asleep_ns": asleep_ns} if asleep_ns else {})
            frame = replace(
                frame, seq=_sum(seq, frame.seq), lost=_sum(lost, frame.lost),
                late=_sum(late, frame.late),
                records=records, blocks=self._rebased(frame.blocks),
            )  # fmt: skip
        self.now_ns, self._seq, self._asleep_ns = frame.time_ns, frame.seq, asleep_ns
        self._lost, self._late = frame.lost, frame.late
        return frame

    def _rebased(self, blocks: dict[str, wire.Rows]) -> dict[str, wire.Rows]:
        """The blocks, with ROW_REBASED on each row up to its first read."""
        if not self._unread:
            return blocks
        rebased = dict(blocks)
        for name, unread in list(self._unread.items()):
            if name in blocks:
                head = np.frombuffer(blocks[name].head, "<u8").reshape(-1, wire.HEAD).copy()
                whole = len(head) == 1  # a single head row stands for all rows
                marked = np.array([unread.any()]) if whole else unread
                head[marked, 4] |= np.uint64(wire.ROW_REBASED)
                rebased[name] = replace(blocks[name], head=head.tobytes())
                read = head[:, 4] & np.uint64(wire.ROW_SAMPLED) != 0
                self._unread[name] = left = unread & ~read
                if not left.any():
                    del self._unread[name]
        return rebased


def _sum(total: int, more: int) -> int:
    """A sum that a message can hold, whatever came."""
    return min(total + max(0, more), wire.LATEST_NS)
