"""Can a sample be true? What contradicts itself is told before it reaches a number on screen.

Each gate holds two accounts of the same time against each other and names the counter to blame.
Fixed counters serve as witnesses against programmable ones, which others can take; APERF, MPERF and
the TSC, which nobody programs, as witnesses against the fixed ones. (Counters that moved further
than any clock could drive them are caught earlier, where differences are taken.)

Tolerances are shares of the span, plus the time that the reads at its ends took: counters are read
one after the other, so two of them never cover exactly the same span.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.samples.counter_limits import MAX_IPC
from perftop.samples.counters import Counters, Delta
from perftop.samples.doubt import Doubt

SLACK = 0.01
"""Of the span. Serial reads of real siblings were seen to miss bounds by 0.6 % of it."""
BUSY_S = 0.02
"""Of running: our own wake-ups are a thousandth of it, and they too must move a counter."""
WORKED_S = 5e-6
"""Of running: less than any wake-up takes, more than the quantum of a crystal's tick."""
AGREED = 0.02
"""Two clocks agree that differ by less, relatively; turbo and halts move them apart by far more."""
LEAST_SHARE = 0.1
"""Of the span that a CPU must have run for its clocks to be compared the first time."""


class Gates:
    """The gates of one stream. It remembers on which CPUs a counter has agreed with its witness;
    only there a difference speaks against it, for a hypervisor or an odd model may let the two run
    at different rates."""

    def __init__(self, counters: Counters) -> None:
        rows = len(counters.hello.topology)
        self._agreed = {"ref": np.zeros(rows, bool), "cycles": np.zeros(rows, bool)}

    def check(self, counters: Counters, delta: Delta) -> None:
        """Notes doubts in `delta`."""
        if "cpu" not in delta.tables:
            return
        doubt = _Noted(counters, delta)
        _standstill(doubt)
        self._clocks(doubt)
        self._parts(doubt)

    def _clocks(self, doubt: _Noted) -> None:
        """Reference cycles against the TSC and MPERF, cycles against APERF."""
        ref = doubt.moved("ref")
        if ref is not None and doubt.counters.has_tsc:
            doubt.note("ref", Doubt.FAST, ref > doubt.ticks + doubt.slack)
        for key, witness in (("ref", "mperf"), ("cycles", "aperf")):
            mine, other = doubt.moved(key), doubt.moved(witness)
            if mine is None or other is None:
                continue
            agreed, apart = self._agreed[key], np.abs(mine - other)
            near = np.maximum(AGREED * np.maximum(mine, other), 4 * doubt.slack)
            doubt.note(key, Doubt.UNLIKE, agreed & (apart > near))
            agreed |= (other > LEAST_SHARE * doubt.ticks) & (apart < AGREED * other)

    def _parts(self, doubt: _Noted) -> None:
        """Instructions against cycles, and what the kernel did against all that was done."""
        cycles, instructions = doubt.moved("cycles"), doubt.moved("instructions")
        if cycles is not None and instructions is not None:
            many = instructions > MAX_IPC * (cycles + doubt.slack)
            doubt.note("instructions", Doubt.IPC, many)
            doubt.note("cycles", Doubt.IPC, many & ~self._agreed["cycles"])
        for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
            moved = doubt.moved(part)
            if moved is not None and whole is not None:
                doubt.note(part, Doubt.ABOVE, moved > whole * (1 + SLACK) + doubt.slack)


class _Noted:
    """A sample and what is doubted of it so far."""

    def __init__(self, counters: Counters, delta: Delta) -> None:
        self.counters, self.delta = counters, delta
        table = delta.tables["cpu"]
        self.ticks: Floats = counters.tsc_ticks(delta) if counters.has_tsc else table.ticks
        """TSC ticks of the span, by position of the CPU."""
        with np.errstate(divide="ignore", invalid="ignore"):
            reads = np.where(table.ticks > 0, table.width / table.ticks, 0.0)
        self.slack: Floats = (SLACK + reads) * self.ticks
        """TSC ticks by which two accounts of it may differ."""
        self.little = WORKED_S * (counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan)

    def moved(self, key: str) -> Floats | None:
        """How far it moved; NaN where it is doubted already, and so speaks against no other."""
        moved = self.counters.moved(self.delta, key)
        if moved is None or key not in self.counters.key_at:
            return moved
        return np.where(self.delta.doubts[:, self.counters.key_at[key]] == 0, moved, np.nan)

    def note(self, key: str, why: Doubt, rows: Bools) -> None:
        """The first reason stands."""
        codes = self.delta.doubts[:, self.counters.key_at[key]]
        codes[rows & (codes == 0)] = why


def _standstill(doubt: _Noted) -> None:
    """Counters that are there and do not count: a hypervisor may answer every read with the same
    number, or somebody has put another event in a counter's place."""
    ran: dict[str, Bools] = {}
    busy = _busy_s(doubt.counters, doubt.delta)
    if busy is not None:
        ran["ref"] = busy > BUSY_S
    signs = (
        ("ref", "cycles"), ("ref", "mperf"), ("cycles", "ref"), ("cycles", "aperf"),
        ("instructions", "cycles"), ("kernel_cycles", "cycles"),
        ("kernel_instructions", "instructions"),
    )  # fmt: skip
    for key, sign in signs:
        if (other := doubt.moved(sign)) is not None:
            ran[key] = ran.get(key, np.zeros(len(other), bool)) | (other > doubt.little)
    for key, rows in ran.items():
        if (moved := doubt.moved(key)) is not None:
            doubt.note(key, Doubt.STILL, (moved == 0) & rows & (doubt.ticks > 0))


def _busy_s(counters: Counters, delta: Delta) -> Floats | None:
    """Seconds that the system did not idle, by whichever account there is."""
    busy = counters.moved(delta, "busy_s")
    idle = counters.moved(delta, "idle_s")
    if busy is not None or idle is None:
        return busy
    poll = counters.moved(delta, "poll_s")
    block = counters.columns["idle_s"].block
    elapsed: Floats = delta.tables[block].ticks / counters.stamp_hz
    return elapsed - idle - (0.0 if poll is None else poll)
