"""A machine that sends frames: its messages go through a session of its own, without a history."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.model.tasks import task
from perftop.session.fleet import numbers
from perftop.session.fleet.machine import Event, Machine
from perftop.session.missing import lasting
from perftop.session.session import Session
from perftop.session.summary import UNREAD_BYTES


class LiveMachine:
    """Fills a machine from a stream. A new hello begins a new session."""

    def __init__(self, machine: Machine, span_s: float = 1.0) -> None:
        """`span_s`: what one point of its past covers; longer samples make longer ones."""
        self.machine = machine
        self.session: Session | None = None
        self._span_ns = round(span_s * 1e9)
        self._cursor = 0
        self._offset_s = inf
        """Smallest offset seen from the machine's raw time to the viewer's: that of the frame that
        was least delayed."""
        self._suspects = 0

    def take(self, messages: Sequence[wire.Message], now: float | None = None) -> None:
        """Take messages that arrived at `now`; None: their times are those of the machine's own
        clock. Raises wire.WireError for what cannot be true."""
        if messages and isinstance(messages[0], wire.Hello):
            self._begin(messages[0])
            messages = messages[1:]
        session = self.session
        if session is None:
            raise wire.WireError("frames came before a hello")
        for message in session.play(messages):
            if isinstance(message, wire.Frame):
                at = session.unix(message.time_ns) if now is None else now
                self._offset_s = min(self._offset_s, at - message.time_ns / 1e9)
                first = session.frames == 2  # the numbers begin after one sample
                due_ns = self._span_ns - session.hello.sample_ns // 2
                if session.frames > 1 and (first or session.span_ns >= due_ns):
                    self._step(session, at)

    def _begin(self, hello: wire.Hello) -> None:
        session = self.session = Session(hello, summary_bytes=UNREAD_BYTES)
        self._cursor, self._offset_s, self._suspects = 0, inf, 0
        machine = self.machine
        machine.model = " ".join(hello.identity.name.split())
        machine.cpus, machine.cores = len(session.shown), len(session.shown_cores())
        machine.guest = hello.virtualisation is not None
        machine.version = hello.perftop
        absent = {missing.what: missing.why for missing in lasting(session)}
        machine.absent = absent.get("busy_hz", absent.get("cycles", ""))

    def _step(self, session: Session, now: float) -> None:
        interval = session.take()
        suspects = session.suspect_samples - self._suspects
        self._suspects = session.suspect_samples
        machine = self.machine
        machine.hear(now, numbers.read(session, interval), suspects)
        machine.frames_lost = session.lost
        spent = session.probe_cpu_s()
        elapsed = (session.now_ns - session.hello.raw_ns) / 1e9
        machine.probe_share = spent / elapsed if elapsed > 0 else spent
        machine.tasks = _busiest(session)
        machine.running = [self._event(session, e) for e in session.running]
        news, self._cursor = session.episodes_since(self._cursor)
        machine.ended.extend(self._event(session, episode) for episode in news)

    def _event(self, session: Session, episode: Episode) -> Event:
        offset, end_ns, depth = self._offset_s, episode.end_ns, episode.depth
        return Event(
            self.machine.name, episode.kind, episode.cause, episode.start_ns / 1e9 + offset,
            None if end_ns is None else end_ns / 1e9 + offset,
            depth if depth is not None and isfinite(depth) else None,
            min(1.0, len(episode.cpus) / max(1, len(session.shown))),
        )  # fmt: skip


def _busiest(session: Session) -> str:
    """The name of the task that has most of the CPUs, and on how many it runs."""
    shares: dict[str, float] = {}
    for record in session.tasks.values():
        if (one := task(record)) is not None:
            shares[one.comm] = shares.get(one.comm, 0.0) + one.share
    if not shares:
        return ""
    name = max(shares, key=lambda comm: shares[comm])
    return f"{name} × {shares[name]:.1f} CPUs" if shares[name] >= 0.05 else ""
