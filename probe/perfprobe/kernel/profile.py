"""Profiles the kernel on CPUs that spend much time in it: reports the functions with most time, the
kind of work (spinning on a lock, reading a slow clock, running the code of mitigations) and the
process.

The kernel's stack is sampled at regular intervals, as by `perf record -e cpu-clock:k -g`, and only
on such CPUs: each sample interrupts the CPU for about 1 us, and /proc/kallsyms has 200,000 lines.
Code that runs with interrupts off is sampled when it enables them again.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import Thread
from typing import Any

from perfprobe._native import ffi, lib
from perfprobe.cpu import files
from perfprobe.errors import check_result

MIN_KERNEL_SHARE = 0.15
"""A CPU is sampled if it spends at least this share of its time in the kernel, without
interrupts."""
MAX_CPUS = 16
"""Maximum number of CPUs sampled at the same time: those that spend the most time in the kernel."""
MIN_PERIOD_NS, PERIOD_PER_CPU_NS = 4_000_037, 1_000_003
"""Minimum time in ns between two samples of a CPU, and the additional time for each sampled CPU, so
that all CPUs have at most 1000 samples a second. Primes do not stay in step with a timer."""
MAX_FUNCTIONS = 16
"""Maximum number of reported functions of processes: known kinds first, then by time."""
MAX_NAME_LENGTH = 64
MAX_CACHED_NAMES = 4096
"""Maximum number of addresses whose function names are cached."""
RING_BYTES = 8 * mmap.PAGESIZE
HEAD_OFFSET, TAIL_OFFSET = 1024, 1032
"""Offsets of data_head and data_tail in the first page of a perf buffer (linux/perf_event.h). The
kernel advances data_head, this process data_tail."""
SOFTWARE, CPU_CLOCK, SAMPLE_RECORD = 1, 0, 9
KALLSYMS = "/proc/kallsyms"
_SPINS = (
    r"(__pv_|native_)?queued_(spin|read|write)_lock_slowpath|osq_lock|(rwsem|mutex)_spin_on_owner"
)
"""Functions that wait for a lock without sleeping."""
HELPER_FUNCTIONS = re.compile(
    rf"{_SPINS}|_raw_(spin|read|write)_\w+|rwsem_\w+|(__)?mutex_lock\w*|__ww_mutex_lock\w*|"
    r"(down|up)_(read|write)\w*|(__)?lockref_\w+|__raw_callee_save_\w+|finish_task_switch|"
    r"__cond_resched|(asm_|sysvec_)\w+"
)
"""Functions that all parts of the kernel call, or that enable interrupts again. The innermost
function outside this pattern is reported."""
WORK_KINDS = {
    "entry": re.compile(
        r"do_syscall_64|x64_sys_call|entry_SYSCALL\w+|syscall_(exit|enter|return)\w+"
    ),
    "lock": re.compile(rf"{_SPINS}|_raw_(spin|read|write)_lock"),
    "clock": re.compile(r"read_hpet|acpi_pm_read(_verified)?|jiffies_read"),
    "mitigation": re.compile(
        r"__x86_(return|indirect)_thunk\w*|srso_\w+|retbleed_\w+|zen_untrain_ret|"
        r"entry_(untrain_ret|ibpb)|write_ibpb"
    ),
}
"""Patterns of function names by kind of work; other functions have no kind (''). The entry of a
system call runs with interrupts off, so its time appears in the first function after it."""

_NAME = re.compile(rb"[^.\s]+")

Stack = tuple[int, ...]
"""A call stack of the kernel: addresses, the innermost function first."""


class Symbols:
    """The kernel's functions by address, in arrays, because Python objects would need 24 MB. The
    constructor raises OSError if the kernel hides addresses."""

    def __init__(self, fd: int) -> None:
        """`fd` is an open /proc/kallsyms, which the constructor closes."""
        addresses, starts = array("Q"), array("I")
        self._names = bytearray()
        """The end of each line of /proc/kallsyms: a function's name, and its module if any."""
        with os.fdopen(fd, "rb") as lines:
            for line in lines:
                if line[17:18] in b"tT":
                    addresses.append(int(line[:16], 16))
                    starts.append(len(self._names))
                    self._names += line[19:]
        if not any(addresses):
            raise PermissionError("the addresses of the kernel's functions are hidden")
        order = sorted(range(len(addresses)), key=addresses.__getitem__)
        self._addresses = array("Q", map(addresses.__getitem__, order))
        self._starts = array("I", map(starts.__getitem__, order))
        """Offset of each function's name in `_names`."""
        # The same addresses are sampled repeatedly.
        self.name = lru_cache(MAX_CACHED_NAMES)(self._name)

    def _name(self, address: int) -> str:
        """Returns the name of the function that contains an address, without suffixes of the
        compiler (.constprop.0); '' if there is none."""
        index = bisect_right(self._addresses, address) - 1
        name = _NAME.match(self._names, self._starts[index]) if index >= 0 else None
        return name[0].decode("ascii", "replace")[:MAX_NAME_LENGTH] if name else ""

    def kind_and_function(self, stack: Stack) -> tuple[str, str]:
        """Returns the kind of work (a key of WORK_KINDS, or '') and the function that does it; for
        a lock, the function that takes the lock."""
        innermost, names = self.name(stack[0]), map(self.name, stack)
        function = next((name for name in names if not HELPER_FUNCTIONS.fullmatch(name)), innermost)
        # A read of HPET may spin on a lock; it counts as a clock, not as a lock.
        work = function if WORK_KINDS["clock"].fullmatch(function) else innermost
        kind = next((kind for kind, names in WORK_KINDS.items() if names.fullmatch(work)), "")
        return kind, function


