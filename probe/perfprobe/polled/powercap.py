"""Reads power limits and energy of packages from intel-rapl's zones in /sys/class/powercap, and the
clock of their uncore from intel_uncore_frequency."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe.cpu import files
from perfprobe.cpu.files import OpenFile
from perfprobe.polled.polling import PolledBlock, Values, package_ids
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


Zone = dict[str, Callable[[], int | None]]
"""Functions that read the values of a package, by counter key."""


class EnergySum:
    """Reads the energy of a powercap zone in uJ. The file wraps at `wrap_uj`, which is not a power
    of two, so increases are added up here."""

    def __init__(self, file: OpenFile, wrap_uj: int) -> None:
        self._file, self._wrap_uj = file, wrap_uj
        self._last_uj: int | None = None
        self._total_uj = 0

    def __call__(self) -> int | None:
        if (now_uj := self._file.read_number()) is None:
            return None
        if self._last_uj is not None:
            self._total_uj += (now_uj - self._last_uj) % self._wrap_uj
        self._last_uj = now_uj
        return self._total_uj


class Powercap(PolledBlock):
    def __init__(self, root: Path, rows: Sequence[Cpu], served_keys: Collection[str] = ()) -> None:
        """`served_keys` are keys of counters that another part reads."""
        super().__init__()
        wanted_keys = {counter.key for counter in COUNTERS} - set(served_keys)
        base, zones = f"{root}/{ZONES_PATH}", dict[int | None, Zone]()
        for number in files.numbered_entries(base, "intel-rapl:"):
            path = f"{base}/intel-rapl:{number}"
            name = _ZONE.fullmatch(files.read_word(f"{path}/name"))
            if name and name["die"]:
                reason = "powercap has limits for dies, but not for packages"
                self._report_missing("power_limit_w", reason)
            elif name:
                zones[int(name["package"])] = self._open_zone(path, number, wanted_keys)
        self._zones_by_row = [zones.get(package, {}) for package in package_ids(rows)]
        self.rows = len(self._zones_by_row)
        open_keys = {key for zone in self._zones_by_row for key in zone}
        counters = [counter for counter in COUNTERS if counter.key in open_keys]
        self.block = wire.Block("powercap", "package", counters)

    def read(self) -> Iterator[tuple[int, Values]]:
        keys = [counter.key for counter in self.block.counters]
        for row, zone in enumerate(self._zones_by_row):
            yield row, [zone[key]() if key in zone else None for key in keys]

    def _open_zone(self, path: str, number: int, wanted_keys: set[str]) -> Zone:
        """Opens the files of the wanted keys in a package's zone and in the memory's zone in it."""
        zone: Zone = {}
        # AMD's zones have no limits, and those of disabled zones do not apply
        enabled = files.read_number(f"{path}/enabled") != 0
        for constraint in range(3 if enabled else 0):
            key = LIMIT_KEYS.get(files.read_word(f"{path}/constraint_{constraint}_name"), "")
            file = f"{path}/constraint_{constraint}_power_limit_uw"
            if key in wanted_keys and files.read_number(file):
                with contextlib.suppress(OSError):
                    zone[key] = self.open(file).read_number
        inner = (
            f"{path}/intel-rapl:{number}:{n}"
            for n in files.numbered_entries(path, f"intel-rapl:{number}:")
        )
        dram = next((path for path in inner if files.read_word(f"{path}/name") == "dram"), path)
        for key, zone_path in {"energy_j": path, MEMORY_KEY: dram}.items():
            range_uj = files.read_number(f"{zone_path}/max_energy_range_uj")
            if key not in wanted_keys or not range_uj or (key == MEMORY_KEY and dram == path):
                continue
            try:
                zone[key] = EnergySum(self.open(f"{zone_path}/energy_uj"), range_uj)
            except PermissionError:
                reason = "powercap shows energy only to root"
                self._report_missing("energy_j", reason, "perftop --sudo")
            except OSError:
                pass
        return zone

    def _report_missing(self, key: str, reason: str, fix: str | None = None) -> None:
        missing = Missing(key, reason, fix)
        if missing not in self.missing:
            self.missing.append(missing)


# --- the clock of the uncore: mesh, L3 and memory controllers -------------------------------------

UNCORE_PATH = f"{files.CPU_DIRECTORY}/intel_uncore_frequency"
UNCORE_COUNTERS = (
    Counter("uncore_hz", "clock of the uncore", "Hz", "intel_uncore_frequency", "gauge", scale=1e3),
    Counter("uncore_max_hz", "highest clock of the uncore", "Hz", "intel_uncore_frequency", "gauge",
            scale=1e3),
)  # fmt: skip


class UncoreClock(PolledBlock):
    """Reads the clock of each package's uncore, from its first die. If only root may read the
    clock, its upper limit is read instead."""

    def __init__(self, root: Path, rows: Sequence[Cpu]) -> None:
        super().__init__()
        self._clock_files: list[list[OpenFile | None]] = []
        """By package: files with the clock and with the hardware's highest clock."""
        for package in package_ids(rows):
            die = f"{root}/{UNCORE_PATH}/package_{package or 0:02d}_die_00"
            clock = self.try_open(f"{die}/current_freq_khz") or self.try_open(f"{die}/max_freq_khz")
            self._clock_files.append([clock, self.try_open(f"{die}/initial_max_freq_khz")])
        self.rows = len(self._clock_files)
        is_known = any(None not in clocks for clocks in self._clock_files)
        self.block = wire.Block("uncore", "package", [*UNCORE_COUNTERS] if is_known else [])

    def read(self) -> Iterator[tuple[int, Values]]:
        for row, clocks in enumerate(self._clock_files):
            yield row, [None if clock is None else clock.read_number() for clock in clocks]
