"""AMD's HSMP: the layout of the driver's message, and the values computed from its answers."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import trees
from synth import Clock

from perfprobe.cpu import topology
from perfprobe.polled.firmware_limits import (
    ANSWER_WORDS,
    FABRIC_CLOCKS,
    FREQUENCY_LIMIT,
    MESSAGE_FORMAT,
    PROCHOT,
    REQUEST,
    TABLE_BYTES,
    TABLE_FORMAT,
    Hsmp,
    HsmpTable,
    send_message,
)

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/amd_hsmp.h")
PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <asm/amd_hsmp.h>
int main(void)
{
    struct hsmp_message m = {HSMP_GET_SOCKET_FREQ_LIMIT, 2, 3, {4, 5, 6, 7, 8, 9, 10, 11}, 12};
    const unsigned char *bytes = (const unsigned char *)&m;
    printf("%lu %d %d %d ", HSMP_IOCTL_CMD, HSMP_GET_PROC_HOT, HSMP_GET_FCLK_MCLK,
           hsmp_msg_desc_table[HSMP_GET_FCLK_MCLK].response_sz);
    for (size_t i = 0; i < offsetof(struct hsmp_message, sock_ind) + 2; i++)
        printf("%02x", bytes[i]);
    return 0;
}
"""


@pytest.mark.skipif(not HEADER.exists(), reason="needs the kernel's headers")
def test_the_message_is_the_kernels(tmp_path: Path) -> None:
    source, program = tmp_path / "message.c", tmp_path / "message"
    source.write_text(PROGRAM, encoding="ascii")
    subprocess.run(["cc", "-o", program, source], check=True)
    out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    request, hot, clocks, words, message = out.split()
    assert (int(request), int(hot)) == (REQUEST, PROCHOT)
    assert {int(clocks): int(words)} == ANSWER_WORDS
    packed = MESSAGE_FORMAT.pack(FREQUENCY_LIMIT, 2, 3, *range(4, 12), 12).hex()
    assert packed[: len(message)] == message
    assert MESSAGE_FORMAT.size == REQUEST >> 16 & 0x3FFF