class KernelSamples:
    """A perf event that samples the kernel's stack on one CPU every `period_ns`. The constructor
    raises OSError if the kernel does not permit it."""

    def __init__(self, cpu: int, period_ns: int) -> None:
        event = {"type": SOFTWARE, "config": CPU_CLOCK, "period": period_ns}
        event["flags"] = lib.PP_EVENT_KERNEL
        self._fd = check_result(lib.pp_perf_open(ffi.new("pp_event *", event), cpu, -1))
        self.period_ns = period_ns
        try:
            self._pages = mmap.mmap(self._fd, mmap.PAGESIZE + RING_BYTES)
            check_result(lib.pp_perf_enable(self._fd))
        except OSError:
            os.close(self._fd)
            raise

    def read_records(self) -> bytes:
        """Returns the event's records (perf_event_header and data) since the last call."""
        head, tail = struct.unpack_from("QQ", self._pages, HEAD_OFFSET)
        ring, start = self._pages[mmap.PAGESIZE :], tail % RING_BYTES
        struct.pack_into("Q", self._pages, TAIL_OFFSET, head)
        return (ring[start:] + ring[:start])[: head - tail]

    def close(self) -> None:
        self._pages.close()
        os.close(self._fd)


def parse_samples(records: bytes) -> Iterator[tuple[int, Stack]]:
    """Yields the PID and the stack of each sample in the records of a perf event, without the
    marker PERF_CONTEXT_KERNEL at the start of a stack."""
    offset = 0
    while offset + 8 <= len(records):
        kind, _, size = struct.unpack_from("IHH", records, offset)
        if kind == SAMPLE_RECORD and 32 < size <= len(records) - offset:
            pid, _, count = struct.unpack_from("IIQ", records, offset + 8)
            count = min(count, (size - 24) // 8)
            yield pid, struct.unpack_from(f"{count}Q", records, offset + 24)[1:]
        offset += max(8, size)


class KernelProfile:
    def __init__(self) -> None:
        self._samples: dict[int, KernelSamples] = {}
        self._kallsyms_fd = -1
        """Descriptor of /proc/kallsyms; -1: closed. It is opened before this process drops the
        capability to read addresses."""
        with suppress(OSError):
            self._kallsyms_fd = files.open_file(KALLSYMS)
        self._symbols: Symbols | None = None
        self._reader = Thread(target=self._read_symbols, daemon=True)
        """Reads the names of functions, in 0.2 s. It starts after two consecutive calls of `record`
        with some CPU above MIN_KERNEL_SHARE."""
        self._since_ns = 0
        self._had_symptom = False
        """Whether some CPU was above MIN_KERNEL_SHARE at the last call of `record`."""
        self._is_refused = False

    def record(self, kernel_shares: Mapping[int, float], now_ns: int) -> dict[str, Any]:
        """Returns the "kernel" record of a frame for the time since the last call; empty if no CPU
        was sampled. `kernel_shares` has, by CPU, the share of time in the kernel; it decides which
        CPUs are sampled until the next call."""
        counts = Counter[tuple[str, str, int]]()
        for samples in self._samples.values():
            for (pid, stack), count in Counter(parse_samples(samples.read_records())).items():
                if self._symbols is not None and stack and pid != os.getpid():
                    counts[*self._symbols.kind_and_function(stack), pid] += (
                        count * samples.period_ns
                    )
        span_ns, is_sampled = now_ns - self._since_ns, bool(self._samples)
        self._since_ns = now_ns
        by_share = sorted(kernel_shares, key=lambda cpu: -kernel_shares[cpu])
        cpus = [cpu for cpu in by_share[:MAX_CPUS] if kernel_shares[cpu] >= MIN_KERNEL_SHARE]
        if cpus and self._had_symptom and self._reader.ident is None:
            self._reader.start()
        self._had_symptom = bool(cpus)
        self._sample(cpus if self._symbols is not None else [])
        if not is_sampled:
            return {}
        reported = sorted(counts, key=lambda work: (not work[0], -counts[work]))[:MAX_FUNCTIONS]
        comms = {
            pid: files.read_word(f"/proc/{pid}/comm")[:MAX_NAME_LENGTH] for *_, pid in reported
        }
        rows = [[*work, comms[work[-1]], counts[work]] for work in reported]
        return {"span_ns": span_ns, "functions": rows}

    def _read_symbols(self) -> None:
        fd, self._kallsyms_fd = self._kallsyms_fd, -1
        with suppress(OSError):
            self._symbols = Symbols(fd)

    def _sample(self, cpus: Sequence[int]) -> None:
        """Starts sampling these CPUs, all with the same period, and stops sampling others."""
        period_ns = max(MIN_PERIOD_NS, PERIOD_PER_CPU_NS * len(cpus))
        for cpu, samples in [*self._samples.items()]:
            if cpu not in cpus or samples.period_ns != period_ns:
                self._samples.pop(cpu).close()
        for cpu in () if self._is_refused else {*cpus} - self._samples.keys():
            with suppress(OSError):  # the CPU may be offline, or the kernel may not permit sampling
                self._samples[cpu] = KernelSamples(cpu, period_ns)
        self._is_refused |= bool(cpus) and not self._samples

    def close(self) -> None:
        self._sample(())
        if self._kallsyms_fd >= 0:
            os.close(self._kallsyms_fd)
            self._kallsyms_fd = -1
