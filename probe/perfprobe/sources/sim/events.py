"""Events that a simulated machine can be asked for. Each is a fixed share of what its CPUs really
did, so that the true count of any span is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfprobe.errors import Unavailable, Usage
from perfprobe.frozen import frozen
from perfprobe.kernel import event_names
from perfprobe.kernel.event_names import Asked
from perfprobe.sources.sim.cells import Row
from perfprobe.sources.sim.counters import CounterBank, SimCounter, block
from perfprobe.sources.sim.machine import Ints
from perfprobe.wire import Block, Counter, Missing

FREE = 3
"""Counters of a core that its own events leave; with more events than that they take turns."""
_KERNEL = {Row.CYCLES: Row.KERNEL_CYCLES, Row.INSTRUCTIONS: Row.KERNEL_INSTRUCTIONS}


@frozen
class Invented:
    name: str
    about: str
    row: Row
    times: int = 1
    of: int = 1000
    """Its count is the row x `times` / `of`; cycles and instructions are multiplied by 1000."""
    unit: str = "events"
    hardware: bool = True

    def count(self, totals: Ints, *, user: bool = False, kernel: bool = False) -> Ints:
        """What it counted, of integrals (Row, CPU), in one ring or in both. What is no instruction
        and no cycle is done by the kernel."""
        every, inside = totals[self.row], totals[_KERNEL.get(self.row, self.row)]
        ring = inside if kernel else every - inside if user else every
        return np.asarray(ring * self.times // self.of)


EVENTS = (
    Invented("context-switches", "context switches", Row.ENTRIES, 2, 1, "1", hardware=False),
    Invented("cpu-migrations", "tasks that came from another CPU", Row.ENTRIES, 1, 40, "1",
             hardware=False),
    Invented("page-faults", "page faults", Row.INSTRUCTIONS, 1, 400_000_000, "1", hardware=False),
    Invented("cycles", "cycles, unhalted", Row.CYCLES, unit="cycles"),
    Invented("instructions", "instructions retired", Row.INSTRUCTIONS, unit="instructions"),
    Invented("branches", "branches retired", Row.INSTRUCTIONS, 1, 5_000),
    Invented("branch-misses", "branches predicted wrongly", Row.INSTRUCTIONS, 1, 400_000),
    Invented("cache-references", "accesses to the last cache", Row.INSTRUCTIONS, 1, 50_000),
    Invented("cache-misses", "misses of the last cache", Row.INSTRUCTIONS, 1, 800_000),
    Invented("dTLB-load-misses", "dTLB: loads that missed", Row.INSTRUCTIONS, 1, 2_000_000),
    Invented("stalled-cycles-backend", "cycles that waited for data", Row.CYCLES, 3, 8_000),
)  # fmt: skip
_BY_NAME = {event.name: event for event in EVENTS}


class Events:
    """The events that were asked for, each group of them in a block of its own."""

    def __init__(self, text: str, cpus: int, *, multiplex: bool, guest: bool) -> None:
        """Raises ValueError for unknown names, and Unavailable."""
        groups = [[(a, _find(a)) for a in group] for group in event_names.parse(text)]
        each = [pair for group in groups for pair in group]
        hard = [pair for pair in each if pair[1].hardware]
        if guest and len(hard) == len(each):
            raise Unavailable(f"-e {hard[0][0].name}: the hypervisor exposes no PMU")
        if len(hard) > FREE and not multiplex:
            raise Unavailable(
                f"-e {hard[FREE][0].name}: no counter is left for it; without --no-multiplex "
                "the events take turns"
            )
        why = "the hypervisor exposes no PMU"
        self.missing = [Missing(asked.key, why) for asked, _ in hard] if guest else []
        soft = [pair for pair in each if not pair[1].hardware]
        counted = [] if guest else [hard] if len(hard) <= FREE else [[pair] for pair in hard]
        self.blocks: list[Block] = []
        self.banks: list[tuple[str, CounterBank]] = []
        """By the name of the block."""
        for i, group in enumerate(filter(None, [soft, *counted]), 1):
            share = (FREE, len(hard)) if len(counted) > 1 and group is not soft else (1, 1)
            table = _columns(group, *share)
            self.blocks.append(block(f"events.{i}", table))
            self.banks.append((f"events.{i}", CounterBank(table, cpus)))


def _columns(group: Sequence[tuple[Asked, Invented]], on: int, of: int) -> list[SimCounter]:
    """The times of a group that is counted `on` / `of` of the time, and what it counts then."""

    def amount(asked: Asked, event: Invented) -> Any:
        counted = {"user": asked.user, "kernel": asked.kernel}
        return lambda t: event.count(t, **counted) * on // of

    return [
        SimCounter(Counter("perf_enabled_s", "time to count", "s", "perf sim", scale=1e-9),
                   lambda t: t[Row.ONLINE]),
        SimCounter(Counter("perf_running_s", "time counted", "s", "perf sim", scale=1e-9),
                   lambda t: t[Row.ONLINE] * on // of),
        *(
            SimCounter(Counter(asked.key, event.about, event.unit, "perf sim"),
                       amount(asked, event), step=7)
            for asked, event in group
        ),
    ]  # fmt: skip


def _find(asked: Asked) -> Invented:
    if asked.pmu or asked.word not in _BY_NAME:
        near = event_names.nearest(asked.word, _BY_NAME) or [*_BY_NAME]
        raise Usage(f"-e {asked.name}: a simulated machine has not that; {', '.join(near)}")
    return _BY_NAME[asked.word]
