"""Machines over ssh as a source of the fleet: a probe on each, read side by side."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from math import isfinite

from perfprobe import wire
from perftop.base.errors import USAGE, Failed
from perftop.process import launch, ssh
from perftop.process.streams import Member, listen, open_connection
from perftop.session.fleet.fleet import Fleet
from perftop.session.fleet.live_machine import LiveMachine
from perftop.session.fleet.machine import Machine

MOST_HOSTS = 64
"""More are Prometheus's business."""
RATE_S = 10.0
"""Span of the mean of bytes a second."""
SIMULATED = "sim:"
"""A name that begins so is a simulated machine here, to try the screen."""


class LiveSource:
    """Hosts by their names as ssh takes them."""

    problem = ""
    moment = ""
    over = False

    def __init__(
        self, hosts: Sequence[str], every_s: float = 1.0, *, remote: str | None = None
    ) -> None:
        """Raises Failed for names that are none, and for too many."""
        hosts = list(dict.fromkeys(hosts))
        if len(hosts) > MOST_HOSTS:
            text = (
                f"{len(hosts)} machines: at most {MOST_HOSTS} over ssh; for more: --prometheus URL"
            )
            raise Failed(text, USAGE)
        self.every_s = every_s
        self.what = "simulated" if all(h.startswith(SIMULATED) for h in hosts) else "over ssh"
        self._bytes = 0
        self._read: deque[tuple[float, int]] = deque()
        """Moments, and bytes received until then."""
        self._ears = [_Ear(host, every_s, remote) for host in hosts]
        self.fleet = Fleet([ear.machine for ear in self._ears])

    @property
    def now(self) -> float:
        return time.time()

    def facts(self) -> list[str]:
        shares = [m.probe_share for m in self.fleet.answering if isfinite(m.probe_share)]
        lost = sum(m.frames_lost for m in self.fleet.answering)
        found = [f"{100 * sum(shares) / len(shares):.2f} % there"] if shares else []
        return [*found, f"{self._rate():.0f} kB/s", f"frames lost {lost}"]

    def _count(self, read: int) -> None:
        self._bytes += read

    def _rate(self) -> float:
        """kB a second over the last RATE_S."""
        now = time.time()
        self._read.append((now, self._bytes))
        while self._read[0][0] < now - RATE_S:
            self._read.popleft()
        since, before = self._read[0]
        return (self._bytes - before) / (now - since) / 1e3 if now > since else 0.0

    async def run(self) -> None:
        await listen(
            [
                Member(partial(open_connection, ear.argv, self._count), ear, self.every_s)
                for ear in self._ears
            ]
        )

    def travel(self, _: int) -> bool:
        return False

    def pause(self) -> None:
        """The screen stands still by itself."""


class _Ear:
    """What one machine says goes into its row."""

    def __init__(self, host: str, every_s: float, remote: str | None) -> None:
        simulated = host.startswith(SIMULATED)
        source = host if simulated else "auto"
        arguments = ["stream", "--source", source, "--sample", f"{every_s:g}"]
        if simulated:
            self.argv = launch.probe_command(*arguments)
            opens = ["live", "--source", host]
        else:
            self.argv = ssh.command(host, arguments, remote=remote or ssh.REMOTE)
            opens = ["live", "--host", host]
            opens += [] if remote is None else ["--remote", remote]
        self.machine = Machine(host, tuple(opens))
        self._live = LiveMachine(self.machine, every_s)

    def take(self, messages: Sequence[wire.Message]) -> None:
        self._live.take(messages, time.time())

    def fail(self, why: str, retry_s: float) -> None:
        now = time.time()
        self.machine.fall_silent(now, why, now + retry_s)