def test_the_driver_writes_the_table_to_the_given_memory(
    turin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = Counter[tuple[int, int]]()

    def ioctl(_fd: int, request: int, data: bytes) -> None:
        address, size, socket, reserved = TABLE_FORMAT.unpack(data)
        assert reserved == 0
        requests[request, size] += 1
        if size > TABLE_BYTES:
            raise OSError(errno.EINVAL, "too much")
        ctypes.memmove(address, Firmware()(socket, size), size)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    trees.put(turin, "dev/hsmp", "")
    rows = [row for row in topology.read_cpus(turin) if not row.package]
    source = HsmpTable(turin, rows)
    assert source.block.counters
    ((_, values),) = source.read()
    assert None not in values
    assert {request for request, _ in requests} == {0x4010F801}, "_IOW(0xF8, 1, of 16 bytes)"
    source.close()


def test_a_message_has_no_arguments_and_asks_for_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[bytes] = []

    def ioctl(_fd: int, request: int, data: bytearray) -> None:
        assert request == REQUEST
        sent.append(bytes(data))
        data[:] = MESSAGE_FORMAT.pack(0, 0, 0, 1234, *(0,) * 7, 0)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    messages = FREQUENCY_LIMIT, FABRIC_CLOCKS
    assert [send_message(0, 3, message) for message in messages] == [1234] * 2
    assert sent == [
        MESSAGE_FORMAT.pack(message, 0, words, *(0,) * 8, 3)
        for message, words in ((FREQUENCY_LIMIT, 1), (FABRIC_CLOCKS, 2))
    ]


SOURCE_BITS = [*("cHTC active", "PROCHOT", "TDC", "PPT", "OPN maximum", "reliability"),
           *("APML agent", "HSMP agent")]  # fmt: skip
"""Linux's freqlimit_srcnames, in its order."""


FABRIC_KEYS = "uncore_hz", "uncore_max_hz"


@pytest.fixture
def two_packages(tmp_path: Path) -> Path:
    """A machine of two packages; CPU 0 is in the second."""
    trees.write_cpu_lists(tmp_path, "0-1")
    trees.write_cpu(tmp_path, 0, 1, 0, "0")
    trees.write_cpu(tmp_path, 1, 0, 0, "1")
    return tmp_path


def write_model(root: Path, family: int, model: int) -> Path:
    cpuinfo = f"vendor_id : AuthenticAMD\ncpu family : {family}\nmodel : {model}\n"
    trees.put(root, "proc/cpuinfo", cpuinfo)
    return root


@pytest.fixture
def turin(two_packages: Path) -> Path:
    return write_model(two_packages, 0x1A, 0x50)


def open_hsmp(root: Path, ask: Callable[[int, int], int]) -> Hsmp:
    return Hsmp(root, topology.read_cpus(root), ask, Clock())


def valid_values(source: Hsmp) -> list[dict[str, list[int]]]:
    """Returns the valid values, by package."""
    rows = []
    for _, values in source.read():
        at, result = iter(values), dict[str, list[int]]()
        for counter in source.block.counters:
            matching_values = [value for value in islice(at, counter.columns) if value is not None]
            result |= {counter.key: matching_values} if matching_values else {}
        rows.append(result)
    return rows


def test_answers_of_each_socket_become_a_limit_and_polls(two_packages: Path) -> None:
    answers = {(0, FREQUENCY_LIMIT): 2400 << 16 | 0b101, (1, FREQUENCY_LIMIT): 3700 << 16}
    source = open_hsmp(two_packages, lambda socket, message: answers.get((socket, message), socket))
    valid_values(source)
    answers[0, FREQUENCY_LIMIT] = 2300 << 16 | 0b100
    low, high = valid_values(source)
    assert (low["hsmp_limit_hz"], high["hsmp_limit_hz"]) == ([2300], [3700])
    assert low["hsmp_limits"] == [2, 1, 0, 2, *[0] * 13]
    assert high["hsmp_limits"] == [2, *[0] * 16]
    assert (low["hsmp_prochot"], high["hsmp_prochot"]) == ([0], [1])
    limit = source.block.counters[0]
    assert (limit.scale, source.missing) == (1e6, [])


def test_a_package_without_a_number_gets_no_message(turin: Path) -> None:
    first, last = topology.read_cpus(turin)
    rows = [first, replace(last, package=None)]
    sent: list[tuple[int, int]] = []

    def ask(socket: int, message: int) -> int:
        sent.append((socket, message))
        return 0

    assert valid_values(Hsmp(turin, rows, ask, Clock()))[1] == {}
    assert {socket for socket, _ in sent} == {first.package}
    table = HsmpTable(turin, rows, Firmware(), Clock())
    assert dict(table.read()) == {0: [0] * 9, 1: [None] * 9}


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EINTR])
def test_a_busy_mailbox_is_retried(two_packages: Path, number: int) -> None:
    busy: set[int] = set()

    def ask(_socket: int, message: int) -> int:
        if message in busy:
            raise OSError(number, "made")
        return 1

    source = open_hsmp(two_packages, ask)
    busy = {FREQUENCY_LIMIT}
    values = {key: [1] for key in ("hsmp_prochot", *FABRIC_KEYS)}
    assert valid_values(source) == [values, values]
    busy |= {PROCHOT, FABRIC_CLOCKS}
    assert valid_values(source) == [{FABRIC_KEYS[1]: [1]}] * 2, "the highest clock stays known"
    busy = set()
    assert all("hsmp_limit_hz" in row for row in valid_values(source))


def test_firmware_without_a_message_lacks_its_counters(two_packages: Path) -> None:
    refused: list[int] = []

    def ask(socket: int, message: int) -> int:
        if message == FREQUENCY_LIMIT:
            refused.append(socket)
            raise OSError(errno.ENOMSG, "made")
        return 0

    source = open_hsmp(two_packages, ask)
    assert sorted(refused) == [0, 1], "asked once: the kernel logs each failure"
    assert [c.key for c in source.block.counters] == ["hsmp_prochot", *FABRIC_KEYS]
    assert [m.what for m in source.missing] == ["hsmp_limit_hz", "hsmp_limits"]
    assert "19h" in source.missing[0].why


