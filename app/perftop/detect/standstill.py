"""Evidence that CPUs stood still although the operating system had work: the share of that time,
with its error; the time for which CPUs reported heat; and the clock modulation that they were asked
for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints, any_by_sample
from perftop.detect.engine import DetectorInput, highest
from perftop.model.counters import BlockCounter
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleBatch, SampleReader

SMALL_IDLE = 0.05
"""Share of the time. Less idle time than this cannot hide or cause much loss, however it was
measured."""
MAX_READ_S = 20e-6
"""Maximum time in s to read a row, so its counters are up to this far apart. Rows that take longer
are read again, or left out."""
ENTRY_S, IDLE_ERROR = 2e-6, 0.1
"""Error in s of each idle period, because cpuidle rounds it to a microsecond at both ends; and the
error as a share of the idle time where idle periods are not counted, because hardly any is shorter
than 20 us. cpuidle also counts the time to enter and leave an idle state as idle; this error makes
the loss appear smaller than it is."""
ROBBED_NS = 60_000_000_000
"""Time in ns after a stolen tick in which the hypervisor may have taken most of the next tick."""
TICK_S = 0.01
"""Unit of /proc/stat in s on every x86 kernel, whatever the kernel's own tick is."""
HOT = {
    "thermal": {"thermal", "critical temperature", "running average thermal limit"},
    "prochot": {"PROCHOT"},
}
"""Names of status bits by the cause that the bits show."""
STATUS_COUNTERS = "limit_reasons", "package_thermal", "core_thermal"
MODULATED = 1 << 4
"""Bit of register 19AH that shows that the OS or firmware asks the core to halt part of the time.
Bits 3:0 hold the duty in sixteenths. CPUs without CPUID.06H:EAX bit 5 support only eighths, in bits
3:1; there bit 0 is reserved, and 0."""


class Standstill:
    """The share of time for which each CPU stood still although the operating system had work."""

    def __init__(self, reader: SampleReader) -> None:
        rows = len(reader.hello.topology)
        self._guest = reader.hello.virtualisation is not None
        self._exact: Bools = np.zeros(rows, bool)
        for variant, mask in reader.evaluator.chosen["involuntary"]:
            if "busy_s" in variant.needs:
                self._exact |= mask
        self._entries = reader.counters.columns.get("idle_entries")
        self._robbed_ns = np.full(rows, -ROBBED_NS)

    def note_steal(self, batch: SampleBatch, first: int, last: int) -> None:
        """Records which CPUs have lost time to the hypervisor. Must be called with all samples."""
        if (batch.once(highest).steal[first:last] > 0).any():
            stolen = batch.values["steal"][first:last] > 0
            times = np.where(stolen, batch.time_ns[first:last, None], -ROBBED_NS)
            self._robbed_ns = np.maximum(self._robbed_ns, times.max(axis=0))

    def shares(self, data: DetectorInput) -> tuple[Floats, Floats, Floats]:
        """Returns, by position of the CPU: the share, NaN where it has no meaning, and below 0
        where an error outweighs the loss; its time base in seconds; and, in seconds (3, CPUs), how
        much of the loss may be an error of idle time, of the reading and of steal."""
        values = data.sample.values
        idle = values["idle"]
        lost_s, span_s = (part[INDEX["involuntary"]] for part in (values.top, values.bottom))
        idle_s = idle * span_s
        means = self._exact | (idle < SMALL_IDLE)
        if self._entries is None:
            guessed = IDLE_ERROR * idle_s
        else:
            means |= np.isfinite(idle)
            moved = data.sample.delta.tables[self._entries.block].increments
            guessed = ENTRY_S * moved[:, self._entries.first]
        unknown = self._exact | ~np.isfinite(guessed)
        robbed = self._guest | (data.time_ns - self._robbed_ns < ROBBED_NS)
        error = [
            np.where(unknown, 0.0, np.minimum(guessed, idle_s)),
            np.full(len(idle), MAX_READ_S),
            TICK_S * robbed,
        ]
        known = means & (span_s > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(known, lost_s / span_s, np.nan)
        return share, np.where(known, span_s, 0.0), np.array(error)


@dataclass(slots=True)
class _StatusBits:
    """The bits of one counter that show one cause."""

    column: BlockCounter
    cause: int
    """Index of the cause in HOT."""
    columns: Ints
    """Columns of the bits in the block."""
    by_core: bool


class Thermal:
    """The time for which cores and their packages reported heat, by polled status bits."""

    def __init__(self, reader: SampleReader) -> None:
        columns = reader.counters.columns
        self._status = [
            _StatusBits(column, cause, column.first + 1 + np.array(bits), column.scope == "core")
            for key in STATUS_COUNTERS
            if (column := columns.get(key)) is not None
            for cause, names in enumerate(HOT.values())
            if (bits := [i for i, name in enumerate(column.counter.parts) if name in names])
        ]
        self.available = bool(self._status)
        """Whether this stream has such bits."""

    def signs(self, batch: SampleBatch) -> Bools:
        """Returns, by sample, whether a poll found such a bit set."""
        tables = batch.delta.tables
        return np.asarray(np.logical_or.reduce([
            np.zeros(len(batch), bool),
            *(tables[status.column.block].increments[..., status.columns].any(axis=(-2, -1))
              for status in self._status),
        ]))  # fmt: skip

    def shares(self, data: DetectorInput) -> Floats:
        """Returns (HOT, cores): the share of the polls in this sample that found the cause; NaN
        where there were no polls."""
        result = np.full((len(HOT), len(data.cores.lists)), np.nan)
        for status in self._status:
            moved = data.sample.delta.tables[status.column.block].increments
            polls = moved[:, status.column.first]
            most = moved[:, status.columns].max(axis=1) / np.where(polls > 0, polls, np.nan)
            rows = data.cores.block_row if status.by_core else data.cores.package
            share = np.append(most, np.nan)[rows]  # NaN for row -1
            result[status.cause] = np.fmax(result[status.cause], share)
        return result


class Modulation:
    """The clock modulation that register 19AH asks of each CPU, as last read."""

    def __init__(self, reader: SampleReader) -> None:
        self._column = reader.counters.columns.get("modulation")
        self.available = self._column is not None
        """Whether this stream has the register."""
        self._rows = len(reader.hello.topology)

    def signs(self, batch: SampleBatch) -> Bools:
        """Returns, by sample, whether the register of any CPU is not 0."""
        if self._column is None:
            return np.zeros(len(batch), bool)
        moved = batch.delta.tables[self._column.block].increments[..., self._column.first]
        return any_by_sample(moved != 0)

    def shares(self, data: DetectorInput) -> Floats:
        """Returns the share of the time for which each CPU is asked to halt, by position; 0 if it
        is not asked to."""
        if self._column is None:
            return np.full(self._rows, np.nan)
        table = data.sample.delta.tables[self._column.block]
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.rint(table.increments[:, self._column.first] / table.ticks)
        known = np.isfinite(level)
        bits = np.where(known, level, 0).astype(int)
        duty = (bits & 15) / 16
        # A duty of 0 is reserved and undocumented.
        asked = np.where((bits & MODULATED != 0) & (duty > 0), 1 - duty, 0.0)
        return np.where(known, asked, np.nan)
