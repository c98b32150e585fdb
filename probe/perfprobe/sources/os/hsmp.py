"""What limits the clock of an AMD EPYC, by its system management firmware: /dev/hsmp.

A message takes the firmware from tens of us to 1 ms. The meaning of the source bits differs by
model (AMD's processor manuals), so they are named by their numbers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe.sources.os.polled import Pace, Values, package_ids
from perfprobe.wire import Counter, Cpu, Missing

# Linux, arch/x86/include/uapi/asm/amd_hsmp.h: struct hsmp_message is packed to 4 bytes, and the
# request is _IOWR(0xF8, 0, struct hsmp_message).
MESSAGE = struct.Struct("=IHH8IH2x")
REQUEST = 3 << 30 | MESSAGE.size << 16 | 0xF8 << 8
PROCHOT, FREQUENCY_LIMIT = 0x0B, 0x19
SOURCES = 16
PASSING = {errno.EBUSY, errno.EINTR}
SLOW_NS = 3_000_000
"""A message whose quickest answer takes longer would delay the frames and is left out."""

LIMIT_HZ = Counter("hsmp_limit_hz", "clock limit of the socket", "Hz", "HSMP", "gauge", scale=1e6)
LIMITS = Counter(
    "hsmp_limits",
    "sources of the clock limit",
    "1",
    "HSMP",
    "flags",
    columns=1 + SOURCES,
    parts=[f"bit {bit}" for bit in range(SOURCES)],
)
HOT = Counter("hsmp_prochot", "PROCHOT", "1", "HSMP", "gauge")
COUNTERS = {FREQUENCY_LIMIT: [LIMIT_HZ, LIMITS], PROCHOT: [HOT]}

Ask = Callable[[int, int], int]
"""Takes socket and message, returns the first word of the answer. Raises OSError."""


class Mailbox:
    """The device, opened for reading so that the driver refuses messages that set something."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self, socket: int, message: int) -> int:
        data = bytearray(MESSAGE.pack(message, 0, 1, *(0,) * 8, socket))
        fcntl.ioctl(self._fd, REQUEST, data)
        return int(MESSAGE.unpack(data)[3])

    def close(self) -> None:
        os.close(self._fd)


class Hsmp:
    """Clock limits by socket. Sockets have the kernel's package numbers."""

    def __init__(
        self,
        root: Path,
        rows: Sequence[Cpu],
        ask: Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = Pace(clock)
        self.missing: list[Missing] = []
        self._mailbox: Mailbox | None = None
        self._sockets = package_ids(rows)
        self.rows = len(self._sockets)
        self._silent: set[tuple[int, int]] = set()
        """Sockets and messages that failed. They are not asked again, because the kernel logs each
        failure."""
        self._seen = [[0] * (1 + SOURCES) for _ in self._sockets]
        self._ask = ask or self._open(root / "dev/hsmp")
        self._messages = [m for m in COUNTERS if self._ask is not None and self._works(m)]
        counters = [counter for message in self._messages for counter in COUNTERS[message]]
        self.block = wire.Block("hsmp", "package", counters)

    def read(self) -> Iterator[tuple[int, Values]]:
        with self._pace.turn() as due:
            for row, socket in enumerate(self._sockets if due else ()):
                values: list[int | None] = []
                for message in self._messages:
                    values += self._told(message, row, self._answer(socket, message))
                yield row, values

    def close(self) -> None:
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None

    def _open(self, path: Path) -> Ask | None:
        """A machine without the device lacks nothing that is worth a message: few CPUs have one."""
        try:
            self._mailbox = Mailbox(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"/dev/hsmp: {(error.strerror or str(error)).lower()}"
            self._lacks(COUNTERS, why, "perftop --sudo")
            return None
        return self._mailbox

    def _works(self, message: int) -> bool:
        """Whether any socket answers, and fast enough."""
        took_ns = []
        for socket in self._sockets * 2:
            start_ns = time.monotonic_ns()
            if self._answer(socket, message) is not None:
                took_ns.append(time.monotonic_ns() - start_ns)
        if not took_ns:
            self._lacks([message], f"the firmware does not answer HSMP message {message:02X}h")
            return False
        if min(took_ns) > SLOW_NS:
            why = f"HSMP message {message:02X}h takes {min(took_ns) // 1000} us: too slow to repeat"
            self._lacks([message], why)
            return False
        return True

    def _answer(self, socket: int | None, message: int) -> int | None:
        if self._ask is None or socket is None or (socket, message) in self._silent:
            return None
        try:
            return self._ask(socket, message)
        except OSError as error:
            if error.errno not in PASSING:
                self._silent.add((socket, message))
            return None

    def _told(self, message: int, row: int, answer: int | None) -> list[int | None]:
        """Values of the message's counters. Each answer counts as one poll of the source bits."""
        if message == PROCHOT:
            return [answer]
        if answer is None:
            return [None] * (2 + SOURCES)
        seen = self._seen[row]
        seen[0] += 1
        for bit in range(SOURCES):
            seen[1 + bit] += answer >> bit & 1
        return [answer >> 16, *seen]

    def _lacks(self, messages: Iterable[int], why: str, fix: str | None = None) -> None:
        keys = [counter.key for message in messages for counter in COUNTERS[message]]
        self.missing += [Missing(key, why, fix) for key in keys]
