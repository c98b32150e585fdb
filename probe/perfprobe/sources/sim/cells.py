"""What happens in cells of 10 ms, and closed integrals of it up to any moment.

In a cell each CPU works during one interval [start, stop), is robbed by the hypervisor during
[stop, gone), and is idle otherwise; each core has one clock and one pattern of involuntary halts.
All times are integer ns and all rates integers, so sums are exact in whatever portions they are
taken (int64 holds a month).

Halts are removed by a change of time: `running(x)` is how long the core was not halted in the first
x ns of the cell. Measured in that time a CPU's work is an interval again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from perfprobe.frozen import fields, frozen
from perfprobe.sources.sim.machine import Ints
from perfprobe.sources.sim.script import CELL_NS


class Row(IntEnum):
    """The integrated quantities. Times are ns; cycles and instructions are multiplied by 1000, as
    ns x MHz is."""

    RUN = 0  # not halted
    SMT = 1  # not halted and alone on its core; with more than two threads: any thread runs
    CYCLES = 2
    INSTRUCTIONS = 3
    KERNEL_CYCLES = 4
    KERNEL_INSTRUCTIONS = 5
    LICENSE_1 = 6
    LICENSE_2 = 7
    IDLE = 8  # the OS had it halt
    POLL = 9  # the OS idles without a halt
    ENTRIES = 10  # into IDLE
    STEAL = 11
    BUSY = 12  # the OS has work on it, halted or not
    SYSTEM = 13  # ns x 1000 of BUSY in the kernel
    IOWAIT = 14  # ns x 1000 of IDLE with I/O under way
    SMI = 15
    ONLINE = 16
    TRAFFIC = 17  # bytes x 1000 to and from memory


@frozen
class Cells:
    """Some cells in a row; axes (cell, thread, core). Times are ns within the cell."""

    start: Ints
    stop: Ints
    gone: Ints
    poll: Ints
    """Moment in [start, stop) at which the work is done; then the idle loop polls."""
    online: Ints
    # Rates: per us.
    mhz: Ints
    mips: Ints
    kernel_mhz: Ints
    kernel_mips: Ints
    # Per mille.
    kernel: Ints
    iowait: Ints
    license: Ints
    traffic: Ints
    """MB/s to and from memory while it runs."""
    # Per core (thread axis of length 1).
    halt_period: Ints
    halt_phase: Ints
    halt: Ints
    smi: Ints
    """End of the SMI; beyond the end of the cell if there is none."""

    def one(self, index: int) -> Cells:
        return Cells(*(getattr(self, name)[index : index + 1] for name in _NAMES))

    def running(self, x: Any) -> Ints:
        """ns without a halt in the first x ns of the cell."""
        if not self.halt.any():
            return np.asarray(x + 0 * self.halt)
        whole, rest = np.divmod(x, self.halt_period)
        within = np.minimum(np.maximum(rest - self.halt_phase, 0), self.halt)
        return np.asarray(x - whole * self.halt - within)


_NAMES = tuple(fields(Cells))


def span(x: Any, first: Ints, last: Ints) -> Ints:
    """Length of the part of [first, last) that lies before x."""
    return np.asarray(np.minimum(np.maximum(x, first), last) - first)


def measure(cells: Cells, x: Any) -> Ints:
    """Integrals from each cell's start to x (ns in the cell, per CPU or for all):
    axes (Row, cell, thread, core)."""
    out = np.zeros((len(Row), *cells.start.shape), np.int64)
    x_run = cells.running(x)
    first, last = cells.running(cells.start), cells.running(cells.stop)
    run = out[Row.RUN] = span(x_run, first, last)
    out[Row.SMT] = _smt(x_run, run, first, last)
    cycles = np.multiply(run, cells.mhz, out=out[Row.CYCLES])
    np.multiply(run, cells.mips, out=out[Row.INSTRUCTIONS])
    np.multiply(run, cells.kernel_mhz, out=out[Row.KERNEL_CYCLES])
    np.multiply(run, cells.kernel_mips, out=out[Row.KERNEL_INSTRUCTIONS])
    if cells.license.any():
        out[Row.LICENSE_1] = cycles * (cells.license == 1)
        out[Row.LICENSE_2] = cycles * (cells.license == 2)
    busy = np.minimum(x, cells.poll) - np.minimum(x, cells.start)
    out[Row.BUSY] = busy
    np.multiply(busy, cells.kernel, out=out[Row.SYSTEM])
    out[Row.POLL] = span(x, cells.poll, cells.stop)
    out[Row.STEAL] = span(x, cells.stop, cells.gone)
    idle = (x - span(x, cells.start, cells.gone)) * cells.online
    out[Row.IDLE] = idle
    np.multiply(idle, cells.iowait, out=out[Row.IOWAIT])
    falls = (cells.gone > cells.start) & (cells.gone < CELL_NS)
    out[Row.ENTRIES] = falls & (x >= cells.gone)
    out[Row.SMI] = (x >= cells.smi) & (cells.online > 0)
    out[Row.ONLINE] = x * cells.online
    np.multiply(run, cells.traffic, out=out[Row.TRAFFIC])
    return out


def _smt(x_run: Ints, run: Ints, first: Ints, last: Ints) -> Ints:
    """Row.SMT of each CPU up to its own x, which may differ from its siblings'."""
    threads = first.shape[1]
    if threads == 1:
        return run
    if threads == 2:
        both = span(x_run, first.max(axis=1, keepdims=True), last.min(axis=1, keepdims=True))
        # Without an overlap the span is negative, because its end lies before its start.
        return np.asarray(run - np.maximum(both, 0))
    order = np.argsort(first, axis=1, kind="stable")
    begins = np.take_along_axis(first, order, axis=1)
    ends = np.take_along_axis(last, order, axis=1)
    total = np.zeros_like(run)
    covered = np.zeros_like(begins[:, :1])
    for i in range(threads):  # pieces that do not overlap, in the order of their starts
        begin = np.maximum(begins[:, i : i + 1], covered)
        covered = np.maximum(covered, ends[:, i : i + 1])
        total += span(x_run, begin, np.maximum(begin, covered))
    return total
