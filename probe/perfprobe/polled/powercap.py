"""Reads power limits and energy of packages from intel-rapl's zones in /sys/class/powercap, and the
clock of their uncore from intel_uncore_frequency."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfprobe import wire
from perfprobe.cpu import files
from perfprobe.polled.polling import Values, open_file, package_ids, read_content
from perfprobe.wire import Counter, Cpu, Missing

ZONES_PATH = "sys/class/powercap"
LIMIT_KEYS = {"long_term": "power_limit_w", "short_term": "power_limit2_w"}
"""Counter keys of the power limits PL1 and PL2, by powercap's name of the constraint."""
MEMORY_KEY = "energy_ram_j"
"""Key of the memory's energy, which is in the zone "dram" within the package's zone."""
COUNTERS = (
    Counter("power_limit_w", "power limit PL1", "W", "powercap", "gauge", scale=1e-6),
    Counter("power_limit2_w", "power limit PL2", "W", "powercap", "gauge", scale=1e-6),
    Counter("energy_j", "energy", "J", "powercap", scale=1e-6),
    Counter(MEMORY_KEY, "energy of the memory", "J", "powercap", scale=1e-6),
)
_ZONE = re.compile(r"package-(?P<package>[0-9]+)(?P<die>-die-[0-9]+)?")


@dataclass(slots=True, eq=False)
class Zone:
    """A powercap zone: of a package, or of its memory."""

    files: dict[str, int]
    """Descriptors of open files, by counter key."""
    wrap_uj: int
    """Energy in uJ at which the counter wraps. It is not a power of two, so increases are added up
    here."""
    last_uj: int | None = None
    total_uj: int = 0
    memory_zone: Zone | None = None

    def read(self, key: str) -> int | None:
        if key == MEMORY_KEY:
            return None if self.memory_zone is None else self.memory_zone.read("energy_j")
        fd = self.files.get(key)
        value = None if fd is None else files.parse_natural(read_content(fd))
        return value if value is None or key != "energy_j" else self._add_reading(value)

    def _add_reading(self, now_uj: int) -> int:
        """Adds the energy since the previous reading, also across a wrap. Returns the sum in uJ."""
        if self.last_uj is not None:
            self.total_uj += (now_uj - self.last_uj) % self.wrap_uj
        self.last_uj = now_uj
        return self.total_uj


