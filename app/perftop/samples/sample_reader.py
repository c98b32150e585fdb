"""From a frame to a sample, after all that cannot be true was taken out of it.

The one way that live numbers and those looked up in history both take: a sieve that goes on from a
state it was in makes of the same frames the same samples.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools
from perftop.samples import gates
from perftop.samples.cores import Cores
from perftop.samples.counters import Counters, Delta
from perftop.samples.evaluation import Evaluator, Values
from perftop.samples.smt import Split, Splitter
from perftop.samples.turbo import Ceilings, Turbo


@dataclass(frozen=True, slots=True)
class Sample:
    """What one frame shows, against the one before it."""

    delta: Delta
    """With the reasons of what was left out."""
    values: Values
    split: Split
    beside: set[int]
    """CPUs left out because a sibling's sample is suspect, by position."""
    skew_ns: int
    ceilings: Ceilings


@dataclass(frozen=True, slots=True)
class State:
    """All that reading a stream leaves behind; not to be changed."""

    counters: Counters
    online: Bools

    @property
    def nbytes(self) -> int:
        return self.counters.nbytes + self.online.nbytes


class Sieve:
    """Frames in, samples out."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.counters = Counters(hello)
        self.evaluator = Evaluator(self.counters)
        self.splitter = Splitter(self.counters)
        self.position = {row.cpu: i for i, row in enumerate(hello.topology)}
        self.online: Bools = np.array([row.online for row in hello.topology])
        self._started = False
        self.cores = Cores(hello, hello.cores)
        self.turbo = Turbo(self.counters, self.cores)

    def state(self) -> State:
        return State(self.counters.copy(), self.online.copy())

    def resumed(self, state: State) -> Sieve:
        """A sieve in that state. Cores and calibrations are those of this one, as they are now."""
        twin = copy.copy(self)
        twin.counters = state.counters.copy()
        twin.online = state.online.copy()
        return twin

    def regroup(self, cores: list[list[int]]) -> None:
        self.cores = Cores(self.hello, cores)
        self.splitter.regroup(cores)
        self.turbo.regroup(self.cores)

    def hotplug(self, note: wire.Note) -> tuple[int, bool] | None:
        """The position of the CPU that went or came, and whether it is there now. A CPU that hello
        did not know has no row in any frame."""
        cpu, online = note.data.get("cpu"), bool(note.data.get("online"))
        row = self.position.get(cpu) if isinstance(cpu, int) else None
        if note.kind != "hotplug" or row is None:
            return None
        self.online[row] = online
        if not online:
            self.counters.forget(row)
        return row, online

    def skip(self, frame: wire.Frame) -> None:
        """Only what the next sample is taken against."""
        self.counters.skip(frame)

    def sample(self, frame: wire.Frame, *, learn: bool = False) -> Sample | None:
        """None: the first frame is only what the next is taken against. `learn`: this sample was
        not seen before, and is evidence for the factors of counters."""
        delta = self.counters.step(frame)
        if not self._started:
            self._started = True
            return None
        gates.check(self.counters, delta)
        values = self.evaluator.evaluate(delta)
        split = self.splitter.split(delta, values, self.online, learn=learn)
        for core in np.flatnonzero(split.suspect):
            for cpu in self.splitter.cores[core]:
                reason = f"SMT states out of bounds ({split.method[core]})"
                delta.suspect.setdefault(self.position[cpu], set()).add(reason)
        beside: set[int] = set()
        if delta.suspect:  # a sample that spoils one sibling spoils the core's split
            beside = self._beside(set(delta.suspect))
            gates.remove(self.counters, delta, sorted(delta.suspect.keys() | beside))
            values = self.evaluator.evaluate(delta)
            split = self.splitter.split(delta, values, self.online)
        ceilings = self.ceilings(delta, values)
        return Sample(delta, values, split, beside, self._skew_ns(frame), ceilings)

    def ceilings(self, delta: Delta, values: Values) -> Ceilings:
        """What turbo allows each core; `values` are those of the span."""
        return self.turbo.ceilings(delta, values["util"], self.online)

    def _beside(self, rows: set[int]) -> set[int]:
        """The siblings of these CPUs that are not among them."""
        found = set()
        for siblings in self.splitter.cores:
            members = {self.position[cpu] for cpu in siblings}
            if members & rows:
                found |= members - rows
        return found

    def _skew_ns(self, frame: wire.Frame) -> int:
        """Spread of the wake-ups."""
        for block in self.hello.blocks:
            rows = frame.blocks.get(block.name)
            if block.scope == "cpu" and rows is not None:
                head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD)
                if len(head) > 1 or len(self.position) == 1:
                    late = head[head[:, 4] & np.uint64(wire.ROW_SAMPLED) != 0, 2]
                    return int(late.max() - late.min()) if len(late) else 0
        return 0