@pytest.mark.parametrize("slow_answers", [1, 2])
def test_slow_firmware_is_not_polled(turin: Path, slow_answers: int) -> None:
    """A single slow answer is no proof: the main thread may have waited for a CPU."""
    clock, firmware, asked = Clock(), Firmware(), Counter[int]()

    def wait(request: int) -> None:
        asked[request] += 1
        clock.now_s += 0.004 if asked[request] <= slow_answers else 0.001

    def answer(_socket: int, message: int) -> int:
        wait(message)
        return 0

    def table(socket: int, size: int) -> bytes:
        wait(-1)
        return firmware(socket, size)

    rows = [row for row in topology.read_cpus(turin) if not row.package]
    for source in (Hsmp(turin, rows, answer, clock), HsmpTable(turin, rows, table, clock)):
        assert bool(source.block.counters) == (slow_answers == 1)
        assert all("4000 µs: too slow to repeat" in missing.why for missing in source.missing)
        assert bool(source.missing) == (slow_answers == 2)


def test_a_missing_device_is_not_reported(two_packages: Path) -> None:
    source = Hsmp(two_packages, topology.read_cpus(two_packages))
    assert (source.block.counters, source.missing) == ([], [])
    trees.put(two_packages, "dev/hsmp", "")  # a file that is not a device
    source = Hsmp(two_packages, topology.read_cpus(two_packages))
    assert source.block.counters == []
    assert {m.what for m in source.missing} == {
        *("hsmp_limit_hz", "hsmp_limits", "hsmp_prochot"), *FABRIC_KEYS,
    }  # fmt: skip
    source.close()


def test_the_clock_of_the_fabric_and_its_highest_so_far(two_packages: Path) -> None:
    """Linux, asm/amd_hsmp.h: message 0Fh returns two words, of which the first is FCLK in MHz."""
    clocks = [2000, 2000]
    source = open_hsmp(
        two_packages, lambda socket, message: clocks[socket] if message == 0x0F else 0
    )
    valid_values(source)
    clocks[0] = 1200
    low, high = valid_values(source)
    assert [low[key] for key in FABRIC_KEYS] == [[1200], [2000]]
    assert [high[key] for key in FABRIC_KEYS] == [[2000], [2000]]
    scales = {c.key: c.scale for c in source.block.counters}
    assert [scales[key] for key in FABRIC_KEYS] == [1e6, 1e6]
    clocks[0] = 0  # the firmware reports 0 Hz: no clock
    assert FABRIC_KEYS[0] not in valid_values(source)[0]


# --- the table of metrics


class Table(ctypes.Structure):
    """hsmp_metric_table_f1a_m50_5f_iod of AMD's E-SMI library, followed by the tables of eight
    dies."""

    _pack_ = 4
    _fields_ = (
        ("num_active_ccds", ctypes.c_uint32), ("accumulation_counter", ctypes.c_uint32),
        ("max_socket_temperature_acc", ctypes.c_uint64),
        ("power_limits", ctypes.c_uint32 * 2), ("powers", ctypes.c_uint64 * 3),
        ("timestamp_and_energies", ctypes.c_uint64 * 4), ("clocks", ctypes.c_uint64 * 7),
        ("clock_tables", ctypes.c_uint32 * 20), ("xgmi", ctypes.c_uint64 * 24),
        ("activity", ctypes.c_uint64 * 4), ("max_dram_bandwidth", ctypes.c_uint32),
        ("pcie_bandwidth_acc", ctypes.c_uint64 * 8), ("residencies", ctypes.c_uint32 * 8),
        ("dies", ctypes.c_uint8 * (8 * (4 + 6 * 8) * 32)),
    )  # fmt: skip