class Powercap:
    def __init__(self, root: Path, rows: Sequence[Cpu], served_keys: Collection[str] = ()) -> None:
        """`served_keys` are keys of counters that another part reads."""
        self.missing: list[Missing] = []
        wanted_keys = {counter.key for counter in COUNTERS} - set(served_keys)
        zones = self._open_zones(f"{root}/{ZONES_PATH}", wanted_keys)
        self._zones_by_row = [zones.pop(package, None) for package in package_ids(rows)]
        for zone in zones.values():
            _close_zone(zone)
        self.rows = len(self._zones_by_row)
        open_keys = {key for zone in self._zones_by_row if zone for key in zone.files}
        open_keys |= {MEMORY_KEY for zone in self._zones_by_row if zone and zone.memory_zone}
        counters = [counter for counter in COUNTERS if counter.key in open_keys]
        self.block = wire.Block("powercap", "package", counters)

    def read(self) -> Iterator[tuple[int, Values]]:
        keys = [counter.key for counter in self.block.counters]
        for row, zone in enumerate(self._zones_by_row):
            yield row, [zone.read(key) if zone else None for key in keys]

    def close(self) -> None:
        for zone in filter(None, self._zones_by_row):
            _close_zone(zone)

    def _open_zones(self, base: str, wanted: set[str]) -> dict[int | None, Zone]:
        """Opens the zones of packages and the files of the wanted keys; returns them by package."""
        zones: dict[int | None, Zone] = {}
        for number in files.numbered_entries(base, "intel-rapl:"):
            path = f"{base}/intel-rapl:{number}"
            name = _ZONE.fullmatch(files.read_word(f"{path}/name"))
            if name and name["die"]:
                self._note_missing(
                    "power_limit_w", "powercap has limits for dies, but not for packages"
                )
            elif name:
                zones[int(name["package"])] = zone = self._open_zone(path, wanted)
                inner = (
                    f"{path}/intel-rapl:{number}:{n}"
                    for n in files.numbered_entries(path, f"intel-rapl:{number}:")
                )
                dram_zones = (zone for zone in inner if files.read_word(f"{zone}/name") == "dram")
                dram = next(dram_zones, None)
                if MEMORY_KEY in wanted and dram is not None:
                    memory = self._open_zone(dram, {"energy_j"})
                    # The zone has no files if this user may not read its energy.
                    zone.memory_zone = memory if memory.files else None
        return zones

    def _open_zone(self, path: str, wanted: set[str]) -> Zone:
        range_uj = files.read_number(f"{path}/max_energy_range_uj") or 0
        return Zone(self._open_files(path, wanted if range_uj else wanted - {"energy_j"}), range_uj)

    def _open_files(self, path: str, wanted: set[str]) -> dict[str, int]:
        open_files: dict[str, int] = {}
        enabled = files.read_number(f"{path}/enabled") != 0
        # AMD's zones have no limits, and those of disabled zones do not apply
        for number in range(3 if enabled else 0):
            key = LIMIT_KEYS.get(files.read_word(f"{path}/constraint_{number}_name"), "")
            file = f"{path}/constraint_{number}_power_limit_uw"
            if key in wanted and files.read_number(file):
                with contextlib.suppress(OSError):
                    open_files[key] = files.open_file(file)
        if "energy_j" in wanted:
            try:
                open_files["energy_j"] = files.open_file(f"{path}/energy_uj")
            except PermissionError:
                self._note_missing(
                    "energy_j", "powercap shows energy only to root", "perftop --sudo"
                )
            except OSError:
                pass
        return open_files

    def _note_missing(self, key: str, reason: str, fix: str | None = None) -> None:
        missing = Missing(key, reason, fix)
        if missing not in self.missing:
            self.missing.append(missing)


def _close_zone(zone: Zone) -> None:
    for fd in zone.files.values():
        os.close(fd)
    if zone.memory_zone is not None:
        _close_zone(zone.memory_zone)


# --- the clock of the uncore: mesh, L3 and memory controllers -------------------------------------

UNCORE_PATH = f"{files.CPU_DIRECTORY}/intel_uncore_frequency"
UNCORE_COUNTERS = (
    Counter("uncore_hz", "clock of the uncore", "Hz", "intel_uncore_frequency", "gauge", scale=1e3),
    Counter("uncore_max_hz", "highest clock of the uncore", "Hz", "intel_uncore_frequency", "gauge",
            scale=1e3),
)  # fmt: skip


class UncoreClock:
    """Reads the clock of each package's uncore, from its first die. If only root may read the
    clock, its upper limit is read instead."""

    missing: Sequence[Missing] = ()

    def __init__(self, root: Path, rows: Sequence[Cpu]) -> None:
        self._open_files: list[list[int | None]] = []
        """By package: descriptors of the clock and of the hardware's highest clock."""
        for package in package_ids(rows):
            die = root / UNCORE_PATH / f"package_{package or 0:02d}_die_00"
            clock = open_file(die / "current_freq_khz")
            clock = open_file(die / "max_freq_khz") if clock is None else clock
            self._open_files.append([clock, open_file(die / "initial_max_freq_khz")])
        self.rows = len(self._open_files)
        is_known = any(None not in fds for fds in self._open_files)
        self.block = wire.Block("uncore", "package", [*UNCORE_COUNTERS] if is_known else [])

    def read(self) -> Iterator[tuple[int, Values]]:
        for row, fds in enumerate(self._open_files):
            yield row, [None if fd is None else files.parse_natural(read_content(fd)) for fd in fds]

    def close(self) -> None:
        for fd in (fd for fds in self._open_files for fd in fds if fd is not None):
            os.close(fd)
