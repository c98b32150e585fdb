"""Reads clues that counters do not show: system settings that affect speed, read once; kernel
messages about split locks and corrected memory errors; and which CPUs went offline."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from perfprobe.cpu.files import (
    CPU_DIRECTORY,
    file_names,
    numbered_entries,
    open_file,
    read_number,
    read_text,
    read_word,
)

RESCTRL = "sys/fs/resctrl"
MAX_VALUE_LENGTH = 200
"""Maximum length of a value, in characters."""
SETTING_FILES = {
    "frequency_driver": f"{CPU_DIRECTORY}/cpu0/cpufreq/scaling_driver",
    "pstate_status": f"{CPU_DIRECTORY}/intel_pstate/status",
    "idle_driver": f"{CPU_DIRECTORY}/cpuidle/current_driver",
    "idle_governor": f"{CPU_DIRECTORY}/cpuidle/current_governor_ro",
    "smt_control": f"{CPU_DIRECTORY}/smt/control",
    "isolated_cpus": f"{CPU_DIRECTORY}/isolated",
    "tickless_cpus": f"{CPU_DIRECTORY}/nohz_full",
    "clocksource": "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "huge_pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "reserved_huge_pages": "proc/sys/vm/nr_hugepages",
    "numa_balancing": "proc/sys/kernel/numa_balancing",
    "nmi_watchdog": "proc/sys/kernel/nmi_watchdog",
    "address_randomisation": "proc/sys/kernel/randomize_va_space",
    "autogroup": "proc/sys/kernel/sched_autogroup_enabled",
    "platform_profile": "sys/firmware/acpi/platform_profile",
    "product": "sys/class/dmi/id/product_name",
    "firmware": "sys/class/dmi/id/bios_version",
}
POLICY_FILES = {
    "governor": "scaling_governor",
    "energy_performance_preference": "energy_performance_preference",
}
"""Settings in files of each cpufreq policy; if policies differ, all values are listed."""
SLOW_CLOCKS = {"hpet", "acpi_pm", "jiffies", "refined-jiffies"}
"""Slow clock sources. If one of them is in use, the cost of reading it is also a setting."""
TIMED_ROUNDS, CALLS_PER_ROUND = 5, 50
_COSTLY_MITIGATION = re.compile(r"Mitigation: (PTI|IBRS|untrained return thunk)\b")
_BRACKET_PATTERN = re.compile(r"\[([^\]]*)\]")


def read_settings(root: Path) -> dict[str, str]:
    """Returns the system's settings by name, without those that this kernel does not report."""
    values_by_name = {name: _read_value(f"{root}/{path}") for name, path in SETTING_FILES.items()}
    directory = f"{root}/{CPU_DIRECTORY}/cpufreq"
    policies = numbered_entries(directory, "policy")
    for name, file in POLICY_FILES.items():
        values = {_read_value(f"{directory}/policy{n}/{file}") for n in policies}
        values_by_name[name] = ", ".join(sorted(values - {""}))
    if (is_on := is_turbo_on(root)) is not None:
        values_by_name["turbo"] = "on" if is_on else "off"
    directory = f"{root}/{CPU_DIRECTORY}/vulnerabilities"
    states = {name: read_word(f"{directory}/{name}") for name in file_names(directory)}
    open_to = [name for name, state in states.items() if state.startswith("Vulnerable")]
    values_by_name["vulnerable_to"] = ", ".join(open_to) or ("nothing" if states else "")
    memory = re.search(
        r"^MemTotal:\s*([0-9]{1,15}) kB", read_text(f"{root}/proc/meminfo"), re.MULTILINE
    )
    values_by_name["memory"] = f"{int(memory[1]) / (1 << 20):.3g} GiB" if memory else ""
    values_by_name["bandwidth_caps"] = _bandwidth_caps(root)
    # Active mitigations that slow each entry to the kernel: separate page tables, and a write of an
    # MSR (IBRS) or untrained branch predictors at each entry.
    costly = ((name, _COSTLY_MITIGATION.match(state)) for name, state in states.items())
    costly_texts = [f"{name}: {match[1]}" for name, match in costly if match]
    values_by_name["costly_mitigations"] = ", ".join(costly_texts)
    values_by_name["deepest_idle_state"] = _deepest_idle_state(root)
    if root == Path("/") and values_by_name["clocksource"] in SLOW_CLOCKS:
        values_by_name["clock_read"] = call_time_text(time.monotonic_ns)
    if root == Path("/") and values_by_name["costly_mitigations"]:
        values_by_name["system_call"] = call_time_text(os.getppid)
    return {name: value[:MAX_VALUE_LENGTH] for name, value in values_by_name.items() if value}


def call_time_text(call: Callable[[], int]) -> str:
    """Returns the time of a call in us as text: the smallest mean of a few rounds, because other
    rounds may have been interrupted."""
    from timeit import repeat  # imported here, because few systems need it

    seconds = min(repeat(call, repeat=TIMED_ROUNDS, number=CALLS_PER_ROUND))
    return f"{seconds / CALLS_PER_ROUND * 1e6:.1f} µs"


def is_turbo_on(root: Path) -> bool | None:
    """Returns whether turbo is on, by no_turbo or boost; None if there is neither file."""
    off_value = read_number(f"{root}/{CPU_DIRECTORY}/intel_pstate/no_turbo")
    boost = read_number(f"{root}/{CPU_DIRECTORY}/cpufreq/boost")
    if off_value is None and boost is None:
        return None
    return not off_value and boost != 0


def governor(root: Path, cpu: int) -> str:
    """Returns the CPU's cpufreq governor; empty if there is none."""
    return read_word(f"{root}/{CPU_DIRECTORY}/cpu{cpu}/cpufreq/scaling_governor")