class Firmware:
    """The tables of two sockets, and the driver that returns their first bytes."""

    def __init__(self, more: int = 0) -> None:
        self.tables = [Table(), Table()]
        self._more = more

    def __call__(self, socket: int, size: int) -> bytes:
        if size > ctypes.sizeof(Table) + self._more:
            raise OSError(errno.EINVAL, "made")
        return bytes(self.tables[socket])[:size]


def test_the_table_is_that_of_the_library() -> None:
    assert ctypes.sizeof(Table) == TABLE_BYTES
    assert (Table.accumulation_counter.offset, Table.residencies.offset) == (4, 508)


def test_the_time_under_each_limit_is_counted_by_the_firmware(turin: Path) -> None:
    firmware, clock = Firmware(), Clock()
    low, high = firmware.tables[0], firmware.tables[1]
    low.accumulation_counter, low.residencies[1] = (1 << 32) - 100, 7_000
    source = HsmpTable(turin, topology.read_cpus(turin), firmware, clock)
    assert source.missing == []
    (counter,) = source.block.counters
    assert (counter.key, counter.kind, len(counter.parts)) == ("hsmp_limit_times", "flags", 8)
    assert [*dict(source.read()).values()] == [[0] * 9] * 2, "counts from before the start"
    low.accumulation_counter, low.residencies[1], low.residencies[4] = 901, 7_401, 31
    clock.now_s += 1
    values = dict(source.read())
    assert values[0] == [1001, 0, 401, 0, 0, 31, 0, 0, 0], "the counter wraps at 32 bits"
    assert values[1] == [0] * 9
    # a limit was active for more cycles than have elapsed
    low.accumulation_counter, low.residencies[1] = 1000, 9_000
    high.accumulation_counter, high.residencies[0] = 100, 100
    clock.now_s += 1
    values = dict(source.read())
    assert values[0] == [None] * 9
    assert values[1] == [100, 100, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(("family", "model", "has_table"), [
    (0x1A, 0x4F, False), (0x1A, 0x50, True), (0x1A, 0x5F, True), (0x1A, 0x60, False),
    (0x19, 0x50, False),
])  # fmt: skip
def test_few_models_have_the_table_and_more_sources(
    two_packages: Path, family: int, model: int, has_table: bool
) -> None:
    rows = topology.read_cpus(write_model(two_packages, family, model))
    assert bool(HsmpTable(two_packages, rows, Firmware()).block.counters) == has_table
    limits = Hsmp(two_packages, rows, lambda *_: 0).block.counters[1]
    more = ["VRHOT", "TDC of memory", "SoC and DIMM power"] if has_table else []
    assert limits.parts == [*SOURCE_BITS, *more, *(f"bit {n}" for n in range(8 + len(more), 16))]


def test_a_table_of_another_layout_is_not_read(turin: Path) -> None:
    source = HsmpTable(turin, topology.read_cpus(turin), Firmware(more=4))
    assert source.block.counters == []
    (missing,) = source.missing
    assert (missing.what, "unknown to AMD" in missing.why) == ("hsmp_limit_times", True)


@pytest.mark.parametrize(("number", "why"), [
    (errno.ENOTTY, "the driver amd_hsmp of this kernel"), (errno.EINVAL, "cannot be read"),
])  # fmt: skip
def test_a_driver_without_the_table_is_named(number: int, why: str, turin: Path) -> None:
    def refused(_socket: int, _size: int) -> bytes:
        raise OSError(number, "made")

    source = HsmpTable(turin, topology.read_cpus(turin), refused)
    assert source.block.counters == []
    assert why in source.missing[0].why


def test_no_table_is_missing_without_the_device(turin: Path) -> None:
    source = HsmpTable(turin, topology.read_cpus(turin))
    assert (source.block.counters, source.missing) == ([], [])
    trees.put(turin, "dev/hsmp", "")  # a file that is not a device
    source = HsmpTable(turin, topology.read_cpus(turin))
    assert source.block.counters == []
    source.close()
