"""Reads limits of clocks from AMD's system management firmware (HSMP, /dev/hsmp), and from Intel's
performance limit reasons (PLR) in TPMI.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import re
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perfprobe import wire
from perfprobe.cpu.files import MAX_LARGE_BYTES
from perfprobe.cpu.identity import read_identity
from perfprobe.polled.polling import PolledBlock, ReadPace, Values, package_ids
from perfprobe.wire import Counter, Cpu, Missing

# --- AMD HSMP -------------------------------------------------------------------------------------
# The firmware takes 10 us to 1 ms to answer a message.

# From Linux's arch/x86/include/uapi/asm/amd_hsmp.h: struct hsmp_message, packed to 4 bytes, and the
# ioctl request _IOWR(0xF8, 0, struct hsmp_message).
MESSAGE_FORMAT = struct.Struct("=IHH8IH2x")
REQUEST = 3 << 30 | MESSAGE_FORMAT.size << 16 | 0xF8 << 8
PROCHOT, FABRIC_CLOCKS, FREQUENCY_LIMIT = 0x0B, 0x0F, 0x19
ANSWER_WORDS = {FABRIC_CLOCKS: 2}
"""Number of words in the answer to a message, if not 1. Only the first is used; FABRIC_CLOCKS has
the clocks of fabric and memory."""
SOURCE_BITS = 16
"""Number of bits in the answer to FREQUENCY_LIMIT, one for each source of a limit."""
SOURCE_NAMES = ("cHTC active", "PROCHOT", "TDC", "PPT", "OPN maximum", "reliability", "APML agent",
                "HSMP agent")  # fmt: skip
"""Names of the first of these bits, from Linux's drivers/platform/x86/amd/hsmp/plat.c."""
MORE_SOURCE_NAMES = "VRHOT", "TDC of memory", "SoC and DIMM power"
"""Names of the next bits on models 50h to 5Fh of family 1Ah, from AMD's E-SMI library."""
TEMPORARY_ERRNOS = {errno.EBUSY, errno.EINTR}
MAX_ANSWER_S = 0.003
"""Maximum time in s of the quickest of several answers; a slower one would delay frames. On a busy
machine, a single answer may seem slow."""

LIMIT_HZ = Counter("hsmp_limit_hz", "clock limit of the socket", "Hz", "HSMP", "gauge", scale=1e6)
LIMITS = Counter(
    "hsmp_limits", "sources of the clock limit", "1", "HSMP", "flags", columns=1 + SOURCE_BITS
)
PROCHOT_GAUGE = Counter("hsmp_prochot", "PROCHOT", "1", "HSMP", "gauge")
FABRIC = [
    Counter("uncore_hz", "clock of the fabric", "Hz", "HSMP", "gauge", scale=1e6),
    Counter("uncore_max_hz", "highest of these so far", "Hz", "HSMP", "gauge", scale=1e6),
]
COUNTERS = {FREQUENCY_LIMIT: [LIMIT_HZ, LIMITS], PROCHOT: [PROCHOT_GAUGE], FABRIC_CLOCKS: FABRIC}

SendMessage = Callable[[int, int], int]
"""Sends a message to a socket, and returns the first word of the answer. Raises OSError."""


def send_message(fd: int, socket: int, message: int) -> int:
    """Sends a message through /dev/hsmp, which must be open read-only: messages that change
    settings are then refused."""
    words = ANSWER_WORDS.get(message, 1)
    data = bytearray(MESSAGE_FORMAT.pack(message, 0, words, *(0,) * 8, socket))
    fcntl.ioctl(fd, REQUEST, data)
    return int(MESSAGE_FORMAT.unpack(data)[3])


def _has_limit_table(root: Path) -> bool:
    """Returns whether the CPU (family 1Ah, models 50h to 5Fh) has the table of metrics."""
    cpu = read_identity(root)
    return cpu.family == 0x1A and cpu.model in range(0x50, 0x60)


