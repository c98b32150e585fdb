"""A connection that can break: over ssh, or to a socket whose server may end. `Link` is its state.
`StreamJoiner` changes the messages of later connections so that they continue the stream of the
first: a note marks the gap, and counters start again. That requires the same boot of the same
machine, because raw times must continue, and the same layout of frames, because readers know only
the first hello."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain, repeat
from math import inf, nan
from typing import Protocol

import numpy as np

from perfprobe import wire
from perftop.base import raw_ns

RETRY_WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds to wait before each attempt to connect; the last value is repeated."""
MAX_UNANSWERED_ECHOES = 3
"""Number of unanswered echoes after which no more are requested: an old version of the probe does
not answer."""
LOST_ECHO_NS = 30_000_000_000
"""Age in ns at which an unanswered echo is lost. A probe drops echoes if its output buffer is
full."""
RATE_SPAN_S = 5.0
"""Span in s over which bytes per second are averaged."""
MAX_CLOCK_SET_NS = 1_000_000_000
"""Largest change in ns of wall time minus raw time that is attributed to a clock adjustment. A
larger one means that the machine was suspended."""


def retry_waits_s() -> Iterator[float]:
    """Returns the seconds to wait before each attempt to connect."""
    return chain(RETRY_WAITS_S, repeat(RETRY_WAITS_S[-1]))


