"""What has limited clocks since somebody last cleared it: TPMI's performance limit reasons (PLR).

Granite Rapids, Clearwater Forest and later have no MSR for it. Linux's intel_plr_tpmi shows the
bits in debugfs, a line for a die and one for each of its CPUs. They are sticky, and only writing
clears them, which is not done here. So a bit tells one thing: that it came on between two looks.
One that is on at the first look can tell nothing of this run, and hello names it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe.sources.os.polled import Values, content, package_ids
from perfprobe.wire import Counter, Cpu, Missing

DEBUGFS = "sys/kernel/debug"
COARSE = ("FREQUENCY", "CURRENT", "POWER", "THERMAL", "PLATFORM", "MCP", "RAS", "MISC", "QOS",
          "DFC")  # fmt: skip
_LIMITS = [f"{level}_{by}" for level in ("PL1", "PL2") for by in ("MSR_TPMI", "MMIO", "PCS")]
FINE = (
    *(f"FREQUENCY_CDYN{n}" for n in range(6)), "FREQUENCY_FCT", "FREQUENCY_PCS_TRL",
    "CURRENT_MTPMAX", "POWER_FAST_RAPL", *(f"POWER_PKG_{name}" for name in _LIMITS),
    *(f"POWER_PLATFORM_{name}" for name in _LIMITS), "THERMAL_PER_CORE", "DFC_UFS",
    "PLATFORM_PROCHOT", "PLATFORM_HOT_VR", "MISC_PCS_PSTATE",
)  # fmt: skip
PARTS = (*COARSE, *FINE)
"""The driver's names. Others that a later kernel may have are not told."""
KEY = "plr_reasons"
COUNTER = Counter(
    KEY, "limit reasons that came on", "1", "TPMI PLR", "flags",
    columns=1 + len(PARTS), parts=list(PARTS),
)  # fmt: skip
PERIOD_S, COST = 1.0, 100
"""Seconds between looks; and a look is followed by a pause of at least so many times its length,
because the driver asks the power unit for each CPU through a mailbox."""
MOST_BYTES = 1 << 17
"""A line for each of a thousand CPUs, with some reasons."""
_CPU = re.compile(r"cpu([0-9]{1,5})")
CLEAR = "as root: echo 0 | tee /sys/kernel/debug/tpmi-*/plr/domain*/status"

Clock = Callable[[], float]


class LimitStatus:
    def __init__(self, root: Path, rows: Sequence[Cpu], clock: Clock = time.monotonic) -> None:
        self.missing: list[Missing] = []
        self._clock = clock
        self._package = {row.cpu: row.package for row in rows}
        self._ids = package_ids(rows)
        self.rows = len(self._ids)
        self._files = self._opened(root)
        self._next_s = clock()
        self._on: list[set[str] | None] = [None] * self.rows
        """Bits that are on by package; None: not known yet."""
        self._seen = [[0] * COUNTER.columns for _ in self._ids]
        self._look()
        known = any(bits is not None for bits in self._on)
        self.block = wire.Block("plr", "package", [COUNTER] if known else [])
        self._tell_old(rows)

    def read(self) -> Iterator[tuple[int, Values]]:
        if self._clock() >= self._next_s:
            self._look()
        for row, on in enumerate(self._on):
            yield row, [*self._seen[row]] if on is not None else [None] * COUNTER.columns

    def close(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files = []

    def _opened(self, root: Path) -> list[int]:
        fds = []
        try:
            paths = sorted((root / DEBUGFS).glob("tpmi-*/plr/domain*/status"))
        except OSError:
            paths = []
        for path in paths:
            try:
                fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                why = f"{path.relative_to(root)}: {(error.strerror or str(error)).lower()}"
                self.missing = [Missing(KEY, why, "perftop --sudo, on a kernel that is not locked")]
        return fds

    def _look(self) -> None:
        """Read all files. A bit counts in the look that first finds it on; one that somebody has
        cleared may come on again."""
        start_s = self._clock()
        now: dict[int | None, set[str]] = {}
        for fd in self._files:
            text = (content(fd, MOST_BYTES) or b"").decode("ascii", "replace")
            for package, bits in self._lines(text):
                now.setdefault(package, set()).update(bits)
        for row, package in enumerate(self._ids):
            if package not in now:
                self._on[row] = None
                continue
            before, self._on[row] = self._on[row], now[package]
            if before is not None:
                self._seen[row][0] += 1
                for at, part in enumerate(PARTS):
                    self._seen[row][1 + at] += part in now[package] and part not in before
        end_s = self._clock()
        self._next_s = max(start_s + PERIOD_S, end_s + COST * (end_s - start_s))

    def _lines(self, text: str) -> Iterator[tuple[int | None, list[str]]]:
        """The package and the words of each line. The line of the die belongs to the package of its
        CPUs."""
        lines = [line.split() for line in text.splitlines() if line.strip()]
        numbers = [match for words in lines if (match := _CPU.fullmatch(words[0]))]
        first = next((self._package.get(int(number[1])) for number in numbers), None)
        package = first if first is not None or len(self._ids) > 1 else self._ids[0]
        for words in lines:
            if package is not None and (words[0] == "cpus" or _CPU.fullmatch(words[0])):
                yield package, [word for word in words[1:] if word in PARTS]

    def _tell_old(self, rows: Sequence[Cpu]) -> None:
        for package, on in zip(self._ids, self._on, strict=True):
            if on:
                names = ", ".join(part for part in PARTS if part in on)
                why = (
                    f"{names}: set before perftop came and sticky, so it tells nothing of this run"
                )
                cpus = [row.cpu for row in rows if row.package == package]
                self.missing.append(Missing(KEY, why, CLEAR, cpus))