def idle_state_paths(root: Path, cpu: int) -> list[str]:
    """Returns the directories of the CPU's idle states, lightest first; empty without cpuidle."""
    directory = f"{root}/{CPU_DIRECTORY}/cpu{cpu}/cpuidle"
    return [f"{directory}/state{n}" for n in numbered_entries(directory, "state")]


def _read_value(path: str) -> str:
    """Returns a file's value; in a list such as "always [madvise] never", the bracketed one."""
    content = read_word(path)
    match = _BRACKET_PATTERN.search(content)
    return match[1] if match else content


def _bandwidth_caps(root: Path) -> str:
    """Returns the resctrl groups with a cap on memory bandwidth, and the lowest cap of each: on
    Intel in per cent, on AMD in 1/8 GB/s, where 2048 means no cap."""
    lowest = {}
    for name in ["", *file_names(f"{root}/{RESCTRL}")]:
        schemata = read_text(f"{root}/{RESCTRL}/{name}/schemata")
        line = re.search(r"^ *MB:(.*)$", schemata, re.MULTILINE)
        if values := re.findall(r"=(\d{1,7})", line[1] if line else ""):
            lowest[name or "the default group"] = min(map(int, values))
    no_cap = 100 if max(lowest.values(), default=0) <= 100 else 2048
    return ", ".join(f"{name} {value}" for name, value in lowest.items() if value < no_cap)


def _deepest_idle_state(root: Path) -> str:
    """Returns the name and exit latency of the enabled idle state that takes longest to leave."""
    paths = (path for path in idle_state_paths(root, 0) if not read_number(f"{path}/disable"))
    latencies = [(read_number(f"{p}/latency") or 0, read_word(f"{p}/name")) for p in paths]
    latency_us, name = max(latencies, default=(0, ""))
    return f"{name}, {latency_us} µs" if latency_us else ""


# --- the kernel's log

MAX_MESSAGES, MAX_MESSAGE_BYTES = 64, 1 << 13
"""Maximum number of messages read at once, and maximum length of a message in bytes."""
MAX_NAME_LENGTH = 64
# From Linux: arch/x86/kernel/cpu/bus_lock.c, which logs each task once, and drivers/edac/edac_mc.c.
_MESSAGES = {
    "split-lock": (r"split lock detection: #\w\w: (.+)/(\d+)(?: \(\w+\))? took a", r"\1[\2]"),
    "memory-errors": (r"EDAC MC\d+: \d+ CE .* on ([^\s(]+)", r"\1"),
}
"""By kind of message: its pattern, and the template of the name (task or memory module)."""


class KernelLog:
    """Reads kernel messages from now on; none if this process may not read the log."""

    def __init__(self, root: Path) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = open_file(f"{root}/dev/kmsg")
            os.lseek(self._fd, 0, os.SEEK_END)

    def record(self) -> list[list[str | int]]:
        """Returns the kind, name and number of the messages since the last call."""
        counts: dict[tuple[str, str], int] = {}
        for _ in range(MAX_MESSAGES if self._fd >= 0 else 0):
            try:
                text = os.read(self._fd, MAX_MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError:  # some messages have been overwritten, or the next message is too long
                continue
            if not text:
                break
            for kind, (pattern, name) in _MESSAGES.items():
                for match in re.finditer(pattern, text.decode("ascii", "replace")):
                    key = kind, match.expand(name)[:MAX_NAME_LENGTH]
                    counts[key] = counts.get(key, 0) + 1
        return [[kind, name, count] for (kind, name), count in counts.items()]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --- CPUs that went offline
# A CPU that went offline and online again between two reads of the list of online CPUs is in both
# lists, but the kernel has ended its perf events, and firmware may have cleared its MSRs. The
# kernel's uevents show it.

KERNEL_PORT, KERNEL_GROUP = 0, 1
"""Netlink port of the kernel, and the multicast group of its events (not udev's)."""
NETLINK_KOBJECT_UEVENT = 15
MAX_EVENT_BYTES = 4096
"""Maximum length of an event, in bytes; the kernel's own limit is 2048."""
_OFFLINE = re.compile(rb"offline@/devices/system/cpu/cpu(\d+)\0")


class EventSocket(Protocol):
    def recvfrom(self, count: int, /) -> tuple[bytes, Any]: ...

    def close(self) -> None: ...


class OfflineEvents:
    def __init__(
        self, events: EventSocket | None, is_readable: Callable[[], object] = lambda: True
    ) -> None:
        """`is_readable` returns whether the socket may have an event or error; it costs a quarter
        of a `recvfrom` that raises BlockingIOError."""
        self._events, self._is_readable = events, is_readable

    def read_offline(self, cpus: Collection[int]) -> set[int]:
        """Returns those of `cpus` that may have been offline since the last call."""
        offline: set[int] = set()
        while self._events is not None and self._is_readable():
            try:
                data, (sender, _) = self._events.recvfrom(MAX_EVENT_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # the kernel dropped some events
                    offline |= set(cpus)
                    continue
                break
            match = _OFFLINE.match(data) if sender == KERNEL_PORT else None
            offline |= {int(match[1])} if match else set()
        return offline & set(cpus)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()


def open_offline_events(root: Path) -> OfflineEvents:
    """Opens the socket of the kernel's events. Under a sysroot, or if the socket cannot be opened,
    the object has no events."""
    if root != Path("/"):
        return OfflineEvents(None)
    try:
        events = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT
        )
    except OSError:
        return OfflineEvents(None)
    try:
        events.bind((0, KERNEL_GROUP))
    except OSError:
        events.close()
        return OfflineEvents(None)
    poller = select.poll()
    poller.register(events, select.POLLIN)
    return OfflineEvents(events, partial(poller.poll, 0))