class Hsmp(PolledBlock):
    """Reads clock limits of sockets by HSMP messages. Sockets have the kernel's package numbers."""

    def __init__(
        self,
        root: Path,
        rows: Sequence[Cpu],
        send: SendMessage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._clock, self._pace = clock, ReadPace(clock)
        self._sockets = package_ids(rows)
        self.rows = len(self._sockets)
        self._failed_messages: set[tuple[int, int]] = set()
        """Pairs of socket and message that failed once; the kernel logs each failure."""
        self._poll_counts = [[0] * (1 + SOURCE_BITS) for _ in self._sockets]
        self._fabric_max = [0] * self.rows
        """The highest fabric clock of each socket so far; no message returns its upper limit."""
        self._send = send or self._open(f"{root}/dev/hsmp")
        messages = COUNTERS if self._send is not None else ()
        self._messages = [message for message in messages if self._is_usable(message)]
        names = [*SOURCE_NAMES, *(MORE_SOURCE_NAMES if _has_limit_table(root) else ())]
        names += [f"bit {bit}" for bit in range(len(names), SOURCE_BITS)]
        limits = replace(LIMITS, parts=names)
        counters = [counter for message in self._messages for counter in COUNTERS[message]]
        counters = [limits if counter is LIMITS else counter for counter in counters]
        self.block = wire.Block("hsmp", "package", counters)

    def read(self) -> Iterator[tuple[int, Values]]:
        with self._pace.timed_read() as is_due:
            for row, socket in enumerate(self._sockets if is_due else ()):
                values: list[int | None] = []
                for message in self._messages:
                    values += self._counter_values(message, row, self._ask(socket, message))
                yield row, values

    def _open(self, path: str) -> SendMessage | None:
        """Opens the mailbox; None if the device does not exist or cannot be opened. The latter is
        reported as missing; few CPUs have the device."""
        try:
            return partial(send_message, self.open(path).fd())
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = f"/dev/hsmp cannot be opened: {error.strerror}"
            self._report_missing(COUNTERS, reason, "perftop --sudo")
            return None

    def _is_usable(self, message: int) -> bool:
        """Returns whether any socket answers the message within MAX_ANSWER_S."""
        took_s = []
        for socket in self._sockets * 2:
            start_s = self._clock()
            if self._ask(socket, message) is not None:
                took_s.append(self._clock() - start_s)
        if not took_s:
            self._report_missing(
                [message], f"the firmware does not answer HSMP message {message:02X}h"
            )
            return False
        if min(took_s) > MAX_ANSWER_S:
            took_text = f"{1e6 * min(took_s):.0f} µs"
            reason = f"HSMP message {message:02X}h takes {took_text}: too slow to repeat"
            self._report_missing([message], reason)
            return False
        return True

    def _ask(self, socket: int | None, message: int) -> int | None:
        if self._send is None or socket is None or (socket, message) in self._failed_messages:
            return None
        try:
            return self._send(socket, message)
        except OSError as error:
            if error.errno not in TEMPORARY_ERRNOS:
                self._failed_messages.add((socket, message))
            return None

    def _counter_values(self, message: int, row: int, answer: int | None) -> list[int | None]:
        """Returns the values of the message's counters in a row; each answer is one poll."""
        if message == PROCHOT:
            return [answer]
        if message == FABRIC_CLOCKS:
            self._fabric_max[row] = max(self._fabric_max[row], answer or 0)
            return [answer or None, self._fabric_max[row] or None]
        if answer is None:
            return [None] * (2 + SOURCE_BITS)
        poll_counts = self._poll_counts[row]
        poll_counts[0] += 1
        for bit in range(SOURCE_BITS):
            poll_counts[1 + bit] += answer >> bit & 1
        return [answer >> 16, *poll_counts]

    def _report_missing(self, messages: Iterable[int], reason: str, fix: str | None = None) -> None:
        keys = [counter.key for message in messages for counter in COUNTERS[message]]
        self.missing += [Missing(key, reason, fix) for key in keys]


# --- AMD's table of metrics -----------------------------------------------------------------------
# On models 50h to 5Fh of family 1Ah, the firmware has a table with the number of its cycles of
# 1 ms, and of those in which each limit lowered the clock.

# From Linux's asm/amd/hsmp.h: struct hsmp_telemetry_data, and its ioctl request
# _IOW(0xF8, 1, struct hsmp_telemetry_data).
TABLE_FORMAT = struct.Struct("=QIHH")
TABLE_REQUEST = 1 << 30 | TABLE_FORMAT.size << 16 | 0xF8 << 8 | 1
# Size and offsets of struct hsmp_metric_table_f1a_m50_5f, packed to 4 bytes, from asm/amd_hsmp.h of
# AMD's E-SMI library.
TABLE_BYTES, CYCLES_OFFSET, LIMITS_OFFSET = 13852, 4, 508
LIMIT_NAMES = ("PROCHOT", "PPT", "thermal", "VRHOT", "TDC", "TDC of SoC", "TDC of memory",
               "reliability")  # fmt: skip
LIMIT_TIMES = Counter(
    "hsmp_limit_times", "firmware cycles under each limit", "1", "HSMP", "flags",
    columns=1 + len(LIMIT_NAMES), parts=list(LIMIT_NAMES),
)  # fmt: skip
WORD_MASK = (1 << 32) - 1

ReadTable = Callable[[int, int], bytes]
"""Returns this many bytes of a socket's table. Raises OSError."""


class HsmpTable(PolledBlock):
    """Reads from the table of metrics how long each limit lowered a socket's clock."""

    def __init__(
        self,
        root: Path,
        rows: Sequence[Cpu],
        read_table: ReadTable | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._clock, self._pace = clock, ReadPace(clock)
        self._sockets = package_ids(rows)
        self.rows = len(self._sockets)
        self._fd: int | None = None
        self._read_table = read_table or self._read_device
        self._last_words: list[Sequence[int] | None] = [None] * self.rows
        """The table's counts at the last read, by row; None before the first."""
        self._sums = [[0] * LIMIT_TIMES.columns for _ in self._sockets]
        has_table = _has_limit_table(root)
        if has_table and read_table is None:
            with contextlib.suppress(OSError):  # the class Hsmp reports the error
                self._fd = self.open(f"{root}/dev/hsmp").fd()
            has_table = self._fd is not None
        reason = self._unusable_reason() if has_table else None
        self.missing += [Missing(LIMIT_TIMES.key, reason)] if reason else []
        is_read = has_table and reason is None
        self.block = wire.Block("hsmp_table", "package", [LIMIT_TIMES] if is_read else [])

    def read(self) -> Iterator[tuple[int, Values]]:
        with self._pace.timed_read() as due:
            for row, socket in enumerate(self._sockets if due else ()):
                yield row, self._counter_values(row, socket)

    def _read_device(self, socket: int, size: int) -> bytes:
        table = array("B", bytes(size))
        assert self._fd is not None
        request = TABLE_FORMAT.pack(table.buffer_info()[0], size, socket, 0)
        fcntl.ioctl(self._fd, TABLE_REQUEST, request)
        return table.tobytes()

    def _unusable_reason(self) -> str | None:
        """Returns why the table cannot be used, for example an unknown layout; None if it can."""
        socket = next((socket for socket in self._sockets if socket is not None), 0)
        took_s, failure = [], OSError()
        for _ in range(2):
            start_s = self._clock()
            try:
                self._read_table(socket, TABLE_BYTES)
            except OSError as error:
                failure = error
            else:
                took_s.append(self._clock() - start_s)
        if not took_s:
            if failure.errno == errno.ENOTTY:
                return "the driver amd_hsmp of this kernel does not return the table of metrics"
            return f"the firmware's table of metrics cannot be read: {failure.strerror}"
        with contextlib.suppress(OSError):
            self._read_table(socket, TABLE_BYTES + 1)
            return "the firmware's table of metrics has a layout unknown to AMD's library"
        if min(took_s) > MAX_ANSWER_S:
            return f"the firmware's table takes {1e6 * min(took_s):.0f} µs: too slow to repeat"
        return None

    def _counter_values(self, row: int, socket: int | None) -> Sequence[int | None]:
        unknown = [None] * LIMIT_TIMES.columns
        if socket is None:
            return unknown
        try:
            table = self._read_table(socket, LIMITS_OFFSET + 4 * len(LIMIT_NAMES))
        except OSError:
            return unknown
        limit_cycles = struct.unpack_from(f"={len(LIMIT_NAMES)}I", table, LIMITS_OFFSET)
        words = [*struct.unpack_from("=I", table, CYCLES_OFFSET), *limit_cycles]
        old_words, self._last_words[row] = self._last_words[row] or words, words
        steps = [(new - old) & WORD_MASK for new, old in zip(words, old_words, strict=True)]
        if max(steps) > steps[0]:  # no limit can apply for longer than the elapsed time
            return unknown
        self._sums[row] = [total + step for total, step in zip(self._sums[row], steps, strict=True)]
        return self._sums[row]


# --- Intel PLR ------------------------------------------------------------------------------------
# Granite Rapids, Clearwater Forest and later models have no MSR with limit reasons. Linux's driver
# intel_plr_tpmi shows their bits in debugfs: files with a line for a die and a line for each of its
# CPUs. The bits are sticky, and perftop never clears them. So a limit applied between two reads if
# its bit is newly set. A bit that is set at the first read means nothing; hello lists it.

DEBUGFS = "sys/kernel/debug"
COARSE_REASONS = ("FREQUENCY", "CURRENT", "POWER", "THERMAL", "PLATFORM", "MCP", "RAS", "MISC",
                  "QOS", "DFC")  # fmt: skip
_LIMITS = [
    f"{level}_{source}" for level in ("PL1", "PL2") for source in ("MSR_TPMI", "MMIO", "PCS")
]
FINE_REASONS = (
    *(f"FREQUENCY_CDYN{n}" for n in range(6)), "FREQUENCY_FCT", "FREQUENCY_PCS_TRL",
    "CURRENT_MTPMAX", "POWER_FAST_RAPL", *(f"POWER_PKG_{name}" for name in _LIMITS),
    *(f"POWER_PLATFORM_{name}" for name in _LIMITS), "THERMAL_PER_CORE", "DFC_UFS",
    "PLATFORM_PROCHOT", "PLATFORM_HOT_VR", "MISC_PCS_PSTATE",
)  # fmt: skip
PLR_BITS = (*COARSE_REASONS, *FINE_REASONS)
"""The driver's names of the bits. Other names, of later kernels, are ignored."""
PLR_KEY = "plr_reasons"
PLR_COUNTER = Counter(
    PLR_KEY, "limit reasons that were set", "1", "TPMI PLR", "flags",
    columns=1 + len(PLR_BITS), parts=list(PLR_BITS),
)  # fmt: skip
READ_PERIOD_S = 1.0
"""Minimum time in s between reads, for which the driver asks the power unit about each CPU."""
_CPU = re.compile(r"cpu([0-9]{1,5})")
CLEAR_COMMAND = "as root: echo 0 | tee /sys/kernel/debug/tpmi-*/plr/domain*/status"

Clock = Callable[[], float]


class LimitStatus(PolledBlock):
    """Reads Intel's performance limit reasons (PLR) of packages."""

    def __init__(self, root: Path, rows: Sequence[Cpu], clock: Clock = time.monotonic) -> None:
        super().__init__()
        self._pace = ReadPace(clock, READ_PERIOD_S)
        self._package = {row.cpu: row.package for row in rows}
        self._packages = package_ids(rows)
        self.rows = len(self._packages)
        self._open_files(root)
        self._set_bits: list[set[str] | None] = [None] * self.rows
        """Names of the bits that were set at the last read, by row; None before the first."""
        self._poll_counts = [[0] * PLR_COUNTER.columns for _ in self._packages]
        with self._pace.timed_read():
            self._read_all()
        has_bits = any(bits is not None for bits in self._set_bits)
        self.block = wire.Block("plr", "package", [PLR_COUNTER] if has_bits else [])
        for package, bits_on in zip(self._packages, self._set_bits, strict=True):
            if bits_on:
                names = ", ".join(part for part in PLR_BITS if part in bits_on)
                why = f"{names}: set before perftop started, and sticky: not about this run"
                cpus = [row.cpu for row in rows if row.package == package]
                self.missing.append(Missing(PLR_KEY, why, CLEAR_COMMAND, cpus))

    def read(self) -> Iterator[tuple[int, Values]]:
        with self._pace.timed_read() as due:
            if due:
                self._read_all()
        for row, bits in enumerate(self._set_bits):
            yield row, [None] * PLR_COUNTER.columns if bits is None else [*self._poll_counts[row]]

    def _open_files(self, root: Path) -> None:
        paths: list[Path] = []
        with contextlib.suppress(OSError):  # for example, if even a stat of it is denied
            paths = sorted((root / DEBUGFS).glob("tpmi-*/plr/domain*/status"))
        for path in paths:
            try:
                self.open(str(path), MAX_LARGE_BYTES)
            except OSError as error:
                reason = f"/{path.relative_to(root)} cannot be opened: {error.strerror}"
                self.missing = [
                    Missing(PLR_KEY, reason, "perftop --sudo, on a kernel that is not locked")
                ]

    def _read_all(self) -> None:
        """Reads all files, and counts bits that are newly set. A bit that another program has
        cleared may count again."""
        bits_now: dict[int | None, set[str]] = {}
        for file in self._files:
            for package, bits in self._parse_lines(file.read()):
                bits_now.setdefault(package, set()).update(bits)
        for row, package in enumerate(self._packages):
            if package not in bits_now:
                self._set_bits[row] = None
                continue
            before, self._set_bits[row] = self._set_bits[row], bits_now[package]
            if before is not None:
                self._poll_counts[row][0] += 1
                for i, part in enumerate(PLR_BITS):
                    self._poll_counts[row][1 + i] += (
                        part in bits_now[package] and part not in before
                    )

    def _parse_lines(self, text: str) -> Iterator[tuple[int | None, list[str]]]:
        """Yields the package of each line and the names of its bits; a die is in the package of its
        CPUs."""
        lines = [line.split() for line in text.splitlines() if line.strip()]
        numbers = [match for words in lines if (match := _CPU.fullmatch(words[0]))]
        first = next((self._package.get(int(number[1])) for number in numbers), None)
        package = first if first is not None or len(self._packages) > 1 else self._packages[0]
        for words in lines:
            if package is not None and (words[0] == "cpus" or _CPU.fullmatch(words[0])):
                yield package, [word for word in words[1:] if word in PLR_BITS]
