"""Checks whether a sample can be true, before its numbers reach the screen.

Each gate compares two counts of the same time and names the counter to doubt. Fixed counters are
witnesses against programmable ones, which other programs can take; APERF, MPERF and the TSC, which
nobody programs, are witnesses against the fixed ones. (Counters that moved further than any clock
could drive them are caught earlier, where differences are taken.)

Tolerances are shares of the span, plus the time that the reads at its ends took: counters are read
one after the other, so two of them never cover exactly the same span.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.counter_limits import MAX_IPC
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.doubt import Doubt

SLACK = 0.01
"""Share of the span by which counts may differ; serial reads of real siblings missed bounds by 0.6
%."""
BUSY_S = 0.02
"""Seconds of running by the system's account after which a counter must have moved; our own
wake-ups take a thousandth of it."""
WORKED_S = 5e-6
"""Seconds of running by a witness after which a counter must have moved: less than any wake-up
takes, more than one tick of a crystal."""
AGREED = 0.02
"""Relative difference below which two clocks agree; turbo and halts cause far larger ones."""
WAYS = ("topdown_retiring", "topdown_bad_speculation", "topdown_frontend", "topdown_backend")
"""Each issue slot goes one of these ways."""
CHECKED = {"ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", *WAYS}
WITNESSES = {
    "ref": ("cycles", "mperf"), "cycles": ("ref", "aperf"), "instructions": ("cycles",),
    "kernel_cycles": ("cycles",), "kernel_instructions": ("instructions",),
}  # fmt: skip
"""Counters that show that a CPU worked, by the counter that must have moved then."""
SLOTS_APART = 0.02
"""Share of the slots by which the four may miss them: four fields, each right to 1 in 255."""
LEAST_SHARE = 0.1
"""Minimum share of the span that a CPU must have run before its clocks are first compared."""


class Gates:
    """The gates of one stream. They remember on which CPUs a counter has agreed with its witness.
    Only there a later difference raises a doubt, because a hypervisor or an odd model may let the
    two run at different rates."""

    def __init__(self, counters: Counters) -> None:
        rows = len(counters.hello.topology)
        self._agreed = {"ref": np.zeros(rows, bool), "cycles": np.zeros(rows, bool)}
        self._some = not CHECKED.isdisjoint(counters.key_at)
        """Whether the stream has counters to check."""

    def check(self, counters: Counters, delta: Delta) -> None:
        """Write the doubts into `delta`, which holds samples along its first axis."""
        if not self._some or "cpu" not in delta.tables:
            return
        doubt = _Noted(counters, delta)
        _standstill(doubt)
        _parts(doubt, self._clocks(doubt))
        _slots(doubt)

    def _clocks(self, doubt: _Noted) -> Bools:
        """Compare reference cycles with the TSC and MPERF, and cycles with APERF. Returns where
        cycles have agreed by then; without the axis of samples if nothing new tells that."""
        ref = doubt.moved("ref")
        if ref is not None and doubt.counters.has_tsc:
            doubt.note("ref", Doubt.FAST, ref > doubt.ticks + doubt.slack)
        agreed, least = self._agreed["cycles"], 4 * doubt.slack
        for key, witness in (("ref", "mperf"), ("cycles", "aperf")):
            mine, other = doubt.moved(key), doubt.moved(witness)
            if mine is None or other is None:
                continue
            apart, before = np.abs(mine - other), self._agreed[key]
            unlike = apart > np.maximum(AGREED * np.maximum(mine, other), least)
            if np.count_nonzero(before) < before.size:
                agree = (other > LEAST_SHARE * doubt.ticks) & (apart < AGREED * other)
                if np.count_nonzero(agree & ~before):  # seldom
                    by_now = np.logical_or.accumulate(np.concatenate([before[None], agree]))
                    before, self._agreed[key] = by_now[:-1], by_now[-1]
                    if key == "cycles":
                        agreed = by_now[1:]
            doubt.note(key, Doubt.UNLIKE, before & unlike)
        return agreed


def _parts(doubt: _Noted, agreed: Bools) -> None:
    """Compare instructions with cycles, and kernel counts with total counts. `agreed`: where cycles
    have agreed with their witness."""
    cycles, instructions = doubt.moved("cycles"), doubt.moved("instructions")
    if cycles is not None and instructions is not None:
        many = instructions > MAX_IPC * (cycles + doubt.slack)
        doubt.note("instructions", Doubt.IPC, many)
        doubt.note("cycles", Doubt.IPC, many & ~agreed)
    for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
        moved = doubt.moved(part)
        if moved is not None and whole is not None:
            doubt.note(part, Doubt.ABOVE, moved > whole * (1 + SLACK) + doubt.slack)


def _slots(doubt: _Noted) -> None:
    """Compare the four ways of issue slots with the slots, where a CPU worked long enough for the
    steps of 8 bits not to matter."""
    every = doubt.moved("slots")
    if every is None:
        return
    parts = [doubt.moved(key) for key in WAYS]
    if any(part is None for part in parts):
        return
    total = np.sum([part for part in parts if part is not None], axis=0)
    apart = np.abs(total - every) > SLOTS_APART * every + doubt.slack
    for key in WAYS:
        doubt.note(key, Doubt.SLOTS, apart)


class _Noted:
    """Samples and their doubts so far; arrays are (samples, CPUs)."""

    def __init__(self, counters: Counters, delta: Delta) -> None:
        self.counters, self.delta = counters, delta
        self._moved: dict[str, Floats | None] = {}
        self._clean = not np.count_nonzero(delta.doubts)
        """Nothing is doubted yet."""
        table = delta.tables["cpu"]
        self.ticks: Floats = counters.tsc_ticks(delta) if counters.has_tsc else table.ticks
        """TSC ticks of each span."""
        self.slack: Floats = (SLACK + table.reads) * self.ticks
        """TSC ticks by which two counts of the span may differ."""
        self.little = WORKED_S * (counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan)

    def moved(self, key: str) -> Floats | None:
        """How far a counter moved; NaN where it is doubted already, so that it raises no doubt
        elsewhere."""
        if key not in self._moved:
            self._moved[key] = self.counters.moved(self.delta, key)
        moved = self._moved[key]
        if moved is None or self._clean or key not in self.counters.key_at:
            return moved
        return np.where(self.delta.doubts[..., self.counters.key_at[key]] == 0, moved, np.nan)

    def note(self, key: str, why: Doubt, rows: Bools) -> None:
        """Doubt a counter on these rows; a reason noted earlier stays."""
        if np.count_nonzero(rows):
            codes = self.delta.doubts[..., self.counters.key_at[key]]
            codes[rows & (codes == 0)] = why
            self._clean = False


def _standstill(doubt: _Noted) -> None:
    """Doubt counters that do not move while the CPU works: a hypervisor may answer every read with
    the same number, or another program may have put another event in a counter's place."""
    read = doubt.ticks > 0
    for key, signs in WITNESSES.items():
        moved = doubt.moved(key)
        if moved is None or np.count_nonzero(moved) == moved.size:
            continue
        if not np.count_nonzero(still := (moved == 0) & read):
            continue
        if key == "ref" and (busy := _busy_s(doubt.counters, doubt.delta)) is not None:
            doubt.note(key, Doubt.STILL, still & (busy > BUSY_S))
        for sign in signs:
            if (other := doubt.moved(sign)) is not None:
                doubt.note(key, Doubt.STILL, still & (other > doubt.little))


def _busy_s(counters: Counters, delta: Delta) -> Floats | None:
    """Seconds that each CPU was not idle, by the account that the stream has; None if it has
    none."""
    busy = counters.moved(delta, "busy_s")
    idle = counters.moved(delta, "idle_s")
    if busy is not None or idle is None:
        return busy
    poll = counters.moved(delta, "poll_s")
    block = counters.columns["idle_s"].block
    elapsed: Floats = delta.tables[block].ticks / counters.stamp_hz
    return elapsed - idle - (0.0 if poll is None else poll)