class EchoSource(Protocol):
    def request_echo(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Echo:
    """The answer to an echo. The clocks of the two machines are never compared."""

    sent_ns: int  # raw time on this machine
    remote_ns: int  # raw time on the remote machine when the request was read
    round_trip_ns: int


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of a link at one moment, for display."""

    remote_name: str
    rtt_s: float
    bytes_per_s: float
    broken_reason: str = ""
    """Why the link is broken; '' if it is not."""
    broken_s: float = nan
    next_attempt_s: float = nan
    """Seconds since the link broke, and until the next attempt to connect (0 during an attempt)."""


class ByteRate:
    """Counts received bytes, and computes the recent rate."""

    def __init__(self, span_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`span_s`: seconds over which the rate is averaged."""
        self.total, self._span_s, self._clock = 0, span_s, clock
        self._totals: deque[tuple[float, int]] = deque([(clock(), 0)])
        """Times, each with the number of bytes received until then."""

    def count(self, received: int) -> None:
        self.total += received

    def per_s(self) -> float:
        now_s, totals = self._clock(), self._totals
        if now_s - totals[-1][0] >= 1:
            totals.append((now_s, self.total))
        while len(totals) > 2 and now_s - totals[0][0] > self._span_s:
            totals.popleft()
        (first_s, first), (last_s, last) = totals[0], totals[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else nan


class Link:
    """The state of a link, for one event loop only."""

    def __init__(
        self, remote_name: str, probe: EchoSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.remote_name = remote_name
        self._probe = probe
        self._clock = clock
        self.broken_reason = ""
        """Why the link is broken; '' if it is not."""
        self.broken_since_s = self.next_attempt_s = nan
        """Times, by `clock`, when the link broke and of the next attempt to connect."""
        self.retry_until_s = inf
        """Time, by `clock`, after which a broken link is not retried."""
        self.last_echo: Echo | None = None
        self.receive_rate = ByteRate(RATE_SPAN_S, clock)
        self.count = self.receive_rate.count
        self._sent_ns: dict[int, int] = {}
        """Raw time of the request of each unanswered echo, by its number."""
        self._number = 0
        self._waits_s = retry_waits_s()

    @property
    def never_answers(self) -> bool:
        """Whether the remote probe is an old version, which does not answer echoes."""
        return self.last_echo is None and len(self._sent_ns) >= MAX_UNANSWERED_ECHOES

    @property
    def rtt_s(self) -> float:
        return nan if self.last_echo is None else self.last_echo.round_trip_ns / 1e9

    @property
    def is_over(self) -> bool:
        return self._clock() >= self.retry_until_s

    def state(self) -> LinkState:
        now_s = self._clock()
        ahead_s = max(0.0, self.next_attempt_s - now_s)
        return LinkState(
            self.remote_name, self.rtt_s, self.receive_rate.per_s(), self.broken_reason,
            now_s - self.broken_since_s, ahead_s,
        )  # fmt: skip

    def set_broken(self, reason: str) -> None:
        if not self.broken_reason:
            self.broken_since_s = self._clock()
        self.broken_reason = reason
        self._sent_ns.clear()

    def set_connected(self) -> None:
        self._waits_s = retry_waits_s()
        self.broken_reason, self.broken_since_s, self.next_attempt_s = "", nan, nan

    def limit_retries(self, seconds: float) -> None:
        self.retry_until_s = self._clock() + seconds

    def wait_s(self) -> float:
        """Returns the seconds to wait for the next attempt, and records its time."""
        now_s = self._clock()
        wait_s = min(next(self._waits_s), max(0.0, self.retry_until_s - now_s))
        self.next_attempt_s = now_s + wait_s
        return wait_s

    def ping(self) -> None:
        now_ns = raw_ns()
        if self.last_echo is not None:
            self._sent_ns = {n: ns for n, ns in self._sent_ns.items() if now_ns - ns < LOST_ECHO_NS}
        if len(self._sent_ns) < MAX_UNANSWERED_ECHOES:
            self._number += 1
            self._sent_ns[self._number] = now_ns
            self._probe.request_echo(self._number)

    def on_echo(self, note: wire.Note) -> None:
        number = note.data.get("number")
        sent_ns = self._sent_ns.get(number) if isinstance(number, int) else None
        if sent_ns is not None:
            self._sent_ns = {n: ns for n, ns in self._sent_ns.items() if ns > sent_ns}
            self.last_echo = Echo(sent_ns, note.time_ns, raw_ns() - sent_ns)


class StreamJoiner:
    """Changes the messages of later connections to fit the first hello. All messages must pass
    through it."""

    def __init__(self, hello: wire.Hello | None = None) -> None:
        self.hello = hello
        """The first hello; None if there was none yet."""
        rows = () if hello is None else hello.topology
        self.now_ns = 0 if hello is None else hello.raw_ns
        self._seq = self._lost = self._late = 0
        self._totals = (0, 0, 0)
        """Number of frames, lost frames and late frames of all earlier connections."""
        self._asleep_ns = self._slept_ns = 0
        """Total time in ns for which the machine was suspended: until now, and until this
        connection."""
        self._cpus = [row.cpu for row in rows]
        self._offline = {row.cpu for row in rows if not row.online}
        self._unread: dict[str, np.ndarray] = {}
        """For each block, whether each row has not been read since the gap."""

    def mismatch_text(self, hello: wire.Hello) -> str:
        """Returns why frames after this hello cannot continue the stream; '' if they can."""
        first_hello = self.hello
        assert first_hello is not None
        is_same_boot = (hello.boot_id, hello.host) == (first_hello.boot_id, first_hello.host)
        if not is_same_boot or hello.raw_ns < self.now_ns:
            return "the machine was restarted, or it is a different one"
        fields = "cores", "packages", "blocks", "stamp", "selected"
        is_same = all(getattr(hello, name) == getattr(first_hello, name) for name in fields)
        is_same &= [row.cpu for row in hello.topology] == [row.cpu for row in first_hello.topology]
        return "" if is_same else "its CPUs or counters have changed"

    def gap_notes(self, hello: wire.Hello, reason: str) -> list[wire.Message]:
        """Returns the notes to pass on in place of a later hello, if `mismatch_text` is '' for
        it."""
        first_hello = self.hello
        assert first_hello is not None
        self._totals = (self._seq + 1, self._lost, self._late)
        apart_ns = (hello.wall_ns - hello.raw_ns) - (first_hello.wall_ns - first_hello.raw_ns)
        self._slept_ns = max(self._asleep_ns, apart_ns if apart_ns > MAX_CLOCK_SET_NS else 0)
        rows = ((block.name, hello.rows(block.scope)) for block in hello.blocks)
        self._unread = {name: np.ones(count, bool) for name, count in rows}
        data = {"since_ns": self.now_ns, "why": reason}
        notes = [wire.Note("gap", hello.raw_ns, "recorder", data)]
        for row in hello.topology:
            if row.online != (row.cpu not in self._offline):
                data = {"cpu": row.cpu, "online": row.online, "row": asdict(row)}
                notes.append(wire.Note("hotplug", hello.raw_ns, "recorder", data))
        self._offline = {row.cpu for row in hello.topology if not row.online}
        return list(notes)

    def joined_messages(self, messages: list[wire.Message]) -> Iterator[wire.Message]:
        """Yields messages of this connection, changed to continue the stream."""
        for message in messages:
            if isinstance(message, wire.Frame):
                yield self._join_frame(message)
            else:
                if isinstance(message, wire.Note) and message.kind == "hotplug":
                    online = message.data.get("online")
                    if (cpu := message.data.get("cpu")) in self._cpus:
                        (self._offline.discard if online else self._offline.add)(cpu)
                yield message

    def _join_frame(self, frame: wire.Frame) -> wire.Frame:
        seq, lost, late = self._totals
        asleep = frame.records.get("asleep_ns")
        asleep_ns = _limited_sum(self._slept_ns, asleep if type(asleep) is int else 0)
        if seq:
            records = frame.records | ({"asleep_ns": asleep_ns} if asleep_ns else {})
            frame = replace(
                frame, seq=_limited_sum(seq, frame.seq), lost=_limited_sum(lost, frame.lost),
                late=_limited_sum(late, frame.late),
                records=records, blocks=self._rebase_rows(frame.blocks),
            )  # fmt: skip
        self.now_ns, self._seq, self._asleep_ns = frame.time_ns, frame.seq, asleep_ns
        self._lost, self._late = frame.lost, frame.late
        return frame

    def _rebase_rows(self, blocks: dict[str, wire.Rows]) -> dict[str, wire.Rows]:
        """Returns the blocks. Each row has the flag ROW_REBASED until it has been read once after
        the gap."""
        if not self._unread:
            return blocks
        rebased = dict(blocks)
        for name, unread in list(self._unread.items()):
            if name in blocks:
                head = np.frombuffer(blocks[name].head, "<u8").reshape(-1, wire.HEAD).copy()
                has_one_head = len(head) == 1  # a single head applies to all rows
                is_marked = np.array([unread.any()]) if has_one_head else unread
                head[is_marked, 4] |= np.uint64(wire.ROW_REBASED)
                rebased[name] = replace(blocks[name], head=head.tobytes())
                is_read = head[:, 4] & np.uint64(wire.ROW_SAMPLED) != 0
                self._unread[name] = still_unread = unread & ~is_read
                if not still_unread.any():
                    del self._unread[name]
        return rebased


def _limited_sum(total: int, increment: int) -> int:
    """Returns the sum, limited to the largest value of a message. A negative increment, as in an
    invalid message, counts as 0."""
    return min(total + max(0, increment), wire.MAX_TIME_NS)
